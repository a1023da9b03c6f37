"""NVIDIA's advanced NCCL trace, in reports made by its documentation, since no capture with it was at hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from nsys2prv_ng.api.calls import inspect
from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.report.export_settings import JSON_OPTION
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.shared.reasons import PAYLOAD_NOT_EXPORTED
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from nsys2prv_ng.summary.links.messages import find_payload_remedy
from tests.sources.nccl import nccl_truth as truth
from tests.sources.nccl.advanced_reports import HASH, blocking_call, metadata, write_rank
from tests.sources.nccl.nccl_reports import NO_PAYLOAD, Call, Kernel, execute
from tests.sources.small_reports import UTC, get_account, translate_reports

SOURCES = "kernels,nvtx,nccl"


class Warnings(Progress):
    """Keeps warnings."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def warn(self, text: str) -> None:
        self.texts.append(text)


def read_warnings(*paths: Path) -> list[str]:
    """Return the warnings about the advanced trace of reports."""
    progress = Warnings()
    with open_job(paths, paths[0].parent, ReadOptions(), progress):
        pass
    return [text for text in progress.texts if "advanced NCCL trace" in text]


def all_reduces(rank: int, operations: list[int]) -> list[tuple[list[Call], Kernel]]:
    """Return calls of 1,024 bytes, the first at 1,000 ns, which follow each other by 1,000 ns."""
    return [
        blocking_call("AllReduce", 1000 * (i + 1) + 7 * rank, metadata(rank, operation))
        for i, operation in enumerate(operations)
    ]


@pytest.mark.parametrize("shuffled", [False, True])
def test_calls_and_their_kernels_have_the_metadata(tmp_path: Path, shuffled: bool) -> None:
    """Only the call of the program counts, not the ranges with its name of the runtime, the GPU and the proxy."""
    paths = [
        write_rank(tmp_path / f"rank{rank}.sqlite", rank, all_reduces(rank, [1, 2]), shuffled=shuffled)
        for rank in range(2)
    ]
    trace, result = translate_reports(paths, tmp_path / "a.prv", SOURCES)
    begins, _ = truth.collect_lines(trace, result.start_utc_ns)
    expected: Counter[truth.Line] = Counter()
    for rank in range(2):
        for number in (1, 2):
            time = UTC + 1000 * number + 7 * rank
            pairs: list[tuple[int, object]] = [
                (truth.COMMUNICATOR, "communicator 1 (ranks 0, 1)"),
                (truth.BYTES, 1024),
                (truth.SEQUENCE, number),
            ]
            expected[f"rank {rank}", "host", time, tuple(sorted(pairs, key=str))] += 1
            pairs.append((truth.CALLS, 1))
            expected[f"rank {rank}", "stream", time + 80, tuple(sorted(pairs, key=str))] += 1
    assert begins == expected
    account = get_account(result, "nccl")
    assert (account.read, account.written, account.dropped) == (8, 8, {})
    assert read_warnings(*paths) == []


def test_inspect_counts_the_calls(tmp_path: Path) -> None:
    path = write_rank(tmp_path / "a.sqlite", 0, all_reduces(0, [1, 2]))
    [report] = inspect([path]).reports
    assert report.sources["nccl"] == 2


@pytest.mark.parametrize("text", [HASH, str(HASH), f"{HASH:#x}"])
def test_a_hash_may_be_a_number_or_a_text(tmp_path: Path, text: object) -> None:
    path = write_rank(tmp_path / "a.sqlite", 0, [blocking_call("AllReduce", 1000, metadata(0, 1, commHash=text))])
    with open_job([path], tmp_path, ReadOptions(), Progress()) as job:
        [data] = [report.results["nccl"] for report in job.reports]
    assert data.dropped == {}


def test_operations_match_by_their_ids(tmp_path: Path) -> None:
    """Rank 1 was captured later: by order alone, its equal calls would match the wrong ones of rank 0."""
    ids = [[1, 2, 3, 4], [3, 4, 5]]
    paths = [write_rank(tmp_path / f"rank{rank}.sqlite", rank, all_reduces(rank, ids[rank])) for rank in range(2)]
    with open_job(paths, tmp_path, ReadOptions(find_waits=True), Progress()) as job:
        operations = job.operations
        parts = operations.table
        matched = [
            [(int(parts.report[i]), int(parts.begin[i]) - UTC) for i in operations.part[low:high].tolist()]
            for low, high in zip(operations.first[:-1].tolist(), operations.first[1:].tolist(), strict=True)
        ]
    origin = min(begin for operation in matched for _, begin in operation) - 1087
    seen = sorted(sorted((rank, begin - origin) for rank, begin in operation) for operation in matched)
    assert seen == [[(0, 3080), (1, 1087)], [(0, 4080), (1, 2087)]]


def test_ids_that_repeat_match_nothing(tmp_path: Path) -> None:
    """If an id stands for two operations of a rank, the order counts, as without ids."""
    paths = [write_rank(tmp_path / f"rank{rank}.sqlite", rank, all_reduces(rank, [1, 1])) for rank in range(2)]
    with open_job(paths, tmp_path, ReadOptions(find_waits=True), Progress()) as job:
        assert len(job.operations) == 2


def test_a_send_and_a_receive_with_one_id_are_a_message(tmp_path: Path) -> None:
    names = ("Send", "Recv")
    paths = [
        write_rank(
            tmp_path / f"rank{rank}.sqlite",
            rank,
            [
                blocking_call(names[rank], 1000 * i, metadata(rank, operation), kernel="ncclDevKernel_SendRecv")
                for i, operation in enumerate(order, 1)
            ],
        )
        for rank, order in enumerate(([1, 2], [2, 1]))  # their order would match the wrong ones
    ]
    trace, result = translate_reports(paths, tmp_path / "a.prv", SOURCES)
    lines = trace.communications[trace.communications["tag"] == truth.MESSAGE]
    begin, end = (lines[name] + result.start_utc_ns - UTC for name in ("send_logical", "receive_logical"))
    assert sorted(zip(begin, end, lines["size"], strict=True)) == [(1080, 2180, 1024), (2080, 1180, 1024)]


def test_a_kernel_on_another_thread_belongs_to_the_group_with_its_id(tmp_path: Path) -> None:
    """A communicator that does not block launches on a thread of its own."""
    ranges = [
        Call(1000, 1100, "API Group", {"apiGroupId": 5}),
        Call(1000, 1010, "AllReduce", metadata(0, 1, apiGroupId=5)),
        Call(1000, 1100, "API Group", {"apiGroupId": 6}, thread=80),
        Call(1000, 1010, "AllReduce", metadata(0, 2, count=2, apiGroupId=6), thread=80),
        Call(1200, 1300, "KernelLaunch", {"apiGroupId": 5}, thread=79),
    ]
    kernel = Kernel(1400, 1500, "ncclDevKernel_AllReduce_Sum", 1250, thread=79)
    path = write_rank(tmp_path / "a.sqlite", 0, [(ranges, kernel)])
    trace, result = translate_reports([path], tmp_path / "a.prv", SOURCES)
    begins, _ = truth.collect_lines(trace, result.start_utc_ns)
    [(pairs, _)] = [(line[3], count) for line, count in begins.items() if line[1] == "stream"]
    assert (truth.BYTES, 1024) in pairs


def test_channels_and_proxies_have_rows_of_their_own_if_asked_for(tmp_path: Path) -> None:
    path = write_rank(tmp_path / "a.sqlite", 0, all_reduces(0, [1, 2]))
    plain, _ = translate_reports([path], tmp_path / "plain.prv", SOURCES)
    assert not {9511, 9512} & set(plain.events["type"])
    trace, result = translate_reports([path], tmp_path / "a.prv", SOURCES, SourceOptions(nccl_channels=True))
    found = {
        (trace.names["THREAD"][row], trace.values[kind][value] if value else "", time + result.start_utc_ns - UTC)
        for kind, row, value, time in trace.events[["type", "row", "value", "time"]].itertuples(index=False)
        if kind in (9511, 9512)
    }
    ranges = {
        ("NCCL GPU of process 77 lane 1", "AllReduce", 85, 175),
        ("NCCL GPU of process 77 lane 2", "AllReduce", 90, 178),
        ("NCCL proxy of process 77 lane 1", "a peer and a channel", 90, 150),
    }
    expected = {(row, name, start + begin) for row, name, begin, _ in ranges for start in (1000, 2000)}
    assert found == expected | {(row, "", start + end) for row, _, _, end in ranges for start in (1000, 2000)}
    assert get_account(result, "nccl").written == 4 + 6


def test_calls_of_a_group_share_its_kernel(tmp_path: Path) -> None:
    ranges = [
        Call(1000, 1300, "API Group"),
        Call(1010, 1020, "Send", metadata(0, 1)),
        Call(1030, 1040, "Recv", metadata(0, 2)),
        Call(1050, 1290, "GroupLaunch"),
        Call(1060, 1200, "KernelLaunch"),
    ]
    path = write_rank(tmp_path / "a.sqlite", 0, [(ranges, Kernel(1400, 1500, "ncclDevKernel_SendRecv", 1100))])
    trace, result = translate_reports([path], tmp_path / "a.prv", SOURCES)
    begins, _ = truth.collect_lines(trace, result.start_utc_ns)
    [pairs] = [line[3] for line in begins if line[1] == "stream"]
    assert {(truth.CALLS, 2), (truth.SEND_BYTES, 1024), (truth.RECEIVE_BYTES, 1024)} <= set(pairs)


def test_without_metadata_the_remedy_is_the_option_for_json(tmp_path: Path) -> None:
    path = write_rank(tmp_path / "a.sqlite", 0, all_reduces(0, [1]), form=NO_PAYLOAD)
    execute(path, "UPDATE META_DATA_EXPORT SET value = '3.25.0'")
    with open_job([path], tmp_path, ReadOptions(), Progress()) as job:
        assert job.reports[0].results["nccl"].dropped[PAYLOAD_NOT_EXPORTED[JSON_OPTION]] == 1
        assert find_payload_remedy(job) == f"export with {JSON_OPTION}"


def test_what_is_not_documented_is_one_warning(tmp_path: Path) -> None:
    """The rest of the report is read nevertheless."""
    calls = all_reduces(0, [1])
    calls[0][0].extend([Call(5000, 5100, "New`Thing"), Call(6000, 6100, "Other"), Call(1060, 1500, "GroupRuntime")])
    path = write_rank(tmp_path / "a.sqlite", 0, calls)
    [warning] = read_warnings(path)
    assert "unknown ranges `New'Thing`, `Other`; 1 ranges that do not nest" in warning
    _, result = translate_reports([path], tmp_path / "a.prv", SOURCES)
    assert get_account(result, "nccl").written == 2


def test_without_groups_no_call_is_read(tmp_path: Path) -> None:
    path = write_rank(tmp_path / "a.sqlite", 0, all_reduces(0, [1]))
    execute(path, "DELETE FROM NVTX_EVENTS WHERE textId = (SELECT id FROM StringIds WHERE value = 'API Group')")
    [warning] = read_warnings(path)
    assert "no range API Group" in warning
    _, result = translate_reports([path], tmp_path / "a.prv", SOURCES)
    assert get_account(result, "nccl").dropped == {"kernel whose calls have no payload": 1}


def test_both_kinds_of_trace_are_read_as_before(tmp_path: Path) -> None:
    calls = all_reduces(0, [1])
    payload = {"NCCL communicator ID": 9, "Message size [bytes]": 64, "Reduction operation": "Sum"}
    old = [Call(3000, 3100, "ncclAllReduce", payload)], Kernel(3200, 3300, "ncclDevKernel_AllReduce_Sum", 3050)
    path = write_rank(tmp_path / "a.sqlite", 0, [*calls, old])
    [warning] = read_warnings(path)
    assert "NCCL's own ranges too" in warning
    _, result = translate_reports([path], tmp_path / "a.prv", SOURCES)
    assert get_account(result, "nccl").written == 2


def test_a_capture_after_the_domain_was_created(tmp_path: Path) -> None:
    """The domain has no name, and all its ranges are documented."""
    calls = [([call for call in all_reduces(0, [1])[0][0] if "channel" not in call.name], all_reduces(0, [1])[0][1])]
    path = write_rank(tmp_path / "a.sqlite", 0, calls)
    execute(path, "DELETE FROM NVTX_EVENTS WHERE eventType = 75")
    trace, result = translate_reports([path], tmp_path / "a.prv", SOURCES)
    assert get_account(result, "nccl").written == 2
    assert 9500 in set(trace.events["type"])
