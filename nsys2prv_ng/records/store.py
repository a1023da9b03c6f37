"""Columns that a translation keeps until it needs them again: in memory up to a limit, then in a nameless file."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple

import numpy.typing as npt

from nsys2prv_ng.errors import TranslationError

Array = npt.NDArray[Any]


class Slot(NamedTuple):
    """The place of columns: the shelf, in memory or on disk, and the first byte."""

    shelf: int
    on_disk: bool
    at: int


class Store:
    """Columns by slot. A process that was forked from the one that made the store puts columns on a shelf of its own.

    Every process can get all columns. A context manager. Neither the memory nor the file has a name: the columns are
    gone when the processes have ended, whatever ended them.
    """

    def __init__(self, folder: Path, memory: int, shelves: int = 1, chunk_bytes: int = 1 << 20) -> None:
        """Open the memory and the files.

        `memory`: bytes to keep before a file in `folder` is used. `shelves`: one for each process that puts columns.
        `chunk_bytes`: bytes of a run to put at a time, since a chunk of each run will be in memory at once.
        Raises TranslationError if no file can be made in `folder`.
        """
        self.folder = folder
        self.memory = memory
        self.chunk_bytes = chunk_bytes
        self.shelf = 0
        """The shelf of this process."""
        self._lock = threading.Lock()
        self._ends = {False: 0, True: 0}
        self._opened = ExitStack()
        try:
            self._disk = [self._open(_open_nameless(folder)) for _ in range(shelves)]
            # Only Linux has memory that processes share by its descriptor; elsewhere all columns go to the file.
            create = getattr(os, "memfd_create", None)
            self._memory = [self._open(os.fdopen(create("events"), "r+b", 0)) for _ in range(shelves)] if create else []
        except OSError as error:
            self._opened.close()
            raise _make_store_error(folder, error) from None

    def _open(self, file: IO[bytes]) -> IO[bytes]:
        return self._opened.enter_context(file)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.close()

    def use_shelf(self, shelf: int) -> None:
        """Put columns of this process, which was forked from the one that made the store, on a shelf from now on."""
        self.shelf = shelf
        self._ends = {False: 0, True: 0}

    def put(self, columns: Sequence[Array]) -> Slot:
        """Store contiguous columns and return their slot. Raises TranslationError on a full disk."""
        views = [_view_bytes(column) for column in columns if column.nbytes]
        size = sum(view.nbytes for view in views)
        with self._lock:
            on_disk = not self._memory or self._count_used() + size > self.memory
            at = self._ends[on_disk]
            self._ends[on_disk] += size
        slot = Slot(self.shelf, on_disk, at)
        try:
            for view in views:
                at = _write(self._get_descriptor(slot), view, at)
        except OSError as error:
            raise _make_store_error(self.folder, error) from None
        return slot

    def get(self, slot: Slot, columns: Sequence[Array]) -> None:
        """Fill columns that have the sizes of those that were put."""
        at = slot.at
        for column in columns:
            if column.nbytes:
                at = _read(self._get_descriptor(slot), _view_bytes(column), at)

    def _count_used(self) -> int:
        """Return the bytes of memory in use by all processes."""
        return sum(os.fstat(file.fileno()).st_size for file in self._memory)

    def _get_descriptor(self, slot: Slot) -> int:
        return (self._disk if slot.on_disk else self._memory)[slot.shelf].fileno()


def _open_nameless(folder: Path) -> IO[bytes]:
    return tempfile.TemporaryFile(dir=folder, buffering=0)


def _view_bytes(column: Array) -> memoryview:
    return column.data.cast("B")


def _write(descriptor: int, view: memoryview, at: int) -> int:
    """Write a whole view at a byte of a file; returns the byte after it."""
    while view:
        done = os.pwrite(descriptor, view, at)
        view, at = view[done:], at + done
    return at


def _read(descriptor: int, view: memoryview, at: int) -> int:
    """Fill a view from a byte of a file on; returns the byte after what was read."""
    while view:
        done = os.preadv(descriptor, [view], at)
        if not done:
            raise EOFError("a store ends before the columns that were put there")
        view, at = view[done:], at + done
    return at


def _make_store_error(folder: Path, error: OSError) -> TranslationError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TranslationError(
            f"{folder}: no space left for the events that exceed the memory limit; choose another temporary folder, or"
            " more memory",
            see=("tmp", "memory"),
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TranslationError(
            f"too many open files to keep events ({error.strerror}); read fewer reports at once", see=("jobs",)
        )
    return TranslationError(
        f"{folder}: cannot keep events there: {error.strerror or error}; choose another folder", see=("tmp",)
    )
