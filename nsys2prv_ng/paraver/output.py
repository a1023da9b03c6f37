"""Writes the three files of a trace, which appear complete or not at all, and compresses text as gzip members.

Members may be made anywhere and are joined one after the other. By RFC 1952, a file with several members contains the
same text as a file with one member, and Paraver's reader (zlib) reads it in this way.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from itertools import accumulate
from pathlib import Path

from isal import isal_zlib

from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.paraver.files import list_trace_files
from nsys2prv_ng.runtime.files import create_beside, find_obstacle, lock_beside


class TraceOutput:
    """The files x.prv (or x.prv.gz), x.pcf and x.row, written under temporary names beside the final ones.

    A context manager: leaving it renames all three, the .prv last; an exception removes what was written. If several
    runs write one trace without `force`, only the first to end has written it.
    """

    def __init__(self, path: Path, *, force: bool) -> None:
        self.path = path
        self.compressed = path.name.endswith(".gz")
        self._final = dict(zip(("pcf", "row", "prv"), list_trace_files(path), strict=True))
        self._temporary: dict[str, Path] = {}
        self._files: dict[str, FileIO] = {}
        self._force = force
        self.header_size = 0
        check_writable(path, list(reversed(self._final.values())), force=force)  # the typed file first

    def __enter__(self) -> TraceOutput:
        with _report_errors(self.path), ExitStack() as undo:
            undo.callback(self._remove)
            for suffix, final in self._final.items():
                descriptor, self._temporary[suffix] = create_beside(final)
                self._files[suffix] = FileIO(descriptor, "wb")
            undo.pop_all()
        return self

    def write_header(self, header: str) -> None:
        """Write the first lines of the .prv."""
        text = header.encode()
        for part in compress(text) if self.compressed else [text]:
            self.header_size = self.write_prv(part, self.header_size)

    def write_prv(self, data: bytes | memoryview, at: int) -> int:
        """Write gzip members if it is a .prv.gz, else text, from a byte of the .prv; return the byte after them.

        Threads and forked processes may do so at the same time.
        """
        view = memoryview(data).cast("B")
        with _report_errors(self.path):
            while view:
                done = os.pwrite(self._files["prv"].fileno(), view, at)
                view, at = view[done:], at + done
        return at

    @property
    def temporary(self) -> Path:
        """The path of the .prv until the trace is complete."""
        return self._temporary["prv"]

    def reserve(self, sizes: Sequence[int]) -> list[int]:
        """Make room in the .prv for further parts of these sizes (bytes), which others write; return their
        positions."""
        places = list(accumulate(sizes, initial=self.header_size))
        with _report_errors(self.path):
            self._files["prv"].truncate(places[-1])
        return places[:-1]

    def write_text(self, suffix: str, text: str) -> None:
        """Write the whole .pcf or .row (`suffix`)."""
        with _report_errors(self._final[suffix]):
            self._temporary[suffix].write_text(text, "utf-8", "surrogateescape", newline="\n")

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is None:
                with _report_errors(self.path):
                    self._publish()
        finally:
            self._remove()

    def _publish(self) -> None:
        with lock_beside(self._final["pcf"]):  # x.prv and x.prv.gz share it
            for final in self._final.values():
                refuse_in_the_way(final, force=self._force)
            self.path.unlink(missing_ok=True)  # so that a .prv never has the labels of another trace
            for suffix, final in self._final.items():
                self._temporary[suffix].replace(final)

    def _remove(self) -> None:
        for file in self._files.values():
            with suppress(OSError):
                file.close()
        for path in self._temporary.values():
            path.unlink(missing_ok=True)


def check_writable(path: Path, files: list[Path], *, force: bool) -> None:
    """Refuse an output that could not be written, before anything is read.

    Raises UsageError if the folder does not exist, TranslationError for files in the way.
    """
    folder = path.parent
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; create it or choose another place for {path.name}")
    for file in files:
        refuse_in_the_way(file, force=force)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise TranslationError(f"{folder}: no permission to write there; choose another folder for {path.name}")


def refuse_in_the_way(file: Path, *, force: bool) -> None:
    """Raise TranslationError if something exists where a file would be written.

    `force` allows to replace a file, but nothing else, such as a folder or /dev/null.
    """
    if obstacle := find_obstacle(file):
        raise TranslationError(f"{file}: {obstacle}")
    if os.path.lexists(file) and not force:  # this includes dangling links
        raise TranslationError(f"{file}: exists already; replace it, or choose another name", see=("force",))


@contextmanager
def _report_errors(path: Path) -> Iterator[None]:
    """Raise TranslationError if a file of the trace cannot be written."""
    try:
        yield
    except OSError as error:
        what = f"cannot write the trace: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            smaller = "" if path.suffix == ".gz" else f", or write {path.stem}.prv.gz"
            what = f"no space left to write the trace; free some or choose another folder{smaller}"
        raise TranslationError(f"{path}: {what}") from None


BLOCK_BYTES = 1 << 20
"""Most bytes of text in a member. Longer members make a file 0.05 % smaller and need more memory."""

LEVEL = 2
"""Level of ISA-L, from 0 to 3: 1 is not faster and makes files 0.5 % larger, 3 saves 6 % in twice the time."""

_GZIP_FORMAT = 31
"""zlib's `wbits`: gzip members with the largest window. Their headers have neither name nor time."""


def compress(text: bytes | memoryview) -> Iterator[bytes]:
    """Yield the members of a text."""
    view = memoryview(text).cast("B")
    for low in range(0, len(view), BLOCK_BYTES):
        # Not `isal_zlib.compress`: for one short text, 15 of 900 processes got different bytes from it.
        member = isal_zlib.compressobj(LEVEL, isal_zlib.DEFLATED, _GZIP_FORMAT)
        yield member.compress(view[low : low + BLOCK_BYTES]) + member.flush()
