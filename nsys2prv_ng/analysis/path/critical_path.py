"""Finds the critical path of a job over all its ranks: what must get faster for the job to get faster."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.host_activity import MPI_CALL, SYSTEM_CALL, load_thread_ranges
from nsys2prv_ng.analysis.path import columns as path
from nsys2prv_ng.analysis.path.columns import NONE, Segments, Start
from nsys2prv_ng.analysis.path.lanes import Lanes, load_lanes
from nsys2prv_ng.analysis.path.walk import walk
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import find_starts
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick
from nsys2prv_ng.intervals.device_sweep import MEMORY, WHOLE_GRAPH
from nsys2prv_ng.intervals.step_functions import split_at_steps
from nsys2prv_ng.job.counted import list_counted_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.reading.device_operations import HOST_FUNCTION
from nsys2prv_ng.reading.opened_events import Names
from nsys2prv_ng.records.columns import EVENT
from nsys2prv_ng.sources.registry import GPU_OPERATIONS
from nsys2prv_ng.steps.steps import Steps


class CriticalPath(NamedTuple):
    """n segments of the critical path, in the order of time: their lengths add up to the windows. Times in ns.

    - `steps`: those that make up the only window; None if the user chose another time, or without steps.
    - `row`: row of the whole tree: the stream or thread on which the path runs or on which an operation will start.
    - `kind`: one of event_types.PATH_KINDS.
    - `name`: index in `names` of the operation or call; NONE for other segments.
    - `range`: index in `ranges` of the thread's innermost NVTX range, or of the one that launched the operation; or
      NONE.
    - `operation`: number of the kernel, copy or call that the segment is a piece of; NONE for host code.
    - `mean`: for each of `names`, the time (ns) of its operations within the windows without waiting, on the path or
      not. It is the mean over the GPUs of processes, and 0 for calls. NCCL kernels that are not split do not count.
    - `followed`: number of waits for other ranks at which the path changed lanes.
    - `unsure`: how many of these led to a rank that only seems to be the last: clocks are too uncertain to be sure.
    """

    windows: list[tuple[int, int]]
    steps: Steps | None
    begin: IntArray
    end: IntArray
    row: IntArray
    kind: IntArray
    name: IntArray
    range: IntArray
    operation: IntArray
    names: list[str]
    ranges: list[str]
    mean: IntArray
    followed: int
    unsure: int

    @property
    def length(self) -> IntArray:
        return self.end - self.begin


def load_path_lanes(job: Job, waits: Waits) -> Lanes | None:
    """Load the lanes of a job; None if its reports contain neither calls nor operations, or too many (`check_size`)."""
    if check_size(job):
        return None
    lanes = load_lanes(job, waits)
    return lanes if lanes.operations.begin.size or lanes.calls.begin.size else None


def find_critical_path(job: Job, lanes: Lanes | None, *, name_ranges: bool = True) -> CriticalPath | None:
    """Find the critical path of each window of time that numbers cover (Job.measured); None without lanes.

    Without such a window, find the path of all time from the first call or operation to the last. Without
    `name_ranges`, the segments have no NVTX ranges: a trace shows only their kinds.
    """
    if lanes is None:
        return None
    steps = None if job.scope.windows or not job.scope.measured else list_counted_steps(job)
    windows = [(low, min(high, job.scope.last)) for low, high in job.scope.measured] or [_measure_span(lanes)]
    starts = [_find_start(job, lanes, window, steps) for window in windows]
    walks = [walk(lanes.tables, start, window) for start, window in zip(starts, windows, strict=True)]
    segments = Segments(*(np.concatenate([column[::-1] for column in columns]) for columns in zip(*walks, strict=True)))
    return _describe_segments(job, lanes, segments, windows, steps, name_ranges)


PATH_SOURCES = (*GPU_OPERATIONS, source_names.CUDA_API, source_names.MPI, source_names.OS_RUNTIME)
"""Sources of operations and calls."""
_MOST = 20_000_000
"""Most operations and calls to load: each takes less than 162 bytes (measured with 10 million, before
columns were narrower).

The limit is the same on every machine, so that a trace does not depend on the machine's memory."""


def count_lane_events(job: Job) -> int:
    """Return the number of operations and calls of the reports."""
    lines = sum(run.facts.kinds[EVENT] for report in job.reports for run in report.runs(PATH_SOURCES))
    return lines // 2  # each has a line for its start and one for its end


def check_size(job: Job) -> list[str]:
    """Return a warning if the reports contain too many operations and calls to find the critical path; else []."""
    count = count_lane_events(job)
    if count <= _MOST:
        return []
    return [f"the critical path was not looked for: {count:,} operations and calls are too many; choose a shorter time"]


def _measure_span(lanes: Lanes) -> tuple[int, int]:
    """Return (first, last) time (ns) of main threads and operations; without main threads, of calls and operations."""
    begins, ends = lanes.thread_first[lanes.is_main], lanes.thread_last[lanes.is_main]
    used = begins <= ends
    low = np.concatenate([begins[used], lanes.operations.begin, lanes.calls.begin[: 0 if used.any() else None]])
    high = np.concatenate([ends[used], lanes.operations.end, lanes.calls.end[: 0 if used.any() else None]])
    return int(low.min()), int(high.max())


def _find_start(job: Job, lanes: Lanes, window: tuple[int, int], steps: Steps | None) -> Start:
    """Return what ended last in a window: an operation, or else a thread that is a main thread or launches kernels.

    Among such threads, it is the one that ended the last step, or else the one with the last call. If nothing ended in
    the window, it is a main thread.
    """
    low, high = window
    waits = lanes.operations.until >= high
    operation = _find_latest(lanes.operations.end, waits, lanes.operation_row, low, high)
    ended = int(lanes.operations.end[operation]) if operation >= 0 else low
    if ended == high:
        return Start(operation, NONE)
    if steps is not None:
        row = pick(job.new_row, lanes.thread_row, -1)
        latest = np.flatnonzero((row >= 0) & np.isin(row, steps.row[steps.end == high]))
        if latest.size:
            return Start(NONE, int(latest[0]))
    elif not job.scope.windows:
        has_events = lanes.thread_first <= lanes.thread_last
        latest = np.flatnonzero(lanes.is_main & has_events & (lanes.thread_last == high))
        if latest.size:
            return Start(NONE, int(latest[np.argmin(lanes.thread_row[latest])]))
    usable = np.flatnonzero((lanes.is_main | lanes.threads.launches)[lanes.calls.thread])
    thread_row = lanes.thread_row[lanes.calls.thread[usable]]
    waits = lanes.calls.until[usable] >= high
    call = _find_latest(lanes.calls.end[usable], waits, thread_row, max(low, ended - 1), high)
    if call >= 0:
        return Start(NONE, int(lanes.calls.thread[usable[call]]))
    if operation >= 0:
        return Start(operation, NONE)
    main = np.flatnonzero(lanes.is_main)
    return Start(NONE, int(main[np.argmin(lanes.thread_row[main])]) if main.size else NONE)


def _find_latest(end: IntArray, waits: BoolArray, row: IntArray, low: int, high: int) -> int:
    """Return the index of the latest end (ns) after `low` and up to `high`; NONE without one.

    On a tie, prefer one that does not wait for another rank, then the lowest row.
    """
    inside = np.flatnonzero((end > low) & (end <= high))
    if not inside.size:
        return NONE
    latest = inside[end[inside] == end[inside].max()]
    return int(latest[np.lexsort((row[latest], waits[latest]))[0]])


# ---- kinds, rows, names and ranges -----------------------------------------------------------------------------------

_KINDS = {
    path.OPERATION: types.PATH_COMPUTE,
    path.MOVING: types.PATH_MOVING,
    path.NOT_SPLIT: types.PATH_NOT_SPLIT,
    path.LAUNCH: types.PATH_LAUNCH,
    path.GAP: types.PATH_GAP,
    path.CALL: types.PATH_CUDA_CALL,
    path.CODE: types.PATH_HOST,
    path.OUTSIDE: types.PATH_OUTSIDE,
    path.UNKNOWN: types.PATH_UNKNOWN,
}


def _describe_segments(
    job: Job, lanes: Lanes, segments: Segments, windows: list[tuple[int, int]], steps: Steps | None, name_ranges: bool
) -> CriticalPath:
    """Return the segments with rows, names and ranges. Segments of host threads are cut where the range changes."""
    on_host = segments.thread >= 0
    follows = (segments.kind == path.MOVING) & (pick(lanes.operations.culprit, segments.operation, NONE) >= 0)
    unsure = follows & pick(lanes.is_unsure, segments.operation, False)
    piece, begin, end = np.arange(on_host.size), segments.begin, segments.end
    in_range, ranges = np.full(on_host.size, NONE, np.int64), list[str]()
    if name_ranges:
        piece, begin, end, in_range, ranges = _split_at_ranges(job, lanes, segments, on_host)
    segments = Segments(begin, end, *(column[piece] for column in segments[2:]))
    on_host = on_host[piece]
    operation, call = segments.operation, segments.call
    kind = np.array([_KINDS[n] for n in range(len(_KINDS))], np.int64)[segments.kind]
    operation_kind = np.where(segments.kind == path.OPERATION, pick(lanes.operation_kind, operation, 0), 0)
    call_kind = pick(lanes.call_kind, call, NONE)
    kind[operation_kind == MEMORY] = types.PATH_MEMORY
    kind[operation_kind == WHOLE_GRAPH] = types.PATH_GRAPH
    kind[operation_kind == HOST_FUNCTION] = types.PATH_HOST
    in_call = segments.kind == path.CALL
    kind[in_call & (call_kind == SYSTEM_CALL)] = types.PATH_SYSTEM_CALL
    kind[in_call & (call_kind == MPI_CALL)] = types.PATH_MPI
    operation_name = pick(lanes.operation_name, operation, NONE)
    call_name = pick(lanes.call_name, call, NONE)
    thread_row, operation_row = np.append(lanes.thread_row, NONE), np.append(lanes.operation_row, NONE)
    calls_after = lanes.operations.begin.size
    return CriticalPath(
        windows=windows,
        steps=steps,
        begin=begin,
        end=end,
        row=np.where(on_host, thread_row[segments.thread], operation_row[operation]),
        kind=kind,
        name=np.where(on_host, call_name, operation_name),
        range=in_range,
        operation=np.where(on_host, np.where(call >= 0, call + calls_after, NONE), operation),
        names=lanes.names,
        ranges=ranges,
        mean=_measure_means(lanes, windows),
        followed=int(follows.sum()),
        unsure=int(unsure.sum()),
    )


def _measure_means(lanes: Lanes, windows: list[tuple[int, int]]) -> IntArray:
    """Return the time (ns) of each name's operations within windows, on average over the GPUs of processes."""
    operations = lanes.operations
    total = np.zeros(len(lanes.names), np.int64)
    known = np.flatnonzero(operations.kind != path.NOT_SPLIT)
    begin, end, name = operations.until[known], operations.end[known], lanes.operation_name[known]
    for low, high in windows:
        length = np.minimum(end, high) - np.maximum(begin, low)
        inside = np.flatnonzero(length > 0)
        np.add.at(total, name[inside], length[inside])
    return total // max(1, np.unique(operations.device).size)


def _split_at_ranges(
    job: Job, lanes: Lanes, segments: Segments, on_host: BoolArray
) -> tuple[IntArray, IntArray, IntArray, IntArray, list[str]]:
    """Cut the segments of host threads where their innermost NVTX range changes, and find the range of each piece.

    Return (segment, begin, end, range) of each piece, in the order of the segments, and the names of the ranges.
    An operation belongs to the range in which it was launched.
    """
    launch = pick(lanes.launch, segments.operation, NONE)
    thread = np.where(on_host, segments.thread, pick(lanes.operations.thread, launch, NONE))
    names = Names()
    by_thread = np.argsort(thread, kind="stable")
    groups = {int(thread[group[0]]): group for group in np.split(by_thread, find_starts(thread[by_thread]))[1:]}
    whole = groups.pop(NONE, np.zeros(0, np.int64))
    parts = [(whole, segments.begin[whole], segments.end[whole], np.full(whole.size, NONE, np.int64))]
    used = np.array(list(groups), np.int64)
    for index, report in enumerate(job.reports):
        report_threads = used[lanes.thread_report[used] == index]
        if not report_threads.size:
            continue
        thread_ranges = load_thread_ranges(report, lanes.thread_place[report_threads], job.store)
        for number in report_threads.tolist():
            group, steps = groups[number], thread_ranges.steps[int(lanes.thread_place[number])]
            here = group[on_host[group]]
            pieces = split_at_steps(segments.begin[here], segments.end[here], steps)
            named = names.number(thread_ranges.names, pieces.value)
            parts.append((here[pieces.interval], pieces.begin, pieces.end, named))
            here = group[~on_host[group]]
            named = names.number(thread_ranges.names, steps.get_values(lanes.operations.launched[launch[here]]))
            parts.append((here, segments.begin[here], segments.end[here], named))
    piece, begin, end, named = (np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True))
    order = np.lexsort((begin, piece))
    piece, begin, end, named = piece[order], begin[order], end[order], named[order]
    # Ranges that follow each other may have one name: they count as one piece.
    starts = find_starts(piece, named)
    last = np.append(starts, piece.size)[1:] - 1
    return piece[starts], begin[starts], end[last], named[starts], names.texts
