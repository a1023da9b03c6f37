"""Compares runs by their summaries: the steps first, then the parts of their difference, then all tables."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.comparison.budget import Windows, find_cause, list_windows, make_budget
from nsys2prv_ng.comparison.comparability import check_comparability
from nsys2prv_ng.comparison.model import Comparison, Kind, Pair, Side, SideNumbers, Table, Verdict
from nsys2prv_ng.comparison.scaling import make_scaling
from nsys2prv_ng.comparison.statistics import FEWEST, LEVEL, NOISE, bound_median, compare_ranks, find_median
from nsys2prv_ng.comparison.tables import covers_its_steps, make_tables
from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.text.formatting import format_time


def compare_sides(sides: Sequence[Side], scaling: str | None = None) -> Comparison:
    """Return the comparison of each later side with the first. There are at least two sides.

    `scaling`: "strong" or "weak", if the user knows. Raises UsageError for another word.
    """
    first, *others = sides
    comparability = check_comparability(sides)
    pairs = [_compare_pair(first, other, check_comparability([first, other]).prevented) for other in others]
    return Comparison(comparability, pairs, make_scaling(sides, comparability, scaling))


def _compare_pair(a: Side, b: Side, prevented: frozenset[str]) -> Pair:
    """Compare two sides, without the prevented tables."""
    by_step = _has_steps(a.summary) and _has_steps(b.summary) and "steps" not in prevented
    before, after = (list_windows(side.summary, by_step=by_step) for side in (a, b))
    verdict = _decide(before, after, by_step=by_step)
    per_step = covers_its_steps(a.summary), covers_its_steps(b.summary)
    if not by_step and any(per_step):  # one side covers its steps, the other all its time or other steps
        before, after = (side._replace(parts=[{} for _ in side.ns]) for side in (before, after))
    rows = make_budget(before, after)
    tables = make_tables(a.summary, b.summary, totals=per_step[0] == per_step[1])
    return Pair(
        verdict=verdict,
        a=_measure(a),
        b=_measure(b),
        difference_ns=verdict.difference_ns,
        unit=before.unit if before.unit == after.unit else "",
        rows=rows,
        cause=find_cause(a.summary, b.summary, rows, by_step=by_step),
        tables=[table for table in tables if table.key not in prevented],
        notes=[*_list_notes(a, b, per_step), *_list_prevented(tables, prevented)],
    )


def _list_prevented(tables: Sequence[Table], prevented: frozenset[str]) -> list[str]:
    """Return a note on the tables that are missing because their rows mean something else on each side."""
    names = [table.key.replace("_", " ") for table in tables if table.key in prevented]
    return [f"no tables of {', '.join(names)}, as the sides are not traced alike"] if names else []


def _has_steps(summary: JobSummary) -> bool:
    return summary.efficiency is not None and bool(summary.efficiency.steps)


def _measure(side: Side) -> SideNumbers:
    summary = side.summary
    steps = [] if summary.efficiency is None else [step.window_ns for step in summary.efficiency.steps]
    low, high = bound_median(steps) or (None, None)
    windows = summary.windows_ns or [(0, summary.duration_ns)]
    return SideNumbers(
        label=side.label,
        reports=summary.reports,
        ranks=summary.ranks,
        gpus=len(summary.gpus),
        step_name=None if summary.steps is None else summary.steps.name,
        step_ns=steps,
        step_median_ns=find_median(steps) if steps else None,
        step_median_low_ns=low,
        step_median_high_ns=high,
        window_ns=sum(until - begin for begin, until in windows),
        per_step=covers_its_steps(summary),
    )


def _decide(a: Windows, b: Windows, *, by_step: bool) -> Verdict:
    """Return the verdict on the medians of both sides."""
    before, after = find_median(a.ns), find_median(b.ns)
    change = (after - before) / before if before else None
    p = None
    kind: Kind = "inconclusive"
    if by_step and min(len(a.ns), len(b.ns)) >= FEWEST:
        p = compare_ranks(a.ns, b.ns)
        if p >= LEVEL or change is None or before == after:
            kind = "no difference"
        elif abs(change) < NOISE:
            kind = "below noise"
        else:
            kind = "slower" if change > 0 else "faster"
    return Verdict(kind, "step" if by_step else "capture", before, after, after - before, change, p)


def _list_notes(a: Side, b: Side, per_step: tuple[bool, bool]) -> list[str]:
    """Return notes on what is missing or means little, and why. They contain no labels, which may be any text."""
    lacking = [name for name, side in (("A", a), ("B", b)) if not _has_steps(side.summary)]
    notes = [f"no steps were found in {' and '.join(lacking)}"] if lacking else []
    for name, side in (("A", a), ("B", b)):
        if side.summary.steps is not None and side.summary.steps.turns_ns is not None:
            short, long = map(format_time, side.summary.steps.turns_ns)
            notes.append(
                f"the steps of {name} alternate between {short} and {long}: their median may be either or between them,"
                " so look at the parts of the difference, which are means"
            )
    if per_step[0] != per_step[1]:
        one, other = ("B", "A") if per_step[0] else ("A", "B")
        notes.append(f"no tables of totals: {one} is not restricted to its steps without their warm-up, as {other} is")
    elif not per_step[0] and _has_steps(a.summary) and _has_steps(b.summary):
        notes.append("the tables are of all the time of both summaries, which are not restricted to their steps")
    return notes
