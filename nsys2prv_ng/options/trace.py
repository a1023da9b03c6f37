"""Options of the calls that make a trace of reports: translate, shard and merge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options.checked import (
    AnyPath,
    Checked,
    MinDurations,
    Names,
    Numbers,
)
from nsys2prv_ng.options.job import PARAVER_MEMORY, JobOptions, ReadingOptions
from nsys2prv_ng.text.option import Option


@dataclass(frozen=True, kw_only=True)
class EventOptions(Checked):
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
class TraceOptions(Checked):
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
