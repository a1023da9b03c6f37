"""Finds kernels that take longer on some tasks or in some steps than the same kernels usually do.

Cells are compared with the other cells of the same content and shape, over all tasks (cells.py). The usual
level is that of the lower of two clusters if cells have two, otherwise the median of all cells:

- Two clusters are the split of the cells with the largest variance between its parts. At least a third of the cells
  and FEWEST of them are in the lower one, at least FEWEST in the higher one.
- Kernels of a task are slow in the cells above the limit: the middle of the gap between the clusters, or half of LEAST
  above the median. The median of the slow cells must be LEAST above the usual level, at least.
- A gap separates slow cells from usual ones: from the highest usual cell to the lowest slow one of the task it is at
  least half as wide as the distance of their medians; one cell of 20 may be in it. So the tail of one cluster, or a
  drift from slow to fast, is no slow mode.
- At most a tenth of the cells of other tasks, whose kernels are not slow by these rules, are above the limit.
- In most slow cells three quarters of the kernels are slow, and in most usual cells three quarters are usual: kernels
  that are fast and slow in every step are no slow mode.
- What a task's kernels take longer than on other tasks holds for three quarters of their places, by the same rule: the
  shift between tasks is one number for all steps of a series, so that its steps do not confirm each other.
- At least FEWEST cells are slow. Each slow step has at least FEWEST slow kernels, or slow steps follow each other, are
  FEWEST_ALONE or more, and others are not slow: single slow kernels in some steps are chance.

Kernels that are slow on one task in the same steps are one mode, and so are modes of several tasks in the same steps
with the same kernels. A mode counts if it costs at least LEAST_SHARE of the time of its steps on its GPUs.

The time lost in a cell is its time less what it would take at the usual level of its own task, or of all tasks if that
task has too few usual cells. Other kernels of its tasks that are LEAST slower in the slow steps than in others belong
to a mode, too: small ones, and those beside NCCL, which are not compared otherwise. If kernels that are compared and
not slow by the rules above lose more than half as much as the others, all may drift, and the mode does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import encode_rows, find_starts
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray
from nsys2prv_ng.job.counted import list_counted_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.steps.steps import Steps
from nsys2prv_ng.summary.kernels.cells import Cells, KernelTimes, Places, find_blocks, find_quartiles, join_times
from nsys2prv_ng.summary.kernels.numbers import SlowKernel, SlowMode, SlowModeNumbers, SlowTask
from nsys2prv_ng.summary.sums import sum_by_key
from nsys2prv_ng.value_class import ValueClass

LEAST = float(np.log(1.1))
"""Least distance of slow cells from the usual level: 10 % slower."""
LEAST_SHARE = 0.01
"""Least part of the time of its steps that a mode costs, a rule of docs/reference/summary.md ("Slow kernels")."""
FEWEST, FEWEST_ALONE = 3, 5
_LOWER_PART = 1 / 3
_GAP = 0.5
_MOST_PURE = 0.75
_STRAYS = 0.05
_MOST_CHANCE = 0.1
"""Numbers of the rules above. That page has what they find and miss in random jobs, healthy and slow ones."""
_ALIKE = 0.75
"""Least part of the slow steps of two series that are slow in both, if they are one mode: a choice, as _MOST_PURE."""
_CLIP = 0.7
"""Levels (ln) that are further from the median do not draw the limit of the clusters to them.

A choice: twice the usual time, and outliers beyond it hide no mode."""
_MOST_KERNELS, _MOST_MODES, _MOST_UNITED = 20, 10, 256


def find_slow_modes(job: Job, parts: Sequence[KernelTimes]) -> SlowModeNumbers | None:
    """Return the slow modes of a job; None without steps or kernels. `parts`: the kernel times of its reports."""
    steps = list_counted_steps(job)
    if steps is None or job.scope.counted is None or not any(part.task_ns for part in parts):
        return None
    times = join_times(list(parts))
    judged = judge(times)
    modes = [_describe(job, times, judged, mode, steps) for mode in group_modes(times.cells, judged)]
    modes = sorted((mode for mode in modes if mode.step_share >= LEAST_SHARE), key=lambda mode: -mode.lost_ns)
    return SlowModeNumbers(
        steps=steps.number.size,
        kernel_ns=sum(times.task_ns.values()),
        judged_ns=int(times.cells.ns[judged.is_compared].sum()),
        modes=modes[:_MOST_MODES],
    )


# ---- cells -----------------------------------------------------------------------------------------------------------


class Judged(NamedTuple):
    """What n cells are, and their levels: of cells that are compared, levels of all tasks have the same origin.

    `lost`: time (ns) of slow cells less their usual time; 0 for others.
    """

    is_compared: BoolArray
    is_slow: BoolArray
    level: FloatArray
    lost: IntArray


class _Limits(NamedTuple):
    """The usual level of each group of cells, the highest usual level (90 %), and the limit of slow cells."""

    usual: FloatArray
    edge: FloatArray
    limit: FloatArray


def judge(times: KernelTimes) -> Judged:
    """Return which cells are slow, by the rules above. Cells without clean kernels are not compared."""
    cells = times.cells
    is_clean = cells.clean > 0
    group = encode_rows(cells.content, cells.shape)[0]
    is_compared = is_clean & (np.bincount(group, is_clean)[group] >= 2 * FEWEST)
    low, middle, high = (np.where(is_clean, shift, 0) for shift in _compare_tasks(cells, times.places))
    cells = cells._replace(low=cells.low + low, level=cells.level + middle, high=cells.high + high)
    slow, lost = np.zeros(is_clean.size, np.bool_), np.zeros(is_clean.size, np.int64)
    at = np.flatnonzero(is_compared)
    if at.size:
        slow[at], lost[at] = _find_slow(cells.take(at))
    return Judged(is_compared, slow, cells.level, lost)


def _find_slow(cells: Cells) -> tuple[BoolArray, IntArray]:
    """Return (whether each cell is slow, time lost in it). All cells are compared, with levels of one origin."""
    group = encode_rows(cells.content, cells.shape)[0]
    limits = _find_limits(group, cells.level)
    limit = limits.limit[group]
    candidate = cells.level > limit
    is_pure = np.where(candidate, cells.low > limit, cells.high < limit)
    series = encode_rows(cells.task, cells.shape)[0]
    above, edge = cells.level - limits.usual[group], (limits.edge - limits.usual)[group]
    is_good = _mark_series(series, candidate, above, edge, is_pure)
    others, slow_others = (np.bincount(group, which & ~is_good) for which in (np.ones_like(candidate), candidate))
    slow = candidate & is_good & (slow_others <= _MOST_CHANCE * others)[group]
    own = encode_rows(cells.task, cells.content, cells.shape)[0]
    usual = _find_usual(own, cells.level, ~candidate)
    usual = np.where(np.isnan(usual), limits.usual[group], usual)
    return slow, np.where(slow, _measure_lost(cells.ns, cells.level, usual), 0)


def _measure_lost(ns: IntArray, level: FloatArray, usual: FloatArray) -> IntArray:
    """Return the time (ns) that cells would not take at their usual level; 0 if that is not known."""
    return np.rint(ns * -np.expm1(np.fmin(usual - level, 0))).astype(np.int64)


def _compare_tasks(cells: Cells, places: Places) -> tuple[FloatArray, ...]:
    """Return the shift (n) that makes levels of all tasks comparable: how far the task's usual times are from all.

    They are the quartiles, over the places of a series, of (usual time on the task - median of this over all tasks).
    """
    place = encode_rows(places.content, places.shape, places.number)[0]
    shift = places.usual - find_quartiles(place, places.usual)[1][place]
    columns = zip((cells.task, cells.content, cells.shape), (places.task, places.content, places.shape), strict=True)
    series = encode_rows(*(np.concatenate(pair) for pair in columns))[0]
    of_cell, of_place = np.split(series, [cells.task.size])
    code, first = encode_rows(of_place)
    found = np.zeros((3, int(series.max(initial=-1)) + 1))
    found[:, of_place[first]] = find_quartiles(code, shift)
    return tuple(found[:, of_cell])


def _find_limits(group: IntArray, level: FloatArray) -> _Limits:
    """Return the limits of each group. `group` (n): dense codes."""
    order = np.lexsort((level, group))
    ordered, code = level[order], group[order]
    first = find_starts(code)
    size = np.diff(np.append(first, order.size))
    usual = find_quartiles(group, level)[1]
    lower = _split(ordered, code, first, size, usual)
    top = ordered[first + np.maximum(lower - 1 - _count_strays(lower), 0)]
    bottom = ordered[first + lower + _count_strays(size - lower)]
    middles = ordered[first + lower // 2], ordered[first + lower + (size - lower) // 2]
    distance = middles[1] - middles[0]
    has_two = (lower > 0) & (distance >= LEAST) & (bottom - top >= _GAP * distance)
    limit = np.where(has_two, (top + bottom) / 2, usual + LEAST / 2)
    below = np.bincount(code, ordered <= limit[code]).astype(np.int64)
    edge = ordered[first + below - 1 - _count_strays(below)]
    return _Limits(np.where(has_two, middles[0], usual), edge, limit)


def _count_strays(count: IntArray) -> IntArray:
    """Return how many of some cells may be in the gap."""
    return (count * _STRAYS).astype(np.int64)


def _split(ordered: FloatArray, code: IntArray, first: IntArray, size: IntArray, usual: FloatArray) -> IntArray:
    """Return how many of the sorted cells of each group are the lower cluster; 0 if it cannot have two."""
    value = np.clip(ordered - usual[code], -_CLIP, _CLIP)
    total = np.add.reduceat(value, first)
    lower = np.arange(code.size) - first[code] + 1
    upper = size[code] - lower
    below = np.cumsum(value) - (np.cumsum(value)[first] - value[first])[code]
    means = below / lower, (total[code] - below) / np.maximum(upper, 1)
    variance = lower * upper * (means[1] - means[0]) ** 2
    can_be = (lower >= np.maximum(FEWEST, _LOWER_PART * size[code])) & (upper >= FEWEST)
    variance[~can_be] = -1
    best = np.lexsort((-variance, code))[first]
    return np.where(can_be[best], lower[best], 0)


def _mark_series(
    series: IntArray, candidate: BoolArray, above: FloatArray, edge: FloatArray, is_pure: BoolArray
) -> BoolArray:
    """Mark the cells (n) of the series whose candidates are far from usual cells, and pure.

    `above`: how far cells are above the usual level. `edge`: the same for the highest usual cells of their group.
    """
    count = int(series.max()) + 1
    slow, usual = (np.bincount(series, which, count) for which in (candidate, ~candidate))
    pure, pure_usual = (np.bincount(series, which & is_pure, count) for which in (candidate, ~candidate))
    good = (slow >= FEWEST) & (pure >= _MOST_PURE * slow) & (pure_usual >= _MOST_PURE * usual)
    at = np.flatnonzero(candidate & good[series])
    if not at.size:
        return np.zeros(series.size, np.bool_)
    code, first = encode_rows(series[at])
    distance = find_quartiles(code, above[at])[1]
    gap = (above - edge)[at]
    order = np.lexsort((gap, code))
    starts = find_starts(code[order])
    lowest = gap[order][starts + _count_strays(np.bincount(code))]
    good[series[at[first]]] = (distance >= LEAST) & (lowest >= _GAP * distance)
    return good[series]


def _find_usual(own: IntArray, level: FloatArray, which: BoolArray, least: int = FEWEST) -> FloatArray:
    """Return the median level of each cell's series (n), over cells that a mask selects; NaN for less than `least`."""
    found = np.full(int(own.max(initial=-1)) + 1, np.nan)
    at = np.flatnonzero(which)
    if at.size:
        code, first = encode_rows(own[at])
        enough = np.bincount(code) >= least
        found[own[at[first]]] = np.where(enough, find_quartiles(code, level[at])[1], np.nan)
    return found[own]


# ---- modes -----------------------------------------------------------------------------------------------------------


class Mode(ValueClass):
    """Slow cells, as indices by series, of some tasks; the blocks of steps that are slow, and all compared ones.

    `lost`: time (ns).
    """

    tasks: set[int]
    series: list[IntArray]
    slow: set[int]
    compared: set[int]
    lost: int


def group_modes(cells: Cells, judged: Judged) -> list[Mode]:
    """Return the modes that slow cells make: the series of a task with alike steps, then tasks with alike modes."""
    compared = _list_series(cells, judged.is_compared)
    of_task: dict[int, list[Mode]] = {}
    for key, at in _list_series(cells, judged.is_slow).items():
        blocks, known = (set(cells.block[rows].tolist()) for rows in (at, compared[key]))
        of_task.setdefault(key[0], []).append(Mode({key[0]}, [at], blocks, known, int(judged.lost[at].sum())))
    modes = [mode for own in of_task.values() for mode in _unite(own, lambda one, other: True)]
    modes = sorted(modes, key=lambda mode: -mode.lost)[:_MOST_UNITED]
    certain = [mode for mode in _unite(modes, partial(_share_shapes, cells)) if _is_certain(cells, mode)]
    return [mode for mode in certain if _add_followers(cells, judged, mode)]


def _add_followers(cells: Cells, judged: Judged, mode: Mode) -> bool:
    """Add more slow cells of its tasks to a mode, and set the time that they lose.

    They are the kernels, also beside NCCL, whose median in the slow steps is LEAST above that in others. Return whether
    the mode remains: not if most time is lost in kernels that could have been slow by the rules and are not.
    """
    is_free = np.isin(cells.task, list(mode.tasks)) & (judged.lost == 0)
    inside = is_free & np.isin(cells.block, list(mode.slow))
    own = encode_rows(cells.task, cells.content, cells.shape, np.sign(cells.clean))[0]
    usual = _find_usual(own, judged.level, is_free & ~inside, 2)
    follows = inside & (_find_usual(own, judged.level, inside, 2) - usual >= LEAST)
    lost = np.where(follows, _measure_lost(cells.ns, judged.level, usual), 0)
    if 2 * lost[judged.is_compared].sum() > mode.lost:
        return False
    judged.lost[follows] = lost[follows]
    mode.series += _list_series(cells, follows).values()
    return True


def _list_series(cells: Cells, which: BoolArray) -> dict[tuple[int, int], IntArray]:
    """Return the indices of the cells of each task and shape, of those that a mask selects."""
    at = np.flatnonzero(which)
    if not at.size:
        return {}
    order = at[np.lexsort((cells.block[at], cells.shape[at], cells.task[at]))]
    first = find_starts(cells.task[order], cells.shape[order])
    keys = zip(cells.task[order[first]].tolist(), cells.shape[order[first]].tolist(), strict=True)
    return dict(zip(keys, np.split(order, first[1:]), strict=True))


def _unite(modes: Sequence[Mode], can_unite: Callable[[Mode, Mode], bool]) -> list[Mode]:
    """Return modes in which those of alike steps are one. The mode with most time lost decides."""
    groups: list[list[Mode]] = []
    for mode in sorted(modes, key=lambda mode: -mode.lost):
        alike = (group for group in groups if _are_alike(group[0], mode) and can_unite(group[0], mode))
        if group := next(alike, None):
            group.append(mode)
        else:
            groups.append([mode])
    return [_merge(group) for group in groups]


def _are_alike(one: Mode, other: Mode) -> bool:
    """Return whether two modes have most of their slow steps in common, of the steps in which both are compared."""
    common = one.compared & other.compared
    either = (one.slow | other.slow) & common
    return bool(either) and len(one.slow & other.slow & common) >= _ALIKE * len(either)


def _share_shapes(cells: Cells, one: Mode, other: Mode) -> bool:
    """Return whether most kernels of one mode are among those of the other."""
    shapes, others = ({int(cells.shape[at[0]]) for at in mode.series} for mode in (one, other))
    return 2 * len(shapes & others) >= min(len(shapes), len(others))


def _merge(modes: Sequence[Mode]) -> Mode:
    """Return modes as one. A step is slow if it is so in most of them, by the time that they lose."""
    slow = sum_by_key((block, mode.lost) for mode in modes for block in mode.slow)
    compared = sum_by_key((block, mode.lost) for mode in modes for block in mode.compared)
    return Mode(
        tasks={task for mode in modes for task in mode.tasks},
        series=[at for mode in modes for at in mode.series],
        slow={block for block, lost in slow.items() if 2 * lost >= compared[block]},
        compared=set(compared),
        lost=sum(mode.lost for mode in modes),
    )


def _is_certain(cells: Cells, mode: Mode) -> bool:
    """Return whether a mode has enough slow kernels in each step, or enough slow steps in a row."""
    at = np.concatenate(mode.series)
    at = at[np.isin(cells.block[at], sorted(mode.slow))]
    of_block = np.bincount(cells.block[at], cells.clean[at] / cells.steps[at])
    known = sorted(mode.compared)
    places = sorted(known.index(block) for block in mode.slow)
    is_row = len(places) >= FEWEST_ALONE and places[-1] - places[0] + 1 == len(places) < len(known)
    return len(places) >= FEWEST and (is_row or float(np.median(of_block[sorted(mode.slow)])) >= FEWEST)


def _describe(job: Job, times: KernelTimes, judged: Judged, mode: Mode, steps: Steps) -> SlowMode:
    """Return the numbers of a mode. `steps`: those that count."""
    cells, blocks = times.cells, np.array(sorted(mode.slow), np.int64)
    is_slow = np.isin(find_blocks(np.arange(steps.number.size), steps.number.size), blocks)
    every = np.concatenate(mode.series)
    every = every[np.isin(cells.block[every], blocks)]
    lost = int(judged.lost[every].sum())
    beside = np.isin(cells.block, blocks) & np.isin(cells.task, list(mode.tasks))
    step_ns = len(mode.tasks) * int(steps.length[is_slow].sum())
    by_shape = every[np.argsort(cells.shape[every], kind="stable")]
    of_shapes = np.split(by_shape, find_starts(cells.shape[by_shape])[1:])
    kernels = sorted((_describe_kernel(times, judged.lost, at) for at in of_shapes), key=lambda each: -each.lost_ns)
    own_lost = {task: int(judged.lost[every[cells.task[every] == task]].sum()) for task in mode.tasks}
    tasks = [
        SlowTask(rank=job.tree.ranks[task], task=job.tree.model.tasks[task].name, lost_ns=own_lost[task])
        for task in sorted(mode.tasks, key=lambda task: -own_lost[task])
    ]
    slow_ns = int(cells.ns[every].sum())
    return SlowMode(
        tasks=tasks,
        steps=steps.number[is_slow].tolist(),
        all_steps=mode.slow == mode.compared,
        ratio=slow_ns / max(1, slow_ns - lost),
        lost_ns=lost,
        step_share=lost / max(1, step_ns),
        kernel_share=slow_ns / max(1, int(cells.ns[beside].sum())),
        kernels=kernels[:_MOST_KERNELS],
        more_kernels=len(kernels[_MOST_KERNELS:]),
        more_lost_ns=sum(kernel.lost_ns for kernel in kernels[_MOST_KERNELS:]),
    )


def _describe_kernel(times: KernelTimes, lost: IntArray, at: IntArray) -> SlowKernel:
    name, grid, block = times.shapes[int(times.cells.shape[at[0]])]
    count, ns, lost_ns = int(times.cells.kernels[at].sum()), int(times.cells.ns[at].sum()), int(lost[at].sum())
    return SlowKernel(
        name=name,
        grid=list(grid),
        block=list(block),
        count=count,
        usual_ns=round((ns - lost_ns) / count),
        ns=ns,
        lost_ns=lost_ns,
    )
