"""Inspects reports without translating them: their ranks, nodes, GPUs and rows, and what their trace would lack."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from nsys2prv_ng.clock.domains import assign_nodes, find_doubtful_hosts, find_mixed_hosts
from nsys2prv_ng.errors import ReportError, TranslationError
from nsys2prv_ng.grouping import group_by_key
from nsys2prv_ng.inspection.contents import ReportContents, read_contents
from nsys2prv_ng.inspection.model import InspectedGpu, InspectedReport, InspectedTask, Inspection
from nsys2prv_ng.objects.places import Stream
from nsys2prv_ng.objects.tasks import ReportPlaces, find_missing_ranks
from nsys2prv_ng.objects.tree import ObjectTree, build_tree
from nsys2prv_ng.paraver.load_cost import warn_of_load
from nsys2prv_ng.paraver.model import LONGEST_TRACE_NS
from nsys2prv_ng.reading.accounts import SkippedReport
from nsys2prv_ng.reading.read_reports import make_sort_key, read_each
from nsys2prv_ng.report.diagnostics import Message, warn_of_mixed_graphs
from nsys2prv_ng.report.export_all import export_each
from nsys2prv_ng.report.files import get_report_size, needs_export
from nsys2prv_ng.report.metadata import PID_MASK, Metadata
from nsys2prv_ng.runtime.processes import Work
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.text.formatting import count_noun


def inspect(reports: Sequence[Path], progress: Progress, jobs: int, paraver_memory: int = 0) -> Inspection:
    """Inspect reports, up to `jobs` at once. Reports without an export are exported temporarily.

    `paraver_memory`: memory above which the result warns that a trace is too large (bytes); 0 sets no limit. Raises
    UsageError if a report is named twice.
    """
    to_export = [report for report in reports if needs_export(report)]
    # They are made beside the first such report, because temporary folders of compute nodes are small.
    with _make_temporary_folder(to_export[0].parent) if to_export else nullcontext("") as folder:
        exports = export_each(reports, Path(folder), progress, jobs, returned=(TranslationError,), keep=False)
        answers = _read_each([export for export in exports.values() if isinstance(export, Path)], progress, jobs)
    contents: dict[Path, ReportContents] = {}
    errors: dict[Path, str] = {}
    for report, export in exports.items():
        answer = answers[export] if isinstance(export, Path) else export
        if isinstance(answer, ReportContents):
            contents[report] = answer
        else:
            errors[report] = str(answer).replace(str(export), str(report)) if isinstance(export, Path) else str(answer)
    unreadable = [SkippedReport.from_error(path, why) for path, why in errors.items()]
    unreadable.sort(key=lambda report: report.file)
    inspection = _combine(contents, unreadable) if contents else Inspection([], unreadable)
    inspection.warnings.extend(warn_of_load(inspection.load, paraver_memory))
    return inspection


def _make_temporary_folder(parent: Path) -> tempfile.TemporaryDirectory[str]:
    """Make a temporary folder in `parent`, or in the system's temporary folder if `parent` cannot be written."""
    prefix = ".nsys2prv-inspect-"
    try:
        return tempfile.TemporaryDirectory(prefix=prefix, dir=parent.absolute())
    except OSError:
        return tempfile.TemporaryDirectory(prefix=prefix)


def _read_each(exports: Sequence[Path], progress: Progress, jobs: int) -> dict[Path, ReportContents | ReportError]:
    """Return the contents of each export, or its error. Read up to `jobs` exports at once, the largest first."""
    if not exports:
        return {}
    order = sorted(exports, key=get_report_size, reverse=True)

    def read(index: int, tick: Callable[[int], object]) -> ReportContents | ReportError:
        try:
            return read_contents(order[index])
        except ReportError as error:
            return error
        finally:
            tick(1)

    with progress.step(f"inspecting {count_noun(len(exports), 'report')}", len(exports), "report") as step:
        answers = read_each(Work(len(exports), read), jobs, step.update)
    return dict(zip(order, answers, strict=True))


# ---- all reports together --------------------------------------------------------------------------------------------


def _combine(contents: Mapping[Path, ReportContents], unreadable: list[SkippedReport]) -> Inspection:
    """Find nodes, tasks and ranks as a translation of all reports would."""
    paths = sorted(contents, key=lambda path: make_sort_key(path, contents[path].metadata))
    reports = [contents[path] for path in paths]
    metadata = [report.metadata for report in reports]
    nodes, names = assign_nodes(metadata)
    places = [
        ReportPlaces(report.metadata, report.places, node, *_get_window(report.metadata))
        for report, node in zip(reports, nodes, strict=True)
    ]
    tree = build_tree(places, names)
    warnings = [*tree.warnings, *find_mixed_hosts(metadata)]
    warnings += find_doubtful_hosts(metadata, [report.places.called for report in reports])
    if len(contents) + len(unreadable) > 1:
        warnings += find_missing_ranks(metadata, tree.ranks)
    warnings += warn_of_mixed_graphs([report.graphs for report in reports])
    warnings += _warn_of_long_span(metadata)
    inspected = [
        (node, _make_report(path, report, names[node], tree, tree.rows[number].tolist()))
        for number, (path, report, node) in enumerate(zip(paths, reports, nodes, strict=True))
    ]

    def make_key(pair: tuple[int, InspectedReport]) -> tuple[object, ...]:
        node, report = pair  # the reports of one job share versions and day
        return node, report.nsys_version, report.schema_version, report.day, report.ranks[:1] or [len(tree.ranks)]

    inspected.sort(key=make_key)
    return Inspection([report for _, report in inspected], unreadable, len(tree.model.tasks), warnings)


def _make_report(
    path: Path, contents: ReportContents, node: str, tree: ObjectTree, rows: Sequence[int]
) -> InspectedReport:
    """Describe the report in a file. `rows`: row of the trace for each place."""
    metadata, places = contents.metadata, contents.places
    task_of_process: dict[int, int] = {}
    for place, row in zip(places.all, rows, strict=True):
        task_of_process.setdefault(place.process, int(tree.task_of_row[row]))  # type: ignore[union-attr]
    tasks = []
    for process, task in sorted(task_of_process.items(), key=lambda item: (item[1], item[0])):
        name, process_name = tree.model.tasks[task].name, metadata.get_process_name(process)
        tasks.append(InspectedTask(name, process & PID_MASK, process_name, tree.ranks[task]))
    used = {metadata.find_gpu(place.process, place.device) for place in places.all if isinstance(place, Stream)}
    return InspectedReport(
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
        other_processes=len(metadata.processes.keys() - task_of_process.keys()),
        gpus=[
            InspectedGpu(**vars(metadata.get_gpu(key)), used=key in used) for key in sorted(metadata.gpus.keys() | used)
        ],
        sources=contents.sources,
        derived=list(contents.derived),
        tables=contents.tables,
        not_translated=contents.not_translated,
        obstacles=contents.obstacles,
        diagnostics=contents.diagnostics.counts,
        messages=contents.diagnostics.messages,
        warnings=contents.warnings,
    )


def _get_window(metadata: Metadata) -> tuple[int, int]:
    """Return the first and last time of a capture (ns), in UTC if that is known."""
    begin = (metadata.utc_of_zero or 0) + metadata.begin
    return begin, begin + max(metadata.duration - 1, 0)


def _warn_of_long_span(reports: Sequence[Metadata]) -> list[str]:
    """Return a warning if the reports span more time than a trace can."""
    windows = [_get_window(metadata) for metadata in reports if metadata.utc_of_zero is not None]
    span = max((end for _, end in windows), default=0) - min((begin for begin, _ in windows), default=0)
    if span < LONGEST_TRACE_NS:
        return []
    days = span / 86400e9
    return [f"these reports span {days:,.0f} days, but a trace can span 104 at most: they are not from one job"]


def count_messages(reports: Sequence[InspectedReport]) -> list[tuple[Message, int]]:
    """Return the messages of all reports, most frequent first, each with the number of reports that contain it."""
    messages = (message for report in reports for message in report.messages)
    counts = group_by_key(((message.severity, message.text), message.count) for message in messages)
    found = ((Message(*key, sum(numbers)), len(numbers)) for key, numbers in counts.items())
    return sorted(found, key=lambda pair: pair[0].count, reverse=True)
