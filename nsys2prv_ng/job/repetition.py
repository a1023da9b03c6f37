"""Finds what a program repeats: the longest stretch of a stream whose kernels repeat in the same order.

A stretch has a period of p kernels if each kernel has the name of the kernel p kernels before it. A repetition starts
where the stream is idle longest (median over all periods) and ends where the next repetition starts. The last one does
not count, because the stream may be idle for any time after it. Every name in a period counts: evaluation kernels, or
shapes that change, end the stretch, so that nothing counts as a repetition by mistake. The stretch must contain half of
the kernels of its stream and cover half of the time from the first to the last kernel of its task: a loop in a small
part of a program is not what the program repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.opened_events import ABSENT, load_opened_events
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.objects.tree import ObjectTree, group_reports_by_task
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.engine import Engine

_MOST_STREAMS = 4
"""Maximum number of streams of a task to examine, streams with most kernels first."""
_MOST_PERIODS = 32
"""Maximum number of periods to try."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""Odd, with random bits: products with it differ in all bits, modulo 2**64."""
_LEAST_PART = 0.5
"""Minimum share of a stream's kernels, and of its task's time, in the stretch."""


class Stretch(NamedTuple):
    """The part of a stream that repeats: index of its first kernel, index after its last kernel, and period."""

    first: int
    last: int
    period: int


_Streams = dict[int, list[tuple[IntArray, IntArray, IntArray]]]
"""By task: name, begin and end (ns) of the kernels of each stream, sorted by begin."""


def find_repetitions(
    reports: Sequence[ReportRecords], tree: ObjectTree, store: Store, fewest: int, engine: Engine
) -> pd.DataFrame | None:
    """Return the repetitions of each task with kernels: task, its first thread's row (-1 without one), number (from 1),
    begin and end (ns).

    Return None unless all tasks have equally many repetitions, `fewest` or more, and repetitions of equal number
    overlap in time. Each piece of work has the kernels of one task in memory.
    """

    def find(group: Sequence[int]) -> dict[int, tuple[IntArray, IntArray] | None]:
        streams = _load_streams([(reports[index], tree.rows[index]) for index in group], tree, store)
        return {task: _find_in_task(task_streams, fewest) for task, task_streams in streams.items()}

    tasks, first = np.unique(tree.task_of_row[tree.host_rows], return_index=True)
    threads = dict(zip(tasks.tolist(), tree.host_rows[first].tolist(), strict=True))
    parts = []
    for found in engine.map(find, group_reports_by_task([report.places for report in reports], tree)):
        for task, limits in found.items():
            if limits is None:
                return None
            begin, end = limits
            number = np.arange(1, begin.size + 1)
            row = threads.get(task, -1)
            parts.append(pd.DataFrame({"task": task, "row": row, "number": number, "begin": begin, "end": end}))
    if not parts or len({len(part) for part in parts}) > 1:
        return None
    table = pd.concat(parts, ignore_index=True)
    by_number = table.groupby("number")
    if (by_number["begin"].max() >= by_number["end"].min()).any():
        return None
    return table


def _load_streams(reports: Sequence[tuple[ReportRecords, IntArray]], tree: ObjectTree, store: Store) -> _Streams:
    """Return the streams of the tasks of some reports, streams with most kernels first. Each report has its rows."""
    streams: _Streams = {}
    for report, rows in reports:
        events = load_opened_events(report, source_names.KERNELS, store)
        kernels, nccl = (events.get_values(kind) for kind in (types.KERNEL, types.NCCL_KERNEL))
        name = np.where(kernels == ABSENT, np.where(nccl == ABSENT, ABSENT, -1 - nccl), kernels)
        lines = np.flatnonzero(name != ABSENT)
        for place in np.unique(events.place[lines]).tolist():
            on_stream = lines[events.place[lines] == place]
            on_stream = on_stream[np.argsort(events.begin[on_stream], kind="stable")]
            task = int(tree.task_of_row[rows[place]])
            streams.setdefault(task, []).append((name[on_stream], events.begin[on_stream], events.end[on_stream]))
    return {task: sorted(found, key=lambda stream: -stream[0].size) for task, found in streams.items()}


def _find_in_task(
    streams: Sequence[tuple[IntArray, IntArray, IntArray]], fewest: int
) -> tuple[IntArray, IntArray] | None:
    """Return begin and end (ns) of the repetitions on the first stream of a task that has any."""
    kernels = max(end.max() for _, _, end in streams) - min(begin[0] for _, begin, _ in streams)
    for name, begin, end in streams[:_MOST_STREAMS]:
        stretch = find_stretch(name, fewest)
        if stretch is None:
            continue
        limits = begin[_choose_first(stretch, begin, end) : stretch.last : stretch.period]
        if limits.size > fewest and limits[-1] - limits[0] >= _LEAST_PART * kernels:
            return limits[:-1], limits[1:]
    return None


def find_stretch(name: IntArray, fewest: int) -> Stretch | None:
    """Return the longest stretch of names (n) that repeats `fewest` times or more, with the shortest period."""
    best: Stretch | None = None
    for period in _list_periods(name, fewest):
        differs = np.concatenate([[-1], np.flatnonzero(name[:-period] != name[period:]), [name.size - period]])
        longest = int(np.argmax(np.diff(differs)))
        stretch = Stretch(int(differs[longest]) + 1, int(differs[longest + 1]) + period, period)
        size = stretch.last - stretch.first
        if size < max(fewest * period, _LEAST_PART * name.size) or (best and size <= best.last - best.first):
            continue
        # One kernel alone is not a step of a program.
        if np.unique(name[stretch.first : stretch.first + period]).size > 1:
            best = stretch
    return best


def _list_periods(name: IntArray, fewest: int) -> list[int]:
    """Return possible periods, shortest first: distances between equal words of 1, 4, 16 and more names.

    Longer words are needed if every name occurs several times in a period. If there are many distances, the
    distances that cover most names are kept. Words are compared by checksum; a wrong distance only costs time.
    """
    distances = np.arange(name.size // fewest + 1)
    weight = np.zeros(distances.size, np.int64)
    word, width = name.astype(np.uint64) * _FACTOR, 1
    while word.size >= fewest * width:
        order = np.argsort(word, kind="stable")
        distance = np.diff(order)[word[order[1:]] == word[order[:-1]]]
        count = np.bincount(distance[distance < distances.size], minlength=distances.size)
        weight = np.maximum(weight, np.where(count >= fewest - 1, count * distances, 0))
        size = word.size - 3 * width
        parts = (word[part * width :][: max(size, 0)] for part in range(4))
        word = sum(part * _FACTOR ** np.uint64(number) for number, part in enumerate(parts, 1))
        word, width = word ^ (word >> np.uint64(29)), 4 * width
    likely = np.argsort(-weight, kind="stable")[:_MOST_PERIODS]
    return sorted(likely[weight[likely] > 0].tolist())


def _choose_first(stretch: Stretch, begin: IntArray, end: IntArray) -> int:
    """Return the kernel that starts the first repetition: the kernel before which the stream is idle longest."""
    periods = (stretch.last - stretch.first) // stretch.period
    at = stretch.first + np.arange(stretch.period)[:, None] + stretch.period * np.arange(1, periods)
    return stretch.first + int(np.argmax(np.median(begin[at] - end[at - 1], axis=1)))
