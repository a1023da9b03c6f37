"""Opens files to read, and writes files that appear whole or not at all, beside other processes that write the same.

Also finds folders, and reads and writes files, that only this user and root can change: what they hold is run. Whoever
can write to a folder, or rename one above it, decides what it contains. So a folder counts only if all those above it
belong to this user or to root, too, and nobody else may write there, but for folders such as /tmp, in which each user
may only rename what is his (as OpenSSH's StrictModes has it). The same goes for links on the way.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
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


@contextmanager
def make_folder_atomically(folder: Path, *, replaces: bool) -> Iterator[Path]:
    """Yield a new folder that takes its name at the end of the context, or vanishes with an error.

    With `replaces` it takes the place of a folder of this name, which is removed. Folders that killed processes left
    beside it are removed, too. Raises TranslationError.
    """
    temporary, descriptor = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp"), -1
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for left in folder.parent.glob(f".{escape(folder.name)}.{'[0-9a-f]' * 8}.tmp"):
            with suppress(OSError):
                other = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    if hold(other):
                        shutil.rmtree(left)
                finally:
                    os.close(other)
        temporary.mkdir()
        descriptor = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY)
        hold(descriptor)
        yield temporary
        if replaces and folder.exists():
            old = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
            folder.rename(old)
            temporary.rename(folder)
            shutil.rmtree(old)
        else:
            temporary.rename(folder)
    except OSError as error:
        raise TranslationError(f"{folder}: cannot be written: {error.strerror or error}") from None
    finally:
        if descriptor >= 0:
            os.close(descriptor)
        shutil.rmtree(temporary, ignore_errors=True)


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


# ---- files that are run ----------------------------------------------------------------------------------------------

Owners = frozenset[int]
"""Numbers of the users whose files count."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@lru_cache(None)
def list_own() -> Owners:
    """Return this user and root."""
    return frozenset({0, os.geteuid()})


@lru_cache(None)
def _list_owners_above() -> Owners:
    """Return the users who may own a folder above: in a container, root of the host may have no number of its own."""
    with suppress(OSError, ValueError):
        if Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]:
            return list_own() | {int(Path("/proc/sys/kernel/overflowuid").read_text())}
    return list_own()


@lru_cache(None)
def _is_safe(path: str) -> bool:
    """Return whether nobody else can replace what is in a folder, or in the one that a link leads to."""
    status = os.lstat(path)
    above = os.path.dirname(path)  # noqa: PTH120 (Path takes ten times as long)
    if status.st_uid not in _list_owners_above() or not (above == path or _is_safe(above)):
        return False
    if stat.S_ISLNK(status.st_mode):
        return _is_safe(os.path.realpath(path))
    return not status.st_mode & _OTHERS_WRITE or bool(status.st_mode & stat.S_ISVTX)


def find_own_folder(path: str) -> str:
    """Return the real path of a folder that only this user and root can change, and make it if it is not there.

    Raises OSError if it is another's, or cannot be made.
    """
    there = os.path.abspath(path)  # noqa: PTH100 (as above)
    while not os.path.lexists(there):
        there = os.path.dirname(there)  # noqa: PTH120 (as above)
    folder = os.path.realpath(path)
    if not _is_safe(there):
        raise PermissionError(f"{folder}: others can replace it")
    _make(folder)
    if not _is_safe(folder):
        raise PermissionError(f"{folder}: others can replace it")
    check_owner(os.stat(folder), list_own())  # noqa: PTH116 (as above)
    return folder


def check_owner(status: os.stat_result, owners: Owners) -> None:
    """Raise PermissionError if others than the owners may write a file or folder."""
    if status.st_uid not in owners or status.st_mode & _OTHERS_WRITE:
        raise PermissionError("others can write it")


def _make(folder: str) -> None:
    """Make a folder that the group cannot write, whatever the umask."""
    if not Path(folder).is_dir():
        _make(os.path.dirname(folder))  # noqa: PTH120 (as above)
        with suppress(FileExistsError):  # another process has just made it
            os.mkdir(folder, 0o755)  # noqa: PTH102 (as above)


def read_own(path: str, owners: Owners) -> bytes:
    """Return the content of a file that only its owner can write, one of some. Raises OSError for anything else."""
    with os.fdopen(_open_own(path, os.O_RDONLY, owners), "rb", 0) as file:
        return file.read()


def write_own(path: Path, content: bytes) -> None:
    """Write a file that the group cannot write, whatever the umask. It appears whole or not at all."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def open_own_lock(path: str) -> int:
    """Open a file for locks of this user's processes, or make it: who can only read it can lock it, too.

    Raises OSError if it is no file, or another's.
    """
    return _open_own(path, os.O_RDWR | os.O_CREAT, list_own())


def _open_own(path: str, flags: int, owners: Owners) -> int:
    """Return the descriptor of a file that only the owners can write. Raises OSError for anything else."""
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)  # a pipe would wait
    try:
        status = os.fstat(file)
        check_owner(status, owners)
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError("is no file")
    except OSError:
        os.close(file)
        raise
    return file


def locate_bundled(name: str) -> Path:
    """Return the path of a file or folder of the repository: in a clone, or inside an installed package."""
    package = Path(__file__).parents[1]
    installed = package / "bundled" / name
    return installed if installed.exists() else package.parent / name
