"""Stores columns until a job needs them again: in memory and nameless files, or in the files of a folder."""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import tempfile
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import ByteArray
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.runtime.files import hold, open_input
from nsys2prv_ng.runtime.limits import allow_more_files

Array = npt.NDArray[Any]

_TRACE_PREFIX = "trace-"
"""Start of the names of files for what processes find out together about a trace."""
SHELF = ".columns"
"""Ending of the files in a folder."""
_MOST_MAPPED = 512 << 20
"""About how many bytes of mapped shelves a process keeps in memory. A slice of a trace of 64 reports needs 420 MB, as
Linux maps 64 KB around each page that is read. To map them anew for each slice would take as long as to make it."""
_LEAST_MAPPED = 1 << 18
"""Least bytes of columns that are mapped instead of copied."""
_MOST_OPEN = 64
"""Most files in a folder that a process keeps open to read: there may be one for each report."""


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

    def __init__(self, folder: Path, memory: int, read_from: FolderStore | None = None) -> None:
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
        with _report_errors(self.folder), ExitStack() as opened:
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
        with _report_errors(self.folder):
            with self._lock:
                used = sum(os.fstat(file.fileno()).st_size for file in self._memory)  # by all processes
                on_disk = not self._memory or used + size > self.memory
                at = _align(self._ends[on_disk])
                self._ends[on_disk] = at + size
                slot = Slot(self.shelf, on_disk, at)
                if not on_disk:  # other processes see the used memory before it is written
                    os.ftruncate(self._get_descriptor(slot), at + size)
            _write(self._get_descriptor(slot), pieces, at)
        return slot

    def overwrite(self, slot: Slot, pieces: Iterable[Array]) -> None:
        """Put pieces of columns in place of those in a slot, which are as long. Raises TranslationError."""
        with _report_errors(self.folder):
            _write(self._get_descriptor(slot), pieces, slot.at)

    def get(self, slot: Slot, columns: Sequence[Array]) -> None:
        if self.read_from is not None and slot.is_named:
            self.read_from.get(slot, columns)
        else:
            _read(self._get_descriptor(slot), _view_all(columns), slot.at)

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
            return _map(self._get_descriptor(slot), slot, self._mapped)

    def release(self) -> None:
        super().release()
        if self.read_from is not None:
            self.read_from.release()

    def _get_descriptor(self, slot: Slot) -> int:
        assert isinstance(slot.shelf, int)
        files = self._disk if slot.on_disk or not self._memory else self._memory
        return files[slot.shelf].fileno()


class FolderStore(Store):
    """Columns in files of a folder that processes on several machines share.

    Each process puts columns into its own file, whose name is the shelf; a copy of the store that is sent to another
    process starts another file there. The folder and its files stay. Columns are on the disk before another process
    gets their slot: NFS then shows them to other machines, if these open the file after that.
    """

    def __init__(self, folder: Path, shelf: str = "", read_from: Path | None = None, *, is_copy: bool = False) -> None:
        """`shelf`: name of the file of this process; by default a unique name after _TRACE_PREFIX.

        `read_from`: another folder, for files that are not in `folder`. `is_copy`: others wait for the columns.
        """
        super().__init__()
        self.folder = folder
        self.read_from = read_from
        self._shelf = shelf
        self._is_copy = is_copy
        self._file: IO[bytes] | None = None
        self._end = 0
        self._reading: OrderedDict[str, BufferedReader] = OrderedDict()

    def __reduce__(self) -> tuple[Callable[..., FolderStore], tuple[Path, str, Path | None]]:
        with self._lock:
            if self._file is not None and not self._file.closed:
                os.fsync(self._file.fileno())
        return partial(FolderStore, is_copy=True), (self.folder, "", self.read_from)

    def put_pieces(self, pieces: Iterable[Array], size: int) -> Slot:
        with _report_errors(self.folder):
            with self._lock:
                if self._file is None:
                    self._shelf = self._shelf or f"{_TRACE_PREFIX}{secrets.token_hex(8)}"
                    self._file = locate_shelf(self.folder, self._shelf).open("xb", 0)
                    hold(self._file.fileno())
                at = _align(self._end)
                self._end = at + size
                if self._is_copy:
                    _write(self._file.fileno(), pieces, at)
                    os.fsync(self._file.fileno())
            if not self._is_copy:
                _write(self._file.fileno(), pieces, at)
        return Slot(self._shelf, True, at)

    def get(self, slot: Slot, columns: Sequence[Array]) -> None:
        assert isinstance(slot.shelf, str)
        try:
            with self._lock:  # another thread could close the file otherwise
                try:
                    _read(self._open_to_read(slot.shelf), _view_all(columns), slot.at)
                except EOFError:  # NFS shows what others have written since then if the file is opened again
                    _read(self._open_to_read(slot.shelf, again=True), _view_all(columns), slot.at)
        except (OSError, EOFError) as error:
            if _allow_more_files(error):
                return self.get(slot, columns)
            reason = getattr(error, "strerror", None) or "it is shorter than it was"
            raise TranslationError(
                f"{locate_shelf(self.folder, slot.shelf)}: cannot be read ({reason}); read its report again"
            ) from None

    def map(self, slot: Slot, end: int = 0) -> ByteArray:
        assert isinstance(slot.shelf, str)
        try:
            with self._lock:
                mapped = _map(self._open_to_read(slot.shelf), slot, self._mapped)
                if mapped.size < end:
                    mapped = _map(self._open_to_read(slot.shelf, again=True), slot, self._mapped)
                return mapped
        except OSError as error:
            if _allow_more_files(error):
                return self.map(slot, end)
            path = locate_shelf(self.folder, slot.shelf)
            raise TranslationError(f"{path}: cannot be read ({error.strerror}); read its report again") from None

    def close(self) -> None:
        """Write all columns to the disk, and close the files."""
        if self._file is not None:
            with _report_errors(self.folder):
                os.fsync(self._file.fileno())
                self._file.close()
        while self._reading:
            self._reading.popitem()[1].close()
        self._unmap()

    def get_file(self) -> tuple[str, int]:
        """Return the name and the bytes of the file of this process; an empty name if nothing was put."""
        return ("", 0) if self._file is None else (locate_shelf(self.folder, self._shelf).name, self._end)

    def abandon(self) -> None:
        """Remove the file of this process."""
        if self._file is not None:
            self._file.close()
            locate_shelf(self.folder, self._shelf).unlink(missing_ok=True)

    def _open_to_read(self, shelf: str, *, again: bool = False) -> int:
        if again and shelf in self._reading:
            self._reading.pop(shelf).close()
        file = self._reading.get(shelf)
        if file is None:
            path = locate_shelf(self.folder, shelf)
            if self.read_from is not None and not path.exists():
                path = locate_shelf(self.read_from, shelf)
            file = self._reading[shelf] = open_input(path)
            if len(self._reading) > _MOST_OPEN:
                self._reading.popitem(last=False)[1].close()
        else:
            self._reading.move_to_end(shelf)
        return file.fileno()


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


def locate_shelf(folder: Path, shelf: str) -> Path:
    """Return the path of a file of columns. Raises TranslationError for a name that leads out of the folder."""
    if not shelf or os.sep in shelf or shelf.startswith("."):
        raise TranslationError(f"{folder}: names a file of events that is not in it; read the reports again")
    return folder / f"{shelf}{SHELF}"


def _align(at: int) -> int:
    """Return the next byte at which columns of any type may start."""
    return -(-at // 8) * 8


class _Mapped(NamedTuple):
    file: mmap.mmap
    content: ByteArray


def _map(descriptor: int, slot: Slot, mapped: dict[tuple[int | str, bool], _Mapped]) -> ByteArray:
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


def _allow_more_files(error: Exception) -> bool:
    """Return whether an error was a lack of file descriptors, and this process is allowed more of them now.

    Each map needs a descriptor (Python copies it), and a job has thousands of shards.
    """
    return isinstance(error, OSError) and error.errno == errno.EMFILE and allow_more_files()


def _view(column: Array) -> memoryview:
    return column.data.cast("B") if column.nbytes else memoryview(b"")


def _view_all(columns: Sequence[Array]) -> list[memoryview]:
    return [_view(column) for column in columns if column.nbytes]


def _write(descriptor: int, pieces: Iterable[Array], at: int) -> None:
    """Write whole pieces, one after the other, from a byte of a file."""
    for piece in pieces:
        view = _view(piece)
        while view:
            done = os.pwrite(descriptor, view, at)
            view, at = view[done:], at + done


def _read(descriptor: int, views: list[memoryview], at: int) -> None:
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
def _report_errors(folder: Path) -> Iterator[None]:
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
