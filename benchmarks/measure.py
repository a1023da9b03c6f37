"""Measures what a command costs, for the other benchmarks: time, and the memory of all its processes together.

Shared pages count once: memory is the sum of PSS of the command and its descendants, from /proc/PID/smaps_rollup (Linux
only), sampled ten times a second, or less often where that would take more than a tenth of the time. The `anonymous`
part of it is the processes' own memory, without the pages of files that they have mapped, which the kernel takes back
when it needs them. Files in memory (memfd) count in both, and whole, whether they are mapped or only open.
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

OURS = (sys.executable, "-m", "nsys2prv_ng")
KINDS = ("states", "events", "communications")
"""Kinds of lines of a .prv, which begin with 1, 2 and 3."""
_INTERVAL_S = 0.1


@dataclass(frozen=True)
class Cost:
    """Time in seconds, memory in bytes."""

    wall: float
    cpu: float
    """User and system time of all processes."""
    pss: int
    """Highest sum of PSS of all processes."""
    anonymous: int
    """Highest sum of its anonymous part."""
    max_rss: int
    """Highest resident set of a single process, as the kernel accounts it."""


def measure_cost(command: Sequence[str | Path], folder: Path | None = None, output: Path | None = None) -> Cost:
    """Run a command in a folder and return its cost; write what it prints to a file, if there is to be one.

    Raises SystemExit with the end of what it printed if it fails.
    """
    if not Path("/proc/thread-self/children").exists():
        raise SystemExit("this kernel does not list the children of a process (CONFIG_PROC_CHILDREN)")
    with ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile())
        printed = errors if output is None else stack.enter_context(output.open("wb"))
        start = time.perf_counter()
        process = subprocess.Popen(
            list(map(str, command)), cwd=folder, env=_make_environment(), stdout=printed, stderr=errors
        )
        sampler = _Sampler(process.pid)
        sampler.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        sampler.stop()
        if process.returncode:
            errors.seek(0)
            tail = errors.read()[-2000:].decode(errors="replace")
            raise SystemExit(f"{' '.join(map(str, command))[:300]}: exit code {process.returncode}\n{tail}")
    cpu = usage.ru_utime + usage.ru_stime
    return Cost(wall, cpu, sampler.pss, sampler.anonymous, usage.ru_maxrss * 1024)


def _make_environment() -> dict[str, str]:
    """Return the environment of this process, with Python's cache of compiled modules: installed programs have it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def median(costs: Sequence[Cost]) -> Cost:
    """Return the median of each figure."""
    return Cost(*(statistics.median(getattr(cost, field.name) for cost in costs) for field in fields(Cost)))


class _Sampler(threading.Thread):
    """Watches the memory of a process and its descendants."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self._root, self._ended = root, threading.Event()
        self.pss = self.anonymous = 0

    def run(self) -> None:
        took = 0.0
        while not self._ended.wait(max(_INTERVAL_S, 10 * took)):
            start = time.perf_counter()
            tree = _list_tree(self._root)
            together = [_read_memory(pid) for pid in tree]
            in_files = _measure_memory_files(tree)
            self.pss = max(self.pss, in_files + sum(pss for pss, _ in together))
            self.anonymous = max(self.anonymous, in_files + sum(anonymous for _, anonymous in together))
            took = time.perf_counter() - start

    def stop(self) -> None:
        self._ended.set()
        self.join()


def _list_tree(root: int) -> list[int]:
    """Return the ids of a process and its descendants."""
    pids = [root]
    for pid in pids:  # grows in the loop
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):  # it has ended
                pids += map(int, children.read_text().split())
    return pids


def _read_memory(pid: int) -> tuple[int, int]:
    """Return the PSS of a process and its anonymous part, in bytes; 0 once it has ended.

    Both are without shared memory: `_measure_memory_files` counts all pages of files in memory, also those that are
    mapped.
    """
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0, 0
    kilobytes = {
        name: int(size) for name, size in re.findall(r"^(Pss|Pss_Anon|Pss_Shmem):\s+(\d+) kB", text, re.MULTILINE)
    }
    pss = kilobytes.get("Pss", 0) - kilobytes.get("Pss_Shmem", 0)
    return pss * 1024, kilobytes.get("Pss_Anon", 0) * 1024


def _measure_memory_files(tree: Sequence[int]) -> int:
    """Return the bytes of the files in memory that any of the processes has open, each counted once."""
    sizes = {}
    for pid in tree:
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                if str(descriptor.readlink()).startswith("/memfd:"):
                    status = descriptor.stat()
                    sizes[status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def count_lines(prv: Path) -> dict[str, int]:
    """Return the number of lines of each of KINDS in a trace."""
    counts = dict.fromkeys(KINDS, 0)
    last = b""
    with prv.open("rb") as file:
        while block := file.read(1 << 24):
            block = last + block
            for number, kind in enumerate(KINDS, 1):
                counts[kind] += block.count(b"\n%d:" % number)
            last = block[-2:]  # too short to be counted twice
    return counts


def describe_machine() -> dict[str, str | int]:
    """Return the CPU, cores, memory and Python of this machine."""
    model = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    return {
        "cpu": model[1] if model else platform.machine(),
        "cores": os.cpu_count() or 1,
        "memory_gb": round(int(memory[1]) / 1e6) if memory else 0,
        "python": platform.python_version(),
    }


def make_measurement(who: str, reports: int, lines: dict[str, int], size: int, costs: Sequence[Cost]) -> dict[str, Any]:
    """Return a row of a file of measurements: medians of the runs, the limits of their time, and what they wrote."""
    walls = [cost.wall for cost in costs]
    return {
        "who": who,
        "reports": reports,
        **lines,
        "records": sum(lines.values()),
        "bytes": size,
        "runs": len(costs),
        **asdict(median(costs)),
        "wall_least": min(walls),
        "wall_most": max(walls),
    }


def save(path: Path, command: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write a file of measurements."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"command": command, "machine": describe_machine(), "measurements": list(rows)}, indent=1) + "\n"
    )
