"""Gives dense ids to the places of events in a report. They become rows of the trace once all reports are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import encode_rows, find_distinct_rows
from nsys2prv_ng.arrays.types import IntArray


class Thread(NamedTuple):
    """A host thread, by nsys's globalTid."""

    global_tid: int

    @property
    def process(self) -> int:
        return self.global_tid >> 24


class Stream(NamedTuple):
    """A CUDA stream of a process. `device` is the ordinal within the process.

    A `lane` above 0 has operations that started before an earlier operation of the stream had ended.
    """

    process: int
    device: int
    context: int
    stream: int
    lane: int


class Device(NamedTuple):
    """A GPU of the node as a whole, or a MIG instance, by its key in the metadata of the report."""

    gpu: int


class Node(NamedTuple):
    """The node itself, for events that belong to no process."""


class NodePart(NamedTuple):
    """A part of the node with separate values, such as a network card or a core.

    Reports of a node mean the same part if they agree in all fields; names alone are not unique.

    `key`: distinguishes the part in nsys from other parts with the same name. `suffix`: the port in the name of the
    row. `is_local`: whether the part belongs to one report. In another report it is a different part, unless the two
    reports do not overlap in time.
    """

    name: str
    key: tuple[int, ...]
    port: int = 0
    suffix: str = ""
    is_local: bool = False


Place = Thread | Stream | Device | Node | NodePart


@dataclass(eq=False)
class Places:
    """The places of one report: ids in order of registration, and what their events reveal about the processes.

    `called`: processes with a call, range or device operation: each is a task. `application`: processes with GPU, MPI
    or NCCL events: the ranks are among them. `instrumented`: processes with more than operating-system calls, which
    every launcher makes too. `only_observed`: ids of threads that made no call and were merely observed, for example by
    the scheduler: they have no row. `studied`: ids of threads that made more than operating-system calls, such as CUDA
    calls or NVTX ranges.
    """

    all: list[Place] = field(default_factory=list)
    called: set[int] = field(default_factory=set)
    application: set[int] = field(default_factory=set)
    instrumented: set[int] = field(default_factory=set)
    only_observed: set[int] = field(default_factory=set)
    studied: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        # By kind too, because a thread and a GPU with the same number are equal as tuples.
        self._ids = {(type(place), place): number for number, place in enumerate(self.all)}

    def _register(self, place: Place) -> int:
        """Return the id of a place; a new place gets a new id."""
        number = self._ids.setdefault((type(place), place), len(self.all))
        if number == len(self.all):
            self.all.append(place)
        return number

    def _find_threads(self, global_tid: IntArray) -> set[int]:
        """Return the ids of the threads that have one."""
        threads = ((Thread, Thread(int(tid))) for tid in global_tid)
        return {self._ids[thread] for thread in threads if thread in self._ids}

    def threads(self, global_tid: IntArray, *, application: bool, system_calls: bool = False) -> IntArray:
        """Return the ids of the threads with these globalTids, which made calls.

        `application`: GPU, MPI or NCCL events are among the calls; `system_calls`: they are operating-system calls.
        """
        codes, first = encode_rows(global_tid)
        ids = np.array([self._register(Thread(tid)) for tid in global_tid[first].tolist()], np.int64)
        self.note_calls(global_tid[first], application, system_calls)
        return ids[codes]

    def note_calls(self, global_tid: IntArray, application: bool, system_calls: bool) -> None:
        """Note that these threads (or, by globalPid, processes) made calls."""
        known = self._find_threads(global_tid)
        self.only_observed -= known
        if not system_calls:
            self.studied |= known
        self._note_tasks({int(tid) >> 24 for tid in global_tid}, application, system_calls)

    def note_studied(self, global_tid: IntArray) -> None:
        """Note that these threads made more than operating-system calls."""
        self.studied |= self._find_threads(global_tid)

    def observed_threads(self, global_tid: IntArray) -> IntArray:
        """Return the ids of the threads with these globalTids, which were observed without a call.

        Their processes do not become tasks. A thread without other events has no row.
        """
        codes, first = encode_rows(global_tid)
        known = len(self.all)
        ids = np.array([self._register(Thread(tid)) for tid in global_tid[first].tolist()], np.int64)
        self.only_observed.update(ids[ids >= known].tolist())
        return ids[codes]

    def streams(
        self, process: IntArray, device: IntArray, context: IntArray, stream: IntArray, lane: IntArray
    ) -> IntArray:
        """Return the ids of the streams on which these operations ran."""
        codes, distinct = find_distinct_rows(process, device, context, stream, lane)
        ids = np.array([self._register(Stream(*key)) for key in distinct], np.int64)
        self._note_tasks({key[0] for key in distinct}, application=True)
        return ids[codes]

    def devices(self, gpu: IntArray) -> IntArray:
        """Return the ids of whole GPUs by their keys in the metadata of the report."""
        codes, first = encode_rows(gpu)
        return np.array([self._register(Device(number)) for number in gpu[first].tolist()], np.int64)[codes]

    def node(self) -> int:
        """Return the id of the node itself."""
        return self._register(Node())

    def node_parts(self, parts: Sequence[NodePart]) -> IntArray:
        """Return the ids of parts of the node."""
        return np.array([self._register(part) for part in parts], np.int64)

    def add(self, other: Places) -> IntArray:
        """Add the places of a part of the report, as if its events had been read here; return the id of each here."""
        known = len(self.all)
        ids = np.array([self._register(place) for place in other.all], np.int64)
        called = {place for number, place in enumerate(ids.tolist()) if number not in other.only_observed}
        observed = ids[sorted(other.only_observed)]
        self.only_observed = (self.only_observed - called) | set(observed[observed >= known].tolist())
        self.studied |= set(ids[sorted(other.studied)].tolist())
        self.called |= other.called
        self.application |= other.application
        self.instrumented |= other.instrumented
        return ids

    def has_idle_threads(self) -> bool:
        """Return whether a thread is known to have made only operating-system calls."""
        idle = (number for number, place in enumerate(self.all) if isinstance(place, Thread))
        return any(number not in self.studied and number not in self.only_observed for number in idle)

    def _note_tasks(self, processes: set[int], application: bool, system_calls: bool = False) -> None:
        self.called |= processes
        if not system_calls:
            self.instrumented |= processes
        if application:
            self.application |= processes
