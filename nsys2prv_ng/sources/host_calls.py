"""Calls on host threads, whatever they call: which of them can be shown."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.base import BoolArray, IntArray, Result, unsound_times
from nsys2prv_ng.sources.lanes import crossing


def sound_calls(result: Result, begin: IntArray, end: IntArray, global_tid: IntArray) -> IntArray:
    """Rows of calls that have a thread and sound times and nest on their thread; the others are counted as dropped."""
    no_thread: BoolArray = global_tid == NULL
    reasons = {"no thread": no_thread}
    reasons |= {reason: mask & ~no_thread for reason, mask in unsound_times(begin, end).items()}
    for reason, mask in reasons.items():
        result.drop(reason, int(mask.sum()))
    rows = np.flatnonzero(~np.logical_or.reduce(list(reasons.values())))
    crosses = crossing(global_tid[rows], begin[rows], end[rows])
    result.drop("crosses another of its thread", int(crosses.sum()))
    return rows[~crosses]
