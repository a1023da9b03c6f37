"""Replays of programs made by chance are what a simulation of the same programs with the change gives, to the ns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

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
from tests.tiers import cases

_PROGRAMS = 40
"""Programs in one report: opening a report takes much longer than a replay."""
_LATENCIES = (0, 1_600, 8_000, 800, 4_800)

C = SimulatedChange
CHANGES: list[tuple[SimulatedChange, ...]] = [
    *[(C("range", name, factor),) for name in ("alpha", "beta", "side") for factor in (0, 0.5, 3)],
    *[(C("call", name, factor),) for name in CALLS.values() for factor in (0, 0.25, 5) if name != CALLS["wait"]],
    (C("call", CALLS["wait"]),),
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
    (C("waits"),),
    (C("waits"), C("host", factor=4)),
    (C("call", "MPI_Recv"), C("kernel", NCCL, 2)),
]
"""Changes on rank 0 alter the first program of a report alone."""
Moment = tuple[int, tuple[int, int], str, int, int]
"""Seed of the program, thread, what begins or ends, number of the action, and when (ns)."""


class _Batch(NamedTuple):
    """Programs of one report, their seeds, their model, and its nodes in the order of `list_moments`."""

    programs: list[Program]
    seeds: range
    model: Model
    nodes: list[int]

    def list_moments(self, changes: Sequence[SimulatedChange]) -> list[Moment]:
        """Return when each call and operation begins and ends by the simulation."""
        found: list[Moment] = []
        for program, seed in zip(self.programs, self.seeds, strict=True):
            times = simulate(program, changes)
            for thread, actions in program.threads.items():
                for n, action in enumerate(actions):
                    found += [(seed, thread, action.do, n, time) for time in times.calls.get(action, ())]
                    found += [(seed, thread, "its operation", n, time) for time in times.operations.get(action, ())]
        return found

    def check(self, changes: Sequence[SimulatedChange]) -> int:
        """Compare a replay with the simulation; return how many of the moments changed."""
        graph, text = self.model.graph, " and ".join(map(str, changes))
        weight = apply_changes(self.model, parse_changes(text)) if changes else graph.weight
        replayed, observed = (time[self.nodes].tolist() for time in (play(graph, weight), graph.time))
        zero = observed[0] - self.programs[0].start  # begins with a call that nothing precedes
        expected = self.list_moments(changes)
        found = [(*moment[:4], ns - zero) for moment, ns in zip(expected, replayed, strict=True)]
        wrong = sorted((moment for moment in zip(expected, found, strict=True) if moment[0] != moment[1]), key=str)
        assert not wrong, f"{text}: {len(wrong)} moments, such as {wrong[:3]} (simulated, replayed)"
        return sum(ns != before for ns, before in zip(replayed, observed, strict=True))


@contextmanager
def opened_batch(batch: int, folder: Path) -> Iterator[_Batch]:
    lengths, seeds = draw_lengths(batch), range(batch * _PROGRAMS, (batch + 1) * _PROGRAMS)
    programs: list[Program] = []
    for seed in seeds:
        first_rank = programs[-1].ranks[-1] + 1 if programs else 0
        programs.append(write_program(seed, first_rank, _LATENCIES[batch % len(_LATENCIES)], lengths))
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
        yield _Batch(programs, seeds, model, nodes)


@pytest.mark.slow
@pytest.mark.parametrize("batch", cases(range(5), push=2))
def test_a_replay_is_the_simulation(batch: int, tmp_path: Path) -> None:
    """Each change is tried with 40 programs at least."""
    with opened_batch(batch, tmp_path) as opened:
        assert opened.check(()) == 0
        for changes in CHANGES[batch % 3 :: 3]:
            moved = opened.check(changes)
            assert moved or any(change.rank == 0 for change in changes), changes


@pytest.mark.all_sets
@pytest.mark.slow
def test_replays_of_many_programs_are_the_simulation(tmp_path: Path) -> None:
    for batch in range(5, 5 + examples(8)):
        with opened_batch(batch, tmp_path) as opened:
            for changes in CHANGES:
                opened.check(changes)
        (tmp_path / "programs.sqlite").unlink()
