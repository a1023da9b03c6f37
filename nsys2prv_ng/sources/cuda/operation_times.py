"""Judges the times of device operations by the calls that launched them, and by the order of streams.

No operation starts before its launch: of 450,176 in real reports, each starts at least 3.4 us after its call began.
CUPTI converts the times of a GPU to the clock of its host, and the conversion may be wrong by hundreds of us
(attention-gym issue 487): then most of the operations that find their GPU idle start too early. Single records may be
corrupt, and start seconds before their launch (pytorch issue 192021).

A stream works in order. So an operation has ended if a later one of its stream has.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.report.database import NULL

CLOCK_ERROR = 10**6
"""What starts earlier before its launch than this (ns) is corrupt: clocks were wrong by hundreds of us (issue 487)."""
_FEWEST = 3
"""Fewest operations that prove an error of a clock, if they are early by the same time but for CLOCK_ERROR. A choice:
one or two may be corrupt alike."""
SLOWEST_FIRST_LAUNCH = 136_000
"""An operation that finds its GPU idle starts up to this time (ns) after its call: the fastest launch of each of 103
processes and GPUs in real reports took 3.4 to 136 us (m-big). So a clock may be behind by as much more than launches
prove."""


class ClockError(NamedTuple):
    """A GPU whose clock is behind that of its host.

    `behind`: by at least this time (ns), as its launches prove. `early`: number of operations that start before their
    launch. `launched`: number of operations with a recorded launch.
    """

    process: int
    device: int
    behind: int
    early: int
    launched: int


def find_clock_errors(
    process: IntArray, device: IntArray, begin: IntArray, end: IntArray, launched: IntArray
) -> list[ClockError]:
    """Return the GPUs of which most operations start before their launch, or most of those that find the GPU idle.

    Columns of n operations, by process and CUDA ordinal. Times are ns; `launched` is when the call began, NULL if it
    was not recorded.
    """
    early = (launched != NULL) & (begin < launched)
    errors = []
    for gpu in find_distinct_rows(process[early], device[early])[1]:
        rows = np.flatnonzero((launched != NULL) & (process == gpu[0]) & (device == gpu[1]))
        rows = rows[np.argsort(launched[rows], kind="stable")]
        busy_until = np.append(NULL, np.maximum.accumulate(end[rows])[:-1])
        lead = launched[rows] - begin[rows]
        of_idle, leads = lead[busy_until <= launched[rows]], np.sort(lead[lead > 0])
        is_most = 2 * leads.size > rows.size or 2 * (of_idle > 0).sum() > of_idle.size
        alike = np.flatnonzero(leads[_FEWEST - 1 :] - leads[: 1 - _FEWEST] <= CLOCK_ERROR) if is_most else leads[:0]
        if alike.size:
            behind = int(leads[alike[-1] + _FEWEST - 1])
            errors.append(ClockError(gpu[0], gpu[1], behind, leads.size, rows.size))
    return errors


def mark_overtaken(stream: IntArray, begin: IntArray, end: IntArray, capture_end: int) -> BoolArray:
    """Mark the operations that end after the capture (ns) although a later one of their stream ended within it.

    `stream`: number of the stream of each of n operations, from 0.
    """
    late = end > capture_end
    last = np.full(int(stream.max(initial=-1)) + 1, NULL, np.int64)
    np.maximum.at(last, stream[~late], begin[~late])
    return np.asarray(late & (begin < last[stream]), np.bool_)
