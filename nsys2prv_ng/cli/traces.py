"""The commands that write traces, shards and tables, and that check: translate, which runs by default."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from nsys2prv_ng import api
from nsys2prv_ng.cli.options import NoProgress, Quiet, describe_argument, with_options
from nsys2prv_ng.cli.printing import print_result, print_summary
from nsys2prv_ng.errors import TranslationError, UsageError, escape_unprintable
from nsys2prv_ng.options.calls import CallOptions, ExportOptions, ShardOptions, TranslateOptions
from nsys2prv_ng.paraver.files import is_trace
from nsys2prv_ng.report.formats import REPORTS_HELP, is_report_name
from nsys2prv_ng.text.formatting import count_noun


@with_options(TranslateOptions)
def translate(
    paths: Annotated[
        list[Path],
        describe_argument("REPORT... OUT.prv", f"{REPORTS_HELP} in any order, then the trace (.prv or .prv.gz)."),
    ],
    options: TranslateOptions,
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


@with_options(ShardOptions)
def shard(
    paths: Annotated[
        list[Path], describe_argument("REPORT... FOLDER", f"{REPORTS_HELP}, then the folder for their contents.")
    ],
    options: ShardOptions,
    quiet: NoProgress = False,
) -> None:
    """Read reports into a folder, to share the work among nodes.

    Each node of a job can read its own reports. translate, summary and compare accept the folder instead of reports.
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
        print(escape_unprintable(f"{folder}: now has {there}; nsys2prv-ng translate {where} OUT.prv"))


@with_options(ExportOptions)
def export(
    paths: Annotated[
        list[Path], describe_argument("REPORT... FOLDER", f"{REPORTS_HELP}, then the folder for the tables.")
    ],
    options: ExportOptions,
    quiet: Quiet = False,
) -> None:
    """Write the events of all ranks as tables, for pandas, polars, DuckDB, Dask or Spark.

    Each table is a dataset with a file for each rank: FOLDER/kernels/rank=0/part-0.parquet.
    """
    *reports, folder = paths
    if not reports:
        raise UsageError(f"no report to export into {folder}: nsys2prv-ng export REPORT... FOLDER")
    written = api.export(reports, folder, **vars(options))
    if not quiet:
        for table in written:
            left = "".join(f"; {count:,} {reason}" for reason, count in sorted(table.dropped.items()))
            print(escape_unprintable(f"{folder / table.name}: {count_noun(table.rows, 'row')}{left}"))


@with_options(CallOptions)
def check(
    trace: Annotated[Path, describe_argument("OUT.prv", "A trace (.prv or .prv.gz).")],
    options: CallOptions,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print problems only.")] = False,
) -> None:
    """Check a trace against Paraver's rules.

    Exits with code 1 if it breaks a rule.
    """
    result = api.check(trace, progress=options.progress)
    for problem in result.problems:
        print(escape_unprintable(str(problem)))
    counts = ", ".join(f"{count:,} {kind}" for kind, count in result.records.items())
    counts += (
        f"; {count_noun(result.tasks, 'task')}, {count_noun(result.rows, 'row')}, {count_noun(result.nodes, 'node')}"
    )
    if not quiet:
        for warning in result.warnings:
            print(escape_unprintable(f"warning: {warning}"))
        print(escape_unprintable(f"{trace}: {counts}"))
    if result.problems:
        raise TranslationError(f"{trace}: {len(result.problems)} kinds of problem")
