"""How operations and messages are split, compared with loops that follow the definitions word by word."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.analysis.waits import rules
from nsys2prv_ng.analysis.waits.clocks import Parts, get_uncertainty
from nsys2prv_ng.clock.alignment_table import Alignment, NodeClock
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.operations.parts import FROM_ROOT, OTHER, SYNCHRONISING, TO_ROOT, Side
from nsys2prv_ng.report.database import NULL
from tests.examples import examples


class Part(NamedTuple):
    node: int
    begin: int
    end: int
    is_root: bool


class Split(NamedTuple):
    wait: int
    verdict: int
    culprit: int
    margin: int


def apart(one: Part, other: Part, bounds: list[float]) -> float:
    return 0 if one.node == other.node else bounds[one.node] + bounds[other.node]


def split_by_definition(kind: int, complete: bool, parts: list[Part], bounds: list[float]) -> list[Split]:
    """Return wait, verdict, culprit and margin of each part of one operation."""
    everyone = range(len(parts))
    if not complete:
        return [Split(0, rules.MEMBER_MISSING, -1, 0)] * len(parts)
    roots = [i for i in everyone if parts[i].is_root]
    if kind == OTHER or (kind != SYNCHRONISING and len(roots) != 1):
        return [Split(0, rules.UNKNOWN_ROLES, -1, 0)] * len(parts)
    if kind == SYNCHRONISING:
        last = max(part.begin for part in parts)
        release = next(i for i in everyone if parts[i].begin == last)
        waiting = [i for i in everyone if i != release]
    elif kind == FROM_ROOT:
        release = roots[0]
        waiting = [i for i in everyone if i != release]
    else:
        senders = [i for i in everyone if i != roots[0]]
        first = min(parts[i].begin for i in senders)
        release = next(i for i in senders if parts[i].begin == first)
        waiting = roots
    released = parts[release].begin
    if any(parts[i].end < released - apart(parts[i], parts[release], bounds) for i in waiting):
        return [Split(0, rules.NOT_SYNCHRONISED, -1, 0)] * len(parts)

    limits = {i: apart(parts[i], parts[release], bounds) for i in everyone}
    ahead = {i: released - parts[i].begin for i in everyone}
    if kind == SYNCHRONISING:
        is_sure = all(ahead[i] > limits[i] for i in waiting)
        margin = min(ahead[i] for i in waiting)
    else:
        rivals = [i for i in everyone if kind == TO_ROOT and i not in (release, roots[0])]
        is_sure = all(-ahead[i] > limits[i] for i in rivals)
        margin = max(ahead[i] for i in waiting)
    splits = [Split(0, rules.SPLIT, -1, 0)] * len(parts)
    for i in waiting:
        if parts[i].node != parts[release].node and abs(ahead[i]) <= limits[i]:
            splits[i] = Split(0, rules.BELOW_UNCERTAINTY, -1, 0)
            if kind == SYNCHRONISING:
                splits[release] = Split(0, rules.BELOW_UNCERTAINTY, -1, 0)
        elif ahead[i] > 0:
            wait = min(released, parts[i].end) - parts[i].begin
            blamed = is_sure and wait > 0
            splits[i] = Split(wait, rules.SPLIT, release if blamed else -1, margin if blamed else 0)
    return splits


times = st.integers(0, 30)
part = st.builds(
    lambda node, begin, duration, is_root: Part(node, begin, begin + duration, is_root),
    st.integers(0, 2),
    times,
    st.integers(0, 60),
    st.booleans(),
)
operation = st.tuples(
    st.sampled_from([SYNCHRONISING, SYNCHRONISING, FROM_ROOT, TO_ROOT, OTHER]),
    st.integers(0, 5).map(bool),
    st.lists(part, min_size=2, max_size=5),
    st.one_of(st.none(), st.integers(0, 4)),
)
bound = st.sampled_from([0.0, 2.0, 3.5, 10.0, np.inf])


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(400))
@given(operations=st.lists(operation, min_size=1, max_size=5), bounds=st.tuples(bound, bound, bound))
def test_operations_by_their_definition(
    operations: list[tuple[int, bool, list[Part], int | None]], bounds: tuple[float, float, float]
) -> None:
    jobs = []
    for kind, complete, parts, root in operations:
        if root is not None:  # mostly one root
            parts = [row._replace(is_root=i == root % len(parts)) for i, row in enumerate(parts)]
        jobs.append((kind, complete, parts))
    every = [row for _, _, parts in jobs for row in parts]
    first = np.cumsum([0, *(len(parts) for _, _, parts in jobs)])
    node, begin, end = (np.array(column, np.int64) for column in list(zip(*every, strict=True))[:3])
    until, verdict, culprit, margin = rules.split_operations(
        first,
        np.array([kind for kind, _, _ in jobs]),
        np.array([complete for _, complete, _ in jobs]),
        Parts(node, begin, end, node),
        np.array([row.is_root for row in every]),
        np.array(bounds),
    )
    own = np.repeat(first[:-1], np.diff(first))
    got = list(
        zip(
            (until - begin).tolist(),
            verdict.tolist(),
            np.where(culprit >= 0, culprit - own, -1).tolist(),
            margin.tolist(),
            strict=True,
        )
    )
    expected = [
        split for kind, complete, parts in jobs for split in split_by_definition(kind, complete, parts, [*bounds])
    ]
    assert got == expected
    moving = end - until
    assert ((until - begin) + moving == end - begin).all() and (until >= begin).all() and (until <= end).all()


@settings(deadline=None, max_examples=examples(300))
@given(
    messages=st.lists(st.tuples(times, st.integers(0, 40), times, st.integers(0, 1), st.integers(0, 1)), min_size=1),
    bounds=st.tuples(bound, bound),
    may_leave=st.booleans(),
)
def test_messages_by_their_definition(
    messages: list[tuple[int, int, int, int, int]], bounds: tuple[float, float], may_leave: bool
) -> None:
    """Late sender and late receiver: one side waits from its begin until the other has arrived."""
    begin, duration, arrived, one_node, other_node = np.array(messages, np.int64).T
    row = np.arange(begin.size)
    waiting = Side(row, begin, begin + duration, begin, row)
    other = Side(row + row.size, arrived, arrived + 1, arrived, row + row.size)
    node_of_row = np.concatenate([one_node, other_node])
    wait, verdict = rules.split_side(waiting, other, node_of_row, np.array(bounds), may_leave=may_leave)
    for i, (start, length, at, one, two) in enumerate(messages):
        limit = 0 if one == two else bounds[one] + bounds[two]
        if start + length < at - limit:
            expected = 0, rules.SPLIT if may_leave else rules.NOT_SYNCHRONISED
        elif one != two and abs(at - start) <= limit:
            expected = 0, rules.BELOW_UNCERTAINTY
        else:
            expected = max(0, min(at, start + length) - start), rules.SPLIT
        assert (wait[i], verdict[i]) == expected


def test_sides_without_an_end_are_not_known() -> None:
    side = Side(*np.array([[1, 2, 3], [0, NULL, 5], [NULL, 9, 9], [0, 1, 2], [1, 2, 3]], np.int64))
    assert side.is_known.tolist() == [False, False, True]
    assert side.take(side.is_known).row.tolist() == [3]


def test_nodes_with_different_references_may_be_apart_by_anything() -> None:
    """The reference of each set of nodes is exact for its set alone."""
    sets = [("a", "a", 0.0), ("b", "a", 700.0), ("c", "c", 0.0), ("d", "a", 500.0), ("e", "", None)]
    nodes = [NodeClock(name, model="offset", reference=reference, bound=bound) for name, reference, bound in sets]
    bounds = get_uncertainty(cast(Job, SimpleNamespace(alignment=Alignment("auto", 0, nodes))))
    one, other = np.triu_indices(len(sets), 1)
    between = dict(zip(zip(one.tolist(), other.tolist(), strict=True), bounds[one] + bounds[other], strict=True))
    assert (between[0, 1], between[0, 3], between[1, 3]) == (700, 500, 1200)
    assert all(apart == np.inf for pair, apart in between.items() if {2, 4} & set(pair))
