"""Statistics, against all permutations of few values and against figures in print."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.summary.difference import statistics
from nsys2prv_ng.summary.difference.statistics import bound_median, compare_ranks, find_median
from tests.examples import examples

VALUES = st.lists(st.integers(0, 6), min_size=1, max_size=5)


def count_wins(a: list[int], b: list[int]) -> float:
    """Twice the U statistic, by its definition: a pair won counts two, a tie one."""
    return sum(2 * (x > y) + (x == y) for x in a for y in b)


@settings(max_examples=examples(100))
@given(VALUES, VALUES)
def test_p_is_that_of_all_permutations(a: list[int], b: list[int]) -> None:
    """Of all ways to divide the values, those whose U is at least as far from its mean."""
    joined = a + b
    mean = len(a) * len(b)
    away = abs(count_wins(a, b) - mean)
    chosen = list(combinations(range(len(joined)), len(a)))
    far = 0
    for indices in chosen:
        first = [joined[i] for i in indices]
        others = [joined[i] for i in range(len(joined)) if i not in indices]
        far += abs(count_wins(first, others) - mean) >= away
    assert compare_ranks(a, b) == pytest.approx(far / len(chosen))


@pytest.mark.parametrize("n", range(1, 9))
def test_least_p_of_sides_that_do_not_overlap(n: int) -> None:
    """Two of all divisions are as extreme: 1, .33, .1, .029, .008, .002, as benchstat's documentation has it."""
    assert compare_ranks(range(n), range(n, 2 * n)) == pytest.approx(2 / comb(2 * n, n))


def test_critical_value_in_tables() -> None:
    """Tables of U have 23 for 10 and 10 values at a two-sided level of 5 %: U = 23 is significant, 24 is not."""
    for u, is_significant in ((23, True), (24, False)):
        # b has 0 .. 9 shifted so that exactly u pairs are won by b.
        a = [float(v) for v in range(10, 20)]
        b = [-1.0] * 10
        left = u
        for i in range(10):
            wins = min(10, left)
            b[i] = 9.5 + wins if wins else -1.0 - i
            left -= wins
        assert count_wins([int(2 * v) for v in b], [int(2 * v) for v in a]) == 2 * u
        assert (compare_ranks(a, [v + 1e-6 * i for i, v in enumerate(b)]) < 0.05) is is_significant


def test_the_approximation_joins_the_exact_values(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(7)
    for shift in (0.0, 0.3, 0.6, 1.0):
        for digits in (0, 6):  # many ties, none
            a, b = random.normal(0, 1, 30).round(digits), random.normal(shift, 1, 30).round(digits)
            exact = compare_ranks(a, b)
            with monkeypatch.context() as patch:
                patch.setattr(statistics, "_MOST_EXACT", 0)
                assert compare_ranks(a, b) == pytest.approx(exact, abs=0.01)


def test_equal_values_do_not_differ() -> None:
    assert compare_ranks([5] * 10, [5] * 10) == 1
    assert compare_ranks([5] * 100, [5] * 100) == 1


@pytest.mark.parametrize("n", [6, 7, 8, 9, 12, 20, 41])
def test_limits_hold_the_median_in_at_least_95_percent(n: int) -> None:
    """The k-th smallest is above the median if less than k of n values are below it; limits further in would not do."""
    found = bound_median(range(n))
    assert found is not None
    low, high = found
    assert low + high == n - 1

    def covers(k: int) -> float:
        return 1 - 2 * sum(comb(n, i) for i in range(k)) / 2**n

    assert covers(low + 1) >= 0.95 > covers(low + 2)


def test_five_values_bound_no_median() -> None:
    assert bound_median(range(5)) is None
    assert bound_median([]) is None


def test_limits_by_trial() -> None:
    random = np.random.default_rng(3)
    hits = 0
    for _ in range(2000):
        low, high = bound_median(random.exponential(1, 12).tolist()) or (0, 0)
        hits += low <= np.log(2) <= high
    assert 0.95 <= hits / 2000 < 0.985


def test_median_is_an_integer() -> None:
    assert find_median([1, 2, 4]) == 2
    assert find_median([10**15 + 1, 10**15 + 3]) == 10**15 + 2


@pytest.mark.slow
def test_limits_of_many_values() -> None:
    """From 400 values on they are approximated: within one of the values that are counted out."""
    for n in (401, 600, 1001):
        found = bound_median(range(n))
        assert found is not None
        k = next(k for k in range(n) if 2 * sum(comb(n, i) for i in range(k + 1)) * 20 > 2**n)
        assert found[0] + found[1] == n - 1 and abs(found[0] - (k - 1)) <= 1
    assert bound_median(range(100_000)) is not None
