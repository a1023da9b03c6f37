"""Reads the bytes of a .prv or .prv.gz: single lines for its header, then blocks of whole lines for its records."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from io import BufferedReader
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nsys2prv_ng.errors import TranslationError


class TraceStream:
    """Reader of a trace from start to end in bounded memory, which its user closes.

    `damage` is the reason why a compressed trace could not be read to its end (else ""). `complete` is whether the last
    line ended with a newline. `progress` gets the bytes of the file (compressed bytes of a .gz) read since its last
    call.
    """

    def __init__(self, path: Path, max_line: int, progress: Callable[[int], object] | None) -> None:
        """Open the file. Raises TranslationError if that fails."""
        self.path = path
        self.damage = ""
        self.complete = True
        self._max_line = max_line
        self._progress = progress
        self._reported = 0
        try:
            self._raw = path.open("rb")
        except OSError as error:
            raise TranslationError(f"{path}: cannot be read: {error.strerror}") from None
        compressed = path.name.endswith(".gz")
        self._bytes: gzip.GzipFile | BufferedReader = (
            gzip.GzipFile(fileobj=self._raw, mode="rb") if compressed else self._raw
        )

    def close(self) -> None:
        """Close the file."""
        self._bytes.close()
        self._raw.close()

    def read_line(self) -> bytes:
        """Return the next line with its newline, b"" at the end. Longer lines than allowed are cut one byte after the
        limit."""
        line = self._read(lambda: self._bytes.readline(self._max_line + 1))
        self.complete = line.endswith(b"\n") or not line or len(line) > self._max_line
        return line

    def read_blocks(self, block_bytes: int, head: bytes) -> Iterator[tuple[NDArray[np.uint8], int]]:
        """Yield buffers, each with the number of its bytes that are whole lines. The first line starts with `head`.

        A buffer contains `block_bytes` bytes after the incomplete line of the block before. A line longer than
        `max_line` is cut to max_line + 1 bytes, so that it still counts as too long.
        """
        buffer = bytearray(head)
        kept = len(head)
        while True:
            if len(buffer) < kept + block_bytes:
                buffer = buffer[:kept] + bytearray(block_bytes)
            read = self._fill(memoryview(buffer)[kept : kept + block_bytes])
            end = kept + read
            whole = buffer.rfind(b"\n", 0, end) + 1
            if whole:
                yield np.frombuffer(buffer, np.uint8), whole
            if not read:
                break
            kept = min(end - whole, self._max_line + 1)
            buffer[:kept] = buffer[whole : whole + kept]
        if end > whole:
            self.complete = False
            yield np.frombuffer(buffer[whole:end] + b"\n", np.uint8), end - whole + 1

    def _fill(self, view: memoryview) -> int:
        """Fill the view as far as the file has bytes; return the number of bytes read."""
        filled = 0
        while filled < len(view):
            wanted = len(view) - filled
            data = self._read(partial(self._bytes.read1, wanted))
            if not data:
                break
            view[filled : filled + len(data)] = data
            filled += len(data)
        return filled

    def _read(self, read: Callable[[], bytes]) -> bytes:
        if self.damage:
            return b""
        try:
            return read()
        except EOFError:
            self.damage = "the compressed data end in the middle: the trace is not complete"
        except (gzip.BadGzipFile, zlib.error) as error:
            self.damage = f"the compressed data are damaged: {error}"
        except OSError as error:
            raise TranslationError(f"{self.path}: cannot be read: {error.strerror}") from None
        finally:
            self._report_progress()
        return b""

    def _report_progress(self) -> None:
        position = self._raw.tell()
        if self._progress is not None and position > self._reported:
            self._progress(position - self._reported)
        self._reported = position


def read_first_line(stream: TraceStream) -> str:
    """Return the first line of a trace. Raises TranslationError if the file is not a Paraver trace."""
    first = stream.read_line()
    if not first.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"#Paraver"):
        if stream.damage:
            raise TranslationError(f"{stream.path}: cannot be read: {stream.damage}")
        compressed = "; it is compressed: name it .prv.gz" if first.startswith(b"\x1f\x8b") else ""
        raise TranslationError(f"{stream.path}: not a Paraver trace: it does not start with '#Paraver'{compressed}")
    return first.decode("latin-1").removesuffix("\n")


def read_communicators(stream: TraceStream, count: int) -> tuple[list[bytes], bytes]:
    """Return up to `count` communicator lines. If there are fewer, return also the line that was read after them."""
    lines: list[bytes] = []
    while len(lines) < count:
        line = stream.read_line()
        if line[:1] not in (b"c", b"C", b"i", b"I"):
            return lines, line
        lines.append(line)
    return lines, b""
