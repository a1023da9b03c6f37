"""The graph of a replay, on graphs made by chance: observed times come back, and all others by the longest path."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from nsys2prv_ng.arrays.types import BoolArray
from nsys2prv_ng.replay.core import GONE, KEPT
from nsys2prv_ng.replay.graph import _FEW, CODE, NAMES, REMOVED, Edges, Graph, build_graph, make_edges, play
from tests.examples import examples

SEEDS = range(10 * examples(100))
"""Small graphs: of few times, so that many nodes have the same."""


def make_graph(seed: int) -> tuple[Graph, Edges]:
    """Return a graph of up to 40 nodes, and its dependencies, of which some contradict the times or close circles."""
    rng = np.random.default_rng(seed)
    nodes, edges = int(rng.integers(1, rng.choice([4, 40]))), int(rng.integers(0, 120))
    time = rng.integers(0, rng.choice([3, 30, 10**9]), nodes)
    since, to = rng.integers(0, nodes, (2, edges))
    given = make_edges(since, to, rng.integers(0, len(NAMES), edges), rng.integers(0, 20, edges))
    return build_graph(time, given), given


def find_longest(graph: Graph, weight: np.ndarray, fate: np.ndarray | None = None) -> list[int]:
    """Return when each node happens, by recursion over the edges that the graph keeps. `fate`: 0, KEPT or GONE."""
    before: dict[int, list[tuple[int, int]]] = {}
    for edge, (since, to) in enumerate(zip(graph.since.tolist(), graph.to.tolist(), strict=True)):
        before.setdefault(to, []).append((since, int(weight[edge])))

    @cache
    def happens(node: int) -> int:
        if fate is not None and fate[node] == GONE:
            return REMOVED
        if node not in before or (fate is not None and fate[node] == KEPT):
            return int(graph.time[node])
        return max(REMOVED, *(happens(since) + length for since, length in before[node]))

    return [happens(node) for node in range(graph.time.size)]


def mark_last(graph: Graph) -> BoolArray:
    """Mark the last edge to each node."""
    return np.append(graph.to[1:] != graph.to[:-1], True)[: graph.to.size]


def test_observed_times_come_back() -> None:
    for seed in SEEDS:
        graph, _ = make_graph(seed)
        assert play(graph, graph.weight).tolist() == graph.time.tolist(), seed


def test_other_weights_give_the_longest_path() -> None:
    for seed in SEEDS:
        graph, _ = make_graph(seed)
        rng = np.random.default_rng(seed)
        weight = graph.weight * rng.integers(0, 4, graph.to.size)
        weight[(rng.random(weight.size) < 0.1) & ~mark_last(graph)] = REMOVED
        assert play(graph, weight).tolist() == find_longest(graph, weight), seed


def test_the_last_dependency_has_what_was_observed_and_others_at_most_their_least() -> None:
    for seed in SEEDS:
        graph, given = make_graph(seed)
        least: dict[tuple[int, int], list[int]] = {}
        for since, to, _, ns in zip(*(column.tolist() for column in given), strict=True):
            least.setdefault((since, to), []).append(ns)
        latest: dict[int, int] = {}
        for since, to in zip(graph.since.tolist(), graph.to.tolist(), strict=True):
            latest[to] = max(latest.get(to, 0), int(graph.time[since]))
        lasts: list[int] = []
        is_last = mark_last(graph)
        for edge in range(graph.to.size):
            since, to = int(graph.since[edge]), int(graph.to[edge])
            passed = int(graph.time[to] - graph.time[since])
            if is_last[edge]:
                assert graph.time[since] == latest[to] and graph.weight[edge] == passed
                lasts.append(to)
            else:
                assert graph.weight[edge] in {min(ns, passed) for ns in least[since, to]}
        assert sorted(lasts) == sorted(latest)  # one of each node that has any


def test_edges_to_a_node_are_ordered_by_time_and_kind() -> None:
    most = 0
    for seed in SEEDS:
        graph, _ = make_graph(seed)
        for at, node in enumerate(graph.order.tolist()):
            edges = range(graph.first[at], graph.first[at + 1])
            assert all(graph.to[edge] == node for edge in edges)
            keys = [(int(graph.time[graph.since[edge]]), int(graph.kind[edge])) for edge in edges]
            assert keys == sorted(keys), seed
            most = max(most, len(keys))
    assert most > _FEW  # groups of both sizes were seen


def test_what_contradicts_the_times_or_closes_a_circle_is_counted() -> None:
    for seed in SEEDS:
        graph, given = make_graph(seed)
        assert graph.dropped == given.to.size - graph.to.size
        possible = [
            (since, to)
            for since, to in zip(given.since.tolist(), given.to.tolist(), strict=True)
            if since != to and graph.time[since] <= graph.time[to]
        ]
        # Only edges between nodes of one time can close a circle.
        on_circles = len(possible) - graph.to.size
        assert 0 <= on_circles <= sum(graph.time[since] == graph.time[to] for since, to in possible)
        kept = set(zip(graph.since.tolist(), graph.to.tolist(), strict=True))
        assert {edge for edge in possible if graph.time[edge[0]] < graph.time[edge[1]]} <= kept


def test_nothing_longer_makes_anything_earlier() -> None:
    for seed in SEEDS:
        graph, _ = make_graph(seed)
        rng = np.random.default_rng(seed)
        weight = graph.weight * rng.integers(0, 3, graph.to.size)
        longer = weight + rng.integers(0, 50, weight.size) * (rng.random(weight.size) < 0.2)
        assert (play(graph, longer) >= play(graph, weight)).all(), seed


@pytest.mark.parametrize("edges", [[(0, 1), (1, 0)], [(0, 0)], [(0, 1), (1, 2), (2, 0)]])
def test_circles_are_opened(edges: list[tuple[int, int]]) -> None:
    since, to = np.array(edges, np.int64).T
    graph = build_graph(np.full(3, 7, np.int64), make_edges(since, to, CODE))
    assert graph.dropped == 1
    assert play(graph, graph.weight).tolist() == [7, 7, 7]
