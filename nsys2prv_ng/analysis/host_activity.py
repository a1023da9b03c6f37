"""What host threads were in over time: the innermost NVTX push/pop range, and the outermost call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.states import FlatStates, flatten, flatten_innermost
from nsys2prv_ng.intervals.step_functions import StepFunction, fill_steps, make_steps
from nsys2prv_ng.job.opened_events import ABSENT, OpenedEvents, load_opened_events
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.objects.places import Thread
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.report.metadata import PID_MASK
from nsys2prv_ng.text.formatting import shorten_range_name


class Layer(NamedTuple):
    """What threads were in, one range or call at a time, and the names of these."""

    flat: FlatStates
    names: list[str]

    def get_steps(self, thread: int) -> StepFunction:
        """Return the index of the name that the thread was in, over time."""
        low, high = np.searchsorted(self.flat.row, [thread, thread + 1])
        return make_steps(self.flat.begin[low:high], self.flat.end[low:high], self.flat.state[low:high])


def load_ranges(report: ReportRecords, threads: IntArray, store: Store) -> Layer:
    """Return the innermost NVTX push/pop range of each thread (places) over time."""
    events = load_opened_events(report, "nvtx", store)
    push_pop = [nvtx for nvtx in events.list_types("nvtx") if nvtx.number == families.make_nvtx_range("").number]
    intervals, names = _collect_intervals([(events, push_pop)], threads)
    return Layer(flatten_innermost(*intervals), names)


class ThreadRanges(NamedTuple):
    """The range that each thread (place) was in over time, as an index into `names`."""

    steps: dict[int, StepFunction]
    names: list[str]


def load_thread_ranges(report: ReportRecords, threads: IntArray, store: Store) -> ThreadRanges:
    """Return the innermost range of each thread (places) over time; where it is in none, that of the main thread.

    Libraries launch from threads of their own, as PyTorch does in backward passes, which have no ranges of the program.
    The main thread is that of the same process.
    """
    main_threads = find_main_threads(report, threads)
    needed = np.union1d(threads, list(main_threads.values())).astype(np.int64)
    ranges = load_ranges(report, needed, store)
    steps = {}
    for thread in np.unique(threads).tolist():
        steps[thread] = ranges.get_steps(thread)
        if main_threads.get(thread, thread) != thread:
            steps[thread] = fill_steps(steps[thread], ranges.get_steps(main_threads[thread]))
    return ThreadRanges(steps, ranges.names)


def load_calls(report: ReportRecords, cuda: OpenedEvents, threads: IntArray, store: Store) -> Layer:
    """Return the outermost call of CUDA, MPI or the operating system of each thread (places) over time."""
    parts: list[tuple[OpenedEvents, list[EventType]]] = [
        (cuda, [types.CUDA_API]),
        (load_opened_events(report, "mpi", store), list(types.MPI_CALLS.values())),
        (load_opened_events(report, "os_runtime", store), [types.OS_RUNTIME, types.PTHREAD]),
    ]
    intervals, names = _collect_intervals(parts, threads)
    return Layer(flatten(*intervals), names)


def find_main_threads(report: ReportRecords, threads: IntArray) -> dict[int, int]:
    """Return the main thread of the process of each thread (places), where the report shows it."""
    places = report.places.all
    main = {
        place.process: number
        for number, place in enumerate(places)
        if isinstance(place, Thread) and place.global_tid & PID_MASK == place.process & PID_MASK
    }
    processes = {number: places[number] for number in threads.tolist()}
    return {
        number: main[place.process]
        for number, place in processes.items()
        if isinstance(place, Thread) and place.process in main
    }


def _collect_intervals(
    parts: Iterable[tuple[OpenedEvents, Sequence[EventType]]], threads: IntArray
) -> tuple[tuple[IntArray, IntArray, IntArray, IntArray], list[str]]:
    """Return (place, begin, end, index of the name) of the intervals of some types on some threads, and the names."""
    names: list[str] = []
    columns: list[tuple[IntArray, ...]] = []
    for events, event_types in parts:
        on_threads = np.isin(events.place, threads)
        for event_type in event_types:
            value = events.get_values(event_type)
            lines = np.flatnonzero(on_threads & (value != ABSENT))
            known = events.get_names(event_type)
            index = np.full(max(known, default=0) + 1, -1, np.int64)
            index[list(known)] = len(names) + np.arange(len(known))
            names += [shorten_range_name(event_type.member, name) for name in known.values()]
            columns.append((events.place[lines], events.begin[lines], events.end[lines], index[value[lines]]))
    place, begin, end, index = (
        (np.concatenate(column) for column in zip(*columns, strict=True)) if columns else _NO_INTERVALS
    )
    return (place, begin, end, index), names


_NO_INTERVALS = tuple(np.zeros(0, np.int64) for _ in range(4))
