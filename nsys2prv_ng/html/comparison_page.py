"""Renders the page of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.comparison.comparability import WARNING
from nsys2prv_ng.comparison.model import ComparisonNumbers, Finding, Side
from nsys2prv_ng.comparison.scaling import describe_scaling
from nsys2prv_ng.comparison.sentences import FASTER, RUN, SLOWER, LabelledLine
from nsys2prv_ng.comparison.sentences import list_lines as list_answers
from nsys2prv_ng.comparison.work import match_steps
from nsys2prv_ng.html import comparison_sections
from nsys2prv_ng.html.blocks import Line, Section
from nsys2prv_ng.html.page import clean, drop_quotes, quote, render_page
from nsys2prv_ng.summary.pictures.numbers import Pictures
from nsys2prv_ng.text.formatting import count_noun

_DIFFERENCE, _TABLES = "difference", "tables"
_MOST_LABELS = 4
"""Most runs that the line below the title names."""


def render_comparison(comparison: ComparisonNumbers, sides: Sequence[Side], pictures: Sequence[Pictures | None]) -> str:
    """Return the page of a comparison of `sides`.

    `pictures`: what `summary/pictures/measure.py` collected for each side; None for a side that is a saved summary.
    """
    return render_page(
        title=_make_title(comparison),
        subtitle=_describe_sizes(comparison),
        lines=list_lines(comparison),
        warnings=[],
        sections=list_sections(comparison, sides, pictures),
    )


def _make_title(comparison: ComparisonNumbers) -> str:
    first, *others = comparison.pairs
    if others:
        return f"{len(comparison.pairs)} runs compared with {clean(first.a.label)}"
    return f"{clean(first.b.label)} compared with {clean(first.a.label)}"


def _describe_sizes(comparison: ComparisonNumbers) -> str:
    numbers = [comparison.pairs[0].a, *(pair.b for pair in comparison.pairs)]
    sizes = [
        f"{clean(side.label)}: {count_noun(side.ranks, 'rank')}, {count_noun(side.gpus, 'GPU')}"
        for side in numbers[:_MOST_LABELS]
    ]
    return "; ".join([*sizes, *(["..."] if len(numbers) > _MOST_LABELS else [])])


# ---- in short --------------------------------------------------------------------------------------------------------


def list_lines(comparison: ComparisonNumbers) -> list[Line]:
    """Return the lines at the top: warnings, the verdict on each pair, how runs scale, and notes."""
    findings = comparison.comparability.findings
    lines = [_state(finding) for finding in findings if finding.severity == WARNING]
    count = len(comparison.pairs)
    for number, pair in enumerate(comparison.pairs, 1):
        verdict, *others = list_answers(pair, quote)
        text = f"{verdict.text}." if verdict.label in (FASTER, SLOWER) else _state_labelled(verdict)
        details = [_state_labelled(line) for line in others if line.label != RUN]
        lines.append(Line(text, details, comparison_sections.make_key(_DIFFERENCE, number, count)))
    if comparison.scaling is not None:
        lines.append(Line(f"{describe_scaling(comparison.scaling, quote)}.", [], comparison_sections.SCALING))
    return [*lines, *(_state(finding) for finding in findings if finding.severity != WARNING)]


def _state_labelled(line: LabelledLine) -> str:
    return f"{line.label.capitalize()}: {line.text}."


def _state(finding: Finding) -> Line:
    return Line(f"{finding.severity.capitalize()}: {drop_quotes(finding.text)}.", [], comparison_sections.SIDES)


# ---- sections --------------------------------------------------------------------------------------------------------


def list_sections(
    comparison: ComparisonNumbers, sides: Sequence[Side], pictures: Sequence[Pictures | None]
) -> list[Section]:
    """Return the sections on all runs and on each pair, in reading order."""
    everywhere = _describe_traces(sides)
    count, scaling = len(comparison.pairs), comparison.scaling
    steps = comparison_sections.make_steps_section(sides, pictures)
    sections: list[Section | None] = [comparison_sections.make_sides_section(comparison, sides, everywhere)]
    sections.append(None if scaling is None else comparison_sections.make_scaling_section(scaling, everywhere))
    if count > 1:
        sections.append(steps)
    for number, pair in enumerate(comparison.pairs, 1):
        where = _describe_traces([sides[0], sides[number]])
        difference, tables = (comparison_sections.make_key(name, number, count) for name in (_DIFFERENCE, _TABLES))
        sections.append(
            comparison_sections.make_difference_section(pair, difference, names_run=count > 1, traces=where)
        )
        if count == 1:
            sections.append(steps)
        sections.append(
            comparison_sections.make_tables_section(pair, tables, names_run=count > 1, traces=where, pairs=count)
        )
    return [section for section in sections if section is not None]


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
