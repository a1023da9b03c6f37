"""Why ranks were late, by plain loops over the tables of their reports: one report for each rank, times in UTC."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import pandas as pd

from tests.analysis.gpus.test_times import host_calls, host_ranges
from tests.report_truth import PID, Report

LAUNCH, DEVICE, DEPENDENCY, CALL, UNKNOWN = range(1, 6)
BEFORE, AFTER, PROMPT = 10_000, 2_000, 20_000
_WAITS_FOR_THREAD = ("pthread_cond_*wait", "pthread_join", "sem_wait", "sem_timedwait", "sem_clockwait")


class Piece(NamedTuple):
    """What a thread was in from one time to another."""

    begin: int
    end: int
    range: str
    call: str


def _sweep(events: pd.DataFrame, limits: Sequence[int], *, innermost: bool) -> list[str]:
    """Return the name of what is in force from each limit to the next."""
    rows = sorted(zip(events["begin"], -events["end"], events["name"], strict=True))
    rows = [row for row in rows if -row[1] > row[0]]
    active: list[tuple[int, int, str]] = []
    names, at = [], 0
    for limit in limits:
        while at < len(rows) and rows[at][0] <= limit:
            active.append(rows[at])
            at += 1
        active = [row for row in active if -row[1] > limit]
        best = (max if innermost else min)(active, default=(0, 0, ""))
        names.append(best[2])
    return names


class Rank:
    """One rank's report."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._pieces: dict[int, list[Piece]] = {}

    @cached_property
    def operations(self) -> list[Any]:
        moved = self.report.operations.assign(
            begin=self.report.operations["begin"] + self.report.utc, end=self.report.operations["end"] + self.report.utc
        )
        return list(moved.sort_values("begin", kind="stable").itertuples(index=False))

    @cached_property
    def _nccl_by_begin(self) -> dict[int, list[Any]]:
        found = defaultdict(list)
        for row in self.operations:
            if str(row.name).startswith("nccl"):
                found[row.begin].append(row)
        return found

    @cached_property
    def _by_end(self) -> tuple[list[int], list[int]]:
        """Ends of the operations, sorted, and the place in `operations` of each."""
        order = sorted(range(len(self.operations)), key=lambda i: self.operations[i].end)
        return [self.operations[i].end for i in order], order

    def find_nccl(self, begin: int) -> Any:
        """Return the kernel of NCCL that begins at a time."""
        [kernel] = self._nccl_by_begin[begin]
        return kernel

    def list_near(self, row: Any) -> list[Any]:
        """Return the operations of its GPU and process that began before another and ended as it began, by begin."""
        ends, order = self._by_end
        low, high = bisect_left(ends, row.begin - BEFORE), bisect_right(ends, row.begin + AFTER)
        near = [self.operations[i] for i in sorted(order[low:high])]
        return [other for other in near if other.begin < row.begin and other[3:5] == row[3:5]]

    @cached_property
    def graph_nodes(self) -> set[int]:
        """UTC at which nodes of graphs begin."""
        return self.report.list_graph_nodes()

    @cached_property
    def launches(self) -> dict[tuple[object, int], tuple[int, int]]:
        """(tid, UTC) of the call by (stream, begin) of what it launched: of a graph, the first on each stream."""
        calls: dict[tuple[int, int], tuple[int, int]] = {}
        for call in self.report.calls.sort_values(["begin", "tid"]).itertuples():
            calls.setdefault((call.tid >> 24, call.correlation), (call.tid, call.begin + self.report.utc))
        launches: dict[tuple[object, int], tuple[int, int]] = {}
        seen = set()
        for operation in self.operations:
            key = (operation.process, operation.correlation)
            if operation.correlation and key in calls and (*key, stream_of(operation)) not in seen:
                seen.add((*key, stream_of(operation)))
                launches[stream_of(operation), operation.begin] = calls[key]
        return launches

    @cached_property
    def host(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        calls, ranges = host_calls(self.report), host_ranges(self.report)
        return tuple(  # type: ignore[return-value]
            part.assign(begin=part["begin"] + self.report.utc, end=part["end"] + self.report.utc)
            for part in (calls, ranges)
        )

    @cached_property
    def mpi_calls(self) -> list[Any]:
        """Begin (UTC) and tid of the calls of MPI."""
        parts = [
            self.report.sql(f"SELECT start AS begin, globalTid AS tid FROM {table}")
            for table in sorted(self.report.tables)
            if table.startswith("MPI_") and table.endswith("_EVENTS")
        ]
        calls = pd.concat(parts)
        return list(calls.assign(begin=calls["begin"] + self.report.utc).itertuples())

    def pieces(self, tid: int) -> list[Piece]:
        """What a thread was in; where it is in no range or waits for another thread, the main thread counts."""
        if tid not in self._pieces:
            calls, ranges = self.host
            main = tid & ~PID | tid >> 24 & PID
            own = [part[part["tid"] == tid] for part in (ranges, calls)]
            others = [part[part["tid"] == main] for part in (ranges, calls)]
            limits = sorted(
                {0, 1 << 62}.union(*(part[name].tolist() for part in own + others for name in ("begin", "end")))
            )
            in_range, main_range = (_sweep(part[0], limits, innermost=True) for part in (own, others))
            in_call, main_call = (_sweep(part[1], limits, innermost=False) for part in (own, others))
            self._pieces[tid] = [
                Piece(low, high, a or b, d if c in _WAITS_FOR_THREAD else c)
                for (low, high), a, b, c, d in zip(
                    pairwise(limits), in_range, main_range, in_call, main_call, strict=False
                )
            ]
        return self._pieces[tid]

    def within(self, tid: int, low: int, high: int) -> Iterator[Piece]:
        """Yield the pieces of a thread from low to high; where these are equal, the one then, without length."""
        pieces = self.pieces(tid)
        for i in range(bisect_right(pieces, low, key=lambda piece: piece.end), len(pieces)):
            piece = pieces[i]
            if piece.begin >= high and not low == high == piece.begin:
                break
            yield piece._replace(begin=max(low, piece.begin), end=min(high, piece.end))

    def main(self, tid: int, low: int, high: int) -> tuple[list[str], list[str]]:
        """Return the ranges that cover most of a time, of equal length, and the calls that do in them."""
        ranges, calls = Counter[str](), Counter[tuple[str, str]]()
        for piece in self.within(tid, min(low, high), high):
            ranges[piece.range] += piece.end - piece.begin
            calls[piece.range, piece.call] += piece.end - piece.begin
        best = [name for name, ns in ranges.items() if ns == max(ranges.values())]
        in_best = {key: ns for key, ns in calls.items() if key[0] in best}
        return best, [key[1] for key, ns in in_best.items() if ns == max(in_best.values())]


def stream_of(operation: Any) -> tuple[int, int, int, int]:
    return operation.process, operation.device, operation.context, operation.stream


class Explained(NamedTuple):
    """What a late kernel or call must be explained by: names that are all right where several are equally long."""

    lateness: int
    reason: int
    ranges: list[str]
    calls: list[str]
    operation: str
    operation_begin: int
    costs: Counter[tuple[str, str]]


def explain(rank: Rank, begin: int, *, is_mpi: bool, waits: Sequence[tuple[int, int]]) -> Explained:
    """Explain what began at `begin`, and what the others waited for from .. until."""
    median = sorted(low for low, _ in waits)[len(waits) // 2]
    total = sum(high - low for low, high in waits)
    if is_mpi:
        tids = {row.tid for row in rank.mpi_calls if row.begin == begin}
        assert len(tids) == 1
        return _explain_host(rank, begin - median, CALL, tids.pop(), begin, median, waits)
    kernel = rank.find_nccl(begin)
    launch = rank.launches.get((stream_of(kernel), begin))
    if launch is not None and launch[1] > median and launch[1] - median >= begin - launch[1]:
        return _explain_host(rank, begin - median, LAUNCH, *launch, median, waits)
    if launch is not None or begin in rank.graph_nodes:
        near = rank.list_near(kernel)
        own = [row for row in near if stream_of(row) == stream_of(kernel)]
        for reason, candidates in ((DEVICE, own), (DEPENDENCY, near)):
            if candidates:
                last = max(candidates, key=lambda row: row.end)
                sender = rank.launches.get((stream_of(last), last.begin))
                ranges = [piece.range for piece in rank.within(*sender, sender[1])] if sender else [""]
                costs = Counter({(ranges[0], ""): total})
                return Explained(begin - median, reason, ranges, [""], str(last.name), last.begin, costs)
    if launch is not None and (launch[1] > median or begin - launch[1] <= PROMPT):
        return _explain_host(rank, begin - median, LAUNCH, *launch, median, waits)
    return Explained(begin - median, UNKNOWN, [""], [""], "", -1, Counter({("", ""): total}))


def _explain_host(
    rank: Rank, lateness: int, reason: int, tid: int, limit: int, median: int, waits: Sequence[tuple[int, int]]
) -> Explained:
    ranges, calls = rank.main(tid, median, limit)
    costs = Counter[tuple[str, str]]()
    [then] = rank.within(tid, limit, limit)
    pieces = list(rank.within(tid, min(low for low, _ in waits), limit)) if min(waits)[0] < limit else []
    for low, high in waits:
        left = high - low
        for piece in pieces:
            part = min(piece.end, high) - max(piece.begin, low)
            if part > 0:
                costs[piece.range, piece.call] += part
                left -= part
        costs[then.range, then.call] += left
    return Explained(lateness, reason, ranges, calls, "", -1, costs)
