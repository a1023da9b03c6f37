"""Presets of slow steps and slow kernels, compared with the summary and with plain SQL on the reports."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsys2prv_ng import summarize, translate
from tests.cfgs.recorded import Shown, show
from tests.conftest import DATA, SAMPLES, Unpacked
from tests.spans import sum_lengths, unite
from tests.summary.kernels.slow_modes_truth import slow_down
from tests.summary.steps.test_kinds_by_name import write_reports
from tests.tiers import cases
from tests.trace_reader import Trace, pair_intervals, read_trace

pytestmark = pytest.mark.slow  # translates whole jobs

STEP, KIND, KERNEL, WITH_WAITS, EXPOSED_WAIT = 63000430, 63000432, 63000006, 63000413, 4
Steps = dict[int, tuple[int, int]]
"""Begin and end of each step in the trace, by number."""


@dataclass(frozen=True)
class Job:
    """The trace of some reports, one for each rank, and its steps."""

    reports: list[Path]
    trace: Trace
    steps: Steps
    start_utc_ns: int

    def show(self, preset: str) -> Shown:
        return show(f"analysis/{preset}", self.trace)

    def read(self, rank: int, query: str) -> pd.DataFrame:
        """Return the rows of a query on a rank's report, with begin and end in times of the trace."""
        with closing(sqlite3.connect(self.reports[rank])) as database:
            ((utc,),) = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
            rows = pd.read_sql_query(query, database)
        shift = utc - self.start_utc_ns
        return rows.assign(begin=rows["begin"] + shift, end=rows["end"] + shift)


def make_job(reports: list[Path], folder: Path) -> Job:
    """Translate reports; its steps are those that the summary measures."""
    result = translate(reports, folder / "trace.prv")
    trace = read_trace(folder / "trace.prv")
    spans = pair_intervals(trace, STEP)
    spans = spans[spans["row"] == 0]
    steps: Steps = {
        int(trace.values[STEP][value].split()[-1]): (begin, end)
        for begin, end, value in zip(*(spans[name].tolist() for name in ("begin", "end", "value")), strict=True)
    }
    efficiency = summarize(reports).efficiency
    assert efficiency is not None and len(efficiency.steps) > 4
    for step in efficiency.steps:
        begin, end = steps[step.number]
        assert step.length_ns == end - begin
    return Job(reports, trace, steps, result.start_utc_ns)


@pytest.fixture(scope="module", params=cases(["spin", "ddp-2x2"], push=1))
def job(request: pytest.FixtureRequest, unpacked: Unpacked, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """`spin` has a slow kernel on one rank, `ddp-2x2` waits for ranks that start late."""
    paths = {
        "spin": [unpacked(DATA / f"h100/spin.rank{rank}.sqlite.xz") for rank in range(2)],
        "ddp-2x2": [SAMPLES / f"ddp-2x2.rank{rank}.sqlite" for rank in range(4)],
    }
    return make_job(paths[request.param], tmp_path_factory.mktemp(request.param))


def cut(spans: pd.DataFrame, begin: int, end: int) -> pd.DataFrame:
    """Return the parts of spans within a time."""
    cut_spans = spans.assign(begin=spans["begin"].clip(begin, end), end=spans["end"].clip(begin, end))
    return cut_spans[cut_spans["end"] > cut_spans["begin"]]


OPERATIONS = """SELECT k.start AS begin, k."end", s.value AS name, s.value LIKE 'nccl%' AS nccl, 1 AS kernel
    FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
    UNION ALL SELECT start, "end", '', 0, 0 FROM CUPTI_ACTIVITY_KIND_MEMCPY
    UNION ALL SELECT start, "end", '', 0, 0 FROM CUPTI_ACTIVITY_KIND_MEMSET"""
NAMES = """SELECT k.start AS begin, k."end", s.value AS name
    FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName"""
HOST_STEPS = """SELECT start AS begin, "end" FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId
    WHERE eventType = 59 AND coalesce(text, value) GLOB 'step*[0-9]' ORDER BY start"""


def list_rows(shown: Shown, title: str) -> list[dict[int, float]]:
    """Return the cells of each row by value, in ns."""
    (histogram,) = (each for each in shown.histograms if each.name == title)
    return [{int(value): round(ms * 10**6) for value, ms in row.items() if ms} for _, row in histogram.frame.iterrows()]


def list_bursts(shown: Shown, title: str, task: int) -> pd.DataFrame:
    (window,) = (each for each in shown.windows if each.name == title and each.level == "task")
    bursts = window.bursts
    return bursts[(bursts["object"] == task) & (bursts["value"] != 0)]


def find_value(job: Job, number: int) -> int:
    (value,) = (value for value, label in job.trace.values[STEP].items() if label.split()[-1] == str(number))
    return value


def test_each_step_has_its_duration(job: Job) -> None:
    shown = job.show("slow_steps")
    for rank in range(len(job.reports)):
        bursts = list_bursts(shown, "Duration of each step [ms]", rank)
        assert [(b.begin, b.end) for b in bursts.itertuples()] == list(job.steps.values())
        assert bursts["value"].tolist() == pytest.approx([(e - b) / 1e6 for b, e in job.steps.values()], rel=1e-12)


def test_each_host_has_the_duration_of_its_range(job: Job) -> None:
    shown = job.show("slow_steps")
    for rank in range(len(job.reports)):
        bursts = list_bursts(shown, "Duration of each step on the host [ms]", rank)
        ranges = job.read(rank, HOST_STEPS)
        lengths = (ranges["end"] - ranges["begin"]) / 1e6
        assert bursts["value"].tolist() == pytest.approx(lengths.tolist(), rel=1e-12)


@pytest.fixture(scope="module")
def job_of_kinds(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Every third step is called `eval`."""
    folder = tmp_path_factory.mktemp("kinds")
    return make_job(write_reports(folder, lambda n: f"{('train', 'eval')[n % 3 == 0]} {n}"), folder)


def test_time_of_each_kind_of_steps(job_of_kinds: Job) -> None:
    """Timelines and histograms of the preset, by steps and kernels of the reports, which have no other operations."""
    job, shown = job_of_kinds, job_of_kinds.show("steps_by_kind")
    values = {label: value for value, label in job.trace.values[KIND].items()}
    kinds = [values[("train", "eval")[number % 3 == 0]] for number in job.steps]
    for rank in range(len(job.reports)):
        kernels = job.read(rank, NAMES)
        first, last = kernels["begin"].min(), kernels["end"].max()
        times: list[dict[int, int]] = [dict.fromkeys(kinds, 0) for _ in range(3)]
        for kind, (begin, end) in zip(kinds, job.steps.values(), strict=True):
            busy = sum_lengths(unite(cut(kernels, begin, end)))
            times[0][kind] += end - begin
            times[1][kind] += busy
            times[2][kind] += min(end, last) - max(begin, first) - busy
        for name, of_kind in zip(("Time", "Compute time", "Idle gaps"), times, strict=True):
            assert list_rows(shown, f"{name} in steps of each kind [ms]")[rank] == of_kind
        bursts = list_bursts(shown, "Kind of step of each rank", rank)
        united = [kind for n, kind in enumerate(kinds) if n == 0 or kinds[n - 1] != kind]
        assert bursts["value"].tolist() in (kinds, united)
        durations = list_bursts(shown, "Duration of each step [ms]", rank)
        assert [(b.begin, b.end) for b in durations.itertuples()] == list(job.steps.values())


def test_idle_and_compute_time_of_each_step(job: Job) -> None:
    shown = job.show("slow_steps")
    idle, compute = list_rows(shown, "Idle gaps of each step [ms]"), list_rows(shown, "Compute time of each step [ms]")
    for rank in range(len(job.reports)):
        operations = job.read(rank, OPERATIONS)
        useful = operations[(operations["kernel"] == 1) & (operations["nccl"] == 0)]
        first, last = operations["begin"].min(), operations["end"].max()
        for number, (begin, end) in job.steps.items():
            value = find_value(job, number)
            busy = sum_lengths(unite(cut(operations, begin, end)))
            assert idle[rank].get(value, 0) == min(end, last) - max(begin, first) - busy
            assert compute[rank].get(value, 0) == sum_lengths(unite(cut(useful, begin, end)))


def test_exposed_wait_of_each_step(job: Job) -> None:
    """The waits are those of the trace: other tests compare these with the reports."""
    rows = list_rows(job.show("slow_steps"), "Exposed wait of each step [ms]")
    events = job.trace.events[job.trace.events["type"] == WITH_WAITS]
    expected: list[dict[int, int]] = [{} for _ in job.reports]
    for row, own in events.groupby("row"):
        times, values = own["time"].tolist(), own["value"].tolist()
        waits = [(b, e) for b, e, v in zip(times, times[1:], values, strict=False) if v == EXPOSED_WAIT]
        for number, (begin, end) in job.steps.items():
            ns = sum(max(0, min(e, end) - max(b, begin)) for b, e in waits)
            if ns:
                expected[job.trace.task_of_row[int(row)] - 1][find_value(job, number)] = ns
    assert rows == expected
    assert any(expected)


def test_compute_time_of_each_step_over_time(job: Job) -> None:
    shown = job.show("slow_kernels")
    for rank in range(len(job.reports)):
        useful = job.read(rank, OPERATIONS)
        useful = useful[(useful["kernel"] == 1) & (useful["nccl"] == 0)]
        bursts = list_bursts(shown, "Compute time of each step [ms]", rank)
        expected = [sum_lengths(unite(cut(useful, *span))) / 1e6 for span in job.steps.values()]
        assert bursts["value"].tolist() == pytest.approx(expected, rel=1e-9)


def test_durations_of_kernels_by_name(job: Job) -> None:
    shown = job.show("slow_kernels")
    (histogram,) = shown.histograms
    labels = job.trace.values[KERNEL]
    found: dict[int, dict[str, float]] = {}
    for value, column in histogram.frame.items():
        for row, us in enumerate(column):
            if us:
                found.setdefault(job.trace.task_of_row[row] - 1, {})[labels[int(value)]] = us
    for rank in range(len(job.reports)):
        kernels = job.read(rank, NAMES)
        means = ((kernels["end"] - kernels["begin"]) / 1e3).groupby(kernels["name"]).mean()
        expected = {name: us for name, us in means.items() if not name.startswith("nccl")}
        assert found[rank] == pytest.approx(expected, rel=1e-9)


def test_a_slow_gpu_has_another_colour(tmp_path: Path) -> None:
    """All kernels of rank 2 take 30 % longer from step 3 on."""
    reports = [SAMPLES / f"ddp-2x2.rank{rank}.sqlite" for rank in range(4)]
    reports[2] = tmp_path / "ddp-2x2.rank2.sqlite"
    slow_down(SAMPLES / reports[2].name, reports[2], 3, 1.3)
    job = make_job(reports, tmp_path)
    shown = job.show("slow_kernels")
    times = np.array([list_bursts(shown, "Compute time of each step [ms]", rank)["value"] for rank in range(4)])
    is_slow = np.zeros(times.shape, np.bool_)
    is_slow[2, np.array(list(job.steps)) >= 3] = True
    assert is_slow.sum() == 3 and times[is_slow].min() > 1.1 * times[~is_slow].max()


@pytest.mark.parametrize("job", ["spin"], indirect=True)
def test_a_slow_kernel_has_another_mean_duration(job: Job) -> None:
    """`spin_kernel` runs for 1,000,000 cycles, on rank 1 for 1,300,000 in 9 of 14 steps."""
    (histogram,) = job.show("slow_kernels").histograms
    (value,) = (value for value, label in job.trace.values[KERNEL].items() if label == "spin_kernel")
    usual, slow = (us for us in histogram.frame[value] if us)
    assert slow / usual == pytest.approx((5 + 9 * 1.3) / 14, rel=0.01)
