"""Where the events of one report happened, as dense ids that become rows of the trace once all reports are read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

IntArray = npt.NDArray[np.int64]


class Thread(NamedTuple):
    """A host thread, by its globalTid."""

    global_tid: int

    @property
    def process(self) -> int:
        return self.global_tid >> 24


class Stream(NamedTuple):
    """A CUDA stream of a process. `device` is the process's own ordinal.

    `lane` > 0 holds operations that began before an earlier one of the stream had ended.
    """

    process: int
    device: int
    context: int
    stream: int
    lane: int


class Device(NamedTuple):
    """A GPU of the node as a whole, by nsys's number."""

    gpu: int


class Node(NamedTuple):
    """The node itself: what belongs to no process."""


Place = Thread | Stream | Device | Node


class Places:
    """The places of one report: ids in order of registration, and what their events say of the processes."""

    def __init__(self) -> None:
        self.all: list[Place] = []
        self._ids: dict[Place, int] = {}
        self.called: set[int] = set()
        """Processes that have a call, range or device operation: each is a task."""
        self.application: set[int] = set()
        """Processes that have GPU, MPI or NCCL events: the ranks are among them."""

    def _id(self, place: Place) -> int:
        known = self._ids.get(place)
        if known is None:
            known = self._ids[place] = len(self.all)
            self.all.append(place)
        return known

    def threads(self, global_tid: IntArray, *, application: bool) -> IntArray:
        """Ids of the threads with these globalTids, which made calls."""
        codes, distinct = pd.factorize(global_tid)
        ids = np.array([self._id(Thread(int(tid))) for tid in distinct], np.int64)
        self._call({int(tid) >> 24 for tid in distinct}, application)
        return ids[codes]

    def streams(
        self, process: IntArray, device: IntArray, context: IntArray, stream: IntArray, lane: IntArray
    ) -> IntArray:
        """Ids of the streams that these operations ran on."""
        codes, distinct = pd.MultiIndex.from_arrays([process, device, context, stream, lane]).factorize()
        ids = np.array([self._id(Stream(*map(int, key))) for key in distinct], np.int64)
        self._call({int(key[0]) for key in distinct}, application=True)
        return ids[codes]

    def node(self) -> int:
        """Id of the node itself."""
        return self._id(Node())

    def _call(self, processes: set[int], application: bool) -> None:
        self.called |= processes
        if application:
            self.application |= processes
