"""Options of the calls that make a trace of reports: translate, shard and merge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options.job import PARAVER_MEMORY, JobOptions, ReadingOptions
from nsys2prv_ng.options.kinds import Choice, Duration, File, MinDurations, Names, Numbers, Size, SourceNames
from nsys2prv_ng.text.option import Flag, Integer
from nsys2prv_ng.translation.defaults import SHORTEST_LINE_NS


@dataclass(kw_only=True)
class EventOptions:
    """Options of calls that read events: which events to read, and how."""

    sources: SourceNames = SourceNames(
        "Kinds of event to translate.", metavar="NAME,...", shown="all that the reports hold"
    )
    derived: Flag = Flag(
        "Omit derived data: activity, gaps, kernels in flight of GPUs, waits, the critical path, and steps.",
        True,
        flag="--no-derived",
        keyword_help="Add derived data: activity, gaps, kernels in flight of GPUs, waits, critical path, steps.",
    )
    nvtx_domain: Names = Names(
        "Only these NVTX domains; `default` is the one without a name.", metavar="NAME,...", shown="all"
    )
    kernel_names: Choice[Literal["short", "demangled"]] = Choice(
        "Names of kernels: short, or demangled with template arguments.", "short", metavar="short|demangled"
    )
    metrics: Names = Names("Only GPU metrics with these names.", metavar="'SM*,DRAM*'", shown="all")
    metrics_changes: Flag = Flag("Write a GPU metric only when its value changes.")
    osrt_min: Duration[int] = Duration("Drop OS runtime calls shorter than this; 0 keeps all.", "10us", metavar="TIME")
    stack_depth: Integer[int] = Integer(
        "Number of call-stack levels to show: a sample's function and its callers, or a call's callers.",
        1,
        metavar="N",
        minimum=1,
    )


@dataclass(kw_only=True)
class TraceOptions:
    """Options of calls that make a trace of reports: what goes into the trace, and what is written besides."""

    wait_lines: Duration[int] = Duration(
        "Draw a line from the last rank of a communication to each that waited this long for it; 0 draws all.",
        SHORTEST_LINE_NS,
        metavar="TIME",
    )
    align_report: File = File("Write the offset and drift of each node's clock.", metavar="FILE.toml")
    gpus: Numbers = Numbers("Only the streams of these GPUs, by their number on the node.", metavar="0,2", shown="all")
    min_duration: MinDurations = MinDurations(
        "Drop events of this source that are shorter; can be repeated.",
        metavar="SOURCE=10us",
        keyword_help="The shortest interval to keep (ns) by source.",
    )
    fold_threads: Flag = Flag(
        "Show the host threads of a task that only make OS runtime or system calls on one row: their states"
        " together, without their events."
    )
    overview_trace: Flag = Flag(
        "Write an overview of less than 100 MB instead: states, steps, the longest waits, what GPUs do and their"
        " metrics, in steps of time where needed."
    )
    labels_from: File = File(
        "Reuse the numbers that another trace gives to names, so that both can be compared in one histogram.",
        metavar="OTHER.pcf",
    )
    paraver_memory: Size[int] = PARAVER_MEMORY
    force: Flag = Flag("Replace a trace of the same name.")
    stats: File = File("Write the numbers of events read, written and dropped as JSON.", metavar="FILE.json")
    summary: Flag = Flag(
        "Also print the tables of nsys2prv-ng summary, for the same events.",
        keyword_help="Also sum up the same events, as TranslationResult.summary.",
    )


@dataclass(kw_only=True)
class TranslateOptions(TraceOptions, EventOptions, JobOptions):
    """Options of a translation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("time", "nvtx_range", "steps", "skip_warmup"):
            if self.metrics_changes and getattr(self, name) not in (None, "", False):
                raise UsageError(
                    "cannot be combined with a chosen time: the values at its start would be unknown",
                    parameter="metrics_changes",
                )


@dataclass(kw_only=True)
class ShardOptions(EventOptions, ReadingOptions):
    """Options of the call that reads reports into shards."""


@dataclass(kw_only=True)
class MergeOptions(TraceOptions, JobOptions):
    """Options of the call that merges shards: which trace to make, and which step of the work to do."""

    only: Choice[Literal["", "plan", "write", "join"]] = Choice(
        "Do one step: plan the trace, write one of its parts, or join them. Parts can be written at the same time.",
        "",
        metavar="plan|write|join",
        shown="all of them",
    )
    parts: Integer[int] = Integer("Number of parts that the plan cuts the trace into.", 8, metavar="N", minimum=1)
    part: Integer[int | None] = Integer(
        "The part to write, from 0.", metavar="N", minimum=0, shown="SLURM_ARRAY_TASK_ID of the environment"
    )
