"""Switches that put an owner on are paired with those that take it off; lost switches are marked."""

from __future__ import annotations

import numpy as np
import pytest

from nsys2prv_ng.sources.shared.source import NO_END, Result, pair_switches


def test_each_switch_has_one_role() -> None:
    owner = np.array([1, 1, 1, 1, 1, 2, 2, 3], np.int64)
    on = np.array([1, 0, 1, 1, 0, 0, 1, 1], np.bool_)
    time = np.arange(8, dtype=np.int64) * 10

    result = Result()
    shown, end = pair_switches(result, owner, on, time, "repeated", "unstarted")

    assert shown.tolist() == [0, 3, 6, 7]
    assert end.tolist() == [10, 40, NO_END, NO_END]
    assert result.dropped == {"repeated": 1, "unstarted": 1}
    assert result.read == 6


@pytest.mark.parametrize(
    ("on", "shown", "dropped"), [((1, 1, 0), [1], {"repeated": 1}), ((0, 1, 0), [1], {"unstarted": 1})]
)
def test_lost_switches_are_dropped(on: tuple[int, ...], shown: list[int], dropped: dict[str, int]) -> None:
    result = Result()
    owner, time = np.ones(3, np.int64), np.arange(3, dtype=np.int64)
    assert pair_switches(result, owner, np.array(on, np.bool_), time, "repeated", "unstarted")[0].tolist() == shown
    assert result.dropped == dropped


def test_no_switches_have_no_pairs() -> None:
    none = np.zeros(0, np.int64)
    assert pair_switches(Result(), none, np.zeros(0, np.bool_), none, "", "")[0].size == 0
