"""The model of a job for replays: its graph, what each edge belongs to, and its steps."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from nsys2prv_ng.analysis.path import columns as path
from nsys2prv_ng.analysis.path.lanes import Lanes, load_lanes
from nsys2prv_ng.analysis.path.streams import Span
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import encode_rows, find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray, Int32Array, IntArray
from nsys2prv_ng.intervals.device_sweep import COMMUNICATING_COPY, COMMUNICATION, MEMORY
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver.value_tables import KERNEL_CLASSES
from nsys2prv_ng.reading.device_operations import HOST_FUNCTION
from nsys2prv_ng.replay import graph as columns
from nsys2prv_ng.replay.communication import Communication, list_communication, make_items, merge_own
from nsys2prv_ng.replay.devices import find_launching, list_device_edges
from nsys2prv_ng.replay.graph import (
    ALWAYS,
    NONE,
    Edges,
    Graph,
    Numbers,
    build_graph,
    join_edges,
    make_edges,
    mark_at,
    run_all,
)
from nsys2prv_ng.replay.ranges import HostRanges, RangeFinder, group_by_thread
from nsys2prv_ng.replay.repeats import (
    Launched,
    Recomputed,
    Repeats,
    find_copies,
    find_one_hot,
    find_recomputed,
    find_repeats,
    join_repeats,
    number_steps,
)
from nsys2prv_ng.replay.threads import Marks, limit_returns, list_marks, list_thread_edges
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.runtime.limits import give_back_freed_memory
from nsys2prv_ng.value_class import ValueClass

_PLACERS = 8
"""Most threads that place the edges of a graph: memory is not faster for more."""


class Model(ValueClass):
    """A job as a graph of dependencies. Nodes: starts and ends of its operations and calls (Numbers), and others."""

    job: Job
    lanes: Lanes
    numbers: Numbers
    graph: Graph
    launching: IntArray
    """Call that launched each operation; NONE if it is not known."""
    marks: Marks
    span: Span | None = None
    """The time (ns) in which everything was loaded; None for all time."""

    @cached_property
    def operation_rank(self) -> IntArray:
        """Task of the whole tree of each operation."""
        return self.job.whole.task_of_row[self.lanes.operation_row].astype(np.int64)

    @cached_property
    def thread_rank(self) -> IntArray:
        """Task of the whole tree of each thread."""
        return self.job.whole.task_of_row[self.lanes.thread_row].astype(np.int64)

    @cached_property
    def _edge_owners(self) -> tuple[Int32Array, Int32Array, Int32Array]:
        """The operation, the call and the thread of each edge, as below."""
        operation, call, thread = (np.empty(self.graph.to.size, np.int32) for _ in range(3))
        _find_owners(self.graph.to, self.numbers, self.lanes.calls.thread, self.marks, operation, call, thread)
        return operation, call, thread

    @property
    def edge_operation(self) -> Int32Array:
        """The operation that starts or ends at each edge; NONE if none does."""
        return self._edge_owners[0]

    @cached_property
    def scaled_operation(self) -> Int32Array:
        """The operation whose length the time of each edge follows: what starts or ends, or what reads memory."""
        return np.where(self.graph.kind == columns.STAGE, self.graph.since, self.edge_operation)

    @property
    def edge_call(self) -> Int32Array:
        """The call that starts or ends at each edge; NONE if none does."""
        return self._edge_owners[1]

    @property
    def edge_thread(self) -> Int32Array:
        """The host thread that passes the time of each edge; NONE for edges of GPUs and between ranks."""
        return self._edge_owners[2]

    @cached_property
    def edge_rank(self) -> Int32Array:
        """The task that passes the time of each edge; NONE for edges to nodes of several ranks."""
        by_operation = _append_none(self.operation_rank)[self.edge_operation]
        return np.where(self.edge_thread >= 0, _append_none(self.thread_rank)[self.edge_thread], by_operation)

    @property
    def kernel_class(self) -> tuple[IntArray, list[str]]:
        """Class of the kernel of each operation, as an index into the names of the classes; NONE for others."""
        return self.lanes.kernel_class, ["", *KERNEL_CLASSES.values()]

    @cached_property
    def launched(self) -> Launched:
        """The kernels whose launch calls are known."""
        return self._list_launched(self.is_kernel)

    def _list_launched(self, chosen: BoolArray) -> Launched:
        """Return the chosen operations whose launch calls are known."""
        lanes, (number, classes) = self.lanes, self.kernel_class
        operation = np.flatnonzero(chosen & (self.launching >= 0))
        call = self.launching[operation]
        order = np.lexsort((lanes.operations.begin[operation], call))
        operation, call = operation[order], call[order]
        kind, distinct = find_distinct_rows(lanes.operation_name[operation], number[operation])
        names = [(lanes.names[name], classes[n] if n >= 0 else "") for name, n in distinct]
        thread = lanes.calls.thread[call].astype(np.int64)
        task = self.thread_rank[thread]
        step = number_steps(self.job.steps, task, lanes.calls.begin[call])
        group = np.where(step >= 0, encode_rows(thread, step)[0], NONE)
        length = (lanes.operations.end - lanes.operations.begin)[operation]
        return Launched(operation, length, call, thread, task, group, kind.astype(np.int64), names)

    @cached_property
    def repeats(self) -> Repeats:
        """The sequences that steps repeat in a row."""
        copies = find_copies(self._list_launched(self.is_kernel | self.is_memory))
        return join_repeats(find_repeats(self.launched), copies, find_one_hot(self.launched))

    @cached_property
    def recomputed(self) -> Recomputed:
        """The kernels of forward passes that backward passes launch again."""
        return find_recomputed(self.launched)

    @cached_property
    def ranges(self) -> HostRanges:
        """The NVTX ranges of its threads."""
        return HostRanges(self.job, self.lanes, self.span)

    @cached_property
    def edge_range(self) -> Int32Array:
        """The innermost range in which the time of each host edge ends, as a number of its name; NONE for others."""
        found = np.full(self.graph.to.size, NONE, np.int32)
        end = self.graph.time[self.graph.to]
        for thread, edges in group_by_thread(self.edge_thread, self.edge_thread >= 0):
            found[edges] = self.ranges.find_innermost(thread, end[edges] - 1)
        return found

    @cached_property
    def in_ranges(self) -> RangeFinder:
        """Finds what lies in its NVTX ranges."""
        return RangeFinder(self.graph, self.lanes, self.edge_thread, self.edge_call, self.ranges)

    @cached_property
    def is_memory(self) -> BoolArray:
        return np.asarray(self.lanes.operation_kind & MEMORY > 0, np.bool_)

    @cached_property
    def is_between(self) -> BoolArray:
        """Mark the edges of copies between GPUs."""
        of_copies = mark_at(self.lanes.operation_kind == COMMUNICATING_COPY, self.edge_operation)
        return of_copies & (self.graph.kind == columns.COPY)

    @cached_property
    def is_kernel(self) -> BoolArray:
        return ~self.is_memory & (self.lanes.operation_kind != HOST_FUNCTION)


@compiled
def _find_owners(
    to: Int32Array,
    numbers: Numbers,
    call_thread: IntArray,
    marks: Marks,
    operation: Int32Array,
    call: Int32Array,
    thread: Int32Array,
) -> None:
    """Set what `_edge_owners` returns, by the nodes that edges lead to."""
    operations, calls = numbers
    call_begin, others = 2 * operations, 2 * (operations + calls)
    for edge in range(to.size):
        node = to[edge]
        operation[edge], call[edge], thread[edge] = NONE, NONE, NONE
        if node < call_begin:
            operation[edge] = node % operations
        elif node < others:
            call[edge] = (node - call_begin) % calls
            thread[edge] = call_thread[call[edge]]
        elif 0 <= node - marks.first < marks.thread.size:
            thread[edge] = marks.thread[node - marks.first]


def _append_none(column: IntArray) -> Int32Array:
    """Return a column of numbers that fit 32 bits, and NONE at its end for the index NONE."""
    return np.append(column, NONE).astype(np.int32)


def load_model(job: Job, waits: Waits, lanes: Lanes | None = None, span: Span | None = None) -> Model:
    """Return the model of a job, or of a span of its time (ns).

    `lanes`: its operations, calls and threads, if the caller already has them.
    """
    if lanes is None:
        lanes = load_lanes(job, waits, span)
    operations, calls = lanes.operations, lanes.calls
    numbers = Numbers(operations.begin.size, calls.begin.size)
    task = job.whole.task_of_row[lanes.thread_row].astype(np.int64)
    launching = find_launching(operations, calls)
    items = make_items(lanes, numbers)

    def list_others() -> tuple[list[Edges], IntArray, Communication]:
        edges, marker_time = list_device_edges(lanes, numbers, launching)
        time = np.concatenate([operations.begin, operations.end, calls.begin, calls.end, marker_time])
        communication = list_communication(job, waits, items, time.size, time)
        return edges, np.concatenate([time, communication.time]), communication

    others, of_threads = run_all([list_others, lambda: list_thread_edges(lanes, numbers, task)], job.engine.cores)
    device_edges, time, communication = others
    every = np.arange(numbers.operations)
    own = make_edges(every, numbers.operation_end + every, _get_kinds(lanes), ALWAYS)
    edges = [merge_own(part, communication, items.get_ends(communication.starts)) for part in (own, *of_threads)]
    marks, mark_edges = list_marks(job, lanes, numbers, task, time.size)
    time = np.concatenate([time, marks.time])
    whole = join_edges([*edges, *device_edges, *communication.edges, mark_edges])
    # A third of what the graph needs to be built.
    del edges, of_threads, others, device_edges, communication, mark_edges
    limit_returns(whole, time, numbers, lanes.call_name)
    graph = build_graph(time, whole, min(_PLACERS, job.engine.cores))
    del time, whole
    give_back_freed_memory()  # replays need far less than what it took to load the model
    return Model(job, lanes, numbers, graph, launching, marks, span)


def _get_kinds(lanes: Lanes) -> IntArray:
    """Return what passes along the edge of each operation from its start to its end."""
    kind = np.full(lanes.operation_kind.size, columns.KERNEL)
    kind[lanes.operation_kind & MEMORY > 0] = columns.COPY
    kind[lanes.operation_kind == HOST_FUNCTION] = columns.CODE
    kind[(lanes.operation_kind == COMMUNICATION) & (lanes.operations.kind == path.NOT_SPLIT)] = columns.UNSPLIT
    return kind
