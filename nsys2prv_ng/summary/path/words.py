"""Names the task with most of a part of the critical path."""

from __future__ import annotations

from nsys2prv_ng.summary.path.numbers import PathPart
from nsys2prv_ng.text.names import name_task

_MOST_OF_ALL = 0.9
"""Least share of the time of a part at which one task stands for all of it."""


def find_main_task(part: PathPart) -> str:
    """Return the task with nearly all of the time of a part; "" if several tasks share it."""
    if not part.ranks:  # only in a summary that another program wrote
        return ""
    first = part.ranks[0]
    return name_task(first.rank, first.task) if first.ns >= _MOST_OF_ALL * part.ns else ""
