"""Time and memory to match collectives over ranks and to split them into waiting and moving.

python benchmarks/match_operations.py [RANKS [OPERATIONS [COMMUNICATORS]]]

The columns of all ranks are made in memory: steps of eight operations whose sizes repeat themselves, with ranks that
are late by chance and captures that start and stop between any two operations.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from nsys2prv_ng.analysis.waits.clocks import Parts
from nsys2prv_ng.analysis.waits.rules import SPLIT, split_operations
from nsys2prv_ng.operations.matching import Operations, match_collectives
from nsys2prv_ng.operations.parts import SYNCHRONISING, Collectives

_PERIOD = 8
_MOST_CUT = 20
"""Most operations that a capture starts later or stops earlier than another."""
_ON_A_NODE = 8


def make_ranks(
    ranks: int, operations: int, communicators: int, seed: int = 1
) -> list[tuple[list[Collectives], int, int]]:
    """Return the table of each rank. Communicators are of all ranks, and each has an equal part of the operations."""
    random = np.random.default_rng(seed)
    steps = np.arange(operations, dtype=np.int64)
    latest = np.cumsum(random.integers(2_000_000, 4_000_000, operations))
    moving = random.integers(50_000, 500_000, operations)
    sizes = 8 << (steps % _PERIOD * 2)
    tables = []
    for rank in range(ranks):
        low, high = random.integers(0, _MOST_CUT), operations - random.integers(0, _MOST_CUT)
        kept = steps[low:high]
        n = kept.size
        late = random.integers(0, 1_000_000, n)
        tables.append(
            Collectives(
                communicators=[f"nccl {number}" for number in range(communicators)],
                operations=["ncclAllReduce", "ncclAllGather"],
                communicator=kept % communicators,
                operation=kept // communicators % 2,
                bytes=sizes[low:high],
                member=np.zeros(n, np.int64),
                begin=latest[low:high] - late,
                end=latest[low:high] + moving[low:high] + random.integers(0, 5_000, n),
                kind=np.full(n, SYNCHRONISING, np.int64),
                is_root=np.zeros(n, np.bool_),
                has_communicator=np.ones(n, np.bool_),
                place=np.zeros(n, np.int64),
                sizes=[ranks] * communicators,
                owners=[(rank, 0)],
            )
        )
    return [([table], rank // _ON_A_NODE, 0) for rank, table in enumerate(tables)]


def split(operations: Operations, ranks: int) -> tuple[int, int]:
    """Split matched operations; return how many parts were split, and their waiting (ns)."""
    table, part = operations.table, operations.part
    domain = table.domain[part].astype(np.int64)
    begin, end = table.begin[part], table.end[part]
    until, verdict, _, _ = split_operations(
        operations.first,
        table.kind[operations.leader].astype(np.int64),
        np.diff(operations.first) == ranks,
        Parts(domain, domain, begin, end),
        table.is_root[part],
        np.zeros(int(domain.max()) + 1),
    )
    return int((verdict == SPLIT).sum()), int((until - begin).sum())


def main() -> None:
    ranks, operations, communicators = [*map(int, sys.argv[1:]), *(1024, 10_000, 4)[len(sys.argv) - 1 :]]
    split(match_collectives(make_ranks(2, 100, 2)), 2)  # compiles
    reports = make_ranks(ranks, operations, communicators)
    parts = sum(tables[0].begin.size for tables, _, _ in reports)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    start = time.perf_counter()
    matched = match_collectives(reports)
    matching = time.perf_counter() - start
    start = time.perf_counter()
    number, wait = split(matched, ranks)
    splitting = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{ranks} ranks, {operations} operations in {communicators} communicators: {parts / 1e6:.2f} million parts")
    print(f"matching {matching:.2f} s, {parts / matching / 1e6:.1f} million parts a second")
    print(f"splitting {splitting:.2f} s, {matched.part.size / splitting / 1e6:.1f} million parts a second")
    print(f"{len(matched)} operations, {number} parts split, {wait / 1e9:.0f} s of waiting")
    print(f"peak memory {memory:.2f} GB, {before:.2f} GB of it the input")


if __name__ == "__main__":
    main()
