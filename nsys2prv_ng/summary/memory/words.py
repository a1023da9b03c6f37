"""Names who uses a GPU."""

from __future__ import annotations

from nsys2prv_ng.summary.memory.numbers import GpuMemory
from nsys2prv_ng.text.formatting import format_ranks, join_first
from nsys2prv_ng.text.names import clean_name

_MOST_TASKS = 3


def name_users(gpu: GpuMemory) -> str:
    """Return the ranks, or else the tasks, that use a GPU, for a text."""
    return format_ranks(gpu.ranks) if gpu.ranks else join_first([clean_name(task) for task in gpu.tasks], _MOST_TASKS)
