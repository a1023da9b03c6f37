"""Judges what limits a job: by what changes would save where a replay knows it, else by what is lost.

The classes and their rules are in bottlenecks.py. Bounds are changes that nobody can make as such (an ideal host, an
ideal network, no waits, free copies): they say which class a change must address.
"""

from __future__ import annotations

from nsys2prv_ng.replay.numbers import Scenario
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.verdicts import bottlenecks
from nsys2prv_ng.summary.verdicts.bottlenecks import Bottleneck
from nsys2prv_ng.summary.verdicts.case import (
    COPY_BOUND,
    HALF,
    HOST_BOUND,
    LEAST,
    NETWORK_BOUND,
    WAIT_BOUND,
    Case,
    is_worth,
    list_inherited,
)
from nsys2prv_ng.summary.verdicts.slow_steps import SlowSteps
from nsys2prv_ng.summary.verdicts.variants import (
    choose_compute,
    choose_copies,
    choose_host,
    choose_pipeline,
    choose_straggler,
    choose_transfer,
    choose_unexplained,
)

_COMPUTES = 0.8
"""Least share of compute in GPU time at which a job is compute-bound."""
_MOST_UNCLASSIFIED = 0.25
_SLOW_SHARE = 0.25
"""Least part of the steps' time that a few slow steps cost to be the bottleneck."""
_SLOWEST_SHARE, _SLOWEST_FACTOR, _EARLY = 1 / 3, 5, 1 / 4
"""A step is start-up if it takes this share of all steps and this many times the median, and is in this first part."""
_WITHOUT_BOUND = ("queued", "unknown")
"""Losses of GPU time that no bound takes away."""
_CLOSE = 0.8
"""Two savings are close if the smaller one is at least this part of the larger: what they save overlaps."""


def classify(case: Case) -> Bottleneck | None:
    """Return the class of a job; None if nothing can be judged, as without GPUs and messages."""
    losses = case.losses
    if losses is None or not case.gpu_ns:
        return _classify_hosts(case)
    slow = case.slow_steps
    if slow is not None and slow.share >= _SLOW_SHARE:
        return bottlenecks.START_UP if _is_start_up(case.summary, slow) else bottlenecks.SLOW_STEPS
    if losses.compute_ns >= _COMPUTES * case.gpu_ns and not _is_paced_by_host(case):
        return choose_compute(losses, case.summary.kernels)
    if losses.whole_graph_ns >= HALF * case.gpu_ns:
        return bottlenecks.OPAQUE
    lost = {
        "wait": losses.waiting_ns,
        "transfer": losses.moving_ns,
        "copies": losses.memory_ns,
        "host": losses.host_ns,
        "queued": losses.queued_ns + losses.graph_ns,
        "unknown": losses.unknown_ns,
    }
    largest = max(lost, key=lambda key: lost[key])
    if losses.not_split_ns >= max(_MOST_UNCLASSIFIED * case.gpu_ns, lost[largest]):
        waits = case.summary.waits
        lacks_payload = waits is not None and waits.reports_without_payload > 0
        return bottlenecks.UNCLASSIFIED_PAYLOAD if lacks_payload else bottlenecks.UNCLASSIFIED
    best = max(case.bounds.values(), key=lambda bound: bound.saving_ns, default=None)
    if best is not None and best.share >= LEAST:
        return _classify_bound(case, best)
    loses = lost[largest] >= LEAST * case.gpu_ns
    if loses and not _could_find_savings(case.summary):
        return _classify_loss(case, largest)
    if losses.compute_ns >= HALF * case.gpu_ns:
        return choose_compute(losses, case.summary.kernels)
    gains = any(change.share >= LEAST for change in case.changes)
    return _classify_loss(case, largest) if loses and (gains or largest in _WITHOUT_BOUND) else bottlenecks.NOTHING


def _is_paced_by_host(case: Case) -> bool:
    """Return whether hosts set the pace of GPUs that compute nearly all the time: faster kernels would save nothing."""
    limit = None if case.summary.what_if is None else case.summary.what_if.limited_by
    bound = case.bounds.get(HOST_BOUND)
    return (
        limit is not None and limit.what == "host" and limit.share > HALF and bound is not None and bound.share >= LEAST
    )


def _could_find_savings(summary: JobSummary) -> bool:
    """Return whether a replay tried changes, and steps vary so little that a saving of 5 % is measurable."""
    numbers = summary.what_if
    return numbers is not None and numbers.noise_ns < LEAST * numbers.step_ns


def _classify_loss(case: Case, largest: str) -> Bottleneck:
    """Return the class of the largest loss of GPU time, if no saving is known."""
    if largest == "wait":
        return _classify_waits(case)
    if largest == "host":
        return choose_host(case)
    if largest == "copies":
        return choose_copies(case)
    if largest == "unknown":
        return choose_unexplained(case)
    return bottlenecks.QUEUED if largest == "queued" else choose_transfer(case.summary)


def _is_start_up(summary: JobSummary, slow: SlowSteps) -> bool:
    """Return whether the only slow step is early and takes so long that it is no step as the others are."""
    assert summary.steps is not None
    step = slow.slow[0]
    is_early = step.number - summary.steps.first < _EARLY * summary.steps.count
    least = max(_SLOWEST_SHARE * slow.whole_ns, _SLOWEST_FACTOR * slow.median_ns)
    return len(slow.slow) == 1 and is_early and step.window_ns >= least


def _classify_bound(case: Case, best: Scenario) -> Bottleneck:
    """Return the class of the bound that saves most."""
    rank = case.rank_change
    if rank is not None and is_worth(rank) and rank.saving_ns >= HALF * best.saving_ns:
        return choose_straggler(case)
    if best.change == HOST_BOUND:
        return choose_host(case)
    if best.change == COPY_BOUND:
        return choose_copies(case)
    other = case.bounds.get(NETWORK_BOUND if best.change == WAIT_BOUND else WAIT_BOUND)
    waits_more = best.change == WAIT_BOUND
    if other is not None and other.saving_ns >= _CLOSE * best.saving_ns:
        wait, transfer = _measure_communication(case)
        waits_more = wait > transfer
    return _classify_waits(case) if waits_more else choose_transfer(case.summary)


def _measure_communication(case: Case) -> tuple[int, int]:
    """Return how long (ns, over all ranks) NCCL kernels and MPI calls waited, and how long they transferred data."""
    ranks = [] if case.summary.waits is None else case.summary.waits.ranks
    wait = sum(rank.wait_ns for rank in ranks) + sum(mpi.wait_ns for mpi in case.mpi)
    return wait, sum(rank.transfer_ns for rank in ranks) + sum(mpi.transfer_ns for mpi in case.mpi)


def _classify_waits(case: Case) -> Bottleneck:
    waits = case.summary.waits
    if waits is None:
        return bottlenecks.IMBALANCE
    caused = sum(rank.all_caused_ns for rank in waits.ranks)
    in_nccl = sum(rank.caused_wait_ns for rank in waits.ranks)
    in_messages = sum(rank.caused_in_messages_ns for rank in waits.ranks)
    if in_nccl > HALF * caused and in_messages > HALF * in_nccl:
        return choose_pipeline(waits)
    most = max((rank.all_caused_ns - inherited for rank, inherited in list_inherited(waits)), default=0)
    return choose_straggler(case) if most > HALF * caused else bottlenecks.IMBALANCE


def _classify_hosts(case: Case) -> Bottleneck | None:
    """Return what limits main threads, if there are no GPUs."""
    if case.window is None or not case.mpi:
        return None
    whole = case.window.numbers.window_ns * len(case.mpi)
    wait, transfer = sum(mpi.wait_ns for mpi in case.mpi), sum(mpi.transfer_ns for mpi in case.mpi)
    if max(wait, transfer) < LEAST * whole:
        return None
    return _classify_waits(case) if wait >= transfer else bottlenecks.TRANSFER_MPI
