"""Computes statistics of few values, as in benchstat: a rank test and limits of a median, for any distribution.

The values are consecutive steps of one run and so not quite independent: a test overestimates their evidence. So
`NOISE` is the least difference that counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import comb, erfc, sqrt
from typing import Literal

import numpy as np

from nsys2prv_ng.arrays.types import FloatArray

LEVEL = 0.05
"""Level of significance, and probability that a median is outside its limits."""
FEWEST = 4
"""Fewest values a side for a rank test: with 3 and 3 values, the least possible p, 0.1, exceeds LEVEL."""
NOISE = 0.02
"""Share of a time by which two captures of the same program differ, the 2 % of docs/guides/comparing.md.

A choice: host-bound programs differ by more, w-base and w-base-again by 6.6 %."""
LARGE = 0.05
"""Share of a time from which a difference that may be chance is no evidence that the programs are equally fast.

A choice, the 5 % of docs/guides/comparing.md: too large, and few noisy steps hide what a change did."""
_MOST_EXACT = 60
"""Most values of both sides together for an exact distribution."""
_MOST_COINS = 400
"""Most values for exact limits of a median; for more values, the normal approximation of coins is used."""
_DIVISIONS, _ROUNDING = 1999, 1e-9
"""Random divisions of a permutation test, with which the least p is 0.0005, and the error of their sums."""
_SAME_SHARE = 0.1
"""Most by which the shares of a kind differ if kinds are as frequent. A choice: a step of ten."""
_HALF_WIDTH = 0.98
"""Half the 97.5 % quantile of the normal distribution: the standard deviation of n coins is sqrt(n) / 2."""


def find_median(values: Sequence[int]) -> int:
    """Return the median, rounded to an integer."""
    return round(float(np.median(np.array(values, np.int64))))


Average = Literal["median", "mean"]


def find_average(values: Sequence[int], average: Average) -> int:
    """Return the median or the mean, rounded to an integer."""
    return find_median(values) if average == "median" else round(sum(values) / len(values))


def bound_median(values: Sequence[int]) -> tuple[int, int] | None:
    """Return the 95 % confidence interval of the median, whose limits are two of the values; None for less than six.

    The median is between the k-th smallest and the k-th largest of n values, unless less than k of n coins show heads,
    or less than k show tails.
    """
    n = len(values)
    k = _count_tail(n) if n <= _MOST_COINS else int(n / 2 - sqrt(n) * _HALF_WIDTH)
    ordered = sorted(values)
    return (ordered[k - 1], ordered[n - k]) if k else None


def _count_tail(n: int) -> int:
    """Return the largest k for which less than k of n coins show heads, or tails, with probability LEVEL at most."""
    tail, k = 0, 0
    while k < n and 2 * (tail + comb(n, k)) <= LEVEL * 2**n:
        tail += comb(n, k)
        k += 1
    return k


def compare_ranks(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the two-sided p of the Mann-Whitney U test: the probability that chance alone separates a and b as far.

    It is exact for up to 60 values, also with ties. For more values it is the normal approximation, corrected for ties
    and continuity.
    """
    values = np.concatenate([a, b]).astype(np.float64)
    ordered = np.sort(values)
    # Twice the rank (from 1) of each value: equal values share the mean of their ranks.
    below, until = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    ranks = (below + until + 1).astype(np.int64)
    n, total = len(a), ranks.size
    mean = n * (total + 1)  # mean of twice the sum of the ranks of a
    away = abs(int(ranks[:n].sum()) - mean)
    if total <= _MOST_EXACT:
        return _count_out(ranks, n, mean, away)
    variance = n * (total - n) / (total * (total - 1)) * float(((ranks - (total + 1)) ** 2).sum())
    # Possible sums of ranks are 1 apart, doubled sums 2 apart: the continuity correction is half of that.
    return erfc(max(0.0, away - 1) / sqrt(2 * variance)) if variance else 1.0


def compare_means(a: Sequence[int], b: Sequence[int], kinds: Sequence[Sequence[str]] = ((), ())) -> float:
    """Return the two-sided p of a permutation test: the share of random divisions whose means are as far apart.

    A few steps that take far longer change a mean, but hardly any rank. `kinds`: the kind of each value of both sides.
    If both have the same kinds, about as often, values are divided among those of their kind.
    """
    if sorted(b) < sorted(a):  # p is the same for exchanged sides
        a, b, kinds = b, a, kinds[::-1]
    one, other = (Counter(kind) for kind in kinds)
    shares = [abs(one[kind] / len(a) - other[kind] / len(b)) for kind in one]
    if one.keys() != other.keys() or max(shares, default=1) > _SAME_SHARE:
        kinds = [""] * len(a), [""] * len(b)
    known = [list(zip(values, of, strict=True)) for values, of in zip((a, b), kinds, strict=True)]
    pools = [
        [np.array([float(ns) for ns, kind in side if kind == own]) for side in known] for own in dict.fromkeys(kinds[0])
    ]
    away = abs(sum(_differ(first, second) for first, second in pools)) * (1 - _ROUNDING)
    joined = [(np.sort(np.concatenate(pool)), pool[0].size) for pool in pools]
    random = np.random.default_rng(0)
    as_far = 0
    for _ in range(_DIVISIONS):
        mixed = ((random.permutation(values), few) for values, few in joined)
        as_far += abs(sum(_differ(values[:few], values[few:]) for values, few in mixed)) >= away
    return float(1 + as_far) / (1 + _DIVISIONS)


def _differ(a: FloatArray, b: FloatArray) -> float:
    """Return the difference of two means, times the number of values."""
    return float(a.mean() - b.mean()) * (a.size + b.size)


def _count_out(ranks: np.ndarray[tuple[int], np.dtype[np.int64]], n: int, mean: int, away: int) -> float:
    """Return the share of all choices of n ranks whose sum is at least `away` from the mean."""
    choices = np.zeros((n + 1, int(ranks.sum()) + 1))  # ways to choose (number of ranks, sum of these)
    choices[0, 0] = 1
    for rank in ranks.tolist():
        choices[1:, rank:] += choices[:-1, :-rank].copy()
    sums = np.arange(choices.shape[1])
    return float(choices[n, np.abs(sums - mean) >= away].sum() / choices[n].sum())
