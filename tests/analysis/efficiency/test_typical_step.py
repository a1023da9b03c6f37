"""The typical step against plain SQL, unions of intervals, and loops over each ns."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.analysis import row_states as states
from nsys2prv_ng.analysis.efficiency import typical_step
from nsys2prv_ng.analysis.efficiency.step_turns import find_turns
from nsys2prv_ng.analysis.efficiency.typical_step import (
    LongestStates,
    StepSpan,
    choose_step,
    list_ranges,
    make_step_edges,
)
from nsys2prv_ng.analysis.efficiency.windows import list_steps
from nsys2prv_ng.analysis.gpus.activity import list_devices
from nsys2prv_ng.analysis.gpus.waiting import WHOLE_GRAPH
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.intervals.states import FlatStates
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.job.steps import Steps
from tests.analysis.efficiency.efficiency_reports import DDP, opened
from tests.analysis.efficiency.efficiency_truth import COMPUTE, EVERYTHING, KERNELS, Truth
from tests.analysis.test_heat_maps import cover, select
from tests.intervals.test_step_functions import columns
from tests.report_truth import PUSH_POP, Report

# ---- which step ------------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(1, 30), min_size=2, max_size=2), min_size=1, max_size=9))
def test_the_step_nearest_to_the_median(lengths: list[list[int]]) -> None:
    """Each step has two spans with these lengths."""
    spans = [(task, n, 1000 * n + task, own[task]) for task in range(2) for n, own in enumerate(lengths)]
    task, step, begin, length = columns(spans, 4)
    steps = Steps("s", True, 7 + np.arange(len(lengths)), 0, task, task, step, begin, begin + length)
    found = choose_step(steps)
    longest = [max(own) for own in lengths]
    turns = find_turns(np.array(longest, np.int64))
    off = [abs(ns - (statistics.median(longest) if turns is None else turns[1])) for ns in longest]
    n = off.index(min(off))
    end = max(1000 * n + lengths[n][0], 1000 * n + 1 + lengths[n][1])
    assert (found.number, found.begin, found.end) == (7 + n, 1000 * n, end)
    assert found.task.tolist() == [0, 1]


def test_of_steps_that_take_turns_a_long_one() -> None:
    """The median of all, 81, is near no step."""
    length = np.array([18, 140, 32, 145, 19, 150, 18, 145], np.int64)
    step = np.arange(8)
    task = np.zeros(8, np.int64)
    steps = Steps("s", True, step, 0, task, task, step, 1000 * step, 1000 * step + length)
    assert (choose_step(steps).number, choose_step(steps).length) == (3, 145)


# ---- activities ------------------------------------------------------------------------------------------------------

flats = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 9), st.integers(1, 3)), max_size=12)


@settings(deadline=None)  # the first example compiles
@given(flats, st.integers(5, 20), st.integers(1, 15))
def test_the_state_with_most_time(rows: list[tuple[int, int, int, int]], begin: int, span: int) -> None:
    row, low, length, state = columns(rows, 4)
    flat = FlatStates(10 * row, low, low + length, state)
    step = StepSpan("s", 0, span, begin, begin + span, row, row)
    found = LongestStates(np.array([0, 10, 20]), make_step_edges(step, 3), 4)
    found.add(flat)
    for own in range(3):
        for b, (first, last) in enumerate(zip(found.edges, found.edges[1:], strict=False)):
            ns = [0, 0, 0, 0]
            for of, at, size, value in rows:
                ns[value] += sum(first <= t < last for t in range(at, at + size)) if of == own else 0
            assert found.state[own, b] == (ns.index(max(ns)) if any(ns) else 0)


@pytest.fixture(scope="module")
def ddp() -> Iterator[Job]:
    """Reports of two nodes."""
    with opened(DDP) as job:
        yield job


@pytest.mark.slow
def test_ddp(ddp: Job) -> None:
    check_activities(ddp, DDP)


@pytest.mark.parametrize("reports", select("exercises/ex2b-manual"))
def test_other_jobs(reports: Sequence[Path]) -> None:
    with opened(reports) as job:
        check_activities(job, reports)


def check_activities(job: Job, reports: Sequence[Path]) -> None:
    truth = Truth(reports)
    waits, devices, base = find_waits(job), list_devices(job), job.alignment.utc_base
    steps = list_steps(job)
    assert steps is not None
    step = choose_step(steps)
    rows = states.find_gpu_rows(job, devices)
    longest = LongestStates(rows, make_step_edges(step, rows.size), WHOLE_GRAPH + 1)
    for flat in states.list_gpu_states(job, waits):
        longest.add(flat)
    check_ranges(job, step, reports)
    own = truth.ranges[(truth.ranges["name"] == steps.name) & (truth.ranges["number"] == step.number)]
    assert (step.begin + base, step.end + base) == (own["begin"].min(), own["end"].max())
    assert longest.state.shape == (4, 2000)
    kinds = {"compute": (1, 2, 5, 9), "communication": (3, 4, 8), "memory": (6,), "idle": (7,)}
    for row, values in zip(rows.tolist(), longest.state, strict=True):
        gpu = truth.gpus[devices.rows[row].node, devices.rows[row].gpu.uuid]
        compute = cover(gpu.get(COMPUTE), longest.edges, base)
        kernels = cover(gpu.get(*KERNELS), longest.edges, base)
        busy = cover(gpu.get(*EVERYTHING), longest.edges, base)
        length = np.diff(longest.edges)
        parts = {
            "compute": compute,
            "communication": kernels - compute,
            "memory": busy - kernels,
            "idle": length - busy,
        }
        for kind, ns in parts.items():
            assert np.isin(values[ns == length], kinds[kind]).all()
            assert (ns[np.isin(values, kinds[kind])] > 0).all()
        assert np.unique(values).size > 3


# ---- ranges ----------------------------------------------------------------------------------------------------------


def check_ranges(job: Job, step: StepSpan, reports: Sequence[Path]) -> None:
    """Compare the ranges in a step, which each rank has a report of, with those of SQL."""
    found = list_ranges(job, find_waits(job), step)
    base, span = job.alignment.utc_base, step.end - step.begin
    assert [own.task for own in found] == [0, 1, 2, 3]
    for own, path in zip(found, reports, strict=True):
        report = Report(path)
        nvtx = report.nvtx[(report.nvtx["style"] == PUSH_POP) & (report.nvtx["domain"] != "NCCL")]
        [tid] = nvtx[nvtx["text"] == f"{step.name} {step.number}"]["tid"].unique()
        nvtx = nvtx[nvtx["tid"] == tid]
        nvtx = nvtx.assign(begin=nvtx["begin"] + report.utc, end=nvtx["end"] + report.utc)
        low, high = step.begin + base, step.end + base
        inside = nvtx[(nvtx["begin"] < high) & (nvtx["end"] > low)]
        expected = list_seen(inside, low, high, span)
        bars = zip((own.begin + base).tolist(), (own.end + base).tolist(), own.depth.tolist(), own.names, strict=True)
        assert sorted(bars) == expected and expected
        assert own.hidden == len(inside) - len(expected)
        assert np.all(np.diff(own.begin) >= 0)


def list_seen(nvtx: pd.DataFrame, low: int, high: int, span: int) -> list[tuple[int, int, int, str]]:
    """Return begin, end, depth and name of the ranges that are long enough and not too deep."""
    rows = list(zip(nvtx["begin"], nvtx["end"], nvtx["text"], nvtx["domain"], strict=True))
    seen = []
    for begin, end, text, domain in rows:
        around = sum(b <= begin and e > begin and (b, -e) < (begin, -end) for b, e, *_ in rows)
        cut = max(begin, low), min(end, high)
        if around < 4 and (cut[1] - cut[0]) * 1000 >= span:
            seen.append((*cut, around, f"{domain}:{text}" if domain else text))
    return sorted(seen)


@pytest.mark.slow
def test_the_task_that_others_waited_for_most_is_shown(ddp: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = find_waits(ddp)
    steps = list_steps(ddp)
    assert steps is not None
    step = choose_step(steps)
    task = ddp.whole.task_of_row[waits.culprit]
    caused = [int(waits.wait[(task == number) & (waits.culprit >= 0)].sum()) for number in range(4)]
    most = caused.index(max(caused))
    shown = {}
    for count in (1, 2, 3, 4):
        monkeypatch.setattr(typical_step, "MOST_TASKS", count)
        shown[count] = [own.task for own in list_ranges(ddp, waits, step)]
    monkeypatch.setattr(typical_step, "MOST_RANGES", 3)
    few = list_ranges(ddp, waits, step)
    monkeypatch.undo()
    every = list_ranges(ddp, waits, step)
    monkeypatch.setattr(typical_step, "DEEPEST", 2)
    for flat, whole in zip(list_ranges(ddp, waits, step), every, strict=True):
        assert flat.depth.tolist() == [depth for depth in whole.depth.tolist() if depth < 2]
        assert flat.depth.max() == 1 < whole.depth.max()
        assert flat.hidden + flat.depth.size == whole.hidden + whole.depth.size
    others = [number for number in range(4) if number != most]
    first = list(range(4))
    for count, tasks in shown.items():
        expected = first[:count] if most in first[:count] else sorted([*others[: count - 1], most])
        assert tasks == expected
    for own, whole in zip(few, every, strict=False):
        lengths = sorted((whole.end - whole.begin).tolist(), reverse=True)[:3]
        assert sorted((own.end - own.begin).tolist(), reverse=True) == lengths
        assert own.hidden + 3 == whole.hidden + whole.begin.size
