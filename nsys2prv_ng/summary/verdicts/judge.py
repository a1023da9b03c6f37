"""Judges what limits a job: by what changes would save where a replay knows it, else by what is lost.

The classes and their rules are in bottlenecks.py. Bounds are changes that nobody can make as such (an ideal host, an
ideal network, no waits, free copies): they say which class a change must address.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay.changes import read_changes
from nsys2prv_ng.replay.numbers import Scenario
from nsys2prv_ng.sources.cuda.kernel_classes import WHOLE_GRAPH
from nsys2prv_ng.summary.numbers.efficiency import Losses
from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.numbers.wait_reasons import NOT_SELECTED
from nsys2prv_ng.summary.numbers.waits import MpiWaits, RankWaits, WaitNumbers
from nsys2prv_ng.summary.tables.efficiency import NamedWindow, choose_window
from nsys2prv_ng.summary.verdicts import bottlenecks
from nsys2prv_ng.summary.verdicts.bottlenecks import Bottleneck

_COMPUTES = 0.8
"""Least share of compute in GPU time at which a job is compute-bound."""
LEAST = 0.05
"""Least share of a step, or of GPU time, that is worth a change."""
_HALF = 0.5
_MOST_UNCLASSIFIED = 0.25
_SLOWEST_SHARE, _SLOWEST_FACTOR, _FEWEST_STEPS, _EARLY = 1 / 3, 5, 4, 1 / 4
"""A step is start-up if it takes this share of all steps and this many times the median, of at least so many steps,
and is in this first part of them."""
_SHORT_GAP_NS = 20_000
"""Gaps shorter than this on average are those between launches: a launch takes 5 to 10 us in an eager framework."""
_GEMM_FP32, _PEER = "GEMM FP32", "peer to peer"
_ALLOCATES = (
    *("cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaHostRegister", "cudaHostUnregister"),
    *("cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemHostRegister", "cuMemCreate", "cuMemMap", "cuMemUnmap"),
)
_SYNCHRONISES = (
    *("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaThreadSynchronize"),
    *("cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2"),
)
"""Beginnings of the names of calls."""
_BLOCKING_COPIES = ("cudaMemcpy", "cudaMemcpy2D", "cudaMemcpy3D")
"""Names of calls that return when the copy has ended."""
_CLOSE = 0.8
"""Two savings are close if the smaller one is at least this part of the larger: what they save overlaps."""
_OTHERS = {
    "queued": bottlenecks.QUEUED,
    "unknown": bottlenecks.UNEXPLAINED,
}
"""Classes of losses that have no variants."""
HOST_BOUND, NETWORK_BOUND, WAIT_BOUND, COPY_BOUND = "host = ideal", "network = ideal", "waits = 0", "copies = 0"


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

    @property
    def scenarios(self) -> list[Scenario]:
        """All changes that a replay tried."""
        return [] if self.summary.what_if is None else self.summary.what_if.scenarios

    @property
    def mpi(self) -> list[MpiWaits]:
        """The MPI calls over ranks of each task that has any."""
        waits = self.summary.waits
        return [] if waits is None else [rank.mpi for rank in waits.ranks if rank.mpi is not None]

    @cached_property
    def bounds(self) -> dict[str, Scenario]:
        """Bounds that a replay predicts, by their change; without those that are below the variation of the steps."""
        names = (HOST_BOUND, NETWORK_BOUND, WAIT_BOUND, COPY_BOUND)
        return {each.change: each for each in self.scenarios if each.change in names and is_worth(each)}

    @cached_property
    def changes(self) -> list[Scenario]:
        """Changes that somebody can make and that save something measurable, the best first."""
        named = [each for each in self.scenarios if each.change.startswith(("range ", "call ", "class ", "kernel "))]
        return sorted(filter(is_worth, named), key=lambda each: -each.saving_ns)

    @cached_property
    def rank_change(self) -> Scenario | None:
        """What the slowest rank as fast as the median would save, whether that is measurable or not."""
        return next((each for each in self.scenarios if find_rank(each) is not None), None)

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


def find_rank(scenario: Scenario) -> int | None:
    """Return the rank that a change makes as fast as the median; None for other changes."""
    changes = read_changes(scenario.change)
    ranks = [change.ranks for change in changes if change.target == what.RANK]
    return ranks[0][0] if len(changes) == 1 and ranks and ranks[0] is not None and len(ranks[0]) == 1 else None


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
    if losses.compute_ns >= _COMPUTES * case.gpu_ns:
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
        waits = case.summary.waits
        lacks_payload = waits is not None and waits.reports_without_payload > 0
        return bottlenecks.UNCLASSIFIED_PAYLOAD if lacks_payload else bottlenecks.UNCLASSIFIED
    best = max(case.bounds.values(), key=lambda bound: bound.saving_ns, default=None)
    if best is not None and best.share >= LEAST:
        return _classify_bound(case, best)
    loses = lost[largest] >= LEAST * case.gpu_ns
    if loses and not _could_find_savings(case.summary):
        return _classify_loss(case, largest)
    if losses.compute_ns >= _HALF * case.gpu_ns:
        return _classify_compute(losses)
    return _OTHERS.get(largest, bottlenecks.NOTHING) if loses else bottlenecks.NOTHING


def _could_find_savings(summary: JobSummary) -> bool:
    """Return whether a replay tried changes, and steps vary so little that a saving of 5 % is measurable."""
    numbers = summary.what_if
    return numbers is not None and numbers.noise_ns < LEAST * numbers.step_ns


def _classify_loss(case: Case, largest: str) -> Bottleneck:
    """Return the class of the largest loss of GPU time, if no saving is known."""
    if largest == "wait":
        return _classify_waits(case)
    if largest == "host":
        return _classify_host(case)
    if largest == "copies":
        return _classify_copies(case.summary)
    return _OTHERS.get(largest) or _classify_transfer(case.summary)


def _is_start_up(case: Case) -> bool:
    """Return whether one step takes so much of the time of all that it is no step as the others are."""
    steps, window = case.summary.steps, case.window
    if steps is None or window is None or steps.count < _FEWEST_STEPS:
        return False
    whole = steps.window_ns[1] - steps.window_ns[0]
    is_early = steps.slowest - steps.first < _EARLY * steps.count
    return is_early and steps.max_ns >= max(_SLOWEST_SHARE * whole, _SLOWEST_FACTOR * steps.median_ns)


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
    if best.change == COPY_BOUND:
        return _classify_copies(case.summary)
    other = case.bounds.get(NETWORK_BOUND if best.change == WAIT_BOUND else WAIT_BOUND)
    waits_more = best.change == WAIT_BOUND
    if other is not None and other.saving_ns >= _CLOSE * best.saving_ns:
        wait, transfer = _measure_communication(case)
        waits_more = wait > transfer
    return _classify_waits(case) if waits_more else _classify_transfer(case.summary)


def _measure_communication(case: Case) -> tuple[int, int]:
    """Return how long (ns, over all ranks) NCCL kernels and MPI calls waited, and how long they transferred data."""
    ranks = [] if case.summary.waits is None else case.summary.waits.ranks
    wait = sum(rank.wait_ns for rank in ranks) + sum(mpi.wait_ns for mpi in case.mpi)
    return wait, sum(rank.transfer_ns for rank in ranks) + sum(mpi.transfer_ns for mpi in case.mpi)


def _classify_copies(summary: JobSummary) -> Bottleneck:
    first = max(summary.memory_operations, key=lambda copies: copies.total_ns, default=None)
    return bottlenecks.COPIES_PEER if first is not None and _PEER in first.operation else bottlenecks.COPIES


def _classify_transfer(summary: JobSummary) -> Bottleneck:
    has_nccl = any(nccl.kernel_ns for nccl in summary.nccl)
    return bottlenecks.TRANSFER if has_nccl or not summary.mpi else bottlenecks.TRANSFER_MPI


def _classify_waits(case: Case) -> Bottleneck:
    waits = case.summary.waits
    if waits is None:
        return bottlenecks.IMBALANCE
    caused = sum(rank.all_caused_ns for rank in waits.ranks)
    in_nccl = sum(rank.caused_wait_ns for rank in waits.ranks)
    in_messages = sum(rank.caused_in_messages_ns for rank in waits.ranks)
    if in_nccl > _HALF * caused and in_messages > _HALF * in_nccl:
        return bottlenecks.PIPELINE
    most = max((rank.all_caused_ns - inherited for rank, inherited in list_inherited(waits)), default=0)
    return bottlenecks.STRAGGLER if most > _HALF * caused else bottlenecks.IMBALANCE


def list_inherited(waits: WaitNumbers) -> list[tuple[RankWaits, int]]:
    """Return each task, and how long others waited for it because it had waited for another one (ns)."""
    sums = Counter[str]()
    for culprit in waits.culprits:
        if culprit.origin_task:
            sums[culprit.task] += culprit.ns
    return [(rank, min(sums[rank.task], rank.all_caused_ns)) for rank in waits.ranks]


def _classify_host(case: Case) -> Bottleneck:
    """Return which kind of host-bound a job is."""
    gaps = case.host_gaps
    whole = sum(ns for ns, _ in gaps.values())
    if not whole:
        return bottlenecks.HOST
    in_mpi = sum(ns for (_, call), (ns, _) in gaps.items() if call.startswith("MPI_"))
    if in_mpi > _HALF * whole and _is_unsplit_mpi(case.mpi):
        return bottlenecks.UNCLASSIFIED_MPI
    allocates = sum(ns for (_, call), (ns, _) in gaps.items() if call.startswith(_ALLOCATES))
    synchronises = sum(
        ns for (_, call), (ns, _) in gaps.items() if call.startswith(_SYNCHRONISES) or call in _BLOCKING_COPIES
    )
    if max(allocates, synchronises) > _HALF * whole:
        return bottlenecks.HOST_ALLOCATES if allocates > synchronises else bottlenecks.HOST_SYNCHRONISES
    bound = case.bounds.get(HOST_BOUND)
    whole_gain = 0 if bound is None else bound.saving_ns
    has_main = any(each.change.endswith("= 0") and each.saving_ns > _HALF * whole_gain for each in case.changes)
    mean = whole / max(sum(count for _, count in gaps.values()), 1)
    return bottlenecks.LAUNCH if mean < _SHORT_GAP_NS and not has_main else bottlenecks.HOST


def _is_unsplit_mpi(calls: Sequence[MpiWaits]) -> bool:
    """Return whether most MPI time over ranks may be wait or transfer."""
    return sum(mpi.unsplit_ns for mpi in calls) > _HALF * sum(mpi.mpi_ns for mpi in calls)


def _classify_hosts(case: Case) -> Bottleneck | None:
    """Return what limits main threads, if there are no GPUs."""
    if case.window is None or not case.mpi:
        return None
    whole = case.window.numbers.window_ns * len(case.mpi)
    wait, transfer = sum(mpi.wait_ns for mpi in case.mpi), sum(mpi.transfer_ns for mpi in case.mpi)
    if max(wait, transfer) < LEAST * whole:
        return None
    return _classify_waits(case) if wait >= transfer else bottlenecks.TRANSFER_MPI
