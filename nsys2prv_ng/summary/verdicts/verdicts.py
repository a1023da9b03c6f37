"""The sentences on top of a summary: what limits the job, in order."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.numbers.payload import describe_missing_payload
from nsys2prv_ng.summary.verdicts.advice import make_advice
from nsys2prv_ng.summary.verdicts.efficiency import make_efficiency_verdict, make_graph_note
from nsys2prv_ng.summary.verdicts.path import make_path_verdict
from nsys2prv_ng.summary.verdicts.verdict import NOTES, Verdict
from nsys2prv_ng.summary.verdicts.waits import make_wait_verdicts
from nsys2prv_ng.text.layout import wrap


def list_verdicts(summary: JobSummary) -> list[Verdict]:
    """Return what a summary says in sentences: what is not known, where the time goes, and what to look at first."""
    return [
        *(Verdict(text, [], "payload") for text in describe_missing_payload(summary.waits, summary.reports)),
        *make_graph_note(summary.efficiency, summary.steps),
        *make_efficiency_verdict(summary.efficiency, summary.steps),
        *make_wait_verdicts(summary),
        *make_path_verdict(summary.critical_path, summary.tasks),
        *make_advice(summary),
    ]


def format_verdicts(verdicts: Sequence[Verdict], width: int) -> list[list[str]]:
    """Return the paragraphs of verdicts, each as its lines: notes on what is not known, and all others."""
    notes: list[str] = []
    others: list[str] = []
    for text, details, about in verdicts:
        if about in NOTES:
            notes += wrap(f"Note: {text}", width)
        else:
            others += wrap(text, width, indent=(0, 2) if about == "waits" else (0, 0))
            others += [line for detail in details for line in wrap(detail, width, indent=(2, 4))]
    return [notes, others]
