"""Folders for what a run makes on the way, which it may leave for the next run.

One run works in a folder at a time: it has locked the mark in it, and the system removes the lock with the process. A
folder appears with its locked mark, and vanishes with it. Where a file system has no locks, runs share the folder.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import IO

from nsys2prv_ng.errors import UsageError

_MARK = ".nsys2prv-ng"
"""Empty file in a folder that a run made."""


def take_folder(wanted: Path) -> tuple[Path, IO[bytes]]:
    """Make a folder, or take over that of an earlier run; return it and its mark, which is locked until it is closed.

    While another run works there, return a new folder beside it. Raises UsageError for any other existing folder: the
    folder is removed at the end, and workers run the code in it.
    """
    own = name_new_folder(wanted.parent)
    try:
        own.mkdir(mode=0o700)
        own_mark = _lock(own / _MARK)
        assert own_mark is not None, "no other run knows this name"
        folder, mark = _claim(wanted, own, own_mark)
    except OSError as error:
        shutil.rmtree(own, ignore_errors=True)
        raise UsageError(f"{wanted}: cannot be made: {error.strerror or error}") from None
    except UsageError:
        shutil.rmtree(own, ignore_errors=True)
        raise
    if mark is not own_mark:
        own_mark.close()
        shutil.rmtree(own, ignore_errors=True)
    return folder, mark


def remove_folder(folder: Path) -> None:
    """Remove a folder that this run has taken."""
    with suppress(OSError):  # no other run may find it without its mark
        folder = folder.rename(name_new_folder(folder.parent))
    shutil.rmtree(folder, ignore_errors=True)


def name_new_folder(parent: Path) -> Path:
    """Return a path that no other run has."""
    return parent / f".nsys2prv-ng.{os.getpid()}.{secrets.token_hex(4)}.parts"


def _claim(wanted: Path, own: Path, own_mark: IO[bytes]) -> tuple[Path, IO[bytes]]:
    """Return the wanted folder and its mark, or a run's new folder and mark while another run has the wanted one.

    The new folder gets the wanted name if that is free.
    """
    while True:
        if not os.path.lexists(wanted):
            with suppress(FileExistsError):
                _rename_new(own, wanted)
                return wanted, own_mark
        with suppress(FileNotFoundError):  # the other run has just removed it
            left = _take_over(wanted)
            return (own, own_mark) if left is None else (wanted, left)


def _rename_new(own: Path, wanted: Path) -> None:
    """Rename a folder. Raises FileExistsError if another run was faster."""
    try:
        own.rename(wanted)
    except OSError:
        if os.path.lexists(wanted):
            raise FileExistsError from None
        raise


def _take_over(folder: Path) -> IO[bytes] | None:
    """Return the locked mark of a folder; None while another run works there."""
    mark = folder / _MARK
    if not mark.exists() and os.path.lexists(folder):
        raise UsageError(f"{folder}: no earlier run left it, and it would be removed; rename it")
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise UsageError(f"{folder}: others may write there, and workers run what is in it; remove it")
    lock = _lock(mark)
    if lock is not None and not os.path.samestat(os.fstat(lock.fileno()), mark.stat()):
        lock.close()
        raise FileNotFoundError  # another run has removed this folder, and a third one has made it again
    return lock


def _lock(mark: Path) -> IO[bytes] | None:
    """Make a mark if there is none, and lock it; return None if another run has locked it."""
    file = mark.open("ab")  # over NFS, only a file that is open for writing can be locked
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError:  # this file system has no locks
        pass
    return file
