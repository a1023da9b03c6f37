"""How an option is described, once for the command line, the Python interface and the documentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Option:
    """The description of an option. It annotates the field of a dataclass, whose name, type and default are its own.

    `metavar` stands for the value in the help. `flag` is the command line's spelling, where it is not the name of the
    field with dashes; `short` is one letter more. `default` says what None stands for.
    `minimum` is the least value. `unit` is that of an integer, which people type with a unit of their own: 10us, 2G.
    `repeats`: the option is typed once for each element. `keyword_help` describes the Python keyword, where the help of
    the option does not fit it.
    """

    help: str
    metavar: str = ""
    flag: str = ""
    short: str = ""
    default: str = ""
    minimum: int | None = None
    unit: Literal["", "ns", "bytes"] = ""
    repeats: bool = False
    keyword_help: str = ""

    def get_flag(self, name: str) -> str:
        """Return the command line's spelling of a field."""
        return self.flag or f"--{name.replace('_', '-')}"
