"""Makes calls take options as keywords, and checks what they are given: reports, files to write, sides to compare."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from nsys2prv_ng.comparison.sides import SUMMARY
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options.calls import CompareOptions
from nsys2prv_ng.options.kinds import AnyPath, list_options, parse_paths, read
from nsys2prv_ng.paraver.files import is_trace

if TYPE_CHECKING:
    from nsys2prv_ng.summary.job import JobSummary

Reports = AnyPath | Iterable[AnyPath]
Capture: TypeAlias = "list[Path] | JobSummary"
"""The reports of a capture, its saved summary, or its summary."""
GivenSide: TypeAlias = "Reports | JobSummary | Iterable[Reports | JobSummary]"
"""A side as users give it: a capture, the folder of a run, or a list of captures."""


# ---- reports and files -----------------------------------------------------------------------------------------------


def list_reports(reports: Reports, parameter: str = "reports") -> list[Path]:
    """Return the paths of reports. Raises UsageError with the parameter for other values, and if there are none."""
    given = list(read(parse_paths, reports, parameter))
    if not given:
        raise UsageError("give at least one report", parameter=parameter)
    return given


def list_reports_alone(reports: Reports) -> list[Path]:
    """Return the paths of reports. Raises UsageError also for a trace among them: it is no damaged report to skip."""
    given = list_reports(reports)
    _refuse_traces(given, "give the reports alone")
    return given


def expand_reports(reports: Reports) -> list[Path]:
    """Return the paths of reports, also of those in folders and of patterns. Of a report and its exports, one counts.

    Raises UsageError as `list_reports_alone`, and for a pattern that no file has.
    """
    from nsys2prv_ng.reading.shards import find_shards
    from nsys2prv_ng.report.formats import REPORT_ENDINGS, TABLE_SUFFIXES, get_report_name, is_report_name

    found: list[Path] = []
    for path in list_reports_alone(reports):
        names = [path] if os.path.lexists(path) else []
        names += [] if names else map(Path, sorted(glob(str(path))))  # noqa: PTH207 (Path.glob takes no absolute one)
        if not names and has_magic(str(path)):
            raise UsageError("no report has such a name", parameter="reports", value=str(path))
        for name in names or [path]:
            within = [] if not name.is_dir() or is_report_name(name) or find_shards([name]) else sorted(name.iterdir())
            named = [each for each in within if is_report_name(each) and each.suffix not in TABLE_SUFFIXES]
            named.sort(key=lambda each: each.suffix not in REPORT_ENDINGS)  # these find their exports themselves
            found += sorted({get_report_name(each): each for each in reversed(named)}.values()) or [name]
    return found


def find_scratch() -> Path:
    """Return the folder for events that exceed the memory: the current one if it can be written, else the system's."""
    if os.access(Path(), os.W_OK):
        return Path()
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:  # no folder can be written, unless the user has chosen one
        return Path()


def _refuse_traces(reports: Sequence[Path], remedy: str) -> None:
    for report in reports:
        if is_trace(report):
            raise UsageError(f"a trace among the reports; {remedy}", parameter="reports", value=str(report))


def check_names(reports: Sequence[Path], output: Path) -> None:
    """Raise UsageError for an output that is not named like a trace, and for traces among the reports."""
    if not is_trace(output):
        raise UsageError("the trace must be named *.prv or *.prv.gz", parameter="output", value=str(output))
    if not reports:
        raise UsageError(f"give at least one report to translate into {output}", parameter="reports")
    _refuse_traces(reports, "only the output is one")


# ---- sides of a comparison -------------------------------------------------------------------------------------------


def list_sides(
    sides: Iterable[GivenSide] | GivenSide, other: GivenSide | None = None, *, fewest: int = 2
) -> list[list[Capture]]:
    """Return the captures of each side: of two, or of a list of sides. Raises UsageError for fewer than two sides.

    `fewest`: 2; 1 if one run is compared with a history, and may be given alone.
    """
    from nsys2prv_ng.summary.job import JobSummary

    every: Any = sides if other is None else [sides, other]
    is_alone = isinstance(every, str | os.PathLike | JobSummary) or not isinstance(every, Iterable)
    if is_alone and fewest > 1:
        raise UsageError("give two, or a list with the reports or the summary of each run", parameter="sides")
    given = [_list_captures(side) for side in ([every] if is_alone else every)]
    if len(given) < fewest:
        raise UsageError("give at least two", parameter="sides")
    if fewest == 1 and len(given) != 1:
        raise UsageError("compares one run with a history; give no second one", parameter="against")
    return given


def _list_captures(side: Any) -> list[Capture]:
    """Return the captures of a side: several if it is a list of lists or of summaries."""
    from nsys2prv_ng.summary.job import JobSummary

    if isinstance(side, JobSummary):
        return [side]
    if not isinstance(side, str | os.PathLike) and isinstance(side, Iterable):
        side = list(side)
        if any(isinstance(part, JobSummary | list | tuple) for part in side):
            return [part if isinstance(part, JobSummary) else _list_capture(part) for part in side]
    return [_list_capture(side)]


def _list_capture(side: Reports) -> list[Path]:
    """Return the reports of a capture, or its saved summary.

    Raises UsageError for a mixture, and ReportError if none exists: reading another side first may take long.
    """
    given = list(map(find_summary, list_reports(side, "sides")))
    if not any(path.exists() for path in given):
        from nsys2prv_ng.report.files import miss

        raise miss(given[0])
    _refuse_traces(given, "give the reports alone")
    if len(given) > 1 and (saved := [path for path in given if path.suffix == ".json"]):
        raise UsageError(
            "a capture is either reports or one saved summary; write + between captures (in Python: lists in a list)",
            parameter="sides",
            value=str(saved[0]),
        )
    return given


def find_summary(path: Path) -> Path:
    """Return the saved summary in the folder of a run, which the Slurm script leaves; any other path as it is."""
    summary = path / SUMMARY
    return summary if os.path.isfile(summary) else path  # noqa: PTH113 (Path raises if it may not look there)


def is_saved(capture: Capture) -> bool:
    """Return whether a capture was summed up before."""
    return not isinstance(capture, list) or capture[0].suffix == ".json"


def refuse_restrictions(sides: Sequence[Sequence[Capture]], options: CompareOptions) -> None:
    """Raise UsageError if the user restricts a capture that was summed up before."""
    if any(is_saved(capture) for side in sides for capture in side):
        for name in list_restrictions(options):
            raise UsageError("saved numbers cannot be restricted; give the reports", parameter=name)


def list_restrictions(options: CompareOptions) -> list[str]:
    """Return the parameters by which the user restricts what is compared."""
    names = ("time", "steps", "skip_warmup", "step", "nvtx_range", "ranks")
    return [name for name in names if getattr(options, name) not in (None, "", False)]


# ---- options as keywords ---------------------------------------------------------------------------------------------

Keywords = ParamSpec("Keywords")
Options = TypeVar("Options")
Answer = TypeVar("Answer")
One = TypeVar("One")
Other = TypeVar("Other")
Compared = TypeVar("Compared", covariant=True)


def takes(
    options: Callable[Keywords, Options],
) -> Callable[[Callable[[One, Options], Answer]], Callable[Concatenate[One, Keywords], Answer]]:
    """Make a call that takes a class of options take the fields of that class as keywords, with their types."""
    return lambda call: _take_keywords(call, options)


def takes_two(
    options: Callable[Keywords, Options],
) -> Callable[[Callable[[One, Other, Options], Answer]], Callable[Concatenate[One, Other, Keywords], Answer]]:
    """Do as `takes` does for a call with two arguments before its keywords."""
    return lambda call: _take_keywords(call, options)


class TakesSides(Protocol[Keywords, Compared]):
    """A call on two sides, or on a list of sides."""

    def __call__(
        self,
        sides: Iterable[GivenSide] | GivenSide,
        other: GivenSide | None = None,
        *args: Keywords.args,
        **options: Keywords.kwargs,
    ) -> Compared: ...


def takes_sides(
    options: Callable[Keywords, Options],
) -> Callable[[Callable[..., Compared]], TakesSides[Keywords, Compared]]:
    """Do as `takes` does for a call on sides."""
    return lambda call: _take_keywords(call, options)


def _take_keywords(call: Callable[..., Any], options: Any) -> Callable[..., Any]:
    """Return a call whose signature and docstring list both its arguments and the keywords."""
    arguments = [p for p in inspect.signature(call).parameters.values() if p.name != "options"]
    keywords = dict(inspect.signature(options).parameters)
    described = list_options(options)
    for name in described:  # the type of what may be given
        keywords[name] = keywords[name].replace(annotation=keywords[name].annotation.__origin__.__args__[0])
    signature = inspect.Signature([*arguments, *keywords.values()])

    @wraps(call)
    def take(*given: Any, **values: Any) -> Any:
        try:
            bound = signature.bind(*given, **values).arguments
        except TypeError as error:
            several = f": give one list of {arguments[0].name}" if len(given) > len(arguments) == 1 else ""
            raise TypeError(f"{call.__name__}() {error}{several}") from None
        values_of_arguments = [bound.pop(argument.name, argument.default) for argument in arguments]
        return call(*values_of_arguments, options=options(**bound))

    lines = [f"    {name}: {option.keyword_help or option.help}\n" for name, option in described.items()]
    take.__signature__ = signature  # type: ignore[attr-defined]
    take.__doc__ = f"{call.__doc__}\n    Keywords:\n\n{''.join(lines)}"
    return take
