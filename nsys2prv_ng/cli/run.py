"""Runs a command line, and turns errors into a line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

import typer.main

from nsys2prv_ng.cli import ending
from nsys2prv_ng.cli.app import app
from nsys2prv_ng.cli.ending import fail
from nsys2prv_ng.cli.options import spell
from nsys2prv_ng.cli.words import put_command_first
from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.runtime.limits import keep_freed_memory, refuse_pandas


def run(words: list[str]) -> int:
    """Run the program with these words; return the exit code. Raises the exception of a signal."""
    # Numpy's OpenBLAS would start a thread for each core. Nothing here needs them, and sums of real numbers, as in
    # the fit of the clocks, would depend on the number of cores.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    keep_freed_memory()
    refuse_pandas()
    group: Any = typer.main.get_command(app)
    try:
        arguments = put_command_first(words, group.commands)
    except UsageError as error:
        return fail(str(error), error.exit_code)
    try:
        result = group.main(arguments, prog_name="nsys2prv-ng", standalone_mode=False)
        sys.stdout.flush()
    except TranslationError as error:
        return fail(spell(error, arguments) + _describe_lost_folder(), error.exit_code)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 (nobody reads the output any more)
        return 1
    except MemoryError:
        return fail("out of memory; translate fewer reports at once, or select fewer sources (see --sources)", 1)
    except Exception as error:
        if ending.received:
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)  # type: ignore[attr-defined]
            return 2
        if _lacks_memory(error):
            what = str(error).split(". ")[0]  # llvmlite also guesses why
            return fail(f"out of memory ({what}); is it limited? See `ulimit -v`, and `ulimit -u` for threads", 1)
        if isinstance(error, OSError):  # only the output of the program itself: all other files have other errors
            cause = f"{error.filename or 'standard output'}: {error.strerror or error}"
            return fail(_describe_lost_folder().lstrip("; ") or cause, 1)
        if hasattr(error, "format_message"):  # typer's and click's errors of usage
            command = arguments[0] + " " if arguments and arguments[0] in group.commands else ""
            return fail(f"{error.format_message()} (see nsys2prv-ng {command}--help)", 2)
        return fail(_describe_internal_error(error), 1)
    return result if isinstance(result, int) else 0


def _describe_lost_folder() -> str:
    """Return the end of a message if the working folder was deleted: no relative path leads to a file."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return "; the working folder was deleted: change to another one"
    return ""


def _lacks_memory(error: Exception) -> bool:
    """Return whether a library cannot be loaded, or a thread started, most likely as memory is limited."""
    if isinstance(error, ImportError | OSError):  # the last one from llvmlite, without a number
        return "failed to map segment" in str(error) or "Could not find/load shared object" in str(error)
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)


def _describe_internal_error(error: Exception) -> str:
    """Return a line about an error of the program itself. Print the traceback too if a variable is set."""
    if os.environ.get("NSYS2PRV_NG_TRACEBACK"):
        traceback.print_exc()
    where = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    return (
        f"internal error, please report it: {what} (at {Path(where.filename).name}:{where.lineno};"
        " NSYS2PRV_NG_TRACEBACK=1 shows more)"
    )
