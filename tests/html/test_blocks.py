"""Bars and names of tables."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.html.blocks import Branch, Table, show_grid, show_tree
from nsys2prv_ng.html.page import clean, clean_text
from nsys2prv_ng.text.grid import Bar, BarPart, Grid, Name, Ns, make_columns
from tests.examples import examples


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=12))
def test_parts_follow_each_other_and_add_up(amounts: list[int]) -> None:
    whole = sum(amounts)
    bar = Bar([BarPart(f"part {n}", "host_ns", amount) for n, amount in enumerate(amounts)], whole)
    segments = show_grid(Grid(columns=make_columns(""), rows=[[bar]])).rows[0][0]
    seen = [amount for amount in amounts if whole and amount >= 1e-4 * whole]
    assert [segment.width for segment in segments] == pytest.approx([100 * amount / whole for amount in seen])
    lefts = {f"part {n}": 100 * sum(amounts[:n]) / whole for n in range(len(amounts)) if whole}
    assert all(segment.left == pytest.approx(lefts[segment.text.split(":")[0]], abs=1e-6) for segment in segments)


def test_rows_that_are_not_shown_are_counted() -> None:
    def show(rows: int, most: int, weights: list[tuple[float, ...]] | None = None) -> Table:
        grid = Grid(columns=make_columns("a"), rows=[[f"{n}"] for n in range(rows)], more="ranks", weights=weights)
        return show_grid(grid, most)

    assert show(2, 2).below == ""
    assert show(2000, 3).below == "And 1,997 more ranks."
    assert [row[0] for row in show(5, 2).rows] == ["0", "1"]
    assert [row[0] for row in show(5, 2, [(n % 4,) for n in range(5)]).rows] == ["2", "3"]


@given(st.text())
def test_names_are_one_printable_line(text: str) -> None:
    name = clean(text)
    assert 0 < len(name) <= 200
    assert "\n" not in name and "\u202e" not in name and "\u200b" not in name
    name.encode("utf-8")
    assert clean_text(clean_text(text)) == clean_text(text)


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
