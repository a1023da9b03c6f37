"""The contents of reports, for programs and for the text. Times are in ns, sizes in bytes.

The fields are the keys of the JSON that `nsys2prv-ng inspect --json` prints. Programs rely on them: a change of a key
or of its meaning needs a new INSPECTION_VERSION.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, field, replace

from nsys2prv_ng import source_names
from nsys2prv_ng.grouping import group_by_key
from nsys2prv_ng.inspection.contents import COUNTED_SOURCES, Obstacle, UntranslatedRows
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.reading.accounts import SkippedReport
from nsys2prv_ng.report.diagnostics import Message
from nsys2prv_ng.report.gpus import Gpu
from nsys2prv_ng.sources.registry import GPU_OPERATIONS, SOURCES
from nsys2prv_ng.text.formatting import count_nouns, format_number_ranges, format_utc
from nsys2prv_ng.text.grid import Bytes, Cell, Column, Count, Grid, Name, Ns, make_columns, tabulate
from nsys2prv_ng.text.results import Tabular
from nsys2prv_ng.value_class import ValueClass

INSPECTION_VERSION = 1


class InspectedTask(ValueClass):
    """A process that would be a task: its task name, its pid, its process name, and its rank if it has one."""

    name: str
    pid: int
    process: str
    rank: int | None


class InspectedGpu(Gpu):
    """A GPU of the host; `used` if the report contains operations on it."""

    used: bool


class InspectedReport(ValueClass):
    """A report: where and when it was captured, and its contents. Times in ns."""

    file: str
    bytes: int
    node: str
    host: str
    nsys_version: str
    schema_version: str
    begin_utc_ns: int | None
    duration_ns: int
    ranks: list[int]
    tasks: list[InspectedTask]
    other_processes: int
    gpus: list[InspectedGpu]
    sources: dict[str, int]
    """Number of rows by source."""
    derived: list[str]
    """Sources that a translation would derive from these rows."""
    tables: dict[str, int]
    """Number of rows by table."""
    not_translated: list[UntranslatedRows]
    obstacles: list[Obstacle]
    diagnostics: dict[str, int]
    """Number of nsys messages by severity."""
    messages: list[Message]
    """The messages that are warnings or errors."""
    warnings: list[str]

    @property
    def begin_utc(self) -> str | None:
        """UTC of its start, in ISO 8601."""
        return None if self.begin_utc_ns is None else format_utc(self.begin_utc_ns)

    @property
    def day(self) -> str:
        """UTC day of its start; empty if that is unknown."""
        return (self.begin_utc or "").split("T")[0]

    @property
    def rows(self) -> int:
        """Number of rows in all event tables that sources read."""
        return sum(self.tables.values())

    def to_dict(self) -> dict[str, object]:
        """Return the report as in the JSON."""
        messages = [{**asdict(message), "reports_lost_data": message.reports_lost_data} for message in self.messages]
        return {**asdict(self), "begin_utc": self.begin_utc, "rows": self.rows, "messages": messages}


class InspectedSource(ValueClass):
    """A source: its title, what its rows are, their number, and the number of reports that contain any."""

    title: str
    row: str
    rows: int
    reports: int


class InspectionTotals(ValueClass):
    """Numbers of readable and unreadable reports and of tasks; bytes and rows of the readable reports."""

    reports: int
    unreadable: int
    bytes: int
    rows: int
    tasks: int


class TraceEstimate(ValueClass):
    """Estimated size of a trace of all sources."""

    trace_bytes: int
    """Length of the text of the .prv."""
    paraver_memory: int
    """Memory that Paraver needs for it, in bytes."""
    paraver_seconds: float
    """Time that Paraver needs to load it; only its order of magnitude is right."""


class Inspection(Tabular):
    """Readable reports in the order of nodes and ranks, unreadable reports, and warnings about all of them together."""

    reports: list[InspectedReport]
    unreadable: list[SkippedReport]
    tasks: int = 0
    """Number of all tasks; a process with several reports counts once."""
    warnings: list[str] = field(default_factory=list)

    @property
    def nodes(self) -> dict[str, list[InspectedReport]]:
        """The reports of each node. They share a clock."""
        return group_by_key((report.node, report) for report in self.reports)

    @property
    def rows_of_sources(self) -> dict[str, int]:
        """The rows of each source in all readable reports."""
        return {source.name: sum(report.sources[source.name] for report in self.reports) for source in COUNTED_SOURCES}

    def tabulate(self) -> dict[str, Grid]:
        """Return the reports, and the rows of sources."""
        reports: list[tuple[str | Column, Callable[[InspectedReport], Cell]]] = [
            ("report", lambda report: Name(report.file)),
            ("node", lambda report: Name(report.node)),
            ("ranks", lambda report: format_number_ranges(report.ranks)),
            ("GPUs", lambda report: Count(len(report.gpus))),
            ("file", lambda report: Bytes(report.bytes)),
            ("time", lambda report: Ns(report.duration_ns)),
            ("rows", lambda report: Count(report.rows)),
        ]
        rows: list[list[Cell]] = [[name, Count(count)] for name, count in self.rows_of_sources.items() if count]
        return {
            "reports": tabulate(self.reports, reports, names=3, more="reports"),
            "sources": Grid(columns=make_columns("source", "rows"), rows=rows, more="sources"),
        }

    def _list_shown(self) -> list[Grid]:
        return [*self.tabulate().values()]

    def __repr__(self) -> str:
        """Return one line: all contents are screens of text."""
        return f"<{type(self).__name__} of {count_nouns({'report': len(self.reports), 'node': len(self.nodes)})}>"

    def list_selectable_sources(self) -> list[str]:
        """Return the names of the sources that have events in a full trace, for the option `sources`."""
        derived = {name for report in self.reports for name in report.derived}
        return [s.name for s in SOURCES if s.name in derived or self.rows_of_sources.get(s.name)]

    @property
    def load(self) -> LoadCost:
        """Estimated load cost of a full trace in Paraver."""
        return estimate_load(self.rows_of_sources)

    @property
    def faults(self) -> list[str]:
        """The reasons why a translation would skip some of these reports."""
        return self.list_unreadable() + self.list_obstacles()

    def list_unreadable(self) -> list[str]:
        """Return each report that cannot be read, and why."""
        return [f"{report.file}: {report.why}" for report in self.unreadable]

    def list_obstacles(self) -> list[str]:
        """Return each report that cannot be translated with all sources, and why."""
        return [f"{report.file}: {obstacle.why}" for report in self.reports for obstacle in report.obstacles]

    @property
    def sources(self) -> dict[str, InspectedSource]:
        """The sources with their own rows, by name."""
        return {
            source.name: InspectedSource(
                title=source.title,
                row=source.noun,
                rows=self.rows_of_sources[source.name],
                reports=sum(report.sources[source.name] > 0 for report in self.reports),
            )
            for source in COUNTED_SOURCES
        }

    @property
    def totals(self) -> InspectionTotals:
        """Totals over all reports."""
        return InspectionTotals(
            reports=len(self.reports),
            unreadable=len(self.unreadable),
            bytes=sum(report.bytes for report in self.reports),
            rows=sum(report.rows for report in self.reports),
            tasks=self.tasks,
        )

    @property
    def estimate(self) -> TraceEstimate:
        """Estimated size of a full trace."""
        return TraceEstimate(self.load.text_bytes, self.load.memory, self.load.seconds)

    def to_dict(self) -> dict[str, object]:
        """Return the inspection as in the JSON."""
        return {
            "version": INSPECTION_VERSION,
            "reports": [report.to_dict() for report in self.reports],
            "unreadable": [asdict(report) for report in self.unreadable],
            "nodes": {name: [report.file for report in reports] for name, reports in self.nodes.items()},
            "sources": {name: asdict(source) for name, source in self.sources.items()},
            "totals": asdict(self.totals),
            "estimate": asdict(self.estimate),
            "warnings": self.warnings,
        }


# ---- load of a trace -------------------------------------------------------------------------------------------------


def estimate_load(rows: Mapping[str, int]) -> LoadCost:
    """Estimate the records of a trace of all sources, from the number of rows of each source.

    docs/development/programs.md compares the estimates with the measured costs.
    """
    return sum(_estimate_each(rows).values(), LoadCost())


def estimate_details(rows: Mapping[str, int]) -> dict[str, LoadCost]:
    """Estimate the records of each source. Lines from launches count as a source, not with the launched operations."""
    details = _estimate_each(rows)
    launched = {name: details[name] for name in GPU_OPERATIONS if name in details}
    lines = sum(load.communications for load in launched.values())
    without = {name: replace(load, communications=0) for name, load in launched.items()}
    return details | without | {source_names.LAUNCH_LINES: LoadCost(communications=lines)}


def _estimate_each(rows: Mapping[str, int]) -> dict[str, LoadCost]:
    return {source.name: source.load * rows[source.name] for source in SOURCES if source.name in rows}
