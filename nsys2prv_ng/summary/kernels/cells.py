"""Measures how long the kernels of each name and launch shape take in each step, from the records of one report.

A *series* is the kernels of one task that have the same name, grid and block (`Shape`), in steps of equal *content*:
steps in which the task launches the same shapes equally often. So a step with another sequence length, or with a
validation in it, is only compared with its like. A *place* is the k-th kernel of a series in a step, in the order of
launches: kernels of one shape may do different work, as long as each place does the same work in every step. A *cell*
is a series in one step, or in a block of consecutive steps of a long run.

Kernels are measured by the logarithm of their time: log(time / usual time of their place). The level of a cell is the
median of it, so that single slow kernels do not count. Kernels that run while an NCCL kernel does share the GPU with
it: they count for the time of a cell, and give its level only if all of its kernels are such (`clean` is 0). NCCL
kernels are in no series: their time is wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import encode_rows, find_distinct_rows, find_starts
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray, mark, pick, sum_at
from nsys2prv_ng.job.counted import CountedEvents, count_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.reading.device_operations import mark_communication, number_streams
from nsys2prv_ng.reading.opened_events import ABSENT, OpenedEvents, find_checksum, load_opened_events
from nsys2prv_ng.summary.sums import sum_by_key

MOST_SHAPES = 64
"""Most shapes of a report that are measured: the shapes with most time."""
MOST_BLOCKS = 128
"""Most cells of a series: with more steps than these, cells are blocks of consecutive steps."""
_ATTRIBUTES = (*types.GRID, *types.BLOCK)


class Shape(NamedTuple):
    """What kernels of one series share."""

    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]


class Cells(NamedTuple):
    """n cells, in columns. `task`, `content`, `shape`: the series. The last two are checksums, as in all reports.

    `block`: the block of steps (see `find_blocks`). `steps`: number of steps in it. `clean`: number of kernels that do
    not run beside NCCL. `kernels`, `ns`: number and time (ns) of all its kernels. `low`, `level`, `high`: first
    quartile, median and third quartile of log(time / usual time of the place).
    """

    task: IntArray
    content: IntArray
    shape: IntArray
    block: IntArray
    steps: IntArray
    clean: IntArray
    kernels: IntArray
    ns: IntArray
    low: FloatArray
    level: FloatArray
    high: FloatArray

    def take(self, which: IntArray | BoolArray) -> Cells:
        """Return the cells that indices or a mask select."""
        return Cells._make([column[which] for column in self])


class Places(NamedTuple):
    """m places of series, in columns, and the logarithm of their usual time (ns): the median over the steps."""

    task: IntArray
    content: IntArray
    shape: IntArray
    number: IntArray
    usual: FloatArray


class KernelTimes(NamedTuple):
    """The cells and places of a report, its shapes by their checksum, and the time (ns) of each task's kernels.

    `task_ns`: time of all kernels without NCCL in the steps that count, also of those in no cell.
    """

    cells: Cells
    places: Places
    shapes: dict[int, Shape]
    task_ns: dict[int, int]


def join_cells(parts: Sequence[KernelTimes]) -> Cells:
    """Return the cells of several reports, at least one."""
    return Cells._make(np.concatenate(columns) for columns in zip(*(part.cells for part in parts), strict=True))


def join_times(parts: list[KernelTimes]) -> KernelTimes:
    """Return the kernel times of several reports, at least one, as one."""
    places = Places._make(np.concatenate(columns) for columns in zip(*(part.places for part in parts), strict=True))
    shapes = {key: shape for part in parts for key, shape in part.shapes.items()}
    task_ns = sum_by_key(each for part in parts for each in part.task_ns.items())
    return KernelTimes(join_cells(parts), places, shapes, task_ns)


def find_blocks(step: IntArray, steps: int) -> IntArray:
    """Return the block of each step (n), both numbered from the first of the `steps` steps that count."""
    return step * min(steps, MOST_BLOCKS) // max(steps, 1)


# ---- kernels ---------------------------------------------------------------------------------------------------------


class Kernels(NamedTuple):
    """n kernels without NCCL, in columns. Times are ns; `shape` is an index into a list of shapes.

    `step`: index of the step, from the first one that counts. `is_beside`: whether it runs while a kernel that
    communicates does on its GPU.
    """

    task: IntArray
    step: IntArray
    shape: IntArray
    launched: IntArray
    begin: IntArray
    ns: IntArray
    is_beside: BoolArray

    def take(self, which: IntArray | BoolArray) -> Kernels:
        """Return the kernels that indices or a mask select."""
        return Kernels._make([column[which] for column in self])


def measure_kernels(job: Job, index: int, counted: CountedEvents) -> KernelTimes:
    """Return the kernel times of a report in the steps that count."""
    report, rows = job.reports[index], job.tree.rows[index]
    events = load_opened_events(report, source_names.KERNELS, job.store)
    name = events.get_values(types.KERNEL)
    line = np.flatnonzero((name != ABSENT) & ~mark_communication(events))
    step, launched = counted.find_launches(events.place[line], events.begin[line])
    inside = step >= 0
    line, step, launched = line[inside], step[inside], launched[inside]
    task = pick(job.tree.task_of_row, rows[events.place[line]], -1).astype(np.int64)
    shape, shapes = _find_shapes(events, name, line)
    beside = _mark_beside(events, number_streams(report)[0][events.place], line)
    step = step if job.scope.counted is None else np.searchsorted(job.scope.counted, step)
    kernels = Kernels(task, step, shape, launched, events.begin[line], events.length[line], beside)
    return sum_kernels(kernels, shapes, count_steps(job))


def _find_shapes(events: OpenedEvents, name: IntArray, line: IntArray) -> tuple[IntArray, list[Shape]]:
    """Return (index of the shape of the kernel on each line, shapes). `name`: of each event."""
    columns = [name[line], *(events.get_values(event_type)[line] for event_type in _ATTRIBUTES)]
    code, first = encode_rows(*columns)
    names = events.get_names(types.KERNEL)
    rows = zip(*(column[first].tolist() for column in columns), strict=True)
    return code, [Shape(names.get(row[0], f"value {row[0]}"), row[1:4], row[4:]) for row in rows]


def _mark_beside(events: OpenedEvents, device: IntArray, line: IntArray) -> BoolArray:
    """Mark the kernels on these lines that overlap with one that communicates on their GPU. `device`: of each event."""
    others = np.flatnonzero(mark_communication(events))
    others = others[np.argsort(events.begin[others], kind="stable")]
    marks = np.zeros(line.size, np.bool_)
    for number in np.unique(device[others]).tolist():
        own, here = others[device[others] == number], np.flatnonzero(device[line] == number)
        until = np.append(np.maximum.accumulate(events.end[own]), np.iinfo(np.int64).min)
        before = np.searchsorted(events.begin[own], events.end[line[here]]) - 1
        marks[here] = until[before] > events.begin[line[here]]
    return marks


# ---- cells -----------------------------------------------------------------------------------------------------------


def sum_kernels(kernels: Kernels, shapes: list[Shape], steps: int) -> KernelTimes:
    """Return the times of kernels in `steps` steps. Only MOST_SHAPES shapes have cells."""
    tasks, of_task = np.unique(kernels.task, return_inverse=True)
    task_ns = np.bincount(of_task, kernels.ns, tasks.size).astype(np.int64)
    key = np.array([find_checksum(repr(shape)) for shape in shapes], np.int64)
    content = _find_contents(kernels, key)
    times = np.bincount(kernels.shape, kernels.ns, len(shapes))
    is_kept = mark(np.argsort(-times, kind="stable")[:MOST_SHAPES], len(shapes))
    kept = np.flatnonzero(is_kept[kernels.shape])
    kernels, content = kernels.take(kept), content[kept]
    order = np.lexsort((kernels.begin, kernels.launched, *_list_groups(kernels)))
    kernels, content = kernels.take(order), content[order]
    first = find_starts(*_list_groups(kernels))
    number = np.arange(order.size) - np.repeat(first, np.diff(np.append(first, order.size)))
    level, places = _compare(kernels, content, key, number)
    used = {key[number].item(): shapes[number] for number in np.flatnonzero(is_kept)}
    ns_of_task = dict(zip(tasks.tolist(), task_ns.tolist(), strict=True))
    return KernelTimes(_make_cells(kernels, content, key, level, steps), places, used, ns_of_task)


def _list_groups(kernels: Kernels) -> tuple[IntArray, IntArray, IntArray]:
    """Return the columns that are equal for kernels of one series in one step."""
    return kernels.shape, kernels.step, kernels.task


def _find_contents(kernels: Kernels, key: IntArray) -> IntArray:
    """Return the checksum (n) of what the task of each kernel launches in its step: the count of each shape."""
    step, step_first = encode_rows(kernels.task, kernels.step)
    group, first = encode_rows(step, kernels.shape)
    of_count, counts = find_distinct_rows(kernels.shape[first], np.bincount(group))
    checksums = [find_checksum(f"{key[shape]} {count}") for shape, count in counts]
    sums = sum_at(np.array(checksums, np.int64)[of_count], step[first], step_first.size)
    return sums[step]


def _compare(kernels: Kernels, content: IntArray, key: IntArray, number: IntArray) -> tuple[FloatArray, Places]:
    """Return (log(time / usual time of its place) of each kernel, places of kernels that are not beside NCCL)."""
    columns = (kernels.task, content, kernels.shape, number, kernels.is_beside.astype(np.int64))
    place, first = encode_rows(*columns)
    time = np.log(np.maximum(kernels.ns, 1))
    usual = find_quartiles(place, time)[1]
    is_clean = ~kernels.is_beside[first]
    clean = first[is_clean]
    shape = key[kernels.shape[clean]]
    places = Places(kernels.task[clean], content[clean], shape, number[clean], usual[is_clean])
    return time - usual[place], places


def _make_cells(kernels: Kernels, content: IntArray, key: IntArray, level: FloatArray, steps: int) -> Cells:
    block = find_blocks(kernels.step, steps)
    cell, first = encode_rows(kernels.task, content, kernels.shape, block)
    clean = np.bincount(cell, ~kernels.is_beside, first.size).astype(np.int64)
    chosen = np.flatnonzero(~kernels.is_beside | (clean[cell] == 0))
    low, middle, high = find_quartiles(cell[chosen], level[chosen])
    return Cells(
        task=kernels.task[first],
        content=content[first],
        shape=key[kernels.shape[first]],
        block=block[first],
        steps=np.bincount(cell[find_starts(cell, kernels.step)], minlength=first.size),
        clean=clean,
        kernels=np.bincount(cell, minlength=first.size),
        ns=np.bincount(cell, kernels.ns, first.size).astype(np.int64),
        low=low,
        level=middle,
        high=high,
    )


def find_quartiles(group: IntArray, value: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return first quartile, median and third quartile of each group: values of it, the median a mean of two at most.

    `group` (n): dense codes from 0.
    """
    order = np.lexsort((value, group))
    ordered = value[order]
    first = find_starts(group[order])
    last = np.append(first[1:], order.size) - first - 1
    median = (ordered[first + last // 2] + ordered[first + (last + 1) // 2]) / 2
    return ordered[first + last // 4], median, ordered[first + last - last // 4]
