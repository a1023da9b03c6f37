"""Compiles functions with numba, keeps their machine code from one run to the next, and has a search and a median.

The code is in the first of these folders that this user can write, and only root as well: NUMBA_CACHE_DIR, the
__pycache__ beside the module, numba/ in XDG_CACHE_HOME or ~/.cache. `machine_code` keeps and checks it.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numba as nb
import numpy as np
import numpy.typing as npt
from numba.core import event
from numba.core.options import DefaultOptions
from numba.core.types import unliteral

from nsys2prv_ng.runtime import machine_code

Function = TypeVar("Function", bound=Callable[..., Any])

_UNCOUNTED: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
_NOT_FOR_C: dict[str, Any] = {"no_cfunc_wrapper": True} if hasattr(DefaultOptions, "no_cfunc_wrapper") else {}
"""Skips numba's C wrapper, a tenth of the compile time: nothing calls kernels from C."""


def compiled(function: Function) -> Function:
    """Compile a function at its first call, without Python objects and without the GIL, and cache its machine code.

    The function makes no arrays: its caller passes room for all that it needs. Numba counts references to an array
    nearly everywhere that a function uses it. With many arrays and branches, that can take three quarters of the time,
    and it takes long to compile. The caller keeps its arrays alive anyway.
    """
    dispatcher: Any = _make_dispatcher(function)
    if dispatcher is not function:  # else NUMBA_DISABLE_JIT is set
        dispatcher._cache = machine_code.MachineCodeCache(function)
    kept: Function = dispatcher
    return kept


def inlined(function: Function) -> Function:
    """Compile a function as a part of each compiled function that calls it."""
    part: Function = _make_dispatcher(function, forceinline=True)
    return part


def _make_dispatcher(function: Callable[..., Any], **options: Any) -> Any:
    """Return numba's form of a function, which costs as little as possible to compile."""
    dispatcher: Any = nb.njit(nogil=True, **_UNCOUNTED, **_NOT_FOR_C, **options)(function)
    with suppress(AttributeError):
        choose = dispatcher.get_call_template

        def choose_by_type(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
            return choose(tuple(map(unliteral, args)), {name: unliteral(kind) for name, kind in kws.items()})

        # Numba compiles a function anew for each constant that a compiled caller passes.
        dispatcher.get_call_template = choose_by_type
    return dispatcher


@contextmanager
def announce_compilation(announce: Callable[[str], object]) -> Iterator[None]:
    """Call `announce` with one line as soon as a function is compiled instead of taken from the cache."""
    with event.install_listener("numba:compile", _Listener(announce)):
        yield


class _Listener(event.Listener):
    def __init__(self, announce: Callable[[str], object]) -> None:
        self._announce = announce
        self._announced = mmap.mmap(-1, 1)  # shared with forked processes, so that only one of them announces it

    def on_start(self, event: Any) -> None:
        if not self._announced[0]:
            self._announced[0] = 1
            cache = getattr(event.data["dispatcher"], "_cache", None)
            is_kept = getattr(cache, "cache_path", None) is not None
            what = (
                "that no run needed before (kept for later runs"
                if is_kept
                else "(in every run: set NUMBA_CACHE_DIR to a folder that only you can write"
            )
            self._announce(f"compiling numba kernels {what}; all take about 30 s of one core)")

    def on_end(self, event: Any) -> None:
        pass


@compiled
def search(values: npt.NDArray[np.int64], low: int, high: int, limit: int) -> int:
    """Return the index of the first of values[low:high], which ascend, that is not below a limit; else `high`."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < limit:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def take_median(values: npt.NDArray[np.float64], count: int) -> float:
    """Sort the first `count` (1 or more) values in place with Shell's sort, and return their median."""
    gap = count // 2
    while gap:
        for i in range(gap, count):
            value, k = values[i], i
            while k >= gap and values[k - gap] > value:
                values[k] = values[k - gap]
                k -= gap
            values[k] = value
        gap //= 2
    return 0.5 * (values[(count - 1) // 2] + values[count // 2])
