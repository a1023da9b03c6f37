"""Options of the calls that read the reports of a job: summary, compare, inspect, and what others share with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from nsys2prv_ng.options.checked import (
    AnyPath,
    Checked,
    JobTime,
    Names,
    Numbers,
    StepWindow,
)
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.text.option import Option

PARAVER_MEMORY = Option(
    "Warn of a trace for which Paraver needs more memory than this (K, M, G, T), and print what helps; 0 never does.",
    keyword_help="Warn of a trace for which Paraver needs more memory than this, in bytes; 0 never does.",
    metavar="4G",
    default="1G",
    minimum=0,
    unit="bytes",
)


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(Checked):
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
        JobTime,
        Option(
            "Only this time, counted from the start of the trace, in ns, us, ms or s: 1.5s:2s, :800ms, 2s:; or gpu,"
            " from the first to the last operation of any chosen GPU.",
            keyword_help="Only this time: (from, to) in ns from the start of the trace, None is no limit; or 'gpu',"
            " from the first to the last operation of any chosen GPU.",
            metavar="FROM:TO|gpu",
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
            "Folder for events that exceed the memory, and for exports whose own folder has no file locks.",
            metavar="FOLDER",
            default="that of the trace, else the current one, or that of TMPDIR if it is read-only",
        ),
    ] = None
    strict: Annotated[
        bool, Option("Stop with an error if one of several reports cannot be read, instead of skipping it.")
    ] = False
    several_jobs: Annotated[
        bool,
        Option("Take reports that cannot be of one job: they share no time, or have several processes of one rank."),
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
