"""Sums over windows, compared with a loop over each ns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.analysis.efficiency.windows import make_plan, sum_in_windows
from nsys2prv_ng.intervals.states import FlatStates
from nsys2prv_ng.intervals.step_functions import StepFunction
from tests.analysis.efficiency.efficiency_reports import opened
from tests.translated import changed

LIMITS_OF_WINDOWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 30)), max_size=6)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=8), LIMITS_OF_WINDOWS)
def test_sums_in_windows_are_those_of_single_ns(
    changes: list[tuple[int, int]], limits: list[tuple[int, int, int]]
) -> None:
    at = dict(sorted(changes))
    steps = StepFunction(np.array(list(at), np.int64), np.array(list(at.values()), np.int64))
    expected = np.zeros((3, 4), np.int64)
    for number, low, high in limits:
        for ns in range(low, high):
            expected[number, next((at[t] for t in sorted(at, reverse=True) if t <= ns), 3)] += 1
    kept = [(number, low, high) for number, low, high in limits if low < high]
    number, begin, end = np.array(kept, np.int64).reshape(-1, 3).T
    windows = FlatStates(number, begin, end, np.zeros_like(number))
    assert sum_in_windows(steps, 3, windows, 3, 4).tolist() == expected.tolist()


@pytest.mark.parametrize(("ns", "count"), [(0, 0), (1, 1)])
def test_work_of_no_time_is_no_window(ns: int, count: int, tmp_path: Path, samples: Path) -> None:
    tables = [f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "GRAPH_TRACE", "MEMCPY", "MEMSET")]
    statements = [f"DELETE FROM {table} WHERE rowid > (SELECT min(rowid) FROM {table})" for table in tables[:1]]
    statements += [f"DELETE FROM {table}" for table in tables[1:]]
    statements += [f'UPDATE {tables[0]} SET "end" = start + {ns}']
    report = changed(samples / "single-graph.sqlite", tmp_path / "single-graph.sqlite", statements)
    with opened([report]) as job:
        work = make_plan(job, None).work
    assert [high - low for low, high in work] == [ns] * count
