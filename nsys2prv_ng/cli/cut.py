"""The command cut."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from nsys2prv_ng import api
from nsys2prv_ng.cli.options import Quiet, describe_argument, with_options
from nsys2prv_ng.options.calls import CutOptions


@with_options(CutOptions)
def cut(
    trace: Annotated[Path, describe_argument("TRACE.prv", "A trace: .prv or .prv.gz.")],
    output: Annotated[Path, describe_argument("OUT.prv", "The trace to write: .prv or .prv.gz.")],
    options: CutOptions,
    quiet: Quiet = False,
) -> None:
    """Cut a window of time, or ranks, out of a trace.

    For traces that are too large for Paraver. Needs no reports and little memory.
    """
    result = api.cut(trace, output, **vars(options))
    if not quiet:
        print(result.text())
