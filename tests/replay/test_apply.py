"""Which names a change is for."""

from __future__ import annotations

import time

import pytest

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.replay.apply import match_names

NAMES = ["forward", "backward", "data loading", "layer[0]", "layer[1]", "layer0", "a]b", "[!f]*", "Forward", "x\ny", ""]


@pytest.mark.parametrize(
    ("pattern", "found"),
    {
        "forward": ["forward"],
        "*ward": ["forward", "backward", "Forward"],
        "?orward": ["forward", "Forward"],
        "layer[0]": ["layer[0]"],
        "layer[[]0]": [],
        "layer[01]": [],
        "layer[?]": ["layer[0]", "layer[1]"],
        "layer?": ["layer0"],
        "[df]*": [],
        "[!f]*": ["[!f]*"],
        "*]*": ["layer[0]", "layer[1]", "a]b", "[!f]*"],
        "x*": ["x\ny"],
        "": [""],
        "*": NAMES,
        "FORWARD": [],
        ".*": [],
    }.items(),
)
def test_only_stars_and_question_marks_are_wildcards(pattern: str, found: list[str]) -> None:
    if found:
        assert [NAMES[n] for n in match_names(pattern, NAMES, "range")] == found
    else:
        with pytest.raises(UsageError):
            match_names(pattern, NAMES, "range")


def test_an_unknown_name_is_an_error_with_the_nearest_ones() -> None:
    with pytest.raises(UsageError, match=r"no range is named 'forwad'; the nearest are 'forward'"):
        match_names("forwad", NAMES, "range")
    with pytest.raises(UsageError, match=r"no kernel is named 'zzz'$"):
        match_names("zzz", NAMES, "kernel")


def test_many_wildcards_take_no_time() -> None:
    start = time.process_time()
    with pytest.raises(UsageError):
        match_names("*a" * 200 + "b", ["a" * 2_000], "kernel")
    assert time.process_time() - start < 1


def test_a_long_unknown_name_is_cut() -> None:
    with pytest.raises(UsageError) as error:
        match_names("\x1b[31m" + "x" * 100_000, NAMES, "range")
    assert len(str(error.value)) < 600 and str(error.value).isprintable()
