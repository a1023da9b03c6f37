"""Simulated programs on nodes whose clocks are known: matched operations, and how far from the truth a fit is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nsys2prv_ng.arrays.groups import join_tables
from nsys2prv_ng.clock.alignment_table import Alignment
from nsys2prv_ng.clock.matches import Matches, match_reports

_MOST_ENDS = 15_000
"""Most ends of operations of a random program."""


@dataclass(frozen=True)
class Program:
    """A program of some seconds: who takes part in the operations of each communicator, and how many there are."""

    nodes: int
    communicators: Sequence[Sequence[int]]
    """Nodes of each communicator, one for each rank."""
    operations: int
    seconds: float
    noise: float = 5e3
    """Scale (ns) of how much later a rank ends an operation than the first one does."""
    outliers: float = 0.02
    """Part of the ends that are late by milliseconds."""
    offset: float = 10e6
    drift: float = 10e-6
    seed: int = 0


@dataclass(frozen=True)
class Run:
    """What the clocks of a program showed, and what was wrong with them: u + offset + drift * u at the time u (ns)."""

    program: Program
    matches: Matches
    offset: np.ndarray
    drift: np.ndarray
    first: float
    last: float

    @property
    def names(self) -> list[str]:
        return [f"node{i:04}" for i in range(self.program.nodes)]

    def errors(self, alignment: Alignment) -> np.ndarray:
        """Largest error (ns) of each node against its reference while operations went on."""
        times = np.linspace(self.first, self.last, 33)
        index = {name: i for i, name in enumerate(self.names)}
        shown = times + self.offset[:, None] + self.drift[:, None] * times
        corrected = []
        for node, time in zip(alignment.nodes, shown, strict=True):
            c = node.correction
            corrected.append(time + c.offset + c.drift * (time - c.since))
        wrong = np.array(corrected) - times
        reference = [index[node.reference or node.name] for node in alignment.nodes]
        return np.abs(wrong - wrong[reference]).max(axis=1)


def run(program: Program) -> Run:
    """Operations begin at random times; ranks enter before, the last at the time of the operation."""
    random = np.random.default_rng(program.seed)
    offset = random.uniform(-program.offset, program.offset, program.nodes)
    drift = random.uniform(-program.drift, program.drift, program.nodes)
    tables = []
    times = []
    for group, nodes in enumerate(np.asarray(each, np.int64) for each in program.communicators):
        shape = program.operations, nodes.size
        time = np.sort(random.uniform(0, program.seconds * 1e9, program.operations))
        times.append(time)
        end = time[:, None] + np.abs(random.normal(0, program.noise, shape))
        end += np.where(random.random(shape) < program.outliers, random.exponential(3e6, shape), 0)
        begin = time[:, None] - random.exponential(1e6, shape)
        begin[np.arange(program.operations), random.integers(0, nodes.size, program.operations)] = time
        ends = shape[0] * shape[1]
        tables.append(
            {
                "group": np.full(ends, group),
                "instance": np.repeat(np.arange(program.operations), nodes.size),
                "fits": np.ones(ends, np.bool_),
                "domain": np.tile(nodes, program.operations),
                "enter": np.rint(begin + offset[nodes] + drift[nodes] * begin).astype(np.int64).ravel(),
                "leave": np.rint(end + offset[nodes] + drift[nodes] * end).astype(np.int64).ravel(),
            }
        )
    every = np.concatenate(times)
    return Run(program, match_reports(join_tables(tables)), offset, drift, float(every.min()), float(every.max()))


def random_program(seed: int) -> Program:
    """2 to 64 nodes with random communicators that may connect them all or not.

    More ends than _MOST_ENDS take time, and test a bound less: with each of them the error of a fit becomes smaller.
    """
    random = np.random.default_rng([seed, 7])
    nodes = int(random.integers(2, 65))
    communicators = []
    for _ in range(int(random.integers(1, 2 + 2 * nodes))):
        size = int(random.integers(2, nodes + 1)) if random.random() < 0.3 else 2
        ranks = int(random.integers(1, 3))
        communicators.append(np.repeat(random.choice(nodes, min(size, nodes), replace=False), ranks))
    return Program(
        nodes,
        communicators,
        operations=min(int(random.integers(2, 300)), _MOST_ENDS // sum(map(len, communicators))),
        seconds=float(10 ** random.uniform(-0.5, 2)),
        noise=float(10 ** random.uniform(2.5, 4.5)),
        outliers=float(random.uniform(0, 0.05)),
        seed=seed,
    )
