"""Tables and sentences of the critical path: what is on it, and on which tasks it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.summary.path.numbers import PathNumbers
from nsys2prv_ng.summary.path.words import find_main_task
from nsys2prv_ng.text.formatting import format_percent
from nsys2prv_ng.text.grid import Bar, BarPart, Cell, Column, Grid, Name, Ns, Share, make_columns
from nsys2prv_ng.text.names import NO_CALL, NO_RANGE, name_task

_ON_HOST = [
    types.PATH_KINDS[kind] for kind in (types.PATH_HOST, types.PATH_CUDA_CALL, types.PATH_SYSTEM_CALL, types.PATH_MPI)
]


def tabulate_path(path: PathNumbers, *, has_several: bool) -> Grid:
    """Return the parts of the critical path, the longest first. `has_several`: whether the job has several tasks."""
    imbalance = {(name.path_class, name.name): name.imbalance_ns for name in path.names}
    has_imbalance = has_several and any(imbalance.get((part.path_class, part.name)) is not None for part in path.parts)
    rows: list[list[Cell]] = []
    for part in path.parts:
        names = part.path_class, part.name, ""
        if part.path_class in _ON_HOST:
            names = part.path_class, part.name or NO_CALL, part.range or NO_RANGE
        more = Ns(imbalance.get((part.path_class, part.name))) if has_imbalance else ""
        tasks = (find_main_task(part) or f"{len(part.ranks)}") if has_several else ""
        rows.append([*map(Name, names), Ns(part.ns), Share(part.ns, path.window_ns), more, tasks])
    caption = "Critical path by operation, a share limits what changes save"
    several = [Column(title, optional=True) for title in ("imbalance", "tasks")]
    columns = make_columns("critical path", "operation or call", "NVTX range", "time", "share", *several)
    return Grid(caption=caption, columns=columns, rows=rows, names=3)


def tabulate_path_of_tasks(path: PathNumbers) -> Grid:
    """Return the time of the path on each task by class, as bars on one scale, and the sum of all tasks."""
    sums: dict[str, Counter[str]] = {}
    for part in path.parts:
        for rank in part.ranks:
            sums.setdefault(rank.task, Counter())[part.path_class] += rank.ns
    scale = max((rank.ns for rank in path.ranks), default=0)
    rows: list[list[Cell]] = []
    for rank in path.ranks:
        bar = _draw_classes(sums.get(rank.task, Counter()), scale)
        rows.append([Name(name_task(rank.rank, rank.task)), Ns(rank.ns), Share(rank.ns, path.window_ns), bar])
    whole: list[Cell] = ["all", Ns(path.window_ns), Share(1, 1), _draw_classes(path.classes, path.window_ns)]
    return Grid(
        caption="Critical path by rank and class",
        columns=make_columns("", "time", "share", Column("", wide=True)),
        rows=rows,
        footer=[whole],
        more="ranks",
        legend=[(kind, f"{kind}: {format_percent(ns, path.window_ns)}") for kind, ns in path.classes.items()],
    )


def _draw_classes(classes: Mapping[str, int], scale: int) -> Bar:
    parts = [BarPart(kind, kind, float(classes[kind])) for kind in types.PATH_KINDS.values() if classes.get(kind)]
    return Bar(parts, scale)
