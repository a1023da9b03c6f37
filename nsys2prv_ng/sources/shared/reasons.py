"""Reasons for which sources drop events, as the account of a translation lists them."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.paraver.model import LONGEST_TRACE_NS
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import FARTHEST

NOT_SELECTED = "outside --ranks or --gpus"
"""Reason to drop what is on rows that the user did not choose."""


def find_unsound_times(begin: IntArray, end: IntArray) -> dict[str, BoolArray]:
    """Intervals that cannot be shown, by reason; the masks do not overlap."""
    null = (begin == NULL) | (end == NULL)
    backward = ~null & (end < begin)
    zero = ~null & (begin == 0) & (end == 0)
    # Compared so that nothing overflows, here or where they are put on another clock: such times are damage.
    far = FARTHEST - 2 * LONGEST_TRACE_NS
    endless = ~null & ((begin > far) | (begin < -far) | (end > np.minimum(begin, far) + LONGEST_TRACE_NS))
    return {
        "longer than Paraver can show": endless & ~backward,
        "no begin or end": null,
        "end before begin": backward,
        "no time (begin and end are 0)": zero,
    }
