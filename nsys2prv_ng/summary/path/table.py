"""Tables and sentences of the critical path: what is on it, and on which tasks it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.summary.efficiency.windows import name_numbered
from nsys2prv_ng.summary.path.numbers import PathNumbers, PathPart
from nsys2prv_ng.text.formatting import count_noun, format_percent, format_time
from nsys2prv_ng.text.grid import Bar, BarPart, Cell, Column, Grid, Name, Ns, Share, make_columns
from nsys2prv_ng.text.layout import MOST_ROWS
from nsys2prv_ng.text.names import NO_CALL, NO_RANGE, clean_name, name_task, quote_name

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
        rows.append([*map(Name, names), Ns(part.ns), Share(part.ns, path.length_ns), more, tasks])
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
        rows.append([Name(name_task(rank.rank, rank.task)), Ns(rank.ns), Share(rank.ns, path.length_ns), bar])
    whole: list[Cell] = ["all", Ns(path.length_ns), Share(1, 1), _draw_classes(path.classes, path.length_ns)]
    return Grid(
        caption="Critical path by rank and class",
        columns=make_columns("", "time", "share", Column("", wide=True)),
        rows=rows,
        footer=[whole],
        more="ranks",
        legend=[(kind, f"{kind}: {format_percent(ns, path.length_ns)}") for kind, ns in path.classes.items()],
    )


def _draw_classes(classes: Mapping[str, int], scale: int) -> Bar:
    parts = [BarPart(kind, kind, float(classes[kind])) for kind in types.PATH_KINDS.values() if classes.get(kind)]
    return Bar(parts, scale)


# ---- in words --------------------------------------------------------------------------------------------------------

_MOST_OF_ALL = 0.9
"""Least share of the time of a part at which one task stands for all of it: 90 %, as docs/guides/what-if.md says."""


def find_main_task(part: PathPart) -> str:
    """Return the task with nearly all of the time of a part; "" if several tasks share it."""
    if not part.ranks:  # only in a summary that another program wrote
        return ""
    first = part.ranks[0]
    return name_task(first.rank, first.task) if first.ns >= _MOST_OF_ALL * part.ns else ""


_MOST_CLASSES = 3
"""Most classes of time that the sentence names: the table has all."""
_BEFORE = [types.PATH_KINDS[kind] for kind in (types.PATH_LAUNCH, types.PATH_GAP)]
"""Classes of time that precedes an operation."""
_LEAST_SHARE = 0.05
"""Least share of the path at which a class is worth a word: the 5 % that is worth a change."""


def describe_path(path: PathNumbers | None, *, has_several: bool, is_part: bool) -> str:
    """Return a sentence on what is on the critical path; "" without a path.

    `has_several`: whether the job has several tasks. `is_part`: whether the user selected ranks.
    """
    if path is None or not path.length_ns:
        return ""
    least = _LEAST_SHARE * path.length_ns
    classes = [(name, ns) for name, ns in path.classes.items() if ns >= least][:_MOST_CLASSES]
    shares = [f"{format_percent(ns, path.length_ns)} {_lower(name)}" for name, ns in classes]
    text = f"The critical path{_describe_window(path)} is {', '.join(shares)}"
    first = next(iter(path.parts), None)  # None only in a summary that another program wrote
    if first is not None and first.ns >= least:
        task = find_main_task(first) if has_several else ""
        where = f" of {task}" if task else ""
        text += f"; most in {_name_part(first)}{where}: {format_percent(first.ns, path.length_ns)}"
    outside = path.classes.get(types.PATH_KINDS[types.PATH_OUTSIDE], 0)
    if outside and is_part:
        text += f". It leaves the selected ranks for {format_time(outside)}"
    return text


def _lower(name: str) -> str:
    """Return the name of a class as it is written within a sentence."""
    name = clean_name(name)
    return name if name[1:2].isupper() else name[:1].lower() + name[1:]


def _describe_window(path: PathNumbers) -> str:
    whole = format_time(path.length_ns)
    if path.step_name is None or not path.steps:
        return f" ({whole})"
    return f" of {name_numbered(path.step_name, path.steps[0].number, path.steps[-1].number)} ({whole})"


def _name_part(part: PathPart) -> str:
    if part.name:
        before = f"{_lower(part.path_class)} before " if part.path_class in _BEFORE else ""
        return f"{before}{quote_name(part.name)}" + (f" in {quote_name(part.range)}" if part.range else "")
    if part.path_class == types.PATH_KINDS[types.PATH_HOST]:
        return quote_name(part.range) if part.range else f"{part.path_class} outside NVTX ranges"
    return _lower(part.path_class)


def describe_tasks(path: PathNumbers) -> str:
    """Return a sentence on the shares of tasks in the path; "" if it stays on one task."""
    if len(path.ranks) < 2:
        return ""
    ranks = path.ranks[:MOST_ROWS]
    shares = [f"{name_task(rank.rank, rank.task)} {format_percent(rank.ns, path.length_ns)}" for rank in ranks]
    text = f"It changes tasks {count_noun(path.switches, 'time')}: {', '.join(shares)}"
    if path.unsure:
        waits = f"{path.unsure:,} of {count_noun(path.followed, 'wait')}"
        text += f". In {waits} that it follows, the clocks do not tell for sure which rank was last"
    return text
