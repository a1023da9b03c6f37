"""Tables of NVTX ranges: those that repeat, and the tree of GPU time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from nsys2prv_ng.grouping import group_by_key
from nsys2prv_ng.summary.ranges.numbers import RangeNode, RangeOfTask, RepeatedRange
from nsys2prv_ng.text.formatting import count_noun, format_percent, shorten_range_name
from nsys2prv_ng.text.grid import Cell, Column, Count, Grid, Name, Ns, Share, Term, make_columns, tabulate
from nsys2prv_ng.text.names import BACKWARD, NO_RANGE, clean_name

_FEW = 3
"""Siblings that are shown one by one."""
_SUMS = ("count", "total_ns", "waiting_ns", "gpu_waiting_ns", "unsplit_ns")
_LAST_NUMBER = re.compile(r"(?<![0-9])[0-9]+(?![0-9])(?=[^0-9]*$)")
"""The search begins only where a number starts, because names may be long."""


def join_siblings(ranges: Sequence[RepeatedRange]) -> list[RepeatedRange]:
    """Return the ranges, with many siblings as one range, the longest time first.

    Siblings share domain and depth, so that none is within another. In the name of the joined range, * replaces the
    number, as users type it to choose ranges.
    """
    siblings = group_by_key(((each.domain, each.depth, _LAST_NUMBER.sub("*", each.name)), each) for each in ranges)
    shown = []
    for (_, _, name), group in siblings.items():
        shown += [join_ranges(name, group)] if len(group) > _FEW else group
    return sorted(shown, key=lambda repeated: -repeated.total_ns)


def join_ranges(name: str, group: Sequence[RepeatedRange]) -> RepeatedRange:
    """Return the sum of siblings. A task is the slowest only if it is the slowest in each of them."""
    parts = group_by_key(((task.rank, task.task), task) for repeated in group for task in repeated.tasks)
    tasks = [
        RangeOfTask(
            rank=rank,
            task=task,
            min_ns=min(range_.min_ns for range_ in ranges),
            max_ns=max(range_.max_ns for range_ in ranges),
            **{name: sum(getattr(range_, name) for range_ in ranges) for name in _SUMS},
        )
        for (rank, task), ranges in parts.items()
    ]
    slowest = {repeated.slowest_task for repeated in group}
    return replace(group[0], name=name, tasks=tasks, slowest_task=slowest.pop() if len(slowest) == 1 else None)


def tabulate_ranges(ranges: Sequence[RepeatedRange]) -> Grid:
    """Return the NVTX ranges that repeat, the longest time first."""
    caption = "CPU time of repeating NVTX ranges"
    if any(task.gpu_waiting_ns for repeated in ranges for task in repeated.tasks):
        caption += ", slowest task and spread without waits"
    rows: list[list[Cell]] = []
    for repeated in (each for each in join_siblings(ranges) if each.tasks):
        tasks, mean = repeated.tasks, repeated.total_ns / repeated.count
        names = Name(shorten_range_name(repeated.domain, repeated.name)), Name(repeated.slowest_task or "-")
        times = Ns(mean), Ns(min(task.min_ns for task in tasks)), Ns(max(task.max_ns for task in tasks))
        spread = Share(repeated.spread_ns, mean if len(tasks) > 1 else 0)
        rows.append([*names, Count(len(tasks)), Count(repeated.count), *times, spread])
    columns = make_columns("NVTX range", "slowest task", "tasks", "count", "mean", "min", "max", "rank spread")
    return Grid(caption=caption, columns=columns, rows=rows, names=2, more="ranges")


LEAST_SHARE = 0.01
"""Least share of GPU time of a range that has a line on the terminal. A choice: the page has all ranges."""
_NAME_ROOM = 36
"""Characters of names on a narrow terminal."""


def _name_node(node: RangeNode) -> Term:
    """Return the name of a range, which each output indents by its depth."""
    return Term(clean_name(node.name), depth=node.depth) if node.name else Term(NO_RANGE)


def tabulate_range_tree(tree: Sequence[RangeNode], least: float = LEAST_SHARE) -> Grid:
    """Return a row for each range with at least a share of GPU time; no rows if no range launched anything."""
    whole = sum(node.gpu_ns for node in tree if not node.depth)
    shown = [node for node in tree if node.gpu_ns >= least * whole] if any(node.name for node in tree) else []
    several = any(node.least_ns < node.most_ns for node in tree)
    below = []
    if any(node.name == BACKWARD for node in shown):
        below.append(f"{BACKWARD}: backward passes of the range's operators, which PyTorch's `seq` links")
    if shown:
        below += _count_hidden(len(tree) - len(shown), least)
    return tabulate(
        shown,
        [
            ("launched in", _name_node),
            ("GPU time", lambda node: Ns(node.gpu_ns)),
            ("share", lambda node: Share(node.gpu_ns, whole)),
            (Column("least rank", optional=True, minor=True), lambda node: Ns(node.least_ns) if several else ""),
            (Column("most rank", optional=True), lambda node: Ns(node.most_ns) if several else ""),
            (Column("outside inner", minor=True), lambda node: Ns(node.own_ns)),
            ("operations", lambda node: Count(node.operations)),
            (Column("ranges", minor=True), lambda node: Count(node.count)),
            (Column("host time", minor=True), lambda node: Ns(node.host_ns)),
        ],
        caption="GPU time by NVTX range, of the operations that were launched in it",
        more="ranges",
        name_room=_NAME_ROOM,
        below=below,
    )


def _count_hidden(hidden: int, least: float) -> list[str]:
    """Return a sentence on the ranges that are not shown; [] without any. `least`: share of GPU time of those shown."""
    share = format_percent(least, 1)
    return [f"{count_noun(hidden, 'more range')} with less than {share} of GPU time each"] if hidden else []
