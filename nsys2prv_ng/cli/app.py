"""The commands: what can be typed, and what is called for it."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Optional

import typer

from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.version import __version__

# Numba, pandas and pyarrow are imported where they are used, so that --help and errors of usage answer at once.

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)

_WIDTH_OF_FILES = 100
"""Characters of a line where the output is no terminal."""
_REPORT_ENDINGS = (".nsys-rep", ".qdrep", ".sqlite", "_pqtdir", "_arwdir")

Jobs = Annotated[
    Optional[int],  # noqa: UP045 (typer reads the annotation at run time)
    typer.Option("--jobs", "-j", min=1, metavar="N", help="Cores to use.", show_default="all"),
]
Memory = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="2G",
        help="Memory for events; what does not fit waits in a file (K, M, G, T).",
        show_default="a quarter of the machine's or job's",
    ),
]
Align = Annotated[
    str,
    typer.Option(
        metavar="auto|utc|collectives|none|FILE",
        help="How the clocks of nodes are aligned: by UTC, by the ends of collectives, by a file that"
        " --align-report wrote, or not at all; auto takes collectives where they do better than UTC.",
    ),
]
Time = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="FROM:TO",
        help="Only this time, from the start of the trace, in ns, us, ms or s: 1.5s:2s, :800ms, 2s:.",
        show_default="all",
    ),
]
NvtxRange = Annotated[
    str,
    typer.Option(
        metavar="TEXT", help="Only while an NVTX range of this text is open on any rank (* and ? as for files)."
    ),
]
Ranks = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="0-3,8", help="Only these ranks.", show_default="all"),
]
Strict = Annotated[bool, typer.Option("--strict", help="End with an error if one of several reports cannot be read.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs: times in ns, sizes in bytes.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")]
NoProgress = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"nsys2prv-ng {__version__}")
        raise typer.Exit


@app.callback(
    epilog="A first word that is no command is the first report: nsys2prv-ng REPORT... OUT.prv translates."
    " Options: nsys2prv-ng translate --help."
)
def _common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Translate NVIDIA Nsight Systems reports of every rank of a job into one Paraver trace."""


@app.command()
def translate(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="REPORT... OUT.prv",
            help="Reports (.nsys-rep, or exported to .sqlite, _pqtdir or _arwdir) in any order, then the trace (.prv or"
            " .prv.gz).",
            show_default=False,
        ),
    ],
    sources: Annotated[
        Optional[str],  # noqa: UP045 (typer reads the annotation at run time)
        typer.Option(metavar="NAME,...", help="Kinds of event to translate.", show_default="all that the reports hold"),
    ] = None,
    no_derived: Annotated[
        bool, typer.Option("--no-derived", help="Leave out what is made of all operations of a GPU: activity, gaps.")
    ] = False,
    align: Align = "auto",
    align_report: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE.toml", help="Write offset and drift of each node's clock."),
    ] = None,
    time: Time = None,
    nvtx_range: NvtxRange = "",
    ranks: Ranks = None,
    gpus: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="0,2", help="Only the streams of these GPUs, by their number on the node."),
    ] = None,
    min_duration: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="SOURCE=10us", help="Leave out shorter intervals of a kind of event; can be repeated."),
    ] = None,
    nvtx_domain: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="NAME,...", help="Only these NVTX domains; `default` is the one without a name."),
    ] = None,
    kernel_names: Annotated[
        str, typer.Option(metavar="short|demangled", help="Kernels by their short or their demangled name.")
    ] = "short",
    metrics: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="'SM*,DRAM*'", help="Only GPU metrics of these names.", show_default="all"),
    ] = None,
    metrics_changes: Annotated[
        bool, typer.Option("--metrics-changes", help="Of GPU metrics only the values that changed.")
    ] = False,
    osrt_min: Annotated[
        str, typer.Option(metavar="TIME", help="Leave out shorter calls of the operating system; 0 keeps all.")
    ] = "10us",
    stack_depth: Annotated[
        int,
        typer.Option(
            metavar="N", help="Levels of call stacks: of samples the function and its callers, of calls the callers."
        ),
    ] = 1,
    labels_from: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="OTHER.pcf", help="Keep the numbers of another trace's names, to compare the two."),
    ] = None,
    jobs: Jobs = None,
    memory: Memory = None,
    tmp: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FOLDER", help="Where events wait that do not fit.", show_default="that of the trace"),
    ] = None,
    compress: Annotated[bool, typer.Option("--gzip", help="Write OUT.prv.gz, which Paraver reads.")] = False,
    strict: Strict = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a trace of the same name.")] = False,
    summary: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE.json", help="Write the table of events read, written and dropped as JSON."),
    ] = None,
    overview: Annotated[
        bool, typer.Option("--overview", help="Print what the command summary prints as well, of the same events.")
    ] = False,
    quiet: Quiet = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print the reports and their clocks as well.")
    ] = False,
) -> None:
    """Translate reports into one trace (the default)."""
    reports, output = _reports_and_output(paths, compress)

    from nsys2prv_ng import api as library
    from nsys2prv_ng.job import selection as choose
    from nsys2prv_ng.runtime.limits import parse_size
    from nsys2prv_ng.runtime.progress import choose_progress

    done = library.translate(
        reports,
        output,
        sources=None if sources is None else sources.split(","),
        derived=not no_derived,
        align=align,
        align_report=align_report,
        time=choose.parse_window(time) if time is not None else None,
        nvtx_range=nvtx_range,
        ranks=choose.parse_numbers("--ranks", ranks) if ranks is not None else None,
        gpus=choose.parse_numbers("--gpus", gpus) if gpus is not None else None,
        min_duration=choose.parse_min_durations(min_duration or []),
        nvtx_domain=_list(nvtx_domain),
        kernel_names=kernel_names,  # type: ignore[arg-type]
        metrics=_list(metrics),
        metrics_changes=metrics_changes,
        osrt_min=0 if osrt_min == "0" else choose.parse_time(osrt_min),
        stack_depth=stack_depth,
        labels_from=labels_from,
        jobs=jobs,
        memory=parse_size(memory) if memory is not None else None,
        tmp=tmp,
        strict=strict,
        force=force,
        summary=summary,
        overview=overview,
        progress=choose_progress(quiet=quiet),
    )
    if not quiet:
        print(done.text(verbose=verbose))
    if done.overview is not None:
        from nsys2prv_ng.summary.text import format_summary

        print(f"\n{format_summary(done.overview)}")


@app.command()
def inspect(
    reports: Annotated[
        list[Path],
        typer.Argument(metavar="REPORT...", help="Reports or exports, as for translate.", show_default=False),
    ],
    as_json: Json = False,
    jobs: Jobs = None,
    quiet: NoProgress = False,
) -> None:
    """Tell what is in reports.

    Exit code 1 if some cannot be read or translated.
    """
    from nsys2prv_ng.inspection.inspect import inspect as run
    from nsys2prv_ng.inspection.text import escape_path, format_inspection
    from nsys2prv_ng.runtime import jit as compiling
    from nsys2prv_ng.runtime.limits import count_usable_cores
    from nsys2prv_ng.runtime.progress import choose_progress

    progress = choose_progress(quiet=quiet)
    with compiling.announce_compilation(progress.note):
        found = run(reports, progress, jobs or count_usable_cores())
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_OF_FILES
        print(format_inspection(found, width))
    if found.faults:
        more = f" (and {len(found.faults) - 1} more, listed above)" if len(found.faults) > 1 else ""
        raise TranslationError(escape_path(found.faults[0]) + more)


@app.command()
def summary(
    reports: Annotated[
        list[Path],
        typer.Argument(metavar="REPORT...", help="Reports, of the same kinds as for translate.", show_default=False),
    ],
    as_json: Json = False,
    align: Align = "auto",
    time: Time = None,
    nvtx_range: NvtxRange = "",
    ranks: Ranks = None,
    jobs: Jobs = None,
    memory: Memory = None,
    tmp: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FOLDER", help="Where events wait that do not fit.", show_default="the current one"),
    ] = None,
    strict: Strict = False,
    quiet: NoProgress = False,
) -> None:
    """Print the first numbers of a job.

    What GPUs and ranks did and waited for, without a trace.
    """
    from nsys2prv_ng.clock.alignment import parse_alignment
    from nsys2prv_ng.job import selection as choose
    from nsys2prv_ng.job.open_job import ReadOptions, open_job
    from nsys2prv_ng.runtime import jit as compiling
    from nsys2prv_ng.runtime.limits import Resources, count_usable_cores, get_default_memory, parse_size
    from nsys2prv_ng.runtime.progress import choose_progress
    from nsys2prv_ng.sources import select_sources as choose_sources
    from nsys2prv_ng.sources.shared.source import SourceOptions
    from nsys2prv_ng.summary.compute import compute_summary
    from nsys2prv_ng.summary.text import format_summary

    selection = choose.Selection(
        window=choose.parse_window(time) if time is not None else None,
        nvtx_range=nvtx_range,
        ranks=choose.parse_numbers("--ranks", ranks) if ranks is not None else None,
    )
    options = ReadOptions(
        sources=choose_sources(None),
        source_options=SourceOptions(nvtx_range=nvtx_range),
        selection=selection,
        align=parse_alignment(align),
        strict=strict,
        resources=Resources(
            jobs=jobs or count_usable_cores(), memory=parse_size(memory) if memory is not None else get_default_memory()
        ),
    )
    progress = choose_progress(quiet=quiet)
    with compiling.announce_compilation(progress.note), open_job(reports, tmp or Path(), options, progress) as job:
        found = compute_summary(job)
    for warning in found.warnings:
        progress.warn(warning)
    print(json.dumps(found.to_dict(), indent=2) if as_json else format_summary(found))


@app.command()
def check(
    trace: Annotated[Path, typer.Argument(metavar="OUT.prv", help="A trace: .prv or .prv.gz.", show_default=False)],
    cfg: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(metavar="FILE.cfg", help="Check a Paraver cfg against the trace as well; can be repeated."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print problems only.")] = False,
) -> None:
    """Check a trace, and cfgs, by Paraver's rules.

    Exit code 1 if they do not keep every rule.
    """
    from nsys2prv_ng.paraver.checker.cfg import check_cfg
    from nsys2prv_ng.paraver.checker.trace import check_trace
    from nsys2prv_ng.runtime import jit as compiling
    from nsys2prv_ng.runtime.progress import choose_progress

    size = trace.stat().st_size if trace.is_file() else 0
    progress = choose_progress(quiet=quiet)
    with compiling.announce_compilation(progress.note), progress.step(f"checking {trace}", size, "B") as step:
        report = check_trace(trace, progress=step.update)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in report.records.items())
    counts += f"; {report.tasks:,} tasks, {report.rows:,} rows, {report.nodes:,} nodes"
    _print_findings(trace, report.problems, report.warnings, counts, quiet)
    wrong = [f"{trace}: {len(report.problems)} kinds of problem"] if report.problems else []
    contents = report.contents
    for each in cfg or []:
        found = check_cfg(each, contents.config, contents.header, contents.types)
        counts = f"{found.windows:,} windows, {found.histograms:,} histograms"
        _print_findings(each, found.problems, found.warnings, counts, quiet)
        wrong += [f"{each}: {len(found.problems)} kinds of problem"] if found.problems else []
    if wrong:
        raise TranslationError("; ".join(wrong))


def _print_findings(
    path: Path, problems: Sequence[object], warnings: Sequence[object], counts: str, quiet: bool
) -> None:
    for problem in problems:
        print(problem)
    if not quiet:
        for warning in warnings:
            print(f"warning: {warning}")
        print(f"{path}: {counts}")


@app.command()
def cfgs(
    install: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="DIR", help="Copy the presets there, with their folders."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace other files of the same names.")] = False,
) -> None:
    """List or copy the presets (.cfg) for Paraver."""
    from nsys2prv_ng.bundled import presets

    if install is not None:
        copies = presets.install_presets(install, force=force)
        print(f"{install}: {len(copies)} presets; open them in wxParaver with File, Load Configuration")
        return
    found = presets.list_presets()
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        for preset in found:
            print(preset.name)
            print(textwrap.fill(preset.summary, width, initial_indent="    ", subsequent_indent="    "))
    else:  # a line each, for programs
        names = max(len(preset.name) for preset in found)
        for preset in found:
            print(f"{preset.name.ljust(names)}  {preset.summary}")


@app.command(context_settings={"allow_interspersed_args": False})
def slurm(
    command: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(metavar="[--] [COMMAND...]", help="What each task runs.", show_default="python train.py"),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, metavar="N", help="Nodes of the job.")] = 2,
    gpus_per_node: Annotated[int, typer.Option(min=1, metavar="N", help="GPUs of each node, a rank on each.")] = 4,
    per_node: Annotated[
        bool, typer.Option("--per-node", help="One task and report for each node: the command starts its ranks.")
    ] = False,
    capture_range: Annotated[
        bool, typer.Option("--capture-range", help="Profile only between cudaProfilerStart and cudaProfilerStop.")
    ] = False,
    dependent: Annotated[
        bool, typer.Option("--dependent", help="Translate in a job of its own, whatever ends the first.")
    ] = False,
    container: Annotated[
        str,
        typer.Option(metavar="IMAGE", help="Run in a container: FILE.sif by Apptainer, others by srun's plugin."),
    ] = "",
    venv: Annotated[str, typer.Option(metavar="DIR", help="Virtual environment that nsys2prv-ng is in.")] = "",
    module: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="NAME", help="Module to load, as of nsys; can be repeated."),
    ] = None,
) -> None:
    """Print a script for Slurm, from job to trace.

    It profiles a job and translates its reports; submit it with sbatch.
    """
    from nsys2prv_ng.bundled.job_script import ScriptOptions, render_script

    job = ScriptOptions(
        command=command or (),
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        per_node=per_node,
        capture_range=capture_range,
        dependent=dependent,
        container=container,
        venv=venv,
        modules=module or (),
    )
    print(render_script(job), end="")


def _reports_and_output(paths: list[Path], compress: bool) -> tuple[list[Path], Path]:
    *reports, output = paths
    if not output.name.endswith((".prv", ".prv.gz")):
        what = "is a report, and" if output.name.endswith(_REPORT_ENDINGS) else "is no name of a trace:"
        raise UsageError(f"{output}: the last argument {what} must be the trace to write, OUT.prv or OUT.prv.gz")
    if not reports:
        raise UsageError(f"no report given to translate into {output}: nsys2prv-ng REPORT... OUT.prv")
    for report in reports:
        if report.name.endswith((".prv", ".prv.gz")):
            raise UsageError(f"{report}: a trace among the reports; only the last argument names one")
    if compress and output.suffix != ".gz":
        output = output.with_name(output.name + ".gz")
    return reports, output


def _list(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())
