"""Pairs the switches that put a thread on a core, or a context on a GPU, and take it off again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.sources.shared.result import NO_END


class Switches(NamedTuple):
    """n switches, sorted by owner (a thread or context) and time: masks by their effect on the owner, and ends."""

    shown: BoolArray
    """It puts the owner on, and the next switch of the owner takes it off, or there is no next switch."""
    repeated: BoolArray
    """It puts the owner on, and so does the next: the switch that took it off is lost."""
    unstarted: BoolArray
    """It takes the owner off, and no switch before it put the owner on."""
    end: IntArray
    """Time (ns) of the next switch of the owner; NO_END if there is none."""


def pair_switches(owner: IntArray, on: BoolArray, time: IntArray) -> Switches:
    """Pair n switches, sorted by owner and time (ns), given whether each switch puts its owner on."""
    same = owner[1:] == owner[:-1]
    followed = np.append(same, False)[: on.size]
    next_on = followed & np.append(on[1:], False)[: on.size]
    was_on = np.append(False, on[:-1] & same)[: on.size]
    end = np.where(followed, np.append(time[1:], NO_END)[: on.size], NO_END)
    return Switches(on & ~next_on, on & next_on, ~on & ~was_on, end)
