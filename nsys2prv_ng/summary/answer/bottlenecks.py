"""Declares the classes of bottlenecks, in the order in which judge.py asks for them.

A class is all that the program says of it: when it applies, its sentence, where it is, what counts as its gain, what to
try, and the preset that shows it. docs/reference/bottlenecks.md is written from it (docs/bottlenecks.py). The hints are
fixed texts, not conclusions from the reports.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay.changes import Change
from nsys2prv_ng.summary.answer import rules, where
from nsys2prv_ng.summary.answer.bottleneck import Bottleneck, refine
from nsys2prv_ng.summary.answer.case import COPY_BOUND, HOST_BOUND, IF_BOUND, NETWORK_BOUND, WAIT_BOUND
from nsys2prv_ng.summary.gpus import host_causes
from nsys2prv_ng.summary.gpus.host_causes import HostCause

_HOST_PATH = (types.PATH_HOST, types.PATH_CUDA_CALL, types.PATH_SYSTEM_CALL, types.PATH_LAUNCH)
_IN_GRAPHS = "the report does not have the kernels inside the graphs"
_OF_TIME = "{share} of {whole}"
_WAIT, _WAIT_IN_MPI = "ranks wait {share} of {whole}", ("wait_ns", "{share} of rank time is wait in MPI")

START_UP = Bottleneck(
    key="start-up only",
    title="Start-up only",
    rule="one step is slow, in the first quarter; it takes a third of the time of all and at least five times the "
    "median",
    applies=rules.has_slow_start,
    of_steps=True,
    gains=(),
    places=where.find_slow_steps,
    hint="count that step as warm-up: choose later steps with --steps, or start the capture later",
    preset="analysis/slow_steps",
    evidence=("slow_steps", "steps"),
)
SLOW_STEPS = replace(
    START_UP,
    key="slow steps",
    title="Slow steps",
    rule="at most a third of four or more steps take twice the median or more, and they cost a quarter of the time of "
    "all; half of it for one step beside ten or more usual ones",
    applies=rules.has_slow_steps,
    hint="find what only these steps do: new shapes (pad, bucket, warm up), checkpoints, evaluation, data, library "
    "loads",
    evidence=("slow_steps", "steps", "efficiency"),
)
COMPUTE = Bottleneck(
    key="compute-bound",
    title="Compute-bound",
    rule="GPUs compute at least 80% of the time and no host sets the pace, or half of it and nothing else saves 5%",
    applies=rules.computes,
    loss=("compute_ns",),
    gains=(what.CLASS, what.KERNEL, what.RANGE),
    needs_host=True,
    sentence="GPUs compute {share} of {whole}",
    places=where.find_kernels,
    on_path=((types.PATH_COMPUTE,), "if kernels took no time"),
    hint="make the largest kernels cheaper: lower precision, fused or better kernels, larger tiles, less work",
    preset="analysis/kernel_classes",
    evidence=("efficiency", "kernels"),
)
COMPUTE_OPAQUE = refine(
    COMPUTE,
    rules.computes_in_graphs,
    title="Compute-bound, in opaque CUDA graphs",
    rule="compute-bound, and most compute is in CUDA graphs that were traced as a whole",
    gains=(),
    unknown=_IN_GRAPHS,
    hint="capture again with --cuda-graph-trace=node to see which kernels of the graphs take long",
)
COMPUTE_FUSIBLE = refine(
    COMPUTE,
    rules.computes_what_fuses,
    title="Compute-bound, in kernels that can be fused",
    rule="compute-bound, mostly in elementwise, copy, reduction, norm, loss and optimizer kernels; no torch.compile",
    places=where.find_fusible_kernels,
    hint="fuse small kernels (a compiler such as torch.compile, fused layers and optimizers); avoid casts and copies",
)
COMPUTE_FP32 = refine(
    COMPUTE,
    lambda case: rules.find_largest_class(case) == "GEMM FP32",
    title="Compute-bound, in FP32 matrix products",
    rule="compute-bound, and GEMM FP32 is the largest kernel class",
    hint="use tensor cores: BF16 or FP16 autocast, or TF32 (torch.set_float32_matmul_precision('high'))",
)
COMPUTE_16 = refine(
    COMPUTE,
    lambda case: rules.find_largest_class(case) in ("GEMM BF16", "GEMM FP16", "GEMM FP8", "GEMM FP4"),
    rule="compute-bound, and matrix products with operands of 16 bits or less are the largest kernel class",
    hint="larger or fewer matrix products (they use 16 bits or less already), FP8, fused layers",
)
COMPUTE_ATTENTION = refine(
    COMPUTE,
    lambda case: rules.find_largest_class(case) == "Attention",
    title="Compute-bound, in attention",
    rule="compute-bound, and attention is the largest kernel class",
    hint="fuse the kernels around attention (torch.compile); use its newest fused kernels; shorter or packed sequences",
)
OPAQUE = Bottleneck(
    key="opaque CUDA graphs",
    title="Opaque CUDA graphs",
    rule="at least half of the GPU time is in CUDA graphs that were traced as a whole and may contain NCCL",
    applies=rules.runs_opaque_graphs,
    loss=("whole_graph_ns",),
    gains=(),
    unknown=_IN_GRAPHS,
    sentence=_OF_TIME,
    hint="capture again with --cuda-graph-trace=node to see what the graphs do",
    preset="basics/graphs",
    evidence=("efficiency",),
)
UNCLASSIFIED = Bottleneck(
    key="unclassified communication",
    title="Exposed communication, transfer or wait unknown",
    rule="kernels that communicate and may wait or transfer data are the largest loss, and at least a quarter of the "
    "GPU time",
    loss=("not_split_ns",),
    unknown="no replay can tell what unclassified kernels would do",
    sentence=_OF_TIME,
    on_hosts=("unsplit_ns", "{share} of rank time, in MPI"),
    places=where.find_unclassified,
    on_path=((types.PATH_NOT_SPLIT, types.PATH_MOVING), "if communication took no time"),
    hint="include the reports of all ranks: a kernel is classified by when the other ranks start",
    preset="analysis/exposed_communication",
    evidence=("efficiency", "waits"),
)
UNCLASSIFIED_OTHERS = refine(
    UNCLASSIFIED,
    rules.moves_without_nccl,
    rule="unclassified communication, and kernels of other libraries than NCCL take most of its time",
    hint="they record no ranks: they are split if each rank launches the same ones, on clocks that agree (one node)",
)
UNCLASSIFIED_PAYLOAD = refine(
    UNCLASSIFIED,
    rules.lacks_payload,
    rule="unclassified communication, and NCCL calls have no payload",
    hint="export again with the payloads of NVTX, so that ranks can be matched: nsys export --include-blobs=true, or"
    " --include-json=true before schema 3.24",
)
IMBALANCE = Bottleneck(
    key="imbalance",
    title="Imbalance: ranks wait for each other",
    rule="waits are the largest gain, and no rank causes most of them",
    loss=("waiting_ns",),
    bound=WAIT_BOUND,
    sentence=_WAIT,
    on_hosts=_WAIT_IN_MPI,
    places=where.find_late_ranks,
    hint="balance the work of the ranks; bind processes to cores; synchronise less often",
    preset="analysis/waited_for",
    evidence=("waits", "what_if"),
)
PIPELINE = refine(
    IMBALANCE,
    rules.waits_in_messages,
    key="pipeline bubble",
    title="Pipeline bubble",
    rule="waits are the largest gain, and most waits for NCCL are in sends and receives",
    places=where.find_stages,
    hint="use more micro-batches, balance the stages, or interleave them",
    preset="analysis/pipeline_bubble",
    evidence=("waits.pipeline", "waits", "what_if"),
)
PIPELINE_UNBALANCED = refine(
    PIPELINE,
    rules.has_slow_stage,
    rule="pipeline bubble, and one stage works longer than the others",
    hint="balance the stages: give the stage that sets the pace fewer layers; then use more micro-batches",
)
STRAGGLER = refine(
    IMBALANCE,
    rules.waits_for_one,
    key="wait for a straggler",
    title="Wait for a straggler",
    rule="waits are the largest gain and one rank causes most of them, or one rank as fast as the others saves at "
    "least half of the largest gain",
    bound=Change(what.RANK),
    gains=(what.RANGE, what.CALL),
    without_kernels=True,
    places=where.find_straggler,
    hint="speed up what makes that rank late, or give it less work; check its CPU binding and its data",
)
STRAGGLER_COMPUTES = refine(
    STRAGGLER,
    rules.waits_for_compute,
    rule="wait for a straggler, and its GPU computes at least a tenth longer than the median of the others",
    hint="give that rank less work (lengths, batches, experts), or make its kernels faster; check its GPU's clocks",
)
TRANSFER = Bottleneck(
    key="exposed transfer",
    title="Exposed communication",
    rule="an ideal network is the largest gain",
    loss=("moving_ns",),
    bound=NETWORK_BOUND,
    overlaps=True,
    overlap_slows=True,
    sentence="data transfer takes {share} of {whole}",
    on_hosts=("transfer_ns", "{share} of rank time is MPI transfer"),
    places=where.find_transfers,
    on_path=((types.PATH_MOVING, types.PATH_MPI), IF_BOUND[NETWORK_BOUND]),
    hint="compare busbw with your link; send fewer bytes; larger buckets; overlap with compute",
    preset="analysis/exposed_communication",
    evidence=("efficiency", "waits", "what_if"),
)
TRANSFER_COPIES = refine(
    TRANSFER,
    rules.moves_by_copies,
    rule="exposed transfer, and copies between GPUs are half of its gain, or else most of the communication on GPUs",
    places=where.find_copies_between,
    sentence="data transfer takes {share} of {whole}{worth}",
    worth="; without it, steps would be {gain} shorter",
    hint="overlap copies between GPUs with compute; make fewer and larger ones; check that peers have NVLink",
    preset="basics/memory_operations",
    evidence=("efficiency", "memory_operations", "what_if"),
)
TRANSFER_CHAIN = refine(
    TRANSFER_COPIES,
    rules.copies_in_chain,
    rule="exposed transfer, most of it copies between GPUs, which run one after the other",
    worth="; without it, steps would be {gain} shorter: the copies run one after the other",
    hint="these copies wait for each other: let them run at once (streams, events), or use a collective of NCCL",
)
TRANSFER_GATHER = refine(
    TRANSFER,
    lambda case: rules.are_most(["AllGather"], case.nccl_kernels),
    rule="exposed transfer, and AllGather takes most NCCL time, as with sharded parameters",
    overlap_slows=False,
    hint="gather less if memory allows (ZeRO-2, reshard_after_forward=False); prefetch; 16-bit parameters, gradients",
)
TRANSFER_MESSAGES = refine(
    TRANSFER,
    lambda case: rules.are_most(["SendRecv", "Send", "Recv"], case.nccl_kernels),
    rule="exposed transfer, and sends and receives take most NCCL time",
    hint="overlap sends with compute; send fewer bytes; check that NCCL uses the fast network between nodes",
)
TRANSFER_LARGE = refine(
    TRANSFER,
    rules.moves_large_messages,
    rule="exposed transfer, and most NCCL time with known sizes is in messages of 8 MiB or more",
    hint="send fewer bytes (16-bit gradients); overlap with compute; compare busbw with your link",
)
TRANSFER_MPI = refine(
    TRANSFER,
    rules.moves_by_mpi,
    rule="exposed transfer, and no NCCL kernels: MPI moves the data",
    overlap_slows=False,
    places=where.find_mpi_calls,
    hint="start messages earlier and overlap them with compute; send fewer bytes",
    preset="basics/mpi",
    evidence=("waits", "mpi", "what_if"),
)
TRANSFER_MPI_STAGED = refine(
    TRANSFER_MPI,
    rules.copies_around_mpi,
    rule="exposed transfer over MPI, and copies between hosts and GPUs take at least a tenth of the MPI time",
    hint="use GPU-aware MPI, which needs no copies to the host; overlap messages with compute; send fewer bytes",
)
TRANSFER_MPI_COLLECTIVES = refine(
    TRANSFER_MPI,
    rules.moves_in_mpi_collectives,
    rule="exposed transfer over MPI, and most of it in collectives",
    hint="overlap collectives with compute (MPI_Iallreduce and alike); reduce fewer bytes, in fewer calls",
)
TRANSFER_OTHERS = refine(
    TRANSFER,
    rules.moves_without_nccl,
    rule="exposed transfer, and most communication on GPUs is not NCCL's",
    hint="overlap with compute; send fewer bytes, in fewer and larger transfers; compare with the rate of your link",
)
COPIES = Bottleneck(
    key="copies",
    title="Copies",
    rule="free copies are the largest gain",
    loss=("memory_ns",),
    bound=COPY_BOUND,
    without_kernels=True,
    overlaps=True,
    sentence="copies alone take {share} of {whole}{worth}",
    worth="; without them, steps would be {gain} shorter",
    places=where.find_copies,
    on_path=((types.PATH_MEMORY,), IF_BOUND[COPY_BOUND]),
    hint="use pinned memory and asynchronous copies on a stream of their own; keep data on the GPU",
    preset="basics/memory_operations",
    evidence=("memory_operations", "what_if"),
)
COPIES_PINNED = refine(
    COPIES,
    lambda case: rules.are_most([rules.PINNED], rules.sum_copies(case)),
    rule="copies, most of them from or to pinned memory",
    hint="memory is pinned already: copy less (keep data on the GPU, no offload); hide copies behind compute",
)
COPIES_INSIDE = refine(
    COPIES,
    lambda case: rules.are_most([rules.INSIDE], rules.sum_copies(case)),
    rule="copies, most of them within a GPU, sets or migrations",
    hint="avoid copies within a GPU (in place, contiguous layouts, gradient_as_bucket_view); prefetch managed memory",
)
HOST = Bottleneck(
    key="host-bound",
    title="Host-bound",
    rule="an ideal host is the largest gain",
    loss=("host_ns",),
    bound=HOST_BOUND,
    gains=(what.RANGE, what.CALL),
    without_kernels=True,
    sentence="GPUs idle {share} of {whole} because the host launches late{in_mpi}{waits}",
    places=where.find_host,
    on_path=(_HOST_PATH, IF_BOUND[HOST_BOUND]),
    hint="move this work off the main thread (workers, prefetch), make it faster, or overlap it with GPU work",
    preset="analysis/gpu-gaps",
    evidence=("efficiency", "gpus", "what_if"),
)
UNCLASSIFIED_MPI = replace(
    UNCLASSIFIED,
    refines=HOST,
    applies=rules.waits_or_moves_in_mpi,
    rule="host-bound, most of it in MPI calls, and most MPI time may be wait or transfer",
    places=where.find_mpi_calls,
    preset="basics/mpi",
    evidence=("waits", "mpi"),
)
HOST_FUNCTIONS = refine(
    HOST,
    rules.waits_for_host_functions,
    key="queued",
    title="Streams wait for host functions",
    rule="an ideal host is the largest gain, and GPUs are idle longer while streams wait for host functions than while "
    "the host launches late",
    loss=("queued_ns", "graph_ns"),
    sentence="GPUs idle {share} of {whole} after the next operation was launched{waits}",
    places=where.find_queued,
    hint="shorten the host function, do its work on the GPU, or give other streams work meanwhile",
    preset="analysis/queue_delay",
    evidence=("efficiency", "gpus", "what_if"),
)
HOST_MPI = refine(
    HOST,
    rules.calls_mpi,
    title="Host-bound, in MPI calls",
    rule="host-bound, and most of it in MPI calls",
    hint="include the reports of all ranks, to tell wait from transfer; overlap messages with compute, or send fewer",
    preset="basics/mpi",
    evidence=("efficiency", "mpi", "what_if"),
)
INSTRUMENTED = refine(
    HOST,
    rules.opens_operator_ranges,
    title="Host-bound, slowed by NVTX ranges of operators",
    rule="host-bound or launch-bound, and PyTorch's NVTX ranges of operators are at least as many as kernels",
    gains=(),
    unknown="a replay would keep what the ranges of operators cost the host",
    doubt=("ranges",),
    hint="capture again without NVTX ranges of operators (emit_nvtx, --pytorch=autograd-nvtx): they slow the host",
)
GIL = refine(
    HOST,
    rules.waits_for_gil,
    key="GIL",
    title="Threads wait for Python's lock (GIL)",
    rule="host-bound or launch-bound, and on average at least half a thread of each process waits for the GIL",
    sentence="GPUs idle {share} of {whole} while one thread at a time launches{waits}",
    places=where.find_gil,
    hint="let fewer threads launch more at once: batch their work, or use a process for each",
    preset="basics/gil",
    evidence=("efficiency", "gpus", "calls"),
)
HOST_ALLOCATES = refine(
    HOST,
    rules.allocates,
    title="Host-bound, in calls that allocate",
    rule="host-bound, and most of it in calls that allocate or free memory",
    hint="allocate once and reuse: no empty_cache() in the loop, a caching allocator or cudaMallocAsync",
)


def _refine_host(cause: HostCause, **others: Any) -> Bottleneck:
    """Return the variant of host-bound jobs whose host is late for a cause."""
    return refine(HOST, lambda case: rules.find_host_cause(case) == cause, **others)


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
    hint="keep data on the GPU; or workers: DataLoader(num_workers=4, pin_memory=True), x.to(dev, non_blocking=True)",
)
READBACKS = refine(
    HOST,
    rules.reads_back,
    key="read-backs",
    title="Host-bound by read-backs",
    rule="host-bound, GPUs are idle after the host waited for them for most of that time, and half of it or more would "
    "be saved if it did not wait",
    sentence="GPUs idle {share} of {whole} because the host launches late, mostly after it waited for them{waits}",
    places=where.find_readbacks,
    hint="keep values on the GPU: read every k-th step, copy with non_blocking=True, no .item() or print in the loop",
    preset="analysis/read_backs",
    evidence=("readbacks", "efficiency", "what_if"),
)
LAUNCH = refine(
    HOST,
    rules.launches,
    key="launch-bound",
    title="Launch-bound",
    rule="host-bound, gaps shorter than 20 us on average, and no single range or call but launches is most of it",
    sentence="GPUs idle {share} of {whole} in short gaps between launches{waits}",
    places=where.find_launches,
    hint="launch less: CUDA graphs, torch.compile, fused or larger kernels and optimizers, larger batches",
)
LAUNCH_FUSIBLE = refine(
    LAUNCH,
    rules.launches_what_fuses,
    rule="launch-bound, but GPUs compute at least half of the time, mostly in kernels that can be fused",
    hint="fuse small kernels first (torch.compile, fused layers): fewer launches, less memory traffic; CUDA graphs",
)
QUEUED = Bottleneck(
    key="queued",
    title="Operations start late, though they were launched in time",
    rule="no bound saves 5%, and GPU idle time between queued operations, or in CUDA graphs, is the largest loss",
    loss=("queued_ns", "graph_ns"),
    sentence=_OF_TIME,
    places=where.find_queued,
    hint="look for dependencies: events, blocking streams, small nodes of graphs; use more streams",
    preset="analysis/queue_delay",
    evidence=("efficiency", "gpus"),
)
UNEXPLAINED = Bottleneck(
    key="unexplained gaps",
    title="GPU gaps that the report does not explain",
    rule="GPU idle time without a recorded launch is the largest loss, and no bound saves as much",
    loss=("unknown_ns",),
    sentence=_OF_TIME,
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

BOTTLENECKS = tuple(each for each in list(globals().values()) if isinstance(each, Bottleneck))
"""All classes and variants, in the order of their declarations, in which judge.py asks for them."""
