"""Columns for the walk along the critical path: operations, calls and threads, and the segments of the path."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray, IntTable

OPERATION, MOVING, NOT_SPLIT, LAUNCH, GAP, CALL, CODE, OUTSIDE, UNKNOWN = range(9)
"""What a segment of the path is: an operation; an NCCL kernel that moves data, or one that could not be split; the time
between a launch call and its operation; the time between two operations; a call; host code between calls; a wait for a
rank that was not chosen; or time that no event explains."""

NO_SYNC, SYNC_OPERATION, SYNC_STREAM, SYNC_DEVICE, SYNC_PROCESS, SYNC_THREAD = range(6)
"""What a call waits for: nothing, one operation, a whole stream, device or process, or another thread."""

NONE = -1
LOST = -2
"""Index of something that exists but is not among the records."""
NEVER = np.iinfo(np.int64).min
"""An unknown time."""


class PlaceNumbers(NamedTuple):
    """What the n places of a report are or belong to, as numbers that are unique over all reports; NONE if nothing."""

    thread: IntArray
    process: IntArray
    stream: IntArray
    device: IntArray


class PathOperations(NamedTuple):
    """n device operations, ordered by stream and start. Times in ns on the common clock.

    - `thread`: that of the launch call; NONE if it is not known.
    - `until`: when an NCCL kernel stopped waiting; for other operations, their start.
    - `culprit`: the operation that the NCCL kernel waited for; NONE if it did not wait, LOST if the records are
      missing.
    - `stream`: number of the stream, unique over all reports; `device`: of the device within its process, likewise.
    - `launched`: start of the launch call, for a node of a CUDA graph the launch of the graph; NEVER if it is not
      known.
    - `producer`: the operation that a CUDA event made the stream wait for; the last to end if there are several; NONE
      without one.
    - `kind`: OPERATION, MOVING or NOT_SPLIT.
    """

    begin: IntArray
    end: IntArray
    thread: IntArray
    until: IntArray
    culprit: IntArray
    process: IntArray
    stream: IntArray
    device: IntArray
    launched: IntArray
    producer: IntArray
    kind: IntArray


class PathCalls(NamedTuple):
    """n calls of host threads, ordered by thread and start. Calls of one thread do not overlap. Times in ns.

    - `until`: when an MPI call stopped waiting for another rank.
    - `culprit`: the thread of that rank; NONE if the call did not wait, LOST if the records of the rank are missing.
    - `culprit_begin`: when the call of that rank started.
    - `sync`: what the call waits for: NO_SYNC or another SYNC_ constant.
    - `target`: the operation, stream or device that it waits for.
    - `since`: when the wait started. If a thread polls an event, that is before the start of the call.
    """

    begin: IntArray
    end: IntArray
    thread: IntArray
    until: IntArray
    culprit: IntArray
    sync: IntArray
    target: IntArray
    since: IntArray
    culprit_begin: IntArray


class PathThreads(NamedTuple):
    """n threads: process, index of the first call (n + 1), and whether the thread launches kernels. Times in ns.

    `shortest_wait`: the shortest OS runtime call that its report records; a longer wait would be visible as a call.
    `creator`: the thread that created it, NONE for a thread that existed from the start; `created`: when.
    """

    process: IntArray
    first: IntArray
    launches: BoolArray
    shortest_wait: IntArray
    creator: IntArray
    created: IntArray


class PathEvents(NamedTuple):
    """n uses of CUDA events by calls, of all reports: time (ns), kind (streams.RECORDS and its siblings).

    `stream`: its number; from the number of streams on, one that has no operations. `event`: a number that is unique
    over all reports. `call`: the call that waits; NONE without one.
    """

    time: IntArray
    kind: IntArray
    stream: IntArray
    event: IntArray
    call: IntArray


class Start(NamedTuple):
    """Where the path ends and the walk starts: an operation or a thread; the other one is NONE."""

    operation: int
    thread: int


class Segments(NamedTuple):
    """n segments of the path, the last one first: limits (ns), kind, operation, thread and call (NONE without one).

    Segments GAP and LAUNCH belong to the operation after them.
    """

    begin: IntArray
    end: IntArray
    kind: IntArray
    operation: IntArray
    thread: IntArray
    call: IntArray


class PathLists(NamedTuple):
    """Lists of operations and threads by stream and process. Fields `*_first` are the n + 1 limits of n groups.

    `by_end`: operations, ordered by process and end. `launching`: threads that launch kernels, ordered by process.
    """

    stream_first: IntArray
    by_end: IntArray
    process_first: IntArray
    launching: IntArray
    launching_first: IntArray


BEGIN, END, THREAD, UNTIL, CULPRIT = range(5)
"""Rows of both the table of operations and the table of calls; the fields above have the same order."""
PROCESS, STREAM, DEVICE, LAUNCHED, PRODUCER, KIND = range(5, 11)
"""Further rows of the table of operations."""
SYNC, TARGET, SINCE, CULPRIT_BEGIN = range(5, 9)
"""Further rows of the table of calls."""
FIRST, AFTER, SHORTEST_WAIT, CREATOR, CREATED = range(5)
"""Rows of the table of threads, which has PROCESS, too. The calls of a thread are those from FIRST to before AFTER."""


class PathTables(NamedTuple):
    """What kernels read: tables whose rows are the columns above, and lists.

    Kernels compile in a third of the time that they take with an array for each column.
    """

    operations: IntTable
    calls: IntTable
    threads: IntTable
    lists: PathLists
