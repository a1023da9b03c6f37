"""Replays of programs made by chance are what a simulation of the same programs with the change gives, to the ns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from nsys2prv_ng.replay.apply import apply_changes
from nsys2prv_ng.replay.changes import parse_changes
from nsys2prv_ng.replay.graph import play
from nsys2prv_ng.replay.model import Model
from tests.examples import examples
from tests.replay.jobs import opened_model
from tests.replay.simulated_reports import find_nodes, write_programs
from tests.replay.simulator import (
    CALLS,
    GEMM,
    NCCL,
    OWN,
    Program,
    SimulatedChange,
    draw_lengths,
    simulate,
    write_program,
)

_PROGRAMS = 40
"""Programs in one report: opening a report takes much longer than a replay."""
_LATENCIES = (0, 1_600, 8_000, 800, 4_800)
_BATCHES = max(1, examples(len(_LATENCIES)))

C = SimulatedChange
CHANGES: list[tuple[SimulatedChange, ...]] = [
    (),
    *[(C("range", name, factor),) for name in ("alpha", "beta", "side") for factor in (0, 0.5, 3)],
    *[(C("call", name, factor),) for name in CALLS.values() for factor in (0, 0.25, 5)],
    *[(C("kernel", name, factor),) for name in (GEMM, OWN, NCCL) for factor in (0, 0.5, 3)],
    *[(C("class", name, factor),) for name in ("GEMM FP32", "Elementwise") for factor in (0, 0.5, 10)],
    *[(C(target, "", factor),) for target in ("host", "copies", "network") for factor in (0, 0.5, 4)],
    *[(C(target, "", factor, rank=0),) for target in ("host", "copies", "network") for factor in (0, 4)],
    *[(C("range", "alpha", factor, rank=0),) for factor in (0, 0.5, 3)],
    (C("kernel", OWN, 8, rank=0),),
    (C("kernel", OWN, 0.5), C("network")),
    (C("network", factor=2), C("class", "GEMM FP32", 3), C("call", "cudaMalloc")),
    (C("range", "alpha"), C("host", factor=0.5)),
    (C("host"), C("network"), C("copies")),
    (C("call", "MPI_Recv"), C("kernel", NCCL, 2)),
]
"""Changes on rank 0 alter the first program of a report alone."""


@pytest.fixture(scope="module", params=range(_BATCHES))
def simulated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[list[Program], Model, list[int], list[int]]]:
    """Programs, their model, and for each node of a call or operation its action's number and place in `list_times`."""
    seed, folder = request.param, tmp_path_factory.mktemp("simulated")
    lengths = draw_lengths(seed)
    programs: list[Program] = []
    for number in range(_PROGRAMS):
        first_rank = programs[-1].ranks[-1] + 1 if programs else 0
        latency = _LATENCIES[seed % len(_LATENCIES)]
        programs.append(write_program(seed * _PROGRAMS + number, first_rank, latency, lengths))
    times = [simulate(program) for program in programs]
    report = write_programs(programs, times, folder / "programs.sqlite")
    with opened_model([report], folder) as model:
        numbers = model.numbers
        nodes: list[int] = []
        for call, operation in find_nodes(model, programs, times).values():
            nodes += [numbers.call_begin + call, numbers.call_end + call]
            nodes += [operation, numbers.operation_end + operation] if operation >= 0 else []
        assert sorted(nodes) == list(range(numbers.others))  # nothing is lacking, and nothing was added
        assert not model.graph.dropped
        yield programs, model, nodes, [seed * _PROGRAMS + number for number in range(_PROGRAMS)]


def list_times(programs: Sequence[Program], seeds: list[int], changes: Sequence[SimulatedChange]) -> list[object]:
    """Return (seed, thread, what, number of the action, ns) of each begin and end, in the order of the nodes."""
    found: list[object] = []
    for program, seed in zip(programs, seeds, strict=True):
        times = simulate(program, changes)
        for thread, actions in program.threads.items():
            for n, action in enumerate(actions):
                if action in times.calls:
                    found += [(seed, thread, action.do, n, time) for time in times.calls[action]]
                if action in times.operations:
                    found += [(seed, thread, "its operation", n, time) for time in times.operations[action]]
    return found


@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: " and ".join(map(str, changes)) or "none")
def test_a_replay_is_the_simulation(
    simulated: tuple[list[Program], Model, list[int], list[int]], changes: tuple[SimulatedChange, ...]
) -> None:
    programs, model, nodes, seeds = simulated
    weight = model.graph.weight
    if changes:
        weight = apply_changes(model, parse_changes(" and ".join(map(str, changes))))
    replayed = play(model.graph, weight)[np.array(nodes)]
    zero = int(model.graph.time[nodes[0]]) - programs[0].start  # begins with a launch that nothing precedes
    expected = list_times(programs, seeds, changes)
    assert [(*e[:4], ns - zero) for e, ns in zip(expected, replayed.tolist(), strict=True)] == expected  # type: ignore[index]
