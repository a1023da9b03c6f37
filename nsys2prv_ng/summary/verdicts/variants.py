"""Chooses the variant of a class that the facts call for, so that its hint does not propose what is already done."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.paraver.value_tables import MEMORY_KINDS
from nsys2prv_ng.sources.cuda.kernel_classes import WHOLE_GRAPH
from nsys2prv_ng.summary.numbers.efficiency import Losses
from nsys2prv_ng.summary.numbers.job import JobSummary, KernelNumbers, MemoryKindNumbers
from nsys2prv_ng.summary.numbers.wait_reasons import NOT_SELECTED
from nsys2prv_ng.summary.numbers.waits import MpiWaits, WaitNumbers
from nsys2prv_ng.summary.verdicts import bottlenecks
from nsys2prv_ng.summary.verdicts.bottlenecks import Bottleneck
from nsys2prv_ng.summary.verdicts.case import HALF, HOST_BOUND, Case

_SHORT_GAP_NS = 20_000
"""Gaps shorter than this on average are those between launches: a launch takes 5 to 10 us in an eager framework."""
_GEMM_FP32, _GEMM_16 = "GEMM FP32", ("GEMM BF16", "GEMM FP16", "GEMM FP8", "GEMM FP4")
_FUSIBLE = ("Elementwise", "Copy, cast or fill", "Reduction", "Normalisation", "Softmax or loss", "Optimizer")
"""Classes of kernels that do little work for each byte, and that compilers fuse."""
_FUSED = "triton_"
"""Beginning of the names of kernels that torch.compile makes."""
_PEER, _PINNED = "peer to peer", MEMORY_KINDS[2]
_GATHERS, _MESSAGES = ("AllGather",), ("SendRecv", "Send", "Recv")
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


def choose_compute(losses: Losses, kernels: Sequence[KernelNumbers]) -> Bottleneck:
    """Return the variant of compute-bound: by the classes of the kernels, and by whether a compiler has fused them."""
    classes = {name: ns for name, ns in losses.compute_by_class.items() if name != NOT_SELECTED}
    whole = sum(classes.values())
    first = next(iter(classes), "")
    if first in (_GEMM_FP32, WHOLE_GRAPH):
        return bottlenecks.COMPUTE_FP32 if first == _GEMM_FP32 else bottlenecks.COMPUTE_OPAQUE
    is_fused = any(kernel.name.startswith(_FUSED) for kernel in kernels)
    if not is_fused and sum(classes.get(name, 0) for name in _FUSIBLE) > HALF * whole:
        return bottlenecks.COMPUTE_FUSIBLE
    return bottlenecks.COMPUTE_16 if first in _GEMM_16 else bottlenecks.COMPUTE


def choose_copies(summary: JobSummary) -> Bottleneck:
    """Return the variant of copies: by the operation that takes longest, and its memory."""
    first = max(summary.memory_operations, key=lambda copies: copies.total_ns, default=None)
    if first is None:
        return bottlenecks.COPIES
    if _PEER in first.operation:
        return bottlenecks.COPIES_PEER
    pinned = sum(part.total_ns for part in first.by_memory if _is_pinned(part))
    return bottlenecks.COPIES_PINNED if pinned > HALF * first.total_ns else bottlenecks.COPIES


def _is_pinned(part: MemoryKindNumbers) -> bool:
    return _PINNED in (part.source, part.destination)


def choose_transfer(summary: JobSummary) -> Bottleneck:
    """Return the variant of exposed transfer: by the NCCL function that takes most time, or MPI."""
    functions = {nccl.function: nccl.kernel_ns for nccl in summary.nccl if nccl.kernel_ns}
    if not functions:
        return bottlenecks.TRANSFER_MPI if summary.mpi else bottlenecks.TRANSFER
    whole = sum(functions.values())
    for names, variant in ((_GATHERS, bottlenecks.TRANSFER_GATHER), (_MESSAGES, bottlenecks.TRANSFER_MESSAGES)):
        if sum(functions.get(name, 0) for name in names) > HALF * whole:
            return variant
    return bottlenecks.TRANSFER


def choose_pipeline(waits: WaitNumbers) -> Bottleneck:
    """Return the variant of a pipeline bubble: by whether one stage sets the pace."""
    has_pace = waits.pipeline is not None and waits.pipeline.pace is not None
    return bottlenecks.PIPELINE_UNBALANCED if has_pace else bottlenecks.PIPELINE


def choose_host(case: Case) -> Bottleneck:
    """Return the variant of host-bound: by what hosts were in while GPUs were idle."""
    gaps = case.host_gaps
    whole = sum(ns for ns, _ in gaps.values())
    if not whole:
        return bottlenecks.HOST
    in_mpi = sum(ns for (_, call), (ns, _) in gaps.items() if call.startswith("MPI_"))
    if in_mpi > HALF * whole and _is_unsplit_mpi(case.mpi):
        return bottlenecks.UNCLASSIFIED_MPI
    allocates = sum(ns for (_, call), (ns, _) in gaps.items() if call.startswith(_ALLOCATES))
    synchronises = sum(
        ns for (_, call), (ns, _) in gaps.items() if call.startswith(_SYNCHRONISES) or call in _BLOCKING_COPIES
    )
    if max(allocates, synchronises) > HALF * whole:
        return bottlenecks.HOST_ALLOCATES if allocates > synchronises else bottlenecks.HOST_SYNCHRONISES
    bound = case.bounds.get(HOST_BOUND)
    whole_gain = 0 if bound is None else bound.saving_ns
    has_main = any(each.change.endswith("= 0") and each.saving_ns > HALF * whole_gain for each in case.changes)
    mean = whole / max(sum(count for _, count in gaps.values()), 1)
    return bottlenecks.LAUNCH if mean < _SHORT_GAP_NS and not has_main else bottlenecks.HOST


def _is_unsplit_mpi(calls: Sequence[MpiWaits]) -> bool:
    """Return whether most MPI time over ranks may be wait or transfer."""
    return sum(mpi.unsplit_ns for mpi in calls) > HALF * sum(mpi.mpi_ns for mpi in calls)
