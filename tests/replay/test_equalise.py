"""A rank as fast as the median of the others: by the times of the steps that count, whatever start-up took."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.replay.columns import NONE, REMOVED
from nsys2prv_ng.replay.equalise import equalise_keys

RANKS, KEYS = 3, 2
WINDOWS = [(100, 200), (240, 260)]
Edge = tuple[int, int, int, int]
"""Rank, key (NONE for none), length (ns), end (ns)."""
EDGES = st.lists(
    st.tuples(st.integers(0, RANKS - 1), st.integers(NONE, KEYS - 1), st.integers(0, 50), st.integers(0, 300)),
    min_size=1,
)


def loop(edges: list[Edge], changed: int) -> list[int]:
    """The new lengths, by plain loops."""
    ranks = {edge[0] for edge in edges}
    others = ranks - {changed} or ranks
    totals: dict[tuple[int, int], int] = defaultdict(int)
    for rank, key, length, end in edges:
        totals[rank, key] += length if any(low <= end <= high for low, high in WINDOWS) else 0
    keys = range(NONE, KEYS)
    cuts = {key: max(totals[changed, key] - median(totals[each, key] for each in others), 0.0) for key in keys}
    sums = {rank: sum(totals[rank, key] for key in keys) for rank in ranks}
    most = max(sums.get(changed, 0) - median(sums[each] for each in others), 0.0)
    part = min(most / max(sum(cuts.values()), 1.0), 1.0)
    new = []
    for rank, key, length, _ in edges:
        own = totals[rank, key]
        new.append(round(length * (1 - cuts[key] * part / own)) if own and rank == changed else length)
    return new


@given(EDGES, st.integers(0, RANKS - 1), st.integers(0, 3), st.integers(0, 3))
def test_only_the_steps_that_count_are_compared(edges: list[Edge], changed: int, hidden: int, removed: int) -> None:
    """An edge that is not marked neither counts nor changes; one that a change removed stays so."""
    rank, key, length, end = np.array(edges, np.int64).T.copy()
    number = np.arange(len(edges), dtype=np.int32)
    model = SimpleNamespace(
        edge_rank=rank.astype(np.int32),
        graph=SimpleNamespace(time=end, to=number, weight=length),
        job=SimpleNamespace(scope=SimpleNamespace(measured=WINDOWS)),
    )
    marks = np.arange(len(edges)) != hidden
    weight = np.where(number == removed, REMOVED, length)
    equalise_keys(model, marks, key.astype(np.int32), rank == changed, weight)  # type: ignore[arg-type]
    marked = [edge for edge, is_marked in zip(edges, marks.tolist(), strict=True) if is_marked]
    expected = iter(loop(marked, changed) if marked else [])
    new = [next(expected) if is_marked else edge[2] for edge, is_marked in zip(edges, marks.tolist(), strict=True)]
    assert weight.tolist() == [REMOVED if n == removed else length for n, length in enumerate(new)]


def test_work_of_other_names_is_no_excess() -> None:
    """A rank keeps the work that it does under a name of its own, if the others do as much under theirs."""
    edges = [(0, 0, 40, 150), (1, 1, 40, 150), (2, 1, 30, 150)]
    assert loop(edges, 0) == [35, 40, 30]
