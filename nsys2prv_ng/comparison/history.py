"""Takes the baseline of a comparison from a folder of saved summaries, and finds when their program changed.

Of the folder count the captures of the same program, size and machine. Their steps are a series, in the order of their
captures. It changes where the means before and after differ by more than chance: of all ways to divide it into two, the
one with the largest t (Worsley 1979, doi:10.1080/01621459.1979.10482519), then within both parts. A drift is found as
one or several such changes. The baseline is what follows the last change, at most RECENT captures.

A new capture is also compared with what the program was RECENT captures ago, if it changed since: many small changes,
each within noise, add up. After RECENT further captures, a slower program is the baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt
from pathlib import Path
from statistics import fmean

from nsys2prv_ng.comparison.comparability import describe_capture
from nsys2prv_ng.comparison.evidence import (
    PRIOR_CAPTURES,
    Shares,
    compare_launches,
    find_deviation,
    find_quantile,
    find_shares,
)
from nsys2prv_ng.comparison.model import HistoryCapture, HistoryNumbers, Side
from nsys2prv_ng.comparison.sides import make_side, measure_capture
from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.summary.job import JobSummary

_LABEL = "history"
"""Label of the baseline."""
RECENT = 10
"""Captures that a baseline has at most, and after which a slower program is the usual one. A choice: ten commits."""
_MOST = 100
"""Captures of a series. A choice: dividing it takes 40 ms, and reading them two seconds."""
_FEWEST = 3
"""Fewest captures before and after a change. A choice: a single capture may be an accident."""
FALSE_ALARM = 0.01
"""Most probability with which a series without changes is divided (Bonferroni; by simulation 0.3 %, tests/comparison/
test_history.py)."""


class NoHistoryError(UsageError):
    """No earlier capture is of the same program, size and machine."""


def load_history(folder: Path, new: Sequence[JobSummary]) -> tuple[list[tuple[str, JobSummary]], int]:
    """Return the earlier captures like the new ones, with their names, the oldest first, and how many are unlike.

    Raises NoHistoryError if there are none, with what differs. Files that are no summary count as unlike.
    """
    known = {capture for summary in new if summary.facts is not None for capture in summary.facts.captures}
    loaded, unread = [], 0
    for path in sorted(folder.glob("*.json")):
        try:
            loaded.append((path.stem, JobSummary.load(path)))
        except TranslationError:
            unread += 1
    others = [(name, each) for name, each in loaded if each.facts is None or known.isdisjoint(each.facts.captures)]
    wanted = describe_capture(new[0])
    alike = [(name, each) for name, each in others if describe_capture(each) == wanted]
    if not alike:
        unlike = {key for _, each in others for key, value in describe_capture(each).items() if value != wanted[key]}
        why = f"its captures differ in {', '.join(sorted(unlike))}" if unlike else "it has no earlier capture"
        raise NoHistoryError(f"{why}; save one of this program there first", parameter="against")
    alike.sort(key=lambda each: (each[1].begin_utc_ns, each[0]))
    return alike[-_MOST:], unread + len(others) - len(alike)


def make_history(
    found: Sequence[tuple[str, JobSummary]], unlike: int, new: Side
) -> tuple[Side, HistoryNumbers, Side | None]:
    """Return the baseline, the series, and what the program was RECENT captures ago if it has changed since."""
    names, summaries = [name for name, _ in found], [summary for _, summary in found]
    every = [*summaries, *new.every]
    begins = divide_series(every)
    ends = [*begins[1:], len(every)]
    last = min(begins[-1], len(summaries) - 1)  # a change may be among the new captures
    first = max(last, len(summaries) - RECENT)
    numbers = HistoryNumbers(
        captures=[
            HistoryCapture(name, each.begin_utc_ns, measure_capture(each))
            for name, each in zip([*names, *[new.label] * len(new.every)], every, strict=True)
        ],
        new=len(new.every),
        baseline=first,
        changes=begins[1:],
        unlike=unlike,
        drift=None,
    )
    before = max(0, len(summaries) - RECENT)
    part = next(n for n, end in enumerate(ends) if before < end)
    earlier = summaries[max(begins[part], ends[part] - RECENT) : ends[part]]
    has_changed = part < len(begins) - 1 and bool(earlier)
    baseline = make_side(_LABEL, summaries[first:])
    return baseline, numbers, make_side(_LABEL, earlier) if has_changed else None


def divide_series(captures: Sequence[JobSummary]) -> list[int]:
    """Return where parts without a change begin, 0 first."""
    shares = find_shares(captures)
    times = [
        log(max(1, measure_capture(each))) - shares.host * log(compare_launches(captures[0], each)) for each in captures
    ]
    return divide(times, shares)


def divide(times: Sequence[float], shares: Shares) -> list[int]:
    """Return where parts of a series of logarithms begin."""
    begins, parts = [0], [(0, len(times))]
    while parts:
        begin, end = parts.pop()
        where = _find_division(times[begin:end], shares)
        if where is not None:
            begins.append(begin + where)
            parts += [(begin, begin + where), (begin + where, end)]
    return sorted(begins)


def _find_division(times: Sequence[float], shares: Shares) -> int | None:
    """Return where the means before and after differ most; None if that may be chance."""
    count = len(times)
    places = range(_FEWEST, count - _FEWEST + 1)
    if not places:
        return None

    def weigh(place: int) -> float:
        """Return the t of a division."""
        sides = times[:place], times[place:]
        deviation = find_deviation(sides, shares)
        return abs(fmean(sides[1]) - fmean(sides[0])) / (deviation * sqrt(1 / place + 1 / (count - place)))

    best = max(places, key=weigh)
    limit = find_quantile(1 - FALSE_ALARM / 2 / len(places), PRIOR_CAPTURES + count - 2)
    return best if weigh(best) > limit else None
