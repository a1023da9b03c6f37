"""Checks whether a trace keeps every rule of Paraver, including rules about which Paraver never complains.

Paraver silently drops lines, cuts numbers, and shows wrong intervals. This checker is stricter than Paraver on purpose:
Paraver shows a trace without problems here as it was meant.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.paraver.checker.trace_body import BodyCheck
from nsys2prv_ng.paraver.files import is_trace, list_trace_files
from nsys2prv_ng.paraver.read.header_reader import TraceHeader, check_communicator, read_header
from nsys2prv_ng.paraver.read.pcf_reader import ParaverConfig, read_pcf
from nsys2prv_ng.paraver.read.problems import Findings, Problem, sort_by_line
from nsys2prv_ng.paraver.read.row_reader import read_row
from nsys2prv_ng.paraver.read.trace_stream import TraceStream, read_communicators, read_first_line

if TYPE_CHECKING:
    from nsys2prv_ng.paraver.checker.cfg import CfgCheckResult

__all__ = ["CheckResult", "Problem", "TraceContents", "check_trace"]

_BLOCK_BYTES = 1 << 20
_MAX_LINE_BYTES = 4 << 20
"""Longer lines are a problem, and their fields are not checked."""


@dataclass(frozen=True)
class TraceContents:
    """The contents of a trace for checking cfgs: its objects, its .pcf (None if unreadable), the types of its events.

    A .pcf may declare types without any event; `types` are the types of actual events.
    """

    header: TraceHeader
    config: ParaverConfig | None
    types: frozenset[int]


@dataclass(frozen=True)
class CheckResult:
    """The result of a check. `problems` are wrong; Paraver accepts `warnings`, but they are rarely meant.

    records: number of well-formed lines and pairs, {"states": n, "events": n, "pairs": n, "communications": n}.
    duration: end time of the header in its unit (ns in traces of this package). tasks, rows (threads), nodes: numbers
    in the header, 0 if it cannot be read.
    """

    problems: list[Problem]
    warnings: list[Problem]
    records: dict[str, int]
    duration: int
    tasks: int
    rows: int
    nodes: int
    contents: TraceContents
    cfgs: dict[Path, CfgCheckResult] = field(default_factory=dict)
    """Results of the cfgs that were checked against the trace, by path."""


def check_trace(
    path: Path,
    *,
    progress: Callable[[int], object] | None = None,
    block_bytes: int = _BLOCK_BYTES,
    max_line: int = _MAX_LINE_BYTES,
) -> CheckResult:
    """Check x.prv or x.prv.gz with x.pcf and x.row, in one pass and in bounded memory.

    `progress` gets the number of bytes of the .prv read since its last call. Raises TranslationError if the .prv cannot
    be read or is not a Paraver trace at all. The result has everything else, with one entry per kind of problem.
    """
    if not is_trace(path):
        raise TranslationError(f"{path}: not a Paraver trace: its name must end in .prv or .prv.gz")
    pcf_path, row_path, _ = list_trace_files(path)
    prv, pcf = Findings(path), Findings(pcf_path)
    with closing(TraceStream(path, max_line, progress)) as stream:
        line = read_first_line(stream)
        if line.endswith("\r"):
            prv.add(1, "carriage return: lines must end with a line feed alone", "carriage return")
        header = read_header(line.removesuffix("\r"), prv)
        head, lines = _read_communicators(stream, header, prv)
        config = _read_config(pcf_path, pcf)
        body = BodyCheck(path, header, config, lines, max_line)
        for text, size in stream.read_blocks(block_bytes, head):
            body.check(text, size)
        _check_end(stream, body, prv)
    row = _check_row(row_path, header)
    return CheckResult(
        problems=sort_by_line(prv.list_problems() + body.list_problems())
        + sort_by_line(pcf.list_problems())
        + sort_by_line(row.list_problems()),
        warnings=sort_by_line(prv.list_warnings() + body.list_warnings()) + sort_by_line(pcf.list_warnings()),
        records=body.records,
        duration=header.duration or 0,
        tasks=header.tasks,
        rows=header.rows,
        nodes=len(header.cpus),
        contents=TraceContents(header, config, frozenset(body.types)),
    )


def _read_communicators(stream: TraceStream, header: TraceHeader, findings: Findings) -> tuple[bytes, int]:
    """Read the communicators. Return what was read of the first line of the body, and the number of lines before it."""
    lines, head = read_communicators(stream, header.communicators)
    for number, line in enumerate(lines, 2):
        check_communicator(line.decode("latin-1").removesuffix("\n"), number, header, findings)
    if len(lines) < header.communicators:
        message = f"the header announces {header.communicators} communicators, and only {len(lines)} lines follow"
        findings.add(len(lines) + 2, message, "communicators")
    return head, len(lines) + 1


def _read_config(path: Path, findings: Findings) -> ParaverConfig | None:
    try:
        return read_pcf(path, findings)
    except OSError as error:
        findings.add(0, f"cannot be read ({error.strerror}): labels and intervals are not checked", "unreadable")
        return None


def _check_end(stream: TraceStream, body: BodyCheck, findings: Findings) -> None:
    if stream.damage:
        findings.add(body.lines, stream.damage, "damage")
    elif not stream.complete:
        findings.add(body.lines, "the last line has no newline: the trace may not be complete", "newline")
    if not any(body.records.values()):
        findings.add(0, "no record at all: Paraver refuses such a trace", "no record")


def _check_row(path: Path, header: TraceHeader) -> Findings:
    """Read the .row, and compare the sizes of its levels with the objects of the header."""
    findings = Findings(path)
    try:
        levels = read_row(path, findings)
    except OSError as error:
        findings.add(0, f"cannot be read ({error.strerror}): objects have numbers for names", "unreadable")
        return findings
    if not header.applications:
        return findings
    objects = {"WORKLOAD": 1, "APPL": len(header.applications), "TASK": header.tasks, "THREAD": header.rows}
    objects |= {"SYSTEM": int(bool(header.cpus)), "NODE": len(header.cpus), "CPU": sum(header.cpus)}
    for name, level in levels.items():
        if name in objects and level.size != objects[name]:
            message = f"level {name} has SIZE {level.size}, the header of the .prv has {objects[name]}"
            findings.add(level.line, message, f"objects {name}")
    return findings
