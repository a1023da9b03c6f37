"""Records the findings of numba kernels in arrays: notes of broken rules, and tallies of unlabelled values.

Both are int64 arrays of a fixed size, independent of the trace.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nsys2prv_ng.arrays.types import IntArray, IntTable
from nsys2prv_ng.paraver.read.problems import SHOWN_LINES, Problem, aggregate_problems
from nsys2prv_ng.runtime.jit import compiled

DETAILS = 4
"""Number of values kept for the message of the first occurrence of a rule."""
SHOWN_VALUES = 20
"""Number of unlabelled values with a problem of their own; one problem sums up the others."""

_LINES = 1 + DETAILS
TALLY_SLOTS = 1 << 14
_FIRST, _SECOND, _COUNT, _LINE = range(4)


def new_notes(rules: int) -> IntArray:
    """Return empty notes, (rules, 1 + DETAILS + SHOWN_LINES).

    A row has the number of occurrences, the values for the message of the first one, and the first lines, or 0.
    """
    return np.zeros((rules, _LINES + SHOWN_LINES), np.int64)


@compiled
def note(notes: IntTable, rule: int, line: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0) -> None:
    """Count an occurrence of a broken rule; a to d are the values for its message."""
    entry = notes[rule]
    if entry[0] == 0:
        entry[1] = a
        entry[2] = b
        entry[3] = c
        entry[4] = d
    entry[0] += 1
    for shown in range(_LINES, entry.size):
        if entry[shown] == line:
            break
        if entry[shown] == 0:
            entry[shown] = line
            break


def read_notes(path: Path, notes: IntTable, messages: dict[int, str]) -> list[Problem]:
    """Return one problem per broken rule, in the order of `messages`.

    The values of the first occurrence fill in a message.
    """
    problems = []
    for rule, message in messages.items():
        count, *numbers = notes[rule].tolist()
        if count:
            lines = [line for line in numbers[DETAILS:] if line]
            problems.append(aggregate_problems(path, message.format(*numbers[:DETAILS]), count, lines))
    return problems


def new_tally() -> IntArray:
    """Return an empty tally, (TALLY_SLOTS + 1, 4): a hash table of pairs with their count and first line.

    The last row has the number of distinct pairs, and the number of occurrences for which the table had no room.
    """
    return np.zeros((TALLY_SLOTS + 1, 4), np.int64)


@compiled
def hash_slot(first: int, second: int, mask: int) -> int:
    """Return the first slot to try for a pair of integers in a hash table of mask + 1 entries.

    This is multiplicative hashing by the upper bits.
    """
    mixed = np.int64(first) * np.int64(-7046029254386353131) + np.int64(second)
    mixed = (mixed ^ (mixed >> 29)) * np.int64(-4658895280553007687)
    return int((mixed ^ (mixed >> 32)) & mask)


@compiled
def tally(table: IntTable, line: int, first: int, second: int) -> None:
    """Count a pair of integers."""
    mask = TALLY_SLOTS - 1
    slot = hash_slot(first, second, mask)
    while table[slot, _COUNT] != 0:
        if table[slot, _FIRST] == first and table[slot, _SECOND] == second:
            table[slot, _COUNT] += 1
            return
        slot = (slot + 1) & mask
    totals = table[TALLY_SLOTS]
    if totals[0] == TALLY_SLOTS // 2:
        totals[1] += 1
        return
    totals[0] += 1
    table[slot, _FIRST] = first
    table[slot, _SECOND] = second
    table[slot, _COUNT] = 1
    table[slot, _LINE] = line


def read_tally(path: Path, table: IntTable, message: str, many: str) -> list[Problem]:
    """Return a problem for each of the first SHOWN_VALUES pairs by line, and one for all others.

    The two integers of a pair fill in `message`; `many` describes the others.
    """
    pairs = table[:TALLY_SLOTS][table[:TALLY_SLOTS, _COUNT] > 0]
    pairs = pairs[np.lexsort((pairs[:, _SECOND], pairs[:, _FIRST], pairs[:, _LINE]))]
    problems = [
        aggregate_problems(path, message.format(first, second), count, [line])
        for first, second, count, line in pairs[:SHOWN_VALUES].tolist()
    ]
    rest = pairs[SHOWN_VALUES:]
    lost = int(table[TALLY_SLOTS, 1])
    if rest.size:
        number = f"{'at least ' if lost else ''}{len(rest)}"
        count = int(rest[:, _COUNT].sum()) + lost
        problems.append(Problem(str(path), int(rest[0, _LINE]), f"{number} more {many} ({count} times)", count))
    return problems
