"""Programs that know which of their operations are one, and tables of what ranks recorded of them."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.operations.lag import Sequence
from nsys2prv_ng.operations.parts import Collectives

MS = 10**6


def program(steps: int, period: int, seed: int) -> Sequence:
    """The same operations in each step; steps do not take the same time."""
    random = np.random.default_rng(seed)
    operation = np.tile(random.integers(0, 3, period), steps).astype(np.int64)
    size = np.tile(random.choice([8, 4096, 1 << 20], period), steps).astype(np.int64)
    pause = random.normal(5 * MS, MS / 2, steps * period)
    return Sequence(operation, size, np.cumsum(np.maximum(pause, MS)).astype(np.int64))


def seen(whole: Sequence, low: int, high: int, offset: int, drift: float, seed: int) -> Sequence:
    """What one rank recorded of it, by its own clock."""
    random = np.random.default_rng(seed)
    end = whole.end[low:high] + offset + drift * whole.end[low:high] + np.abs(random.normal(0, 5e3, high - low))
    return Sequence(whole.operation[low:high], whole.size[low:high], np.rint(end).astype(np.int64))


def table(rows: list[tuple[str, str, int, int, int, int, int, bool]], *, known: bool = True) -> Collectives:
    """From rows (communicator, operation, bytes, member, begin, end, kind, is root)."""
    communicators, operations = sorted({row[0] for row in rows}), sorted({row[1] for row in rows})
    size, member, begin, end, kind = np.array([row[2:7] for row in rows], np.int64).T
    return Collectives(
        communicators,
        operations,
        np.array([communicators.index(row[0]) for row in rows]),
        np.array([operations.index(row[1]) for row in rows]),
        size,
        member,
        begin,
        end,
        kind,
        np.array([row[7] for row in rows]),
        np.full(len(rows), known),
        np.zeros(len(rows), np.int64),
        [0] * len(communicators),
    )
