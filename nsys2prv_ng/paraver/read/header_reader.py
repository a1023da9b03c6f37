"""Reads the first lines of a .prv strictly: the header and its communicators.

    #Paraver (DATE):ENDTIME_UNIT:RESOURCES:NAPPL:APPL[,APPL...][,NCOMM]
    RESOURCES := 0 | NNODES(ncpu1,ncpu2,...) | NNODES
    APPL      := NTASKS(nthreads:node,nthreads:node,...)

The limits come from Paraver's loader: object numbers have 16 bits, a node without CPUs or 65,535 CPUs crash it, and
a task on a node that does not exist puts it into an endless loop.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime

from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.paraver.read.problems import Findings

MAX_OBJECTS = 65535
"""Highest number of a node, task or thread, and of all threads together."""
MAX_CPUS = 65534
TIME_LIMIT = 2**53
"""Paraver keeps times as doubles, which are rounded from this value."""
NS_OF_UNIT = {"_ns": 1, "_us": 10**3, "_ms": 10**6}
DATE = "%d/%m/%Y at %H:%M"

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
    header = _read_objects(match["objects"], duration, findings)
    return replace(header, date=match["date"], unit=match["unit"] or "", objects=match["objects"])


def _is_date(text: str) -> bool:
    if not re.fullmatch(r"\d\d/\d\d/\d{4} at \d\d:\d\d", text):
        return False
    try:
        datetime.strptime(text, DATE)
    except ValueError:
        return False
    return True


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
        findings.add(
            1, f"the header has {nodes} nodes, but {cpus.count(',') + 1} counts of CPUs: '{cpus[:40]}'", "nodes"
        )
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
                findings.add(
                    1, f"task {application}.{task} is on node {node}, the header has nodes 1 to {nodes}", "node"
                )


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
        findings.add(
            line, f"communicator of application {application}: no such application", "communicator application"
        )
        return
    known = len(header.applications[application - 1])
    if count != len(tasks):
        findings.add(line, f"the communicator has {count} tasks, but lists {len(tasks)}", "communicator size")
    for task in tasks:
        if not 1 <= task <= known:
            findings.add(line, f"communicator with task {task}: the application has {known}", "communicator task")
