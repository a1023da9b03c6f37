"""Shows the rows of a grid as a tree whose branches the reader opens and closes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from nsys2prv_ng.html.tables import show_grid
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.text.formatting import count_noun, format_time
from nsys2prv_ng.text.grid import Grid

OPEN_SHARE = 0.1
"""Least share of the whole of a branch that is open at first."""
LEAST_SHARE = 0.01
"""Branches with less are together in a further branch."""


@dataclass(frozen=True)
class Branch:
    """A row of a tree: its name, its cells, and the branches within it."""

    name: str
    cells: list[str]
    is_open: bool = False
    inner: list[Branch] = field(default_factory=list)


@dataclass(frozen=True)
class Tree:
    """Branches with the titles of their cells. Only `show_tree` makes trees."""

    titles: list[str]
    branches: list[Branch]
    depth: int
    """Most branches around a branch."""

    kind = "tree"


def show_tree(grid: Grid, noun: str, depths: Sequence[int], weights: Sequence[int]) -> Tree:
    """Return a tree of the rows of a grid, each before those within it: columns of names, of times, and others.

    `noun`: what a row is. `depths`: of each row, 0 for an outermost one. `weights`: the time (ns) of each row.
    """
    table = show_grid(grid, len(grid.rows))
    rows = [list(map(str, row)) for row in table.rows]
    whole = sum(weight for weight, depth in zip(weights, depths, strict=True) if not depth)
    found: list[list[tuple[Branch, int]]] = [[] for _ in range(max(depths, default=0) + 2)]
    """Branches by depth that are not within a branch yet, with their weights: the last row comes first."""
    for row, depth, weight in zip(reversed(rows), reversed(depths), reversed(weights), strict=True):
        inner = _gather(found[depth + 1][::-1], whole, noun)
        found[depth + 1] = []
        found[depth].append((Branch(row[0].strip(), row[1:], weight >= OPEN_SHARE * whole, inner), weight))
    branches = _gather(found[0][::-1], whole, noun)
    return Tree(table.titles, branches, max(depths, default=0) + 1)


def _gather(branches: Sequence[tuple[Branch, int]], whole: int, noun: str) -> list[Branch]:
    """Return branches; if several have less than LEAST_SHARE, these in a further one with their time."""
    large = [branch for branch, weight in branches if weight >= LEAST_SHARE * whole]
    small = [branch for branch, weight in branches if weight < LEAST_SHARE * whole]
    if len(small) < 2:
        return large + small
    what = f"{count_noun(len(small), f'more {noun}')} with less than {LEAST_SHARE:.0%} each"
    ns = sum(weight for _, weight in branches if weight < LEAST_SHARE * whole)
    return [*large, Branch(what, [format_time(ns)], False, small)]
