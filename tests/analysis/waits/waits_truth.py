"""Who waited for whom in real reports, by plain SQL and loops over kernels: nothing of the translator is used."""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path

_FUNCTIONS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce")


@dataclass
class Kernel:
    """A kernel of NCCL, with its operation. Times are UTC (ns)."""

    rank: int
    begin: int
    end: int
    operation: tuple[object, ...] = ()
    """Equal for the kernels of all ranks that are one operation."""
    until: int = 0
    last: int = -1
    """The rank that was waited for; -1 for nobody."""
    waits_while_idle: int = 0
    """Time of waiting in which the GPU computes nothing (ns)."""

    @property
    def is_collective(self) -> bool:
        return len(self.operation) == 2

    @property
    def wait(self) -> int:
        return self.until - self.begin


def read_kernels(report: Path, rank: int) -> tuple[list[Kernel], list[tuple[int, int]]]:
    """Return NCCL's kernels of a report of one rank, and the times in which its GPU computes."""
    with closing(sqlite3.connect(report)) as database:
        (utc,) = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
        kernels = [*_read_collectives(database, rank, utc), *_read_messages(database, rank, utc)]
        compute = database.execute(
            """SELECT k.start, k."end" FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
            WHERE s.value NOT LIKE 'nccl%' ORDER BY k.start"""
        ).fetchall()
        (number,) = database.execute(
            """SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
            WHERE s.value LIKE 'nccl%' AND k.graphNodeId IS NULL"""
        ).fetchone()
    assert number == len(kernels), "each kernel has its call"
    return kernels, _unite([(utc + begin, utc + end) for begin, end in compute])


def _read_collectives(database: sqlite3.Connection, rank: int, utc: int) -> list[Kernel]:
    """Return the kernels of collectives: the k-th call of a function launches its k-th kernel."""
    kernels = []
    for name in _FUNCTIONS:
        calls = _read_calls(database, [f"nccl{name}"])
        number: dict[str, int] = defaultdict(int)
        for (begin, end, launched), (_, call_begin, call_end, payload) in zip(
            _read_launched(database, name), calls, strict=True
        ):
            assert call_begin <= launched <= call_end
            communicator = str(payload["NCCL communicator ID"])
            # The k-th kernel of a communicator on each of its ranks, whatever its function.
            kernels.append((launched, communicator, Kernel(rank, utc + begin, utc + end)))
    for _, communicator, kernel in sorted(kernels, key=lambda row: row[0]):
        kernel.operation = (communicator, number[communicator])
        number[communicator] += 1
    return [kernel for _, _, kernel in kernels]


def _read_messages(database: sqlite3.Connection, rank: int, utc: int) -> list[Kernel]:
    """Return the kernels of sends and receives: the k-th group launches the k-th kernel, with one call in it.

    The communicator of these programs has the ranks of the job.
    """
    kernels = []
    number: dict[tuple[str, int, int], int] = defaultdict(int)
    calls = _read_calls(database, ["ncclSend", "ncclRecv"])
    for (begin, end, launched), (name, call_begin, _, payload) in zip(
        _read_launched(database, "SendRecv"), calls, strict=True
    ):
        assert call_begin <= launched
        peer = int(str(payload["Peer rank"]))
        way = (str(payload["NCCL communicator ID"]), *((rank, peer) if name == "ncclSend" else (peer, rank)))
        kernels.append(Kernel(rank, utc + begin, utc + end, (*way, number[way])))
        number[way] += 1
    return kernels


def _read_launched(database: sqlite3.Connection, function: str) -> list[tuple[int, int, int]]:
    """Return begin, end and launch of the kernels of a function, in the order of their launches."""
    return database.execute(
        """SELECT k.start, k."end", r.start FROM CUPTI_ACTIVITY_KIND_KERNEL k
        JOIN StringIds s ON s.id = k.shortName JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
        ON r.correlationId = k.correlationId WHERE k.graphNodeId IS NULL
        AND (s.value = ? OR s.value LIKE ? ESCAPE '!') ORDER BY r.start""",
        (f"ncclDevKernel_{function}", f"ncclDevKernel!_{function}!_%"),
    ).fetchall()


def _read_calls(database: sqlite3.Connection, names: Sequence[str]) -> list[tuple[str, int, int, dict[str, object]]]:
    marks = ", ".join("?" * len(names))
    rows = database.execute(
        f"""SELECT s.value, n.start, n."end", n.jsonText FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId
        WHERE s.value IN ({marks}) ORDER BY n.start""",
        names,
    )
    return [(name, begin, end, json.loads(text)) for name, begin, end, text in rows]


def find_truth(reports: Sequence[Path]) -> list[list[Kernel]]:
    """Return the kernels of each rank in order of time, with what each waited for. All reports have one clock."""
    ranks, busy = zip(*(read_kernels(report, rank) for rank, report in enumerate(reports)), strict=True)
    operations: dict[tuple[object, ...], list[Kernel]] = defaultdict(list)
    for kernels in ranks:
        for kernel in kernels:
            operations[kernel.operation].append(kernel)
    for members in operations.values():
        latest = max(kernel.begin for kernel in members)
        last = [kernel.rank for kernel in members if kernel.begin == latest]
        assert len(members) in (2, 4) and len({kernel.rank for kernel in members}) == len(members)
        for kernel in members:
            kernel.until = min(latest, kernel.end)
            if kernel.begin < latest and len(last) == 1:
                kernel.last = last[0]
    for rank, kernels in enumerate(ranks):
        kernels.sort(key=lambda kernel: kernel.begin)
        for kernel in kernels:
            kernel.waits_while_idle = kernel.wait - _overlap(busy[rank], kernel.begin, kernel.until)
    return list(ranks)


def _unite(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of intervals that are sorted by begin."""
    union: list[tuple[int, int]] = []
    for begin, end in intervals:
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((begin, end))
    return union


def _overlap(union: list[tuple[int, int]], begin: int, end: int) -> int:
    first = bisect_right(union, begin, key=lambda interval: interval[1])
    near = takewhile(lambda interval: interval[0] < end, islice(union, first, None))
    return sum(min(end, high) - max(begin, low) for low, high in near if end > begin)


def make_table(ranks: Sequence[Sequence[Kernel]]) -> list[str]:
    """Return a line for each rank.

    Time in NCCL / waiting / while the GPU is idle / moving; times last in collectives; waiting caused (ms).
    """
    lines = []
    for rank, kernels in enumerate(ranks):
        total, wait = sum(k.end - k.begin for k in kernels), sum(k.wait for k in kernels)
        idle = sum(k.waits_while_idle for k in kernels)
        others = [k for kernels in ranks for k in kernels if k.last == rank]
        last = len({k.operation for k in others if k.is_collective})
        times = " / ".join(f"{ns / 1e6:.1f}" for ns in (total, wait, idle, total - wait))
        lines.append(f"{rank}: {times}; {last}; {sum(k.wait for k in others) / 1e6:.1f}")
    return lines
