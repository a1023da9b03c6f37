"""Options of the calls that read the reports of a job: summary, compare, inspect, and what others share with them."""

from __future__ import annotations

from dataclasses import dataclass

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options.kinds import Choice, File, JobTime, Numbers, Size, Steps, WordOrFile
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.text.option import Flag, Integer, Text, Words

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
        " from the first to the last operation of any chosen GPU.",
        keyword_help="Only this time: (from, to) in ns from the start of the trace, None is no limit; or 'gpu',"
        " from the first to the last operation of any chosen GPU.",
        metavar="FROM:TO|gpu",
        shown="all",
    )
    steps: Steps = Steps(
        "Only these steps of the program, by number: from the first begin on any rank to the last end.",
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
