"""What some reports hold, without translating them: whose they are, how many rows of each kind, what would be lost."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from nsys2prv_ng.clock.domains import assign_nodes, find_doubtful_hosts
from nsys2prv_ng.errors import ReportError, TranslationError, escape_unprintable
from nsys2prv_ng.inspection.contents import NotTranslated, Obstacle, ReportContents, read_contents
from nsys2prv_ng.job.read_reports import make_sort_key
from nsys2prv_ng.objects.missing import find_missing_ranks
from nsys2prv_ng.objects.places import Stream
from nsys2prv_ng.objects.tree import ObjectTree, ReportPlaces, build_tree
from nsys2prv_ng.paraver.model import LONGEST_TRACE_NS
from nsys2prv_ng.report.diagnostics import Message
from nsys2prv_ng.report.files import export_each, get_report_size, needs_export
from nsys2prv_ng.report.metadata import PID_MASK, Metadata
from nsys2prv_ng.runtime.jit import load_numba
from nsys2prv_ng.runtime.parallel import Work, run_in_processes
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources import SOURCES
from nsys2prv_ng.text.formatting import count_noun, format_utc

INSPECTION_VERSION = 1


@dataclass(frozen=True)
class TaskFound:
    """A process that would be a task: its name in the trace, and whose rank it is."""

    name: str
    pid: int
    process: str
    rank: int | None


@dataclass(frozen=True)
class GpuFound:
    """A GPU of the host; `used` if the report has operations of it."""

    number: int
    name: str
    uuid: str
    used: bool


@dataclass(frozen=True)
class Inspected:
    """A report: what it is of, and what it holds. Times in ns."""

    file: str
    bytes: int
    node: str
    host: str
    nsys_version: str
    schema_version: str
    begin_utc_ns: int | None
    duration_ns: int
    ranks: list[int]
    tasks: list[TaskFound]
    other_processes: int
    gpus: list[GpuFound]
    sources: dict[str, int]
    """Rows by source."""
    derived: list[str]
    """Sources that would be made of these."""
    tables: dict[str, int]
    """Rows by table."""
    not_translated: list[NotTranslated]
    obstacles: list[Obstacle]
    diagnostics: dict[str, int]
    """Messages of nsys by severity."""
    messages: list[Message]
    """Those that are warnings or errors."""
    warnings: list[str]

    @property
    def rows(self) -> int:
        """Of all tables of events that sources read."""
        return sum(self.tables.values())

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        messages = [{**asdict(each), "tells_of_lost_data": each.reports_lost_data} for each in self.messages]
        begin = {"begin_utc": None if self.begin_utc_ns is None else format_utc(self.begin_utc_ns)}
        return {**asdict(self), **begin, "rows": self.rows, "messages": messages}


@dataclass(frozen=True)
class Unreadable:
    """A report that cannot be read, as the user named it, and why."""

    file: str
    why: str


@dataclass(frozen=True)
class Inspection:
    """Reports that can be read, in the order of their nodes and ranks, and those that cannot; what to know of all."""

    reports: list[Inspected]
    unreadable: list[Unreadable]
    tasks: int = 0
    """Number of all tasks: processes that several reports are of count once."""
    warnings: list[str] = field(default_factory=list)

    @property
    def nodes(self) -> dict[str, list[Inspected]]:
        """The reports of each node: these share a clock."""
        found: dict[str, list[Inspected]] = {}
        for report in self.reports:
            found.setdefault(report.node, []).append(report)
        return found

    @property
    def faults(self) -> list[str]:
        """Why a translation of all these reports would leave some out."""
        cannot = [f"{each.file}: {each.why}" for each in self.unreadable]
        return cannot + [f"{report.file}: {each.why}" for report in self.reports for each in report.obstacles]

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "version": INSPECTION_VERSION,
            "reports": [report.to_dict() for report in self.reports],
            "unreadable": [asdict(each) for each in self.unreadable],
            "nodes": {name: [report.file for report in reports] for name, reports in self.nodes.items()},
            "sources": {
                source.name: {
                    "title": source.title,
                    "row": source.row,
                    "rows": sum(report.sources[source.name] for report in self.reports),
                    "reports": sum(report.sources[source.name] > 0 for report in self.reports),
                }
                for source in SOURCES
                if source.rows
            },
            "totals": {
                "reports": len(self.reports),
                "unreadable": len(self.unreadable),
                "bytes": sum(report.bytes for report in self.reports),
                "rows": sum(report.rows for report in self.reports),
                "tasks": self.tasks,
            },
            "warnings": self.warnings,
        }


def inspect(reports: Sequence[Path], progress: Progress, jobs: int) -> Inspection:
    """What reports hold. Those that are not exported yet are, up to `jobs` at once, and nothing of it is left.

    Raises UsageError for a report that is named twice.
    """
    with _exports(reports, progress, jobs) as found:
        exports = {report: export for report, export in found.items() if isinstance(export, Path)}
        looked = _look_at_each(list(exports.values()), progress, jobs)
    held: dict[Path, ReportContents] = {}
    unreadable: dict[Path, str] = {report: str(error) for report, error in found.items() if report not in exports}
    for (report, export), answer in zip(exports.items(), looked, strict=True):
        if isinstance(answer, ReportContents):
            held[report] = answer
        else:
            unreadable[report] = str(answer).replace(str(export), str(report))
    left = [
        Unreadable(str(path), why.removeprefix(f"{escape_unprintable(str(path))}: "))
        for path, why in unreadable.items()
    ]
    left.sort(key=lambda each: each.file)
    return _together(held, left) if held else Inspection([], left)


@contextmanager
def _exports(
    reports: Sequence[Path], progress: Progress, jobs: int
) -> Iterator[Mapping[Path, Path | TranslationError]]:
    """The export of each report, or why there is none; those that are made are gone afterwards.

    They are made beside the first report: temporary folders of compute nodes are small.
    """
    to_export = [report for report in reports if needs_export(report)]
    if not to_export:
        yield export_each(reports, Path(), progress, jobs, returned=(TranslationError,))
        return
    with _temporary_folder(to_export[0].parent) as folder:
        yield export_each(reports, folder, progress, jobs, returned=(TranslationError,), keep=False)


@contextmanager
def _temporary_folder(parent: Path) -> Iterator[Path]:
    """A folder in another, or with the system's temporary ones where that cannot be written."""
    prefix = ".nsys2prv-inspect-"
    try:
        folder = tempfile.TemporaryDirectory(prefix=prefix, dir=parent.absolute())
    except OSError:
        folder = tempfile.TemporaryDirectory(prefix=prefix)
    with folder as name:
        yield Path(name)


def _look_at_each(exports: Sequence[Path], progress: Progress, jobs: int) -> list[ReportContents | ReportError]:
    """What each export holds, or why it cannot be read; up to `jobs` at once, the largest first."""
    if not exports:
        return []
    sizes = [get_report_size(export) for export in exports]
    order = sorted(range(len(exports)), key=sizes.__getitem__, reverse=True)

    def look_at(index: int, tick: Callable[[int], object]) -> ReportContents | ReportError:
        try:
            return read_contents(exports[order[index]])
        except ReportError as error:
            return error
        finally:
            tick(1)

    processes = min(jobs, len(exports))
    with progress.step(f"looking at {count_noun(len(exports), 'report')}", len(exports), "report") as step:
        if processes > 1:
            load_numba()
            answers = run_in_processes(Work(len(exports), look_at), processes, step.update, lambda _: None)
        else:
            answers = [look_at(index, step.update) for index in range(len(exports))]
    answer_of = dict(zip(order, answers, strict=True))
    return [answer_of[index] for index in range(len(exports))]


# ---- all reports together --------------------------------------------------------------------------------------------


def _together(held: Mapping[Path, ReportContents], unreadable: list[Unreadable]) -> Inspection:
    """Nodes, tasks and ranks as a translation of all reports would find them."""
    paths = sorted(held, key=lambda path: make_sort_key(path, held[path].metadata))
    every = [held[path] for path in paths]
    metadata = [each.metadata for each in every]
    nodes, names = assign_nodes(metadata)
    parts = [
        ReportPlaces(each.metadata, each.places, node, *_window(each.metadata))
        for each, node in zip(every, nodes, strict=True)
    ]
    tree = build_tree(parts, names)
    warnings = [*tree.warnings, *find_doubtful_hosts(metadata, [each.places.called for each in every])]
    if len(held) + len(unreadable) > 1:
        warnings += find_missing_ranks(metadata, tree.ranks)
    warnings += _too_long(metadata)
    found = [
        (node, _inspected(path, each, names[node], tree, part))
        for part, (path, each, node) in enumerate(zip(paths, every, nodes, strict=True))
    ]
    found.sort(key=lambda each: (each[0], *_what_made(each[1]), each[1].ranks[:1] or [len(tree.ranks)]))
    return Inspection([report for _, report in found], unreadable, len(tree.model.tasks), warnings)


def _what_made(report: Inspected) -> tuple[str, ...]:
    """What reports of one job have in common."""
    day = "" if report.begin_utc_ns is None else format_utc(report.begin_utc_ns).split("T")[0]
    return report.nsys_version, report.schema_version, day


def _inspected(path: Path, held: ReportContents, node: str, tree: ObjectTree, part: int) -> Inspected:
    metadata, places = held.metadata, held.places
    process_columns: dict[int, int] = {}
    for place, row in zip(places.all, tree.rows[part].tolist(), strict=True):
        process_columns.setdefault(place.process, int(tree.task_of_row[row]))  # type: ignore[union-attr]
    tasks = [
        TaskFound(tree.model.tasks[task].name, process & PID_MASK, metadata.process_name(process), tree.ranks[task])
        for process, task in sorted(process_columns.items(), key=lambda item: (item[1], item[0]))
    ]
    used = {metadata.gpu(place.process, place.device).number for place in places.all if isinstance(place, Stream)}
    numbers = sorted(metadata.gpus.keys() | used)
    gpus = [metadata.gpus.get(number) for number in numbers]
    return Inspected(
        file=str(path),
        bytes=get_report_size(path),
        node=node,
        host=metadata.host,
        nsys_version=metadata.nsys_version,
        schema_version=metadata.schema_version,
        begin_utc_ns=None if metadata.utc_of_zero is None else metadata.utc_of_zero + metadata.begin,
        duration_ns=metadata.duration,
        ranks=sorted({task.rank for task in tasks if task.rank is not None}),
        tasks=tasks,
        other_processes=len(metadata.processes.keys() - process_columns.keys()),
        gpus=[
            GpuFound(number, gpu.name if gpu else "", gpu.uuid if gpu else "", number in used)
            for number, gpu in zip(numbers, gpus, strict=True)
        ],
        sources=held.sources,
        derived=list(held.made),
        tables=held.tables,
        not_translated=held.not_translated,
        obstacles=held.obstacles,
        diagnostics=held.diagnostics.counts,
        messages=held.diagnostics.messages,
        warnings=held.warnings,
    )


def _window(metadata: Metadata) -> tuple[int, int]:
    """First and last time of a capture, UTC (ns) where it is known."""
    begin = (metadata.utc_of_zero or 0) + metadata.begin
    return begin, begin + metadata.duration


def _too_long(reports: Sequence[Metadata]) -> list[str]:
    windows = [_window(metadata) for metadata in reports if metadata.utc_of_zero is not None]
    span = max((end for _, end in windows), default=0) - min((begin for begin, _ in windows), default=0)
    if span < LONGEST_TRACE_NS:
        return []
    days = span / 86400e9
    return [f"these reports span {days:,.0f} days, and a trace at most 104: they are not of one job"]


def count_messages(reports: Sequence[Inspected]) -> list[tuple[Message, int]]:
    """Messages over all reports, most frequent first, and how many reports have each."""
    count: Counter[tuple[str, str]] = Counter()
    having: Counter[tuple[str, str]] = Counter()
    for report in reports:
        for message in report.messages:
            count[message.severity, message.text] += message.count
            having[message.severity, message.text] += 1
    return [(Message(*key, number), having[key]) for key, number in count.most_common()]
