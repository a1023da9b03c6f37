"""Tables on device memory, what is in use, allocations and allocator calls, what stays in use; and of copies."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.paraver.value_tables import MEMORY_KINDS
from nsys2prv_ng.summary.memory.numbers import GpuMemory, MemoryKindNumbers, MemoryNumbers, MemoryOperationNumbers
from nsys2prv_ng.summary.memory.words import name_users
from nsys2prv_ng.text.grid import Bytes, Cell, Column, Count, Grid, Growth, Moment, Name, Ns, Rate, make_columns
from nsys2prv_ng.text.names import NO_RANGE

_HOST_MEMORY = {MEMORY_KINDS[1], MEMORY_KINDS[2]}
"""Kinds of host memory, pageable and pinned: they make copies slow or fast."""


def list_memory_tables(memory: MemoryNumbers, time: str) -> list[Grid]:
    """Return the tables for a terminal: those of all GPUs, of calls, and of what leaks. `time`: what numbers cover."""
    kept = [tabulate_kept([gpu]) for gpu in memory.leaks]
    return [tabulate_memory(memory, time), tabulate_allocations(memory), tabulate_allocator_calls(memory), *kept]


def tabulate_memory(memory: MemoryNumbers, time: str, shift_ns: int = 0) -> Grid:
    """Return the memory in use on each GPU. `shift_ns`: added to the times of peaks."""
    rows: list[list[Cell]] = []
    for gpu in memory.gpus:
        peak: list[Cell] = [
            Bytes(gpu.peak_bytes),
            "" if gpu.peak_step is None else f"{gpu.peak_step}",
            Moment(gpu.peak_at_ns + shift_ns),
            Name(f"{gpu.peak_range or NO_RANGE}, {gpu.peak_call}" if gpu.peak_call else ""),
        ]
        use: list[Cell] = [Bytes(gpu.begin_bytes), Bytes(gpu.end_bytes), Growth(gpu.growth_per_step)]
        rows.append([Name(f"{gpu.node} GPU {gpu.gpu}"), Name(name_users(gpu)), *peak, *use])
    return Grid(
        caption=f"Device memory in use in {time}",
        columns=make_columns(
            *("GPU", "", "peak", Column("in step", optional=True), Column("at", minor=True)),
            *(Column("allocated in", wide=True, optional=True), "at start", "at end", "growth per step"),
        ),
        rows=rows,
        names=2,
        more="GPUs",
        weights=[(abs(gpu.growth_per_step or 0), gpu.peak_bytes) for gpu in memory.gpus],
    )


def tabulate_allocations(memory: MemoryNumbers) -> Grid:
    """Return the allocations and frees of each GPU, and its allocator calls, per step; without steps, all of them."""
    rows: list[list[Cell]] = []
    for gpu in memory.gpus if any(gpu.allocator_calls or gpu.allocations or gpu.frees for gpu in memory.gpus) else ():
        steps = gpu.steps if memory.steps else 1
        counts = gpu.allocations, gpu.frees, gpu.allocator_calls
        sizes = gpu.allocated_bytes, gpu.freed_bytes
        times = gpu.allocator_ns, gpu.blocking_ns
        made, freed, called = (Count(_divide(count, steps)) for count in counts)
        made_size, freed_size = (Bytes(size / steps if steps else None) for size in sizes)
        whole, blocking = (Ns(ns / steps if steps else None) for ns in times)
        cells: list[Cell] = [made, made_size, freed, freed_size, called, whole, blocking]
        rows.append([Name(f"{gpu.node} GPU {gpu.gpu}"), *cells])
    each = " per step" if memory.steps else ""
    return Grid(
        caption=f"Device memory allocated and freed, and calls of allocators{each}",
        columns=make_columns(
            *("GPU", "allocated", Column("size", minor=True), "freed", Column("size", minor=True)),
            *(Column("calls", minor=True), "time of calls", "blocking"),
        ),
        rows=rows,
        more="GPUs",
        weights=[(gpu.allocator_ns, gpu.allocated_bytes) for gpu in memory.gpus],
    )


def _divide(count: int, steps: int) -> float | None:
    """Return a count per step, with one digit if it is no whole number; None without steps."""
    if not steps:
        return None
    return count // steps if count % steps == 0 else round(count / steps, 1)


def tabulate_allocator_calls(memory: MemoryNumbers) -> Grid:
    """Return the calls of allocators by name."""
    rows: list[list[Cell]] = [
        [
            Name(call.name),
            "yes" if call.blocking else "no",
            Count(call.count),
            Ns(call.total_ns),
            Ns(call.total_ns / call.count),
            Ns(call.max_ns),
        ]
        for call in memory.calls
    ]
    columns = make_columns("allocator call", "may block", "count", "time", "mean", "longest")
    return Grid(columns=columns, rows=rows, names=2, more="calls")


def tabulate_kept(gpus: Sequence[GpuMemory]) -> Grid:
    """Return where the memory was allocated that stays in use, on each GPU."""
    rows: list[list[Cell]] = [
        [
            Name(f"{gpu.node} GPU {gpu.gpu}"),
            Name(kept.range or NO_RANGE),
            Name(kept.call or "(not recorded)"),
            Count(kept.count),
            Bytes(kept.bytes),
        ]
        for gpu in gpus
        for kept in gpu.kept
    ]
    columns = make_columns("GPU", "NVTX range", "call", "allocations", "size")
    caption = "Device memory that was allocated in this time and stays in use"
    return Grid(caption=caption, columns=columns, rows=rows, names=3, more="places")


def tabulate_memory_operations(operations: Sequence[MemoryOperationNumbers]) -> Grid:
    """Return copies and sets by kind, most bytes first, and copies from or to the host also by kind of memory."""
    rows: list[list[Cell]] = []
    for copies in operations:
        rows.append(_make_copies_row(copies.operation, copies))
        if any(_HOST_MEMORY.intersection((part.source, part.destination)) for part in copies.by_memory):
            rows += [
                _make_copies_row(f"  {part.source} to {part.destination}".lower(), part) for part in copies.by_memory
            ]
    columns = make_columns("copies and sets", "count", "size", "each", "time", "rate")
    return Grid(columns=columns, rows=rows, more="kinds")


def _make_copies_row(name: str, copies: MemoryOperationNumbers | MemoryKindNumbers) -> list[Cell]:
    return [
        Name(name),
        Count(copies.count),
        Bytes(copies.bytes),
        Bytes(copies.bytes / copies.count),
        Ns(copies.total_ns),
        Rate.measure(copies.bytes, copies.rated_ns),
    ]
