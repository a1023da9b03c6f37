"""Steps by the order of ranges: programs of ten patterns, cut, stretched, nested and disturbed, with known steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest

from nsys2prv_ng.steps.range_periods import RangeSequence, find_parts, name_family
from nsys2prv_ng.steps.work import LaunchedWork, make_work

Range = tuple[str, int, int]
"""Name, begin and end (ns)."""


class Pattern(NamedTuple):
    """A step: its ranges with their lengths (us) and whether the optimizer runs in them; what comes after every few.

    `extra` is a step of its own if `is_step`.
    """

    ranges: Sequence[tuple[str, int, bool]]
    every: int = 0
    extra: tuple[str, int] = ("", 0)
    is_step: bool = False


MICRO = (("forward", 30, False), ("backward", 60, False))
PATTERNS = {
    "one": Pattern([("cycle", 50, False)]),
    "two": Pattern([("rollout", 200, False), ("update", 80, True)]),
    "training": Pattern([("data", 5, False), *MICRO, ("optimizer", 20, True)]),
    "accumulation": Pattern([*MICRO * 4, ("optimizer", 25, True)]),
    "accumulation unseen": Pattern([*MICRO * 4, ("optim", 40, False)]),
    "validation": Pattern([("train_step", 40, True)], 4, ("validate", 500), True),
    "output": Pattern([("cycle", 50, False)], 8, ("output", 9)),
    "checkpoint": Pattern([("train batch 7", 40, True)], 5, ("save", 12)),
    "adversaries": Pattern([("discriminator", 30, True), ("generator", 45, True)]),
    "numbers": Pattern([("execute_context_3(12)_generation_5(5)", 40, False)]),
}


def make_program(pattern: Pattern, steps: int, random: np.random.Generator) -> tuple[list[Range], list[int], list[int]]:
    """Return the ranges of a program, the begin of each step, and when the optimizer's kernels are launched."""
    ranges: list[Range] = []
    begins, optimizers, time = [], [], 1_000
    for step in range(steps):
        begins.append(time)
        for name, length, has_optimizer in pattern.ranges:
            end = time + int(length * 1_000 * random.uniform(0.8, 1.2))
            digits = "".join(str(random.integers(10)) if each.isdigit() else each for each in name)
            ranges.append((digits, time, end))
            optimizers += [end - 500] if has_optimizer else []
            time = end + int(random.integers(100, 2_000))
        if pattern.every and step % pattern.every == pattern.every - 1:
            name, length = pattern.extra
            begins += [time] if pattern.is_step else []
            ranges.append((name, time, time + length * 1_000))
            time += length * 1_000 + 500
    return ranges, begins, optimizers


def make_launches(ranges: Sequence[Range], optimizers: Sequence[int]) -> LaunchedWork:
    """Return a kernel launched in the middle of each range, and the optimizer's."""
    launched = [*((begin + end) // 2 for _, begin, end in ranges), *optimizers]
    name = np.array([0] * len(ranges) + [1] * len(optimizers))
    length = [(end - begin) // 2 for _, begin, end in ranges] + [300] * len(optimizers)
    times = np.array(launched)
    return make_work(["kernel", "adam"], name, name < 0, times, times, times + np.array(length))


def find_begins(ranges: Sequence[Range], work: LaunchedWork) -> list[int]:
    """Return the begin of each step that ranges show; none if they show no steps."""
    ordered = sorted(ranges, key=lambda each: (each[1], -each[2]))
    families = sorted({name_family(name) for name, *_ in ordered})
    family = np.array([families.index(name_family(name)) for name, *_ in ordered])
    begin, end = (np.array([each[column] for each in ordered]) for column in (1, 2))
    found = find_parts(RangeSequence(family, begin, end, family < 0, families), work, 3, nests=True)
    return [] if found is None else begin[found[0][found[1].first]].tolist()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", PATTERNS)
def test_programs_with_known_steps(name: str, seed: int) -> None:
    """Two hundred programs: ranges stretched, after a start-up, within others, with others inside or between."""
    random = np.random.default_rng([seed, *name.encode()])
    pattern = PATTERNS[name]
    ranges, begins, optimizers = make_program(pattern, int(random.integers(12, 40)), random)
    first, last = begins[0], ranges[-1][2]
    if random.integers(2):  # a logged value now and then
        at = random.choice(len(ranges) - 1, 2, replace=False)
        ranges += [("log", ranges[n][2] + 10, ranges[n][2] + 60) for n in at.tolist()]
    if random.integers(2):  # ranges within ranges
        ranges += [("inner", begin + 100, end - 600) for _, begin, end in list(ranges) if end - begin > 2_000]
    work = make_launches(ranges, optimizers)
    if random.integers(2):  # one range around all
        ranges.append(("run", first - 500, last + 500))
    if random.integers(2):  # the model is set up
        ranges += [("build", 100, 200), ("load", 300, 400)]
    found = find_begins(ranges, work)
    assert found == begins


@pytest.mark.parametrize("name", [name for name, pattern in PATTERNS.items() if not pattern.every])
@pytest.mark.parametrize("seed", range(5))
def test_programs_cut_within_steps(name: str, seed: int) -> None:
    """The capture begins and ends anywhere: all whole steps are found, and at most the cut ones beside them."""
    random = np.random.default_rng([seed, *name.encode()])
    ranges, begins, optimizers = make_program(PATTERNS[name], 20, random)
    low, high = int(random.integers(1, len(ranges) // 4)), int(random.integers(3 * len(ranges) // 4, len(ranges)))
    kept = ranges[low:high]
    inside = [time for time in optimizers if kept[0][1] <= time <= kept[-1][2]]
    found = find_begins(kept, make_launches(kept, inside))
    ends = [*begins[1:], ranges[-1][2] + 1]
    whole = [b for b, end in zip(begins, ends, strict=True) if b >= kept[0][1] and end <= kept[-1][2] + 2_500]
    assert len(whole) - 1 <= len(found) <= len(whole) + 2
    if name == "adversaries":  # either may be the first
        assert set(np.diff([[begin for _, begin, _ in kept].index(each) for each in found])) == {2}
    else:
        assert set(whole) - set(found) <= {whole[-1]}


def test_epochs_are_no_steps() -> None:
    """Four epochs of ten batches each: the batches are the steps."""
    random = np.random.default_rng(0)
    ranges, begins, optimizers = make_program(PATTERNS["training"], 40, random)
    starts = [*begins[::10], ranges[-1][2] + 100]
    epochs = [(f"epoch {n}", starts[n] - 50, starts[n + 1] - 60) for n in range(4)]
    assert find_begins([*ranges, *epochs], make_launches(ranges, optimizers)) == begins


def test_ranges_that_launch_little_are_no_steps() -> None:
    """A range that is opened again and again while the work is launched between."""
    ranges, _, _ = make_program(PATTERNS["one"], 20, np.random.default_rng(0))
    moved = [(name, end + 10, end + 50) for name, _, end in ranges]
    assert find_begins(moved, make_launches(ranges, [])) == []


def test_alternating_phases_without_the_optimizer_inside() -> None:
    """Only the backward pass is marked, and only every second one launches the optimizer: no steps by this range."""
    ranges, _, _ = make_program(PATTERNS["one"], 20, np.random.default_rng(0))
    optimizers = [end - 500 for _, _, end in ranges[::2]]
    assert find_begins(ranges, make_launches(ranges, optimizers)) == []
