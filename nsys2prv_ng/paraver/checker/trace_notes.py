"""Where numba kernels put down what they find in a trace: rules that were broken, and values that have no label.

Both are int64 arrays of a fixed size, whatever the trace. Numba's cache of a kernel does not notice changes in modules
that it imports: whoever changes this one removes the __pycache__ beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from nsys2prv_ng.paraver.read.problems import SHOWN_LINES, Problem, aggregate_problems
from nsys2prv_ng.runtime.jit import compiled

Bytes = NDArray[np.uint8]
IntArray = NDArray[np.int64]
Kernel = TypeVar("Kernel", bound=Callable[..., object])

DETAILS = 4
"""Numbers kept for the message of the first occurrence of a rule."""
SHOWN_VALUES = 20
"""Unlabelled values that are reported one by one; the others are summed up."""

_LINES = 1 + DETAILS
TALLY_SLOTS = 1 << 14
_FIRST, _SECOND, _COUNT, _LINE = range(4)


def kernel(function: Kernel) -> Kernel:
    """Compiled; a type checker still sees the function's own type."""
    return cast(Kernel, compiled(function))


def new_notes(rules: int) -> IntArray:
    """(rules, 1 + DETAILS + SHOWN_LINES): occurrences, numbers for the message of the first, its first lines or 0."""
    return np.zeros((rules, _LINES + SHOWN_LINES), np.int64)


@kernel
def note(notes: IntArray, rule: int, line: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0) -> None:
    """Counts an occurrence of a rule."""
    found = notes[rule]
    if found[0] == 0:
        found[1] = a
        found[2] = b
        found[3] = c
        found[4] = d
    found[0] += 1
    for shown in range(_LINES, found.size):
        if found[shown] == line:
            break
        if found[shown] == 0:
            found[shown] = line
            break


def read_notes(path: Path, notes: IntArray, messages: dict[int, str]) -> list[Problem]:
    """One problem for each rule that was broken; its message is formatted with the numbers of the first occurrence."""
    problems = []
    for rule, message in messages.items():
        count, *numbers = notes[rule].tolist()
        if count:
            lines = [line for line in numbers[DETAILS:] if line]
            problems.append(aggregate_problems(path, message.format(*numbers[:DETAILS]), count, lines))
    return problems


def new_tally() -> IntArray:
    """(TALLY_SLOTS + 1, 4): a hash table of pairs with count and first line.

    The last line holds the number of distinct pairs, and that of occurrences which found no place any more.
    """
    return np.zeros((TALLY_SLOTS + 1, 4), np.int64)


@kernel
def hash_slot(first: int, second: int, mask: int) -> int:
    """Where a pair of integers starts in a hash table of mask + 1 entries (multiplicative hashing, upper bits)."""
    mixed = np.int64(first) * np.int64(-7046029254386353131) + np.int64(second)
    mixed = (mixed ^ (mixed >> 29)) * np.int64(-4658895280553007687)
    return int((mixed ^ (mixed >> 32)) & mask)


@kernel
def tally(table: IntArray, line: int, first: int, second: int) -> None:
    """Counts a pair of integers."""
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


def read_tally(path: Path, table: IntArray, message: str, many: str) -> list[Problem]:
    """A problem for each of the first pairs (`message` is formatted with the two), and one for all others (`many`)."""
    found = table[:TALLY_SLOTS][table[:TALLY_SLOTS, _COUNT] > 0]
    found = found[np.lexsort((found[:, _SECOND], found[:, _FIRST], found[:, _LINE]))]
    problems = [
        aggregate_problems(path, message.format(first, second), count, [line])
        for first, second, count, line in found[:SHOWN_VALUES].tolist()
    ]
    rest = found[SHOWN_VALUES:]
    lost = int(table[TALLY_SLOTS, 1])
    if rest.size:
        number = f"{'at least ' if lost else ''}{len(rest)}"
        count = int(rest[:, _COUNT].sum()) + lost
        problems.append(Problem(str(path), int(rest[0, _LINE]), f"{number} more {many} ({count} times)", count))
    return problems
