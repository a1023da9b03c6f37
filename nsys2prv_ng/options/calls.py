"""Every option of every call and command: its name, type, default, help and check, declared once.

api/ takes the fields of these classes as keywords, cli/options.py makes the options of the commands from them, and
the reference in docs/ is generated from those. Times are ns, sizes are bytes. Each class raises UsageError, naming the
parameter, for values that make no sense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options.kinds import (
    Choice,
    Duration,
    File,
    Files,
    JobTime,
    Limits,
    MinDurations,
    Names,
    Numbers,
    Size,
    SourceNames,
    Steps,
    TimeWindow,
    WordOrFile,
)
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.text.option import Flag, Integer, Text, Words
from nsys2prv_ng.translation.defaults import SHORTEST_LINE_NS

PARAVER_MEMORY: Size[int] = Size(
    "Warn of a trace for which Paraver needs more memory than this (K, M, G, T), and print what helps; 0 never does.",
    "1G",
    keyword_help="Warn of a trace for which Paraver needs more memory than this, in bytes; 0 never does.",
    metavar="4G",
)


@dataclass(kw_only=True)
class CallOptions:
    """Options of every call: how it shows its progress."""

    progress: Progress | None = None
    """Shows progress and warnings; None shows nothing. The command line has --quiet."""

    def __post_init__(self) -> None:
        if not isinstance(self.progress, Progress | None):
            raise UsageError("give an instance of Progress", parameter="progress")

    @property
    def display(self) -> Progress:
        """The object that shows progress and warnings."""
        return self.progress or Progress()


@dataclass(kw_only=True)
class ReadingOptions(CallOptions):
    """Options of calls that read reports or a trace: how much of the machine they use."""

    jobs: Integer[int | None] = Integer("Number of cores to use.", metavar="N", short="-j", minimum=1, shown="all")


@dataclass(kw_only=True)
class JobOptions(ReadingOptions):
    """Options of calls on a job: how its reports are read and aligned in time."""

    align: WordOrFile = WordOrFile(
        "How to align the clocks of nodes: by UTC, by the ends of collectives and messages, by a file that"
        " --align-report wrote, or not at all; auto uses these ends where they are more accurate than UTC.",
        "auto",
        keyword_help="'auto', 'utc', 'collectives', 'none', or a file that align_report wrote.",
        metavar="auto|utc|collectives|none|FILE",
    )
    time: JobTime = JobTime(
        "Only this time, counted from the start of the trace, in ns, us, ms or s: 1.5s:2s, :800ms, 2s:; or gpu,"
        " from the first to the last operation of any chosen GPU. summary and compare cover the steps after the warm-up"
        " unless a time is chosen: a colon alone is all time.",
        keyword_help="Only this time: (from, to) in ns from the start of the trace, None is no limit; or 'gpu',"
        " from the first to the last operation of any chosen GPU.",
        metavar="FROM:TO|gpu",
        shown="all",
    )
    steps: Steps = Steps(
        "Only these steps of the program, by number: a step ends when the GPUs have ended what it launched.",
        keyword_help="Only these steps of the program: (first, last), both included; None is no limit.",
        metavar="FIRST:LAST",
        shown="all",
    )
    skip_warmup: Flag = Flag("Only the steps that do not warm up: all but the first, and slow ones that follow it.")
    step: Text = Text(
        "Text of the NVTX ranges that are the steps of the program, without their number.",
        metavar="TEXT",
        shown="the ranges with a number that cover most time; without any, kernels that repeat",
    )
    nvtx_range: Text = Text(
        "Only while an NVTX range with this text is open on any rank (wildcards: * and ?).", metavar="TEXT"
    )
    ranks: Numbers = Numbers("Only these ranks.", metavar="0-3,8", shown="all")
    memory: Size[int | None] = Size(
        "Memory for events (K, M, G, T); the rest is spilled to a file.",
        keyword_help="Memory for events in bytes; the rest is spilled to a file.",
        metavar="2G",
        shown="a quarter of that of the machine or job",
    )
    tmp: File = File(
        "Folder for events that exceed the memory, and for exports whose own folder has no file locks.",
        metavar="FOLDER",
        shown="that of the trace, else the current one, or that of TMPDIR if it is read-only",
    )
    strict: Flag = Flag("Stop with an error if one of several reports cannot be read, instead of skipping it.")
    several_jobs: Flag = Flag(
        "Take reports that cannot be of one job: they share no time, or have several processes of one rank."
    )
    dask: Text = Text(
        "Work on a Dask cluster: the address of its scheduler, the file that the scheduler wrote, or slurm for"
        " N jobs (--jobs) of dask-jobqueue. Its workers share the folders of reports and trace.",
        keyword_help="Work on a Dask cluster: the address of its scheduler, the file that it wrote, or 'slurm'.",
        metavar="ADDRESS|FILE.json|slurm",
        shown="processes of this machine",
    )


@dataclass(kw_only=True)
class SummaryOptions(JobOptions):
    """Options of a summary."""

    html: File = File(
        "Also write the summary and its pictures as one page that needs nothing else.", metavar="FILE.html"
    )
    save: File = File("Also write the numbers as JSON, which compare takes.", metavar="FILE.json")


@dataclass(kw_only=True)
class PredictionOptions(JobOptions):
    """Options of the command that predicts what changes save."""

    change: Words = Words(
        "What to change, like \"range 'data loading' = 0\" or 'network = ideal'; can be repeated, for one prediction"
        " each. Changes that are made together have 'and' between them.",
        metavar="TEXT",
        keyword_help="What to change, one text for each prediction: \"range 'data loading' = 0 and network = ideal\".",
        shown="those that are likely to save most",
    )
    force: Flag = Flag("Replace a trace of the same name.")


@dataclass(kw_only=True)
class WhatIfOptions(PredictionOptions):
    """Options of a what-if analysis."""

    output: File = File("Also write the predicted trace of the only change.", metavar="OUT.prv")


@dataclass(kw_only=True)
class CompareOptions(JobOptions):
    """Options of a comparison. Each side is summed up in its steps without warm-up if these are found."""

    labels: Words = Words(
        "Name of a side; can be repeated, in the order of the sides.",
        metavar="NAME",
        flag="--label",
        keyword_help="Names of the sides, in their order.",
        shown="what differs in the names of their files",
    )
    scaling: Choice[str | None] = Choice(
        "How the work of runs of different sizes relates: the same for all (strong), or the same for each GPU (weak).",
        metavar="strong|weak",
        shown="found by the work that is done",
    )
    traces: File = File(
        "Also write the trace of each run into this folder: of the same steps, with the same numbers for names.",
        metavar="FOLDER",
    )
    html: File = File(
        "Also write the comparison and its pictures as one page that needs nothing else.", metavar="FILE.html"
    )


@dataclass(kw_only=True)
class InspectOptions(ReadingOptions):
    """Options of an inspection."""

    paraver_memory: Size[int] = PARAVER_MEMORY


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
    stats: File = File("Write what became of the events of each source as JSON.", metavar="FILE.json")
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


@dataclass(kw_only=True)
class CheckOptions(CallOptions):
    """Options of a check."""

    cfg: Files = Files(
        "Check a Paraver cfg against the trace as well; can be repeated.",
        metavar="FILE.cfg",
        keyword_help="Paraver cfgs to check against the trace as well.",
    )


@dataclass(kw_only=True)
class CutOptions(ReadingOptions):
    """Options of a cut."""

    time: TimeWindow[Limits | None] = TimeWindow(
        "Only this time, as Paraver shows it, in ns, us, ms or s: 1.5s:2s, :800ms, 2s:.",
        keyword_help="Only this time: (from, to) in ns, as Paraver shows it; None is no limit.",
        metavar="FROM:TO",
        shown="all",
    )
    ranks: Numbers = Numbers("Only these ranks, and the nodes that they ran on.", metavar="0-3,8", shown="all")
    force: Flag = Flag("Replace a trace of the same name.")


ALL_OPTIONS = (
    TranslateOptions,
    ShardOptions,
    MergeOptions,
    SummaryOptions,
    WhatIfOptions,
    CompareOptions,
    InspectOptions,
    CheckOptions,
    CutOptions,
)
"""The options of all calls."""
