"""The commands, except compare: what each takes and prints. Their work is in api/."""

from __future__ import annotations

import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nsys2prv_ng import api
from nsys2prv_ng.api.calls import find_answer
from nsys2prv_ng.bundled.job_script import ScriptOptions, choose_form, render_script
from nsys2prv_ng.cli.options import (
    Json,
    NoProgress,
    Quiet,
    ReportsArgument,
    describe_argument,
    describe_folder,
    find_flag,
    with_options,
)
from nsys2prv_ng.errors import TranslationError, UsageError, escape_unprintable
from nsys2prv_ng.options import calls
from nsys2prv_ng.options.kinds import GPU_TIME
from nsys2prv_ng.paraver.files import is_trace
from nsys2prv_ng.paraver.load_cost import WXPARAVER_ASKS, WXPARAVER_LIMIT, LoadCost, find_remedies
from nsys2prv_ng.report.formats import REPORTS_HELP, is_report_name
from nsys2prv_ng.text.formatting import count_noun, count_nouns

if TYPE_CHECKING:
    from nsys2prv_ng.inspection.model import Inspection
    from nsys2prv_ng.translation.result import TranslationResult


@with_options(calls.TranslateOptions)
def translate(
    paths: Annotated[
        list[Path],
        describe_argument("REPORT... OUT.prv", f"{REPORTS_HELP} in any order, then the trace (.prv or .prv.gz)."),
    ],
    options: calls.TranslateOptions,
    compress: Annotated[bool, typer.Option("--gzip", help="Write OUT.prv.gz, which Paraver opens directly.")] = False,
    quiet: Quiet = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also print the reports and their clocks.")] = False,
) -> None:
    """Translate reports into one trace (the default)."""
    *reports, output = paths
    if not is_trace(output):
        what = "is a report; " if is_report_name(output) else ""
        raise UsageError(f"{output}: {what}the last argument must be the trace to write, OUT.prv or OUT.prv.gz")
    if not reports:
        raise UsageError(f"no report to translate into {output}: nsys2prv-ng REPORT... OUT.prv")
    if compress and output.suffix != ".gz":
        output = output.with_name(output.name + ".gz")
    result = api.translate(reports, output, **vars(options))
    if not quiet:
        from nsys2prv_ng.reading.shards import find_shards
        from nsys2prv_ng.sources.registry import SOURCES

        loads = {} if find_shards(reports) else {source.name: source.load for source in result.sources if source.read}
        details = {source.name: loads[source.name] for source in SOURCES if source.name in loads}
        print_result(result, options, details, verbose=verbose)
    print_summary(result)


@with_options(calls.SummaryOptions)
def summary(
    reports: ReportsArgument,
    options: calls.SummaryOptions,
    talp: Annotated[
        Path | None,
        describe_folder("FOLDER", "Also write the efficiencies into this folder, as a file for TALP-Pages."),
    ] = None,
    as_json: Json = False,
    details: Annotated[bool, typer.Option("--details", help="Also print all tables.")] = False,
    quiet: NoProgress = False,
) -> None:
    """Find a job's bottleneck, stragglers and critical path.

    Prints what limits the job, where, what a change would save, and what to try. Writes no trace.
    """
    if talp is not None:
        from nsys2prv_ng.summary.efficiency.talp import check_folder

        check_folder(talp)
    progress = options.display
    is_brief = not (as_json or details or talp or options.html or options.save)
    numbers = (find_answer if is_brief else api.summarize)(reports, **vars(options))
    printed = [] if as_json or numbers.verdict is None else [line.text for line in numbers.verdict.statements]
    for warning in numbers.warnings:
        if warning not in printed:
            progress.warn(warning)
    if as_json:
        print_json(numbers)
    else:
        from nsys2prv_ng.summary.text import LEADS, format_summary
        from nsys2prv_ng.text.layout import choose_style

        print(format_summary(numbers, details=details, leads=LEADS, style=choose_style()))
    if talp is not None:
        progress.note(f"for TALP-Pages: {numbers.save_talp(talp)}")


@with_options(calls.PredictionOptions)
def what_if(
    paths: Annotated[
        list[Path],
        describe_argument("REPORT... [OUT.prv]", f"{REPORTS_HELP}, then optionally the predicted trace to write."),
    ],
    options: calls.PredictionOptions,
    as_json: Json = False,
    quiet: NoProgress = False,
) -> None:
    """Predict what a change would save before you make it.

    Replays the job with each change: a range, call, kernel or kernel class that takes no time or another time, an ideal
    network, a rank like the others.
    """
    *reports, last = paths
    output = last if reports and is_trace(last) else None
    numbers = api.what_if(paths if output is None else reports, output=output, **vars(options))
    if as_json:
        print_json(numbers)
    else:
        from nsys2prv_ng.summary.what_if import format_what_if

        print(format_what_if(numbers))


_FILE_WIDTH = 100
"""Width of a line (characters) if the output is not a terminal."""


@with_options(calls.InspectOptions)
def inspect(
    reports: ReportsArgument, options: calls.InspectOptions, as_json: Json = False, quiet: NoProgress = False
) -> None:
    """Show what reports contain.

    Exits with code 1 if a report cannot be read or translated.
    """
    inspection = api.inspect(reports, **vars(options))
    from nsys2prv_ng.inspection.text import escape_text, format_inspection

    if as_json:
        print_json(inspection)
    elif inspection.reports or len(inspection.faults) != 1:  # else the error is all there is
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _FILE_WIDTH
        print(format_inspection(inspection, width))
        _print_remedies(inspection, options.paraver_memory)
    if inspection.faults:
        others = len(inspection.faults) - 1
        more = f" (and {others} more, listed above)" if others else ""
        raise TranslationError(escape_text(inspection.faults[0]) + more)


def _print_remedies(inspection: Inspection, limit: int) -> None:
    """Print how to translate less, if Paraver needs more than `limit` bytes of memory for a trace of all of it."""
    from nsys2prv_ng.inspection.model import estimate_details
    from nsys2prv_ng.paraver.load_cost import LoadCost

    load, estimated = inspection.load, estimate_details(inspection.rows_of_sources)
    details = {source: estimated.get(source, LoadCost()) for source in inspection.list_selectable_sources()}
    duration = max((report.duration_ns for report in inspection.reports), default=0)
    if 0 < limit < load.memory:
        print()
    print_remedies(load, details, limit, size=load.text_bytes, duration=duration)


@with_options(calls.CheckOptions)
def check(
    paths: Annotated[
        list[Path],
        describe_argument("OUT.prv [FILE.cfg...]", "A trace (.prv or .prv.gz), and Paraver cfgs to check against it."),
    ],
    options: calls.CheckOptions,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print problems only.")] = False,
) -> None:
    """Check a trace and cfgs against Paraver's rules.

    Exits with code 1 if they break a rule.
    """
    traces = [path for path in paths if path.suffix != ".cfg"]
    if not traces:
        raise UsageError("no trace to check the cfgs against: nsys2prv-ng check OUT.prv FILE.cfg...")
    if len(traces) > 1:
        raise UsageError(f"{traces[1]}: check takes one trace, and cfgs that end in .cfg")
    [trace] = traces
    cfgs = [*(options.cfg or ()), *(path for path in paths if path.suffix == ".cfg")]
    result = api.check(trace, cfg=cfgs, progress=options.progress)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in result.records.items())
    counts += f"; {count_nouns({'task': result.tasks, 'row': result.rows, 'node': result.nodes})}"
    faults = [_print_findings(trace, result.problems, result.warnings, counts, quiet)]
    for cfg, checked in result.cfgs.items():
        counts = count_nouns({"window": checked.windows, "histogram": checked.histograms})
        faults.append(_print_findings(cfg, checked.problems, checked.warnings, counts, quiet))
    if any(faults):
        raise TranslationError("; ".join(filter(None, faults)))


def _print_findings(
    path: Path, problems: Sequence[object], warnings: Sequence[object], counts: str, quiet: bool
) -> str:
    """Print the findings of a file; return a line about its problems, or an empty text."""
    for problem in problems:
        print(problem)
    if not quiet:
        for warning in warnings:
            print(f"warning: {warning}")
        print(f"{path}: {counts}")
    return f"{path}: {len(problems)} kinds of problem" if problems else ""


def cfgs(
    install: Annotated[Path | None, describe_folder("DIR", "Copy the presets and filters into this folder.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> None:
    """List or copy the presets (.cfg) and filters (.xml) for Paraver."""
    from nsys2prv_ng.bundled.presets import WORKSPACES, install_presets, list_filters, list_presets

    if install is not None:
        copies = install_presets(install, force=force)
        filters = len(list_filters())
        print(f"{install}: {len(copies) - filters} presets; open them in wxParaver with File, Load Configuration")
        print(f"{install / 'filters'}: {filters} files for Paraver's own filter, which make a trace smaller")
        print(f"{install / WORKSPACES}: copy it to ~/.paraver/ to have them in wxParaver's menu Hints")
        return
    presets = [*list_presets(), *(replace(file, name=f"{file.name}.xml") for file in list_filters())]
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        for preset in presets:
            print(preset.name)
            print(textwrap.fill(preset.summary, width, initial_indent="    ", subsequent_indent="    "))
    else:  # one line per preset, for programs
        names = max(len(preset.name) for preset in presets)
        for preset in presets:
            print(f"{preset.name.ljust(names)}  {preset.summary}")


def precompile() -> None:
    """Compile all numba kernels now, so that no later run has to. For a site: once, as the user who installed.

    The machine code stays beside the program, or in $NUMBA_CACHE_DIR, or else in the user's cache folder.
    """
    from nsys2prv_ng.runtime.precompile import compile_all, find_folder

    folder = find_folder()
    if folder is None:
        raise TranslationError("no folder can be written to keep machine code; set NUMBA_CACHE_DIR to one that can")
    start = time.monotonic()
    kernels = compile_all()
    when = f"compiled in {time.monotonic() - start:.0f} s" if kernels.compiled else "compiled before"
    print(f"{kernels.total} kernels {when}; their machine code is in {folder}")


@with_options(calls.ShardOptions)
def shard(
    paths: Annotated[
        list[Path], describe_argument("REPORT... FOLDER", f"{REPORTS_HELP}, then the folder for their contents.")
    ],
    options: calls.ShardOptions,
    quiet: NoProgress = False,
) -> None:
    """Read reports into a folder, to share the work among nodes.

    Each node of a job can read its own reports. translate, summary, compare and merge accept the folder instead of
    reports.
    """
    *reports, folder = paths
    if not reports:
        raise UsageError(f"no report to read into {folder}: nsys2prv-ng shard REPORT... FOLDER")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is a file; the last argument must be the folder to read reports into")
    api.shard(reports, folder, **vars(options))
    if not quiet:
        from nsys2prv_ng.reading.shards import find_shards

        where = shlex.quote(str(folder))
        there = count_noun(len(find_shards([folder])), "report")
        print(escape_unprintable(f"{folder}: now has {there}; nsys2prv-ng merge {where} OUT.prv"))


@with_options(calls.MergeOptions)
def merge(
    folder: Annotated[Path, describe_argument("FOLDER", "The folder that `shard` filled.")],
    output: Annotated[Path, describe_argument("OUT.prv", "The trace (.prv or .prv.gz).")],
    options: calls.MergeOptions,
    quiet: Quiet = False,
) -> None:
    """Write one trace from a folder that `shard` filled.

    Runs at once, or as separate jobs: --only plan, then --only write for each part, then --only join. The options of
    the trace belong to the plan.
    """
    result = api.merge(folder, output, **vars(options))
    if result is not None and not quiet:
        print_result(result, options, {})
        print_summary(result)


@with_options(ScriptOptions)
def slurm(
    options: ScriptOptions,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[--] [COMMAND...]", help="What each task runs.", show_default="python train.py"),
    ] = None,
) -> None:
    """Print a Slurm batch script that profiles a job.

    The job leaves the trace, the summary and an HTML report, and prints the summary. Submit the script with sbatch.
    """
    job, note = choose_form(replace(options, command=command or ()))
    script = render_script(job)
    if note:
        print(note, file=sys.stderr)
    print(script, end="")


# ---- what several commands print -------------------------------------------------------------------------------------


def print_json(result: Any) -> None:
    """Print the numbers of a result for programs."""
    import json

    print(json.dumps(result.to_dict(), indent=2))


def print_result(
    result: TranslationResult,
    options: calls.TranslateOptions | calls.MergeOptions,
    details: Mapping[str, LoadCost],
    *,
    verbose: bool = False,
) -> None:
    """Print what was translated, and what helps if Paraver cannot load it.

    `details`: the records of each source that can be selected. There are none for merged shards, whose sources were
    chosen when they were read.
    """
    print(result.text(verbose=verbose))
    if result.is_wide and options.time is None:
        print("--time gpu shows the time in which the GPUs work")
    limit, begin = options.paraver_memory, find_begin(options)
    print_remedies(result.load, details, limit, size=result.bytes, duration=result.duration_ns, begin=begin)


def print_summary(result: TranslationResult) -> None:
    """Print the summary of a job if the user asked for it."""
    if result.summary is not None:
        from nsys2prv_ng.summary.text import format_summary
        from nsys2prv_ng.text.layout import choose_style

        print(f"\n{format_summary(result.summary, style=choose_style())}")


def print_remedies(
    load: LoadCost, details: Mapping[str, LoadCost], limit: int, *, size: int, duration: int, begin: int | None = 0
) -> None:
    """Print the options that make a trace small enough, if the user set a limit.

    `size`: of the text (bytes). The others are as `find_remedies` takes them.
    """
    if limit and size > WXPARAVER_LIMIT:
        print(WXPARAVER_ASKS)
    remedies = find_remedies(load, details, limit, duration, begin)
    if remedies:
        print("what helps, added to translate:")
    for words, option, value in remedies:
        print(f"  {words}\n    {find_flag(option)} {value}".rstrip())


def find_begin(options: calls.JobOptions) -> int | None:
    """Return where a trace begins, as the option `time` counts (ns); None if events decide that."""
    if options.time == GPU_TIME or options.steps or options.skip_warmup or options.nvtx_range:
        return None
    return 0 if options.time is None else options.time[0] or 0
