"""Tells how sure a difference between two runs is, beyond what captures of one program vary by.

Three kinds of noise are different things. *Steps* of one capture share its process, clocks and neighbours: a rank test
of them says whether two captures differ, not whether two programs do. *Captures* of one program differ: so they are the
units here. *Machines* differ even more: runs on other models are not the same run (comparability.py).

How much captures vary is known before the first, from what limits the step, and each further capture of a side adds
what it shows. This is a moderated t-test (Smyth 2004, doi:10.2202/1544-6115.1027): the variance before counts as
`PRIOR_CAPTURES` captures do. Times are logarithms, so that a share of a step is the same for all.

Hosts are faster or slower for all of a capture. How much, the mean time of a launch tells; which share of the step
follows, nobody knows: none of it, or all that is host-bound. So a change has two estimates, and counts only as far as
both agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, expm1, log, log1p, pi, sqrt
from statistics import NormalDist, fmean, variance
from typing import NamedTuple

from nsys2prv_ng.comparison.model import Evidence, Side, Verdict
from nsys2prv_ng.comparison.sides import list_step_times
from nsys2prv_ng.summary.difference.statistics import find_average
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.text.formatting import format_change, format_percent

GPU, HOST, WAITS, TRANSFERS = 0.01, 0.1, 0.35, 0.05
"""What captures of one program vary by on one machine (standard deviation, as a share of the step): GPU in any case,
HOST and WAITS times the square root of the shares of the step that are host-bound and that ranks wait for each other,
TRANSFERS times the share in which NCCL moves data.

Measured by benchmarks/gate on H200s (156 captures in tests/data/gate): 0.4 to 0.8 % of GPU-bound steps; 5 to 9 % where
80 % is host-bound and 2 to 5 % where half is, beside the speed of launches; 15 % where two ranks wait 21 % of the step
for each other; 4 % of the time of transfers. Over several nodes it was not measured."""
PRIOR_CAPTURES = 10
"""As many captures the variance before counts. A choice: the variances of five host-bound states of 7 to 10 captures
(tests/data/gate), divided by their host-bound shares, differ by a factor of 2, as by chance."""
LEVEL = 0.05
"""Probability that a change is below its lower limit, and that it is above its upper limit."""
_LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch")


def find_evidence(a: Side, b: Side, verdict: Verdict, sizes: tuple[int, int] = (1, 1)) -> Evidence | None:
    """Return the limits of the change from a to b; None if the times are not those of steps, or there are none.

    `sizes`: how many steps of each side are compared as one.
    """
    if verdict.measure != "step" or min(verdict.a_ns, verdict.b_ns) <= 0:
        return None
    times = [[list_step_times(each, size) for each in side.every] for side, size in zip((a, b), sizes, strict=True)]
    return weigh(
        [[log(max(1, find_average(steps, verdict.average))) for steps in side] for side in times],
        [[log(compare_launches(a.every[0], each)) for each in side.every] for side in (a, b)],
        find_shares([*a.every, *b.every]),
        of_steps=_vary_steps([steps for side in times for steps in side], verdict),
    )


def weigh(
    times: Sequence[Sequence[float]], speeds: Sequence[Sequence[float]], shares: Shares, *, of_steps: float = 0.0
) -> Evidence:
    """Return the limits of a change. All times are logarithms, of two sides and their captures.

    `speeds`: of launches. `of_steps`: the variance of the average of the steps of a capture.
    """
    host = shares.host
    level = [[ns - host * speed for ns, speed in zip(*side, strict=True)] for side in zip(times, speeds, strict=True)]
    slower = fmean(speeds[1]) - fmean(speeds[0])
    counts = [len(side) for side in times]
    deviation = find_deviation(level, shares, of_steps)
    noise = deviation * sqrt(sum(1 / count for count in counts))
    margin = noise * find_quantile(1 - LEVEL, PRIOR_CAPTURES + sum(counts) - 2)
    change = fmean(times[1]) - fmean(times[0])
    least, most = sorted((change, change - host * slower))
    return Evidence(
        captures=counts,
        host_share=host,
        host_speed=exp(slower),
        deviation=deviation,
        change=expm1(change),
        least=expm1(least),
        most=expm1(most),
        low=expm1(least - margin),
        high=expm1(most + margin),
    )


class Shares(NamedTuple):
    """Shares of the time of GPUs: host-bound, waiting for other ranks, and moving data."""

    host: float
    waits: float
    transfers: float

    @property
    def variance(self) -> float:
        """What captures of a program with these shares vary by."""
        return GPU**2 + HOST**2 * self.host + WAITS**2 * self.waits + (TRANSFERS * self.transfers) ** 2


def find_shares(captures: Iterable[JobSummary]) -> Shares:
    """Return the mean shares of captures. Jobs without GPUs are host-bound."""
    return Shares(*map(fmean, zip(*map(_find_shares, captures), strict=True)))


def _find_shares(summary: JobSummary) -> tuple[float, float, float]:
    efficiency = summary.efficiency
    if efficiency is None or efficiency.losses is None or not efficiency.losses.devices * efficiency.length_ns:
        return 1.0, 0.0, 0.0
    losses, total = efficiency.losses, efficiency.losses.devices * efficiency.length_ns
    host, waits, transfers = losses.host_ns, losses.waiting_ns, losses.moving_ns + losses.not_split_ns
    return max(0, host) / total, max(0, waits) / total, max(0, transfers) / total  # damaged ones are negative


def compare_launches(a: JobSummary, b: JobSummary) -> float:
    """Return how many times as long b's launches take as a's, for the mix of calls of a; 1 without common ones."""
    known = {call.name: call for call in b.calls if call.name.startswith(_LAUNCHES) and call.total_ns > 0}
    common = [(call, known[call.name]) for call in a.calls if call.name in known and call.total_ns > 0]
    before = sum(one.total_ns for one, _ in common)
    return sum(other.total_ns / other.count * one.count for one, other in common) / before if before else 1.0


def find_deviation(sides: Sequence[Sequence[float]], shares: Shares, of_steps: float = 0.0) -> float:
    """Return the standard deviation of one capture. `sides`: logarithms of the times of the captures of each side."""
    squares = sum(variance(side) * (len(side) - 1) for side in sides if len(side) > 1)
    known = sum(len(side) - 1 for side in sides)
    return sqrt((PRIOR_CAPTURES * (shares.variance + of_steps) + squares) / (PRIOR_CAPTURES + known))


def _vary_steps(captures: Sequence[Sequence[int]], verdict: Verdict) -> float:
    """Return the variance of the average step of a capture, the mean over captures, as a share of the step."""
    known = [(steps, fmean(steps)) for steps in captures if len(steps) > 1]
    found = [variance(steps, mean) / mean**2 / len(steps) for steps, mean in known if mean > 0]
    return fmean(found or [0.0]) * (pi / 2 if verdict.average == "median" else 1)


def find_quantile(share: float, freedom: int) -> float:
    """Return the quantile of Student's t. `share`: 0.5 to 1; `freedom`: at least 8.

    The expansion of Cornish and Fisher (Abramowitz and Stegun 26.7.5); off by less than 0.5 % up to 0.99999.
    """
    z, n = NormalDist().inv_cdf(share), freedom
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / n**power for power, term in enumerate(terms, 1))


def describe_spread(evidence: Evidence) -> str:
    """Return by how much captures of such a program vary, as a clause."""
    return f"captures of such a program vary by {format_percent(evidence.deviation, 1)}"


def describe_limits(evidence: Evidence) -> str:
    """Return the limits of the change."""
    return f"{format_change(evidence.low)} to {format_change(evidence.high)}"


def count_captures(evidence: Evidence, limit: float) -> int:
    """Return how many captures a side find a slowdown of twice the limit in 9 of 10 cases. `limit`: share of a step."""
    # The change must be found above the limit, and above what chance reaches.
    found, power = (NormalDist().inv_cdf(share) for share in (1 - LEVEL, 0.9))
    room = min((log1p(2 * limit) - log1p(limit)) / power, log1p(2 * limit) / (found + power))
    return max(2, -int(-2 * (evidence.deviation / room) ** 2 // 1)) if room else 0
