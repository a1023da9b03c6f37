"""The waits and steps of an overview: as in the whole trace, the longest waits first, as far as the bytes allow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.gpu_activity import list_runs
from nsys2prv_ng.analysis.late_reasons import LateReasons
from nsys2prv_ng.analysis.waits import Waits
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.open_job import Job, store_derived
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.records.columns import Records, count_events
from nsys2prv_ng.records.runs import Run, load_records, store_records
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import JoinResult
from nsys2prv_ng.translation.overview_budget import LineSizes
from nsys2prv_ng.translation.step_records import STEPS
from nsys2prv_ng.translation.wait_records import WAITS, make_waiting, select_shown


class LongWaits(NamedTuple):
    """Waits in the store: runs, how many there are, and the length (ns) below which they are dropped."""

    runs: list[Run]
    written: int
    shortest: int


def make_long_waits(job: Job, waits: Waits, late: LateReasons, sizes: LineSizes, budget: int) -> LongWaits:
    """Store the part of kernels and calls in which they wait, of the longest waits that take at most `budget` bytes."""
    shown = select_shown(job, waits, Result())
    waiting = shown[waits.has_parts[shown] & (waits.until[shown] > waits.begin[shown])]
    length = waits.until[waiting] - waits.begin[waiting]
    task = len(str(len(job.whole.model.tasks)))
    most = budget // (sizes.count_event(1, task, 1) + sizes.count_event(1, 1, 1))
    shortest = int(np.partition(length, -most - 1)[-most - 1]) + 1 if length.size > most else 0
    joined = JoinResult()
    records = make_waiting(job, waits, late, waiting[length >= shortest], Labels())
    joined.accounts[WAITS] = Result(records=records)
    store_derived(joined, job)
    result = joined.accounts[WAITS]
    return LongWaits(result.runs, result.written, shortest)


class FirstSteps(NamedTuple):
    """Steps in the store: runs, how many events there are, and on how many of the rows that have some."""

    runs: list[Run]
    written: int
    rows: int
    of_rows: int


def choose_steps(job: Job, sizes: LineSizes, budget: int) -> FirstSteps:
    """Return the steps of all rows, or of the first rows, whose steps take at most `budget` bytes."""
    runs = list_runs(job, STEPS)
    parts = [load_records(run, job.store) for run in runs]
    lines = np.zeros(job.tree.model.row_count, np.int64)
    for records in parts:
        lines += np.bincount(records.place, minlength=lines.size)
    with_steps = np.flatnonzero(lines)
    fits = np.cumsum(lines[with_steps]) * sizes.count_event(_DIGITS) <= budget
    kept = with_steps[fits]
    if kept.size < with_steps.size:
        parts = [_take_rows(records, kept) for records in parts]
        runs = [run for records in parts for run in store_records(records, job.store, on_common_clock=True)]
    return FirstSteps(runs, sum(map(count_events, parts)), kept.size, with_steps.size)


_DIGITS = 10
"""Most digits of the value of a step."""


def _take_rows(records: Records, rows: IntArray) -> Records:
    return records.take(np.flatnonzero(np.isin(records.place, rows)))
