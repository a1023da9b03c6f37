"""The search for the slack: what a function that grows ever faster may be of before it exceeds a limit."""

from __future__ import annotations

import numpy as np
import pytest

from nsys2prv_ng.replay.analyse import _PARTS, find_limit
from tests.examples import examples


@pytest.mark.parametrize("seed", range(examples(100)))
def test_the_limit_is_that_of_a_look_at_every_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    at, kinks = np.arange(_PARTS + 1), rng.integers(1, 5)
    lines = [rng.integers(0, 10**6) + rng.choice([0, 1e-3, 1.0, 1e4]) * rng.random() * at for _ in range(kinks)]
    values = np.rint(np.max(lines, axis=0))
    limit = float(values[0] + rng.choice([0, 1, 1e3, 1e6]) * rng.random())
    asked: list[int] = []

    def measure(parts: int) -> float:
        asked.append(parts)
        return float(values[parts])

    assert find_limit(measure, limit) == np.flatnonzero(values <= limit)[-1]
    assert len(asked) == len(set(asked)) <= 21
