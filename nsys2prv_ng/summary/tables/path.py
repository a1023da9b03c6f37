"""Rows on what the critical path was in."""

from __future__ import annotations

from typing import NamedTuple

from nsys2prv_ng.paraver.event_types import PATH_CUDA_CALL, PATH_HOST, PATH_KINDS, PATH_MPI, PATH_SYSTEM_CALL
from nsys2prv_ng.summary.layout import NO_CALL, NO_RANGE, name_task
from nsys2prv_ng.summary.numbers.path import PathNumbers, PathPart

_ON_HOST = [PATH_KINDS[kind] for kind in (PATH_HOST, PATH_CUDA_CALL, PATH_SYSTEM_CALL, PATH_MPI)]
_MOST_OF_ALL = 0.9
"""Part of a thing's time from which one task stands for all of it."""


class PathRow(NamedTuple):
    """One thing on the critical path: labels ("": it has none), its time and imbalance (ns), and its tasks."""

    path_class: str
    operation: str
    """The operation or call."""
    range: str
    ns: int
    imbalance_ns: int | None
    """None where it has none: it is no operation."""
    tasks: str
    """The task with nearly all of it, or else how many there are."""


def list_path_rows(path: PathNumbers) -> list[PathRow]:
    """Return what the path was in, the longest first."""
    imbalance = {(name.path_class, name.name): name.imbalance_ns for name in path.names}
    return [_make_row(part, imbalance.get((part.path_class, part.name))) for part in path.parts]


def _make_row(part: PathPart, imbalance_ns: int | None) -> PathRow:
    is_on_host = part.path_class in _ON_HOST
    operation, range_ = (part.name or NO_CALL, part.range or NO_RANGE) if is_on_host else (part.name, "")
    return PathRow(
        part.path_class, operation, range_, part.ns, imbalance_ns, find_main_task(part) or f"{len(part.ranks)}"
    )


def find_main_task(part: PathPart) -> str:
    """Return the task that has nearly all of a part; "" if several share it."""
    first = part.ranks[0]
    return name_task(first.rank, first.task) if first.ns >= _MOST_OF_ALL * part.ns else ""
