"""Marks the ranges of steps on host threads, as nodes of a replay."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.path.lanes import Lanes
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.step_functions import find_latest
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.replay.columns import CODE, NONE, Edges, Numbers, make_edges


class Marks(NamedTuple):
    """Nodes from `first` on: the ends of the ranges that mark the steps on each task, then their starts (2n)."""

    first: int
    time: IntArray
    thread: IntArray
    """The thread of each range; NONE if it is not known."""


def list_marks(job: Job, lanes: Lanes, numbers: Numbers, first: int) -> tuple[Marks, Edges]:
    """Return the marks of the steps of a job, and their dependencies on the calls before them."""
    steps = job.steps
    if steps is None:
        none = np.zeros(0, np.int64)
        return Marks(first, none, none), make_edges(none, none, CODE)
    time = np.concatenate([steps.host_end, steps.host_begin])
    # A row has a thread for each capture of its process.
    order = np.lexsort((lanes.thread_first, lanes.thread_row))
    at = find_latest(lanes.thread_row[order], lanes.thread_first[order], np.tile(steps.row, 2), time)
    thread = np.where(at >= 0, np.append(order, NONE)[at], NONE)
    calls = lanes.calls
    call = find_latest(calls.thread, calls.begin, thread, time)
    has_call = (call >= 0) & (thread >= 0)
    is_inside = has_call & (np.append(calls.end, 0)[call] > time)
    since = np.where(is_inside, numbers.call_begin, numbers.call_end) + call
    nodes = first + np.arange(time.size)
    return Marks(first, time, thread), make_edges(np.where(has_call, since, NONE), nodes, CODE)
