"""Decides what marks the steps of a program: its NVTX ranges, or what it repeats.

In this order:

- the ranges that the user names, which need no numbers: each task then counts its ranges from 0;
- ranges with a number as the last word of their names (steps/numbered_ranges.py), then elsewhere in their texts
  (steps/numbered_names.py), unless kernels show that these are parts of steps;
- ranges without numbers, by their order (steps/range_periods.py);
- what each task repeats (steps/repetition.py).

Numbered ranges must *tile* the time: cover most of it from the first to the last on their thread, with no other
numbered ranges beside them. Where they do not, ranges that follow each other are the steps if they cover clearly more.
So are those within epochs, and those of a thread that launches work if the numbered ones are of one that does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.groups import Table, join_tables, make_objects, reduce_groups, sort_groups, take_rows
from nsys2prv_ng.arrays.row_keys import count_earlier, sort_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.reading.opened_events import ABSENT, load_nvtx_ranges
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.parallel import Engine
from nsys2prv_ng.steps.numbered_names import compile_template, cut_last_word
from nsys2prv_ng.steps.numbered_ranges import (
    FEWEST,
    Marked,
    choose_numbered,
    count_same,
    has_unended,
    is_in_order,
    keep_shared,
    list_numbered,
    measure,
    tabulate,
)
from nsys2prv_ng.steps.repetition import find_range_periods, find_repetitions
from nsys2prv_ng.text.formatting import join_first

REPETITIONS = "repeated kernels"
"""Name of steps without ranges."""
_LEAST_TILED = 0.8
"""Minimum share of the time that ranges cover if they tile it. Hosts that run ahead leave more to other ranges."""
_CLEARLY_MORE = 1.25
"""Ranges cover clearly more time than others if they cover this many times as much."""


class Marks(NamedTuple):
    """What marks the steps: a name, and for each task and step the columns task, row, number, report, begin,
    end (ns) and text.

    `delimiter`, `similarity` and `repeats`: as in Repetitions; "", 1 and 1 for ranges.
    """

    name: str
    table: Table
    delimiter: str = ""
    similarity: float = 1.0
    repeats: int = 1


def find_marks(
    reports: Sequence[ReportRecords], tree: ObjectTree, store: Store, length: int, engine: Engine, name: str
) -> Marks | None:
    """Return what marks the steps; None if nothing does."""
    if name:
        return _find_named(reports, tree, store, name, engine)
    is_cut = has_unended(reports)
    numbered = list(list_numbered(reports, tree, store, engine))
    last_words, others = (choose_numbered(kind, length, is_cut=is_cut) for kind in zip(*numbered, strict=True))
    for marked in (last_words, others):
        if marked is not None and _tile(marked):
            return Marks(marked.name, marked.table)
    periods = find_range_periods(reports, tree, store, FEWEST, engine)
    known = last_words or others
    if periods is not None and (
        known is None or known.rivals or measure(periods.table) > _CLEARLY_MORE * measure(known.table)
    ):
        return Marks(periods.name, periods.table)
    if last_words is not None:
        return Marks(last_words.name, last_words.table)
    repeated = find_repetitions(reports, tree, store, FEWEST, engine)
    # Layers and blocks have numbers in their names, too: steps are as long as half of what kernels repeat, or of all.
    whole = length * np.unique(tree.task_of_row).size if repeated is None else measure(repeated.table)
    if others is not None and 2 * measure(others.table) >= whole:
        return Marks(others.name, others.table)
    if repeated is None:
        return None
    # What is launched at the end of a range belongs to it, but here that is the first launch of the next step.
    table = {**repeated.table, "end": repeated.table["end"] - 1}
    return Marks(REPETITIONS, table, repeated.name, repeated.similarity, repeated.repeats)


def _tile(marked: Marked) -> bool:
    """Return whether ranges cover most of the time from the first to the last of each task, and have no rivals."""
    order, starts = sort_groups([marked.table["task"]])
    first, last = (
        reduce_groups(marked.table[name], order, starts, how) for name, how in (("begin", "min"), ("end", "max"))
    )
    return not marked.rivals and measure(marked.table) >= _LEAST_TILED * int((last - first).sum())


def _find_named(reports: Sequence[ReportRecords], tree: ObjectTree, store: Store, name: str, engine: Engine) -> Marks:
    """Return the marks made of push/pop ranges of a name, in any domain. Raises UsageError if they are not steps."""
    reports_with_rows = list(zip(range(len(reports)), reports, tree.rows, strict=True))
    tables = list(engine.sum_up(lambda each: _load_named(*each, tree, store, name), reports_with_rows))
    table = join_tables(tables)
    if not table["task"].size:
        numbered = list_numbered(reports, tree, store, engine)
        known = sorted({other for kinds in numbered for ranges in kinds for other in ranges.names})
        hint = f"; ranges with numbers are {join_first(known, _MOST_LISTED)}" if known else ""
        raise UsageError(f"no NVTX range in the selected reports has this name{hint}", parameter="step", value=name)
    table = take_rows(table, sort_rows(table["task"], table["begin"]))
    tasks = np.unique(table["task"]).size
    if (table["number"] == ABSENT).any():
        table["number"] = count_earlier(table["task"])
    table = keep_shared(table, is_cut=has_unended(reports))
    if not is_in_order(table):
        reason = "a rank opens them on several threads, within each other, or not in the order of their numbers"
    elif np.count_nonzero(table["task"] == table["task"].min()) < FEWEST:
        reason = f"a rank has fewer than {FEWEST} of them"
    elif not count_same(table, tasks):
        reason = "not every rank has as many of them, with the same numbers"
    else:
        return Marks(name, table)
    raise UsageError(f"these ranges are not steps: {reason}", parameter="step", value=name)


_MOST_LISTED = 5


def _load_named(index: int, report: ReportRecords, rows: IntArray, tree: ObjectTree, store: Store, name: str) -> Table:
    """Return the push/pop ranges of a name in a report: task, row, number (or ABSENT), report, begin,
    end (ns) and text.

    `name` may be a template (steps/numbered_names.py), unless a range has this very name.
    """
    ranges = load_nvtx_ranges(report, store)
    texts = [text for _, text in ranges.keys]
    template = cut_last_word(name)
    matches = [None if name in texts else compile_template(template)(text) for text in texts]
    is_wanted = np.array(
        [text == name or match is not None for text, match in zip(texts, matches, strict=True)], np.bool_
    )
    chosen = np.flatnonzero(is_wanted[ranges.key])
    table = {**tabulate(index, ranges, chosen, rows, tree), "text": make_objects(texts)[ranges.key[chosen]]}
    if "{n}" in template:
        number = np.array([int(match["n"]) if match else ABSENT for match in matches], np.int64)
        table["number"] = number[ranges.key[is_wanted[ranges.key]]]
    return table
