"""CUDA graphs that were traced as a whole, in which NCCL may be: planted, worked out by hand, and by plain SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nsys2prv_ng.analysis.path.critical_path import find_critical_path, load_path_lanes
from nsys2prv_ng.analysis.waits import rules
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.cli.app import app
from nsys2prv_ng.inspection.inspect import inspect
from nsys2prv_ng.job.open_job import Job, open_job
from nsys2prv_ng.paraver.event_types import PATH_COMPUTE, PATH_GRAPH
from nsys2prv_ng.reading.open_reports import ReadOptions, Selection
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.summarize import compute_summary
from nsys2prv_ng.summary.text import format_summary
from tests.analysis.path.path_reports import STREAM_SYNC, Capture
from tests.conftest import Unpacked
from tests.report_truth import Report
from tests.sources.small_reports import translate_reports
from tests.tiers import cases

ACTIVITY, WITH_WAITS = 63000400, 63000413
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
SOURCES = "cuda_api,kernels,memory_operations,cuda_graphs,launch_lines,nccl"
REMEDY = "--cuda-graph-trace=node"


@contextmanager
def opened(reports: Sequence[Path], folder: Path) -> Iterator[Job]:
    with open_job(
        reports, folder, ReadOptions(align="utc", selection=Selection(window=(None, None))), Progress()
    ) as job:
        yield job


def summarise(reports: Sequence[Path], folder: Path) -> JobSummary:
    with opened(reports, folder) as job:
        return compute_summary(job)


def write_one(path: Path, name: str) -> Path:
    """Write a report with a graph, beside it two kernels, of which one has this name, and a copy.

    Graph 1000 to 5000, kernel 2000 to 3000, named kernel 4000 to 6000, copy 6500 to 7000; the capture ends at 10000.
    """
    capture = Capture()
    for stream in (7, 8, 9, 10):
        launch = capture.call("cudaLaunch", 100 * stream, 100 * stream + 50)
        match stream:
            case 7:
                capture.whole_graph(launch, 1000, 5000, stream)
            case 8:
                capture.kernel(launch, 2000, 3000, stream, "ampere_sgemm_128x64_nn")
            case 9:
                capture.kernel(launch, 4000, 6000, stream, name)
            case _:
                capture.copy(launch, 6500, 7000, stream)
    return capture.write(path)


def list_changes(trace: object, number: int) -> list[tuple[int, int]]:
    """Return time and value of the events of a type, from the first of them on."""
    events = trace.events[trace.events["type"] == number]  # type: ignore[attr-defined]
    first = int(events["time"].min())
    return [(int(time) - first, int(value)) for time, value in zip(events["time"], events["value"], strict=True)]


# ---- one GPU ---------------------------------------------------------------------------------------------------------


def test_a_graph_beside_other_operations(tmp_path: Path) -> None:
    report = write_one(tmp_path / "x.sqlite", NCCL)
    summary = summarise([report], tmp_path)
    [gpu] = summary.gpus
    assert (gpu.busy_ns, gpu.compute_ns, gpu.whole_graph_ns, gpu.idle_ns) == (5500, 1000, 4000, 500)
    assert (gpu.communication_ns, gpu.overlap_ns, gpu.memory_ns) == (2000, 0, 500)
    assert summary.efficiency is not None and summary.efficiency.losses is not None
    losses, window = summary.efficiency.losses, summary.efficiency.length_ns
    assert (losses.compute_ns, losses.whole_graph_ns, losses.memory_ns) == (1000, 3000, 500)
    assert losses.waiting_ns + losses.moving_ns + losses.not_split_ns == 1000
    assert losses.compute_by_class == {"GEMM FP32": 1000}
    assert sum(ns for name, ns in vars(losses).items() if name.endswith("_ns")) == window
    as_communication, as_useful = summary.efficiency.nccl_as_communication, summary.efficiency.nccl_as_useful
    assert as_communication.device is not None and as_useful.device is not None
    assert as_communication.device.parallel == pytest.approx(1000 / window)
    assert as_useful.device.parallel == pytest.approx(5000 / window)
    text = " ".join(format_summary(summary).split())
    compute, share = (f"{100 * ns / window:.1f}%" for ns in (1000, 3000))
    assert re.search(rf"\bcompute {compute}", text) and f" opaque CUDA graphs {share} " in text
    assert f"TRUST {share} of GPU time is in opaque CUDA graphs, which may compute, wait or transfer" in text
    assert REMEDY in text


def test_without_nccl_a_graph_computes(tmp_path: Path) -> None:
    summary = summarise([write_one(tmp_path / "x.sqlite", "ampere_sgemm_64x64_nn")], tmp_path)
    [gpu] = summary.gpus
    assert (gpu.busy_ns, gpu.compute_ns, gpu.whole_graph_ns, gpu.communication_ns) == (5500, 5000, 0, 0)
    assert summary.efficiency is not None and summary.efficiency.losses is not None
    losses = summary.efficiency.losses
    assert (losses.compute_ns, losses.whole_graph_ns) == (5000, 0)
    assert losses.compute_by_class == {"Opaque CUDA graph": 4000, "GEMM FP32": 1000}
    text = format_summary(summary, details=True)
    assert "may compute, wait or transfer" not in text and "\n            opaque CUDA graphs" not in text


@pytest.mark.slow
def test_nccl_of_another_report_counts(tmp_path: Path) -> None:
    """What a process captured into a graph may be all that it does with NCCL."""
    other = Capture(1, 2)
    other.kernel(other.call("cudaLaunch", 1500, 1600), 1700, 1800, name=NCCL, device=1)
    reports = [write_one(tmp_path / "x.sqlite", "ampere_sgemm_64x64_nn"), other.write(tmp_path / "y.sqlite")]
    [first, second] = (gpu.whole_graph_ns for gpu in summarise(reports, tmp_path).gpus)
    assert (first, second) == (4000, 0)


def test_activity_in_the_trace(tmp_path: Path) -> None:
    report = write_one(tmp_path / "x.sqlite", NCCL)
    trace, _ = translate_reports([report], tmp_path / "x.prv", SOURCES)
    times = [0, 1000, 2000, 3000, 4000, 5000, 5500, 6000]
    assert list_changes(trace, ACTIVITY) == list(zip(times, [16, 17, 16, 18, 2, 8, 4, 0], strict=True))
    assert list_changes(trace, WITH_WAITS) == [
        (0, 10),
        (1000, 1),
        (2000, 10),
        (4000, 8),
        (5000, 7),
        (5500, 6),
        (6000, 0),
    ]


@pytest.mark.parametrize(("name", "kind"), [(NCCL, PATH_GRAPH), ("other", PATH_COMPUTE)])
def test_critical_path_through_a_graph(tmp_path: Path, name: str, kind: int) -> None:
    capture = Capture()
    capture.kernel(capture.call("cudaLaunchKernel", 1_000, 2_000), 5_000, 9_000, name=name)
    capture.whole_graph(capture.call("cudaGraphLaunch", 3_000, 4_000), 10_000, 80_000)
    capture.sync("cudaStreamSynchronize", 5_000, 81_000, STREAM_SYNC, stream=7)
    with opened([capture.write(tmp_path / "x.sqlite")], tmp_path) as job:
        found = find_critical_path(job, load_path_lanes(job, find_waits(job)))
        assert found is not None
        assert int(found.length[found.kind == kind].sum()) >= 70_000
        assert int(found.length.sum()) == sum(high - low for low, high in found.windows)
        assert PATH_GRAPH + PATH_COMPUTE - kind not in found.kind[found.length == 70_000]


# ---- several ranks ---------------------------------------------------------------------------------------------------


def write_ranks(folder: Path, *, whole: Sequence[int] = ()) -> list[Path]:
    """Write reports of three ranks that launch 12 graphs with an all-reduce; the last to begin is rank 2.

    The graphs of ranks in `whole` were traced as a whole.
    """
    folder.mkdir()
    reports = []
    for rank in range(3):
        capture = Capture(rank, 3)
        for step in range(12):
            zero = 1_000_000 * (step + 1)
            launch = capture.call("cudaGraphLaunch", zero, zero + 1_000)
            begin, end = zero + 10_000 + 100_000 * rank, zero + 300_000
            if rank in whole:
                capture.whole_graph(launch, begin, end, device=rank)
            else:
                capture.kernel(launch, begin, end, name=NCCL, device=rank, node=5)
        reports.append(capture.write(folder / f"rank{rank}.sqlite"))
    return reports


@pytest.mark.slow
def test_kernels_of_graphs_match_by_order_if_none_is_hidden(tmp_path: Path) -> None:
    with opened(write_ranks(tmp_path / "nodes"), tmp_path) as job:
        waits = find_waits(job)
        assert len(job.operations) == 12 and set(job.operations.members.tolist()) == {3}
        assert int(waits.wait.sum()) == 12 * 300_000 and (waits.culprit[waits.wait > 0] >= 0).all()
        assert job.warnings == ()


@pytest.mark.slow
@pytest.mark.parametrize("hidden", cases([2, 0], push=1))
def test_nobody_is_late_where_a_rank_hides_its_kernels(tmp_path: Path, hidden: int) -> None:
    reports = write_ranks(tmp_path / "mixed", whole=[hidden])
    with opened(reports, tmp_path) as job:
        waits = find_waits(job)
        summary = compute_summary(job)
        assert len(job.operations) == 0
        assert waits.row.size == 24 and not waits.wait.any() and (waits.culprit < 0).all()
        assert rules.SPLIT not in waits.verdict
    assert summary.waits is not None and sum(rank.all_caused_ns for rank in summary.waits.ranks) == 0
    assert [gpu.whole_graph_ns for gpu in summary.gpus] == [
        12 * (290_000 - 100_000 * rank) * (rank == hidden) for rank in range(3)
    ]


@pytest.mark.slow
def test_mixed_tracing_is_one_line_in_every_command(tmp_path: Path) -> None:
    reports = write_ranks(tmp_path / "mixed", whole=[0, 1])
    whole = "nsys traced CUDA graphs by node in 1 report and as a whole in 2, where their kernels are not known"
    assert [line for line in summarise(reports, tmp_path).warnings if REMEDY in line] == [
        f"{whole}: capture every rank with {REMEDY} of nsys"
    ]
    assert [line for line in inspect(reports, Progress(), 1).warnings if REMEDY in line] == [
        f"{whole}: capture every rank with {REMEDY} of nsys"
    ]
    _, result = translate_reports(reports, tmp_path / "x.prv", SOURCES)
    assert sum(REMEDY in line for line in result.warnings) == 1
    page, paths = tmp_path / "x.html", [str(report) for report in reports]
    ran = CliRunner().invoke(app, ["summary", *paths, "--html", str(page), "-j", "1"])
    assert ran.exit_code == 0 and f"{whole}: capture" in page.read_text()
    ran = CliRunner().invoke(app, ["compare", *paths, "--", *paths, "-j", "1"])
    assert ran.exit_code == 0 and "traced by node and as a whole: capture every rank with" in " ".join(
        ran.output.split()
    )


@pytest.mark.slow
@pytest.mark.parametrize("whole", [(), (0, 1, 2)])
def test_one_way_of_tracing_is_no_warning(tmp_path: Path, whole: tuple[int, ...]) -> None:
    reports = write_ranks(tmp_path / "alike", whole=whole)
    assert not any(REMEDY in line for line in inspect(reports, Progress(), 1).warnings)
    with opened(reports, tmp_path) as job:
        assert not any(REMEDY in line for line in job.warnings)


# ---- real reports ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_tensor_parallel_decoding(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    reports = [unpacked(shared_reports / f"exercises/tpgraph-1x4.rank{rank}.sqlite") for rank in range(4)]
    table = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
    sums = [0]
    for report in map(Report, reports[1:]):  # the graphs of a rank follow each other on one stream
        [[rows, streams, ns]] = report.sql(
            f'SELECT COUNT(*), COUNT(DISTINCT streamId), SUM("end" - start) FROM {table}'
        ).to_numpy()
        assert (rows, streams) == (64, 1)
        sums.append(int(ns))
    summary = summarise(reports, tmp_path)
    assert [gpu.whole_graph_ns for gpu in summary.gpus] == sums and min(sums[1:]) > 22 * 10**6
    assert [line for line in summary.warnings if REMEDY in line] == [
        "nsys traced CUDA graphs by node in 1 report and as a whole in 3, where their kernels are not known: "
        f"capture every rank with {REMEDY} of nsys"
    ]
    hidden = summary.waits
    assert hidden is not None and [(rank.rank, rank.unsplit_ns > 0) for rank in hidden.ranks] == [
        (0, True),
        (1, False),
        (2, False),
        (3, False),
    ]
