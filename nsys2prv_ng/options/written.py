"""Options of the calls that read a written trace: check and cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from nsys2prv_ng.options.checked import (
    Checked,
    Numbers,
    Paths,
    TimeWindow,
)
from nsys2prv_ng.options.job import ReadingOptions
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.text.option import Option


@dataclass(frozen=True, kw_only=True)
class CheckOptions(Checked):
    """What to check besides the trace."""

    cfg: Annotated[
        Paths,
        Option(
            "Check a Paraver cfg against the trace as well; can be repeated.",
            metavar="FILE.cfg",
            repeats=True,
            keyword_help="Paraver cfgs to check against the trace as well.",
        ),
    ] = None
    progress: Progress | None = None


@dataclass(frozen=True, kw_only=True)
class CutOptions(ReadingOptions):
    """What to keep of a trace."""

    time: Annotated[
        TimeWindow,
        Option(
            "Only this time, as Paraver shows it, in ns, us, ms or s: 1.5s:2s, :800ms, 2s:.",
            keyword_help="Only this time: (from, to) in ns, as Paraver shows it; None is no limit.",
            metavar="FROM:TO",
            default="all",
        ),
    ] = None
    ranks: Annotated[
        Numbers, Option("Only these ranks, and the nodes that they ran on.", metavar="0-3,8", default="all")
    ] = None
    force: Annotated[bool, Option("Replace a trace of the same name.")] = False
