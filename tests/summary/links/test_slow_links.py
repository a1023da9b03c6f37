"""Slow pairs by their rules, compared with loops that follow them word by word."""

from __future__ import annotations

from math import ceil

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.summary.links.measure import Groups, find_slow_pairs
from tests.examples import examples

US = 1000
Row = tuple[int, int, int, int, int, int, int, int]
"""Group, pair, size, number of messages, first quartile, median, third quartile (ns), clock error (ns)."""


def find(rows: list[Row]) -> list[tuple[int, int, int, int]]:
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)] or [np.zeros(0, np.int64)] * 8
    group, pair, size, messages, low, median, high, error = columns
    groups = Groups._make([np.zeros_like(pair)] * len(Groups._fields))
    groups = groups._replace(bytes=size, messages=messages, low=low, median=median, high=high)
    slow = find_slow_pairs(groups._replace(error=error.astype(np.float64)), group, pair)
    return list(zip(*(column.tolist() for column in slow), strict=True))


def find_by_loops(rows: list[Row]) -> list[tuple[int, int, int, int]]:
    """Return index, number of peers, and the shortest and the longest median of a peer, of each slow pair."""
    judged = []
    for index, (group, *_, messages, low, median, _, error) in enumerate(rows):
        peers = [row for other, row in enumerate(rows) if other != index and row[0] == group and row[3] >= 8]
        if messages < 8 or len(peers) < 2:
            continue
        medians, highs = sorted(row[5] for row in peers), sorted(row[6] for row in peers)
        usual, limit = medians[len(peers) // 2], highs[ceil(3 * (len(peers) - 1) / 4)]
        is_slow = 3 * median >= 4 * usual and median - usual >= 20 * US
        is_slow = is_slow and low - limit > error + max(row[7] for row in peers)
        judged.append((index, is_slow, (len(peers), medians[0], medians[-1])))
    chosen = {}
    for index, _, _ in judged:  # a pair is compared at the size with most bytes, the first of several
        pair = rows[index][1]
        if pair not in chosen or rows[index][2] * rows[index][3] > rows[chosen[pair]][2] * rows[chosen[pair]][3]:
            chosen[pair] = index
    return [(index, *found) for index, is_slow, found in judged if is_slow and chosen[rows[index][1]] == index]


def make_row(group: int, pair: int, size: int, messages: int, low: int, more: int, most: int, error: int) -> Row:
    return group, pair, size, messages, low * US, (low + more) * US, (low + more + most) * US, error * US


small = st.integers(0, 3)
lists = st.lists(
    st.builds(
        make_row,
        *(st.integers(0, 1), st.integers(0, 5), st.integers(1, 3), st.integers(6, 12)),
        *(st.sampled_from((30, 40, 60, 120)), st.integers(0, 12), st.integers(0, 12), small),
    ),
    max_size=12,
)


@settings(max_examples=examples(200))
@given(lists)
def test_slow_pairs_by_their_rules(rows: list[Row]) -> None:
    assert find(rows) == find_by_loops(rows)


def test_one_of_four_pairs_is_slow() -> None:
    rows = [make_row(0, n, 8, 8, 200 if n == 2 else 100, 5, 5, 1) for n in range(4)]
    assert find(rows) == [(2, 3, 105 * US, 105 * US)]


def test_seven_messages_or_one_peer_prove_nothing() -> None:
    assert find([make_row(0, n, 8, 7 if n == 2 else 8, 200 if n == 2 else 100, 5, 5, 1) for n in range(4)]) == []
    assert find([make_row(0, n, 8, 8, 200 if n else 100, 5, 5, 1) for n in range(2)]) == []


def test_a_difference_within_the_clock_error_is_none() -> None:
    for error, found in ((44, [(2, 3, 105 * US, 105 * US)]), (45, [])):
        assert find([make_row(0, n, 8, 8, 200 if n == 2 else 100, 5, 5, error) for n in range(4)]) == found


def test_two_of_four_slow_pairs_are_not_named() -> None:
    """One direction may be slow as a whole."""
    assert find([make_row(0, n, 8, 8, 200 if n % 2 else 100, 5, 5, 0) for n in range(4)]) == []
