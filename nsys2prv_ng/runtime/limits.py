"""Finds out how much of the machine a job may use, and keeps a process from using more than it needs."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path

from nsys2prv_ng.value_class import ValueClass

_TO_READ, _TO_HOLD = 4, 2
"""Bytes of memory to read one byte of an export, and to hold what was read: measured were 1.4 to read a report of calls
and kernels, and 3.5 to read one that is mostly context switches and samples."""

BESIDE_READING = 400 << 20
"""Bytes of memory that the program takes beside events, with a small report that it reads."""

_KEPT_FREE = 1 << 30
"""Bytes of freed memory that the C library keeps at the end of its heap; it always keeps free memory below the end."""

KEPT_BY_WORKER = 128 << 20
"""Most freed memory that a worker process keeps (bytes): many run at once."""

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
"""Numbers of the settings in glibc's malloc.h."""


def keep_freed_memory(kept: int = _KEPT_FREE) -> None:
    """Let glibc reuse freed memory instead of returning it: the kernel has to clear new pages first.

    `kept`: most bytes at the end of the heap that stay.
    """
    with suppress(OSError, AttributeError):  # another C library
        set_option = ctypes.CDLL(None).mallopt
        set_option(_M_TRIM_THRESHOLD, kept)
        set_option(_M_MMAP_MAX, 0)  # large arrays are in the heap, too
        set_option(_M_ARENA_MAX, 1)  # glibc returns the heaps of threads as soon as they are empty


def give_back_freed_memory() -> None:
    """Let glibc return freed memory to the system. Call it where much was freed and what follows needs less."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def allow_more_files() -> bool:
    """Let this process open as many files as it may; return whether these are more than before."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft != hard


class _NoPandas:
    """A finder of modules that refuses pandas."""

    is_on = False

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> None:
        if cls.is_on and name == "pandas":
            raise ModuleNotFoundError(f"{name} is not needed yet", name=name)


def refuse_pandas() -> None:
    """Let imports of pandas fail in this process, and in those forked from it, until `allow_pandas` is called.

    pyarrow imports it with the first array that it makes, in order to convert arrays, which nothing here lets it do.
    That takes 0.2 s and 40 MB of each process. A command owns its process, so it may refuse that; a Python program may
    not. None in sys.modules would not do: pyarrow takes that for pandas.
    """
    _NoPandas.is_on = True
    if _NoPandas not in sys.meta_path:
        sys.meta_path.insert(0, _NoPandas)


def allow_pandas() -> None:
    """Let imports of pandas succeed. Call this before a module that needs it is imported."""
    _NoPandas.is_on = False  # the finder stays: another thread may be going through the list


_GROUPS, _MOUNTED = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
"""Where Linux lists the control groups of a process, and where they are."""


def count_usable_cores(groups: Path = _GROUPS, mounted: Path = _MOUNTED) -> int:
    """Return the number of cores that this process may use.

    This is the least of those that it may run on, those whose time its control groups (a job, a container) may use, and
    those that Slurm gave to it: a task has its own, and a batch script those of its job on the node.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    limits = [len(affinity(0)) if affinity else os.cpu_count() or 1]
    for group in list_control_groups("cpu", groups, mounted):
        times = _read_numbers(group / "cpu.max") or [
            *_read_numbers(group / "cpu.cfs_quota_us"),
            *_read_numbers(group / "cpu.cfs_period_us"),
        ]
        if len(times) == 2 and min(times) > 0:
            limits.append(-(-times[0] // times[1]))
    given = os.environ.get("SLURM_CPUS_PER_TASK" if "SLURM_STEP_ID" in os.environ else "SLURM_CPUS_ON_NODE", "")
    return max(1, min([*limits, int(given)] if given.isdecimal() else limits))


def get_default_memory(groups: Path = _GROUPS, mounted: Path = _MOUNTED) -> int:
    """Return a quarter of the memory (bytes) of the machine or of its control group (a job, a container)."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for group in list_control_groups("memory", groups, mounted):
        limits += [*_read_numbers(group / "memory.max"), *_read_numbers(group / "memory.limit_in_bytes")]
    return min(limits) // 4


def _read_numbers(file: Path) -> list[int]:
    """Return the numbers in a file; none if it is missing, or has other words, such as "max"."""
    try:
        return [int(word) for word in file.read_text().split()]
    except (OSError, ValueError):
        return []


def list_control_groups(controller: str, groups: Path, mounted: Path) -> list[Path]:
    """Return the folders that may have limits of a controller: this process's control group and all groups around it.

    Version 1 of control groups has a tree for each controller, version 2 has one for all.
    """
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            root = mounted / controller if controllers else mounted
            group = root / name.lstrip("/")
            folders += [folder for folder in (group, *group.parents) if folder.is_relative_to(root)]
    return folders


class Resources(ValueClass):
    """Limits of a job: reports to read and blocks to format at once, bytes of memory, a folder to spill to."""

    jobs: int = field(default_factory=count_usable_cores)
    memory: int = field(default_factory=get_default_memory)
    """Memory for reading, then for the events that are kept until all reports are read."""
    folder: Path | None = None
    """None for the folder of the trace: on many compute nodes the temporary folder is small or in memory."""

    def count_readers(self, sizes: Sequence[int]) -> int:
        """Return the number of reports (of these sizes in bytes) to read at once without exceeding the memory."""
        return min(max(1, len(sizes)), self._count_fitting(_TO_READ * max(sizes, default=0)))

    def must_exceed(self, largest: int) -> bool:
        """Return whether it takes more than the memory to read a report (bytes): at least as much as it has itself."""
        return largest > self.memory + BESIDE_READING

    def count_workers(self, largest: int) -> int:
        """Return the number of pieces of work to do at once, each of which holds what was read of a report (bytes)."""
        return self._count_fitting(_TO_HOLD * largest)

    def _count_fitting(self, size: int) -> int:
        return max(1, min(self.jobs, self.memory // max(1, size)))
