"""Chooses the variant of a class that the facts call for, so that its hint does not propose what is already done."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from nsys2prv_ng.paraver.value_tables import MEMORY_KINDS
from nsys2prv_ng.sources.cuda.kernel_classes import WHOLE_GRAPH
from nsys2prv_ng.summary.efficiency.numbers import Losses
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.kernels.numbers import KernelNumbers
from nsys2prv_ng.summary.memory.numbers import ALLOCATOR_CALLS
from nsys2prv_ng.summary.ranges.numbers import list_paths
from nsys2prv_ng.summary.verdicts import bottlenecks
from nsys2prv_ng.summary.verdicts.bottlenecks import Bottleneck
from nsys2prv_ng.summary.verdicts.case import (
    COLLECTIVES,
    COPY_BOUND,
    HALF,
    HOST_BOUND,
    LEAST,
    Case,
    list_inherited,
    list_mpi_calls,
    sum_nccl_kernels,
)
from nsys2prv_ng.summary.verdicts.excess import find_more_compute
from nsys2prv_ng.summary.verdicts.trust import count_operator_ranges
from nsys2prv_ng.summary.waits.numbers import MpiWaits, WaitNumbers
from nsys2prv_ng.summary.waits.words import NOT_SELECTED

_SHORT_GAP_NS = 20_000
"""Gaps shorter than this on average are those between launches: a launch takes 5 to 10 us in an eager framework."""
_GEMM_FP32, _GEMM_16 = "GEMM FP32", ("GEMM BF16", "GEMM FP16", "GEMM FP8", "GEMM FP4")
FUSIBLE = ("Elementwise", "Copy, cast or fill", "Reduction", "Normalisation", "Softmax or loss", "Optimizer")
"""Classes of kernels that do little work for each byte, and that compilers fuse."""
_OPTIMIZER = re.compile(r"(?i)(?<![a-z])optim(?![a-z])|optimizer|(?<![a-z])adamw?(?![a-z])")
_MUCH = 1 / 3
"""Least part of all operations that an optimizer launches to come first."""
_FUSED = ("triton_poi_", "triton_red_", "triton_per_")
"""Beginnings of the names of kernels that torch.compile fuses."""
_ATTENTION = "Attention"
_CHAINED = 0.75
"""Least part of the copies of all GPUs that a step must gain without them for them to be a chain."""
_STAGED = 0.1
"""Least time of copies between hosts and GPUs, as a part of the MPI time, at which messages may pass through hosts."""
_PEER, _PINNED, _MIGRATION = "peer to peer", MEMORY_KINDS[2], "Migration"
"""Parts of the names of copies and of their memory."""
_WITH_HOST = ("host to device", "device to host")
"""Ends of the names of copies from and to host memory."""
_LARGE_BYTES = 8 << 20
"""Messages from this size on gain little from being larger: most of their time is that of their bytes."""
_GATHERS, _MESSAGES = ("AllGather",), ("SendRecv", "Send", "Recv")
LAUNCH_CALLS = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cuGraphLaunch")
_LAUNCH_CHANGES = tuple(f"call '{name}" for name in LAUNCH_CALLS)
_SYNCHRONISES = (
    *("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaThreadSynchronize"),
    *("cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2"),
)
"""Beginnings of the names of calls."""
_WITHOUT_SYNCHRONISING = tuple(f"call {name!r} = 0" for name in _SYNCHRONISES)
_NEARLY = 0.95
"""Least part of the gain by an ideal host of calls that explain it alone."""
_BLOCKING_COPIES = ("cudaMemcpy", "cudaMemcpy2D", "cudaMemcpy3D")
"""Names of calls that return when the copy has ended."""


def list_selected_classes(losses: Losses) -> dict[str, int]:
    """Return the compute time (ns) of each class of kernels, the longest first, without unselected ranks."""
    return {name: ns for name, ns in losses.compute_by_class.items() if name != NOT_SELECTED}


def is_launch_change(change: str) -> bool:
    """Return whether a change is one of a launch call."""
    return change.startswith(_LAUNCH_CHANGES)


def choose_compute(losses: Losses, kernels: Sequence[KernelNumbers]) -> Bottleneck:
    """Return the variant of compute-bound: by the classes of the kernels, and by whether a compiler has fused them."""
    classes = list_selected_classes(losses)
    whole = sum(classes.values())
    first = next(iter(classes), "")
    if classes.get(WHOLE_GRAPH, 0) > HALF * whole:
        return bottlenecks.COMPUTE_OPAQUE
    if _are_fusible(losses, kernels):
        return bottlenecks.COMPUTE_FUSIBLE
    if first == _GEMM_FP32:
        return bottlenecks.COMPUTE_FP32
    if first == _ATTENTION:
        return bottlenecks.COMPUTE_ATTENTION
    return bottlenecks.COMPUTE_16 if first in _GEMM_16 else bottlenecks.COMPUTE


def _are_fusible(losses: Losses, kernels: Sequence[KernelNumbers]) -> bool:
    """Return whether most compute is in kernels that compilers fuse, and no compiler has."""
    classes = list_selected_classes(losses)
    fused = sum(kernel.total_ns for kernel in kernels if kernel.name.startswith(_FUSED))
    if fused and fused >= LEAST * sum(kernel.total_ns for kernel in kernels):
        return False
    return sum(classes.get(name, 0) for name in FUSIBLE) > HALF * sum(classes.values())


def choose_copies(case: Case) -> Bottleneck:
    """Return the variant of copies: between which memory most of their time is, and whether they form a chain."""
    times = Counter[Bottleneck]()
    for copies in case.summary.memory_operations:
        if _PEER in copies.operation:
            times[bottlenecks.COPIES_PEER] += copies.total_ns
        elif not copies.operation.endswith(_WITH_HOST) or copies.operation.startswith(_MIGRATION):
            times[bottlenecks.COPIES_INSIDE] += copies.total_ns
        else:
            pinned = sum(part.total_ns for part in copies.by_memory if _PINNED in (part.source, part.destination))
            times[bottlenecks.COPIES_PINNED] += pinned
            times[bottlenecks.COPIES] += copies.total_ns - pinned
    for variant, ns in times.most_common(1):
        if variant == bottlenecks.COPIES_PEER and _are_chained(case):
            variant = bottlenecks.COPIES_CHAIN
        return variant if ns > HALF * times.total() else bottlenecks.COPIES
    return bottlenecks.COPIES


def choose_unexplained(case: Case) -> Bottleneck:
    """Return the variant of unexplained gaps: by whether what ends them may be migrations, which no call launches."""
    causes = (cause for gpu in case.summary.gpus for cause in gpu.idle_causes or [])
    gaps = sum(cause.gaps for cause in causes if cause.cause == "unknown")
    copies = case.summary.memory_operations
    migrations = sum(each.count for each in copies if each.operation.startswith(_MIGRATION))
    return bottlenecks.UNEXPLAINED_MIGRATIONS if migrations >= max(gaps, 1) else bottlenecks.UNEXPLAINED


def _are_chained(case: Case) -> bool:
    """Return whether copies of several GPUs run one after the other: without them, a step is shorter by all of them."""
    losses, bound = case.losses, case.bounds.get(COPY_BOUND)
    if losses is None or bound is None or losses.devices < 2 or not case.gpu_ns:
        return False
    return bound.share >= _CHAINED * losses.devices * losses.memory_ns / case.gpu_ns


def choose_transfer(summary: JobSummary) -> Bottleneck:
    """Return the variant of exposed transfer: by NCCL's function with most time and its sizes, or by MPI's calls."""
    functions = sum_nccl_kernels(summary)
    if not functions:
        return _choose_mpi(summary) if summary.mpi else bottlenecks.TRANSFER
    whole = sum(functions.values())
    for names, variant in ((_GATHERS, bottlenecks.TRANSFER_GATHER), (_MESSAGES, bottlenecks.TRANSFER_MESSAGES)):
        if sum(functions.get(name, 0) for name in names) > HALF * whole:
            return variant
    rates = [] if summary.waits is None else summary.waits.bandwidth
    large = sum(each.ns for each in rates if each.bytes >= _LARGE_BYTES)
    return bottlenecks.TRANSFER_LARGE if large > HALF * sum(each.ns for each in rates) else bottlenecks.TRANSFER


def _choose_mpi(summary: JobSummary) -> Bottleneck:
    calls = list_mpi_calls(summary)
    whole = sum(calls.values())
    copies = sum(copies.total_ns for copies in summary.memory_operations if copies.operation.endswith(_WITH_HOST))
    if copies >= _STAGED * whole:
        return bottlenecks.TRANSFER_MPI_STAGED
    if sum(ns for call, ns in calls.items() if COLLECTIVES.match(call)) > HALF * whole:
        return bottlenecks.TRANSFER_MPI_COLLECTIVES
    return bottlenecks.TRANSFER_MPI


def choose_straggler(case: Case) -> Bottleneck:
    """Return the variant of a wait for a straggler: by whether its GPU computes longer than those of the others."""
    waits, number = case.summary.waits, case.rank_to_change
    ranks = [] if waits is None else list_inherited(waits)
    ranks.sort(key=lambda item: (number is None or item[0].rank != number, item[1] - item[0].all_caused_ns))
    computes = any(find_more_compute(case, rank) is not None for rank, _ in ranks[:1])
    return bottlenecks.STRAGGLER_COMPUTES if computes else bottlenecks.STRAGGLER


def choose_pipeline(waits: WaitNumbers) -> Bottleneck:
    """Return the variant of a pipeline bubble: by whether one stage sets the pace."""
    has_pace = waits.pipeline is not None and waits.pipeline.pace is not None
    return bottlenecks.PIPELINE_UNBALANCED if has_pace else bottlenecks.PIPELINE


def choose_host(case: Case) -> Bottleneck:
    """Return the variant of host-bound: by what hosts were in while GPUs were idle."""
    calls, whole = case.host_calls, case.host_calls.total()
    if not whole:
        return bottlenecks.HOST
    if case.host_mpi_calls.total() > HALF * whole:
        return bottlenecks.UNCLASSIFIED_MPI if _is_unsplit_mpi(case.mpi) else bottlenecks.HOST_MPI
    if count_operator_ranges(case.summary):
        return bottlenecks.INSTRUMENTED
    allocates = sum(ns for call, ns in calls.items() if call.startswith(ALLOCATOR_CALLS))
    synchronises = sum(ns for call, ns in calls.items() if call.startswith(_SYNCHRONISES) or call in _BLOCKING_COPIES)
    if max(allocates, synchronises) > HALF * whole:
        return bottlenecks.HOST_ALLOCATES if allocates > synchronises else bottlenecks.HOST_SYNCHRONISES
    bound = case.bounds.get(HOST_BOUND)
    whole_gain = 0 if bound is None else bound.saving_ns
    without = [each for each in case.changes if each.change in _WITHOUT_SYNCHRONISING]
    if bound is not None and any(each.saving_ns >= _NEARLY * whole_gain for each in without):
        return bottlenecks.HOST_SYNCHRONISES
    named = [each for each in case.changes if each.change.endswith("= 0") and not is_launch_change(each.change)]
    has_main = any(each.saving_ns > HALF * whole_gain for each in named)
    mean = whole / max(sum(count for _, count in case.host_gaps.values()), 1)
    return _choose_launch(case) if mean < _SHORT_GAP_NS and not has_main else bottlenecks.HOST


def _choose_launch(case: Case) -> Bottleneck:
    """Return the variant of launch-bound: by what launches most, and whether its kernels can be fused."""
    tree, losses = case.summary.range_tree, case.losses
    operations = sum(node.operations for node in tree if not node.depth)
    paths = zip(tree, list_paths(tree), strict=True)
    optimizer = [node for node, path in paths if _is_optimizer(node.name) and not any(map(_is_optimizer, path[:-1]))]
    if operations and sum(node.operations for node in optimizer) >= _MUCH * operations:
        return bottlenecks.LAUNCH_OPTIMIZER
    if losses is not None and losses.compute_ns >= HALF * case.gpu_ns and _are_fusible(losses, case.summary.kernels):
        return bottlenecks.LAUNCH_FUSIBLE
    return bottlenecks.LAUNCH


def _is_optimizer(name: str) -> bool:
    return _OPTIMIZER.search(name) is not None


def _is_unsplit_mpi(calls: Sequence[MpiWaits]) -> bool:
    """Return whether most MPI time over ranks may be wait or transfer."""
    return sum(mpi.unsplit_ns for mpi in calls) > HALF * sum(mpi.mpi_ns for mpi in calls)
