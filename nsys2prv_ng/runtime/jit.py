"""Functions that numba compiles, and how their machine code is kept from one run to the next.

Numba keeps it in the first of these folders that can be written: NUMBA_CACHE_DIR, the __pycache__ beside the module,
numba/ in XDG_CACHE_HOME or ~/.cache. Its files are by processor, Python and signature, and are written by renaming.
What is added here: no folder at all and files of any damage mean compiling again, never an error; the code that a file
holds is what it was asked for, also where several processes write at once; and a new version of this package uses none
of an older one, whose constants may differ in modules that numba does not look at.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numba as nb
from numba.core import event, registry
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.core.runtime.nrt import rtsys

from nsys2prv_ng.version import __version__

# Numba would take these as folders in the current one: an XDG_CACHE_HOME that is not absolute, which by its
# specification counts as not set, and the ~ of a user without a home.
if not Path(os.environ.get("XDG_CACHE_HOME", "/")).is_absolute():
    del os.environ["XDG_CACHE_HOME"]
if not Path(os.path.expanduser("~")).is_absolute():  # noqa: PTH111 (Path has an error for it)
    os.environ.setdefault("XDG_CACHE_HOME", os.devnull)


def compiled(function: Callable[..., Any]) -> Any:
    """Compiled when it is first called, without Python objects and without the GIL."""
    dispatcher: Any = nb.njit(nogil=True)(function)
    if dispatcher is not function:  # as it is with NUMBA_DISABLE_JIT
        with suppress(RuntimeError):  # no folder can be written
            dispatcher._cache = _Cache(function)
    return dispatcher


def inlined(function: Callable[..., Any]) -> Any:
    """Compiled as a part of each compiled function that calls it."""
    return nb.njit(nogil=True, forceinline=True)(function)


def load_numba() -> None:
    """Let numba make what it needs before it can call any function, which processes that are forked then share."""
    rtsys.initialize(registry.cpu_target.target_context)


@contextmanager
def announce_compilation(tell: Callable[[str], object]) -> Iterator[None]:
    """Meanwhile, `tell` gets one line when functions are compiled rather than taken from the cache."""
    with event.install_listener("numba:compile", _Listener(tell)):
        yield


class _Listener(event.Listener):
    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._told = mmap.mmap(-1, 1)  # shared with forked processes, of which one speaks for all

    def on_start(self, event: Any) -> None:
        if not self._told[0]:
            self._told[0] = 1
            kept = not isinstance(event.data["dispatcher"]._cache, NullCache)
            how_often = "once per installation" if kept else "in each run: set NUMBA_CACHE_DIR to a folder to keep it"
            self._tell(f"compiling what was not used before ({how_often}; half a minute of a core or more)")

    def on_end(self, event: Any) -> None:
        pass


class _Cache(FunctionCache):
    """Numba's cache of a function, which fails by having nothing."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp(), __version__
        self._cache_file = _Files(self.cache_path, self._impl.filename_base, stamp)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        try:
            # Without the 0.2 s in which numba loads what only compiling needs, and loads then if it has to.
            rtsys.initialize(target_context)
            return self._load_overload(signature, target_context)
        except Exception:  # unpickling what is damaged raises anything
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, *arguments: Any) -> None:
        with suppress(OSError):  # no space
            super().save_overload(*arguments)


class _Files(IndexDataCacheFile):
    """Numba's files, each with the key that it is for and a digest.

    The index of one process may name the file of another: both number theirs by what they have seen.
    """

    def save(self, key: object, data: object) -> None:
        code = self._dump(data)
        super().save(key, (key, hashlib.sha256(code).digest(), code))

    def load(self, key: object) -> Any:
        found = super().load(key)
        if found is None or found[0] != key:
            return None
        if hashlib.sha256(found[2]).digest() != found[1]:
            raise ValueError("damaged")
        return pickle.loads(found[2])
