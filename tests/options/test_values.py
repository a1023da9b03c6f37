"""What the Python calls take as the values of their keywords, and the spelling that they advise."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options import CheckOptions, CompareOptions, TranslateOptions

PATH = Path("a.cfg")


def keep(keyword: str, value: object) -> object:
    """The value that options keep."""
    options = {"cfg": CheckOptions, "labels": CompareOptions}.get(keyword, TranslateOptions)
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
        ("cfg", iter([PATH]), (PATH,)),
        ("tmp", PATH, PATH),
        ("labels", ("a", "b"), ("a", "b")),
    ],
)
def test_what_is_natural_is_taken_and_kept_as_plain_values(keyword: str, value: object, kept: object) -> None:
    found = keep(keyword, value)
    assert found == kept and type(found) is type(kept)
    if isinstance(found, tuple):
        assert [type(part) for part in found] == [type(part) for part in kept]


ADVISED = [
    ("ranks", "0-1", "give a list, [0, 1]"),
    ("ranks", "0-1023", "give a list, range(0, 1024)"),
    ("ranks", 0, "give a list, [0]"),
    ("ranks", np.int64(1), "give a list, [1]"),
    ("ranks", ["0-1", "3"], "give a list of integers, [0, 1, 3]"),
    ("ranks", [0.0, 1.0], "give a list of integers, [0, 1]"),
    ("sources", "kernels,nvtx", "give a list, ['kernels', 'nvtx']"),
    ("metrics", "SM Active", "give a list, ['SM Active']"),
    ("labels", "before", "give a list, ['before']"),
    ("cfg", PATH, "give a list, ['a.cfg']"),
    ("time", "0:200ms", "give two integers in ns, (0, 200000000)"),
    ("time", "2s:", "give two integers in ns, (2000000000, None)"),
    ("time", ("100ms", "200ms"), "give two integers in ns, (100000000, 200000000)"),
    ("time", (0, 0.2), "give two integers in ns and not seconds, (0, 200000000)"),
    ("time", (1, 1.5), "give two integers in ns and not seconds, (1000000000, 1500000000)"),
    ("time", (0.0, 2.0), "give two integers in ns and not seconds, (0, 2000000000)"),
    ("time", (0, np.float64(0.2)), "give two integers in ns and not seconds, (0, 200000000)"),
    ("time", (0, 2), "give two integers in ns and not seconds, (0, 2000000000)"),
    ("time", [2, None], "give two integers in ns and not seconds, (2000000000, None)"),
    ("time", (0, 2e8), "give two integers in ns, (0, 200000000)"),
    ("time", "GPU", "give two integers in ns, 'gpu'"),
    ("steps", 3, "give two step numbers, (3, 3)"),
    ("steps", "2:5", "give two step numbers, (2, 5)"),
    ("steps", range(2, 6), "give two step numbers, (2, 5)"),
    ("osrt_min", "10us", "give an integer in ns, 10000"),
    ("osrt_min", 1e4, "give an integer in ns, 10000"),
    ("osrt_min", 1e-5, "give an integer in ns, 10000"),
    ("memory", "2G", "give an integer in bytes, 2147483648"),
    ("jobs", 2.0, "give an integer, 2"),
    ("min_duration", "nvtx=10us", "give a dict of lengths in ns by source, {'nvtx': 10000}"),
    ("min_duration", {"nvtx": 1e-5}, "give a dict of lengths in ns by source, {'nvtx': 10000}"),
]


@pytest.mark.parametrize(("keyword", "value", "message"), ADVISED)
def test_other_spellings_are_refused_with_the_right_one(keyword: str, value: object, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        keep(keyword, value)
    assert str(raised.value) == f"{keyword}={value!r}: {message}"
    keep(keyword, eval(message.partition(", ")[2], {"__builtins__": {}, "range": range}))  # no error


@pytest.mark.parametrize(
    ("keyword", "value", "message"),
    [
        ("ranks", "some", "give a list of integers"),
        ("ranks", 1.5, "give a list of integers"),
        ("ranks", [True], "give a list of integers"),
        ("ranks", b"01", "give a list of integers"),
        ("ranks", np.array(0), "give a list of integers"),
        ("ranks", np.array([[0, 1]]), "give a list of integers"),
        ("ranks", "0-9,90-99", "give a list of integers"),
        ("ranks", range(10**12), "is longer than any job"),
        ("sources", [1], "give a list of texts"),
        ("time", 0.2, "give two integers in ns, (from, to), or 'gpu'"),
        ("time", (0, float("inf")), "give two integers in ns and not seconds, (from, to), or 'gpu'"),
        ("time", (0, True), "give two integers in ns, (from, to), or 'gpu'"),
        ("steps", [2, 4, 9], "give two step numbers, (first, last); None is no limit"),
        ("min_duration", {"nvtx": -1}, "give a dict of lengths in ns by source, {'cuda_api': 10000}"),
        ("min_duration", {1: 2}, "give a dict of lengths in ns by source, {'cuda_api': 10000}"),
        ("derived", 1, "give True or False"),
        ("memory", 0.5, "give an integer in bytes"),
        ("jobs", True, "give an integer"),
        ("align", 3, "give 'auto', 'utc', 'collectives', 'none', or a file that align_report wrote"),
        ("tmp", 3, "give a path"),
        ("stats", "a\0.json", "is no name of a file"),
        ("stats", "\ud800", "is no name of a file"),
        ("cfg", [""], "must not be empty"),
        ("time", (0, 2**62 + 1), "too large a number"),
        ("min_duration", {"nvtx": 10**30}, "too large a number"),
    ],
)
def test_what_cannot_be_meant_is_refused(keyword: str, value: object, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        keep(keyword, value)
    assert str(raised.value) == f"{keyword}={value!r}: {message}".replace("\0", "?")


@pytest.mark.parametrize(
    ("keyword", "message"),
    [
        ("derived", "give True or False"),
        ("osrt_min", "give an integer in ns"),
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
    with pytest.raises(UsageError, match=r"^ranks: give a list of integers$"):
        keep("ranks", [0.5] * 1000)
    with pytest.raises(UsageError, match=r"^sources: give a list of texts$"):
        keep("sources", ",".join(["kernels"] * 100))


def test_an_open_file_is_no_path(tmp_path: Path) -> None:
    with (tmp_path / "stats.json").open("w") as file, pytest.raises(UsageError, match=r"give a path$"):
        keep("stats", file)


def test_elements_of_a_generator_are_checked() -> None:
    def generate() -> Iterator[str]:
        yield "1"

    with pytest.raises(UsageError, match=r"^ranks=\['1'\]: give a list of integers, \[1\]$"):
        keep("ranks", generate())
