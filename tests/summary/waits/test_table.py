"""The tables on waits: the worst of many ranks, reasons, what is unclassified; and how the slowest task is chosen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.intervals.step_functions import CoveredTime
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.ranges.numbers import RangeOfTask
from nsys2prv_ng.summary.ranges.waiting import choose_slowest
from nsys2prv_ng.summary.text import format_summary
from nsys2prv_ng.summary.waits.numbers import Bandwidth, LongestWait, MpiWaits, WaitNumbers
from tests.examples import examples
from tests.sources.nccl.nccl_reports import COMMUNICATOR, OPERATION, RANK, RANKS, SIZE, Call, Kernel, write_nccl_report
from tests.summary.made import summarize_reports
from tests.summary.made_waits import DEVICE, LAUNCH, NO_MPI, NO_WAITS, cost_of, culprit_of, rank_of, waits_of

MS, S = 10**6, 10**9


@pytest.fixture(scope="module")
def found(samples: Path) -> JobSummary:
    return replace(summarize_reports([samples / "mpi-4.rank0.sqlite"]), duration_ns=10 * S)


def sections(found: JobSummary, waits: WaitNumbers | None, width: int = 100) -> list[str]:
    return format_summary(replace(found, waits=waits), width, details=True).split("\n\n")


# ---- tables ----------------------------------------------------------------------------------------------------------


def test_the_worst_of_many_ranks(found: JobSummary) -> None:
    ranks = [rank_of(n, (n % 100) * MS + n) for n in range(1024)]
    text = next(part for part in sections(found, waits_of(*ranks)) if part.startswith("NCCL time of each rank"))
    shown = [line.split()[1] for line in text.splitlines() if line.startswith("rank ")]
    worst = sorted(range(1024), key=lambda n: ranks[n].caused_wait_ns)[-10:]
    assert shown == [str(n) for n in sorted(worst)]
    assert text.endswith("  and 1,014 more that cause less wait (the JSON has all)")


def test_tables_of_mpi_and_of_what_is_unclassified(found: JobSummary) -> None:
    mpi = MpiWaits(
        mpi_ns=9 * MS,
        wait_ns=2 * MS,
        transfer_ns=6 * MS,
        unsplit_ns=1 * MS,
        collectives=20,
        last=3,
        caused_wait_ns=4 * MS,
        caused_in_messages_ns=0,
    )
    waits = waits_of(replace(rank_of(0, 0, 0, mpi), nccl_ns=0), replace(rank_of(1, 0, 0, mpi), nccl_ns=0))
    text = "\n\n".join(sections(found, replace(waits, not_split={"this": 2, "that": 1_000})))
    [row] = (line.split() for line in text.splitlines() if line.startswith("rank 1 "))
    assert row == ["rank", "1", "9.00", "ms", "2.00", "ms", "6.00", "ms", "1.00", "ms", "3", "4.00", "ms"]
    assert "NCCL time of each rank" not in text
    assert "\nMPI time of each rank in collectives and messages:\n" in text
    assert "MPI time  wait time  transfer  unclassified  last arrival  wait caused\n" in text
    assert "\n1,002 of 1,642 calls may wait or transfer data, 1,000 because that, 2 because this" in text
    assert "clock error" not in text
    nothing = "\n\n".join(sections(found, replace(waits, split=0, not_split={"this": 1})))
    assert "MPI time of each rank" not in nothing
    assert "\n1 of 1 call may wait or transfer data, because this" in nothing
    waits = replace(waits_of(rank_of(0, 0), rank_of(1, 0, 0, mpi)), below_uncertainty=60)
    text = "\n\n".join(sections(found, waits))
    assert "\nNCCL time of each rank" in text and "\nMPI time of each rank" in text
    assert "\nwait within clock error in 60 of 700 kernels and calls, counted as transfer" in text
    assert "may wait or transfer" not in text


def test_reasons_add_up_to_what_the_others_waited(found: JobSummary) -> None:
    """Ten rows of all reasons, and the rest of each: 79 us of rank 0, 41 ms and 1 ms of rank 1."""
    host = [cost_of(0, LAUNCH, (n + 1) * MS, f"range {n}", "cudaFree" if n == 10 else "") for n in range(12)]
    host.append(cost_of(0, LAUNCH, 5 * MS, "range 10"))
    gpu = [cost_of(1, DEVICE, 41 * MS, "forward", operation="gemm"), cost_of(1, DEVICE, 1000, operation="gemm")]
    culprits = [culprit_of(1, DEVICE, 41 * MS, "forward", origin=0), culprit_of(0, LAUNCH, 83 * MS, "range 11")]
    waits = waits_of(
        rank_of(0, 84 * MS), rank_of(1, 42 * MS), culprits=culprits, costs=[*host, *gpu, cost_of(1, "unknown", MS)]
    )
    [text] = (part for part in sections(found, waits) if part.startswith("Why ranks arrived late"))
    rows = [
        *("NVTX range main call inherited from count wait caused", "host-bound late launch: 83.0 ms"),
        *("rank 0 range 10 cudaFree - - 16.0 ms", "rank 0 range 11 (code outside calls) - 1 12.0 ms"),
        *(f"rank 0 range {n} (code outside calls) - - {n + 1:.1f}{'' if n == 9 else '0'} ms" for n in range(9, 2, -1)),
        "and 3 more: 6.00 ms (the JSON has all)",
        *("late predecessor on the stream: 41.0 ms", "rank 1 forward gemm rank 0 1 41.0 ms"),
        *("and 1 more: 1.00 us (the JSON has all)", "unknown: 1.00 ms"),
    ]
    _, shown = text.split(":\n", 1)
    assert [" ".join(line.split()) for line in shown.splitlines()] == rows
    [text] = (part for part in sections(found, waits) if part.startswith("NCCL time of each rank"))
    assert [line[7:16] for line in text.splitlines()[-2:]] == ["range 10 ", "gemm     "]


def test_bandwidth_of_equal_sizes_in_several_communicators(found: JobSummary) -> None:
    rates = [
        Bandwidth(
            function="AllReduce",
            communicator=name,
            ranks=4,
            bytes=10 * MS,
            count=3,
            ns=3 * MS,
            algorithm_bytes_per_s=10 * S,
            bus_bytes_per_s=15 * S,
        )
        for name in ("a", "b")
    ]
    other = Bandwidth(
        function="AllGather",
        communicator="a",
        ranks=2,
        bytes=MS,
        count=1,
        ns=MS,
        algorithm_bytes_per_s=2 * S,
        bus_bytes_per_s=S,
    )
    text = next(part for part in sections(found, replace(NO_WAITS, bandwidth=[*rates, other])) if "algbw" in part)
    assert [line.split() for line in text.splitlines()[-2:]] == [
        ["AllReduce", "4", "10.0", "MB", "6", "1.00", "ms", "10.0", "GB/s", "15.0", "GB/s"],
        ["AllGather", "2", "1.00", "MB", "1", "1.00", "ms", "2.00", "GB/s", "1.00", "GB/s"],
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider(found: JobSummary, width: int) -> None:
    long = "a rather long name " * 9
    costs = [cost_of(n, reason, 7 * S, long, long, long) for n, reason in enumerate((LAUNCH, DEVICE))]
    culprits = [culprit_of(n, reason, 7 * S, long, 2) for n, reason in enumerate((LAUNCH, DEVICE))]
    ranks = [rank_of(n, 999 * S, 123) for n in range(12)]
    text = format_summary(replace(found, waits=waits_of(*ranks, culprits=culprits, costs=costs)), width, details=True)
    assert max(map(len, text.splitlines())) <= width


# ---- planted causes --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_rank_whose_host_is_late(tmp_path: Path) -> None:
    """Rank 1 launches each of its four kernels 2 ms after rank 0; both kernels end together."""
    reports = []
    for rank in range(2):
        environment = f"RANK={rank} WORLD_SIZE=2"
        init = {COMMUNICATOR: 5, RANKS: 2, RANK: rank, "CUDA device": 0}
        calls, kernels = [Call(1, 2, "ncclCommInitRank", init)], []
        for step in range(4):
            launch = 10 * MS * (step + 1) + 2 * MS * rank
            end = 10 * MS * (step + 1) + 3 * MS
            payload = {COMMUNICATOR: 5, SIZE: 4 * MS, OPERATION: "Sum"}
            calls.append(Call(launch - 50, launch + 50, "ncclAllReduce", payload))
            kernels.append(Kernel(launch + 1_000, end, "ncclDevKernel_AllReduce_Sum", launch))
        reports.append(write_nccl_report(tmp_path / f"{rank}.sqlite", calls, kernels, environment=environment))
    found = summarize_reports(reports)
    assert found.waits is not None
    waited, late = found.waits.ranks
    assert (waited.wait_ns, waited.exposed_wait_ns, waited.last, waited.caused_wait_ns) == (8 * MS, 8 * MS, 0, 0)
    assert (late.wait_ns, late.last, late.caused_wait_ns, late.reason) == (0, 4, 8 * MS, LAUNCH)
    [bandwidth] = found.waits.bandwidth
    assert (bandwidth.count, bandwidth.ns, bandwidth.bytes) == (4, 4 * (MS - 1_000), 4 * MS)
    assert bandwidth.algorithm_bytes_per_s == bandwidth.bus_bytes_per_s == round(4 * MS / (MS - 1_000) * 1e9)
    text = " ".join(format_summary(found, 80).split())
    assert "STRAGGLER rank 1, minor: last in 4 of 4 collectives, cost the other ranks 8.00 ms in total" in text
    low, high = 11 * MS + 1_000 - 1, 12 * MS + MS // 2 - 1  # from the first event, at 1 ns
    part = summarize_reports(reports, Selection(window=(low, high))).waits
    assert part is not None
    assert [(rank.wait_ns, rank.transfer_ns, rank.caused_wait_ns) for rank in part.ranks] == [
        (MS, MS // 2 - 1_000, 0),
        (0, MS // 2 - 1_000, MS),
    ]
    assert part.bandwidth == [], "no operation is in the window as a whole"


# ---- the slowest -----------------------------------------------------------------------------------------------------


def range_of(rank: int, total: int, waiting: int = 0, gpu: int = 0, unsplit: int = 0) -> RangeOfTask:
    return RangeOfTask(
        rank=rank,
        task=f"rank {rank}",
        count=1,
        total_ns=total,
        min_ns=total,
        max_ns=total,
        waiting_ns=waiting,
        gpu_waiting_ns=max(gpu, waiting),
        unsplit_ns=unsplit,
    )


@pytest.mark.parametrize(
    ("tasks", "caused", "slowest"),
    [
        ([range_of(0, 9), range_of(1, 8)], {}, "rank 0"),
        ([range_of(0, 9, waiting=3), range_of(1, 8)], {}, "rank 1"),
        ([range_of(0, 9, gpu=3), range_of(1, 8)], {}, None),
        ([range_of(0, 9, gpu=3), range_of(1, 8)], {"rank 1": 5, "rank 0": 4}, "rank 1"),
        ([range_of(0, 9, gpu=3), range_of(1, 8)], {"rank 1": 5, "rank 2": 6}, None),
        ([range_of(0, 9, unsplit=2), range_of(1, 8)], {}, None),
        ([range_of(0, 9, unsplit=1), range_of(1, 8)], {}, "rank 0"),
        ([range_of(0, 9), range_of(1, 8, unsplit=8)], {}, "rank 0"),
    ],
)
def test_the_slowest_task(tasks: list[RangeOfTask], caused: dict[str, int], slowest: str | None) -> None:
    assert choose_slowest(tasks, caused) == slowest


@settings(deadline=None, max_examples=examples(50))
@given(
    intervals=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(0, 20)), max_size=12),
    asked=st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 60), st.integers(0, 30)), min_size=1, max_size=8),
)
def test_covered_time_against_a_set_of_ns(
    intervals: list[tuple[int, int, int]], asked: list[tuple[int, int, int]]
) -> None:
    covered = {(row, t) for row, begin, length in intervals for t in range(begin, begin + length)}
    row, begin, length = np.array(intervals, np.int64).reshape(-1, 3).T
    time = CoveredTime((row, begin, begin + length))
    row, low, length = np.array(asked, np.int64).reshape(-1, 3).T
    expected = [sum((r, t) in covered for t in range(b, b + n)) for r, b, n in asked]
    assert time.measure(row, low, low + length).tolist() == expected
    index, begin, end = time.intersect(row, low, low + length)
    pieces = np.zeros(row.size, np.int64)
    np.add.at(pieces, index, end - begin)
    assert pieces.tolist() == expected


# ---- files -----------------------------------------------------------------------------------------------------------


def test_a_summary_of_a_version_without_waits_is_loaded(found: JobSummary, tmp_path: Path) -> None:
    fields = json.loads(json.dumps(found.to_dict()))
    del fields["waits"]
    for repeated in fields["ranges"]:
        del repeated["slowest_task"]
        for task in repeated["tasks"]:
            del task["waiting_ns"], task["gpu_waiting_ns"], task["unsplit_ns"]
    (tmp_path / "old.json").write_text(json.dumps(fields))
    old = JobSummary.load(tmp_path / "old.json")
    assert old.waits is None and format_summary(old, details=True)


def test_waits_are_saved_and_loaded(found: JobSummary, tmp_path: Path) -> None:
    rank = replace(rank_of(0, S, 3, NO_MPI), longest_wait=LongestWait(ns=1, from_ns=2, to_ns=3))
    culprits, costs = [culprit_of(0, LAUNCH, S, "step", 1)], [cost_of(0, LAUNCH, S, "step")]
    waits = waits_of(rank, rank_of(1, 0), culprits=culprits, costs=costs)
    waits = replace(
        waits,
        not_split={"that": 1},
        bandwidth=[
            Bandwidth(
                function="AllReduce",
                communicator="a",
                ranks=4,
                bytes=MS,
                count=3,
                ns=MS,
                algorithm_bytes_per_s=10,
                bus_bytes_per_s=15,
            )
        ],
    )
    replace(found, waits=waits).save(tmp_path / "new.json")
    assert JobSummary.load(tmp_path / "new.json").waits == waits
    (tmp_path / "bad.json").write_text((tmp_path / "new.json").read_text().replace('"that": 1', '"that": "1"'))
    with pytest.raises(Exception, match="not a summary"):
        JobSummary.load(tmp_path / "bad.json")
