"""What a comparison is of."""

from __future__ import annotations

from typing import NamedTuple

from nsys2prv_ng.summary.model import JobSummary


class Side(NamedTuple):
    """A run, or a part of one: what the user calls it, and its numbers."""

    label: str
    summary: JobSummary
