"""Finds the command among the words of a command line, also when a shell asks for completions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

from typer.core import TyperGroup

from nsys2prv_ng.errors import UsageError, escape_unprintable

_HELP = ("-h", "--help")
_VERSION = ("-V", "--version")
_COMPLETION = ("--install-completion", "--show-completion")


class CompletedGroup(TyperGroup):
    """The group of all commands. When a shell asks for completions, it finds the command as the program does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:
            with suppress(UsageError):
                args = put_command_first(args, self.commands)
        return super().parse_args(ctx, args)


def put_command_first(words: list[str], commands: Mapping[str, Any]) -> list[str]:
    """Return the words with the command before its options; without one, `translate` runs.

    `commands`: all commands by name. A report named like a command is reached as ./check. Raises UsageError for a word
    that is nearly a command, and for an empty word.
    """
    # The program that a batch script starts may take empty words, and options report their empty values themselves.
    ours = words[: words.index("--")] if "slurm" in words and "--" in words else words
    take_values = _list_value_flags(commands)
    if any(not word and before not in take_values for before, word in pairwise(["", *ours])):
        raise UsageError("an argument is empty: is a variable of the shell not set?")
    if not words or words[0] in (*commands, *_HELP) or words[0].startswith(_COMPLETION):
        return words
    if words[0] in _VERSION:
        return ["--version"]
    if words[0] == "help" and not os.path.exists("help"):  # noqa: PTH110 (Path raises if it may not look there)
        asked = [word for word in words[1:2] if not word.startswith("-")]
        if asked and asked[0] not in commands:
            nearest = _guess(asked[0], commands)
            remedy = f"did you mean help {nearest}?" if nearest else f"the commands are {', '.join(commands)}"
            raise UsageError(f"{escape_unprintable(asked[0])}: no such command; {remedy}")
        return [*asked, "--help"]
    if words[0].startswith("-"):
        at = _find_command(words, commands, take_values)
        return ["translate", *words] if at is None else [words[at], *words[:at], *words[at + 1 :]]
    # Path would raise where it may not look.
    if not os.path.exists(words[0]) and (nearest := _guess(words[0], [*commands, "help"])):  # noqa: PTH110
        raise UsageError(f"{escape_unprintable(words[0])}: no such command or report; did you mean {nearest}?")
    return ["translate", *words]


def _find_command(words: list[str], commands: Mapping[str, Any], take_values: set[str]) -> int | None:
    """Return the index of the first word that is neither an option nor its value, if it is a command."""
    is_value = False
    for at, word in enumerate(words):
        if not is_value and not word.startswith("-"):
            return at if word in commands and not os.path.exists(word) else None  # noqa: PTH110
        if word == "--":
            return None
        is_value = not is_value and word in take_values
    return None


def _list_value_flags(commands: Mapping[str, Any]) -> set[str]:
    """Return the flags, long and short, of the options of all commands that take a value."""
    options = [option for command in commands.values() for option in command.params]
    return {
        flag for option in options if option.param_type_name == "option" and not option.is_flag for flag in option.opts
    }


def _guess(word: str, commands: Iterable[str]) -> str:
    """Return the command that a word nearly is; an empty text if there is none."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, commands, n=1, cutoff=0.75)), "")
