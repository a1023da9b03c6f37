"""What is communication on GPUs, compared with the unchanged sample: its NCCL kernels under other names, or as copies.

Each change says which library moves the data, or which engine; the GPUs do the same at the same times.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from nsys2prv_ng.summary.answer.answer import add_verdict
from nsys2prv_ng.summary.answer.case import Case
from nsys2prv_ng.summary.job import JobSummary
from tests.conftest import SAMPLES
from tests.report_sets import find_set
from tests.sources.small_reports import translate_reports
from tests.summary.made import IN_STEPS, summarize_reports
from tests.trace_reader import Trace
from tests.translated import changed

SOURCES = "kernels,memory_operations,cuda_api,nvtx"
REPORTS = sorted(SAMPLES.glob("ddp-2x2*.sqlite"))
ACTIVITY, CLASS, MEMORY, COMMUNICATES, COPIES = 63000400, 63000200, 63000001, 2, 4
PEER_TO_PEER, DEVICE_TO_DEVICE, HOST_TO_DEVICE = 10, 8, 1

RENAMED = [
    "UPDATE StringIds SET value = 'void vllm::cross_device_reduce_2stage<float, 4>(vllm::RankData *)' "
    "WHERE value LIKE 'ncclDevKernel_AllReduce%(%'",
    "UPDATE StringIds SET value = 'cross_device_reduce_2stage' WHERE value LIKE 'ncclDevKernel_AllReduce%'",
]
NCCL_IDS = "SELECT id FROM StringIds WHERE value LIKE 'ncclDevKernel%'"


COLUMNS = "start, end, deviceId, contextId, greenContextId, streamId, correlationId, globalPid"


def as_copies(kind: int, source: str = "NULL", target: str = "NULL") -> list[str]:
    """Statements that make NCCL's kernels copies of 16 MiB, of a kind and between devices."""
    return [
        f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY ({COLUMNS}, bytes, copyKind, srcDeviceId, dstDeviceId) "
        f"SELECT {COLUMNS}, {1 << 24}, {kind}, {source}, {target} FROM CUPTI_ACTIVITY_KIND_KERNEL "
        f"WHERE shortName IN ({NCCL_IDS})",
        f"DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE shortName IN ({NCCL_IDS})",
    ]


NO_RANGES = ["DELETE FROM NVTX_EVENTS WHERE textId IN (SELECT id FROM StringIds WHERE value LIKE 'nccl%')"]
BETWEEN = ("deviceId", "deviceId + 1")


def change_reports(folder: Path, statements: Sequence[str]) -> list[Path]:
    return [changed(report, folder / report.name, statements) for report in REPORTS]


def read_activity(reports: Sequence[Path], folder: Path) -> pd.DataFrame:
    """Return row, time, whether each GPU communicates and what else it does, at each change of either."""
    trace, _ = translate_reports(reports, folder / "x.prv", SOURCES)
    events = trace.events[trace.events["type"] == ACTIVITY]
    values = events["value"].to_numpy()
    table = pd.DataFrame({"row": events["row"], "time": events["time"], "communicates": values & COMMUNICATES > 0})
    table["others"] = values & ~(COMMUNICATES | COPIES)
    table = table.sort_values(["row", "time"], kind="stable").reset_index(drop=True)
    same = (table.drop(columns="time") == table.drop(columns="time").shift()).all(axis=1)
    return table[~same].reset_index(drop=True)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    return read_activity(REPORTS, tmp_path_factory.mktemp("unchanged"))


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(RENAMED, id="another library"),
        pytest.param([*as_copies(PEER_TO_PEER, *BETWEEN), *NO_RANGES], id="peer to peer"),
        pytest.param([*as_copies(PEER_TO_PEER), *NO_RANGES], id="peer to peer, devices not recorded"),
        pytest.param([*as_copies(DEVICE_TO_DEVICE, *BETWEEN), *NO_RANGES], id="between two devices"),
        pytest.param(as_copies(DEVICE_TO_DEVICE), id="copy engines, devices not recorded"),
        pytest.param(as_copies(DEVICE_TO_DEVICE, "deviceId", "deviceId"), id="copy engines, in one address space"),
    ],
)
def test_gpus_communicate_as_before(unchanged: pd.DataFrame, tmp_path: Path, statements: Sequence[str]) -> None:
    assert unchanged["communicates"].sum() > 100
    pd.testing.assert_frame_equal(read_activity(change_reports(tmp_path, statements), tmp_path), unchanged)


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param([*as_copies(DEVICE_TO_DEVICE), *NO_RANGES], id="no call of NCCL"),
        pytest.param([*as_copies(PEER_TO_PEER, "deviceId", "deviceId"), *NO_RANGES], id="within a GPU"),
        pytest.param(as_copies(HOST_TO_DEVICE), id="from the host"),
        pytest.param(
            [*as_copies(DEVICE_TO_DEVICE), "UPDATE NVTX_EVENTS SET globalTid = globalTid + 1 WHERE domainId > 0"],
            id="calls of another thread",
        ),
    ],
)
def test_other_copies_are_no_communication(tmp_path: Path, statements: Sequence[str]) -> None:
    assert not read_activity(change_reports(tmp_path, statements), tmp_path)["communicates"].any()


def list_starts(trace: Trace, event_type: int) -> set[tuple[int, int]]:
    """Return (row, time) of the starts of intervals."""
    events = trace.events[(trace.events["type"] == event_type) & (trace.events["value"] > 0)]
    return set(zip(events["row"].tolist(), events["time"].tolist(), strict=True))


def test_a_call_with_a_kernel_has_no_copy_engines(tmp_path: Path) -> None:
    """Kernels stay, each with a copy after it within its GPU, which is none of NCCL's collectives."""
    kept = f"CUPTI_ACTIVITY_KIND_KERNEL WHERE shortName IN ({NCCL_IDS})"
    copy = (
        f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY ({COLUMNS}, bytes, copyKind) "
        f"SELECT {COLUMNS.replace('start, end', 'end, end + 1')}, 1, {DEVICE_TO_DEVICE} FROM {kept}"
    )
    trace, _ = translate_reports(change_reports(tmp_path, [copy]), tmp_path / "x.prv", SOURCES)
    assert list_starts(trace, MEMORY) and not list_starts(trace, MEMORY) & list_starts(trace, CLASS)


def test_the_class_of_copies_is_in_the_trace(tmp_path: Path) -> None:
    """Copies that are communication have a class from their start to their end, as many as SQL counts."""
    reports = change_reports(tmp_path, as_copies(PEER_TO_PEER, *BETWEEN))
    trace, _ = translate_reports(reports, tmp_path / "x.prv", SOURCES)
    copies = list_starts(trace, CLASS) & list_starts(trace, MEMORY)
    count = sum(
        sqlite3.connect(path)
        .execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 10")
        .fetchone()[0]
        for path in reports
    )
    assert len(copies) == count > 100


# ---- what users are told ---------------------------------------------------------------------------------------------


def judge(reports: Sequence[Path]) -> JobSummary:
    return add_verdict(summarize_reports(reports, IN_STEPS))


def split_time(summary: JobSummary) -> dict[str, int]:
    """Return compute, communication and the rest of the time of all GPUs in the steps (ns)."""
    losses = Case(summary).losses
    assert losses is not None
    communication = losses.waiting_ns + losses.moving_ns + losses.not_split_ns
    return {"compute": losses.compute_ns, "communication": communication, "copies": losses.memory_ns}


@pytest.mark.parametrize(
    ("statements", "bottleneck", "where"),
    [
        (RENAMED, "unclassified communication", "`cross_device_reduce_2stage`, nearly all communication time"),
        (as_copies(PEER_TO_PEER, *BETWEEN), "exposed transfer", "20 AllReduce operations per rank and step"),
        ([*as_copies(PEER_TO_PEER, *BETWEEN), *NO_RANGES], "exposed transfer", "Memcpy peer to peer "),
    ],
)
def test_the_answer_is_exposed_communication(
    tmp_path: Path, statements: Sequence[str], bottleneck: str, where: str
) -> None:
    """The times are those of the unchanged sample; only whether ranks wait is not known, or over before copies."""
    summary = judge(change_reports(tmp_path, statements))
    assert split_time(summary) == split_time(judge(REPORTS))
    assert summary.verdict is not None and summary.verdict.bottleneck == bottleneck
    assert any(where in line.text for line in summary.verdict.statements)


@pytest.mark.slow
def test_waits_for_kernels_of_another_library_are_those_for_nccl(tmp_path: Path) -> None:
    """On one node, kernels of which only the order is known wait as NCCL's do, whose calls record communicators."""
    reports = find_set("exercises/ex1a-fast")
    renamed = summarize_reports([changed(report, tmp_path / report.name, RENAMED) for report in reports], IN_STEPS)
    known = summarize_reports(reports, IN_STEPS)
    assert renamed.waits is not None and known.waits is not None
    for found, expected in zip(renamed.waits.ranks, known.waits.ranks, strict=True):
        assert (found.wait_ns, found.exposed_wait_ns) == (expected.wait_ns, expected.exposed_wait_ns)
        assert (found.last, found.caused_wait_ns) == (expected.last, expected.caused_wait_ns)
        assert found.wait_ns > 0


def test_counts_are_per_process_where_ranks_are_unknown(tmp_path: Path) -> None:
    """As of workers that no launcher gave a rank. Each of the four processes has 100 all-reduces in five steps."""
    no_environment = [
        "UPDATE TARGET_INFO_SYSTEM_ENV SET value = '' WHERE name = 'DeviceEnvironment'",
        "DELETE FROM META_DATA_CAPTURE WHERE name LIKE '%ENVIRONMENT_VARIABLE'",
    ]
    summary = judge(change_reports(tmp_path, no_environment))
    assert summary.ranks == 0 and summary.users == ("process", 4)
    assert summary.verdict is not None
    assert any("20 AllReduce kernels per process and step" in line.text for line in summary.verdict.statements)
