"""Clocks of rows, compared with a definition in plain Python, and with the replay of samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.replay.changes import parse_changes
from nsys2prv_ng.replay.model import Model
from nsys2prv_ng.replay.predicted_job import Instants, RowClock, _find_leaders, make_row_clock
from nsys2prv_ng.replay.what_if import Experiment
from tests.conftest import SAMPLES
from tests.examples import examples
from tests.replay.jobs import opened_model
from tests.report_sets import find_set, list_sets, sets

SETS = list_sets()

ROWS = 3
KNOWN = st.lists(st.tuples(st.integers(0, ROWS - 2), st.integers(0, 6), st.integers(-5, 40)), min_size=6, max_size=12)
"""Instants (row, time, new), often several at a time; the last row has none."""
TIMES = np.arange(-3, 12)


def array(values: object) -> np.ndarray:
    return np.array(values, np.int64)


def make_instants(known: list[tuple[int, int, int]]) -> Instants:
    return Instants(*array(known).reshape(-1, 3).T)


def list_known(known: list[tuple[int, int, int]], row: int) -> dict[int, list[int]]:
    """Return the predicted times of each known time of a row, none before those of earlier times."""
    times: dict[int, list[int]] = {}
    reached = None
    for time, new in sorted((time, new) for of, time, new in known if of == row):
        reached = new if reached is None else max(reached, new)
        times.setdefault(time, []).append(reached)
    return times


def predict(known: list[tuple[int, int, int]], row: int, time: int, *, is_end: bool) -> Fraction:
    """Return the exact predicted time (ns)."""
    times = list_known(known, row)
    if not times:
        return Fraction(time)
    if time in times:
        return Fraction(times[time][0] if is_end else times[time][-1])
    before, after = [t for t in times if t < time], [t for t in times if t > time]
    if not before:
        return Fraction(time + times[min(after)][0] - min(after))
    if not after:
        return Fraction(time + times[max(before)][-1] - max(before))
    low, high = max(before), min(after)
    begin, end = times[low][-1], times[high][0]
    return begin + Fraction((time - low) * (end - begin), high - low)


@pytest.mark.parametrize("is_end", [False, True])
@settings(deadline=None, max_examples=examples(300))
@given(known=KNOWN)
def test_time_passes_evenly_between_known_times(is_end: bool, known: list[tuple[int, int, int]]) -> None:
    clock = RowClock(make_instants(known), array([0, 1, -1]))
    for row in range(ROWS - 1):
        moved = clock(np.full(TIMES.size, row), TIMES, is_end=np.full(TIMES.size, is_end))
        exact = [predict(known, row, time, is_end=is_end) for time in TIMES.tolist()]
        assert all(abs(new - wanted) <= Fraction(1, 2) for new, wanted in zip(moved.tolist(), exact, strict=True))
        assert clock(np.full(TIMES.size, row), TIMES, is_end=is_end).tolist() == moved.tolist()
    assert clock(np.full(TIMES.size, ROWS - 1), TIMES, is_end=is_end).tolist() == TIMES.tolist()


@settings(deadline=None, max_examples=examples(200))
@given(known=KNOWN)
def test_everything_on_a_row_keeps_its_order(known: list[tuple[int, int, int]]) -> None:
    """What ends at a time is not after what starts then, and both are not before anything earlier."""
    clock = RowClock(make_instants(known), array([0, 1, -1]))
    times = np.repeat(np.arange(-10, 30), 2)
    for row in range(ROWS):
        moved = clock(np.full(times.size, row), times, is_end=np.arange(times.size) % 2 == 0)
        assert (np.diff(moved) >= 0).all()


@settings(deadline=None, max_examples=examples(200))
@given(known=KNOWN)
def test_a_row_follows_its_leader(known: list[tuple[int, int, int]]) -> None:
    clock = RowClock(make_instants(known), array([1, 1, 0]))
    for row, leader in enumerate((1, 1, 0)):
        moved = clock(np.full(TIMES.size, row), TIMES).tolist()
        exact = [predict(known, leader, time, is_end=False) for time in TIMES.tolist()]
        assert all(abs(new - wanted) <= Fraction(1, 2) for new, wanted in zip(moved, exact, strict=True))
    assert clock(np.full(TIMES.size, -1), TIMES).tolist() == TIMES.tolist()


@settings(deadline=None, max_examples=examples(200))
@given(known=KNOWN, marks=KNOWN)
def test_marks_stay_between_the_times_around_them(
    known: list[tuple[int, int, int]], marks: list[tuple[int, int, int]]
) -> None:
    clock = RowClock(make_instants(known), array([0, 1, -1]))
    limited = clock.limit(make_instants(marks))
    times = [list_known(known, row) for row in range(ROWS)]
    wanted = []
    for row, time, new in marks:
        if time not in times[row]:
            least = [values[-1] for t, values in times[row].items() if t < time]
            most = [values[0] for t, values in times[row].items() if t > time]
            wanted.append((row, time, min([max([new, *least]), *most])))
    assert Counter(zip(*(column.tolist() for column in limited), strict=True)) == Counter(wanted)


def test_leaders_are_the_busiest_of_the_task_else_of_the_node_else_of_the_job() -> None:
    tasks = [SimpleNamespace(node=node) for node in (0, 0, 1)]
    tree: Any = SimpleNamespace(task_of_row=array([0, 0, 0, 1, 1, 2]), model=SimpleNamespace(tasks=tasks))
    #                                              rows of task 0 | 1 | 2, which is on another node
    assert _find_leaders(array([0, 2, 5, 9, 0, 0]), tree).tolist() == [2, 2, 2, 3, 3, 3]
    assert _find_leaders(array([0, 2, 2, 0, 0, 0]), tree).tolist() == [1, 1, 1, 1, 1, 1]
    assert _find_leaders(array([0, 1, 0, 0, 0, 8]), tree).tolist() == [1, 1, 1, 1, 1, 5]
    assert _find_leaders(array([0, 0, 0, 0, 0, 0]), tree).tolist() == [-1] * 6


# ---- samples ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["ddp-2x2", "mpi-4"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    reports = sorted(SAMPLES.glob(f"{request.param}*.sqlite"))
    scratch: Path = tmp_path_factory.mktemp("scratch")
    with opened_model(reports, scratch) as opened:
        yield opened


@pytest.mark.parametrize("text", ["host = ideal", "network = ideal", "kernel '*' * 2"])
def test_operations_and_calls_have_the_times_of_the_replay(model: Model, text: str) -> None:
    time = Experiment(model).predict_times(parse_changes(text))
    clock = make_row_clock(model, time)
    lanes, n = model.lanes, model.numbers
    of_call = lanes.thread_row[lanes.calls.thread]
    parts = (
        (lanes.operation_row, lanes.operations.begin, time[: n.operations], False),
        (lanes.operation_row, lanes.operations.end, time[n.operation_end : n.call_begin], True),
        (of_call, lanes.calls.begin, time[n.call_begin : n.call_end], False),
        (of_call, lanes.calls.end, time[n.call_end : n.others], True),
    )
    for row, observed, new, is_end in parts:
        assert clock(row, observed, is_end=is_end).tolist() == new.tolist()


def test_a_gpu_follows_all_of_its_streams(model: Model) -> None:
    """A row of a GPU has the time that any of its streams has reached."""
    time = Experiment(model).predict_times(parse_changes("kernel '*' * 2"))
    clock = make_row_clock(model, time)
    lanes, n, tree = model.lanes, model.numbers, model.job.whole
    node = array([task.node for task in tree.model.tasks])[tree.task_of_row]
    gpus = [row for row in range(tree.model.row_count) if tree.gpu_of_row[row] >= 0 and row not in lanes.operation_row]
    assert gpus
    for row in gpus:
        same = (node == node[row]) & (tree.gpu_of_row == tree.gpu_of_row[row])
        on_gpu = np.flatnonzero(same[lanes.operation_row])
        ends = lanes.operations.end[on_gpu]
        reached = [int(time[n.operation_end + on_gpu][ends <= end].max()) for end in ends.tolist()]
        moved = clock(np.full(ends.size, row), ends)
        assert (moved >= array(reached)).all()
        assert moved.max() == max(time[on_gpu].max(), time[n.operation_end + on_gpu].max())


@pytest.mark.parametrize("name", sets(["cpu/2022.4.2-nvtx_py", "gpu/autograd-1", "gpu/sampled-1"]))
def test_a_row_without_operations_and_calls_follows_the_busiest_one_near_it(name: str, tmp_path: Path) -> None:
    """Of its task, else of its node."""
    with opened_model(find_set(name), tmp_path) as model:
        clock = make_row_clock(model, Experiment(model).predict_times(parse_changes("host * 0.5")))
        lanes, tree = model.lanes, model.job.whole
        busy = Counter(lanes.operation_row.tolist() + lanes.thread_row[lanes.calls.thread].tolist())
        idle = [row for row in range(tree.model.row_count) if not busy[row] and tree.gpu_of_row[row] < 0]
        assert idle
        task = tree.task_of_row
        node = array([one.node for one in tree.model.tasks])[task]
        times = np.linspace(int(model.graph.time.min()), int(model.graph.time.max()), 50).astype(np.int64)
        for row in idle:
            near = [other for other in busy if task[other] == task[row]]
            near = near or [other for other in busy if node[other] == node[row]]
            leader = max(near, key=lambda other: (busy[other], -other))
            moved = clock(np.full(50, row), times)
            assert moved.tolist() == clock(np.full(50, leader), times).tolist() != times.tolist()
