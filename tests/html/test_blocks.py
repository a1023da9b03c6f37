"""Bars and names of tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.html.blocks import Table, show_grid
from nsys2prv_ng.html.page import clean, clean_text
from nsys2prv_ng.text.grid import Bar, BarPart, Grid, make_columns


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
