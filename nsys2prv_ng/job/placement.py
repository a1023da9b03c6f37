"""Stages that place the records of reports: on one clock, on the rows of one tree, in the time that the user chose.

Each stage takes the results of the stages before it. The records are in a store, and only a few of them fit into
memory, so most stages change the results of the reports in place. The docstring of each stage states what it expects
of them and what it leaves. `open_job` calls the stages in order.

A trace ends with the work of a job, not with calls of idle threads that last longer than everything else: such a thread
waits in an OS runtime call, often for seconds. nsys waits for the end of the call too, so the trace would be mostly
empty. Reports that are not of one job are refused: their trace would combine unrelated runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, count
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.types import BoolArray
from nsys2prv_ng.clock.alignment import NONE, ReportClock, align_clocks, find_offsets, match_reports_on_utc
from nsys2prv_ng.clock.alignment_table import Alignment
from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.clock.contradictions import part_nodes
from nsys2prv_ng.clock.domains import assign_nodes, read_utc
from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.job.dropping import cut_result, drop_folded, drop_short, has_folded_events, take_folded
from nsys2prv_ng.objects.tree import ObjectTree, group_reports_by_task
from nsys2prv_ng.operations.matching import Operations
from nsys2prv_ng.operations.parts import combine_evidence, leave_graphs_unmatched
from nsys2prv_ng.paraver.event_types import CAPTURE
from nsys2prv_ng.paraver.model import LONGEST_TRACE_NS
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.reading.read_reports import ReadReport, ReportRecords, change_records, spill_records
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.clip import clip_ends
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.parallel import Engine
from nsys2prv_ng.sources.registry import GPU_OPERATIONS
from nsys2prv_ng.sources.shared.reasons import AFTER_ALL_ELSE, ON_FOLDED_THREAD
from nsys2prv_ng.sources.shared.source import JoinResult, Result, Source


class AlignedReports(NamedTuple):
    """Reports on the common clock, with the names of their nodes.

    `operations`: the collectives of all reports, if they were read; `offsets`: offset from the times of each report to
    their times (ns). `to_join`: what each report was read into, by source: it has the data that sources join.
    """

    reports: list[ReportRecords]
    node_names: list[str]
    alignment: Alignment
    operations: Operations
    offsets: list[int]
    to_join: list[dict[str, Result]]


class Limits(NamedTuple):
    """First and last time (ns) on the common clock."""

    first: int
    last: int


# ---- clock -----------------------------------------------------------------------------------------------------------


def align_reports(read: Sequence[ReadReport], way: str | Path, evidence: Sequence[Source]) -> AlignedReports:
    """Find the node of each report and its map to the common clock, from the evidence of some sources.

    Expects reports as they were read. Does not change their records: a clock without drift is applied when records are
    written, a clock with drift by `rewrite_records`.
    """
    nodes, names = assign_nodes([report.metadata for report in read])
    shown = leave_graphs_unmatched(
        [
            combine_evidence(report.evidence[source.name] for source in evidence if source.name in report.evidence)
            for report in read
        ]
    )
    utc = read_utc([report.metadata for report in read], nodes)
    clocks = [
        ReportClock(node, at_zero, part, report.metadata.clock, report.metadata.schema_version)
        for report, node, part, at_zero in zip(read, nodes, shown, utc, strict=True)
    ]
    operations, matches = match_reports_on_utc(clocks)
    nodes, origins = part_nodes(operations, nodes) if way != NONE else (nodes, [])
    warnings: list[str] = []
    if origins:
        utc = read_utc([report.metadata for report in read], nodes)
        clocks = [
            replace(clock, node=node, utc_of_zero=at_zero)
            for clock, node, at_zero in zip(clocks, nodes, utc, strict=True)
        ]
        operations, matches = match_reports_on_utc(clocks)
        names, warnings = _name_parted(names, origins)
    alignment, maps = align_clocks(way, clocks, names, matches)
    alignment.warnings += warnings
    reports = [report.place_on(node, clock) for report, node, clock in zip(read, nodes, maps, strict=True)]
    to_join = [report.results for report in read]
    return AlignedReports(reports, names, alignment, operations, find_offsets(clocks)[1], to_join)


def _name_parted(names: Sequence[str], origins: Sequence[tuple[int, int]]) -> tuple[list[str], list[str]]:
    """Return the names of all nodes, and a warning for each node whose reports are on several, as `part_nodes` says."""
    named = [*names]
    for _, node in origins:
        named.append(next(name for k in count(2) if (name := f"{names[node]} ({k})") not in named))
    warnings = [
        f"reports of {names[node]} cannot have one clock, by their collectives: several machines have this name, or the"
        " time was set between captures; it is shown as several nodes"
        for node in sorted({node for _, node in origins})
    ]
    return named, warnings


def show_captures_if_empty(reports: Sequence[ReportRecords], store: Store) -> bool:
    """Add an interval for the capture on each node if there are no records, because Paraver loads no empty trace.

    Expects all records that the sources made, none dropped. Leaves at least one record. Returns whether there were no
    records.
    """
    if any(report.limits() for report in reports):
        return False
    for node in sorted({report.node for report in reports}):
        on_node = [report for report in reports if report.node == node]
        begin = min(report.clock.at(report.metadata.begin) for report in on_node)
        end = max(report.clock.at(report.metadata.begin + report.metadata.duration) for report in on_node)
        report = on_node[0]
        handle = report.labels.handle(CAPTURE)
        place = np.array([report.places.node()], np.int64)
        limits = np.array([[begin], [max(end, begin + 1)]], np.int64)
        capture = rec.make_intervals(place, limits[0], limits[1], [Pair(handle, 1)], [handle])
        report.results[CAPTURE.source] = Result(records=[capture])
        spill_records(report.results[CAPTURE.source], store, on_common_clock=True)
    return True


# ---- time ------------------------------------------------------------------------------------------------------------


def measure_limits(reports: Sequence[ReportRecords], joined: Sequence[JoinResult] = ()) -> Limits:
    """Return the first and last time of all records, those of joined results included.

    Expects that only records on chosen rows are left. Raises TranslationError if Paraver cannot show so long a time.
    """
    limits = [limit for report in reports if (limit := report.limits())]
    results = [result for part in joined for result in part.accounts.values()]
    limits += [(run.facts.first, run.facts.last) for result in results for run in result.runs]
    first, last = min(limit[0] for limit in limits), max(limit[1] for limit in limits)
    if last - first >= LONGEST_TRACE_NS:
        days = (last - first) / 86400e9
        raise TranslationError(f"the reports span {days:,.0f} days and Paraver takes 104: are they all of one job?")
    return Limits(first, last)


def close_unended(reports: Sequence[ReportRecords], last: int, store: Store) -> None:
    """End intervals without an end at the end of the trace, `last` (ns).

    Leaves no unended intervals: they become records on the common clock.
    """
    for report in reports:
        for result in report.results.values():
            for place, begin, opening, closing in result.unended:
                begin = report.clock(begin)
                result.records.append(rec.make_intervals(place, begin, np.maximum(begin, last), opening, closing))
            spill_records(result, store, on_common_clock=True)
            result.unended = []


def measure_gpu_time(reports: Sequence[ReportRecords], tree: ObjectTree) -> tuple[int, int] | None:
    """Return the start of the first and the end of the last GPU operation (ns); None if there are none."""
    times: list[int] = []
    for report, rows in zip(reports, tree.rows, strict=True):
        is_gpu = (rows >= 0) & (tree.gpu_of_row[rows] >= 0)
        for place, first, last in map(report.find_spans, report.runs(GPU_OPERATIONS)):
            times += [*first[is_gpu[place]].tolist(), *last[is_gpu[place]].tolist()]
    return (min(times), max(times)) if times else None


def rewrite_records(
    reports: Sequence[ReportRecords],
    tree: ObjectTree,
    selection: Selection,
    windows: Sequence[tuple[int, int]],
    store: Store,
    engine: Engine,
) -> None:
    """Change the records that cannot be changed one by one while they are written.

    Put them on a clock that drifts, drop intervals shorter than the user's minimum, cut records to the windows, and
    drop the events of folded threads. Expects no unended intervals. Expects that the limits of the trace and the first
    and last time of the events on each place are known: the start, end and states of the trace do not change with what
    is dropped here. Raises UsageError if no record is left, unless there were records on folded threads.
    """

    def rewrite(result: Result, known: tuple[str, BoolArray | None]) -> None:
        name, folded = known
        # Separated first, because a window may cut an event into pieces that no longer show their event.
        taken = None if folded is None else take_folded(result, folded)
        for part in (result, taken):
            if part is not None and name in selection.shortest:
                drop_short(part, selection.shortest[name])
            if part is not None and windows:
                cut_result(part, windows)
        if taken is not None:
            drop_folded(result, taken)

    changes = [
        (result, report.clock, (name, folded if is_folded else None))
        for report, folded in zip(reports, (threads >= 0 for threads in tree.folded), strict=True)
        for name, result in report.results.items()
        if (is_folded := has_folded_events(result, folded))
        or report.clock.drift
        or windows
        or name in selection.shortest
    ]
    change_records(changes, rewrite, store, engine)
    if any(ON_FOLDED_THREAD in result.dropped for report in reports for result in report.results.values()):
        return
    if not any(report.limits() for report in reports):
        raise UsageError(
            "no events in the chosen time: choose another"
            if windows
            else "no event is left in the trace; choose shorter intervals"
        )


# ---- idle ends -------------------------------------------------------------------------------------------------------


_WORTH = 0.1
"""Calls are cut if idle threads outlast the other rows by more than this share of the other rows' time."""


def cut_idle_ends(reports: Sequence[ReportRecords], tree: ObjectTree, store: Store, engine: Engine) -> None:
    """Cut the events of idle threads after the last event of all other rows, if that is worth it (see _WORTH).

    Expects only records on chosen rows, all records of a result on one clock. Leaves the changed results on the common
    clock.
    """
    idle = [(rows >= 0) & tree.is_idle[rows] for rows in tree.rows]
    last = max(
        (last for report, mask in zip(reports, idle, strict=True) if (last := _find_last(report, ~mask)) is not None),
        default=None,
    )
    first, end = measure_limits(reports)
    if last is None or end - last <= _WORTH * (last - first):
        return
    changes = [
        (result, report.clock, (report.clock, mask, last))
        for report, mask in zip(reports, idle, strict=True)
        for result in report.results.values()
        if _ends_later(report, result, mask, last)
    ]
    change_records(changes, lambda result, known: _cut(result, *known), store, engine)


def _find_last(report: ReportRecords, places: BoolArray) -> int | None:
    """Return the last time of events on some places and samples on any place (ns, common clock); None without any."""
    first, last = report.spans()
    used = places & (first <= last)
    times = [int(last[used].max())] if used.any() else []
    # A sampled thread is running, even within a call.
    times += [report.find_limits(run)[1] for run in report.runs((source_names.CPU_SAMPLES,))]
    return max(times, default=None)


def _ends_later(report: ReportRecords, result: Result, places: BoolArray, last: int) -> bool:
    """Return whether an event of a result ends after `last` (ns, common clock) on some of these places."""
    spans = map(report.find_spans, result.runs)
    ended = any((places[place] & (end > last)).any() for place, _, end in spans)
    return ended or any((places[part.place] & (report.clock(part.begin) > last)).any() for part in result.unended)


def _cut(result: Result, clock: ClockMap, places: BoolArray, last: int) -> None:
    """Cut the intervals on some places that end after `last` (ns), and drop events that start after it."""
    before = result.written
    for i, records in enumerate(result.records):
        result.records[i], shortened = clip_ends(records, places, last)
        result.cut += shortened
    result.drop(AFTER_ALL_ELSE, before - result.written)
    result.drop_unended(lambda part: places[part.place] & (clock(part.begin) > last), AFTER_ALL_ELSE)


# ---- one job ---------------------------------------------------------------------------------------------------------


_CLOCK_ERROR = 10 * 10**9
"""Clocks that are set, even if nothing else aligns them, differ by less than this (ns)."""


def refuse_several_jobs(reports: Sequence[ReportRecords], tree: ObjectTree) -> None:
    """Raise UsageError if two processes have the same rank, or if reports share no time.

    Capture ranges of one run share no time either, but they share a process. Expects all records, on the common clock.
    """
    if tree.claimed_ranks:
        rank = min(tree.claimed_ranks)
        tasks = np.flatnonzero([known == rank for known in tree.ranks])
        claimants = [
            report
            for report, rows in zip(reports, tree.rows, strict=True)
            if np.isin(tree.task_of_row[rows[rows >= 0]], tasks).any()
        ]
        what = f"{tree.claimed_ranks[rank]} processes are rank {rank}"
        if len(claimants) == 1:
            raise UsageError(
                f"{what} in {claimants[0].path.name}: its workers were restarted, or it has several jobs; export the"
                " time of one of these with nsys export --times=FROM/TO, or allow others",
                see=("several_jobs",),
            )
        launched = [report.metadata.launched for report in claimants if not report.metadata.ranks]
        by = sorted({found.variable for found in launched if found is not None})
        what += f" by {', '.join(by)}" if by else ""
        _refuse(f"{what} ({', '.join(report.path.name for report in claimants[:2])})")
    spans = []
    for group in group_reports_by_task([report.places for report in reports], tree):
        limits = [(limit, reports[i].path.name) for i in group if (limit := reports[i].limits())]
        if limits:
            spans.append((min(limits)[0][0], max(limit[1] for limit, _ in limits), min(limits)[1]))
    spans.sort()
    for end, (begin, _, name) in zip(accumulate((end for _, end, _ in spans), max), spans[1:], strict=False):
        if begin - end > _CLOCK_ERROR:
            _refuse(f"{name} begins {(begin - end) / 1e9:,.0f} s after the end of all reports before it")


def _refuse(what: str) -> None:
    raise UsageError(f"{what}: name the reports of one job only, or allow others", see=("several_jobs",))
