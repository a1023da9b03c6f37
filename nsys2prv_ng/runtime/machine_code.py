"""Keeps machine code from one run to the next, in files that only this user and root can write: it is run.

A file has the code of one function for one list of argument types, one processor, one version and one -O of Python.

- A folder or file that another user owns, or that others may write, is as if it were not there, whatever names it: a
  file that belongs to somebody else is somebody else's program. Beside a module, that of the module's owner counts as
  well, since who owns the module decides what it does. Links, pipes and devices are no files.
- Code beside the modules is used even by those who cannot write there, as where an administrator has installed the
  program and run it once.
- If a file is damaged or a folder cannot be written, a function is compiled again; there is never an error.
- Of several processes that need a function, one compiles it, and the others wait for its code.
- Code is used only while the constants and compiled functions that it refers to are the same. Numba freezes them into
  the code, and its own cache checks only the source file of the function itself.
- Numba's context for compiling, which takes 0.2 s, is loaded when something is compiled.

Of numba (0.59 to 0.69) this needs how it makes the result of a compilation bytes and back.
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import os
import pickle
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, ClassVar, NamedTuple

import numba
import numpy as np
from numba.core import config, entrypoints, registry
from numba.core.caching import CompileResultCacheImpl
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps

from nsys2prv_ng.runtime.files import Owners, check_owner, find_own_folder, list_own, open_own_lock, read_own, write_own
from nsys2prv_ng.version import __version__


def load_numba() -> None:
    """Initialize what numba needs to call compiled functions, but not what only compiling needs (0.2 s).

    Processes that are forked later share it.
    """
    entrypoints.init_all()  # looks through all installed packages for extensions
    rtsys.initialize(registry.cpu_target.target_context)


class MachineCodeCache:
    """Cache of one function, with the methods that numba calls. It looks for its folders at the first call."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    @cached_property
    def _file(self) -> Path:
        return Path(inspect.getfile(self._function)).absolute()

    @property
    def _folders(self) -> _Folders:
        user = os.environ.get("XDG_CACHE_HOME", "")
        if not user.startswith("/"):  # the XDG specification says that it counts as not set
            user = os.path.expanduser("~/.cache")  # noqa: PTH111 (Path raises)
        return _find_folders(str(self._file.parent), config.CACHE_DIR, user)  # type: ignore[attr-defined]

    @property
    def cache_path(self) -> str | None:
        """The folder that is written; None without one."""
        return self._folders.written

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return the code for a signature, or None if there is no sound code."""
        found = self._load(signature, target_context)
        if found is None and self._turn.take():
            found = self._load(signature, target_context)  # another process may have compiled it meanwhile
            if found is not None:
                self._turn.leave()
        return found

    def _load(self, signature: Any, target_context: Any) -> Any:
        name, stamp = self._identify(signature, target_context.codegen())
        for folder, owners in self._folders.read:
            with suppress(Exception):  # unpickling damaged data may raise anything
                content = read_own(os.path.join(folder, name), owners)  # noqa: PTH118 (52 times in every run)
                code = memoryview(content)[_HEAD:]
                if content[:_HEAD] == _make_head(stamp, code):
                    rtsys.initialize(target_context)
                    return _FORM.rebuild(target_context, pickle.loads(code))
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep the code for a signature if possible."""
        folder = self.cache_path
        if folder is not None and not result.library.has_dynamic_globals:  # they hold addresses of this process
            with suppress(Exception):  # no space, or something that cannot be replaced
                name, stamp = self._identify(signature, result.codegen)
                code = dumps(_FORM.reduce(result))
                write_own(Path(folder) / name, _make_head(stamp, code) + code)
        self._turn.leave()

    def _identify(self, signature: Any, codegen: Any) -> tuple[str, bytes]:
        """Return the name of the file for a signature, and a digest of all that its code depends on."""
        kinds = signature if isinstance(signature, tuple) else signature.args
        for_what = f"{' '.join(map(_format_type, kinds))} {codegen.magic_tuple()}"
        optimized = f".opt-{sys.flags.optimize}" if sys.flags.optimize else ""
        python = f"{sys.implementation.cache_tag}{optimized}"
        number = hashlib.sha256(for_what.encode()).hexdigest()[:16]
        stamp = hashlib.sha256(f"{for_what} {python} {self._stamp}".encode()).digest()
        return f"{self._file.stem}.{self._function.__qualname__}-{python}-{number}.nbc", stamp

    @cached_property
    def _stamp(self) -> str:
        """What the code depends on whatever its types, when the module of the function is complete."""
        content = ""
        if self._file.is_file():
            status = self._file.stat()
            content = _digest_content(self._file, status.st_mtime_ns, status.st_size)
        return f"{content} {__version__} {numba.__version__} {digest_dependencies(self._function)}"

    @cached_property
    def _turn(self) -> _Turn:
        return _Turn(self.cache_path, f"{self._function.__module__}.{self._function.__qualname__}")


class _Form(CompileResultCacheImpl):
    """Numba's form of a compiled function in a file, without its choice of the folder."""

    def __init__(self) -> None:
        pass


_FORM = _Form()
_HEAD = 36
"""Bytes before the code: the digest of what it depends on, and a checksum against damage."""


def _make_head(stamp: bytes, code: bytes | memoryview) -> bytes:
    return stamp + zlib.crc32(code).to_bytes(4, "big")


def _format_type(kind: Any) -> str:
    """Return a text for a type of numba; the name of a NamedTuple alone does not tell its fields."""
    own = (kind, getattr(kind, "instance_class", ""), getattr(kind, "fields", ""))
    return " ".join([*map(str, own), *map(_format_type, getattr(kind, "types", ()))])


class _Folders(NamedTuple):
    """Where the code of the functions of the modules in one folder is."""

    read: list[tuple[str, Owners]]
    """The folders to read, in this order, each with the users whose files count in it."""
    written: str | None


@lru_cache(None)
def _find_folders(package: str, chosen: str, user: str) -> _Folders:
    """Return the folders for modules in a folder, given NUMBA_CACHE_DIR ("" if it is not set) and the user's cache.

    Those before the first that can be written are read, too.
    """
    apart = f"{Path(package).name}_{hashlib.sha256(os.fsencode(package)).hexdigest()[:40]}"
    read: list[tuple[str, Owners]] = []
    for place in [chosen] * bool(chosen) + [""] + [f"{user}/numba"] * user.startswith("/"):
        with suppress(OSError, ValueError):  # another's, or none: the next one
            found = (find_own_folder(str(Path(place) / apart)), list_own()) if place else _find_beside(package)
            read.append(found)
            if os.access(found[0], os.W_OK | os.X_OK):
                return _Folders(read, found[0])
    return _Folders(read, None)


def _find_beside(package: str) -> tuple[str, Owners]:
    """Return the folder beside modules, and whose files count there. Raises OSError if others can write it."""
    folder = Path(package) / "__pycache__"
    with suppress(FileExistsError):
        folder.mkdir(0o755)
    owners = list_own() | {Path(package).stat().st_uid}
    check_owner(folder.stat(), owners)
    return str(folder), owners


class _Turn:
    """The turn of one process to compile a function, while others wait for its code: a lock on a byte of a file.

    Functions that share a byte wait for each other without need. A process that has waited too long compiles as well,
    and waits no more.
    """

    longest_wait: ClassVar[float] = 60.0
    """Seconds that a process may still wait, for all functions: a choice, longer than any function takes to compile.
    A stuck process delays the others by this."""
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
        except OSError:  # the folder cannot be written, or the file is another's or none
            return False
        limit = time.monotonic() + _Turn.longest_wait
        while not self._is_taken:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._byte)
                self._is_taken = True
            except (BlockingIOError, PermissionError):  # either says that another process has it
                if time.monotonic() >= limit:
                    break
                time.sleep(0.01)
            except OSError:  # a file system without locks
                return False
        _Turn.longest_wait = max(limit - time.monotonic(), 0.0)
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
            self._files[key] = open_own_lock(str(Path(folder) / "turns.lock"))
        return self._files[key]


@lru_cache(None)
def _digest_content(file: Path, time: int, size: int) -> str:
    """Return a digest of a source file; it is computed once for all functions of the file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


# ---- what machine code depends on ------------------------------------------------------------------------------------

_CONSTANTS = (bool, int, float, complex, str, bytes, tuple, frozenset, type(None), np.generic, np.dtype)


def digest_dependencies(function: Callable[..., object]) -> str:
    """Return a digest of the constants and compiled functions that a function reaches through its global names."""
    digest = hashlib.sha256()
    for line in sorted(_list_dependencies(function, set())):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def _list_dependencies(function: Any, seen: set[int]) -> Iterator[str]:
    """Yield lines for the code of a function and each constant that it names, and those of each compiled function."""
    if id(function) in seen:
        return
    seen.add(id(function))
    whose = f"{function.__module__}.{function.__qualname__}"
    yield f"{whose} {function.__defaults__} {function.__kwdefaults__}"
    names: set[str] = set()
    for code in _list_code(function.__code__):
        names.update(code.co_names, code.co_freevars)
        constants = [c for c in code.co_consts if not isinstance(c, CodeType)]
        yield f"{whose} {code.co_code.hex()} {code.co_names} {list(map(_format_constant, constants))}"
    outer = {
        name: cell.cell_contents
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    }
    for name in sorted(names):
        value = outer.get(name, function.__globals__.get(name))
        # Attributes of a module are also names in the code: rec.EVENT is `rec` and `EVENT`.
        values = [(name, value)]
        if isinstance(value, ModuleType):
            values = [(f"{name}.{part}", getattr(value, part, None)) for part in sorted(names)]
        for path, dependency in values:
            if isinstance(dependency, np.ndarray):
                content = hashlib.sha256(np.ascontiguousarray(dependency).data).hexdigest()
                yield f"{whose} {path} {dependency.dtype} {dependency.shape} {content}"
            elif isinstance(dependency, _CONSTANTS):
                yield f"{whose} {path} {_format_constant(dependency)}"
            elif python_function := getattr(dependency, "py_func", None):
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
