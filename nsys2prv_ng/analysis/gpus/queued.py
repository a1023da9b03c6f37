"""Names what operations waited for that were launched, but did not start: why their GPU was idle meanwhile.

The first of these that applies to a time is its name:

1. A host function (cudaLaunchHostFunc, a host node of a graph) ran on the operation's stream, or on the stream that it
   waited for.
2. Its stream waited for a CUDA event (cudaStreamWaitEvent), because operations before the event had not ended. They ran
   on another GPU, since this one was idle.
3. The operations that had ended last on the GPU belonged to other processes, and the waiting one was launched by then:
   a GPU works for one process at a time, unless MPS joins them, and takes time to switch: SWITCH at most.

Otherwise the reports do not show what it waited for. Every operation starts some time after its launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.activity import Devices, Gaps
from nsys2prv_ng.analysis.path.columns import NONE
from nsys2prv_ng.analysis.path.lanes import number_places
from nsys2prv_ng.analysis.path.streams import STREAM_WAIT, Streams, follow_events, list_event_steps, load_operations
from nsys2prv_ng.arrays.row_keys import combine_columns, find_rows, list_indices
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick
from nsys2prv_ng.intervals.states import FlatStates, flatten, overlay
from nsys2prv_ng.intervals.step_functions import NOTHING, find_latest
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.reading.device_operations import HOST_FUNCTION
from nsys2prv_ng.reading.opened_events import Names, load_opened_events
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.sources.registry import GPU_OPERATIONS
from nsys2prv_ng.text.names import HOST_FUNCTION as NAMED_FUNCTION

EVENT, OTHER_PROCESS = "cudaStreamWaitEvent", "another process on the GPU"
"""Names of what is no host function."""
SWITCH = 150_000
"""What is longer (ns) is no change of processes alone: where four processes take turns on a GPU (m-base, m-late and
m-big), each of 102 such waits took 141.5 to 143.6 us."""


class Waiting(NamedTuple):
    """n parts of gaps in which an operation of a report was launched: gap (index), begin, end (ns), its place."""

    gap: IntArray
    begin: IntArray
    end: IntArray
    place: IntArray


def name_waits(job: Job, index: int, waiting: Waiting, ended: Ended, names: Names) -> FlatStates:
    """Split the parts of gaps of a report (by its index) by what their operations waited for.

    Return pieces: row is the index of the gap, and state the number of the name in `names`; NOTHING without one.
    """
    layers = _list_layers(job.reports[index], job.store, waiting, names) if waiting.gap.size else []
    taken = ended.find_others(index, waiting)
    if taken.size:
        name = names.number([OTHER_PROCESS], np.zeros(taken.size, np.int64))
        begin, end = waiting.begin[taken], waiting.end[taken]
        layers.insert(0, FlatStates(taken, begin, np.minimum(end, begin + SWITCH), name))
    part = np.arange(waiting.gap.size)
    flat = FlatStates(part, waiting.begin, waiting.end, np.full(part.size, NOTHING))
    for layer in layers:
        flat = overlay(flat, layer)
    return flat._replace(row=waiting.gap[flat.row])


# ---- host functions and events ---------------------------------------------------------------------------------------


def _list_layers(report: ReportRecords, store: Store, waiting: Waiting, names: Names) -> list[FlatStates]:
    """Return when streams waited for an event, and when a host function ran: rows are indices of the parts."""
    [numbers] = number_places([report])
    syncs = load_opened_events(report, source_names.CUDA_SYNC, store)
    waits = bool((syncs.get_values(types.CUDA_SYNCHRONIZATION) == STREAM_WAIT).any())
    has_functions = load_opened_events(report, source_names.HOST_FUNCTIONS, store).place.size > 0
    if not has_functions and not (waits and numbers.device.max(initial=0) > 0):
        return []  # events of the GPU's own operations do not explain why it is idle
    texts = Names()
    operations = load_operations(report, store, texts, numbers)
    begin, end, stream = (operations[column] for column in ("begin", "end", "stream"))
    functions = np.flatnonzero(operations["kind"] == HOST_FUNCTION)
    name = names.number([f"{NAMED_FUNCTION} {text}" for text in texts.texts], operations["name"][functions])
    flat = flatten(stream[functions], begin[functions], end[functions], name)
    layers = [_find_functions(flat, numbers.stream[waiting.place], waiting)]
    if waits:
        follow_events(list_event_steps(syncs, Streams(report, numbers), numbers.process), operations, syncs.place.size)
        operation = find_rows([operations["place"], begin], [waiting.place, waiting.end])
        producer = pick(operations["producer"], pick(operations["launch"], operation, NONE), NONE)
        until = np.minimum(pick(end, producer, NOTHING), waiting.end)
        part = np.flatnonzero((producer >= 0) & (until > waiting.begin))
        event = names.number([EVENT], np.zeros(part.size, np.int64))
        by_event = FlatStates(part, waiting.begin[part], until[part], event)
        layers = [by_event, _find_functions(flat, pick(stream, producer, NONE), waiting), *layers]
    return layers


def _find_functions(functions: FlatStates, stream: IntArray, waiting: Waiting) -> FlatStates:
    """Return the host functions that ran on the stream of each part (n) during it. `functions`: by stream (row)."""
    ended = find_latest(functions.row, functions.end, stream, waiting.begin)
    first = np.where(ended >= 0, ended + 1, np.searchsorted(functions.row, stream))
    last = find_latest(functions.row, functions.begin, stream, waiting.end - 1)
    count = np.where(last >= 0, np.maximum(last + 1 - first, 0), 0)
    part, at = np.repeat(np.arange(stream.size), count), list_indices(first, count)
    begin = np.maximum(functions.begin[at], waiting.begin[part])
    return FlatStates(part, begin, np.minimum(functions.end[at], waiting.end[part]), functions.state[at])


# ---- other processes -------------------------------------------------------------------------------------------------


class Ended(NamedTuple):
    """What ended as gaps began, on GPUs that several processes use: n pairs of gap (index) and task of the whole tree.

    `begin`: when each gap of the GPUs begins (ns). `tasks`: the task of each place of the job's reports.
    """

    gap: IntArray
    task: IntArray
    begin: IntArray
    tasks: list[IntArray]

    def find_others(self, index: int, waiting: Waiting) -> IntArray:
        """Return the parts that start with their gap, as which only operations of other processes ended."""
        is_known: BoolArray = np.isin(waiting.gap, self.gap) & (waiting.begin == self.begin[waiting.gap])
        part = np.flatnonzero(is_known)
        own = find_rows([self.gap, self.task], [waiting.gap[part], self.tasks[index][waiting.place[part]]])
        return part[own < 0]


def list_ended(job: Job, devices: Devices, group: Sequence[int], gaps: Gaps) -> Ended:
    """Find what ended as the gaps of GPUs began. `group`: the indices of all reports of the GPUs."""
    tasks = [job.whole.task_of_row[rows].astype(np.int64) for rows in job.whole.rows]
    parts = [(np.zeros(0, np.int64),) * 2]
    which = np.flatnonzero(np.isin(gaps.row, _find_shared(devices, group, tasks)))
    for index in group if which.size else ():
        for source in GPU_OPERATIONS:
            operations = load_opened_events(job.reports[index], source, job.store)
            gpu = devices.rows_of_reports[index][operations.place]
            gap = find_rows([gaps.row[which], gaps.begin[which]], [gpu, operations.end])
            known = np.flatnonzero(gap >= 0)
            parts.append((which[gap[known]], tasks[index][operations.place[known]]))
    gap, task = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Ended(gap, task, gaps.begin, tasks)


def _find_shared(devices: Devices, group: Sequence[int], tasks: Sequence[IntArray]) -> IntArray:
    """Return the rows of the GPUs that several tasks use."""
    nothing = (np.zeros(0, np.int64),) * 2
    parts = [nothing, *((devices.rows_of_reports[index], tasks[index]) for index in group)]
    gpu, task = (np.concatenate(column) for column in zip(*parts, strict=True))
    once = np.unique(combine_columns(gpu, task), return_index=True)[1]
    rows, users = np.unique(gpu[once], return_counts=True)
    return rows[(users > 1) & (rows >= 0)]
