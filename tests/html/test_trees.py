"""Trees of a page: every row once, within the row that it is within, whatever is gathered."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from nsys2prv_ng.html.trees import Branch, show_tree
from nsys2prv_ng.text.grid import Grid, Name, Ns, make_columns
from tests.examples import examples


def list_paths(branches: Sequence[Branch], around: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The names of each branch and of those around it; the branches that gather others are none."""
    for branch in branches:
        is_row = "with less than" not in branch.name
        path = (*around, branch.name) if is_row else around
        if is_row:
            yield path
        yield from list_paths(branch.inner, path)


@pytest.mark.parametrize("seed", range(examples(40)))
def test_every_row_is_within_its_own(seed: int) -> None:
    generator = random.Random(seed)
    depths, expected = [], []
    for number in range(generator.randrange(1, 60)):
        depths.append(generator.randrange(min(depths[-1] + 2, 34)) if depths else 0)
        expected.append((*(expected[-1] if depths[-1] else ())[: depths[-1]], f"row {number}"))
    weights = [generator.choice((0, 1, 20, 300)) for _ in depths]
    rows = [[Name("  " * depth + path[-1]), Ns(ns)] for depth, path, ns in zip(depths, expected, weights, strict=True)]
    grid = Grid(columns=make_columns("name", "time"), rows=rows)
    tree = show_tree(grid, "row", depths, weights)
    assert sorted(list_paths(tree.branches)) == sorted(expected)
    assert tree.titles == ["name", "time"] and tree.depth == max(depths) + 1


def test_what_is_open_and_what_is_gathered() -> None:
    rows = {"a": (0, 900), "a1": (1, 880), "a2": (1, 9), "a3": (1, 0), "b": (0, 95), "b1": (1, 5), "c": (0, 5)}
    grid = Grid(columns=make_columns("name", "time"), rows=[[Name(name), Ns(ns)] for name, (_, ns) in rows.items()])
    tree = show_tree(grid, "row", *zip(*rows.values(), strict=True))
    a, b, c = tree.branches
    assert [(branch.name, branch.cells, branch.is_open) for branch in (a, b, c)] == [
        ("a", ["900 ns"], True),
        ("b", ["95 ns"], False),
        ("c", ["5 ns"], False),
    ]
    assert [(branch.name, branch.cells, branch.is_open) for branch in a.inner] == [
        ("a1", ["880 ns"], True),
        ("2 more rows with less than 1% each", ["9 ns"], False),
    ]
    assert [branch.name for branch in a.inner[1].inner] == ["a2", "a3"]
    assert [branch.name for branch in b.inner] == ["b1"], "one small row is not gathered"
