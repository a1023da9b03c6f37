"""What of the machine a translation may use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_TO_READ = 8
"""Bytes of memory that reading takes for each byte of an export: 2 to 3 where most are numbers, more for texts."""

_MOST_THREADS = 16
"""Threads that format: they keep up with any disk, and the blocks that they have in hand are in memory."""


def count_usable_cores() -> int:
    """Cores that this process may use: those of its Slurm step, where it runs in one."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def get_default_memory() -> int:
    """A quarter of the memory (bytes) that the machine has, or that its control group (a job, a container) may use."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in list_control_group_limits():
        try:
            limits.append(int(file.read_text()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return min(limits) // 4


def list_control_group_limits(
    groups: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")
) -> list[Path]:
    """Files that may hold a limit of memory: of this process's control group and of all that it is in."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return []
    files = []
    for line in lines:
        _, controllers, name = line.split(":", 2)
        root, limit = mounted, "memory.max"
        if "memory" in controllers.split(","):
            root, limit = root / "memory", "memory.limit_in_bytes"
        elif controllers:
            continue
        group = root / name.lstrip("/")
        files += [folder / limit for folder in (group, *group.parents) if folder.is_relative_to(root)]
    return files


@dataclass(frozen=True)
class Resources:
    """Reports to read and blocks to format at once; bytes of memory; a folder for what does not fit."""

    jobs: int = field(default_factory=count_usable_cores)
    memory: int = field(default_factory=get_default_memory)
    """For reading, then for the events that wait until all reports are read."""
    folder: Path | None = None
    """By default that of the trace: the temporary one is small or in memory on many compute nodes."""

    @property
    def threads(self) -> int:
        """How many blocks to format or compress at once."""
        return min(self.jobs, _MOST_THREADS)

    def processes(self, export_sizes: Sequence[int]) -> int:
        """How many reports to read at once, so that it does not take more than the memory."""
        largest = max(export_sizes, default=0)
        return max(1, min(self.jobs, len(export_sizes), self.memory // max(1, _TO_READ * largest)))
