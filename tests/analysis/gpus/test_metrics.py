"""Means of GPU metrics against plain SQL, and against loops over each ns of small reports."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.analysis import heat_maps
from nsys2prv_ng.analysis.gpus import metrics
from nsys2prv_ng.analysis.gpus.activity import list_devices
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.runtime.parallel import LocalEngine
from tests.analysis.efficiency.efficiency_reports import ALL_TIME, opened
from tests.conftest import SAMPLES
from tests.report_sets import find_set, sets
from tests.report_truth import Report
from tests.sources.node.test_gpu_metrics import GPU_TYPE, SETS
from tests.sources.small_reports import Rows, export

METRICS = ("A [%]", "B", "Clock [MHz]")


def measure(
    reports: Sequence[Path], selection: Selection | None = None, names: Sequence[str] = METRICS
) -> dict[tuple[str, int, str], float]:
    """Return the means that a heat map of one bin has, by node, GPU and name of the metric."""
    with opened(reports, selection=selection or ALL_TIME) as job:
        devices = list_devices(job).rows
        edges = np.array([job.scope.first - 1, job.scope.last + 1])
        found = heat_maps.sum_metrics(job, lambda name: names.index(name) if name in names else -1, len(names), edges)
    return {
        (devices[row].node, devices[row].gpu.number, name): weighted / ns
        for row, sums in found.items()
        for name, ns, weighted in zip(names, *sums[:, 0].tolist(), strict=True)
        if ns
    }


def read_means(report: Report) -> dict[tuple[str, int, str], float]:
    """Return the same by SQL, for a report whose GPUs no other report samples."""
    values = report.sql("SELECT typeId, metricId, timestamp AS time, value FROM GPU_METRICS")
    names = report.sql("SELECT typeId, metricId, metricName AS name FROM TARGET_INFO_GPU_METRICS")
    name_of = {(t, m): name for t, m, name in zip(names["typeId"], names["metricId"], names["name"], strict=True)}
    last = values.groupby("typeId")["time"].max()
    means = {}
    for (type_id, metric_id), own in values.groupby(["typeId", "metricId"]):
        own = own.sort_values("time", kind="stable")
        time, value = own["time"].to_numpy(np.int64), own["value"].to_numpy(np.int64)
        holds = np.diff(np.append(time, last[type_id]))
        total = math.fsum(v * h for v, h in zip(value.tolist(), holds.tolist(), strict=True))
        name = name_of[type_id, metric_id]
        unit = 10**6 if name.endswith("[MHz]") else 1  # such values are in Hz
        means[report.host, type_id & 0xFF, name] = total / int(holds.sum()) / unit
    return means


@pytest.mark.slow
@pytest.mark.parametrize("name", sets(name for name in SETS if "ddplong" not in name))
def test_means_of_every_gpu(name: str) -> None:
    paths = find_set(name)
    expected = {}
    for report in map(Report, paths):
        if report.has("GPU_METRICS"):
            means = read_means(report)
            assert not set(means) & set(expected)
            expected |= means
    found = measure(paths, names=sorted({name for _, _, name in expected}))
    assert found == pytest.approx(expected, rel=1e-11, abs=0) and found


# ---- small reports ---------------------------------------------------------------------------------------------------


def make_report(path: Path, samples: Sequence[tuple[int, int, int, int | None]]) -> Path:
    """Write a report of samples: time, GPU, metric, value."""
    tables: dict[str, Rows] = {
        "GPU_METRICS": (
            ("timestamp", "typeId", "metricId", "value"),
            [(t, GPU_TYPE + g, m, v) for t, g, m, v in samples],
        ),
        "TARGET_INFO_GPU_METRICS": (
            ("typeId", "metricId", "metricName"),
            [(GPU_TYPE + gpu, m, name) for gpu in range(2) for m, name in enumerate(METRICS)],
        ),
    }
    return export(path, [], tables)


@pytest.mark.slow
def test_a_later_report_fills_gaps(tmp_path: Path) -> None:
    first = make_report(tmp_path / "1.sqlite", [(t, 0, 0, v) for t, v in ((0, 10), (100, 20), (200, 30), (300, 40))])
    again = make_report(tmp_path / "2.sqlite", [(t, 0, 0, v) for t, v in ((250, 999), (1000, 5), (1100, 7))])
    expected = {("host", 0, "A [%]"): (1000 + 2000 + 3000 + 500) / 400}
    assert measure([first, again]) == measure([again, first]) == expected


@pytest.mark.slow
def test_the_same_report_twice_counts_once(tmp_path: Path) -> None:
    samples = [(t, 0, 0, t // 7 % 5) for t in range(0, 500, 10)]
    reports = [make_report(tmp_path / f"{n}.sqlite", samples) for n in range(2)]
    assert measure(reports) == measure(reports[:1])


def test_values_that_are_missing(tmp_path: Path) -> None:
    """The value before one that is NULL holds on, and a metric with one value at the last sample holds at no time."""
    samples = [(0, 0, 0, 10), (0, 0, 1, None), (100, 0, 0, 20), (100, 0, 1, 4), (200, 0, 1, None), (300, 0, 0, 40)]
    found = measure([make_report(tmp_path / "a.sqlite", [*samples, (300, 0, 2, 5)])])
    assert found == {("host", 0, "A [%]"): pytest.approx(5000 / 300), ("host", 0, "B"): 4}


@pytest.mark.parametrize("window", [None, (35, 160)])
def test_means_are_those_of_single_ns(tmp_path: Path, window: tuple[int, int] | None) -> None:
    rng = random.Random(3)
    samples = [
        (time, gpu, metric, rng.randrange(10**6, 3 * 10**9))
        for gpu in range(2)
        for time in sorted({0, *rng.sample(range(1, 200), 20)})
        for metric in range(3)
        if rng.random() < 0.8 or not time
    ]
    low, high = window or (0, 200)
    found = measure([make_report(tmp_path / "a.sqlite", samples)], window and Selection(window=window))
    for gpu in range(2):
        inside = [(t, metric, value) for t, g, metric, value in samples if g == gpu and low <= t <= high]
        last = max(t for t, *_ in inside)
        for metric, name in enumerate(METRICS):
            own = {t: value / (10**6 if metric == 2 else 1) for t, m, value in inside if m == metric}
            at = [own[max(t for t in own if t <= ns)] for ns in range(min(own), last)]
            assert found["host", gpu, name] == pytest.approx(math.fsum(at) / len(at), rel=1e-12)


@pytest.mark.slow
def test_reports_without_metrics() -> None:
    assert measure([SAMPLES / "mpi-4.rank0.sqlite"]) == {}


@pytest.mark.parametrize("ranks", [(0,), (0, 2)])
def test_workers_share_the_gpus_of_a_report(ranks: Sequence[int]) -> None:
    """The same values, in the same order."""
    found = []
    with opened([SAMPLES / f"ddp-2x2.rank{rank}.sqlite" for rank in ranks]) as job:
        for workers in (1, 8):
            shared = replace(job, engine=LocalEngine(workers))
            pieces = metrics.split_sampled(shared)
            assert [[report.rows.size for report in group] for group in pieces] == (
                [[2]] * len(ranks) if workers == 1 else [[1]] * 2 * len(ranks)
            )
            edges = np.linspace(job.scope.first, job.scope.last, 9, dtype=np.int64)
            held = heat_maps.sum_metrics(shared, lambda name: len(name) % 3 - 1, 2, edges)
            found.append([(row, sums.tolist()) for row, sums in held.items()])
    assert found[0] == found[1] and len(found[0]) == 2 * len(ranks)
