"""Which calls of NCCL a kernel carries out: groups, several kernels of a launch, several processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.sources.nccl import calls as nccl_calls
from nsys2prv_ng.sources.nccl import kernels as nccl_kernels
from tests.examples import examples
from tests.sources.nccl import nccl_reports as reports
from tests.sources.nccl import nccl_truth as truth
from tests.sources.nccl.nccl_reports import COMMUNICATOR, OPERATION, PEER, SIZE, Call, Kernel
from tests.sources.small_reports import get_account, translate_reports

ALL_REDUCE, SEND_RECEIVE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclDevKernel_SendRecv"
ALL_GATHER, GENERIC = "ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_Generic_4"


def all_reduce(begin: int, size: int, communicator: int = 1, **thread: int) -> Call:
    payload = {COMMUNICATOR: communicator, SIZE: size, OPERATION: "Sum"}
    return Call(begin, begin + 4, "ncclAllReduce", payload, **thread)


def all_gather(begin: int, size: int) -> Call:
    return Call(begin, begin + 4, "ncclAllGather", {COMMUNICATOR: 1, SIZE: size})


def message(begin: int, name: str, peer: int, size: int) -> Call:
    return Call(begin, begin + 4, name, {COMMUNICATOR: 1, SIZE: size, PEER: peer})


def group(calls: Sequence[Call]) -> list[Call]:
    """The calls in a group, at 10, 20 and so on, whose ncclGroupEnd is from 500 to 600."""
    start, end = Call(1, 2, "ncclGroupStart"), Call(500, 600, "ncclGroupEnd")
    return [start, *calls, end]


def kernel(number: int, name: str, device: int = 0, stream: int = 7, launch: int | None = -1) -> Kernel:
    """The number-th kernel to be launched by ncclGroupEnd, if not `launch` is given."""
    begin = 1000 + 10 * number
    return Kernel(begin, begin + 5, name, 500 + number if launch == -1 else launch, device, stream)


def payloads(folder: Path, calls: Sequence[Call], kernels: Sequence[Kernel]) -> list[tuple[int, dict[int, object]]]:
    """(number of the kernel, types and values) of the kernels that have a payload, in the order of their begin.

    A type that is on the line more than once has the list of its values.
    """
    path = reports.write_nccl_report(folder / "report.sqlite", calls, kernels, environment="RANK=0")
    trace, summary = translate_reports([path], folder / "trace.prv", "kernels,nvtx,nccl")
    begins, ends = truth.collect_lines(trace, summary.start_utc_ns)
    in_trace = []
    for _, place, time, pairs in begins.elements():
        if place == "stream":
            values: dict[int, object] = {}
            for kind in {kind for kind, _ in pairs}:
                values_of_kind = [value for other, value in pairs if other == kind]
                values[kind] = values_of_kind[0] if len(values_of_kind) == 1 else values_of_kind
            in_trace.append(((time - reports.UTC - 1000) // 10, values))
    sized = {kind for _, values in in_trace for kind in values if kind in truth.SIZES}
    assert {kind for line in ends if line[1] == "stream" for kind, _ in line[3]} == sized
    return sorted(in_trace, key=lambda line: line[0])


def sums(in_trace: Sequence[tuple[int, dict[int, object]]], kind: int) -> list[object]:
    return [values.get(kind) for _, values in in_trace]


# ---- launches in reports ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_kernel_has_the_sums_of_its_calls_and_each_other_value_once(tmp_path: Path) -> None:
    calls = group(
        [
            message(10, "ncclSend", 5, 100),
            message(20, "ncclRecv", 5, 1),
            message(30, "ncclSend", 6, 200),
            message(40, "ncclRecv", 5, 2),
        ]
    )
    ((_, values),) = payloads(tmp_path, calls, [kernel(0, SEND_RECEIVE)])
    label = "communicator 1 (7 ranks)"
    peers = [f"rank {rank} of communicator 1, task unknown" for rank in (5, 6)]
    assert values == {
        truth.COMMUNICATOR: label,
        truth.SEND_PEER: peers,
        truth.SEND_BYTES: 300,
        truth.RECEIVE_PEER: peers[0],
        truth.RECEIVE_BYTES: 3,
        truth.SEQUENCE: 1,
        truth.CALLS: 4,
    }


@pytest.mark.slow
def test_groups_nest_and_their_outermost_end_launches(tmp_path: Path) -> None:
    calls = [
        Call(1, 2, "ncclGroupStart"),
        Call(3, 4, "ncclGroupStart"),
        all_reduce(10, 1),
        Call(15, 16, "ncclGroupEnd"),
        all_reduce(20, 2),
        Call(500, 600, "ncclGroupEnd"),
        all_reduce(610, 4),
        all_reduce(620, 8),
        Call(630, 640, "ncclGroupEnd"),  # its start was before the capture
    ]
    kernels = [kernel(0, ALL_REDUCE), kernel(1, ALL_REDUCE, launch=612), kernel(2, ALL_REDUCE, launch=621)]
    in_trace = payloads(tmp_path, calls, [*kernels, kernel(3, ALL_REDUCE, launch=635)])
    assert [number for number, _ in in_trace] == [0, 1, 2]
    assert sums(in_trace, truth.BYTES) == [3, 4, 8]
    assert sums(in_trace, truth.CALLS) == [2, 1, 1]
    assert sums(in_trace, truth.SEQUENCE) == [1, 3, 4]


@pytest.mark.slow
def test_threads_and_processes_have_groups_of_their_own(tmp_path: Path) -> None:
    """Calls at one time on other threads are in no group; correlation ids are a process's own."""
    path = tmp_path / "report.sqlite"
    other = {"process": 88, "thread": 88}
    calls = [*group([all_reduce(10, 1)]), all_reduce(10, 16, thread=78), all_reduce(500, 256, process=88, thread=88)]
    kernels = [
        kernel(0, ALL_REDUCE),
        Kernel(1010, 1015, ALL_REDUCE, 11, stream=8, thread=78),
        Kernel(1020, 1025, ALL_REDUCE, 501, **other),  # type: ignore[arg-type]
    ]
    reports.write_nccl_report(path, calls, kernels)
    reports.execute(path, "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET correlationId = 1 WHERE correlationId = 3")
    reports.execute(path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = 1 WHERE correlationId = 3")
    trace, summary = translate_reports([path], tmp_path / "trace.prv", "kernels,nccl")
    begins, _ = truth.collect_lines(trace, summary.start_utc_ns)
    in_trace = {time - reports.UTC: dict(pairs)[truth.BYTES] for _, place, time, pairs in begins if place == "stream"}
    assert in_trace == {1000: 1, 1010: 16, 1020: 256}


@pytest.mark.slow
def test_kernels_without_a_call_are_counted(tmp_path: Path) -> None:
    calls = [all_reduce(10, 1), Call(30, 40, "ncclCommCount")]
    kernels = [
        kernel(0, ALL_REDUCE, launch=12),
        kernel(1, ALL_REDUCE, launch=None),
        kernel(2, ALL_REDUCE, launch=20),
        kernel(3, ALL_REDUCE, launch=35),
        Kernel(2000, 1990, ALL_REDUCE, 12),
        Kernel(3000, 3010, "gemm", 13),
    ]
    path = reports.write_nccl_report(tmp_path / "report.sqlite", calls, kernels)
    _, summary = translate_reports([path], tmp_path / "trace.prv", "kernels,nccl")
    counted = get_account(summary, "nccl")
    assert (counted.read, counted.written) == (1 + 5, 1 + 1)
    assert counted.dropped == {
        "kernel: no call recorded with its correlation id": 1,
        "kernel launched outside of NCCL's calls, as by a CUDA graph: no call to take a payload from": 1,
        "kernel whose calls have no payload": 1,
        "kernel that was dropped": 1,
    }


# ---- several kernels of one launch -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_kernels_of_a_group_have_the_calls_of_their_functions(tmp_path: Path) -> None:
    calls = group([all_reduce(10, 1), message(20, "ncclSend", 0, 4), all_gather(30, 2), all_reduce(40, 16)])
    kernels = [kernel(0, SEND_RECEIVE, stream=1), kernel(1, ALL_REDUCE, stream=2), kernel(2, ALL_GATHER, stream=3)]
    in_trace = payloads(tmp_path, calls, kernels)
    assert sums(in_trace, truth.SEND_BYTES) == [4, None, None]
    assert sums(in_trace, truth.BYTES) == [None, 17, 2]


@pytest.mark.slow
def test_a_kernel_that_does_not_say_its_function_has_the_calls_of_the_group(tmp_path: Path) -> None:
    calls = group([all_reduce(10, 1), all_gather(20, 2)])
    assert sums(payloads(tmp_path, calls, [kernel(0, GENERIC)]), truth.BYTES) == [3]


@pytest.mark.slow
def test_devices_of_a_process_share_equal_calls(tmp_path: Path) -> None:
    """Two devices make the same two calls, in whatever order; kernels are launched in the reverse order of devices."""
    by_device = [all_reduce(10, 1), all_reduce(20, 2), all_reduce(30, 1), all_reduce(40, 2)]
    by_call = [all_reduce(10, 1), all_reduce(20, 1), all_reduce(30, 2), all_reduce(40, 2)]
    kernels = [kernel(0, ALL_REDUCE, device=1), kernel(1, ALL_REDUCE, device=0)]
    for number, calls in enumerate((by_device, by_call)):
        folder = tmp_path / str(number)
        folder.mkdir()
        in_trace = payloads(folder, group(calls), kernels)
        assert (sums(in_trace, truth.BYTES), sums(in_trace, truth.CALLS)) == ([3, 3], [2, 2])


@pytest.mark.slow
def test_devices_of_a_process_have_consecutive_messages(tmp_path: Path) -> None:
    calls = group([message(10 * i, "ncclSend", peer, 1 << i) for i, peer in enumerate((1, 2, 3, 0), 1)])
    kernels = [kernel(0, SEND_RECEIVE, device=1), kernel(1, SEND_RECEIVE, device=0)]
    in_trace = payloads(tmp_path, calls, kernels)
    assert sums(in_trace, truth.SEND_BYTES) == [8 + 16, 2 + 4]


def test_communicators_have_kernels_in_the_order_of_their_first_calls(tmp_path: Path) -> None:
    calls = group([all_reduce(10, 1, 7), all_reduce(20, 2, 5), all_reduce(30, 4, 7)])
    in_trace = payloads(tmp_path, calls, [kernel(0, ALL_REDUCE, stream=7), kernel(1, ALL_REDUCE, stream=8)])
    assert sums(in_trace, truth.BYTES) == [5, 2]
    assert len({str(label) for label in sums(in_trace, truth.COMMUNICATOR)}) == 2


@pytest.mark.slow
def test_where_calls_do_not_come_out_even_each_kernel_has_all(tmp_path: Path) -> None:
    calls = group([all_reduce(10, 1), all_reduce(20, 2), all_reduce(30, 4)])
    in_trace = payloads(tmp_path, calls, [kernel(0, ALL_REDUCE, stream=7), kernel(1, ALL_REDUCE, stream=8)])
    assert sums(in_trace, truth.BYTES) == [7, 7]


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 1), st.integers(0, 2), st.integers(0, 1)), max_size=12),
    st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 1), st.integers(0, 2)), max_size=6),
)
def test_every_call_has_a_kernel_of_its_launch(
    calls: list[tuple[int, int, int, int]], kernels: list[tuple[int, int, int]]
) -> None:
    """Whatever is launched together: no call with a kernel is lost, no kernel has another's function or launch."""
    calls.sort(key=lambda call: call[0])
    group, function, kind, communicator = np.array(calls, np.int64).reshape(-1, 4).T.copy()
    pairs = nccl_kernels.assign_calls(
        nccl_kernels.GroupedCalls(group, function, communicator, kind),
        nccl_kernels.GroupedKernels(*np.array(kernels, np.int64).reshape(-1, 3).T.copy(), np.arange(len(kernels))),
    )
    assigned = list(zip(pairs.kernel.tolist(), pairs.call.tolist(), strict=True))
    assert assigned == sorted(set(assigned))
    for number, (launch, function, _, _) in enumerate(calls):
        among = [k for k, key in enumerate(kernels) if key[0] == launch]
        same = [k for k in among if kernels[k][1] == function]
        kernels_of_call = [k for k, c in assigned if c == number]
        assert set(kernels_of_call) <= set(same or among)
        assert len(kernels_of_call) == (0 if not among else 1) or kernels_of_call == (same or among)


# ---- launches, against loops -----------------------------------------------------------------------------------------


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(-1, 1)), max_size=30))
def test_launches_are_outermost_groups_and_single_calls(calls: list[tuple[int, int]]) -> None:
    calls.sort(key=lambda call: call[0])
    tid, step = (np.array([call[i] for call in calls], np.int64) for i in range(2))
    names = ["ncclAllReduce", "ncclGroupStart", "ncclGroupEnd"]  # the last one for -1
    launches = nccl_calls.number_groups(tid, names, step).tolist()
    expected: list[list[int]] = []
    for thread in (0, 1):
        open_groups = 0
        for number, (caller, change) in enumerate(calls):
            if caller != thread:
                continue
            if open_groups == 0:
                expected.append([])
            expected[-1].append(number)
            open_groups = max(open_groups + change, 0)
    assert launches == [i for i, members in enumerate(expected) for _ in members]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("ncclAllReduce", ALL_REDUCE),
        ("ncclAllReduce", "ncclKernel_AllReduce_RING_LL_Sum_float"),
        ("ncclReduceScatter", "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"),
        ("ncclReduce", "ncclDevKernel_Reduce_Sum_f32_RING_LL"),
        ("ncclBcast", "ncclDevKernel_Broadcast_RING_LL"),
        ("ncclAllGather", "ncclSymkDevKernel_AllGather_LL"),
        ("ncclRecv", SEND_RECEIVE),
        ("ncclAlltoAll", SEND_RECEIVE),
    ],
)
def test_names_of_calls_and_kernels_tell_the_same_function(name: str, function: str) -> None:
    number = nccl_kernels.parse_function(name)
    assert number == nccl_kernels.parse_function(function) != nccl_kernels.NO_FUNCTION
    assert nccl_kernels.parse_function(GENERIC) == nccl_kernels.NO_FUNCTION
