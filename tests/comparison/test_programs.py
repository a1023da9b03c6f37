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


CURES = {
    "accel": "autocast", "checkpoint": "async-checkpoints", "cloze": "autocast", "compiled": "graph-breaks",
    "denoise": "fused-optimizer", "diffusion": "one-batch", "evalloop": "one-batch", "flaxtrain": "read-backs",
    "forecast": "read-backs", "gan": "fused-optimizer", "genome": "fused-attention", "gnn": "data-beside-gpu",
    "heat": "pinned-copies", "hftrainer": "no-checkpointing", "nbody": "stay-on-device", "patches": "loader-workers",
    "pltrainer": "one-batch", "pong": "data-beside-gpu", "posture": "cuda-graphs", "ppo": "one-batch",
    "recsys": "merged-embeddings", "seg": "channels-last", "server": "gil", "solver": "read-backs",
    "speech": "whole-sequences", "sweep": "one-batch",
    "counting": "no-tuning", "decoder": "weights-in-16-bits", "enhance": "channels-last", "molecules": "few-rows",
    "sensors": "one-copy", "tagger": "lookup",
}  # fmt: skip
"""The first remedy of each pair whose cure an answer can know.

`forces` does what is needless, which no report shows. `llmserve` loads kernels for most of the time, and its cure,
graphs for decode steps, comes second.
"""
OFF = {
    "checkpoint": "a thread saves, and costs the steps a part of what it saves",
    "compiled": "all that the host costs is the bound",
    "decoder": "launches, which nsys slows, set the pace of the cure; without nsys it saves 72 %",
    "denoise": "the cure launches norms and averages at once, too",
    "diffusion": "items depend on each other but for two",
    "gan": "the capture is of steps that warm up",
    "nbody": "the cure allocates nothing for each launch either",
    "patches": "the first step waits for workers in both",
    "server": "no steps, so no time of a step",
    "solver": "the cure does not compute the unread values either",
}
"""Pairs whose saving is predicted more than a quarter off, and why."""
KEPT = ("diffusion", "server")
"""Pairs whose cure leaves some of the cause: passes that depend on each other, and threads that share a lock."""


ADDED = ("counting", "decoder", "molecules", "sensors", "tagger")
"""Pairs that are alone with their remedy."""


@pytest.mark.parametrize(
    "name", cases(CURES, push=("seg", "gan", "genome", "gnn", "flaxtrain", "compiled", "pltrainer", "ppo", *ADDED))
)
def test_answers_name_the_cure_and_what_it_saves(name: str) -> None:
    before, after = (nsys2prv_ng.summarize([find_report(name, mode)]) for mode in "ab")
    assert before.verdict is not None and after.verdict is not None
    first, *_ = before.verdict.remedies
    assert first.key == CURES[name]
    assert name in KEPT or [each.key for each in after.verdict.remedies][:1] != [first.key]
    if name in OFF:
        return
    assert first.saving_ns is not None and before.what_if is not None
    one, other = (TRUTH[name][mode]["mean_ms"] for mode in "ab")
    assert first.saving_ns / before.what_if.step_ns == pytest.approx(1 - other / one, rel=0.25)
