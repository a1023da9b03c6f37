"""What reports hold as tables for people: a row for each report, by node; rows by source; what would be lost.

What comes out of reports, and names of files, can hold anything: whatever would not be seen as it is, is escaped.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from nsys2prv_ng.inspection.inspect import Inspected, Inspection, count_messages
from nsys2prv_ng.report.diagnostics import ERROR, SEVERITIES, UNKNOWN
from nsys2prv_ng.report.files import get_report_name
from nsys2prv_ng.sources import DERIVED, SOURCES
from nsys2prv_ng.text.formatting import format_number_ranges, format_utc

NARROWEST = 72
_SHORTEST_NAME = 12
_GAP = "  "
_INDENT = "  "
_MOST_TASKS = 8
_UUID_PREFIX = "GPU-"
_UUID_SHOWN = 8

_COLUMNS = ("report", "ranks", "tasks", "GPUs", "UTC", "s", "MB", "rows")

Row = tuple[str, ...]


def format_inspection(inspection: Inspection, width: int) -> str:
    """Tables of at most `width` characters, unless there is no room for what they must say."""
    width = max(width, NARROWEST)
    parts = []
    if inspection.reports:
        parts += [_reports(inspection, width), _sources(inspection, width)]
    parts += [
        _section("cannot be read:", [f"{each.file}: {each.why}" for each in inspection.unreadable], width),
        _section("cannot be translated as they are:", _obstacles(inspection.reports), width),
        _section("would not be in a trace:", _not_translated(inspection.reports), width),
        _diagnostics(inspection.reports, width),
        _section("warnings:", _warnings(inspection), width),
    ]
    return "\n\n".join(part for part in parts if part)


def escape_path(text: str) -> str:
    """A text in one line, in which nothing is hidden: control characters, and what is no character, are escaped."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


# ---- reports ---------------------------------------------------------------------------------------------------------


def _reports(inspection: Inspection, width: int) -> str:
    """A row for each report below a line for its node, version and day."""
    reports = inspection.reports
    names = _names(reports)
    rows = [(names[report.file], *_cells(report)) for report in reports]
    total = (_how_many(reports), "", str(inspection.tasks), *[""] * 3, _megabytes(reports), _count(reports))
    lines = _table([_COLUMNS, *rows, total], width, len(_INDENT))
    body = []
    before: tuple[str, ...] = ()
    for report, line in zip(reports, lines[1:-1], strict=True):
        head = _head(report)
        if head != before:
            body += _wrapped(", ".join(head), width, "")
            if head[0] != (before or ("",))[0]:
                body += _gpus(inspection.nodes[report.node], width)
            before = head
        body += [line, *_tasks(report, width)]
    return "\n".join([lines[0], *body, *([lines[-1]] if len(reports) > 1 else [])])


def _head(report: Inspected) -> Row:
    """What a report has in common with others of its node."""
    day = "time of capture unknown" if report.begin_utc_ns is None else format_utc(report.begin_utc_ns).split("T")[0]
    version = f"nsys {escape_path(report.nsys_version)} (schema {escape_path(report.schema_version)})"
    return f"node {escape_path(report.node)}", version, day


def _cells(report: Inspected) -> Row:
    used = [gpu.number for gpu in report.gpus if gpu.used]
    begin = "-" if report.begin_utc_ns is None else format_utc(report.begin_utc_ns)[11:21]
    return (
        format_number_ranges(report.ranks) or "-",
        _of_all(len(report.tasks), report.other_processes),
        format_number_ranges(used) or "-",
        begin,
        f"{report.duration_ns / 1e9:,.3f}",
        _megabytes([report]),
        _count([report]),
    )


def _gpus(reports: Sequence[Inspected], width: int) -> list[str]:
    """The GPUs of a node, each once."""
    known = {(gpu.uuid or gpu.number): gpu for report in reports for gpu in report.gpus if gpu.name or gpu.uuid}
    by_name: dict[str, list[str]] = {}
    for gpu in sorted(known.values(), key=lambda gpu: gpu.number):
        uuid = gpu.uuid.removeprefix(_UUID_PREFIX)[:_UUID_SHOWN]
        by_name.setdefault(gpu.name, []).append(f"{gpu.number}:{uuid}" if uuid else str(gpu.number))
    texts = [f"{escape_path(name or 'GPU')}: {escape_path(', '.join(numbers))}" for name, numbers in by_name.items()]
    return _wrapped("; ".join(texts), width)


def _tasks(report: Inspected, width: int) -> list[str]:
    """Names of the processes, unless there is nothing to tell but the rank of the only one."""
    if len(report.tasks) == len(report.ranks) == 1 or not report.tasks:
        return []
    names = [task.name if task.rank is None else f"{task.name} ({task.process} {task.pid})" for task in report.tasks]
    more = [f"{len(names) - _MOST_TASKS} more"] if len(names) > _MOST_TASKS else []
    text = escape_path(", ".join([*names[:_MOST_TASKS], *more]))
    return _wrapped(text, width, 2 * _INDENT)


def _names(reports: Sequence[Inspected]) -> dict[str, str]:
    """What reports are called: without folder and ending where that tells them apart."""
    for name in (lambda file: get_report_name(Path(file)), lambda file: Path(file).name, str):
        names = {report.file: escape_path(name(report.file)) for report in reports}
        if len(set(names.values())) == len(names):
            break
    return names


def _of_all(tasks: int, others: int) -> str:
    return f"{tasks} of {tasks + others}" if others else str(tasks)


def _how_many(reports: Sequence[Inspected]) -> str:
    return f"{len(reports):,} reports"


def _megabytes(reports: Iterable[Inspected]) -> str:
    return f"{sum(report.bytes for report in reports) / 1e6:,.1f}"


def _count(reports: Iterable[Inspected]) -> str:
    return f"{sum(report.rows for report in reports):,}"


# ---- sources ---------------------------------------------------------------------------------------------------------


def _sources(inspection: Inspection, width: int) -> str:
    """Rows by source over all reports; the least and the most that a report has which has some."""
    several = len(inspection.reports) > 1
    lines: list[Row] = [("source", "rows", "reports", "least", "most", "of what")]
    absent = []
    for source in SOURCES:
        if not source.rows:
            continue
        rows = [report.sources[source.name] for report in inspection.reports]
        some = [number for number in rows if number]
        if some:
            limits = f"{len(some):,}", f"{min(some):,}", f"{max(some):,}"
            lines.append((source.name, f"{sum(some):,}", *limits, source.row))
        else:
            absent.append(source.name)
    made = [
        source.name
        for source in SOURCES + DERIVED
        if any(source.name in report.derived for report in inspection.reports)
    ]
    if not several:
        lines = [(name, rows, row) for name, rows, *_, row in lines]
    text = _table(lines, 0, 0, left_too=True)
    if made:
        text += _wrapped(f"made of these: {', '.join(made)}", width, "")
    if absent:
        text += _wrapped(f"not in {'these reports' if several else 'this report'}: {', '.join(absent)}", width, "")
    return "\n".join(text)


# ---- what to know ----------------------------------------------------------------------------------------------------


def _obstacles(reports: Sequence[Inspected]) -> list[str]:
    return [f"{report.file}: {each.why}" for report in reports for each in report.obstacles]


def _not_translated(reports: Sequence[Inspected]) -> list[str]:
    """Rows by table and reason over all reports."""
    found: dict[tuple[str, str], list[int | None]] = {}
    for report in reports:
        for each in report.not_translated:
            found.setdefault((each.table, each.why), []).append(each.rows)
    texts = []
    for (table, why), numbers in sorted(found.items()):
        known = [number for number in numbers if number is not None]
        rows = f"{sum(known):,} rows" if known else "rows"
        texts.append(f"{table}: {rows}{_in_reports(len(numbers), reports)}: {why}")
    return texts


def _diagnostics(reports: Sequence[Inspected], width: int) -> str:
    """Numbers of messages by severity, then the warnings and errors by what they tell of lost data."""
    severities = (*SEVERITIES.values(), UNKNOWN)
    counts = {name: sum(report.diagnostics.get(name, 0) for report in reports) for name in severities}
    if not any(counts.values()):
        return ""
    texts: dict[str, list[str]] = {"data is missing": [], "data might be missing": [], "others": []}
    for message, having in count_messages(reports):
        lost = "data is missing" if message.is_certain else "data might be missing"
        text = f"{'error: ' if message.severity == ERROR else ''}{message.text}{_in_reports(having, reports)}"
        texts[lost if message.reports_lost_data else "others"].append(text)
    title = "messages of nsys: " + ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    return "\n".join([title, *(_section(f"{what}:", found, width) for what, found in texts.items() if found)])


def _warnings(inspection: Inspection) -> list[str]:
    reports = inspection.reports
    having: dict[str, list[str]] = {}
    for report in reports:
        for warning in report.warnings:
            having.setdefault(warning, []).append(report.file)
    of_reports = [
        f"{files[0]}: {warning}" if len(files) == 1 else f"{warning}{_in_reports(len(files), reports)}"
        for warning, files in having.items()
    ]
    return [*of_reports, *inspection.warnings]


def _in_reports(number: int, reports: Sequence[Inspected]) -> str:
    if len(reports) == 1:
        return ""
    return f" (in {number:,} of {len(reports):,} reports)"


# ---- text ------------------------------------------------------------------------------------------------------------


def _section(title: str, texts: Sequence[str], width: int) -> str:
    """A title and a paragraph for each text; nothing where there is none."""
    if not texts:
        return ""
    lines = [title]
    for text in texts:
        lines += _wrapped(escape_path(text), width)
    return "\n".join(lines)


def _wrapped(text: str, width: int, indent: str = _INDENT) -> list[str]:
    """Lines of a paragraph; names of files stay whole."""
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent + _INDENT, break_on_hyphens=False)


def _table(rows: Sequence[Row], width: int, indent: int, *, left_too: bool = False) -> list[str]:
    """Lines of a table: the first column (and the last, if `left_too`) to the left, the others to the right.

    The first column gets what the others leave of the width, if there is one; names are cut in the middle.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if width:
        left = width - indent - sum(widths[1:]) - len(_GAP) * (len(widths) - 1)
        names = [row[0] for row in rows]
        widths[0] = _width_apart(names, max(left, _SHORTEST_NAME))
    lines = []
    for first, *cells in rows:
        line = [_cut(first, widths[0]).ljust(widths[0])]
        line += [cell.rjust(wide) for cell, wide in zip(cells, widths[1:], strict=True)]
        if left_too:
            line[-1] = cells[-1]
        lines.append(" " * indent + _GAP.join(line).rstrip())
    return lines


def _width_apart(names: Sequence[str], width: int) -> int:
    """The least width, but for the given one, to which names can be cut so that those that differ still do."""
    longest = max(map(len, names))
    apart = (each for each in range(min(width, longest), longest) if len({_cut(n, each) for n in names}) == len(names))
    return next(apart, longest)


def _cut(text: str, width: int) -> str:
    """A text without its middle where it is too long: ends tell ranks apart."""
    if len(text) <= width:
        return text
    end = (width - 2) * 2 // 3
    return f"{text[: width - 2 - end]}..{text[-end:]}"
