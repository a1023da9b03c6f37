"""Adds up numbers by key without arrays: what reads saved summaries starts without numpy and numba."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

Key = TypeVar("Key")


def sum_by_key(pairs: Iterable[tuple[Key, int]]) -> Counter[Key]:
    """Return the sum of the numbers of each key; the keys are in the order in which they first come."""
    sums = Counter[Key]()
    for key, number in pairs:
        sums[key] += number
    return sums
