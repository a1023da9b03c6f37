"""Rules of the classes of bottlenecks and of their variants: whether a job is in each.

A rule looks at a case alone. judge.py asks those of a class before those of its variants, so that a rule of a variant
expects a job that is in its class.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from nsys2prv_ng.paraver.value_tables import MEMORY_KINDS, communicates
from nsys2prv_ng.sources.cuda.kernel_classes import WHOLE_GRAPH, find_number_types
from nsys2prv_ng.summary.answer.case import CLEAR, COPY_BOUND, HALF, HOST_BOUND, LEAST, NETWORK_BOUND, Case
from nsys2prv_ng.summary.answer.stragglers import find_more_compute
from nsys2prv_ng.summary.sums import sum_by_key

_COMPUTES = 0.8
"""Least share of compute in GPU time at which a job is compute-bound (docs/reference/bottlenecks.md).

A choice: all else together saves at most a fifth then."""
_SLOW_SHARE = 0.25
"""Least part of the steps' time that a few slow steps cost to be the bottleneck (docs/reference/bottlenecks.md).

A choice: too small, and a few steps hide what limits all others."""
_MANY = 10
"""Fewest usual steps beside a single slow one that matter more than it does, unless it costs most of the time.

A choice: a capture of ten steps and more shows what recurs. In nbody-a, 1 of 128 compiles a kernel, and in patches-a, 1
of 15 has a validation: the cures are those of the other steps."""
_SLOWEST_SHARE, _SLOWEST_FACTOR, _EARLY = 1 / 3, 5, 1 / 4
"""A step is start-up if it takes this share of all steps and this many times the median, and is in this first part.

The rule of docs/reference/bottlenecks.md; the step of tpgraph-1x4 that loads libraries is one (TRUTHS of
test_answer.py)."""
FUSIBLE = ("Elementwise", "Copy, cast or fill", "Reduction", "Normalisation", "Softmax or loss", "Optimizer")
"""Classes of kernels that do little work for each byte, and that compilers fuse."""
_SOFTMAX = re.compile(r"softmax_warp_(forward|backward)|cunn_SoftMax(Forward|Backward)")
"""Kernels of PyTorch's softmax; those of losses have log in their names."""
_PYTORCH = re.compile(r"\w*elementwise_kernel\w*|multi_tensor_apply_kernel")
"""Kernels of PyTorch that nearly every program of it has."""
_CASTS = ("vectorized_elementwise_kernel", "Copy, cast or fill")
"""The kernel and class of PyTorch's casts of whole tensors to 16 bits."""
_PRODUCTS_IN_16_BITS = ("GEMM BF16", "GEMM FP16")
_LEAST_ROWS_NS = 1_000_000
"""Least mean time of a gradient of indexing that adds up rows that recur: in molecules, 23 ms for each of the tables of
12 rows, and 0.12 ms for those whose rows hardly recur."""
_LEAST_SOFTMAX = 0.05
"""Least share of softmax in kernel time at which attention is written out: a third of what it has in genome (17%)."""
FUSED = ("triton_poi_", "triton_red_", "triton_per_")
"""Beginnings of the names of kernels that torch.compile fuses."""
_CHAINED = 0.75
"""Least part of the copies of all GPUs that a step must gain without them for them to be a chain.

A choice: in oneproc-4gpu each GPU waits for the copy of the one before it (TRUTHS of test_answer.py)."""
_STAGED = 0.1
"""Least time of copies between hosts and GPUs, as a part of the MPI time, at which messages may pass through hosts.

A choice: no copies surround the messages of m-big (test_messages_and_their_size)."""
HOST_MEMORY = PAGEABLE, PINNED = MEMORY_KINDS[1], MEMORY_KINDS[2]
INSIDE, _MIGRATION = "inside", "Migration"
"""Kinds of copies: parts of their names and of those of their memory; INSIDE is within a GPU."""
WITH_HOST = ("host to device", "device to host")
"""Ends of the names of copies from and to host memory."""
_LARGE_COPY = 1 << 20
"""Bytes of copies that pinned memory makes several times as fast: those of heat (33.6 MB: 54 for 9.3 GB/s)."""
_LARGE_BYTES = 8 << 20
"""Messages from this size on gain little from being larger: most of their time is that of their bytes."""
_COLLECTIVES = re.compile(r"MPI_(All|Bcast|Reduce|Gather|Scatter|Scan|Exscan|Barrier|Neighbor_)")


# ---- slow steps ------------------------------------------------------------------------------------------------------


def has_slow_steps(case: Case) -> bool:
    """Return whether a few slow steps cost much of the time; for one of many, which may not recur, most of it."""
    slow = case.slow_steps
    if slow is None:
        return False
    is_one = len(slow.slow) == 1 and len(slow.usual) >= _MANY
    return slow.share >= (HALF if is_one else _SLOW_SHARE)


def has_slow_start(case: Case) -> bool:
    """Return whether the only slow step is early and takes so long that it is no step as the others are."""
    slow, steps = case.slow_steps, case.summary.steps
    if slow is None or steps is None or slow.share < _SLOW_SHARE:
        return False
    step = slow.slow[0]
    is_early = step.number - steps.first < _EARLY * steps.count
    least = max(_SLOWEST_SHARE * slow.whole_ns, _SLOWEST_FACTOR * slow.median_ns)
    return len(slow.slow) == 1 and is_early and step.length_ns >= least


# ---- compute ---------------------------------------------------------------------------------------------------------


def computes(case: Case) -> bool:
    """Return whether GPUs compute nearly all the time, and faster kernels would save time: no host sets the pace.

    A host that costs about as much as steps vary by sets the pace in one run of a program, and not in the next.
    """
    if case.losses is None or case.losses.compute_ns < _COMPUTES * case.gpu_ns:
        return False
    return not is_paced_by_host(case) or case.bounds[HOST_BOUND].saving_ns < CLEAR * case.noise_ns


def is_paced_by_host(case: Case) -> bool:
    """Return whether hosts set the pace, and are worth a change."""
    limit = None if case.summary.what_if is None else case.summary.what_if.limited_by
    bound = case.bounds.get(HOST_BOUND)
    is_limited = limit is not None and limit.what == "host" and limit.share > HALF
    return is_limited and bound is not None and bound.share >= LEAST


def computes_in_graphs(case: Case) -> bool:
    """Return whether most compute is in CUDA graphs that were traced as a whole."""
    return case.compute_by_class.get(WHOLE_GRAPH, 0) > HALF * sum(case.compute_by_class.values())


def computes_what_fuses(case: Case) -> bool:
    """Return whether most compute is in kernels that compilers fuse, and no compiler has."""
    classes, kernels = case.compute_by_class, case.summary.kernels
    fused = sum(kernel.total_ns for kernel in kernels if kernel.name.startswith(FUSED))
    if fused and fused >= LEAST * sum(kernel.total_ns for kernel in kernels):
        return False
    return are_most(FUSIBLE, classes)


def runs_python(case: Case) -> bool:
    """Return whether the job is one of Python."""
    facts = case.summary.facts
    return facts is not None and any(name.startswith("python") for name in facts.programs)


def trains(case: Case) -> bool:
    """Return whether PyTorch chooses kernels and their precision: a simulation over MPI needs the one that it has."""
    is_pytorch = any(_PYTORCH.fullmatch(kernel.name) for kernel in case.summary.kernels)
    return is_pytorch and runs_python(case) and not case.mpi_calls


def attends_unfused(case: Case) -> bool:
    """Return whether softmax takes long, as between the two products of attention, and no fused attention runs."""
    times = case.compute_by_class
    softmax = sum(each.total_ns for each in case.summary.kernels if _SOFTMAX.match(each.name))
    whole = sum(each.total_ns for each in case.summary.kernels)
    return "Attention" not in times and softmax >= _LEAST_SOFTMAX * whole > 0


def casts_weights(case: Case) -> bool:
    """Return whether casts take most compute, and are as many as products in 16 bits: each casts its weights.

    In decoder, 71% and more than one for each; in genome, 37%. Fills of gradients, which have the same name, are fewer.
    """
    products = sum(each.count for each in case.summary.kernels if each.kernel_class in _PRODUCTS_IN_16_BITS)
    casts = [each for each in case.summary.kernels if (each.name, each.kernel_class) == _CASTS]
    is_most = sum(each.total_ns for each in casts) > HALF * sum(each.total_ns for each in case.summary.kernels)
    return trains(case) and is_most and sum(each.count for each in casts) >= products > 0


def adds_row_by_row(case: Case) -> bool:
    """Return whether gradients of indexing take long for each launch, as where few rows recur often."""
    found = [each for each in case.summary.kernels if each.name.startswith("indexing_backward_kernel")]
    return sum(each.total_ns for each in found) >= _LEAST_ROWS_NS * sum(each.count for each in found) > 0


def convolves_in_16_bits(case: Case) -> bool:
    """Return whether most time of convolutions is in 16 bits already."""
    kernels = [each for each in case.summary.kernels if each.kernel_class == "Convolution"]
    types = find_number_types([each.name for each in kernels], ["Convolution"] * len(kernels))
    sums = sum_by_key((name, each.total_ns) for name, each in zip(types, kernels, strict=True))
    return sums["BF16"] + sums["FP16"] > HALF * sums.total()


def find_largest_class(case: Case) -> str:
    """Return the class of kernels with most compute time; "" without any."""
    return next(iter(case.compute_by_class), "")


def runs_opaque_graphs(case: Case) -> bool:
    """Return whether half of the GPU time is in CUDA graphs that were traced as a whole and may contain NCCL."""
    return case.losses is not None and case.losses.whole_graph_ns >= HALF * case.gpu_ns


# ---- waits -----------------------------------------------------------------------------------------------------------


def lacks_payload(case: Case) -> bool:
    """Return whether NCCL calls of a report have no payload."""
    return case.summary.waits is not None and case.summary.waits.reports_without_payload > 0


def waits_in_messages(case: Case) -> bool:
    """Return whether most waits are for NCCL, and most of these in sends and receives."""
    in_nccl = sum(rank.caused_wait_ns for rank in case.ranks)
    in_messages = sum(rank.caused_in_messages_ns for rank in case.ranks)
    return in_nccl > HALF * sum(rank.all_caused_ns for rank in case.ranks) and in_messages > HALF * in_nccl


def has_slow_stage(case: Case) -> bool:
    """Return whether one stage of a pipeline sets the pace."""
    pipeline = None if case.summary.waits is None else case.summary.waits.pipeline
    return pipeline is not None and pipeline.pace is not None


def waits_for_one(case: Case) -> bool:
    """Return whether one rank causes most waits, those aside in which it had waited for another one."""
    alone = [rank.all_caused_ns - inherited for rank, inherited in case.inherited]
    return max(alone, default=0) > HALF * sum(rank.all_caused_ns for rank in case.ranks)


def waits_for_compute(case: Case) -> bool:
    """Return whether the GPU of the rank that others wait for computes longer than theirs."""
    number, ranks = case.rank_to_change, case.inherited
    ranks.sort(key=lambda item: (number is None or item[0].rank != number, item[1] - item[0].all_caused_ns))
    return bool(ranks) and find_more_compute(case, ranks[0][0]) is not None


# ---- transfer and copies ---------------------------------------------------------------------------------------------


def moves_large_messages(case: Case) -> bool:
    """Return whether most NCCL time with known sizes is in large messages."""
    rates = [] if case.summary.waits is None else case.summary.waits.bandwidth
    large = sum(each.ns for each in rates if each.bytes >= _LARGE_BYTES)
    return bool(case.nccl_kernels) and large > HALF * sum(each.ns for each in rates)


def moves_by_mpi(case: Case) -> bool:
    """Return whether there are MPI calls, and no kernels that communicate; MPI may copy between GPUs."""
    return bool(case.summary.mpi) and all(map(communicates, case.communication))


def copies_around_mpi(case: Case) -> bool:
    """Return whether copies between hosts and GPUs take so long that messages may pass through hosts."""
    copies = [each for each in case.copies if each.operation.endswith(WITH_HOST)]
    return sum(each.total_ns for each in copies) >= _STAGED * sum(case.mpi_calls.values())


def moves_in_mpi_collectives(case: Case) -> bool:
    """Return whether most MPI time is in collectives."""
    calls = case.mpi_calls
    return are_most(filter(_COLLECTIVES.match, calls), calls)


def copies_in_chain(case: Case) -> bool:
    """Return whether copies between GPUs run one after the other: without them, a step is shorter by all of them."""
    losses, bound = case.losses, case.bounds.get(COPY_BOUND)
    if losses is None or bound is None or losses.devices < 2 or not case.gpu_ns:
        return False
    return bound.share >= _CHAINED * losses.devices * sum(each.total_ns for each in case.copies_between) / case.gpu_ns


def copies_communicate(case: Case) -> bool:
    """Return whether most time of copies and sets is that of communication."""
    times = {each.operation: each.total_ns for each in case.summary.memory_operations}
    return are_most(filter(communicates, times), times)


def moves_by_copies(case: Case) -> bool:
    """Return whether copies between GPUs are half of what an ideal network saves, or most communication on GPUs.

    If MPI moves the data, it makes them.
    """
    copies, whole = case.bounds.get(COPY_BOUND), case.bounds.get(NETWORK_BOUND)
    between = [each.operation for each in case.copies_between]
    if moves_by_mpi(case) or case.has_copy_engines:
        return False
    if copies is not None and whole is not None and copies_communicate(case):
        return copies.saving_ns > HALF * whole.saving_ns
    return are_most(between, case.communication)


def moves_without_nccl(case: Case) -> bool:
    """Return whether most communication on GPUs is kernels or copies that are not NCCL's."""
    return are_most(case.summary.other_communication, case.communication)


def sum_copies(case: Case) -> Counter[str]:
    """Return the time (ns) of copies within GPUs, and of those from or to pinned and other memory of hosts."""
    times = Counter[str]()
    for copies in case.copies:
        if not copies.operation.endswith(WITH_HOST) or copies.operation.startswith(_MIGRATION):
            times[INSIDE] += copies.total_ns
        else:
            pinned = sum(part.total_ns for part in copies.by_memory if PINNED in (part.source, part.destination))
            times[PINNED] += pinned
            times["other"] += copies.total_ns - pinned
    return times


def copies_pageable(case: Case) -> bool:
    """Return whether most time of copies is that of large ones from pageable memory."""
    parts = [part for copies in case.copies for part in copies.by_memory]
    large = [part for part in parts if part.count and part.bytes >= _LARGE_COPY * part.count]
    pageable = sum(part.total_ns for part in large if part.source == PAGEABLE)
    return pageable > HALF * sum(part.total_ns for part in parts)


def migrates(case: Case) -> bool:
    """Return whether unexplained gaps may end with migrations, which no call launches: there are as many of these."""
    causes = (cause for gpu in case.summary.gpus for cause in gpu.idle_causes or [])
    gaps = sum(cause.gaps for cause in causes if cause.cause == "unknown")
    copies = case.summary.memory_operations
    return sum(each.count for each in copies if each.operation.startswith(_MIGRATION)) >= max(gaps, 1)


def are_most(names: Iterable[str], times: Mapping[str, int]) -> bool:
    """Return whether some of the times (ns) are more than half of all."""
    return sum(times.get(name, 0) for name in names) > HALF * sum(times.values())
