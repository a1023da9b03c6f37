"""The critical path of a job over all its ranks: what must get faster for the job to get faster."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.host_activity import MPI_CALL, SYSTEM_CALL
from nsys2prv_ng.analysis.path import columns as path
from nsys2prv_ng.analysis.path.columns import NONE, Segments, Start
from nsys2prv_ng.analysis.path.lanes import Lanes, load_lanes
from nsys2prv_ng.analysis.path.walk import walk
from nsys2prv_ng.analysis.waits.late_hosts import load_host_activity
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import find_starts
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.device_sweep import MEMORY, WHOLE_GRAPH
from nsys2prv_ng.intervals.step_functions import NOTHING, split_at_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.job.steps import Steps
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.records.columns import EVENT


class CriticalPath(NamedTuple):
    """n segments of the critical path, in the order of time: they add up to the windows. Times in ns.

    `row` is of the whole tree: the stream or thread on which the path runs, or on which an operation was to begin.
    """

    windows: list[tuple[int, int]]
    steps: Steps | None
    """The steps of the only window, which begins after those that warm up; None if the user chose the time, or there
    are none."""
    begin: IntArray
    end: IntArray
    row: IntArray
    kind: IntArray
    """One of event_types.PATH_KINDS."""
    name: IntArray
    """Index in `names` of the operation or call; NONE for other segments."""
    range: IntArray
    """Index in `ranges` of the innermost NVTX range of the host thread, or in which an operation was launched; NONE."""
    operation: IntArray
    """A number of the kernel, copy, or call that the segment is of: pieces of one share it; NONE for host code."""
    names: list[str]
    ranges: list[str]
    mean: IntArray
    """Time (ns) of the operations of each of `names` within the windows, whether on the path or not, without waiting:
    the mean over the GPUs of processes; 0 for calls. Kernels of NCCL that are not split have no part in it."""
    followed: int
    """Number of waits for other ranks by which the path changed lanes."""
    unsure: int
    """How many of these went to the rank that seems to be the last, within the uncertainty of the clocks."""

    @property
    def length(self) -> IntArray:
        return self.end - self.begin


def find_critical_path(job: Job, waits: Waits, *, name_ranges: bool = True) -> CriticalPath | None:
    """Find the critical path of each window of time that the user chose.

    Else of the steps of the program without those that warm up, or of all time from the first call or operation to the
    last. None if the reports have neither calls nor operations. Without `name_ranges`, the segments
    have no NVTX ranges: a trace shows their kinds alone. None as well if there is too much to look at (`check_size`).
    """
    if check_size(job):
        return None
    lanes = load_lanes(job, waits)
    if not lanes.operations.begin.size and not lanes.calls.begin.size:
        return None
    steps = None if job.windows else job.steps
    ends = _sort_by_end(lanes)
    if steps is not None and steps.has_ranges:
        operation, end = _find_end_of_steps(lanes, steps)
        thread = NONE if operation >= 0 else _find_last_thread(lanes, steps)
        windows, starts = [(_find_begin(steps), end)], [Start(operation, thread)]
    elif steps is not None:
        windows = [(_find_begin(steps), int(steps.end.max()))]
        starts = [_find_start(job, lanes, windows[0])]
    else:
        windows = [(low, min(high, job.last)) for low, high in job.windows] or [_measure_span(job, lanes)]
        starts = [_find_start(job, lanes, window) for window in windows]
    walks = [
        walk(lanes.operations, lanes.calls, lanes.threads, ends, start, window)
        for start, window in zip(starts, windows, strict=True)
    ]
    segments = Segments(*(np.concatenate([column[::-1] for column in columns]) for columns in zip(*walks, strict=True)))
    return _describe(job, lanes, segments, windows, steps, name_ranges)


_SOURCES = ("kernels", "memory_operations", "cuda_graphs", "cuda_api", "mpi", "os_runtime")
"""Sources of operations and calls."""
_MOST = 20_000_000
"""Most operations and calls to look at: they take 162 bytes each (measured with 10 million).

The same on any machine, so that a trace does not depend on its memory."""


def check_size(job: Job) -> list[str]:
    """Return a warning if the reports have so many operations and calls that no critical path is looked for."""
    runs = [
        run
        for report in job.reports
        for name in _SOURCES
        if name in report.results
        for run in report.results[name].runs
    ]
    count = sum(run.facts.kinds[EVENT] for run in runs) // 2  # each has a line for its begin and its end
    if count <= _MOST:
        return []
    return [f"the critical path was not looked for: {count:,} operations and calls are too many; choose a shorter time"]


def _find_begin(steps: Steps) -> int:
    """Return when the last rank began the first step that does not warm up (ns)."""
    return int(steps.find_latest(steps.begin)[steps.warmup])


def _find_last_thread(lanes: Lanes, steps: Steps) -> int:
    """Return the thread that ended the last step last; NONE if it is none of the lanes."""
    found = np.flatnonzero(lanes.thread_row == steps.row[np.argmax(steps.end)])
    return int(found[0]) if found.size else NONE


def _find_end_of_steps(lanes: Lanes, steps: Steps) -> tuple[int, int]:
    """Return (the last operation that was launched within the steps, when it ended in ns).

    NONE, and the end of the last step, if the host's ranges end later.
    """
    operations, end = lanes.operations, int(steps.end.max())
    launched = np.flatnonzero((operations.thread >= 0) & (operations.launched < end) & (operations.end > end))
    if not launched.size:
        return NONE, end
    latest = launched[operations.end[launched] == operations.end[launched].max()]
    last = int(latest[np.argmin(lanes.operation_row[latest])])
    return last, int(operations.end[last])


def _measure_span(job: Job, lanes: Lanes) -> tuple[int, int]:
    """Return the first and last time (ns) of main threads and of operations."""
    first, last = _find_limits(job, lanes)
    begins, ends = first[lanes.is_main], last[lanes.is_main]
    used = begins <= ends
    low = np.concatenate([begins[used], lanes.operations.begin, lanes.calls.begin[: 0 if used.any() else None]])
    high = np.concatenate([ends[used], lanes.operations.end, lanes.calls.end[: 0 if used.any() else None]])
    return int(low.min()), int(high.max())


def _find_limits(job: Job, lanes: Lanes) -> tuple[IntArray, IntArray]:
    """Return the first and last time (ns) of the events of each thread; first > last without events."""
    limits = np.zeros((2, lanes.thread_row.size), np.int64)
    for index, spans in enumerate(job.spans):
        own = lanes.thread_report == index
        for limit, span in zip(limits, spans, strict=True):
            limit[own] = span[lanes.thread_place[own]]
    return limits[0], limits[1]


def _sort_by_end(lanes: Lanes) -> tuple[IntArray, IntArray]:
    """Return operations by process and end, and the first of each process, one more for the end."""
    order = np.lexsort((lanes.operations.end, lanes.operations.process))
    process = lanes.operations.process[order]
    processes = max(int(part.process.max(initial=NONE)) for part in (lanes.operations, lanes.threads))
    return order, np.searchsorted(process, np.arange(processes + 2)).astype(np.int64)


def _find_start(job: Job, lanes: Lanes, window: tuple[int, int]) -> Start:
    """Return what was the last to end in a window: an operation, or a main thread or one that launches kernels.

    Of these threads, the one with the last call. Where nothing ended, it is a main thread.
    """
    low, high = window
    waits = lanes.operations.until >= high
    operation = _find_latest(lanes.operations.end, waits, lanes.operation_row, low, high)
    ended = int(lanes.operations.end[operation]) if operation >= 0 else low
    if ended == high:
        return Start(operation, NONE)
    if not job.windows:
        first, last = _find_limits(job, lanes)
        latest = np.flatnonzero(lanes.is_main & (first <= last) & (last == high))
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
    """Return the index of the latest end (ns) after `low` and up to `high`, NONE for none.

    Of several, one that does not wait for another rank, on the lowest row.
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


def _describe(
    job: Job, lanes: Lanes, segments: Segments, windows: list[tuple[int, int]], steps: Steps | None, name_ranges: bool
) -> CriticalPath:
    """Return the segments with what users know them by: those of host threads are cut where the range changes."""
    on_host = segments.thread >= 0
    follows = (segments.kind == path.MOVING) & (np.append(lanes.operations.culprit, NONE)[segments.operation] >= 0)
    unsure = follows & np.append(lanes.is_unsure, False)[segments.operation]
    piece, begin, end = np.arange(on_host.size), segments.begin, segments.end
    in_range, ranges = np.full(on_host.size, NONE, np.int64), list[str]()
    if name_ranges:
        piece, begin, end, in_range, ranges = _split_at_ranges(job, lanes, segments, on_host)
    segments = Segments(begin, end, *(column[piece] for column in segments[2:]))
    on_host = on_host[piece]
    operation, call = segments.operation, segments.call
    kind = np.array([_KINDS[n] for n in range(len(_KINDS))], np.int64)[segments.kind]
    of_kind = np.where(segments.kind == path.OPERATION, np.append(lanes.operation_kind, 0)[operation], 0)
    call_kind = np.append(lanes.call_kind, NONE)[call]
    kind[of_kind == MEMORY] = types.PATH_MEMORY
    kind[of_kind == WHOLE_GRAPH] = types.PATH_GRAPH
    in_call = segments.kind == path.CALL
    kind[in_call & (call_kind == SYSTEM_CALL)] = types.PATH_SYSTEM_CALL
    kind[in_call & (call_kind == MPI_CALL)] = types.PATH_MPI
    of_operation = np.append(lanes.operation_name, NONE)[operation]
    of_call = np.append(lanes.call_name, NONE)[call]
    thread_row, operation_row = np.append(lanes.thread_row, NONE), np.append(lanes.operation_row, NONE)
    calls_after = lanes.operations.begin.size
    return CriticalPath(
        windows=windows,
        steps=steps,
        begin=begin,
        end=end,
        row=np.where(on_host, thread_row[segments.thread], operation_row[operation]),
        kind=kind,
        name=np.where(on_host, of_call, of_operation),
        range=in_range,
        operation=np.where(on_host, np.where(call >= 0, call + calls_after, NONE), operation),
        names=lanes.names,
        ranges=ranges,
        mean=_measure_means(lanes, windows),
        followed=int(follows.sum()),
        unsure=int(unsure.sum()),
    )


def _measure_means(lanes: Lanes, windows: list[tuple[int, int]]) -> IntArray:
    """Return the time (ns) of operations of each name within windows, the mean over the GPUs of processes."""
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
    """Cut the segments of host threads where their innermost NVTX range changes, and find the range of all pieces.

    Return (segment, begin, end, range) of each piece, in the order of the segments, and the names of the ranges.
    An operation is of the range in which it was launched.
    """
    launch = np.append(lanes.launch, NONE)[segments.operation]
    launch = np.where(segments.operation >= 0, launch, NONE)
    launcher = np.where(launch >= 0, np.append(lanes.operations.thread, NONE)[launch], NONE)
    thread = np.where(on_host, segments.thread, launcher)
    numbers: dict[str, int] = {}
    by_thread = np.argsort(thread, kind="stable")
    groups = {int(thread[own[0]]): own for own in np.split(by_thread, find_starts(thread[by_thread]))[1:]}
    whole = groups.pop(NONE, np.zeros(0, np.int64))
    parts = [(whole, segments.begin[whole], segments.end[whole], np.full(whole.size, NONE, np.int64))]
    used = np.array(list(groups), np.int64)
    for index, report in enumerate(job.reports):
        own_threads = used[lanes.thread_report[used] == index]
        if not own_threads.size:
            continue
        activity = load_host_activity(report, lanes.thread_place[own_threads], job.store)
        number = [numbers.setdefault(name, len(numbers)) for name in activity.range_names]
        number_of = np.array([*number, NONE], np.int64)  # NOTHING is the last
        for number_of_thread in own_threads.tolist():
            of_thread = activity.threads[int(lanes.thread_place[number_of_thread])]
            own, in_range = groups[number_of_thread], of_thread.range
            here = own[on_host[own]]
            pieces = split_at_steps(segments.begin[here], segments.end[here], of_thread.steps)
            value = np.where(pieces.value == NOTHING, NOTHING, in_range[pieces.value])
            parts.append((here[pieces.interval], pieces.begin, pieces.end, number_of[value]))
            here = own[~on_host[own]]
            pair = of_thread.get_pairs(lanes.operations.launched[launch[here]])
            parts.append((here, segments.begin[here], segments.end[here], number_of[in_range[pair]]))
    piece, begin, end, named = (np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True))
    if not piece.size:
        return piece, begin, end, named, []
    order = np.lexsort((begin, piece))
    piece, begin, end, named = piece[order], begin[order], end[order], named[order]
    # Calls within a range cut it too: what is the same goes on.
    first = np.append(True, (piece[1:] != piece[:-1]) | (named[1:] != named[:-1]))
    starts = np.flatnonzero(first)
    last = np.append(starts[1:], piece.size) - 1
    return piece[starts], begin[starts], end[last], named[starts], list(numbers)
