"""Stores columns in files of a folder that processes on several machines share."""

from __future__ import annotations

import errno
import os
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO

from nsys2prv_ng.arrays.types import ByteArray
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.records.store import (
    Array,
    Slot,
    Store,
    align,
    map_file,
    read_into,
    report_errors,
    view_all,
    write_pieces,
)
from nsys2prv_ng.runtime.files import hold, open_input
from nsys2prv_ng.runtime.limits import allow_more_files

_TRACE_PREFIX = "trace-"
"""Start of the names of files for what processes find out together about a trace."""
SHELF = ".columns"
"""Ending of the files in a folder."""
_MOST_OPEN = 64
"""Most files in a folder that a process keeps open to read: there may be one for each report."""


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
        with report_errors(self.folder):
            with self._lock:
                if self._file is None:
                    self._shelf = self._shelf or f"{_TRACE_PREFIX}{secrets.token_hex(8)}"
                    self._file = locate_shelf(self.folder, self._shelf).open("xb", 0)
                    hold(self._file.fileno())
                at = align(self._end)
                self._end = at + size
                if self._is_copy:
                    write_pieces(self._file.fileno(), pieces, at)
                    os.fsync(self._file.fileno())
            if not self._is_copy:
                write_pieces(self._file.fileno(), pieces, at)
        return Slot(self._shelf, True, at)

    def get(self, slot: Slot, columns: Sequence[Array]) -> None:
        assert isinstance(slot.shelf, str)
        try:
            with self._lock:  # another thread could close the file otherwise
                try:
                    read_into(self._open_to_read(slot.shelf), view_all(columns), slot.at)
                except EOFError:  # NFS shows what others have written since then if the file is opened again
                    read_into(self._open_to_read(slot.shelf, again=True), view_all(columns), slot.at)
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
                mapped = map_file(self._open_to_read(slot.shelf), slot, self._mapped)
                if mapped.size < end:
                    mapped = map_file(self._open_to_read(slot.shelf, again=True), slot, self._mapped)
                return mapped
        except OSError as error:
            if _allow_more_files(error):
                return self.map(slot, end)
            path = locate_shelf(self.folder, slot.shelf)
            raise TranslationError(f"{path}: cannot be read ({error.strerror}); read its report again") from None

    def close(self) -> None:
        """Write all columns to the disk, and close the files."""
        if self._file is not None:
            with report_errors(self.folder):
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


def locate_shelf(folder: Path, shelf: str) -> Path:
    """Return the path of a file of columns. Raises TranslationError for a name that leads out of the folder."""
    if not shelf or os.sep in shelf or shelf.startswith("."):
        raise TranslationError(f"{folder}: names a file of events that is not in it; read the reports again")
    return folder / f"{shelf}{SHELF}"


def _allow_more_files(error: Exception) -> bool:
    """Return whether an error was a lack of file descriptors, and this process is allowed more of them now.

    Each map needs a descriptor (Python copies it), and a job has thousands of shards.
    """
    return isinstance(error, OSError) and error.errno == errno.EMFILE and allow_more_files()
