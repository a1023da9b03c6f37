"""Reads the values of keywords: returns what the options keep, or raises UsageError with the right spelling.

Every kind of value has one rule. A list is anything that can be iterated over, but for a text. Integers may be those of
numpy. A text, a number of seconds and a single value where a list belongs are refused: the error spells what they
probably mean. None stands for no choice, where that is the default.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from numbers import Real
from operator import index
from typing import Any

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options.parsing import (
    GPU_TIME,
    MOST_NUMBERS,
    parse_job_time,
    parse_min_durations,
    parse_names,
    parse_numbers,
    parse_size,
    parse_steps,
    parse_time,
    parse_window,
)
from nsys2prv_ng.text.option import Option

LONGEST_SHOWN = 200
"""Characters of a value, and of its right spelling, that an error shows."""
_LONGEST_LIST = 10
"""Numbers that an error spells one by one."""
_MOST = 2**62
"""Times are computed with 64 bits, from 1970 on."""
_SHORTEST_NS = 1e6
"""Whole decimal numbers from here on are ns and no seconds: 2e9."""
_LEAST_NS = 1000
"""A time within so many ns from the start shows nothing of a job: (0, 2) is meant as seconds."""


class _AsWritten:
    """A value that errors show in a notation of its own."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def list_once(value: object) -> object:
    """Return the elements of what can be iterated over only once, and anything else as it is."""
    return list(islice(value, MOST_NUMBERS + 1)) if isinstance(value, Iterator) else value


def _refuse(how: str, value: Any, find_meant: Callable[[Any], object], otherwise: str = "") -> UsageError:
    """Return the error for a value, which spells what was probably meant; where that is unknown, `otherwise`."""
    try:
        meant = repr(find_meant(value))
    except (UsageError, TypeError, ValueError, OverflowError):
        meant = ""
    return UsageError(f"{how}, {meant}" if 0 < len(meant) <= LONGEST_SHOWN else f"{how}{otherwise}")


# ---- single values ---------------------------------------------------------------------------------------------------


def _to_integer(value: Any) -> int:
    """Return an integer of Python or numpy as one of Python. Raises TypeError for others, and for bool."""
    if isinstance(value, bool):
        raise TypeError
    number = index(value)
    if abs(number) > _MOST:
        raise UsageError("too large a number")
    return number


def read_integer(value: object, option: Option) -> int:
    """Return an integer."""
    try:
        return _to_integer(value)
    except TypeError:
        unit = f" in {option.unit}" if option.unit else ""
        raise _refuse(f"give an integer{unit}", value, lambda _: _find_integer(value, option.unit)) from None


def _find_integer(value: Any, unit: str) -> int:
    """Return the integer that is probably meant by a text, by decimals without a fraction, or by a part of 1 s."""
    if isinstance(value, str):
        return {"ns": parse_time, "bytes": parse_size}.get(unit, int)(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError
    number = float(value)
    if unit == "ns" and not number.is_integer():
        return round(number * 1e9)
    if not number.is_integer():
        raise ValueError
    return int(number)


def read_flag(value: object, _: Option) -> bool:
    """Return a flag."""
    if not isinstance(value, bool):
        raise UsageError("give True or False")
    return value


def read_text(value: object, _: Option) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise UsageError("give a text" + ("; '' is no choice" if value is None else ""))
    return value


def read_path(value: object, option: Option) -> str | os.PathLike[str]:
    """Return a path. An empty one would be the current folder."""
    if wrong := find_wrong_path(value):
        words = option.keyword_help.rstrip(".") if "|" in option.metavar else ""
        raise UsageError(f"give {words}" if words and wrong == NO_PATH else wrong)
    return value  # type: ignore[return-value]


NO_PATH = "give a path"


def find_wrong_path(value: object) -> str:
    """Return what is wrong with a path, or an empty text."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str):
        return NO_PATH
    try:
        is_name = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_name = False
    return "is no name of a file" if not is_name else "" if text else "must not be empty"


# ---- lists -----------------------------------------------------------------------------------------------------------


def _list_elements(value: Any, what: str, find_meant: Callable[[Any], object]) -> list[Any]:
    """Return the elements of a list. `what` they are; `find_meant` returns them for one that was given without it."""
    if not isinstance(value, str | bytes | os.PathLike | Real):
        try:
            elements = list(islice(value, MOST_NUMBERS + 1))
        except TypeError:  # an array of numpy without a dimension can be iterated over in name only
            raise UsageError(f"give a list of {what}") from None
        if len(elements) > MOST_NUMBERS:
            raise UsageError("is longer than any job")
        return elements
    raise _refuse("give a list", value, find_meant, otherwise=f" of {what}")


def read_names(value: object, _: Option) -> tuple[str, ...]:
    """Return a list of texts."""
    names = _list_elements(value, "texts", lambda text: list(parse_names(os.fspath(text))))
    if not all(isinstance(name, str) for name in names):
        raise UsageError("give a list of texts")
    return tuple(names)


def read_paths(value: object, option: Option) -> tuple[str | os.PathLike[str], ...]:
    """Return a list of paths."""
    return tuple(read_path(path, option) for path in _list_elements(value, "paths", lambda path: [os.fspath(path)]))


def read_numbers(value: object, _: Option) -> tuple[int, ...]:
    """Return a list of integers."""
    numbers = _list_elements(value, "integers", _find_numbers)
    try:
        return tuple(map(_to_integer, numbers))
    except TypeError:
        raise _refuse("give a list of integers", numbers, _find_all_numbers) from None


def _find_numbers(value: object) -> object:
    """Return the list that a text or a number stands for, as Python writes it."""
    return _spell_numbers(parse_numbers(value) if isinstance(value, str) else [_find_integer(value, "")])


def _find_all_numbers(values: Sequence[object]) -> object:
    parts = [parse_numbers(value) if isinstance(value, str) else [_find_integer(value, "")] for value in values]
    return _spell_numbers({number for part in parts for number in part})


def _spell_numbers(numbers: Iterable[int]) -> object:
    listed = sorted(numbers)
    if len(listed) <= _LONGEST_LIST:
        return listed
    if listed[-1] - listed[0] >= len(listed):
        raise ValueError
    return _AsWritten(f"range({listed[0]}, {listed[-1] + 1})")


def read_durations(value: object, _: Option) -> dict[str, int]:
    """Return lengths (ns) by source."""
    if isinstance(value, Mapping) and all(isinstance(source, str) for source in value):
        try:
            lengths = {source: _to_integer(length) for source, length in value.items()}
            if min(lengths.values(), default=0) >= 0:
                return lengths
        except TypeError:
            pass
    example = ", {'cuda_api': 10000}"
    raise _refuse("give a dict of lengths in ns by source", value, _find_durations, otherwise=example)


def _find_durations(value: Any) -> dict[str, int]:
    """Return the lengths that are probably meant."""
    if isinstance(value, Mapping):
        lengths = {os.fspath(source): _find_integer(length, "ns") for source, length in value.items()}
    else:
        lengths = parse_min_durations([value] if isinstance(value, str) else value)
    if not lengths or min(lengths.values()) < 0:
        raise ValueError
    return lengths


# ---- limits ----------------------------------------------------------------------------------------------------------

Limits = tuple[int | None, int | None]


def _read_limits(value: object) -> Limits:
    """Return two limits; None is none. Raises TypeError for anything else."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError
    low, high = (None if limit is None else _to_integer(limit) for limit in value)
    return low, high


def read_window(value: object, _: Option) -> Limits:
    """Return the limits (ns) of a time."""
    return _read_time(value, "give two integers in ns", "; None is no limit", parse_window)


def read_job_time(value: object, _: Option) -> Limits | str:
    """Return the limits (ns) of a time of a job, or the word for the time of the GPUs."""
    if isinstance(value, str) and value == GPU_TIME:
        return value
    return _read_time(value, "give two integers in ns", ", or 'gpu'", parse_job_time)


def _read_time(value: object, how: str, otherwise: str, parse: Callable[[str], object]) -> Limits:
    try:
        low, high = _read_limits(value)
    except TypeError:
        has_seconds = isinstance(value, tuple | list) and any(map(_is_in_seconds, value))
        how += " and not seconds" if has_seconds else ""
        find_meant = parse if isinstance(value, str) else partial(_find_times, in_seconds=has_seconds)
        raise _refuse(how, value, find_meant, otherwise=f", (from, to){otherwise}") from None
    if (low or 0) < 0 or (high or 0) < 0:
        raise UsageError("FROM and TO must not be negative")
    if high is not None and high <= (low or 0):
        raise UsageError("FROM is after TO" if high < (low or 0) else "FROM and TO are the same")
    if 0 < (high or low or 0) < _LEAST_NS:
        meant = partial(_find_times, in_seconds=True)
        raise _refuse(f"{how} and not seconds", value, meant, otherwise=f", (from, to){otherwise}")
    return low, high


def _find_times(value: Any, *, in_seconds: bool) -> Limits:
    """Return the limits that are probably meant by texts, by decimals, or in seconds. Raises TypeError."""
    if not isinstance(value, tuple | list):
        raise TypeError
    low, high = (None if limit is None else _to_ns(limit, in_seconds=in_seconds) for limit in value)
    return low, high


def _is_in_seconds(value: object) -> bool:
    """Return whether a number is meant as seconds: decimals that are no large whole number."""
    if isinstance(value, int) or not isinstance(value, Real) or hasattr(value, "__index__"):
        return False
    return not (float(value).is_integer() and float(value) >= _SHORTEST_NS)


def _to_ns(value: Any, *, in_seconds: bool) -> int:
    if isinstance(value, str):
        return parse_time(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError
    return round(float(value) * 1e9) if in_seconds else int(float(value))


def read_steps(value: object, _: Option) -> Limits:
    """Return the numbers of the first and the last step."""
    try:
        first, last = _read_limits(value)
    except TypeError:
        otherwise = ", (first, last); None is no limit"
        raise _refuse("give two step numbers", value, _find_steps, otherwise=otherwise) from None
    if first is not None and last is not None and first > last:
        raise UsageError("FIRST is after LAST")
    return first, last


def _find_steps(value: Any) -> Limits:
    """Return the steps that are probably meant by a text, by one number, or by all numbers. Raises ValueError."""
    if isinstance(value, str):
        return parse_steps(value)
    numbers = [_find_integer(each, "") for each in ([value] if isinstance(value, Real) else value)]
    if not numbers or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise ValueError
    return numbers[0], numbers[-1]
