"""Cuts a trace into slices: stretches of time whose lines can be made independently, anywhere and in any order.

The limits of the slices follow from the records alone, so a trace has the same bytes wherever its slices are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.paraver.encode import RowNumbers, encode
from nsys2prv_ng.paraver.output import compress
from nsys2prv_ng.records.gather import PlacedRun, RunGroup, gather_records, group_runs
from nsys2prv_ng.records.runs import SAMPLED
from nsys2prv_ng.records.sorting import sort_by_time
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.value_class import ValueClass

_FEWEST, _MOST, _PER_RUN = 1 << 16, 1 << 20, 64
"""Records of a slice: a number per run, because each run costs time in each slice; the limits bound the memory."""
_BLOCK = 1 << 17
"""Records to format at once."""
BYTES_PER_RECORD = 300
"""Memory to make one record of a slice (bytes): its columns while they are loaded, joined and sorted, and its text."""


class Text(NamedTuple):
    """Text of a trace: its bytes before compression, and consecutive pieces of the file."""

    size: int
    parts: Sequence[memoryview | bytes]


class Slices(ValueClass):
    """The k slices of a trace, and the records that their lines are made of.

    Records with equal time and tie keep the order of the runs.

    - `origin`: time 0 of the trace (ns, common clock).
    - `limits`: times (k + 1, ns, common clock): slice i has the records at or after limit i and before limit i + 1.
    - `records`: approximate number of records of each slice (k).
    """

    groups: list[RunGroup]
    rows: RowNumbers
    origin: int
    compressed: bool
    limits: IntArray
    records: IntArray

    def __len__(self) -> int:
        return max(0, self.limits.size - 1)

    @property
    def memory(self) -> int:
        """Approximate memory that the largest slice takes while it is made (bytes)."""
        return BYTES_PER_RECORD * int(self.records.max(initial=0))


def cut_into_slices(runs: Sequence[PlacedRun], rows: RowNumbers, origin: int, *, compressed: bool) -> Slices:
    """Cut the trace of some runs into slices with about the same number of records.

    Records with equal times are in one slice.
    """
    runs = [placed for placed in runs if len(placed.run)]
    size = min(max(_FEWEST, _PER_RUN * len(runs)), _MOST)
    times = [placed.run.sampled + placed.offset for placed in runs]
    counts = [np.diff(SAMPLED * np.arange(placed.run.sampled.size), append=len(placed.run)) for placed in runs]
    time, count = (np.concatenate([np.zeros(0, np.int64), *columns]) for columns in (times, counts))
    order = np.argsort(time, kind="stable")
    time, before = time[order], np.cumsum(count[order])
    slices = -(-int(before[-1]) // size) if time.size else 0
    wanted = np.arange(1, slices) * size
    first = time[before.searchsorted(wanted, "right")] if slices else time
    ends = [max(int(placed.run.facts.last) + placed.offset for placed in runs) + 1] if runs else []
    limits = np.unique(np.concatenate([time[:1], first, np.array(ends, np.int64)]))
    records = np.diff(np.append(0, before)[time.searchsorted(limits, "left")])
    return Slices(group_runs(runs), rows, origin, compressed, limits, records)


def make_slice(slices: Slices, number: int, store: Store) -> Text:
    """Return the text of a slice."""
    low, high = slices.limits[number : number + 2].tolist()
    records = gather_records(slices.groups, store, len(slices.rows.cpu), low, high)
    order = sort_by_time(records.time, records.tie)
    blocks = [order[at : at + _BLOCK] for at in range(0, order.size, _BLOCK)]
    lines = [encode(records, block, slices.rows, slices.origin) for block in blocks]
    size = sum(block.size for block in lines)
    if not slices.compressed:
        return Text(size, [block.data for block in lines])
    del records
    return Text(size, list(compress(np.concatenate([np.zeros(0, np.uint8), *lines]).data)))
