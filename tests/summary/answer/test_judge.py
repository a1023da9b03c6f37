"""Which class a job is in: by what changes save, else by what is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nsys2prv_ng.replay.numbers import Limit, Scenario
from nsys2prv_ng.summary.answer import busy_bottlenecks as busy
from nsys2prv_ng.summary.answer import idle_bottlenecks as idle
from nsys2prv_ng.summary.answer.answer import answer
from nsys2prv_ng.summary.answer.bottleneck import Bottleneck
from nsys2prv_ng.summary.answer.case import Case, find_rank
from nsys2prv_ng.summary.answer.gains import list_gains
from nsys2prv_ng.summary.answer.judge import choose_variant, classify
from nsys2prv_ng.summary.answer.where_on_hosts import find_queued
from nsys2prv_ng.summary.efficiency.numbers import Losses
from nsys2prv_ng.summary.gpus.numbers import Cause, GpuNumbers
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.kernels.numbers import KernelNumbers
from nsys2prv_ng.summary.memory.numbers import MemoryKindNumbers, MemoryOperationNumbers
from nsys2prv_ng.summary.ranges.numbers import RangeNode
from nsys2prv_ng.summary.text import format_summary
from nsys2prv_ng.summary.waits.numbers import Bandwidth, MpiNumbers, MpiWaits, NcclNumbers
from nsys2prv_ng.summary.waits.words import DEVICE, LAUNCH
from tests.replay.test_words import find, try_change
from tests.summary import made_summary
from tests.summary.made_summary import STEPS_NS, make_losses, make_rank, make_waits, set_steps
from tests.summary.made_waits import cost_of


def make_summary(*arguments: Any, **options: Any) -> JobSummary:
    """Return a summary whose numbers cover its steps, if it has any."""
    job = made_summary.make_summary(*arguments, **options)
    return replace(job, windows_ns=[STEPS_NS]) if job.steps is not None else job


MS = 10**6
MIXED = make_losses(compute=40, waiting=19, moving=22, host=19)
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
        # No bound is known to save anything, but what somebody can change does: the largest loss decides.
        ([try_change("class 'NCCL' * 0.5", 5 * MS)], "Exposed communication"),
        ([try_change("class 'NCCL' * 0.5", 4 * MS)], "Nothing to gain from a single change"),
        ([try_change("class 'NCCL' * 0.5", 5 * MS, measurable=False)], "Nothing to gain from a single change"),
    ],
)
def test_the_largest_gain_decides(scenarios: list[Scenario], title: str) -> None:
    summary = make_summary(MIXED, waits=make_waits([make_rank(rank, 0, 10 * MS) for rank in range(2)], [], []))
    assert name_class(replace(summary, what_if=find(*scenarios))) == title


@pytest.mark.parametrize(
    ("limit", "saving", "title"),
    [
        (Limit(what="host", rank=1, share=0.51), 5, "Host-bound"),
        (Limit(what="host", rank=1, share=0.50), 5, "Compute-bound"),
        (Limit(what="host", rank=1, share=0.51), 4, "Compute-bound"),
        (Limit(what="GPU", rank=1, share=0.51), 5, "Compute-bound"),
        (None, 5, "Compute-bound"),
    ],
)
def test_busy_gpus_that_a_host_paces_are_not_compute_bound(limit: Limit | None, saving: int, title: str) -> None:
    """Faster kernels would save nothing there: the host is as slow as before."""
    summary = make_summary(make_losses(compute=85, host=15))
    changes = find(try_change("host = ideal", saving * MS), limited_by=limit)
    assert name_class(replace(summary, what_if=changes)) == title


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
        (1000, {"cudaLaunchKernel": 10}, "Launch-bound"),  # 10 us each
        (400, {"cudaLaunchKernel": 10}, "Host-bound"),  # 25 us
    ],
)
def test_kinds_of_host_bound(gaps: int, calls: dict[str, int], title: str) -> None:
    summary = add_gaps(make_summary(make_losses(compute=40, host=60)), gaps, **calls)
    assert name_class(summary) == title


@pytest.mark.parametrize(
    ("waits", "title"),
    [
        ({"host function a": 6, "host function b": 5}, "Streams wait for host functions"),
        ({"host function a": 6, "host function b": 4, "": 30}, "Host-bound"),
        ({"cudaStreamWaitEvent": 11}, "Host-bound"),
    ],
)
@pytest.mark.parametrize("cause", ["queued", "graph"])
def test_host_functions_may_be_most_of_what_a_host_costs(cause: str, waits: dict[str, int], title: str) -> None:
    summary = add_gaps(make_summary(make_losses(compute=40, host=60)), 1, compute=10)
    causes = [Cause(cause=cause, range="", call=call, ns=ms * MS, gaps=1) for call, ms in waits.items()]
    summary = replace(summary, gpus=[replace(summary.gpus[0], idle_causes=[*summary.gpus[0].idle_causes, *causes])])  # type: ignore[misc]
    case = Case(summary)
    assert name_class(summary) == title
    named = {name: ns * MS for name, ns in waits.items() if name}
    places, text = find_queued(case)
    assert {place.name: place.ns for place in places} == named
    assert text.endswith(" of the step")


def test_one_range_that_is_most_of_the_gain_is_not_launch_bound() -> None:
    summary = add_gaps(make_summary(MIXED), 1000, cudaLaunchKernel=10)
    changes = [try_change("host = ideal", 40 * MS), try_change("range 'load' = 0", 21 * MS)]
    assert name_class(replace(summary, what_if=find(*changes))) == "Host-bound"
    changes[1] = try_change("range 'load' = 0", 19 * MS)
    assert name_class(replace(summary, what_if=find(*changes))) == "Launch-bound"
    changes[1] = try_change("call 'cudaLaunchKernelExC' = 0", 39 * MS)
    assert name_class(replace(summary, what_if=find(*changes))) == "Launch-bound"


@pytest.mark.parametrize(("limit", "listed"), [("host", []), ("GPU", ["range 'backward' * 0.5"])])
def test_faster_kernels_are_no_cure_for_a_slow_host(limit: str, listed: list[str]) -> None:
    """A range that takes half as long has faster kernels too."""
    summary = make_summary(make_losses(compute=90, host=10))
    numbers = find(try_change("host = ideal", 10 * MS), try_change("range 'backward' * 0.5", 20 * MS))
    paced = replace(numbers, limited_by=Limit(what=limit, rank=None, share=0.9))
    case = Case(replace(summary, what_if=paced))
    bottleneck = classify(case)
    assert bottleneck is not None
    gains = [gain.change for gain in list_gains(case, bottleneck)]
    assert [change for change in gains if change.startswith("range")] == listed


@pytest.mark.parametrize(("in_messages", "title"), [(6, "Pipeline bubble"), (5, "Wait for a straggler")])
def test_waits_in_messages_are_a_bubble(in_messages: int, title: str) -> None:
    rank = replace(make_rank(0, 0, 10 * MS), caused_in_messages_ns=in_messages * MS)
    summary = make_summary(MIXED, waits=make_waits([rank, make_rank(1, 10 * MS, 0)], [], []))
    assert name_class(replace(summary, what_if=find(try_change("waits = 0", 40 * MS)))) == title


@pytest.mark.parametrize(
    ("times", "title"),
    [
        ([20, 101, 20, 20, 20, 20, 20, 20], "Start-up only"),  # of eight steps, the first two are the first quarter
        ([20, 20, 20, 101, 20, 20, 20, 20], "Slow steps"),
        ([20, 99, 20, 20, 20, 20, 20, 20], "Slow steps"),  # not five times the median
        ([20, 101, 20], "Host-bound"),  # too few to tell which are usual
        ([20, 60, 20, 60, 20, 20], "Slow steps"),
        ([20, 60, 20, 60, 20, 60], "Host-bound"),  # half of them are slow: none is usual
        ([20, 39, 20, 20, 20, 20], "Host-bound"),  # not twice the median
        ([20, 55, 20, 20, 20, 20], "Host-bound"),  # costs 35 of 155
    ],
)
def test_steps_that_take_as_long_as_many_others(times: list[int], title: str) -> None:
    assert name_class(set_steps(make_summary(make_losses(compute=40, host=60)), times)) == title


@pytest.mark.parametrize(
    ("classes", "hint"),
    [
        ({"GEMM FP32": 41, "Elementwise": 40}, busy.COMPUTE_FP32),
        ({"GEMM BF16": 41, "Elementwise": 30, "Optimizer": 12}, busy.COMPUTE_FUSIBLE),
        ({"GEMM BF16": 43, "Elementwise": 30, "Optimizer": 10}, busy.COMPUTE_16),
        ({"Attention": 43, "GEMM FP16": 41}, busy.COMPUTE_ATTENTION),
        ({"Attention": 84}, busy.COMPUTE_ATTENTION),
        ({"Opaque CUDA graph": 50, "Elementwise": 34}, busy.COMPUTE_OPAQUE),
    ],
)
def test_hints_for_kernels_follow_their_classes(classes: dict[str, int], hint: Bottleneck) -> None:
    summary = make_summary(make_losses(compute=85, by_class=classes))
    assert classify(Case(summary)) == hint
    lengths = {"total_ns": 1, "min_ns": 1, "max_ns": 1}
    kernel = KernelNumbers(name="triton_poi_fused_add_0", kernel_class="Elementwise", count=1, **lengths)
    compiled = classify(Case(replace(summary, kernels=[kernel])))
    assert compiled == (busy.COMPUTE_16 if hint == busy.COMPUTE_FUSIBLE else hint)


@pytest.mark.parametrize(
    ("copies", "hint"),
    [
        ({("Memcpy host to device", "Pageable"): 5, ("Memcpy device to host", "Pinned"): 4}, busy.COPIES),
        ({("Memcpy host to device", "Pageable"): 4, ("Memcpy device to host", "Pinned"): 5}, busy.COPIES_PINNED),
        ({("Memcpy host to device", "Pinned"): 4, ("Memcpy device to host", "Pinned"): 3}, busy.COPIES_PINNED),
        # Copies between GPUs are communication.
        ({("Memcpy host to device", "Pinned"): 3, ("Memcpy peer to peer", "Device"): 4}, busy.COPIES_PINNED),
        ({("Memcpy device to device", "Device"): 4, ("Memset", ""): 1}, busy.COPIES_INSIDE),
        ({("Migration host to device", ""): 4, ("Memcpy host to device", "Pinned"): 3}, busy.COPIES_INSIDE),
        # None of three is most of it.
        (
            {
                ("Memcpy host to device", "Pinned"): 4,
                ("Memcpy host to device", "Pageable"): 4,
                ("Memcpy device to device", "Device"): 4,
            },
            busy.COPIES,
        ),
        ({}, busy.COPIES),
    ],
)
def test_hints_for_copies_follow_their_memory(copies: dict[tuple[str, str], int], hint: Bottleneck) -> None:
    numbers = []
    for (operation, memory), ns in copies.items():
        sums = {"count": 1, "bytes": 1, "total_ns": ns, "rated_ns": ns}
        part = MemoryKindNumbers(source=memory, destination="", **sums)
        numbers.append(MemoryOperationNumbers(operation=operation, by_memory=[part], **sums))
    case = Case(replace(make_summary(MIXED), memory_operations=numbers))
    assert choose_variant(case, busy.COPIES) == hint


@pytest.mark.parametrize(
    ("migrations", "copies", "hint"),
    [(9, 0, idle.UNEXPLAINED_MIGRATIONS), (8, 9, idle.UNEXPLAINED), (0, 0, idle.UNEXPLAINED)],
)
def test_hints_for_unexplained_gaps_follow_the_migrations(migrations: int, copies: int, hint: Bottleneck) -> None:
    """No call launches a migration, so that at least as many gaps as migrations may end with one."""
    sums = {"bytes": 1, "total_ns": 1, "rated_ns": 1}
    counts = {"Migration host to device": migrations, "Memcpy host to device": copies}
    numbers = [
        MemoryOperationNumbers(operation=name, by_memory=[], count=count, **sums) for name, count in counts.items()
    ]
    summary = add_gaps(make_summary(make_losses(compute=40, unknown=60)), 100, cudaLaunchKernel=1)
    unknown = Cause(cause="unknown", range="", call="", ns=60 * MS, gaps=9)
    gpus = [replace(gpu, idle_causes=[*(gpu.idle_causes or []), unknown]) for gpu in summary.gpus]
    assert classify(Case(replace(summary, gpus=gpus, memory_operations=numbers))) == hint


@pytest.mark.parametrize(("saving", "hint"), [(15, busy.TRANSFER_CHAIN), (14, busy.TRANSFER_COPIES)])
def test_copies_that_cost_as_much_as_those_of_all_gpus_are_a_chain(saving: int, hint: Bottleneck) -> None:
    """Copies take a tenth of the time of each of two GPUs: of a step in which they run one after the other, a fifth."""
    losses = make_losses(2, compute=50, moving=10)
    sums = {"count": 1, "bytes": 1, "total_ns": losses.moving_ns, "rated_ns": 1}
    copies = MemoryOperationNumbers(operation="Memcpy peer to peer", by_memory=[], **sums)
    summary = replace(make_summary(losses), memory_operations=[copies])
    what_if = find(try_change("copies = 0", saving * MS), try_change("network = ideal", saving * MS))
    assert choose_variant(Case(replace(summary, what_if=what_if)), busy.TRANSFER) == hint


@pytest.mark.parametrize(
    ("operations", "kernels", "hint"),
    [
        ({"Memcpy peer to peer": 6, "Memcpy device to host": 90}, 5, busy.TRANSFER_COPIES),
        ({"Memcpy device to device, between GPUs": 6}, 5, busy.TRANSFER_COPIES),
        ({"Memcpy peer to peer": 4}, 5, busy.TRANSFER_OTHERS),
        # Copies within a GPU are no communication, and those of NCCL's copy engines are NCCL's.
        ({"Memcpy peer to peer, within a GPU": 9, "Memcpy device to device": 9}, 5, busy.TRANSFER_OTHERS),
        ({"Memcpy peer to peer, by NCCL": 9}, 0, busy.TRANSFER),
    ],
)
def test_hints_for_communication_without_nccl(operations: dict[str, int], kernels: int, hint: Bottleneck) -> None:
    sums = {"count": 1, "bytes": 1, "rated_ns": 1}
    copies = [MemoryOperationNumbers(operation=name, total_ns=ns, **sums) for name, ns in operations.items()]
    lengths = {"total_ns": kernels, "min_ns": kernels, "max_ns": kernels}
    kernel = KernelNumbers(name="cross_device_reduce_1stage", kernel_class="Communication other", count=1, **lengths)
    summary = replace(make_summary(MIXED), memory_operations=copies, kernels=[kernel])
    assert choose_variant(Case(summary), busy.TRANSFER) == hint
    unclassified = busy.UNCLASSIFIED_OTHERS if hint != busy.TRANSFER else busy.UNCLASSIFIED
    assert choose_variant(Case(summary), busy.UNCLASSIFIED) == unclassified


@pytest.mark.parametrize(
    ("calls", "copies", "hint"),
    [
        ({"MPI_Allreduce": 6, "MPI_Waitall": 5, "MPI_Init": 90}, 1, busy.TRANSFER_MPI_COLLECTIVES),
        ({"MPI_Allreduce": 5, "MPI_Waitall": 5}, 0, busy.TRANSFER_MPI),
        ({"MPI_Allreduce": 6, "MPI_Waitall": 4}, 1, busy.TRANSFER_MPI_STAGED),
    ],
)
def test_hints_for_mpi_follow_its_calls_and_copies(calls: dict[str, int], copies: int, hint: Bottleneck) -> None:
    mpi = [
        MpiNumbers(call=call, count=1, total_ns=ns, max_ns=ns, sent_bytes=None, received_bytes=None, rated_ns=0)
        for call, ns in calls.items()
    ]
    sums = {"count": 1, "bytes": 1, "total_ns": copies, "rated_ns": 1}
    operations = [MemoryOperationNumbers(operation="Memcpy device to host", by_memory=[], **sums)]
    summary = replace(make_summary(MIXED), mpi=mpi, memory_operations=operations)
    assert choose_variant(Case(summary), busy.TRANSFER) == hint


@pytest.mark.parametrize(
    ("times", "hint"),
    [
        ({"AllGather": 6, "ReduceScatter": 5}, busy.TRANSFER_GATHER),
        ({"AllGather": 5, "ReduceScatter": 5}, busy.TRANSFER),
        ({"AllReduce": 5, "Send": 3, "Recv": 3}, busy.TRANSFER_MESSAGES),
        ({"AllReduce": 5, "SendRecv": 4}, busy.TRANSFER),
    ],
)
def test_hints_for_transfer_follow_the_functions(times: dict[str, int], hint: Bottleneck) -> None:
    nccl = [
        NcclNumbers(function=name, calls=1, bytes=None, kernels=1, kernel_ns=ns, carried_bytes=0, carried_ns=0)
        for name, ns in times.items()
    ]
    assert choose_variant(Case(replace(make_summary(MIXED), nccl=nccl)), busy.TRANSFER) == hint


@pytest.mark.parametrize(
    ("times", "hint"),
    [
        ({8 << 20: 6, 1024: 5}, busy.TRANSFER_LARGE),
        ({8 << 20: 5, 1024: 5}, busy.TRANSFER),
        ({(8 << 20) - 1: 6}, busy.TRANSFER),
    ],
)
def test_large_messages_need_no_larger_buckets(times: dict[int, int], hint: Bottleneck) -> None:
    nccl = NcclNumbers(function="AllReduce", calls=1, bytes=1, kernels=1, kernel_ns=1, carried_bytes=1, carried_ns=1)
    rates = {"function": "ncclAllReduce", "communicator": "", "ranks": 2, "count": 1}
    speeds = {"algorithm_bytes_per_s": 1, "bus_bytes_per_s": 1}
    bandwidth = [Bandwidth(bytes=size, ns=ns, **rates, **speeds) for size, ns in times.items()]
    waits = replace(make_waits([make_rank(0, 0, 0)], [], []), bandwidth=bandwidth)
    summary = replace(make_summary(MIXED, waits=waits), nccl=[nccl])
    assert choose_variant(Case(summary), busy.TRANSFER) == hint


def test_messages_of_mpi_have_their_own_hint() -> None:
    summary = replace(make_summary(MIXED), what_if=find(try_change("network = ideal", 40 * MS)))
    nccl = NcclNumbers(function="AllReduce", calls=1, bytes=None, kernels=1, kernel_ns=1, carried_bytes=0, carried_ns=0)
    with_nccl, without = classify(Case(replace(summary, nccl=[nccl]))), classify(Case(summary))
    assert with_nccl is not None and with_nccl.preset == "analysis/exposed_communication"
    assert without is not None and without.preset == "analysis/exposed_communication"  # nothing shows MPI either


def test_without_gpus_and_messages_there_is_no_class() -> None:
    assert name_class(make_summary(None)) == ""
    assert name_class(replace(make_summary(None), efficiency=None)) == ""


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


def test_host_time_in_mpi_stands_apart() -> None:
    summary = add_gaps(make_summary(make_losses(compute=60, host=40)), 1, MPI_Waitall=20, MPI_Send=10, read=10)
    lines = [line.split() for line in format_summary(summary, 100).splitlines()]
    assert ["host", "in", "MPI", "30.0%", "mostly", "in", "`MPI_Waitall`"] in lines
    assert ["host-bound", "10.0%"] in lines  # the range of the steps is no place


@pytest.mark.parametrize(
    ("times", "exposed", "reason", "words"),
    [
        ((112, 100, 100), 30 * MS, DEVICE, "its GPU computes 22.4 ms a step, the others 20.0 ms"),
        ((112, 100), 24 * MS, DEVICE, "its GPU computes 22.4 ms a step, rank 1 20.0 ms"),
        ((112, 100), 25 * MS, DEVICE, ""),
        ((110, 100), 10 * MS, DEVICE, ""),
        ((112, 100), 24 * MS, LAUNCH, ""),
    ],
)
def test_a_straggler_that_computes_longer(times: tuple[int, ...], exposed: int, reason: str, words: str) -> None:
    """The excess must be more than a tenth, explain half of the exposed waits, and the host must not be late."""
    ranks = [
        make_rank(0, 0, 100 * MS),
        *(make_rank(n + 1, exposed // (len(times) - 1), 0) for n in range(len(times) - 1)),
    ]
    summary = add_gaps(make_summary(MIXED, waits=make_waits(ranks, [cost_of(0, reason, 100 * MS)], [])), 1, read=1)
    gpus = [
        replace(summary.gpus[0], compute_ns=ms * MS, ranks=[rank], tasks=[f"rank {rank}"])
        for rank, ms in enumerate(times)
    ]
    summary = replace(summary, gpus=gpus, windows_ns=[STEPS_NS], what_if=find(try_change("waits = 0", 40 * MS)))
    case = Case(summary)
    bottleneck = classify(case)
    assert bottleneck == (busy.STRAGGLER_COMPUTES if words else busy.STRAGGLER)
    _, where = bottleneck.places(case)
    assert (words in where) if words else ("computes" not in where)


@pytest.mark.parametrize(
    ("losses", "hint"),
    [
        (make_losses(compute=40, host=60), idle.LAUNCH),
        (make_losses(compute=60, host=40, by_class={"Elementwise": 51, "GEMM BF16": 49}), idle.LAUNCH_FUSIBLE),
        (make_losses(compute=60, host=40, by_class={"Elementwise": 50, "GEMM BF16": 50}), idle.LAUNCH),
        (make_losses(compute=49, host=51, by_class={"Elementwise": 51, "GEMM BF16": 49}), idle.LAUNCH),
    ],
)
def test_hints_for_launches_follow_what_launches(losses: Losses, hint: Bottleneck) -> None:
    """The step launches 30 operations on its GPU in each of five times."""
    numbers = {"count": 1, "host_ns": 1, "own_ns": 0, "unlisted_ns": 0, "least_ns": 0, "most_ns": 0, "gpu_ns": 1}
    tree = [RangeNode(name="step", depth=0, operations=5 * 30, **numbers)]
    summary = replace(add_gaps(make_summary(losses), 1000, cudaLaunchKernel=10), range_tree=tree, windows_ns=[STEPS_NS])
    case = Case(replace(summary, what_if=find(try_change("host = ideal", 40 * MS))))
    bottleneck = classify(case)
    assert bottleneck == hint
    _, where = bottleneck.places(case)
    assert "; spread over 30 launches a step, each for " in where


@pytest.mark.parametrize(
    ("change", "saving", "hint"),
    [
        ("copies = 0", 20, busy.COPIES),
        ("copies = 0", 19, None),
        ("network = ideal", 20, busy.TRANSFER),
        ("waits = 0", 20, None),
    ],
)
def test_another_bound_that_saves_half_as_much_has_a_hint(change: str, saving: int, hint: Bottleneck | None) -> None:
    summary = replace(
        make_summary(MIXED), what_if=find(try_change("host = ideal", 40 * MS), try_change(change, saving * MS))
    )
    [text] = [statement.text for statement in answer(summary).statements if statement.label == "TRY"]
    other = "" if hint is None else f"; against {hint.key.removeprefix('exposed ')}: {hint.hint.partition(';')[0]}"
    assert text == idle.HOST.hint + other
