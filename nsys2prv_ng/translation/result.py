"""What a translation did: events read, written and dropped by source, and the size of the trace."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from nsys2prv_ng.clock.alignment_table import Alignment
from nsys2prv_ng.errors import escape_unprintable
from nsys2prv_ng.job.accounts import ReportAccount, SkippedReport
from nsys2prv_ng.text.formatting import count_noun, format_utc

if TYPE_CHECKING:
    from nsys2prv_ng.summary.model import JobSummary

SUMMARY_VERSION = 1


@dataclass
class SourceAccount:
    """Events of one source over all reports. Law: read = written + the sum of dropped."""

    name: str
    title: str
    read: int = 0
    written: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    closed_at_end: int = 0

    def drop(self, reason: str, count: int) -> None:
        if count:
            self.dropped[reason] = self.dropped.get(reason, 0) + count


@dataclass
class NsysMessages:
    """What nsys itself complained about: warnings and errors, and how many of the reports have some."""

    warnings: int
    errors: int
    reports: int
    lost: int
    """How many tell for sure that data is missing."""

    def __str__(self) -> str:
        told = [(self.warnings, "warning"), (self.errors, "error")]
        given = " and ".join(count_noun(number, noun) for number, noun in told if number)
        lost = f", {self.lost:,} of which say that data is missing" if self.lost else ""
        return f"nsys gave {given} in {count_noun(self.reports, 'report')}{lost}"


@dataclass
class TranslationResult:
    """A translation: what it read and what it wrote. Times in ns."""

    output: str
    sources: list[SourceAccount]
    reports: list[ReportAccount]
    skipped: list[SkippedReport]
    start_utc_ns: int
    duration_ns: int
    nodes: int
    tasks: int
    rows: int
    states: int
    events: int
    communications: int
    bytes: int
    """Length of the .prv's text, and of its file, which may be compressed."""
    file_bytes: int
    seconds: float
    warnings: list[str]
    messages: NsysMessages = field(default_factory=lambda: NsysMessages(0, 0, 0, 0))
    clocks: Alignment | None = None
    overview: JobSummary | None = None

    @property
    def start_utc(self) -> str:
        """UTC of time 0 of the trace."""
        return format_utc(self.start_utc_ns)

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        fields = asdict(replace(self, clocks=None, overview=None))
        for name, part in (("clocks", self.clocks), ("overview", self.overview)):
            fields[name] = part.to_dict() if part is not None else None
        return {"version": SUMMARY_VERSION, "start_utc": self.start_utc, **fields}

    def text(self, *, verbose: bool = False) -> str:
        """For a terminal or a log; `verbose` adds a line for each report."""
        rows = [("source", "read", "written", "dropped")]
        for source in self.sources:
            if source.read:
                dropped = sum(source.dropped.values())
                rows.append((source.name, f"{source.read:,}", f"{source.written:,}", f"{dropped:,}"))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [
            row[0].ljust(widths[0])
            + "".join(f"  {cell.rjust(width)}" for cell, width in zip(row[1:], widths[1:], strict=True))
            for row in rows
        ]
        for source in self.sources:
            for reason, count in sorted(source.dropped.items()):
                lines.append(f"  {source.name}: {count:,} dropped: {reason}")
            if source.closed_at_end:
                lines.append(f"  {source.name}: {source.closed_at_end:,} without an end, closed when the trace ends")
        absent = [source.name for source in self.sources if not source.read]
        if absent:
            lines.append(f"  not in these reports: {', '.join(absent)}")
        if self.messages.reports:
            lines.append(f"  {self.messages}: nsys2prv-ng inspect shows them")
        lines += [escape_unprintable(f"  left out: {report.file}: {report.why}") for report in self.skipped]
        lines.append(
            f"{escape_unprintable(self.output)}: {count_noun(self.tasks, 'task')}, {count_noun(self.rows, 'row')},"
            f" {count_noun(self.nodes, 'node')}, {self.duration_ns / 1e9:.3f} s from {self.start_utc}"
        )
        compressed = "" if self.file_bytes == self.bytes else f" ({self.file_bytes / 1e6:.1f} MB compressed)"
        lines.append(
            f"{self.states:,} states, {self.events:,} event lines, {self.communications:,} communications,"
            f" {self.bytes / 1e6:.1f} MB{compressed} in {self.seconds:.1f} s"
        )
        if self.clocks is not None and (self.clocks.is_corrected or verbose):
            lines.append(self.clocks.text())
        if verbose:
            lines += [
                escape_unprintable(
                    f"{r.file}: {r.host}, nsys {r.nsys_version}, schema {r.schema_version}, shifted {r.offset_ns:+,} ns"
                )
                for r in self.reports
            ]
        return "\n".join(lines)
