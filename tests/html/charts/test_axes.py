"""Ticks of axes: round, within the axis, few."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.html.charts.axes import choose_step, make_time_ticks, make_value_ticks

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
