"""The page of all commands and their options: python docs/commands.py writes it, `--check` only compares it."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import typer.main
from page_file import DOCS, write_or_check

from nsys2prv_ng.cli.app import app

PAGE = DOCS / "reference/commands.md"

_HEAD = """# Commands and options

Look up a command, an option or an exit code; `nsys2prv-ng COMMAND --help` has the same text. If the first word is not
a command, it is the first report, so `nsys2prv-ng REPORT... OUT.prv` translates. [Choose what to
translate](../guides/choosing.md) helps to choose. A REPORT is a `.nsys-rep`, or its export (`.sqlite`, or a folder that
ends in `_pqtdir` or `_arwdir`).

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the input or the output is at fault |
| 2 | the command line is at fault |
| 3 | `compare --fail-over`: a run is slower than that |
| 4 | `compare --fail-over`: that cannot be told |
| 128 + n | ended by signal n |
| any | `run-rank` and `record`: that of the program |

## The program

"""
_REPORTS = re.compile(r"Reports \(\.nsys-rep\) or their exports \(.*?\)\.?")
"""What the head of the page says once."""
_SHARED = "## Options of several commands\n"


def describe_program() -> str:
    """Return the whole page."""
    group: Any = typer.main.get_command(app)  # of click, or of the copy of click that newer versions of typer contain
    settings = group.context_settings
    options = {
        name: [row for row in _list_options(command, f"nsys2prv-ng {name}", settings) if "`--help`" not in row]
        for name, command in group.commands.items()
        if not command.hidden
    }
    shared = _find_shared(options)
    parts = [_HEAD + _write_table(_list_options(group, "nsys2prv-ng", settings)), _SHARED, *_describe_shared(shared)]
    parts += [_describe_command(name, group.commands[name], rows, shared) for name, rows in options.items()]
    return "\n".join(parts)


def _find_shared(options: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return the commands of each row that several have; of rows for one option, only that which most have."""
    rows = dict.fromkeys(row for rows in options.values() for row in rows)
    commands = {row: tuple(name for name, rows in options.items() if row in rows) for row in rows}
    most = {row.split("|")[1]: row for row in sorted(rows, key=lambda row: len(commands[row]))}
    return {row: names for row, names in commands.items() if len(names) > 1 and most[row.split("|")[1]] == row}


def _describe_shared(shared: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return a table for each set of commands, after a line that names them."""
    parts = []
    for names in dict.fromkeys(shared.values()):
        rows = [row for row, others in shared.items() if others == names]
        parts.append(f"Of {', '.join(f'`{name}`' for name in names)}:\n\n{_write_table(rows)}")
    return parts


def _describe_command(name: str, command: Any, rows: Sequence[str], shared: Collection[str]) -> str:
    """Return the section of a command, with a table of the options that it does not share."""
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    usage = " ".join([f"nsys2prv-ng {name}", "[OPTION...]", *(argument.metavar for argument in arguments)])
    text = [f"## {name}", "", "```", usage, "```", "", _unwrap(command.help), ""]
    described = [(argument.metavar, _describe_parameter(argument)) for argument in arguments if argument.help]
    text += [f"`{name}`: {_REPORTS.sub('Reports', text)}\n" for name, text in described if not _REPORTS.fullmatch(text)]
    own = [row for row in rows if row not in shared]
    return "\n".join(text) + ("\n" + _write_table(own) if own else "")


def _write_table(rows: Sequence[str]) -> str:
    return "\n".join(["| option | meaning |", "|---|---|", *rows]) + "\n"


def _list_options(command: Any, name: str, settings: Mapping[str, Any]) -> list[str]:
    """Return the rows of a command's options."""
    context = command.context_class(command, info_name=name, **settings)
    options = [parameter for parameter in command.get_params(context) if parameter.param_type_name == "option"]
    return [f"| {_write_words(option)} | {_describe_parameter(option)} |" for option in options if not option.hidden]


def _write_words(option: Any) -> str:
    """Return the words of an option, the longest first, with their value: `--jobs N`, `-j N`."""
    value = "" if option.is_flag or option.metavar is None else f" {option.metavar}"
    words = sorted((*option.opts, *option.secondary_opts), key=len, reverse=True)
    return ", ".join(f"`{word}{value}`" for word in words).replace("|", "\\|")


def _describe_parameter(parameter: Any) -> str:
    """Return the help text of a parameter and its default."""
    default = getattr(parameter, "show_default", None)
    if not isinstance(default, str):
        is_listed = (
            default and parameter.default not in (None, "", False, ()) and not getattr(parameter, "is_flag", False)
        )
        default = str(parameter.default) if is_listed else ""
    text = _unwrap(parameter.help) + (f" Default: {default}." if default else "")
    return re.sub(r"(?<!\\)([|*])", r"\\\1", text)


def _unwrap(text: str) -> str:
    """Return the paragraphs of a help text, each in one line."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n")]
    return "\n\n".join(paragraphs)


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, describe_program(), sys.argv[1:], __doc__))
