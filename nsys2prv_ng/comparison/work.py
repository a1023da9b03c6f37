"""Finds how many steps of two runs are the same work, and the units of work within steps.

Steps that NVTX ranges of one name mark are the same work, whatever they launch. Others are compared by how often a
step of a GPU has each kernel and copy that both runs have. The ratio k of these counts that most of their time agrees
on is the ratio of the work if one of these holds:

- The captures have in all k times as many steps: the same work, cut in two ways. What a cure removes has other ratios.
  For k = 1, equal bytes copied to GPUs suffice beside some names.
- At least _NEARLY of this time of both runs agrees. If k is not 1, nothing may occur equally often in a step then,
  outermost ranges must agree, and the captures have unlike numbers of steps: else a step may do as much in other parts.

Bytes copied to GPUs must agree, unless the captures have as many steps. If k is not 1, the time of what agrees must be
nearer to k times as much than to as much.

Steps are converted by whole numbers only. A unit of work within steps, such as a micro-batch, is a range that each rank
that has it opens equally often in every step. The ranges whose counts differ between the runs by one ratio must have
most of the time of all ranges at their depth, on both sides: then the work of the step differs by this ratio. The range
with most time stands for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import log
from typing import NamedTuple

from nsys2prv_ng.comparison.model import SharedCount, Verdict, WorkUnits
from nsys2prv_ng.comparison.sides import count_units, covers_its_steps
from nsys2prv_ng.paraver.value_tables import COMMUNICATION_CLASSES, KERNEL_CLASSES
from nsys2prv_ng.steps.numbered_names import is_step
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.text.formatting import shorten_range_name
from nsys2prv_ng.text.names import OTHERS

_ALIKE = 0.05
"""Most by which counts differ from a ratio. A choice: the ends of the time cut what not every step has."""
_WHOLE = 0.01
"""Most by which a ratio of work differs from a whole number: half of the least difference of two runs (NOISE)."""
_NEARLY = 0.8
"""Least share of the shared GPU time, on both sides, that shows the ratio alone. A choice: a rest of a fifth is what a
change of types and layouts leaves of the shared names of the pair `seg`."""
_MOST = 0.5
"""Least share of it, as a mean of both sides, that has the ratio of a unit of work: most of it. In the pair `solver`, a
range of the check that was the cause has 0.36."""
_SOME = 0.25
"""Least share of it, as a mean of both sides, if all numbers of steps agree. A choice: 0.64 in the pair `solver`."""
_MOST_TRIED = 50
"""Most ratios that are tried: those of the names with most time."""
_INPUT = "Memcpy host to device"
_COMMUNICATION = {KERNEL_CLASSES[number] for number in COMMUNICATION_CLASSES}
"""Classes of kernels that mostly wait for other ranks, so that their time is no measure of work."""
_SAME_INPUT = 0.1
"""Most by which bytes of input differ from a ratio. A choice: in `ppo`, 0.09 are of what not every step copies."""
_MANY = 8
"""Fewest steps whose equal number, or ratio, is no chance. A choice: captures of five steps are common, and the pairs
`recsys` and `hftrainer` of the test bed, whose cures replace most kernels, have 10 and 23."""
_LEAST_OF_ALL, _FEWEST_NAMES = 0.2, 3
"""Least share of all GPU time, on both sides, of names that agree, and fewest of them: fewer need _MOST of it. In the
test bed, two modes of one program share 0.23 or more (`recsys`); other programs 0.06 or less, or 0.22 by one name of an
element-wise kernel (`denoise` and `forces`)."""
_FEWEST_WITH_INPUT = 5
"""Fewest names that agree if so do bytes of input: 34 in the pair `cloze`, whose products all change their type."""
_OPTIMIZER = "Optimizer"
_MOST_SHOWN = 2
"""Most counts that show why numbers of steps are not known."""
_COVERS = 0.5
"""Least share of the steps in which a range must be open so that its count shows whether work is the same."""
_LEAST_OPEN = 0.1
"""Least share of the steps in which a range must be open that may be a step. A choice: `update` of `ppo` has 0.18."""
_FEWEST = 3
"""Fewest ranges of a rank that are steps (steps/numbered_ranges.py)."""


class _Shared(NamedTuple):
    """What both sides have: its count and time (ns) in a mean step, and its share of the time of all that is shared."""

    name: str
    a: float
    b: float
    ns_a: float
    ns_b: float
    share_a: float
    share_b: float

    @property
    def share(self) -> float:
        return (self.share_a + self.share_b) / 2

    def agrees(self, ratio: float) -> bool:
        return abs(log(self.b / (self.a * ratio))) <= _ALIKE


class StepMatch(NamedTuple):
    """How many steps of each side are the same work; zeros if it is not known. `shared`, `step`: as in Pair."""

    sizes: tuple[int, int]
    shared: list[SharedCount]
    step: str


def match_steps(a: JobSummary, b: JobSummary) -> StepMatch:
    """Return how many steps of each side are the same work."""
    if a.steps is None or b.steps is None:
        return StepMatch((0, 0), [], find_common_steps([a, b]))
    if a.steps.name == b.steps.name and not (a.steps.delimiter or b.steps.delimiter):
        return StepMatch((1, 1), [], "")
    shared = _list_shared(a, b)
    sizes = _choose_sizes(shared, a, b)
    shown = [each for each in shared if each.agrees(sizes[0] / sizes[1])][:1] if all(sizes) else shared[:_MOST_SHOWN]
    counts = [SharedCount(each.name, each.a, each.b) for each in shown]
    return StepMatch(sizes, counts, "" if all(sizes) else _find_common_range(a, b))


def _choose_sizes(shared: Sequence[_Shared], a: JobSummary, b: JobSummary) -> tuple[int, int]:
    """Return how many steps of each side are the same work; zeros if that does not show."""
    whole_ns = _measure_all(a), _measure_all(b)
    inputs = _compare_inputs(a, b)
    equal = [each for each in shared if each.agrees(1)]
    is_alike = _are_enough(equal, whole_ns) or (_is_near(inputs, 1) and len(equal) >= _FEWEST_WITH_INPUT)
    if is_alike and _count_all_steps(a) == _count_all_steps(b) >= _MANY:
        return 1, 1
    ratios = [each.b / each.a for each in shared[:_MOST_TRIED]]
    tried = [(ratio, [each for each in shared if each.agrees(ratio)]) for ratio in ratios]
    ratio, agreeing = max(tried, key=lambda one: sum(each.share for each in one[1]), default=(1.0, []))
    whole = round(max(ratio, 1 / ratio))
    sizes = (whole, 1) if ratio >= 1 else (1, whole)
    if (
        not _are_enough(agreeing, whole_ns)
        or sum(each.share for each in agreeing) < _SOME
        or abs(log(ratio * sizes[1] / sizes[0])) > _WHOLE
    ):
        return 0, 0
    least = min(sum(each.share_a for each in agreeing), sum(each.share_b for each in agreeing))
    total_a, total_b = (_count_all_steps(side) / size for side, size in zip((a, b), sizes, strict=True))
    is_sure = min(total_a, total_b) > 0 and abs(total_a - total_b) < 1 and abs(log(total_a / total_b)) <= _ALIKE
    if whole > 1 and _trains(a) != _trains(b):
        return 0, 0
    is_sure = is_sure and (whole == 1 or min(total_a, total_b) >= _MANY)
    if is_sure and whole == 1:
        return sizes
    if inputs and not _is_near(inputs, ratio):
        return 0, 0
    is_alone = least >= _NEARLY
    if whole > 1:
        time = sum(each.ns_b for each in agreeing) / sum(each.ns_a for each in agreeing)
        if abs(log(time)) < abs(log(time / ratio)):
            return 0, 0  # smaller parts of the same work
        is_alone = is_alone and not _has_equal(shared, ratio, a, b)
    return sizes if is_sure or is_alone else (0, 0)


def _are_enough(agreeing: Sequence[_Shared], whole_ns: tuple[float, float]) -> bool:
    """Return whether names whose counts agree have enough of all GPU time of a step (`whole_ns`) to be no chance."""
    shares = [
        sum(own) / ns if ns else 0.0
        for own, ns in zip(([e.ns_a for e in agreeing], [e.ns_b for e in agreeing]), whole_ns, strict=True)
    ]
    return min(shares) >= _LEAST_OF_ALL if len(agreeing) >= _FEWEST_NAMES else sum(shares) >= 2 * _MOST


def _measure_all(summary: JobSummary) -> float:
    """Return the time (ns) of all operations in a step of a GPU."""
    return sum(ns for _, ns in _sum_operations(summary).values())


def _trains(summary: JobSummary) -> bool:
    """Return whether kernels of an optimizer ran."""
    return any(each.kernel_class == _OPTIMIZER for each in summary.kernels)


def _is_near(inputs: Sequence[float], ratio: float) -> bool:
    """Return whether bytes of input, if any were copied, have this ratio."""
    return any(abs(log(amount / ratio)) <= _SAME_INPUT for amount in inputs)


def _compare_inputs(a: JobSummary, b: JobSummary) -> list[float]:
    """Return the ratio of the bytes that a step copies to GPUs, if both sides copy any."""
    copied = [
        sum(each.bytes for each in side.memory_operations if each.operation.startswith(_INPUT)) / _count_steps(side)
        for side in (a, b)
    ]
    return [copied[1] / copied[0]] if all(copied) else []


def _has_equal(shared: Sequence[_Shared], ratio: float, a: JobSummary, b: JobSummary) -> bool:
    """Return whether both sides have as many steps in all, or steps have something as often, or ranges disagree."""
    before, after = _list_open(a), _list_open(b)
    both = [(before[name], after[name]) for name in before.keys() & after.keys()]
    return (
        _count_all_steps(a) == _count_all_steps(b)
        or any(each.agrees(1) for each in shared)
        or any(
            abs(log(other.times / one.times / ratio)) > _ALIKE + 1 / one.total + 1 / other.total
            for one, other in both
            if min(one.share, other.share) >= _COVERS
        )
    )


def _count_all_steps(summary: JobSummary) -> int:
    """Return the number of all steps of a capture, with the warm-up; 0 if the user chose some time or steps."""
    assert summary.steps is not None
    return 0 if "time" in summary.chosen else summary.steps.warmup + count_units(summary.steps)


def _count_steps(summary: JobSummary) -> int:
    """Return the number of steps that the sums of a summary cover."""
    assert summary.steps is not None
    return max(1, count_units(summary.steps) + (0 if covers_its_steps(summary) else summary.steps.warmup))


def _list_shared(a: JobSummary, b: JobSummary) -> list[_Shared]:
    """Return what both sides do on GPUs, the longest time first."""
    before, after = _sum_operations(a), _sum_operations(b)
    names = [name for name in before if name[0] != OTHERS and before[name][1] and after.get(name, (0, 0))[1]]
    whole_a, whole_b = (sum(side[name][1] for name in names) for side in (before, after))
    shared = [
        _Shared(name[0], one, other, a_ns, b_ns, a_ns / whole_a, b_ns / whole_b)
        for name, (one, a_ns), (other, b_ns) in ((name, before[name], after[name]) for name in names)
    ]
    return sorted(shared, key=lambda each: (-each.share, each.name))


def _sum_operations(summary: JobSummary) -> dict[tuple[str, str], tuple[float, float]]:
    """Return count and time (ns) in a step of a GPU, by name and class."""
    parts = _count_steps(summary) * max(1, len(summary.gpus))
    kernels = [each for each in summary.kernels if each.kernel_class not in _COMMUNICATION]
    rows = [(each.name, each.kernel_class, each.count, each.total_ns) for each in kernels]
    rows += [(each.operation, "", each.count, each.total_ns) for each in summary.memory_operations]
    sums: dict[tuple[str, str], tuple[float, float]] = {}
    for name, kind, count, ns in rows:
        times, total = sums.get((name, kind), (0.0, 0.0))
        sums[name, kind] = times + count / parts, total + ns / parts
    return sums


# ---- ranges ----------------------------------------------------------------------------------------------------------


class _Open(NamedTuple):
    """An outermost range: its count in a step of a rank, and of all steps and ranks; its share of the steps."""

    times: float
    total: int
    share: float


def _list_open(summary: JobSummary) -> dict[str, _Open]:
    """Return the outermost ranges that every rank opens equally often, and at least as often as steps must be."""
    found = {}
    for each in summary.ranges:
        counts = {task.count for task in each.tasks}
        if each.depth == 1 and len(counts) == 1 and min(counts) >= _FEWEST:
            count, tasks = counts.pop(), len(each.tasks)
            found[each.name] = _Open(
                count / _count_steps(summary), count * tasks, each.total_ns / tasks / summary.measured_ns
            )
    return found


def find_common_steps(sides: Sequence[JobSummary]) -> str:
    """Return the range that marks the steps of a side, and that all others have as well; "" without one."""
    names = [side.steps.name for side in sides if side.steps is not None and not side.steps.delimiter]
    return next((name for name in names if all(_has_range(side, name) for side in sides)), "")


def _find_common_range(a: JobSummary, b: JobSummary) -> str:
    """Return the range by which `--step` may compare the same work: of steps, or the one open longest on both sides."""
    before, after = _list_open(a), _list_open(b)
    shares = {name: min(before[name].share, after[name].share) for name in sorted(before.keys() & after.keys())}
    largest = max(shares, key=lambda name: shares[name], default="")
    return find_common_steps([a, b]) or (largest if shares.get(largest, 0) >= _LEAST_OPEN else "")


def _has_range(summary: JobSummary, step: str) -> bool:
    """Return whether ranges of the name or template of steps may be the steps of a side."""
    named = [each for each in summary.ranges if is_step(each.name, step)]
    return has_steps_of(summary, step) or any(min(task.count for task in each.tasks) >= _FEWEST for each in named)


def has_steps_of(summary: JobSummary, name: str) -> bool:
    """Return whether ranges of this name mark the steps of a side."""
    return summary.steps is not None and summary.steps.name == name and not summary.steps.delimiter


_Key = tuple[str, str]
"""Domain and name of a range."""


class _Unit(NamedTuple):
    """A range: how often it occurs in each step (0: not equally often), its depth, and its time in all steps (ns)."""

    times: int
    depth: int
    ns: int


def find_units(a: JobSummary, b: JobSummary, verdict: Verdict) -> WorkUnits | None:
    """Return the unit of work that differs; None if none does, or if most of the work is of no such unit."""
    before, after = _list_ranges(a), _list_ranges(b)
    groups: dict[tuple[Fraction, int, int], list[_Key]] = {}
    for key in sorted(before.keys() & after.keys()):
        one, other = before[key], after[key]
        if one.times and other.times:
            groups.setdefault((Fraction(other.times, one.times), one.depth, other.depth), []).append(key)
    whole = [
        keys
        for (ratio, *depths), keys in groups.items()
        if ratio != 1 and all(_are_most(side, keys, depth) for side, depth in zip((before, after), depths, strict=True))
    ]
    if not whole or not verdict.a_ns:
        return None
    key = max((key for keys in whole for key in keys), key=lambda key: before[key].ns + after[key].ns)
    count_a, count_b = before[key].times, after[key].times
    shared = _list_shared(a, b)
    if shared and sum(each.share for each in shared if each.agrees(count_b / count_a)) < _MOST:
        return None
    a_ns, b_ns = verdict.a_ns / count_a, verdict.b_ns / count_b
    return WorkUnits(shorten_range_name(*key), count_a, count_b, round(a_ns), round(b_ns), b_ns / a_ns - 1)


def _list_ranges(summary: JobSummary) -> dict[_Key, _Unit]:
    """Return all ranges but those of the steps themselves."""
    step = "" if summary.steps is None else summary.steps.name
    units = {}
    for each in summary.ranges:
        counts = {task.per_step for task in each.tasks}
        if not is_step(each.name, step):
            times = counts.pop() if len(counts) == 1 else 0
            units[each.domain, each.name] = _Unit(times, each.depth, each.total_ns)
    return units


def _are_most(ranges: Mapping[_Key, _Unit], keys: list[_Key], depth: int) -> bool:
    """Return whether some ranges have at least half of the time of all ranges at their depth."""
    whole = sum(each.ns for each in ranges.values() if each.depth == depth)
    return whole > 0 and 2 * sum(ranges[key].ns for key in keys) >= whole
