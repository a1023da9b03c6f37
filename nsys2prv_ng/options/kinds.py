"""What an option is, and a parse function for each kind of value.

A class of options is a dataclass, and each of its fields describes one option:

    ranks: Numbers = Option("Only these ranks.", metavar="0-3,8", shown="all")

The type of a field says what may be given, what is kept, and which function converts one to the other:

    Numbers = Annotated[Option[str | Iterable[int] | None, tuple[int, ...] | None], parse_numbers]

Such a parse function takes a text as people type it (`10us`, `2G`, `1.5s:2s`) or a Python value, and raises UsageError
with what to write. Times are ns and sizes bytes, in Python as integers. The command line, the keywords of the Python
calls, and the references in docs/ are made from these fields. A module with such a class does not import annotations
from __future__: its annotations must be types, not texts.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from io import IOBase
from itertools import islice
from numbers import Real
from operator import index
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.runtime.files import find_obstacle
from nsys2prv_ng.text.formatting import DIGITS, LONGEST_SHOWN, MOST_ELEMENTS, parse_number_ranges

Given = TypeVar("Given")
Kept = TypeVar("Kept")


@dataclass(eq=False, repr=False)
class Option(Generic[Given, Kept]):
    """An option, in Python and on the command line: a descriptor, which reads what is assigned to its field.

    `default`: as people type it or as it is kept; None that is given keeps a default of None. `metavar` stands for the
    value in the help, and `shown` describes the default there, if its value does not. `flag` replaces the flag that is
    made from the name of the field; `short` is a flag of one letter in addition. `keyword_help` describes the keyword
    in Python, if `help` does not fit it. `repeats`: whether people type the option once for each element. `source`: the
    kind of event that the option needs. `complete` returns the values that start with a text; without it, these are the
    lower-case words of a metavar like auto|FILE.
    """

    help: str
    default: Any = None
    metavar: str = ""
    shown: str = ""
    flag: str = ""
    short: str = ""
    keyword_help: str = ""
    repeats: bool = False
    source: str = ""
    complete: Callable[[str], list[str]] | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        *_, self.parse = owner.__annotations__[name].__metadata__
        typed = self.default
        self.default = None if typed is None else self.parse(typed)
        if self.default != typed:
            self.shown = self.shown or typed
        self.name = name
        self.flag = self.flag or f"--{name.replace('_', '-')}"

    def __get__(self, instance: object, owner: type | None = None) -> Kept:
        """Return the value of an instance, or the default for a class, as dataclasses expect."""
        return self.default if instance is None else instance.__dict__[self.name]

    def __set__(self, instance: object, value: Given) -> None:
        """Read and keep a value. Raises UsageError with the parameter, and AttributeError if a value is set already."""
        if self.name in instance.__dict__:
            raise AttributeError(f"{self.name} cannot be changed; make other options with dataclasses.replace")
        is_unset = value is None and self.default is None
        instance.__dict__[self.name] = None if is_unset else read(self.parse, value, self.name)

    @property
    def is_flag(self) -> bool:
        """Whether the option has no value on the command line, but inverts the default."""
        return isinstance(self.default, bool)

    def list_completions(self, start: str) -> list[str]:
        """Return the values that start with a text. Shells complete file names themselves."""
        if self.complete is not None:
            return self.complete(start)
        words = self.metavar.split("|") if "|" in self.metavar else []
        return [word for word in words if re.fullmatch("[a-z]+", word) and word.startswith(start)]


def list_options(options: type[object]) -> dict[str, Option[Any, Any]]:
    """Return the options that a class and its bases declare, by name."""
    attributes = [attribute for base in reversed(options.__mro__) for attribute in vars(base).items()]
    return {name: option for name, option in attributes if isinstance(option, Option)}


def read(parse: Callable[[Any], Kept], value: Any, parameter: str) -> Kept:
    """Return what a parse function makes of a value.

    Raises UsageError that names the parameter, and shows the value unless it is long.
    """
    if isinstance(value, Iterator) and not isinstance(value, IOBase):  # read once, so that an error can show it
        value = list(islice(value, MOST_ELEMENTS + 1))
    try:
        return parse(value)
    except UsageError as error:
        shown = value if error.value is None else error.value
        shown = shown if len(repr(shown)) <= LONGEST_SHOWN else None
        raise UsageError(error.message, parameter=parameter, value=shown) from None


def asks_for(wanted: str) -> Callable[[Callable[[Any], Kept]], Callable[[Any], Kept]]:
    """Return a decorator of parse functions: their TypeError for a value becomes a UsageError with what is wanted."""

    def decorate(parse: Callable[[Any], Kept]) -> Callable[[Any], Kept]:
        @wraps(parse)
        def parse_or_ask(value: Any) -> Kept:
            try:
                return parse(value)
            except TypeError:
                raise UsageError(f"give {wanted}") from None

        return parse_or_ask

    return decorate


# ---- flags, texts and numbers ----------------------------------------------------------------------------------------

Integer = Option[int | str, int]
OptionalInteger = Option[int | str | None, int | None]

_MOST = 2**62
"""Largest absolute value of an integer: times are computed from 1970 with 64 bits."""


@asks_for("True or False")
def parse_flag(value: Any) -> bool:
    """Return True or False."""
    if not isinstance(value, bool):
        raise TypeError
    return value


Flag = Annotated[Option[bool, bool], parse_flag]


def _to_text(value: Any) -> str:
    """Return a text. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError
    return value


parse_text = asks_for("a text; '' is no choice")(_to_text)
Text = Annotated[Option[str, str], parse_text]


def one_of(*words: str) -> Callable[[Any], Any]:
    """Return a parse function for one of some words. An empty one is no choice, and no error lists it."""
    *others, last = filter(None, words)

    def parse(value: Any) -> Any:
        if value not in words:
            raise UsageError(f"must be {', '.join(others)} or {last}")
        return value

    return parse


def at_least(minimum: int) -> Callable[[Any], int]:
    """Return a parse function for integers."""

    @asks_for("an integer")
    def parse(value: Any) -> int:
        if isinstance(value, str) and not re.fullmatch(rf"\s*-?{DIGITS}\s*", value):
            raise UsageError("write a whole number")
        return _refuse_less(int(value) if isinstance(value, str) else _to_integer(value), minimum)

    return parse


def _to_integer(value: Any) -> int:
    """Return an integer of Python or numpy as a Python integer. Raises TypeError for other types, and for bool."""
    if isinstance(value, bool):
        raise TypeError
    number = index(value)
    if abs(number) > _MOST:
        raise UsageError("too large a number")
    return number


def _refuse_less(number: int, minimum: int) -> int:
    """Return a number. Raises UsageError if it is too small."""
    if number < minimum:
        raise UsageError(f"must be at least {minimum}")
    return number


# ---- lists -----------------------------------------------------------------------------------------------------------

_Texts = Option[str | Iterable[str] | None, tuple[str, ...] | None]


@asks_for("a list of texts")
def parse_words(value: Any) -> tuple[str, ...]:
    """Return texts; a single text is a list of one."""
    return (value,) if isinstance(value, str) else tuple(map(_to_text, _list_elements(value)))


Words = Annotated[_Texts, parse_words]


@asks_for("a list of texts, or one text with commas")
def parse_names(value: Any) -> tuple[str, ...]:
    """Return names, typed with commas between them."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return tuple(map(_to_text, _list_elements(value)))


Names = Annotated[_Texts, parse_names]


@asks_for("a list of integers, or a text like '0-3,8'")
def parse_numbers(value: Any) -> tuple[int, ...]:
    """Return integers, typed with ranges: 0-3,8."""
    return tuple(map(_to_integer, parse_number_ranges(value) if isinstance(value, str) else _list_elements(value)))


Numbers = Annotated[Option[str | Iterable[int] | None, tuple[int, ...] | None], parse_numbers]


@asks_for("a dict of lengths in ns by source, {'cuda_api': 10000}, or a text like 'cuda_api=10us'")
def parse_min_durations(value: Any) -> dict[str, int]:
    """Return the shortest intervals to keep (ns) by source, typed one by one: cuda_api=10us."""
    if not isinstance(value, Mapping):
        value = dict(map(_split_length, [value] if isinstance(value, str) else _list_elements(value)))
    lengths = {}
    for source, length in value.items():
        lengths[source] = parse_time(length) if isinstance(length, str) else _to_integer(length)
        if not isinstance(source, str) or lengths[source] < 0:
            raise TypeError
    return lengths


MinDurations = Annotated[
    Option[str | Iterable[str] | Mapping[str, int | str] | None, dict[str, int] | None], parse_min_durations
]


def _split_length(text: Any) -> tuple[str, str]:
    """Return the source and the length of a text like cuda_api=10us. Raises TypeError for anything else."""
    if not isinstance(text, str):
        raise TypeError
    source, _, length = text.partition("=")
    if not source or not length:
        raise UsageError("write SOURCE=TIME, like cuda_api=10us")
    return source, length


def _list_elements(value: Any) -> list[Any]:
    """Return the elements of a list. Raises TypeError for anything else."""
    if isinstance(value, str | bytes):
        raise TypeError
    elements = list(islice(value, MOST_ELEMENTS + 1))
    if len(elements) > MOST_ELEMENTS:
        raise UsageError("is longer than any job")
    return elements


def complete_sources(start: str) -> list[str]:
    """Return lists of names of sources, with one more name than is typed."""
    before, comma, last = start.rpartition(",")
    chosen = before.split(",")
    return [before + comma + name for name in _find_sources(last) if name not in chosen]


def complete_min_duration(start: str) -> list[str]:
    """Return the names of sources that start with a text, before the length."""
    return [f"{name}=" for name in _find_sources(start)]


def _find_sources(start: str) -> list[str]:
    """Return the names of the sources that start with a text."""
    from nsys2prv_ng.sources.registry import SOURCES  # takes half a second: only to complete a name

    return [source.name for source in SOURCES if source.name.startswith(start)]


# ---- files -----------------------------------------------------------------------------------------------------------

AnyPath = str | os.PathLike[str]

ALIGNMENTS = "'auto', 'utc', 'collectives', 'none', or a file that align_report wrote"


def _to_path(value: Any) -> Path:
    """Return a path. Raises TypeError for anything else.

    Raises UsageError for a path that no file can have, and for an empty one, which would be the current folder.
    """
    text = os.fspath(value)
    if not isinstance(text, str):
        raise TypeError
    try:
        is_valid = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_valid = False
    if not is_valid:
        raise UsageError("is not a valid file name", value=text)
    if not text:
        raise UsageError("must not be empty", value=text)
    return Path(text)


parse_path = asks_for("a path")(_to_path)
_OptionalPath = Option[AnyPath | None, Path | None]
File = Annotated[_OptionalPath, parse_path]


def new_file(what: str, *suffixes: str) -> Callable[[Any], Path]:
    """Return a parse function for the path of a file that can be written, so that nothing is read for one that cannot.

    `what`: its contents. `suffixes`: the ends that its name may have, the usual one first.
    """

    def parse(value: Any) -> Path:
        file = parse_path(value)
        if file.suffix.lower() not in suffixes:
            raise UsageError(f"{what} must be named *{suffixes[0]}")
        if not file.parent.is_dir():
            raise UsageError("its folder does not exist; make it first")
        if obstacle := find_obstacle(file):
            raise UsageError(obstacle)
        _try_folder("its folder", file.parent)
        return file

    return parse


def _try_folder(name: str, folder: Path) -> None:
    """Raise UsageError if no file can be made in a folder."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{name} takes no file: {error.strerror}") from None


Page = Annotated[_OptionalPath, new_file("the page", ".html", ".htm")]


def parse_saved(value: Any) -> Path:
    """Return the file for a saved summary, or the folder that keeps several."""
    path = parse_path(value)
    if str(value).endswith("/") and path.parent.is_dir():
        with suppress(OSError):  # what it is instead, the check of its name says
            path.mkdir(exist_ok=True)
    if not path.is_dir() or path.suffix.lower() == ".json":
        return new_file("the file", ".json")(path)
    _try_folder("this folder", path)
    return path


SavedSummary = Annotated[_OptionalPath, parse_saved]


def parse_history(value: Any) -> Path:
    """Return a folder of saved summaries that can be read."""
    path = parse_path(value)
    if not path.is_dir():
        raise UsageError("no such folder; make it, and add captures with nsys2prv-ng summary REPORT... --save FOLDER")
    return path


History = Annotated[_OptionalPath, parse_history]


@asks_for("a path or a list of paths")
def parse_paths(value: Any) -> tuple[Path, ...]:
    """Return paths; a single path is one of them."""
    return tuple(map(_to_path, [value] if isinstance(value, str | os.PathLike) else _list_elements(value)))


@asks_for(ALIGNMENTS)
def parse_align(value: Any) -> str:
    """Return a way to align clocks: a word, or the path of a file."""
    _to_path(value)
    return os.fspath(value)


WordOrFile = Annotated[Option[AnyPath, str], parse_align]


# ---- times and sizes -------------------------------------------------------------------------------------------------

Limits = tuple[int | None, int | None]
"""Two limits; None stands for no limit."""
GPU_TIME: Literal["gpu"] = "gpu"
"""The time from the first to the last operation of the GPUs."""

_TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
# Commas only if a blank precedes the unit, as in wxParaver: in 1,500s the comma may be a decimal one.
_TIME = re.compile(rf"({DIGITS}|[0-9]{{1,3}}(?:,[0-9]{{3}}){{1,5}}(?=[.0-9]* ))(?:\.([0-9]{{0,18}}))? ?(ns|us|ms|s)")
_SIZES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(rf"({DIGITS}(?:\.{DIGITS})?)([KMGT])i?B?", re.IGNORECASE)
_LEAST_NS = 1000
"""A window that ends earlier (ns after the start) shows nothing of a job: (0, 2) means seconds."""
_LEAST_WHOLE_NS = 1e6
"""Whole floats of this size or more are ns, not seconds: 2e9."""


@asks_for("an integer in ns, or a text like '10us'")
def parse_duration(value: Any) -> int:
    """Return a length of time (ns), typed with a unit."""
    return parse_time(value) if isinstance(value, str) else _refuse_less(_to_integer(value), 0)


Duration = Annotated[Integer, parse_duration]


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


@asks_for("an integer in bytes, or a text like '2G'")
def parse_size(value: Any) -> int:
    """Return a size (bytes), typed with a unit in powers of 1024."""
    if not isinstance(value, str):
        return _refuse_less(_to_integer(value), 0)
    match = _SIZE.fullmatch(value.strip())
    if value.strip() == "0":
        return 0
    if not match:
        raise UsageError("write a size with a unit (K, M, G, T), like 2G")
    return int(float(match[1]) * _SIZES[match[2].upper()])


@asks_for("(from, to) in ns, 'gpu', or a text like '1.5s:2s'; None is no limit")
def parse_job_time(value: Any) -> Limits | Literal["gpu"]:
    """Return the limits (ns) of a time, typed FROM:TO, or `gpu`."""
    if isinstance(value, str):
        if value.strip().lower() == GPU_TIME:
            return GPU_TIME
        if ":" not in value:
            raise UsageError("write FROM:TO with units, like 1.5s:2s, :800ms or 2s:, or gpu")
        value = parse_window(value)
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


JobTime = Annotated[Option[str | Limits | list[int | None] | None, Limits | Literal["gpu"] | None], parse_job_time]


def parse_window(text: str) -> Limits:
    """Return the limits (ns) of FROM:TO; a limit that was not typed is None."""
    limits = text.split(":")
    if len(limits) != 2:
        raise UsageError("write FROM:TO with units, like 1.5s:2s, :800ms or 2s:")
    low, high = (parse_time(limit) if limit else None for limit in limits)
    return low, high


@asks_for("(first, last), or a text like '3:8'; None is no limit")
def parse_steps(value: Any) -> Limits:
    """Return the first and the last step, typed FIRST:LAST or as one number."""
    if isinstance(value, str):
        match = re.fullmatch(rf"\s*({DIGITS})?(?:(:)\s*({DIGITS})?)?\s*", value)
        if not match or not (match[1] or match[3]):
            raise UsageError("write FIRST:LAST with the numbers of steps, like 3:8, 3:, :8 or 3")
        first, last = (int(limit) if limit else None for limit in (match[1], match[3]))
        value = first, last if match[2] else first
    first, last = _read_limits(value)
    if first is not None and last is not None and first > last:
        raise UsageError("FIRST is after LAST")
    return first, last


Steps = Annotated[Option[str | Limits | list[int | None] | None, Limits | None], parse_steps]


def _read_limits(value: Any) -> Limits:
    """Return two limits. Raises TypeError for anything else."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError
    low, high = (None if limit is None else _to_integer(limit) for limit in value)
    return low, high


def _is_in_seconds(value: object) -> bool:
    """Return whether a number is in seconds: whether it is a float, but not a large whole one."""
    if isinstance(value, int) or not isinstance(value, Real) or hasattr(value, "__index__"):
        return False
    return not (float(value).is_integer() and float(value) >= _LEAST_WHOLE_NS)


def _refuse_seconds(value: Iterable[Any]) -> UsageError:
    """Return the error for a window in seconds, with the window in ns."""
    try:
        meant = f", {tuple(None if limit is None else round(float(limit) * 1e9) for limit in value)}"
    except (TypeError, ValueError, OverflowError):
        meant = ""
    return UsageError(f"give ns and not seconds{meant}, or a text like '1.5s:2s'")
