"""The three files of a trace, which appear whole or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.paraver.gzip_blocks import GzipBlocks


class TraceOutput:
    """Writes x.prv (or x.prv.gz), x.pcf and x.row under temporary names beside the final ones.

    A context manager: leaving it renames all three, the .prv last; leaving it by an exception removes what was written.
    `jobs` threads compress a .prv.gz.
    """

    def __init__(self, path: Path, *, force: bool, jobs: int = 1) -> None:
        self.path = path
        self.compressed = path.name.endswith(".gz")
        self._final = dict(zip(("pcf", "row", "prv"), list_trace_files(path), strict=True))
        self._temporary: dict[str, Path] = {}
        self._jobs = jobs
        self._raw: BinaryIO | None = None
        self._gzip: GzipBlocks | None = None
        check_writable(path, list(self._final.values()), force=force)

    def __enter__(self) -> TraceOutput:
        try:
            for suffix, final in self._final.items():
                descriptor, name = tempfile.mkstemp(prefix=f".{final.name}.", suffix=".tmp", dir=final.parent)
                self._temporary[suffix] = Path(name)
                if suffix == "prv":
                    self._raw = os.fdopen(descriptor, "wb")
                    self._gzip = GzipBlocks(self._raw, self._jobs) if self.compressed else None
                else:
                    os.close(descriptor)
        except OSError as error:
            self._remove()
            raise _output_error(self.path, error) from None
        return self

    def write_prv(self, data: bytes | memoryview) -> None:
        """Append to the .prv; `data` may be changed afterwards."""
        assert self._raw is not None
        try:
            (self._gzip or self._raw).write(data)
        except OSError as error:
            raise _output_error(self.path, error) from None

    def write_text(self, suffix: str, text: str) -> None:
        """The whole .pcf or .row."""
        try:
            self._temporary[suffix].write_text(text, encoding="utf-8", newline="\n")
        except OSError as error:
            raise _output_error(self._final[suffix], error) from None

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._publish()
        except OSError as error:
            raise _output_error(self.path, error) from None
        finally:
            self._remove()

    def _publish(self) -> None:
        assert self._raw is not None
        if self._gzip is not None:
            self._gzip.close()
        self._raw.close()
        mask = os.umask(0)
        os.umask(mask)
        for path in self._temporary.values():
            path.chmod(0o666 & ~mask)  # mkstemp's are private
        self.path.unlink(missing_ok=True)  # at no moment is a .prv beside the labels of another trace
        for suffix, final in self._final.items():
            self._temporary[suffix].replace(final)

    def _remove(self) -> None:
        if self._gzip is not None:
            self._gzip.abandon()
        if self._raw is not None:
            with suppress(OSError):
                self._raw.close()
        for path in self._temporary.values():
            path.unlink(missing_ok=True)


def list_trace_files(path: Path) -> tuple[Path, Path, Path]:
    """The .pcf, .row and .prv (or .prv.gz) of a trace by the name of the last."""
    stem = path.name.removesuffix(".gz").removesuffix(".prv")
    return path.with_name(f"{stem}.pcf"), path.with_name(f"{stem}.row"), path


def check_writable(path: Path, files: list[Path], *, force: bool) -> None:
    """Refuse a trace that could not be written, before anything is read.

    Raises UsageError for a folder that does not exist, TranslationError for files in the way.
    """
    folder = path.parent
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; create it or choose another place for {path.name}")
    for file in files:
        refuse_in_the_way(file, force=force)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise TranslationError(f"{folder}: no permission to write there; choose another folder for {path.name}")


def refuse_in_the_way(file: Path, *, force: bool) -> None:
    """Raise TranslationError for what a file would replace: with `force` only for what is no file, like /dev/null."""
    if file.is_dir():
        raise TranslationError(f"{file}: is a folder; choose another name")
    if file.exists() and not file.is_file():
        raise TranslationError(f"{file}: is a device or a pipe; choose another name")
    if os.path.lexists(file) and not force:  # also a link to nothing
        raise TranslationError(f"{file}: exists already; add --force to replace it, or choose another name")


def _output_error(path: Path, error: OSError) -> TranslationError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        smaller = "" if path.suffix == ".gz" else f", or write {path.stem}.prv.gz"
        return TranslationError(
            f"{path}: no space left to write the trace; free some or choose another folder{smaller}"
        )
    return TranslationError(f"{path}: cannot write the trace: {error.strerror or error}")
