"""Makes the options of a command from a class of options, and writes errors about them as they were typed."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer

from nsys2prv_ng.bundled.job_script import ScriptOptions
from nsys2prv_ng.errors import TranslationError, UsageError, escape_unprintable, refer_to
from nsys2prv_ng.options.calls import ALL_OPTIONS
from nsys2prv_ng.options.kinds import Option, list_options
from nsys2prv_ng.report.formats import REPORTS_HELP
from nsys2prv_ng.runtime.progress import choose_progress


def describe_argument(metavar: str, help: str) -> Any:
    """Return typer's description of an argument without a default."""
    # With `readable=False`, the commands report what cannot be read, and the remedy.
    return typer.Argument(metavar=metavar, help=help, show_default=False, readable=False)


def parse_folder(text: str) -> Path:
    """Return the folder that was typed for an option that no call has."""
    if not text:  # an empty path would be the current folder
        raise typer.BadParameter("must not be empty")
    return Path(text)


ReportsArgument = Annotated[list[Path], describe_argument("REPORT...", f"{REPORTS_HELP}.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs: times in ns, sizes in bytes.")]
NoProgress = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")]


def with_options(options: type[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of a class besides its other parameters. It gets them as one value, `options`.

    The options of a command with the parameter `quiet` show progress.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        declared = list_options(options)

        def run(**values: Any) -> Any:
            typed = {name: values.pop(name) for name in declared}
            # A flag that was not typed is False, any other option None or an empty list.
            chosen = {name: value for name, value in typed.items() if value not in (None, False, [])}
            chosen |= {name: not option.default for name, option in declared.items() if typed[name] is True}
            if "quiet" in values:
                chosen["progress"] = choose_progress(quiet=values["quiet"])
            return command(options=options(**chosen), **values)

        parameters: list[Parameter] = []
        for parameter in Signature.from_callable(command, eval_str=True).parameters.values():
            if parameter.name == "options":
                parameters += [_make_parameter(name, option) for name, option in declared.items()]
            else:
                parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
        # typer reads the parameters from the signature, and their types from the annotations.
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return decorate


def _make_parameter(name: str, option: Option[Any, Any]) -> Parameter:
    """Return typer's parameter for an option: a flag, or a text that the option itself reads."""
    kind: Any = bool if option.is_flag else list[str] | None if option.repeats else str | None
    default: Any = None if option.shown or option.default is None else str(option.default)
    info = typer.Option(
        *filter(None, (option.flag, option.short)),
        metavar=option.metavar or None,
        help=option.help,
        autocompletion=option.list_completions,
        show_default=option.shown or bool(default),
    )
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=False if option.is_flag else default, annotation=Annotated[kind, info]
    )


# ---- errors ----------------------------------------------------------------------------------------------------------

_OPTIONS = dict(ChainMap(*map(list_options, (*ALL_OPTIONS, ScriptOptions))))
"""The options of all calls and commands by name: the first one of each name."""


def spell(error: TranslationError, words: Sequence[str] = ()) -> str:
    """Return the text of an error with the command line's spelling of its parameters, and of what was typed.

    `words`: the command line. An option in it is spelled as it is there: -j or --jobs.
    """
    if not isinstance(error, UsageError) or not error.parameter:
        return escape_unprintable(error.message + refer_to(map(find_flag, error.see)))
    flag, value = _find_typed_words(error.parameter, words)
    if isinstance(error.value, list):
        value = " ".join(map(str, error.value))
    elif error.value is not None:
        value = str(error.value)
    shown = f"'{value}'" if value.endswith(":") else value
    return escape_unprintable(f"{flag}{shown and ' '}{shown}: {error.message}")


def find_flag(parameter: str) -> str:
    """Return the command line's spelling of a parameter."""
    return _OPTIONS[parameter].flag if parameter in _OPTIONS else parameter


def _find_typed_words(parameter: str, words: Sequence[str]) -> tuple[str, str]:
    """Return how an option and its value were typed; the value is empty if there is none, or more than one."""
    if parameter not in _OPTIONS:
        return parameter, ""
    option = _OPTIONS[parameter]
    flag, short = option.flag, option.short
    typed = []
    for at, (word, following) in enumerate(zip_longest(words, words[1:], fillvalue="")):
        if word == "--" and "compare" not in words[:at]:  # there it separates the sides
            break
        if word and word in (flag, short):
            typed.append((word, following))
        elif word.startswith(f"{flag}="):
            typed.append((flag, word.removeprefix(f"{flag}=")))
        elif short and word.startswith(short) and not word.startswith("--"):
            typed.append((short, word.removeprefix(short)))
    if not typed:
        return flag, ""
    return typed[-1][0], "" if option.is_flag or len(typed) > 1 else typed[-1][1]
