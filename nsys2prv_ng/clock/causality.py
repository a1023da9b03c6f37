"""Checks causality: no rank leaves an operation before all ranks that it waits for have entered it.

This law checks corrected clocks, and bounds them: a fit that breaks it by less than the error of the fit is moved until
the law holds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, FloatArray, Int32Array, IntArray, IntTable
from nsys2prv_ng.clock.matches import NEVER_ENTERS, NEVER_LEAVES, Matches
from nsys2prv_ng.runtime.jit import compiled

_ROUNDS = 40
"""Most times that clocks are moved. A choice: lines that break causality after that stay as they were."""
_UNCHECKED = np.iinfo(np.int64).min


class Violations(NamedTuple):
    """Number of operations that break causality, number of checked operations, and the largest violation (ns)."""

    broken: int
    checked: int
    worst: float


class Lines(NamedTuple):
    """Corrections of n clocks: offset (ns) at the time `since` (ns, UTC of the matches), and drift from then."""

    offset: FloatArray
    drift: FloatArray
    since: FloatArray


def find_violations(matches: Matches, lines: Lines) -> Violations:
    """Count the operations that break causality."""
    gap = _find_gaps(matches, lines)[0]
    return Violations(int((gap > 0).sum()), int((gap != _UNCHECKED).sum()), float(gap.max(initial=0)))


def move_within_bounds(matches: Matches, lines: Lines, limit: FloatArray, fixed: BoolArray) -> Lines:
    """Return lines moved as little as causality requires; unchanged if a clock would move by more than `limit` (ns).

    `fixed` clocks do not move.
    """
    moved = Lines(lines.offset.copy(), lines.drift, lines.since)
    for _ in range(_ROUNDS):
        gap, late, early = _find_gaps(matches, moved)
        broken = (gap > 0) & (late != early)
        missing = np.zeros((fixed.size, fixed.size))
        np.maximum.at(missing, (late[broken], early[broken]), gap[broken])
        if not missing.any():
            break
        _push_apart(missing, fixed, moved.offset)
    if (np.abs(moved.offset - lines.offset) > limit).any():
        return lines
    return moved if find_violations(matches, moved).broken < find_violations(matches, lines).broken else lines


def _push_apart(missing: FloatArray, fixed: BoolArray, offset: FloatArray) -> None:
    """Move each pair of clocks apart by its missing time, the largest first.

    `missing`: the least time (ns) by which the clock of each row is behind the clock of each column.
    """
    late, early = np.nonzero(missing)
    for i in np.argsort(-missing[late, early], kind="stable"):
        a, b = late[i], early[i]
        moves_a, moves_b = not fixed[a], not fixed[b]
        by = (missing[a, b] + 1.0) / max(1, moves_a + moves_b)
        offset[a] += by * moves_a
        offset[b] -= by * moves_b


def _find_gaps(matches: Matches, lines: Lines) -> IntArray:
    """Return for each operation (3 x n) the time (ns) from the first to leave to the last to enter, and their clocks.

    The time is _UNCHECKED if no rank enters or none leaves.
    """
    gaps = np.zeros((3, len(matches)), np.int64)
    _fill_gaps(matches.first, matches.domain, matches.enter, matches.leave, lines, gaps)
    return gaps


@compiled
def _correct(time: int, clock: int, lines: Lines) -> int:
    """Return the corrected time, with the correction in whole ns as it will be applied."""
    return time + np.int64(np.rint(lines.offset[clock] + lines.drift[clock] * (time - lines.since[clock])))


@compiled
def _fill_gaps(
    first: IntArray, domain: Int32Array, enter: IntArray, leave: IntArray, lines: Lines, gaps: IntTable
) -> None:
    for i in range(first.size - 1):
        last_enter, first_leave = NEVER_ENTERS, NEVER_LEAVES
        for k in range(first[i], first[i + 1]):
            if enter[k] != NEVER_ENTERS:
                time = _correct(enter[k], np.int64(domain[k]), lines)
                if time > last_enter:
                    last_enter, gaps[2, i] = time, domain[k]
            if leave[k] != NEVER_LEAVES:
                time = _correct(leave[k], np.int64(domain[k]), lines)
                if time < first_leave:
                    first_leave, gaps[1, i] = time, domain[k]
        is_checked = last_enter != NEVER_ENTERS and first_leave != NEVER_LEAVES
        gaps[0, i] = last_enter - first_leave if is_checked else _UNCHECKED
