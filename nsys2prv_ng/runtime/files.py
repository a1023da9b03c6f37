"""Opens files to read, and writes files that appear whole or not at all, beside other processes that write the same."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from io import BufferedReader
from pathlib import Path
from typing import IO

from nsys2prv_ng.errors import TranslationError

_NO_FILE = "is a device or a pipe"


def open_input(path: str | Path) -> BufferedReader:
    """Open a file to read. Raises OSError for what is no file: a pipe would wait for who writes to it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a socket
            raise
        raise OSError(errno.ENXIO, f"{_NO_FILE}; write its content to a file", str(path)) from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.ENXIO, f"{_NO_FILE}; write its content to a file", str(path))


def read_input(path: str | Path) -> bytes:
    """Return the content of a file. Raises OSError as `open_input`."""
    with open_input(path) as file:
        return file.read()


def find_obstacle(file: Path) -> str:
    """Return why a file can never be written under a name, with the remedy; "" if it can, or replaces a file."""
    if file.is_dir():
        return "is a folder; choose another name"
    # /dev/stdout may lead to a file, but a file of this name would take its place.
    folder = os.path.realpath(file.parent)
    is_odd = folder == "/dev" or folder.startswith("/proc/") or (file.exists() and not file.is_file())
    return f"{_NO_FILE}; choose another name" if is_odd else ""


@contextmanager
def open_atomically(file: Path) -> Iterator[IO[bytes]]:
    """Open a file whose bytes appear whole at the end of the context, or not at all. Raises TranslationError."""
    temporary = None
    if obstacle := find_obstacle(file):
        raise TranslationError(f"{file}: {obstacle}")
    try:
        descriptor, temporary = create_beside(file)
        with os.fdopen(descriptor, "wb") as opened:
            yield opened
            opened.flush()
            temporary.replace(file)
    except OSError as error:
        raise TranslationError(f"{file}: cannot be written: {error.strerror or error}") from None
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def write_atomically(file: Path, text: str) -> None:
    """Write a text file that appears whole or not at all. Raises TranslationError."""
    with open_atomically(file) as opened:
        opened.write(text.encode())


def create_beside(file: Path) -> tuple[int, Path]:
    """Create a file under a temporary name beside a file; return its descriptor, open to write, and its path.

    The descriptor has a lock as long as it is open, so what killed processes left beside the file can be told from what
    others write there now. It is removed. The system applies the umask (and the default permissions of the folder), as
    to any new file: files of `tempfile` are private, and the umask of a process cannot be read without changing it.
    """
    remove_abandoned(file.parent.glob(f".{escape(file.name)}.{'[0-9a-f]' * 8}.tmp"))
    while True:
        path = file.with_name(f".{file.name}.{secrets.token_hex(4)}.tmp")
        with suppress(FileExistsError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            if hold(descriptor) or path.exists():  # otherwise another process took it for abandoned
                return descriptor, path
            os.close(descriptor)


def hold(descriptor: int) -> bool:
    """Lock a file for as long as the descriptor, or a copy in a forked process, is open; return whether that worked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process has the lock, or the file system has no locks
        return False
    return True


def remove_abandoned(files: Iterable[Path]) -> None:
    """Remove the files that no living process holds; all stay if the file system has no locks."""
    for file in files:
        with suppress(OSError):
            descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if hold(descriptor):
                    file.unlink()
            finally:
                os.close(descriptor)


@contextmanager
def lock_beside(file: Path) -> Iterator[None]:
    """Keep others that call this for the same file out of the context. Does nothing if the file system has no locks.

    Raises TranslationError if no file can be created beside it.
    """
    path = file.with_name(f".{file.name}.lock")
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError as error:
            raise TranslationError(f"{file}: cannot be written: {error.strerror or error}") from None
        try:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(descriptor, path):  # otherwise the process that had the lock has removed the file
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
        finally:
            os.close(descriptor)


def resolve_links(path: Path) -> Path:
    """Return an absolute path without symbolic links; `Path.resolve` raises RuntimeError if one leads to itself."""
    return Path(os.path.realpath(path))


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether a path leads to an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False
