"""NCCL's payloads in traces of real reports, compared with SQL, JSON and loops over the reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from nsys2prv_ng.translation.result import TranslationResult
from tests.conftest import Unpacked
from tests.sources.nccl import nccl_truth as truth
from tests.sources.nccl.nccl_truth import Line, NcclReport, close_pairs, list_pairs, read_nccl_report
from tests.sources.small_reports import get_account, translate_reports
from tests.trace_reader import Trace

SOURCES = "kernels,nvtx,nccl"


class Translated:
    """Reports, one task each in the order of ranks, and their trace."""

    def __init__(self, paths: Sequence[Path], output: Path) -> None:
        self.reports = [read_nccl_report(path) for path in paths]
        self.trace: Trace
        self.summary: TranslationResult
        self.trace, self.summary = translate_reports(paths, output, SOURCES)
        self.begins, self.ends = truth.collect_lines(self.trace, self.summary.start_utc_ns)

    def expected(self, label: str) -> tuple[Counter[Line], Counter[Line]]:
        """Lines that begin and end payloads of calls and kernels, all on one communicator of this label."""
        begins: Counter[Line] = Counter()
        ends: Counter[Line] = Counter()

        def add(task: str, place: str, begin: int, end: int, pairs: tuple[tuple[int, object], ...]) -> None:
            begins[task, place, begin, pairs] += 1
            if close_pairs(pairs):
                ends[task, place, end, close_pairs(pairs)] += 1

        for number, report in enumerate(self.reports):
            task = f"rank {number}"
            for call in report.calls:
                if call.payload:
                    pairs = list_pairs([call], label)
                    add(task, "host", report.utc + call.begin, report.utc + call.end, pairs)
            for kernel in report.kernels:
                if kernel.calls:
                    pairs = list_pairs(kernel.calls, label)
                    pairs = tuple(sorted([*pairs, (truth.CALLS, len(kernel.calls))], key=str))
                    add(task, "stream", report.utc + kernel.begin, report.utc + kernel.end, pairs)
        return begins, ends


@pytest.fixture(scope="module")
def ddp(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Translated:
    paths = [samples / f"ddp-2x2.rank{rank}.sqlite" for rank in range(4)]
    return Translated(paths, tmp_path_factory.mktemp("nccl") / "ddp.prv")


@pytest.fixture(scope="module")
def long_ddp(shared_reports: Path, unpacked: Unpacked, tmp_path_factory: pytest.TempPathFactory) -> Translated:
    paths = [unpacked(shared_reports / f"bench/ddplong-2x2.rank{rank}.sqlite.xz") for rank in range(4)]
    return Translated(paths, tmp_path_factory.mktemp("nccl") / "ddplong.prv")


def differences(in_trace: Counter[Line], expected: Counter[Line]) -> list[object]:
    return [("missing", *(expected - in_trace).items()), ("not expected", *(in_trace - expected).items())]


def launched_in_group_end(report: NcclReport) -> int:
    return sum(k.launched_in is not None and k.launched_in.name == "ncclGroupEnd" for k in report.kernels)


def test_every_call_and_kernel_of_the_sample_has_its_payload(ddp: Translated) -> None:
    begins, ends = ddp.expected("communicator 1, data (ranks 0-3)")
    assert sum(len(report.kernels) for report in ddp.reports) == 504
    assert all(kernel.calls for report in ddp.reports for kernel in report.kernels)
    assert ddp.begins == begins, differences(ddp.begins, begins)
    assert ddp.ends == ends, differences(ddp.ends, ends)


def test_a_kernel_of_a_nested_group_carries_both_its_calls(ddp: Translated) -> None:
    kernels = [kernel for report in ddp.reports for kernel in report.kernels if len(kernel.calls) > 1]
    assert [[call.name for call in kernel.calls] for kernel in kernels] == [["ncclSend", "ncclRecv"]] * 4
    both = [line for line in ddp.begins if (truth.CALLS, 2) in line[3]]
    assert len(both) == 4
    for line in both:
        assert {kind for kind, _ in line[3]} >= {truth.SEND_PEER, truth.SEND_BYTES, truth.RECEIVE_PEER}


def test_the_source_counts_payloads_and_kernels(ddp: Translated) -> None:
    calls = sum(bool(call.payload) for report in ddp.reports for call in report.calls)
    kernels = sum(len(report.kernels) for report in ddp.reports)
    counted = get_account(ddp.summary, "nccl")
    assert (counted.read, counted.written, counted.dropped) == (calls + kernels, calls + kernels, {})


def test_messages_go_from_the_senders_kernel_to_the_receivers(ddp: Translated) -> None:
    expected = expected_messages(ddp)
    assert len(expected) == 6
    lines = ddp.trace.communications[ddp.trace.communications["tag"] == truth.MESSAGE]
    task = ddp.trace.names["TASK"]
    in_trace = sorted(
        (
            task[line.send_task - 1],
            line.send_logical + ddp.summary.start_utc_ns,
            task[line.receive_task - 1],
            line.receive_logical + ddp.summary.start_utc_ns,
            line.size,
        )
        for line in lines.itertuples()
    )
    assert in_trace == expected
    rows = {*lines["send_row"], *lines["receive_row"]}
    assert all(ddp.trace.names["THREAD"][row].startswith("CUDA-") for row in rows)
    assert get_account(ddp.summary, "nccl_messages").written == 6


def expected_messages(translated: Translated) -> list[tuple[str, int, str, int, int]]:
    """Sender, begin of its kernel, receiver, end of its kernel, bytes: the n-th send to a peer is its n-th receipt."""
    ends: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
    for rank, report in enumerate(translated.reports):
        for kernel in report.kernels:
            for call in kernel.calls:
                if call.name in ("ncclSend", "ncclRecv"):
                    peer = int(str(call.payload["Peer rank"]))
                    route = (rank, peer) if call.name == "ncclSend" else (peer, rank)
                    time = kernel.begin if call.name == "ncclSend" else kernel.end
                    size = int(str(call.payload["Message size [bytes]"]))
                    ends.setdefault((call.name, *route), []).append((report.utc + time, size))
    in_trace = []
    for (name, source, target), sends in ends.items():
        if name == "ncclSend":
            for (send, size), (receive, _) in zip(sends, ends["ncclRecv", source, target], strict=True):
                in_trace.append((f"rank {source}", send, f"rank {target}", receive, size))
    return sorted(in_trace)


def test_collectives_of_all_ranks_have_the_same_numbers(ddp: Translated) -> None:
    """The n-th collective is the same call with the same bytes on every rank."""
    by_rank: dict[str, dict[object, object]] = {}
    for task, place, _, pairs in ddp.begins:
        values = dict(pairs)
        if place == "host" and truth.BYTES in values:
            by_rank.setdefault(task, {})[values[truth.SEQUENCE]] = (values[truth.BYTES], values.get(truth.OPERATION))
    assert len(by_rank) == 4 and len(by_rank["rank 0"]) == 124
    assert all(members == by_rank["rank 0"] for members in by_rank.values())


@pytest.mark.slow
def test_peers_are_not_guessed_where_ranks_are_missing(samples: Path, tmp_path: Path) -> None:
    """Without ranks 1 and 3, and without the calls that made the communicator, nobody can say who is its rank 2."""
    paths = [samples / f"ddp-2x2.rank{rank}.sqlite" for rank in (0, 2)]
    trace, summary = translate_reports(paths, tmp_path / "trace.prv", SOURCES)
    messages = get_account(summary, "nccl_messages")
    assert (messages.read, messages.written) == (6, 0)
    assert messages.dropped == {"rank of its process in the communicator is unknown": 6}
    assert trace.values[truth.COMMUNICATOR] == {1: "communicator 1 (4 ranks)"}
    peers = {value for value in trace.values[truth.SEND_PEER].values() if value.endswith("task unknown")}
    assert peers == {f"rank {rank} of communicator 1, task unknown" for rank in (0, 1, 3)}


@pytest.mark.slow
def test_the_trace_without_nvtx_has_the_same_payloads(ddp: Translated, samples: Path, tmp_path: Path) -> None:
    paths = [samples / f"ddp-2x2.rank{rank}.sqlite" for rank in range(4)]
    trace, summary = translate_reports(paths, tmp_path / "trace.prv", "nccl")
    assert truth.collect_lines(trace, summary.start_utc_ns) == (ddp.begins, ddp.ends)


# ---- large reports ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.all_sets
def test_every_call_and_kernel_of_the_long_run_has_its_payload(long_ddp: Translated) -> None:
    assert [len(report.kernels) for report in long_ddp.reports] == [1206] * 4
    assert [launched_in_group_end(report) for report in long_ddp.reports] == [2] * 4
    begins, ends = long_ddp.expected("communicator 1, data (ranks 0-3)")
    assert sum(line[1] == "stream" for line in long_ddp.begins.elements()) == 4824
    assert long_ddp.begins == begins, differences(long_ddp.begins, begins)
    assert long_ddp.ends == ends, differences(long_ddp.ends, ends)


@pytest.mark.slow
def test_each_device_of_one_process_has_its_share_of_a_group(shared_reports: Path, tmp_path: Path) -> None:
    path = shared_reports / "gpu/oneproc-4gpu.sqlite"
    report = read_nccl_report(path)
    assert len(report.kernels) == launched_in_group_end(report) == 32
    trace, summary = translate_reports([path], tmp_path / "trace.prv", SOURCES)
    begins, _ = truth.collect_lines(trace, summary.start_utc_ns)
    in_trace = Counter({line: count for line, count in begins.items() if line[1] == "stream"})
    task = trace.names["TASK"][0]
    # Of the four equal calls of a group each device carries out one; groups are numbered 1, 5, ... by their calls.
    assert {line[:3] for line in in_trace} == {(task, "stream", report.utc + k.begin) for k in report.kernels}
    expected = {(truth.COMMUNICATOR, "communicator 1 (4 ranks)"), (truth.OPERATION, "Sum"), (truth.BYTES, 16777216)}
    assert all({*line[3]} >= {*expected, (truth.CALLS, 1)} for line in in_trace)
    host = [dict(line[3]) for line in begins if line[1] == "host"]
    assert sorted(values.get(truth.SEQUENCE, 0) for values in host) == list(range(33))


@pytest.mark.slow
def test_ranks_in_one_report_are_told_by_the_calls_that_made_the_communicator(
    shared_reports: Path, unpacked: Unpacked, tmp_path: Path
) -> None:
    path = unpacked(shared_reports / "bench/torchrun-one-report.sqlite.xz")
    report = read_nccl_report(path)
    trace, summary = translate_reports([path], tmp_path / "trace.prv", SOURCES)
    rank_of = {call.process: call.payload["Rank"] for call in report.calls if call.name == "ncclCommInitRankConfig"}
    assert sorted(rank_of.values()) == [0, 1, 2, 3]  # type: ignore[type-var]
    expected: Counter[Line] = Counter()
    for call in report.calls:
        if call.payload:
            pairs = list_pairs([call], "communicator 1, data (ranks 0-3)")
            expected[f"rank {rank_of[call.process]}", "host", report.utc + call.begin, pairs] += 1
    begins, _ = truth.collect_lines(trace, summary.start_utc_ns)
    in_trace = Counter({line: count for line, count in begins.items() if line[1] == "host"})
    assert in_trace == expected, differences(in_trace, expected)
    assert get_account(summary, "nccl_messages").written == 6


def test_calls_without_a_gpu_and_without_payloads(shared_reports: Path, tmp_path: Path) -> None:
    paths = [shared_reports / f"cpu/2024.2.3-nccl_mimic_rank{rank}.sqlite" for rank in range(2)]
    trace, summary = translate_reports(paths, tmp_path / "trace.prv", SOURCES)
    moving = sum(
        call.name in ("ncclAllGather", "ncclAllReduce", "ncclBroadcast", "ncclReduceScatter", "ncclSend", "ncclRecv")
        for path in paths
        for call in read_nccl_report(path).calls
    )
    assert moving == 60
    assert get_account(summary, "nccl").dropped == {"call without payload: the export has none": moving}
    assert (trace.events["type"] == 9500).sum() == 2 * sum(len(read_nccl_report(path).calls) for path in paths)


@pytest.mark.slow
def test_the_summary_says_that_the_export_lacks_blobs(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    """The payload's layout is in the report, the payloads are not."""
    _, summary = translate_reports(
        [unpacked(shared_reports / "public/mfu_2gpu_before.sqlite")], tmp_path / "trace.prv", SOURCES
    )
    assert get_account(summary, "nccl").dropped == {
        "call without payload: the export has none, make it with nsys export --include-blobs=true": 264,
        "kernel whose calls have no payload": 64,
        "kernel: no call recorded with its correlation id": 2,
    }
    assert "--include-blobs" in summary.text()
