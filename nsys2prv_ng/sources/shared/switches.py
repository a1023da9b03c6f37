"""Pairs the switches that put a thread on a core, or a context on a GPU, and take it off again."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.sources.shared.reasons import Reason
from nsys2prv_ng.sources.shared.result import NO_END, Result


def pair_switches(
    result: Result, owner: IntArray, on: BoolArray, time: IntArray, repeated: Reason, unstarted: Reason
) -> tuple[IntArray, IntArray]:
    """Return (switches that put their owner, a thread or context, on; time (ns) at which each owner is taken off).

    `owner`, `on` (whether a switch puts its owner on) and `time` (ns) are columns of n switches, sorted by owner and
    time. The time is NO_END if no switch of the owner follows. Drops switches after which the owner is put on again,
    for the reason `repeated`: the switch that took it off is lost. Drops switches that take off an owner that was not
    put on, for the reason `unstarted`. `read` becomes the number of all turns.
    """
    same = owner[1:] == owner[:-1]
    followed = np.append(same, False)[: on.size]
    next_on = followed & np.append(on[1:], False)[: on.size]
    was_on = np.append(False, on[:-1] & same)[: on.size]
    result.drop(repeated, int((on & next_on).sum()))
    result.drop(unstarted, int((~on & ~was_on).sum()))
    shown = np.flatnonzero(on & ~next_on)
    result.read = sum(result.dropped.values()) + shown.size
    return shown, np.where(followed, np.append(time[1:], NO_END)[: on.size], NO_END)[shown]
