"""Counts the launches of kernels whose kernels a report lacks, because nsys did not record them or when they ran.

nsys may record the calls of a process without its GPU operations, or lose operations in between or their times, and say
nothing: the GPU then looks idle. It is no loss if the call added its kernel to a CUDA graph, failed, or is part of
another launch, nor if the capture ended before the kernel ran. So calls do not count while their process captures a
stream, nor if they may have been pending at the end: before the last idle time that a later launch ended, all must have
run, since nothing kept them from it. If a process has no operation at all, all its launches count.
"""

from __future__ import annotations

import re

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.pick import pick
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.nesting import measure_depths
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.sources.cuda.device_operations import RUNTIME, locate, read_recorded_calls
from nsys2prv_ng.sources.shared.report_reader import ReportReader

_LAUNCH = re.compile(r"cu(da)?Launch(Cooperative)?Kernel.*")
_CAPTURES = re.compile(r"cu(da)?StreamBeginCapture.*"), re.compile(r"cu(da)?StreamEndCapture.*")


def warn_of_lost_kernels(reader: ReportReader) -> list[str]:
    """Return a warning if the report lacks kernels of launches, provided that kernels and CUDA's calls are read."""
    if not {source_names.KERNELS, source_names.CUDA_API} <= reader.chosen:
        return []
    recorded, operations = reader.once(read_recorded_calls), reader.once(locate)
    call, start, end = operations.call, operations.stack("start"), operations.stack("end")
    index, names = reader.names(reader.columns(RUNTIME)["nameId"][recorded.row])
    is_launch, begins, ends = (
        np.array([pattern.fullmatch(name) is not None for name in names], np.bool_)[index]
        for pattern in (_LAUNCH, *_CAPTURES)
    )
    has_operation = np.zeros(recorded.row.size, np.bool_)
    # Another warning counts those whose times are impossible.
    has_times = (start != NULL) & (end >= start) & (end > 0)
    has_operation[call[(call >= 0) & ((operations.place >= 0) | has_times)]] = True
    lost = is_launch & ~has_operation
    if not lost.any():
        return []
    returned = np.maximum(recorded.begin, recorded.end)
    lost[is_launch] &= (
        measure_depths(recorded.global_tid[is_launch], recorded.begin[is_launch], returned[is_launch]) == 1
    )
    lost &= (reader.read(Table(RUNTIME, (), {"returnValue": 0}))["returnValue"] == 0)[recorded.row]
    owner = get_process(operations.stack("globalPid"))
    for process in np.unique(recorded.process[lost]):
        own = np.flatnonzero(recorded.process == process)
        lost[own] &= ~_mark_capturing(recorded.begin[own], begins[own], returned[own], ends[own])
        ran = np.flatnonzero((owner == process) & (operations.place >= 0))
        if ran.size:
            ran = ran[np.argsort(start[ran], kind="stable")]
            lost[own] &= returned[own] <= _find_last_idle(start[ran], end[ran], pick(recorded.begin, call[ran], NULL))
    if not lost.any():
        return []
    return [
        f"it lacks the kernels of {lost.sum():,} of its {is_launch.sum():,} kernel launches, or their times:"
        " GPUs that seem idle may have worked"
    ]


def _mark_capturing(begin: IntArray, begins: BoolArray, end: IntArray, ends: BoolArray) -> BoolArray:
    """Mark the calls of a process that start while it captures streams.

    `begin` and `end`: times of its n calls (ns), sorted by `begin`. `begins`, `ends`: the calls that begin and end the
    capture of a stream. A capture without a beginning began before all calls, and one without an end lasts.
    """
    before = np.searchsorted(np.sort(end[ends]), begin, "left")
    running = np.cumsum(begins) - before
    return np.asarray(running > min(0, int(running.min(initial=0))), np.bool_)


def _find_last_idle(start: IntArray, end: IntArray, launched: IntArray) -> int:
    """Return when the last idle time of a process begins that a later launch ended (ns); NULL if there is none.

    `start`, `end`, `launched`: times of n operations in the order of their starts; NULL for an unknown launch.
    """
    until = np.maximum.accumulate(end)[:-1]
    idle = until[(start[1:] > until) & (launched[1:] >= until)]
    return int(idle.max(initial=NULL))
