"""The lines of a trace whose intervals are open at a position in its text.

Each row has a list of its open intervals, starting with the one that opened last. So memory depends on what is open,
not on the size of the trace. The next 0 of a type closes the interval of that type that opened last: intervals of a
type nest.
"""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import ByteArray, IntArray, IntTable
from nsys2prv_ng.runtime.jit import compiled, inlined

ROW, TYPE, POSITION, START, LENGTH, NEXT = range(6)
"""Columns of an open interval. POSITION is the position of its line in the text of the trace. START is the position in
the block if the line is in this block, else in the kept texts. NEXT is one more than the place of the interval before
it on its row. A free place has LENGTH 0."""
COLUMNS = 6
USED, FREE, UNMATCHED = range(3)
"""Counts: places that were ever used, one more than the first free place, ends without a start."""

_DEEPEST = 4096
"""Most open intervals of a row. Beyond that, the oldest are forgotten: some types of other tools label 0, but never
write it."""
_KEPT = 512


class Stacks(NamedTuple):
    """The open intervals: their places, the first place (plus 1) and the depth of each row, and counts.

    `unmatched` (n x 2) has the row and type of each end whose start is not in this part of the trace.
    """

    place: IntTable
    head: IntArray
    depth: IntArray
    counts: IntArray
    unmatched: IntTable


class OpenPart(NamedTuple):
    """What a part of a trace leaves open (n x COLUMNS, texts of lines), and what it ends of earlier parts (n x 2)."""

    place: IntTable
    texts: ByteArray
    unmatched: IntTable


class OpenLine(NamedTuple):
    """A line with open intervals: its text without its end, and the types that are open."""

    text: bytes
    open_types: frozenset[int]


class OpenLines:
    """The open intervals, and the texts of the lines that opened them in earlier blocks."""

    def __init__(self, rows: int) -> None:
        self.stacks = Stacks(
            np.zeros((0, COLUMNS), np.int64),
            np.zeros(rows, np.int64),
            np.zeros(rows, np.int64),
            np.zeros(3, np.int64),
            np.zeros((0, 2), np.int64),
        )
        self._texts = np.zeros(0, np.uint8)

    def clear(self) -> None:
        """Forget everything."""
        for column in (self.stacks.head, self.stacks.depth, self.stacks.counts):
            column.fill(0)
        self._texts = np.zeros(0, np.uint8)

    def make_room(self, pairs: int) -> None:
        """Make room for the intervals that a block with this number of pairs can open."""
        place, used = self.stacks.place, int(self.stacks.counts[USED])
        if used + pairs > len(place):
            larger = np.zeros((2 * (used + pairs), COLUMNS), np.int64)
            larger[:used] = place[:used]
            self.stacks = self.stacks._replace(place=larger)
        if pairs > len(self.stacks.unmatched):
            self.stacks = self.stacks._replace(unmatched=np.zeros((pairs, 2), np.int64))
        self.stacks.counts[UNMATCHED] = 0

    def keep(self, text: ByteArray, base: int) -> None:
        """Copy the open lines out of this block. `base` is the position of the block in the trace."""
        place, used = self.stacks.place, int(self.stacks.counts[USED])
        kept = np.empty(int(place[:used, LENGTH].sum()), np.uint8)
        _keep_texts(place, used, text, base, self._texts, kept)
        self._texts = kept

    def take(self, text: ByteArray, base: int) -> OpenPart:
        """Return what a block at `base` leaves open and ends, after it was read alone."""
        self.keep(text, base)
        unmatched = self.stacks.unmatched[: int(self.stacks.counts[UNMATCHED])].copy()
        return OpenPart(self._sort(), self._texts, unmatched)

    def add(self, part: OpenPart, base: int) -> None:
        """Apply what a block at `base` leaves open and ends."""
        self.make_room(max(len(part.place), len(part.unmatched)))
        _add_part(self.stacks, part.place, part.unmatched)
        self.keep(part.texts, base)

    def list_lines(self, text: ByteArray, base: int) -> list[OpenLine]:
        """Return the open lines in the order of the trace. `text` is the block at `base`."""
        lines = []
        for position, group in groupby(self._sort().tolist(), key=lambda place: int(place[POSITION])):
            opened = list(group)
            start, length = opened[0][START], opened[0][LENGTH]
            source = text if position >= base else self._texts
            types = frozenset(place[TYPE] for place in opened)
            lines.append(OpenLine(source[start : start + length].tobytes(), types))
        return lines

    def _sort(self) -> IntArray:
        """Return the open intervals in the order of the trace (n x COLUMNS)."""
        place = self.stacks.place[: int(self.stacks.counts[USED])]
        place = place[place[:, LENGTH] > 0]
        return place[np.argsort(place[:, POSITION], kind="stable")]


@inlined
def push(stacks: Stacks, row: int, number: int, position: int, start: int, length: int) -> None:
    """Open an interval of a type on a row."""
    place, head, depth, counts, _ = stacks
    if depth[row] >= _DEEPEST:
        _forget_oldest(stacks, row, number)
    if counts[FREE] > 0:
        new = counts[FREE] - 1
        counts[FREE] = place[new, NEXT]
    else:
        new = counts[USED]
        counts[USED] += 1
    place[new, ROW] = row
    place[new, TYPE] = number
    place[new, POSITION] = position
    place[new, START] = start
    place[new, LENGTH] = length
    place[new, NEXT] = head[row]
    head[row] = new + 1
    depth[row] += 1


@inlined
def pop(stacks: Stacks, row: int, number: int) -> None:
    """Close the interval of a type on a row that opened last, or note that none is open."""
    place, head, _, counts, unmatched = stacks
    before, at = np.int64(0), head[row]
    while at > 0 and place[at - 1, TYPE] != number:
        before, at = at, place[at - 1, NEXT]
    if at > 0:
        _unlink(stacks, row, before, at)
    else:
        unmatched[counts[UNMATCHED], 0], unmatched[counts[UNMATCHED], 1] = row, number
        counts[UNMATCHED] += 1


@inlined
def _unlink(stacks: Stacks, row: int, before: int, at: int) -> None:
    """Free a place (`at` and `before` are one more than the places; 0 before the first of the row)."""
    place, head, depth, counts, _ = stacks
    if before == 0:
        head[row] = place[at - 1, NEXT]
    else:
        place[before - 1, NEXT] = place[at - 1, NEXT]
    place[at - 1, NEXT] = counts[FREE]
    place[at - 1, LENGTH] = 0
    counts[FREE] = at
    depth[row] -= 1


@compiled
def _forget_oldest(stacks: Stacks, row: int, number: int) -> None:
    """Forget all but the last _KEPT intervals of a type on a row."""
    place, head = stacks.place, stacks.head
    kept = 0
    before, at = np.int64(0), head[row]
    while at > 0:
        following = place[at - 1, NEXT]
        if place[at - 1, TYPE] == number:
            kept += 1
        if place[at - 1, TYPE] == number and kept > _KEPT:
            _unlink(stacks, row, before, at)
        else:
            before = at
        at = following


@compiled
def _add_part(stacks: Stacks, place: IntTable, unmatched: IntTable) -> None:
    """Close what a part ends, then open what it leaves open. The caller has made room for both."""
    for i in range(len(unmatched)):
        pop(stacks, unmatched[i, 0], unmatched[i, 1])
    for i in range(len(place)):
        push(stacks, place[i, ROW], place[i, TYPE], place[i, POSITION], place[i, START], place[i, LENGTH])


@compiled
def _keep_texts(place: IntTable, used: int, text: ByteArray, base: int, before: ByteArray, kept: ByteArray) -> None:
    """Copy the texts of all open lines to `kept`, from the block at `base` or from the texts kept before."""
    end = 0
    for i in range(used):
        start, length = place[i, START], place[i, LENGTH]
        if length == 0:
            continue
        source = text if place[i, POSITION] >= base else before
        for k in range(length):
            kept[end + k] = source[start + k]
        place[i, START] = end
        end += length
