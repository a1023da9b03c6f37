"""Finds what host threads were in over time: the innermost NVTX push/pop range and the outermost call."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.names import number_lines
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.states import FlatStates, flatten, flatten_innermost
from nsys2prv_ng.intervals.step_functions import StepFunction, fill_steps, make_row_steps
from nsys2prv_ng.job.nvtx_ranges import load_nvtx_ranges
from nsys2prv_ng.job.opened_events import OpenedEvents, load_opened_events
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.objects.places import Thread
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.report.metadata import PID_MASK
from nsys2prv_ng.text.formatting import shorten_range_name

CUDA_CALL, MPI_CALL, SYSTEM_CALL = range(3)
"""Kinds of calls."""

HANDS_OVER = ("pthread_cond_*wait", "pthread_join", "sem_wait", "sem_timedwait", "sem_clockwait")
"""Calls in which a thread waits for another thread."""


class Calls(NamedTuple):
    """The outermost calls of threads (places) over time, as indices into `names`, and the kind of each name."""

    flat: FlatStates
    names: list[str]
    kind: IntArray


class ThreadRanges(NamedTuple):
    """The range that each thread (place) was in over time, as an index into `names`."""

    steps: dict[int, StepFunction]
    names: list[str]


def load_thread_ranges(report: ReportRecords, threads: IntArray, store: Store) -> ThreadRanges:
    """Return the innermost range of each thread (places) over time; outside of ranges, the main thread's range.

    Libraries launch from their own threads, which have no ranges of the program, like PyTorch in backward passes. The
    main thread belongs to the same process.
    """
    main_threads = find_main_threads(report, threads)
    needed = np.union1d(threads, list(main_threads.values())).astype(np.int64)
    ranges = load_nvtx_ranges(report, store)
    ranges = ranges.select(np.isin(ranges.place, needed))
    flat = flatten_innermost(ranges.place, ranges.begin, ranges.end, ranges.key)
    steps = {}
    for thread in np.unique(threads).tolist():
        steps[thread] = make_row_steps(flat, thread)
        if main_threads.get(thread, thread) != thread:
            steps[thread] = fill_steps(steps[thread], make_row_steps(flat, main_threads[thread]))
    return ThreadRanges(steps, [shorten_range_name(domain, name) for domain, name in ranges.keys])


def load_calls(report: ReportRecords, cuda: OpenedEvents, threads: IntArray, store: Store) -> Calls:
    """Return the outermost CUDA, MPI or OS runtime call of each thread (places) over time."""
    parts: list[tuple[OpenedEvents, list[EventType]]] = [
        (cuda, [types.CUDA_API]),
        (load_opened_events(report, source_names.MPI, store), list(types.MPI_CALLS.values())),
        (load_opened_events(report, source_names.OS_RUNTIME, store), [types.OS_RUNTIME, types.PTHREAD]),
    ]
    names: list[str] = []
    columns: list[tuple[IntArray, ...]] = [(np.zeros(0, np.int64),) * 4]
    limits = [0]
    for events, event_types in parts:
        on_threads = np.isin(events.place, threads)
        for lines, index in number_lines(events, event_types, names):
            chosen = on_threads[lines]
            line = lines[chosen]
            columns.append((events.place[line], events.begin[line], events.end[line], index[chosen]))
        limits.append(len(names))
    place, begin, end, index = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Calls(flatten(place, begin, end, index), names, np.repeat(np.arange(len(parts)), np.diff(limits)))


def map_main_threads(report: ReportRecords) -> dict[int, int]:
    """Return the main thread (a place) of each process, if the report contains it."""
    return {
        place.process: number
        for number, place in enumerate(report.places.all)
        if isinstance(place, Thread) and place.global_tid & PID_MASK == place.process & PID_MASK
    }


def find_main_threads(report: ReportRecords, threads: IntArray) -> dict[int, int]:
    """Return the main thread of each thread's process (places), if the report contains it."""
    main, places = map_main_threads(report), report.places.all
    processes = {number: place.process for number in threads.tolist() if isinstance(place := places[number], Thread)}
    return {number: main[process] for number, process in processes.items() if process in main}
