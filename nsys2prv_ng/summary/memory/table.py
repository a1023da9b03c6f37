"""Tables on device memory, what is in use and what stays in use; and of copies.

And sentences on memory that leaks.
"""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.paraver.value_tables import MEMORY_KINDS
from nsys2prv_ng.summary.memory.numbers import GpuMemory, MemoryKindNumbers, MemoryNumbers, MemoryOperationNumbers
from nsys2prv_ng.text import grid
from nsys2prv_ng.text.formatting import count_noun, format_bytes, format_percent, format_ranks, join_first
from nsys2prv_ng.text.grid import Bytes, Cell, Column, Count, Grid, Growth, Moment, Name, Ns, Rate, make_columns
from nsys2prv_ng.text.names import NO_RANGE, clean_name, describe_place, quote_name

_HOST_MEMORY = {MEMORY_KINDS[1], MEMORY_KINDS[2]}
"""Kinds of host memory, pageable and pinned: they make copies slow or fast."""


def list_memory_tables(memory: MemoryNumbers, time: str) -> list[Grid]:
    """Return the tables for a terminal: that of all GPUs, and those of what leaks. `time`: what numbers cover."""
    kept = [tabulate_kept([gpu]) for gpu in memory.leaks]
    return [tabulate_memory(memory, time), *kept]


def tabulate_memory(memory: MemoryNumbers, time: str, shift_ns: int = 0) -> Grid:
    """Return the memory in use on each GPU. `shift_ns`: added to the times of peaks."""
    return grid.tabulate(
        memory.gpus,
        [
            ("GPU", lambda gpu: grid.show_gpu(gpu.node, gpu.gpu)),
            ("", lambda gpu: grid.show_users(name_users(gpu), gpu.ranks)),
            ("peak", lambda gpu: Bytes(gpu.peak_bytes)),
            (
                Column("in step", optional=True),
                lambda gpu: "" if gpu.peak_step is None else grid.Ordinal(gpu.peak_step),
            ),
            (Column("at", minor=True), lambda gpu: Moment(gpu.peak_at_ns + shift_ns)),
            ("at start", lambda gpu: Bytes(gpu.begin_bytes)),
            ("at end", lambda gpu: Bytes(gpu.end_bytes)),
            ("growth per step", lambda gpu: Growth(gpu.growth_per_step)),
        ],
        caption=f"Device memory in use in {time}",
        names=2,
        more="GPUs",
        weights=[(abs(gpu.growth_per_step or 0), gpu.peak_bytes) for gpu in memory.gpus],
    )


def tabulate_kept(gpus: Sequence[GpuMemory]) -> Grid:
    """Return where the memory was allocated that stays in use, on each GPU."""
    rows: list[list[Cell]] = []
    for gpu in gpus:
        for kept in gpu.kept:
            place = Name(kept.range or NO_RANGE), Name(kept.call or "(not recorded)")
            rows.append([grid.show_gpu(gpu.node, gpu.gpu), *place, Count(kept.count), Bytes(kept.bytes)])
    columns = make_columns("GPU", "NVTX range", "call", "allocations", "size")
    caption = "Device memory that was allocated in this time and stays in use"
    return Grid(caption=caption, columns=columns, rows=rows, names=3, more="places")


def tabulate_memory_operations(operations: Sequence[MemoryOperationNumbers]) -> Grid:
    """Return copies and sets by kind, most bytes first, and copies from or to the host also by kind of memory."""
    rows: list[list[Cell]] = []
    for copies in operations:
        rows.append(_make_copies_row(copies.operation, copies))
        if any(_HOST_MEMORY.intersection((part.source, part.destination)) for part in copies.by_memory):
            for part in copies.by_memory:
                rows.append(_make_copies_row(f"  {part.source} to {part.destination}".lower(), part))
    columns = make_columns("copies and sets", "count", "size", "each", "time", "rate")
    return Grid(columns=columns, rows=rows, more="kinds")


def _make_copies_row(name: str, copies: MemoryOperationNumbers | MemoryKindNumbers) -> list[Cell]:
    sizes = Bytes(copies.bytes), Bytes(copies.bytes / copies.count)
    return [Name(name), Count(copies.count), *sizes, Ns(copies.total_ns), Rate.measure(copies.bytes, copies.rated_ns)]


# ---- in words --------------------------------------------------------------------------------------------------------

_MOST_TASKS = 3


def name_users(gpu: GpuMemory) -> str:
    """Return the ranks, or else the tasks, that use a GPU, for a text."""
    return format_ranks(gpu.ranks) if gpu.ranks else join_first([clean_name(task) for task in gpu.tasks], _MOST_TASKS)


_LEAK_HINT = "a leak? keep no tensors of earlier steps: use .item() or .detach()"


def describe_leaks(memory: MemoryNumbers | None) -> str:
    """Return a sentence on the GPU whose memory leaks most, and the number of others; "" without any."""
    leaks = [] if memory is None else memory.leaks
    if not leaks:
        return ""
    text = describe_leak(leaks[0])
    more = f"; {count_noun(len(leaks) - 1, 'more GPU')}: --details" if len(leaks) > 1 else ""
    return f"{text}; {_LEAK_HINT}{more}"


def describe_leak(gpu: GpuMemory) -> str:
    """Return how memory of a GPU grows, and where most of what stays was allocated."""
    growth = gpu.growth_per_step or 0
    text = f"{name_users(gpu) or f'GPU {gpu.gpu}'}: device memory in use grows by {format_bytes(growth)} a step"
    text += f", {format_bytes(growth * gpu.steps)} in {count_noun(gpu.steps, 'step')}"
    whole = gpu.more_kept_bytes + sum(kept.bytes for kept in gpu.kept)
    if not whole:
        return text
    most = gpu.kept[0]
    call = f", by {quote_name(most.call)}" if most.call else ""
    return f"{text}; {format_percent(most.bytes, whole)} of what stays was allocated {describe_place(most.range)}{call}"
