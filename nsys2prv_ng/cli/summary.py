"""The command summary."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nsys2prv_ng import api
from nsys2prv_ng.api.calls import find_answer
from nsys2prv_ng.cli.options import Json, NoProgress, ReportsArgument, parse_folder, with_options
from nsys2prv_ng.cli.printing import print_json
from nsys2prv_ng.options.calls import SummaryOptions


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
