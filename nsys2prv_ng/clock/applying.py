"""Maps times of one clock to another: of a report to the common clock, and of a node to its corrected UTC."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.value_class import ValueClass

LARGEST_DRIFT = 1e-3
"""A clock with more drift is broken, and a map that followed it would tear short intervals apart."""


class ClockMap(ValueClass):
    """The map of time t (ns) to t + offset + drift * (t - since), rounded to integers. By default, times stay.

    The map is monotone, because |drift| <= LARGEST_DRIFT < 1: the order of times stays, though two times may become
    equal.
    """

    offset: int = 0
    drift: float = 0.0
    since: int = 0

    def __call__(self, times: IntArray) -> IntArray:
        """Return the mapped times (ns)."""
        if self.drift == 0.0:
            return times + self.offset
        return times + self.offset + np.rint(self.drift * (times - self.since)).astype(np.int64)

    def at(self, time: int) -> int:
        """Return a single mapped time (ns)."""
        return int(self(np.array([time], np.int64))[0])

    def after_utc(self, utc_offset: int, utc_base: int) -> ClockMap:
        """Return the map of a report to the common clock, given the correction of its node's UTC.

        `utc_offset` (ns) converts its times to UTC relative to `utc_base` (ns). The maps of reports of one node agree,
        because their drift counts from the same moment.
        """
        if self.drift == 0.0:
            return ClockMap(utc_offset + self.offset)
        return ClockMap(utc_offset + self.offset, self.drift, self.since - utc_base - utc_offset)
