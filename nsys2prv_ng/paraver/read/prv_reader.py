"""Reads a .prv or .prv.gz: its first lines strictly, which are the header and its communicators, then blocks of lines.

    #Paraver (DATE):ENDTIME_UNIT:RESOURCES:NAPPL:APPL[,APPL...][,NCOMM]
    RESOURCES := 0 | NNODES(ncpu1,ncpu2,...) | NNODES
    APPL      := NTASKS(nthreads:node,nthreads:node,...)

The limits come from Paraver's loader: object numbers have 16 bits, a node without CPUs or 65,535 CPUs crash it, and
a task on a node that does not exist puts it into an endless loop.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from io import BufferedReader
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver.read.problems import Findings
from nsys2prv_ng.runtime.files import open_input
from nsys2prv_ng.value_class import ValueClass

MAX_OBJECTS = 65535
"""Highest number of a node, task or thread, and of all threads together."""
MAX_CPUS = 65534
TIME_LIMIT = 2**53
"""Paraver keeps times as doubles, which are rounded from this value."""
NS_OF_UNIT = {"_ns": 1, "_us": 10**3, "_ms": 10**6}

_LINE = re.compile(r"#Paraver \((?P<date>[^)]*)\):(?P<end>[^:_]*)(?P<unit>_[^:]*)?:(?P<objects>.*)", re.ASCII)
_OBJECTS = re.compile(r"(?P<nodes>\d+)(\((?P<cpus>[\d,]*)\))?:(?P<applications>\d+):(?P<rest>.*)", re.ASCII)
_APPLICATION = re.compile(r"(?P<tasks>\d+)\((?P<list>[\d:,]*)\)", re.ASCII)
_COMMUNICATOR = re.compile(r"c(:\d+){3,}", re.ASCII)


class TraceHeader(ValueClass):
    """The content of a header.

    duration: end time in the trace's unit, None if it cannot be read.
    cpus: CPUs of each node; empty if the trace has no resources.
    applications: for each application, (threads, node) of its tasks; empty if the objects cannot be read.
    """

    duration: int | None = None
    cpus: tuple[int, ...] = ()
    applications: tuple[tuple[tuple[int, int], ...], ...] = ()
    communicators: int = 0

    @property
    def tasks(self) -> int:
        return sum(len(application) for application in self.applications)

    @property
    def rows(self) -> int:
        return sum(threads for application in self.applications for threads, _ in application)

    def list_thread_names(self) -> list[str]:
        """Return application.task.thread of each row."""
        return [
            f"{application}.{task}.{thread}"
            for application, tasks in enumerate(self.applications, 1)
            for task, (threads, _) in enumerate(tasks, 1)
            for thread in range(1, threads + 1)
        ]


def read_header(line: str, findings: Findings) -> TraceHeader:
    """Read the header from the first line of a trace, without its newline. Errors go to `findings`."""
    match = _LINE.fullmatch(line)
    if match is None:
        findings.add(1, "the header is not '#Paraver (date):endtime_ns:resources:applications'", "header")
        return TraceHeader()
    if not _is_date(match["date"]):
        findings.add(1, f"the date '{match['date']}' is not 'DD/MM/YYYY at HH:MM'", "date")
    if match["unit"] is None:
        findings.warn(1, "the end time has no unit: Paraver takes microseconds", "unit")
    elif match["unit"] not in NS_OF_UNIT:
        findings.add(1, f"the time unit '{match['unit']}' is not one of {', '.join(NS_OF_UNIT)}", "unit")
    duration = None
    if not re.fullmatch(r"[0-9]+", match["end"]):
        findings.add(1, f"the end time '{match['end']}' is not an integer", "end")
    elif len(match["end"]) > 19 or int(match["end"]) >= TIME_LIMIT:
        findings.add(1, f"the end time {match['end'][:40]} is not below 2^53", "end")
    else:
        duration = int(match["end"])
    return _read_objects(match["objects"], duration, findings)


def _is_date(text: str) -> bool:
    with suppress(ValueError):
        datetime.strptime(text, "%d/%m/%Y at %H:%M")
        return re.fullmatch(r"\d\d/\d\d/\d{4} at \d\d:\d\d", text) is not None
    return False


def _read_objects(text: str, duration: int | None, findings: Findings) -> TraceHeader:
    match = _OBJECTS.fullmatch(text)
    if match is None:
        findings.add(1, "the header's resources are not '0' or 'nodes(cpus,...)', then the applications", "objects")
        return TraceHeader(duration)
    cpus = _read_cpus(match["nodes"], match["cpus"], findings)
    applications, communicators = _read_applications(match["applications"], match["rest"], findings)
    header = TraceHeader(duration, cpus or (), applications, communicators)
    if cpus is None or not applications:
        return TraceHeader(duration, communicators=communicators)
    _check_tasks(header, findings)
    if header.rows > MAX_OBJECTS:
        findings.add(1, f"{header.rows} threads in all: Paraver cuts them at {MAX_OBJECTS}", "rows")
        return TraceHeader(duration, communicators=communicators)
    return header


def _read_cpus(nodes: str, cpus: str | None, findings: Findings) -> tuple[int, ...] | None:
    """Return the number of CPUs of each node; () without resources, None if it cannot be used."""
    count = _parse_small(nodes)
    if count > MAX_OBJECTS:
        findings.add(1, f"{nodes[:40]} nodes are more than {MAX_OBJECTS}", "nodes")
        return None
    if cpus is None:
        return (1,) * count
    fields = cpus.split(",")
    if count == 0 or len(fields) != count or not all(fields):
        message = f"the header has {nodes} nodes, but {len(fields)} counts of CPUs: '{cpus[:40]}'"
        findings.add(1, message, "nodes")
        return None
    counts = tuple(map(_parse_small, fields))
    if 0 in counts:
        findings.add(1, f"node {counts.index(0) + 1} has 0 CPUs: Paraver crashes", "no cpu")
    if sum(counts) > MAX_CPUS:
        findings.add(1, f"more than {MAX_CPUS} CPUs: Paraver crashes", "cpus")
    return counts


def _read_applications(
    count: str, text: str, findings: Findings
) -> tuple[tuple[tuple[tuple[int, int], ...], ...], int]:
    """Return the tasks of each application (empty if they cannot be read) and the number of communicator lines."""
    applications: list[tuple[tuple[int, int], ...]] = []
    position = 0
    while match := _APPLICATION.match(text, position):
        tasks = match["list"].split(",")
        if len(tasks) != _parse_small(match["tasks"]) or not all(re.fullmatch(r"\d+:\d+", task) for task in tasks):
            where = f"application {len(applications) + 1}"
            findings.add(1, f"{where} has {match['tasks']} tasks, but its list is '{match['list'][:40]}'", "tasks")
            return (), 0
        pairs = (task.split(":") for task in tasks)
        applications.append(tuple((_parse_small(threads), _parse_small(node)) for threads, node in pairs))
        position = match.end()
        if not re.match(r"[,:]\d+\(", text[position : position + 25]):
            break
        position += 1
    if len(applications) != _parse_small(count):
        findings.add(1, f"the header announces {count} applications and lists {len(applications)}", "applications")
    communicators = re.fullmatch(r",(\d{1,18})", text[position:]) if position < len(text) else None
    if position < len(text) and communicators is None:
        findings.add(1, f"'{text[position : position + 40]}' behind the last application of the header", "rest")
    return tuple(applications), int(communicators[1]) if communicators else 0


def _check_tasks(header: TraceHeader, findings: Findings) -> None:
    if header.tasks > MAX_OBJECTS:
        findings.add(1, f"{header.tasks} tasks are more than {MAX_OBJECTS}", "many tasks")
    nodes = len(header.cpus)
    for application, tasks in enumerate(header.applications, 1):
        for task, (threads, node) in enumerate(tasks, 1):
            if threads == 0:
                findings.add(1, f"task {application}.{task} has no thread", "no thread")
            if not (1 <= node <= nodes or node == nodes == 0):
                message = f"task {application}.{task} is on node {node}, the header has nodes 1 to {nodes}"
                findings.add(1, message, "node")


def _parse_small(digits: str) -> int:
    """Return the number, or 2^31 for large numbers: it exceeds every limit and keeps sums within int64."""
    return int(digits) if len(digits) < 10 else 2**31


def check_communicator(text: str, line: int, header: TraceHeader, findings: Findings) -> None:
    """Check a line `c:application:id:tasks:task:task...`. A line `i:` (intercommunicator) is not checked further."""
    if text[:1] not in ("c", "C"):
        return
    if not _COMMUNICATOR.fullmatch(text):
        findings.add(line, "a communicator line is not 'c:application:id:tasks:task:task...'", "communicator")
        return
    application, _, count, *tasks = map(_parse_small, text.split(":")[1:])
    if not header.applications:
        return
    if not 1 <= application <= len(header.applications):
        message = f"communicator of application {application}: no such application"
        findings.add(line, message, "communicator application")
        return
    known = len(header.applications[application - 1])
    if count != len(tasks):
        findings.add(line, f"the communicator has {count} tasks, but lists {len(tasks)}", "communicator size")
    for task in tasks:
        if not 1 <= task <= known:
            findings.add(line, f"communicator with task {task}: the application has {known}", "communicator task")


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
            self._raw = open_input(path)
        except OSError as error:
            raise TranslationError(f"{path}: cannot be read: {error.strerror}") from None
        self._bytes: gzip.GzipFile | BufferedReader = self._raw
        if path.name.endswith(".gz"):
            self._bytes = gzip.GzipFile(fileobj=self._raw, mode="rb")

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
