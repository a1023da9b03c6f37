"""Finds a rank that others wait for because its GPUs compute longer: it has more work, or slower kernels."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from nsys2prv_ng.summary.numbers.wait_reasons import ON_HOST
from nsys2prv_ng.summary.numbers.waits import RankWaits
from nsys2prv_ng.summary.verdicts.case import HALF, Case
from nsys2prv_ng.text.formatting import format_time

_LEAST_MORE = 0.1
"""Least excess of a rank's compute over the median of the others that is a reason for waits."""


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


def describe_more_compute(case: Case, found: MoreCompute) -> str:
    """Return the excess as a clause: its GPU computes 36.7 ms a step, the others 24.3 ms."""
    steps = case.counted_steps
    parts, often = (steps, " a step") if steps else (1, "")
    return (
        f"its GPU computes {format_time(round(found.own_ns / parts))}{often}, "
        f"{found.others} {format_time(round(found.others_ns / parts))}"
    )
