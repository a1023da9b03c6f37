"""Reads the header, communicators, .pcf and .row of a trace, and writes the header of a cut."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.paraver.files import list_trace_files
from nsys2prv_ng.paraver.read.label_files import ParaverConfig, read_pcf, read_row
from nsys2prv_ng.paraver.read.problems import Findings
from nsys2prv_ng.paraver.read.prv_reader import (
    DATE,
    NS_OF_UNIT,
    TraceHeader,
    TraceStream,
    read_communicators,
    read_first_line,
    read_header,
)


@dataclass(frozen=True)
class Prologue:
    """The header of a trace, its communicators, and what was read of the first line after them."""

    header: TraceHeader
    objects: str
    """Resources and applications, without the number of communicators."""
    communicators: list[bytes]
    head: bytes

    @property
    def ns(self) -> int:
        """Length (ns) of the time unit; if there is no unit, Paraver takes microseconds."""
        return NS_OF_UNIT.get(self.header.unit, NS_OF_UNIT["_us"])

    @property
    def duration(self) -> int:
        assert self.header.duration is not None
        return self.header.duration


def read_prologue(stream: TraceStream) -> Prologue:
    """Read the first lines of a trace. Raises TranslationError if its header cannot be understood."""
    findings = Findings(stream.path)
    header = read_header(read_first_line(stream).rstrip("\r\n"), findings)
    if header.duration is None or not header.applications:
        reason = findings.list_problems()[0].message if findings.list_problems() else "it cannot be read"
        raise TranslationError(f"{stream.path}: its header is damaged: {reason}")
    communicators, head = read_communicators(stream, header.communicators)
    objects = header.objects.rpartition(",")[0] if header.communicators else header.objects
    return Prologue(header, objects, [line.rstrip(b"\r\n") for line in communicators], head)


def format_header(prologue: Prologue, objects: str, communicators: list[bytes], begin: int, duration: int) -> bytes:
    """Return the header of a cut. `begin`: its time 0 in the trace, `duration`: its length, both in the trace's unit.

    The date is up to a minute early, because the header of the trace has no seconds.
    """
    count = f",{len(communicators)}" if communicators else ""
    date = _move_date(prologue.header.date, begin * prologue.ns)
    line = f"#Paraver ({date}):{duration}{prologue.header.unit}:{objects}{count}"
    return b"\n".join([line.encode("latin-1"), *communicators]) + b"\n"


def _move_date(date: str, ns: int) -> str:
    """Return the date some ns later; a date of another form stays as it is."""
    try:
        return (datetime.strptime(date, DATE) + timedelta(microseconds=ns // 1000)).strftime(DATE)
    except (ValueError, OverflowError):
        return date


@dataclass(frozen=True)
class Labels:
    """The .pcf and .row of a trace: their texts (empty if there is no file), their contents, and warnings."""

    pcf: str
    row: str
    config: ParaverConfig
    names: dict[str, list[str]]
    warnings: list[str]


def read_labels(trace: Path) -> Labels:
    """Read the .pcf and .row beside a trace, which may be missing."""
    pcf, row, _ = list_trace_files(trace)
    warnings: list[str] = []
    config, names, texts = ParaverConfig(), {}, {pcf: "", row: ""}
    for path, consequence in (
        (pcf, "what is open at the limits is not known, and is not cut"),
        (row, "objects have numbers for names"),
    ):
        try:
            # Bytes need not be text: the copy keeps them as they are.
            texts[path] = path.read_bytes().decode("utf-8", "surrogateescape")
            if path == pcf:
                config = read_pcf(path, Findings(path))
            else:
                names = {level: part.names for level, part in read_row(path, Findings(path)).items()}
        except OSError as error:
            warnings.append(f"{path}: cannot be read ({error.strerror}): {consequence}")
    return Labels(texts[pcf], texts[row], config, names, warnings)
