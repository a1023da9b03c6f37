"""Decides whether a run got slower by more than a limit, for pipelines of tests: yes, no, or not known.

Both answers are wrong in 5 % of cases at most: *slower* of a program that is not slower, *not slower* of one that is
slower by twice the limit. Everything else is undecided, and says what would decide.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nsys2prv_ng.comparison.comparability import GATE
from nsys2prv_ng.comparison.evidence import count_captures, describe_limits, describe_spread
from nsys2prv_ng.comparison.history import RECENT
from nsys2prv_ng.comparison.model import ComparisonNumbers, Evidence, Pair
from nsys2prv_ng.summary.difference.statistics import FEWEST
from nsys2prv_ng.text.formatting import count_noun, cut_middle, format_change, format_number
from nsys2prv_ng.text.names import quote_name

NOT_SLOWER, SLOWER, UNDECIDED = 0, 3, 4
"""Exit codes."""
_LABEL = 40
"""Most characters of the name of a run."""
_MOST_CAPTURES = 20
"""Most captures a side that a remedy asks for. A choice: more take longer than the users of a pipeline wait."""
_AMBIGUOUS = 0.2
"""From here to 1, a limit without % may be a share or a percentage: 0.5. A choice: nobody accepts a fifth more."""
_OTHER_SPEED = 0.03
"""Least difference in the speed of hosts that explains a doubt: half of what launches of one program vary by (GPU-bound
and host-bound captures in tests/data/gate)."""


class Ruling(NamedTuple):
    """An exit code, and a line on why, and what would decide."""

    code: int
    text: str


def judge_runs(comparison: ComparisonNumbers, limit: float) -> list[Ruling]:
    """Return the ruling on each run, and on what it drifted by over its history if that is slower."""
    several = len(comparison.pairs) > 1
    rulings = [judge(pair, limit) for pair in comparison.pairs]
    names = [f"{quote_name(cut_middle(pair.b.label, _LABEL))}: " if several else "" for pair in comparison.pairs]
    rulings = [Ruling(ruling.code, name + ruling.text) for name, ruling in zip(names, rulings, strict=True)]
    drift = None if comparison.history is None else comparison.history.drift
    if drift is not None and rule(drift, limit) == SLOWER:
        change = f"{format_change(drift.change)}, {describe_limits(drift)} at 90%"
        rulings.append(Ruling(SLOWER, f"slower than {RECENT} captures ago ({change})"))
    unlike = [each for each in comparison.comparability.findings if GATE in each.prevents]
    if unlike and comparison.history is None:
        doubt = f"the runs are not alike in {' and '.join(each.text.partition(':')[0] for each in unlike)}"
        rulings = [
            Ruling(UNDECIDED, f"{ruling.text}, but {doubt}") if ruling.code == SLOWER else ruling for ruling in rulings
        ]
    return rulings


def rule(evidence: Evidence, limit: float) -> int:
    """Return the exit code of a change."""
    if evidence.low > 0 and evidence.least > limit:
        return SLOWER
    return NOT_SLOWER if evidence.high < 2 * limit and evidence.most <= limit else UNDECIDED


def judge(pair: Pair, limit: float) -> Ruling:
    """Return whether b is slower than a by more than `limit`, a share of the step of a."""
    evidence = pair.evidence
    if evidence is None:
        return Ruling(
            UNDECIDED, "no steps of both runs are known to be the same work: choose the range that marks them"
        )
    change = format_change(evidence.change)
    few = min(sum(len(capture.step_ns) for capture in side.captures) for side in (pair.a, pair.b))
    if few < FEWEST:
        remedy = f"capture at least {FEWEST}, or two captures"
        return Ruling(UNDECIDED, f"{change} in {count_noun(few, 'step')}: {remedy}")
    limits = f"{change}, {describe_limits(evidence)} at 90%"
    code = rule(evidence, limit)
    if code == SLOWER and pair.verdict.kind != "slower":
        return Ruling(UNDECIDED, f"{limits}: the steps vary too much; capture more of them, or several captures")
    if code == SLOWER:
        return Ruling(code, f"slower ({limits})")
    if code == NOT_SLOWER:
        return Ruling(code, f"not slower ({limits})")
    return Ruling(code, f"{limits}: {_explain_doubt(evidence, limit)}")


def _explain_doubt(evidence: Evidence, limit: float) -> str:
    """Return why the evidence does not decide, and what would."""
    speed = evidence.host_speed
    slowed = evidence.host_share * abs(speed - 1)
    if slowed >= _OTHER_SPEED and evidence.most > limit >= evidence.least:
        how = f"{format_number(speed)} times as long" if speed > 1 else f"only {format_number(speed)} times as long"
        machine = "slower" if speed > 1 else "faster"
        return f"launches took {how}, so the machine may have been {machine}: capture both again, in turns"
    needed = count_captures(evidence, limit)
    varies = describe_spread(evidence)
    if needed > _MOST_CAPTURES or limit <= 0:
        return f"{varies}: choose a limit of at least {format_limit(_find_limit(evidence))}"
    of_which = "of the later run" if evidence.captures[0] >= needed else "of each"
    return f"{varies}: compare at least {needed} {of_which}"


def _find_limit(evidence: Evidence) -> float:
    """Return the least limit, in percent steps, that _MOST_CAPTURES captures a side can decide."""
    return next((n / 100 for n in range(1, 1000) if count_captures(evidence, n / 100) <= _MOST_CAPTURES), 10.0)


def read_limit(text: str) -> float | None:
    """Return a limit as a share: 5%, 5 and 0.05 are all 5 percent; None for 0.5, which may be either."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*", text)
    if match is None:
        return None
    value = float(match[1])
    if not match[2] and _AMBIGUOUS <= value < 1:
        return None
    return value / 100 if match[2] or value >= 1 or not value else value


def format_limit(limit: float) -> str:
    """Return a limit in percent, with as many digits as it needs."""
    return f"{100 * limit:.4g}%"
