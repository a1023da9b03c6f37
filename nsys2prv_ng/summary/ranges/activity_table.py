"""Makes the tables of what GPUs use while kernels of one class, or launched in one range, run."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.summary.kernels.numbers import (
    LEAST_SAMPLED,
    LIMIT_PERCENT,
    NEITHER,
    KernelActivity,
    UnitActivity,
)
from nsys2prv_ng.summary.ranges.numbers import RangeNode
from nsys2prv_ng.summary.ranges.table import NAME_ROOM, name_node
from nsys2prv_ng.text.formatting import count_noun, format_percent
from nsys2prv_ng.text.grid import Cell, Column, Count, Grid, Name, Ns, Rate, Share, make_columns

_LEAST_NVLINK = 1
"""Percent that NVLink reaches at least in any row of a table with it: less is rounding of the counters."""
LEAST_ACTIVITY_SHARE = 0.05
"""Least share of GPU time of a range that has a line on the terminal."""
_LIMITS = f"Limited by: DRAM (read + write) or tensor cores, the busier one, from {LIMIT_PERCENT}% of peak on"
_SAMPLED = f"Sampled: of the GPU time; what limits a range is not known below {format_percent(LEAST_SAMPLED, 1)}"
_COLUMNS = (
    "samples",
    "SM active",
    Column("SM issue", minor=True),
    "tensor active",
    "DRAM read",
    "DRAM write",
    Column("NVLink", optional=True),
    Column("limited by", optional=True),
)


def tabulate_kernel_activity(activity: Sequence[KernelActivity]) -> Grid:
    """Return a row for each class of kernels, the class with most sampled time first."""
    return Grid(
        caption="GPU activity while kernels of one class run",
        columns=make_columns("kernel class", Column("time sampled", minor=True), *_COLUMNS),
        rows=[
            [Name(each.kernel_class), Ns(each.ns), *_list_cells(each, activity), each.limited_by] for each in activity
        ],
        more="classes",
        below=_explain(activity),
    )


def tabulate_range_activity(tree: Sequence[RangeNode], least: float = LEAST_ACTIVITY_SHARE) -> Grid:
    """Return a row for each range with samples and at least a share of GPU time, in the order of the tree."""
    whole = sum(node.gpu_ns for node in tree if not node.depth)
    limits = _list_limits(tree)
    known = [
        (node, node.activity, limit) for node, limit in zip(tree, limits, strict=True) if node.activity is not None
    ]
    shown = [each for each in known if each[0].gpu_ns >= least * whole]
    if not any(node.name for node, _, _ in shown):
        shown = []
    every = [activity for _, activity, _ in shown]
    hidden = len(known) - len(shown)
    more = f"{count_noun(hidden, 'more range')} with less than {format_percent(least, 1)} of GPU time each"
    return Grid(
        caption="GPU activity while kernels launched in one NVTX range run",
        columns=make_columns("launched in", Column("GPU time", minor=True), "sampled", *_COLUMNS),
        rows=[
            [name_node(node), Share(node.gpu_ns, whole), _show_sampled(each), *_list_cells(each, every), limit]
            for node, each, limit in shown
        ],
        more="ranges",
        name_room=NAME_ROOM,
        weights=[(node.gpu_ns,) for node, _, _ in shown],
        below=[_SAMPLED, *_explain(every), *([more] if hidden else [])],
    )


def _list_limits(tree: Sequence[RangeNode]) -> list[str]:
    """Return what limits each range; "" if that is not known, or if the range has no limit but one within it has.

    The mean over phases with a limit may be below all limits, but then *neither* would be wrong.
    """
    limits: list[str] = []
    limited: set[int] = set()
    """Depths of the ranges with a limit, within ranges that are still to come."""
    for node in reversed(tree):  # those within a range come before it
        limit = "" if node.activity is None else node.activity.limited_by
        has_inner = any(depth > node.depth for depth in limited)
        limited = {depth for depth in limited if depth <= node.depth}
        if has_inner or limit not in ("", NEITHER):
            limited.add(node.depth)
        limits.append("" if has_inner and limit == NEITHER else limit)
    return limits[::-1]


def _list_cells(activity: UnitActivity, every: Sequence[UnitActivity]) -> list[Cell]:
    """Return the cells of one of the activities of a table, but the last one."""
    percents = (
        activity.sm_active,
        activity.sm_issue,
        activity.tensor_active,
        activity.dram_read,
        activity.dram_write,
    )
    nvlink: Cell = _show(activity.nvlink) if _moves_data(every) else ""
    return [Count(activity.samples), *map(_show, percents), nvlink]


def _show_sampled(activity: UnitActivity) -> Cell:
    return Rate(None) if activity.gpu_ns is None else Share(activity.ns, activity.gpu_ns)


def _show(percent: float | None) -> Cell:
    return Rate(None) if percent is None else Share(percent, 100)


def _moves_data(every: Sequence[UnitActivity]) -> bool:
    return any((each.nvlink or 0) >= _LEAST_NVLINK for each in every)


def _explain(every: Sequence[UnitActivity]) -> list[str]:
    return [_LIMITS, *(["NVLink: the busier direction"] if _moves_data(every) else [])]
