"""The sentences of a summary as data: their order, what they are about, and that the text has the same words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nsys2prv_ng.summary.numbers.efficiency import StepNumbers
from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.text import format_summary
from nsys2prv_ng.summary.verdicts.verdicts import format_verdicts, list_verdicts
from tests.summary.made import summarize_reports


@pytest.fixture(scope="module")
def found(samples: Path) -> JobSummary:
    return summarize_reports(sorted(samples.glob("ddp-2x2.rank*.sqlite")))


@pytest.mark.slow
def test_order_and_words(found: JobSummary) -> None:
    assert found.waits is not None
    lacking = replace(found, waits=replace(found.waits, reports_without_payload=1))
    verdicts = list_verdicts(lacking)
    about = ["payload", "efficiency", "waits", "critical path", "gain", "advice"]
    assert [verdict.about for verdict in verdicts] == about
    assert [len(verdict.details) for verdict in verdicts] == [0, 0, 1, 0, 0, 0]
    texts = [text for verdict in verdicts for text in (verdict.text, *verdict.details)]
    assert all("\n" not in text and not text.startswith(" ") for text in texts)
    for width in (80, 100):
        notes, others = (paragraph.splitlines() for paragraph in format_summary(lacking, width).split("\n\n")[1:3])
        assert " ".join(notes) == f"Note: {texts[0]}"
        assert " ".join(line.strip() for line in others) == " ".join(texts[1:])
        assert format_verdicts(verdicts, width) == [notes, others]


@pytest.mark.slow
def test_lines_on_a_rank_are_indented(found: JobSummary) -> None:
    [late] = [verdict for verdict in list_verdicts(found) if verdict.about == "waits"]
    _, lines = format_verdicts([late], 60)
    blanks = [len(line) - len(line.lstrip()) for line in lines]
    first = next(i for i, line in enumerate(lines) if late.details[0].startswith(line.strip()))
    assert first > 1 and blanks == [0, *(2 for _ in range(1, first)), 2, *(4 for _ in lines[first + 1 :])]


@pytest.mark.slow
def test_names_of_reports_are_printable(found: JobSummary) -> None:
    hostile = "<b>\x1b[31m\nrange\t"
    waits, path, efficiency, steps = found.waits, found.critical_path, found.efficiency, found.steps
    assert waits is not None and path is not None and efficiency is not None and isinstance(steps, StepNumbers)
    assert found.what_if is not None
    ranks = [replace(rank, rank=None, task=hostile + rank.task) for rank in waits.ranks]
    costs = [replace(cost, rank=None, task=hostile + cost.task, range=hostile, call=hostile) for cost in waits.costs]
    parts = [replace(part, name=hostile, range=hostile) for part in path.parts]
    named = replace(
        found,
        waits=replace(waits, ranks=ranks, costs=costs, culprits=[]),
        critical_path=replace(path, parts=parts, step_name=hostile),
        nccl=[replace(nccl, function=hostile) for nccl in found.nccl],
        steps=replace(steps, name=hostile),
        what_if=replace(found.what_if, scenarios=[replace(part, change=hostile) for part in found.what_if.scenarios]),
    )
    verdicts = list_verdicts(named)
    assert len(verdicts) == 5
    for verdict in verdicts:
        for text in (verdict.text, *verdict.details):
            assert text.isprintable()
    assert sum("<b>" in verdict.text for verdict in verdicts) == 5


def test_nothing_to_say(found: JobSummary) -> None:
    nothing = replace(found, waits=None, critical_path=None, efficiency=None, steps=None, what_if=None)
    assert list_verdicts(nothing) == [] and format_verdicts([], 80) == [[], []]
