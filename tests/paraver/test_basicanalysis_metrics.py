"""The metrics of BSC's BasicAnalysis for traces of nsys, by its definitions, equal those of the summary.

The definitions are facts of its nsys2prvmetrics.py and cfgs/nsys2prv (state after 2026.10.05). T is the length of the
trace. On the rows of streams of a device, U is the union of CUDA kernels (63000006), and A that of U, of kernels of
NCCL (63000007) and of 63000001 with the values 3 to 6: copies and sets. Devices are told apart by node and label. The
useful time of a host row, of a task with streams, is T less its CUDA calls (63000000).

Traces are read here as text, with nothing of the package. With `PARAMEDIR`, Paraver's own program, and
`BASICANALYSIS_HOME`, a copy of BasicAnalysis, its cfgs are run as well; otherwise that test is skipped.
"""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng.summary.efficiency.numbers import EfficiencyNumbers
from nsys2prv_ng.summary.job import JobSummary
from tests.conftest import REPORTS, SAMPLES, Unpacked
from tests.report_truth import Report
from tests.spans import list_report_sets
from tests.tiers import cases

pytestmark = pytest.mark.slow

CUDA_CALL, MEMORY, KERNEL, NCCL = 63000000, 63000001, 63000006, 63000007
COPIES_AND_SETS = ("3", "4", "5", "6")
SOURCES = ["cuda_api", "kernels", "memory_operations"]
CFGS = {CUDA_CALL: "cuda_calls_host", MEMORY: "memcpy_streams", KERNEL: "kernels_streams", NCCL: "nccl_streams"}
SETS = {
    "samples/ddp-2x2": [f"samples/ddp-2x2.rank{rank}.sqlite" for rank in range(4)],
    "samples/mpi-4": [f"samples/mpi-4.rank{rank}.sqlite" for rank in range(4)],
    "exercises/ex2b-manual": [f"exercises/ex2b-manual.rank{rank}.sqlite" for rank in range(4)],
    "exercises/ex2b-overlap": [f"exercises/ex2b-overlap.rank{rank}.sqlite" for rank in range(4)],
    "gpu/mpi-one-report": ["gpu/mpi-one-report.sqlite"],
    "gpu/single-node": ["gpu/single-node.sqlite"],
}
Spans = list[tuple[int, int]]


def unite(spans: Spans) -> Spans:
    """Return the union of intervals: sorted, apart."""
    united: Spans = []
    for low, high in sorted(spans):
        if united and low <= united[-1][1]:
            united[-1] = united[-1][0], max(united[-1][1], high)
        else:
            united.append((low, high))
    return united


def measure(spans: Spans) -> int:
    return sum(high - low for low, high in unite(spans))


class Analysed:
    """A trace as BasicAnalysis sees it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = path.read_text().splitlines()
        header = re.fullmatch(r"#Paraver \([^)]*\):(\d+)_ns:\d+\([\d,]*\):1:\d+\(([\d:,]+)\).*", self.lines[0])
        assert header is not None
        self.length = int(header[1])
        tasks = [tuple(map(int, task.split(":"))) for task in header[2].split(",")]
        sections = self._read_row()
        places = [
            (task, thread, sections["NODE"][node - 1])
            for task, (threads, node) in enumerate(tasks, 1)
            for thread in range(1, threads + 1)
        ]
        self.streams: dict[tuple[int, int], tuple[str, str]] = {}
        hosts = []
        for (task, thread, node), label in zip(places, sections["THREAD"], strict=True):
            if stream := re.fullmatch(r"CUDA-(D\d+)\.S\d+", label):
                self.streams[task, thread] = node, stream[1]
            elif not re.fullmatch(r"Metrics GPU\d+", label):
                hosts.append((task, thread))
        with_streams = {task for task, _ in self.streams}
        self.hosts = [(task, thread) for task, thread in hosts if task in with_streams]
        self.devices = sorted(set(self.streams.values()))

    def _read_row(self) -> dict[str, list[str]]:
        sections: dict[str, list[str]] = {}
        for line in filter(None, map(str.strip, self.path.with_suffix(".row").read_text().splitlines())):
            if line.startswith("LEVEL "):
                names = sections.setdefault(line.split()[1], [])
            else:
                names.append(line)
        return sections

    @cached_property
    def events(self) -> dict[int, dict[tuple[int, int], list[tuple[int, str]]]]:
        """Time and value of the events of each type and row, in the order of the file."""
        found: dict[int, dict[tuple[int, int], list[tuple[int, str]]]] = {number: {} for number in CFGS}
        for line in self.lines[1:]:
            if line.startswith("2:"):
                _, _, _, task, thread, time, *pairs = line.split(":")
                for number, value in zip(map(int, pairs[::2]), pairs[1::2], strict=True):
                    if number in found:
                        found[number].setdefault((int(task), int(thread)), []).append((int(time), value))
        return found

    def list_open(self, number: int, row: tuple[int, int]) -> Spans:
        """Intervals in which a type is open: a value opens one more, and 0 closes one."""
        spans, depth, begin = [], 0, 0
        for time, value in self.events[number].get(row, []):
            begin = begin if depth else time
            depth += 1 if value != "0" else -1
            if not depth:
                spans.append((begin, time))
        return spans + ([(begin, self.length)] if depth > 0 else [])

    def list_copies(self, row: tuple[int, int], values: Sequence[str] = COPIES_AND_SETS) -> Spans:
        """Intervals with the values of copies and sets: the last value holds."""
        events = [*self.events[MEMORY].get(row, []), (self.length, "0")]
        return [(begin, end) for (begin, value), (end, _) in pairwise(events) if value in values]

    def measure_devices(self, values: Sequence[str] = COPIES_AND_SETS) -> list[tuple[int, int]]:
        """U and A (ns) of each device, with these values of 63000001."""
        times = []
        for device in self.devices:
            rows = [row for row, own in self.streams.items() if own == device]
            useful = [span for row in rows for span in self.list_open(KERNEL, row)]
            others = [span for row in rows for span in [*self.list_open(NCCL, row), *self.list_copies(row, values)]]
            times.append((measure(useful), measure(useful + others)))
        return times


@dataclass(frozen=True)
class Same:
    """What BasicAnalysis sees in a trace, and the efficiencies of the summary for the same time."""

    trace: Analysed
    efficiency: EfficiencyNumbers


def list_sources(reports: Sequence[Path]) -> list[str]:
    """Return the sources of BasicAnalysis that the reports have events of."""
    copies = [Report(path).count("CUPTI_ACTIVITY_KIND_MEMCPY") for path in reports]
    return SOURCES if any(copies) else [source for source in SOURCES if source != "memory_operations"]


@lru_cache(maxsize=2)
def summarize_whole(reports: tuple[Path, ...]) -> JobSummary:
    return nsys2prv_ng.summarize(reports, time=":")


def translate_and_sum(reports: Sequence[Path], output: Path, time: tuple[int, int] | None = None) -> Same:
    """Translate reports as for BasicAnalysis, and sum up the same time: that of the trace.

    Times count from the first record that is read, so those of the summary are shifted. The trace of a chosen time
    begins a ns before it.
    """
    made = nsys2prv_ng.translate(reports, output, sources=list_sources(reports), time=time)
    first = summarize_whole(tuple(reports)).start_utc_ns
    begin = made.start_utc_ns - first
    summary = nsys2prv_ng.summarize(reports, time=(begin + (time is not None), begin + made.duration_ns))
    assert summary.efficiency is not None
    assert summary.efficiency.length_ns == made.duration_ns - (time is not None)
    return Same(Analysed(output), summary.efficiency)


# Of DDP, the steps have a test.
@pytest.fixture(scope="module", params=list_report_sets(SETS, push=["gpu/single-node", "gpu/mpi-one-report"]))
def same(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Same:
    return translate_and_sum(request.param, tmp_path_factory.mktemp("trace") / "trace.prv")


def check_devices(same: Same, times: Sequence[tuple[int, int]], missing: int = 0) -> None:
    """Times of devices are equal to the ns; `missing`: what BasicAnalysis does not see of one."""
    efficiency = same.efficiency
    device = efficiency.nccl_as_communication.device
    assert device is not None and efficiency.losses is not None
    assert efficiency.losses.devices == len(times)
    most_useful, most_active = (max(column) for column in zip(*times, strict=True))
    assert efficiency.losses.compute_ns == sum(useful for useful, _ in times) + missing
    assert round(device.orchestration * efficiency.length_ns) == most_active + missing
    assert round(device.communication * device.orchestration * efficiency.length_ns) == most_useful + missing
    if not missing:
        useful = sum(useful for useful, _ in times)
        assert device.parallel == pytest.approx(useful / (len(times) * efficiency.length_ns), rel=1e-12)
        assert device.load_balance == pytest.approx(useful / (len(times) * most_useful), rel=1e-12)
        assert device.communication == pytest.approx(most_useful / most_active, rel=1e-12)
        assert device.orchestration == pytest.approx(most_active / efficiency.length_ns, rel=1e-12)


def test_times_of_devices_are_those_of_the_summary(same: Same) -> None:
    check_devices(same, same.trace.measure_devices())


@pytest.mark.all_sets
def test_in_the_steps(tmp_path: Path) -> None:
    reports = sorted(SAMPLES.glob("ddp-2x2.rank*.sqlite"))
    steps = summarize_whole(tuple(reports)).efficiency
    assert steps is not None and steps.in_steps is not None and steps.steps_ns is not None
    same = translate_and_sum(reports, tmp_path / "trace.prv", steps.steps_ns)
    check_devices(same, same.trace.measure_devices())
    assert same.trace.length == steps.in_steps.length_ns + 1
    assert same.efficiency.nccl_as_communication.device == steps.in_steps.nccl_as_communication.device


@pytest.mark.all_sets
def test_both_commands_skip_the_same_warmup(tmp_path: Path) -> None:
    """The same options mean the same time if the steps are ranges of NVTX and the trace has these."""
    reports = sorted(SAMPLES.glob("ddp-2x2.rank*.sqlite"))
    made = nsys2prv_ng.translate(
        reports, tmp_path / "trace.prv", sources=[*SOURCES, "nvtx", "launch_lines"], skip_warmup=True
    )
    efficiency = nsys2prv_ng.summarize(reports, skip_warmup=True).efficiency
    assert efficiency is not None and made.duration_ns == efficiency.length_ns + 2
    same = Same(Analysed(tmp_path / "trace.prv"), efficiency)
    check_devices(same, same.trace.measure_devices())


def test_graphs_traced_as_a_whole_are_not_seen(tmp_path: Path) -> None:
    report = SAMPLES / "single-graph.sqlite"
    same = translate_and_sum([report], tmp_path / "trace.prv")
    with closing(sqlite3.connect(f"file:{report}?mode=ro&immutable=1", uri=True)) as database:
        query = 'SELECT SUM("end" - start) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE'
        [graphs] = database.execute(query).fetchone()
    check_devices(same, same.trace.measure_devices(), missing=graphs)


@pytest.mark.parametrize(("name", "values"), [("oneproc-4gpu", {"13"}), ("um-1", {"14", "15"})])
def test_further_copies_are_not_seen(unpacked: Unpacked, tmp_path: Path, name: str, values: set[str]) -> None:
    """Copies between GPUs and those of unified memory have values of their own."""
    same = translate_and_sum([unpacked(REPORTS / f"gpu/{name}.sqlite")], tmp_path / "trace.prv")
    every = {value for events in same.trace.events[MEMORY].values() for _, value in events} - {"0"}
    assert every - set(COPIES_AND_SETS) == values
    times = same.trace.measure_devices(sorted(every))
    check_devices(same, times)
    assert max(active for _, active in times) > max(active for _, active in same.trace.measure_devices())


@pytest.mark.parametrize("name", cases(["ddp-2x2", "mpi-4"], push=1))
def test_calls_of_host_rows_are_those_of_all_threads(name: str, tmp_path: Path) -> None:
    reports = sorted(SAMPLES.glob(f"{name}.rank*.sqlite"))
    nsys2prv_ng.translate(reports, tmp_path / "trace.prv", sources=list_sources(reports))
    trace = Analysed(tmp_path / "trace.prv")
    found = [measure(trace.list_open(CUDA_CALL, row)) for row in trace.hosts]
    expected = []
    for path in reports:
        calls = Report(path).sql('SELECT globalTid AS tid, start, "end" FROM CUPTI_ACTIVITY_KIND_RUNTIME')
        expected += [
            measure(list(zip(own["start"], own["end"], strict=True))) for _, own in calls.groupby("tid", sort=True)
        ]
    assert sorted(time for time in found if time) == sorted(expected)


def test_paramedir_sees_the_same(same: Same, tmp_path: Path) -> None:
    """BasicAnalysis' own cfgs, run by Paraver's own program, show the intervals that are read here."""
    home, program = os.environ.get("BASICANALYSIS_HOME"), os.environ.get("PARAMEDIR")
    if not home or not program:
        pytest.skip("BASICANALYSIS_HOME and PARAMEDIR are not set: no cfgs of BasicAnalysis, or no paramedir")
    trace = same.trace
    outputs = {number: tmp_path / f"{name}.csv" for number, name in CFGS.items() if number != CUDA_CALL}
    pairs = [(f"{home}/cfgs/nsys2prv/{CFGS[number]}.cfg", str(path)) for number, path in outputs.items()]
    pairs.append((f"{home}/cfgs/nsys2prv/{CFGS[CUDA_CALL]}.cfg", str(tmp_path / "calls.csv")))
    command = [program, str(trace.path), *(word for pair in pairs for word in pair)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    for number, path in outputs.items():
        shown: dict[tuple[int, int], Spans] = {}
        for line in path.read_text().splitlines() if path.exists() else ():  # none without events of the type
            row, begin, length, value = line.split("\t")
            wanted = COPIES_AND_SETS if number == MEMORY else ("1",)
            if f"{float(value):g}" in wanted:
                _, task, thread = map(int, row.removeprefix("THREAD ").split("."))
                shown.setdefault((task, thread), []).append((round(float(begin)), round(float(begin) + float(length))))
        for row in trace.streams:
            expected = trace.list_copies(row) if number == MEMORY else trace.list_open(number, row)
            assert unite(shown.get(row, [])) == unite(expected), (number, row)
    rows = [line.split("\t") for line in (tmp_path / "calls.csv").read_text().splitlines()[1:]]
    in_calls = [round(float(cells[1])) for cells in rows[: [cells[0] for cells in rows].index("")]]
    by_row = dict(zip(_list_rows(trace), in_calls, strict=True))
    assert {row: by_row[row] for row in trace.hosts} == {
        row: measure(trace.list_open(CUDA_CALL, row)) for row in trace.hosts
    }


def _list_rows(trace: Analysed) -> list[tuple[int, int]]:
    """All rows by task and thread."""
    tasks = re.findall(r"(\d+):\d+", trace.lines[0].split(":1:", 1)[1].split("(", 1)[1].split(")")[0])
    return [(task, thread) for task, count in enumerate(tasks, 1) for thread in range(1, int(count) + 1)]
