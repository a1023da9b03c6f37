"""Heat maps of GPU metrics: of nodes in large jobs, with gaps between samples, and of NVLink; by SQL and loops."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.analysis.gpus.activity import list_devices
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.html.summary_sections.over_time import make_heat_map_section
from nsys2prv_ng.intervals.bins import make_edges
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.summary.pictures import metric_maps
from nsys2prv_ng.summary.pictures.metric_maps import draw_metrics
from nsys2prv_ng.summary.pictures.numbers import HeatMap, Pictures
from tests.analysis.efficiency.efficiency_reports import ALL_TIME, DDP, opened
from tests.analysis.test_heat_maps import NAMES, average_samples, sum_samples
from tests.conftest import SAMPLES
from tests.report_truth import Report

_BINS = 20
_GPUS = "SELECT DISTINCT typeId & 255 FROM GPU_METRICS"


def draw(job: Job, edges: IntArray) -> dict[str, HeatMap]:
    devices = list_devices(job)
    return {heat.key: heat for heat in draw_metrics(job, devices, edges, lambda row: [f"row {n}" for n in row])}


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
        monkeypatch.setattr(metric_maps, "MOST_ROWS", most)
        maps = draw(job, edges)
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
        maps = draw(job, find_edges(job))
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
        maps = draw(job, edges)
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
        maps = draw(job, edges)
        begins = edges[:-1] + job.alignment.utc_base
    for heat in maps.values():
        assert np.isnan(heat.values[0, begins > last]).all() and (begins > last).sum() >= 3
        assert np.isfinite(heat.values[0]).sum() >= 3
    section = make_heat_map_section(Pictures(begin_ns=0, end_ns=1, heat_maps=[*maps.values()]))
    assert section is not None
    for block in section.blocks:
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
        assert [*draw(job, find_edges(job))] == ["sm", "tensor"]
