"""Makes the table of GPU time by NVTX range."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.summary.numbers.range_tree import RangeNode
from nsys2prv_ng.text.formatting import count_noun, format_percent
from nsys2prv_ng.text.grid import Cell, Column, Count, Grid, Ns, Share, Term, make_columns
from nsys2prv_ng.text.names import BACKWARD, NO_RANGE, clean_name

LEAST_SHARE = 0.01
"""Least share of GPU time of a range that has a line on the terminal."""
NAME_ROOM = 36
"""Characters of names on a narrow terminal."""


def name_node(node: RangeNode) -> Term:
    """Return the name of a range, which each output indents by its depth."""
    return Term(clean_name(node.name), depth=node.depth) if node.name else Term(NO_RANGE)


def tabulate_range_tree(tree: Sequence[RangeNode], least: float = LEAST_SHARE) -> Grid:
    """Return a row for each range with at least a share of GPU time; no rows if no range launched anything."""
    whole = sum(node.gpu_ns for node in tree if not node.depth)
    shown = [node for node in tree if node.gpu_ns >= least * whole] if any(node.name for node in tree) else []
    several = any(node.least_ns < node.most_ns for node in tree)
    rows: list[list[Cell]] = [
        [
            name_node(node),
            Ns(node.gpu_ns),
            Share(node.gpu_ns, whole),
            *([Ns(node.least_ns), Ns(node.most_ns)] if several else ["", ""]),
            Ns(node.own_ns),
            Count(node.operations),
            Count(node.count),
            Ns(node.host_ns),
        ]
        for node in shown
    ]
    ranks = (Column("least rank", optional=True, minor=True), Column("most rank", optional=True))
    others = ("operations", Column("ranges", minor=True), Column("host time", minor=True))
    hidden = len(tree) - len(shown)
    below = (
        f"{count_noun(hidden, 'more range')} with less than {format_percent(least, 1)} of GPU time each"
        if hidden and rows
        else ""
    )
    has_backward = any(node.name == BACKWARD for node in shown)
    linked = (
        f"{BACKWARD}: backward passes of the range's operators, which PyTorch's `seq` links" if has_backward else ""
    )
    return Grid(
        caption="GPU time by NVTX range, of the operations that were launched in it",
        columns=make_columns("launched in", "GPU time", "share", *ranks, Column("outside inner", minor=True), *others),
        rows=rows,
        more="ranges",
        name_room=NAME_ROOM,
        below=[each for each in (linked, below) if each],
    )
