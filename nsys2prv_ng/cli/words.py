"""Finds the command among the words of a command line."""

from __future__ import annotations

import os
from itertools import pairwise

from nsys2prv_ng.cli.app import app
from nsys2prv_ng.errors import UsageError, escape_unprintable

COMMANDS = tuple(command.callback.__name__ for command in app.registered_commands if command.callback)
_HELP = ("-h", "--help")
_VERSION = ("-V", "--version")
_COMPLETION = ("--install-completion", "--show-completion")


def put_command_first(words: list[str]) -> list[str]:
    """Return the words with the command before its options; without one, `translate` runs.

    A report named like a command is reached as ./check. Raises UsageError for a word that is nearly a command, and for
    an empty one.
    """
    # A program that a batch script will start may take empty words, and options say what is wrong with theirs.
    own = words[: words.index("--")] if "slurm" in words and "--" in words else words
    if any(not word and before not in _list_with_values() for before, word in pairwise(["", *own])):
        raise UsageError("an argument is empty: is a variable of the shell not set?")
    if not words or words[0] in (*COMMANDS, *_HELP) or words[0].startswith(_COMPLETION):
        return words
    if words[0] in _VERSION:
        return ["--version"]
    if words[0] == "help" and not os.path.exists("help"):  # noqa: PTH110 (Path raises for what may not be looked at)
        return [*(word for word in words[1:2] if word in COMMANDS), "--help"]
    if words[0].startswith("-"):
        at = _find_command(words)
        return ["translate", *words] if at is None else [words[at], *words[:at], *words[at + 1 :]]
    if nearest := _find_nearest(words[0]):
        raise UsageError(f"{escape_unprintable(words[0])}: no such command or report; did you mean {nearest}?")
    return ["translate", *words]


def _find_command(words: list[str]) -> int | None:
    """Return the index of the first word, if it is a command, that is neither an option nor the value of one."""
    take_values = _list_with_values()
    is_value = False
    for at, word in enumerate(words):
        if not is_value and not word.startswith("-"):
            return at if word in COMMANDS and not os.path.exists(word) else None  # noqa: PTH110
        if word == "--":
            return None
        is_value = not is_value and word in take_values
    return None


def _list_with_values() -> set[str]:
    """Return the options of all commands that take a value, long and short."""
    import typer.main

    commands = typer.main.get_command(app).commands.values()  # type: ignore[attr-defined]
    options = [option for command in commands for option in command.params if option.param_type_name == "option"]
    return {flag for option in options if not option.is_flag for flag in option.opts}


def _find_nearest(word: str) -> str:
    """Return the command that a word nearly is, if it is no report, else an empty text."""
    if os.path.exists(word):  # noqa: PTH110
        return ""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, COMMANDS, n=1, cutoff=0.75)), "")
