"""Makes numba's cache of machine code safe and fast. Everything here extends private parts of numba (0.59 to 0.69).

Numba names the files by processor, Python and signature, and writes them by renaming. This module adds six things:

- Code beside the modules is used even by those who cannot write there, as where an administrator has installed the
  program and run it once. Numba looks only into the folder that it writes to.
- If a file is damaged or a folder cannot be written, a function is compiled again; there is never an error.
- Of several processes that need a function, one compiles it, and the others wait for its code.
- A file is used only for the key that it was written for, even if several processes write at once.
- Code is used only while the constants and compiled functions that it refers to are the same. Numba freezes them into
  the code, but checks only the source file of the function itself to decide whether its code is stale, and some
  versions of numba check its time, which every installation and copy changes, instead of its content.
- Numba's context for compiling is loaded when something is compiled.
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import os
import pickle
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, ClassVar

import numpy as np
from numba.core import config, entrypoints, registry
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, NullCache
from numba.core.runtime.nrt import rtsys

from nsys2prv_ng.version import __version__


def initialize_runtime() -> None:
    """Initialize what numba needs to call compiled functions, but not what only compiling needs (0.2 s)."""
    entrypoints.init_all()  # looks through all installed packages for extensions
    rtsys.initialize(registry.cpu_target.target_context)


class MachineCodeCache:
    """Cache of one function. It looks for its folder at the first call, because that writes a file into the folder."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    @cached_property
    def _cache(self) -> Any:
        with suppress(RuntimeError):  # no folder can be written
            try:
                return _FunctionCache(self._function)
            except (AttributeError, TypeError):  # another numba with other private parts
                return FunctionCache(self._function)
        return NullCache()

    @cached_property
    def _installed(self) -> Any:
        """The cache beside the module, only to be read. Nobody else's folder is used if the user has chosen one."""
        if not config.CACHE_DIR:  # type: ignore[attr-defined]
            with suppress(RuntimeError, AttributeError, TypeError):  # as above
                return _InstalledCache(self._function)
        return NullCache()

    @property
    def cache_path(self) -> str | None:
        """The folder; None without a folder."""
        path: str | None = self._cache.cache_path
        return path

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return the code for a signature, or None if there is no sound code."""
        with suppress(Exception):  # it may be damaged, or not for this user to read
            found = self._installed.load_overload(signature, target_context)
            if found is not None:
                return found
        found = self._load(signature, target_context)
        if found is None and self._turn.take():
            found = self._load(signature, target_context)  # another process may have compiled it meanwhile
            if found is not None:
                self._turn.leave()
        return found

    def _load(self, signature: Any, target_context: Any) -> Any:
        try:
            return self._cache.load_overload(signature, target_context)
        except Exception:  # unpickling damaged data may raise anything
            with suppress(OSError):
                self._cache.flush()
            return None

    @cached_property
    def _turn(self) -> _Turn:
        return _Turn(self.cache_path, f"{self._function.__module__}.{self._function.__qualname__}")

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep the code for a signature if possible."""
        with suppress(Exception):  # no space, or a damaged index that cannot be replaced
            self._cache.save_overload(signature, result)
        self._turn.leave()


class _Turn:
    """The turn of one process to compile a function, while others wait for its code: a lock on a byte of a file.

    Functions that share a byte wait for each other without need. A process that has waited too long compiles as well.
    """

    _LONGEST_WAIT = 60.0
    """Seconds: a choice, longer than any function takes to compile. A stuck process delays the others by this."""
    _files: ClassVar[dict[tuple[int, str], int]] = {}
    """The open lock files of each process by folder."""

    def __init__(self, folder: str | None, function: str) -> None:
        self._folder = folder
        self._byte = zlib.crc32(function.encode())
        self._is_taken = False

    def take(self) -> bool:
        """Wait for the turn; return False if there is none, as without a folder."""
        if self._folder is None or self._is_taken:
            return False
        try:
            file = self._open(self._folder)
        except OSError:  # the folder, or the file of another user, cannot be written
            return False
        limit = time.monotonic() + self._LONGEST_WAIT
        while not self._is_taken and time.monotonic() < limit:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._byte)
                self._is_taken = True
            except (BlockingIOError, PermissionError):  # either says that another process has it
                time.sleep(0.01)
            except OSError:  # a file system without locks
                return False
        return self._is_taken

    def leave(self) -> None:
        """Let another process take the turn."""
        if self._is_taken and self._folder is not None:
            self._is_taken = False
            with suppress(OSError):
                fcntl.lockf(self._open(self._folder), fcntl.LOCK_UN, 1, self._byte)

    def _open(self, folder: str) -> int:
        """Return the descriptor of the lock file; closing any other one of this process would give up its locks."""
        key = os.getpid(), folder
        if key not in self._files:
            self._files[key] = os.open(Path(folder) / "turns.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return self._files[key]


class _FunctionCache(FunctionCache):
    """Numba's cache of one function. Raises RuntimeError if no folder can be written."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        self._cache_file = _Files(self.cache_path, self._impl.filename_base, None)
        self._cache_file.function = function
        file = Path(inspect.getfile(function))
        self._cache_file.file_stamp = _digest_file(file) if file.is_file() else self._impl.locator.get_source_stamp()

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        # Numba would load what only compiling needs here, which takes 0.2 s; it loads it later if necessary.
        rtsys.initialize(target_context)
        return self._load_overload(signature, target_context)


def _digest_file(file: Path) -> str:
    """Return a digest of a source file; it is computed once for all functions of the file."""
    status = file.stat()
    return _digest_content(file, status.st_mtime_ns, status.st_size)


@lru_cache(None)
def _digest_content(file: Path, time: int, size: int) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


class _InstalledFolder:
    """Mixin for numba's locator of the folder beside the module: takes the folder even if it cannot be written."""

    def ensure_cache_path(self) -> None:
        pass


class _InstalledImplementation(CompileResultCacheImpl):
    """Numba's form of a function in its file, beside the module."""

    _locator_classes: Any = [  # noqa: RUF012 (as numba's)
        type("InstalledFolder", (_InstalledFolder, locator), {})
        for locator in CompileResultCacheImpl._locator_classes
        if locator.__name__.endswith("InTreeCacheLocator")
    ]


class _InstalledCache(_FunctionCache):
    """Cache of one function beside its module, which is only read."""

    _impl_class: Any = _InstalledImplementation


class _Files(IndexDataCacheFile):
    """Numba's files, each with its key and a digest.

    The index of one process may name the file of another process, because each process numbers files by what it has
    seen.
    """

    function: Callable[..., object]
    file_stamp: object
    _stamp: object = None

    @property
    def _source_stamp(self) -> object:
        """What the code depends on, computed at the first call, when the module of the function is complete."""
        if self._stamp is None:
            self._stamp = self.file_stamp, __version__, digest_dependencies(self.function)
        return self._stamp

    @_source_stamp.setter
    def _source_stamp(self, stamp: object) -> None:
        pass  # numba sets it when it makes the cache, which is too early

    def save(self, key: object, data: object) -> None:
        code = self._dump(data)
        super().save(key, (key, hashlib.sha256(code).digest(), code))

    def load(self, key: object) -> Any:
        entry = super().load(key)
        if entry is None or entry[0] != key:
            return None
        if hashlib.sha256(entry[2]).digest() != entry[1]:
            raise ValueError("damaged")
        return pickle.loads(entry[2])


# ---- what machine code depends on ------------------------------------------------------------------------------------

_CONSTANTS = (bool, int, float, complex, str, bytes, tuple, frozenset, type(None), np.generic, np.dtype)


def digest_dependencies(function: Callable[..., object]) -> str:
    """Return a digest of the constants and compiled functions that a function reaches through its global names."""
    digest = hashlib.sha256()
    for line in sorted(_list_dependencies(function, set())):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def _list_dependencies(function: Any, seen: set[int]) -> Iterator[str]:
    """Yield a line for each constant that the code names, and the lines of each compiled function that it names."""
    if id(function) in seen:
        return
    seen.add(id(function))
    names = {name for code in _list_code(function.__code__) for name in code.co_names}
    for name in sorted(names):
        value = function.__globals__.get(name)
        # Attributes of a module are also names in the code: rec.EVENT is `rec` and `EVENT`.
        values = [(name, value)]
        if isinstance(value, ModuleType):
            values = [(f"{name}.{part}", getattr(value, part, None)) for part in sorted(names)]
        for path, dependency in values:
            where = f"{function.__module__}.{function.__qualname__} {path}"
            if isinstance(dependency, np.ndarray):
                content = hashlib.sha256(np.ascontiguousarray(dependency).data).hexdigest()
                yield f"{where} {dependency.dtype} {dependency.shape} {content}"
            elif isinstance(dependency, _CONSTANTS):
                yield f"{where} {_format_constant(dependency)}"
            elif python_function := getattr(dependency, "py_func", None):
                yield f"{where} {python_function.__defaults__} {python_function.__kwdefaults__}"
                for code in _list_code(python_function.__code__):
                    constants = [c for c in code.co_consts if not isinstance(c, CodeType)]
                    yield f"{where} {code.co_code.hex()} {code.co_names} {list(map(_format_constant, constants))}"
                yield from _list_dependencies(python_function, seen)


def _list_code(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and of the functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _list_code(constant)


def _format_constant(value: object) -> str:
    """Return a text that is the same in every process, while sets print in any order."""
    parts = sorted(map(repr, value)) if isinstance(value, frozenset) else value
    return f"{type(value).__name__} {parts!r}"
