"""Keeps the records of a trace as columns, which are sorted, merged and, at the very end, formatted as text.

A record is one line of the .prv. Its fixed part is (time, tie, place, kind); its variable part is a run of words, pairs
(handle, value) in two flat arrays:

    event          (event type, value) for each of its pairs
    state          (state, end)
    communication  (place of the receiver, physical send), (0, logical receive), (0, physical receive), (tag, size)

`place` is the id of a row and `handle` the id of an event type, both local to the report until `resolve_maps`. Times
are ns, int64.

`tie` orders records of equal time: ends (inner first), zero-length intervals and points, begins (outer first), states,
communications. Its top bits are the class; for ends and begins, the other bits are the length of the interval, so that
each of its two lines gives the other limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import BoolArray, Index, Int8Array, Int32Array, IntArray
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.records.sorting import changes_nothing, gather_offsets, gather_words, sort_by_time
from nsys2prv_ng.runtime.jit import compiled, inlined
from nsys2prv_ng.value_class import ValueClass

ColumnTuple = tuple[IntArray, IntArray, Int32Array, Int8Array, IntArray, Int32Array, IntArray]
"""The columns of records in the order of their fields, as compiled functions take them."""

KINDS = STATE, EVENT, COMMUNICATION = 1, 2, 3
"""Kinds of records, with the numbers of Paraver."""

END, EMPTY, POINT, BEGIN, STATE_LINE, COMMUNICATION_LINE = range(6)
"""Classes of `tie`. EMPTY is an interval without length, whose single line opens and closes it."""

_CLASS_SHIFT = 58
LONGEST = (1 << _CLASS_SHIFT) - 1
"""The longest interval (ns) that fits into a tie."""

FARTHEST_TIME = 2**62 - 2**53
"""Times (ns) are at most this far from 0, so that none overflows on a clock whose offset is below 2**62."""

MOST_TYPES = 1 << 31
"""More than all handles. In records of all reports, handles are type numbers."""

_Length = TypeVar("_Length", int, IntArray)


class Pair(NamedTuple):
    """A type:value pair of n events: handle and value for all or arrays (n); `present` (n) marks the events with it."""

    handle: Annotated[int | IntArray, Index("labels.types")]
    value: int | IntArray
    present: BoolArray | None = None


class Records(ValueClass):
    """Columns of n records and their m words. `first` is n + 1 offsets into the words."""

    time: IntArray
    tie: IntArray
    place: Int32Array
    kind: Int8Array
    first: IntArray
    handle: Int32Array
    value: IntArray

    @classmethod
    def make_empty(cls, n: int, m: int) -> Records:
        """Return columns of n records and m words that the caller fills."""
        i64, i32 = np.int64, np.int32
        columns = np.empty(n, i64), np.empty(n, i64), np.empty(n, i32), np.empty(n, np.int8)
        return cls(*columns, np.empty(n + 1, i64), np.empty(m, i32), np.empty(m, i64))

    def __len__(self) -> int:
        return int(self.time.size)

    @property
    def columns(self) -> ColumnTuple:
        return self.time, self.tie, self.place, self.kind, self.first, self.handle, self.value

    @property
    def tie_class(self) -> IntArray:
        return self.tie >> _CLASS_SHIFT

    @property
    def length(self) -> IntArray:
        """Length (ns) of the interval of each begin or end line."""
        return unpack_tie(self.tie)[1]

    def take(self, order: IntArray) -> Records:
        """Return the records at these indices, in this order."""
        return self._take(order, int(np.diff(self.first)[order].sum()))

    def _take(self, order: IntArray, words: int) -> Records:
        # numpy allocates large arrays in huge pages and numba does not: for large arrays this takes half the time.
        first = np.empty(order.size + 1, np.int64)
        gather_offsets(order, self.first, first)
        handle, value = np.empty(words, np.int32), np.empty(words, np.int64)
        gather_words(order, self.first, self.handle, handle)
        gather_words(order, self.first, self.value, value)
        places, kinds = self.place.take(order), self.kind.take(order)
        return Records(self.time.take(order), self.tie.take(order), places, kinds, first, handle, value)

    def sorted(self) -> Records:
        """Return the records ordered by time and tie; records that agree in both keep their order.

        Returns the same object if the records are in order.
        """
        order = sort_by_time(self.time, self.tie)
        return self if changes_nothing(order) else self._take(order, self.value.size)


# ---- ties ------------------------------------------------------------------------------------------------------------


def pack_tie(line_class: int, length: _Length) -> _Length:
    """Return the ties of lines of a class. `length` (ns): of the interval for begin and end lines, else 0."""
    low = LONGEST - length if line_class == BEGIN else length  # the outer, longer interval begins first
    return (line_class << _CLASS_SHIFT) | low


def unpack_tie(tie: IntArray) -> tuple[IntArray, IntArray]:
    """Return the class and the length (ns) that `pack_tie` was given for each line."""
    line_class, low = tie >> _CLASS_SHIFT, tie & LONGEST
    return line_class, np.where(line_class == BEGIN, LONGEST - low, low)


@inlined
def unpack_tie_class(tie: int) -> int:
    """Return the class of one tie, within a compiled function."""
    return tie >> _CLASS_SHIFT


# ---- parts -----------------------------------------------------------------------------------------------------------


def concatenate(parts: Sequence[Records]) -> Records:
    """Return the records of several parts, one part after the other; a single part itself."""
    if len(parts) == 1:
        return parts[0]
    parts = [Records.make_empty(0, 0), *parts]  # gives the types of columns without parts
    starts = np.cumsum([0, *(part.value.size for part in parts)])
    first = [part.first[:-1] + start for part, start in zip(parts, starts, strict=False)]
    made = Records(*map(np.concatenate, zip(*(part.columns for part in parts), strict=True)))
    made.first = np.concatenate([*first, starts[-1:]])
    return made


def count_events(records: Records) -> int:
    """Count intervals, points and communications: each interval has one begin line, or one line if it has no length."""
    return int(np.isin(records.tie_class, (BEGIN, EMPTY, POINT, COMMUNICATION_LINE)).sum())


def _make_lines(place: npt.ArrayLike, time: IntArray, tie: IntArray, kind: int, pairs: Sequence[Pair]) -> Records:
    """Make one record for each time, with the `pairs` that are present."""
    n = time.size
    kinds = np.full(n, kind, np.int8)
    places = np.asarray(place, np.int32)
    if all(pair.present is None for pair in pairs):
        words = len(pairs)
        handle, value = np.empty((n, words), np.int32), np.empty((n, words), np.int64)
        for column, pair in enumerate(pairs):
            handle[:, column] = pair.handle
            value[:, column] = pair.value
        return Records(time, tie, places, kinds, np.arange(n + 1) * words, handle.ravel(), value.ravel())
    count = np.zeros(n, np.int64)
    for pair in pairs:
        count += 1 if pair.present is None else pair.present
    first = np.zeros(n + 1, np.int64)
    np.cumsum(count, out=first[1:])
    handle = np.empty(first[-1], np.int32)
    value = np.empty(first[-1], np.int64)
    at = first[:-1].copy()
    for pair in pairs:
        here: slice | BoolArray = slice(None) if pair.present is None else pair.present
        where = at[here]
        handle[where] = pair.handle[here] if isinstance(pair.handle, np.ndarray) else pair.handle
        value[where] = pair.value[here] if isinstance(pair.value, np.ndarray) else pair.value
        at[here] += 1
    return Records(time, tie, places, kinds, first, handle, value)


def make_events(place: IntArray, time: IntArray, pairs: Sequence[Pair]) -> Records:
    """Make n events at points in time: `place` and `time` (ns) are n long, and so are the pairs."""
    return _make_lines(place, time, np.full(time.size, pack_tie(POINT, 0), np.int64), EVENT, pairs)


def make_intervals(
    place: IntArray, begin: IntArray, end: IntArray, opening: Sequence[Pair], closing: Sequence[int | IntArray]
) -> Records:
    """Make n intervals, begin <= end (ns): a line with the pairs `opening`, and one that sets the types `closing` to 0.

    Intervals of the same row and type must nest. If two are equal, the earlier one in the columns is the outer one.
    An interval without length is a single line that opens and closes.
    """
    length = np.minimum(end - begin, LONGEST)  # no more fits into a tie, and no trace has longer intervals
    long = length > 0
    zeros = [Pair(handle, 0) for handle in closing]
    zero_line = _make_lines(
        place[~long],
        begin[~long],
        np.full(int((~long).sum()), pack_tie(EMPTY, 0), np.int64),
        EVENT,
        select(opening, ~long) + select(zeros, ~long),
    )
    begin_line = _make_lines(place[long], begin[long], pack_tie(BEGIN, length[long]), EVENT, select(opening, long))
    # If intervals are equal, the inner, later one ends first: so the order is reversed, and the stable sort keeps it.
    back = np.flatnonzero(long)[::-1]
    end_line = _make_lines(place[back], end[back], pack_tie(END, length[back]), EVENT, select(zeros, back))
    return concatenate([begin_line, zero_line, end_line])


def select(pairs: Sequence[Pair], where: npt.NDArray[np.generic]) -> list[Pair]:
    """Return the pairs of the events at these indices, or in this mask."""
    return [
        Pair(
            pair.handle[where] if isinstance(pair.handle, np.ndarray) else pair.handle,
            pair.value[where] if isinstance(pair.value, np.ndarray) else pair.value,
            None if pair.present is None else pair.present[where],
        )
        for pair in pairs
    ]


def make_states(place: IntArray, begin: IntArray, end: IntArray, state: IntArray) -> Records:
    """Make n state records, which must not overlap on a row. States without length show nothing and are skipped."""
    long = end > begin
    if not long.all():
        place, begin, end, state = place[long], begin[long], end[long], state[long]
    tie = np.full(begin.size, pack_tie(STATE_LINE, 0), np.int64)
    return _make_lines(place, begin, tie, STATE, [Pair(state, end)])


def make_communications(
    sender: IntArray, send: IntArray, receiver: IntArray, receive: IntArray, size: IntArray | int, tag: IntArray | int
) -> Records:
    """Make communications of n, from row `sender` at `send` to row `receiver` at `receive` (ns), `size` in bytes.

    Logical and physical times are equal: nsys records one time for each side.
    """
    tie = np.full(send.size, pack_tie(COMMUNICATION_LINE, 0), np.int64)
    words = [Pair(receiver, send), Pair(0, receive), Pair(0, receive), Pair(tag, size)]
    return _make_lines(sender, send, tie, COMMUNICATION, words)


def shift_times(records: Records, offset: int) -> None:
    """Move records in time by `offset` ns, in place."""
    if offset:
        shift_words(records.kind, records.first, records.value, 0, len(records), offset)
        records.time += offset


@compiled
def shift_words(kind: Int8Array, first: IntArray, value: IntArray, low: int, high: int, offset: int) -> None:
    """Move the times in the words of the records low .. high - 1 by `offset` ns, in place."""
    for i in range(low, high):
        if kind[i] == STATE:
            value[first[i]] += offset
        elif kind[i] == COMMUNICATION:
            for j in range(first[i], first[i] + 3):
                value[j] += offset


def refuse_damaged(records: Records, places: int, shelf: object) -> None:
    """Raise TranslationError for records from a file that compiled loops cannot trust.

    `places`: more than the places of all records; receivers may have places beyond.
    """
    is_sound = are_sound(records.columns, 0, len(records), MOST_TYPES, MOST_TYPES, 0)
    if not is_sound or records.place.max(initial=-1) >= places:
        raise make_damage_error(shelf)


def make_damage_error(shelf: object) -> TranslationError:
    """Return the error for a file of columns (`shelf`) whose records are damaged."""
    return TranslationError(f"events of shelf {shelf} are damaged; read its report again")


@compiled
def are_sound(columns: ColumnTuple, low: int, high: int, places: int, types: int, offset: int) -> bool:
    """Return whether the records low .. high - 1 are in order, with sound times, words, places below `places` and
    handles below `types`. `offset` (ns): what was added to the times of lines, but not yet to those in words."""
    time, tie, place, kind, first, handle, value = columns
    for i in range(low, high):
        words, line_class = first[i + 1] - first[i], unpack_tie_class(tie[i])
        if first[i] < 0 or words < 0 or first[i + 1] > handle.size or not 0 <= place[i] < places:
            return False
        if (i > low and time[i] < time[i - 1]) or not _has_sound_tie(time[i], tie[i]):
            return False
        if kind[i] == EVENT:
            if line_class > BEGIN:
                return False
            for j in range(first[i], first[i + 1]):
                if not 0 <= handle[j] < types:
                    return False
        elif kind[i] == COMMUNICATION:
            if line_class != COMMUNICATION_LINE or words != 4 or not 0 <= handle[first[i]] < places:
                return False
            for j in range(first[i], first[i] + 3):
                if not _is_time(value[j]):
                    return False
        elif kind[i] != STATE or line_class != STATE_LINE or words != 1:
            return False
        else:
            if not time[i] - offset <= value[first[i]] <= FARTHEST_TIME:
                return False
    return True


@inlined
def _has_sound_tie(time: int, tie: int) -> bool:
    """Return whether the time of a line, and the other limit that its tie gives, are times."""
    line_class, rest = unpack_tie_class(tie), tie & LONGEST
    if line_class == BEGIN:
        return _is_time(time) and _is_time(time + LONGEST - rest)
    if line_class == END:
        return _is_time(time) and _is_time(time - rest)
    return line_class >= 0 and rest == 0 and _is_time(time)


@inlined
def _is_time(time: int) -> bool:
    return -FARTHEST_TIME <= time <= FARTHEST_TIME


def drop_places(records: Records, without: BoolArray) -> Records:
    """Return the records that have no place in `without`, a mask by place."""
    out = without[records.place]
    is_communication = records.kind == COMMUNICATION
    out[is_communication] |= without[records.handle[records.first[:-1][is_communication]]]
    return records.take(np.flatnonzero(~out)) if out.any() else records


def move_to_rows(records: Records, rows: IntArray) -> Records:
    """Return the records with `rows[place]` as places, without records whose place has no row (-1)."""
    moved = drop_places(records, rows < 0)
    words = moved.first[:-1][moved.kind == COMMUNICATION]
    handle = moved.handle.copy()
    handle[words] = rows[handle[words]]
    return replace(moved, place=rows[moved.place].astype(np.int32), handle=handle)


@compiled
def resolve_maps(
    columns: ColumnTuple, low: int, high: int, rows: IntArray, types: IntArray, starts: IntArray, tables: IntArray
) -> None:
    """Replace the ids of a report by the ids of the trace: place -> row, handle -> type number, name id -> value.

    Changes the records low .. high - 1 in place, given their columns. `rows` is by place; `types`, `starts` and
    `tables` come from `Numbering.maps`.
    """
    _, _, place, kind, first, handle, value = columns
    for i in range(low, high):
        place[i] = rows[place[i]]
        if kind[i] == EVENT:
            for j in range(first[i], first[i + 1]):
                h = handle[j]
                if starts[h] >= 0:
                    if value[j] < 0 or starts[h] + value[j] >= tables.size:
                        raise IndexError("a value of a type with names is not the id of a name")
                    value[j] = tables[starts[h] + value[j]]
                handle[j] = types[h]
        elif kind[i] == COMMUNICATION:
            handle[first[i]] = rows[handle[first[i]]]
