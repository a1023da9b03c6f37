"""Activity by kernel class and range where the report is not complete, or hides something: planted, and by loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.analysis.gpus.metrics import PartsOfTime, SampleColumns, Samples, add_samples
from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.paraver.families import make_gpu_metric
from nsys2prv_ng.reading.open_reports import ReadOptions, Selection
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.registry import select_sources
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.kernels.numbers import UnitActivity
from nsys2prv_ng.summary.ranges import activity as kernel_activity
from nsys2prv_ng.summary.ranges.table import tabulate_range_activity
from nsys2prv_ng.summary.summarize import compute_summary
from tests.analysis.efficiency.efficiency_reports import opened
from tests.sources.nccl.nccl_reports import Call, Kernel
from tests.summary.made import summarize_reports
from tests.summary.pictures.test_measure import draw_metric_maps
from tests.summary.ranges.activity_truth import COUNTERS, Groups, measure
from tests.summary.ranges.planted_activity import (
    GEMM,
    GEMM_CLASS,
    NORM,
    NORM_CLASS,
    Span,
    list_samples,
    list_times,
    shift,
    write_report,
)
from tests.summary.ranges.test_activity import compare, make_activity, make_node
from tests.tiers import cases

pytestmark = pytest.mark.slow

ALL_TIME = [(0, 1 << 62)]


def list_classes(found: JobSummary) -> dict[str, UnitActivity]:
    return {each.kernel_class: each for each in found.activity}


def list_ranges(found: JobSummary) -> dict[str, UnitActivity]:
    return {node.name: node.activity for node in found.range_tree if node.activity is not None}


def check(found: Mapping[str, UnitActivity], times: Sequence[int], groups: Groups, *hidden: str) -> None:
    """Compare with loops over the planted samples; groups with the hidden names have no figures."""
    truth = measure(list_samples(times), groups, ALL_TIME)
    assert found.keys() == {str(name) for name in truth} - set(hidden)
    for name, each in found.items():
        compare(each, truth[name])


@pytest.mark.parametrize("uses_nccl", [False, True])
def test_whole_graphs_are_other_kernels(tmp_path: Path, uses_nccl: bool) -> None:
    """Whether they may contain NCCL or not."""
    times = list_times(0, 2000)
    report = write_report(
        tmp_path / "a.sqlite",
        [Kernel(0, 1000, GEMM, 10), Kernel(1000, 2000, NORM, 20)],
        times,
        graphs=[(0, 400), (1300, 1700)],
        ranges={"gemm": (5, 15), "norm": (18, 25)},
        calls=[Call(0, 1, "ncclAllReduce")] if uses_nccl else [],
    )
    found = summarize_reports([report])
    graphs = [(0, 400), (1300, 1700)]
    check(
        list_classes(found),
        times,
        shift({GEMM_CLASS: [(0, 1000)], NORM_CLASS: [(1000, 2000)], "Opaque CUDA graph": graphs}),
    )
    check(list_ranges(found), times, shift({"gemm": [(0, 1000)], "norm": [(1000, 2000)], "": graphs}))
    assert [each.samples for each in found.activity] == [6, 6]


def test_without_unchanged_samples_nothing_is_known_of_parts_of_time(tmp_path: Path) -> None:
    """A sample that was dropped may be in another part of the time than the one before it."""
    nvlink = next(name for name in COUNTERS if name.startswith("NVLink"))
    kernels = [Kernel(0, 3000, GEMM, 10), Kernel(3000, 6000, "ncclDevKernel_AllReduce", 20)]
    held = write_report(tmp_path / "held.sqlite", kernels, list_times(0, 6000), held=3)
    found, changes = summarize_reports([held]), summarize_reports([held], metrics_changes=True)
    assert {each.kernel_class for each in found.activity} == {GEMM_CLASS, "NCCL"}
    label = nvlink.partition(" [")[0]
    links = [next(each for each in own.link_metrics if each.metric == label) for own in (found, changes)]
    assert [each.nccl_samples for each in links] == [30, 0] and links[1].nccl_percent is None
    assert links[1].percent == pytest.approx(links[0].percent, rel=0.01)
    assert changes.activity == [] and list_ranges(changes) == {}
    other = write_report(tmp_path / "other.sqlite", kernels, list_times(0, 6000))
    assert summarize_reports([other], metrics_changes=True).activity == summarize_reports([other]).activity != []


def test_lost_samples_do_not_count_as_one(tmp_path: Path) -> None:
    """The sample before a gap has no part of the time, though one class runs in all of the gap."""
    times = [*list_times(0, 1000), *list_times(2500, 3000)]
    kernels = [Kernel(0, 2000, GEMM, 10), Kernel(2000, 4000, "ncclDevKernel_AllReduce", 20)]
    gap = [*list_times(0, 1000), *list_times(1900, 3000), *list_times(3900, 4000)]
    for n, own in enumerate((times, gap)):
        found = summarize_reports([write_report(tmp_path / f"{n}.sqlite", kernels, own)])
        classes = list_classes(found)
        at = [(low, high) for low, high in pairwise(own) if high - low == 100]
        assert classes[GEMM_CLASS].ns == sum(high - low for low, high in at if high <= 2000)
        assert classes[GEMM_CLASS].samples == sum(high <= 2000 for _, high in at)
        check(classes, own, shift({GEMM_CLASS: [(0, 2000)], "NCCL": [(2000, 4000)]}))
        in_nccl = sum(low >= 2000 for low, _ in at) if n else 5
        assert {link.nccl_samples for link in found.link_metrics} == {in_nccl}


@pytest.mark.parametrize("name", cases([GEMM, NORM], push=1))
def test_kernels_of_ranks_that_were_not_chosen_are_others(tmp_path: Path, name: str) -> None:
    """They run on the same GPU, also if they are of the same class. Only ranks of both ranges see their activity."""
    times = list_times(0, 3000)
    first = [Kernel(0, 2000, GEMM, 10), Kernel(2000, 3000, NORM, 20)]
    others = [Kernel(500, 1200, name, 10, process=78, stream=8), Kernel(2500, 3000, name, 20, process=78, stream=8)]
    reports = [
        write_report(tmp_path / "0.sqlite", first, times, ranges={"a": (5, 15), "b": (18, 25)}, rank=0),
        write_report(tmp_path / "1.sqlite", others, [], rank=1),
    ]
    found = summarize_reports(reports, Selection(window=(None, None), ranks=frozenset({0})))
    away: list[Span] = [(500, 1200), (2500, 3000)]
    groups = {GEMM_CLASS: [(0, 2000)], NORM_CLASS: [(2000, 3000)], "others": away}
    check(list_classes(found), times, shift(groups), "others")
    check(list_ranges(found), times, shift({"a": [(0, 2000)], "b": [(2000, 3000)], "others": away}), "others")
    assert [each.samples for each in found.activity] == [13, 5]
    alone = summarize_reports(reports[:1])
    assert [each.samples for each in alone.activity] == [20, 10]
    assert [each.samples for each in summarize_reports(reports).activity] == ([20, 5] if name == GEMM else [13, 10])


def test_kernels_that_are_too_short_to_select_are_others(tmp_path: Path) -> None:
    times = list_times(0, 2000)
    kernels = [Kernel(0, 2000, GEMM, 10), Kernel(600, 1200, NORM, 20, stream=8)]
    report = write_report(tmp_path / "a.sqlite", kernels, times)
    found = summarize_reports([report], Selection(window=(None, None), shortest={"kernels": 1000}))
    check(list_classes(found), times, shift({GEMM_CLASS: [(0, 2000)], "others": [(600, 1200)]}), "others")
    assert [each.samples for each in found.activity] == [14]


@pytest.mark.parametrize("ranks", [None, frozenset({0})])
def test_without_the_activity_of_gpus_nothing_is_known_of_a_choice(
    tmp_path: Path, ranks: frozenset[int] | None
) -> None:
    report = write_report(tmp_path / "a.sqlite", [Kernel(0, 2000, GEMM, 10)], list_times(0, 2000), rank=0)
    options = ReadOptions(sources=select_sources(None, derived=False), selection=Selection(ranks=ranks))
    with open_job([report], tmp_path, options, Progress()) as job:
        activity = compute_summary(job).activity
    assert [each.samples for each in activity] == ([20] if ranks is None else [])


def test_counters_have_the_names_of_presets_and_maps(tmp_path: Path) -> None:
    """VRAM is the memory of a GPU, too; of two metrics of a quantity, only the first by name counts."""
    times = list_times(0, 1000)
    known = list(COUNTERS)
    names = [name.replace("DRAM", "VRAM") for name in known]
    more = "Tensor Active / FP16 Active [Throughput %]"
    kernels = [Kernel(0, 1000, GEMM, 10)]
    truth = measure(list_samples(times, known), shift({GEMM_CLASS: [(0, 1000)]}), ALL_TIME)
    for n, own in enumerate((names, [*known, more], [more, *known])):
        report = write_report(tmp_path / f"{n}.sqlite", kernels, times, names=own)
        found = summarize_reports([report])
        if own[0] == more:  # the values of a metric depend on its place
            truth = measure(list_samples(times, own), shift({GEMM_CLASS: [(0, 1000)]}), ALL_TIME)
        activity = list_classes(found)[GEMM_CLASS]
        compare(activity, truth[GEMM_CLASS])
        with opened([report], selection=Selection(window=(None, None))) as job:
            maps = draw_metric_maps(job, np.array([job.scope.first, job.scope.last]))
        assert [maps[key].values[0, 0] for key in ("tensor", "dram")] == pytest.approx(
            [activity.tensor_active, activity.dram]
        )


def test_neither_limits_no_range_around_phases_that_differ() -> None:
    """Half of a step is limited by tensor cores, half by DRAM; a range beside it has no phases."""
    fast = make_activity(tensor_active=90.0, dram_read=5.0, dram_write=5.0)
    slow = make_activity(tensor_active=2.0, dram_read=45.0, dram_write=40.0)
    mixed = make_activity(tensor_active=45.0, dram_read=25.0, dram_write=20.0)
    tree = [
        make_node("step", 100, mixed),
        make_node("forward", 50, mixed, 1),
        make_node("gemm", 40, fast, 2),
        make_node("small", 10, mixed, 2),
        make_node("unknown", 30, None, 1),
        make_node("optimizer", 30, slow, 2),
        make_node("loss", 20, mixed, 1),
        make_node("other", 100, mixed),
        make_node("inner", 50, mixed, 1),
    ]
    rows = tabulate_range_activity(tree, 0.01).rows
    assert {str(row[0]).strip(): row[-1] for row in rows} == {
        "step": "",
        "forward": "",
        "gemm": "tensor cores",
        "small": "neither",
        "optimizer": "DRAM",
        "loss": "neither",
        "other": "neither",
        "inner": "neither",
    }
    # A range that is too small for a row of its own counts as well.
    assert [row[-1] for row in tabulate_range_activity(tree, 0.24).rows] == ["", "", "neither", "neither"]


def test_a_value_that_several_windows_cut_is_one_sample() -> None:
    """It holds for 1000 ns, of which six windows have 50 ns each."""
    kind = make_gpu_metric("SMs Active [Throughput %]", 1)
    first = np.array([0, 1, 2, 3])
    times, value = np.array([0, 1000, 2000]), np.array([50, 20, 20])
    columns = SampleColumns(times, first, np.zeros(3, np.int32), value, np.arange(3), np.array([True, False, False]))
    found: dict[tuple[int, str, str], object] = {}
    part = PartsOfTime("all", lambda _: True, lambda _, begin, __: np.zeros(begin.size, np.int64))
    windows = [(100 * n, 100 * n + 50) for n in range(6)] + [(1500, 1600)]
    add_samples(found, Samples(1, [kind], columns), np.array([0]), windows, [part])  # type: ignore[arg-type]
    [sums] = found.values()
    covered = sums.covered["all", 0]  # type: ignore[attr-defined]
    assert (sums.samples, sums.ns, sums.mean) == (2, 400, (300 * 50 + 100 * 20) / 400)  # type: ignore[attr-defined]
    assert (covered.samples, covered.ns, covered.mean) == (2, 400, (300 * 50 + 100 * 20) / 400)


def test_ranges_are_found_once_for_all_gpus_of_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = list_times(0, 2000)
    kernels = [Kernel(0, 1000 + 100 * gpu, GEMM, 10 + gpu, device=gpu) for gpu in range(4)]
    report = write_report(tmp_path / "a.sqlite", kernels, times, ranges={"a": (5, 30)})
    calls = []
    find_ranges = kernel_activity.find_ranges
    monkeypatch.setattr(kernel_activity, "find_ranges", lambda *each: (calls.append(1), find_ranges(*each))[1])
    found = summarize_reports([report])
    [each] = found.activity
    assert (each.samples, len(calls)) == (10 + 11 + 12 + 13, 1)
