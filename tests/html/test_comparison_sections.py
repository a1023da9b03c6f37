"""The waterfall: bars that chain and add up to the difference, whatever their signs."""

from __future__ import annotations

from itertools import pairwise

import pytest

from nsys2prv_ng.comparison.compare import compare_sides
from nsys2prv_ng.comparison.content import list_parts
from nsys2prv_ng.comparison.model import CaptureNumbers, Pair, SideNumbers, Verdict
from nsys2prv_ng.html.blocks import Segment, Table
from nsys2prv_ng.html.comparison_sections import draw_waterfall
from nsys2prv_ng.summary.difference.budget import BudgetRow
from tests.comparison.made import MS
from tests.html.made_comparison import make_side


def make_pair(a_ns: int, changes: list[int]) -> Pair:
    """Two sides whose difference has these parts (ns), the last one being the rest."""
    names = ["compute: GEMM", "wait time", "data transfer"]
    b_ns = a_ns + sum(changes)
    own = a_ns // len(changes)
    firsts = [*([own] * (len(changes) - 1)), a_ns - own * (len(changes) - 1)]
    rows = [
        BudgetRow(name, first, first + change, change, None, True)
        for name, first, change in zip([*names[: len(changes) - 1], "rest"], firsts, changes, strict=True)
    ]
    captures = [CaptureNumbers(1, [a_ns], a_ns)]
    side = SideNumbers("a", 1, 1, 1, "step", "", 1, [a_ns], a_ns, a_ns, None, None, a_ns, True, captures, 0)
    change = (b_ns - a_ns) / a_ns if a_ns else None
    verdict = Verdict("inconclusive", "step", "steps", "median", a_ns, b_ns, b_ns - a_ns, change, None)
    return Pair(verdict, None, side, side, b_ns - a_ns, "GPU", rows, "", [], [], None, [], None, [], "")


def get_bars(table: Table) -> list[Segment]:
    bars = [row[1] for row in table.rows]
    assert all(isinstance(bar, list) and len(bar) == 1 for bar in bars)
    return [bar[0] for bar in bars]  # type: ignore[misc, union-attr, index]


def find_ends(bar: Segment) -> tuple[float, float]:
    """Where a bar begins and ends, in percent: one that goes back is striped and ends at the left."""
    left, right = bar.left, bar.left + bar.width
    return (right, left) if "gradient" in bar.css else (left, right)


CASES = {
    "falls": (100 * MS, [-30 * MS, -20 * MS, -1 * MS]),
    "rises": (100 * MS, [30 * MS, 20 * MS, 1]),
    "both": (100 * MS, [-60 * MS, 45 * MS, -5 * MS, 2 * MS]),
    "below zero and back": (50 * MS, [-80 * MS, 90 * MS, -1 * MS]),
    "ends below zero before the rest": (20 * MS, [-15 * MS, -30 * MS, 40 * MS]),
    "small beside the whole": (100 * MS, [-300_000, 200_000, 10]),
    "from nothing": (0, [5 * MS, -1 * MS, 0]),
    "to nothing": (5 * MS, [-4 * MS, -1 * MS, 0]),
    "no change": (5 * MS, [0, 0, 0]),
    "nothing at all": (0, [0, 0, 0]),
    "one ns": (1, [1, -1, 1]),
}


@pytest.mark.parametrize("shows_all", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_bars_chain_and_add_up(case: str, shows_all: bool) -> None:
    a_ns, changes = CASES[case]
    pair = make_pair(a_ns, changes)
    parts = list_parts(pair, shows_all=shows_all)
    assert sum(part.difference_ns for part in parts[:-1]) == pair.difference_ns == parts[-1].difference_ns
    assert a_ns + sum(part.difference_ns for part in parts[:-1]) == pair.verdict.b_ns
    first, *bars, last = get_bars(draw_waterfall(pair, shows_all=shows_all))
    assert len(bars) == len(parts) - 1
    for bar in (first, *bars, last):
        assert bar.left >= -1e-9 and bar.width >= 0 and bar.left + bar.width <= 100 + 1e-9
    ends = [find_ends(first), *map(find_ends, bars)]
    for (_, end), (begin, _) in pairwise(ends):
        assert end == pytest.approx(begin, abs=1e-6)
    assert ends[-1][1] == pytest.approx(find_ends(last)[1], abs=1e-6)
    widths = [abs(part.difference_ns) for part in parts[:-1]]
    whole = sum(bar.width for bar in bars)
    if sum(widths):
        for bar, ns, part in zip(bars, widths, parts, strict=False):
            assert bar.width / whole == pytest.approx(ns / sum(widths), abs=1e-6)
            assert ("gradient" in bar.css) == (part.difference_ns < 0)


def test_bars_below_zero_keep_zero_in_its_place() -> None:
    """The bars of both sides begin at 0, which lies within the axis where a sum of parts is below it."""
    first, down, up, _, last = get_bars(draw_waterfall(make_pair(*CASES["below zero and back"]), shows_all=True))
    assert first.left == pytest.approx(last.left) and first.left == pytest.approx(100 * 30 / 90)
    assert down.left == 0 and down.width == pytest.approx(100 * 80 / 90)
    assert up.left == 0 and up.width == pytest.approx(100)


def test_an_axis_that_does_not_begin_at_zero_says_so() -> None:
    table = draw_waterfall(make_pair(*CASES["small beside the whole"]), shows_all=True)
    assert table.titles[1].startswith("from 99.7 ms")
    assert get_bars(table)[1].width > 50
    assert draw_waterfall(make_pair(*CASES["falls"]), shows_all=True).titles[1] == "from 0 ns to 100 ms"


def test_numbers_and_marks_stand_beside_the_bars() -> None:
    sides = [make_side("before"), make_side("after", 1.25)]
    (pair,) = compare_sides(sides).pairs
    table = draw_waterfall(pair, shows_all=True)
    assert table.titles[2:] == ["before", "after", "change", "of step", "p", "beyond noise"]
    rows = {row[0]: row for row in table.rows}
    parts = {row.name for row in pair.rows if row.a_ns or row.b_ns}
    assert set(rows) == {"median step of before", *parts, "median step of after"}
    for row in pair.rows[:-1]:
        assert rows[row.name][-1] == ("yes" if row.differs else "")
        assert str(rows[row.name][4]).startswith("+" if row.difference_ns > 0 else "-" if row.difference_ns else "0")
    assert rows["compute"][-1] == "yes" and rows["host-bound"][-1] == ""


def test_a_capture_that_is_not_divided() -> None:
    """Without anything to divide, the rest is all of the difference."""
    pair = make_pair(10 * MS, [4 * MS])
    assert len(draw_waterfall(pair, shows_all=False).rows) == 3
