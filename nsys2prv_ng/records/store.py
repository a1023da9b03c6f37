"""Stores columns until a job needs them again: in memory and nameless files, or in the files of a folder."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import ByteArray
from nsys2prv_ng.errors import TranslationError

Array = npt.NDArray[Any]

_MOST_MAPPED = 512 << 20
"""About how many bytes of mapped shelves a process keeps in memory. A slice of a trace of 64 reports needs 420 MB, as
Linux maps 64 KB around each page that is read. To map them anew for each slice would take as long as to make it."""
_LEAST_MAPPED = 1 << 18
"""Least bytes of columns that are mapped instead of copied."""


class Slot(NamedTuple):
    """Place of bytes: the shelf (number or name), whether it is on disk or in memory, and the first byte."""

    shelf: int | str
    on_disk: bool
    at: int

    @property
    def is_named(self) -> bool:
        """Whether the bytes are in a file with a name, which may come from other people."""
        return isinstance(self.shelf, str)


class Store(ABC):
    """Store of columns by slot. Threads may put and get at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mapped: dict[tuple[int | str, bool], _Mapped] = {}  # by shelf
        self._others = _count_mapped()  # bytes of other files, such as libraries

    def release(self) -> None:
        """Give the memory of mapped shelves back if it is too much. Call this now and then while they are read.

        The pages that a process read count as its memory, and so do the pages around them. They are read again when
        they are needed.
        """
        if _count_mapped() - self._others > _MOST_MAPPED:
            with self._lock:
                for mapped in self._mapped.values():
                    mapped.file.madvise(mmap.MADV_DONTNEED)

    def _unmap(self) -> None:
        """Forget all maps; a map ends when nothing uses it any more."""
        with self._lock:
            self._mapped.clear()

    def put(self, columns: Sequence[Array]) -> Slot:
        """Store contiguous columns one after the other and return their slot. Raises TranslationError."""
        return self.put_pieces(columns, sum(column.nbytes for column in columns))

    @abstractmethod
    def put_pieces(self, pieces: Iterable[Array], size: int) -> Slot:
        """Store pieces of columns, `size` bytes in all, as `put` does; each is written before the next is made."""

    @abstractmethod
    def map(self, slot: Slot, end: int = 0) -> ByteArray:
        """Return all bytes of the shelf of a slot; bytes before `end` have been put. Raises TranslationError."""

    @abstractmethod
    def get(self, slot: Slot, columns: Sequence[Array]) -> None:
        """Fill columns, one after the other, from a slot. Raises TranslationError."""

    def load(self, slot: Slot, lengths: Sequence[int], types: Sequence[npt.DTypeLike]) -> list[Array]:
        """Return columns of these lengths and types, which the caller may change. Raises TranslationError."""
        columns = [np.empty(length, dtype) for length, dtype in zip(lengths, types, strict=True)]
        self.get(slot, columns)
        return columns


class LocalStore(Store):
    """Columns of a job on one machine: in memory up to a limit, then in nameless files. A context manager.

    A process that was forked from the process that made the store puts columns on a shelf that it was lent; every
    process can get all columns. Neither the memory nor the files have a name: the columns are gone when the
    processes have ended, whatever ended them.
    """

    def __init__(self, folder: Path, memory: int, read_from: Store | None = None) -> None:
        """Open the memory and the file of this process.

        `memory`: bytes to keep before a file in `folder` is used. `read_from`: the store of shelves with names. Raises
        TranslationError if no file can be made in `folder`.
        """
        super().__init__()
        self.folder = folder
        self.memory = memory
        self.read_from = read_from
        self.shelf = 0  # of this process
        self._owner = os.getpid()
        self._ends = {False: 0, True: 0}
        self._lent: set[int] = {0}
        self._disk: list[IO[bytes]] = []
        self._memory: list[IO[bytes]] = []
        self._opened = ExitStack()
        self._make_shelves(1)

    def __enter__(self) -> LocalStore:
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()
        self._unmap()

    @contextmanager
    def lend_shelves(self, count: int) -> Iterator[Callable[[int], None]]:
        """Yield a function that processes, forked in the context, call with their numbers (below `count`) to put
        columns.

        What a process puts that has no shelf of its own, or was forked by such a process, is refused.
        """
        if os.getpid() != self._owner:
            yield lambda _: None
            return
        lent = [shelf for shelf in range(count + len(self._lent)) if shelf not in self._lent][:count]
        self._make_shelves(lent[-1] + 1)
        self._lent.update(lent)
        try:
            yield lambda number: self._use_shelf(lent[number])
        finally:
            self._lent.difference_update(lent)

    def _make_shelves(self, count: int) -> None:
        # Only Linux has memory that processes share by its descriptor; elsewhere all columns go to the file.
        create = getattr(os, "memfd_create", None)
        with report_errors(self.folder), ExitStack() as opened:
            new = range(len(self._disk), count)
            disk = [opened.enter_context(tempfile.TemporaryFile(dir=self.folder, buffering=0)) for _ in new]
            files = (os.fdopen(create("events"), "r+b", 0) for _ in new) if create else ()
            self._memory += map(opened.enter_context, files)
            self._disk += disk
            self._opened.push(opened.pop_all())

    def _use_shelf(self, shelf: int) -> None:
        """Put columns of this process on a shelf. Those stay that a process that has ended put there."""
        self.shelf, self._owner = shelf, os.getpid()
        self._ends = {disk: os.fstat(self._get_descriptor(Slot(shelf, disk, 0))).st_size for disk in self._ends}

    def put_pieces(self, pieces: Iterable[Array], size: int) -> Slot:
        assert os.getpid() == self._owner, "a forked process has no shelf of its own"
        with report_errors(self.folder):
            with self._lock:
                used = sum(os.fstat(file.fileno()).st_size for file in self._memory)  # by all processes
                on_disk = not self._memory or used + size > self.memory
                at = align(self._ends[on_disk])
                self._ends[on_disk] = at + size
                slot = Slot(self.shelf, on_disk, at)
                if not on_disk:  # other processes see the used memory before it is written
                    os.ftruncate(self._get_descriptor(slot), at + size)
            write_pieces(self._get_descriptor(slot), pieces, at)
        return slot

    def overwrite(self, slot: Slot, pieces: Iterable[Array]) -> None:
        """Put pieces of columns in place of those in a slot, which are as long. Raises TranslationError."""
        with report_errors(self.folder):
            write_pieces(self._get_descriptor(slot), pieces, slot.at)

    def get(self, slot: Slot, columns: Sequence[Array]) -> None:
        if self.read_from is not None and slot.is_named:
            self.read_from.get(slot, columns)
        else:
            read_into(self._get_descriptor(slot), view_all(columns), slot.at)

    def load(self, slot: Slot, lengths: Sequence[int], types: Sequence[npt.DTypeLike]) -> list[Array]:
        sizes = [length * np.dtype(dtype).itemsize for length, dtype in zip(lengths, types, strict=True)]
        if slot.is_named or slot.on_disk or not self._memory or sum(sizes) < _LEAST_MAPPED:
            return super().load(slot, lengths, types)
        before = slot.at % mmap.ALLOCATIONGRANULARITY
        limits = np.cumsum([before, *sizes]).tolist()
        try:
            # Memory is mapped, not copied. What the caller changes, the kernel copies.
            mapped = mmap.mmap(self._get_descriptor(slot), limits[-1], access=mmap.ACCESS_COPY, offset=slot.at - before)
        except OSError:  # the address space or the number of descriptors is limited
            return super().load(slot, lengths, types)
        columns = zip(types, lengths, limits[:-1], strict=True)
        return [np.frombuffer(mapped, dtype, length, at) for dtype, length, at in columns]

    def map(self, slot: Slot, end: int = 0) -> ByteArray:
        if self.read_from is not None and slot.is_named:
            return self.read_from.map(slot, end)
        with self._lock:
            return map_file(self._get_descriptor(slot), slot, self._mapped)

    def release(self) -> None:
        super().release()
        if self.read_from is not None:
            self.read_from.release()

    def _get_descriptor(self, slot: Slot) -> int:
        assert isinstance(slot.shelf, int)
        files = self._disk if slot.on_disk or not self._memory else self._memory
        return files[slot.shelf].fileno()


class StoredColumns(NamedTuple):
    """Columns of n values in a store."""

    slot: Slot
    length: int
    types: tuple[np.dtype[Any], ...]


def store_columns(columns: Sequence[Array], store: Store) -> StoredColumns:
    """Store columns of equal length."""
    types = tuple(column.dtype for column in columns)
    return StoredColumns(store.put(list(map(np.ascontiguousarray, columns))), columns[0].size, types)


def load_columns(stored: StoredColumns, store: Store) -> list[Array]:
    """Return stored columns."""
    return store.load(stored.slot, [stored.length] * len(stored.types), stored.types)


def align(at: int) -> int:
    """Return the next byte at which columns of any type may start."""
    return -(-at // 8) * 8


class _Mapped(NamedTuple):
    file: mmap.mmap
    content: ByteArray


def map_file(descriptor: int, slot: Slot, mapped: dict[tuple[int | str, bool], _Mapped]) -> ByteArray:
    """Return the bytes of a file; an earlier map is used until the file has grown."""
    size = os.fstat(descriptor).st_size
    known = mapped.get(slot[:2])
    if not size:
        return np.zeros(0, np.uint8)
    if known is None or known.content.size < size:
        file = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
        known = mapped[slot[:2]] = _Mapped(file, np.frombuffer(file, np.uint8))
    return known.content


def _count_mapped() -> int:
    """Return the bytes of files in the memory of this process, and of memory that it shares; 0 if it is not known."""
    with suppress(OSError), open("/proc/self/statm", "rb", 0) as file:  # noqa: PTH123 (Path takes twice as long)
        return int(file.read().split()[2]) * mmap.PAGESIZE
    return 0


def _view(column: Array) -> memoryview:
    return column.data.cast("B") if column.nbytes else memoryview(b"")


def view_all(columns: Sequence[Array]) -> list[memoryview]:
    return [_view(column) for column in columns if column.nbytes]


def write_pieces(descriptor: int, pieces: Iterable[Array], at: int) -> None:
    """Write whole pieces, one after the other, from a byte of a file."""
    for piece in pieces:
        view = _view(piece)
        while view:
            done = os.pwrite(descriptor, view, at)
            view, at = view[done:], at + done


def read_into(descriptor: int, views: list[memoryview], at: int) -> None:
    """Fill views, one after the other, from a byte of a file. Raises EOFError if the file ends too early."""
    while views:
        done = os.preadv(descriptor, views, at)
        if not done:
            raise EOFError
        at += done
        while views and done >= views[0].nbytes:
            done -= views.pop(0).nbytes
        if done:
            views[0] = views[0][done:]


@contextmanager
def report_errors(folder: Path) -> Iterator[None]:
    """Raise TranslationError with a remedy if columns cannot be kept in a folder."""
    try:
        yield
    except OSError as error:
        raise _make_store_error(folder, error) from None


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
    if error.errno == errno.EFBIG:  # also of memory that processes share
        return TranslationError(
            f"{folder}: cannot keep events there: {error.strerror}; raise the limit of this shell (see `ulimit -f`)"
        )
    return TranslationError(
        f"{folder}: cannot keep events there: {error.strerror or error}; choose another folder", see=("tmp",)
    )
