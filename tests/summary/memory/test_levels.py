"""Leaks in made series of memory in use: none where nothing leaks, all that are planted and large enough."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from random import Random
from statistics import median

import numpy as np
import pytest

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.summary.memory.levels import FEWEST_STEPS, LEAST_BYTES, MOST_POINTS, is_leak, measure_growth
from tests.examples import examples
from tests.summary.memory.memory_truth import MIB, train

NO_TIMES = np.zeros(0)
Made = Callable[[Random, int], list[int]]


def walk(random: Random, steps: int) -> list[int]:
    level, levels = 10**11, []
    for _ in range(steps):
        level += random.choice([-20, 0, 20]) * MIB
        levels.append(level)
    return levels


def make_records(random: Random, steps: int) -> list[int]:
    """Many caches, each of which grows to the largest size so far."""
    most, levels = [0] * 30, []
    for _ in range(steps):
        most = [max(size, int(random.lognormvariate(1, 1) * MIB)) for size in most]
        levels.append(sum(size // (2 * MIB) * 2 * MIB for size in most))
    return levels


HEALTHY: dict[str, Made] = {
    "constant": lambda random, steps: [10**9] * steps,
    "any order": lambda random, steps: [random.randrange(2000) * MIB for _ in range(steps)],
    "a few levels": lambda random, steps: [random.randrange(4) * 20 * MIB for _ in range(steps)],
    "random walk": walk,
    "saw": lambda random, steps: [n % (steps // 2 + 1) * 20 * MIB for n in range(steps)],
    "saturates": lambda random, steps: [
        int(1e9 * (1 - np.exp(-random.uniform(2, 10) * n / steps))) for n in range(steps)
    ],
    "one jump": lambda random, steps: [(n > random.randrange(steps)) * 10**9 for n in range(steps)],
    "records": make_records,
    "caching allocator": lambda random, steps: list(train(random, steps)),
    "caching allocator, lengths differ": lambda random, steps: list(train(random, steps, spread=0.3)),
    "small growth": lambda random, steps: [n * (LEAST_BYTES // steps - 1) for n in range(steps)],
}


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("steps", [FEWEST_STEPS, 60])
def test_what_does_not_leak(name: str, steps: int) -> None:
    """The rate over many more jobs is in docs/reference/summary.md."""
    series = [HEALTHY[name](Random(seed), steps) for seed in range(examples(40))]
    assert [seed for seed, levels in enumerate(series) if is_leak(np.array(levels, np.int64), NO_TIMES)] == []


@pytest.mark.parametrize(
    ("steps", "leak", "spread"),
    [(20, 20 * MIB, 0.0), (20, 40 * MIB, 0.0), (60, 5 * MIB, 0.0), (60, 30 * MIB, 0.05), (200, 3 * MIB // 2, 0.0)],
)
def test_a_leak_of_a_caching_allocator(steps: int, leak: int, spread: float) -> None:
    for seed in range(10):
        levels = np.array(list(train(Random(seed), steps + 5, leak=leak, spread=spread))[5:], np.int64)
        assert is_leak(levels, NO_TIMES), seed
        growth = measure_growth(levels)
        assert growth == pytest.approx(leak, rel=0.25), seed


def test_what_decides() -> None:
    steps = np.arange(40)
    leak = 10**9 + 10**6 * steps
    assert is_leak(leak, NO_TIMES) and is_leak(leak, np.full(40, 5.0))
    assert not is_leak(leak[: FEWEST_STEPS - 1], NO_TIMES)
    assert not is_leak(leak, np.linspace(1, 1.2, 40))  # inputs grow
    assert is_leak(leak, np.linspace(1, 1.1, 40))
    assert is_leak(leak, np.where(steps < 5, 1, 1.2)) and is_leak(leak, np.where(steps < 25, 1, 1.2))  # clocks change
    assert not is_leak(np.where(steps < 32, leak, leak[32]), NO_TIMES)  # no growth in the last part
    assert not is_leak(np.where(steps < 39, leak, leak[0]), NO_TIMES)  # freed in the last step
    later = np.maximum(steps - 10, 0)
    assert is_leak(10**9 + 10**6 * later, NO_TIMES)  # an allocator has enough for a quarter of the steps
    assert not is_leak(10**9 + 10**6 * np.maximum(steps - 11, 0), NO_TIMES)
    comes = np.where(steps % 7 == 3, 10**10, leak)
    assert not is_leak(comes, NO_TIMES)  # the most in use does not grow
    assert is_leak(np.where(steps % 7 == 3, leak + 3 * 10**6, leak), NO_TIMES)


@pytest.mark.parametrize("seed", range(5))
def test_growth_is_the_median_slope(seed: int) -> None:
    random = Random(seed)
    values: list[int] = [random.randrange(10**9) for _ in range(random.randrange(3, 40))]
    slopes = [(values[b] - values[a]) / (b - a) for a, b in combinations(range(len(values)), 2)]
    assert measure_growth(as_array(values)) == round(median(slopes))
    assert measure_growth(as_array(values[:2])) is None
    long = as_array([7 * n for n in range(5 * MOST_POINTS)])
    assert measure_growth(long) == 7


def as_array(values: list[int]) -> IntArray:
    return np.array(values, np.int64)
