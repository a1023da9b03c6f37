"""Checks the values of options, and lists what classes of options declare."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import fields
from typing import Any, Literal, get_type_hints

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.text.option import Option

GPU_TIME = "gpu"
"""The time from the first to the last operation of the GPUs."""

AnyPath = str | os.PathLike[str]
Names = Iterable[str] | None
Numbers = Iterable[int] | None
TimeWindow = tuple[int | None, int | None] | None
JobTime = tuple[int | None, int | None] | Literal["gpu"] | None
"""A time of a job: limits, or from the first to the last operation of the GPUs."""
StepWindow = list[int | None] | tuple[int | None, int | None] | None
"""First and last step; None is no limit."""
Paths = Iterable[AnyPath] | None
MinDurations = Mapping[str, int] | None


def list_options(options: Callable[..., object]) -> dict[str, tuple[Any, Option]]:
    """Return (type, description) by the name of each field that the command line has as an option."""
    described = {}
    for name, hint in get_type_hints(options, include_extras=True).items():
        for note in getattr(hint, "__metadata__", ()):
            if isinstance(note, Option):
                described[name] = hint.__origin__, note
    return described


class Checked:
    """Checks the values of a dataclass of options when it is made."""

    def __post_init__(self) -> None:
        described = list_options(type(self))
        for field in fields(self):  # type: ignore[arg-type]
            if field.name in described:
                _check(field.name, getattr(self, field.name), *described[field.name])
            elif field.name == "progress" and not isinstance(self.progress, Progress | None):  # type: ignore[attr-defined]
                raise UsageError("give an instance of Progress", parameter="progress")


def _check(name: str, value: object, kind: object, option: Option) -> None:
    """Raise UsageError for a value of another type, or one that is too small."""
    if value is None and kind not in (bool, int, str, AnyPath):
        return
    for known, check in _CHECKS:
        if kind == known:
            if message := check(value):
                raise UsageError(message, parameter=name, value=value)
            break
    if option.minimum is not None and value < option.minimum:  # type: ignore[operator]
        raise UsageError(f"must be at least {option.minimum}", parameter=name, value=value)


def _is_integer(value: object) -> bool:
    """Return whether a value is an integer of Python or numpy, and no bool."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _check_list(value: object, kind: type, what: str) -> str:
    """Return what is wrong with a list of texts or numbers, or an empty text."""
    if isinstance(value, str | int | os.PathLike):  # a text would iterate over its letters
        parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else [value]
        return f"give a list, {parts!r}" if all(isinstance(part, kind) for part in parts) else "give a list"
    if not isinstance(value, Iterable):
        return f"give a list of {what}"
    if isinstance(value, Sized) and any(
        not (_is_integer(part) if kind is int else isinstance(part, kind)) for part in value
    ):
        return f"give a list of {what}"
    return ""


def _check_path(value: object) -> str:
    """Return what is wrong with a path, or an empty text. An empty one would be the current folder."""
    if not isinstance(value, str | os.PathLike):
        return "give a path"
    return "" if os.fspath(value) else "must not be empty"


def _check_paths(value: object) -> str:
    """Return what is wrong with a list of paths, or an empty text."""
    wrong = _check_list(value, (str, os.PathLike), "paths")  # type: ignore[arg-type]
    return wrong or next(filter(None, map(_check_path, value if isinstance(value, Sized) else ())), "")  # type: ignore[call-overload]


def _check_window(value: object) -> str:
    """Return what is wrong with the limits of a time, or an empty text."""
    limits = list(value) if isinstance(value, tuple | list) else []
    if len(limits) != 2 or any(limit is not None and not _is_integer(limit) for limit in limits):
        return "give two integers in ns, (from, to); None is no limit"
    low, high = limits
    if (low or 0) < 0 or (high is not None and high <= (low or 0)):
        return "FROM must be earlier than TO, and neither may be negative"
    return ""


def _check_job_time(value: object) -> str:
    """Return what is wrong with a time of a job, or an empty text."""
    if isinstance(value, str):
        return "" if value == GPU_TIME else "give two integers in ns, (from, to), or 'gpu'"
    return _check_window(value)


def _check_steps(value: object) -> str:
    """Return what is wrong with the first and last step, or an empty text."""
    limits = list(value) if isinstance(value, tuple | list) else []
    if len(limits) != 2 or any(limit is not None and not _is_integer(limit) for limit in limits):
        return "give two step numbers, (first, last); None is no limit"
    first, last = limits
    return "FIRST must not be greater than LAST" if None not in limits and first > last else ""


def _check_durations(value: object) -> str:
    """Return what is wrong with lengths by source, or an empty text."""
    is_sound = isinstance(value, Mapping) and all(
        isinstance(source, str) and _is_integer(length) and length >= 0 for source, length in value.items()
    )
    return "" if is_sound else "give a dict of lengths in ns by source, {'cuda_api': 10000}"


def _check_type(kind: type | tuple[type, ...], what: str) -> Callable[[object], str]:
    """Return a check that a value is of a type."""

    def check(value: object) -> str:
        is_sound = _is_integer(value) if kind is int else isinstance(value, kind)
        return "" if is_sound else f"give {what}"

    return check


_CHECKS: tuple[tuple[object, Callable[[object], str]], ...] = (
    (Names, lambda value: _check_list(value, str, "texts")),
    (Numbers, lambda value: _check_list(value, int, "integers")),
    (Paths, _check_paths),
    (TimeWindow, _check_window),
    (JobTime, _check_job_time),
    (StepWindow, _check_steps),
    (MinDurations, _check_durations),
    (bool, _check_type(bool, "True or False")),
    (int, _check_type(int, "an integer")),
    (int | None, _check_type(int, "an integer")),
    (str, _check_type(str, "a text")),
    (str | None, _check_type(str, "a text")),
    (AnyPath, _check_path),
    (AnyPath | None, _check_path),
)
"""What is wrong with a value of each type of option."""


def describe_keywords(options: Callable[..., object]) -> str:
    """Return a line for each keyword of a class of options, for the docstring of a call."""
    return "\n".join(
        f"    {name}: {option.keyword_help or option.help}" for name, (_, option) in list_options(options).items()
    )
