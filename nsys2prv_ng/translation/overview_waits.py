"""The waits and steps of an overview: as in the whole trace, the longest waits first, as far as the bytes allow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.gpus.activity import list_runs
from nsys2prv_ng.analysis.waits.late_reasons import LateReasons
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.job.open_job import Job, store_derived
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.records.runs import Run, load_records
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import JoinResult
from nsys2prv_ng.translation.overview_budget import LineSizes
from nsys2prv_ng.translation.step_records import STEPS, StepsOnRows, list_steps, store_steps
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
    lines = np.zeros(job.tree.model.row_count, np.int64)
    for run in list_runs(job, STEPS):
        lines += np.bincount(load_records(run, job.store).place, minlength=lines.size)
    with_steps = np.flatnonzero(lines)
    fits = np.cumsum(lines[with_steps]) * sizes.count_event(_DIGITS) <= budget
    kept = with_steps[fits]
    whole = [joined.accounts[STEPS] for joined in job.joined if STEPS in joined.accounts]
    if job.steps is not None and kept.size < with_steps.size:
        # Made again, as windows may cut a step into pieces, of which nobody knows which step they are of.
        steps = list_steps(job, job.steps)
        is_kept = np.isin(steps.row, kept)
        whole = [store_steps(job, StepsOnRows(*(column[is_kept] for column in steps))).accounts[STEPS]]
    runs = [run for result in whole for run in result.runs]
    return FirstSteps(runs, sum(result.written for result in whole), kept.size, with_steps.size)


_DIGITS = 10
"""Most digits of the value of a step."""
