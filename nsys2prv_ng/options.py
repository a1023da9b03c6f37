"""Every option of every call and command: its name, type, default, help and check, declared once.

api/ takes the fields of these classes as keywords, cli/options.py makes the options of the commands from them, and
the reference in docs/ is generated from those. Times are ns, sizes are bytes. Each class raises UsageError, naming the
parameter, for values that cannot be meant.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_type_hints

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.text.option import Option

AnyPath = str | os.PathLike[str]
Names = Iterable[str] | None
Numbers = Iterable[int] | None
TimeWindow = tuple[int | None, int | None] | None
StepWindow = list[int | None] | tuple[int | None, int | None] | None
"""First and last step; None is no limit."""
Paths = Iterable[AnyPath] | None
MinDurations = Mapping[str, int] | None


PARAVER_MEMORY = Option(
    "Warn of a trace for which Paraver needs more memory than this (K, M, G, T), and print what helps; 0 never does.",
    keyword_help="Warn of a trace for which Paraver needs more memory than this, in bytes; 0 never does.",
    metavar="4G",
    default="1G",
    minimum=0,
    unit="bytes",
)


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
            elif field.name == "progress" and not isinstance(self.progress, Progress | None):  # type: ignore[attr-defined]
                raise UsageError("give an instance of Progress", parameter="progress")


def _check(name: str, value: object, kind: object, option: Option) -> None:
    """Raise UsageError for a value of another type, or one that is too small."""
    if value is None and kind not in (bool, int, str, AnyPath):
        return
    for known, check in _CHECKS:
        if kind == known:
            if message := check(value):
                raise UsageError(message, parameter=name, value=value)
            break
    if option.minimum is not None and value < option.minimum:  # type: ignore[operator]
        raise UsageError(f"must be at least {option.minimum}", parameter=name, value=value)


def _is_integer(value: object) -> bool:
    """Return whether a value is an integer of Python or numpy, and no bool."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _check_list(value: object, kind: type, what: str) -> str:
    """Return what is wrong with a list of texts or numbers, or an empty text."""
    if isinstance(value, str | int | os.PathLike):  # a text would iterate over its letters
        parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else [value]
        return f"give a list, {parts!r}" if all(isinstance(part, kind) for part in parts) else "give a list"
    if not isinstance(value, Iterable):
        return f"give a list of {what}"
    if isinstance(value, Sized) and any(
        not (_is_integer(part) if kind is int else isinstance(part, kind)) for part in value
    ):
        return f"give a list of {what}"
    return ""


def _check_path(value: object) -> str:
    """Return what is wrong with a path, or an empty text. An empty one would be the current folder."""
    if not isinstance(value, str | os.PathLike):
        return "give a path"
    return "" if os.fspath(value) else "must not be empty"


def _check_paths(value: object) -> str:
    """Return what is wrong with a list of paths, or an empty text."""
    wrong = _check_list(value, (str, os.PathLike), "paths")  # type: ignore[arg-type]
    return wrong or next(filter(None, map(_check_path, value if isinstance(value, Sized) else ())), "")  # type: ignore[call-overload]


def _check_window(value: object) -> str:
    """Return what is wrong with the limits of a time, or an empty text."""
    limits = list(value) if isinstance(value, tuple | list) else []
    if len(limits) != 2 or any(limit is not None and not _is_integer(limit) for limit in limits):
        return "give two integers in ns, (from, to); None is no limit"
    low, high = limits
    if (low or 0) < 0 or (high is not None and high <= (low or 0)):
        return "FROM must be earlier than TO, and neither may be negative"
    return ""


def _check_steps(value: object) -> str:
    """Return what is wrong with the first and last step, or an empty text."""
    limits = list(value) if isinstance(value, tuple | list) else []
    if len(limits) != 2 or any(limit is not None and not _is_integer(limit) for limit in limits):
        return "give two step numbers, (first, last); None is no limit"
    first, last = limits
    return "FIRST must not be greater than LAST" if None not in limits and first > last else ""


def _check_durations(value: object) -> str:
    """Return what is wrong with lengths by source, or an empty text."""
    is_sound = isinstance(value, Mapping) and all(
        isinstance(source, str) and _is_integer(length) and length >= 0 for source, length in value.items()
    )
    return "" if is_sound else "give a dict of lengths in ns by source, {'cuda_api': 10000}"


def _check_type(kind: type | tuple[type, ...], what: str) -> Callable[[object], str]:
    """Return a check that a value is of a type."""

    def check(value: object) -> str:
        is_sound = _is_integer(value) if kind is int else isinstance(value, kind)
        return "" if is_sound else f"give {what}"

    return check


_CHECKS: tuple[tuple[object, Callable[[object], str]], ...] = (
    (Names, lambda value: _check_list(value, str, "texts")),
    (Numbers, lambda value: _check_list(value, int, "integers")),
    (Paths, _check_paths),
    (TimeWindow, _check_window),
    (StepWindow, _check_steps),
    (MinDurations, _check_durations),
    (bool, _check_type(bool, "True or False")),
    (int, _check_type(int, "an integer")),
    (int | None, _check_type(int, "an integer")),
    (str, _check_type(str, "a text")),
    (str | None, _check_type(str, "a text")),
    (AnyPath, _check_path),
    (AnyPath | None, _check_path),
)
"""What is wrong with a value of each type of option."""


# ---- what several commands take --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(_Checked):
    """What a call that reads reports or a trace may use of the machine, and how it shows that."""

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
            "How to align the clocks of nodes: by UTC, by the ends of collectives and messages, by a file that"
            " --align-report wrote, or not at all; auto uses these ends where they are more accurate than UTC.",
            keyword_help="'auto', 'utc', 'collectives', 'none', or a file that align_report wrote.",
            metavar="auto|utc|collectives|none|FILE",
        ),
    ] = "auto"
    time: Annotated[
        TimeWindow,
        Option(
            "Only this time, counted from the start of the trace, in ns, us, ms or s: 1.5s:2s, :800ms, 2s:.",
            keyword_help="Only this time: (from, to) in ns from the start of the trace; None is no limit.",
            metavar="FROM:TO",
            default="all",
        ),
    ] = None
    steps: Annotated[
        StepWindow,
        Option(
            "Only these steps of the program, by number: from the first begin on any rank to the last end.",
            keyword_help="Only these steps of the program: (first, last), both included; None is no limit.",
            metavar="FIRST:LAST",
            default="all",
            unit="steps",
        ),
    ] = None
    skip_warmup: Annotated[
        bool, Option("Only the steps that do not warm up: all but the first, and slow ones that follow it.")
    ] = False
    step: Annotated[
        str,
        Option(
            "Text of the NVTX ranges that are the steps of the program, without their number.",
            metavar="TEXT",
            default="the ranges with a number that cover most time; without any, kernels that repeat",
        ),
    ] = ""
    nvtx_range: Annotated[
        str,
        Option("Only while an NVTX range with this text is open on any rank (wildcards: * and ?).", metavar="TEXT"),
    ] = ""
    ranks: Annotated[Numbers, Option("Only these ranks.", metavar="0-3,8", default="all")] = None
    memory: Annotated[
        int | None,
        Option(
            "Memory for events (K, M, G, T); the rest is spilled to a file.",
            keyword_help="Memory for events in bytes; the rest is spilled to a file.",
            metavar="2G",
            default="a quarter of that of the machine or job",
            minimum=0,
            unit="bytes",
        ),
    ] = None
    tmp: Annotated[
        AnyPath | None,
        Option(
            "Folder for events that exceed the memory.",
            metavar="FOLDER",
            default="that of the trace, else the current one",
        ),
    ] = None
    strict: Annotated[
        bool, Option("Stop with an error if one of several reports cannot be read, instead of skipping it.")
    ] = False
    dask: Annotated[
        str,
        Option(
            "Work on a Dask cluster: the address of its scheduler, the file that the scheduler wrote, or slurm for"
            " N jobs (--jobs) of dask-jobqueue. Its workers share the folders of reports and trace.",
            keyword_help="Work on a Dask cluster: the address of its scheduler, the file that it wrote, or 'slurm'.",
            metavar="ADDRESS|FILE.json|slurm",
            default="processes of this machine",
        ),
    ] = ""


@dataclass(frozen=True, kw_only=True)
class SummaryOptions(JobOptions):
    """What to sum up."""

    html: Annotated[
        AnyPath | None,
        Option("Also write the summary and its pictures as one page that needs nothing else.", metavar="FILE.html"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class CompareOptions(JobOptions):
    """How to sum up the sides of a comparison, each in its steps without warm-up if these are found."""

    labels: Annotated[
        Names,
        Option(
            "Name of a side; can be repeated, in the order of the sides.",
            metavar="NAME",
            flag="--label",
            default="what differs in the names of their files",
            repeats=True,
            keyword_help="Names of the sides, in their order.",
        ),
    ] = None
    scaling: Annotated[
        str | None,
        Option(
            "How the work of runs of different sizes relates: the same for all (strong), or the same for each GPU"
            " (weak).",
            metavar="strong|weak",
            default="found by the work that is done",
        ),
    ] = None
    traces: Annotated[
        AnyPath | None,
        Option(
            "Also write the trace of each run into this folder: of the same steps, with the same numbers for names.",
            metavar="FOLDER",
        ),
    ] = None
    html: Annotated[
        AnyPath | None,
        Option("Also write the comparison and its pictures as one page that needs nothing else.", metavar="FILE.html"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class InspectOptions(ReadingOptions):
    """How to look into reports."""

    paraver_memory: Annotated[int, PARAVER_MEMORY] = 2**30


# ---- translate -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class EventOptions(_Checked):
    """What to read of reports, and how."""

    sources: Annotated[
        Names,
        Option("Kinds of event to translate.", metavar="NAME,...", default="all that the reports hold"),
    ] = None
    derived: Annotated[
        bool,
        Option(
            "Omit derived data: activity, gaps, kernels in flight of GPUs, waits, the critical path, and steps.",
            flag="--no-derived",
            keyword_help="Add derived data: activity, gaps, kernels in flight of GPUs, waits, critical path, steps.",
        ),
    ] = True
    nvtx_domain: Annotated[
        Names,
        Option("Only these NVTX domains; `default` is the one without a name.", metavar="NAME,...", default="all"),
    ] = None
    kernel_names: Annotated[
        Literal["short", "demangled"],
        Option("Names of kernels: short, or demangled with template arguments.", metavar="short|demangled"),
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kernel_names not in ("short", "demangled"):
            raise UsageError("must be short or demangled", parameter="kernel_names", value=self.kernel_names)


@dataclass(frozen=True, kw_only=True)
class TraceOptions(_Checked):
    """What of the events goes into a trace, and what is written besides."""

    wait_lines: Annotated[
        int,
        Option(
            "Draw a line from the last rank of a communication to each that waited this long for it; 0 draws all.",
            metavar="TIME",
            default="100us",
            minimum=0,
            unit="ns",
        ),
    ] = 100_000
    align_report: Annotated[
        AnyPath | None, Option("Write the offset and drift of each node's clock.", metavar="FILE.toml")
    ] = None
    gpus: Annotated[
        Numbers, Option("Only the streams of these GPUs, by their number on the node.", metavar="0,2", default="all")
    ] = None
    min_duration: Annotated[
        MinDurations,
        Option(
            "Drop events of this source that are shorter; can be repeated.",
            metavar="SOURCE=10us",
            repeats=True,
            keyword_help="The shortest interval to keep (ns) by source.",
        ),
    ] = None
    fold_threads: Annotated[
        bool,
        Option(
            "Show the host threads of a task that only make OS runtime or system calls on one row: their states"
            " together, without their events."
        ),
    ] = False
    overview_trace: Annotated[
        bool,
        Option(
            "Write an overview of less than 100 MB instead: states, steps, the longest waits, what GPUs do and their"
            " metrics, in steps of time where needed."
        ),
    ] = False
    labels_from: Annotated[
        AnyPath | None,
        Option(
            "Reuse the numbers that another trace gives to names, so that both can be compared in one histogram.",
            metavar="OTHER.pcf",
        ),
    ] = None
    paraver_memory: Annotated[int, PARAVER_MEMORY] = 2**30
    force: Annotated[bool, Option("Replace a trace of the same name.")] = False
    stats: Annotated[
        AnyPath | None,
        Option("Write the numbers of events read, written and dropped as JSON.", metavar="FILE.json"),
    ] = None
    summary: Annotated[
        bool,
        Option(
            "Also print the tables of nsys2prv-ng summary, for the same events.",
            keyword_help="Also sum up the same events, as TranslationResult.summary.",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class TranslateOptions(TraceOptions, EventOptions, JobOptions):
    """What to translate, and what to write."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("time", "nvtx_range", "steps", "skip_warmup"):
            if self.metrics_changes and getattr(self, name) not in (None, "", False):
                raise UsageError(
                    "cannot be combined with a chosen time: the values at its start would be unknown",
                    parameter="metrics_changes",
                )


@dataclass(frozen=True, kw_only=True)
class ShardOptions(EventOptions, ReadingOptions):
    """What to read of reports into shards."""


@dataclass(frozen=True, kw_only=True)
class MergeOptions(TraceOptions, JobOptions):
    """What trace to make of shards, and which step of the work to do."""

    only: Annotated[
        Literal["", "plan", "write", "join"],
        Option(
            "Do one step: plan the trace, write one of its parts, or join them. Parts can be written at the same time.",
            metavar="plan|write|join",
            default="all of them",
        ),
    ] = ""
    parts: Annotated[int, Option("Number of parts that the plan cuts the trace into.", metavar="N", minimum=1)] = 8
    part: Annotated[
        int | None,
        Option("The part to write, from 0.", metavar="N", default="SLURM_ARRAY_TASK_ID of the environment", minimum=0),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.only not in ("", "plan", "write", "join"):
            raise UsageError("must be plan, write or join", parameter="only", value=self.only)


# ---- check -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CheckOptions(_Checked):
    """What to check besides the trace."""

    cfg: Annotated[
        Paths,
        Option(
            "Check a Paraver cfg against the trace as well; can be repeated.",
            metavar="FILE.cfg",
            repeats=True,
            keyword_help="Paraver cfgs to check against the trace as well.",
        ),
    ] = None
    progress: Progress | None = None


# ---- cut -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CutOptions(ReadingOptions):
    """What to keep of a trace."""

    time: Annotated[
        TimeWindow,
        Option(
            "Only this time, as Paraver shows it, in ns, us, ms or s: 1.5s:2s, :800ms, 2s:.",
            keyword_help="Only this time: (from, to) in ns, as Paraver shows it; None is no limit.",
            metavar="FROM:TO",
            default="all",
        ),
    ] = None
    ranks: Annotated[
        Numbers, Option("Only these ranks, and the nodes that they ran on.", metavar="0-3,8", default="all")
    ] = None
    force: Annotated[bool, Option("Replace a trace of the same name.")] = False


ALL_OPTIONS = (
    TranslateOptions,
    ShardOptions,
    MergeOptions,
    SummaryOptions,
    CompareOptions,
    InspectOptions,
    CheckOptions,
    CutOptions,
)
"""The options of all calls."""


def describe_keywords(options: Callable[..., object]) -> str:
    """Return a line for each keyword of a class of options, for the docstring of a call."""
    return "\n".join(
        f"    {name}: {option.keyword_help or option.help}" for name, (_, option) in list_options(options).items()
    )
