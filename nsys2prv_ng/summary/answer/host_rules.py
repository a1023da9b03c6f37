"""Rules of the variants of host-bound jobs, and of the remedies for hosts: what they launch, read back and wait for."""

from __future__ import annotations

from nsys2prv_ng.summary.answer.case import (
    HALF,
    HOST_BOUND,
    LEAST,
    MUCH,
    NO_READBACKS,
    Case,
    count_operator_ranges,
    is_launch,
    is_worth,
    keeps_kernels,
)
from nsys2prv_ng.summary.answer.rules import FUSED, WITH_HOST, are_most, computes_what_fuses
from nsys2prv_ng.summary.gpus.host_causes import LOADING, PREPARING, CauseTime, HostCause
from nsys2prv_ng.summary.memory.numbers import ALLOCATOR_CALLS, MemoryOperationNumbers
from nsys2prv_ng.summary.readbacks.numbers import ReadbackNumbers
from nsys2prv_ng.text.names import HOST_FUNCTION

_SHORT_GAP_NS = 20_000
"""Gaps shorter than this on average are those between launches: a launch takes 5 to 10 us in an eager framework."""
_OFTEN = 2
"""Least copies in a step that are more than the data of the step, or its loss.

nbody copies five arrays at each launch, flaxtrain reads four losses, compiled ten means."""
_TRIES = 40
"""Least waits for events in a step that are more than those of data parallelism: 8 in ddp-2x2, 208 in counting."""
_FEW_BYTES = 1024
"""Most bytes of a copy that reads values, not data: flaxtrain reads four losses of 4 bytes, llmserve 32 tokens."""
_ALIKE = 0.9
"""Least ratio of two numbers that are about the same: a choice."""
_RECURS = 3
"""Fewest gaps in which kernels are loaded that no single step explains (1 in nbody-a, 8 in llmserve-a)."""


def calls_mpi(case: Case) -> bool:
    """Return whether hosts were mostly in MPI calls while GPUs were idle."""
    return case.host_mpi_calls.total() > HALF * case.host_calls.total()


def waits_or_moves_in_mpi(case: Case) -> bool:
    """Return whether hosts were mostly in MPI calls, and most MPI time over ranks may be wait or transfer."""
    unsplit = sum(mpi.unsplit_ns for mpi in case.mpi)
    return calls_mpi(case) and unsplit > HALF * sum(mpi.mpi_ns for mpi in case.mpi)


def waits_for_host_functions(case: Case) -> bool:
    """Return whether GPUs were idle longer while streams waited for host functions than while hosts launched late."""
    waits = sum(ns for name, ns in case.queued_waits.items() if name.startswith(HOST_FUNCTION))
    return waits > case.host_calls.total()


def opens_operator_ranges(case: Case) -> bool:
    """Return whether NVTX ranges of operators slow the host."""
    return case.host_calls.total() > 0 and count_operator_ranges(case.summary) > 0


def waits_for_gil(case: Case) -> bool:
    """Return whether threads of Python wait for its lock: half a thread of each process or more, on average.

    Half is a choice: in both programs `server`, whose threads launch one at a time, it is more than one.
    """
    return case.window is not None and case.gil_ns >= HALF * case.window.numbers.length_ns * case.summary.users[1] > 0


def allocates(case: Case) -> bool:
    """Return whether hosts mostly allocated or freed memory while GPUs were idle."""
    return are_most([call for call in case.host_calls if call.startswith(ALLOCATOR_CALLS)], case.host_calls)


def list_host_causes(case: Case) -> dict[HostCause, CauseTime]:
    """Return why hosts launched late, the longest time first, but for what happens once, and copies that come back."""
    causes = dict(case.host_causes)
    if LOADING in causes and causes[LOADING].gaps < _RECURS:
        del causes[LOADING]
    if copies_to_and_fro(case):
        causes.pop(PREPARING, None)
    return causes


def find_host_cause(case: Case) -> HostCause | None:
    """Return why hosts launched late for much of the time; None if reports do not show it."""
    cause, time = next(iter(list_host_causes(case).items()), (None, CauseTime([])))
    return cause if time.ns > MUCH * case.host_calls.total() else None


def tunes(case: Case) -> bool:
    """Return whether a library tries its algorithms in steps: it loads kernels, and waits for an event after each."""
    waits = sum(call.count for call in case.summary.calls if call.name.startswith("cudaEventSynchronize"))
    is_often = waits >= _TRIES * case.counted_steps * case.summary.users[1] > 0
    return "Convolution" in case.compute_by_class and find_host_cause(case) is LOADING and is_often


def reads_back(case: Case) -> bool:
    """Return whether GPUs are idle after read-backs for most of the time in which hosts are late, and need not be.

    If another range or call without its host time saves more, hosts do that work after they have read.
    """
    is_known = case.summary.what_if is not None
    idle = sum(each.idle_ns if is_known else each.lost_ns for each in case.readbacks)
    if case.losses is None or idle <= HALF * case.losses.host_ns:
        return False
    if not is_known:
        return True
    saved = next((each for each in case.scenarios if each.only == NO_READBACKS and is_worth(each)), None)
    if saved is None or saved.share <= HALF * idle / case.gpu_ns:
        return False
    return not any(each.saving_ns > saved.saving_ns for each in case.changes if keeps_kernels(each.changes[0]))


def list_reads(case: Case) -> list[ReadbackNumbers]:
    """Return the read-backs in which hosts copy to themselves, or only synchronise."""
    return [each for each in case.readbacks if each.reads or not each.operation]


def measure_idle_by_reads(case: Case) -> int:
    """Return for how long GPUs are idle at most (ns) because hosts wait for copies to them, or only synchronise."""
    return 0 if find_small_reads(case) is not None else sum(each.lost_ns for each in list_reads(case))


def find_small_reads(case: Case) -> MemoryOperationNumbers | None:
    """Return the copies to the host, if they are small, several a step, and GPUs mostly wait for another thread.

    As in JAX, that thread copies for the one that launches.
    """
    back = _find_copies(case, "device to host")
    if back is None or not _are_often(case, back.count) or back.bytes > _FEW_BYTES * back.count:
        return None
    return back if are_most(["futex"], case.host_calls) else None


def breaks_graphs(case: Case) -> bool:
    """Return whether torch.compile made kernels, hosts read values several times a step, and GPUs idle after that."""
    compiled = any(kernel.name.startswith(FUSED) for kernel in case.summary.kernels)
    reads = [each for each in case.readbacks if each.reads]
    is_much = sum(each.idle_ns for each in reads) >= LEAST * case.gpu_ns > 0
    return compiled and is_much and _are_often(case, sum(each.count for each in reads))


def _are_often(case: Case, count: int) -> bool:
    """Return whether something happens several times in each step of each rank."""
    return count >= _OFTEN * case.counted_steps * case.summary.users[1] > 0


def launches(case: Case) -> bool:
    """Return whether gaps of GPUs are as short as those between launches, and nothing but launches causes them."""
    bound, whole = case.bounds.get(HOST_BOUND), case.host_calls.total()
    gain = 0 if bound is None else bound.saving_ns
    removed = [each for each in case.changes if not each.changes[0].factor and not is_launch(each.changes[0])]
    gaps = sum(count for _, count in case.host_gaps.values())
    is_short = whole > 0 and whole / max(gaps, 1) < _SHORT_GAP_NS
    return is_short and not any(each.saving_ns > HALF * gain for each in removed)


def launches_what_fuses(case: Case) -> bool:
    """Return whether GPUs compute half of the time, mostly in kernels that compilers fuse, and no compiler has."""
    losses = case.losses
    return losses is not None and losses.compute_ns >= HALF * case.gpu_ns and computes_what_fuses(case)


def copies_to_and_fro(case: Case) -> bool:
    """Return whether as many bytes go back to the host as come from it, in as many copies, several in each step.

    What MPI sends from hosts has to.
    """
    there, back = (_find_copies(case, end) for end in WITH_HOST)
    if there is None or back is None or case.mpi_calls or not _are_often(case, there.count):
        return False
    return _are_alike(there.count, back.count) and _are_alike(there.bytes, back.bytes)


def _find_copies(case: Case, end: str) -> MemoryOperationNumbers | None:
    return next((each for each in case.copies if each.operation == f"Memcpy {end}"), None)


def _are_alike(one: int, other: int) -> bool:
    return min(one, other) >= _ALIKE * max(one, other)
