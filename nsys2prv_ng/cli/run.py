"""Runs an app of commands, and turns errors into a line."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import typer.main

from nsys2prv_ng.cli.options import spell
from nsys2prv_ng.errors import TranslationError, escape_unprintable

PROGRAM = "nsys2prv-ng"
SETTINGS: dict[str, Any] = {
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
"""Settings of an app."""
COMMAND_BEHIND: dict[str, Any] = {"context_settings": {"allow_interspersed_args": False}}
"""Settings of a command whose last words are another command, with options of its own."""


def run_app(app: typer.Typer, words: list[str]) -> tuple[int, str]:
    """Run an app with these words; return the exit code and the line for an error. Raises that of a signal."""
    try:
        result = typer.main.get_command(app).main(words, prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0, ""
    except TranslationError as error:
        return error.exit_code, spell(error, words) + _describe_lost_folder()
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 (nobody reads the output any more)
        return 1, ""
    except MemoryError:
        return 1, "out of memory; translate fewer reports at once, or select fewer sources (see --sources)"
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)  # type: ignore[attr-defined]
            return 2, ""
        if hasattr(error, "format_message"):  # typer's and click's errors of usage
            command = PROGRAM if error.ctx is None else error.ctx.command_path  # type: ignore[attr-defined]
            return 2, escape_unprintable(f"{error.format_message()} (see {command} --help)")
        return 1, _describe_error(error)


def _describe_error(error: Exception) -> str:
    """Return a line about an error of the system, of a library or of the program itself."""
    # A library cannot be loaded, or a thread started.
    signs = ("failed to map segment", "Could not find/load shared object", "can't start new thread")
    if getattr(error, "errno", None) == errno.ENOMEM or any(sign in str(error) for sign in signs):
        what = str(error).split(". ")[0]  # llvmlite also guesses why
        return f"out of memory ({what}); is it limited? See `ulimit -v`, and `ulimit -u` for threads"
    if isinstance(error, OSError):  # only the output of the program itself: all other files have other errors
        cause = f"{error.filename or 'standard output'}: {error.strerror or error}"
        return _describe_lost_folder().lstrip("; ") or escape_unprintable(cause)
    if os.environ.get("NSYS2PRV_NG_TRACEBACK"):
        traceback.print_exc()
    where = traceback.extract_tb(error.__traceback__)[-1]
    what = escape_unprintable(f"{type(error).__name__}: {error}".splitlines()[0])
    return (
        f"internal error, please report it: {what} (at {Path(where.filename).name}:{where.lineno};"
        " NSYS2PRV_NG_TRACEBACK=1 shows more)"
    )


def _describe_lost_folder() -> str:
    """Return the end of a message if the working folder was deleted: no relative path leads to a file."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return "; the working folder was deleted: change to another one"
    return ""
