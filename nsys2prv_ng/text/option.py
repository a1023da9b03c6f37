"""Options: how each is described, and how its values are read, checked, spelled and completed.

A class of options is a dataclass, and each of its fields is an option of some kind:

    ranks: Numbers = Numbers("Only these ranks.", metavar="0-3,8", shown="all")

A kind is a class: a descriptor that reads what is assigned to the field, either a text as people type it or a Python
value, and keeps a plain value. The command line, the Python calls and the documentation are made from these fields.
options/kinds.py has more kinds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import index
from typing import Any, ClassVar, Generic, TypeVar

from nsys2prv_ng.errors import UsageError

Given = TypeVar("Given")
Kept = TypeVar("Kept")
Number = TypeVar("Number", int, int | None)

DIGITS = "[0-9]{1,18}"
"""Longer numbers do not fit into 64 bits, and Python does not read a number of more than 4,300 digits."""
MOST_ELEMENTS = 10**6
"""Most elements of a list: no job has as many ranks."""
_LONGEST_SHOWN = 200
"""Characters of the longest value that an error shows."""
_MOST = 2**62
"""Largest absolute value of an integer: times are computed from 1970 with 64 bits."""


class Option(Generic[Given, Kept]):
    """An option, named after the field that it is assigned to, in Python and on the command line.

    `metavar` stands for the value in the help. `shown` describes a default of None. `flag` replaces the flag that is
    made from the name of the field; `short` is a flag of one letter in addition. `keyword_help` describes the Python
    keyword, if the help of the command line does not fit it.
    """

    given: Any = str
    """The type of values that Python calls accept, besides None if that is the default."""
    unset: ClassVar[Any] = None
    """The default value if the field sets none."""
    repeats: ClassVar[bool] = False
    """Whether users type the option once for each element."""
    wanted = ""
    """What an error asks for if a value has a wrong type."""

    def __init__(
        self,
        help: str,
        default: Kept | None = None,
        *,
        metavar: str = "",
        shown: str = "",
        flag: str = "",
        short: str = "",
        keyword_help: str = "",
    ) -> None:
        self.help, self.metavar, self.shown = help, metavar, shown
        self.flag, self.short, self.keyword_help = flag, short, keyword_help
        self.name = ""
        self.default: Kept = self.unset if default is None else default

    def __set_name__(self, owner: type, name: str) -> None:
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
        instance.__dict__[self.name] = None if is_unset else self.read(value, self.name)

    def read(self, value: Any, name: str) -> Any:
        """Return the value to keep for a given value. Raises UsageError with the parameter and what to write."""
        try:
            return self.check(self.parse(value) if isinstance(value, str) else value)
        except TypeError:
            error = UsageError(f"give {self.wanted}")
        except UsageError as raised:
            error = raised
        raise blame_value(error.message, name, value if error.value is None else error.value)

    def parse(self, text: str) -> Any:
        """Return the value that a text stands for. Raises UsageError for a wrong text."""
        return text

    def check(self, value: Any) -> Any:
        """Return a value as plain types. Raises TypeError for a wrong type, and UsageError for a wrong value."""
        raise NotImplementedError

    def spell(self, value: Any) -> list[str]:
        """Return the texts that people type for a value, one for each use of the option; an empty text for a flag."""
        return [str(value)]

    def complete(self, start: str) -> list[str]:
        """Return the values that start with a text: the lower-case words of a metavar such as auto|utc|FILE.

        Shells complete file names themselves.
        """
        words = self.metavar.split("|") if "|" in self.metavar else []
        return [word for word in words if re.fullmatch("[a-z]+", word) and word.startswith(start)]


def list_options(options: type[object]) -> dict[str, Option[Any, Any]]:
    """Return the options that a class and its bases declare, by name."""
    return {
        name: option
        for base in reversed(options.__mro__)
        for name, option in vars(base).items()
        if isinstance(option, Option)
    }


class Flag(Option[bool, bool]):
    """True or False. On the command line it has no value: it inverts the default."""

    given = bool
    unset = False
    wanted = "True or False"

    def check(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise TypeError
        return value

    def spell(self, value: Any) -> list[str]:
        return [""]


class Text(Option[str, str]):
    """A text; an empty text means no choice."""

    unset = ""
    wanted = "a text; '' is no choice"

    def check(self, value: Any) -> str:
        if not isinstance(value, str):
            raise TypeError
        return value


class Integer(Option[Number | str, Number]):
    """An integer of Python or numpy, or a text of its digits."""

    given = int | str
    wanted = "an integer"

    def __init__(self, help: str, default: Number | None = None, *, minimum: int | None = None, **described: str):
        super().__init__(help, default, **described)
        self.minimum = minimum

    def parse(self, text: str) -> int:
        if not re.fullmatch(rf"\s*-?{DIGITS}\s*", text):
            raise UsageError("write a whole number")
        return int(text)

    def check(self, value: Any) -> int:
        number = to_integer(value)
        if self.minimum is not None and number < self.minimum:
            raise UsageError(f"must be at least {self.minimum}")
        return number


class ListOption(Option[Given, Kept]):
    """A list, typed one by one. An iterator is read only once, so that errors can show its elements."""

    def __set__(self, instance: object, value: Given) -> None:
        elements: Any = list(islice(value, MOST_ELEMENTS + 1)) if isinstance(value, Iterator) else value
        super().__set__(instance, elements)

    def parse(self, text: str) -> Any:
        return [text]

    def spell(self, value: Any) -> list[str]:
        return list(map(str, value))


class Words(ListOption[str | Iterable[str] | None, tuple[str, ...] | None]):
    """A list of texts, each typed with an option of its own."""

    given = str | Iterable[str]
    repeats = True
    wanted = "a list of texts"

    def check(self, value: Any) -> tuple[str, ...]:
        words = tuple(list_elements(value))
        if not all(isinstance(word, str) for word in words):
            raise TypeError
        return words


def blame_value(message: str, parameter: str, value: object) -> UsageError:
    """Return an error about the value of a parameter, which is not shown if it is long."""
    return UsageError(message, parameter=parameter, value=value if len(repr(value)) <= _LONGEST_SHOWN else None)


def quote_shortened(text: str) -> str:
    """Return a text in quotes, its end missing if an error cannot show it all."""
    return repr(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "...")


def to_integer(value: Any) -> int:
    """Return an integer of Python or numpy as a Python integer. Raises TypeError for other types, and for bool."""
    if isinstance(value, bool):
        raise TypeError
    number = index(value)
    if abs(number) > _MOST:
        raise UsageError("too large a number")
    return number


def list_elements(value: Any) -> list[Any]:
    """Return the elements of a list. Raises TypeError for anything else."""
    if isinstance(value, str | bytes):
        raise TypeError
    elements = list(islice(value, MOST_ELEMENTS + 1))
    if len(elements) > MOST_ELEMENTS:
        raise UsageError("is longer than any job")
    return elements


def parse_number_ranges(text: str) -> list[int]:
    """Return the integers of a text like 0-3,8, in ascending order. Raises UsageError."""
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(rf"\s*({DIGITS})(?:-({DIGITS}))?\s*", part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise UsageError(f"{quote_shortened(part)} is not a number or range such as 0-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= MOST_ELEMENTS:
            raise UsageError(f"{quote_shortened(part)} is longer than any job")
        numbers.update(range(first, last + 1))
    return sorted(numbers)
