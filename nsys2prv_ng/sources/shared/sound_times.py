"""Finds the events of a report that have no time which a trace can show."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.paraver.model import LONGEST_TRACE_NS
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.export_settings import FARTHEST
from nsys2prv_ng.sources.shared.reasons import BACKWARD, NO_LIMITS, TOO_LONG, ZERO_TIME, Reason

_FAR = FARTHEST - 2 * LONGEST_TRACE_NS
"""Times (ns) above this limit or below its negative are damaged: they could overflow on another clock."""


def lacks_time(time: IntArray) -> BoolArray:
    """Return a mask of the n points that cannot be shown, because their time (ns) is missing or damaged."""
    return (time > _FAR) | (time < -_FAR)  # NULL is


def find_unsound_times(begin: IntArray, end: IntArray) -> dict[Reason, BoolArray]:
    """Return masks of the n intervals that cannot be shown, by reason; the masks do not overlap. Times are in ns."""
    null = (begin == NULL) | (end == NULL)
    backward = ~null & (end < begin)
    zero = ~null & (begin == 0) & (end == 0)
    # The comparison adds to the start, so that nothing overflows.
    endless = ~null & (lacks_time(begin) | (end > np.minimum(begin, _FAR) + LONGEST_TRACE_NS))
    return {TOO_LONG: endless & ~backward, NO_LIMITS: null, BACKWARD: backward, ZERO_TIME: zero}
