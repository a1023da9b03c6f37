"""The command translate, which runs by default."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nsys2prv_ng import api
from nsys2prv_ng.cli.options import Quiet, describe_argument, with_options
from nsys2prv_ng.cli.printing import print_result, print_summary
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options.calls import TranslateOptions
from nsys2prv_ng.paraver.files import is_trace
from nsys2prv_ng.report.formats import REPORTS_HELP, is_report_name


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
