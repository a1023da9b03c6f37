"""What GPU metrics saw while kernels of one class ran, against plain SQL and loops over each sample and kernel."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from nsys2prv_ng.html.page import render_page
from nsys2prv_ng.html.summary_sections.contents import make_kernel_section
from nsys2prv_ng.sources.cuda.kernel_classes import KERNEL_CLASSES, classify
from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.numbers.kernel_activity import KernelActivity
from nsys2prv_ng.summary.numbers.pictures import Pictures
from nsys2prv_ng.summary.tables.kernel_activity import tabulate_kernel_activity
from nsys2prv_ng.text.layout import format_grid
from tests.conftest import Unpacked, slow_but
from tests.summary.compute.link_metrics_truth import Spans, unite
from tests.summary.compute.test_link_metrics import ALONE, list_windows, locate
from tests.summary.made import IN_STEPS, summarize_reports

COUNTERS = {
    "SMs Active [Throughput %]": "sm_active",
    "SM Issue [Throughput %]": "sm_issue",
    "Tensor Active [Throughput %]": "tensor_active",
    "DRAM Read Bandwidth [Throughput %]": "dram_read",
    "DRAM Write Bandwidth [Throughput %]": "dram_write",
}
_KERNELS = """SELECT s.value, k.start + u.utcEpochNs, k."end" + u.utcEpochNs FROM CUPTI_ACTIVITY_KIND_KERNEL k
    JOIN TARGET_INFO_SESSION_START_TIME u JOIN StringIds s ON s.id = k.demangledName ORDER BY k.start"""
_SAMPLES = """SELECT n.metricName, m.timestamp + u.utcEpochNs, m.value FROM GPU_METRICS m
    JOIN TARGET_INFO_SESSION_START_TIME u JOIN TARGET_INFO_GPU_METRICS n USING (typeId, metricId)
    ORDER BY m.timestamp"""
Means = dict[str, tuple[int, int, dict[str, float]]]
"""Time (ns), samples and mean of each counter, by kernel class."""


def read_kernels(report: Path) -> dict[str, Spans]:
    """Return when kernels of each class run, in UTC."""
    spans: dict[str, Spans] = defaultdict(list)
    with closing(sqlite3.connect(report)) as database:
        rows = database.execute(_KERNELS).fetchall()
    names = sorted({name for name, _, _ in rows})
    classes = dict(zip(names, (KERNEL_CLASSES[number] for number in classify(names)), strict=True))
    for name, begin, end in rows:
        spans[classes[name]].append((begin, end))
    return {name: unite(own) for name, own in spans.items()}


def measure(report: Path, windows: Spans) -> Means:
    """Return what the module promises, by loops."""
    spans = read_kernels(report)
    samples: dict[str, list[tuple[int, int]]] = defaultdict(list)
    with closing(sqlite3.connect(report)) as database:
        for name, time, value in database.execute(_SAMPLES):
            samples[name].append((time, value))
    sums: dict[str, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for name, field in COUNTERS.items():
        first = dict.fromkeys(spans, 0)
        for (begin, value), (end, _) in zip(samples[name], samples[name][1:], strict=False):
            covered = {kind: cover(own, begin, end, first, kind) for kind, own in spans.items()}
            kind = max(covered, key=lambda kind: covered[kind])
            others = max((ns for other, ns in covered.items() if other != kind), default=0)
            if covered[kind] < 0.9 * (end - begin) or others > 0.1 * (end - begin):
                continue
            for low, high in windows:
                if min(end, high) > max(begin, low):
                    sums[kind][field].append((value, min(end, high) - max(begin, low)))
    return {
        kind: (
            sum(ns for _, ns in fields["sm_active"]),
            len(fields["sm_active"]),
            {field: sum(value * ns for value, ns in own) / sum(ns for _, ns in own) for field, own in fields.items()},
        )
        for kind, fields in sums.items()
        if len(fields["sm_active"]) >= 5
    }


def cover(spans: Spans, begin: int, end: int, first: dict[str, int], kind: str) -> int:
    """Return how much (ns) of a time the spans cover. `first`: the first span of each class that may."""
    while first[kind] < len(spans) and spans[first[kind]][1] <= begin:
        first[kind] += 1
    ns, at = 0, first[kind]
    while at < len(spans) and spans[at][0] < end:
        ns += min(spans[at][1], end) - max(spans[at][0], begin)
        at += 1
    return ns


@pytest.mark.parametrize("name", slow_but("samples/single-graph", ALONE))
def test_every_class_of_kernels(name: str, samples: Path, shared_reports: Path, unpacked: Unpacked) -> None:
    report = locate(samples, shared_reports, unpacked, ALONE[name])
    found = summarize_reports([report], IN_STEPS)
    truth = measure(report, list_windows(found))
    assert {each.kernel_class: (each.ns, each.samples) for each in found.activity} == {
        kind: (ns, count) for kind, (ns, count, _) in truth.items()
    }
    assert [each.ns for each in found.activity] == sorted((each.ns for each in found.activity), reverse=True)
    for each in found.activity:
        for field, mean in truth[each.kernel_class][2].items():
            assert getattr(each, field) == pytest.approx(mean, rel=1e-9)


@pytest.mark.slow
def test_what_limits_known_kernels(shared_reports: Path, unpacked: Unpacked) -> None:
    """Large matrix products in BF16 keep tensor cores busy; the optimizer only reads and writes memory."""
    found = summarize_reports([unpacked(shared_reports / "whatif/w-shapes.rank0.sqlite")], IN_STEPS)
    limits = {each.kernel_class: each.limited_by for each in found.activity}
    assert limits["GEMM BF16"] == "tensor cores" and limits["Optimizer"] == "DRAM"
    section = make_kernel_section(found, Pictures(begin_ns=0, end_ns=1))
    assert section is not None and "hwcounters/tensor_active" in section.presets
    page = render_page(title="", subtitle="", lines=[], warnings=[], sections=[section])
    assert "GPU activity while kernels of one class run" in page and "tensor cores" in page
    assert JobSummary.from_dict(json.loads(json.dumps(found.to_dict()))).activity == found.activity


def make_activity(**percents: float | None) -> KernelActivity:
    fields = dict.fromkeys(COUNTERS.values())
    return KernelActivity(kernel_class="GEMM", ns=1, samples=5, **{**fields, **percents})


@pytest.mark.parametrize(
    ("tensor", "read", "write", "limit"),
    [
        (60.0, 30.0, 29.0, "tensor cores"),
        (59.0, 30.0, 29.0, "neither"),
        (59.0, 30.0, 30.0, "DRAM"),
        (61.0, 40.0, 22.0, "DRAM"),
        (None, 90.0, 1.0, ""),
        (90.0, None, 1.0, ""),
    ],
)
def test_the_busier_unit_limits(tensor: float | None, read: float | None, write: float | None, limit: str) -> None:
    assert make_activity(tensor_active=tensor, dram_read=read, dram_write=write).limited_by == limit


def test_counters_without_samples_are_not_known() -> None:
    rows: Sequence[str] = format_grid(tabulate_kernel_activity([make_activity(sm_active=50.0)]), 100)
    assert [line.split() for line in rows if line.startswith("GEMM")] == [
        ["GEMM", "1", "ns", "5", "50.0%", "-", "-", "-", "-"]
    ]
    assert not tabulate_kernel_activity([]).rows
    assert replace(make_activity(), ns=2).limited_by == ""
