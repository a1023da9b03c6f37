"""Puts the commands together, finds the command on a command line, runs it, and turns errors into a line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nsys2prv_ng.cli.recording import record, run_rank
from nsys2prv_ng.cli.run import COMMAND_BEHIND, PROGRAM, SETTINGS, run_app
from nsys2prv_ng.cli.setup import cfgs, precompile, slurm
from nsys2prv_ng.cli.summary import SidesCommand, compare, inspect, summary, what_if
from nsys2prv_ng.cli.traces import check, export, shard, translate
from nsys2prv_ng.errors import UsageError, find_nearest, suggest
from nsys2prv_ng.runtime.limits import keep_freed_memory, refuse_pandas
from nsys2prv_ng.version import __version__

# Numba, pyarrow and json are imported where they are used, so that --help and usage errors come at once.

_OF_PROGRAM = ("-h", "--help", "-V", "--version")
_GONE = {
    "cut": "translate --time writes a window, and wxParaver's Cut & Filter or paramedir -c cuts a trace",
    "merge": "translate takes the folder of shards: nsys2prv-ng translate FOLDER OUT.prv",
}
"""Commands that have gone, and what does their work."""
_NEARLY = 0.75
"""Least likeness of a word to a command that it may be: of less, a missing report is as likely."""
_TAKE_PROGRAMS = {"run-rank", "record", "slurm"}
"""Commands whose last words are a program and its arguments."""


class CommandGroup(TyperGroup):
    """The group of all commands, which finds the command also behind its options, or chooses `translate`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            args = put_command_first(args, self.commands)
        except UsageError:
            if not ctx.resilient_parsing:  # a shell asks for completions
                raise
        return super().parse_args(ctx, args)


app = typer.Typer(cls=CommandGroup, **SETTINGS)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.callback(
    epilog="If the first word is not a command, it is the first report: nsys2prv-ng REPORT... OUT.prv translates."
    " Options: nsys2prv-ng translate --help."
)
def _common(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Translate NVIDIA Nsight Systems reports of every rank of a job into one Paraver trace."""


app.command()(translate)
app.command()(summary)
app.command()(what_if)
app.command(cls=SidesCommand)(compare)
app.command()(inspect)
app.command()(export)
app.command()(check)
app.command()(cfgs)
app.command()(precompile)
app.command()(shard)
app.command(**COMMAND_BEHIND)(run_rank)
app.command(**COMMAND_BEHIND)(record)
app.command(**COMMAND_BEHIND)(slurm)


# ---- the command on a command line -----------------------------------------------------------------------------------


def put_command_first(words: list[str], commands: Mapping[str, Any]) -> list[str]:
    """Return the words with the command before its options; without one, `translate` runs.

    `commands`: all commands by name. A report named like a command is reached as ./check. Raises UsageError for a word
    that is nearly a command, and for an empty word.
    """
    # The program that a batch script starts may take empty words, and options report their empty values themselves.
    ours = words[: words.index("--")] if "--" in words and _TAKE_PROGRAMS.intersection(words) else words
    take_values = _list_value_flags(commands)
    if any(not word and before not in take_values for before, word in pairwise(["", *ours])):
        raise UsageError("an argument is empty: is a variable of the shell not set?")
    if not words or words[0] in (*commands, *_OF_PROGRAM) or words[0].startswith(("--install-comp", "--show-comp")):
        return words
    # Path would raise where it may not look.
    is_file = os.path.exists(words[0])  # noqa: PTH110
    if words[0] == "help" and not is_file:
        return [*_find_helped(words, commands), "--help"]
    if words[0].startswith("-"):
        at = _find_command(words, commands, take_values)
        return ["translate", *words] if at is None else [words[at], *words[:at], *words[at + 1 :]]
    if not is_file and words[0] in _GONE:
        raise UsageError(f"{words[0]} has gone: {_GONE[words[0]]}")
    known = [*commands, "help"]
    if not is_file and find_nearest(words[0], known, _NEARLY):
        raise UsageError(f"{words[0]}: no such command or report; {suggest(words[:1], known)}")
    return ["translate", *words]


def _find_helped(words: list[str], commands: Mapping[str, Any]) -> list[str]:
    """Return the command behind the word `help`, if there is one."""
    asked = [word for word in words[1:2] if not word.startswith("-")]
    if asked and asked[0] not in commands:
        raise UsageError(f"help {asked[0]}: no such command; {suggest(asked, commands)}")
    return asked


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


def run(words: list[str]) -> tuple[int, str]:
    """Run the program with these words; return the exit code and the line for an error. Raises that of a signal."""
    keep_freed_memory()
    refuse_pandas()
    return run_app(app, words)
