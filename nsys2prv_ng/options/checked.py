"""Checks the values of options, and lists what classes of options declare."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal, get_type_hints

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options import values
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.text.option import Option

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
    """Checks the values of a dataclass of options when it is made, and keeps them as plain values.

    What can be iterated over becomes a tuple, since a call may need it twice, and integers of numpy those of Python.
    """

    def __post_init__(self) -> None:
        described = list_options(type(self))
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.name in described:
                object.__setattr__(self, field.name, _read(field.name, value, *described[field.name]))
            elif field.name == "progress" and not isinstance(value, Progress | None):
                raise UsageError("give an instance of Progress", parameter="progress")


def _read(name: str, value: Any, kind: object, option: Option) -> Any:
    """Return the value that the options keep. Raises UsageError for one of another type, or that is too small."""
    if value is None and kind not in (bool, int, str, AnyPath):
        return None
    given = values.list_once(value) if kind in (Names, Numbers, Paths) else value
    shown = given if len(repr(given)) <= values.LONGEST_SHOWN else None
    read = next((read for known, read in _READERS if kind == known), None)
    if read is None:  # one of several words, which the class checks
        return value
    try:
        value = read(given, option)
    except UsageError as error:
        raise UsageError(error.message, parameter=name, value=shown) from None
    if option.minimum is not None and value < option.minimum:
        raise UsageError(f"must be at least {option.minimum}", parameter=name, value=shown)
    return value


_READERS: tuple[tuple[object, Callable[[object, Option], Any]], ...] = (
    (Names, values.read_names),
    (Numbers, values.read_numbers),
    (Paths, values.read_paths),
    (TimeWindow, values.read_window),
    (JobTime, values.read_job_time),
    (StepWindow, values.read_steps),
    (MinDurations, values.read_durations),
    (bool, values.read_flag),
    (int, values.read_integer),
    (int | None, values.read_integer),
    (str, values.read_text),
    (str | None, values.read_text),
    (AnyPath, values.read_path),
    (AnyPath | None, values.read_path),
)
"""What reads a value of each type of option."""


def describe_keywords(options: Callable[..., object]) -> str:
    """Return a line for each keyword of a class of options, for the docstring of a call."""
    return "\n".join(
        f"    {name}: {option.keyword_help or option.help}" for name, (_, option) in list_options(options).items()
    )
