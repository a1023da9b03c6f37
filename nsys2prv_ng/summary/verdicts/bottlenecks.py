"""The classes of bottlenecks: when each applies, what to try, and the preset that shows it.

docs/reference/bottlenecks.md has the same table, which a test compares. The hints are fixed texts, not conclusions from
the reports.
"""

from __future__ import annotations

from typing import NamedTuple


class Bottleneck(NamedTuple):
    """A class of bottlenecks. `rule`: when a job is in it, in words; judge.py applies the rules from top to bottom."""

    key: str
    title: str
    rule: str
    hint: str
    preset: str
    evidence: tuple[str, ...]
    """Keys of the JSON of a summary with the numbers."""


START_UP = Bottleneck(
    "start-up only",
    "Start-up only",
    "one step is slow, in the first quarter; it takes a third of the time of all and at least five times the median",
    "count that step as warm-up: choose later steps with --steps, or start the capture later",
    "analysis/slow_steps",
    ("slow_steps", "steps"),
)
SLOW_STEPS = Bottleneck(
    "slow steps",
    "Slow steps",
    "at most a third of four or more steps take twice the median or more, and they cost a quarter of the time of all",
    "find what only these steps do: new shapes (pad, bucket, warm up), checkpoints, evaluation, data, library loads",
    "analysis/slow_steps",
    ("slow_steps", "steps", "efficiency"),
)
SLOW = (START_UP.key, SLOW_STEPS.key)
"""Classes of which one or a few slow steps are the cause."""
COMPUTE = Bottleneck(
    "compute-bound",
    "Compute-bound",
    "GPUs compute at least 80% of the time and no host sets the pace, or half of it and nothing else saves 5%",
    "make the largest kernels cheaper: lower precision, fused or better kernels, larger tiles, less work",
    "analysis/kernel_classes",
    ("efficiency", "kernels"),
)
COMPUTE_FP32 = COMPUTE._replace(
    title="Compute-bound, in FP32 matrix products",
    rule="compute-bound, and GEMM FP32 is the largest kernel class",
    hint="use tensor cores: BF16 or FP16 autocast, or TF32 (torch.set_float32_matmul_precision('high'))",
)
COMPUTE_FUSIBLE = COMPUTE._replace(
    title="Compute-bound, in kernels that can be fused",
    rule="compute-bound, mostly in elementwise, copy, reduction, norm, loss and optimizer kernels; no torch.compile",
    hint="fuse small kernels (a compiler such as torch.compile, fused layers and optimizers); avoid casts and copies",
)
COMPUTE_16 = COMPUTE._replace(
    rule="compute-bound, and matrix products with operands of 16 bits or less are the largest kernel class",
    hint="larger or fewer matrix products (they use 16 bits or less already), FP8, fused layers",
)
COMPUTE_ATTENTION = COMPUTE._replace(
    title="Compute-bound, in attention",
    rule="compute-bound, and attention is the largest kernel class",
    hint="fuse the kernels around attention (torch.compile); use its newest fused kernels; shorter or packed sequences",
)
COMPUTE_OPAQUE = COMPUTE._replace(
    title="Compute-bound, in opaque CUDA graphs",
    rule="compute-bound, and most compute is in CUDA graphs that were traced as a whole",
    hint="capture again with --cuda-graph-trace=node to see which kernels of the graphs take long",
)
OPAQUE = Bottleneck(
    "opaque CUDA graphs",
    "Opaque CUDA graphs",
    "at least half of the GPU time is in CUDA graphs that were traced as a whole and may contain NCCL",
    "capture again with --cuda-graph-trace=node to see what the graphs do",
    "basics/graphs",
    ("efficiency",),
)
UNCLASSIFIED = Bottleneck(
    "unclassified communication",
    "Exposed communication, transfer or wait unknown",
    "NCCL kernels that may wait or transfer data are the largest loss, and at least a quarter of the GPU time",
    "include the reports of all ranks: a kernel is classified by when the other ranks start",
    "analysis/exposed_communication",
    ("efficiency", "waits"),
)
UNCLASSIFIED_PAYLOAD = UNCLASSIFIED._replace(
    rule="unclassified communication, and NCCL calls have no payload",
    hint="export again with nsys export --include-json true, so that ranks can be matched",
)
UNCLASSIFIED_MPI = UNCLASSIFIED._replace(
    rule="host-bound, most of it in MPI calls, and most MPI time may be wait or transfer",
    preset="basics/mpi",
    evidence=("waits", "mpi"),
)
STRAGGLER = Bottleneck(
    "wait for a straggler",
    "Wait for a straggler",
    "waits are the largest gain and one rank causes most of them, or one rank as fast as the others saves at least "
    "half of the largest gain",
    "speed up what makes that rank late, or give it less work; check its CPU binding and its data",
    "analysis/waited_for",
    ("waits", "what_if"),
)
STRAGGLER_COMPUTES = STRAGGLER._replace(
    rule="wait for a straggler, and its GPU computes at least a tenth longer than the median of the others",
    hint="give that rank less work (lengths, batches, experts), or make its kernels faster; check its GPU's clocks",
)
PIPELINE = Bottleneck(
    "pipeline bubble",
    "Pipeline bubble",
    "waits are the largest gain, and most waits for NCCL are in sends and receives",
    "use more micro-batches, balance the stages, or interleave them",
    "analysis/pipeline_bubble",
    ("waits.pipeline", "waits", "what_if"),
)
PIPELINE_UNBALANCED = PIPELINE._replace(
    rule="pipeline bubble, and one stage works longer than the others",
    hint="balance the stages: give the stage that sets the pace fewer layers; then use more micro-batches",
)
IMBALANCE = Bottleneck(
    "imbalance",
    "Imbalance: ranks wait for each other",
    "waits are the largest gain, and no rank causes most of them",
    "balance the work of the ranks; bind processes to cores; synchronise less often",
    "analysis/waited_for",
    ("waits", "what_if"),
)
TRANSFER = Bottleneck(
    "exposed transfer",
    "Exposed communication",
    "an ideal network is the largest gain",
    "compare busbw with your link; send fewer bytes; larger buckets; overlap with compute",
    "analysis/exposed_communication",
    ("efficiency", "waits", "what_if"),
)
TRANSFER_LARGE = TRANSFER._replace(
    rule="exposed transfer, and most NCCL time with known sizes is in messages of 8 MiB or more",
    hint="send fewer bytes (16-bit gradients); overlap with compute; compare busbw with your link",
)
TRANSFER_MPI = TRANSFER._replace(
    rule="exposed transfer, and no NCCL kernels: MPI moves the data",
    hint="start messages earlier and overlap them with compute; send fewer bytes",
    preset="basics/mpi",
    evidence=("waits", "mpi", "what_if"),
)
TRANSFER_MPI_COLLECTIVES = TRANSFER_MPI._replace(
    rule="exposed transfer over MPI, and most of it in collectives",
    hint="overlap collectives with compute (MPI_Iallreduce and alike); reduce fewer bytes, in fewer calls",
)
TRANSFER_MPI_STAGED = TRANSFER_MPI._replace(
    rule="exposed transfer over MPI, and copies between hosts and GPUs take at least a tenth of the MPI time",
    hint="use GPU-aware MPI, which needs no copies to the host; overlap messages with compute; send fewer bytes",
)
TRANSFER_GATHER = TRANSFER._replace(
    rule="exposed transfer, and AllGather takes most NCCL time, as with sharded parameters",
    hint="gather less if memory allows (ZeRO-2, reshard_after_forward=False); prefetch; 16-bit parameters, gradients",
)
TRANSFER_MESSAGES = TRANSFER._replace(
    rule="exposed transfer, and sends and receives take most NCCL time",
    hint="overlap sends with compute; send fewer bytes; check that NCCL uses the fast network between nodes",
)
COPIES = Bottleneck(
    "copies",
    "Copies",
    "free copies are the largest gain",
    "use pinned memory and asynchronous copies on a stream of their own; keep data on the GPU",
    "basics/memory_operations",
    ("memory_operations", "what_if"),
)
COPIES_PEER = COPIES._replace(
    rule="copies, most of them between GPUs",
    hint="overlap copies between GPUs with compute; make fewer and larger ones; check that peers have NVLink",
)
COPIES_CHAIN = COPIES_PEER._replace(
    rule="copies, most of them between GPUs, which run one after the other",
    hint="these copies wait for each other: let them run at once (streams, events), or use a collective of NCCL",
)
COPIES_PINNED = COPIES._replace(
    rule="copies, most of them from or to pinned memory",
    hint="memory is pinned already: copy less (keep data on the GPU, no offload); hide copies behind compute",
)
COPIES_INSIDE = COPIES._replace(
    rule="copies, most of them within a GPU, sets or migrations",
    hint="avoid copies within a GPU (in place, contiguous layouts, gradient_as_bucket_view); prefetch managed memory",
)
HOST = Bottleneck(
    "host-bound",
    "Host-bound",
    "an ideal host is the largest gain",
    "move this work off the main thread (workers, prefetch), make it faster, or overlap it with GPU work",
    "analysis/gpu-gaps",
    ("efficiency", "gpus", "what_if"),
)
HOST_ALLOCATES = HOST._replace(
    title="Host-bound, in calls that allocate",
    rule="host-bound, and most of it in calls that allocate or free memory",
    hint="allocate once and reuse: no empty_cache() in the loop, a caching allocator or cudaMallocAsync",
)
HOST_MPI = HOST._replace(
    title="Host-bound, in MPI calls",
    rule="host-bound, and most of it in MPI calls",
    hint="include the reports of all ranks, to tell wait from transfer; overlap messages with compute, or send fewer",
    preset="basics/mpi",
    evidence=("efficiency", "mpi", "what_if"),
)
HOST_SYNCHRONISES = HOST._replace(
    title="Host-bound, in calls that synchronise",
    rule="host-bound, most of it in calls that synchronise, or these calls without time save as much as an ideal host",
    hint="synchronise less: no .item(), print or blocking copy in the loop; use streams and events",
)
LAUNCH = Bottleneck(
    "launch-bound",
    "Launch-bound",
    "host-bound, gaps shorter than 20 us on average, and no single range or call but launches is most of it",
    "launch less: CUDA graphs, torch.compile, fused or larger kernels and optimizers, larger batches",
    "analysis/gpu-gaps",
    ("efficiency", "gpus", "what_if"),
)
LAUNCH_OPTIMIZER = LAUNCH._replace(
    rule="launch-bound, and ranges named after an optimizer launch at least a third of all operations",
    hint="use a fused or foreach optimizer first; then CUDA graphs, torch.compile, larger batches",
)
LAUNCH_FUSIBLE = LAUNCH._replace(
    rule="launch-bound, but GPUs compute at least half of the time, mostly in kernels that can be fused",
    hint="fuse small kernels first (torch.compile, fused layers): fewer launches, less memory traffic; CUDA graphs",
)
INSTRUMENTED = HOST._replace(
    title="Host-bound, slowed by NVTX ranges of operators",
    rule="host-bound or launch-bound, and PyTorch's NVTX ranges of operators are at least as many as kernels",
    hint="capture again without NVTX ranges of operators (emit_nvtx, --pytorch=autograd-nvtx): they slow the host",
)
QUEUED = Bottleneck(
    "queued",
    "Operations start late, though they were launched in time",
    "no bound saves 5%, and GPU idle time between queued operations, or in CUDA graphs, is the largest loss",
    "look for dependencies: events, blocking streams, small nodes of graphs; use more streams",
    "analysis/queue_delay",
    ("efficiency",),
)
UNEXPLAINED = Bottleneck(
    "unexplained gaps",
    "GPU gaps that the report does not explain",
    "no bound saves 5%, and GPU idle time without a recorded launch is the largest loss",
    "record the CUDA API on all processes (--trace=cuda); trace unified memory; sample the CPU",
    "analysis/gpu-gaps",
    ("efficiency",),
)
UNEXPLAINED_MIGRATIONS = UNEXPLAINED._replace(
    title="GPU gaps without a launch, as managed memory migrates",
    rule="unexplained gaps, and at least as many migrations of managed memory",
    hint="prefetch managed memory (cudaMemPrefetchAsync, cudaMemAdvise), so that GPUs do not wait for page faults",
    preset="basics/unified_memory",
)
NOTHING = Bottleneck(
    "nothing to gain",
    "Nothing to gain from a single change",
    "none of the above: nothing saves or loses 5% of a step",
    "look at the largest kernels and ranges (--details)",
    "views/cuda_activities",
    ("efficiency", "what_if"),
)

BOTTLENECKS = (
    *(START_UP, SLOW_STEPS, COMPUTE, COMPUTE_FP32, COMPUTE_FUSIBLE, COMPUTE_16, COMPUTE_ATTENTION, COMPUTE_OPAQUE),
    *(
        OPAQUE,
        UNCLASSIFIED,
        UNCLASSIFIED_PAYLOAD,
        UNCLASSIFIED_MPI,
        PIPELINE,
        PIPELINE_UNBALANCED,
        STRAGGLER,
        STRAGGLER_COMPUTES,
        IMBALANCE,
    ),
    *(
        TRANSFER,
        TRANSFER_GATHER,
        TRANSFER_MESSAGES,
        TRANSFER_LARGE,
        TRANSFER_MPI,
        TRANSFER_MPI_STAGED,
        TRANSFER_MPI_COLLECTIVES,
    ),
    *(COPIES, COPIES_CHAIN, COPIES_PEER, COPIES_PINNED, COPIES_INSIDE),
    *(
        HOST_MPI,
        INSTRUMENTED,
        HOST_ALLOCATES,
        HOST_SYNCHRONISES,
        LAUNCH_OPTIMIZER,
        LAUNCH_FUSIBLE,
        LAUNCH,
        HOST,
        QUEUED,
        UNEXPLAINED,
        UNEXPLAINED_MIGRATIONS,
        NOTHING,
    ),
)
"""All classes, in the order of the rules."""
OVERLAPPED = (TRANSFER, TRANSFER_LARGE, TRANSFER_MESSAGES)
"""Classes whose hint is overlap with kernels, which NCCL's kernels slow: both need the GPU and its memory."""
