"""Finds what a rank that others wait for does longer than they: its GPUs compute, or its host is in a range."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from nsys2prv_ng.summary.verdicts.case import HALF, Case
from nsys2prv_ng.summary.waits.numbers import Excess, RankWaits
from nsys2prv_ng.summary.waits.words import ON_HOST
from nsys2prv_ng.text.formatting import format_time
from nsys2prv_ng.text.names import quote_name

_LEAST_MORE = 0.1
"""Least excess of a rank's compute over the median of the others that is a reason for waits."""


_LONGER = 1.5
"""Least ratio of a rank's time in a range to that of the others for the range to be a reason for waits."""
_QUARTER = 0.25


class MoreCompute(NamedTuple):
    """Compute time of the GPUs of a rank, and the median of the other ranks (ns, in the time that is judged)."""

    own_ns: int
    others_ns: float
    others: str
    """The other ranks in words."""


def find_more_compute(case: Case, rank: RankWaits) -> MoreCompute | None:
    """Return how much longer the GPUs of a rank compute; None if that does not explain half of the exposed waits.

    It explains none if the host was late for most of them. Where ranks share a GPU, nothing is known of each.
    """
    waits = case.summary.waits
    costs = [] if waits is None else [each for each in waits.costs if each.task == rank.task]
    on_host = sum(each.ns for each in costs if each.reason in ON_HOST)
    if on_host > HALF * rank.all_caused_ns:
        return None
    times: dict[str, int] = {}
    for gpu in case.summary.gpus:
        if len(gpu.tasks) > 1:
            return None
        for task in gpu.tasks:
            times[task] = times.get(task, 0) + gpu.compute_ns
    own = times.pop(rank.task, 0)
    if not times:
        return None
    others = float(median(times.values()))
    known = 0 if waits is None else sum(each.exposed_wait_ns or 0 for each in waits.ranks)
    exposed = known or rank.all_caused_ns
    if own <= (1 + _LEAST_MORE) * others or (own - others) * len(times) < HALF * exposed:
        return None
    return MoreCompute(own, others, "the others" if len(times) > 1 else next(iter(times)))


def find_longer_range(case: Case, rank: RankWaits) -> Excess | None:
    """Return the range in which a rank is much longer than the others, and for a quarter of the waits; None without.

    It is known for the rank that others waited for longest. Where a host was when it was late says less: it may have
    been late for long.
    """
    waits = case.summary.waits
    if waits is None or rank.all_caused_ns < max(each.all_caused_ns for each in waits.ranks):
        return None
    least = _QUARTER * rank.all_caused_ns / max(len(waits.ranks) - 1, 1)
    ranges = [each for each in waits.excess if each.kind == "range" and each.ns > _LONGER * each.others_ns]
    most = max(ranges, key=lambda each: each.ns - each.others_ns, default=None)
    return most if most is not None and most.ns - most.others_ns >= least else None


def describe_longer_range(case: Case, found: Excess) -> str:
    """Return the excess as a clause: it is 12.3 ms a step in `data loading`, the others 220 us."""
    waits = case.summary.waits
    others = "the others" if waits is None or len(waits.ranks) > 2 else "the other"
    own, mean, often = _format_per_step(case, found.ns, found.others_ns)
    return f"it is {own}{often} in {quote_name(found.name)}, {others} {mean}"


def describe_more_compute(case: Case, found: MoreCompute) -> str:
    """Return the excess as a clause: its GPU computes 36.7 ms a step, the others 24.3 ms."""
    own, mean, often = _format_per_step(case, found.own_ns, found.others_ns)
    return f"its GPU computes {own}{often}, {found.others} {mean}"


def _format_per_step(case: Case, own_ns: float, others_ns: float) -> tuple[str, str, str]:
    """Return two times for each step that they cover, and how often in words; the times as they are without steps."""
    steps = case.counted_steps
    own, others = (format_time(round(ns / (steps or 1))) for ns in (own_ns, others_ns))
    return own, others, " a step" if steps else ""
