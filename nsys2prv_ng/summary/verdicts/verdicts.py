"""Lists the sentences at the top of a summary: what limits the job, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.numbers.payload import describe_missing_payload
from nsys2prv_ng.summary.verdicts.advice import advise
from nsys2prv_ng.summary.verdicts.efficiency import describe_efficiency, describe_whole_graphs, describe_window
from nsys2prv_ng.summary.verdicts.path import describe_path
from nsys2prv_ng.summary.verdicts.waits import describe_waits
from nsys2prv_ng.summary.verdicts.what_if import describe_best
from nsys2prv_ng.text.layout import wrap

About = Literal["payload", "graphs", "window", "efficiency", "waits", "critical path", "gain", "advice"]

NOTES: tuple[About, ...] = ("payload", "graphs")
"""The parts whose verdicts are notes on what is not known."""


class Verdict(NamedTuple):
    """A sentence, not wrapped, the lines below it, and the part of a summary with the numbers for it.

    Names from reports are in `backquotes`, on one line and printable.
    """

    text: str
    details: list[str]
    about: About


def list_verdicts(summary: JobSummary) -> list[Verdict]:
    """Return the sentences on a summary: what is not known, the time they cover, where it goes, where to look first."""
    efficiency, steps = summary.efficiency, summary.steps
    verdicts = [
        *(Verdict(text, [], "payload") for text in describe_missing_payload(summary.waits, summary.reports)),
        Verdict(describe_whole_graphs(efficiency, steps), [], "graphs"),
        Verdict(describe_window(summary), [], "window"),
        Verdict(describe_efficiency(efficiency, steps), [], "efficiency"),
        *(Verdict(text, details, "waits") for text, details in describe_waits(summary)),
        Verdict(describe_path(summary), [], "critical path"),
        Verdict("" if summary.what_if is None else describe_best(summary.what_if), [], "gain"),
        Verdict(advise(summary), [], "advice"),
    ]
    return [verdict for verdict in verdicts if verdict.text]


def format_verdicts(verdicts: Sequence[Verdict], width: int) -> list[list[str]]:
    """Return two paragraphs as lists of lines: notes on what is not known, and all other verdicts."""
    notes: list[str] = []
    others: list[str] = []
    for text, details, about in verdicts:
        if about in NOTES:
            notes += wrap(f"Note: {text}", width)
        else:
            others += wrap(text, width, indent=(0, 2) if about == "waits" else (0, 0))
            others += [line for detail in details for line in wrap(detail, width, indent=(2, 4))]
    return [notes, others]
