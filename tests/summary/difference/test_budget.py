"""Parts of a difference: they add up to it to the ns, whatever the steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.summary.difference.budget import NOT_DIVIDED, REST, find_cause, list_windows, make_budget
from nsys2prv_ng.summary.efficiency.numbers import EfficiencyTrees, HostEfficiency
from nsys2prv_ng.summary.job import JobSummary
from tests.comparison.made import GPUS, MS, make_summary
from tests.examples import examples

PART = st.sampled_from(["compute_ns", "waiting_ns", "moving_ns", "memory_ns", "host_ns", "queued_ns", "cut_ns"])
STEPS = st.lists(st.dictionaries(PART, st.integers(0, 10**12), min_size=1), min_size=1, max_size=9)


@settings(max_examples=examples(100), deadline=None)
@given(STEPS, STEPS, st.integers(1, 7), st.integers(1, 7), st.booleans())
def test_rows_add_up_to_the_ns(a, b, gpus_a: int, gpus_b: int, by_step: bool) -> None:
    sides = [make_summary(a, gpus=gpus_a), make_summary(b, gpus=gpus_b)]
    one, other = (list_windows(side, by_step=by_step) for side in sides)
    rows = make_budget(one, other)
    medians = []
    for side in sides:
        assert side.efficiency is not None
        ordered = sorted(step.length_ns for step in side.efficiency.steps) if by_step else [side.efficiency.length_ns]
        n = len(ordered)
        medians.append((ordered[(n - 1) // 2] + ordered[n // 2]) / 2)
    assert sum(row.a_ns for row in rows) == pytest.approx(medians[0], abs=0.5, rel=0)
    assert sum(row.b_ns for row in rows) == pytest.approx(medians[1], abs=0.5, rel=0)
    for row in rows:
        assert row.difference_ns == row.b_ns - row.a_ns
    assert rows[-1].name in (REST, "rounding", NOT_DIVIDED)


def test_means_over_steps_and_gpus() -> None:
    """Four GPUs: 8 and 12 ms of compute together are 2 and 3 ms each, 2.5 ms in a mean step."""
    rows = budget(
        make_summary([{"compute_ns": 8 * MS}, {"compute_ns": 12 * MS, "host_ns": 4 * MS}]),
        make_summary([{"compute_ns": 8 * MS}]),
    )
    assert {row.name: (row.a_ns, row.b_ns) for row in rows} == {
        "compute": (2_500_000, 2 * MS),
        "host-bound": (500_000, 0),
        REST: (0, 0),
    }


def budget(a: JobSummary, b: JobSummary, *, by_step: bool = True):
    return make_budget(list_windows(a, by_step=by_step), list_windows(b, by_step=by_step))


@pytest.mark.parametrize(("more", "differs"), [(0.02, True), (0.004, False)])
def test_a_row_differs_if_ranks_and_size_say_so(more: float, differs: bool) -> None:
    """Every step is longer: p is 2 of 252; but what is below half a percent of the step is not worth a row."""
    steps = [{"compute_ns": (100 * MS + 1000 * i) * GPUS, "host_ns": 10 * MS} for i in range(5)]
    longer = [step | {"compute_ns": step["compute_ns"] + int(more * 100 * MS * GPUS)} for step in steps]
    row = next(row for row in budget(make_summary(steps), make_summary(longer)) if row.name == "compute")
    assert row.p == pytest.approx(2 / 252)
    assert row.differs is differs
    assert row.difference_ns == int(more * 100 * MS)


def test_steps_that_overlap_do_not_differ() -> None:
    steps = [{"compute_ns": (100 + 10 * i) * MS * GPUS} for i in range(5)]
    others = [{"compute_ns": (105 + 10 * i) * MS * GPUS} for i in range(5)]
    assert not any(row.differs for row in budget(make_summary(steps), make_summary(others)))


def test_without_enough_steps_two_percent_count() -> None:
    a, b = [{"compute_ns": 100 * MS * GPUS}] * 3, [{"compute_ns": 102 * MS * GPUS, "host_ns": MS * GPUS}] * 3
    assert {row.name: (row.p, row.differs) for row in budget(make_summary(a), make_summary(b))} == {
        "compute": (None, True),
        "host-bound": (None, False),
        REST: (None, False),
    }


def test_main_threads_where_there_are_no_gpus() -> None:
    """Half of a step of 10 ms is useful and three quarters are outside of MPI."""
    host = HostEfficiency(
        parallel=0.5,
        mpi_parallel=0.75,
        mpi_load_balance=1,
        mpi_communication=0.75,
        offload=2 / 3,
        mpi_balance_in_nodes=1,
        mpi_balance_of_nodes=1,
    )
    found = make_summary([{"compute_ns": 40 * MS}] * 4)
    efficiency = found.efficiency
    assert efficiency is not None
    trees = EfficiencyTrees(device=None, host=host)
    steps = [replace(step, losses=None, nccl_as_communication=trees) for step in efficiency.steps]
    threads = replace(found, efficiency=replace(efficiency, steps=steps))
    windows = list_windows(threads, by_step=True)
    assert windows.unit == "main thread"
    rows = {row.name: row.a_ns for row in make_budget(windows, windows)}
    assert rows == {"user code": 5 * MS, "in CUDA": 2_500_000, "in MPI or imbalance": 2_500_000, REST: 0}
    # GPUs on one side only: the parts are not the same, so that only the steps themselves can be compared.
    assert [row.name for row in make_budget(windows, list_windows(found, by_step=True))] == [NOT_DIVIDED]


def test_the_range_with_most_of_the_late_hosts() -> None:
    """20 of the 24 ms that hosts of four GPUs are late in four steps are in one range: that of the difference."""
    a = make_summary([{"host_ns": 6 * MS}] * 4, ranges={"data loading": 20 * MS, "": 4 * MS})
    b = make_summary([{"host_ns": 1 * MS}] * 4, ranges={"": 4 * MS})
    rows = budget(a, b)
    assert find_cause(a, b, rows, by_step=True) == "data loading"
    spread = make_summary([{"host_ns": 6 * MS}] * 4, ranges={"x": 8 * MS, "y": 8 * MS, "z": 8 * MS})
    assert find_cause(spread, b, budget(spread, b), by_step=True) == ""
