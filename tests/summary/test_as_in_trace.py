"""The numbers are those of the trace: of its events, and of what presets show of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from nsys2prv_ng.options.kinds import parse_window
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from nsys2prv_ng.summary.answer.answer import add_verdict
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.translate import translate
from tests.cfgs.recorded import Shown, show
from tests.summary.made import summarize_reports
from tests.tiers import cases
from tests.trace_reader import Trace, pair_intervals, read_trace

pytestmark = pytest.mark.slow  # translates whole jobs

KERNEL, NCCL_KERNEL, GRAPH, MEMORY, BYTES, ACTIVITY = 63000006, 63000007, 63000008, 63000001, 63000002, 63000400
MEMORY_KINDS = 63000210, 63000211
CHOICES = {
    "all": Selection(window=(None, None)),
    "time": Selection(window=parse_window("1.3s:1.8s")),
    "ranges": Selection(nvtx_range="step 4"),
    "ranks": Selection(window=(None, None), ranks=frozenset({1, 2})),
}


@dataclass(frozen=True)
class Both:
    trace: Trace
    found: JobSummary

    def preset(self, name: str) -> Shown:
        return show(name, self.trace)

    @property
    def tasks(self) -> list[int]:
        """Task, from 0, of each GPU."""
        return [self.trace.names["TASK"].index(gpu.tasks[0]) for gpu in self.found.gpus]


@pytest.fixture(scope="module", params=cases(CHOICES, push=["all"]))
def both(request: pytest.FixtureRequest, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Both:
    reports = sorted(samples.glob("ddp-2x2.rank*.sqlite"))
    output = tmp_path_factory.mktemp("trace") / "trace.prv"
    selection = CHOICES[request.param]
    source_options = SourceOptions(nvtx_range=selection.nvtx_range)
    summary = translate(
        reports, output, TranslationPlan(selection=selection, source_options=source_options, summary=True)
    )
    found = summarize_reports(reports, selection)
    assert summary.summary == add_verdict(found), "by itself and with a translation"
    return Both(read_trace(output), found)


def test_time_0_and_length_are_those_of_the_trace(both: Both) -> None:
    """Unless all is shown, which begins with the first event of the kinds that are read."""
    assert both.found.duration_ns <= both.trace.duration
    if both.found.windows_ns:
        low, high = both.found.windows_ns[0][0], both.found.windows_ns[-1][1]
        assert (low, min(high, both.found.duration_ns)) == (1, both.trace.duration)


def test_time_in_each_activity_is_what_the_presets_show(both: Both) -> None:
    active = both.preset("analysis/gpu_active").windows[-1].bursts
    useful = both.preset("analysis/gpu_useful").windows[-1].bursts
    gaps = both.preset("analysis/gpu-gaps").windows[-1].bursts
    windows = both.preset("analysis/overlap-communication-compute-2dh-timeline").windows
    overlap = next(window for window in windows if window.level == "thread").bursts
    rows = [i for i, name in enumerate(both.trace.names["THREAD"]) if name.startswith("Metrics GPU")]
    assert len(both.tasks) == len(set(both.tasks)) == len(both.found.gpus)
    for gpu, task in zip(both.found.gpus, both.tasks, strict=True):

        def length(bursts, at=task):  # type: ignore[no-untyped-def]
            mine = bursts[(bursts["object"] == at) & (bursts["value"] != 0)]
            return mine["end"] - mine["begin"]

        assert length(active).sum() == gpu.busy_ns
        assert length(useful).sum() == gpu.compute_ns
        assert sorted(length(gaps)) and len(length(gaps)) == gpu.gaps
        assert (length(gaps).sum(), length(gaps).max()) == (gpu.idle_ns, gpu.longest_gap_ns)
        [row] = [row for row in rows if both.trace.task_of_row[row] - 1 == task]
        assert length(overlap[overlap["value"].isin((3, 7))], row).sum() == gpu.overlap_ns
        assert length(overlap[overlap["value"].isin((2, 3, 6, 7))], row).sum() == gpu.communication_ns


def test_kernels_and_copies_are_the_intervals_of_the_trace(both: Both) -> None:
    kernels: Counter[tuple[str, str]] = Counter()
    for event_type in (KERNEL, NCCL_KERNEL):
        found = pair_intervals(both.trace, event_type)
        for name, length in zip(
            both.trace.get_labels(event_type, found["value"]), found["end"] - found["begin"], strict=True
        ):
            kernels[name, "count"] += 1
            kernels[name, "ns"] += length
    told: Counter[tuple[str, str]] = Counter()
    for kernel in both.found.kernels:
        told[kernel.name, "count"] += kernel.count
        told[kernel.name, "ns"] += kernel.total_ns
    assert told == kernels
    names = both.trace.names["TASK"]
    of_task: Counter[tuple[str, str]] = Counter()
    for event_type in (KERNEL, NCCL_KERNEL):
        found = pair_intervals(both.trace, event_type)
        tasks = [names[both.trace.task_of_row[row] - 1] for row in found["row"]]
        labels = both.trace.get_labels(event_type, found["value"])
        for name, task, length in zip(labels, tasks, found["end"] - found["begin"], strict=True):
            of_task[name, task] += length
    for kernel in both.found.kernels:
        if told[kernel.name, "count"] == kernel.count:  # of one class
            assert kernel.busiest_ns == of_task[kernel.name, kernel.busiest_task]
            assert kernel.busiest_ns == max(ns for (name, _), ns in of_task.items() if name == kernel.name)

    found = pair_intervals(both.trace, MEMORY)
    found["bytes"] = found["line"].map(both.trace.get_attribute(BYTES))
    found["name"] = both.trace.get_labels(MEMORY, found["value"])
    found["ns"] = found["end"] - found["begin"]
    expected = {
        name: (len(part), int(part["ns"].sum()), int(part["bytes"].sum())) for name, part in found.groupby("name")
    }
    assert {m.operation: (m.count, m.total_ns, m.bytes) for m in both.found.memory_operations} == expected
    kinds = {1: "Pageable", 2: "Pinned", 3: "Device", 5: "Managed", 6: "Device static", None: ""}
    by_memory: Counter[tuple[str, str, str]] = Counter()
    source, destination = (both.trace.get_attribute(event_type) for event_type in MEMORY_KINDS)
    for line, name, moved in found[["line", "name", "bytes"]].itertuples(index=False):
        by_memory[name, kinds[source.get(line)], kinds[destination.get(line)]] += moved
    told = {(m.operation, k.source, k.destination): k.bytes for m in both.found.memory_operations for k in m.by_memory}
    assert told == by_memory
    for operation in both.found.memory_operations:
        assert operation.count == sum(part.count for part in operation.by_memory)
        assert operation.total_ns == sum(part.total_ns for part in operation.by_memory)


def test_idle_time_has_causes_also_in_windows(both: Both) -> None:
    for gpu in both.found.gpus:
        assert gpu.idle_causes is not None
        assert sum(each.ns for each in gpu.idle_causes) == gpu.idle_ns
        cut = sum(each.gaps for each in gpu.idle_causes if each.cause == "cut")
        assert cut <= len(both.found.windows_ns)


def test_peak_memory_is_the_highest_sum_of_the_levels(both: Both) -> None:
    device_levels = range(66500012, 66500018)
    events = both.trace.events[both.trace.events["type"].isin(device_levels)]
    for gpu, task in zip(both.found.gpus, both.tasks, strict=True):
        mine = events[events["task"] == task + 1]
        mine = mine[[both.trace.names["THREAD"][row].startswith("Metrics GPU") for row in mine["row"]]]
        levels: dict[int, int] = {}
        peak = 0
        for _, at_once in mine.groupby("time"):
            levels.update(zip(at_once["type"], at_once["value"], strict=True))
            peak = max(peak, sum(levels.values()))
        assert gpu.peak_memory_bytes == peak > 0
