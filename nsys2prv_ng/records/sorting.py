"""Sorts records by time and gathers their words in an order, both without the interpreter's lock."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.runtime.jit import compiled

Word = TypeVar("Word", np.int32, np.int64)


def sort_by_time(time: IntArray, tie: IntArray) -> IntArray:
    """Return the stable order by (time, tie), as indices."""
    n = time.size
    if n == 0:
        return np.zeros(0, np.int64)
    low, bits = int(time.min()), n.bit_length()
    if (int(time.max()) - low).bit_length() + bits < 64:
        # Time and index in one number: this sorts faster than indices of times in another array, and in numpy's fastest
        # way, because no two numbers are equal.
        times = time - low
        times <<= bits
        times |= np.arange(n)
        times.sort()
        order = times & ((1 << bits) - 1)
        times >>= bits
    else:
        order = np.argsort(time, kind="stable").astype(np.int64, copy=False)
        times = time[order]
    wrong = np.zeros(n, np.bool_)
    _mark_wrong_ties(times, tie, order, wrong)
    at = np.flatnonzero(wrong)
    order[at] = order[at][np.lexsort((tie[order[at]], times[at]))]
    return order


@compiled
def changes_nothing(order: IntArray) -> bool:
    """Return whether an order is 0, 1, 2, ..."""
    for i in range(order.size):  # noqa: SIM110 (numba has no generators in all)
        if order[i] != i:
            return False
    return True


@compiled
def _mark_wrong_ties(times: IntArray, tie: IntArray, order: IntArray, wrong: BoolArray) -> None:
    """Mark in `wrong` all records of each time at which a tie decreases. `times` are in order, `tie` is not."""
    low = 0
    while low < times.size:
        high = low + 1
        falls = False
        while high < times.size and times[high] == times[low]:
            falls |= tie[order[high]] < tie[order[high - 1]]
            high += 1
        if falls:
            wrong[low:high] = True
        low = high


@compiled
def gather_offsets(order: IntArray, first: IntArray, to_first: IntArray) -> None:
    """Fill the word offsets (n + 1) of the records at `order`, given the offsets of all records."""
    one = np.uint64(1)
    at = np.int64(0)
    for i in range(order.size):
        source = np.uint64(order[i])  # numba tests whether a signed index counts from the end
        to_first[i] = at
        at += first[source + one] - first[source]
    to_first[order.size] = at


@compiled
def gather_words(order: IntArray, first: IntArray, words: npt.NDArray[Word], to_words: npt.NDArray[Word]) -> None:
    """Fill a column of the words of the records at `order`, given the word offsets of all records."""
    one = np.uint64(1)
    to = np.uint64(0)
    for i in range(order.size):
        source = np.uint64(order[i])
        for word in range(np.uint64(first[source]), np.uint64(first[source + one])):
            to_words[to] = words[word]
            to += one
