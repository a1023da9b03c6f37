"""Measures how long each step took on each task."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.summary.pictures.numbers import Pace

MOST_CELLS = 200_000
_FEWEST_STEPS = 100


def make_pace(job: Job) -> Pace | None:
    """Return the pace of all steps, whatever time was chosen, on the chosen tasks; None if no steps were found.

    All these tasks are shown. If there are too many steps, only the slowest of each block of consecutive steps is
    shown: the step with the longest span on any task, and on a tie the first one.
    """
    steps = job.steps
    if steps is None:
        return None
    task = job.new_task[steps.task]
    chosen = np.flatnonzero(task >= 0)
    if not chosen.size:
        return None
    tasks, row = np.unique(task[chosen], return_inverse=True)
    step, begin, end = steps.step[chosen], steps.begin[chosen], steps.end[chosen]
    ns = np.zeros((tasks.size, steps.number.size), np.int64)
    ns[row, step] = end - begin
    every = -(-steps.number.size // max(_FEWEST_STEPS, MOST_CELLS // tasks.size))
    warmup, counts = steps.warmup, ns[:, steps.warmup :]
    # Blocks do not mix warm-up steps and others.
    before, after = (_choose_slowest(part.max(axis=0), every) for part in (ns[:, :warmup], counts))
    shown = np.concatenate([before, warmup + after])
    return Pace(
        name=steps.name,
        tasks=[job.tree.model.tasks[number].name for number in tasks.tolist()],
        numbers=steps.number[shown],
        warmup=before.size,
        ns=ns[:, shown],
        count=counts.shape[1],
        median_ns=np.median(counts, axis=1),
        least_ns=counts.min(axis=1),
        most_ns=counts.max(axis=1),
        begin_ns=steps.start[shown] - job.scope.zero,
        end_ns=steps.stop[shown] - job.scope.zero,
        every=every,
    )


def _choose_slowest(longest: IntArray, every: int) -> IntArray:
    """Return the index of the largest value of each block of `every` values; the last block may be shorter."""
    blocks = np.full((-(-longest.size // every), every), -1, np.int64)
    blocks.ravel()[: longest.size] = longest
    return np.asarray(np.arange(len(blocks)) * every + np.argmax(blocks, axis=1), np.int64)
