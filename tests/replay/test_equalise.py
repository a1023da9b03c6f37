"""A rank as fast as the median of the others: by the times of the steps that count, whatever start-up took."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.replay.equalise import equalise_keys

RANKS, KEYS = 3, 2
BEGIN, END = 100, 200
Edge = tuple[int, int, int, int]
"""Rank, key, length (ns), end (ns)."""
EDGES = st.lists(
    st.tuples(st.integers(0, RANKS - 1), st.integers(0, KEYS - 1), st.integers(0, 50), st.integers(0, 300)), min_size=1
)


def loop(edges: list[Edge], changed: int) -> list[int]:
    """The new lengths, by plain loops."""
    ranks = {edge[0] for edge in edges}
    others = ranks - {changed} or ranks
    totals: dict[tuple[int, int], int] = defaultdict(int)
    for rank, key, length, end in edges:
        totals[rank, key] += length if BEGIN <= end <= END else 0
    cuts = {key: max(totals[changed, key] - median(totals[each, key] for each in others), 0.0) for key in range(KEYS)}
    sums = {rank: sum(totals[rank, key] for key in range(KEYS)) for rank in ranks}
    most = max(sums.get(changed, 0) - median(sums[each] for each in others), 0.0)
    part = min(most / max(sum(cuts.values()), 1.0), 1.0)
    new = []
    for rank, key, length, _ in edges:
        own = totals[rank, key]
        new.append(round(length * (1 - cuts[key] * part / own)) if own and rank == changed else length)
    return new


@given(EDGES, st.integers(0, RANKS - 1))
def test_only_the_steps_that_count_are_compared(edges: list[Edge], changed: int) -> None:
    rank, key, length, end = np.array(edges, np.int64).T.copy()
    number = np.arange(len(edges), dtype=np.int32)
    model = SimpleNamespace(
        edge_rank=rank.astype(np.int32),
        graph=SimpleNamespace(time=end, to=number, weight=length),
        job=SimpleNamespace(measured=[(BEGIN, END)]),
    )
    weight = length.copy()
    marks = np.ones(len(edges), np.bool_)
    equalise_keys(model, marks, key.astype(np.int32), rank == changed, weight)  # type: ignore[arg-type]
    assert weight.tolist() == loop(edges, changed)


def test_work_of_other_names_is_no_excess() -> None:
    """A rank keeps the work that it does under a name of its own, if the others do as much under theirs."""
    edges = [(0, 0, 40, 150), (1, 1, 40, 150), (2, 1, 30, 150)]
    assert loop(edges, 0) == [35, 40, 30]
