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
from nsys2prv_ng.clock.alignment import ReportClock, align, uses_collectives
from nsys2prv_ng.clock.alignment_table import Alignment
from nsys2prv_ng.clock.collectives import Evidence
from nsys2prv_ng.clock.domains import doubtful_hosts, nodes_of
from nsys2prv_ng.errors import ReportError, TranslationError, UsageError, printable
from nsys2prv_ng.job.accounts import LeftOut
from nsys2prv_ng.job.read_reports import ReportRecords, read_reports
from nsys2prv_ng.job.repeated_samples import leave_out_repeated
from nsys2prv_ng.job.selection import Choice, chosen_rows, cut, drop_short, prune, windows_of
from nsys2prv_ng.job.spill import in_memory, put_away_records
from nsys2prv_ng.objects.missing import missing_ranks
from nsys2prv_ng.objects.tree import ObjectTree, ReportPlaces, build_tree
from nsys2prv_ng.paraver.event_types import CAPTURE
from nsys2prv_ng.paraver.model import LONGEST_TRACE_NS
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.report.diagnostics import lost_data
from nsys2prv_ng.report.files import locate_exports, size_of
from nsys2prv_ng.runtime.limits import Resources
from nsys2prv_ng.runtime.parallel import in_threads
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources import DERIVED, SOURCES
from nsys2prv_ng.sources.shared.source import UNWANTED, Joined, Part, Result, Source, SourceOptions

_BUFFERED = 1 << 27
"""Bytes of all runs together that are in memory while they are merged; a report has about _RUNS of them."""
_RUNS = 16
_CHUNK = 1 << 14, 1 << 18
"""Fewest and most bytes of a run to read from the store at a time."""


@dataclass(frozen=True)
class ReadOptions:
    """What to read of reports, with what of the machine, and how to place it in time."""

    sources: tuple[Source, ...] = SOURCES + DERIVED
    of_sources: SourceOptions = field(default_factory=SourceOptions)
    choice: Choice = field(default_factory=Choice)
    align: str | Path = "auto"
    """One of clock.alignment.WAYS, or a file that `align_report` was written to."""
    strict: bool = False
    """End with an error if one of several reports cannot be read, instead of leaving it out."""
    resources: Resources = field(default_factory=Resources)


@dataclass(frozen=True)
class Placed:
    """The reports of a job. Their records, and those that were made of all together, are in the store."""

    read: list[ReportRecords]
    store: Store
    at_once: int
    """Of how many reports the records may be in memory at a time."""
    left_out: list[LeftOut]
    is_empty: bool
    """Whether no event was found: then the records are those of the captures."""
    alignment: Alignment
    whole: ObjectTree
    """All objects, with the rows that `read` has places for."""
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
    joined: list[Joined]
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
def placed(reports: Sequence[Path], folder: Path, options: ReadOptions, progress: Progress) -> Iterator[Placed]:
    """Read reports and place what they hold. `folder` takes the exports and the file that find no other place.

    Raises TranslationError (UsageError among them).
    """
    resources, choice = options.resources, options.choice
    broken: dict[Path, ReportError] | None = None if options.strict or len(reports) == 1 else {}
    exports = locate_exports(reports, folder, progress, resources.jobs, broken)
    sizes = {export: size_of(export) for export in exports}
    processes = resources.processes(list(sizes.values()))
    with _open_store(resources, folder, len(exports), processes) as store:
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
        is_empty = not any(report.limits() for report in read)
        if is_empty:
            _show_captures(read, store)
        leave_out_repeated(read, store, processes)
        whole = _build_tree(read, node_names)
        kept = chosen_rows(whole, choice)
        _leave_out_rows(read, whole, kept, store, processes)
        first, last = _limits(read)
        _close_unended(read, last, store)
        spans = [report.spans() for report in read]
        windows = _windows(read, choice, first, last)
        _settle(read, choice, windows, store, processes)
        if windows:
            first, last = max(first, windows[0][0]), min(last, windows[-1][1])
        limits = windows or [(first, last)]
        joined = _join(read, whole, kept, options.sources, limits)
        tree, new_row = prune(whole, kept)
        for each in joined:
            _put_away(each, new_row, limits, store)

        warnings = [*tree.warnings, *alignment.warnings]
        if len(reports) > 1:  # one alone was chosen
            warnings += missing_ranks([report.metadata for report in read], whole.ranks)
        warnings += lost_data({str(report.path): report.diagnostics for report in read})
        yield Placed(
            read,
            store,
            processes,
            left_out,
            is_empty,
            alignment,
            whole,
            tree,
            new_row,
            spans,
            windows,
            first,
            last,
            joined,
            warnings,
        )


def _open_store(resources: Resources, trace_folder: Path, reports: int, processes: int) -> Store:
    """Open the store for the records of all reports. Raises TranslationError where its folder takes no file."""
    fewest, most = _CHUNK
    chunk = min(max(fewest, _BUFFERED // (_RUNS * reports)), most)
    shelves = processes + 1 if processes > 1 else 1
    return Store(resources.folder or trace_folder, resources.memory, shelves, chunk)


def _left_out(broken: Mapping[Path, ReportError], progress: Progress) -> list[LeftOut]:
    """Tell the user which reports are left out, and why; in an order that does not depend on the command line's."""
    for path in sorted(broken):
        progress.warn(f"left out, as it cannot be read: {broken[path]}")
    return [LeftOut(str(path), str(broken[path]).removeprefix(f"{printable(str(path))}: ")) for path in sorted(broken)]


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


def _put_away(joined: Joined, new_row: IntArray, windows: Sequence[tuple[int, int]], store: Store) -> None:
    """Put the records of a join away, from the rows of the whole tree to those of the trace, cut to its time."""

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
