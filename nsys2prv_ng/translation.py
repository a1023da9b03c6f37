"""The translation of a set of reports into one trace, told once."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nsys2prv_ng.choose import BoolArray, Choice, chosen_rows, cut, drop_short, prune, windows_of
from nsys2prv_ng.clock.alignment import ReportClock, align, uses_collectives
from nsys2prv_ng.clock.collectives import Evidence
from nsys2prv_ng.clock.domains import doubtful_hosts, nodes_of
from nsys2prv_ng.clock.report import Alignment
from nsys2prv_ng.errors import ReportError, TranslationError, UsageError
from nsys2prv_ng.objects.missing import missing_ranks
from nsys2prv_ng.objects.places import IntArray
from nsys2prv_ng.objects.tree import ObjectTree, ReportPlaces, build_tree
from nsys2prv_ng.paraver import records as rec
from nsys2prv_ng.paraver.configuration import pcf_text
from nsys2prv_ng.paraver.event_types import CAPTURE
from nsys2prv_ng.paraver.kept_labels import read_kept_labels
from nsys2prv_ng.paraver.labels import Numbering
from nsys2prv_ng.paraver.model import LONGEST_TRACE_NS, Communicator, prv_header, row_text
from nsys2prv_ng.paraver.output import TraceOutput, files_of
from nsys2prv_ng.paraver.records import Pair
from nsys2prv_ng.paraver.runs import Run
from nsys2prv_ng.paraver.store import Store
from nsys2prv_ng.progress import Progress
from nsys2prv_ng.reading import ReportRecords, read_reports
from nsys2prv_ng.report.files import locate_exports, size_of
from nsys2prv_ng.resources import Resources
from nsys2prv_ng.row_states import row_states
from nsys2prv_ng.side_files import check_reports_stay, check_side_files, write_whole
from nsys2prv_ng.sources import DERIVED, SOURCES
from nsys2prv_ng.sources.base import UNWANTED, Joined, Part, Result, Source, SourceOptions
from nsys2prv_ng.stored import in_memory, put_away_records
from nsys2prv_ng.summary import LeftOut, SourceAccount, Summary
from nsys2prv_ng.workers import in_threads
from nsys2prv_ng.writing import Written, write_records


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
    strict: bool = False
    """End with an error if one of several reports cannot be read, instead of leaving it out."""
    force: bool = False
    resources: Resources = field(default_factory=Resources)


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
    check_reports_stay(reports, files_of(output))
    check_side_files(side_files, [*inputs, *files_of(output)], force=options.force)
    with ExitStack() as opened:
        resources = options.resources
        trace = opened.enter_context(TraceOutput(output, force=options.force, jobs=resources.threads))
        kept_labels = read_kept_labels(options.labels_from) if options.labels_from else None
        broken: dict[Path, ReportError] | None = None if options.strict or len(reports) == 1 else {}
        exports = locate_exports(reports, output.parent, progress, resources.jobs, broken)
        sizes = {export: size_of(export) for export in exports}
        processes = resources.processes(list(sizes.values()))
        store = opened.enter_context(resources.store(output.parent, len(exports), processes))
        read = read_reports(
            sorted(exports, key=sizes.__getitem__, reverse=True),  # so that no large one is read alone at the end
            options.sources,
            options.of_sources,
            store,
            progress,
            processes=processes,
            with_evidence=uses_collectives(options.align) and len(exports) > 1,
            left_out=broken,
        )
        left_out = _left_out(broken or {}, progress)
        node_names, alignment = _place_on_common_clock(read, options.align)
        empty = not any(report.limits() for report in read)
        if empty:
            _show_captures(read, store)
        whole = _build_tree(read, node_names)
        kept = chosen_rows(whole, options.choice)
        _leave_out_rows(read, whole, kept, store, processes)
        first, last = _limits(read)
        _close_unended(read, last, store)
        spans = [report.spans() for report in read]
        windows = _windows(read, options.choice, first, last)
        _settle(read, options.choice, windows, store, processes)
        if windows:
            first, last = max(first, windows[0][0]), min(last, windows[-1][1])
        # Of several events of a type and row Paraver takes at time 0 the last only, so that ranges which a window cut
        # would lose those around them: its trace begins a ns before.
        origin = first - 1 if windows else first

        joined = _join(read, whole, kept, options.sources, windows or [(first, last)])
        assigned = {space: values for each in joined for space, values in each.assigned.items()}
        numbering = Numbering([report.labels for report in read], assigned, kept_labels)
        tree, new_row = prune(whole, kept)
        runs = _of_reports(read, tree, numbering)
        runs += [Written(run) for each in joined for run in _put_away(each, new_row, windows or [(first, last)], store)]
        runs += [Written(run) for run in row_states(read, tree, spans, windows, store, processes)]

        start_utc = origin + alignment.utc_base
        trace.write_text("pcf", pcf_text(numbering))
        trace.write_text("row", row_text(tree.model, output.name.removesuffix(".gz").removesuffix(".prv")))
        communicators = _communicators(joined, whole, new_row, tree)
        trace.write_prv(prv_header(tree.model, start_utc, last - origin, communicators).encode())
        rows = tree.model.row_numbers()
        size = write_records(trace, runs, rows, origin, store, progress, threads=resources.threads)

    warnings = [*tree.warnings, *alignment.warnings]
    if len(reports) > 1:  # one alone was chosen
        warnings += missing_ranks([report.metadata for report in read], whole.ranks)
    if empty:
        warnings.append("none of the chosen kinds of event is in these reports: the trace only shows their capture")
    for warning in warnings:
        progress.warn(warning)
    lines = {kind: sum(each.run.facts.kinds[kind] for each in runs) for kind in rec.KINDS}
    summary = Summary(
        output=str(output),
        sources=_accounts(read, options.sources, joined),
        reports=[report.account() for report in read],
        left_out=left_out,
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


def _left_out(broken: Mapping[Path, ReportError], progress: Progress) -> list[LeftOut]:
    """Tell the user which reports are left out, and why; in an order that does not depend on the command line's."""
    for path in sorted(broken):
        progress.warn(f"left out, as it cannot be read: {broken[path]}")
    return [LeftOut(str(path), str(broken[path]).removeprefix(f"{path}: ")) for path in sorted(broken)]


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
            result.windows = clock(result.windows)
    return names, alignment


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


def _close_unended(read: Sequence[ReportRecords], last: int, store: Store) -> None:
    """Intervals without an end last until the trace ends."""
    for report in read:
        for result in report.results.values():
            for place, begin, opening, closing in result.unended:
                begin = report.clock(begin)
                result.records.append(rec.intervals(place, begin, np.maximum(begin, last), opening, closing))
            put_away_records(result, store, on_common_clock=True)
            result.unended = []


def _show_captures(read: Sequence[ReportRecords], store: Store) -> None:
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
        put_away_records(one.results[CAPTURE.source], store, on_common_clock=True)


def _windows(read: Sequence[ReportRecords], choice: Choice, first: int, last: int) -> list[tuple[int, int]]:
    """The windows of the chosen time on the common clock, none if all time is wanted."""
    if choice.window is None and not choice.nvtx_range:
        return []
    ranges = [result.windows for report in read for result in report.results.values()]
    return windows_of(choice, ranges, first, last)


def _settle(
    read: Sequence[ReportRecords], choice: Choice, windows: Sequence[tuple[int, int]], store: Store, at_once: int
) -> None:
    """Change what cannot be changed record by record as it is written: put it on a clock that drifts, leave out what is
    too short for the user, cut it to the windows.

    `at_once` results are in memory. The trace begins, ends and has states as if what is too short were there.
    """

    def settle(change: tuple[ReportRecords, str, Result]) -> None:
        report, name, result = change
        with in_memory(result, store, report.clock):
            if name in choice.shortest:
                drop_short(result, choice.shortest[name])
            if windows:
                cut(result, windows)

    changes = (
        (report, name, result)
        for report in read
        for name, result in report.results.items()
        if report.clock.drift or windows or name in choice.shortest
    )
    for _ in in_threads(settle, changes, at_once):
        pass
    if not any(report.limits() for report in read):
        remedy = "a longer or another one" if windows else "shorter intervals"
        where = "in the chosen time" if windows else "left in the trace"
        raise UsageError(f"no event is {where}; choose {remedy}")


# ---- place -----------------------------------------------------------------------------------------------------------


def _build_tree(read: Sequence[ReportRecords], node_names: Sequence[str]) -> ObjectTree:
    parts = []
    for report in read:
        first, last = report.limits() or (0, 0)
        parts.append(ReportPlaces(report.metadata, report.places, report.node, first, last))
    return build_tree(parts, node_names)


def _join(
    read: Sequence[ReportRecords],
    tree: ObjectTree,
    kept: BoolArray,
    sources: Sequence[Source],
    windows: Sequence[tuple[int, int]],
) -> list[Joined]:
    """What sources make of all reports together."""
    joined = []
    for source in sources:
        if source.join is not None:
            parts = [
                Part(
                    report.metadata,
                    report.places,
                    rows,
                    report.clock,
                    report.results[source.name].shared,
                    windows,
                    kept,
                )
                for report, rows in zip(read, tree.rows, strict=True)
            ]
            joined.append(source.join(parts, tree))
    return joined


def _leave_out_rows(
    read: Sequence[ReportRecords], tree: ObjectTree, kept: BoolArray, store: Store, at_once: int
) -> None:
    """Drop what is on rows that the user does not want; `at_once` results are in memory."""

    def leave_out(change: tuple[Result, BoolArray]) -> None:
        result, unwanted = change
        with in_memory(result, store):
            result.drop_places(unwanted, UNWANTED)

    changes = (
        (result, unwanted)
        for report, rows in zip(read, tree.rows, strict=True)
        if (unwanted := (rows >= 0) & ~kept[rows]).any()
        for result in report.results.values()
    )
    for _ in in_threads(leave_out, changes, at_once):
        pass
    if not any(report.limits() for report in read):
        raise UsageError("no event is left in the trace; choose more ranks or GPUs")


def _of_reports(read: Sequence[ReportRecords], tree: ObjectTree, numbering: Numbering) -> list[Written]:
    """The runs of all reports, with what makes their rows, numbers and times those of the trace."""
    runs = []
    for report, rows in zip(read, tree.rows, strict=True):
        maps = (rows, *numbering.maps(report.labels))
        runs += [Written(run, 0 if run.on_common_clock else report.clock.offset, maps) for run in report.runs()]
    return runs


def _put_away(joined: Joined, new_row: IntArray, windows: Sequence[tuple[int, int]], store: Store) -> list[Run]:
    """The records of a join, from the rows of the whole tree to those of the trace, cut to the time of the trace."""

    def put_away(result: Result) -> None:
        before = result.written
        result.records = [rec.on_rows(records, new_row) for records in result.records]
        result.drop(UNWANTED, before - result.written)
        if len(windows) > 1:
            cut(result, windows)
        put_away_records(result, store, on_common_clock=True)
        # Only a chosen time ends within what was joined, or calls that are not shown themselves, as damage makes them.
        if any(run.facts.first < windows[0][0] or run.facts.last > windows[-1][1] for run in result.runs):
            with in_memory(result, store):
                cut(result, windows)

    for result in joined.accounts.values():
        put_away(result)
    if joined.in_parts is not None:
        name, parts = joined.in_parts
        whole = joined.accounts[name] = Result()
        for result in parts:
            put_away(result)
            whole.add(result)
    return [run for result in joined.accounts.values() for run in result.runs]


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
