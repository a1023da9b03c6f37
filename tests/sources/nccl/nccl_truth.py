"""NCCL calls and kernels of reports, by plain SQL, JSON and loops; and the lines of a trace about NCCL, by label."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.trace_reader import Trace

COMMUNICATOR, BYTES, OPERATION, ROOT, SEND_PEER, SEND_BYTES, RECEIVE_PEER, RECEIVE_BYTES, SEQUENCE, CALLS = range(
    9501, 9511
)
SIZES = (BYTES, SEND_BYTES, RECEIVE_BYTES)
NAMED = (COMMUNICATOR, OPERATION, ROOT, SEND_PEER, RECEIVE_PEER)
MESSAGE = 55004

Line = tuple[str, str, int, tuple[tuple[int, object], ...]]
"""Task, `host` or `stream`, UTC (ns), sorted pairs of type and value or its label."""


@dataclass
class Call:
    """A range of NCCL's domain, on the report's clock."""

    thread: int
    begin: int
    end: int
    name: str
    payload: dict[str, object]
    group: int | None = None
    """Number of the outermost group that it is in, or starts or ends."""
    sequence: int = 0

    @property
    def process(self) -> int:
        return self.thread >> 24


@dataclass
class Kernel:
    """A kernel of NCCL, the innermost call that launched it, and all calls that it carries out."""

    process: int
    begin: int
    end: int
    name: str
    launched_in: Call | None = None
    calls: list[Call] = field(default_factory=list)


@dataclass
class NcclReport:
    """Calls and kernels of one report, by begin."""

    path: Path
    utc: int
    calls: list[Call]
    kernels: list[Kernel]

    @property
    def processes(self) -> list[int]:
        return sorted({call.process for call in self.calls})


def read_nccl_report(path: Path) -> NcclReport:
    """Read the calls of the domain named NCCL, and kernels with the CUDA API call that launched them."""
    database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    utc = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()[0]
    rows = database.execute(
        """SELECT n.globalTid, n.start, n.end, s.value, n.jsonText
           FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId
           WHERE n.eventType = 59 AND EXISTS (SELECT 1 FROM NVTX_EVENTS d WHERE d.eventType = 75 AND d.text = 'NCCL'
               AND d.domainId = n.domainId AND d.globalTid >> 24 = n.globalTid >> 24) ORDER BY n.start"""
    )
    calls = [Call(tid, begin, end, name, json.loads(text or "{}")) for tid, begin, end, name, text in rows]
    _number_calls(calls)
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    kernels = [] if "CUPTI_ACTIVITY_KIND_KERNEL" not in tables else _read_kernels(database, calls)
    database.close()
    return NcclReport(path, utc, calls, kernels)


def _read_kernels(database: sqlite3.Connection, calls: Sequence[Call]) -> list[Kernel]:
    kernels = []
    launched = database.execute(
        """SELECT k.globalPid >> 24, k.start, k.end, s.value, r.start, r.globalTid
           FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
           LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
               ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24
           WHERE s.value LIKE 'nccl%' ORDER BY k.start"""
    )
    for process, begin, end, name, time, thread in launched:
        around = [call for call in calls if call.thread == thread and call.begin <= time <= call.end]
        kernel = Kernel(process, begin, end, name, min(around, key=lambda call: call.end - call.begin, default=None))
        if kernel.launched_in is not None:
            launch = kernel.launched_in
            in_group = [call for call in calls if call.thread == thread and call.group == launch.group and call.payload]
            kernel.calls = [launch] if launch.group is None else in_group
        kernels.append(kernel)
    return kernels


def _number_calls(calls: Sequence[Call]) -> None:
    """Set the group of each call, and its sequence number among the calls of its kind on its communicator."""
    depth: Counter[int] = Counter()
    group: dict[int, int] = {}
    count: Counter[tuple[object, ...]] = Counter()
    for number, call in enumerate(calls):
        if call.name == "ncclGroupStart":
            if not depth[call.thread]:
                group[call.thread] = number
            depth[call.thread] += 1
        call.group = group[call.thread] if depth[call.thread] else None
        if call.name == "ncclGroupEnd":
            depth[call.thread] -= 1
        if "Message size [bytes]" in call.payload:
            kind = call.name if "Peer rank" in call.payload else "collective"
            key = (call.process, call.payload["NCCL communicator ID"], kind, call.payload.get("Peer rank"))
            count[key] += 1
            call.sequence = count[key]


def list_pairs(calls: Sequence[Call], communicator: str) -> tuple[tuple[int, object], ...]:
    """Return types and values of calls on a communicator with this label; its ranks must be those of the job."""
    sums: Counter[int] = Counter()
    named: set[tuple[int, object]] = set()
    for call in calls:
        payload = call.payload
        named.add((COMMUNICATOR, communicator))
        if "Reduction operation" in payload:
            named.add((OPERATION, payload["Reduction operation"]))
        if "Root" in payload:
            named.add((ROOT, f"rank {payload['Root']}"))
        size = BYTES
        if call.name == "ncclSend":
            named.add((SEND_PEER, f"rank {payload['Peer rank']}"))
            size = SEND_BYTES
        elif call.name == "ncclRecv":
            named.add((RECEIVE_PEER, f"rank {payload['Peer rank']}"))
            size = RECEIVE_BYTES
        if "Message size [bytes]" in payload:
            sums[size] += payload["Message size [bytes]"]  # type: ignore[assignment, operator]
    first = min((call.sequence for call in calls if call.sequence), default=0)
    sequence = [(SEQUENCE, first)] if first else []
    return tuple(sorted([*named, *sums.items(), *sequence], key=str))


def collect_lines(trace: Trace, start_utc: int) -> tuple[Counter[Line], Counter[Line]]:
    """Return the lines of the trace that start a payload, and those that end one (all values are 0)."""
    pairs_of_line: dict[int, list[tuple[int, object]]] = defaultdict(list)
    where: dict[int, tuple[str, str, int]] = {}
    chosen = trace.events[trace.events["type"].between(COMMUNICATOR, CALLS)]
    columns = (chosen[name].tolist() for name in ("line", "row", "task", "time", "type", "value"))
    for line, row, task, time, kind, value in zip(*columns, strict=True):
        place = "stream" if trace.names["THREAD"][row].startswith("CUDA-") else "host"
        where[line] = (trace.names["TASK"][task - 1], place, start_utc + time)
        pairs_of_line[line].append((kind, trace.values[kind][value] if kind in NAMED else value))
    begins: Counter[Line] = Counter()
    ends: Counter[Line] = Counter()
    for line, pairs in pairs_of_line.items():
        assert [kind for kind, _ in pairs] == sorted(kind for kind, _ in pairs)
        values = tuple(sorted(pairs, key=str))
        (begins if any(value for _, value in pairs) else ends)[(*where[line], values)] += 1
    return begins, ends


def close_pairs(pairs: tuple[tuple[int, object], ...]) -> tuple[tuple[int, object], ...]:
    """Return the pairs that end these: bytes alone."""
    return tuple((kind, 0) for kind, _ in pairs if kind in SIZES)
