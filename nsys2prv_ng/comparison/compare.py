"""Compares runs by their summaries: the steps first, then the parts of their difference, then all tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from nsys2prv_ng.comparison.comparability import check_comparability
from nsys2prv_ng.comparison.evidence import describe_limits, describe_spread, find_evidence
from nsys2prv_ng.comparison.history import load_history, make_history
from nsys2prv_ng.comparison.model import (
    Evidence,
    Kind,
    Measure,
    Pair,
    Prediction,
    Samples,
    Side,
    SideNumbers,
    Table,
    Verdict,
)
from nsys2prv_ng.comparison.result import Comparison
from nsys2prv_ng.comparison.scaling import make_scaling
from nsys2prv_ng.comparison.sides import (
    covers_its_steps,
    describe_captures,
    find_table_capture,
    has_steps,
    list_kinds,
    list_step_times,
)
from nsys2prv_ng.comparison.tables import make_tables
from nsys2prv_ng.comparison.work import find_units, match_steps
from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.summary.difference import budget, statistics
from nsys2prv_ng.summary.difference.changes import Change, find_changes
from nsys2prv_ng.summary.efficiency.windows import COMPUTE, IN_MPI, PARTS
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.text.formatting import format_time
from nsys2prv_ng.text.names import USER_CODE


def compare_with_history(new: Side, folder: Path) -> tuple[Comparison, Side]:
    """Return the comparison with the baseline of a folder of saved summaries, and the baseline. Raises UsageError."""
    found, unlike = load_history(folder, new.every)
    baseline, history, earlier = make_history(found, unlike, new)
    comparison = compare_sides([baseline, new])
    if earlier is not None:
        [pair] = comparison.pairs
        history = replace(history, drift=find_evidence(earlier, new, pair.verdict, pair.sizes))
    return replace(comparison, history=history), baseline


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
    by_step = has_steps(a) and has_steps(b) and "steps" not in prevented
    work = match_steps(a.summary, b.summary)
    by_step = by_step and all(
        len(list_step_times(capture)) >= size
        for side, size in zip((a, b), work.sizes, strict=True)
        for capture in side.every
    )
    sizes = work.sizes if by_step else (1, 1)
    samples: Samples = "captures" if a.captures or b.captures else "steps"
    before, after = (
        budget.list_captures(side.every, by_step=by_step, size=size)
        if samples == "captures"
        else budget.list_windows(side.summary, by_step=by_step, size=size)
        for side, size in zip((a, b), sizes, strict=True)
    )
    kinds = [list_kinds(side.summary, size) for side, size in zip((a, b), sizes, strict=True)]
    verdict = _decide(before, after, samples, kinds if by_step else [[], []])
    evidence = find_evidence(a, b, verdict, sizes)
    verdict = verdict if evidence is None else replace(verdict, kind=_weigh(verdict, evidence))
    per_step = covers_its_steps(a.summary), covers_its_steps(b.summary)
    if not by_step and any(per_step):  # one side covers its steps, the other all its time or other steps
        before, after = (side._replace(parts=[{} for _ in side.ns]) for side in (before, after))
    rows = budget.make_budget(before, after, verdict.average)
    totals = per_step[0] == per_step[1] and (by_step or not all(per_step))
    tables = make_tables(a.summary, b.summary, totals=totals, sizes=sizes)
    allowed = [table for table in tables if table.key not in prevented]
    hidden = [table.key.replace("_", " ") for table in tables if table.key in prevented]
    notes = _list_notes(a, b, verdict, evidence, per_step)
    notes += [f"no tables of {', '.join(hidden)}, because the runs were not traced alike"] if hidden else []
    explains = by_step and all(per_step)
    cause = budget.find_cause(a.summary, b.summary, rows, by_step=by_step, sizes=sizes)
    changes = find_changes(a.summary, b.summary, rows, verdict.a_ns, prevented, sizes) if explains else []
    has_units = explains and "ranges" not in prevented and sizes == (1, 1)
    return Pair(
        verdict=verdict,
        evidence=evidence,
        a=_measure(a, sizes[0]),
        b=_measure(b, sizes[1]),
        difference_ns=verdict.difference_ns,
        unit=before.unit if before.unit == after.unit else "",
        rows=rows,
        cause=cause,
        tables=allowed,
        notes=notes,
        units=find_units(a.summary, b.summary, verdict) if has_units else None,
        changes=changes,
        prediction=find_prediction(a, b, verdict, rows, changes, cause, allowed, sizes) if explains else None,
        shared=work.shared,
        step=work.step,
    )


def _measure(side: Side, size: int) -> SideNumbers:
    """Return the measurements of a side. `size`: how many of its steps are compared as one."""
    summary, captures = side.summary, describe_captures(side, size)
    steps = list_step_times(summary, size)
    known = [capture.step_median_ns for capture in captures if capture.step_median_ns is not None]
    samples = known if side.captures else steps
    low, high = statistics.bound_median(samples) or (None, None)
    windows = summary.windows_ns or [(0, summary.duration_ns)]
    return SideNumbers(
        label=side.label,
        reports=summary.reports,
        ranks=summary.ranks,
        gpus=len(summary.gpus),
        step_name=None if summary.steps is None else summary.steps.name,
        step_delimiter="" if summary.steps is None else summary.steps.delimiter,
        group=size,
        step_ns=steps,
        step_median_ns=statistics.find_median(samples) if samples else None,
        step_mean_ns=statistics.find_average(samples, "mean") if samples else None,
        step_median_low_ns=low,
        step_median_high_ns=high,
        length_ns=sum(until - begin for begin, until in windows),
        per_step=covers_its_steps(summary),
        captures=captures,
        table_capture=find_table_capture(side),
    )


def _decide(a: budget.Windows, b: budget.Windows, samples: Samples, kinds: Sequence[Sequence[str]]) -> Verdict:
    """Return the verdict on the medians of both sides, or on their means if these say something else.

    Where a few steps differ that take far longer, medians are equal, and ranks hardly differ. Of several kinds of
    steps, a median is of one. `kinds`: of the steps of both sides; none without steps.
    """
    measure: Measure = "step" if kinds[0] else "capture"
    is_tested = bool(kinds[0]) and min(len(a.ns), len(b.ns)) >= statistics.FEWEST
    if is_tested and samples == "steps" and len({*kinds[0], *kinds[1]}) > 1:
        return _judge(a.ns, b.ns, "mean", measure, samples, partial(statistics.compare_means, kinds=kinds))
    verdict = _judge(a.ns, b.ns, "median", measure, samples, statistics.compare_ranks if is_tested else None)
    if not is_tested or samples == "captures" or verdict.change is None or verdict.kind == "inconclusive":
        return verdict
    change = sum(b.ns) * len(a.ns) / (sum(a.ns) * len(b.ns)) - 1
    agrees = verdict.kind in ("faster", "slower") and change * verdict.change > 0
    if agrees or min(abs(change), abs(change - verdict.change)) < statistics.NOISE:
        return verdict
    of_means = _judge(a.ns, b.ns, "mean", measure, samples, statistics.compare_means)
    return verdict if of_means.kind == "no difference" and not verdict.is_significant else of_means


def _judge(
    a: list[int],
    b: list[int],
    average: statistics.Average,
    measure: Measure,
    samples: Samples,
    test: Callable[[list[int], list[int]], float] | None,
) -> Verdict:
    """Return the verdict on an average. `test`: returns p; None if there are too few samples."""
    before, after = (statistics.find_average(ns, average) for ns in (a, b))
    change = (after - before) / before if before else None
    p = None if test is None else test(a, b)
    kind: Kind = "inconclusive"
    if p is not None:
        if p >= statistics.LEVEL or change is None or before == after:
            kind = "no difference" if change is None or abs(change) < statistics.LARGE else "inconclusive"
        elif abs(change) < statistics.NOISE:
            kind = "below noise"
        else:
            kind = "slower" if change > 0 else "faster"
    return Verdict(kind, measure, samples, average, before, after, after - before, change, p)


def _weigh(verdict: Verdict, evidence: Evidence) -> Kind:
    """Return what the evidence leaves of a verdict: of steps, less; of captures, whatever their number."""
    excludes_none = evidence.low > 0 or evidence.high < 0
    if verdict.samples == "steps":
        return verdict.kind if excludes_none or verdict.kind not in ("faster", "slower") else "inconclusive"
    size = abs(verdict.change or 0.0)
    if excludes_none and (verdict.change or 0.0) * evidence.change >= 0:
        return "below noise" if size < statistics.NOISE else "slower" if evidence.low > 0 else "faster"
    return "no difference" if size < statistics.LARGE else "inconclusive"


def _list_notes(
    a: Side, b: Side, verdict: Verdict, evidence: Evidence | None, per_step: tuple[bool, bool]
) -> list[str]:
    """Return notes on what is missing or means little, and why. {a} and {b} stand for labels, which may be any text."""
    sides = (("{a}", a), ("{b}", b))
    lacking = [name for name, side in sides if not has_steps(side)]
    notes = [f"no steps were found in {' and '.join(lacking)}"] if lacking else []
    notes += _describe_captures(a, b, verdict, evidence)
    for name, side in sides:
        if side.summary.steps is not None and side.summary.steps.turns_ns is not None:
            short, long = map(format_time, side.summary.steps.turns_ns)
            turns = f"the steps of {name} alternate between {short} and {long}, so their median may be either"
            notes.append(f"{turns}: compare the parts, which are means")
    if per_step[0] != per_step[1]:
        one, other = ("{b}", "{a}") if per_step[0] else ("{a}", "{b}")
        why = f"{one} is not restricted to its steps after the warm-up, and {other} is"
        notes.append(f"no tables of totals, because {why}")
    elif not per_step[0] and has_steps(a) and has_steps(b):
        notes.append("all tables but the first cover all the time of both summaries, not only their steps")
    return notes


def _describe_captures(a: Side, b: Side, verdict: Verdict, evidence: Evidence | None) -> list[str]:
    """Return notes on which captures tables are of, and on what captures of such a program vary by."""
    notes = []
    if verdict.samples == "captures":
        sides = (("{a}", a), ("{b}", b))
        places = [f"capture {find_table_capture(side) + 1} of {name}" for name, side in sides if side.captures]
        which = f"{', '.join(places)}, with the median step nearest to that of all captures"
        notes.append(f"all tables but the first are of {which}")
    if evidence is not None and verdict.is_significant:
        notes.append(f"{describe_spread(evidence)}, so the change is {describe_limits(evidence)} (90%)")
    return notes


_Target = tuple[str, str | int]
"""The target of a change, with its name or rank; "" for targets without."""
_ON_HOSTS = ((what.HOST, ""),)
_BY_PART: dict[str, Sequence[_Target]] = {
    PARTS["moving_ns"]: ((what.NETWORK, ""),),
    PARTS["not_split_ns"]: ((what.NETWORK, ""), (what.WAITS, "")),
    PARTS["waiting_ns"]: ((what.WAITS, ""),),
    PARTS["memory_ns"]: ((what.COPIES, ""),),
    budget.HOST_BOUND: _ON_HOSTS,
    USER_CODE: _ON_HOSTS,
    IN_MPI: ((what.NETWORK, ""), (what.WAITS, "")),
}
"""What to change to shorten a part of the step."""


def find_prediction(
    a: Side,
    b: Side,
    verdict: Verdict,
    rows: Sequence[budget.BudgetRow],
    changes: Sequence[Change],
    cause: str,
    tables: Sequence[Table],
    sizes: tuple[int, int],
) -> Prediction | None:
    """Return the scenario of the slower side that saves most of those related to the difference; None without one.

    Related is what the slower side has more of: what changed most, the MPI calls that differ, and the largest part of
    the difference. `cause`: the range with most of its host-bound time. `sizes`: how many steps are compared as one.
    """
    if verdict.kind not in ("faster", "slower"):
        return None
    slower = a if verdict.kind == "faster" else b
    numbers = slower.summary.what_if
    if numbers is None:
        return None
    sign = -1 if slower is a else 1
    related = {
        *_list_of_changes([change for change in changes if change.difference_ns * sign > 0], slower.summary),
        *_list_of_calls(tables, sign),
        *_list_of_largest(rows, sign, cause),
    }
    scenarios = [scenario for scenario in numbers.scenarios if related.intersection(_list_targets(scenario.changes))]
    best = replace(numbers, scenarios=scenarios).best
    size = sizes[0 if slower is a else 1]
    return None if best is None else Prediction(slower.label, best.change, best.saving_ns * size)


def _list_of_changes(changes: Iterable[Change], summary: JobSummary) -> Iterator[_Target]:
    """Yield the targets of what changed most. `summary`: of the slower side."""
    functions = {nccl.function for nccl in summary.nccl}
    for change in changes:
        if change.rank is not None:
            yield what.RANK, change.rank
        if change.kind == "transfer":
            yield what.NETWORK if change.name in functions else what.COPIES, ""
        elif change.kind == "kernel":
            yield what.KERNEL, change.name
            yield what.CLASS, change.name
            yield from ((what.CLASS, own.kernel_class) for own in summary.kernels if own.name == change.name)
        else:
            yield change.kind, change.name


def _list_of_calls(tables: Sequence[Table], sign: int) -> Iterator[_Target]:
    """Yield the network if MPI calls take longer on the slower side, for their wait time or their transfers."""
    rows = [row for table in tables if table.key == "mpi" for row in table.rows]
    if any(row.differs and ((row.b or 0) - (row.a or 0)) * sign > 0 for row in rows):
        yield what.NETWORK, ""


def _list_of_largest(rows: Sequence[budget.BudgetRow], sign: int, cause: str) -> Iterator[_Target]:
    """Yield the targets that shorten the largest part of the difference."""
    largest = max(rows[:-1], key=lambda row: row.difference_ns * sign, default=None)
    if largest is None or largest.difference_ns * sign <= 0:
        return
    part, _, kernel_class = largest.name.partition(": ")
    if part == COMPUTE and kernel_class:
        yield what.CLASS, kernel_class
    if part == budget.HOST_BOUND and cause:
        yield what.RANGE, cause
    yield from _BY_PART.get(part, ())


def _list_targets(changes: Iterable[what.Change]) -> Iterator[_Target]:
    """Yield the targets of the changes of a scenario."""
    for change in changes:
        if change.target in what.NAMED:
            yield change.target, change.label
        elif change.target == what.RANK:
            yield from ((what.RANK, rank) for rank in change.ranks or ())
        else:
            yield change.target, ""
