"""Declares the classes of busy GPUs, and of ranks and steps that differ: compute, communication, copies, slow steps.

bottlenecks.py says what a class is.
"""

from __future__ import annotations

from dataclasses import replace

from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay.changes import Change
from nsys2prv_ng.summary.answer import rules, where
from nsys2prv_ng.summary.answer.bottleneck import Bottleneck, refine
from nsys2prv_ng.summary.answer.case import COPY_BOUND, IF_BOUND, NETWORK_BOUND, WAIT_BOUND

_IN_GRAPHS = "the report does not have the kernels inside the graphs"
OF_TIME = "{share} of {whole}"
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
    sentence=OF_TIME,
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
    sentence=OF_TIME,
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
