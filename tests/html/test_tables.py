"""Bars and names of tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.html.names import clean, clean_text
from nsys2prv_ng.html.tables import count_rest, make_bar


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=12))
def test_parts_follow_each_other_and_add_up(amounts: list[int]) -> None:
    whole = sum(amounts)
    segments = make_bar([(f"part {n}", "#000", amount) for n, amount in enumerate(amounts)], whole).segments
    seen = [amount for amount in amounts if whole and amount >= 1e-4 * whole]
    assert [segment.width for segment in segments] == pytest.approx([100 * amount / whole for amount in seen])
    lefts = {f"part {n}": 100 * sum(amounts[:n]) / whole for n in range(len(amounts)) if whole}
    assert all(segment.left == pytest.approx(lefts[segment.text.split(":")[0]], abs=1e-6) for segment in segments)


def test_rows_that_are_not_shown_are_counted() -> None:
    assert count_rest([1, 2], [1, 2]) == ""
    assert count_rest([1], [1, 2], "rank") == "And 1 more rank."
    assert count_rest([], range(2000), "rank") == "And 2,000 more ranks."


@given(st.text())
def test_names_are_one_printable_line(text: str) -> None:
    name = clean(text)
    assert 0 < len(name) <= 200
    assert "\n" not in name and "\u202e" not in name and "\u200b" not in name
    name.encode("utf-8")
    assert clean_text(clean_text(text)) == clean_text(text)
