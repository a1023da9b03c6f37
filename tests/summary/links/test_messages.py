"""Calls of NCCL without payload: the answer says so, and why kernels are unclassified."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nsys2prv_ng.summary.answer.answer import answer
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.text import format_summary
from tests.conftest import Unpacked
from tests.report_truth import Report
from tests.sources.nccl.nccl_reports import COMMUNICATOR, RANKS, SIZE, Call, Kernel, write_nccl_report
from tests.summary.made import summarize_reports

pytestmark = pytest.mark.slow

NO_PAYLOAD, NO_COUNTERPART = "its NCCL call has no payload", "no report shows its counterpart"


def check_lines(found: JobSummary, reports: str, option: str) -> None:
    """A line of the answer and a warning have the same words, whatever the width."""
    [warning] = (text for text in found.warnings if text.startswith("no payload"))
    assert warning.startswith(f"no payload of NCCL's calls in {reports}: ")
    assert warning.endswith(f"; export with {option}=true")
    assert warning in [line.text for line in answer(found).statements if line.label == "TRUST"]
    for width in (80, 120):
        text = format_summary(found, width)
        assert max(map(len, text.splitlines())) <= width
        assert f" TRUST {warning}" in " ".join(text.split())


@pytest.mark.parametrize(
    ("names", "function", "option"),
    [
        ([f"exercises/ex3a-pp2-plain.rank{rank}" for rank in range(4)], "SendRecv", "--include-json"),
        (["public/mfu_2gpu_before"], "SendRecv", "--include-blobs"),
    ],
)
def test_exports_without_payload(
    shared_reports: Path, unpacked: Unpacked, names: list[str], function: str, option: str
) -> None:
    paths = [unpacked(shared_reports / f"{name}.sqlite") for name in names]
    kernels = 0
    for report in map(Report, paths):
        operations = report.operations[report.operations["table"] == "KERNEL"]
        kernels += int(operations["name"].str.startswith(f"ncclDevKernel_{function}").sum())
    found = summarize_reports(paths)
    assert found.waits is not None and kernels > 60
    assert found.waits.reports_without_payload == len(paths)
    assert found.waits.not_split == {NO_PAYLOAD: kernels}
    text = format_summary(found, 500, details=True)
    assert re.search(rf"^{kernels} of [0-9,]+ kernels? may wait or transfer data", text, re.MULTILINE)
    check_lines(found, "4 of 4 reports" if len(paths) == 4 else "1 of 1 report", option)


@pytest.mark.parametrize("lacking", [1, 0])
def test_one_of_two_reports(tmp_path: Path, lacking: int) -> None:
    """Rank 0 sends to rank 1, which sends to nobody; the kernel of the report with payload has no counterpart."""
    reports = []
    for rank in range(2):
        payload = {} if rank >= 2 - lacking else {COMMUNICATOR: 5, SIZE: 64, "Peer rank": 1 - rank}
        calls = [Call(1, 2, "ncclCommInitRank", {COMMUNICATOR: 5, RANKS: 2, "Rank": rank, "CUDA device": rank})]
        calls.append(Call(10, 20, "ncclSend", payload))
        kernels = [Kernel(100, 200, "ncclDevKernel_SendRecv", 15, device=rank)]
        environment = f"RANK={rank} WORLD_SIZE=2"
        reports.append(write_nccl_report(tmp_path / f"{rank}.sqlite", calls, kernels, environment=environment))
    found = summarize_reports(reports)
    assert found.waits is not None
    assert found.waits.reports_without_payload == lacking
    if lacking:
        assert found.waits.not_split == {NO_PAYLOAD: 1, NO_COUNTERPART: 1}
        check_lines(found, "1 of 2 reports", "--include-json")
    else:
        assert found.waits.not_split == {NO_COUNTERPART: 2}
        assert found.warnings == [] and "payload" not in format_summary(found, details=True)


def test_kernels_of_graphs_lack_no_payload(shared_reports: Path, unpacked: Unpacked) -> None:
    """The other ranks' graphs hide the counterparts of rank 0's kernels."""
    found = summarize_reports(
        [unpacked(shared_reports / f"exercises/tpgraph-1x4.rank{rank}.sqlite") for rank in range(4)]
    )
    assert found.waits is not None
    assert (found.waits.not_split, found.waits.reports_without_payload) == ({NO_COUNTERPART: 512}, 0)
