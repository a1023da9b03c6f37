"""Makes the labelled lines of a comparison, and formats its numbers; result.py and pages lay them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from nsys2prv_ng.comparison.comparability import WARNING
from nsys2prv_ng.comparison.evidence import describe_limits, describe_spread
from nsys2prv_ng.comparison.history import RECENT
from nsys2prv_ng.comparison.model import Comparability, HistoryNumbers, Pair, Scaling, SideNumbers
from nsys2prv_ng.comparison.scaling import describe_scaling
from nsys2prv_ng.comparison.tables import EXPOSED, OVERLAPPED
from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay.changes import read_changes
from nsys2prv_ng.summary.difference.budget import HOST_BOUND, BudgetRow
from nsys2prv_ng.summary.difference.changes import Change
from nsys2prv_ng.summary.difference.statistics import FEWEST, LEVEL, NOISE
from nsys2prv_ng.text.formatting import (
    count_noun,
    cut_middle,
    cut_names,
    format_bytes,
    format_change,
    format_difference,
    format_number,
    format_percent,
    format_ranks,
    format_time,
    format_utc,
)
from nsys2prv_ng.text.grid import Grid, Name, Ns, tabulate

Quote = Callable[[str], str]
"""A function that makes a name from a report part of a sentence."""
FASTER, SLOWER, SAME, UNKNOWN = "FASTER", "SLOWER", "NO DIFFERENCE", "INCONCLUSIVE"
RUN, TRUST = "RUN", "TRUST"
_VERDICTS = {"faster": FASTER, "slower": SLOWER, "no difference": SAME, "below noise": SAME, "inconclusive": UNKNOWN}
_MOST_PARTS, _MOST_RUNS = 3, 4
_MOST_CAPTURES = 20
"""Most captures of a history in a table."""
_NAME, _LABEL = 60, 40
"""Most characters of the name of what changed, and of a run."""


class LabelledLine(NamedTuple):
    """A line of the answer: a label in capitals, and a sentence without a full stop."""

    label: str
    text: str


def list_lines(pair: Pair, quote: Quote, findings: Sequence[LabelledLine] = ()) -> list[LabelledLine]:
    """Return the verdict, and after it the lines that have something to state. `findings`: stand before the notes."""
    lines = [
        (_VERDICTS[pair.verdict.kind], state_verdict(pair, quote)),
        ("WORK", state_units(pair, quote)),
        ("CHANGED", state_changes(pair, quote)),
        ("PARTS", state_parts(pair, quote)),
        ("GAIN", state_prediction(pair, quote)),
        ("OVERLAP", state_overlap(pair, quote)),
        *((RUN, text) for text in describe_runs(pair, quote)),
        *findings,
        *(("NOTE", note) for note in pair.name_notes(lambda label: quote(cut_middle(label, _LABEL)))),
    ]
    return [LabelledLine(label, text) for label, text in lines if text]


def list_findings(comparability: Comparability, quote_text: Quote) -> list[LabelledLine]:
    """Return a line for each finding, warnings first. `quote_text`: makes a text with names harmless."""
    return [
        LabelledLine(TRUST if finding.severity == WARNING else "NOTE", quote_text(finding.text))
        for finding in comparability.findings
    ]


def state_scaling(scaling: Scaling, quote: Quote) -> LabelledLine:
    """Return a line on the speedup of the largest runs; a table has the other numbers."""
    runs = [
        f"{quote(cut_middle(run.label, _LABEL))} speedup {run.speedup:.2f}"
        + ("" if run.efficiency is None else f" (efficiency {format_percent(run.efficiency, 1)})")
        for run in scaling.runs[1:][-_MOST_RUNS:]
        if run.speedup is not None
    ]
    return LabelledLine("SCALING", ". ".join(filter(None, [", ".join(runs), describe_scaling(scaling, quote)])))


def state_history(history: HistoryNumbers, quote: Quote) -> LabelledLine:
    """Return a line on the earlier captures, and on when the program changed."""
    earlier = history.captures[: len(history.captures) - history.new]
    times = [each.step_ns for each in earlier]
    texts = [f"{count_noun(len(earlier), 'capture')}, {format_time(min(times))} to {format_time(max(times))}"]
    texts[0] += f", the last {len(earlier) - history.baseline} for the baseline"
    changes = [_describe_history_change(history, where, quote) for where in history.changes]
    texts += [f"changed with {', '.join(changes)}"] if changes else []
    drift = history.drift
    if drift is not None:
        change = f"{format_change(drift.change)} ({describe_limits(drift)} at 90%)"
        texts.append(f"{change} compared with {RECENT} captures ago")
    texts += (
        [f"{history.unlike} of other programs, sizes or machines and damaged ones do not count"]
        if history.unlike
        else []
    )
    return LabelledLine("HISTORY", "; ".join(texts))


def _describe_history_change(history: HistoryNumbers, where: int, quote: Quote) -> str:
    """Return the first capture of a changed program, and by how much its part differs from the one before."""
    begins = [0, *history.changes, len(history.captures)]
    part = begins.index(where)
    before, after = (
        fmean(each.step_ns for each in history.captures[begins[n] : begins[n + 1]]) for n in (part - 1, part)
    )
    return f"{quote(cut_middle(history.captures[where].name, _LABEL))} ({format_change(after / before - 1)})"


def tabulate_history(history: HistoryNumbers) -> Grid:
    """Return the last captures of the series, and where it changes."""
    shown = list(enumerate(history.captures))[-_MOST_CAPTURES:]
    return tabulate(
        shown,
        [
            ("capture", lambda each: Name(each[1].name)),
            ("UTC", lambda each: format_utc(each[1].begin_utc_ns)[:16]),
            ("step", lambda each: Ns(each[1].step_ns)),
            ("", lambda each: "changed" if each[0] in history.changes else ""),
        ],
        caption="History",
    )


def _quote_runs(pair: Pair, quote: Quote) -> tuple[str, str]:
    """Return the names of both runs for a sentence."""
    a, b = cut_names([pair.a.label, pair.b.label], _LABEL)
    return quote(a), quote(b)


def has_times(pair: Pair) -> bool:
    """Return whether the times of both sides cover the same: steps, or all the time that was read."""
    return pair.verdict.measure == "step" or not (pair.a.per_step or pair.b.per_step)


# ---- verdict ---------------------------------------------------------------------------------------------------------


def state_verdict(pair: Pair, quote: Quote) -> str:
    """Return a sentence on whether b is faster than a, without a full stop, as all sentences here."""
    verdict = pair.verdict
    a, b = _quote_runs(pair, quote)
    if not has_times(pair):
        return f"no times of {a} and {b} can be compared, because {_explain_doubt(pair, quote)}"
    before, after = format_time(verdict.a_ns), format_time(verdict.b_ns)
    if verdict.measure == "capture":
        is_all = (verdict.a_ns, verdict.b_ns) == (pair.a.length_ns, pair.b.length_ns)
        times = f"{after} {'of time read' if is_all else 'in which GPUs work'} instead of {before}"
    elif max(pair.sizes) > 1:
        times = f"{after} instead of {before} for the same work"
    else:
        is_mixed = any(table.key == "kinds" for table in pair.tables)
        unit = "step" if pair.a.step_delimiter or is_mixed else quote(pair.a.step_name or "step")
        times = f"{after} per {verdict.average} {unit} instead of {before}"
    times += f" ({format_difference(verdict.difference_ns)}, {format_change(verdict.change)}"
    times += ")" if verdict.p is None else f", p {state_p(verdict.p)})"
    over = ""
    if verdict.samples == "captures":
        over = f", over {len(pair.a.captures)} and {count_noun(len(pair.b.captures), 'capture')}"
    if verdict.kind in ("faster", "slower"):
        return f"{b} is {verdict.kind} than {a}{over}: {times}"
    if verdict.kind == "below noise":
        limit = format_percent(NOISE, 1)
        return f"{a} and {b} differ by less than {limit}, which may be noise between captures{over}: {times}"
    if verdict.kind == "no difference":
        return f"{a} and {b} do not differ significantly{over}: {times}"
    return f"{b} takes {times}, but {_explain_doubt(pair, quote)}{_state_ranges(pair, a, b)}"


def _explain_doubt(pair: Pair, quote: Quote) -> str:
    """Return why the verdict is inconclusive, as the rest of a sentence."""
    remedy = f"; --step {quote(cut_middle(pair.step, _NAME))} compares both by it" if pair.step else ""
    if pair.verdict.measure == "capture" and pair.a.step_ns and pair.b.step_ns:
        counts = _list_counts(pair, quote) or "they have no kernel or copy in common"
        return f"their steps are not known to be the same work ({counts}){remedy}"
    if pair.verdict.measure == "capture":
        lacking = "either run" if not (pair.a.step_ns or pair.b.step_ns) else "one of the runs"
        return f"no steps were found in {lacking}{remedy}"
    samples = [len(side.captures if pair.verdict.samples == "captures" else side.step_ns) for side in (pair.a, pair.b)]
    noun = pair.verdict.samples
    if noun == "steps" and min(samples) < FEWEST:
        return f"{samples[0]} and {samples[1]} steps are too few: capture at least {FEWEST}, or each run twice"
    if pair.evidence is None or (noun == "steps" and pair.verdict.p is not None and pair.verdict.p >= LEVEL):
        return f"{samples[0]} and {samples[1]} {noun} do not rule out chance"
    return f"{describe_spread(pair.evidence)}: compare several captures of each"


def _list_counts(pair: Pair, quote: Quote) -> str:
    """Return how often a step of each run has what both have."""
    counts = [(quote(cut_middle(each.name, _NAME)), *map(format_count, (each.a, each.b))) for each in pair.shared]
    return ", ".join(f"{name} {a} and {b} times" for name, a, b in counts)


def _state_ranges(pair: Pair, a: str, b: str) -> str:
    """Return whether the captures of the sides overlap, if there are several."""
    before, after = (
        [each.step_median_ns for each in side.captures if each.step_median_ns is not None] for side in (pair.a, pair.b)
    )
    if pair.verdict.samples == "steps" or pair.verdict.measure == "capture" or not before or not after:
        return ""
    if max(after) < min(before) or max(before) < min(after):
        than = "faster" if max(after) < min(before) else "slower"
        return f". Every capture of {b} is {than} than all of {a}"
    return f". The captures of {a} and {b} overlap"


# ---- what differs ----------------------------------------------------------------------------------------------------


def state_units(pair: Pair, quote: Quote) -> str:
    """Return a sentence on how much work steps are; "" if a step has equally many units on both sides."""
    units, verdict = pair.units, pair.verdict
    a, b = _quote_runs(pair, quote)
    if max(pair.sizes) > 1:
        one, other = (b, a) if pair.a.group > 1 else (a, b)
        holds = f"one step of {one} holds {max(pair.sizes):,} of {other} ({_list_counts(pair, quote)} in a step)"
        return f"{holds}: times are of so much work"
    if units is None:
        return ""
    name = quote(cut_middle(units.range, _NAME))
    text = f"{b} has {units.count_b:,} {name} per step, {a} {units.count_a:,}: {format_change(verdict.change)} per step"
    times = f"{format_time(units.b_ns)} instead of {format_time(units.a_ns)}"
    return f"{text}, {format_change(units.change)} per {name} ({times})"


def state_changes(pair: Pair, quote: Quote) -> str:
    """Return a sentence on the ranges, calls, kernels and transfers that changed most; "" if nothing exceeds noise."""
    return ", ".join(_describe_change(change, pair, quote) for change in pair.changes)


def _describe_change(change: Change, pair: Pair, quote: Quote) -> str:
    name = quote(cut_middle(change.name, _NAME))
    where = f"on rank {change.rank}" if change.rank is not None else f"and {change.per}"
    a, b = _quote_runs(pair, quote)
    only = f" (only in {a if change.only == 'A' else b})" if change.only else ""
    subject = f"{name} kernels" if change.kind == "kernel" else f"{change.kind} {name}"
    return f"{subject} {format_difference(change.difference_ns)} per step {where}{only}"


def is_shown(row: BudgetRow, pair: Pair) -> bool:
    """Return whether a part differs, or is so large that readers must see it and its p."""
    return row.differs or abs(row.difference_ns) >= NOISE * pair.verdict.a_ns


def state_parts(pair: Pair, quote: Quote) -> str:
    """Return a sentence on the largest parts of the difference, or on the parts that differ if the sides do not.

    It is "" without such parts.
    """
    parts = pair.rows[:-1]
    if pair.verdict.p is not None and pair.verdict.p >= LEVEL:
        # Some of many parts differ by chance.
        large = [row for row in parts if row.differs and abs(row.difference_ns) >= NOISE * pair.verdict.a_ns]
        clauses = _join_parts(large, pair, quote)
        return f"{clauses}, although the steps do not differ significantly" if clauses else ""
    rows = [row for row in parts if is_shown(row, pair) and row.difference_ns * pair.difference_ns > 0]
    if not rows:
        return ""
    listed = abs(sum(row.difference_ns for row in rows[:_MOST_PARTS]))
    text = _join_parts(rows, pair, quote)
    text = text if 2 * listed >= abs(pair.difference_ns) else f"largest of many: {text}"
    against = _join_parts([row for row in parts if row.differs and row not in rows], pair, quote)
    return f"{text}, offset by {against}" if against else text


def _join_parts(rows: Sequence[BudgetRow], pair: Pair, quote: Quote) -> str:
    return ", ".join(_describe_part(row, pair, quote) for row in rows[:_MOST_PARTS])


def _describe_part(row: BudgetRow, pair: Pair, quote: Quote) -> str:
    part, colon, kernel_class = row.name.partition(": ")  # classes may come from files of others
    name = f"{part} {quote(kernel_class)}" if colon else part
    details = [f"mainly {quote(cut_middle(pair.cause, _NAME))}"] if row.name == HOST_BOUND and pair.cause else []
    details += [] if row.differs or row.p is None else [f"p {state_p(row.p)}, perhaps chance"]
    return f"{name} {format_difference(row.difference_ns)}" + (f" ({', '.join(details)})" if details else "")


def state_overlap(pair: Pair, quote: Quote) -> str:
    """Return a sentence on the overlapped and exposed communication of both runs; "" if neither communicates."""
    rows = {row.name: row for table in pair.tables if table.key == "activity" for row in table.rows}
    overlapped, exposed = rows.get(OVERLAPPED), rows.get(EXPOSED)
    if overlapped is None and exposed is None:
        return ""
    texts: list[str] = []
    shares: list[float] = []
    for name, side in zip(_quote_runs(pair, quote), "ab", strict=True):
        behind, alone = (0.0 if row is None else getattr(row, side) or 0.0 for row in (overlapped, exposed))
        if behind + alone:
            share = behind / (behind + alone)
            points = f", {format_points(share - shares[0])}" if shares else ""
            shares.append(share)
            hidden = f"{format_time(behind)} overlapped ({format_percent(share, 1)}{points})"
            texts.append(f"{name} {hidden}, {format_time(alone)} exposed")
    return f"communication per {'step and ' if pair.a.per_step else ''}GPU: {', '.join(texts)}"


# ---- prediction ------------------------------------------------------------------------------------------------------


def state_prediction(pair: Pair, quote: Quote) -> str:
    """Return a sentence on what a replay of the slower side predicts, beside how much faster the other one is."""
    if pair.prediction is None:
        return ""
    a, b = _quote_runs(pair, quote)
    slower, faster = (a, b) if pair.prediction.label == pair.a.label else (b, a)
    changes = [_describe_scenario(change, slower, quote) for change in read_changes(pair.prediction.change)]
    saving, difference = pair.prediction.saving_ns, abs(pair.verdict.difference_ns)
    explained = f"{format_percent(min(saving, difference), difference)} of what {faster} is faster by"
    return f"{' and '.join(changes)} would save about {format_time(saving)} per mean step, {explained}"


def _describe_scenario(change: what.Change, run: str, quote: Quote) -> str:
    """Return a change of a run as the subject of a sentence."""
    if change.target == what.UNKNOWN:  # of a later version
        return f"{quote(change.name)} in {run}"
    where = "" if change.ranks is None else f" on {format_ranks(change.ranks)}"
    if change.target == what.RANK:
        return f"making{where.removeprefix(' on')} of {run} as fast as the others"
    if change.target == what.NETWORK:
        kind = (
            "an ideal network" if not change.factor else f"a network {format_number(1 / change.factor)} times as fast"
        )
        return f"{kind} {change.name}".rstrip() + f" in {run}{where}"
    if change.target == what.HOST and not change.factor:
        return f"an ideal host in {run}{where}"
    subject = "wait time" if change.target == what.WAITS else change.target
    if change.name:
        name = quote(cut_middle(change.label, _NAME))
        subject = f"{name} kernels" if change.target in (what.CLASS, what.KERNEL) else f"{subject} {name}"
    if not change.factor:
        return f"removing {subject} from {run}{where}"
    how = "halving" if change.factor == 0.5 else f"multiplying by {format_number(change.factor)}"
    return f"{how} the time of {subject} in {run}{where}"


# ---- runs ------------------------------------------------------------------------------------------------------------


def describe_runs(pair: Pair, quote: Quote) -> list[str]:
    """Return what each run is, and its steps, with the confidence limits of their median."""
    return [_describe_side(*run, quote) for run in zip((pair.a, pair.b), _quote_runs(pair, quote), strict=True)]


def _describe_side(side: SideNumbers, name: str, quote: Quote) -> str:
    texts = [count_noun(side.gpus, "GPU"), count_noun(side.ranks, "rank")]
    medians = [each.step_median_ns for each in side.captures if each.step_median_ns is not None]
    if side.step_median_ns is not None and side.step_mean_ns is not None:
        is_repeated = len(side.captures) > 1
        samples = f"median of {count_noun(len(medians), 'capture')}"
        texts.append(samples if is_repeated else f"{describe_steps(side, quote)}, median")
        texts[-1] += f" {format_time(side.step_median_ns)}"
        if is_repeated:
            texts.append(f"{format_time(min(medians))} to {format_time(max(medians))}")
        elif abs(side.step_mean_ns - side.step_median_ns) >= NOISE * side.step_median_ns:
            texts.append(f"mean {format_time(side.step_mean_ns)}")
    low, high = side.step_median_low_ns, side.step_median_high_ns
    limits = "" if low is None or high is None else f" ({format_time(low)} to {format_time(high)} at 95%)"
    return f"{name}: {', '.join(texts)}{limits}"


def describe_steps(side: SideNumbers, quote: Quote) -> str:
    """Return how many steps a side has, or groups of steps, and what marks them."""
    count = (
        f"{len(side.step_ns):,} times {side.group:,} steps" if side.group > 1 else count_noun(len(side.step_ns), "step")
    )
    if side.step_delimiter:
        return f"{count} by kernels ({quote(cut_middle(side.step_delimiter, _LABEL))} delimits them)"
    return f"{count} {quote(cut_middle(side.step_name or '', _LABEL))}"


def format_points(difference: float) -> str:
    """Return the difference of two shares (0 to 1) in percentage points."""
    return f"{100 * difference:+.1f} pp"


def format_p(p: float) -> str:
    """Return a probability as a table shows it."""
    return f"{p:.3f}" if p >= 0.001 else "<0.001"


def state_p(p: float) -> str:
    """Return p as the rest of a sentence."""
    text = format_p(p)
    return f"< {text[1:]}" if text.startswith("<") else f"= {text}"


def format_value(value: float | None, unit: str) -> str:
    """Return a quantity of a table in its unit; a dash for None."""
    if value is None:
        return "-"
    if unit == "ns":
        return format_time(value)
    if unit == "bytes":
        return format_bytes(value)
    return format_percent(value, 1) if unit == "ratio" else format_number(value)


def format_value_difference(difference: float, unit: str) -> str:
    """Return the difference of two quantities of a table, with its sign; of shares and percentages in points."""
    if unit == "ratio":
        return format_points(difference)
    sign = "+" if difference > 0 else "-" if difference < 0 else ""
    return f"{sign}{format_value(abs(difference), unit)}" + (" pp" if unit == "%" else "")


def format_count(count: float | None) -> str:
    """Return a count, with one decimal if it is not an integer; a dash for None."""
    return "-" if count is None else f"{count:,.0f}" if abs(count - round(count)) < 0.05 else f"{count:,.1f}"


def join_values(a: str, b: str) -> str:
    """Return the texts of one quantity of both runs in one cell, without repeating a text or a unit."""
    if a == b:
        return a
    (before, _, unit), (_, _, other) = a.partition(" "), b.partition(" ")
    return f"{before if unit == other else a} -> {b}"
