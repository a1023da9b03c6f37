"""What options take, as texts and as Python values, what they keep, and what they advise."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options.calls import CompareOptions, TranslateOptions
from nsys2prv_ng.options.kinds import (
    at_least,
    parse_numbers,
    parse_paths,
    parse_size,
    parse_steps,
    parse_time,
    parse_window,
    read,
)

PATH = Path("a.cfg")


def keep(keyword: str, value: object) -> object:
    """The value that options keep."""
    options = {"labels": CompareOptions}.get(keyword, TranslateOptions)
    return getattr(options(**{keyword: value}), keyword)


@pytest.mark.parametrize(
    ("keyword", "value", "kept"),
    [
        ("ranks", [0, 1], (0, 1)),
        ("ranks", (0,), (0,)),
        ("ranks", range(2), (0, 1)),
        ("ranks", (rank for rank in (1, 0)), (1, 0)),
        ("ranks", np.array([0, 1]), (0, 1)),
        ("ranks", [np.int32(1)], (1,)),
        ("ranks", None, None),
        ("gpus", {1}, (1,)),
        ("jobs", np.int64(2), 2),
        ("time", (0, 200_000_000), (0, 200_000_000)),
        ("time", [0, np.int64(5000)], (0, 5000)),
        ("time", (None, 5000), (None, 5000)),
        ("time", (5, 1000), (5, 1000)),
        ("time", (0, None), (0, None)),
        ("time", "gpu", "gpu"),
        ("time", None, None),
        ("steps", [2, 5], (2, 5)),
        ("steps", (2, None), (2, None)),
        ("sources", iter(["kernels"]), ("kernels",)),
        ("min_duration", {"nvtx": np.int64(5)}, {"nvtx": 5}),
        ("tmp", PATH, PATH),
        ("labels", ("a", "b"), ("a", "b")),
    ],
)
def test_what_is_natural_is_taken_and_kept_as_plain_values(keyword: str, value: object, kept: object) -> None:
    found = keep(keyword, value)
    assert found == kept and type(found) is type(kept)
    if isinstance(found, tuple):
        assert [type(part) for part in found] == [type(part) for part in kept]


@pytest.mark.parametrize(
    ("keyword", "text", "kept"),
    [
        ("ranks", "0-3,8", (0, 1, 2, 3, 8)),
        ("gpus", " 0, 2", (0, 2)),
        ("jobs", "2", 2),
        ("memory", "2G", 2**31),
        ("paraver_memory", "0", 0),
        ("osrt_min", "10us", 10_000),
        ("time", "1.5s:2s", (1_500_000_000, 2_000_000_000)),
        ("time", ":800ms", (None, 800_000_000)),
        ("time", "GPU", "gpu"),
        ("steps", "2:4", (2, 4)),
        ("steps", "3", (3, 3)),
        ("sources", "kernels,nvtx", ("kernels", "nvtx")),
        ("min_duration", "cuda_api=10us", {"cuda_api": 10_000}),
        ("min_duration", ["cuda_api=10us", "nvtx=1ms"], {"cuda_api": 10_000, "nvtx": 10**6}),
        ("min_duration", {"cuda_api": "10us"}, {"cuda_api": 10_000}),
        ("labels", "before, and after", ("before, and after",)),
        ("tmp", "a.cfg", PATH),
    ],
)
def test_texts_are_read_as_on_the_command_line(keyword: str, text: object, kept: object) -> None:
    assert keep(keyword, text) == kept


def test_what_is_kept_is_read_again_as_it_is() -> None:
    options = TranslateOptions(ranks="0-3", time="1s:", min_duration="nvtx=1ms", memory="2G", tmp="x", align="utc")
    assert replace(options) == options == TranslateOptions(**vars(options))
    with pytest.raises(AttributeError, match="ranks cannot be changed"):
        options.ranks = [1]


INTEGERS = "give a list of integers, or a text like '0-3,8'"
TIME = "give (from, to) in ns, 'gpu', or a text like '1.5s:2s'; None is no limit"
SECONDS = "give ns and not seconds"
STEPS = "give (first, last), or a text like '3:8'; None is no limit"
LENGTHS = "give a dict of lengths in ns by source, {'cuda_api': 10000}, or a text like 'cuda_api=10us'"
TEXTS = "give a list of texts, or one text with commas"


@pytest.mark.parametrize(
    ("keyword", "value", "message"),
    [
        ("ranks", 0, INTEGERS),
        ("ranks", np.int64(1), INTEGERS),
        ("ranks", ["0-1", "3"], INTEGERS),
        ("ranks", [0.0, 1.0], INTEGERS),
        ("ranks", "some", "'some' is not a number or range such as 0-3"),
        ("ranks", 1.5, INTEGERS),
        ("ranks", [True], INTEGERS),
        ("ranks", b"01", INTEGERS),
        ("ranks", np.array(0), INTEGERS),
        ("ranks", np.array([[0, 1]]), INTEGERS),
        ("ranks", range(10**12), "is longer than any job"),
        ("sources", [1], TEXTS),
        ("labels", [1], "give a list of texts"),
        ("time", (0, 0.2), f"{SECONDS}, (0, 200000000), or a text like '1.5s:2s'"),
        ("time", (1, 1.5), f"{SECONDS}, (1000000000, 1500000000), or a text like '1.5s:2s'"),
        ("time", (0.0, 2.0), f"{SECONDS}, (0, 2000000000), or a text like '1.5s:2s'"),
        ("time", (0, np.float64(0.2)), f"{SECONDS}, (0, 200000000), or a text like '1.5s:2s'"),
        ("time", (0, 2), f"{SECONDS}, (0, 2000000000), or a text like '1.5s:2s'"),
        ("time", [2, None], f"{SECONDS}, (2000000000, None), or a text like '1.5s:2s'"),
        ("time", (0, float("inf")), f"{SECONDS}, or a text like '1.5s:2s'"),
        ("time", "2s", "write FROM:TO with units, like 1.5s:2s, :800ms or 2s:, or gpu"),
        ("time", (0, 2e8), TIME),
        ("time", ("100ms", "200ms"), TIME),
        ("time", 0.2, TIME),
        ("time", (0, True), TIME),
        ("time", (0, 2**62 + 1), "too large a number"),
        ("steps", 3, STEPS),
        ("steps", range(2, 6), STEPS),
        ("steps", [2, 4, 9], STEPS),
        ("steps", (5, 3), "FIRST is after LAST"),
        ("osrt_min", 1e4, "give an integer in ns, or a text like '10us'"),
        ("osrt_min", "10", "'10' is not a time with a unit (ns, us, ms, s), like 250ms"),
        ("min_duration", {"nvtx": 1e-5}, LENGTHS),
        ("min_duration", {"nvtx": -1}, LENGTHS),
        ("min_duration", {1: 2}, LENGTHS),
        ("min_duration", [1], LENGTHS),
        ("min_duration", {"nvtx": 10**30}, "too large a number"),
        ("min_duration", "nvtx", "write SOURCE=TIME, like cuda_api=10us"),
        ("derived", 1, "give True or False"),
        ("memory", 0.5, "give an integer in bytes, or a text like '2G'"),
        ("memory", "2", "write a size with a unit (K, M, G, T), like 2G"),
        ("jobs", True, "give an integer"),
        ("jobs", 2.0, "give an integer"),
        ("jobs", "two", "write a whole number"),
        ("jobs", 0, "must be at least 1"),
        ("nvtx_range", ["step 3"], "give a text; '' is no choice"),
        ("time", (2000, 1000), "FROM is after TO"),
        ("align", 3, "give 'auto', 'utc', 'collectives', 'none', or a file that align_report wrote"),
        ("kernel_names", 3, "must be short or demangled"),
        ("tmp", 3, "give a path"),
        ("stats", "a\0.json", "is not a valid file name"),
        ("stats", "\ud800", "is not a valid file name"),
    ],
)
def test_other_values_are_refused_with_what_to_write(keyword: str, value: object, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        keep(keyword, value)
    assert str(raised.value) == f"{keyword}={value!r}: {message}".replace("\0", "?")


def test_the_path_that_cannot_be_one_is_named() -> None:
    with pytest.raises(UsageError, match=r"^reports='': must not be empty$"):
        read(parse_paths, ["a.sqlite", ""], "reports")
    with pytest.raises(UsageError, match=r"^reports=3: give a path or a list of paths$"):
        read(parse_paths, 3, "reports")
    assert read(parse_paths, PATH, "reports") == read(parse_paths, iter(["a.cfg"]), "reports") == (PATH,)


@pytest.mark.parametrize(
    ("keyword", "message"),
    [
        ("derived", "give True or False"),
        ("osrt_min", "give an integer in ns, or a text like '10us'"),
        ("nvtx_range", "give a text; '' is no choice"),
        ("align", "give 'auto', 'utc', 'collectives', 'none', or a file that align_report wrote"),
    ],
)
def test_none_is_refused_where_it_is_not_the_default(keyword: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        keep(keyword, None)
    assert str(raised.value) == f"{keyword}: {message}"


def test_a_list_without_an_end_and_one_that_is_too_long_to_print() -> None:
    with pytest.raises(UsageError, match=r"^ranks: is longer than any job$"):
        keep("ranks", itertools.count())
    with pytest.raises(UsageError, match=r"^ranks: give a list of integers, or"):
        keep("ranks", [0.5] * 1000)
    with pytest.raises(UsageError, match=r"^min_duration: write SOURCE=TIME"):
        keep("min_duration", "x" * 1000)


def test_an_open_file_is_no_path(tmp_path: Path) -> None:
    with (tmp_path / "stats.json").open("w") as file, pytest.raises(UsageError, match=r"give a path$"):
        keep("stats", file)


def test_elements_of_a_generator_are_checked() -> None:
    def generate() -> Iterator[str]:
        yield "1"

    with pytest.raises(UsageError, match=r"^ranks=\['1'\]: give a list of integers"):
        keep("ranks", generate())


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
    assert parse_numbers("0-3, 8") == (0, 1, 2, 3, 8)
    for text in ("", "a", "3-1", "1-", "1,,2"):
        with pytest.raises(UsageError, match="is not a number"):
            parse_numbers(text)


def test_shortest():
    assert TranslateOptions(min_duration="nvtx=1ms").min_duration == {"nvtx": 10**6}
    for text in ("nvtx", "nvtx=", "nvtx=1", "=1ms"):
        with pytest.raises(UsageError):
            TranslateOptions(min_duration=text)


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
    assert [at_least(-3)(number) for number in ("7", " 12 ", "-3")] == [7, 12, -3]
    with pytest.raises(UsageError, match="write a whole number"):
        at_least(-3)(text)


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
