"""Judges what limits a job: by what changes would save where a replay knows it, else by what is lost.

bottlenecks.py lists the classes. Those with a rule of their own are asked first, in their order; then the largest gain
or loss decides between the others. Bounds are changes that nobody can make as such (an ideal host, an ideal network, no
waits, free copies): they say which class a change must address.
"""

from __future__ import annotations

from nsys2prv_ng.replay.numbers import Scenario
from nsys2prv_ng.summary.answer import busy_bottlenecks as busy
from nsys2prv_ng.summary.answer import idle_bottlenecks as idle
from nsys2prv_ng.summary.answer.bottleneck import Bottleneck
from nsys2prv_ng.summary.answer.bottlenecks import BOTTLENECKS
from nsys2prv_ng.summary.answer.case import HALF, LEAST, NETWORK_BOUND, WAIT_BOUND, Case, is_worth
from nsys2prv_ng.summary.answer.rules import copies_communicate, is_paced_by_host

_CLASSES = [each for each in BOTTLENECKS if each.refines is None]
_BY_LOSS = [each for each in _CLASSES if each.applies is None and each.loss and each != busy.UNCLASSIFIED]
_BY_BOUND = {each.bound: each for each in _BY_LOSS if each.bound is not None}
_MOST_UNCLASSIFIED = 0.25
"""Least share of unclassified communication in GPU time that leaves a class open (docs/reference/bottlenecks.md).

A choice: too small, and captures in which a rank is missing are never judged."""
_CLOSE = 0.8
"""Two savings are close if the smaller one is at least this part of the larger: what they save overlaps.

A choice: too small, and times decide between waits and transfer though a replay knows which one saves more."""


def classify(case: Case) -> Bottleneck | None:
    """Return the class of a job; None if nothing can be judged, as without GPUs and messages."""
    if case.losses is None or not case.gpu_ns:
        return _classify_hosts(case)
    found = next((each for each in _CLASSES if each.applies is not None and each.applies(case)), None)
    return choose_variant(case, found or _find_largest(case))


def find_close(case: Case, bottleneck: Bottleneck) -> Bottleneck | None:
    """Return the class that a job is in as well, since what both save differs by less than the steps vary; or None."""
    whole = bottleneck
    while whole.refines is not None:
        whole = whole.refines
    if whole == busy.COMPUTE:
        return choose_variant(case, idle.HOST) if is_paced_by_host(case) else None
    best = case.bounds.get(whole.bound) if whole.bound is not None else None
    others = [
        each for each in case.bounds.values() if best and each.saving_ns >= max(best.saving_ns - case.noise_ns, 0)
    ]
    other = next((_BY_BOUND[each.changes[0]] for each in others if each is not best), None)
    return None if other is None else choose_variant(case, other)


def choose_variant(case: Case, bottleneck: Bottleneck) -> Bottleneck:
    """Return the variant of a class that the facts call for, so that its hint does not propose what is already done."""
    for each in BOTTLENECKS:
        if each.refines is bottleneck and each.applies is not None and each.applies(case):
            return choose_variant(case, each)
    return bottleneck


def _find_largest(case: Case) -> Bottleneck:
    """Return the class with the largest gain, or else with the largest loss."""
    losses = case.losses
    assert losses is not None
    lost = {each: each.measure(losses) for each in _BY_LOSS}
    largest = max(lost, key=lambda each: lost[each])
    if losses.not_split_ns >= max(_MOST_UNCLASSIFIED * case.gpu_ns, lost[largest]):
        return busy.UNCLASSIFIED
    best = max(case.bounds.values(), key=lambda bound: bound.saving_ns, default=None)
    unexplained = lost[largest] if largest == idle.UNEXPLAINED else 0  # no known change shortens these gaps
    if best is not None and best.share >= max(LEAST, unexplained / case.gpu_ns):
        return _find_by_bound(case, best)
    loses = lost[largest] >= LEAST * case.gpu_ns
    numbers = case.summary.what_if
    if loses and (numbers is None or numbers.noise_ns >= LEAST * numbers.step_ns):
        return largest  # no replay, or steps vary so much that it cannot measure a saving of 5 %
    if losses.compute_ns >= HALF * case.gpu_ns:
        return busy.COMPUTE
    gains = any(change.share >= LEAST for change in case.changes)
    return largest if loses and (gains or largest.bound is None) else idle.NOTHING


def _find_by_bound(case: Case, best: Scenario) -> Bottleneck:
    """Return the class of the bound that saves most; of waits and transfer, if they save about as much, the longer."""
    rank = case.rank_change
    if rank is not None and is_worth(rank) and rank.saving_ns >= HALF * best.saving_ns:
        return busy.STRAGGLER
    found = _BY_BOUND[best.changes[0]]
    if found == busy.COPIES and copies_communicate(case):
        return busy.TRANSFER
    if found not in (busy.IMBALANCE, busy.TRANSFER):
        return found
    other = case.bounds.get(NETWORK_BOUND if found == busy.IMBALANCE else WAIT_BOUND)
    if other is not None and other.saving_ns >= _CLOSE * best.saving_ns:
        # Over all ranks: how long NCCL kernels and MPI calls waited, and how long they transferred data.
        wait = sum(rank.wait_ns for rank in case.ranks) + sum(mpi.wait_ns for mpi in case.mpi)
        transfer = sum(rank.transfer_ns for rank in case.ranks) + sum(mpi.transfer_ns for mpi in case.mpi)
        return busy.IMBALANCE if wait > transfer else busy.TRANSFER
    return found


def _classify_hosts(case: Case) -> Bottleneck | None:
    """Return what limits main threads, if there are no GPUs."""
    wait, transfer = case.measure_mpi("wait_ns"), case.measure_mpi("transfer_ns")
    if wait is None or transfer is None or max(wait, transfer) < LEAST:
        return None
    return choose_variant(case, busy.IMBALANCE) if wait >= transfer else busy.TRANSFER_MPI
