"""Computes how many bytes the parts of an overview may take, and the steps of time that result.

Both follow from the numbers of rows, records and digits alone, so they are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.paraver.encode import encode
from nsys2prv_ng.records.runs import Run, load_records

MOST_BYTES = 100_000_000
"""Maximum size of the .prv of an overview (bytes)."""
STEPS_PERCENT, WAITS_PERCENT, SHARES_PERCENT, METRICS_PERCENT = 10, 10, 25, 15
"""Percentage of the bytes for steps, waits, GPU activity and GPU metrics. States get the rest."""
MOST_BINS = 4000
"""Maximum number of bins of a counter: more than a screen can show."""
_TYPE_DIGITS = 8


@dataclass(frozen=True)
class LineSizes:
    """Upper limits of the line lengths of a trace (bytes), from the digits of its objects and times."""

    place: int
    """Kind and object, with the colons around them."""
    time: int

    @property
    def state(self) -> int:
        return self.place + 2 * self.time + len(":25\n") + 1

    def count_event(self, *value_digits: int) -> int:
        """Return the bytes of an event line with one pair for each given number of value digits."""
        return self.place + self.time + sum(2 + _TYPE_DIGITS + digits for digits in value_digits) + 1


class CoarseRows(NamedTuple):
    """Stored records in which some rows are coarse: they are shown in steps of time."""

    runs: list[Run]
    step: int
    """Length of a step (ns); 0 if no row is coarse."""
    rows: int
    """Number of rows that are coarse."""


def measure_line_sizes(job: Job) -> LineSizes:
    """Return upper limits of the line lengths of a job's trace."""
    _, size = job.tree.model.number_rows().texts
    return LineSizes(1 + int(size.max(initial=0)), len(str(job.scope.duration)))


def measure_bytes(job: Job, runs: Iterable[Run]) -> int:
    """Return the bytes of the lines of runs that have the rows, type numbers and times of the trace."""
    rows = job.tree.model.number_rows()
    return sum(encode(load_records(run, job.store), np.arange(len(run)), rows, job.scope.origin).size for run in runs)


def round_step(duration: int, bins: int) -> int:
    """Return the bin length (ns) for at most `bins` bins of a duration, rounded up to two digits: 1,300,000."""
    length = max(1, -(-duration // max(1, bins)))
    digit = 10 ** max(0, len(str(length)) - 2)
    return -(-length // digit) * digit


def find_most_bins(lines: Sequence[IntArray], most: int) -> int | None:
    """Return the largest number of bins with which all rows have at most `most` lines; None if all fit without bins.

    `lines`: the number of lines of each row without bins, in any number of arrays. A row in bins has at most one line
    more than bins, because an event ends its last bin.
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
