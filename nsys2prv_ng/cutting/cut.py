"""Cuts a window of time, and ranks, out of a written trace, in one pass that ends with the window.

The events that are open when the window starts may be anywhere before it. So the trace is read from its start, block
after block. Memory depends on the objects of the trace and on what is open.

Within the window, Paraver shows the cut as it shows the trace. So, at its start, the cut repeats the values of metrics
and of memory in use that are in force there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from nsys2prv_ng.cutting import lines
from nsys2prv_ng.cutting.limits import LimitLines
from nsys2prv_ng.cutting.line_fields import Rows
from nsys2prv_ng.cutting.lines import Window
from nsys2prv_ng.cutting.objects import (
    Objects,
    find_objects,
    format_names,
    format_objects,
    keep_all,
    keep_ranks,
    renumber_communicators,
)
from nsys2prv_ng.cutting.prologue import Labels, Prologue, format_header, read_labels, read_prologue
from nsys2prv_ng.cutting.reader import Block, Part, Reader, make_block
from nsys2prv_ng.cutting.result import CutResult
from nsys2prv_ng.cutting.type_roles import find_roles
from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.paraver.files import is_trace, list_trace_files
from nsys2prv_ng.paraver.output import BLOCK_BYTES, TraceOutput, compress
from nsys2prv_ng.paraver.read.prv_reader import TraceStream
from nsys2prv_ng.runtime.files import resolve_links
from nsys2prv_ng.runtime.parallel import run_in_threads
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.text.formatting import count_noun

_READ_BYTES = 1 << 20
_MAX_LINE_BYTES = 4 << 20
_MOST_LEVELS = 1 << 26
"""Highest number of values in force (rows times types). Only values in the trace use memory."""
_NEVER = 1 << 60


@dataclass(frozen=True)
class Selection:
    """What to keep; None restricts nothing. `limits` are in ns from time 0 of the trace."""

    limits: tuple[int | None, int | None] | None = None
    ranks: Sequence[int] | None = None


def cut_trace(
    path: Path,
    output: Path,
    selection: Selection,
    progress: Progress,
    *,
    force: bool = False,
    threads: int = 1,
    block_bytes: int = _READ_BYTES,
) -> CutResult:
    """Write the chosen part of a trace. `threads` threads read the trace.

    Raises TranslationError (or its subclass UsageError) with one line for the user; no file is then left under
    `output`.
    """
    started = time.perf_counter()
    _check_files(path, output)
    size = path.stat().st_size if path.is_file() else 0
    with (
        progress.step(f"cutting {path}", size, "B") as step,
        closing(TraceStream(path, _MAX_LINE_BYTES, step.update)) as stream,
        TraceOutput(output, force=force) as trace,
    ):
        prologue, labels = read_prologue(stream), read_labels(path)
        cut = _Cut(path, prologue, labels, selection, trace)
        cut.read(stream, block_bytes, threads)
    warnings = [*labels.warnings, *cut.warnings]
    for warning in warnings:
        progress.warn(warning)
    return CutResult(
        trace=str(path),
        output=str(output),
        begin_ns=cut.begin * prologue.ns,
        end_ns=cut.last * prologue.ns,
        tasks=cut.tasks,
        rows=int(cut.rows.is_kept.sum()),
        states=int(cut.progress[lines.STATES]),
        events=int(cut.progress[lines.EVENTS]),
        communications=int(cut.progress[lines.COMMUNICATIONS]),
        bytes=cut.bytes,
        file_bytes=output.stat().st_size,
        seconds=time.perf_counter() - started,
        warnings=warnings,
    )


def _check_files(path: Path, output: Path) -> None:
    """Raise UsageError for names that are not a trace's, and for an output that would replace the trace that is
    read."""
    for file, parameter in ((path, "trace"), (output, "output")):
        if not is_trace(file):
            raise UsageError("the trace must be named *.prv or *.prv.gz", parameter=parameter, value=str(file))
    read = set(map(resolve_links, list_trace_files(path)))
    for file in reversed(list_trace_files(output)):  # the typed file first
        if resolve_links(file) in read:
            raise UsageError(f"{file}: is a file of the trace that is cut; choose another name for the output")


class _Cut:
    """One cut: the state of the reader, and the writer of the new trace. Times are in the unit of the trace."""

    def __init__(
        self, path: Path, prologue: Prologue, labels: Labels, selection: Selection, trace: TraceOutput
    ) -> None:
        self.warnings: list[str] = []
        self.bytes = 0
        self._path, self._prologue, self._trace = path, prologue, trace
        self._has_window = selection.limits is not None
        self.begin, self.last = self._choose_time(*(selection.limits or (None, None)))
        objects = find_objects(prologue.header, labels.names)
        self.rows, self.tasks = self._choose_rows(labels, objects, selection.ranks)
        self._roles = find_roles(labels.config)
        if objects.row_count * len(self._roles.levels) > _MOST_LEVELS:
            count = len(self._roles.levels)
            raise TranslationError(
                f"{path}: its .pcf declares {count:,} metrics for {objects.row_count:,} rows; remove those not needed"
            )
        self._reader = Reader(self.rows, self._roles)
        self.progress = self._reader.progress
        self._limit_lines = LimitLines(self._roles, self.rows)
        self._window = Window(-1, _NEVER, 0)
        self._waiting = bytearray()
        self._late: tuple[list[bytes], list[bytes]] = [], []
        self._local = threading.local()
        trace.write_text("pcf", labels.pcf)

    def _choose_time(self, low: int | None, high: int | None) -> tuple[int, int]:
        """Return the limits of the cut. Raises UsageError for a time after the trace."""
        unit, last = self._prologue.ns, self._prologue.duration
        begin = 0 if low is None else low // unit
        if self._has_window and begin >= max(last, 1):
            message = f"starts {(low or 0) / 1e9:g} s into a trace that lasts {last * unit / 1e9:g} s"
            raise UsageError(message, parameter="time")
        return begin, last if high is None else min(-(-high // unit), last)

    def _choose_rows(self, labels: Labels, objects: Objects, ranks: Sequence[int] | None) -> tuple[Rows, int]:
        """Return the rows to keep and the number of their tasks. Prepare the header and write the .row."""
        self._objects, self._communicators = self._prologue.objects, self._prologue.communicators
        if ranks is None:
            self._trace.write_text("row", labels.row)
            return keep_all(objects), self._prologue.header.tasks
        rows, wanted = keep_ranks(objects, ranks)
        self._objects = format_objects(objects, rows, wanted)
        self._communicators = renumber_communicators(self._communicators, rows, wanted)
        self._trace.write_text("row", format_names(objects, rows, wanted))
        return rows, int(wanted.sum())

    # ---- reading -----------------------------------------------------------------------------------------------------

    def read(self, stream: TraceStream, block_bytes: int, threads: int) -> None:
        """Read the trace up to the end of the window. Raises TranslationError for a damaged trace."""
        blocks = _split(stream, block_bytes, self._prologue.head)
        first = next(blocks, None)
        if first is not None:
            self._start(first)
            if self._read_block(first):
                for part in run_in_threads(self._read_alone, blocks, threads):
                    if not self._continue(part):
                        break
        self._end(stream)

    def _start(self, block: Block) -> None:
        """Set the window, because the time of the first record is known now, and write the header."""
        reader = self._reader
        if self._has_window:
            self.begin = max(self.begin, block.first)
            if self.begin >= self.last:
                raise _make_empty_error()
            self._window = Window(self.begin, self.last, self.begin - 1)
        else:
            reader.progress[lines.PHASE] = lines.WITHIN
        origin = self._window.origin
        self._put(format_header(self._prologue, self._objects, self._communicators, origin, self.last - origin))

    def _read_alone(self, block: Block) -> Block | Part:
        """Read a block in a thread of its own if neither limit of the window lies in it; otherwise return the block."""
        window = self._window
        is_before = block.last < window.low
        is_within = block.first > window.low and block.last < window.high
        if min(block.first, block.last) < 0 or not (is_before or is_within):
            return block
        if not hasattr(self._local, "reader"):
            self._local.reader = Reader(self.rows, self._roles)
        phase = lines.BEFORE if is_before else lines.WITHIN
        part: Part | None = self._local.reader.read_alone(block, phase, window)
        return part or block

    def _continue(self, part: Block | Part) -> bool:
        """Continue with a block, which may have been read alone; return whether the window continues."""
        if isinstance(part, Block):
            return self._read_block(part)
        if part.progress[lines.PHASE] != self.progress[lines.PHASE] or part.block.first < self.progress[lines.TIME]:
            return self._read_block(part.block)
        self._reader.add(part)
        self._put_texts(part.texts)
        return True

    def _read_block(self, block: Block) -> bool:
        """Read the block that follows; return whether the window continues."""
        reader = self._reader
        reader.start(block)
        while True:
            reason = reader.scan(block, self._window)
            self._put_texts(reader.take_texts())
            if reason == lines.AT_LOW:
                self._write_start(block)
            elif reason == lines.AT_HIGH:
                self._write_end(block)
            elif reason == lines.NOT_SORTED:
                number = self._count_head() + int(self.progress[lines.LINE])
                raise TranslationError(
                    f"{self._path}: line {number} is earlier than the line before it; sort the lines by time first"
                )
            else:
                break
        reader.end_block(block)
        return reason == lines.BLOCK_READ

    def _count_head(self) -> int:
        """Return the number of the first line with a record."""
        return 2 + len(self._prologue.communicators)

    def _end(self, stream: TraceStream) -> None:
        """Close the window if the trace ends before it."""
        progress = self.progress
        if stream.damage:
            reached = int(progress[lines.TIME]) * self._prologue.ns / 1e9
            raise TranslationError(f"{self._path}: {stream.damage}; choose a time before {reached:g} s")
        if not stream.complete:
            self.warnings.append(f"{self._path}: the last line has no newline: the trace may not be complete")
        if progress[lines.PHASE] == lines.BEFORE:
            self._write_start(None)
        if progress[lines.PHASE] == lines.WITHIN and self._has_window:
            self._write_end(None)
        if not progress[[lines.STATES, lines.EVENTS, lines.COMMUNICATIONS]].any():
            raise _make_empty_error()
        self._flush()
        if skipped := int(progress[lines.SKIPPED]):
            first = self._count_head() - 1 + int(progress[lines.SKIPPED_LINE])
            what = count_noun(skipped, "line")
            self.warnings.append(
                f"{self._path}: {what} skipped that are no records of its objects, from line {first} on"
            )

    # ---- writing -----------------------------------------------------------------------------------------------------

    def _put(self, data: bytes) -> None:
        self.bytes += len(data)
        if not self._trace.compressed:
            self._trace.write_prv(data)
            return
        self._waiting += data
        if len(self._waiting) >= BLOCK_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Write the text that waits until it fills a gzip member."""
        for part in compress(memoryview(self._waiting)):
            self._trace.write_prv(part)
        self._waiting = bytearray()

    def _put_texts(self, texts: tuple[bytes, bytes, bytes]) -> None:
        """Write the lines that are in their place, and keep the lines that start with the window."""
        self._put(texts[0])
        for late, text in zip(self._late, texts[1:], strict=True):
            if text:
                late.append(text)

    def _write_start(self, block: Block | None) -> None:
        """Write what is open and in force at the start, after the points there."""
        self._put_events(self._limit_lines.repeat(self._reader.levels, 1))
        self._put_events(self._limit_lines.open(self._reader.list_open(block), 1))
        for late in self._late:
            self._put(b"".join(late))
        self.progress[lines.PHASE] = lines.WITHIN

    def _write_end(self, block: Block | None) -> None:
        """Close what is open at the end."""
        low, high, origin = self._window
        self._put_events(self._limit_lines.close(self._reader.list_open(block), high - origin))
        self._put_events(self._limit_lines.end_activity(self._reader.levels, low, high, high - origin))
        self.progress[lines.PHASE] = lines.CLOSED

    def _put_events(self, written: Iterable[bytes]) -> None:
        texts = list(written)
        self._put(b"".join(texts))
        self.progress[lines.EVENTS] += len(texts)


def _split(stream: TraceStream, block_bytes: int, head: bytes) -> Iterator[Block]:
    """Yield the blocks of a trace after its header."""
    base = 0
    for text, size in stream.read_blocks(block_bytes, head):
        yield make_block(text[:size].copy(), base)  # the buffer is used again
        base += size


def _make_empty_error() -> UsageError:
    return UsageError("no event is in the chosen time; choose a longer or another one", parameter="time")
