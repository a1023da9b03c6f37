"""Reads the first lines of a .prv strictly: the header and its communicators.

    #Paraver (DATE):ENDTIME_UNIT:RESOURCES:NAPPL:APPL[,APPL...][,NCOMM]
    RESOURCES := 0 | NNODES(ncpu1,ncpu2,...) | NNODES
    APPL      := NTASKS(nthreads:node,nthreads:node,...)

The limits are those of Paraver's loader: object numbers have 16 bits, a node without CPUs or 65,535 CPUs crash it, and
a task on a node that does not exist puts it into an endless loop.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime

from nsys2prv_ng.paraver.read.problems import Findings

MAX_OBJECTS = 65535
"""Highest number of a node, task or thread, and of all threads together."""
MAX_CPUS = 65534
TIME_LIMIT = 2**53
"""Paraver keeps times as doubles, which are rounded from this value."""
UNITS = ("_ns", "_us", "_ms")

_LINE = re.compile(r"#Paraver \((?P<date>[^)]*)\):(?P<end>[^:_]*)(?P<unit>_[^:]*)?:(?P<objects>.*)", re.ASCII)
_OBJECTS = re.compile(r"(?P<nodes>\d+)(\((?P<cpus>[\d,]*)\))?:(?P<applications>\d+):(?P<rest>.*)", re.ASCII)
_APPLICATION = re.compile(r"(?P<tasks>\d+)\((?P<list>[\d:,]*)\)", re.ASCII)
_COMMUNICATOR = re.compile(r"c(:\d+){3,}", re.ASCII)


@dataclass(frozen=True)
class TraceHeader:
    """The content of a header.

    duration: end time in the trace's unit, None if it cannot be read.
    cpus: CPUs of each node; empty if the trace has no resources.
    applications: for each application, (threads, node) of its tasks; empty if the objects cannot be read.
    """

    duration: int | None = None
    cpus: tuple[int, ...] = ()
    applications: tuple[tuple[tuple[int, int], ...], ...] = ()
    communicators: int = 0
    date: str = ""
    unit: str = ""
    objects: str = ""
    """The text of resources and applications, with the number of communicators."""

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


def read_header(line: str, problems: Findings, warnings: Findings) -> TraceHeader:
    """Read the header from the first line of a trace, without its newline. Errors go to `problems`."""
    match = _LINE.fullmatch(line)
    if match is None:
        problems.add("header", 1, "the header is not '#Paraver (date):endtime_ns:resources:applications'")
        return TraceHeader()
    if not _is_date(match["date"]):
        problems.add("date", 1, f"the date '{match['date']}' is not 'DD/MM/YYYY at HH:MM'")
    if match["unit"] is None:
        warnings.add("unit", 1, "the end time has no unit: Paraver takes microseconds")
    elif match["unit"] not in UNITS:
        problems.add("unit", 1, f"the time unit '{match['unit']}' is not one of {', '.join(UNITS)}")
    duration = None
    if not re.fullmatch(r"[0-9]+", match["end"]):
        problems.add("end", 1, f"the end time '{match['end']}' is not an integer")
    elif len(match["end"]) > 19 or int(match["end"]) >= TIME_LIMIT:
        problems.add("end", 1, f"the end time {match['end'][:40]} is not below 2^53")
    else:
        duration = int(match["end"])
    header = _read_objects(match["objects"], duration, problems)
    return replace(header, date=match["date"], unit=match["unit"] or "", objects=match["objects"])


def _is_date(text: str) -> bool:
    if not re.fullmatch(r"\d\d/\d\d/\d{4} at \d\d:\d\d", text):
        return False
    try:
        datetime.strptime(text, "%d/%m/%Y at %H:%M")
    except ValueError:
        return False
    return True


def _read_objects(text: str, duration: int | None, problems: Findings) -> TraceHeader:
    match = _OBJECTS.fullmatch(text)
    if match is None:
        problems.add("objects", 1, "the header's resources are not '0' or 'nodes(cpus,...)', then the applications")
        return TraceHeader(duration)
    cpus = _read_cpus(match["nodes"], match["cpus"], problems)
    applications, communicators = _read_applications(match["applications"], match["rest"], problems)
    header = TraceHeader(duration, cpus or (), applications, communicators)
    if cpus is None or not applications:
        return TraceHeader(duration, communicators=communicators)
    _check_tasks(header, problems)
    if header.rows > MAX_OBJECTS:
        problems.add("rows", 1, f"{header.rows} threads in all: Paraver cuts them at {MAX_OBJECTS}")
        return TraceHeader(duration, communicators=communicators)
    return header


def _read_cpus(nodes: str, cpus: str | None, problems: Findings) -> tuple[int, ...] | None:
    """Return the number of CPUs of each node; () without resources, None if it cannot be used."""
    count = _parse_small(nodes)
    if count > MAX_OBJECTS:
        problems.add("nodes", 1, f"{nodes[:40]} nodes are more than {MAX_OBJECTS}")
        return None
    if cpus is None:
        return (1,) * count
    fields = cpus.split(",")
    if count == 0 or len(fields) != count or not all(fields):
        problems.add(
            "nodes", 1, f"the header has {nodes} nodes, but {cpus.count(',') + 1} counts of CPUs: '{cpus[:40]}'"
        )
        return None
    counts = tuple(map(_parse_small, fields))
    if 0 in counts:
        problems.add("no cpu", 1, f"node {counts.index(0) + 1} has 0 CPUs: Paraver crashes")
    if sum(counts) > MAX_CPUS:
        problems.add("cpus", 1, f"more than {MAX_CPUS} CPUs: Paraver crashes")
    return counts


def _read_applications(
    count: str, text: str, problems: Findings
) -> tuple[tuple[tuple[tuple[int, int], ...], ...], int]:
    """Return the tasks of each application (empty if they cannot be read) and the number of communicator lines."""
    applications: list[tuple[tuple[int, int], ...]] = []
    position = 0
    while match := _APPLICATION.match(text, position):
        tasks = match["list"].split(",")
        if len(tasks) != _parse_small(match["tasks"]) or not all(re.fullmatch(r"\d+:\d+", task) for task in tasks):
            where = f"application {len(applications) + 1}"
            problems.add("tasks", 1, f"{where} has {match['tasks']} tasks, but its list is '{match['list'][:40]}'")
            return (), 0
        pairs = (task.split(":") for task in tasks)
        applications.append(tuple((_parse_small(threads), _parse_small(node)) for threads, node in pairs))
        position = match.end()
        if not re.match(r"[,:]\d+\(", text[position : position + 25]):
            break
        position += 1
    if len(applications) != _parse_small(count):
        problems.add("applications", 1, f"the header announces {count} applications and lists {len(applications)}")
    communicators = re.fullmatch(r",(\d{1,18})", text[position:]) if position < len(text) else None
    if position < len(text) and communicators is None:
        problems.add("rest", 1, f"'{text[position : position + 40]}' behind the last application of the header")
    return tuple(applications), int(communicators[1]) if communicators else 0


def _check_tasks(header: TraceHeader, problems: Findings) -> None:
    if header.tasks > MAX_OBJECTS:
        problems.add("many tasks", 1, f"{header.tasks} tasks are more than {MAX_OBJECTS}")
    nodes = len(header.cpus)
    for application, tasks in enumerate(header.applications, 1):
        for task, (threads, node) in enumerate(tasks, 1):
            if threads == 0:
                problems.add("no thread", 1, f"task {application}.{task} has no thread")
            if not (1 <= node <= nodes or node == nodes == 0):
                problems.add(
                    "node", 1, f"task {application}.{task} is on node {node}, the header has nodes 1 to {nodes}"
                )


def _parse_small(digits: str) -> int:
    """Return the number, or 2^31 for large numbers: it exceeds every limit and keeps sums within int64."""
    return int(digits) if len(digits) < 10 else 2**31


def check_communicator(text: str, line: int, header: TraceHeader, problems: Findings) -> None:
    """Check a line `c:application:id:tasks:task:task...`. A line `i:` (intercommunicator) is not checked further."""
    if text[:1] not in ("c", "C"):
        return
    if not _COMMUNICATOR.fullmatch(text):
        problems.add("communicator", line, "a communicator line is not 'c:application:id:tasks:task:task...'")
        return
    application, _, count, *tasks = map(_parse_small, text.split(":")[1:])
    if not header.applications:
        return
    if not 1 <= application <= len(header.applications):
        problems.add(
            "communicator application", line, f"communicator of application {application}: no such application"
        )
        return
    known = len(header.applications[application - 1])
    if count != len(tasks):
        problems.add("communicator size", line, f"the communicator has {count} tasks, but lists {len(tasks)}")
    for task in tasks:
        if not 1 <= task <= known:
            problems.add("communicator task", line, f"communicator with task {task}: the application has {known}")
