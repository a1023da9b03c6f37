"""The group that covers times nearly alone, against loops over every ns."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nsys2prv_ng.intervals.states import find_alone, unite_groups


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_groups_of_loops(seed: int, *, overlaps: bool) -> None:
    generator = random.Random(seed)
    begin = np.array([generator.randrange(200) for _ in range(30)])
    end = begin + [generator.choice((0, 3, 10, 40)) for _ in begin]
    group = np.array([generator.randrange(4) for _ in begin])
    low = np.sort(np.array([generator.randrange(230) for _ in range(40)]))
    lasts = np.array([generator.randrange(30) for _ in low])
    high = low + lasts if overlaps else np.append(low[1:], 260)
    found = find_alone(unite_groups((group, begin, end)), low, high)
    for first, last, number in zip(low.tolist(), high.tolist(), found.tolist(), strict=True):
        runs = [{int(each) for each in group[(begin <= now) & (now < end)]} for now in range(first, last)]
        ns = {each: sum(each in own for own in runs) for each in range(4)}
        alone = [
            each
            for each in ns
            if ns[each] and 10 * ns[each] >= 9 * (last - first) and 10 * (sum(ns.values()) - ns[each]) <= last - first
        ]
        assert number == (alone[0] if alone else -1)
    assert (found >= 0).any() or overlaps


def test_no_times_and_no_groups() -> None:
    nothing = np.zeros(0, np.int64)
    assert not find_alone(unite_groups((nothing,) * 3), nothing, nothing).size
    times = np.array([0, 10]), np.array([10, 20])
    assert find_alone(unite_groups((nothing,) * 3), *times).tolist() == [-1, -1]
    assert find_alone(unite_groups(tuple(np.array([n]) for n in (7, 1, 12))), *times).tolist() == [7, -1]
