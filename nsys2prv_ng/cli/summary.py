"""The commands that print what reports show: summary, what-if and inspect."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nsys2prv_ng import api
from nsys2prv_ng.api.calls import find_answer
from nsys2prv_ng.cli.options import Json, NoProgress, ReportsArgument, describe_argument, parse_folder, with_options
from nsys2prv_ng.cli.printing import print_json, print_remedies
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.options.calls import InspectOptions, PredictionOptions, SummaryOptions
from nsys2prv_ng.paraver.files import is_trace
from nsys2prv_ng.report.formats import REPORTS_HELP

if TYPE_CHECKING:
    from nsys2prv_ng.inspection.model import Inspection


@with_options(SummaryOptions)
def summary(
    reports: ReportsArgument,
    options: SummaryOptions,
    talp: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            parser=parse_folder,
            help="Also write the efficiencies into this folder, as a file for TALP-Pages.",
        ),
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


@with_options(PredictionOptions)
def what_if(
    paths: Annotated[
        list[Path],
        describe_argument("REPORT... [OUT.prv]", f"{REPORTS_HELP}, then optionally the predicted trace to write."),
    ],
    options: PredictionOptions,
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


@with_options(InspectOptions)
def inspect(
    reports: ReportsArgument, options: InspectOptions, as_json: Json = False, quiet: NoProgress = False
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
