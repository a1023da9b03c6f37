"""Declares the classes of idle GPUs: hosts that launch late or wait, what starts late, and what reports do not explain.

bottlenecks.py says what a class is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.summary.answer import busy_bottlenecks as busy
from nsys2prv_ng.summary.answer import host_rules, rules, where, where_on_hosts
from nsys2prv_ng.summary.answer.bottleneck import Bottleneck, refine
from nsys2prv_ng.summary.answer.case import HOST_BOUND, IF_BOUND
from nsys2prv_ng.summary.gpus import host_causes
from nsys2prv_ng.summary.gpus.host_causes import HostCause

_HOST_PATH = (types.PATH_HOST, types.PATH_CUDA_CALL, types.PATH_SYSTEM_CALL, types.PATH_LAUNCH)

HOST = Bottleneck(
    key="host-bound",
    title="Host-bound",
    rule="an ideal host is the largest gain",
    loss=("host_ns",),
    bound=HOST_BOUND,
    gains=(what.RANGE, what.CALL),
    without_kernels=True,
    sentence="GPUs idle {share} of {whole} because the host launches late{in_mpi}{waits}",
    places=where_on_hosts.find_host,
    on_path=(_HOST_PATH, IF_BOUND[HOST_BOUND]),
    hint="move this work off the main thread (workers, prefetch), make it faster, or overlap it with GPU work",
    preset="analysis/gpu-gaps",
    evidence=("efficiency", "gpus", "what_if"),
)
UNCLASSIFIED_MPI = replace(
    busy.UNCLASSIFIED,
    refines=HOST,
    applies=host_rules.waits_or_moves_in_mpi,
    rule="host-bound, most of it in MPI calls, and most MPI time may be wait or transfer",
    places=where.find_mpi_calls,
    preset="basics/mpi",
    evidence=("waits", "mpi"),
)
HOST_FUNCTIONS = refine(
    HOST,
    host_rules.waits_for_host_functions,
    key="queued",
    title="Streams wait for host functions",
    rule="an ideal host is the largest gain, and GPUs are idle longer while streams wait for host functions than while "
    "the host launches late",
    loss=("queued_ns", "graph_ns"),
    sentence="GPUs idle {share} of {whole} after the next operation was launched{waits}",
    places=where_on_hosts.find_queued,
    hint="shorten the host function, do its work on the GPU, or give other streams work meanwhile",
    preset="analysis/queue_delay",
    evidence=("efficiency", "gpus", "what_if"),
)
HOST_MPI = refine(
    HOST,
    host_rules.calls_mpi,
    title="Host-bound, in MPI calls",
    rule="host-bound, and most of it in MPI calls",
    hint="include the reports of all ranks, to tell wait from transfer; overlap messages with compute, or send fewer",
    preset="basics/mpi",
    evidence=("efficiency", "mpi", "what_if"),
)
INSTRUMENTED = refine(
    HOST,
    host_rules.opens_operator_ranges,
    title="Host-bound, slowed by NVTX ranges of operators",
    rule="host-bound or launch-bound, and PyTorch's NVTX ranges of operators are at least as many as kernels",
    gains=(),
    unknown="a replay would keep what the ranges of operators cost the host",
    doubt=("ranges",),
    hint="capture again without NVTX ranges of operators (emit_nvtx, --pytorch=autograd-nvtx): they slow the host",
)
GIL = refine(
    HOST,
    host_rules.waits_for_gil,
    key="GIL",
    title="Threads wait for Python's lock (GIL)",
    rule="host-bound or launch-bound, and on average at least half a thread of each process waits for the GIL",
    sentence="GPUs idle {share} of {whole} while one thread at a time launches{waits}",
    places=where_on_hosts.find_gil,
    hint="let fewer threads launch more at once: batch their work, or use a process for each",
    preset="basics/gil",
    evidence=("efficiency", "gpus", "calls"),
)
HOST_ALLOCATES = refine(
    HOST,
    host_rules.allocates,
    title="Host-bound, in calls that allocate",
    rule="host-bound, and most of it in calls that allocate or free memory",
    hint="allocate once and reuse: no empty_cache() in the loop, a caching allocator or cudaMallocAsync",
)


def _refine_host(cause: HostCause, **others: Any) -> Bottleneck:
    """Return the variant of host-bound jobs whose host is late for a cause."""
    return refine(HOST, lambda case: host_rules.find_host_cause(case) == cause, **others)


HOST_LOADS = _refine_host(
    host_causes.LOADING,
    title="Host-bound, compiling or loading kernels",
    rule="host-bound, and a third of it in three or more gaps in which the host loads kernels",
    hint="pad shapes to a few sizes, and warm these up: libraries build, load or choose kernels for each new shape",
)
HOST_STARTS = _refine_host(
    host_causes.STARTING,
    title="Host-bound, starting processes",
    rule="host-bound, and a third of it in calls that start processes or wait for their end",
    hint="keep processes: DataLoader(persistent_workers=True), not new workers for each epoch; compile before the loop",
)
HOST_WAITS = _refine_host(
    host_causes.WAITING,
    title="Host-bound, waiting for data loader workers",
    rule="host-bound, and a third of it in waits for a queue or pipe before copies from the host",
    hint="DataLoader(num_workers=8, persistent_workers=True, prefetch_factor=4); cheaper transforms, or on the GPU",
)
HOST_SAVES = _refine_host(
    host_causes.SAVING,
    title="Host-bound, writing checkpoints",
    rule="host-bound, a third of it in calls that write files and before copies to pageable memory",
    hint="torch.distributed.checkpoint.async_save, or copy to pinned memory and save in a thread; or save_steps",
)
HOST_PREPARES = _refine_host(
    host_causes.PREPARING,
    title="Host-bound, preparing data on the main thread",
    rule="host-bound, and a third of it in code outside calls, or in calls that read, before copies from the host",
    hint="keep data on the GPU, or prepare the next meanwhile (PyTorch: DataLoader(num_workers=4, pin_memory=True))",
)
READBACKS = refine(
    HOST,
    host_rules.reads_back,
    key="read-backs",
    title="Host-bound by read-backs",
    rule="host-bound, GPUs are idle after the host waited for them for most of that time, and half of it or more would "
    "be saved if it did not wait, and no range or call saves more",
    sentence="GPUs idle {share} of {whole} because the host launches late, mostly after it waited for them{waits}",
    places=where_on_hosts.find_readbacks,
    hint="keep values on the GPU: read every k-th step, copy with non_blocking=True, no .item() or print in the loop",
    preset="analysis/read_backs",
    evidence=("readbacks", "efficiency", "what_if"),
)
LAUNCH = refine(
    HOST,
    host_rules.launches,
    key="launch-bound",
    title="Launch-bound",
    rule="host-bound, gaps shorter than 20 us on average, and no single range or call but launches is most of it",
    sentence="GPUs idle {share} of {whole} in short gaps between launches{waits}",
    places=where_on_hosts.find_launches,
    hint="launch less: CUDA graphs, torch.compile, fused or larger kernels and optimizers, larger batches",
)
LAUNCH_FUSIBLE = refine(
    LAUNCH,
    host_rules.launches_what_fuses,
    rule="launch-bound, but GPUs compute at least half of the time, mostly in kernels that can be fused",
    hint="fuse small kernels first (torch.compile, fused layers): fewer launches, less memory traffic; CUDA graphs",
)
QUEUED = Bottleneck(
    key="queued",
    title="Operations start late, though they were launched in time",
    rule="no bound saves 5%, and GPU idle time between queued operations, or in CUDA graphs, is the largest loss",
    loss=("queued_ns", "graph_ns"),
    sentence=busy.OF_TIME,
    places=where_on_hosts.find_queued,
    hint="look for dependencies: events, blocking streams, small nodes of graphs; use more streams",
    preset="analysis/queue_delay",
    evidence=("efficiency", "gpus"),
)
UNEXPLAINED = Bottleneck(
    key="unexplained gaps",
    title="GPU gaps that the report does not explain",
    rule="GPU idle time without a recorded launch is the largest loss, and no bound saves as much",
    loss=("unknown_ns",),
    sentence=busy.OF_TIME,
    hint="record the CUDA API on all processes (--trace=cuda); trace unified memory; sample the CPU",
    preset="analysis/gpu-gaps",
    evidence=("efficiency",),
)
UNEXPLAINED_MIGRATIONS = refine(
    UNEXPLAINED,
    rules.migrates,
    title="GPU gaps without a launch, as managed memory migrates",
    rule="unexplained gaps, and at least as many migrations of managed memory",
    hint="prefetch managed memory (cudaMemPrefetchAsync, cudaMemAdvise), so that GPUs do not wait for page faults",
    preset="basics/unified_memory",
)
NOTHING = Bottleneck(
    key="nothing to gain",
    title="Nothing to gain from a single change",
    rule="none of the above: nothing saves or loses 5% of a step",
    hint="look at the largest kernels and ranges (--details)",
    preset="views/cuda_activities",
    evidence=("efficiency", "what_if"),
)
