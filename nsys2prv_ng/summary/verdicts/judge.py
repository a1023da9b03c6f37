"""Judges what limits a job: by what changes would save where a replay knows it, else by what is lost.

The classes and their rules are in bottlenecks.py. Bounds are changes that nobody can make as such (an ideal host, an
ideal network, no waits, free copies): they say which class a change must address.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from nsys2prv_ng.replay.numbers import Scenario
from nsys2prv_ng.sources.cuda.kernel_classes import WHOLE_GRAPH
from nsys2prv_ng.summary.numbers.efficiency import Losses
from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.numbers.wait_reasons import NOT_SELECTED
from nsys2prv_ng.summary.numbers.waits import WaitNumbers
from nsys2prv_ng.summary.tables.efficiency import NamedWindow, choose_window
from nsys2prv_ng.summary.verdicts import bottlenecks
from nsys2prv_ng.summary.verdicts.bottlenecks import Bottleneck

COMPUTES = 0.8
"""Least share of compute in GPU time at which a job is compute-bound."""
LEAST = 0.05
"""Least share of a step, or of GPU time, that is worth a change."""
_HALF = 0.5
_MOST_UNCLASSIFIED = 0.25
_SLOWEST_SHARE, _SLOWEST_FACTOR, _FEWEST_STEPS = 1 / 3, 5, 4
"""A step is start-up if it takes this share of all steps and this many times the median, of at least so many steps."""
_SHORT_GAP_NS = 20_000
"""Gaps shorter than this on average are those between launches: a launch takes 5 to 10 us in an eager framework."""
_GEMM_FP32 = "GEMM FP32"
_ALLOCATES = ("cudaMalloc", "cudaFree", "cudaHost", "cuMem")
_SYNCHRONISES = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cuStreamSynchronize")
_OTHERS = {
    "copies": bottlenecks.COPIES,
    "queued": bottlenecks.QUEUED,
    "unknown": bottlenecks.UNEXPLAINED,
}
"""Classes of losses that have no variants."""
HOST_BOUND, NETWORK_BOUND, WAIT_BOUND, COPY_BOUND = "host = ideal", "network = ideal", "waits = 0", "copies = 0"
_RANK = "rank "


@dataclass(frozen=True)
class Case:
    """A summary and what a judge looks at."""

    summary: JobSummary

    @cached_property
    def window(self) -> NamedWindow | None:
        """The time that is judged; None if it has no length, or no efficiencies are known."""
        if self.summary.efficiency is None:
            return None
        window = choose_window(self.summary.efficiency, self.summary.steps)
        return window if window.numbers.window_ns else None

    @cached_property
    def losses(self) -> Losses | None:
        """Where GPU time goes; None without GPUs."""
        return None if self.window is None else self.window.numbers.losses

    @property
    def gpu_ns(self) -> int:
        """The time of all GPUs in the window; 0 without GPUs."""
        if self.window is None or self.losses is None:
            return 0
        return self.losses.devices * self.window.numbers.window_ns

    @cached_property
    def bounds(self) -> dict[str, Scenario]:
        """Bounds that a replay predicts, by their change; without those that are below the variation of the steps."""
        what_if = self.summary.what_if
        known = [] if what_if is None else what_if.scenarios
        names = (HOST_BOUND, NETWORK_BOUND, WAIT_BOUND, COPY_BOUND)
        return {each.change: each for each in known if each.change in names and is_worth(each)}

    @cached_property
    def changes(self) -> list[Scenario]:
        """Changes that somebody can make and that save something measurable, the best first."""
        what_if = self.summary.what_if
        known = [] if what_if is None else [each for each in what_if.scenarios if is_worth(each)]
        named = [each for each in known if each.change.startswith(("range ", "call ", "class ", "kernel "))]
        return sorted(named, key=lambda each: -each.saving_ns)

    @cached_property
    def rank_change(self) -> Scenario | None:
        """What the slowest rank as fast as the median would save, whether that is measurable or not."""
        what_if = self.summary.what_if
        known = [] if what_if is None else what_if.scenarios
        return next((each for each in known if each.change.startswith(_RANK)), None)

    @cached_property
    def host_gaps(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Idle time (ns) and gaps of GPUs while the host was late, by range and call, the longest time first."""
        sums: dict[tuple[str, str], tuple[int, int]] = {}
        for gpu in self.summary.gpus:
            for cause in gpu.idle_causes or []:
                if cause.cause == "host":
                    ns, gaps = sums.get((cause.range, cause.call), (0, 0))
                    sums[cause.range, cause.call] = ns + cause.ns, gaps + cause.gaps
        return dict(sorted(sums.items(), key=lambda item: -item[1][0]))


def is_worth(scenario: Scenario) -> bool:
    """Return whether a change saves something measurable."""
    return scenario.connected and scenario.measurable and scenario.saving_ns > 0


def classify(case: Case) -> Bottleneck | None:
    """Return the class of a job; None if nothing can be judged, as without GPUs and messages."""
    losses = case.losses
    if losses is None or not case.gpu_ns:
        return _classify_hosts(case)
    if _is_start_up(case):
        return bottlenecks.START_UP
    if losses.compute_ns >= COMPUTES * case.gpu_ns:
        return _classify_compute(losses)
    if losses.whole_graph_ns >= _HALF * case.gpu_ns:
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
        return bottlenecks.UNCLASSIFIED
    if case.summary.what_if is not None:
        best = max(case.bounds.values(), key=lambda bound: bound.saving_ns, default=None)
        if best is not None and best.share >= LEAST:
            return _classify_bound(case, best)
    elif lost[largest] >= LEAST * case.gpu_ns and lost[largest] > 0:
        kinds = {"wait": _classify_waits, "host": _classify_host}
        if largest in kinds:
            return kinds[largest](case)
        return _OTHERS.get(largest) or _classify_transfer(case.summary)
    if losses.compute_ns >= _HALF * case.gpu_ns:
        return _classify_compute(losses)
    if largest in ("unknown", "queued") and lost[largest] >= LEAST * case.gpu_ns:
        return _OTHERS[largest]
    return bottlenecks.NOTHING


def _is_start_up(case: Case) -> bool:
    """Return whether one step takes so much of the time of all that it is no step as the others are."""
    steps, window = case.summary.steps, case.window
    if steps is None or window is None or steps.count < _FEWEST_STEPS:
        return False
    whole = steps.window_ns[1] - steps.window_ns[0]
    return steps.max_ns >= max(_SLOWEST_SHARE * whole, _SLOWEST_FACTOR * steps.median_ns)


def _classify_compute(losses: Losses) -> Bottleneck:
    first = next((name for name in losses.compute_by_class if name != NOT_SELECTED), "")
    variants = {_GEMM_FP32: bottlenecks.COMPUTE_FP32, WHOLE_GRAPH: bottlenecks.COMPUTE_OPAQUE}
    return variants.get(first, bottlenecks.COMPUTE)


def _classify_bound(case: Case, best: Scenario) -> Bottleneck:
    """Return the class of the bound that saves most."""
    rank = case.rank_change
    if rank is not None and is_worth(rank) and rank.saving_ns >= _HALF * best.saving_ns:
        return bottlenecks.STRAGGLER
    if best.change == HOST_BOUND:
        return _classify_host(case)
    if best.change == WAIT_BOUND:
        return _classify_waits(case)
    return _classify_transfer(case.summary) if best.change == NETWORK_BOUND else bottlenecks.COPIES


def _classify_transfer(summary: JobSummary) -> Bottleneck:
    has_nccl = any(nccl.kernel_ns for nccl in summary.nccl)
    return bottlenecks.TRANSFER if has_nccl or not summary.mpi else bottlenecks.TRANSFER_MPI


def _classify_waits(case: Case) -> Bottleneck:
    waits = case.summary.waits
    if waits is None:
        return bottlenecks.IMBALANCE
    caused = sum(rank.all_caused_ns for rank in waits.ranks)
    if sum(rank.caused_in_messages_ns for rank in waits.ranks) > _HALF * caused:
        return bottlenecks.PIPELINE
    most = max((rank.all_caused_ns for rank in waits.ranks), default=0)
    return bottlenecks.STRAGGLER if most > _HALF * caused else bottlenecks.IMBALANCE


def _classify_host(case: Case) -> Bottleneck:
    """Return which kind of host-bound a job is."""
    gaps = case.host_gaps
    whole = sum(ns for ns, _ in gaps.values())
    for starts, bottleneck in (
        (_ALLOCATES, bottlenecks.HOST_ALLOCATES),
        (_SYNCHRONISES, bottlenecks.HOST_SYNCHRONISES),
    ):
        if sum(ns for (_, call), (ns, _) in gaps.items() if call.startswith(starts)) > _HALF * whole:
            return bottleneck
    if not whole:
        return bottlenecks.HOST
    bound = case.bounds.get(HOST_BOUND)
    whole_gain = 0 if bound is None else bound.saving_ns
    has_main = any(each.change.endswith("= 0") and each.saving_ns > _HALF * whole_gain for each in case.changes)
    mean = whole / max(sum(count for _, count in gaps.values()), 1)
    return bottlenecks.LAUNCH if mean < _SHORT_GAP_NS and not has_main else bottlenecks.HOST


def _classify_hosts(case: Case) -> Bottleneck | None:
    """Return what limits main threads, if there are no GPUs."""
    waits: WaitNumbers | None = case.summary.waits
    if case.window is None or waits is None:
        return None
    calls = [rank.mpi for rank in waits.ranks if rank.mpi is not None]
    whole = case.window.numbers.window_ns * max(len(waits.ranks), 1)
    wait, transfer = sum(mpi.wait_ns for mpi in calls), sum(mpi.transfer_ns + mpi.unsplit_ns for mpi in calls)
    if max(wait, transfer) < LEAST * whole or not calls:
        return None
    return _classify_waits(case) if wait >= transfer else bottlenecks.TRANSFER_MPI
