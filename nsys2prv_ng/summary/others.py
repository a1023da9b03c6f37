"""Bounds a summary: names with least time are summed up as `others`, so that all sums stay as they are.

A report may have 100,000 names of kernels or ranges, which no table or sentence shows. The answer is made before, from
all names. A comparison cannot know whether a name that only one side lists is among the others of the other side. So
it adds such a name to the others, and calls it neither new nor gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from nsys2prv_ng.summary.efficiency.numbers import WindowEfficiency
from nsys2prv_ng.summary.gpus.numbers import Cause, GpuNumbers
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.ranges.numbers import MOST_NODES, RepeatedRange
from nsys2prv_ng.summary.ranges.table import join_ranges
from nsys2prv_ng.summary.sums import sum_by_key
from nsys2prv_ng.text.formatting import count_noun
from nsys2prv_ng.text.names import OTHERS

T = TypeVar("T")
Window = TypeVar("Window", bound=WindowEfficiency | None)

_FEWEST = 300
"""Names that each list has, if there are so many: the page of a comparison shows 300 rows."""
_MOST_ROWS = 200_000
"""Most rows by name and task, or GPU, beside _FEWEST names of each. A choice: 50 MB of JSON."""
_RANKS = ("rank", "origin_rank")
"""Fields that are integers, but no sums."""
_UNKNOWN: Mapping[str, Any] = {"busiest_task": "", "busiest_ns": 0}
"""Fields that others do not have."""
_AGGREGATES: Mapping[str, Callable[[Iterable[int]], int]] = {"min_ns": min, "max_ns": max}
_WHY = "range", "call", "operation"


def limit_names(summary: JobSummary) -> JobSummary:
    """Return a summary with the names that have most time, and the sums of the others."""
    path, efficiency, waits = summary.critical_path, summary.efficiency, summary.waits
    if efficiency is not None:
        in_steps, in_work = _limit_losses(efficiency.in_steps), _limit_losses(efficiency.in_work)
        efficiency = replace(_limit_losses(efficiency), in_steps=in_steps, in_work=in_work)
    if waits is not None:
        waits = replace(waits, culprits=_limit(waits.culprits, *_WHY), costs=_limit(waits.costs, *_WHY))
    limited = replace(
        summary,
        kernels=_limit(summary.kernels, "name"),
        ranges=_limit_ranges(summary.ranges),
        calls=_limit(summary.calls, "name"),
        mpi=_limit(summary.mpi, "call"),
        launched=_limit(summary.launched, "range"),
        gpus=_limit_causes(summary.gpus),
        critical_path=path and replace(path, names=_limit(path.names, "name")),
        efficiency=efficiency,
        waits=waits,
    )
    nouns = {"kernels": "kernel", "ranges": "NVTX range", "calls": "call"}
    hidden = {noun: _count_hidden(getattr(summary, key), getattr(limited, key)) for key, noun in nouns.items()}
    texts = [count_noun(number, noun) for noun, number in hidden.items() if number]
    more = [f"names with least time are summed up as `{OTHERS}`: {', '.join(texts)}"] if texts else []
    return replace(limited, warnings=[*summary.warnings, *more])


def _count_hidden(every: Sequence[Any], listed: Sequence[Any]) -> int:
    return 0 if listed is every else len(every) - sum(each.name != OTHERS for each in listed)


def _choose_most(owners: int) -> int:
    """Return the most names of a list with a row for each name and owner."""
    return max(_FEWEST, min(MOST_NODES, _MOST_ROWS // max(owners, 1)))


def _limit(rows: list[T], *names: str) -> list[T]:
    """Return the first rows and the sums of the others. `names`: the fields that others do not keep."""
    return rows if len(rows) <= MOST_NODES else [*rows[:MOST_NODES], *_sum_up(rows[MOST_NODES:], *names)]


def _sum_up(rows: Sequence[T], *names: str) -> list[T]:
    """Return the sums of rows with the same texts. Names are given up one by one, until few rows are left."""
    for number in range(1, len(names) + 1):
        groups: dict[tuple[Any, ...], list[T]] = {}
        keys = [each.name for each in fields(rows[0]) if each.type == "str" or each.name in _RANKS]  # type: ignore[arg-type]
        keys = [key for key in keys if key not in _UNKNOWN and key not in names[:number]]
        for row in rows:
            groups.setdefault(tuple(getattr(row, key) for key in keys), []).append(row)
        rows = [_add_up(group, {*keys, *names}, dict.fromkeys(names[:number], OTHERS)) for group in groups.values()]
        if len(rows) <= MOST_NODES:
            break
    return list(rows)


def _add_up(rows: Sequence[T], keys: set[str], others: Mapping[str, str]) -> T:
    """Return the sum of rows that agree in the keys, with the names of others."""
    first: Any = rows[0]
    sums: dict[str, Any] = {}
    for name in (each.name for each in fields(first) if each.name not in keys):
        known = [value for row in rows if (value := getattr(row, name)) is not None]
        sums[name] = _UNKNOWN[name] if name in _UNKNOWN else _AGGREGATES.get(name, sum)(known) if known else None
    return replace(first, **others, **sums)  # type: ignore[no-any-return]


def _limit_ranges(ranges: list[RepeatedRange]) -> list[RepeatedRange]:
    most = _choose_most(max((len(each.tasks) for each in ranges), default=1))
    if len(ranges) <= most:
        return ranges
    depth = min(each.depth for each in ranges[most:])
    return [*ranges[:most], replace(join_ranges(OTHERS, ranges[most:]), domain="", depth=depth, slowest_task=None)]


def _limit_causes(gpus: list[GpuNumbers]) -> list[GpuNumbers]:
    """Return GPUs with the causes that have most idle time over all of them."""

    def name(cause: Cause) -> tuple[str, ...]:
        return cause.cause, cause.range, cause.call, cause.next

    sums = sum_by_key((name(cause), cause.ns) for gpu in gpus for cause in gpu.idle_causes or ())
    most = _choose_most(len(gpus))
    if len(sums) <= most:
        return gpus
    kept = dict(sums.most_common(most))
    limited = []
    for gpu in gpus:
        every = gpu.idle_causes or []
        listed, rest = ([each for each in every if (name(each) in kept) == is_kept] for is_kept in (True, False))
        limited.append(replace(gpu, idle_causes=[*listed, *_sum_up(rest, "range", "call")]) if rest else gpu)
    return limited


def _limit_losses(window: Window) -> Window:
    if window is None or window.losses is None:
        return window
    losses = replace(window.losses, idle_by_range=_limit(window.losses.idle_by_range, "range"))
    return replace(window, losses=losses)


# ---- comparisons -----------------------------------------------------------------------------------------------------


def list_comparable(a: Mapping[str, T], b: Mapping[str, T]) -> list[str]:
    """Return the names of both sides, without others and those that may be among the others of the other side."""
    return [
        name for name in {**a, **b} if name != OTHERS and all(name in side or not _has_others(side) for side in (a, b))
    ]


def join_hidden(
    a: Mapping[str, list[T]], b: Mapping[str, list[T]], find_key: Callable[[str], str] = str
) -> list[dict[str, list[T]]]:
    """Return both sides; names that may be among the others of the other side are parts of their own others.

    `find_key`: returns what names that match have in common.
    """
    sides = []
    for own, other in ((a, b), (b, a)):
        joined, known = dict(own), set(map(find_key, other))
        hidden = [name for name in own if name != OTHERS and find_key(name) not in known] if _has_others(other) else []
        for name in hidden:
            joined[OTHERS] = [*joined.get(OTHERS, []), *joined.pop(name)]
        sides.append(joined)
    return sides


def _has_others(names: Mapping[str, Any]) -> bool:
    """Return whether a side has others, and not only a name like that: beside them it lists many names."""
    return OTHERS in names and len(names) > _FEWEST
