"""Steps of two lengths that take turns, planted."""

from __future__ import annotations

import numpy as np
import pytest

from nsys2prv_ng.analysis.efficiency.typical_step import find_turns

MS = 10**6


@pytest.mark.parametrize(
    ("ms", "found"),
    [
        ([18, 145] * 5, (18, 145)),
        ([145, 18] * 5, (18, 145)),
        ([18, 145] * 5 + [18], (18, 145)),
        ([18, 145] * 3, None),  # too few
        ([20, 21] * 10, None),  # hardly apart
        ([18] * 10 + [145] * 10, None),  # slower from some step on
        ([18, 18, 145, 145] * 5, None),
        ([18, 145] * 9 + [145, 145], (18, 145)),  # one of 20 out of turn
        ([18, 145] * 9 + [145, 18] * 2, None),  # four of 22
        ([30] * 20, None),
    ],
)
def test_turns(ms: list[int], found: tuple[int, int] | None) -> None:
    assert find_turns(np.array(ms, np.int64) * MS) == (None if found is None else (found[0] * MS, found[1] * MS))
