"""What BSC's BasicAnalysis needs from a trace to analyse it as one of nsys's reports.

The rules are facts of its sources, tracemetadata.py and nsys2prvmetrics.py of
github.com/bsc-performance-tools/basicanalysis (tried with the state after 2026.10.05):

- No line of the .pcf is `STATES`, with or without blanks after it, and the .pcf holds `NCCL kernel` or `CUDA memcpy
  kernel`. Otherwise the trace counts as one of Extrae, in mode `Detailed`, without any metric of a GPU.
- A row is a stream if its label is `CUDA-D<gpu>.S<stream>`. A text after a hyphen is taken for the name of a node,
  which would put `CUDA-D0.S7-2` on a GPU of its own.
- A row has metrics of a GPU if its label is `Metrics GPU<gpu>`. All other rows of a task with streams are host threads.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nsys2prv_ng.paraver.checker.trace import check_trace
from nsys2prv_ng.paraver.labels import read_kept_labels
from nsys2prv_ng.translation.translate import translate
from tests.conftest import SAMPLES
from tests.sources.small_reports import PROCESS, export
from tests.trace_reader import Trace, read_trace

STATES_OF_EXTRAE = re.compile(r"^STATES\s*$", re.MULTILINE)
LABELS_OF_NSYS = ("NCCL kernel", "CUDA memcpy kernel")
STREAM = re.compile(r"CUDA-D(\d+)\.S(\d+)")
GPU_METRICS = re.compile(r"Metrics GPU(\d+)")
NCCL_KERNEL, GPU_ACTIVITY = 63000007, 63000400

KERNELS = ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "shortName", "demangledName")


def assert_recognised(trace: Trace) -> None:
    """BasicAnalysis takes the trace for one of nsys's, and this program's checker takes it for a whole one."""
    pcf = trace.path.with_suffix(".pcf").read_text()
    assert not STATES_OF_EXTRAE.search(pcf)
    assert pcf.startswith(" STATES\n0 Idle\n1 Running\n")
    assert any(label in pcf for label in LABELS_OF_NSYS)
    assert re.findall(r"^0 63000007 .*$", pcf, re.MULTILINE) == ["0 63000007 NCCL kernel"]
    for label in trace.names["THREAD"]:
        assert STREAM.fullmatch(label) or not label.startswith("CUDA-")
        assert GPU_METRICS.fullmatch(label) or not label.startswith("Metrics ")
    assert check_trace(trace.path).problems == []


def made_trace(folder: Path, operations: list[tuple[int, int, int, int, int]]) -> Trace:
    """The trace of a report with kernels of (begin, end, device, context, stream)."""
    rows = [(begin, end, PROCESS, *where, 0, 0) for begin, end, *where in operations]
    report = export(folder / "report.sqlite", ["gemm"], {"CUPTI_ACTIVITY_KIND_KERNEL": (KERNELS, rows)})
    translate([report], folder / "trace.prv")
    return read_trace(folder / "trace.prv")


def stream_labels(trace: Trace) -> list[str]:
    return [label for label in trace.names["THREAD"] if label.startswith("CUDA-")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "devices", "has_nccl"), [("ddp-2x2", 4, True), ("mpi-4", 4, False), ("single-graph", 1, False)]
)
def test_samples_are_recognised(tmp_path: Path, job: str, devices: int, has_nccl: bool) -> None:
    translate(sorted(SAMPLES.glob(f"{job}*.sqlite")), tmp_path / "trace.prv")
    trace = read_trace(tmp_path / "trace.prv")
    assert_recognised(trace)
    labelled = {
        (trace.nodes[task - 1], match[1])
        for label, task in zip(trace.names["THREAD"], trace.task_of_row, strict=True)
        if (match := STREAM.fullmatch(label))
    }
    assert len(labelled) == devices
    # Without NCCL kernels the type is declared, and has no values.
    assert (NCCL_KERNEL in trace.values) == has_nccl == (NCCL_KERNEL in set(trace.events["type"]))
    assert read_kept_labels(tmp_path / "trace.pcf").types["NCCL kernel"] == NCCL_KERNEL


@pytest.mark.slow
def test_a_compressed_trace_has_the_same_labels(tmp_path: Path) -> None:
    reports = [SAMPLES / "single-graph.sqlite"]
    translate(reports, tmp_path / "plain.prv")
    translate(reports, tmp_path / "small.prv.gz")
    assert (tmp_path / "plain.pcf").read_bytes() == (tmp_path / "small.pcf").read_bytes()


def test_rows_of_one_stream_have_one_label(tmp_path: Path) -> None:
    """Three kernels of a stream that overlap are on three rows."""
    trace = made_trace(tmp_path, [(10, 100, 0, 1, 7), (20, 90, 0, 1, 7), (30, 80, 0, 1, 7), (200, 210, 0, 1, 13)])
    assert stream_labels(trace) == ["CUDA-D0.S7"] * 3 + ["CUDA-D0.S13"]
    assert trace.names["THREAD"][-1] == "Metrics GPU0"
    assert_recognised(trace)


def test_streams_of_further_contexts_have_numbers_of_their_own(tmp_path: Path) -> None:
    """The lowest context keeps the number; another has 1000 times the stream plus the context, or the next free one."""
    streams = [(1, 7), (2, 7), (3, 7), (2, 13), (3, 7003), (1, 0), (7, 0)]
    kernels = [(100 * i, 100 * i + 50, 0, context, stream) for i, (context, stream) in enumerate(streams)]
    overlapping = (110, 120, 0, 2, 7)
    trace = made_trace(tmp_path, [*kernels, overlapping])
    # In the order of rows: by stream, context and lane. 7 and 7003 are numbers of streams, so 0 and 7 of other contexts
    # get the next ones.
    assert stream_labels(trace) == [f"CUDA-D0.S{number}" for number in (0, 8, 7, 7002, 7002, 7004, 13, 7003)]
    assert_recognised(trace)


@pytest.mark.slow
def test_a_number_of_another_gpu_is_no_clash(tmp_path: Path) -> None:
    trace = made_trace(tmp_path, [(10, 20, 0, 1, 7), (10, 20, 1, 2, 7)])
    assert stream_labels(trace) == ["CUDA-D0.S7", "CUDA-D1.S7"]
    assert [label for label in trace.names["THREAD"] if label.startswith("Metrics")] == ["Metrics GPU0", "Metrics GPU1"]
    assert_recognised(trace)


def test_activity_0_has_a_label_and_is_no_end_of_an_interval(tmp_path: Path) -> None:
    """GPUs go from one activity to the next, and to 0 after the last operation: the checker must not count openings."""
    trace = made_trace(tmp_path, [(10, 20, 0, 1, 7), (30, 40, 0, 1, 7)])
    activity = trace.events[trace.events["type"] == GPU_ACTIVITY]
    assert trace.get_labels(GPU_ACTIVITY, activity["value"]) == ["Compute", "Idle", "Compute", "Nothing recorded"]
    assert_recognised(trace)
