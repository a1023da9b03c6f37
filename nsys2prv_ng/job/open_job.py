"""Opens the reports of a job: their records on one clock and on the rows of one tree, cut to what the user chose.

All that looks at the reports of a job starts here: its translation, and its summary without a trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.clock.alignment import uses_collectives
from nsys2prv_ng.clock.alignment_table import Alignment
from nsys2prv_ng.clock.domains import find_doubtful_hosts
from nsys2prv_ng.errors import ReportError, escape_unprintable
from nsys2prv_ng.job.accounts import SkippedReport
from nsys2prv_ng.job.join import join_sources, store_joined
from nsys2prv_ng.job.placement import (
    AlignedReports,
    Limits,
    align_reports,
    build_object_tree,
    choose_windows,
    close_unended,
    drop_unselected_rows,
    measure_limits,
    rewrite_records,
    show_captures_if_empty,
)
from nsys2prv_ng.job.read_reports import ReportRecords, read_reports
from nsys2prv_ng.job.repeated_samples import drop_repeated_samples
from nsys2prv_ng.job.selection import Selection, prune_tree, select_rows
from nsys2prv_ng.job.steps import Steps, find_steps
from nsys2prv_ng.objects.missing import find_missing_ranks
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.operations.matching import Operations
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.report.diagnostics import describe_lost_data
from nsys2prv_ng.report.files import get_export_size, locate_exports
from nsys2prv_ng.runtime.limits import Resources
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources import DERIVED, SOURCES, WITH_EVIDENCE
from nsys2prv_ng.sources.shared.source import JoinResult, Source
from nsys2prv_ng.sources.shared.source_options import SourceOptions

_BUFFERED = 1 << 27
"""Bytes of all runs together that are in memory while they are merged; a report has about _RUNS runs."""
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
    find_waits: bool = True
    """Match operations over ranks even where no clock needs them."""
    strict: bool = False
    """End with an error if one of several reports cannot be read, instead of skipping it."""
    resources: Resources = field(default_factory=Resources)


@dataclass(frozen=True)
class Job:
    """The reports of a job. Their records, and those made of all reports together, are in the store."""

    reports: list[ReportRecords]
    store: Store
    workers: int
    """How many processes or threads work at a time. Each has at most one report's records in memory."""
    skipped: list[SkippedReport]
    is_empty: bool
    """Whether the reports hold no event: the records are then those of the captures."""
    alignment: Alignment
    whole: ObjectTree
    """All objects, with the rows of all places of `reports`."""
    tree: ObjectTree
    """The objects that the user chose."""
    new_row: IntArray
    """Row of the chosen tree by row of the whole one; -1 for rows that the user did not choose."""
    spans: list[tuple[IntArray, IntArray]]
    """First and last time (ns) of the events on each place of each report, before they were cut to the windows."""
    selection: Selection
    steps: Steps | None
    """The steps of the program, on rows of the whole tree and whatever time the user chose; None if nothing shows any,
    or if nobody asks for them."""
    windows: list[tuple[int, int]]
    """The chosen times on the common clock (ns); none for all time."""
    first: int
    last: int
    """Limits of the records on the common clock (ns)."""
    zero: int
    """Time from which the option `time` counts (ns, common clock): the first record, whatever time was chosen."""
    finds_waits: bool
    """Whether the user wants to know who waits for whom."""
    operations: Operations
    """Collectives over the ranks of all reports; none unless they were wanted."""
    offsets: list[int]
    """Offset (ns) of the times of each report to those of the operations, which no clock has corrected."""
    lacks_ranks: bool
    """Whether some rank of the job has no report."""
    joined: list[JoinResult]
    """What sources made of all reports together, stored on rows of the chosen tree."""
    warnings: tuple[str, ...]

    @property
    def origin(self) -> int:
        """Time 0 of the trace on the common clock (ns).

        At time 0 Paraver takes only the last of several events of a type and row, so that ranges which a window cut
        would lose the ranges around them: the trace of a window begins a ns before it.
        """
        return self.first - 1 if self.windows else self.first

    @cached_property
    def new_task(self) -> IntArray:
        """Task of the chosen tree by task of the whole one; -1 for tasks without a chosen row."""
        tasks = np.full(len(self.whole.model.tasks), -1, np.int64)
        shown = np.flatnonzero(self.new_row >= 0)
        tasks[self.whole.task_of_row[shown]] = self.tree.task_of_row[self.new_row[shown]]
        return tasks

    @property
    def start_utc(self) -> int:
        """UTC of time 0 of the trace (ns)."""
        return self.origin + self.alignment.utc_base

    @property
    def duration(self) -> int:
        """Time from 0 to the last record (ns)."""
        return self.last - self.origin


@contextmanager
def open_job(reports: Sequence[Path], folder: Path, options: ReadOptions, progress: Progress) -> Iterator[Job]:
    """Read reports and place what they hold; the records are there while the context is open.

    `folder` takes exports that cannot be beside their reports, and the file of records that do not fit into memory,
    unless the options name another folder for it. Raises TranslationError (UsageError among them).
    """
    resources = options.resources
    errors: dict[Path, ReportError] | None = None if options.strict or len(reports) == 1 else {}
    exports = locate_exports(reports, folder, progress, resources.jobs, errors)
    sizes = {export: get_export_size(export) for export in exports}
    workers = resources.count_processes(list(sizes.values()))
    with _open_store(resources, folder, len(exports), workers) as store:
        read = read_reports(
            sorted(exports, key=sizes.__getitem__, reverse=True),  # so that no large one is read alone at the end
            options.sources,
            options.source_options,
            store,
            progress,
            workers=workers,
            evidence=_choose_evidence(options, reports=len(exports)),
            errors=errors,
        )
        skipped = _report_skipped(errors or {}, progress)
        aligned = align_reports(read, options.align)
        del read  # with the parts of operations, which are matched now
        # A user who gives a single report has chosen it among those of the ranks.
        yield _place_reports(aligned, options, store, workers, skipped, checks_ranks=len(reports) > 1)


def _choose_evidence(options: ReadOptions, *, reports: int) -> tuple[Source, ...]:
    """Return the sources whose operations over ranks are wanted: for clocks also those that the user did not choose."""
    if uses_collectives(options.align) and reports > 1:
        return WITH_EVIDENCE
    return tuple(source for source in WITH_EVIDENCE if options.find_waits and source in options.sources)


def _open_store(resources: Resources, trace_folder: Path, reports: int, workers: int) -> Store:
    """Open the store for the records of all reports. Raises TranslationError where its folder takes no file."""
    fewest, most = _CHUNK
    chunk = min(max(fewest, _BUFFERED // (_RUNS * reports)), most)
    shelves = workers + 1 if workers > 1 else 1
    return Store(resources.folder or trace_folder, resources.memory, shelves, chunk)


def _report_skipped(errors: Mapping[Path, ReportError], progress: Progress) -> list[SkippedReport]:
    """Warn of the reports that are skipped, in an order that does not depend on the command line's."""
    for path in sorted(errors):
        progress.warn(f"skipped, as it cannot be read: {errors[path]}")
    return [
        SkippedReport(str(path), str(errors[path]).removeprefix(f"{escape_unprintable(str(path))}: "))
        for path in sorted(errors)
    ]


def _place_reports(
    aligned: AlignedReports,
    options: ReadOptions,
    store: Store,
    workers: int,
    skipped: list[SkippedReport],
    *,
    checks_ranks: bool,
) -> Job:
    """Take aligned reports through the stages of placement and join them.

    The stages change the records of the reports in the store, so that their order matters:

    1. What there is: captures where there are no events, and each sample of a part of a node once.
    2. Where: rows for all places, and only the records on rows that the user wants.
    3. When: the limits of these records end what has no end; the records are then cut to the chosen windows, which may
       be those of steps.
    4. What all reports make together, within the same rows and windows.
    """
    reports, selection = aligned.reports, options.selection

    is_empty = show_captures_if_empty(reports, store)
    drop_repeated_samples(reports, store, workers)

    whole = build_object_tree(reports, aligned.node_names)
    kept = select_rows(whole, selection)
    drop_unselected_rows(reports, whole, kept, store, workers)

    limits = measure_limits(reports)
    steps = None
    if options.find_waits or selection.step or selection.restricts_steps:
        # A range without an end is no step.
        steps = find_steps(reports, whole, store, limits.last - limits.first, workers, selection.step)
    close_unended(reports, limits.last, store)
    spans = [report.spans() for report in reports]
    if steps is None and not selection.needs_steps:
        selection = replace(selection, skips_warmup=False)
    zero = limits.first
    windows = choose_windows(reports, selection, steps, limits)
    rewrite_records(reports, selection, windows, store, workers)
    if windows:
        limits = Limits(max(limits.first, windows[0][0]), min(limits.last, windows[-1][1]))

    joined = join_sources(reports, whole, kept, options.sources, windows or [limits])
    tree, new_row = prune_tree(whole, kept)
    for join_result in joined:
        store_joined(join_result, new_row, windows or [limits], store)

    return Job(
        reports=reports,
        store=store,
        workers=workers,
        skipped=skipped,
        is_empty=is_empty,
        alignment=aligned.alignment,
        whole=whole,
        tree=tree,
        new_row=new_row,
        spans=spans,
        finds_waits=options.find_waits,
        operations=aligned.operations,
        offsets=aligned.offsets,
        lacks_ranks=bool(find_missing_ranks([report.metadata for report in reports], whole.ranks)),
        selection=selection,
        steps=steps,
        windows=windows,
        first=limits.first,
        zero=zero,
        last=limits.last,
        joined=joined,
        warnings=_collect_warnings(aligned, whole, checks_ranks=checks_ranks),
    )


def _collect_warnings(aligned: AlignedReports, tree: ObjectTree, *, checks_ranks: bool) -> tuple[str, ...]:
    """Return warnings of the objects, of the clocks, of ranks without a report and of data that nsys lost."""
    reports = aligned.reports
    metadata = [report.metadata for report in reports]
    return (
        *tree.warnings,
        *aligned.alignment.warnings,
        *find_doubtful_hosts(metadata, [report.places.called for report in reports]),
        *(find_missing_ranks(metadata, tree.ranks) if checks_ranks else ()),
        *describe_lost_data({str(report.path): report.diagnostics for report in reports}),
    )
