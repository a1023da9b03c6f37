"""Small exports of processes with threads, streams, events and collectives: by hand, or of a job made by chance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.analysis.path.path_job import Call, Op, SmallJob
from tests.sources.small_reports import Rows, export

EVENT_SYNC, STREAM_WAIT, STREAM_SYNC, CONTEXT_SYNC = 1, 2, 3, 4
TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 8
PAGEABLE, PINNED, DEVICE = 0, 1, 2
_NO_ID = 0xFFFFFFFF
_OPERATION = ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "correlationId", "graphNodeId")
_COLUMNS = {
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end", "globalTid", "nameId", "correlationId"),
    "CUPTI_ACTIVITY_KIND_KERNEL": (*_OPERATION, "shortName", "demangledName"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (*_OPERATION, "bytes", "copyKind", "srcKind", "dstKind"),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (*_OPERATION[:-1], "graphId", "graphExecId"),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        *("start", "end", "globalPid", "correlationId", "syncType"),
        *("contextId", "streamId", "eventId"),
    ),
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": ("globalPid", "correlationId", "contextId", "streamId", "eventId"),
    "CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH": _OPERATION,
    "CUDA_HOST_CALLBACK": ("start", "end", "globalTid", "nameId", "correlationId"),
    "OSRT_API": ("start", "end", "eventClass", "globalTid", "nameId"),
    "NVTX_EVENTS": ("start", "end", "eventType", "globalTid", "textId", "domainId", "text", "jsonText"),
    "MPI_COLLECTIVES_EVENTS": ("start", "end", "globalTid", "textId", "commHandle", "rootRank", "size", "recvSize"),
    "MPI_P2P_EVENTS": (
        *("start", "end", "globalTid", "textId", "commHandle"),
        *("tag", "remoteRank", "size", "requestHandle"),
    ),
}
_WORLD, _GROUP = 0x1000, 0x2000
_TEXTS = ("nameId", "shortName", "demangledName", "textId")
_OTHER = 9
"""A thread that no job has."""


class Capture:
    """What one report has of one process, of a rank of a job. Threads count from 0, the main thread.

    `first`: the first of the `ranks` ranks that NCCL and collectives of MPI join.
    """

    def __init__(self, rank: int = 0, ranks: int = 1, first: int = 0) -> None:
        self.rank, self.ranks, self.first = rank, ranks, first
        self.process = 1 << 48 | (100 + rank) << 24
        self._strings = [""]
        self._rows: dict[str, list[Sequence[object]]] = {name: [] for name in _COLUMNS}
        self._nccl = 0

    def get_tid(self, thread: int) -> int:
        return self.process | (100 + self.rank + 1_000 * thread)

    def _number(self, text: str) -> int:
        return _find_number(self._strings, text)

    def call(self, name: str, begin: int, end: int, thread: int = 0) -> int:
        """Add a CUDA call; return its correlation id."""
        rows = self._rows["CUPTI_ACTIVITY_KIND_RUNTIME"]
        rows.append((begin, end, self.get_tid(thread), self._number(name), len(rows) + 1))
        return len(rows)

    def kernel(
        self, launch: int, begin: int, end: int, stream: int = 7, name: str = "kernel", device: int = 0, node: int = 0
    ) -> None:
        """Add a kernel that a call launched; `node`: number of the node of a CUDA graph."""
        number = self._number(name)
        where = (self.process, device, device + 1, stream, launch, node or None)
        self._rows["CUPTI_ACTIVITY_KIND_KERNEL"].append((begin, end, *where, number, number))

    def whole_graph(self, launch: int, begin: int, end: int, stream: int = 7, device: int = 0) -> None:
        """Add a CUDA graph that was traced as a whole."""
        where = (self.process, device, device + 1, stream, launch, 1, 2)
        self._rows["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"].append((begin, end, *where))

    def copy(
        self,
        launch: int,
        begin: int,
        end: int,
        stream: int = 7,
        kind: int = TO_HOST,
        memory: tuple[int, int] = (DEVICE, PINNED),
        device: int = 0,
    ) -> None:
        where = (self.process, device, device + 1, stream, launch, None)
        self._rows["CUPTI_ACTIVITY_KIND_MEMCPY"].append((begin, end, *where, 1 << 20, kind, *memory))

    def host_function(
        self, launch: int, begin: int, end: int, name: str = "function", stream: int = 7, device: int = 0, node: int = 0
    ) -> None:
        """Add a host function of a stream, which CUDA's own thread calls within it."""
        where = (self.process, device, device + 1, stream, launch, node or None)
        self._rows["CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH"].append((begin, end, *where))
        row = (begin + 1, end - 1, self.get_tid(_OTHER), self._number(name), launch)
        self._rows["CUDA_HOST_CALLBACK"].append(row)

    def record(self, event: int, begin: int, end: int, stream: int = 7, thread: int = 0, device: int = 0) -> None:
        """Add a call that records an event on a stream."""
        correlation = self.call("cudaEventRecord", begin, end, thread)
        self._rows["CUPTI_ACTIVITY_KIND_CUDA_EVENT"].append((self.process, correlation, device + 1, stream, event))

    def sync(
        self,
        name: str,
        begin: int,
        end: int,
        kind: int,
        *,
        stream: int | None = None,
        event: int | None = None,
        thread: int = 0,
        device: int = 0,
    ) -> None:
        """Add a call that waits, or makes a stream wait, for a stream, an event or a device."""
        correlation = self.call(name, begin, end, thread)
        ids = [_NO_ID if number is None else number for number in (stream, event)]
        row = (begin, end, self.process, correlation, kind, device + 1, *ids)
        self._rows["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"].append(row)

    def system_call(self, name: str, begin: int, end: int, thread: int = 0) -> None:
        self._rows["OSRT_API"].append((begin, end, 27, self.get_tid(thread), self._number(name)))

    def range(self, text: str, begin: int, end: int | None, thread: int = 0, kind: int = 59) -> None:
        """Add an NVTX range: push/pop, or another kind of event."""
        row = (begin, end, kind, self.get_tid(thread), self._number(text), 0, None, None)
        self._rows["NVTX_EVENTS"].append(row)

    def nccl_call(self, begin: int, end: int, thread: int = 0) -> None:
        """Add an all-reduce of all ranks."""
        communicator = 99 + self.first
        payload = {"NCCL communicator ID": communicator, "Message size [bytes]": 1 << 20, "Reduction operation": "Sum"}
        text, own = self._number("ncclAllReduce"), self.get_tid(thread)
        if not self._nccl:
            self._rows["NVTX_EVENTS"].append((0, None, 75, own, None, 1, "NCCL", None))
            own_rank = {"No. of ranks": self.ranks, "Rank": self.rank - self.first, "CUDA device": 0}
            init = {"NCCL communicator ID": communicator, **own_rank}
            row = (1, 2, 59, self.get_tid(0), self._number("ncclCommInitRank"), 1, None, json.dumps(init))
            self._rows["NVTX_EVENTS"].append(row)
        self._nccl += 1
        self._rows["NVTX_EVENTS"].append((begin, end, 59, own, text, 1, None, json.dumps(payload)))

    def mpi_call(
        self, begin: int, end: int, thread: int = 0, name: str = "MPI_Allreduce", root: int | None = None
    ) -> None:
        """Add a collective of all ranks. `root`: a rank of the world."""
        own_root = None if root is None else root - self.first
        row = (begin, end, self.get_tid(thread), self._number(name), _GROUP, own_root, 8, 8)
        self._rows["MPI_COLLECTIVES_EVENTS"].append(row)

    def mpi_message(self, name: str, begin: int, end: int, partner: int) -> None:
        """Add a send to or a receive from a rank of the world."""
        row = (begin, end, self.get_tid(0), self._number(name), _WORLD, 5, partner, 8, None)
        self._rows["MPI_P2P_EVENTS"].append(row)

    def write(self, path: Path) -> Path:
        """Write the report."""
        return write_captures([self], path, self.ranks)

    def list_rows(self, strings: list[str]) -> dict[str, list[Sequence[object]]]:
        """Return the rows of each table with texts numbered as in another list, which gets those that it lacks."""
        number = {own: _find_number(strings, text) for own, text in enumerate(self._strings)}
        found = {}
        for name, rows in self._rows.items():
            texts = [n for n, column in enumerate(_COLUMNS[name]) if column in _TEXTS]
            found[name] = [
                tuple(number[value] if n in texts and value is not None else value for n, value in enumerate(row))  # type: ignore[index]
                for row in rows
            ]
        return found


def _find_number(strings: list[str], text: str) -> int:
    if text not in strings:
        strings.append(text)
    return strings.index(text)


def write_captures(captures: Sequence[Capture], path: Path, ranks: int) -> Path:
    """Write the report of the processes of some ranks of a world of `ranks`."""
    strings = [""]
    tables: dict[str, list[Sequence[object]]] = {name: [] for name in _COLUMNS}
    groups: list[Sequence[object]] = []
    for capture in captures:
        for name, rows in capture.list_rows(strings).items():
            tables[name] += rows
        members = f"{list(range(capture.first, capture.first + capture.ranks))}"
        group = (_GROUP, _WORLD, capture.rank - capture.first, capture.ranks, capture.first, 1, members)
        groups += [(capture.rank, 3, _WORLD, 0, capture.rank, ranks, None, None, None), (capture.rank, 4, *group)]
    columns = ("rank", "timestamp", "commHandle", "parentHandle", "localRank", "size")
    used: dict[str, Rows] = {name: (_COLUMNS[name], rows) for name, rows in tables.items() if rows}
    used["MPI_COMMUNICATORS"] = ((*columns, "groupRoot", "groupRootUid", "members"), groups)
    used["MPI_RANKS"] = (("globalTid", "rank"), [(capture.get_tid(0), capture.rank) for capture in captures])
    return export(path, strings, used)


def write_job(job: SmallJob, folder: Path) -> list[Path]:
    """Write the reports of the ranks of a job made by chance."""
    captures = [Capture(rank, job.ranks) for rank in range(job.ranks)]
    for capture in captures:
        capture.system_call("pthread_cond_wait", 3, 13, _OTHER)  # waits are recorded, also short ones
    for call in sorted(job.calls, key=lambda call: call.begin):
        rank = job.threads[call.thread]
        _add_call(captures[rank], job, call, call.thread - job.threads.index(rank))
    return [capture.write(folder / f"rank{capture.rank}.sqlite") for capture in captures]


_NAMES = {
    "event": "cudaEventSynchronize",
    "query": "cudaEventQuery",
    "stream": "cudaStreamSynchronize",
    "device": "cudaDeviceSynchronize",
    "stream wait": "cudaStreamWaitEvent",
}


def _add_call(capture: Capture, job: SmallJob, call: Call, thread: int) -> None:
    times = call.begin, call.end or 0
    _, device = job.streams[call.number] if call.action not in ("mpi", "nccl", "signal", "wait") else (0, 0)
    match call.action:
        case "launch" | "copy" | "nccl":
            name = {"launch": "cudaLaunchKernel", "copy": "cudaMemcpy", "nccl": "cuLaunchKernelEx"}[call.action]
            assert call.launched is not None
            _add_operation(capture, job, call.launched, capture.call(name, *times, thread), call.action)
            if call.action == "nccl":
                capture.nccl_call(call.begin - 50, times[1] + 20, thread)
        case "record":
            capture.record(call.number, *times, call.number, thread, device)
        case "event" | "query":
            capture.sync(_NAMES[call.action], *times, EVENT_SYNC, event=call.number, thread=thread, device=device)
        case "stream wait":
            capture.sync(
                *(_NAMES[call.action], *times, STREAM_WAIT),
                stream=call.number,
                event=call.event,
                thread=thread,
                device=device,
            )
        case "stream":
            capture.sync(_NAMES[call.action], *times, STREAM_SYNC, stream=call.number, thread=thread, device=device)
        case "device":
            capture.sync(_NAMES[call.action], *times, CONTEXT_SYNC, thread=thread, device=device)
        case "mpi":
            capture.mpi_call(*times, thread)
        case "signal":
            capture.system_call("pthread_cond_signal", *times, thread)
        case "wait":
            if call.signal is not None:
                capture.system_call("pthread_cond_wait", *times, thread)
            else:
                capture.call("cudaGetDevice", *times, thread)


def _add_operation(capture: Capture, job: SmallJob, op: Op, launch: int, action: str) -> None:
    assert op.begin is not None and op.end is not None
    _, device = job.streams[op.stream]
    if action == "copy":
        capture.copy(launch, op.begin, op.end, op.stream, device=device)
    else:
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL" if action == "nccl" else "kernel"
        capture.kernel(launch, op.begin, op.end, op.stream, name, device)
