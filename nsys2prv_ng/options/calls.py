"""Every option of every call and command: its name, type, default, help and check, declared once.

api/ takes the fields of these classes as keywords, cli/options.py makes the options of the commands from them, and
the reference in docs/ is generated from those. Times are ns, sizes are bytes. Each class raises UsageError, naming the
parameter, for values that make no sense.
"""

from typing import Annotated, Literal

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options import kinds
from nsys2prv_ng.options.kinds import Option
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.source_names import GPU_METRICS, NCCL, NVTX
from nsys2prv_ng.text.formatting import format_duration
from nsys2prv_ng.translation.defaults import SHORTEST_LINE_NS
from nsys2prv_ng.value_class import ValueClass

PARAVER_MEMORY: kinds.Integer = Option(
    "Warn if Paraver needs more memory than this to load the trace (K, M, G, T), and print what helps. 0 never warns.",
    "1G",
    keyword_help="Warn if Paraver needs more memory than this to load the trace, in bytes. 0 never warns.",
    metavar="4G",
)


class CallOptions(ValueClass, kw_only=True):
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


class ReadingOptions(CallOptions, kw_only=True):
    """Options of calls that read reports or a trace: how much of the machine they use."""

    jobs: Annotated[kinds.OptionalInteger, kinds.at_least(1)] = Option(
        "Number of cores to use.", metavar="N", short="-j", shown="all"
    )


class JobOptions(ReadingOptions, kw_only=True):
    """Options of calls on a job: how its reports are read and aligned in time."""

    align: kinds.WordOrFile = Option(
        "How to align node clocks: by UTC, by the ends of collectives and messages, by a file that --align-report"
        " wrote, or not at all. auto uses the ends of collectives if they are more accurate than UTC.",
        "auto",
        keyword_help=f"{kinds.ALIGNMENTS}.",
        metavar="auto|utc|collectives|none|FILE",
    )
    time: kinds.JobTime = Option(
        "Only this time, from the start of the trace, in ns, us, ms or s: 1.5s:2s, :800ms or 2s:. gpu is the time"
        " from the first to the last operation of any selected GPU. summary and compare cover the steps after the"
        " warm-up by default, and all time with a colon alone.",
        keyword_help="Only this time: (from, to) in ns from the start of the trace, None is no limit; or 'gpu',"
        " from the first to the last operation of any selected GPU.",
        metavar="FROM:TO|gpu",
        shown="all",
    )
    # Without NVTX ranges, other steps may be found.
    steps: kinds.Steps = Option(
        "Only these steps of the program, by number. A step ends when its last GPU operation ends.",
        keyword_help="Only these steps of the program: (first, last), both included; None is no limit.",
        metavar="FIRST:LAST",
        shown="all",
        source=NVTX,
    )
    skip_warmup: kinds.Flag = Option(
        "Skip warm-up steps: the first step, and slow steps right after it.", False, source=NVTX
    )
    step: kinds.Text = Option(
        "NVTX ranges that are the steps of the program: their text without a number at its end, or with {n} for the"
        " number and * for other text.",
        "",
        metavar="TEXT",
        shown="the numbered ranges that cover most time, or repeating kernels if there are none",
        source=NVTX,
    )
    nvtx_range: kinds.Text = Option(
        "Only while an NVTX range with this text is open on any rank (wildcards: * and ?).",
        "",
        metavar="TEXT",
        source=NVTX,
    )
    ranks: kinds.Numbers = Option("Only these ranks.", metavar="0-3,8", shown="all")
    memory: Annotated[kinds.OptionalInteger, kinds.parse_size] = Option(
        "Memory for events (K, M, G, T). Events beyond it are spilled to a file.",
        keyword_help="Memory for events in bytes. Events beyond it are spilled to a file.",
        metavar="2G",
        shown="a quarter of the memory of the machine or job",
    )
    tmp: kinds.File = Option(
        "Folder for spilled events, and for exports if their own folder has no file locks.",
        metavar="FOLDER",
        shown="the folder of the trace, else the current folder, or TMPDIR if that is read-only",
    )
    strict: kinds.Flag = Option("Stop with an error if a report cannot be read, instead of skipping the report.", False)
    several_jobs: kinds.Flag = Option(
        "Accept reports that look like different jobs: they share no time, or several processes have the same rank.",
        False,
    )
    dask: kinds.Text = Option(
        "Work on a Dask cluster: the address of its scheduler, or the scheduler file. The workers must share the"
        " folders of the reports and the trace.",
        "",
        metavar="ADDRESS|FILE.json",
        shown="processes of this machine",
    )


class SummaryOptions(JobOptions, kw_only=True):
    """Options of a summary."""

    html: kinds.Page = Option("Also write a self-contained HTML report with charts.", metavar="FILE.html")
    save: kinds.SavedSummary = Option(
        "Also save the numbers for a later compare: as this file, or in a folder of all captures.",
        metavar="FILE.json|FOLDER",
    )


class PredictionOptions(JobOptions, kw_only=True):
    """Options of the command that predicts what changes save."""

    change: kinds.Words = Option(
        "What to change, like \"range 'data loading' = 0\" or 'network = ideal'. Repeat it for further predictions."
        " Write 'and' between changes that are made together.",
        metavar="TEXT",
        keyword_help="What to change, one text for each prediction: \"range 'data loading' = 0 and network = ideal\".",
        shown="the changes that are likely to save most",
        repeats=True,
    )
    force: kinds.Flag = Option("Replace an existing trace.", False)


class WhatIfOptions(PredictionOptions, kw_only=True):
    """Options of a what-if analysis."""

    output: kinds.File = Option("Also write the predicted trace of the only change.", metavar="OUT.prv")


class CompareOptions(JobOptions, kw_only=True):
    """Options of a comparison. Each run is summed up over its steps without warm-up, if it has steps."""

    labels: kinds.Words = Option(
        "Name of a run. Repeat it for each run, in their order.",
        metavar="NAME",
        flag="--label",
        keyword_help="Names of the runs, in their order.",
        shown="what differs in the names of the report files",
        repeats=True,
    )
    scaling: Annotated[Option[str | None, str | None], kinds.one_of("strong", "weak")] = Option(
        "How the work of runs of different sizes scales: the same work in total (strong), or per GPU (weak).",
        metavar="strong|weak",
        shown="detected from the work in the reports",
    )
    html: kinds.Page = Option("Also write a self-contained HTML report with charts.", metavar="FILE.html")
    against: kinds.History = Option(
        "Compare with the last captures of the same program, size and machine in this folder of saved summaries.",
        metavar="FOLDER",
    )


class InspectOptions(ReadingOptions, kw_only=True):
    """Options of an inspection."""

    paraver_memory: Annotated[kinds.Integer, kinds.parse_size] = PARAVER_MEMORY


class EventOptions(ValueClass, kw_only=True):
    """Options of calls that read events: which events to read, and how."""

    sources: kinds.Names = Option(
        "Kinds of event to translate.",
        metavar="NAME,...",
        shown="all that the reports contain",
        complete=kinds.complete_sources,
    )
    derived: kinds.Flag = Option(
        "Omit derived data: GPU activity, gaps, kernels in flight, waits, the critical path and steps.",
        True,
        flag="--no-derived",
        keyword_help="Add derived data: GPU activity, gaps, kernels in flight, waits, the critical path and steps.",
    )
    nvtx_domain: kinds.Names = Option(
        "Only these NVTX domains. `default` is the domain without a name.", metavar="NAME,...", shown="all", source=NVTX
    )
    kernel_names: Annotated[
        Option[Literal["short", "demangled"], Literal["short", "demangled"]], kinds.one_of("short", "demangled")
    ] = Option("Kernel names: short, or demangled with template arguments.", "short", metavar="short|demangled")
    metrics: kinds.Names = Option(
        "Only GPU metrics with these names.", metavar="'SM*,DRAM*'", shown="all", source=GPU_METRICS
    )
    metrics_changes: kinds.Flag = Option("Write a GPU metric only when its value changes.", False, source=GPU_METRICS)
    nccl_channels: kinds.Flag = Option(
        "Show NCCL's operations on the channels of GPUs and its proxies on rows of their own, if reports have the"
        " advanced NCCL trace of nsys.",
        False,
        source=NCCL,
    )
    osrt_min: kinds.Duration = Option("Drop OS runtime calls shorter than this. 0 keeps all.", "10us", metavar="TIME")
    stack_depth: Annotated[kinds.Integer, kinds.at_least(1)] = Option(
        "Number of call-stack levels to show: a sample's function and its callers, or a call's callers.", 1, metavar="N"
    )


class TranslateOptions(EventOptions, JobOptions, kw_only=True):
    """Options of a translation: what is read, what goes into the trace, and what is written besides."""

    wait_lines: kinds.Duration = Option(
        "Draw a line from a straggler to each rank that waited at least this long for it. 0 draws all.",
        format_duration(SHORTEST_LINE_NS),
        metavar="TIME",
    )
    align_report: kinds.File = Option("Write the offset and drift of each node's clock.", metavar="FILE.toml")
    gpus: kinds.Numbers = Option(
        "Only the streams of these GPUs, by their number on the node.", metavar="0,2", shown="all"
    )
    min_duration: kinds.MinDurations = Option(
        "Drop shorter events of this source. Repeat it for further sources.",
        metavar="SOURCE=10us",
        keyword_help="The shortest interval to keep (ns) by source.",
        repeats=True,
        complete=kinds.complete_min_duration,
    )
    fold_threads: kinds.Flag = Option(
        "Show the idle host threads of a task, which only make OS runtime or system calls, on one row, without"
        " their events.",
        False,
    )
    overview_trace: kinds.Flag = Option(
        "Write an overview of less than 100 MB instead: states, steps, the longest waits, GPU activity and metrics,"
        " in time bins if needed.",
        False,
    )
    labels_from: kinds.File = Option(
        "Number names as another trace does, so that colours and histograms of both can be compared.",
        metavar="OTHER.pcf",
    )
    paraver_memory: Annotated[kinds.Integer, kinds.parse_size] = PARAVER_MEMORY
    force: kinds.Flag = Option("Replace an existing trace.", False)
    stats: kinds.File = Option(
        "Also write the table of events as JSON: what was read and written, and what became of the rest.",
        metavar="FILE.json",
    )
    summary: kinds.Flag = Option(
        "Also print what nsys2prv-ng summary prints, for the same events.",
        False,
        keyword_help="Also sum up the same events, as TranslationResult.summary.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("time", "nvtx_range", "steps", "skip_warmup"):
            if self.metrics_changes and getattr(self, name) not in (None, "", False):
                raise UsageError(
                    "cannot be combined with a chosen time: the values at its start would be unknown",
                    parameter="metrics_changes",
                )


class ShardOptions(EventOptions, ReadingOptions, kw_only=True):
    """Options of the call that reads reports into shards."""


class ExportOptions(JobOptions, kw_only=True):
    """Options of an export of tables."""

    tables: kinds.Names = Option("Only these tables.", metavar="NAME,...", shown="all that have rows")
    format: Annotated[Option[Literal["parquet", "csv"], Literal["parquet", "csv"]], kinds.one_of("parquet", "csv")] = (
        Option("Format of the files.", "parquet", metavar="parquet|csv")
    )
    force: kinds.Flag = Option("Replace an existing export.", False)


ALL_OPTIONS = (
    TranslateOptions, ShardOptions, SummaryOptions, WhatIfOptions, CompareOptions, InspectOptions, ExportOptions,
)  # fmt: skip
"""The options of all calls."""
