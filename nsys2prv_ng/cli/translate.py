"""The command translate, which runs by default."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nsys2prv_ng import api
from nsys2prv_ng.cli.arguments import split_reports_and_trace
from nsys2prv_ng.cli.options import Quiet, describe_argument, with_options
from nsys2prv_ng.options.calls import TranslateOptions
from nsys2prv_ng.report.formats import REPORTS_HELP


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
    reports, output = split_reports_and_trace(paths, compress=compress)
    result = api.translate(reports, output, **vars(options))
    from nsys2prv_ng.cli.remedies import Given, print_result, print_summary

    if not quiet:
        from nsys2prv_ng.job.shards import find_shards
        from nsys2prv_ng.sources.registry import SOURCES

        read = () if find_shards(reports) else {source.name for source in result.sources if source.read}
        present = [source.name for source in SOURCES if source.name in read]
        print_result(result, Given(reports, output, options, present), verbose=verbose)
    print_summary(result)
