"""Pairs of everyday programs, each with a cause and its cure: the steps that are found, and what compare says.

The programs (benchmarks/programs) counted and timed their own steps: that is the truth.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nsys2prv_ng
from nsys2prv_ng.comparison.sides import count_units
from tests.conftest import DATA, unpack
from tests.tiers import cases

PROGRAMS = DATA / "programs"
TRUTH: dict[str, Any] = json.loads((PROGRAMS / "truth.json").read_text())
WITHOUT = {"server": "four threads serve requests beside each other"}
"""Pairs whose steps do not follow each other."""
WITHIN = {"nbody": 3}
"""Pairs whose steps repeat this often what is found, with nothing between that tells them apart."""
OTHERS = {"evalloop": ("eval",)}
"""Kinds of steps that the program does not count."""
FAR = {
    "checkpoint": "its thread still writes after the last step",
    "gan": "median of 16 steps, five of which warm up; by its mean, 11 %",
    "patches": "its first step waits for workers of the data loader",
    "flaxtrain": "the mean has pauses that the median has not",
}
"""Pairs whose change is printed more than a tenth off the change of the mean, and why."""


PUSHED = ("solver", "gan", "evalloop", "pltrainer", "heat", "speech", "nbody", "server", "denoise", "patches")
"""Pairs whose steps every push looks for: one for each way in which steps are found."""


def find_report(name: str, mode: str) -> Path:
    return unpack(PROGRAMS / f"{name}-{mode}.rank0.sqlite.xz")


@pytest.mark.parametrize("name", cases(TRUTH, push=PUSHED, quick=("solver", "gan")))
@pytest.mark.parametrize("mode", ["a", "b"])
def test_steps_are_those_that_the_program_counts(name: str, mode: str) -> None:
    steps = nsys2prv_ng.summarize([find_report(name, mode)]).steps
    if name in WITHOUT:
        assert steps is None
        return
    assert steps is not None
    counted = steps.warmup + count_units(steps) - sum(k.count for k in steps.kinds if k.name in OTHERS.get(name, ()))
    assert abs(counted - TRUTH[name][mode]["steps"] * WITHIN.get(name, 1)) <= 1


@pytest.mark.parametrize("name", cases(TRUTH, push=("llmserve", "pltrainer", "recsys", "server", "heat")))
def test_comparisons_of_programs(name: str) -> None:
    """No verdict has the wrong sign, and the change is that of the program's own clock."""
    verdict = nsys2prv_ng.compare([find_report(name, "a")], [find_report(name, "b")]).pairs[0].verdict
    one, other = (TRUTH[name][mode] for mode in "ab")
    true = other["mean_ms"] / one["mean_ms"] - 1
    assert verdict.kind in ("faster", "inconclusive") and verdict.change is not None and verdict.change < 0
    assert verdict.p is None or name not in WITHOUT
    if name not in FAR:
        assert verdict.change == pytest.approx(true, rel=0.1)
