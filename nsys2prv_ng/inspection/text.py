"""Formats an inspection as tables: one row for each report, by node; rows by source; what a trace would lack.

Texts from reports and file names can contain anything. Characters that a terminal does not show are escaped.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from nsys2prv_ng.errors import escape_unprintable
from nsys2prv_ng.grouping import group_by_key
from nsys2prv_ng.inspection.contents import COUNTED_SOURCES
from nsys2prv_ng.inspection.inspect import count_messages
from nsys2prv_ng.inspection.model import InspectedReport, Inspection
from nsys2prv_ng.paraver.load_cost import format_memory, format_seconds
from nsys2prv_ng.report.diagnostics import ERROR, SEVERITIES, UNKNOWN
from nsys2prv_ng.report.formats import get_report_name
from nsys2prv_ng.sources.registry import DERIVED, SOURCES
from nsys2prv_ng.text.formatting import format_number_ranges, format_table

NARROWEST = 72
_INDENT = "  "
_MOST_TASKS = 8
_UUID_PREFIX, _MIG_PREFIX = "GPU-", "MIG-"
_UUID_SHOWN = 8

_COLUMNS = ("report", "ranks", "tasks", "GPUs", "UTC", "s", "MB", "rows")

Row = tuple[str, ...]


def format_inspection(inspection: Inspection, width: int) -> str:
    """Return tables that are at most `width` (but at least 72) characters wide, unless numbers and names need more."""
    width = max(width, NARROWEST)
    parts = []
    if inspection.reports:
        parts += [_format_reports(inspection, width), _format_sources(inspection, width)]
    obstacles = "cannot be translated without a new export or another choice of sources:"
    parts += [
        _format_section("cannot be read:", inspection.list_unreadable(), width),
        _format_section(obstacles, inspection.list_obstacles(), width),
        _format_section("missing from a trace:", _list_untranslated(inspection.reports), width),
        _format_messages(inspection.reports, width),
        _format_section("warnings:", _list_warnings(inspection), width),
    ]
    return "\n\n".join(part for part in parts if part)


def escape_text(text: str) -> str:
    """Return a text as one line of visible characters: the others are escaped."""
    return escape_unprintable(text, lambda letter: letter.encode("unicode_escape").decode())


# ---- reports ---------------------------------------------------------------------------------------------------------


def _format_reports(inspection: Inspection, width: int) -> str:
    """Return one row for each report, below a line with its node, version and day."""
    reports = inspection.reports
    names = _choose_names(reports)
    rows = [(names[report.file], *_make_cells(report)) for report in reports]
    count = f"{len(reports):,} reports"
    total = (count, "", str(inspection.tasks), *[""] * 3, _format_megabytes(reports), _format_rows(reports))
    lines = format_table([_COLUMNS, *rows, total], width=width, keep_distinct=True, indent=len(_INDENT))
    body = []
    previous: Row = ()
    for report, line in zip(reports, lines[1:-1], strict=True):
        head = _make_head(report)
        if head != previous:
            body += _wrap(", ".join(head), width, "")
            if head[0] != (previous or ("",))[0]:
                body += _format_gpus(inspection.nodes[report.node], width)
            previous = head
        body += [line, *_format_tasks(report, width)]
    return "\n".join([lines[0], *body, *([lines[-1]] if len(reports) > 1 else [])])


def _make_head(report: InspectedReport) -> Row:
    """Return node, version and day of a report, which it shares with others of its node."""
    version = f"nsys {escape_text(report.nsys_version)} (schema {escape_text(report.schema_version)})"
    return f"node {escape_text(report.node)}", version, report.day or "time of capture unknown"


def _make_cells(report: InspectedReport) -> Row:
    """Return the cells of a report under _COLUMNS, without its name."""
    used = [gpu.number for gpu in report.gpus if gpu.used]
    begin = report.begin_utc[11:21] if report.begin_utc else "-"
    tasks, others = len(report.tasks), report.other_processes
    return (
        format_number_ranges(report.ranks) or "-",
        f"{tasks} of {tasks + others}" if others else str(tasks),
        format_number_ranges(used) or "-",
        begin,
        f"{report.duration_ns / 1e9:,.3f}",
        _format_megabytes([report]),
        _format_rows([report]),
    )


def _format_gpus(reports: Sequence[InspectedReport], width: int) -> list[str]:
    """Return the GPUs of a node, each once, in lines."""
    known = {(gpu.uuid or gpu.number): gpu for report in reports for gpu in report.gpus if gpu.name or gpu.uuid}
    by_name: dict[str, list[str]] = {}
    for gpu in sorted(known.values(), key=lambda gpu: gpu.number):
        uuid = gpu.uuid.removeprefix(_UUID_PREFIX).removeprefix(_MIG_PREFIX)[:_UUID_SHOWN]
        by_name.setdefault(gpu.name, []).append(f"{gpu.number}:{uuid}" if uuid else str(gpu.number))
    texts = [f"{escape_text(name or 'GPU')}: {escape_text(', '.join(numbers))}" for name, numbers in by_name.items()]
    return _wrap("; ".join(texts), width)


def _format_tasks(report: InspectedReport, width: int) -> list[str]:
    """Return lines with the names of the tasks; none if the row of the report shows its only task as a rank."""
    if len(report.tasks) == len(report.ranks) == 1 or not report.tasks:
        return []
    names = [task.name if task.rank is None else f"{task.name} ({task.process} {task.pid})" for task in report.tasks]
    more = [f"{len(names) - _MOST_TASKS} more"] if len(names) > _MOST_TASKS else []
    text = escape_text(", ".join([*names[:_MOST_TASKS], *more]))
    return _wrap(text, width, 2 * _INDENT)


def _choose_names(reports: Sequence[InspectedReport]) -> dict[str, str]:
    """Return the names of reports by file, without folder and ending if they stay distinct."""
    for name in (lambda file: get_report_name(Path(file)), lambda file: Path(file).name, str):
        names = {report.file: escape_text(name(report.file)) for report in reports}
        if len(set(names.values())) == len(names):
            break
    return names


def _format_megabytes(reports: Iterable[InspectedReport]) -> str:
    return f"{sum(report.bytes for report in reports) / 1e6:,.1f}"


def _format_rows(reports: Iterable[InspectedReport]) -> str:
    return f"{sum(report.rows for report in reports):,}"


# ---- sources ---------------------------------------------------------------------------------------------------------


def _format_sources(inspection: Inspection, width: int) -> str:
    """Return the rows by source over all reports, with the minimum and maximum over the reports that have any."""
    several = len(inspection.reports) > 1
    lines: list[Row] = [("source", "rows", "reports", "least", "most", "kind of row")]
    absent = []
    for source in COUNTED_SOURCES:
        rows = [report.sources[source.name] for report in inspection.reports]
        present = [number for number in rows if number]
        if present:
            limits = f"{len(present):,}", f"{min(present):,}", f"{max(present):,}"
            lines.append((source.name, f"{sum(present):,}", *limits, source.noun))
        else:
            absent.append(source.name)
    found = {name for report in inspection.reports for name in report.derived}
    derived = [source.name for source in SOURCES + DERIVED if source.name in found]
    if not several:
        lines = [(name, rows, kind) for name, rows, *_, kind in lines]
    text = format_table(lines, text_last=True)
    load = inspection.load
    paraver = f"{format_seconds(load.seconds)}, with {format_memory(load.memory)} of memory"
    below = [f"a trace of all of it: {format_memory(load.text_bytes)}; Paraver loads it in {paraver}"]
    below += [f"derived in a trace: {', '.join(derived)}"] if derived else []
    below += [f"not in {'these reports' if several else 'this report'}: {', '.join(absent)}"] if absent else []
    return "\n".join([*text, *(line for each in below for line in _wrap(each, width, ""))])


# ---- lists -----------------------------------------------------------------------------------------------------------


def _list_untranslated(reports: Sequence[InspectedReport]) -> list[str]:
    """Return one text for each table and reason, with the rows of all reports."""
    every = (untranslated for report in reports for untranslated in report.not_translated)
    rows_of_reports = group_by_key(((each.table, each.why), each.rows) for each in every)
    texts = []
    for (table, why), numbers in sorted(rows_of_reports.items()):
        known = [number for number in numbers if number is not None]
        rows = f"{sum(known):,} rows" if known else "rows"
        texts.append(f"{table}: {rows}{_format_share(len(numbers), reports)}: {why}")
    return texts


def _format_messages(reports: Sequence[InspectedReport], width: int) -> str:
    """Return the number of nsys messages by severity, then the warnings and errors, grouped by lost data."""
    severities = (*SEVERITIES.values(), UNKNOWN)
    counts = {name: sum(report.diagnostics.get(name, 0) for report in reports) for name in severities}
    if not any(counts.values()):
        return ""
    texts: dict[str, list[str]] = {"data is missing": [], "data might be missing": [], "other messages": []}
    for message, reports_with in count_messages(reports):
        lost = "data is missing" if message.is_certain else "data might be missing"
        text = f"{'error: ' if message.severity == ERROR else ''}{message.text}{_format_share(reports_with, reports)}"
        texts[lost if message.reports_lost_data else "other messages"].append(text)
    title = "messages from nsys: " + ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    sections = (_format_section(f"{heading}:", lines, width) for heading, lines in texts.items() if lines)
    return "\n".join([title, *sections])


def _list_warnings(inspection: Inspection) -> list[str]:
    """Return the warnings about single reports, each text once, then the warnings about all reports together."""
    reports = inspection.reports
    files_of_warning = group_by_key((warning, report.file) for report in reports for warning in report.warnings)
    texts = [
        f"{files[0]}: {warning}" if len(files) == 1 else f"{warning}{_format_share(len(files), reports)}"
        for warning, files in files_of_warning.items()
    ]
    return [*texts, *inspection.warnings]


def _format_share(number: int, reports: Sequence[InspectedReport]) -> str:
    return "" if len(reports) == 1 else f" (in {number:,} of {len(reports):,} reports)"


# ---- text ------------------------------------------------------------------------------------------------------------


def _format_section(title: str, texts: Sequence[str], width: int) -> str:
    """Return a title and a paragraph for each text; "" without texts."""
    lines = [line for text in texts for line in _wrap(escape_text(text), width)]
    return "\n".join([title, *lines]) if texts else ""


def _wrap(text: str, width: int, indent: str = _INDENT) -> list[str]:
    """Return the lines of a paragraph; file names are not broken."""
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent + _INDENT, break_on_hyphens=False)
