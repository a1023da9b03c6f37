"""Names who uses a GPU, and describes memory that leaks."""

from __future__ import annotations

from nsys2prv_ng.summary.memory.numbers import GpuMemory, MemoryNumbers
from nsys2prv_ng.text.formatting import count_noun, format_bytes, format_percent, format_ranks, join_first
from nsys2prv_ng.text.names import clean_name, describe_place, quote_name

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
    text = (
        f"{name_users(gpu) or f'GPU {gpu.gpu}'}: device memory in use grows by {format_bytes(growth)} a step,"
        f" {format_bytes(growth * gpu.steps)} in {count_noun(gpu.steps, 'step')}"
    )
    whole = gpu.more_kept_bytes + sum(kept.bytes for kept in gpu.kept)
    if not whole:
        return text
    most = gpu.kept[0]
    call = f", by {quote_name(most.call)}" if most.call else ""
    return f"{text}; {format_percent(most.bytes, whole)} of what stays was allocated {describe_place(most.range)}{call}"
