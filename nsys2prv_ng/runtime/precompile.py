"""Compiles kernels before they are called: in other processes while a command begins, or all of them for later runs.

Numba compiles one function at a time in a process. A first run therefore starts processes that compile what it needs
last, while it reads reports and compiles what it needs first. `python -m nsys2prv_ng.runtime.precompile PART PARTS
ROOM...` is such a process: it compiles one of several parts of the kernels of rooms, and ends with its standard input.

The types that numba compiles a kernel for are derived from the annotations of its arguments. A test compares these
types with those of real calls.
"""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import numba
import numpy as np
from numba.core import types as nb
from numba.core.dispatcher import Dispatcher
from numba.np.numpy_support import from_dtype

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.runtime.jit import search
from nsys2prv_ng.runtime.limits import count_usable_cores
from nsys2prv_ng.text.names import clean_name
from nsys2prv_ng.version import __version__

_PACKAGE = Path(__file__).resolve().parents[1]
_LATE = ("analysis", "intervals", "operations", "clock")
FOR_TRANSLATE = ("paraver", *_LATE)
FOR_SUMMARY = ("replay", "summary", *_LATE)
"""Rooms with the kernels that a command needs after it has read its reports, the last ones first."""
ALL = (*FOR_SUMMARY, *FOR_TRANSLATE[:1], "sources", "steps", "reading", "records", "report", "arrays", "runtime")
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
            if "\n@compiled" in path.read_text(encoding="utf-8"):
                found.append(".".join([_PACKAGE.name, *path.relative_to(_PACKAGE).with_suffix("").parts]))
    return found


class Kernels(NamedTuple):
    """Numbers of kernels: all, and those of them that were compiled now. The machine code of the others was loaded."""

    total: int
    compiled: int


def compile_modules(modules: Sequence[str]) -> Kernels:
    """Compile the kernels of modules whose machine code is not kept."""
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
    optimized = ["-" + "O" * sys.flags.optimize] * bool(sys.flags.optimize)  # it has machine code of its own
    with suppress(OSError):
        for part in range(count):
            command = [sys.executable, *optimized, "-c", _RUN, str(_PACKAGE.parent), str(part), str(count), *rooms]
            pipe = subprocess.PIPE
            started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors))
    return started


def _find_mark(rooms: Sequence[str]) -> Path | None:
    """Return the file that exists if the kernels of rooms were compiled; None without a folder to keep them."""
    folder = find_folder()
    python = f"{sys.implementation.cache_tag}-O{sys.flags.optimize}"
    name = f"compiled-{'-'.join(rooms)}-{__version__}-numba-{numba.__version__}-{python}"
    return None if folder is None else folder / name


def _mark(rooms: Sequence[str]) -> None:
    """Note that the kernels of rooms were compiled."""
    mark = _find_mark(rooms)
    if mark is not None:
        with suppress(OSError):
            mark.touch()


def find_folder() -> Path | None:
    """Return numba's cache folder for this package, or None if none can be written."""
    folder = getattr(getattr(search, "_cache", None), "cache_path", None)
    return None if folder is None else Path(folder)


def _end_with_input() -> None:
    """End this process when its standard input does, because the process at the other end no longer needs it."""
    sys.stdin.buffer.read()
    os._exit(1)


_join: Any = nb.BaseTuple.from_types
Types = tuple[nb.Type, ...]
_SCALARS = {int: nb.int64, float: nb.float64, bool: nb.boolean}


def list_kernels(module: types.ModuleType) -> list[tuple[Dispatcher, Types]]:
    """Return the kernels of a module, each with the types of its arguments, and again for other types of a TypeVar.

    Skip kernels whose annotations do not say all types: they are compiled within those that call them. The machine code
    of an inlined one is a part of its callers.
    """
    found = [value for value in vars(module).values() if isinstance(value, Dispatcher)]
    own = [kernel for kernel in found if kernel.py_func.__module__ == module.__name__]
    kernels = [kernel for kernel in own if not kernel.targetoptions.get("forceinline")]
    return [(kernel, kinds) for kernel in kernels for kinds in derive_types(kernel.py_func)]


def derive_types(function: Any) -> list[Types]:
    """Return the types of the arguments of a function, for each type of a TypeVar; none if some are unknown."""
    hints = get_type_hints(function, include_extras=True)
    hints.pop("return", None)
    variables = {variable for hint in hints.values() for variable in getattr(hint, "__parameters__", ())}
    assert len(variables) <= 1, function
    choices: Any = [element for variable in variables for element in variable.__constraints__ or [Any]] or [None]
    derived = [[_derive(_choose(hint, element)) for hint in hints.values()] for element in choices]
    return [tuple(kinds) for kinds in derived if None not in kinds]


def _choose(hint: Any, element: Any) -> Any:
    """Return an annotation with a type instead of its TypeVar, if it has one."""
    return hint[element] if getattr(hint, "__parameters__", ()) else hint


def _derive(hint: Any) -> Any:
    """Return numba's type for an annotation; None for one that does not say it."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if isinstance(hint, type) and hasattr(hint, "_fields"):
        parts = [_derive(part) for part in get_type_hints(hint, include_extras=True).values()]
        return None if None in parts else _join(parts, hint)
    if get_origin(hint) is tuple:
        parts = [_derive(part) for part in get_args(hint)]
        return None if None in parts else _join(parts)
    if get_origin(hint) is Annotated:
        return _derive_array(get_args(hint)[0], get_args(hint)[1:])
    return _derive_array(hint, ())


def _derive_array(hint: Any, extras: Any) -> Any:
    """Return the type of an array, given what its annotation says beside its element, as arrays/types.py names it."""
    element = _find_element(hint)
    if not isinstance(element, type) or element is Any:
        return None
    dimensions = next((extra for extra in extras if isinstance(extra, int)), 1)
    return nb.Array(from_dtype(np.dtype(element)), dimensions, "C", readonly="read-only" in extras)


def _find_element(hint: Any) -> Any:
    """Return the type of the elements of an NDArray; Any if its annotation does not say it.

    An NDArray is ndarray[shape, dtype[element]]; since numpy 2.5 it is an alias whose only argument is the element.
    """
    match get_args(hint):
        case (element,):
            return element
        case (_, dtype):
            return get_args(dtype)[0]
    return Any


if __name__ == "__main__":
    Thread(target=_end_with_input, daemon=True).start()
    print(*compile_modules(list_modules(sys.argv[3:])[int(sys.argv[1]) :: int(sys.argv[2])]), flush=True)
    os._exit(0)
