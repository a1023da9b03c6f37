"""Makes the options of a command from a class of options, and reads such options from what was typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from nsys2prv_ng.bundled.job_script import ScriptOptions
from nsys2prv_ng.errors import TranslationError, UsageError, escape_unprintable, refer_to
from nsys2prv_ng.options.calls import ALL_OPTIONS
from nsys2prv_ng.report.formats import REPORTS_HELP
from nsys2prv_ng.runtime.progress import choose_progress
from nsys2prv_ng.text.option import Flag, Option, list_options

T = TypeVar("T")

_ALL_OPTIONS = (*ALL_OPTIONS, ScriptOptions)


def describe_argument(metavar: str, help: str) -> Any:
    """Return typer's description of an argument without a default."""
    # With `readable=False`, the commands report what cannot be read, and the remedy.
    return typer.Argument(metavar=metavar, help=help, show_default=False, readable=False)


def parse_path(text: str) -> Path:
    """Return the path that was typed for an option that no call has."""
    if not text:  # an empty path would be the current folder
        raise typer.BadParameter("must not be empty")
    return Path(text)


ReportsArgument = Annotated[list[Path], describe_argument("REPORT...", f"{REPORTS_HELP}.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs: times in ns, sizes in bytes.")]
Details = Annotated[bool, typer.Option("--details", help="Also print all tables.")]
TalpFolder = Annotated[
    Path | None,
    typer.Option(
        "--talp",
        metavar="FOLDER",
        parser=parse_path,
        help="Also write the efficiencies into this folder, as a file for TALP-Pages.",
    ),
]
NoProgress = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")]


def print_json(result: Any) -> None:
    """Print the numbers of a result for programs."""
    import json

    print(json.dumps(result.to_dict(), indent=2))


def with_options(options: type[T]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of a class besides its other parameters. It gets them as one value, `options`.

    The options of a command with the parameter `quiet` show progress.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        declared = {name: _make_parameter(name, option) for name, option in list_options(options).items()}

        def run(**values: Any) -> Any:
            chosen = collect_options(options, {name: values.pop(name) for name in declared})
            if "quiet" in values:
                vars(chosen)["progress"] = choose_progress(quiet=values["quiet"])
            return command(options=chosen, **values)

        # typer reads the parameters from the signature.
        parameters = [
            parameter.replace(kind=Parameter.KEYWORD_ONLY)
            for name, parameter in Signature.from_callable(command, eval_str=True).parameters.items()
            if name != "options"
        ]
        arguments = [parameter for parameter in parameters if not _is_option(parameter)]
        switches = [parameter for parameter in parameters if _is_option(parameter)]
        signature = Signature([*arguments, *declared.values(), *switches])
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return decorate


def _is_option(parameter: Parameter) -> bool:
    return isinstance(parameter.annotation.__metadata__[0], typer.models.OptionInfo)


def _make_parameter(name: str, option: Option[Any, Any]) -> Parameter:
    """Return typer's parameter for an option: a flag, or a text that the option itself reads."""
    default: Any = None if option.shown or option.default is None else str(option.default)
    kind: Any = list[str] | None if option.repeats else str | None
    if isinstance(option, Flag):
        kind, default = bool, False
    info = typer.Option(
        *filter(None, (option.flag, option.short)),
        metavar=option.metavar or None,
        help=option.help,
        autocompletion=option.complete,
        show_default=option.shown or bool(default),
    )
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def collect_options(options: type[T], typed: Mapping[str, Any]) -> T:
    """Return the options of a class from what was typed; options that were not typed keep their defaults.

    Raises UsageError whose `value` is what was typed.
    """
    values = {}
    for name, option in list_options(options).items():
        if isinstance(option, Flag):
            values[name] = option.default != typed[name]
        elif typed[name] is not None:
            values[name] = typed[name]
    try:
        return options(**values)
    except UsageError as error:
        value = typed.get(error.parameter)
        words = value if isinstance(value, list) else [] if isinstance(value, bool | None) else [value]
        shown = " ".join(map(str, words)) or None
        raise UsageError(error.message, parameter=error.parameter, value=shown) from None


def spell(error: TranslationError, words: Sequence[str] = ()) -> str:
    """Return the text of an error with the command line's spelling of its parameters, and of what was typed.

    `words`: the command line. An option in it is spelled as it is there: -j or --jobs.
    """
    if not isinstance(error, UsageError) or not error.parameter:
        return escape_unprintable(error.message + refer_to(map(find_flag, error.see)))
    flag, value = _find_typed_words(error.parameter, words)
    value = value if error.value is None else str(error.value)
    shown = f"'{value}'" if value.endswith(":") else value
    return escape_unprintable(f"{flag}{shown and ' '}{shown}: {error.message}")


def find_flag(parameter: str) -> str:
    """Return the command line's spelling of a parameter."""
    option = _find_option(parameter)
    return option.flag if option else parameter


def _find_option(parameter: str) -> Option[Any, Any] | None:
    """Return the option with this name, whichever call has it."""
    described = (list_options(options).get(parameter) for options in _ALL_OPTIONS)
    return next(filter(None, described), None)


def _find_typed_words(parameter: str, words: Sequence[str]) -> tuple[str, str]:
    """Return how an option and its value were typed; the value is empty if there is none, or more than one."""
    option = _find_option(parameter)
    if option is None:
        return parameter, ""
    flag, short = option.flag, option.short
    typed = []
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        if word == "--" and words[0] != "compare":  # there it separates the sides
            break
        if word and word in (flag, short):
            typed.append((word, following))
        elif word.startswith(f"{flag}="):
            typed.append((flag, word.removeprefix(f"{flag}=")))
        elif short and word.startswith(short) and not word.startswith("--"):
            typed.append((short, word.removeprefix(short)))
    if not typed:
        return flag, ""
    return typed[-1][0], "" if isinstance(option, Flag) or len(typed) > 1 else typed[-1][1]
