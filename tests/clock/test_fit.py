"""Fits of simulated programs, whose clocks are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nsys2prv_ng.clock.alignment import AUTO, COLLECTIVES, fit_from_matches
from nsys2prv_ng.clock.fit import DRIFT, MOST_DRIFT, OFFSET, UTC
from nsys2prv_ng.clock.normal import NormalProblem, solve
from tests.clock.simulated import Program, Run, random_program, run
from tests.examples import examples


def chain(nodes: int) -> list[list[int]]:
    return [[i, i + 1] for i in range(nodes - 1)]


@pytest.mark.parametrize("drifts", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_equations_against_dense_least_squares(drifts: bool, seed: int) -> None:
    """Without outliers all weights are alike, and the first step is plain least squares with every true end unknown."""
    random = np.random.default_rng(seed)
    clocks, operations = 5, 40
    members = [np.sort(random.choice(clocks, random.integers(2, clocks + 1), replace=False)) for _ in range(operations)]
    first = np.concatenate([[0], np.cumsum([m.size for m in members])]).astype(np.int64)
    clock = np.concatenate(members).astype(np.int32)
    s = np.repeat(np.linspace(-1, 1, operations), np.diff(first))
    offset, drift = random.normal(0, 1e6, clocks), random.normal(0, 1e4, clocks) * drifts
    end = np.repeat(random.normal(0, 1e9, operations), np.diff(first)) - offset[clock] - drift[clock] * s
    problem = NormalProblem(clocks, first, clock, end, s, np.zeros(operations, np.int64), 1e9)

    design = np.zeros((end.size, operations + 2 * clocks))
    design[np.arange(end.size), np.repeat(np.arange(operations), np.diff(first))] = -1
    design[np.arange(end.size), operations + clock] = 1
    design[np.arange(end.size), operations + clocks + clock] = s
    unknown = [*range(operations), *(operations + np.arange(1, clocks))]
    unknown += [*(operations + clocks + np.arange(1, clocks))] if drifts else []
    dense = np.linalg.lstsq(design[:, unknown], -end, rcond=None)[0][operations:]

    solution = solve(problem, np.full(clocks, drifts))
    assert np.allclose(solution.offset[1:], dense[: clocks - 1], atol=1)
    if drifts:
        assert np.allclose(solution.drift[1:], dense[clocks - 1 :], atol=1)
    assert solution.offset[0] == solution.drift[0] == 0
    assert np.allclose(solution.offset[1:] - offset[1:] + offset[0], 0, atol=1)


@pytest.mark.all_sets
@pytest.mark.slow
def test_bounds_hold_in_95_of_100_programs() -> None:
    held, nodes, held_nodes = 0, 0, 0
    programs = examples(100)
    for seed in range(1000, 1000 + programs):
        simulated = run(random_program(seed))
        alignment = fit_from_matches(AUTO, simulated.matches, 0, simulated.names)
        errors = simulated.errors(alignment)
        # Rounding to whole ns, here and in the columns, is not in the bound.
        within = [e <= n.bound + 2 for e, n in zip(errors, alignment.nodes, strict=True) if n.bound is not None]
        held += all(within)
        nodes += len(within)
        held_nodes += sum(within)
    assert nodes > 15 * programs
    assert held >= 0.95 * programs
    assert held_nodes >= 0.98 * nodes


@pytest.mark.all_sets
@pytest.mark.slow
@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(
    nodes=st.integers(2, 64),
    seed=st.integers(0, 10**6),
    seconds=st.floats(6, 120),
    operations=st.integers(60, 300),
    outliers=st.floats(0, 0.05),
    shape=st.sampled_from(["world", "chain", "tree", "grid"]),
)
def test_connected_programs(
    nodes: int, seed: int, seconds: float, operations: int, outliers: float, shape: str
) -> None:
    """+-10 ms and +-10 ppm come down to where a line through so many ends must lie, whatever the communicators."""
    random = np.random.default_rng(seed)
    communicators = {
        "world": [list(range(nodes))],
        "chain": chain(nodes),
        "tree": [[int(random.integers(0, i)), i] for i in range(1, nodes)],
        "grid": [
            *([i for i in range(nodes) if i // 8 == row] for row in range(-(-nodes // 8))),
            *([i for i in range(nodes) if i % 8 == column] for column in range(min(8, nodes))),
        ],
    }[shape]
    program = Program(
        nodes, [c for c in communicators if len(c) > 1], operations, seconds, outliers=outliers, seed=seed
    )
    simulated = run(program)
    alignment = fit_from_matches(AUTO, simulated.matches, 0, simulated.names)
    apart = max(abs(simulated.drift[a] - simulated.drift[b]) for c in communicators for a in c[:1] for b in c)
    if apart * (simulated.last - simulated.first) > 30e3 and simulated.last - simulated.first > 5e9:
        assert {node.model for node in alignment.nodes} == {DRIFT}
    # Each link adds its own error: 5 us of noise over the root of the operations, times 2 at either end of the window.
    links = nodes if shape in ("chain", "tree") else 2
    assert simulated.errors(alignment).max() <= 5 * 2 * 5e3 * np.sqrt(links / operations)


@pytest.mark.slow
def test_a_chain_is_not_broken_by_its_length() -> None:
    simulated = run(Program(64, chain(64), 200, 30.0))
    alignment = fit_from_matches(AUTO, simulated.matches, 0, simulated.names)
    assert simulated.errors(alignment).max() < 30e3
    assert alignment.before.broken > 0.9 * alignment.before.checked


@pytest.mark.parametrize(("seconds", "operations"), [(0.17, 122), (0.7, 1000), (4.9, 5000), (60.0, 49)])
def test_no_drift_from_a_short_window_or_few_operations(seconds: float, operations: int) -> None:
    simulated = run(Program(4, [range(4)], operations, seconds))
    alignment = fit_from_matches(AUTO, simulated.matches, 0, simulated.names)
    assert {node.model for node in alignment.nodes} == {OFFSET}
    assert {node.correction.drift for node in alignment.nodes} == {0.0}


def test_no_drift_from_operations_in_a_few_bursts() -> None:
    simulated = run(Program(2, [[0, 1]], 400, 60.0))
    middle = simulated.matches.leave[simulated.matches.first[:-1]]
    block = (middle - middle.min()) * 8 // (middle.max() - middle.min() + 1)
    kept = np.flatnonzero(np.isin(block, [0, 7]))
    alignment = fit_from_matches(AUTO, _part(simulated, kept), 0, simulated.names)
    assert {node.model for node in alignment.nodes} == {OFFSET}


def _part(simulated: Run, operations: np.ndarray) -> object:
    matches = simulated.matches
    rows = np.concatenate([np.arange(matches.first[i], matches.first[i + 1]) for i in operations])
    count = np.diff(matches.first)[operations]
    return type(matches)(
        np.concatenate([[0], np.cumsum(count)]),
        matches.fits[operations],
        matches.group[operations],
        matches.domain[rows],
        matches.enter[rows],
        matches.leave[rows],
    )


def test_a_drift_that_no_clock_has_is_not_used() -> None:
    simulated = run(Program(2, [[0, 1]], 400, 60.0, drift=200e-6, seed=4))
    assert abs(simulated.drift[1] - simulated.drift[0]) > 2 * MOST_DRIFT
    alignment = fit_from_matches(COLLECTIVES, simulated.matches, 0, simulated.names)
    assert {node.correction.drift for node in alignment.nodes} == {0.0}


def test_right_clocks_are_left_alone() -> None:
    for seed in range(20):
        simulated = run(Program(4, [range(4)], 300, 20.0, offset=0.0, drift=0.0, seed=seed))
        alignment = fit_from_matches(AUTO, simulated.matches, 0, simulated.names)
        assert {node.model for node in alignment.nodes} == {UTC}
        assert {node.correction.offset for node in alignment.nodes} == {0}
        asked = fit_from_matches(COLLECTIVES, simulated.matches, 0, simulated.names)
        assert max(abs(node.correction.offset) for node in asked.nodes) < 5_000


def test_one_wrong_clock_among_many_right_ones() -> None:
    """It hardly changes the median over all, and must be seen nevertheless."""
    simulated = run(Program(64, [range(64)], 100, 3.0, offset=0.0, drift=0.0))
    matches = simulated.matches
    wrong = np.where(matches.domain == 17, 2_000_000, 0)
    shifted = type(matches)(
        matches.first, matches.fits, matches.group, matches.domain, matches.enter + wrong, matches.leave + wrong
    )
    alignment = fit_from_matches(AUTO, shifted, 0, simulated.names)
    assert abs(alignment.nodes[17].correction.offset + 2_000_000) < 5_000
    others = [abs(node.correction.offset) for i, node in enumerate(alignment.nodes) if i != 17]
    assert max(others) < 5_000


def test_groups_that_share_no_collective() -> None:
    simulated = run(Program(5, [[0, 1], [2, 3]], 200, 20.0))
    alignment = fit_from_matches(AUTO, simulated.matches, 0, simulated.names)
    assert [node.reference for node in alignment.nodes] == ["node0000", "node0000", "node0002", "node0002", ""]
    assert simulated.errors(alignment)[:4].max() < 10e3
    assert alignment.nodes[4].correction.offset == 0
    assert any("node0004 shares no collective" in warning for warning in alignment.warnings)
    assert any("2 groups" in warning for warning in alignment.warnings)


def test_one_operation() -> None:
    simulated = run(Program(3, [range(3)], 1, 1.0))
    kept = fit_from_matches(AUTO, simulated.matches, 0, simulated.names)
    assert {node.model for node in kept.nodes} == {UTC}
    assert any("too few collectives" in warning for warning in kept.warnings)
    used = fit_from_matches(COLLECTIVES, simulated.matches, 0, simulated.names)
    assert {node.model for node in used.nodes} == {OFFSET}
    assert {node.bound for node in used.nodes[1:]} == {None}


def test_nothing_to_fit() -> None:
    simulated = run(Program(2, [[0, 0]], 5, 1.0))
    assert len(simulated.matches) == 0
    alignment = fit_from_matches(AUTO, simulated.matches, 0, simulated.names)
    assert {node.correction.offset for node in alignment.nodes} == {0}
    assert any("node0000, node0001 share no collective" in warning for warning in alignment.warnings)


@pytest.mark.slow
def test_the_same_operations_give_the_same_corrections() -> None:
    simulated = run(random_program(5))
    results = [fit_from_matches(AUTO, simulated.matches, 0, simulated.names).to_dict() for _ in range(2)]
    assert results[0] == results[1]
