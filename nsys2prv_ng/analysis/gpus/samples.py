"""Finds what samples show of threads that kept GPUs waiting: the function of the program, and what it called.

Samples of Python are taken in regular intervals, whether the thread runs or waits. So their shares are shares of time.
Samples of a CPU are taken only while the thread runs. They count in reports without samples of Python, and show the
program's innermost function and the function that ran. A thread of a library has no Python of its own: the main
thread's samples stand for it. Back traces of CUDA calls show for what a gap waited: the function that called last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.host_activity import find_main_threads
from nsys2prv_ng.arrays.groups import Table, make_objects, sum_table
from nsys2prv_ng.arrays.row_keys import find_distinct, list_indices
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.step_functions import NOTHING, cut_to_windows
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.reading.opened_events import ABSENT, Names, OpenedEvents, load_opened_events
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store


class Samples(NamedTuple):
    """n samples of threads that kept GPUs waiting: index of the gap, time (ns), and numbers of names.

    `source`: PYTHON, CALLS or CPU; `function`: of the program; `called`: of a library, by it; NOTHING without one. A
    sample within gaps of several GPUs is there for each. `ns`: the length of the part of a gap, for CALLS; else 0.
    """

    gap: IntArray
    time: IntArray
    ns: IntArray
    source: IntArray
    function: IntArray
    called: IntArray


NO_SAMPLES = Samples(*(np.zeros(0, np.int64),) * 6)
PYTHON, CALLS, CPU = "Python", "calls of Python", "CPU"
_KINDS = (
    (PYTHON, source_names.NVTX, types.SAMPLED_PYTHON[0], types.PROGRAM_PYTHON, types.CALLED_PYTHON),
    (CALLS, source_names.NVTX, types.PROGRAM_PYTHON, types.PROGRAM_PYTHON, types.CALLED_PYTHON),
    (CPU, source_names.CPU_SAMPLES, types.SAMPLED_FUNCTIONS[0], types.SAMPLED_PROGRAM, types.SAMPLED_FUNCTIONS[0]),
)
"""What was sampled, its source, the type that all samples have, the types of what they say. The first kind counts."""


def find_samples(
    report: ReportRecords, gap: IntArray, begin: IntArray, end: IntArray, thread: IntArray, names: Names, store: Store
) -> Iterator[Samples]:
    """Yield the samples of threads (places) within n parts of gaps, from `begin` to `end` (ns)."""
    index, threads = find_distinct(thread)
    main = find_main_threads(report, threads)
    for kind, source, sampled, *said in _KINDS:
        events = load_opened_events(report, source, store)
        lines = find_back_traces(events) if kind == CALLS else np.flatnonzero(events.get_values(sampled) != ABSENT)
        if not lines.size:
            continue
        lines = lines[np.lexsort((events.begin[lines], events.place[lines]))]
        sampled_places = set(np.unique(events.place[lines]).tolist())
        stand_ins = [each if each in sampled_places else main.get(each, each) for each in threads.tolist()]
        place = np.array(stand_ins, np.int64)[index]
        for each in np.unique(place).tolist():
            own = lines[slice(*np.searchsorted(events.place[lines], [each, each + 1]))]
            parts = np.flatnonzero(place == each)
            first, last = (np.searchsorted(events.begin[own], limit[parts]) for limit in (begin, end))
            if kind == CALLS:
                first = np.maximum(first, last - 1)
            line, number = own[list_indices(first, last - first)], last - first
            ns = np.repeat((end - begin)[parts] if kind == CALLS else np.zeros_like(parts), number)
            numbers = (_number(events, line, event_type, names) for event_type in said)
            of_kind = names.number([kind], np.zeros_like(line))
            yield Samples(np.repeat(gap[parts], number), events.begin[line], ns, of_kind, *numbers)
        return


def find_back_traces(events: OpenedEvents) -> IntArray:
    """Return the lines of a report's NVTX events that are back traces of calls, with a function of the program."""
    function, sampled = (events.get_values(each) for each in (types.PROGRAM_PYTHON, types.SAMPLED_PYTHON[0]))
    return np.flatnonzero((function != ABSENT) & (sampled == ABSENT))


def _number(events: OpenedEvents, line: IntArray, event_type: EventType, names: Names) -> IntArray:
    """Return the numbers of the names that lines have for a type; NOTHING without one."""
    known, value = events.get_names(event_type), events.get_values(event_type)[line]
    return names.number(["", *known.values()], np.where(value == ABSENT, NOTHING, value))


def count_samples(job: Job, row: IntArray, samples: Samples, names: Sequence[str]) -> Table:
    """Count `samples` by the `row` of the GPU that waited, `source`, `function` and what it `called` ("": none).

    Add up their `ns`. `row`: of each gap. Only samples in the time that numbers cover count.
    """
    if job.scope.measured:
        kept = cut_to_windows(samples.time, samples.time + 1, job.scope.measured)[0]
        samples = Samples(*(column[kept] for column in samples))
    said = {"source": samples.source, "function": samples.function, "called": samples.called}
    keys = {"row": row[samples.gap], **said}
    counts = sum_table({**keys, "samples": np.ones_like(samples.gap), "ns": samples.ns}, list(keys))
    for column in said:
        counts[column] = make_objects([*names, ""][n] for n in counts[column].tolist())
    return counts
