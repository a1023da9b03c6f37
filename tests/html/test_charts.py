"""Paths of plots, read back from their text."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.html.charts import choose_step, draw_area, draw_line, draw_points, make_time_ticks, make_value_ticks

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


def test_points() -> None:
    assert read(draw_points(np.array([0.2]), np.array([0.9]))) == [("M", pytest.approx(0.2), pytest.approx(0.9))]


_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@given(st.integers(0, 10**13), st.integers(1, 10**12), st.integers(2, 12))
def test_ticks_of_time_stand_where_their_text_says(begin: int, length: int, most: int) -> None:
    ticks = make_time_ticks(begin, begin + length, most)
    assert len(ticks) <= most + 1
    texts = [tick.text for tick in ticks]
    assert len(set(texts)) == len(texts)
    for tick in ticks:
        assert 0 <= tick.at <= 1
        number, unit = re.fullmatch(r"([\d,.]+) (s|ms|us|ns)", tick.text).groups()  # type: ignore[union-attr]
        assert (
            abs(float(number.replace(",", "")) * _NS[unit] - (begin + tick.at * length)) <= 1e-6 * (begin + length) + 1
        )


@given(st.floats(1e-6, 1e15), st.integers(1, 20))
def test_steps_are_round_and_as_many_fit(span: float, most: int) -> None:
    step = choose_step(span, most)
    assert span / step <= most * (1 + 1e-9)
    assert f"{step:.6e}"[0] in "125" and float(f"{step:.6e}".split("e")[0]) in (1, 2, 5)
    assert span / step > most / 5.1  # a smaller one would not fit


@given(st.floats(1e-6, 1e15), st.floats(0, 0.999) | st.just(1.0))
def test_values_lie_between_the_first_and_the_last(highest: float, part: float) -> None:
    lowest = part * highest
    ticks = make_value_ticks(lowest, highest)
    assert ticks[0] <= lowest + 1e-6 * highest and ticks[-1] >= highest * (1 - 1e-6)
    assert 2 <= len(ticks) <= 8
    steps = np.diff(ticks)
    assert steps == pytest.approx(np.full(steps.size, steps[0]))


def test_nothing_has_a_tick_at_zero() -> None:
    assert make_value_ticks(0, 0) == [0.0] and make_time_ticks(5, 5) == []
    assert make_value_ticks(0, 80) == [0, 20, 40, 60, 80]
    assert make_value_ticks(70, 80) == [70, 72, 74, 76, 78, 80]
    assert make_value_ticks(30, 80) == [0, 20, 40, 60, 80], "too different for an axis that starts above 0"
