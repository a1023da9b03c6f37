"""By how many operations two ranks' sequences are shifted, compared with programs that know it."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nsys2prv_ng.operations.lag import Sequence, find_lag
from nsys2prv_ng.operations.parts import ANY_SIZE
from tests.examples import examples
from tests.operations.made import MS, program, seen


@settings(deadline=None, max_examples=examples(150))
@given(
    steps=st.integers(8, 60),
    period=st.integers(1, 6),
    cut=st.tuples(st.floats(0, 0.3), st.floats(0, 0.3), st.floats(0, 0.3), st.floats(0, 0.3)),
    offset=st.integers(-10 * MS, 10 * MS),
    drift=st.floats(-20e-6, 20e-6),
    seed=st.integers(0, 10**6),
)
def test_ranges_that_start_and_stop_at_different_operations(
    steps: int, period: int, cut: tuple[float, float, float, float], offset: int, drift: float, seed: int
) -> None:
    whole = program(steps, period, seed)
    n = whole.end.size
    low, other_low = int(cut[0] * n), int(cut[1] * n)
    high, other_high = n - int(cut[2] * n), n - int(cut[3] * n)
    overlap = min(high, other_high) - max(low, other_low)
    assume(overlap >= 8 and overlap > 0.5 * min(high - low, other_high - other_low))
    one = seen(whole, low, high, 0, 0.0, seed + 1)
    other = seen(whole, other_low, other_high, offset, drift, seed + 2)
    found = find_lag(one, other)
    assert found is not None
    assert found.lag == other_low - low
    assert (found.first, found.last) == (max(low, other_low) - low, min(high, other_high) - low)


def test_conflicting_sizes_reject_a_lag() -> None:
    """By time alone one operation later fits better; sizes tell that it is another."""
    end = np.arange(10, dtype=np.int64) * MS
    size = 8 << (np.arange(10, dtype=np.int64))
    one = Sequence(np.zeros(10, np.int64), size, end)
    other = Sequence(np.zeros(10, np.int64), size, end + MS)
    found = find_lag(one, other)
    assert found is not None and found.lag == 0
    unlike = Sequence(np.zeros(10, np.int64), size + 1, end)
    assert find_lag(one, unlike) is None
    unknown = Sequence(np.zeros(10, np.int64), np.full(10, ANY_SIZE), end)
    assert find_lag(one, unknown) is not None


def test_what_is_seconds_apart_is_another_part_of_the_program() -> None:
    whole = program(10, 3, 1)
    later = Sequence(whole.operation, whole.bytes, whole.end + 10 * 10**9)
    assert find_lag(whole, later) is None


def test_lost_operations_leave_the_longest_run() -> None:
    whole = program(40, 4, 3)
    operation = np.arange(whole.end.size, dtype=np.int64) % 37  # no period that a loss could hide in
    whole = Sequence(operation, whole.bytes, whole.end)
    kept = np.r_[0:100, 103:160]
    other = Sequence(*(column[kept] for column in whole))
    found = find_lag(whole, other)
    assert found is not None
    assert (found.lag, found.first, found.last) == (0, 0, 100)
