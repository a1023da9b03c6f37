"""The command cut."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nsys2prv_ng import api
from nsys2prv_ng.cli.options import with_options
from nsys2prv_ng.options import CutOptions


@with_options(CutOptions)
def cut(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE.prv", help="A trace: .prv or .prv.gz.", show_default=False, readable=False)
    ],
    output: Annotated[
        Path, typer.Argument(metavar="OUT.prv", help="The trace to write: .prv or .prv.gz.", show_default=False)
    ],
    options: CutOptions,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")] = False,
) -> None:
    """Cut a window of time, or ranks, out of a trace.

    It needs no reports, and little memory: for traces that are too large for Paraver.
    """
    result = api.cut(trace, output, **vars(options))
    if not quiet:
        print(result.text())
