"""Defines why sources drop events, as the account of a translation lists the reasons.

A reason of a single source is in the module of that source.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.paraver.model import LONGEST_TRACE_NS
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.exported_times import FARTHEST

NO_THREAD = "no thread"
NO_PROCESS = "no process"
NO_DEVICE = "no device"
NO_TIME = "no time"
NO_VALUES = "no values"
NO_BYTES = "no number of bytes"
OVERLAPS_CALL = "partly overlaps another call on its thread"
"""Calls of a thread nest. A call that starts within another and ends after it cannot be shown on the same row."""
OUTSIDE_TRACE = "outside the time of the trace"
NOT_SELECTED = "outside the selected ranks and GPUs"
"""The event is on a row that the user did not select."""


_FAR = FARTHEST - 2 * LONGEST_TRACE_NS
"""Times (ns) above this limit or below its negative are damaged: they could overflow on another clock."""


def lacks_time(time: IntArray) -> BoolArray:
    """Return a mask of the n points that cannot be shown, because their time (ns) is missing or damaged."""
    return (time > _FAR) | (time < -_FAR)  # NULL is


def find_unsound_times(begin: IntArray, end: IntArray) -> dict[str, BoolArray]:
    """Return masks of the n intervals that cannot be shown, by reason; the masks do not overlap. Times are in ns."""
    null = (begin == NULL) | (end == NULL)
    backward = ~null & (end < begin)
    zero = ~null & (begin == 0) & (end == 0)
    # The comparison adds to the start, so that nothing overflows.
    endless = ~null & (lacks_time(begin) | (end > np.minimum(begin, _FAR) + LONGEST_TRACE_NS))
    return {
        "longer than Paraver can show": endless & ~backward,
        "no start or end": null,
        "ends before it starts": backward,
        "no time (start and end are 0)": zero,
    }
