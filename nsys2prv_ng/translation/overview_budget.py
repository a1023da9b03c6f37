"""How many bytes the parts of an overview may take, and the steps of time that follow from these.

All follows from the numbers of rows, records and digits, so that it is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver.encode import encode
from nsys2prv_ng.records.runs import Run, load_records

MOST_BYTES = 100_000_000
"""Bytes of the .prv of an overview."""
PARTS_OF_STEPS, PARTS_OF_WAITS, PARTS_OF_SHARES, PARTS_OF_METRICS = 10, 10, 25, 15
"""Percent of the bytes for steps, waits, what GPUs do, and metrics of GPUs. States get what these leave."""
MOST_BINS = 4000
"""Most bins of a counter: more than a screen can show."""
_TYPE_DIGITS = 8


@dataclass(frozen=True)
class LineSizes:
    """Most bytes of the lines of a trace, by the digits of its objects and times."""

    place: int
    """Of kind and object, with the colons around them."""
    time: int

    @property
    def state(self) -> int:
        return self.place + 2 * self.time + len(":25\n") + 1

    def count_event(self, *value_digits: int) -> int:
        """Return the bytes of an event with a pair for each of these values."""
        return self.place + self.time + sum(2 + _TYPE_DIGITS + digits for digits in value_digits) + 1


class CoarseRows(NamedTuple):
    """Records in the store, of which some rows are shown in steps of time."""

    runs: list[Run]
    step: int
    """Length of a step (ns); 0 if no row is coarse."""
    rows: int
    """Number of rows that are coarse."""


def measure_line_sizes(job: Job) -> LineSizes:
    """Return the sizes of the lines of a job's trace."""
    _, size = job.tree.model.number_rows().texts
    return LineSizes(1 + int(size.max(initial=0)), len(str(job.duration)))


def measure_bytes(job: Job, runs: Iterable[Run]) -> int:
    """Return the bytes of the lines of runs that have the rows, numbers and times of the trace."""
    rows = job.tree.model.number_rows()
    return sum(encode(load_records(run, job.store), np.arange(len(run)), rows, job.origin).size for run in runs)


def round_step(duration: int, bins: int) -> int:
    """Return the length (ns) of at most `bins` bins of a duration, rounded up to two digits: 1,300,000."""
    length = max(1, -(-duration // max(1, bins)))
    digit = 10 ** max(0, len(str(length)) - 2)
    return -(-length // digit) * digit


def find_most_bins(lines: Sequence[IntArray], most: int) -> int | None:
    """Return the most bins with which all rows together have at most `most` lines, or None if all fit as they are.

    `lines`: the lines that rows have as they are, in any number of parts. A row in bins has a line more than bins at
    most, as an event ends its last bin.
    """
    every = np.concatenate([np.zeros(0, np.int64), *lines])
    if int(every.sum()) <= most:
        return None
    low, high = 1, max(2, int(every.max()))
    while high - low > 1:
        middle = (low + high) // 2
        fits = int(np.where(every > middle, middle + 1, every).sum()) <= most
        low, high = (middle, high) if fits else (low, middle)
    return low
