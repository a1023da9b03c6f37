"""The translation of a set of reports into one trace, told once."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nsys2prv_ng.analysis.states import Flat, fill, flatten, overlay, row_limits
from nsys2prv_ng.choose import BoolArray, Choice, chosen_rows, cut, drop_short, prune, windows_of
from nsys2prv_ng.clock.alignment import ReportClock, align, uses_collectives
from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.clock.collectives import Evidence
from nsys2prv_ng.clock.domains import doubtful_hosts, nodes_of
from nsys2prv_ng.clock.report import Alignment
from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.objects.places import IntArray
from nsys2prv_ng.objects.tree import ObjectTree, ReportPlaces, build_tree
from nsys2prv_ng.paraver import records as rec
from nsys2prv_ng.paraver.clip import clip_to_windows
from nsys2prv_ng.paraver.configuration import pcf_text
from nsys2prv_ng.paraver.encode import encode
from nsys2prv_ng.paraver.event_types import CAPTURE, PROFILING, RUNNING
from nsys2prv_ng.paraver.kept_labels import read_kept_labels
from nsys2prv_ng.paraver.labels import Numbering
from nsys2prv_ng.paraver.merge import merged_blocks
from nsys2prv_ng.paraver.model import LONGEST_TRACE_NS, Communicator, prv_header, row_text
from nsys2prv_ng.paraver.output import TraceOutput, files_of
from nsys2prv_ng.paraver.records import Pair, Records
from nsys2prv_ng.paraver.retime import retime
from nsys2prv_ng.progress import Progress
from nsys2prv_ng.reading import ReportRecords, read_reports
from nsys2prv_ng.report.files import locate_exports
from nsys2prv_ng.side_files import check_side_files, write_whole
from nsys2prv_ng.sources import DERIVED, SOURCES
from nsys2prv_ng.sources.base import Joined, Part, Result, Source, SourceOptions
from nsys2prv_ng.summary import SourceAccount, Summary


@dataclass(frozen=True)
class Options:
    """How to translate: which sources and how, what of the reports, and whether to replace a trace."""

    sources: tuple[Source, ...] = SOURCES + DERIVED
    of_sources: SourceOptions = field(default_factory=SourceOptions)
    choice: Choice = field(default_factory=Choice)
    align: str | Path = "auto"
    """One of clock.alignment.WAYS, or a file that `align_report` was written to."""
    align_report: Path | None = None
    summary: Path | None = None
    """Files to write besides the trace: the clocks of the nodes, and the summary as JSON."""
    labels_from: Path | None = None
    """A .pcf whose numbers of types and names are kept."""
    force: bool = False


def translate(
    reports: Sequence[Path],
    output: Path,
    options: Options = Options(),
    progress: Progress = Progress(),  # noqa: B008 (has no state)
) -> Summary:
    """Write the trace of some reports and return what was done.

    Raises TranslationError (UsageError among them) with one line for the user; nothing is then left under `output`.
    """
    began = time.perf_counter()
    side_files = [path for path in (options.summary, options.align_report) if path is not None]
    inputs = [*reports, *(path for path in (options.labels_from, options.align) if isinstance(path, Path))]
    check_side_files(side_files, [*inputs, *files_of(output)], force=options.force)
    with TraceOutput(output, force=options.force) as trace:
        kept_labels = read_kept_labels(options.labels_from) if options.labels_from else None
        exports = locate_exports(reports, output.parent, progress)
        with_evidence = uses_collectives(options.align) and len(exports) > 1
        read = read_reports(exports, options.sources, options.of_sources, progress, with_evidence=with_evidence)
        node_names, alignment = _place_on_common_clock(read, options.align)
        empty = not any(report.limits() for report in read)
        if empty:
            _show_captures(read)
        whole = _build_tree(read, node_names)
        kept = chosen_rows(whole, options.choice)
        _leave_out_rows(read, whole, kept)
        first, last = _limits(read)
        _close_unended(read, last)
        spans = _spans(read)
        _leave_out_short(read, options.choice)
        windows = _cut(read, options.choice, first, last)
        if windows:
            first, last = max(first, windows[0][0]), min(last, windows[-1][1])
        # Of several events of a type and row Paraver takes at time 0 the last only, so that ranges which a window cut
        # would lose those around them: its trace begins a ns before.
        origin = first - 1 if windows else first

        joined = _join(read, whole, options.sources, windows or [(first, last)])
        assigned = {space: values for each in joined for space, values in each.assigned.items()}
        numbering = Numbering([report.labels for report in read], assigned, kept_labels)
        tree, new_row = prune(whole, kept)
        runs = [_resolved(report, rows, numbering) for report, rows in zip(read, tree.rows, strict=True)]
        runs += [_lines_of(each, new_row, windows) for each in joined]
        runs.append(_states(read, tree, spans, windows))

        start_utc = origin + alignment.utc_base
        trace.write_text("pcf", pcf_text(numbering))
        trace.write_text("row", row_text(tree.model, output.name.removesuffix(".gz").removesuffix(".prv")))
        communicators = _communicators(joined, whole, new_row, tree)
        trace.write_prv(prv_header(tree.model, start_utc, last - origin, communicators).encode())
        size = _write_records(trace, tree, runs, origin, progress)

    warnings = [*tree.warnings, *alignment.warnings]
    if empty:
        warnings.append("none of the chosen kinds of event is in these reports: the trace only shows their capture")
    for warning in warnings:
        progress.warn(warning)
    lines = {kind: sum(int((run.kind == kind).sum()) for run in runs) for kind in rec.KINDS}
    summary = Summary(
        output=str(output),
        sources=_accounts(read, options.sources, joined),
        reports=[report.account() for report in read],
        start_utc_ns=start_utc,
        duration_ns=last - origin,
        nodes=len(tree.model.nodes),
        tasks=len(tree.model.tasks),
        rows=tree.model.row_count,
        states=lines[rec.STATE],
        events=lines[rec.EVENT],
        communications=lines[rec.COMMUNICATION],
        bytes=size,
        seconds=time.perf_counter() - began,
        warnings=warnings,
        clocks=alignment,
    )
    if options.align_report is not None:
        write_whole(options.align_report, alignment.toml())
    if options.summary is not None:
        write_whole(options.summary, json.dumps(summary.to_dict(), indent=2) + "\n")
    return summary


# ---- time ------------------------------------------------------------------------------------------------------------


def _place_on_common_clock(read: Sequence[ReportRecords], way: str | Path) -> tuple[list[str], Alignment]:
    """Move each report to the common clock, and note which node it is of; returns the names of the nodes."""
    nodes, names = nodes_of([report.metadata for report in read])
    clocks = [
        ReportClock(node, report.metadata.utc_of_zero, report.evidence)
        for report, node in zip(read, nodes, strict=True)
    ]
    alignment, maps = align(way, clocks, names)
    alignment.warnings += doubtful_hosts([r.metadata for r in read], [r.places.called for r in read])
    for report, node, clock in zip(read, nodes, maps, strict=True):
        report.node, report.clock, report.evidence = node, clock, Evidence()
        for result in report.results.values():
            _move(result, clock)
    return names, alignment


def _move(result: Result, clock: ClockMap) -> None:
    """From the times of a report to those on the common clock."""
    if clock.drift:
        result.records = [retime(records, clock) for records in result.records]
    else:
        for records in result.records:
            rec.shift(records, clock.offset)
    result.states = [s._replace(begin=clock(s.begin), end=clock(s.end)) for s in result.states]
    result.unended = [u._replace(begin=clock(u.begin)) for u in result.unended]
    result.windows = clock(result.windows)


def _limits(read: Sequence[ReportRecords]) -> tuple[int, int]:
    """First and last time of all records on the common clock.

    Raises TranslationError for a span that Paraver cannot hold.
    """
    limits = [limit for report in read if (limit := report.limits())]
    first, last = min(limit[0] for limit in limits), max(limit[1] for limit in limits)
    if last - first >= LONGEST_TRACE_NS:
        days = (last - first) / 86400e9
        raise TranslationError(f"the reports span {days:,.0f} days and Paraver takes 104: are they all of one job?")
    return first, last


def _close_unended(read: Sequence[ReportRecords], last: int) -> None:
    """Intervals without an end last until the trace ends."""
    for report in read:
        for result in report.results.values():
            for place, begin, opening, closing in result.unended:
                result.records.append(rec.intervals(place, begin, np.maximum(begin, last), opening, closing))
            result.unended = []


def _show_captures(read: Sequence[ReportRecords]) -> None:
    """Where no source found anything: an interval for the capture on each node, since Paraver loads no empty trace."""
    for node in sorted({report.node for report in read}):
        of_node = [report for report in read if report.node == node]
        begin = min(report.clock.at(report.metadata.begin) for report in of_node)
        end = max(report.clock.at(report.metadata.begin + report.metadata.duration) for report in of_node)
        one = of_node[0]
        handle = one.labels.handle(CAPTURE)
        place = np.array([one.places.node()], np.int64)
        limits = np.array([[begin], [max(end, begin + 1)]], np.int64)
        capture = rec.intervals(place, limits[0], limits[1], [Pair(handle, 1)], [handle])
        one.results[CAPTURE.source] = Result(records=[capture])


def _cut(read: Sequence[ReportRecords], choice: Choice, first: int, last: int) -> list[tuple[int, int]]:
    """Cut all records to the chosen time; returns its windows on the common clock, none if all time is wanted."""
    if choice.window is None and not choice.nvtx_range:
        return []
    ranges = [result.windows for report in read for result in report.results.values()]
    windows = windows_of(choice, ranges, first, last)
    for report in read:
        cut(report.results.values(), windows)
    if not any(report.limits() for report in read):
        raise UsageError("no event is in the chosen time; choose a longer or another one")
    return windows


# ---- place -----------------------------------------------------------------------------------------------------------


def _build_tree(read: Sequence[ReportRecords], node_names: Sequence[str]) -> ObjectTree:
    parts = []
    for report in read:
        first, last = report.limits() or (0, 0)
        parts.append(ReportPlaces(report.metadata, report.places, report.node, first, last))
    return build_tree(parts, node_names)


def _join(
    read: Sequence[ReportRecords], tree: ObjectTree, sources: Sequence[Source], windows: Sequence[tuple[int, int]]
) -> list[Joined]:
    """What sources make of all reports together."""
    joined = []
    for source in sources:
        if source.join is not None:
            parts = [
                Part(report.metadata, report.places, rows, report.clock, report.results[source.name].shared, windows)
                for report, rows in zip(read, tree.rows, strict=True)
            ]
            joined.append(source.join(parts, tree))
    return joined


def _leave_out_rows(read: Sequence[ReportRecords], tree: ObjectTree, kept: BoolArray) -> None:
    """Drop what is on rows that the user does not want."""
    for report, rows in zip(read, tree.rows, strict=True):
        unwanted = (rows >= 0) & ~kept[rows]
        for result in report.results.values():
            result.drop_places(unwanted, "outside --ranks or --gpus")
    if not any(report.limits() for report in read):
        raise UsageError("no event is left in the trace; choose more ranks or GPUs")


def _leave_out_short(read: Sequence[ReportRecords], choice: Choice) -> None:
    """Drop intervals that are too short for the user. The trace begins, ends and has states as if they were there."""
    for report in read:
        drop_short(report.results, choice.shortest)
    if not any(report.limits() for report in read):
        raise UsageError("no event is left in the trace; choose shorter intervals")


def _lines_of(joined: Joined, new_row: IntArray, windows: Sequence[tuple[int, int]]) -> Records:
    """Sorted records of a join, from the rows of the whole tree to those of the trace, cut to the chosen time."""
    for result in joined.accounts.values():
        before = result.written
        result.records = [rec.on_rows(records, new_row) for records in result.records]
        result.drop("outside --ranks or --gpus", before - result.written)
        if windows:
            cut([result], windows)
    return rec.concatenate([records for result in joined.accounts.values() for records in result.records]).sorted()


def _communicators(
    joined: Sequence[Joined], whole: ObjectTree, new_row: IntArray, tree: ObjectTree
) -> list[Communicator]:
    """Communicators with the numbers of those of their tasks that are in the trace."""
    number = dict.fromkeys(range(1, len(whole.model.tasks) + 1), 0)
    for old, new in enumerate(new_row):
        if new >= 0:
            number[int(whole.task_of_row[old]) + 1] = int(tree.task_of_row[new]) + 1
    found = []
    for each in joined:
        for communicator in each.communicators:
            tasks = tuple(number[task] for task in communicator.tasks if number[task])
            if tasks:
                found.append(Communicator(communicator.number, tasks))
    return found


def _resolved(report: ReportRecords, rows: IntArray, numbering: Numbering) -> Records:
    """All records of a report, sorted, with the rows and numbers of the trace."""
    records = rec.concatenate(list(report.records())).sorted()
    rec.resolve(records, rows, *numbering.maps(report.labels))
    return records


def _spans(read: Sequence[ReportRecords]) -> list[tuple[IntArray, IntArray]]:
    """First and last time of the events on each place of each report."""
    return [row_limits(list(report.records()), len(report.places.all)) for report in read]


def _states(
    read: Sequence[ReportRecords],
    tree: ObjectTree,
    spans: Sequence[tuple[IntArray, IntArray]],
    windows: Sequence[tuple[int, int]],
) -> Records:
    """State records of all rows in the windows, if there are any.

    Host threads are running wherever no call says otherwise, from their first event to their last, which may be outside
    the windows.
    """
    asked = [
        states._replace(place=rows[states.place])
        for report, rows in zip(read, tree.rows, strict=True)
        for result in report.results.values()
        for states in result.states
    ]
    columns = [np.concatenate([part[i] for part in asked] or [np.zeros(0, np.int64)]) for i in range(4)]
    profiling = columns[3] == PROFILING
    flat = overlay(flatten(*(c[~profiling] for c in columns)), flatten(*(c[profiling] for c in columns)))
    first, last = row_limits([], tree.model.row_count)
    for (earliest, latest), rows in zip(spans, tree.rows, strict=True):
        np.minimum.at(first, rows[rows >= 0], earliest[rows >= 0])
        np.maximum.at(last, rows[rows >= 0], latest[rows >= 0])
    no_host = np.ones(tree.model.row_count, np.bool_)
    no_host[tree.host_rows] = False
    first[no_host], last[no_host] = 1, 0
    running = rec.states(*fill(Flat(*(column[~no_host[flat.row]] for column in flat)), first, last, RUNNING))
    if windows:
        running, _ = clip_to_windows(running, windows)
    return rec.concatenate([rec.states(*flat), running]).sorted()


# ---- writing ---------------------------------------------------------------------------------------------------------


def _write_records(
    trace: TraceOutput, tree: ObjectTree, runs: Sequence[Records], origin: int, progress: Progress
) -> int:
    """Merge, format and write all records; returns the number of bytes."""
    numbers = tree.model.row_numbers()
    size = 0
    with progress.step(f"writing {trace.path}", sum(map(len, runs)), "record") as step:
        for block in merged_blocks(runs):
            text = encode(block, numbers, origin)
            trace.write_prv(text.data)
            size += text.size
            step.update(len(block))
    return size


def _accounts(
    read: Sequence[ReportRecords], sources: Sequence[Source], joined: Sequence[Joined]
) -> list[SourceAccount]:
    """Events by source over all reports, then what was made of the reports together."""
    accounts = [
        _account(source.name, source.title, [report.results[source.name] for report in read])
        for source in sources
        if not source.derived
    ]
    return accounts + [_account(name, name, [result]) for each in joined for name, result in each.accounts.items()]


def _account(name: str, title: str, results: Sequence[Result]) -> SourceAccount:
    account = SourceAccount(name, title)
    for result in results:
        account.read += result.read
        account.written += result.written
        account.closed_at_end += result.closed
        for reason, count in result.dropped.items():
            account.drop(reason, count)
    return account
