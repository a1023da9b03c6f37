"""The commands that print what reports show: summary, what-if, inspect and compare."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from nsys2prv_ng import api
from nsys2prv_ng.api.arguments import find_summary
from nsys2prv_ng.cli.options import Json, NoProgress, ReportsArgument, describe_argument, parse_folder, with_options
from nsys2prv_ng.cli.printing import print_json, print_remedies
from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.options.calls import CompareOptions, InspectOptions, PredictionOptions, SummaryOptions
from nsys2prv_ng.paraver.files import is_trace
from nsys2prv_ng.report.formats import REPORTS_HELP

if TYPE_CHECKING:
    from nsys2prv_ng.comparison.result import Comparison
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
    csv: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", parser=parse_folder, help="Also write the tables into this folder, as CSV files."
        ),
    ] = None,
    as_json: Json = False,
    details: Annotated[bool, typer.Option("--details", help="Also print all tables.")] = False,
    quiet: NoProgress = False,
) -> None:
    """Find a job's bottleneck, stragglers and critical path.

    Prints what limits the job, where, what a change would save, and what to try. Writes no trace.
    """
    for folder in filter(None, (talp, csv)):
        from nsys2prv_ng.summary.efficiency.talp import check_folder

        check_folder(folder)
    progress = options.display
    numbers = api.summarize(reports, **vars(options))
    printed = [] if as_json else [line.text for line in numbers.verdict.statements]
    for warning in numbers.warnings:
        if warning not in printed:
            progress.warn(warning)
    if as_json:
        print_json(numbers)
    else:
        from nsys2prv_ng.summary.text import LEADS, format_summary
        from nsys2prv_ng.text.layout import choose_style

        page = "" if options.html is None else options.html.name
        print(format_summary(numbers, details=details, leads=LEADS, page=page, style=choose_style()))
    if talp is not None:
        progress.note(f"for TALP-Pages: {numbers.save_talp(talp)}")
    if csv is not None:
        numbers.save_csv(csv)
        progress.note(f"tables: {csv}")


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
        from nsys2prv_ng.replay.words import format_what_if

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


_BETWEEN = "\0"
"""Stands for `--` between sides: no argument of a process can contain this character."""
_PLUS = "+"
"""Stands between the captures of a side."""


class SidesCommand(TyperCommand):
    """A command with `--` between the sides. In other commands, `--` ends the options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [_BETWEEN if word == "--" else word for word in args])


@with_options(CompareOptions)
def compare(
    reports: Annotated[
        list[str],
        describe_argument(
            "REPORT... -- REPORT...",
            "Reports of each run, with -- between runs, and + between captures of the same run. Or for each run the"
            " folder that a Slurm job left, or a saved summary (summary --save).",
        ),
    ],
    options: CompareOptions,
    shows_details: Annotated[bool, typer.Option("--details", help="Print all tables.")] = False,
    shows_all: Annotated[
        bool, typer.Option("--all", help="Print all tables, with the rows that differ by noise only.")
    ] = False,
    as_json: Json = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a merge request.")] = False,
    fail_over: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit with code 3 if a run is slower than the first by more than this, with code 4 if that cannot be"
            " told: 5%.",
        ),
    ] = None,
    fail_undecided: Annotated[
        bool, typer.Option("--fail-undecided", help="With --fail-over: exit with code 3 instead of 4.")
    ] = False,
    quiet: NoProgress = False,
) -> int:
    """Tell whether a run got faster, where, and whether it is significant.

    Compares each later run with the first, over the steps after the warm-up. With several captures of a run, it
    compares the captures instead of their steps.
    """
    if as_json and as_markdown:
        raise UsageError("cannot be combined with --json", parameter="--markdown")
    limit = _read_limit(fail_over, fails=fail_undecided)
    sides = _split_sides(reports, fewest=2 if options.against is None else 1)
    from nsys2prv_ng.comparison import gate, history

    try:
        comparison = api.compare(sides, **vars(options))
    except history.NoHistoryError as error:
        if limit is None:
            raise
        print(f"--fail-over {gate.format_limit(limit)}: {error.message}", file=sys.stderr)
        return gate.SLOWER if fail_undecided else gate.UNDECIDED
    if as_json:
        print_json(comparison)
    elif as_markdown:
        from nsys2prv_ng.comparison.result import format_markdown

        print(format_markdown(comparison, shows_details=shows_details, shows_all=shows_all))
    else:
        from nsys2prv_ng.comparison.result import format_comparison
        from nsys2prv_ng.text.layout import choose_style

        print(format_comparison(comparison, shows_details=shows_details, shows_all=shows_all, style=choose_style()))
    return 0 if limit is None else _judge(comparison, limit, fails=fail_undecided)


def _judge(comparison: Comparison, limit: float, *, fails: bool) -> int:
    """Return the exit code, and print a line on each run to stderr."""
    from nsys2prv_ng.comparison import gate

    rulings = comparison.judge(limit)
    for ruling in rulings:
        print(f"--fail-over {gate.format_limit(limit)}: {ruling.text}", file=sys.stderr)
    codes = {ruling.code for ruling in rulings}
    if gate.SLOWER in codes or (fails and gate.UNDECIDED in codes):
        return gate.SLOWER
    return max(codes)


def _read_limit(text: str | None, *, fails: bool) -> float | None:
    """Return the limit as a fraction of 1; None without one. Raises UsageError."""
    from nsys2prv_ng.comparison.gate import read_limit

    if text is None and fails:
        raise UsageError("needs --fail-over", parameter="--fail-undecided")
    limit = None if text is None else read_limit(text)
    if text is not None and limit is None:
        raise UsageError("write a percentage, like 5%", parameter="--fail-over", value=text)
    return limit


def _split_sides(words: Sequence[str], fewest: int) -> list[list[list[Path]]]:
    """Return the files of each capture of each side. Saved summaries and folders of runs are a side each without `--`.

    Raises UsageError for fewer than `fewest` sides, and for a side or a capture without files.
    """
    if (
        fewest > 1
        and _BETWEEN not in words
        and len(words) > 1
        and all(find_summary(Path(word)).suffix == ".json" for word in words)
    ):
        return [[[Path(word)]] for word in words]
    sides: list[list[list[Path]]] = [[[]]]
    for word in words:
        if word == _BETWEEN:
            sides.append([[]])
        elif word == _PLUS:
            sides[-1].append([])
        else:
            sides[-1][-1].append(Path(word))
    if len(sides) < fewest or any(side == [[]] for side in sides):
        raise UsageError("write -- between the runs: nsys2prv-ng compare BEFORE... -- AFTER...")
    if not all(capture for side in sides for capture in side):
        raise UsageError(
            "write + only between two captures of a run: nsys2prv-ng compare A1... + A2... -- B1... + B2..."
        )
    return sides
