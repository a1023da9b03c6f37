"""Bins of an overview against plain loops, and the bytes that a large job takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.intervals.states import FlatStates
from nsys2prv_ng.paraver.model import TaskRows, TraceModel
from nsys2prv_ng.records.columns import make_states
from nsys2prv_ng.records.runs import store_records
from nsys2prv_ng.records.store import LocalStore
from nsys2prv_ng.runtime.parallel import LocalEngine
from nsys2prv_ng.translation.overview_rows import (
    find_most_bins,
    make_coarse_states,
    measure_bytes,
    measure_line_sizes,
    round_step,
)

LINES = st.lists(st.integers(0, 50), max_size=12)


@given(st.lists(LINES, max_size=3), st.integers(1, 200))
def test_most_bins(parts, most):
    every = [lines for part in parts for lines in part]

    def count(bins):
        return sum(lines if lines <= bins else bins + 1 for lines in every)

    found = find_most_bins([np.array(part, np.int64) for part in parts], most)
    if sum(every) <= most:
        assert found is None
        return
    fitting = [bins for bins in range(1, max(every)) if count(bins) <= most]
    assert found == max(fitting, default=1)


@given(st.integers(0, 2**53), st.integers(0, 10**7))
def test_steps_have_two_digits_and_are_enough(duration, bins):
    step = round_step(duration, bins)
    assert len(str(step).rstrip("0")) <= 2 and step >= 1
    assert step * max(1, bins) >= duration
    assert (step - 1) * max(1, bins) < duration * 1.1 + max(1, bins)


@pytest.mark.slow
def test_many_rows_of_many_states_take_no_more_bytes(tmp_path: Any) -> None:
    """1,024 ranks of 8 rows in 10 hours; the states of most rows change far more often than they can be shown."""
    tasks, threads, states = 1024, 8, 120
    rows, end = tasks * threads, 36_000 * 10**9
    model = TraceModel(
        ["node"], [TaskRows(f"rank {n}", 0, [f"thread {i}" for i in range(threads)]) for n in range(tasks)]
    )
    random = np.random.default_rng(1)
    count = np.where(np.arange(rows) % threads == 0, 20, states)
    row = np.repeat(np.arange(rows), count)
    nth = np.arange(row.size) - np.repeat(np.cumsum(count) - count, count)
    begin = nth * (end // count[row])
    flat = FlatStates(row, begin, begin + end // count[row], random.integers(1, 19, row.size))
    budget = 16_000_000
    with LocalStore(tmp_path, 1 << 30) as store:
        runs = store_records(make_states(*flat), store, on_common_clock=True)
        job: Any = SimpleNamespace(
            tree=SimpleNamespace(model=model),
            store=store,
            engine=LocalEngine(1),
            joined=[],
            scope=SimpleNamespace(origin=0, last=end, duration=end),
        )
        assert measure_bytes(job, runs) > 2 * budget
        made = make_coarse_states(job, runs, measure_line_sizes(job), budget)
        size = measure_bytes(job, made.runs)
    assert 0.4 * budget < size <= budget
    assert made.rows == rows - tasks
