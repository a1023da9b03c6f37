"""Statistics of few values, as in benchstat: a rank test and limits of a median, which expect no distribution.

The values are steps of one run, which follow each other and are not quite independent: a test takes them for more
evidence than they are. So `NOISE` is the least difference that counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, erfc, sqrt

import numpy as np

LEVEL = 0.05
"""Probability of a chance below which a difference is significant; the limits of a median leave as much out."""
FEWEST = 4
"""Values a side with which a rank test can find anything at this level: of 3 and 3, the least probability is 0.1."""
NOISE = 0.02
"""Part of a time by which two captures of the same program differ."""
_MOST_EXACT = 60
"""Values of both sides together up to which the distribution is counted out."""
_MOST_COINS = 400
"""Values up to which the limits of a median are counted out; for more, the normal approximation of coins."""
_HALF_WIDTH = 0.98
"""Half of the 97.5 % quantile of the normal distribution: the deviation of n coins is half the root of n."""


def find_median(values: Sequence[int]) -> int:
    """Return the median, rounded to an integer."""
    return round(float(np.median(np.array(values, np.int64))))


def bound_median(values: Sequence[int]) -> tuple[int, int] | None:
    """Return the 95 % confidence interval of the median: two of the values. None for less than six of them.

    The k-th smallest and the k-th largest of n values have the median between them unless less than k of n coins show
    one side.
    """
    n = len(values)
    k = _count_tail(n) if n <= _MOST_COINS else int(n / 2 - sqrt(n) * _HALF_WIDTH)
    ordered = sorted(values)
    return (ordered[k - 1], ordered[n - k]) if k else None


def _count_tail(n: int) -> int:
    """Return the largest k for which less than k of n coins show one side, or the other, as rarely as the level."""
    tail, k = 0, 0
    while k < n and 2 * (tail + comb(n, k)) <= LEVEL * 2**n:
        tail += comb(n, k)
        k += 1
    return k


def compare_ranks(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the two-sided p of the Mann-Whitney U test: the probability that chance alone separates a and b as far.

    It is exact for up to 60 values, ties included; for more, the normal approximation with the corrections for ties
    and for continuity.
    """
    ranks = _rank_twice(np.concatenate([a, b]).astype(np.float64))
    n, total = len(a), ranks.size
    mean = n * (total + 1)  # of twice the sum of the ranks of a
    away = abs(int(ranks[:n].sum()) - mean)
    if total <= _MOST_EXACT:
        return _count_out(ranks, n, mean, away)
    variance = n * (total - n) / (total * (total - 1)) * float(((ranks - (total + 1)) ** 2).sum())
    # Sums of ranks differ by 1, doubled ones by 2: half of that corrects for continuity.
    return erfc(max(0.0, away - 1) / sqrt(2 * variance)) if variance else 1.0


def _rank_twice(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return twice the rank of each value from 1; equal values share the mean of their ranks."""
    ordered = np.sort(values)
    below, until = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    return (below + until + 1).astype(np.int64)


def _count_out(ranks: np.ndarray[tuple[int], np.dtype[np.int64]], n: int, mean: int, away: int) -> float:
    """Return which part of all choices of n ranks has a sum at least that far from the mean."""
    choices = np.zeros((n + 1, int(ranks.sum()) + 1))  # ways to choose so many of the ranks with this sum
    choices[0, 0] = 1
    for rank in ranks.tolist():
        choices[1:, rank:] += choices[:-1, :-rank].copy()
    sums = np.arange(choices.shape[1])
    return float(choices[n, np.abs(sums - mean) >= away].sum() / choices[n].sum())
