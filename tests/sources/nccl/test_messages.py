"""Communicators, ranks and messages of NCCL over several reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.analysis.waits.rules import NOT_MATCHED, SPLIT
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.translation.result import SourceAccount
from tests.sources.nccl import nccl_reports as reports
from tests.sources.nccl import nccl_truth as truth
from tests.sources.nccl.nccl_reports import COMMUNICATOR, DEVICES, OPERATION, PEER, RANK, RANKS, SIZE, UTC, Call, Kernel
from tests.sources.small_reports import get_account, translate_reports
from tests.trace_reader import Trace

UNKNOWN_CALLER = "rank of its process in the communicator is unknown"
UNKNOWN_PEER = "task of its peer is unknown"
NO_RECEIVE, NO_SEND = "send without its receive in the reports", "receive without its send in the reports"


def init(communicator: int, rank: int, ranks: int, begin: int = 1) -> Call:
    payload = {COMMUNICATOR: communicator, RANKS: ranks, RANK: rank, "CUDA device": 0}
    return Call(begin, begin + 1, "ncclCommInitRank", payload)


def send(begin: int, peer: int, size: int = 64, communicator: int = 1) -> Call:
    return Call(begin, begin + 4, "ncclSend", {COMMUNICATOR: communicator, SIZE: size, PEER: peer})


def receive(begin: int, peer: int, size: int = 64, communicator: int = 1) -> Call:
    return Call(begin, begin + 4, "ncclRecv", {COMMUNICATOR: communicator, SIZE: size, PEER: peer})


def all_reduce(begin: int, communicator: int) -> Call:
    return Call(begin, begin + 4, "ncclAllReduce", {COMMUNICATOR: communicator, SIZE: 8, OPERATION: "Sum"})


def write(
    folder: Path,
    calls_of_ranks: Sequence[Sequence[Call]],
    kernels: dict[int, Sequence[Kernel]] | None = None,
    world: int | None = None,
    ranks: Sequence[int] | None = None,
) -> list[Path]:
    """A report for each rank, those of later ranks captured a little later."""
    paths = []
    for number, calls in enumerate(calls_of_ranks):
        rank = number if ranks is None else ranks[number]
        environment = f"RANK={rank}" + (f";WORLD_SIZE={world}" if world else "")
        path = folder / f"rank{rank}.sqlite"
        own_kernels = (kernels or {}).get(rank, ())
        paths.append(
            reports.write_nccl_report(path, calls, own_kernels, environment=environment, utc=UTC + 1000 * rank)
        )
    return paths


def translated(paths: Sequence[Path], output: Path) -> tuple[Trace, SourceAccount]:
    trace, summary = translate_reports(paths, output, "kernels,nvtx,nccl")
    messages = get_account(summary, "nccl_messages")
    assert messages.written == (trace.communications["tag"] == truth.MESSAGE).sum()
    return trace, messages


def lines(trace: Trace) -> list[tuple[int, int, int, int, int]]:
    """Task, from 0, and time of the send, the same of the receive, bytes."""
    messages = trace.communications[trace.communications["tag"] == truth.MESSAGE]
    columns = ("send_task", "send_logical", "receive_task", "receive_logical", "size")
    return sorted(
        (a - 1, b, c - 1, d, e) for a, b, c, d, e in messages[list(columns)].itertuples(index=False, name=None)
    )


def peers(trace: Trace, event_type: int) -> list[tuple[int, str]]:
    """Task, from 0, and label of the peers of calls on the host, in the order of time."""
    in_trace = trace.events[trace.events["type"] == event_type]
    labels = trace.get_labels(event_type, in_trace["value"])
    return [(task - 1, label) for task, label in zip(in_trace["task"], labels, strict=True)]


# ---- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_nth_send_to_a_rank_is_its_nth_receive(tmp_path: Path) -> None:
    calls = [[init(1, 0, 2), send(10, 1, 1), send(30, 1, 2)], [init(1, 1, 2), receive(20, 0, 9), receive(40, 0, 9)]]
    trace, messages = translated(write(tmp_path, calls), tmp_path / "trace.prv")
    # Bytes are the sender's; without kernels from the begin of the send to the end of the receive, on the common clock.
    assert lines(trace) == [(0, 9, 1, 1023, 1), (0, 29, 1, 1043, 2)]
    assert (messages.read, messages.dropped) == (2, {})
    assert peers(trace, truth.SEND_PEER) == [(0, "rank 1")] * 2
    assert peers(trace, truth.RECEIVE_PEER) == [(1, "rank 0")] * 2
    values = trace.events[trace.events["type"].isin((truth.SEND_PEER, truth.RECEIVE_PEER))]["value"]
    assert sorted(values) == [1, 1, 2, 2]


@pytest.mark.slow
def test_messages_go_between_kernels_where_there_are_any(tmp_path: Path) -> None:
    calls = [[init(1, 0, 2), send(10, 1)], [init(1, 1, 2), receive(10, 0)]]
    kernels = {1: [Kernel(100, 150, "ncclDevKernel_SendRecv", 12)]}
    trace, _ = translated(write(tmp_path, calls, kernels), tmp_path / "trace.prv")
    assert lines(trace) == [(0, 9, 1, 1149, 64)]
    row = int(trace.communications["receive_row"].iloc[0])
    assert trace.names["THREAD"][row].startswith("CUDA-")


@pytest.mark.slow
@pytest.mark.parametrize("with_kernel", [(), (1,), (0, 1)])
def test_only_kernels_wait(tmp_path: Path, with_kernel: Sequence[int]) -> None:
    """A call on the host returns when its kernel is launched: it neither waits nor shows when a rank arrived."""
    calls = [[init(1, 0, 2), send(10, 1)], [init(1, 1, 2), receive(10, 0)]]
    kernels = {rank: [Kernel(100, 2000, "ncclDevKernel_SendRecv", 12)] for rank in with_kernel}
    with open_job(write(tmp_path, calls, kernels), tmp_path, ReadOptions(), Progress()) as job:
        waits = find_waits(job)
        verdict = SPLIT if len(with_kernel) == 2 else NOT_MATCHED
        assert waits.verdict.tolist() == [verdict] * len(with_kernel)
        assert not np.isin(waits.row, job.whole.host_rows).any()


@pytest.mark.slow
def test_ranks_of_a_communicator_need_not_be_those_of_the_job(tmp_path: Path) -> None:
    calls = [[init(1, 1, 2), send(10, 0)], [init(1, 0, 2), receive(20, 1)]]
    trace, messages = translated(write(tmp_path, calls), tmp_path / "trace.prv")
    assert lines(trace) == [(0, 9, 1, 1023, 64)]
    assert peers(trace, truth.SEND_PEER) == [(0, "rank 1")]
    assert peers(trace, truth.RECEIVE_PEER) == [(1, "rank 0")]
    assert messages.dropped == {}


@pytest.mark.slow
def test_members_are_ranks_in_task_order_where_none_is_missing(tmp_path: Path) -> None:
    """Of four ranks, 1 and 3 have a communicator that was made before the capture."""
    calls = [[all_reduce(5, 9)], [send(10, 1)], [all_reduce(5, 9)], [receive(20, 0)]]
    trace, messages = translated(write(tmp_path, calls, world=4), tmp_path / "trace.prv")
    assert lines(trace) == [(1, 1005, 3, 3019, 64)]
    assert peers(trace, truth.SEND_PEER) == [(1, "rank 3")]
    assert peers(trace, truth.RECEIVE_PEER) == [(3, "rank 1")]
    assert messages.dropped == {}


@pytest.mark.slow
@pytest.mark.parametrize("known", ["from the environment", "from a peer", "from the communicator"])
def test_members_are_not_guessed_where_one_is_missing(tmp_path: Path, known: str) -> None:
    """Ranks 1 and 2 of a job, which may be any ranks of the communicator."""
    calls = [[send(10, 1)], [receive(20, 0)]]
    world = 3 if known == "from the environment" else None
    if known == "from a peer":
        calls[0].append(send(30, 2))
    elif known == "from the communicator":
        calls[0].append(Call(1, 2, "ncclCommDestroy", {COMMUNICATOR: 1, RANKS: 3}))
    trace, messages = translated(write(tmp_path, calls, world=world, ranks=(1, 2)), tmp_path / "trace.prv")
    assert lines(trace) == []
    assert messages.dropped == {UNKNOWN_CALLER: sum(map(len, calls)) - (known == "from the communicator")}
    unknown = {1: "rank 1", 2: "rank 2"}
    assert all(label.endswith("task unknown") for _, label in peers(trace, truth.SEND_PEER))
    # Values of unknown ranks come after those of tasks.
    assert min(trace.events[trace.events["type"] == truth.SEND_PEER]["value"]) > len(unknown)


@pytest.mark.slow
def test_one_known_rank_leaves_the_other_to_the_other_member(tmp_path: Path) -> None:
    calls = [[init(1, 1, 2), send(10, 0)], [receive(20, 1)]]
    trace, _ = translated(write(tmp_path, calls), tmp_path / "trace.prv")
    assert lines(trace) == [(0, 9, 1, 1023, 64)]


@pytest.mark.slow
def test_what_has_no_other_end_is_counted(tmp_path: Path) -> None:
    calls = [
        [init(1, 0, 3), send(10, 1), send(20, 1), send(30, 2), receive(40, 2)],
        [init(1, 1, 3), receive(10, 0), receive(20, 1)],
    ]
    trace, messages = translated(write(tmp_path, calls), tmp_path / "trace.prv")
    assert len(lines(trace)) == 1
    assert messages.read == 5
    assert messages.dropped == {NO_RECEIVE: 1, UNKNOWN_PEER: 2, NO_SEND: 1}
    assert peers(trace, truth.RECEIVE_PEER)[-1] == (1, "rank 1")


@pytest.mark.slow
def test_communicators_do_not_mix(tmp_path: Path) -> None:
    calls = [
        [init(1, 0, 2), init(2, 0, 2, 3), send(10, 1, 1, 1), send(20, 1, 2, 2)],
        [init(1, 1, 2), init(2, 1, 2, 3), receive(10, 0, 2, 2), receive(20, 0, 1, 1)],
    ]
    trace, _ = translated(write(tmp_path, calls), tmp_path / "trace.prv")
    assert lines(trace) == [(0, 9, 1, 1023, 1), (0, 19, 1, 1013, 2)]


@pytest.mark.slow
def test_a_process_of_several_ranks_is_not_taken_for_one(tmp_path: Path) -> None:
    calls = [Call(1, 2, "ncclCommInitAll", {COMMUNICATOR: 1, DEVICES: 2}), send(10, 1), receive(20, 0)]
    trace, messages = translated(write(tmp_path, [calls]), tmp_path / "trace.prv")
    assert messages.dropped == {UNKNOWN_CALLER: 2}
    assert peers(trace, truth.SEND_PEER) == [(0, "rank 0")]
    assert trace.values[truth.COMMUNICATOR] == {1: "communicator 1 (2 ranks)"}


@pytest.mark.slow
def test_a_message_to_oneself(tmp_path: Path) -> None:
    calls = [[init(1, 0, 1), send(10, 0), receive(20, 0)]]
    trace, messages = translated(write(tmp_path, calls), tmp_path / "trace.prv")
    assert lines(trace) == [(0, 9, 0, 23, 64)]
    assert messages.dropped == {}


@pytest.mark.slow
def test_messages_beyond_the_window_are_counted(tmp_path: Path) -> None:
    calls = [[init(1, 0, 1), send(10, 0), receive(20, 0), send(100, 0), receive(110, 0)]]
    paths = write(tmp_path, calls)
    trace, summary = translate_reports(paths, tmp_path / "trace.prv", "nccl", window=(0, 50))
    assert len(lines(trace)) == 1
    messages = get_account(summary, "nccl_messages")
    assert (messages.read, messages.written) == (2, 1)


# ---- communicators ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_communicators_are_numbered_by_size_tasks_and_first_use(tmp_path: Path) -> None:
    """Their ids are random, so that two runs of a program have the same numbers only if ids do not matter."""
    pair_a, pair_b, world, world_again = 2**63 + 3, 3, 2**63 + 17, 17
    calls = [
        [all_reduce(10, pair_a), all_reduce(40, world_again), all_reduce(50, world)],
        [all_reduce(10, pair_a), all_reduce(40, world_again), all_reduce(50, world)],
        [all_reduce(1, pair_b), all_reduce(40, world_again), all_reduce(50, world)],
        [all_reduce(1, pair_b), all_reduce(40, world_again), all_reduce(50, world)],
    ]
    paths = write(tmp_path, calls)
    trace, _ = translated(paths, tmp_path / "trace.prv")
    assert trace.values[truth.COMMUNICATOR] == {
        1: "communicator 1 (ranks 0-3)",
        2: "communicator 2 (ranks 0-3)",
        3: "communicator 3 (ranks 0, 1)",
        4: "communicator 4 (ranks 2, 3)",
    }
    in_trace = trace.events[trace.events["type"] == truth.COMMUNICATOR].sort_values("time", kind="stable")
    by_task = {int(task): values["value"].tolist() for task, values in in_trace.groupby("task")}
    assert by_task == {1: [3, 1, 2], 2: [3, 1, 2], 3: [4, 1, 2], 4: [4, 1, 2]}


def test_a_communicator_has_the_size_that_its_calls_tell(tmp_path: Path) -> None:
    trace, _ = translated(write(tmp_path, [[init(1, 3, 8), all_reduce(10, 1)]]), tmp_path / "trace.prv")
    assert trace.values[truth.COMMUNICATOR] == {1: "communicator 1 (8 ranks)"}


@pytest.mark.slow
def test_the_order_of_reports_does_not_matter(tmp_path: Path) -> None:
    calls = [[send(10, 1), all_reduce(20, 7)], [receive(20, 0), all_reduce(30, 7)]]
    paths = write(tmp_path, calls)
    translated(paths, tmp_path / "one.prv")
    translated(paths[::-1], tmp_path / "two.prv")
    for suffix in (".prv", ".pcf"):
        assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()


@pytest.mark.slow
def test_sequence_numbers_count_collectives_and_messages_apart(tmp_path: Path) -> None:
    calls = [[init(1, 0, 1), all_reduce(10, 1), send(20, 0), all_reduce(30, 1), receive(40, 0), send(50, 0)]]
    trace, _ = translated(write(tmp_path, calls), tmp_path / "trace.prv")
    in_trace = trace.events[trace.events["type"] == truth.SEQUENCE]
    assert list(zip(in_trace["time"] + 1, in_trace["value"], strict=True)) == [
        (10, 1),
        (20, 1),
        (30, 2),
        (40, 1),
        (50, 2),
    ]
