"""Numbers that presets show for kinds of event that the captures of test_numbers.py do not have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsys2prv_ng.sources.shared.source_options import SourceOptions
from tests.cfgs.recorded import Shown, show
from tests.conftest import REPORTS, REPOSITORY
from tests.report_truth import Report
from tests.sources.small_reports import MAIN, WORKER, export, translate_reports

pytestmark = pytest.mark.slow  # translates whole jobs

MESSAGES = ("start", "end", "globalTid", "textId", "bufferAddr", "packedSize", "peerWorkerUid", "tag")


def select_nonzero(shown: Shown, name: str) -> pd.DataFrame:
    """Return the bursts of a window that are not 0, with their length (ns)."""
    (window,) = (window for window in shown.windows if window.name == name)
    bursts = window.bursts[window.bursts["value"] != 0]
    return bursts.assign(length=bursts["end"] - bursts["begin"])


def test_transfers_at_a_time_add_up_to_their_durations(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    begin = np.sort(random.integers(0, 5000, 200))
    end = begin + random.integers(1, 150, 200)
    thread = np.where(random.random(200) < 0.5, MAIN, WORKER)
    rows = [(int(b), int(e), int(t), 0, 0, 8, None, None) for b, e, t in zip(begin, end, thread, strict=True)]
    report = export(tmp_path / "a.sqlite", ["ucp_tag_send_nbx"], {"UCP_PROGRESS_EVENTS": (MESSAGES, rows)})
    trace, _ = translate_reports([report], tmp_path / "x.prv", "ucx")
    bursts = select_nonzero(show("basics/ucx", trace), "Concurrent UCX transfers")
    time = (bursts["value"] * bursts["length"]).groupby(bursts["object"]).sum()
    assert time.to_dict() == {row: (end - begin)[thread == tid].sum() for row, tid in enumerate((MAIN, WORKER))}


def test_openacc_shows_the_innermost_event(tmp_path: Path) -> None:
    columns = ("start", "end", "globalTid", "eventKind", "bytes")
    rows = [(10, 100, MAIN, 11, 0), (20, 50, MAIN, 5, 64), (200, 300, MAIN, 12, 0)]
    report = export(tmp_path / "a.sqlite", [], {"CUPTI_ACTIVITY_KIND_OPENACC_DATA": (columns, rows)})
    trace, _ = translate_reports([report], tmp_path / "x.prv", "openacc")
    bursts = select_nonzero(show("basics/openacc", trace), "OpenACC data")
    assert [(b.begin + 10, b.end + 10, b.value) for b in bursts.itertuples()] == [
        (10, 20, 11),
        (20, 50, 5),
        (50, 100, 11),
        (200, 300, 12),
    ]


def test_system_calls_and_video_calls_by_name(tmp_path: Path) -> None:
    calls = ("start", "end", "globalTid", "nameId")
    tables = {
        "SYSCALL": (calls, [(10, 30, MAIN, 0)]),
        "NVVIDEO_ENCODER_API": (calls, [(40, 60, MAIN, 1)]),
        "NVVIDEO_DECODER_API": (calls, [(70, 75, MAIN, 1)]),
        "NVVIDEO_JPEG_API": (calls, [(80, 90, MAIN, 1)]),
    }
    report = export(tmp_path / "a.sqlite", ["futex", "call"], tables)
    trace, _ = translate_reports([report], tmp_path / "x.prv", "system_calls,video", SourceOptions(osrt_min=0))
    video = show("basics/video", trace)
    for shown, name, begin, end in (
        (show("basics/system_calls", trace), "System calls", 10, 30),
        (video, "Video encoder calls", 40, 60),
        (video, "Video decoder calls", 70, 75),
        (video, "JPEG calls", 80, 90),
    ):
        bursts = select_nonzero(shown, name)
        assert [(b.begin + 10, b.end + 10, b.value) for b in bursts.itertuples()] == [(begin, end, 1)]


def test_page_faults_and_contexts_of_a_real_report(tmp_path: Path) -> None:
    path = REPORTS / "gpu/um-1.sqlite"
    trace, _ = translate_reports([path], tmp_path / "x.prv", "unified_memory,gpu_contexts")
    report = Report(path)
    faults = report.sql("SELECT start, numberOfPageFaults AS n FROM CUDA_UM_GPU_PAGE_FAULT_EVENTS ORDER BY start")
    rates = select_nonzero(show("basics/unified_memory", trace), "GPU page faults [1/us]")
    # The rate of a group of faults lasts from the group before to this one, that of the first from the start of the
    # trace. Among groups that start at the same time Paraver sees the last one.
    expected = faults.groupby("start")["n"].last().sum()
    assert (rates["value"] * rates["length"] / 1000).sum() == pytest.approx(expected)
    contexts = select_nonzero(show("basics/gpu_contexts", trace), "GPU contexts")
    assert set(contexts["value"]) <= set(trace.values[63000250])
    turns = report.sql("SELECT tag, timestamp FROM GPU_CONTEXT_SWITCH_EVENTS WHERE tag IN (7, 8)")
    assert len(turns) and contexts["length"].sum() <= turns["timestamp"].max() - turns["timestamp"].min()


def test_peak_of_the_device_memory_of_each_rank(tmp_path: Path) -> None:
    reports = [REPOSITORY / f"samples/ddp-2x2.rank{rank}.sqlite" for rank in range(4)]
    trace, _ = translate_reports(reports, tmp_path / "x.prv", "kernels,cuda_memory")
    (histogram,) = show("views/memory_level", trace).histograms
    expected = []
    for report in reports:
        changes = Report(report).sql(
            """SELECT start, CASE memoryOperationType WHEN 0 THEN bytes ELSE -bytes END AS bytes
            FROM CUDA_GPU_MEMORY_USAGE_EVENTS WHERE memKind = 2 ORDER BY start"""
        )
        expected.append(changes.groupby("start")["bytes"].sum().cumsum().max() / 2**20)
    assert trace.names["TASK"] == [f"rank {rank}" for rank in range(4)] and min(expected) > 1000
    assert histogram.cells.max(axis=1).tolist() == pytest.approx(expected, rel=1e-12)
