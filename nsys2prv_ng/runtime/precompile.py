"""Compiles kernels before they are called: in other processes while a command begins, or all of them for later runs.

Numba compiles one function at a time in a process. A first run therefore starts processes that compile what it needs
last, while it reads reports and compiles what it needs first. `python -m nsys2prv_ng.runtime.precompile PART PARTS
ROOM...` is such a process: it compiles one of several parts of the kernels of rooms, and ends with its standard input.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import numba

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.runtime.kernels import search
from nsys2prv_ng.runtime.limits import count_usable_cores
from nsys2prv_ng.text.names import clean_name
from nsys2prv_ng.version import __version__

_PACKAGE = Path(__file__).resolve().parents[1]
_LATE = ("analysis", "intervals", "operations", "clock")
FOR_TRANSLATE = ("paraver", *_LATE)
FOR_SUMMARY = ("replay", "summary", *_LATE)
"""Rooms with the kernels that a command needs after it has read its reports, the last ones first."""
ALL = (*FOR_SUMMARY, *FOR_TRANSLATE[:1], "sources", "job", "records", "report", "arrays", "runtime")
_RUN = """
import sys
folder = sys.argv.pop(1)
sys.path[:] = [path for path in sys.path if path]
if folder not in sys.path:
    sys.path.insert(0, folder)
import runpy
runpy.run_module("nsys2prv_ng.runtime.precompile", run_name="__main__", alter_sys=True)
"""
"""Runs this module of this package. With `-m`, a copy of the package in the current folder would come first."""
_MOST_PROCESSES = 4
"""Each takes about 250 MB."""


def list_modules(rooms: Sequence[str]) -> list[str]:
    """Return the names of the modules of rooms that have kernels."""
    found = []
    for room in rooms:
        for path in sorted((_PACKAGE / room).rglob("*.py")):
            if "runtime.jit import compiled" in path.read_text(encoding="utf-8"):
                found.append(".".join([_PACKAGE.name, *path.relative_to(_PACKAGE).with_suffix("").parts]))
    return found


class Kernels(NamedTuple):
    """Numbers of kernels: all, and those of them that were compiled now. The machine code of the others was loaded."""

    total: int
    compiled: int


def compile_modules(modules: Sequence[str]) -> Kernels:
    """Compile the kernels of modules whose machine code is not kept."""
    from nsys2prv_ng.runtime.signatures import list_kernels

    kernels = {}
    for module in modules:
        for kernel, kinds in list_kernels(import_module(module)):
            kernel.compile(kinds)
            kernels[kernel] = bool(kernel.stats.cache_misses)
    return Kernels(len(kernels), sum(kernels.values()))


@contextmanager
def compile_ahead(rooms: Sequence[str]) -> Iterator[None]:
    """Let other processes compile the kernels of rooms meanwhile, unless that was done before or no core is free."""
    mark, processes = _find_mark(rooms), []
    if mark is not None and not mark.exists():
        processes = _start(rooms, min(count_usable_cores(), _MOST_PROCESSES) - 1)
    try:
        yield
    finally:
        if processes and all(process.poll() == 0 for process in processes):
            _mark(rooms)
        for process in processes:
            process.kill()
            process.communicate()


def compile_all() -> Kernels:
    """Compile all kernels whose machine code is not kept, with all cores.

    Raises TranslationError if a process that compiles fails.
    """
    processes = _start(ALL, min(count_usable_cores(), _MOST_PROCESSES), subprocess.PIPE)
    done = [_finish(process) for process in processes]
    if processes:
        _mark(FOR_TRANSLATE)
        _mark(FOR_SUMMARY)
    return Kernels(sum(each.total for each in done), sum(each.compiled for each in done))


def _finish(process: subprocess.Popen[bytes]) -> Kernels:
    """Wait for a process, and return the numbers of its kernels."""
    assert process.stdout is not None and process.stderr is not None
    counts, errors = process.stdout.read(), process.stderr.read().decode(errors="replace")
    if process.wait() == 0:
        return Kernels(*map(int, counts.split()))
    raise TranslationError(f"kernels cannot be compiled: {clean_name((errors.splitlines() or ['killed'])[-1])}")


def _start(rooms: Sequence[str], count: int, errors: int = subprocess.DEVNULL) -> list[subprocess.Popen[bytes]]:
    """Start processes that compile the kernels of rooms; none if that is not possible. `errors`: their stderr."""
    started = []
    with suppress(OSError):
        for part in range(count):
            command = [sys.executable, "-c", _RUN, str(_PACKAGE.parent), str(part), str(count), *rooms]
            pipe = subprocess.PIPE
            started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors))
    return started


def _find_mark(rooms: Sequence[str]) -> Path | None:
    """Return the file that exists if the kernels of rooms were compiled; None without a folder to keep them."""
    folder = find_folder()
    name = f"compiled-{'-'.join(rooms)}-{__version__}-numba-{numba.__version__}"
    return None if folder is None else folder / name


def _mark(rooms: Sequence[str]) -> None:
    """Note that the kernels of rooms were compiled."""
    mark = _find_mark(rooms)
    if mark is not None:
        with suppress(OSError):
            mark.touch()


def find_folder() -> Path | None:
    """Return the folder that keeps the machine code of this room, beside those of others; None if none can."""
    folder = getattr(getattr(search, "_cache", None), "cache_path", None)
    return None if folder is None else Path(folder)


def _end_with_input() -> None:
    """End this process when its standard input does, because the process at the other end no longer needs it."""
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    Thread(target=_end_with_input, daemon=True).start()
    print(*compile_modules(list_modules(sys.argv[3:])[int(sys.argv[1]) :: int(sys.argv[2])]), flush=True)
    os._exit(0)
