"""Finds folders, and reads and writes files, that only this user and root can change: what they hold is run.

Whoever can write to a folder, or rename one above it, decides what it contains. So a folder counts only if all those
above it belong to this user or to root, too, and nobody else may write there, but for folders such as /tmp, in which
each user may only rename what is his (as OpenSSH's StrictModes has it). The same goes for links on the way.
"""

from __future__ import annotations

import os
import stat
import uuid
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

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
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait
    try:
        status = os.fstat(file)
        check_owner(status, owners)
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError("is no file")
        parts = []
        while part := os.read(file, max(status.st_size, 1)):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(file)


def write_own(path: Path, content: bytes) -> None:
    """Write a file that the group cannot write, whatever the umask. It appears whole or not at all."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:16]}.tmp")
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
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    try:
        status = os.fstat(file)
        check_owner(status, list_own())
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError("is no file")
    except OSError:
        os.close(file)
        raise
    return file
