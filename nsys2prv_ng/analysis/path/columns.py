"""The columns of the walk along the critical path: operations, calls, threads, and the segments of the path."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray

OPERATION, MOVING, NOT_SPLIT, LAUNCH, GAP, CALL, CODE, OUTSIDE, UNKNOWN = range(9)
"""What the path was in: an operation, or an NCCL kernel that moved data or could not be split; between a launch call
and its operation; between two operations; a call; host code between calls; a wait for a rank that was not chosen;
or something that no event shows."""

NO_SYNC, SYNC_OPERATION, SYNC_STREAM, SYNC_DEVICE, SYNC_PROCESS, SYNC_THREAD = range(6)
"""What a call waits for: nothing, one operation, all of a stream, a device or a process, or another thread."""

NONE = -1
LOST = -2
"""Index of something that exists, but is not among the records."""
NEVER = np.iinfo(np.int64).min
"""A time that is not known."""


class PlaceNumbers(NamedTuple):
    """Numbers of what the n places of a report are, or belong to: distinct over all reports; NONE for other places."""

    thread: IntArray
    process: IntArray
    stream: IntArray
    device: IntArray


class PathOperations(NamedTuple):
    """n operations of devices, ordered by stream and begin. Times in ns on the common clock."""

    begin: IntArray
    end: IntArray
    stream: IntArray
    """Number of the stream, over all reports."""
    device: IntArray
    """Number of the device of a process, over all reports."""
    process: IntArray
    thread: IntArray
    """Thread of the launch call, NONE where it is not known."""
    launched: IntArray
    """Begin of the launch call, for a node of a CUDA graph that of the graph; NEVER where it is not known."""
    producer: IntArray
    """Operation that the stream was made to wait for by a CUDA event, NONE for none: the one that ended last."""
    until: IntArray
    """When an NCCL kernel stopped waiting; its begin for other operations."""
    culprit: IntArray
    """The operation that it waited for; NONE if it did not wait, LOST if its records are missing."""
    kind: IntArray
    """OPERATION, MOVING or NOT_SPLIT."""


class PathCalls(NamedTuple):
    """n calls of host threads, ordered by thread and begin; those of a thread do not overlap. Times in ns."""

    begin: IntArray
    end: IntArray
    thread: IntArray
    sync: IntArray
    """What the call waits for."""
    target: IntArray
    """The operation, stream or device that it waits for."""
    since: IntArray
    """When it began to wait: before its begin where a thread asks again and again whether an event has come."""
    until: IntArray
    """When a call of MPI stopped waiting for another rank."""
    culprit: IntArray
    """The thread of that rank; NONE if it did not wait, LOST if its records are missing."""
    culprit_begin: IntArray


class PathThreads(NamedTuple):
    """n threads: process, first call (n + 1), whether the thread launches kernels. Times in ns."""

    process: IntArray
    first: IntArray
    launches: BoolArray
    shortest_wait: IntArray
    """From what length on its report records calls of the operating system: a longer wait would be a call."""
    creator: IntArray
    """The thread that created it; NONE if it has been there all the time."""
    created: IntArray
    """When it was created."""


class Start(NamedTuple):
    """Where the path ends, and the walk starts: an operation, or a thread; NONE for the other one."""

    operation: int
    thread: int


class Segments(NamedTuple):
    """n segments of the path, the last first: limits (ns), kind, operation, thread and call; NONE where there is none.

    GAP and LAUNCH belong to the operation after them.
    """

    begin: IntArray
    end: IntArray
    kind: IntArray
    operation: IntArray
    thread: IntArray
    call: IntArray


class PathLists(NamedTuple):
    """Where to find operations of streams and processes, and threads of processes: n + 1 limits of each n groups."""

    stream_first: IntArray
    by_end: IntArray
    """Operations by process and end."""
    process_first: IntArray
    launching: IntArray
    """Threads that launch kernels by process."""
    launching_first: IntArray


class PathLanes(NamedTuple):
    """All that the walk runs over."""

    operations: PathOperations
    calls: PathCalls
    threads: PathThreads
    lists: PathLists
