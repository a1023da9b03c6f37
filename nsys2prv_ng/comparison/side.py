"""A side of a comparison: a run, with its summary."""

from __future__ import annotations

from typing import NamedTuple

from nsys2prv_ng.summary.numbers.job import JobSummary


class Side(NamedTuple):
    """A run to compare."""

    label: str
    summary: JobSummary
