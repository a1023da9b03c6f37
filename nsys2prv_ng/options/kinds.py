"""The kinds of options of the calls on jobs and traces: each reads, checks, spells and completes its values.

Times are ns and sizes bytes, in Python as integers. A text is what the command line accepts: `10us`, `2G`, `1.5s:2s`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.text.formatting import format_duration, format_number_ranges
from nsys2prv_ng.text.option import (
    DIGITS,
    Integer,
    ListOption,
    Number,
    Option,
    Words,
    list_elements,
    parse_number_ranges,
    to_integer,
)

AnyPath = str | os.PathLike[str]
Limits = tuple[int | None, int | None]
"""Two limits; None stands for no limit."""
GPU_TIME: Literal["gpu"] = "gpu"
"""The time from the first to the last operation of the GPUs."""

_TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
# Commas only if a blank precedes the unit, as in wxParaver: in 1,500s the comma may be a decimal one.
_TIME = re.compile(rf"({DIGITS}|[0-9]{{1,3}}(?:,[0-9]{{3}}){{1,5}}(?=[.0-9]* ))(?:\.([0-9]{{0,18}}))? ?(ns|us|ms|s)")
_SIZES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(rf"({DIGITS}(?:\.{DIGITS})?)([KMGT])i?B?", re.IGNORECASE)
_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_AMOUNT = re.compile(rf"({DIGITS}(?:\.[0-9]{{0,18}})?(?:e[+-]?[0-9]{{1,3}})?)([KMGTPE]?)", re.IGNORECASE)
_LEAST_NS = 1000
"""A window that ends earlier (ns after the start) shows nothing of a job: (0, 2) means seconds."""
_LEAST_WHOLE_NS = 1e6
"""Whole floats of this size or more are ns, not seconds: 2e9."""


# ---- words and lists -------------------------------------------------------------------------------------------------

Word = TypeVar("Word", bound=str | None)


class Choice(Option[Word, Word]):
    """One of the words of the metavar, or the default."""

    def __set_name__(self, owner: type, name: str) -> None:
        super().__set_name__(owner, name)
        self.words = self.metavar.split("|")
        self.given = Literal[tuple(self.words)]

    def check(self, value: Any) -> Word:
        if value != self.default and value not in self.words:
            *others, last = self.words
            raise UsageError(f"must be {', '.join(others)} or {last}")
        return value


class Names(Words):
    """A list of names, typed with commas between them."""

    repeats = False
    wanted = "a list of texts, or one text with commas"

    def parse(self, text: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())

    def spell(self, value: Any) -> list[str]:
        return [",".join(value)]


class SourceNames(Names):
    """A list of names of sources."""

    def complete(self, start: str) -> list[str]:
        """Return lists of sources with one more name."""
        before, comma, last = start.rpartition(",")
        chosen = before.split(",")
        return [before + comma + name for name in _list_sources(last) if name not in chosen]


class Numbers(ListOption[str | Iterable[int] | None, tuple[int, ...] | None]):
    """A list of integers, typed with ranges: 0-3,8."""

    given = str | Iterable[int]
    wanted = "a list of integers, or a text like '0-3,8'"

    def parse(self, text: str) -> list[int]:
        return parse_number_ranges(text)

    def check(self, value: Any) -> tuple[int, ...]:
        return tuple(map(to_integer, list_elements(value)))

    def spell(self, value: Any) -> list[str]:
        return [format_number_ranges(sorted(value))]


class MinDurations(ListOption[str | Iterable[str] | Mapping[str, int | str] | None, dict[str, int] | None]):
    """The shortest intervals to keep (ns) by source, typed one by one: cuda_api=10us."""

    given = str | Iterable[str] | Mapping[str, int | str]
    repeats = True
    wanted = "a dict of lengths in ns by source, {'cuda_api': 10000}, or a text like 'cuda_api=10us'"

    def check(self, value: Any) -> dict[str, int]:
        given = value if isinstance(value, Mapping) else dict(map(_split_length, list_elements(value)))
        lengths = {}
        for source, length in given.items():
            lengths[source] = parse_time(length) if isinstance(length, str) else to_integer(length)
            if not isinstance(source, str) or lengths[source] < 0:
                raise TypeError
        return lengths

    def spell(self, value: Any) -> list[str]:
        return [f"{source}={format_duration(length)}" for source, length in value.items()]

    def complete(self, start: str) -> list[str]:
        return [f"{name}=" for name in _list_sources(start)]


def _split_length(text: str) -> tuple[str, str]:
    """Return the source and the length of a text like cuda_api=10us. Raises TypeError for anything else."""
    if not isinstance(text, str):
        raise TypeError
    source, _, length = text.partition("=")
    if not source or not length:
        raise UsageError("write SOURCE=TIME, like cuda_api=10us")
    return source, length


def _list_sources(start: str) -> list[str]:
    """Return the names of the sources that start with a text."""
    from nsys2prv_ng.sources.registry import SOURCES  # takes half a second: only to complete a name

    return [source.name for source in SOURCES if source.name.startswith(start)]


# ---- files -----------------------------------------------------------------------------------------------------------


class File(Option[AnyPath | None, Path | None]):
    """The path of a file or folder. An empty path is refused, because it would be the current folder."""

    given = AnyPath
    wanted = "a path"

    def check(self, value: Any) -> Path:
        return to_path(value)


class Files(ListOption[AnyPath | Iterable[AnyPath] | None, tuple[Path, ...] | None]):
    """A list of paths, typed one by one."""

    given = AnyPath | Iterable[AnyPath]
    repeats = True
    wanted = "a path or a list of paths"

    def check(self, value: Any) -> tuple[Path, ...]:
        paths = [value] if isinstance(value, os.PathLike) else list_elements(value)
        return tuple(map(to_path, paths))


class WordOrFile(Option[AnyPath, str]):
    """One of some words, or the path of a file. `keyword_help` lists the words."""

    given = AnyPath

    def check(self, value: Any) -> str:
        try:
            to_path(value)
        except TypeError:
            raise UsageError(f"give {self.keyword_help.rstrip('.')}") from None
        return os.fspath(value)


def to_path(value: Any) -> Path:
    """Return a path. Raises TypeError for anything but a path, and UsageError for a path that no file can have."""
    text = os.fspath(value)
    if not isinstance(text, str):
        raise TypeError
    try:
        is_name = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise UsageError("is no name of a file", value=text)
    if not text:
        raise UsageError("must not be empty", value=text)
    return Path(text)


# ---- lengths of time and sizes ---------------------------------------------------------------------------------------


class Duration(Integer[Number]):
    """A length of time (ns), typed with a unit. The help shows the default as people type it."""

    wanted = "an integer in ns, or a text like '10us'"

    def __init__(self, help: str, default: int | str | None = None, *, shown: str = "", **described: Any):
        typed = self.spell(default)[0] if isinstance(default, int) else default or ""
        kept: Any = self.parse(typed) if typed else None
        super().__init__(help, kept, minimum=0, shown=shown or typed, **described)

    def parse(self, text: str) -> int:
        return parse_time(text)

    def spell(self, value: Any) -> list[str]:
        return [format_duration(value)]


class Size(Duration[Number]):
    """A size (bytes), typed with a unit in powers of 1024."""

    wanted = "an integer in bytes, or a text like '2G'"

    def parse(self, text: str) -> int:
        match = _SIZE.fullmatch(text.strip())
        if text.strip() == "0":
            return 0
        if not match:
            raise UsageError("write a size with a unit (K, M, G, T), like 2G")
        return int(float(match[1]) * _SIZES[match[2].upper()])

    def spell(self, value: Any) -> list[str]:
        return [f"{value / 2**10:.10f}".rstrip("0").rstrip(".") + "K" if value else "0"]


class Amount(Option[float | int | str | None, float | None]):
    """A number above 0, typed with or without a unit in powers of 1000: 6.2e12 or 6.2T."""

    given = float | int | str
    wanted = "a number, or a text like '6.2T'"
    units: ClassVar = _UNITS
    rule = "write a number like 6.2e12 or 6.2T (units K, M, G, T, P, E)"

    def parse(self, text: str) -> float:
        match = _AMOUNT.fullmatch(text.strip())
        if not match or match[2].upper() not in self.units:
            raise UsageError(self.rule)
        return float(match[1]) * self.units[match[2].upper()]

    def check(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not 0 < number < math.inf:
            raise UsageError("must be a finite number above 0")
        return number

    def spell(self, value: Any) -> list[str]:
        return [repr(value)]


class Tflops(Amount):
    """A rate in TFLOP/s, typed with or without a unit: 989, 989T or 1.5P."""

    wanted = "a number in TFLOP/s"
    units: ClassVar = {"": 1.0, "T": 1.0, "P": 1e3}
    rule = "write a number of TFLOP/s, like 989"
    _MOST = 1e6
    """No GPU is near: such a number is in another unit."""

    def check(self, value: Any) -> float:
        number = super().check(value)
        if number > self._MOST:
            raise UsageError("is in TFLOP/s: write a number like 989")
        return number


def parse_time(text: str) -> int:
    """Return the nanoseconds of a time with a unit, like 1.5s, or 78,267.77 us as wxParaver shows it; 0 needs none."""
    match = _TIME.fullmatch(text.strip())
    if text.strip() == "0":
        return 0
    if not match:
        raise UsageError(f"'{text}' is not a time with a unit (ns, us, ms, s), like 250ms")
    unit = _TIMES[match[3]]
    fraction = match[2] or ""
    return int(match[1].replace(",", "")) * unit + int(fraction or 0) * unit // 10 ** len(fraction)


# ---- windows ---------------------------------------------------------------------------------------------------------

Window = TypeVar("Window")


class TimeWindow(Option[str | Limits | list[int | None] | None, Window]):
    """A time (ns) with a start and an end, typed FROM:TO."""

    given = str | Limits
    wanted = "(from, to) in ns, or a text like '1.5s:2s'; None is no limit"

    def parse(self, text: str) -> Any:
        return parse_window(text)

    def check(self, value: Any) -> Any:
        if isinstance(value, tuple | list) and any(map(_is_in_seconds, value)):
            raise _refuse_seconds(value)
        low, high = _read_limits(value)
        if (low or 0) < 0 or (high or 0) < 0:
            raise UsageError("FROM and TO must not be negative")
        if high is not None and high <= (low or 0):
            raise UsageError("FROM is after TO" if high < (low or 0) else "FROM and TO are the same")
        if 0 < (high or low or 0) < _LEAST_NS:
            raise _refuse_seconds(value)
        return low, high

    def spell(self, value: Any) -> list[str]:
        return [":".join("" if limit is None else format_duration(limit) for limit in value)]


class JobTime(TimeWindow[Limits | Literal["gpu"] | None]):
    """A window of a job: two limits, or `gpu` for the time from the first to the last operation of the GPUs."""

    wanted = "(from, to) in ns, 'gpu', or a text like '1.5s:2s'; None is no limit"

    def parse(self, text: str) -> Any:
        if text.strip().lower() == GPU_TIME:
            return GPU_TIME
        if ":" not in text:
            raise UsageError("write FROM:TO with units, like 1.5s:2s, :800ms or 2s:, or gpu")
        return parse_window(text)

    def check(self, value: Any) -> Any:
        return value if isinstance(value, str) else super().check(value)

    def spell(self, value: Any) -> list[str]:
        return [value] if isinstance(value, str) else super().spell(value)


class Steps(Option[str | Limits | list[int | None] | None, Limits | None]):
    """The first and the last step, typed FIRST:LAST or as one number."""

    given = str | Limits
    wanted = "(first, last), or a text like '3:8'; None is no limit"

    def parse(self, text: str) -> Limits:
        match = re.fullmatch(rf"\s*({DIGITS})?(?:(:)\s*({DIGITS})?)?\s*", text)
        if not match or not (match[1] or match[3]):
            raise UsageError("write FIRST:LAST with the numbers of steps, like 3:8, 3:, :8 or 3")
        first, last = (int(limit) if limit else None for limit in (match[1], match[3]))
        return first, last if match[2] else first

    def check(self, value: Any) -> Limits:
        first, last = _read_limits(value)
        if first is not None and last is not None and first > last:
            raise UsageError("FIRST is after LAST")
        return first, last

    def spell(self, value: Any) -> list[str]:
        return [":".join("" if limit is None else str(limit) for limit in value)]


def parse_window(text: str) -> Limits:
    """Return the limits (ns) of FROM:TO; a limit that was not typed is None."""
    limits = text.split(":")
    if len(limits) != 2:
        raise UsageError("write FROM:TO with units, like 1.5s:2s, :800ms or 2s:")
    low, high = (parse_time(limit) if limit else None for limit in limits)
    return low, high


def _read_limits(value: Any) -> Limits:
    """Return two limits. Raises TypeError for anything else."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError
    low, high = (None if limit is None else to_integer(limit) for limit in value)
    return low, high


def _is_in_seconds(value: object) -> bool:
    """Return whether a number is in seconds: whether it is a float, but not a large whole one."""
    if isinstance(value, int) or not isinstance(value, Real) or hasattr(value, "__index__"):
        return False
    return not (float(value).is_integer() and float(value) >= _LEAST_WHOLE_NS)


def _refuse_seconds(value: Iterable[Any]) -> UsageError:
    """Return the error for a window in seconds. It spells the window in ns."""
    try:
        meant = f", {tuple(None if limit is None else round(float(limit) * 1e9) for limit in value)}"
    except (TypeError, ValueError, OverflowError):
        meant = ""
    return UsageError(f"give ns and not seconds{meant}, or a text like '1.5s:2s'")
