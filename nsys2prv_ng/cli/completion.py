"""Completes words in the user's shell: values of options, and the command that runs where none is typed."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from typer.core import TyperGroup

from nsys2prv_ng.errors import UsageError

_NAMES_OF_SOURCES = ("sources", "min_duration")


class CompletedGroup(TyperGroup):
    """The commands. In words that a shell wants completed, it finds the command as the program does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:
            from nsys2prv_ng.cli.words import put_command_first  # which needs the commands

            with suppress(UsageError):
                args = put_command_first(args)
        return super().parse_args(ctx, args)


def make_completer(name: str, metavar: str) -> Callable[[str], list[str]] | None:
    """Return what lists the values of an option that begin with a text; None where the shell completes files.

    The words of a metavar like auto|utc|FILE are such values, but for those in capitals.
    """
    if name in _NAMES_OF_SOURCES:
        return _complete_sources if name == "sources" else _complete_source
    words = [word for word in metavar.split("|") if re.fullmatch("[a-z]+", word)] if "|" in metavar else []

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete if words else None


def _complete_sources(incomplete: str) -> list[str]:
    """Return lists of sources with one name more."""
    before, comma, last = incomplete.rpartition(",")
    chosen = before.split(",")
    return [before + comma + name for name in _list_sources(last) if name not in chosen]


def _complete_source(incomplete: str) -> list[str]:
    """Return the beginnings of SOURCE=TIME."""
    return [f"{name}=" for name in _list_sources(incomplete)]


def _list_sources(start: str) -> list[str]:
    """Return the names of the sources that begin with a text."""
    from nsys2prv_ng.sources.registry import SOURCES  # half a second: only where a name is asked for

    return [source.name for source in SOURCES if source.name.startswith(start)]
