"""Reports, read and placed: their records on one clock and on the rows of one tree, cut to what the user chose.

All that looks at the reports of a job begins here: its translation, and what is summed up without a trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.clock.alignment import ReportClock, align_clocks, uses_collectives
from nsys2prv_ng.clock.alignment_table import Alignment
from nsys2prv_ng.clock.collectives import Evidence
from nsys2prv_ng.clock.domains import assign_nodes, find_doubtful_hosts
from nsys2prv_ng.errors import ReportError, TranslationError, UsageError, escape_unprintable
from nsys2prv_ng.job.accounts import SkippedReport
from nsys2prv_ng.job.read_reports import ReportRecords, read_reports
from nsys2prv_ng.job.repeated_samples import drop_repeated_samples
from nsys2prv_ng.job.selection import Selection, cut_result, drop_short, find_windows, prune_tree, select_rows
from nsys2prv_ng.job.spill import load_for_change, spill_records
from nsys2prv_ng.objects.missing import find_missing_ranks
from nsys2prv_ng.objects.tree import ObjectTree, ReportPlaces, build_tree
from nsys2prv_ng.paraver.event_types import CAPTURE
from nsys2prv_ng.paraver.model import LONGEST_TRACE_NS
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.report.diagnostics import describe_lost_data
from nsys2prv_ng.report.files import get_export_size, locate_exports
from nsys2prv_ng.runtime.limits import Resources
from nsys2prv_ng.runtime.parallel import run_in_threads
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources import DERIVED, SOURCES
from nsys2prv_ng.sources.shared.reasons import NOT_SELECTED
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import JoinInput, JoinResult, Source, SourceOptions

_BUFFERED = 1 << 27
"""Bytes of all runs together that are in memory while they are merged; a report has about _RUNS of them."""
_RUNS = 16
_CHUNK = 1 << 14, 1 << 18
"""Fewest and most bytes of a run to read from the store at a time."""


@dataclass(frozen=True)
class ReadOptions:
    """What to read of reports, with what of the machine, and how to place it in time."""

    sources: tuple[Source, ...] = SOURCES + DERIVED
    source_options: SourceOptions = field(default_factory=SourceOptions)
    selection: Selection = field(default_factory=Selection)
    align: str | Path = "auto"
    """One of clock.alignment.WAYS, or a file that `align_report` was written to."""
    strict: bool = False
    """End with an error if one of several reports cannot be read, instead of leaving it out."""
    resources: Resources = field(default_factory=Resources)


@dataclass(frozen=True)
class Job:
    """The reports of a job. Their records, and those that were made of all together, are in the store."""

    reports: list[ReportRecords]
    store: Store
    at_once: int
    """Of how many reports the records may be in memory at a time."""
    skipped: list[SkippedReport]
    is_empty: bool
    """Whether no event was found: then the records are those of the captures."""
    alignment: Alignment
    whole: ObjectTree
    """All objects, with the rows that `reports` has places for."""
    tree: ObjectTree
    """Those that the user chose."""
    new_row: IntArray
    """Row of the chosen tree by row of the whole one, -1 for those left out."""
    spans: list[tuple[IntArray, IntArray]]
    """First and last time (ns) of the events on each place of each report, before they were cut to the windows."""
    windows: list[tuple[int, int]]
    """The chosen times on the common clock (ns); none for all."""
    first: int
    last: int
    """Limits of the records on the common clock (ns)."""
    joined: list[JoinResult]
    """What sources made of all reports together, put away on rows of the chosen tree."""
    warnings: list[str]

    @property
    def origin(self) -> int:
        """Time 0 of the trace on the common clock (ns).

        Of several events of a type and row Paraver takes at time 0 the last only, so that ranges which a window cut
        would lose those around them: its trace begins a ns before.
        """
        return self.first - 1 if self.windows else self.first

    @property
    def start_utc(self) -> int:
        """UTC (ns) of time 0 of the trace."""
        return self.origin + self.alignment.utc_base

    @property
    def duration(self) -> int:
        """ns from time 0 to the last record."""
        return self.last - self.origin


@contextmanager
def open_job(reports: Sequence[Path], folder: Path, options: ReadOptions, progress: Progress) -> Iterator[Job]:
    """Read reports and place what they hold. `folder` takes the exports and the file that find no other place.

    Raises TranslationError (UsageError among them).
    """
    resources, selection = options.resources, options.selection
    broken: dict[Path, ReportError] | None = None if options.strict or len(reports) == 1 else {}
    exports = locate_exports(reports, folder, progress, resources.jobs, broken)
    sizes = {export: get_export_size(export) for export in exports}
    processes = resources.processes(list(sizes.values()))
    with _open_store(resources, folder, len(exports), processes) as store:
        read = read_reports(
            sorted(exports, key=sizes.__getitem__, reverse=True),  # so that no large one is read alone at the end
            options.sources,
            options.source_options,
            store,
            progress,
            processes=processes,
            collect_evidence=uses_collectives(options.align) and len(exports) > 1,
            skipped=broken,
        )
        skipped = _left_out(broken or {}, progress)
        node_names, alignment = _place_on_common_clock(read, options.align)
        is_empty = not any(report.limits() for report in read)
        if is_empty:
            _show_captures(read, store)
        drop_repeated_samples(read, store, processes)
        whole = _build_tree(read, node_names)
        kept = select_rows(whole, selection)
        _leave_out_rows(read, whole, kept, store, processes)
        first, last = _limits(read)
        _close_unended(read, last, store)
        spans = [report.spans() for report in read]
        windows = _windows(read, selection, first, last)
        _settle(read, selection, windows, store, processes)
        if windows:
            first, last = max(first, windows[0][0]), min(last, windows[-1][1])
        limits = windows or [(first, last)]
        joined = _join(read, whole, kept, options.sources, limits)
        tree, new_row = prune_tree(whole, kept)
        for each in joined:
            _put_away(each, new_row, limits, store)

        warnings = [*tree.warnings, *alignment.warnings]
        if len(reports) > 1:  # one alone was chosen
            warnings += find_missing_ranks([report.metadata for report in read], whole.ranks)
        warnings += describe_lost_data({str(report.path): report.diagnostics for report in read})
        yield Job(
            reports=read,
            store=store,
            at_once=processes,
            skipped=skipped,
            is_empty=is_empty,
            alignment=alignment,
            whole=whole,
            tree=tree,
            new_row=new_row,
            spans=spans,
            windows=windows,
            first=first,
            last=last,
            joined=joined,
            warnings=warnings,
        )


def _open_store(resources: Resources, trace_folder: Path, reports: int, processes: int) -> Store:
    """Open the store for the records of all reports. Raises TranslationError where its folder takes no file."""
    fewest, most = _CHUNK
    chunk = min(max(fewest, _BUFFERED // (_RUNS * reports)), most)
    shelves = processes + 1 if processes > 1 else 1
    return Store(resources.folder or trace_folder, resources.memory, shelves, chunk)


def _left_out(broken: Mapping[Path, ReportError], progress: Progress) -> list[SkippedReport]:
    """Tell the user which reports are left out, and why; in an order that does not depend on the command line's."""
    for path in sorted(broken):
        progress.warn(f"left out, as it cannot be read: {broken[path]}")
    return [
        SkippedReport(str(path), str(broken[path]).removeprefix(f"{escape_unprintable(str(path))}: "))
        for path in sorted(broken)
    ]


# ---- time ------------------------------------------------------------------------------------------------------------


def _place_on_common_clock(read: Sequence[ReportRecords], way: str | Path) -> tuple[list[str], Alignment]:
    """Move each report to the common clock, and note which node it is of; returns the names of the nodes."""
    nodes, names = assign_nodes([report.metadata for report in read])
    clocks = [
        ReportClock(node, report.metadata.utc_of_zero, report.evidence)
        for report, node in zip(read, nodes, strict=True)
    ]
    alignment, maps = align_clocks(way, clocks, names)
    alignment.warnings += find_doubtful_hosts([r.metadata for r in read], [r.places.called for r in read])
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
                result.records.append(rec.make_intervals(place, begin, np.maximum(begin, last), opening, closing))
            spill_records(result, store, on_common_clock=True)
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
        capture = rec.make_intervals(place, limits[0], limits[1], [Pair(handle, 1)], [handle])
        one.results[CAPTURE.source] = Result(records=[capture])
        spill_records(one.results[CAPTURE.source], store, on_common_clock=True)


def _windows(read: Sequence[ReportRecords], selection: Selection, first: int, last: int) -> list[tuple[int, int]]:
    """The windows of the chosen time on the common clock, none if all time is wanted."""
    if selection.window is None and not selection.nvtx_range:
        return []
    ranges = [result.windows for report in read for result in report.results.values()]
    return find_windows(selection, ranges, first, last)


def _settle(
    read: Sequence[ReportRecords], selection: Selection, windows: Sequence[tuple[int, int]], store: Store, at_once: int
) -> None:
    """Change what cannot be changed record by record as it is written: put it on a clock that drifts, leave out what is
    too short for the user, cut it to the windows.

    `at_once` results are in memory. The trace begins, ends and has states as if what is too short were there.
    """

    def settle(change: tuple[ReportRecords, str, Result]) -> None:
        report, name, result = change
        with load_for_change(result, store, report.clock):
            if name in selection.shortest:
                drop_short(result, selection.shortest[name])
            if windows:
                cut_result(result, windows)

    changes = (
        (report, name, result)
        for report in read
        for name, result in report.results.items()
        if report.clock.drift or windows or name in selection.shortest
    )
    for _ in run_in_threads(settle, changes, at_once):
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
) -> list[JoinResult]:
    """What sources make of all reports together."""
    joined = []
    for source in sources:
        if source.join is not None:
            parts = [
                JoinInput(
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
        with load_for_change(result, store):
            result.drop_places(unwanted, NOT_SELECTED)

    changes = (
        (result, unwanted)
        for report, rows in zip(read, tree.rows, strict=True)
        if (unwanted := (rows >= 0) & ~kept[rows]).any()
        for result in report.results.values()
    )
    for _ in run_in_threads(leave_out, changes, at_once):
        pass
    if not any(report.limits() for report in read):
        raise UsageError("no event is left in the trace; choose more ranks or GPUs")


def _put_away(joined: JoinResult, new_row: IntArray, windows: Sequence[tuple[int, int]], store: Store) -> None:
    """Put the records of a join away, from the rows of the whole tree to those of the trace, cut to its time."""

    def put_away(result: Result) -> None:
        before = result.written
        result.records = [rec.move_to_rows(records, new_row) for records in result.records]
        result.drop(NOT_SELECTED, before - result.written)
        if len(windows) > 1:
            cut_result(result, windows)
        spill_records(result, store, on_common_clock=True)
        # Only a chosen time ends within what was joined, or calls that are not shown themselves, as damage makes them.
        if any(run.facts.first < windows[0][0] or run.facts.last > windows[-1][1] for run in result.runs):
            with load_for_change(result, store):
                cut_result(result, windows)

    for result in joined.accounts.values():
        put_away(result)
    if joined.partial_results is not None:
        name, parts = joined.partial_results
        whole = joined.accounts[name] = Result()
        for result in parts:
            put_away(result)
            whole.add(result)
