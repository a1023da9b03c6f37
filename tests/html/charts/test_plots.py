"""Paths of plots, read back from their text."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.html.charts.plots import Axis, draw_area, draw_histogram, draw_line, draw_points, make_log_ticks

_PLACE = re.compile(r"([ML])(-?[\d.]+) (-?[\d.]+)")


def read(path: str) -> list[tuple[str, float, float]]:
    return [(letter, float(x) / 1000, 1 - float(y) / 1000) for letter, x, y in _PLACE.findall(path)]


def test_a_line_goes_through_its_points_and_breaks_where_nothing_is_known() -> None:
    x, y = np.array([0.0, 0.25, 0.5, 0.75, 1.0]), np.array([0.0, 1.0, np.nan, 0.3, 0.2])
    read_back = read(draw_line(x, y))
    assert [letter for letter, *_ in read_back] == ["M", "L", "M", "L"]
    places = np.array([place[1:] for place in read_back])
    assert places == pytest.approx(np.array([(0, 0), (0.25, 1), (0.75, 0.3), (1, 0.2)]))


@settings(deadline=None)
@given(st.integers(1501, 20_000), st.integers(0, 2**32 - 1))
def test_a_long_line_keeps_its_extremes(count: int, seed: int) -> None:
    y = np.random.default_rng(seed).random(count)
    read_back = read(draw_line(np.linspace(0, 1, count), y))
    heights = [place[2] for place in read_back]
    assert len(read_back) <= 1510
    assert max(heights) == pytest.approx(y.max(), abs=1e-4) and min(heights) == pytest.approx(y.min(), abs=1e-4)
    assert [place[1] for place in read_back] == sorted(place[1] for place in read_back)


def test_an_area_goes_ahead_on_top_and_back_below() -> None:
    x = np.array([0.0, 0.5, 1.0])
    path = draw_area(x, np.array([0.1, 0.2, 0.3]), np.array([0.6, 0.7, 0.8]))
    expected = np.array([(0, 0.6), (0.5, 0.7), (1, 0.8), (1, 0.3), (0.5, 0.2), (0, 0.1)])
    assert np.array([place[1:] for place in read(path)]) == pytest.approx(expected)
    assert path.endswith("Z") and path.count("M") == 1
    assert draw_area(x[:0], x[:0], x[:0]) == ""


def test_points_and_bars() -> None:
    assert read(draw_points(np.array([0.2]), np.array([0.9]))) == [("M", pytest.approx(0.2), pytest.approx(0.9))]
    assert draw_histogram([1, 4]) == "M0 1000V750H500V0H1000V1000Z"
    assert draw_histogram([]) == "M0 1000V1000Z"


@given(st.floats(1, 1e12), st.floats(1.01, 1e6))
def test_a_logarithmic_axis_has_equal_ratios(low: float, ratio: float) -> None:
    axis = Axis(low, low * ratio**2, log=True)
    places = axis.place(np.array([low, low * ratio, low * ratio**2]))
    assert places == pytest.approx([0, 0.5, 1], abs=1e-6)
    assert all(low * 0.999 <= tick <= low * ratio**2 * 1.001 for tick in make_log_ticks(axis))
