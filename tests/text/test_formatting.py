from __future__ import annotations

import re
from datetime import datetime, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.options.kinds import parse_window
from nsys2prv_ng.text.formatting import (
    count_noun,
    format_bytes,
    format_duration,
    format_number,
    format_number_ranges,
    format_percent,
    format_time,
    format_utc,
    format_window,
    make_unique,
)


@pytest.mark.parametrize(("number", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (1024, "1,024 nodes")])
def test_counted(number: int, text: str) -> None:
    assert count_noun(number, "node") == text


@given(st.sets(st.integers(0, 40)))
def test_runs_name_exactly_these_numbers(numbers: set[int]) -> None:
    parts = [part.split("-") for part in format_number_ranges(sorted(numbers)).split(",") if part]
    assert [n for part in parts for n in range(int(part[0]), int(part[-1]) + 1)] == sorted(numbers)
    # Runs do not touch: there is no shorter way to say it.
    assert all(int(before[-1]) + 1 < int(after[0]) for before, after in pairwise(parts))


def test_times_are_iso_8601_to_the_ns() -> None:
    at = datetime(2026, 11, 20, 11, 26, 22, tzinfo=timezone.utc)
    assert format_utc(int(at.timestamp()) * 10**9 + 56) == "2026-11-20T11:26:22.000000056Z"
    assert format_utc(-1) == "1969-12-31T23:59:59.999999999Z"


def test_times_beyond_all_calendars_are_numbers() -> None:
    assert format_utc(2**63 * 10**9) == f"{2**63 * 10**9} ns"


@pytest.mark.parametrize(
    ("ns", "shown"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1000, "1.00 us"),
        (9994, "9.99 us"),
        (9995, "10.0 us"),
        (99_949, "99.9 us"),
        (99_950, "100 us"),
        (999_499, "999 us"),
        (999_500, "1.00 ms"),
        (1_234_567, "1.23 ms"),
        (12_345_678_901, "12.3 s"),
        (1_234_000_000_000, "1,234 s"),
    ],
)
def test_times_have_three_digits(ns: int, shown: str) -> None:
    assert format_time(ns) == shown


def test_sizes() -> None:
    assert [format_bytes(size) for size in (None, 0, 999, 1500, 2_774_000_000)] == [
        "-",
        "0 B",
        "999 B",
        "1.50 kB",
        "2.77 GB",
    ]


@pytest.mark.parametrize(
    ("ns", "text"), [(0, "0ns"), (10_000, "10us"), (1_500, "1500ns"), (10**6, "1ms"), (2 * 10**9, "2s")]
)
def test_durations_are_written_as_they_are_typed(ns: int, text: str) -> None:
    assert format_duration(ns) == text


def test_unique_names() -> None:
    names = ["a", "b", "a", "a-2", "a", "b", "a-2"]
    assert make_unique(names) == ["a", "b", "a-3", "a-2", "a-4", "b-2", "a-2-2"]
    assert make_unique([]) == []


@given(begin=st.integers(0, 10**15), length=st.integers(1, 10**13))
def test_a_window_to_paste_contains_the_time_and_little_more(begin: int, length: int) -> None:
    low, high = parse_window(format_window(begin, begin + length))
    assert low is not None and high is not None
    assert begin - length / 100 <= low <= begin
    assert begin + length <= high <= begin + length * 1.01


@pytest.mark.parametrize(
    ("ns", "text"), [(-124_479_910, "-124 ms"), (-999, "-999 ns"), (-0.4, "0 ns"), (1_500, "1.50 us")]
)
def test_times_have_units_and_few_digits_whatever_their_sign(ns, text):
    assert format_time(ns) == text


EXTREMES = [0, 1e-9, -1e-9, 0.4, -0.5, -1, 999.4999, 999_499_999, -124_479_910, 1e12, -75.283e12, 2**63, -(2**63)]
FORMS = {
    format_time: r"-?[0-9,.]+ (ns|us|ms|s)",
    format_bytes: r"-?[0-9,.]+ (B|kB|MB|GB|TB)",
    lambda number: format_percent(number, 7): r"-?[0-9,.]+%",
    format_number: r"-?[0-9,.]+",
}
SIZES = {"": 1.0, "%": 0.07, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
SIZES |= {f"{letter}B": 10.0 ** (3 * power) for power, letter in enumerate(["", *"kMGT"])}


def check_number(number: float) -> None:
    """Every form has a unit, at most four significant digits, commas and no exponent, and is near the number."""
    for write, form in FORMS.items():
        text = write(number)
        assert re.fullmatch(form, text), text
        shown, unit = re.fullmatch(r"(.*?) ?([A-Za-z%]*)", text).groups()  # type: ignore[union-attr]
        whole, _, decimals = shown.lstrip("-").partition(".")
        assert len((whole + decimals).replace(",", "").strip("0" if not decimals else "").lstrip("0")) <= 4, text
        assert whole == f"{int(whole.replace(',', '')):,}", text
        value = float(shown.replace(",", ""))
        assert (value < 0) == shown.startswith("-"), text  # no minus before a zero
        least = 0 if write is format_number else 0.5
        assert value * SIZES[unit] == pytest.approx(number, rel=0.006, abs=least), text


@pytest.mark.parametrize("number", EXTREMES)
def test_extreme_numbers(number: float) -> None:
    check_number(number)


@given(st.one_of(st.integers(-(2**63), 2**63), st.floats(-1e24, 1e24)))
def test_any_number(number: float) -> None:
    check_number(number)
