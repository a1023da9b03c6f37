"""Switches that put an owner on are paired with those that take it off; lost switches are marked."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.sources.shared.result import NO_END
from nsys2prv_ng.sources.shared.switches import pair_switches


def test_each_switch_has_one_role() -> None:
    owner = np.array([1, 1, 1, 1, 1, 2, 2, 3], np.int64)
    on = np.array([1, 0, 1, 1, 0, 0, 1, 1], np.bool_)
    time = np.arange(8, dtype=np.int64) * 10

    switches = pair_switches(owner, on, time)

    assert np.flatnonzero(switches.shown).tolist() == [0, 3, 6, 7]
    assert switches.end[switches.shown].tolist() == [10, 40, NO_END, NO_END]
    assert np.flatnonzero(switches.repeated).tolist() == [2]
    assert np.flatnonzero(switches.unstarted).tolist() == [5]


def test_no_switches_have_no_pairs() -> None:
    none = np.zeros(0, np.int64)
    assert pair_switches(none, np.zeros(0, np.bool_), none).shown.size == 0
