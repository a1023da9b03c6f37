"""Every option of every call and command: its name, type, default, help and check, declared once.

api.py takes the fields of these classes as keywords, cli/options.py makes the options of the commands from them, and
the reference in docs/ is generated from those. Times are ns, sizes are bytes. Each class raises UsageError, naming the
parameter, for values that cannot be meant.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_type_hints

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.text.option import Option

AnyPath = str | os.PathLike[str]
Names = Iterable[str] | None
Numbers = Iterable[int] | None
TimeWindow = tuple[int | None, int | None] | None
Paths = Iterable[AnyPath] | None
MinDurations = Mapping[str, int] | None


def list_options(options: Callable[..., object]) -> dict[str, tuple[Any, Option]]:
    """Return (type, description) by the name of each field that the command line has as an option."""
    described = {}
    for name, hint in get_type_hints(options, include_extras=True).items():
        for note in getattr(hint, "__metadata__", ()):
            if isinstance(note, Option):
                described[name] = hint.__origin__, note
    return described


class _Checked:
    """Checks the values of a dataclass of options when it is made."""

    def __post_init__(self) -> None:
        described = list_options(type(self))
        for field in fields(self):  # type: ignore[arg-type]
            if field.name in described:
                _check(field.name, getattr(self, field.name), *described[field.name])


def _check(name: str, value: object, kind: object, option: Option) -> None:
    """Raise UsageError for a value of another type, or one that is too small."""
    if kind in (Names, Numbers, Paths) and isinstance(
        value, (str, int, os.PathLike)
    ):  # a text iterates over its letters
        example = "" if kind == Numbers and isinstance(value, str) else f", [{value!r}]"
        raise UsageError(f"give a list{example}", parameter=name, value=value)
    if kind == TimeWindow and value is not None:
        _check_window(name, value)
    if option.minimum is not None and value is not None:
        if not isinstance(value, int):
            raise UsageError("give an integer", parameter=name, value=value)
        if value < option.minimum:
            raise UsageError(f"must be at least {option.minimum}", parameter=name, value=value)


def _check_window(name: str, value: object) -> None:
    limits = list(value) if isinstance(value, (tuple, list)) else []
    if len(limits) != 2 or any(limit is not None and not isinstance(limit, int) for limit in limits):
        raise UsageError("give two integers in ns, (from, to); None is no limit", parameter=name, value=value)
    low, high = limits
    if (low or 0) < 0 or (high is not None and high <= (low or 0)):
        raise UsageError("FROM must be earlier than TO, and neither may be negative", parameter=name, value=value)


# ---- what several commands take --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(_Checked):
    """What a call that reads reports may use of the machine, and how it shows that."""

    jobs: Annotated[
        int | None,
        Option("Number of cores to use.", metavar="N", short="-j", default="all", minimum=1),
    ] = None
    progress: Progress | None = None
    """Shows progress and warnings; None shows nothing. The command line has --quiet."""


@dataclass(frozen=True, kw_only=True)
class JobOptions(ReadingOptions):
    """How the reports of a job are read and placed in time."""

    align: Annotated[
        AnyPath,
        Option(
            "How to align the clocks of nodes: by UTC, by the ends of collectives, by a file that --align-report"
            " wrote, or not at all; auto takes collectives where they do better than UTC.",
            metavar="auto|utc|collectives|none|FILE",
        ),
    ] = "auto"
    time: Annotated[
        TimeWindow,
        Option(
            "Only this time, from the start of the trace, in ns, us, ms or s: 1.5s:2s, :800ms, 2s:.",
            metavar="FROM:TO",
            default="all",
        ),
    ] = None
    nvtx_range: Annotated[
        str,
        Option("Only while an NVTX range with this text is open on any rank (* and ? as for files).", metavar="TEXT"),
    ] = ""
    ranks: Annotated[Numbers, Option("Only these ranks.", metavar="0-3,8", default="all")] = None
    memory: Annotated[
        int | None,
        Option(
            "Memory for events (K, M, G, T); the rest is spilled to a file.",
            metavar="2G",
            default="a quarter of the machine's or job's",
            minimum=0,
            unit="bytes",
        ),
    ] = None
    tmp: Annotated[
        AnyPath | None,
        Option("Folder for events that exceed --memory.", metavar="FOLDER", default="that of the output"),
    ] = None
    strict: Annotated[
        bool, Option("Stop with an error if one of several reports cannot be read, instead of skipping it.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class SummaryOptions(JobOptions):
    """What to sum up."""


@dataclass(frozen=True, kw_only=True)
class InspectOptions(ReadingOptions):
    """How to look into reports."""


# ---- translate -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TranslateOptions(JobOptions):
    """What to translate, and what to write."""

    sources: Annotated[
        Names,
        Option("Kinds of event to translate.", metavar="NAME,...", default="all that the reports hold"),
    ] = None
    derived: Annotated[
        bool, Option("Omit derived data of whole GPUs (activity, idle gaps, kernels in flight).", flag="--no-derived")
    ] = True
    align_report: Annotated[
        AnyPath | None, Option("Write the offset and drift of each node's clock.", metavar="FILE.toml")
    ] = None
    gpus: Annotated[
        Numbers, Option("Only the streams of these GPUs, by their number on the node.", metavar="0,2", default="all")
    ] = None
    min_duration: Annotated[
        MinDurations,
        Option("Drop shorter intervals of a kind of event; can be repeated.", metavar="SOURCE=10us", repeats=True),
    ] = None
    nvtx_domain: Annotated[
        Names,
        Option("Only these NVTX domains; `default` is the one without a name.", metavar="NAME,...", default="all"),
    ] = None
    kernel_names: Annotated[
        Literal["short", "demangled"],
        Option("Show kernels by their short or their demangled name.", metavar="short|demangled"),
    ] = "short"
    metrics: Annotated[Names, Option("Only GPU metrics with these names.", metavar="'SM*,DRAM*'", default="all")] = None
    metrics_changes: Annotated[bool, Option("Write a GPU metric only when its value changes.")] = False
    osrt_min: Annotated[
        int,
        Option(
            "Drop OS runtime calls shorter than this; 0 keeps all.",
            metavar="TIME",
            default="10us",
            minimum=0,
            unit="ns",
        ),
    ] = 10_000
    stack_depth: Annotated[
        int,
        Option(
            "Number of call-stack levels to show: a sample's function and its callers, or a call's callers.",
            metavar="N",
            minimum=1,
        ),
    ] = 1
    labels_from: Annotated[
        AnyPath | None,
        Option(
            "Reuse the numbers that another trace gives to names, so that both can be compared in one histogram.",
            metavar="OTHER.pcf",
        ),
    ] = None
    force: Annotated[bool, Option("Replace a trace of the same name.")] = False
    stats: Annotated[
        AnyPath | None,
        Option("Write the numbers of events read, written and dropped as JSON.", metavar="FILE.json"),
    ] = None
    summary: Annotated[bool, Option("Also print what the command summary prints, for the same events.")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kernel_names not in ("short", "demangled"):
            raise UsageError("must be short or demangled", parameter="kernel_names", value=self.kernel_names)
        if self.metrics_changes and (self.time is not None or self.nvtx_range):
            other = "time" if self.time is not None else "nvtx_range"
            raise UsageError(
                f"cannot be combined with {other}: values in force would be lost", parameter="metrics_changes"
            )


# ---- check -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CheckOptions(_Checked):
    """What to check besides the trace."""

    cfg: Annotated[
        Paths,
        Option("Check a Paraver cfg against the trace as well; can be repeated.", metavar="FILE.cfg", repeats=True),
    ] = None
    progress: Progress | None = None


ALL_OPTIONS = (TranslateOptions, SummaryOptions, InspectOptions, CheckOptions)
"""The options of all calls."""


def describe_keywords(options: Callable[..., object]) -> str:
    """Return a line for each keyword of a class of options, for the docstring of a call."""
    return "\n".join(f"    {name}: {option.help}" for name, (_, option) in list_options(options).items())
