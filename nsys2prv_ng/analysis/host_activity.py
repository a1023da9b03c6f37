"""Finds what host threads were in over time: the innermost NVTX push/pop range and the outermost call.

A wait for Python's lock, the GIL, counts as a call of the OS runtime: within it, the thread is in one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.nesting import measure_depths
from nsys2prv_ng.intervals.states import FlatStates, flatten, flatten_innermost
from nsys2prv_ng.intervals.step_functions import StepFunction, fill_steps, make_row_steps
from nsys2prv_ng.objects.places import Thread
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.reading.opened_events import OpenedEvents, load_nvtx_ranges, load_opened_events, number_lines
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.report.metadata import PID_MASK
from nsys2prv_ng.text.formatting import shorten_range_name

CUDA_CALL, MPI_CALL, SYSTEM_CALL = range(3)
"""Kinds of calls."""


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


class CallEvents(NamedTuple):
    """n calls of threads in columns: place, begin and end (ns), indices into `names` and into `sources`."""

    place: IntArray
    begin: IntArray
    end: IntArray
    name: IntArray
    source: IntArray
    names: list[str]
    sources: list[str]

    def take(self, which: IntArray) -> CallEvents:
        """Return the calls at these indices."""
        columns = {column: getattr(self, column)[which] for column in ("place", "begin", "end", "name", "source")}
        return self._replace(**columns)


_SOURCES = [source_names.CUDA_API, source_names.MPI, source_names.OS_RUNTIME]
"""Sources of calls, in the order of their kinds (CUDA_CALL, MPI_CALL, SYSTEM_CALL)."""


def load_calls(report: ReportRecords, cuda: OpenedEvents, threads: IntArray, store: Store) -> Calls:
    """Return the outermost CUDA, MPI or OS runtime call of each thread (places) over time."""
    calls = _list_calls(report, cuda, store)
    kind = np.zeros(len(calls.names), np.int64)
    kind[calls.name] = calls.source
    chosen = calls.take(np.flatnonzero(np.isin(calls.place, threads)))
    return Calls(flatten(chosen.place, chosen.begin, chosen.end, chosen.name), calls.names, kind)


def load_outermost_calls(report: ReportRecords, store: Store) -> CallEvents:
    """Return the CUDA, MPI and OS runtime calls of all threads that no other call contains."""
    calls = _list_calls(report, load_opened_events(report, source_names.CUDA_API, store), store)
    return calls.take(np.flatnonzero(measure_depths(calls.place, calls.begin, calls.end) == 1))


def _list_calls(report: ReportRecords, cuda: OpenedEvents, store: Store) -> CallEvents:
    """Return all calls of a report. `cuda`: its CUDA API calls."""
    parts: list[tuple[OpenedEvents, list[EventType]]] = [
        (cuda, [types.CUDA_API]),
        (load_opened_events(report, source_names.MPI, store), list(types.MPI_CALLS.values())),
        (load_opened_events(report, source_names.OS_RUNTIME, store), [types.OS_RUNTIME, types.PTHREAD]),
    ]
    names: list[str] = []
    columns: list[tuple[IntArray, ...]] = [(np.zeros(0, np.int64),) * 5]
    for kind, (events, event_types) in enumerate(parts):
        for line, index in number_lines(events, event_types, names):
            columns.append((events.place[line], events.begin[line], events.end[line], index, np.full_like(line, kind)))
    gil = load_nvtx_ranges(report, store, lambda domain: domain == families.GIL_DOMAIN)
    gil = gil.select(np.isin(gil.key, [n for n, (_, name) in enumerate(gil.keys) if name == families.GIL_WAIT]))
    columns.append((gil.place, gil.begin, gil.end, *(np.full_like(gil.line, n) for n in (len(names), SYSTEM_CALL))))
    names.append(families.GIL_WAIT)
    place, begin, end, name, source = (np.concatenate(column) for column in zip(*columns, strict=True))
    return CallEvents(place, begin, end, name, source, names, _SOURCES)


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
