"""Merge sorted streams of records into one sorted sequence of blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from nsys2prv_ng.records.columns import Records

_FEWEST, _MOST, _PER_STREAM = 1 << 16, 1 << 18, 256
"""Records of a block: a number per stream, since each stream costs time in each block, within limits of memory."""
LAST_TIME = np.iinfo(np.int64).max

_AHEAD = 4
"""Blocks of records that may be read for one block: where streams are sparse, others are read far ahead."""


class _Cursor:
    """The position of the merge in a stream of chunks. No chunk is empty."""

    def __init__(self, chunks: Iterator[Records]) -> None:
        self._chunks = chunks
        self._read: deque[Records] = deque()
        """Chunks that were read and are not finished. The next record is number `_at` of the first of them."""
        self._at = 0
        self._read_one()

    def _read_one(self) -> bool:
        chunk = next(self._chunks, None)
        if chunk is not None:
            self._read.append(chunk)
        return chunk is not None

    def at_end(self) -> bool:
        return not self._read

    def find_time_after(self, step: int) -> int:
        """Return the time of the record that follows the next `step` records; LAST_TIME if the stream ends before."""
        at, number = self._at + step, 0
        while number < len(self._read) or self._read_one():
            chunk = self._read[number]
            if at < len(chunk):
                return int(chunk.time[at])
            at, number = at - len(chunk), number + 1
        return LAST_TIME

    def count_ahead(self) -> int:
        """Count the records that were read and not taken."""
        return sum(map(len, self._read)) - self._at

    def count(self, limit: int) -> int:
        """Count the records that were read and not taken, up to and including those at the time `limit`."""
        return sum(int(chunk.time.searchsorted(limit, "right")) for chunk in self._read) - self._at

    def take(self, limit: int) -> Iterator[Records]:
        """Yield the next records, up to and including those at the time `limit`."""
        while self._read:
            chunk = self._read[0]
            to = int(chunk.time.searchsorted(limit, "right"))
            if to > self._at:
                yield chunk.part(self._at, to)
                self._at = to
            if to < len(chunk):
                return
            self._read.popleft()
            self._at = 0
            if not self._read:
                self._read_one()


def merge_blocks(streams: Sequence[Iterator[Records]], block: int | None = None) -> Iterator[list[Records]]:
    """Yield blocks of about `block` records; by default, more streams make larger blocks.

    A block is a list of sorted parts, in the order of the streams. No record of a block is later than one of the next,
    and records of one time are always in one block.

    `streams`: chunks of records, each sorted by time and in the order of time.
    """
    cursors = [_Cursor(stream) for stream in streams]
    block = block or min(max(_FEWEST, _PER_STREAM * len(cursors)), _MOST)
    step = max(1, block // max(1, len(cursors)))
    while True:
        cursors = [cursor for cursor in cursors if not cursor.at_end()]
        if not cursors:
            return
        limit, step = _find_limit(cursors, step, block)
        yield [part for cursor in cursors for part in cursor.take(limit)]


def _find_limit(cursors: Sequence[_Cursor], step: int, block: int) -> tuple[int, int]:
    """Return the last time of the next block, and the step to try for the block after it.

    The last time is the earliest one at which any stream has given `step` records. (A stream that ends before sets no
    limit: with many of them, a block would be cut at the end of each.) Some streams are much denser than others, so the
    step that fills a block is found while they are read.
    """
    while True:
        limit = min(cursor.find_time_after(step) for cursor in cursors)
        size = sum(cursor.count(limit) for cursor in cursors)
        if size <= 2 * block or step == 1:
            may_read_more = sum(cursor.count_ahead() for cursor in cursors) < _AHEAD * block
            return limit, 2 * step if size < block // 2 and may_read_more else step
        step = max(1, step // 2)
