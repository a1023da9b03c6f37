"""What a page draws, against plain SQL, loops and the summary."""

from __future__ import annotations

import shutil
import sqlite3
import statistics
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfgs.generate import colours
from nsys2prv_ng.analysis.gpus.activity import list_devices
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.html.summary_sections.over_time import make_heat_map_section
from nsys2prv_ng.intervals.states import make_edges
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.options.kinds import parse_window
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import palette
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.pictures import measure
from nsys2prv_ng.summary.pictures.measure import _choose_slowest, collect_pictures, draw_metrics, make_pace
from nsys2prv_ng.summary.pictures.numbers import HeatMap, Pictures
from nsys2prv_ng.summary.summarize import compute_summary
from tests.analysis.efficiency.efficiency_reports import ALL_TIME, DDP, opened
from tests.analysis.test_heat_maps import NAMES, average_samples, select, sum_samples
from tests.conftest import REPOSITORY, SAMPLES, Unpacked
from tests.report_sets import sets
from tests.report_truth import Report
from tests.steps.step_truth import StepTruth, list_ranges

METRICS = ["sm", "tensor", "dram"]
pytestmark = pytest.mark.slow
Drawn = tuple[Job, Pictures, JobSummary]


@pytest.fixture(scope="module")
def drawn() -> Iterator[Drawn]:
    """Pictures and summary of reports of two nodes."""
    with opened(DDP, "auto", ALL_TIME) as job:
        waits = find_waits(job)
        yield job, collect_pictures(job, waits), compute_summary(job, waits)


def draw(reports: Sequence[Path]) -> Pictures:
    with opened(reports) as job:
        return collect_pictures(job, find_waits(job))


def test_heat_maps(drawn: Drawn) -> None:
    _, pictures, summary = drawn
    maps = {own.key: own for own in pictures.heat_maps}
    assert list(maps) == ["busy", "computing", "moving", "waiting", "not_split", "lateness", *METRICS]
    gpus = [f"rank {gpu.ranks[0]}, {gpu.node} GPU {gpu.gpu}" for gpu in summary.gpus]
    for key, own in maps.items():
        assert own.rows == ([f"rank {n}" for n in range(4)] if key == "lateness" else gpus)
        assert own.values.shape == (4, 1000)
        assert (REPOSITORY / f"cfgs/{own.preset}.cfg").exists()
        if own.unit == "%":
            assert np.nanmin(own.values) >= 0 and np.nanmax(own.values) <= 100
    begin, end = pictures.begin_ns, pictures.end_ns
    assert 0 < begin < end <= summary.duration_ns
    assert max(gpu.span_ns for gpu in summary.gpus) <= end - begin
    for n, gpu in enumerate(summary.gpus):
        # Bins have equal lengths, but those in which the GPU is known in part.
        share = np.nansum(maps["busy"].values[n]) / np.isfinite(maps["busy"].values[n]).sum()
        assert share == pytest.approx(100 * gpu.busy_ns / gpu.span_ns, abs=0.3)


def test_the_step(drawn: Drawn) -> None:
    _, pictures, summary = drawn
    step = pictures.step
    assert step is not None and summary.steps is not None and pictures.pace is not None
    assert step.rows == pictures.heat_maps[0].rows
    assert step.values.max() <= len(step.activities) == 10
    for value, (key, label) in enumerate(step.activities.items(), 1):
        assert palette.ACTIVITIES[key] == colours.GPU_WAITS[value]
        assert label == types.GPU_WAITS[value]
    [number] = np.flatnonzero(pictures.pace.numbers == int(step.name.split()[-1]))
    assert (step.begin_ns, step.end_ns) == (pictures.pace.begin_ns[number], pictures.pace.end_ns[number])
    assert number >= pictures.pace.warmup
    assert [own.label for own in step.ranges] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    for own in step.ranges:
        assert own.bars[0].name == step.name
        assert all(step.begin_ns <= bar.begin_ns < bar.end_ns <= step.end_ns for bar in own.bars)


def test_main_threads_are_below_the_gpus_where_they_call_mpi(samples: Path) -> None:
    """The step has their time in MPI, as the calls in the reports have it, to a bin for each of its limits."""
    reports = sorted(samples.glob("mpi-4*.sqlite"))
    with opened(reports) as job:
        pictures, start = collect_pictures(job, find_waits(job)), job.start_utc
    step = pictures.step
    assert step is not None
    assert step.rows[4:] == [f"rank {n}, main thread" for n in range(4)]
    keys = {own.key for own in pictures.heat_maps if own.rows == step.rows[4:]}
    assert keys >= {"busy", "waiting", "moving"}
    in_mpi = [n for n, key in enumerate(step.activities, 1) if key.startswith("mpi_")]
    length = (step.end_ns - step.begin_ns) / step.values.shape[1]
    for report, values in zip(map(Report, reports), step.values[4:], strict=True):
        calls = read_mpi_calls(report.path) + (report.utc - start)
        calls = np.clip(calls[(calls[:, 1] > step.begin_ns) & (calls[:, 0] < step.end_ns)], step.begin_ns, step.end_ns)
        assert len(calls) > 3
        whole = int((calls[:, 1] - calls[:, 0]).sum())
        assert np.isin(values, in_mpi).sum() * length == pytest.approx(whole, abs=2 * length * len(calls))


def read_mpi_calls(path: Path) -> np.ndarray:
    """Begin and end (ns, on the clock of the report) of the calls of MPI of a process with one thread.

    nsys writes a call that waits for several requests once for each.
    """
    with closing(sqlite3.connect(path)) as file:
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE name LIKE 'MPI_%_EVENTS'")]
        rows = [row for table in tables for row in file.execute(f"SELECT DISTINCT start, end FROM {table}")]
    return np.array(rows, np.int64)


def test_the_pace_is_that_of_each_rank(drawn: Drawn) -> None:
    job, pictures, summary = drawn
    own = pictures.pace
    assert own is not None and summary.steps is not None
    assert (own.name, own.warmup, own.every) == ("step", summary.steps.warmup, 1)
    clocks = {node.name: node.correction for node in job.alignment.nodes}
    begins, ends = [], []
    for task, report in enumerate(map(Report, DDP)):
        alone = StepTruth([report], list_ranges([report], "step"))
        assert (own.ns[task].tolist(), own.numbers.tolist()) == (alone.lengths, alone.numbers)
        clock = clocks[report.host]
        assert not clock.drift
        begins.append(alone.start[0] + clock.offset - job.start_utc)
        ends.append([stop + clock.offset - job.start_utc for stop in alone.stop])
    latest = np.max(ends, axis=0).tolist()
    assert own.end_ns.tolist() == latest
    assert own.begin_ns.tolist() == [min(begins), *latest[:-1]]


def test_a_long_pace_shows_the_slowest_of_each_block(drawn: Drawn, monkeypatch: pytest.MonkeyPatch) -> None:
    job, pictures, _ = drawn
    whole = pictures.pace
    assert whole is not None
    monkeypatch.setattr(measure, "MOST_CELLS", 8)
    monkeypatch.setattr(measure, "_FEWEST_STEPS", 1)
    own = make_pace(job)
    assert own is not None
    assert (whole.warmup, own.warmup, own.every, own.ns.shape) == (1, 1, 3, (4, 3))
    for block, (low, high) in enumerate([(0, 1), (1, 4), (4, 6)]):  # the warm-up has blocks of its own
        longest = whole.ns.max(axis=0)[low:high].tolist()
        at = low + longest.index(max(longest))
        assert own.numbers[block] == whole.numbers[at]
        assert own.ns[:, block].tolist() == whole.ns[:, at].tolist()
        assert own.begin_ns[block] == whole.begin_ns[at]
    # The numbers of a rank are those of all its steps.
    for task, steps in enumerate(whole.ns[:, 1:].tolist()):
        numbers = (own.median_ns[task], own.least_ns[task], own.most_ns[task], own.count)
        assert numbers == (statistics.median(steps), min(steps), max(steps), 5)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 8))
def test_blocks(values: list[int], every: int) -> None:
    blocks = [values[at : at + every] for at in range(0, len(values), every)]
    expected = [n * every + block.index(max(block)) for n, block in enumerate(blocks)]
    assert _choose_slowest(np.array(values, np.int64), every).tolist() == expected


def test_clocks(drawn: Drawn) -> None:
    job, pictures, _ = drawn
    assert pictures.alignment == job.alignment.way
    table = job.alignment.to_dict()["nodes"]
    assert [
        (own.name, own.reference, own.numbers.offset_us, own.numbers.drift_ppm, own.collectives)
        for own in pictures.clocks
    ] == [
        (node["name"], node["reference"], node["offset_us"], node["drift_ppm"], node["collectives"]) for node in table
    ]
    assert all(own.collectives > 0 for own in pictures.clocks) and len(pictures.clocks) == 2


# ---- other jobs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reports", select("cpu/2024.2.3-2node"))
def test_jobs_of_mpi_without_gpus(reports: Sequence[Path]) -> None:
    pictures = draw(reports)
    maps = {own.key: own for own in pictures.heat_maps}
    assert list(maps) == ["busy", "moving", "waiting", "not_split", "lateness"]
    total = sum(maps[key].values for key in ("busy", "moving", "waiting", "not_split"))
    assert np.allclose(total[np.isfinite(total)], 100) and np.isfinite(total).any()
    assert {own.rows == ["rank 0", "rank 1", "rank 2", "rank 3"] for own in maps.values()} == {True}


@pytest.mark.parametrize("name", sets(["cpu/2024.2.3-nvtx_py", "public/mapf_report1", "gpu/oneproc-4gpu"]))
def test_single_reports(name: str, shared_reports: Path, unpacked: Unpacked) -> None:
    pictures = draw([unpacked(shared_reports / f"{name}.sqlite")])
    assert pictures.begin_ns < pictures.end_ns
    if name == "gpu/oneproc-4gpu":
        rows = pictures.heat_maps[0].rows
        assert len(rows) == len(set(rows)) == 4 and all("GPU" in row for row in rows)
    else:
        assert not pictures.heat_maps


@pytest.mark.all_sets
@pytest.mark.parametrize(
    "chosen",
    [Selection(window=(10**9, None)), Selection(skips_warmup=True), Selection()],
    ids=["later", "steps", "nothing"],
)
def test_times_are_those_that_the_option_takes(samples: Path, chosen: Selection) -> None:
    """Whatever time was chosen, the steps are at the same times, and a window of it can be pasted."""
    reports = sorted(samples.glob("ddp-2x2*.sqlite"))
    whole = draw(reports).pace
    with opened(reports, selection=chosen) as job:
        pictures, summary = collect_pictures(job, find_waits(job)), compute_summary(job)
    assert pictures.pace is not None and whole is not None
    assert pictures.pace.begin_ns.tolist() == whole.begin_ns.tolist()
    [low, high] = parse_window(pictures.format_window(*summary.windows_ns[0]))
    with opened(reports, selection=Selection(window=(low, high))) as job:
        start, end = compute_summary(job).windows_ns[0]
        begin = job.start_utc + start
    expected = [summary.start_utc_ns + limit for limit in summary.windows_ns[0]]
    length = expected[1] - expected[0]
    assert [begin, begin + end - start] == pytest.approx(expected, abs=0.02 * length)


_BINS = 20
_GPUS = "SELECT DISTINCT typeId & 255 FROM GPU_METRICS"


def draw_metric_maps(job: Job, edges: IntArray) -> dict[str, HeatMap]:
    devices = list_devices(job)
    return {heat.key: heat for heat in draw_metrics(job, devices, edges)}


def find_edges(job: Job) -> IntArray:
    return make_edges(job.scope.first, job.scope.last, _BINS)


def copy(report: Path, folder: Path, change: str) -> Path:
    """Copy a report with a change of its counters of NVLink that count user data received in requests."""
    target = Path(shutil.copy(report, folder / report.name))
    with closing(sqlite3.connect(target)) as database, database:
        database.execute(change)
    return target


@pytest.mark.slow
@pytest.mark.parametrize(("most", "rows"), [(3, ["gpunode01", "gpunode02"]), (1, ["gpunode01 to gpunode02"])])
def test_many_gpus_have_means_of_nodes(most: int, rows: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(DDP, selection=ALL_TIME) as job:
        edges = find_edges(job)
        monkeypatch.setattr(measure, "MOST_ROWS", most)
        maps = draw_metric_maps(job, edges)
        sums: dict[str, np.ndarray] = {}
        for report in map(Report, DDP):
            for (gpu,) in report.sql(_GPUS).itertuples(index=False) if report.has("GPU_METRICS") else ():
                each = [sum_samples(report, gpu, name, edges, job.alignment.utc_base) for name in NAMES["dram"]]
                group = report.host if most > 1 else "all"
                sums[group] = sums.get(group, 0) + np.array(each)
    assert maps.keys() == {"sm", "tensor", "dram"} and maps["dram"].rows == rows
    for (weighted, ns), values in zip(
        (np.moveaxis(own, 1, 0) for own in sums.values()), maps["dram"].values, strict=True
    ):
        truth = np.where(ns > 0, weighted / np.maximum(ns, 1), np.nan).sum(axis=0)
        assert np.allclose(values, truth, rtol=1e-12, equal_nan=True) and np.isfinite(values).sum() > 3
    assert maps["dram"].about.endswith("Rows are means over GPUs, since the job has 4 GPUs.")


def test_few_gpus_have_a_row_each_and_no_map_of_an_idle_link() -> None:
    with opened([SAMPLES / "single-graph.sqlite"], selection=ALL_TIME) as job:
        maps = draw_metric_maps(job, find_edges(job))
    assert [*maps] == ["sm", "tensor", "dram"]
    assert all(len(heat.rows) == 1 and "Rows are" not in heat.about for heat in maps.values())


def test_nvlink_has_a_map_if_it_moves_data(tmp_path: Path) -> None:
    report = copy(
        SAMPLES / "single-graph.sqlite",
        tmp_path,
        """UPDATE GPU_METRICS SET value = 40 + metricId % 2 WHERE (typeId, metricId) IN (SELECT typeId, metricId FROM
        TARGET_INFO_GPU_METRICS WHERE metricName LIKE 'NVLink RX%User Data [%')""",
    )
    with opened([report], selection=ALL_TIME) as job:
        edges = find_edges(job)
        maps = draw_metric_maps(job, edges)
        truth = Report(report)
        (gpu,) = truth.connection.execute(_GPUS).fetchone()
        names = NAMES["nvlink_received"]
        means = [average_samples(truth, gpu, name, edges, job.alignment.utc_base) for name in names]
    assert [*maps] == ["sm", "tensor", "dram", "nvlink_received"]
    assert np.allclose(maps["nvlink_received"].values, [np.sum(means, axis=0)], rtol=1e-12, equal_nan=True)
    assert 80 <= np.nanmin(maps["nvlink_received"].values) <= np.nanmax(maps["nvlink_received"].values) <= 82


def test_bins_without_samples_are_blank_and_not_zero(tmp_path: Path) -> None:
    """The profiler sampled only the first half."""
    report = copy(
        SAMPLES / "single-graph.sqlite",
        tmp_path,
        "DELETE FROM GPU_METRICS WHERE timestamp > (SELECT (MIN(timestamp) + MAX(timestamp)) / 2 FROM GPU_METRICS)",
    )
    with opened([report], selection=ALL_TIME) as job:
        with closing(sqlite3.connect(report)) as database:
            (last,) = database.execute(
                "SELECT MAX(timestamp) + utcEpochNs FROM GPU_METRICS JOIN TARGET_INFO_SESSION_START_TIME"
            ).fetchone()
        edges = find_edges(job)
        maps = draw_metric_maps(job, edges)
        begins = edges[:-1] + job.alignment.utc_base
    for heat in maps.values():
        assert np.isnan(heat.values[0, begins > last]).all() and (begins > last).sum() >= 3
        assert np.isfinite(heat.values[0]).sum() >= 3
    section = make_heat_map_section(Pictures(begin_ns=0, end_ns=1, heat_maps=[*maps.values()]))
    assert section is not None
    [choice] = section.blocks
    for block in choice.maps:
        assert "not known" in [swatch.text for swatch in block.figure.legend]
        assert [swatch.text for swatch in block.figure.legend][:5] == ["0.0%", "25.0%", "50.0%", "75.0%", "100.0%"]


@pytest.mark.filterwarnings("error")
def test_metrics_of_which_a_part_is_missing_have_no_map(tmp_path: Path) -> None:
    """DRAM is reads and writes, and the report has no writes: nothing is known in any bin."""
    report = copy(
        SAMPLES / "single-graph.sqlite",
        tmp_path,
        """DELETE FROM GPU_METRICS WHERE (typeId, metricId) IN (SELECT typeId, metricId FROM
        TARGET_INFO_GPU_METRICS WHERE metricName LIKE 'DRAM Write%')""",
    )
    with opened([report], selection=ALL_TIME) as job:
        assert [*draw_metric_maps(job, find_edges(job))] == ["sm", "tensor"]
