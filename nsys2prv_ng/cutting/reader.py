"""Reads blocks of a trace: one after the other if a limit of the window lies in them, otherwise several at once.

A block that lies entirely before the window, or within it, is read without the blocks before it. Ends that close
nothing in the block close the last open intervals of the blocks before, because intervals of a type nest. So the cores
share the reading, and the blocks are joined in their order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import ByteArray, IntArray
from nsys2prv_ng.cutting import lines
from nsys2prv_ng.cutting.line_fields import MOST_DIGITS, Pairs, Rows
from nsys2prv_ng.cutting.lines import Levels, Scan, Texts, Window, scan
from nsys2prv_ng.cutting.open_lines import OpenLine, OpenLines, OpenPart
from nsys2prv_ng.cutting.type_roles import TypeRoles


class Block(NamedTuple):
    """Whole lines of a trace, the position of the first one in its text, and first and last time (-1: unknown)."""

    text: ByteArray
    base: int
    first: int
    last: int


class Part(NamedTuple):
    """The result of reading a block alone."""

    block: Block
    progress: IntArray
    texts: tuple[bytes, bytes, bytes]
    """Lines in their place; states and communications that start with the window."""
    opened: OpenPart
    rows: IntArray
    """Rows with values in force."""
    held: Levels
    """The values of these rows."""


_TAIL = 4096
"""Number of bytes in which the last line of a block is searched for."""


def make_block(text: ByteArray, base: int) -> Block:
    """Make a block of whole lines."""
    first = _read_time(text[:128].tobytes().split(b"\n", 1)[0])
    tail = text[-_TAIL:].tobytes().split(b"\n")
    is_whole = len(tail) > 2 or text.size <= _TAIL
    return Block(text, base, first, _read_time(tail[-2]) if is_whole else -1)


def _read_time(line: bytes) -> int:
    """Return the time of a record; -1 if the line is not a record or may be cut off."""
    fields = line.split(b":", 6)
    is_record = len(fields) == 7 and fields[0] in (b"1", b"2", b"3") and fields[5].isdigit()
    return int(fields[5]) if is_record and len(fields[5]) <= MOST_DIGITS else -1


class Reader:
    """Reader of the lines of a whole trace, or of single blocks. `scan` updates `progress`."""

    def __init__(self, rows: Rows, roles: TypeRoles) -> None:
        self._rows, self._roles = rows, roles
        row_count = rows.is_kept.size
        shape = row_count, len(roles.levels)
        self._opened = OpenLines(row_count)
        # Zeros take no memory before they are used.
        known = np.zeros(shape, np.bool_), np.zeros(row_count, np.bool_)
        self.levels = Levels(np.zeros(shape, np.int64), *known, np.zeros(row_count, np.int64), np.full(row_count, -1))
        self.progress = np.zeros(lines.PROGRESS, np.int64)
        self._room = -1
        self._fields = np.zeros(16, np.int64)

    def read_alone(self, block: Block, phase: int, window: Window) -> Part | None:
        """Read a block without the blocks before it; return None if it contains a limit of the window or is not
        sorted."""
        self._opened.clear()
        self.levels.has_any.fill(False)
        self.levels.is_known.fill(False)
        self.levels.idle_since.fill(-1)
        self.progress.fill(0)
        self.progress[lines.PHASE], self.progress[lines.BASE] = phase, block.base
        if self.scan(block, window) != lines.BLOCK_READ:
            return None
        rows = np.flatnonzero(self.levels.has_any)
        held = Levels._make(column[rows] for column in self.levels)
        opened = self._opened.take(block.text, block.base)
        return Part(block, self.progress.copy(), self.take_texts(), opened, rows, held)

    def start(self, block: Block) -> None:
        """Start to read a block."""
        self.progress[lines.BASE], self.progress[lines.AT] = block.base, 0

    def scan(self, block: Block, window: Window) -> int:
        """Continue with a block up to a limit of the window; return why it stops."""
        size = block.text.size
        if self.progress[lines.AT] == 0:
            self._make_room(size)
        places = self._rows, self._roles.table, self._opened.stacks
        state = Scan(self.progress, window, *places, self.levels, self._pairs, self._texts, self._fields)
        return scan(block.text, size, state)

    def _make_room(self, size: int) -> None:
        """Make room for the contents of a block: a pair takes at least four bytes, and each time can grow by a
        digit."""
        self._opened.make_room(size // 4 + 1)
        if size > self._room:
            self._room = size
            self._pairs = Pairs(*np.zeros((3, size // 4 + 1), np.int64))
            self._starts = np.arange(3, dtype=np.int64) * (2 * size + 64)
            self._texts = Texts(np.empty(3 * (2 * size + 64), np.uint8), self._starts.copy())

    def take_texts(self) -> tuple[bytes, bytes, bytes]:
        """Return the text written since the last call: lines, and states and communications that start with the
        window."""
        text, end = self._texts
        first, second, third = (
            text[low:high].tobytes() for low, high in zip(self._starts.tolist(), end.tolist(), strict=True)
        )
        end[:] = self._starts
        return first, second, third

    def end_block(self, block: Block) -> None:
        """Keep the lines that a block leaves open."""
        self._opened.keep(block.text, block.base)

    def list_open(self, block: Block | None) -> list[OpenLine]:
        """Return the open lines. `block` is the block that is being read, if any."""
        text, base = (np.zeros(0, np.uint8), _AFTER_ALL) if block is None else (block.text, block.base)
        return self._opened.list_lines(text, base)

    def add(self, part: Part) -> None:
        """Continue after a block that was read alone."""
        rows, held, levels = part.rows, part.held, self.levels
        levels.value[rows] = np.where(held.is_known, held.value, levels.value[rows])
        levels.is_known[rows] |= held.is_known
        levels.has_any[rows] = True
        levels.cpu[rows] = held.cpu
        levels.idle_since[rows] = np.where(held.idle_since < 0, levels.idle_since[rows], held.idle_since)
        self._opened.add(part.opened, part.block.base)
        if part.progress[lines.SKIPPED] and not self.progress[lines.SKIPPED]:
            self.progress[lines.SKIPPED_LINE] = self.progress[lines.LINE] + part.progress[lines.SKIPPED_LINE]
        for count in (lines.LINE, lines.SKIPPED, lines.STATES, lines.EVENTS, lines.COMMUNICATIONS):
            self.progress[count] += part.progress[count]
        self.progress[lines.TIME] = part.progress[lines.TIME]


_AFTER_ALL = 1 << 62
"""A position after every trace."""
