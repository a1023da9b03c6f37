"""Which class a job is in: by what changes save, else by what is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nsys2prv_ng.replay.numbers import Scenario
from nsys2prv_ng.summary.numbers.efficiency import Losses
from nsys2prv_ng.summary.numbers.job import Cause, GpuNumbers, JobSummary, NcclNumbers
from nsys2prv_ng.summary.numbers.waits import MpiWaits
from nsys2prv_ng.summary.text import format_summary
from nsys2prv_ng.summary.verdicts.judge import Case, classify, find_rank
from tests.summary.made_summary import STEPS, make_losses, make_rank, make_summary, make_waits
from tests.summary.verdicts.test_what_if import find, try_change

MS = 10**6
MIXED = make_losses(compute=40, waiting=20, moving=20, host=20)
"""Nothing is most of the time."""


def name_class(summary: JobSummary) -> str:
    bottleneck = classify(Case(summary))
    return "" if bottleneck is None else bottleneck.title


def add_gaps(summary: JobSummary, gaps: int, **calls: int) -> JobSummary:
    """Add a GPU whose host was late in some calls, for as many ms."""
    causes = [Cause(cause="host", range="step", call=call, ns=ms * MS, gaps=gaps) for call, ms in calls.items()]
    numbers = dict.fromkeys(
        ("span_ns", "busy_ns", "compute_ns", "communication_ns", "overlap_ns", "memory_ns", "idle_ns", "gaps"), 0
    )
    gpu = GpuNumbers(
        node="n",
        gpu=0,
        name="",
        ranks=[0],
        tasks=["rank 0"],
        longest_gap_ns=0,
        longest_gap_at_ns=None,
        idle_causes=causes,
        peak_memory_bytes=None,
        peak_memory_at_ns=None,
        **numbers,
    )
    return replace(summary, gpus=[gpu])


@pytest.mark.parametrize(
    ("scenarios", "title"),
    [
        ([try_change("host = ideal", 40 * MS), try_change("network = ideal", 30 * MS)], "Host-bound"),
        ([try_change("host = ideal", 30 * MS), try_change("network = ideal", 40 * MS)], "Exposed communication"),
        ([try_change("copies = 0", 40 * MS), try_change("network = ideal", 30 * MS)], "Copies"),
        ([try_change("waits = 0", 40 * MS)], "Imbalance: ranks wait for each other"),
        ([try_change("host = ideal", 40 * MS), try_change("rank 1 = median", 20 * MS)], "Wait for a straggler"),
        ([try_change("host = ideal", 40 * MS), try_change("rank 1 = median", 19 * MS)], "Host-bound"),
        # What steps vary by, and what no step depends on, decides nothing.
        ([try_change("host = ideal", 40 * MS, measurable=False)], "Nothing to gain from a single change"),
        ([try_change("host = ideal", 40 * MS, connected=False)], "Nothing to gain from a single change"),
        ([try_change("host = ideal", 4 * MS)], "Nothing to gain from a single change"),
        ([], "Nothing to gain from a single change"),
    ],
)
def test_the_largest_gain_decides(scenarios: list[Scenario], title: str) -> None:
    summary = make_summary(MIXED, waits=make_waits([make_rank(rank, 0, 10 * MS) for rank in range(2)], [], []))
    assert name_class(replace(summary, what_if=find(*scenarios))) == title


@pytest.mark.parametrize(
    ("losses", "title"),
    [
        (make_losses(compute=40, host=30, moving=20), "Host-bound"),
        (make_losses(compute=40, host=20, moving=30), "Exposed communication"),
        (make_losses(compute=40, host=20, waiting=30), "Imbalance: ranks wait for each other"),
        (make_losses(compute=40, memory=40), "Copies"),
        (make_losses(compute=40, unknown=60), "GPU gaps that the report does not explain"),
        (make_losses(compute=40, graph=60), "Operations start late, though they were launched in time"),
        (make_losses(compute=40, not_split=30, host=29), "Exposed communication, transfer or wait unknown"),
        (make_losses(compute=10, whole_graph=60, host=30), "Opaque CUDA graphs"),
        (make_losses(compute=80, host=20), "Compute-bound"),
        (make_losses(compute=80, host=20, by_class={"not selected": 50, "GEMM FP32": 30}), "Compute-bound, in FP32"),
        # Where a capture begins and ends says nothing of the program.
        (make_losses(compute=10, before_first=60, moving=30), "Exposed communication"),
        (make_losses(compute=40, before_first=60), "Nothing to gain from a single change"),
    ],
)
def test_without_a_replay_the_largest_loss_decides(losses: Losses, title: str) -> None:
    waits = make_waits([make_rank(rank, 0, 10 * MS) for rank in range(2)], [], [])
    assert name_class(make_summary(losses, waits=waits)).startswith(title)


@pytest.mark.parametrize(
    ("gaps", "calls", "title"),
    [
        (1, {"cudaMalloc": 3, "cudaFree": 3, "": 5}, "Host-bound, in calls that allocate"),
        (1, {"cudaMalloc": 2, "cudaFree": 3, "": 6}, "Host-bound"),
        (1, {"cudaStreamSynchronize": 6, "": 5}, "Host-bound, in calls that synchronise"),
        (1000, {"cudaLaunchKernel": 10}, "Launch-bound"),  # 10 us each
        (400, {"cudaLaunchKernel": 10}, "Host-bound"),  # 25 us
    ],
)
def test_kinds_of_host_bound(gaps: int, calls: dict[str, int], title: str) -> None:
    summary = add_gaps(make_summary(make_losses(compute=40, host=60)), gaps, **calls)
    assert name_class(summary) == title


def test_one_range_that_is_most_of_the_gain_is_not_launch_bound() -> None:
    summary = add_gaps(make_summary(MIXED), 1000, cudaLaunchKernel=10)
    changes = [try_change("host = ideal", 40 * MS), try_change("range 'load' = 0", 21 * MS)]
    assert name_class(replace(summary, what_if=find(*changes))) == "Host-bound"
    changes[1] = try_change("range 'load' = 0", 19 * MS)
    assert name_class(replace(summary, what_if=find(*changes))) == "Launch-bound"


@pytest.mark.parametrize(("in_messages", "title"), [(6, "Pipeline bubble"), (5, "Wait for a straggler")])
def test_waits_in_messages_are_a_bubble(in_messages: int, title: str) -> None:
    rank = replace(make_rank(0, 0, 10 * MS), caused_in_messages_ns=in_messages * MS)
    summary = make_summary(MIXED, waits=make_waits([rank, make_rank(1, 10 * MS, 0)], [], []))
    assert name_class(replace(summary, what_if=find(try_change("waits = 0", 40 * MS)))) == title


@pytest.mark.parametrize(
    ("longest_ms", "count", "title"),
    [(101, 5, "Start-up only"), (99, 5, "Host-bound"), (101, 3, "Host-bound")],
)
def test_a_step_that_takes_as_long_as_many_others(longest_ms: int, count: int, title: str) -> None:
    steps = replace(STEPS, max_ns=longest_ms * MS, count=count)  # the median is 20 ms
    summary = make_summary(make_losses(compute=40, host=60))
    assert name_class(replace(summary, steps=steps)) == title


def test_messages_of_mpi_have_their_own_hint() -> None:
    summary = replace(make_summary(MIXED), what_if=find(try_change("network = ideal", 40 * MS)))
    nccl = NcclNumbers(function="AllReduce", calls=1, bytes=None, kernels=1, kernel_ns=1, carried_bytes=0, carried_ns=0)
    with_nccl, without = classify(Case(replace(summary, nccl=[nccl]))), classify(Case(summary))
    assert with_nccl is not None and with_nccl.preset == "analysis/exposed_communication"
    assert without is not None and without.preset == "analysis/exposed_communication"  # nothing shows MPI either


def test_without_gpus_and_messages_there_is_no_class() -> None:
    assert name_class(make_summary(None)) == ""
    assert name_class(replace(make_summary(None), efficiency=None)) == ""


@pytest.mark.parametrize(("slowest", "title"), [(2, "Start-up only"), (4, "Host-bound")])
def test_a_long_step_in_the_middle_is_no_start_up(slowest: int, title: str) -> None:
    """Of eight steps from 1 on, the first two are the first quarter."""
    steps = replace(STEPS, max_ns=101 * MS, count=8, last=8, slowest=slowest)
    assert name_class(replace(make_summary(make_losses(compute=40, host=60)), steps=steps)) == title


@pytest.mark.parametrize(("wait", "transfer", "title"), [(2, 3, "Exposed"), (3, 2, "Wait for a straggler")])
def test_savings_that_are_close_leave_it_to_the_times(wait: int, transfer: int, title: str) -> None:
    """Without waits, data move earlier, and the other way round: both save nearly the same."""
    ranks = [replace(make_rank(0, wait * MS, 0), transfer_ns=transfer * MS), make_rank(1, 0, wait * MS)]
    summary = make_summary(MIXED, waits=make_waits(ranks, [], []))
    for waits, network in ((40, 33), (33, 40)):
        changes = try_change("waits = 0", waits * MS), try_change("network = ideal", network * MS)
        assert name_class(replace(summary, what_if=find(*changes))).startswith(title)
    changes = try_change("waits = 0", 40 * MS), try_change("network = ideal", 31 * MS)
    assert name_class(replace(summary, what_if=find(*changes))) == "Wait for a straggler"


@pytest.mark.parametrize(("noise", "title"), [(4, "Nothing to gain from a single change"), (5, "Host-bound")])
def test_steps_that_vary_too_much_for_a_saving_leave_it_to_the_losses(noise: int, title: str) -> None:
    hidden = try_change("host = ideal", 40 * MS, measurable=False)
    numbers = replace(find(hidden), noise_ns=noise * MS)  # of steps of 100 ms
    assert name_class(replace(make_summary(make_losses(compute=40, host=60)), what_if=numbers)) == title


@pytest.mark.parametrize(("unsplit", "title"), [(6, "Exposed communication, transfer or wait unknown"), (5, "Host")])
def test_mpi_calls_without_a_partner_are_not_the_hosts_fault(unsplit: int, title: str) -> None:
    mpi = MpiWaits(
        mpi_ns=10 * MS,
        wait_ns=0,
        transfer_ns=(10 - unsplit) * MS,
        unsplit_ns=unsplit * MS,
        collectives=1,
        last=0,
        caused_wait_ns=0,
        caused_in_messages_ns=0,
    )
    waits = make_waits([replace(make_rank(0, 0, 0), mpi=mpi)], [], [])
    summary = add_gaps(make_summary(make_losses(compute=40, host=60), waits=waits), 1, MPI_Allreduce=6)
    assert name_class(summary).startswith(title)


@pytest.mark.parametrize(
    "change", ["rank ", "rank x = median", "rank 99999999999999 = median", "rank \x1b[31m2 = median"]
)
def test_changes_in_damaged_summaries_name_no_rank(change: str) -> None:
    assert find_rank(try_change(change, MS)) is None
    summary = replace(make_summary(MIXED), what_if=find(try_change(change, 40 * MS)))
    assert "\x1b" not in format_summary(summary, 100)
