"""Causality: no rank leaves an operation before all that it waits for have entered it.

As a check of corrected clocks, and as bounds: a fit that breaks it by less than its own error is moved until it holds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray
from nsys2prv_ng.clock.matches import NEVER_ENTERS, NEVER_LEAVES, Matches
from nsys2prv_ng.runtime.jit import compiled

_ROUNDS = 40


class Violations(NamedTuple):
    """The operations that break causality, the number of those that could, and the largest violation (ns)."""

    broken: int
    checked: int
    worst: float


class Lines(NamedTuple):
    """Corrections of n clocks: offset (ns) at the time `since` (ns, the UTC of the matches), and drift from there."""

    offset: FloatArray
    drift: FloatArray
    since: FloatArray


def find_violations(matches: Matches, lines: Lines) -> Violations:
    """Count the operations that break causality."""
    count, checked, worst = _count_violations(matches.first, matches.domain, matches.enter, matches.leave, *lines)
    return Violations(int(count), int(checked), float(worst))


def move_within_bounds(matches: Matches, lines: Lines, limit: FloatArray, fixed: BoolArray) -> Lines:
    """Return lines moved as little as causality requires; unchanged if a clock would move by more than `limit` (ns).

    Clocks that are `fixed` stay where they are.
    """
    moved = Lines(lines.offset.copy(), lines.drift, lines.since)
    for _ in range(_ROUNDS):
        missing = np.zeros((moved.offset.size, moved.offset.size))
        _find_missing(matches.first, matches.domain, matches.enter, matches.leave, *moved, missing)
        if not missing.any():
            break
        _push_apart(missing, fixed, moved.offset)
    if (np.abs(moved.offset - lines.offset) > limit).any():
        return lines
    return moved if find_violations(matches, moved).broken < find_violations(matches, lines).broken else lines


def _push_apart(missing: FloatArray, fixed: BoolArray, offset: FloatArray) -> None:
    """Move each pair of clocks apart by its missing time (row: the one that leaves too early), the largest first."""
    late, early = np.nonzero(missing)
    for i in np.argsort(-missing[late, early], kind="stable"):
        a, b = late[i], early[i]
        by = missing[a, b] + 1.0
        if fixed[a] and fixed[b]:
            continue
        share = 0.5 if not fixed[a] and not fixed[b] else 1.0
        offset[a] += 0.0 if fixed[a] else by * share
        offset[b] -= 0.0 if fixed[b] else by * share


@compiled
def _correct(time: int, clock: int, offset: FloatArray, drift: FloatArray, since: FloatArray) -> int:
    """Return the correction of a time, in whole ns as it will be applied."""
    return np.int64(np.rint(offset[clock] + drift[clock] * (time - since[clock])))


@compiled
def _count_violations(
    first: IntArray,
    domain: npt.NDArray[np.int32],
    enter: IntArray,
    leave: IntArray,
    offset: FloatArray,
    drift: FloatArray,
    since: FloatArray,
) -> tuple[int, int, int]:
    count, checked, worst = 0, 0, 0
    for i in range(first.size - 1):
        last_enter, first_leave = NEVER_ENTERS, NEVER_LEAVES
        for k in range(first[i], first[i + 1]):
            if enter[k] != NEVER_ENTERS:
                last_enter = max(last_enter, enter[k] + _correct(enter[k], domain[k], offset, drift, since))
            if leave[k] != NEVER_LEAVES:
                first_leave = min(first_leave, leave[k] + _correct(leave[k], domain[k], offset, drift, since))
        if last_enter != NEVER_ENTERS and first_leave != NEVER_LEAVES:
            checked += 1
            if first_leave < last_enter:
                count += 1
                worst = max(worst, last_enter - first_leave)
    return count, checked, worst


@compiled
def _find_missing(
    first: IntArray,
    domain: npt.NDArray[np.int32],
    enter: IntArray,
    leave: IntArray,
    offset: FloatArray,
    drift: FloatArray,
    since: FloatArray,
    missing: FloatArray,
) -> None:
    """Find the most by which the clock of the first to leave (row) is behind that of the last to enter (column)."""
    for i in range(first.size - 1):
        last_enter, first_leave = NEVER_ENTERS, NEVER_LEAVES
        late, early = 0, 0
        for k in range(first[i], first[i + 1]):
            if enter[k] != NEVER_ENTERS:
                time = enter[k] + _correct(enter[k], domain[k], offset, drift, since)
                if time > last_enter:
                    last_enter, early = time, domain[k]
            if leave[k] != NEVER_LEAVES:
                time = leave[k] + _correct(leave[k], domain[k], offset, drift, since)
                if time < first_leave:
                    first_leave, late = time, domain[k]
        if last_enter != NEVER_ENTERS and first_leave != NEVER_LEAVES and first_leave < last_enter and late != early:
            missing[late, early] = max(missing[late, early], float(last_enter - first_leave))
