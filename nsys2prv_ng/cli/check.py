"""The command check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from nsys2prv_ng import api
from nsys2prv_ng.cli.options import describe_argument, with_options
from nsys2prv_ng.errors import TranslationError, UsageError, escape_unprintable
from nsys2prv_ng.options.calls import CheckOptions
from nsys2prv_ng.text.formatting import count_noun


@with_options(CheckOptions)
def check(
    paths: Annotated[
        list[Path],
        describe_argument("OUT.prv [FILE.cfg...]", "A trace (.prv or .prv.gz), and Paraver cfgs to check against it."),
    ],
    options: CheckOptions,
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
    counts += (
        f"; {count_noun(result.tasks, 'task')}, {count_noun(result.rows, 'row')}, {count_noun(result.nodes, 'node')}"
    )
    faults = [_print_findings(trace, result.problems, result.warnings, counts, quiet)]
    for cfg, checked in result.cfgs.items():
        counts = f"{count_noun(checked.windows, 'window')}, {count_noun(checked.histograms, 'histogram')}"
        faults.append(_print_findings(cfg, checked.problems, checked.warnings, counts, quiet))
    if any(faults):
        raise TranslationError("; ".join(filter(None, faults)))


def _print_findings(
    path: Path, problems: Sequence[object], warnings: Sequence[object], counts: str, quiet: bool
) -> str:
    """Print the findings of a file; return a line about its problems, or an empty text."""
    for problem in problems:
        print(escape_unprintable(str(problem)))
    if not quiet:
        for warning in warnings:
            print(escape_unprintable(f"warning: {warning}"))
        print(escape_unprintable(f"{path}: {counts}"))
    return f"{path}: {len(problems)} kinds of problem" if problems else ""
