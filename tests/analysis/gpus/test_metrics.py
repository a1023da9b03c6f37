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
from nsys2prv_ng.analysis.gpus.metrics import PartsOfTime, SampleColumns, Samples, add_samples, measure_gpu_metrics
from nsys2prv_ng.paraver.families import make_gpu_metric
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.runtime.parallel import LocalEngine
from tests.analysis.efficiency.efficiency_reports import ALL_TIME, opened
from tests.conftest import SAMPLES
from tests.report_sets import find_set, sets
from tests.report_truth import Report
from tests.sources.node.test_gpu_metrics import GPU_TYPE, SETS
from tests.sources.small_reports import Rows, export

Numbers = tuple[float, float, float, int]
"""Mean, least and largest value, number of samples."""


def measure(reports: Sequence[Path], selection: Selection | None = None) -> dict[tuple[str, int, str], Numbers]:
    """Return what the package finds, by node, GPU and name of the metric."""
    with opened(reports, selection=selection or ALL_TIME) as job:
        devices = list_devices(job).rows
        found = measure_gpu_metrics(job)
        keys = [(devices[s.row].node, devices[s.row].gpu.number, s.event_type.member) for s in found]
        titles = [(s.row, s.event_type.label, s.event_type.unit) for s in found]
    assert titles == sorted(set(titles))
    return {key: (s.mean, s.low, s.high, s.samples) for key, s in zip(keys, found, strict=True)}


def read_means(report: Report) -> dict[tuple[str, int, str], Numbers]:
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
        numbers = total / int(holds.sum()) / unit, int(value.min()) / unit, int(value.max()) / unit, len(own)
        means[report.host, type_id & 0xFF, name] = numbers
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
    found = measure(paths)
    assert found.keys() == expected.keys() and found
    for key, (mean, *others) in expected.items():
        assert found[key][0] == pytest.approx(mean, rel=1e-11, abs=0), key
        assert list(found[key][1:]) == others, key


# ---- small reports ---------------------------------------------------------------------------------------------------

METRICS = ("A [%]", "B", "Clock [MHz]")


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
    expected = {("host", 0, "A [%]"): ((1000 + 2000 + 3000 + 500) / 400, 5, 40, 6)}
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
    assert found == {("host", 0, "A [%]"): (5000 / 300, 10, 40, 3), ("host", 0, "B"): (4, 4, 4, 1)}


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
            mean, *others = found["host", gpu, name]
            assert mean == pytest.approx(math.fsum(at) / len(at), rel=1e-12)
            assert others == [min(own.values()), max(own.values()), len(own)]


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
            found.append((measure_gpu_metrics(shared), [(row, sums.tolist()) for row, sums in held.items()]))
    assert found[0] == found[1] and len(found[0][1]) == 2 * len(ranks)


@pytest.mark.parametrize("seed", range(20))
def test_parts_of_time_and_windows_against_a_loop(seed: int) -> None:
    """Values that are missing at some samples, or twice at one, hold for other times than the rest of the sample."""
    rng = random.Random(seed)
    kinds = [make_gpu_metric(f"{name} [%]", n) for n, name in enumerate("ABC")]
    samples = [[m for m in (0, 0, 1, 2) if rng.random() < 0.8] for _ in range(60)]
    samples[40] = []  # lost
    metric = [m for sample in samples for m in sample]
    value = [rng.randrange(100) for _ in metric]
    first = np.cumsum([0, *map(len, samples)])
    begins = [n in (0, 25) for n in range(60)]
    windows = [(5, 33), (34, 38), (150, 255), (260, 445)][: seed % 5]
    parts = [
        PartsOfTime("a", lambda kind: kind is not kinds[1], lambda _, low, __: low // 10 % 4 - 1),
        PartsOfTime("b", lambda kind: kind is kinds[1], lambda _, low, high: np.where(low + 10 == high, 7, -1)),
    ]
    columns = SampleColumns(
        np.arange(60) * 10, first, np.array(metric, np.int32), np.array(value), np.arange(60), np.array(begins)
    )
    found: metrics.MetricsByRow = {}
    add_samples(found, Samples(3, kinds, columns), np.array([0, 0, -1]), windows, parts)

    sums: dict[tuple[int, str, int], list[list[int]]] = {}
    words = [(n, m) for n, sample in enumerate(samples) for m in sample]
    for word, (n, m) in enumerate(words):
        last = 24 if n < 25 else 59
        until = next((later for later, other in words[word + 1 :] if other == m and later <= last), last)
        low, high = 10 * n, 10 * until
        is_a, is_b = m == 0 and 0 < high - low <= 20 and n % 4 > 0, m == 1 and high - low == 10
        inside = [min(high, b) - max(low, a) for a, b in windows or [(0, 600)] if a <= high and b >= low]
        if pieces := [ns for ns in inside if ns > 0 or low == high]:
            for key in [("", 0), *([("a", n % 4 - 1)] * is_a), *([("b", 7)] * is_b)]:
                sums.setdefault((m, *key), []).append([value[word] * sum(pieces), sum(pieces), 1, value[word]])
    expected = {key: tuple(map(sum, zip(*rows, strict=True)))[:3] for key, rows in sums.items() if key[0] < 2}
    actual = {}
    for total in found.values():
        m = kinds.index(total.event_type)
        own = [row[3] for row in sums[m, "", 0]]
        assert (total.row, total.low, total.high) == (3, min(own), max(own))
        for key, each in {("", 0): total, **total.covered}.items():
            actual[(m, *key)] = (each.weighted, each.ns, each.samples)
    assert actual == expected and len(expected) > 3
