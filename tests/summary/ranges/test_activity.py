"""What GPU metrics saw while kernels of one class ran, against plain SQL and loops over each sample and kernel."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nsys2prv_ng.html.page import render_page
from nsys2prv_ng.html.summary_sections.contents import make_kernel_section, make_range_section
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.kernels.numbers import KernelActivity, UnitActivity
from nsys2prv_ng.summary.ranges.numbers import RangeNode, list_paths
from nsys2prv_ng.summary.ranges.table import tabulate_kernel_activity, tabulate_range_activity
from nsys2prv_ng.summary.text import format_summary
from nsys2prv_ng.text.layout import format_grid
from tests.conftest import Unpacked
from tests.report_sets import sets
from tests.summary.links.test_counters import ALONE, list_windows, locate
from tests.summary.links.test_counters import SETS as LINKED_GPUS
from tests.summary.made import IN_STEPS, summarize_reports
from tests.summary.ranges.activity_truth import (
    COUNTERS,
    Numbers,
    measure,
    merge,
    read_classes,
    read_paths,
    read_samples,
)
from tests.summary.ranges.test_tree import cut_numbers, read_names

SETS = {**{name: [file] for name, file in ALONE.items()}, "samples/ddp-2x2": LINKED_GPUS["samples/ddp-2x2"]}


def compare(activity: UnitActivity, truth: Numbers) -> None:
    assert (activity.ns, activity.samples) == truth[:2]
    for field in set(COUNTERS.values()):
        mean = truth[2].get(field)
        assert getattr(activity, field) == (None if mean is None else pytest.approx(mean, rel=1e-9))


@pytest.mark.parametrize("name", sets(SETS))
def test_every_class_of_kernels(name: str, samples: Path, shared_reports: Path, unpacked: Unpacked) -> None:
    reports = [locate(samples, shared_reports, unpacked, file) for file in SETS[name]]
    found = summarize_reports(reports, IN_STEPS)
    truth = measure(read_samples(reports), read_classes(reports), list_windows(found))
    assert {each.kernel_class for each in found.activity} == truth.keys()
    assert [each.ns for each in found.activity] == sorted((each.ns for each in found.activity), reverse=True)
    for each in found.activity:
        compare(each, truth[each.kernel_class])
    assert (name == "samples/ddp-2x2") == any(each.kernel_class == "NCCL" for each in found.activity)


@pytest.mark.parametrize("name", sets(SETS))
@pytest.mark.parametrize("chosen", ["all time", "steps"])
def test_every_range(name: str, chosen: str, samples: Path, shared_reports: Path, unpacked: Unpacked) -> None:
    """At each depth, the kernels of each range are a group with those of all ranges within it."""
    reports = [locate(samples, shared_reports, unpacked, file) for file in SETS[name]]
    found = summarize_reports(reports, IN_STEPS if chosen == "steps" else None)
    paths = [() if path == ("",) else path for path in list_paths(found.range_tree)]
    launched = read_paths(reports, {report: read_names(report) for report in reports})
    innermost: dict[object, tuple[str, ...]] = {}
    for path in {path for own in launched.values() for path in own}:
        assert isinstance(path, tuple)
        listed = cut_numbers(path, set(paths))
        while len(listed) > 1 and listed not in paths:
            listed = listed[:-1]
        innermost[path] = listed if listed in paths else ("", "launched in a range that the tree does not have")
    counters, count = read_samples(reports), 0
    for depth in range(1 + max((node.depth for node in found.range_tree), default=0)):
        groups = merge(launched, {path: listed[: depth + 1] for path, listed in innermost.items()})
        truth = measure(counters, groups, list_windows(found))
        for path, node in zip(paths, found.range_tree, strict=True):
            if len(path) == depth + 1 or (not path and not depth):
                assert (node.activity is not None) == (path in truth), path
                if node.activity is not None:
                    compare(node.activity, truth[path])
                    count += bool(path)
    assert count or name != "whatif/w-shapes"


@pytest.mark.slow
def test_what_limits_known_kernels(shared_reports: Path, unpacked: Unpacked) -> None:
    """Large matrix products in BF16 keep tensor cores busy; the optimizer only reads and writes memory."""
    found = summarize_reports([unpacked(shared_reports / "whatif/w-shapes.rank0.sqlite")], IN_STEPS)
    limits = {each.kernel_class: each.limited_by for each in found.activity}
    assert limits["GEMM BF16"] == "tensor cores" and limits["Optimizer"] == "DRAM"
    section = make_kernel_section(found)
    assert section is not None and "hwcounters/tensor_active" in section.presets
    page = render_page(title="", subtitle="", lines=[], warnings=[], sections=[section])
    assert "GPU activity while kernels of one class run" in page and "tensor cores" in page
    assert JobSummary.from_dict(json.loads(json.dumps(found.to_dict()))).activity == found.activity


@pytest.mark.slow
def test_what_limits_known_ranges(shared_reports: Path, unpacked: Unpacked) -> None:
    """The same program: its operators for matrix products, and its optimizer. No line is too long or lacks samples."""
    found = summarize_reports([unpacked(shared_reports / "whatif/w-shapes.rank0.sqlite")], IN_STEPS)
    limits = {node.name: node.activity.limited_by for node in found.range_tree if node.activity is not None}
    assert limits["aten::mm"] == "tensor cores" and limits["optimizer"] == "DRAM"
    assert limits["forward"] == ""  # samples have seen 39% of it
    section = make_range_section(found)
    assert section is not None and "hwcounters/tensor_active" in section.presets
    page = render_page(title="", subtitle="", lines=[], warnings=[], sections=[section])
    assert "GPU activity while kernels launched in one NVTX range run" in page and "tensor cores" in page
    text = format_summary(found, 100, details=True)
    table = text[text.index("GPU activity while kernels launched in one") :].split("\n\n")[0].splitlines()
    assert max(map(len, table)) <= 100 and "samples" in table[2]
    assert JobSummary.from_dict(json.loads(json.dumps(found.to_dict()))).range_tree == found.range_tree


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


@pytest.mark.parametrize(("sampled", "limit"), [(0.49, ""), (0.5, "tensor cores")])
def test_samples_that_see_little_of_the_kernels_tell_no_limit(sampled: float, limit: str) -> None:
    """They are those of long kernels: half of all kernel time in `forward` of w-shapes, but most of its samples."""
    activity = replace(make_activity(tensor_active=66.8, dram_read=16.5, dram_write=8.6), gpu_ns=1_000_000)
    assert replace(activity, ns=int(sampled * 1_000_000)).limited_by == limit


def test_nvlink_has_a_column_if_it_moves_data() -> None:
    """Its cells have the busier direction."""
    idle = make_activity(nvlink_received=0.9, nvlink_transmitted=0.4)
    assert not any("NVLink" in line for line in format_grid(tabulate_kernel_activity([idle]), 100))
    busy = replace(idle, nvlink_transmitted=70.0)
    one_way = replace(idle, nvlink_received=None)
    lines = format_grid(tabulate_kernel_activity([busy, one_way, make_activity()]), 100)
    assert "NVLink" in lines[2] and lines[-1] == "  NVLink: the busier direction"
    assert [line.split()[-1] for line in lines if line.startswith("GEMM")] == ["70.0%", "0.4%", "-"]


def make_node(name: str, gpu_ns: int, activity: UnitActivity | None, depth: int = 0) -> RangeNode:
    zeros = dict.fromkeys(("count", "host_ns", "operations", "own_ns", "unlisted_ns", "least_ns", "most_ns"), 0)
    return RangeNode(name=name, depth=depth, gpu_ns=gpu_ns, activity=activity, **zeros)


def test_ranges_with_little_time_or_no_samples_have_no_row() -> None:
    """Names of ranges are hostile: no control characters reach the terminal."""
    known = make_activity(sm_active=50.0)
    tree = [make_node("step", 95, known), make_node("a\x1b[2Jb", 60, known, 1), make_node("c", 35, None, 1)]
    grid = tabulate_range_activity([*tree, make_node("few", 5, known), make_node("", 0, known)], 0.06)
    assert [str(row[0]) for row in grid.rows] == ["step", "  a [2Jb"]
    assert grid.below[-1] == "2 more ranges with less than 6.0% of GPU time each"
    assert not tabulate_range_activity([make_node("", 5, known)]).rows
    assert not tabulate_range_activity([]).rows


def test_counters_without_samples_are_not_known() -> None:
    rows: Sequence[str] = format_grid(tabulate_kernel_activity([make_activity(sm_active=50.0)]), 100)
    assert [line.split() for line in rows if line.startswith("GEMM")] == [
        ["GEMM", "1", "ns", "5", "50.0%", "-", "-", "-", "-"]
    ]
    assert not tabulate_kernel_activity([]).rows
    assert replace(make_activity(), ns=2).limited_by == ""
