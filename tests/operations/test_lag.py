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
    later = Sequence(whole.operation, whole.size, whole.end + 10 * 10**9)
    assert find_lag(whole, later) is None


def test_lost_operations_leave_the_longest_run() -> None:
    whole = program(40, 4, 3)
    operation = np.arange(whole.end.size, dtype=np.int64) % 37  # no period that a loss could hide in
    whole = Sequence(operation, whole.size, whole.end)
    kept = np.r_[0:100, 103:160]
    other = Sequence(*(column[kept] for column in whole))
    found = find_lag(whole, other)
    assert found is not None
    assert (found.lag, found.first, found.last) == (0, 0, 100)


@settings(deadline=None, max_examples=examples(150))
@given(
    steps=st.integers(1, 60),
    period=st.integers(1, 3),
    cut=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    jitter=st.sampled_from([0.0, 1e3, 1e5, 1e7]),
    odd=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_the_choice_against_all_lags_in_full(
    steps: int, period: int, cut: tuple[int, int], jitter: float, odd: bool, seed: int
) -> None:
    """No lag is passed over that plain loops over all of them would choose."""
    random = np.random.default_rng(seed)
    whole = program(steps, period, seed)
    n = whole.end.size
    one, other = (seen(whole, min(low, n - 1), n, 0, 0.0, seed + low) for low in cut)
    other = Sequence(
        other.operation, other.size.copy(), other.end + random.normal(0, jitter, other.end.size).astype(int)
    )
    if odd:
        other.size[random.integers(0, other.size.size)] += 1
    chosen = choose_in_full(one, other)
    found = find_lag(one, other)
    if chosen is None:
        assert found is None or found.last - found.first < min(one.end.size, other.end.size + found.lag)
    else:
        assert found is not None and found.lag == chosen


def choose_in_full(one: Sequence, other: Sequence) -> int | None:
    """The lag without a shift if it is steady, else the nearest of the steady ones, from every operation of all."""
    n, m = one.end.size, other.end.size
    least = max(min(3, n, m), min(n, m) // 2)
    steadiness: dict[int, tuple[float, float]] = {}
    for lag in range(least - m, n - least + 1):
        low, high = max(0, lag), min(n, m + lag)
        a, b = (slice(low, high), slice(low - lag, high - lag))
        difference = (one.end[a] - other.end[b]).astype(float)
        agrees = (one.operation[a] == other.operation[b]).all() and (one.size[a] == other.size[b]).all()
        if not agrees or abs(np.median(difference[[0, (high - low - 1) // 2, -1]])) > 2e9:
            continue
        at = [(i * (high - low)) // min(high - low, 129) for i in range(min(high - low, 129))]
        time, difference = (one.end[a] - one.end[low])[at].astype(float), difference[at]
        slope, half = 0.0, len(at) // 2
        if half >= 4:
            rise, run = difference[-half:] - difference[:half], time[-half:] - time[:half]
            slope = float(np.clip(np.median(rise / np.maximum(run, 1)), -1e-4, 1e-4))
        straight = difference - slope * time
        middle = abs(float(np.median(difference)))
        spread = float(np.median(np.abs(straight - np.median(straight)))) + middle * 0.25 ** (high - low)
        steadiness[lag] = spread, middle
    if not steadiness:
        return None
    limit = 3 * min(spread for spread, _ in steadiness.values()) + 1000
    steady = {lag: middle for lag, (spread, middle) in steadiness.items() if spread <= limit}
    return 0 if n == m and 0 in steady else min(steady, key=steady.__getitem__)
