"""Makes the options of a command from the classes of options.py, and the options back from what was typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_origin

import typer

from nsys2prv_ng.bundled.job_script import ScriptOptions
from nsys2prv_ng.cli.completion import make_completer
from nsys2prv_ng.errors import TranslationError, UsageError, escape_unprintable, refer_to
from nsys2prv_ng.options import (
    ALL_OPTIONS,
    AnyPath,
    JobTime,
    MinDurations,
    Names,
    Numbers,
    TimeWindow,
    list_options,
    parsing,
)
from nsys2prv_ng.report.formats import REPORTS_HELP
from nsys2prv_ng.text.option import Option

T = TypeVar("T")

_ALL_OPTIONS = (*ALL_OPTIONS, ScriptOptions)

_PARSERS: list[tuple[Any, Callable[[str], Any]]] = [
    (Names, parsing.parse_names),
    (Numbers, parsing.parse_numbers),
    (TimeWindow, parsing.parse_window),
    (JobTime, parsing.parse_job_time),
]
"""Types of options that are typed as one text, and what reads it."""
_UNIT_PARSERS: dict[str, Callable[[str], Any]] = {
    "ns": parsing.parse_time,
    "bytes": parsing.parse_size,
    "steps": parsing.parse_steps,
}
"""What reads numbers that are typed with a unit, and numbers of steps."""

ReportsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="REPORT...",
        help=f"{REPORTS_HELP}.",
        show_default=False,
        readable=False,
    ),
]
"""`readable=False` here and in other arguments leaves it to the commands to say what cannot be read, and what helps."""


def parse_path(text: str) -> Path:
    """Return the path of an option that no call has."""
    if not text:  # would be the current folder
        raise typer.BadParameter("must not be empty")
    return Path(text)


Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs: times in ns, sizes in bytes.")]
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


def with_options(options: type[T]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of a class beside its own parameters; it gets them as one value, `options`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        declared = _make_parameters(options)

        def run(**values: Any) -> Any:
            typed = {name: values.pop(name) for name in declared}
            return command(options=collect_options(options, typed), **values)

        # typer takes what it needs to know from a signature.
        own = [
            parameter.replace(kind=Parameter.KEYWORD_ONLY)
            for name, parameter in Signature.from_callable(command, eval_str=True).parameters.items()
            if name != "options"
        ]
        arguments_first = sorted(own, key=_is_option)
        position = sum(not _is_option(parameter) for parameter in own)
        signature = Signature([*arguments_first[:position], *declared.values(), *arguments_first[position:]])
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return decorate


def collect_options(options: type[T], typed: Mapping[str, Any]) -> T:
    """Return the options of a class from typed values; those that were not typed keep their defaults.

    Raises UsageError whose `value` is what was typed.
    """
    values = {}
    for name, (kind, option) in list_options(options).items():
        value = typed[name]
        if kind is bool and value:
            values[name] = not option.flag.startswith("--no-")
        elif kind is not bool and value is not None:
            values[name] = _parse(name, value, kind, option)
    try:
        return options(**values)
    except UsageError as error:
        value = typed.get(error.parameter)
        raise _blame(error, "" if value is None or isinstance(value, bool) else value) from None


def spell(error: TranslationError, words: Sequence[str] = ()) -> str:
    """Return the text of an error with the command line's spelling of its parameters, and of what was typed.

    `words`: those of the command line. An option that they hold is spelled as it is there: -j or --jobs.
    """
    if not isinstance(error, UsageError) or not error.parameter:
        return escape_unprintable(error.message + refer_to(map(find_flag, error.see)))
    flag, value = _find_typed_words(error.parameter, words)
    value = value if error.value is None else str(error.value)
    shown = f"'{value}'" if value.endswith(":") else value
    return escape_unprintable(f"{flag}{shown and ' '}{shown}: {error.message}")


def find_flag(parameter: str) -> str:
    """Return the command line's spelling of a parameter."""
    option = _find_option(parameter)[1]
    return option.get_flag(parameter) if option else parameter


def _find_option(parameter: str) -> tuple[Any, Option | None]:
    """Return the type and the description of a parameter of any call."""
    for declared in _ALL_OPTIONS:
        if parameter in (described := list_options(declared)):
            return described[parameter]
    return None, None


def _find_typed_words(parameter: str, words: Sequence[str]) -> tuple[str, str]:
    """Return how an option and its value were typed; the value is empty if there is none, or several."""
    kind, option = _find_option(parameter)
    if option is None:
        return parameter, ""
    flag, short = option.get_flag(parameter), option.short
    typed = []
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        if word == "--" and words[0] != "compare":  # there it stands between sides
            break
        if word and word in (flag, short):
            typed.append((word, following))
        elif word.startswith(f"{flag}="):
            typed.append((flag, word.removeprefix(f"{flag}=")))
        elif short and word.startswith(short) and not word.startswith("--"):
            typed.append((short, word.removeprefix(short)))
    if not typed:
        return flag, ""
    return typed[-1][0], "" if kind is bool or len(typed) > 1 else typed[-1][1]


def _blame(error: UsageError, typed: object) -> UsageError:
    """Return an error with the value that was typed."""
    value = " ".join(map(str, typed)) if isinstance(typed, list) else str(typed)
    return UsageError(error.message, parameter=error.parameter, value=value or None)


def _is_option(parameter: Parameter) -> bool:
    return isinstance(parameter.annotation.__metadata__[0], typer.models.OptionInfo)


def _make_parameters(options: type[object]) -> dict[str, Parameter]:
    """Return typer's parameters for the options that a class declares."""
    defaults = Signature.from_callable(options).parameters
    return {
        name: _make_parameter(name, kind, option, defaults[name].default)
        for name, (kind, option) in list_options(options).items()
    }


def _make_parameter(name: str, kind: Any, option: Option, default: Any) -> Parameter:
    typed, default = _find_typed(kind, option, default)
    info = typer.Option(
        *(option.get_flag(name), *([option.short] if option.short else [])),
        metavar=option.metavar or None,
        help=option.help,
        parser=_make_integer_parser(name, option.minimum) if typed in (int, int | None) else None,
        autocompletion=make_completer(name, option.metavar),
        show_default=option.default or bool(default),
    )
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[typed, info])


def _make_integer_parser(name: str, minimum: int | None) -> Callable[[Any], int]:
    """Return what reads a number. typer's own errors do not say what was typed, and pass on its libraries' words."""

    def parse(text: Any) -> int:  # also the default, which is a number
        try:
            return parsing.parse_integer(str(text), minimum)
        except UsageError as error:
            raise UsageError(error.message, parameter=name, value=text) from None

    return parse


def _find_typed(kind: Any, option: Option, default: Any) -> tuple[Any, Any]:
    """Return the type and the default of an option as typer takes it."""
    if kind is bool:
        return bool, False
    if option.unit or (not option.repeats and any(kind == known for known, _ in _PARSERS)):
        return str | None, None
    if option.repeats:
        return list[str] | None, None
    if kind == AnyPath or get_origin(kind) is Literal:
        return str, default
    return (str | None if kind == AnyPath | None else kind), default  # Path("") would be the current folder


def _parse(name: str, value: Any, kind: Any, option: Option) -> Any:
    try:
        if option.unit:
            return _UNIT_PARSERS[option.unit](value)
        if kind == MinDurations:
            return parsing.parse_min_durations(value)
        if option.repeats:
            return value
        for known, parse in _PARSERS:
            if kind == known:
                return parse(value)
    except UsageError as error:
        raise _blame(UsageError(error.message, parameter=name), value) from None
    return value
