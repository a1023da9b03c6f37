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

from nsys2prv_ng.analysis import heat_maps as states
from nsys2prv_ng.analysis.efficiency import typical_step
from nsys2prv_ng.analysis.efficiency.typical_step import (
    LongestStates,
    StepSpan,
    choose_steps,
    find_turns,
    list_ranges,
    make_step_edges,
)
from nsys2prv_ng.analysis.gpus.activity import list_devices
from nsys2prv_ng.analysis.gpus.waiting import WHOLE_GRAPH
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.intervals.states import FlatStates
from nsys2prv_ng.job.counted import list_counted_steps
from nsys2prv_ng.job.open_job import Job
from tests.analysis.efficiency.efficiency_reports import DDP, opened
from tests.analysis.efficiency.efficiency_truth import COMPUTE, EVERYTHING, KERNELS, Truth
from tests.analysis.test_heat_maps import cover, select
from tests.intervals.test_step_functions import columns
from tests.report_truth import PUSH_POP, Report
from tests.steps.made_steps import make_steps
from tests.steps.step_truth import StepTruth
from tests.steps.step_truth import list_ranges as list_steps_ranges

# ---- which step ------------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(1, 30), min_size=2, max_size=2), min_size=1, max_size=9))
def test_the_step_nearest_to_the_median(lengths: list[list[int]]) -> None:
    """Each step has two spans with these lengths."""
    spans = [(task, n, 1000 * n + task, own[task]) for task in range(2) for n, own in enumerate(lengths)]
    task, step, begin, length = columns(spans, 4)
    steps = make_steps("s", 7 + np.arange(len(lengths)), task, step, begin, begin + length)
    found = choose_steps(steps)
    longest = [max(own) for own in lengths]
    turns, middle = find_turns(np.array(longest, np.int64)), statistics.median(longest)
    wanted = [middle]
    if turns is not None:
        wanted = [turns[1], turns[0]]
    elif 2 * sum(abs(ns - middle) <= middle / 4 for ns in longest) < len(longest):
        in_order = sorted(longest)
        half = len(longest) // 2
        wanted = [statistics.median(in_order[-half:]), statistics.median(in_order[:half])]
    assert len(found) == len(wanted)
    for span, ns in zip(found, wanted, strict=True):
        off = [abs(own - ns) for own in longest]
        n = off.index(min(off))
        end = max(1000 * n + lengths[n][0], 1000 * n + 1 + lengths[n][1])
        assert (span.number, span.begin, span.end) == (7 + n, 1000 * n, end)
        assert span.task.tolist() == [0, 1]


def test_steps_that_take_turns_have_a_long_and_a_short_one() -> None:
    """The median of all, 81, is near no step."""
    length = np.array([18, 140, 32, 145, 19, 150, 18, 145], np.int64)
    step = np.arange(8)
    task = np.zeros(8, np.int64)
    steps = make_steps("s", step, task, step, 1000 * step, 1000 * step + length)
    assert [(span.number, span.length) for span in choose_steps(steps)] == [(3, 145), (0, 18)]


def test_falling_lengths_have_a_long_and_a_short_one() -> None:
    """Only 2 of 8 steps are within 25 % of the median, 60."""
    length = np.array([220, 180, 110, 65, 55, 40, 30, 20], np.int64)
    step = np.arange(8)
    steps = make_steps("s", step, np.zeros(8, np.int64), step, 1000 * step, 1000 * step + length)
    assert [span.number for span in choose_steps(steps)] == [1, 5]


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


@pytest.mark.all_sets
@pytest.mark.parametrize("reports", select("exercises/ex2b-manual"))
def test_other_jobs(reports: Sequence[Path]) -> None:
    with opened(reports) as job:
        check_activities(job, reports)


def check_activities(job: Job, reports: Sequence[Path]) -> None:
    truth = Truth(reports)
    waits, devices, base = find_waits(job), list_devices(job), job.alignment.utc_base
    steps = list_counted_steps(job)
    assert steps is not None
    step = choose_steps(steps)[0]
    rows = states.find_gpu_rows(job, devices)
    longest = LongestStates(rows, make_step_edges(step, rows.size), WHOLE_GRAPH + 1)
    for flat in states.list_gpu_states(job, waits):
        longest.add(flat)
    check_ranges(job, step, reports)
    limits = StepTruth(truth.reports, list_steps_ranges(truth.reports, steps.name)).get_limits(step.number)
    assert (step.begin + base, step.end + base) == limits
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
    assert [own.label for own in found] == [task.name for task in job.tree.model.tasks[:4]]
    shift = job.scope.zero + base
    for own, path in zip(found, reports, strict=True):
        report = Report(path)
        nvtx = report.nvtx[(report.nvtx["style"] == PUSH_POP) & (report.nvtx["domain"] != "NCCL")]
        [tid] = nvtx[nvtx["text"] == f"{step.name} {step.number}"]["tid"].unique()
        nvtx = nvtx[nvtx["tid"] == tid]
        nvtx = nvtx.assign(begin=nvtx["begin"] + report.utc, end=nvtx["end"] + report.utc)
        low, high = step.begin + base, step.end + base
        inside = nvtx[(nvtx["begin"] < high) & (nvtx["end"] > low)]
        expected = list_seen(inside, low, high, span)
        bars = [(bar.begin_ns + shift, bar.end_ns + shift, bar.depth, bar.name) for bar in own.bars]
        assert sorted(bars) == expected and expected
        assert own.hidden == len(inside) - len(expected)
        assert np.all(np.diff([bar.begin_ns for bar in own.bars]) >= 0)


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
    steps = list_counted_steps(ddp)
    assert steps is not None
    step = choose_steps(steps)[0]
    task = ddp.whole.task_of_row[waits.culprit]
    caused = [int(waits.wait[(task == number) & (waits.culprit >= 0)].sum()) for number in range(4)]
    most = caused.index(max(caused))
    names = [task.name for task in ddp.tree.model.tasks]
    shown = {}
    for count in (1, 2, 3, 4):
        monkeypatch.setattr(typical_step, "MOST_TASKS", count)
        shown[count] = [names.index(own.label) for own in list_ranges(ddp, waits, step)]
    monkeypatch.setattr(typical_step, "MOST_RANGES", 3)
    few = list_ranges(ddp, waits, step)
    monkeypatch.undo()
    every = list_ranges(ddp, waits, step)
    monkeypatch.setattr(typical_step, "DEEPEST", 2)
    for flat, whole in zip(list_ranges(ddp, waits, step), every, strict=True):
        flat_depth, whole_depth = ([bar.depth for bar in ranges.bars] for ranges in (flat, whole))
        assert flat_depth == [depth for depth in whole_depth if depth < 2]
        assert max(flat_depth) == 1 < max(whole_depth)
        assert flat.hidden + len(flat.bars) == whole.hidden + len(whole.bars)
    others = [number for number in range(4) if number != most]
    first = list(range(4))
    for count, tasks in shown.items():
        expected = first[:count] if most in first[:count] else sorted([*others[: count - 1], most])
        assert tasks == expected
    for own, whole in zip(few, every, strict=False):
        lengths, longest = ([bar.end_ns - bar.begin_ns for bar in ranges.bars] for ranges in (own, whole))
        assert sorted(lengths, reverse=True) == sorted(longest, reverse=True)[:3]
        assert own.hidden + 3 == whole.hidden + len(whole.bars)


MS = 10**6


@pytest.mark.parametrize(
    ("ms", "found"),
    [
        ([18, 145] * 5, (18, 145)),
        ([145, 18] * 5, (18, 145)),
        ([18, 145] * 5 + [18], (18, 145)),
        ([18, 145] * 3, None),  # too few
        ([20, 21] * 10, None),  # hardly apart
        ([18] * 10 + [145] * 10, None),  # slower from some step on
        ([18, 18, 145, 145] * 5, None),
        ([18, 145] * 9 + [145, 145], (18, 145)),  # one of 20 out of turn
        ([18, 145] * 9 + [145, 18] * 2, None),  # four of 22
        ([30] * 20, None),
    ],
)
def test_turns(ms: list[int], found: tuple[int, int] | None) -> None:
    assert find_turns(np.array(ms, np.int64) * MS) == (None if found is None else (found[0] * MS, found[1] * MS))
