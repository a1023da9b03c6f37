"""Finds the steps of a program: the iterations that each rank marks with NVTX ranges, or shows by repeating kernels.

Definitions (steps/spans.py defines when a step ends):

- Steps are the NVTX push/pop ranges of one name with a number ("step 7") of which every task with numbered ranges has
  several, on one thread, one after the other in the order of their numbers. Captures may begin and end within different
  steps: the steps that all tasks have count, if they began about when the others did (`_keep_shared`). Of a process
  with several captures, numbers may be missing between these. If several names qualify, the name that covers most time
  wins. It must cover a minimum share of the job's time (_LEAST).
- If no name qualifies, numbers elsewhere in the texts count (steps/numbered_names.py), unless kernels show that these
  ranges are parts of steps.
- If the user names the ranges, they need no numbers: each task then counts its ranges from 0.
- If no ranges mark the steps, they are what each task repeats (steps/repetition.py).
- A range that had not ended when the capture ended is not a step.
- A step of the job ends when the last task ends it, and starts when the step before it ended: steps tile the time of a
  capture. The first step of each capture (a report of each task) starts when its first range does. Without GPU
  operations, a step is as long as its longest range on any task.
- The first step is warm-up. So are the steps that follow it, up to half of all steps, as long as each is slower than
  the median of all steps by more than three median deviations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.groups import Table, group_rows, join_tables, reduce_groups, sort_groups, take_rows
from nsys2prv_ng.arrays.row_keys import count_earlier, find_starts, list_indices, mark_duplicates, sort_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.intervals.windows import unite_windows
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.reading.nvtx_ranges import NvtxRanges, load_nvtx_ranges
from nsys2prv_ng.reading.opened_events import ABSENT
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.engine import Engine
from nsys2prv_ng.steps.numbered_names import compile_template, cut_last_word, find_templates
from nsys2prv_ng.steps.repetition import find_repetitions
from nsys2prv_ng.steps.spans import HostSpans, find_gpu_ends
from nsys2prv_ng.text.formatting import join_first

FEWEST = 3
"""Minimum number of ranges that make steps."""
REPETITIONS = "repeated kernels"
"""Name of steps without ranges."""
_LEAST = 1_000
"""Steps cover at least 1/_LEAST of the job's time, because PyTorch also numbers operations, which may be few."""
_DEVIATIONS = 3
"""A step at the start is warm-up if it exceeds the median by more than this many median deviations."""


class Steps(NamedTuple):
    """m steps of a job, made up of n spans: one for each task and step. Times are on the common clock.

    - `delimiter`: what recurs at the end of each step, if no NVTX ranges mark the steps: `CUDA graph`, or the name of a
      kernel.
    - `similarity`: how similar the operations of steps are that no ranges mark, from 0 to 1 (steps/work.py); else 1.
    - `on_gpu`: whether steps end with the GPU operations that they launched; else they are ranges on hosts.
    - `number`: number of each step (m), ascending; `warmup`: how many at the start are warm-up.
    - `start`, `stop`: start and end (ns) of each step of the job (m).
    - `task`: task of the whole tree (n). Spans are sorted by task and step.
    - `row`: row of the whole tree: the thread that opened the range, or the first thread of the task; -1 without one.
    - `step`: index of the step of each span.
    - `begin`, `end`: start and end (ns) of each step on its task (n).
    - `host_begin`, `host_end`: start and end (ns) of the range that marks it (n).
    """

    name: str
    delimiter: str
    similarity: float
    on_gpu: bool
    number: IntArray
    warmup: int
    start: IntArray
    stop: IntArray
    task: IntArray
    row: IntArray
    step: IntArray
    begin: IntArray
    end: IntArray
    host_begin: IntArray
    host_end: IntArray

    @property
    def has_ranges(self) -> bool:
        """Whether NVTX ranges mark the steps."""
        return not self.delimiter

    @property
    def length(self) -> IntArray:
        """Length of each step of the job (m, ns)."""
        return self.stop - self.start if self.on_gpu else self.host_length

    @property
    def host_length(self) -> IntArray:
        """Length of the longest range of each step (m, ns)."""
        return _find_latest(self.step, self.host_end - self.host_begin, self.number.size)

    @property
    def host(self) -> HostSpans:
        """The ranges that mark the steps."""
        return HostSpans(self.task, self.host_begin, self.host_end)

    def list_windows(self, chosen: IntArray) -> list[tuple[int, int]]:
        """Return the time of the steps at these ascending indices (ns): several windows if they do not touch."""
        if self.on_gpu:
            return unite_windows(self.start[chosen], self.stop[chosen])
        first = find_starts(chosen - np.arange(chosen.size))  # ranges of steps that follow each other are one window
        last = np.append(first[1:], chosen.size) - 1
        return unite_windows(self.start[chosen[first]], self.stop[chosen[last]])

    def take(self, chosen: IntArray) -> Steps:
        """Return the steps at these indices, which are ascending."""
        spans = np.isin(self.step, chosen)
        columns = {name: getattr(self, name)[spans] for name in _OF_SPANS}
        columns["step"] = np.searchsorted(chosen, columns["step"])
        return self._replace(**columns, **{name: getattr(self, name)[chosen] for name in _OF_STEPS})


_OF_STEPS = ("number", "start", "stop")
_OF_SPANS = ("task", "row", "step", "begin", "end", "host_begin", "host_end")


def _find_latest(step: IntArray, column: IntArray, steps: int) -> IntArray:
    """Return the maximum of a column (n) in each step (m)."""
    latest = np.full(steps, np.iinfo(np.int64).min)
    np.maximum.at(latest, step, column)
    return latest


def find_steps(
    reports: Sequence[ReportRecords], tree: ObjectTree, store: Store, length: int, engine: Engine, name: str = ""
) -> Steps | None:
    """Return the steps of a job, which lasts `length` (ns); None if it shows no steps.

    Expects reports whose records no window has cut. Each piece of work has the records of one task in memory. `name`:
    the name of the ranges that the user calls steps. Raises UsageError if they cannot be steps.
    """
    marks = _find_marks(reports, tree, store, length, engine, name)
    if marks is None:
        return None
    table = take_rows(marks.table, sort_rows(marks.table["task"], marks.table["number"]))
    number, step = np.unique(table["number"], return_inverse=True)
    task, row, begin, end, report = (table[column] for column in ("task", "row", "begin", "end", "report"))
    gpu_end = find_gpu_ends(HostSpans(task, begin, end), reports, tree, store, engine, are_ranges=not marks.delimiter)
    start, stop = -_find_latest(step, -begin, number.size), _find_latest(step, end, number.size)
    host_begin, host_end = begin, end
    if gpu_end is not None:
        begin, end = np.append(begin[:1], gpu_end[:-1]), gpu_end
        # Each report is a capture: the time between two is of no step.
        opens = np.isin(np.arange(task.size), find_starts(task, report))
        begin[opens] = host_begin[opens]
        stop = _find_latest(step, end, number.size)
        all_open = -_find_latest(step, -opens.astype(np.int64), number.size) > 0
        start = np.where(all_open, np.maximum(start, np.append(start[:1], stop[:-1])), np.append(start[:1], stop[:-1]))
    steps = Steps(
        name=marks.name,
        delimiter=marks.delimiter,
        similarity=marks.similarity,
        on_gpu=gpu_end is not None,
        number=number,
        warmup=0,
        start=start,
        stop=stop,
        task=task,
        row=row,
        step=step.astype(np.int64),
        begin=begin,
        end=end,
        host_begin=host_begin,
        host_end=host_end,
    )
    return steps._replace(warmup=_count_warmup(steps.length))


class _Marks(NamedTuple):
    """What marks the steps: a name, and for each task and step the columns task, row, number, report, begin, end (ns).

    `delimiter` and `similarity`: as in Repetitions; "" and 1 for ranges.
    """

    name: str
    table: Table
    delimiter: str = ""
    similarity: float = 1.0


def _find_marks(
    reports: Sequence[ReportRecords], tree: ObjectTree, store: Store, length: int, engine: Engine, name: str
) -> _Marks | None:
    """Return what marks the steps; None if nothing does."""
    if name:
        return _find_named(reports, tree, store, name, engine)
    numbered = list(_list_numbered(reports, tree, store, engine))
    last_words, others = (_choose_of_kind(kind, length, _has_unended(reports)) for kind in zip(*numbered, strict=True))
    if last_words is not None:
        return last_words
    repeated = find_repetitions(reports, tree, store, FEWEST, engine)
    # Layers and blocks have numbers in their names, too: steps are as long as half of what kernels repeat, or of all.
    whole = length * np.unique(tree.task_of_row).size if repeated is None else _measure(repeated.table)
    if others is not None and 2 * _measure(others.table) >= whole:
        return others
    if repeated is None:
        return None
    # What is launched at the end of a range belongs to it, but here that is the first launch of the next step.
    end = repeated.table["end"] - 1
    table = {**repeated.table, "end": end, "report": np.zeros(end.size, np.int64)}
    return _Marks(REPETITIONS, table, repeated.delimiter, repeated.similarity)


def _measure(table: Table) -> int:
    """Return the sum of the lengths (ns) of steps over all tasks."""
    return int((table["end"] - table["begin"]).sum())


def _count_warmup(length: IntArray) -> int:
    """Return the number of warm-up steps at the start. `length`: the length of each step (ns)."""
    median = np.median(length)
    slow = length - median > _DEVIATIONS * np.median(np.abs(length - median))
    return 1 + int(np.argmin(np.append(slow[1 : length.size // 2], False)))


# ---- ranges ----------------------------------------------------------------------------------------------------------


class _NumberedRanges(NamedTuple):
    """The numbered push/pop ranges of the default domain in one report.

    `candidates`: those whose names may be steps: task, row, name, number, report (index), begin, end (ns).
    """

    tasks: IntArray
    names: list[str]
    candidates: Table


def _list_numbered(
    reports: Sequence[ReportRecords], tree: ObjectTree, store: Store, engine: Engine
) -> Iterator[tuple[_NumberedRanges, _NumberedRanges]]:
    """Yield the numbered ranges of each report: those with the number as their last word, and those with another."""
    reports_with_rows = list(zip(range(len(reports)), reports, tree.rows, strict=True))
    return engine.sum_up(lambda each: _load_numbered(*each, tree, store), reports_with_rows)


def _load_numbered(
    index: int, report: ReportRecords, rows: IntArray, tree: ObjectTree, store: Store
) -> tuple[_NumberedRanges, _NumberedRanges]:
    """Return the numbered ranges of a report, of two kinds.

    PyTorch numbers every operation. Only names whose numbers are consecutive in each task may be steps, so only their
    ranges are kept.
    """
    ranges = load_nvtx_ranges(report, store, lambda domain: domain == "")
    names = [name for _, name in ranges.keys]
    has_number = ranges.number != ABSENT
    last = np.flatnonzero(has_number)
    found = find_templates(names, FEWEST)
    others = np.flatnonzero(~has_number)
    first, after = (np.searchsorted(found.name, ranges.key[others], side) for side in ("left", "right"))
    chosen = list_indices(first, after - first)
    others = np.repeat(others, after - first)
    templates, template = np.unique(found.template[chosen].astype(str), return_inverse=True)
    numbered = {**_tabulate(index, ranges, others, rows, tree), "number": found.number[chosen]}
    return (
        _keep_consecutive(_tabulate(index, ranges, last, rows, tree), ranges.key[last], names),
        _keep_consecutive(numbered, template, templates.tolist()),
    )


def _keep_consecutive(table: Table, key: IntArray, names: list[str]) -> _NumberedRanges:
    """Return numbered ranges (n), of which only those may be steps whose names have consecutive numbers."""
    kept = np.flatnonzero(_mark_consecutive(table, key))
    candidates = {**take_rows(table, kept), "name": np.array(names, object)[key[kept]]}
    return _NumberedRanges(np.unique(table["task"]), [names[number] for number in np.unique(key)], candidates)


def _tabulate(report: int, ranges: NvtxRanges, chosen: IntArray, rows: IntArray, tree: ObjectTree) -> Table:
    """Return task, row, number (ABSENT without one), report, begin and end (ns) of chosen ranges of a report."""
    row = rows[ranges.place[chosen]].astype(np.int64)
    return {
        "task": tree.task_of_row[row].astype(np.int64),
        "row": row,
        "number": ranges.number[chosen],
        "report": np.full(row.size, report),
        "begin": ranges.begin[chosen],
        "end": ranges.end[chosen],
    }


def _mark_consecutive(table: Table, name: IntArray) -> BoolArray:
    """Mark ranges (n) whose name has consecutive numbers, one after the other on one thread, in all tasks."""
    task, row, number, begin, end = (table[column] for column in ("task", "row", "number", "begin", "end"))
    order = np.lexsort((begin, task, name))
    first, later = order[:-1], order[1:]
    follows = (row[first] == row[later]) & (end[first] <= begin[later]) & (number[later] - number[first] == 1)
    wrong = (name[first] == name[later]) & (task[first] == task[later]) & ~follows
    return ~np.isin(name, name[later[wrong]])


def _choose_of_kind(kind: Sequence[_NumberedRanges], length: int, is_cut: bool) -> _Marks | None:
    """Return the steps among numbered ranges of all reports; None if no name qualifies."""
    tasks = np.unique(np.concatenate([ranges.tasks for ranges in kind]))
    best = _choose_ranges(join_tables([ranges.candidates for ranges in kind]), tasks.size, length // _LEAST, is_cut)
    return None if best is None else _Marks(*best)


def _choose_ranges(ranges: Table, tasks: int, least: int, is_cut: bool) -> tuple[str, Table] | None:
    """Return the name of the steps and their ranges; None if no name covers more than `least` (ns).

    `tasks`: number of tasks with numbered ranges. `is_cut`: whether captures ended within ranges, which `ranges` then
    lack.
    """
    best: tuple[str, Table] | None = None
    longest = tasks * least
    for named in group_rows(ranges, "name"):
        table = _keep_shared(named, is_cut=is_cut)
        covered = _measure(table)
        if covered > longest and _count_same(table, tasks) and _is_in_order(table):
            best, longest = (str(table["name"][0]), table), covered
    return best


def _has_unended(reports: Sequence[ReportRecords]) -> bool:
    """Return whether the capture of a report ended within NVTX ranges."""
    return any(report.results[source_names.NVTX].unended for report in reports if source_names.NVTX in report.results)


def _keep_shared(table: Table, *, is_cut: bool) -> Table:
    """Return the ranges with numbers that all tasks have; all ranges if equal numbers are not the same step.

    Captures may begin and end within different steps, but tasks may also number different steps alike. So most ranges
    of each task must begin or end nearer to the range of this number of the first task than to those of the numbers
    around it. `is_cut`: whether captures ended within ranges: then just a last step may be missing at any time.
    """
    tasks = np.unique(table["task"]).size
    distinct, number, count = np.unique(table["number"], return_inverse=True, return_counts=True)
    kept = count >= tasks
    left_out = distinct.size - np.count_nonzero(kept)
    shared = take_rows(table, np.flatnonzero(kept[number]))
    if (is_cut and left_out == 1 and not kept[-1]) or (count[kept] != tasks).any():
        return shared
    order = sort_rows(shared["number"], shared["task"])
    begin, end = (shared[name][order].reshape(-1, tasks) for name in ("begin", "end"))
    is_near = 2 * np.sum(_mark_nearest(begin) | _mark_nearest(end), axis=0) > len(begin)
    return shared if begin.size and is_near.all() else table


def _mark_nearest(time: IntArray) -> BoolArray:
    """Mark where a time of a step (rows) on a task (columns) is as near to the first task's as those of the steps
    around it."""
    first, nearest = time[:, :1], np.ones(time.shape, np.bool_)
    own = np.abs(time - first)
    nearest[1:] &= own[1:] <= np.abs(time[:-1] - first[1:])
    nearest[:-1] &= own[:-1] <= np.abs(time[1:] - first[:-1])
    return nearest


def _count_same(table: Table, tasks: int) -> bool:
    """Return whether all tasks have the same numbers, at least FEWEST, none twice, and none left out in a capture."""
    number, count = np.unique(table["number"], return_counts=True)
    if number.size < FEWEST or (count != tasks).any() or mark_duplicates(table["task"], table["number"]).any():
        return False
    order, starts = sort_groups([table["task"], table["report"]])
    low, high = (reduce_groups(table["number"], order, starts, how) for how in ("min", "max"))
    return bool((high - low + 1 == np.diff(starts, append=order.size)).all())


def _is_in_order(table: Table) -> bool:
    """Return whether the ranges of each task are on one thread, one after the other in the order of their numbers."""
    order = sort_rows(table["task"], table["begin"])
    task, row, number, begin, end = (table[name][order] for name in ("task", "row", "number", "begin", "end"))
    in_order = (row[1:] == row[:-1]) & (begin[1:] >= end[:-1]) & (number[1:] > number[:-1])
    return bool(np.all((task[1:] != task[:-1]) | in_order))


def _find_named(reports: Sequence[ReportRecords], tree: ObjectTree, store: Store, name: str, engine: Engine) -> _Marks:
    """Return the marks made of push/pop ranges of a name, in any domain. Raises UsageError if they are not steps."""
    reports_with_rows = list(zip(range(len(reports)), reports, tree.rows, strict=True))
    tables = list(engine.sum_up(lambda each: _load_named(*each, tree, store, name), reports_with_rows))
    table = join_tables(tables)
    if not table["task"].size:
        numbered = _list_numbered(reports, tree, store, engine)
        known = sorted({other for kinds in numbered for ranges in kinds for other in ranges.names})
        hint = f"; ranges with numbers are {join_first(known, _MOST_LISTED)}" if known else ""
        raise UsageError(f"no NVTX range in the selected reports has this name{hint}", parameter="step", value=name)
    table = take_rows(table, sort_rows(table["task"], table["begin"]))
    tasks = np.unique(table["task"]).size
    if (table["number"] == ABSENT).any():
        table["number"] = count_earlier(table["task"])
    table = _keep_shared(table, is_cut=_has_unended(reports))
    if not _is_in_order(table):
        reason = "a rank opens them on several threads, within each other, or not in the order of their numbers"
    elif np.count_nonzero(table["task"] == table["task"].min()) < FEWEST:
        reason = f"a rank has fewer than {FEWEST} of them"
    elif not _count_same(table, tasks):
        reason = "not every rank has as many of them, with the same numbers"
    else:
        return _Marks(name, table)
    raise UsageError(f"these ranges are not steps: {reason}", parameter="step", value=name)


_MOST_LISTED = 5


def _load_named(index: int, report: ReportRecords, rows: IntArray, tree: ObjectTree, store: Store, name: str) -> Table:
    """Return the push/pop ranges of a name in a report: task, row, number (or ABSENT), report, begin, end (ns).

    `name` may be a template (steps/numbered_names.py), unless a range has this very name.
    """
    ranges = load_nvtx_ranges(report, store)
    texts = [text for _, text in ranges.keys]
    template = cut_last_word(name)
    matches = [None if name in texts else compile_template(template)(text) for text in texts]
    is_wanted = np.array(
        [text == name or match is not None for text, match in zip(texts, matches, strict=True)], np.bool_
    )
    table = _tabulate(index, ranges, np.flatnonzero(is_wanted[ranges.key]), rows, tree)
    if "{n}" in template:
        number = np.array([int(match["n"]) if match else ABSENT for match in matches], np.int64)
        table["number"] = number[ranges.key[is_wanted[ranges.key]]]
    return table
