"""The command compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from nsys2prv_ng import api
from nsys2prv_ng.cli.arguments import parse_percent, split_sides
from nsys2prv_ng.cli.options import Json, NoProgress, describe_argument, print_json, with_options
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options.calls import CompareOptions
from nsys2prv_ng.runtime.progress import Progress

if TYPE_CHECKING:
    from nsys2prv_ng.comparison.result import Comparison

SLOWER = 3
"""Exit code if a run got slower by more than the user accepts."""
_BETWEEN = "\0"
"""Stands for `--` between sides: no argument of a process can contain this character."""


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
            help="Exit with code 3 if a later run is slower than the first by more than this, and the difference is"
            " significant: 5%.",
        ),
    ] = None,
    quiet: NoProgress = False,
) -> int:
    """Tell whether a run got faster, where, and whether it is significant.

    Compares each later run with the first, over the steps after the warm-up. With several captures of a run, it
    compares the captures instead of their steps.
    """
    if as_json and as_markdown:
        raise UsageError("cannot be combined with --json", parameter="--markdown")
    limit = None if fail_over is None else parse_percent(fail_over, "--fail-over")
    sides = split_sides(reports, _BETWEEN)
    progress = options.display
    comparison = api.compare(sides, **vars(options))
    if as_json:
        print_json(comparison)
    elif as_markdown:
        from nsys2prv_ng.comparison.markdown import format_markdown

        print(format_markdown(comparison, shows_details=shows_details, shows_all=shows_all))
    else:
        from nsys2prv_ng.comparison.text import format_comparison
        from nsys2prv_ng.text.layout import choose_style

        print(format_comparison(comparison, shows_details=shows_details, shows_all=shows_all, style=choose_style()))
    return 0 if limit is None else _judge(comparison, limit, progress)


def _judge(comparison: Comparison, limit: float, progress: Progress) -> int:
    """Return the exit code. A pair that cannot be judged is not a failure, but a warning reports it."""
    for pair in comparison.pairs:
        if pair.verdict.kind == "inconclusive" and pair.verdict.p is None:
            progress.warn(f"--fail-over: {pair.b.label} cannot be judged, see the first line of the comparison")
    return SLOWER if any(pair.verdict.is_slower_by(limit) for pair in comparison.pairs) else 0
