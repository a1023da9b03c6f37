"""Finds the steps of a program: the iterations that its outermost NVTX ranges mark on every rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.analysis.opened_events import ABSENT, load_opened_events
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import families

FEWEST = 3
"""Fewest ranges that make steps."""
_LEAST = 1_000
"""Steps are at least one part in so many of the job's time; PyTorch numbers operations too, which may be few."""


class Steps(NamedTuple):
    """n steps of a job: the name of their ranges, and when the last rank began and ended each (ns)."""

    name: str
    number: IntArray
    begin: IntArray
    end: IntArray
    last_row: int
    """Row (of the whole tree) of the thread that ended the last step last."""


def find_steps(job: Job) -> Steps | None:
    """Return the steps of a job; None where its ranges do not show any.

    Steps are the NVTX push/pop ranges of one name with a number ("step 7") that every task with such ranges has as
    often, on one thread, in the order of the numbers and one after the other; of several such names, the one that
    covers most time, and at least a vanishing part of it.
    """
    tables = list(_list_numbered(job))
    if not tables:
        return None
    ranges = pd.concat(tables, ignore_index=True)
    tasks = ranges["task"].nunique()
    best: Steps | None = None
    longest = tasks * (job.last - job.first) // _LEAST
    for name, table in ranges.groupby("name", sort=True):
        numbers = table.groupby("task")["number"].agg(["nunique", "min", "max"])
        covered = int((table["end"] - table["begin"]).sum())
        if len(numbers) < tasks or numbers["nunique"].nunique() > 1 or numbers["nunique"].iloc[0] < FEWEST:
            continue
        if (numbers["max"] - numbers["min"] + 1 != numbers["nunique"]).any() or numbers["min"].nunique() > 1:
            continue
        if len(table) != int(numbers["nunique"].sum()) or covered <= longest or not _is_in_order(table):
            continue
        by_number = table.groupby("number")
        last = table.iloc[int(table["end"].to_numpy().argmax())]
        best = Steps(
            str(name),
            by_number["begin"].max().index.to_numpy(np.int64),
            by_number["begin"].max().to_numpy(),
            by_number["end"].max().to_numpy(),
            int(last["row"]),
        )
        longest = covered
    return best


def _is_in_order(table: pd.DataFrame) -> bool:
    """Whether the ranges of each task are on one thread, one after the other, in the order of their numbers."""
    table = table.sort_values(["task", "begin"])
    same = table["task"].to_numpy()[1:] == table["task"].to_numpy()[:-1]
    one_thread = table["row"].to_numpy()[1:] == table["row"].to_numpy()[:-1]
    apart = table["begin"].to_numpy()[1:] >= table["end"].to_numpy()[:-1]
    ascending = table["number"].to_numpy()[1:] > table["number"].to_numpy()[:-1]
    return bool(np.all(~same | (one_thread & apart & ascending)))


def _list_numbered(job: Job) -> Iterator[pd.DataFrame]:
    """Yield the push/pop ranges of the default domain that have a number: task, row, name, number, begin, end (ns)."""
    for report, rows in zip(job.reports, job.whole.rows, strict=True):
        events = load_opened_events(report, "nvtx", job.store)
        push_pop = next((nvtx for nvtx in events.list_types("nvtx") if nvtx == families.make_nvtx_range("")), None)
        if push_pop is None:
            continue
        number = events.get_values(families.make_nvtx_number(""))
        value = events.get_values(push_pop)
        lines = np.flatnonzero((value != ABSENT) & (number != ABSENT))
        row = rows[events.place[lines]]
        names = events.get_names(push_pop)
        yield pd.DataFrame(
            {
                "task": job.whole.task_of_row[row],
                "row": row,
                "name": [names[v] for v in value[lines].tolist()],
                "number": number[lines],
                "begin": events.begin[lines],
                "end": events.end[lines],
            }
        )
