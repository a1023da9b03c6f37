"""Options of the calls that read a written trace: check and cut."""

from __future__ import annotations

from dataclasses import dataclass

from nsys2prv_ng.options.job import CallOptions, ReadingOptions
from nsys2prv_ng.options.kinds import Files, Limits, Numbers, TimeWindow
from nsys2prv_ng.text.option import Flag


@dataclass(kw_only=True)
class CheckOptions(CallOptions):
    """Options of a check."""

    cfg: Files = Files(
        "Check a Paraver cfg against the trace as well; can be repeated.",
        metavar="FILE.cfg",
        keyword_help="Paraver cfgs to check against the trace as well.",
    )


@dataclass(kw_only=True)
class CutOptions(ReadingOptions):
    """Options of a cut."""

    time: TimeWindow[Limits | None] = TimeWindow(
        "Only this time, as Paraver shows it, in ns, us, ms or s: 1.5s:2s, :800ms, 2s:.",
        keyword_help="Only this time: (from, to) in ns, as Paraver shows it; None is no limit.",
        metavar="FROM:TO",
        shown="all",
    )
    ranks: Numbers = Numbers("Only these ranks, and the nodes that they ran on.", metavar="0-3,8", shown="all")
    force: Flag = Flag("Replace a trace of the same name.")
