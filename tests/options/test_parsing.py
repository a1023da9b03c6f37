"""What is typed after options: times, lists of numbers and lengths by source."""

from __future__ import annotations

import pytest

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options.calls import JobOptions, TraceOptions
from nsys2prv_ng.options.kinds import parse_time, parse_window
from nsys2prv_ng.text.option import Integer, list_options

DECLARED = list_options(JobOptions) | list_options(TraceOptions)
parse_numbers, parse_size, parse_steps = (DECLARED[name].parse for name in ("ranks", "memory", "steps"))
parse_integer = Integer("").parse


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("78,267.77 us", 78_267_770),
        ("1,800,000.5 ms", 1_800_000_500_000),
        ("0ns", 0),
        ("15ns", 15),
        ("1.5us", 1500),
        ("250ms", 250_000_000),
        ("2.s", 2 * 10**9),
        ("0.1s", 10**8),
    ],
)
def test_times(text, ns):
    assert parse_time(text) == ns


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1 h", "1e3s", "1.2.3s", "1,80us", "1,500s", "1  ms", ",100us"])
def test_no_times(text):
    with pytest.raises(UsageError):
        parse_time(text)


def test_numbers():
    assert parse_numbers("0-3, 8") == [0, 1, 2, 3, 8]
    for text in ("", "a", "3-1", "1-", "1,,2"):
        with pytest.raises(UsageError, match="is not a number"):
            parse_numbers(text)


def test_shortest():
    assert TraceOptions(min_duration="nvtx=1ms").min_duration == {"nvtx": 10**6}
    for text in ("nvtx", "nvtx=", "nvtx=1", "=1ms"):
        with pytest.raises(UsageError):
            TraceOptions(min_duration=text)


@pytest.mark.parametrize(
    ("text", "size"), [("2G", 2**31), ("1.5g", 3 * 2**29), ("512MiB", 2**29), ("1T", 2**40), ("100KB", 102400)]
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "2", "G", "-1G", "2 GB x", "1e3M"])
def test_no_sizes(text):
    with pytest.raises(UsageError, match="write a size with a unit"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "x", "1.5", "1e3", "0x1", "\u0663", "9" * 19, "1_0"])
def test_no_integers(text):
    assert [parse_integer(number) for number in ("7", " 12 ", "-3")] == [7, 12, -3]
    with pytest.raises(UsageError, match="write a whole number"):
        parse_integer(text)


@pytest.mark.parametrize("digits", ["9" * 19, "9" * 5000, "\u0663"])
def test_numbers_that_no_computer_reads(digits):
    """Python refuses to read 5,000 digits, and decimals of 400 are infinite."""
    for parse, text in [
        (parse_time, f"{digits}s"),
        (parse_time, f"1.{digits}s"),
        (parse_window, f"{digits}s:"),
        (parse_size, f"{digits}G"),
        (parse_size, f"1.{digits}G"),
        (parse_steps, f"{digits}:"),
        (parse_steps, f":{digits}"),
        (parse_numbers, digits),
        (parse_numbers, f"0-{digits}"),
    ]:
        with pytest.raises(UsageError):
            parse(text)
