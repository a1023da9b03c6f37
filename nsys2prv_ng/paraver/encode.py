"""From resolved records to the text of a .prv, in numba: digits by pairs from a table into a byte buffer."""

from __future__ import annotations

from dataclasses import dataclass

import numba as nb
import numpy as np
import numpy.typing as npt

from nsys2prv_ng.paraver.records import COMMUNICATION, STATE, IntArray, Records

_TWO_DIGITS = np.frombuffer("".join(f"{i:02d}" for i in range(100)).encode(), np.uint8).copy()

# Most bytes that a line can need: kind and four object ids of at most 5 digits, a time of at most 20 and separators; a
# communication names two objects and has four times, which its words (two fields of at most 20 each) leave room for.
_LINE_BYTES = 80
_WORD_BYTES = 44


@dataclass
class RowNumbers:
    """CPU, task and thread (1-based) of each row: int64 arrays of equal length."""

    cpu: IntArray
    task: IntArray
    thread: IntArray


def encode(records: Records, rows: RowNumbers, origin: int) -> npt.NDArray[np.uint8]:
    """Lines of the records, in their order, with times relative to `origin` (ns)."""
    buffer = np.empty(_LINE_BYTES * len(records) + _WORD_BYTES * records.value.size, np.uint8)
    used = _encode(
        buffer,
        records.kind,
        records.time,
        records.place,
        records.first,
        records.handle,
        records.value,
        rows.cpu,
        rows.task,
        rows.thread,
        origin,
    )
    return buffer[:used]


@nb.njit(cache=True, nogil=True)
def _encode(buffer, kind, time, place, first, handle, value, cpu, task, thread, origin):  # type: ignore[no-untyped-def]
    p = 0
    for i in range(kind.size):
        row = place[i]
        w = first[i]
        buffer[p] = 48 + kind[i]
        p = _object(buffer, p + 1, cpu[row], task[row], thread[row])
        p = _number(buffer, p, time[i] - origin)
        if kind[i] == STATE:
            p = _number(buffer, _colon(buffer, p), value[w] - origin)
            p = _number(buffer, _colon(buffer, p), handle[w])
        elif kind[i] == COMMUNICATION:
            receiver = handle[w]
            p = _number(buffer, _colon(buffer, p), value[w] - origin)
            p = _object(buffer, p, cpu[receiver], task[receiver], thread[receiver])
            p = _number(buffer, p, value[w + 1] - origin)
            p = _number(buffer, _colon(buffer, p), value[w + 2] - origin)
            p = _number(buffer, _colon(buffer, p), value[w + 3])
            p = _number(buffer, _colon(buffer, p), handle[w + 3])
        else:
            for j in range(w, first[i + 1]):
                p = _number(buffer, _colon(buffer, p), handle[j])
                p = _number(buffer, _colon(buffer, p), value[j])
        buffer[p] = 10
        p += 1
    return p


@nb.njit(cache=True, nogil=True, inline="always")
def _colon(buffer, p):  # type: ignore[no-untyped-def]
    buffer[p] = 58
    return p + 1


@nb.njit(cache=True, nogil=True)
def _object(buffer, p, cpu, task, thread):  # type: ignore[no-untyped-def]
    """':cpu:1:task:thread:' of a row; there is one application."""
    p = _number(buffer, _colon(buffer, p), cpu)
    buffer[p] = 58
    buffer[p + 1] = 49
    p = _number(buffer, _colon(buffer, p + 2), task)
    p = _number(buffer, _colon(buffer, p), thread)
    return _colon(buffer, p)


@nb.njit(cache=True, nogil=True)
def _number(buffer, p, number):  # type: ignore[no-untyped-def]
    """Decimal digits of an int64 at p; returns the position after them."""
    x = np.int64(number)
    if x < 0:
        buffer[p] = 45
        p += 1
        if x == np.int64(-9223372036854775808):  # has no positive counterpart
            for digit in (57, 50, 50, 51, 51, 55, 50, 48, 51, 54, 56, 53, 52, 55, 55, 53, 56, 48, 56):
                buffer[p] = digit
                p += 1
            return p
        x = -x
    digits = 1
    limit = np.int64(10)
    while digits < 19 and x >= limit:
        digits += 1
        if digits < 19:
            limit *= 10
    q = p + digits
    while x >= 100:
        rest = x // 100
        two = (x - rest * 100) * 2
        q -= 2
        buffer[q] = _TWO_DIGITS[two]
        buffer[q + 1] = _TWO_DIGITS[two + 1]
        x = rest
    if x >= 10:
        buffer[q - 2] = _TWO_DIGITS[x * 2]
        buffer[q - 1] = _TWO_DIGITS[x * 2 + 1]
    else:
        buffer[q - 1] = 48 + x
    return p + digits
