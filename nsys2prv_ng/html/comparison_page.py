"""Renders the page of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.comparison.model import ComparisonNumbers, Side
from nsys2prv_ng.comparison.sentences import RUN, TRUST, list_findings, state_scaling
from nsys2prv_ng.comparison.sentences import list_lines as list_answers
from nsys2prv_ng.comparison.work import match_steps
from nsys2prv_ng.html import comparison_sections
from nsys2prv_ng.html.blocks import Line, Section
from nsys2prv_ng.html.page import clean, drop_quotes, quote, render_page
from nsys2prv_ng.summary.pictures.numbers import Pictures

_DIFFERENCE, _TABLES = "difference", "tables"


def render_comparison(comparison: ComparisonNumbers, sides: Sequence[Side], pictures: Sequence[Pictures | None]) -> str:
    """Return the page of a comparison of `sides`.

    `pictures`: what `summary/pictures/measure.py` collected for each side; None for a side that is a saved summary.
    """
    return render_page(
        title=_make_title(comparison),
        subtitle="",
        lines=list_lines(comparison),
        warnings=[],
        sections=list_sections(comparison, sides, pictures),
    )


def _make_title(comparison: ComparisonNumbers) -> str:
    first, *others = comparison.pairs
    if others:
        return f"{len(comparison.pairs)} runs compared with {clean(first.a.label)}"
    return f"{clean(first.b.label)} compared with {clean(first.a.label)}"


def list_lines(comparison: ComparisonNumbers) -> list[Line]:
    """Return the lines at the top: what speaks against a comparison, the lines on each pair, how runs scale, notes."""
    findings = [
        Line(f"{line.text}.", section=comparison_sections.SIDES, label=line.label)
        for line in list_findings(comparison.comparability, drop_quotes)
    ]
    doubts = [line for line in findings if line.label == TRUST]
    lines = []
    for number, pair in enumerate(comparison.pairs, 1):
        key = comparison_sections.make_key(_DIFFERENCE, number, len(comparison.pairs))
        verdict, *others = (each for each in list_answers(pair, quote) if each.label != RUN)
        lines.append(Line(f"{verdict.text}.", section=key, label=verdict.label))
        lines += [Line(f"{line.text}.", label=line.label) for line in others]
    if comparison.scaling is not None:
        label, text = state_scaling(comparison.scaling, quote)
        lines.append(Line(f"{text}.", section=comparison_sections.SCALING, label=label))
    return [*doubts, *lines, *(line for line in findings if line.label != TRUST)]


# ---- sections --------------------------------------------------------------------------------------------------------


def list_sections(
    comparison: ComparisonNumbers, sides: Sequence[Side], pictures: Sequence[Pictures | None]
) -> list[Section]:
    """Return the sections on all runs and on each pair, in reading order."""
    everywhere = _describe_traces(sides)
    count, scaling = len(comparison.pairs), comparison.scaling
    steps = comparison_sections.make_steps_section(sides, pictures)
    runs = [steps, comparison_sections.make_sides_section(comparison, sides, everywhere)]
    sections = [] if scaling is None else [comparison_sections.make_scaling_section(scaling, everywhere)]
    sections += runs if count > 1 else []
    for number, pair in enumerate(comparison.pairs, 1):
        where = _describe_traces([sides[0], sides[number]])
        difference, tables = (comparison_sections.make_key(name, number, count) for name in (_DIFFERENCE, _TABLES))
        sections.append(
            comparison_sections.make_difference_section(pair, difference, names_run=count > 1, traces=where)
        )
        sections += runs if count == 1 else []
        others = comparison_sections.make_tables_section(pair, tables, names_run=count > 1, traces=where, pairs=count)
        sections += [others] if others is not None else []
    return sections


def _describe_traces(sides: Sequence[Side]) -> str:
    """Return which traces to make to see some sides."""
    steps = choose_common_steps(sides)
    if steps is not None:
        return f"in traces of `--steps {steps[0]}:{steps[1]}` of each run"
    same = ", with the same choice of time" if any(side.summary.windows_ns for side in sides) else ""
    return f"in traces of {' and '.join(quote(side.label) for side in sides)}{same}"


def choose_common_steps(sides: Sequence[Side]) -> tuple[int, int] | None:
    """Return the first and last number of the steps after the warm-up that all sides have; None without such steps."""
    if any(match_steps(sides[0].summary, side.summary).sizes != (1, 1) for side in sides):
        return None
    steps = [[] if side.summary.efficiency is None else side.summary.efficiency.steps for side in sides]
    common = set.intersection(*({step.number for step in own} for own in steps))
    return (min(common), max(common)) if common else None
