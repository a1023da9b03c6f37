"""The core of a graph, on graphs made by chance: what is measured happens when it does in the whole graph."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.replay.core import GONE, KEPT, Core, find_core, join_fates, measure_lengths, play_core, trace_back
from nsys2prv_ng.replay.graph import CODE, NONE, REMOVED, Graph, build_graph, make_edges, play
from tests.replay.test_graph import SEEDS, find_longest, make_graph

NEVER = int(np.iinfo(np.int64).min)


def make_chains(seed: int) -> Graph:
    """Return a graph of up to 60 nodes, most of which follow one other node."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(2, 60))
    time = np.sort(rng.integers(0, 10**6, nodes))
    to = np.append(np.arange(1, nodes), rng.integers(0, nodes, nodes // 6))
    since = np.maximum(to - rng.integers(1, 4, to.size), 0)
    return build_graph(time, make_edges(since, to, CODE, rng.integers(0, 10**4, to.size)))


def make_case(seed: int) -> tuple[Graph, IntArray, IntArray, np.ndarray]:
    """Return a graph, other weights, some nodes to measure, and what becomes of each node in two replays."""
    graph = make_chains(seed) if seed % 2 else make_graph(seed)[0]
    rng = np.random.default_rng(seed)
    weight = graph.weight * rng.integers(0, 4, graph.to.size)
    weight[rng.random(weight.size) < 0.1] = REMOVED
    measured = np.flatnonzero(rng.random(graph.time.size) < rng.choice([0.05, 0.3, 1]))
    fates = rng.choice([0, 0, 0, 0, 0, 0, KEPT, GONE], (2, graph.time.size)).astype(np.int8)
    return graph, weight, measured, fates * rng.integers(0, 2)


def list_nodes(core: Core) -> IntArray:
    """Return the node of the graph of each node of a core."""
    nodes = np.full(core.time.size, NONE)
    inside = np.flatnonzero(core.number >= 0)
    nodes[core.number[inside]] = inside
    return nodes


def test_what_is_measured_happens_as_in_two_replays_of_the_whole_graph() -> None:
    shorter = 0
    for seed in SEEDS:
        graph, weight, measured, fates = make_case(seed)
        core = find_core(graph, measured, join_fates(*fates), NEVER)
        at = core.number[measured]
        assert (at >= 0).all()
        assert core.time[at].tolist() == graph.time[measured].tolist()
        truths = [np.array(find_longest(graph, weight, fate)) for fate in fates]
        for new, truth in zip(play_core(core, measure_lengths(graph, core, weight)).T, truths, strict=True):
            gone = (new[at] < 0) & (truth[measured] < 0)  # how long before all is no question
            assert np.where(gone, 0, new[at]).tolist() == np.where(gone, 0, truth[measured]).tolist(), seed
        shorter += int(core.time.size < graph.time.size)
    assert shorter > len(SEEDS) // 2


def test_a_chain_is_one_edge_and_what_nobody_measures_is_left_out() -> None:
    since, to = np.array([(0, 1), (1, 2), (2, 3), (1, 4)], np.int64).T
    graph = build_graph(np.arange(5) * 10, make_edges(since, to, CODE))
    core = find_core(graph, np.array([3]), np.zeros(5, np.int8), NEVER)
    assert list_nodes(core).tolist() == [0, 3]
    assert core.weight.tolist() == [30]
    assert [int(graph.to[edge]) for edge in np.flatnonzero(core.part_of >= 0)] == [1, 2, 3]


def test_what_led_to_a_node_that_keeps_its_time_counts_only_after_the_limit() -> None:
    since, to = np.array([(0, 1), (1, 2)], np.int64).T
    graph = build_graph(np.array([0, 10, 20]), make_edges(since, to, CODE))
    kept = np.array([0, KEPT, 0], np.int8)
    for low, nodes in ((9, [0, 1, 2]), (10, [1, 2])):
        assert list_nodes(find_core(graph, np.array([2]), join_fates(kept, kept), low)).tolist() == nodes


def trace_whole(graph: Graph, weight: IntArray, new: IntArray, node: int, low: int) -> list[int]:
    """Return the edges that decided when a node happens: of those that explain its time the last one."""
    path: list[int] = []
    while new[node] > low:
        causes = [
            edge
            for edge in np.flatnonzero(graph.to == node).tolist()
            if new[graph.since[edge]] + weight[edge] == new[node]
        ]
        if not causes:
            break
        path.append(causes[-1])
        node = int(graph.since[causes[-1]])
    return path


def test_the_path_back_is_that_of_the_whole_graph() -> None:
    longest = 0
    for seed in SEEDS:
        graph, weight, measured, _ = make_case(seed)
        weight = np.where(weight == REMOVED, 0, weight)
        if not measured.size:
            continue
        new = play(graph, weight)
        core = find_core(graph, measured, np.zeros(graph.time.size, np.int8), NEVER)
        played = np.ascontiguousarray(play_core(core, measure_lengths(graph, core, weight))[:, 0])
        node = int(measured[np.argmax(new[measured])])
        for low in (int(new.min()), int(np.median(new))):
            path = trace_back(graph, core, weight, played, node, low).tolist()
            assert path == trace_whole(graph, weight, new, node, low), seed
            longest = max(longest, len(path))
    assert longest > 20
