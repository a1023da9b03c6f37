"""Presets of GPU metrics by what runs, compared with loops over the samples and kernels of the reports."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from nsys2prv_ng.sources.cuda.kernel_classes import classify
from tests.cfgs import recorded
from tests.cfgs.recorded import Shown
from tests.report_truth import Report
from tests.spans import list_report_sets
from tests.trace_reader import pair_intervals
from tests.translated import SOURCES, Translated, Translations

pytestmark = pytest.mark.slow  # translates whole jobs

PHASE, WAIT, TRANSFER = 63000410, 1, 2
SETS = {
    "samples/ddp-2x2": [f"samples/ddp-2x2.rank{rank}.sqlite" for rank in range(4)],
    "samples/single-graph": ["samples/single-graph.sqlite"],
    "whatif/w-shapes": ["whatif/w-shapes.rank0.sqlite"],
}
METRICS = {
    "SMs active": ("SMs Active [",),
    "SM issue": ("SM Issue [",),
    "Tensor cores active": ("Tensor Active [",),
    "DRAM reads and writes": ("DRAM Read Bandwidth [", "DRAM Write Bandwidth ["),
    "NVLink received": ("NVLink RX Requests User Data [", "NVLink RX Responses User Data ["),
    "NVLink transmitted": ("NVLink TX Requests User Data [", "NVLink TX Responses User Data ["),
    "PCIe received": ("PCIe RX Throughput [",),
    "PCIe transmitted": ("PCIe TX Throughput [",),
}
Pieces = list[tuple[int, int, int]]
"""Begin, end and value, not 0, in the order of time."""


@dataclass(frozen=True)
class Samples:
    """The samples of the GPU of a rank: times (UTC), and the value of each metric at each of them."""

    times: list[int]
    values: dict[str, list[int]]


@pytest.fixture(scope="module", params=list_report_sets(SETS, push=["samples/ddp-2x2"]))  # takes a minute
def translated(request: pytest.FixtureRequest, translations: Translations) -> Translated:
    return translations(request.param, f"{SOURCES},nccl,gpu_metrics")


@pytest.fixture(scope="module")
def samples(translated: Translated) -> dict[int, Samples]:
    """Return the samples of each task. Each task has one GPU."""
    reports = translated.objects.reports
    task_of_gpu = {}
    for index, report in enumerate(reports):
        for process, device in set(zip(report.operations["process"], report.operations["device"], strict=True)):
            uuid = report.find_gpu_uuid(report.find_gpu(process, device))
            task_of_gpu[uuid] = translated.objects.task_of_process[index, process]
    found = {}
    for report, path in zip(reports, translated.reports, strict=True):
        for gpu, own in read_samples(path):
            found[task_of_gpu[report.find_gpu_uuid(gpu)]] = arrange(report, own)
    return found


def read_samples(path: Path) -> Iterator[tuple[int, pd.DataFrame]]:
    """Yield each sampled GPU (nsys's number) of a report, with time, name and value of its samples."""
    with closing(sqlite3.connect(path)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'GPU_METRICS'").fetchone():
            return
        rows = pd.read_sql_query(
            """SELECT m.typeId & 255 AS gpu, m.timestamp AS time, n.metricName AS name, m.value FROM GPU_METRICS m
            JOIN TARGET_INFO_GPU_METRICS n USING (typeId, metricId)""",
            database,
        )
    yield from rows.groupby("gpu")


def arrange(report: Report, rows: pd.DataFrame) -> Samples:
    table = rows.pivot_table(index="time", columns="name", values="value", aggfunc="sum").sort_index()
    (sampled,) = (name for name in table.columns if name.startswith(METRICS["SMs active"]))
    table = table[table[sampled].notna()]  # one metric of single-graph has other times
    values = {}
    for metric, starts in METRICS.items():
        columns = [name for name in table.columns if name.startswith(starts)]
        if columns:
            values[metric] = table[columns].sum(axis=1).astype(int).tolist()
    return Samples([int(time) + report.utc for time in table.index], values)


def sweep(kernels: pd.DataFrame) -> Iterator[tuple[int, int, list[int]]]:
    """Yield begin and end of each piece of time in which the same kernels run, with their indices; none is empty."""
    limits = sorted({*kernels["begin"], *kernels["end"]})
    starts: dict[int, list[int]] = defaultdict(list)
    for index, (begin, end) in enumerate(zip(kernels["begin"], kernels["end"], strict=True)):
        if end > begin:
            starts[begin].append(index)
    ends = kernels["end"].tolist()
    running: list[int] = []
    for low, high in pairwise(limits):
        running = [index for index in running if ends[index] > low] + starts[low]
        if running:
            yield low, high, running


def list_classes_alone(kernels: pd.DataFrame) -> Pieces:
    """Return when one kernel runs alone, with the number of its class; 0 of an opaque graph."""
    kinds = [
        0 if table == "GRAPH_TRACE" else kind for table, kind in zip(kernels["table"], kernels["class"], strict=True)
    ]
    return [(low, high, kinds[own[0]]) for low, high, own in sweep(kernels) if len(own) == 1 and kinds[own[0]]]


def choose(times: list[int], pieces: Pieces, counts: Callable[[dict[int, int], int], int]) -> list[int]:
    """Return, for each sample but the last one, the value that `counts` finds in the time (ns) of each value."""
    chosen, first = [], 0
    for begin, end in pairwise(times):
        while first < len(pieces) and pieces[first][1] <= begin:
            first += 1
        ns: dict[int, int] = defaultdict(int)
        at = first
        while at < len(pieces) and pieces[at][0] < end:
            ns[pieces[at][2]] += min(pieces[at][1], end) - max(pieces[at][0], begin)
            at += 1
        chosen.append(counts(ns, end - begin))
    return chosen


def find_highest(least: float) -> Callable[[dict[int, int], int], int]:
    """Return the highest value if it has this part of the time; each lower value adds a tenth of what it has."""

    def find(ns: dict[int, int], whole: int) -> int:
        if not ns:
            return 0
        highest = max(ns)
        part = sum(own * 10.0 ** (value - highest) for value, own in ns.items())
        part += (whole - sum(ns.values())) * 10.0**-highest  # no value is 10 to the power of 0
        return highest if part >= least * whole else 0

    return find


def find_average(samples: Samples, metric: str, chosen: list[int]) -> dict[int, float]:
    """Return the mean of a metric over the samples of each value, weighted by their time."""
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for value, (begin, end), own in zip(chosen, pairwise(samples.times), samples.values[metric], strict=False):
        sums[value][0] += own * (end - begin)
        sums[value][1] += end - begin
    return {value: total / ns for value, (total, ns) in sums.items() if value and total}


def list_rows(shown: Shown, title: str) -> list[dict[int, float]]:
    (histogram,) = (each for each in shown.histograms if each.name == title)
    return [{int(value): cell for value, cell in row.items() if cell} for _, row in histogram.frame.iterrows()]


def show(translated: Translated, preset: str) -> Shown:
    return recorded.show(f"hwcounters/{preset}", translated.trace)


def list_kernels(translated: Translated, task: int) -> pd.DataFrame:
    """Return the kernels and opaque graphs of a task, with the number of their class."""
    operations = translated.gpu_operations
    own = operations[(operations["task"] == task) & operations["table"].isin(("KERNEL", "GRAPH_TRACE"))]
    names = sorted(set(own["full_name"] if "full_name" in own else own["name"]))
    class_of_name = dict(zip(names, classify(names), strict=True))
    return own.assign(**{"class": [class_of_name[name] for name in own["name"]]})


def test_metrics_by_kernel_class(translated: Translated, samples: dict[int, Samples]) -> None:
    shown = show(translated, "activity_by_kernel_class")
    classes = set()
    for task, own in samples.items():
        pieces = list_classes_alone(list_kernels(translated, task))
        chosen = choose(own.times, pieces, find_highest(0.9))
        classes |= set(chosen)
        for metric in ("SMs active", "SM issue", "Tensor cores active", "DRAM reads and writes"):
            found = list_rows(shown, f"{metric} by kernel class [%]")[task]
            assert found == pytest.approx(find_average(own, metric, chosen), rel=1e-9)
    assert len(samples) == len(translated.trace.names["TASK"])
    assert len(classes) > 1 or translated.reports[0].stem == "single-graph"  # its kernels run together


def test_time_by_activity_while_kernels_run(translated: Translated, samples: dict[int, Samples]) -> None:
    shown = show(translated, "active_in_kernels")
    for task, own in samples.items():
        pieces = [(low, high, 1) for low, high, _ in sweep(list_kernels(translated, task))]
        chosen = choose(own.times, pieces, lambda ns, whole: int(ns.get(1, 0) >= 0.9 * whole))
        assert 0 < sum(chosen) < len(chosen)
        for metric in ("SMs active", "Tensor cores active"):
            (histogram,) = (each for each in shown.histograms if each.name == f"Time by {metric} [ms]")
            expected: dict[float, int] = defaultdict(int)
            for counts, (begin, end), value in zip(chosen, pairwise(own.times), own.values[metric], strict=False):
                if counts and value:
                    expected[0.5 + 10 * ((value - 1) // 10)] += end - begin
            row = histogram.frame.iloc[task]
            assert {low: round(ms * 10**6) for low, ms in row.items() if ms} == expected


def test_links_by_communication_phase(translated: Translated, samples: dict[int, Samples]) -> None:
    """The phases are those of the trace: other tests compare these with the reports."""
    shown = show(translated, "links_in_transfers")
    phases = pair_intervals(translated.trace, PHASE)
    phases = phases.assign(task=translated.task_of(phases["row"]))
    for task, own in samples.items():
        mine = phases[phases["task"] == task]
        frame = mine.assign(begin=mine["begin"] + translated.start, end=mine["end"] + translated.start)
        values = frame["value"].tolist()
        pieces = [(low, high, max(values[index] for index in running)) for low, high, running in sweep(frame)]
        chosen = choose(own.times, pieces, find_highest(0.999999))
        assert len(samples) == 1 or set(chosen) >= ({0, WAIT, TRANSFER} if task % 2 else {0, TRANSFER})
        metrics = {f"{link} {way}" for link in ("NVLink", "PCIe") for way in ("received", "transmitted")}
        assert len(samples) == 1 or metrics <= set(own.values)  # a single GPU may have no NVLink
        for metric in metrics & set(own.values):
            found = list_rows(shown, f"{metric} by communication phase [%]")[task]
            assert found == pytest.approx(find_average(own, metric, chosen), rel=1e-9)
