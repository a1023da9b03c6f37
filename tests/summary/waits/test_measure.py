"""Who waits for whom in the summary, against plain SQL and loops over kernels."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from functools import cache
from itertools import accumulate, islice
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.waits.numbers import WaitNumbers
from tests.analysis.waits import waits_truth
from tests.analysis.waits.waits_truth import Kernel
from tests.conftest import Unpacked
from tests.report_truth import Report
from tests.spans import list_report_sets
from tests.summary.made import SETS, summarize_reports
from tests.tiers import cases

ONE_NODE = ("ex1a-slow", "ex1a-fast", "ex3a-pp1")
TWO_NODES = ("ex2b-manual", "ex2b-overlap", "ex3a-pp2")


def locate(shared_reports: Path, unpacked: Unpacked, name: str) -> tuple[Path, ...]:
    return tuple(unpacked(shared_reports / f"exercises/{name}.rank{rank}.sqlite") for rank in range(4))


@cache
def summed(*reports: Path) -> JobSummary:
    return summarize_reports(reports)


@cache
def find_truth(reports: tuple[Path, ...]) -> list[list[Kernel]]:
    """Return the kernels of each rank, which no test changes."""
    return waits_truth.find_truth(reports)


def waits_in(found: JobSummary) -> WaitNumbers:
    assert found.waits is not None
    return found.waits


def rows_of_truth(truth: list[list[Kernel]], low: int = 0, high: int = 1 << 62) -> list[tuple[int, ...]]:
    """Of each rank: time in NCCL, waiting, exposed, moving, times last, waiting caused; within a window of UTC."""
    rows = []
    for rank, kernels in enumerate(truth):
        cut = [(min(max(t, low), high) for t in (k.begin, k.until, k.end)) for k in kernels]
        times = [tuple(limits) for limits in cut]
        blamed = [k for others in truth for k in others if k.last == rank and clip(k.begin, k.until, low, high)]
        rows.append(
            (
                sum(end - begin for begin, _, end in times),
                sum(until - begin for begin, until, _ in times),
                sum(k.waits_while_idle for k in kernels),
                sum(end - until for _, until, end in times),
                len({k.operation for k in blamed if k.is_collective}),
                sum(clip(k.begin, k.until, low, high) for k in blamed),
            )
        )
    return rows


def clip(begin: int, end: int, low: int, high: int) -> int:
    return max(0, min(end, high) - max(begin, low))


def rows_in(waits: WaitNumbers) -> list[tuple[int | None, ...]]:
    assert all(rank.unsplit_ns == 0 and rank.mpi is None for rank in waits.ranks)
    return [
        (rank.nccl_ns, rank.wait_ns, rank.exposed_wait_ns, rank.transfer_ns, rank.last, rank.caused_wait_ns)
        for rank in waits.ranks
    ]


def check_sums(found: JobSummary) -> None:
    """Costs and culprits of each task add up to what the others waited for it."""
    waits = waits_in(found)
    caused = {rank.task: rank.all_caused_ns for rank in waits.ranks if rank.all_caused_ns}
    for rows in (waits.costs, waits.culprits):
        sums: Counter[str] = Counter()
        for row in rows:
            sums[row.task] += row.ns
        assert {task: sums[task] for task in caused} == caused
        assert [row.ns for row in rows] == sorted((row.ns for row in rows), reverse=True)
    for rank in waits.ranks:
        by_reason: Counter[str] = Counter()
        for cost in waits.costs:
            if cost.task == rank.task:
                by_reason[cost.reason] += cost.ns
        assert rank.reason == (max(by_reason, key=by_reason.__getitem__) if by_reason else None)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(ONE_NODE, push=["ex1a-slow"]))
def test_ranks_of_one_node(shared_reports: Path, unpacked: Unpacked, name: str) -> None:
    reports = locate(shared_reports, unpacked, name)
    waits, truth = waits_in(summed(*reports)), find_truth(reports)
    assert rows_in(waits) == rows_of_truth(truth)
    assert [(rank.rank, rank.task) for rank in waits.ranks] == [(n, f"rank {n}") for n in range(4)]
    collectives = {kernel.operation for kernels in truth for kernel in kernels}
    assert waits.operations == waits.nccl_collectives == len(collectives)
    assert (waits.split, waits.below_uncertainty, waits.not_split) == (sum(map(len, truth)), 0, {})
    assert [rank.collectives for rank in waits.ranks] == [len(collectives)] * 4


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(TWO_NODES, push=set(TWO_NODES) - {"ex2b-manual", "ex2b-overlap"}))
def test_ranks_of_two_nodes_within_the_error_of_their_clocks(
    shared_reports: Path, unpacked: Unpacked, name: str
) -> None:
    reports = locate(shared_reports, unpacked, name)
    waits, truth = waits_in(summed(*reports)), find_truth(reports)
    below = 40_000  # ns; tests/analysis compares each kernel with the bound that the clocks have
    for rank, kernels, expected in zip(waits.ranks, truth, rows_of_truth(truth), strict=True):
        ns, wait, exposed, moving, last, _ = expected
        assert rank.nccl_ns == rank.wait_ns + rank.transfer_ns == pytest.approx(ns, rel=1e-5)
        assert rank.exposed_wait_ns is not None
        for measured, true in ((rank.wait_ns, wait), (rank.exposed_wait_ns, exposed), (rank.transfer_ns, moving)):
            assert abs(measured - true) <= below * len(kernels)
        assert rank.last <= last
    assert waits.split + waits.below_uncertainty == sum(map(len, truth))
    assert (waits.below_uncertainty > 0) == (name != "ex3a-pp2")
    assert waits.not_split == {} and all(rank.unsplit_ns == 0 for rank in waits.ranks)


@pytest.mark.slow
def test_a_window_counts_what_is_in_it(shared_reports: Path, unpacked: Unpacked) -> None:
    reports = locate(shared_reports, unpacked, "ex1a-slow")
    found = summarize_reports(reports, Selection(window=(4_000_000_000, 9_000_000_000)))
    low, high = (found.start_utc_ns + limit for limit in found.windows_ns[0])
    truth = find_truth(reports)
    cut = [sum(bool(clip(k.begin, k.end, low, high)) for k in kernels) for kernels in truth]
    assert 0 < sum(cut) < sum(map(len, truth))
    for measured, expected in zip(rows_in(waits_in(found)), rows_of_truth(truth, low, high), strict=True):
        assert [*measured[:2], *measured[3:]] == [*expected[:2], *expected[3:]]
        assert measured[2] is not None and measured[1] is not None
        assert measured[2] <= measured[1]
    assert waits_in(found).split == sum(cut)


@pytest.mark.all_sets
@pytest.mark.slow
def test_a_window_counts_the_operations_in_it(shared_reports: Path, unpacked: Unpacked) -> None:
    """Kernels of this job carry out one collective, or one message, each; every kernel that is seen counts one."""
    reports = locate(shared_reports, unpacked, "ex3a-pp2")
    waits = waits_in(summarize_reports(reports, Selection(window=(300_000_000, 320_000_000))))
    kernels = waits.split + waits.below_uncertainty + sum(waits.not_split.values())
    assert 0 < waits.nccl_collectives < waits.operations <= kernels <= 2 * waits.operations
    assert waits.operations - waits.nccl_collectives < 30, "128 in all"


@pytest.mark.slow
def test_chosen_ranks_have_the_numbers_that_they_have_among_all(shared_reports: Path, unpacked: Unpacked) -> None:
    reports = locate(shared_reports, unpacked, "ex1a-slow")
    whole = waits_in(summed(*reports))
    chosen = waits_in(summarize_reports(reports, Selection(window=(None, None), ranks=frozenset({1, 2}))))
    for rank in chosen.ranks:
        assert rank.rank is not None
        same = whole.ranks[rank.rank]
        assert (rank.wait_ns, rank.transfer_ns, rank.exposed_wait_ns) == (
            *(same.wait_ns, same.transfer_ns),
            same.exposed_wait_ns,
        )
    assert [rank.rank for rank in chosen.ranks] == [1, 2]
    waited = sum(rank.wait_ns for rank in chosen.ranks)
    assert sum(culprit.ns for culprit in chosen.culprits) == waited
    assert (chosen.culprits[0].task, chosen.culprits[0].reason) == ("rank 0", "not selected"), (
        "also if it is not chosen"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", cases((*ONE_NODE, "ex2b-overlap"), push=["ex1a-slow", "ex3a-pp1"]))
def test_culprits_add_up_to_what_their_ranks_cost(shared_reports: Path, unpacked: Unpacked, name: str) -> None:
    check_sums(summed(*locate(shared_reports, unpacked, name)))


@pytest.mark.slow
def test_the_late_rank_is_late_in_its_data_loading(shared_reports: Path, unpacked: Unpacked) -> None:
    found = summed(*locate(shared_reports, unpacked, "ex1a-slow"))
    culprit = waits_in(found).culprits[0]
    assert (culprit.rank, culprit.reason, culprit.range, culprit.call) == (
        0,
        "host-bound late launch",
        "data loading",
        "",
    )
    cost = waits_in(found).costs[0]
    assert (cost.rank, cost.reason, cost.range, cost.call) == (0, culprit.reason, "data loading", "")
    slowest = {each.name: each.slowest_task for each in found.ranges}
    assert slowest["step"] == slowest["data loading"] == "rank 0"


@pytest.fixture(scope="module", params=list_report_sets(SETS))
def any_set(request: pytest.FixtureRequest) -> tuple[Path, ...]:
    return tuple(request.param)


def measure_copies_between_gpus(report: Report) -> int:
    """Return the time (ns) of copies from a GPU to another one, which are communication like kernels of NCCL."""
    if not report.has("CUPTI_ACTIVITY_KIND_MEMCPY"):
        return 0
    copies = report.sql("SELECT * FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 10")
    if not {"srcDeviceId", "dstDeviceId"} <= set(copies.columns):
        return 0
    between = copies[copies["srcDeviceId"] != copies["dstDeviceId"]]
    return int((between["end"] - between["start"]).sum())


def test_all_time_in_kernels_waits_moves_or_is_not_split(any_set: tuple[Path, ...]) -> None:
    found = summarize_reports(any_set)
    total = 0
    for report in map(Report, any_set):
        operations = report.operations[report.operations["table"] == "KERNEL"]
        nccl = operations[operations["name"].str.startswith("nccl")]
        total += int((nccl["end"] - nccl["begin"]).sum()) + measure_copies_between_gpus(report)
    if found.waits is None:
        assert not total
        return
    ranks = found.waits.ranks
    assert sum(rank.nccl_ns for rank in ranks) == total
    for rank in ranks:
        assert rank.wait_ns + rank.transfer_ns + rank.unsplit_ns == rank.nccl_ns
        assert min(rank.wait_ns, rank.transfer_ns, rank.unsplit_ns) >= 0
        assert rank.exposed_wait_ns is None or 0 <= rank.exposed_wait_ns <= rank.wait_ns
        mpi = rank.mpi
        if mpi is not None:
            assert mpi.wait_ns + mpi.transfer_ns + mpi.unsplit_ns == mpi.mpi_ns
    known = sum(rank.wait_ns for rank in ranks) + sum(rank.mpi.wait_ns for rank in ranks if rank.mpi)
    assert sum(culprit.ns for culprit in found.waits.culprits) <= known


# ---- bandwidth -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(ONE_NODE, push=["ex1a-slow", "ex3a-pp1"]))
def test_bandwidth_of_all_reduces(shared_reports: Path, unpacked: Unpacked, name: str) -> None:
    """The time of an operation is that from its last begin to its last end."""
    reports = locate(shared_reports, unpacked, name)
    sizes: dict[tuple[object, ...], int] = {}
    for report in map(Report, reports):
        calls = report.sql(
            """SELECT n.jsonText AS payload FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId
            WHERE s.value = 'ncclAllReduce' ORDER BY n.start"""
        )
        number: dict[str, int] = defaultdict(int)
        for payload in map(json.loads, calls["payload"]):
            communicator = str(payload["NCCL communicator ID"])
            assert sizes.setdefault((communicator, number[communicator]), payload["Message size [bytes]"])
            number[communicator] += 1
    members: dict[tuple[object, ...], list[Kernel]] = defaultdict(list)
    for kernels in find_truth(reports):
        for kernel in kernels:
            members[kernel.operation].append(kernel)
    sums: dict[tuple[object, int, int], list[int]] = defaultdict(lambda: [0, 0])
    for operation, kernels in members.items():
        of_size = sums[operation[0], len(kernels), sizes[operation]]
        of_size[0] += 1
        of_size[1] += max(kernel.end - kernel.until for kernel in kernels)
    found = waits_in(summed(*reports)).bandwidth
    assert {(int(b.communicator, 16), b.ranks, b.bytes): [b.count, b.ns] for b in found} == {
        (int(str(communicator)), ranks, size): of_size for (communicator, ranks, size), of_size in sums.items()
    }
    for each in found:
        assert each.function == "AllReduce"
        algorithm = each.bytes * each.count / (each.ns / 1e9)
        assert each.algorithm_bytes_per_s == pytest.approx(algorithm, abs=1)
        assert each.bus_bytes_per_s == pytest.approx(algorithm * 2 * (each.ranks - 1) / each.ranks, abs=1)


# ---- waiting in ranges -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ex1a-slow", "ex3a-pp1"])
def test_waiting_in_ranges(shared_reports: Path, unpacked: Unpacked, name: str) -> None:
    reports = locate(shared_reports, unpacked, name)
    found, truth = summed(*reports), find_truth(reports)
    for repeated in found.ranges[:4]:
        for task in repeated.tasks:
            assert task.rank is not None
            report = Report(reports[task.rank])
            waiting = [(k.begin - report.utc, k.until - report.utc) for k in truth[task.rank] if k.wait]
            pieces = np.array(subtract(waiting, list_compute(report)), np.int64).reshape(-1, 2)
            own = report.nvtx[report.nvtx["text"].str.fullmatch(rf"{repeated.name}( \d+)?")]
            ranges = list(zip(own["begin"].tolist(), own["end"].tolist(), own["tid"].tolist(), strict=True))
            assert task.total_ns == sum(end - begin for begin, end, _ in ranges)
            assert task.gpu_waiting_ns == sum(measure_within(pieces, begin, end) for begin, end, _ in ranges)
            calls = list_blocking_calls(report)
            in_calls = 0
            for begin, end, tid in ranges:
                for low, high in calls.get(tid, []):
                    if clip(low, high, begin, end):
                        in_calls += measure_within(pieces, max(low, begin), min(high, end))
            assert (task.waiting_ns, task.unsplit_ns) == (in_calls, 0)
            assert in_calls <= task.gpu_waiting_ns


def measure_within(pieces: np.ndarray, low: int, high: int) -> int:
    """Return how much of intervals (a row each) is between two times."""
    return int(np.maximum(np.minimum(pieces[:, 1], high) - np.maximum(pieces[:, 0], low), 0).sum())


def list_compute(report: Report) -> list[tuple[int, int]]:
    rows = report.sql(
        """SELECT k.start, k."end" FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
        WHERE s.value NOT LIKE 'nccl%' ORDER BY k.start"""
    )
    return list(zip(rows["start"].tolist(), rows["end"].tolist(), strict=True))


def list_blocking_calls(report: Report) -> dict[int, list[tuple[int, int]]]:
    rows = report.sql(
        """SELECT r.start, r."end", r.globalTid AS tid FROM CUPTI_ACTIVITY_KIND_RUNTIME r
        JOIN StringIds s ON s.id = r.nameId WHERE s.value LIKE '%Synchronize%' OR s.value LIKE '%Memcpy%'"""
    )
    calls: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for start, end, tid in zip(rows["start"].tolist(), rows["end"].tolist(), rows["tid"].tolist(), strict=True):
        calls[tid].append((start, end))
    return calls


def subtract(intervals: list[tuple[int, int]], others: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of intervals in which none of others is; both by begin."""
    pieces = []
    latest = list(accumulate((high for _, high in others), max))  # the latest end so far
    for begin, end in intervals:
        at = begin
        for low, high in islice(others, bisect_right(latest, begin), None):
            if low >= end:
                break
            if high > at:
                if low > at:
                    pieces.append((at, low))
                at = max(at, high)
        if at < end:
            pieces.append((at, end))
    return pieces
