"""Opens the reports of a job: their records on one clock and on the rows of one tree, cut to the user's selection.

Everything that looks at the reports of a job starts here: its translation, and its summary without a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.clock.alignment_table import Alignment
from nsys2prv_ng.clock.domains import find_doubtful_hosts, find_mixed_hosts
from nsys2prv_ng.job.accounts import SkippedReport
from nsys2prv_ng.job.idle_ends import cut_idle_ends
from nsys2prv_ng.job.join import join_sources, store_joined
from nsys2prv_ng.job.one_job import refuse_several_jobs
from nsys2prv_ng.job.open_reports import OpenedReports, ReadOptions, choose_evidence, open_reports, refuse_absent
from nsys2prv_ng.job.placement import (
    AlignedReports,
    Limits,
    align_reports,
    choose_windows,
    close_unended,
    drop_unselected_rows,
    measure_gpu_time,
    measure_limits,
    rewrite_records,
    show_captures_if_empty,
)
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.job.repeated_samples import drop_repeated_samples
from nsys2prv_ng.job.selection import Selection, choose_steps, prune_tree, select_rows
from nsys2prv_ng.job.steps import Steps, find_steps
from nsys2prv_ng.job.traced_graphs import list_traced_graphs
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.objects.missing import find_missing_ranks
from nsys2prv_ng.objects.tasks import ReportPlaces
from nsys2prv_ng.objects.tree import ObjectTree, build_tree
from nsys2prv_ng.operations.matching import Operations
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.report.diagnostics import describe_lost_data, warn_of_mixed_graphs
from nsys2prv_ng.runtime.engine import Engine
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.shared.source import JoinResult, Source


@dataclass(frozen=True)
class Job:
    """The reports of a job. Their records, and the records made from all reports together, are in the store."""

    reports: list[ReportRecords]
    store: Store
    sources: tuple[Source, ...]
    """Sources that were read from each report."""
    engine: Engine
    """The engine that works on the reports. Each piece of work has at most one report's records in memory."""
    skipped: list[SkippedReport]
    is_empty: bool
    """Whether the reports contain no events: the records then show the captures."""
    alignment: Alignment
    whole: ObjectTree
    """All objects, with the rows of all places of `reports`."""
    tree: ObjectTree
    """The objects that the user chose."""
    new_row: IntArray
    """Row of the chosen tree by row of the whole tree; -1 for rows that the user did not choose."""
    spans: list[tuple[IntArray, IntArray]]
    """First and last time of the events on each place of each report (ns), before the cut to the windows."""
    selection: Selection
    steps: Steps | None
    """The steps of the program, on rows of the whole tree and not cut to the chosen time; None if there are none or
    they are not needed."""
    windows: list[tuple[int, int]]
    """The times on the common clock (ns) that records are cut to; empty if they are not cut."""
    measured: list[tuple[int, int]]
    """The times (ns) that numbers cover: `windows`, or else the chosen steps, or without a choice the steps after the
    warm-up; empty if all time counts."""
    first: int
    last: int
    """Limits of the records on the common clock (ns)."""
    zero: int
    """Time from which the option `time` counts (ns, common clock): the first record, before any cut."""
    counted: IntArray | None
    """Indices of the steps that numbers cover, ascending; None if they do not cover steps as such."""
    finds_waits: bool
    """Whether the user wants to know which ranks wait for which."""
    operations: Operations
    """Collectives across the ranks of all reports; empty unless requested."""
    offsets: list[int]
    """Offset from the times of each report to the times of the operations (ns), which no clock has corrected."""
    lacks_ranks: bool
    """Whether some rank of the job has no report."""
    joined: list[JoinResult]
    """Results that sources made from all reports together, stored on rows of the chosen tree."""
    warnings: tuple[str, ...]

    @property
    def origin(self) -> int:
        """Time 0 of the trace on the common clock (ns).

        If several events of a type and row are at time 0, Paraver takes only the last one. Ranges that a window cut
        would lose the ranges around them, so the trace of a window starts 1 ns before it.
        """
        return self.first - 1 if self.windows else self.first

    def find_tasks(self, row: IntArray) -> IntArray:
        """Return the task of each row (n) of the trace; -1 for -1."""
        task = np.full(row.size, -1, np.int64)
        known = np.flatnonzero(row >= 0)
        task[known] = self.tree.task_of_row[row[known]]
        return task

    @cached_property
    def new_task(self) -> IntArray:
        """Task of the chosen tree by task of the whole tree; -1 for tasks without a chosen row."""
        tasks = np.full(len(self.whole.model.tasks), -1, np.int64)
        shown = np.flatnonzero(self.new_row >= 0)
        tasks[self.whole.task_of_row[shown]] = self.tree.task_of_row[self.new_row[shown]]
        return tasks

    @cached_property
    def hides_nccl(self) -> bool:
        """Whether NCCL kernels may be in CUDA graphs that were traced as a whole."""
        return any(report.metadata.uses_nccl for report in self.reports)

    @property
    def start_utc(self) -> int:
        """UTC of time 0 of the trace (ns)."""
        return self.origin + self.alignment.utc_base

    @property
    def duration(self) -> int:
        """Time from 0 to the last record (ns)."""
        return self.last - self.origin


@contextmanager
def open_job(
    reports: Sequence[Path],
    folder: Path,
    options: ReadOptions,
    progress: Progress,
    meanwhile: Callable[[], object] = lambda: None,
) -> Iterator[Job]:
    """Read reports and place their records, which exist while the context is open.

    `reports`: reports, or one folder of shards (job/shards.py). `folder` takes exports that cannot be beside their
    reports, and the file of records that do not fit into memory, unless the options name another folder for it.
    `meanwhile` may be called while other processes read, for what takes time and is needed later, such as imports.
    Raises TranslationError (including UsageError).
    """
    with open_reports(reports, folder, options, progress, meanwhile) as opened:
        options = opened.options
        refuse_absent(opened.read, options.named_sources)
        count = len(opened.read) + len(opened.skipped)
        aligned = align_reports(opened.read, options.align, choose_evidence(options, reports=len(opened.read)))
        opened.read.clear()  # also frees the parts of operations, which are matched now
        # A user who gives a single report has chosen it among the reports of the ranks.
        yield _place_reports(aligned, opened, checks_ranks=count > 1 or opened.is_all)


def _place_reports(aligned: AlignedReports, opened: OpenedReports, *, checks_ranks: bool) -> Job:
    """Take aligned reports through the stages of placement and join them.

    The stages change the records of the reports in the store, so their order matters:

    1. What: captures if there are no events, and each sample of a part of a node once.
    2. Where: rows for all places, and only the records on rows that the user chose.
    3. When: calls of idle threads end with everything else; intervals without an end last until the limits of the other
       records; the records are then cut to the chosen windows, which may be windows of steps.
    4. Joins: what all reports make together, within the same rows and windows.
    """
    reports, store, engine, options = aligned.reports, opened.store, opened.engine, opened.options
    selection = options.selection

    is_empty = show_captures_if_empty(reports, store)
    drop_repeated_samples(reports, store, engine)

    # Without repeated samples, the times of the records show which reports are capture ranges of one run.
    parts = [
        ReportPlaces(report.metadata, report.places, report.node, *(report.limits() or (0, 0))) for report in reports
    ]
    whole = build_tree(parts, aligned.node_names, fold_threads=selection.folds_threads)
    if not options.several_jobs:
        refuse_several_jobs(reports, whole)
    kept = select_rows(whole, selection)
    drop_unselected_rows(reports, whole, kept, store, engine)

    cut_idle_ends(reports, whole, store, engine)
    limits = measure_limits(reports)
    steps = None
    if options.find_waits or selection.step or selection.restricts_steps:
        # A range without an end is not a step.
        steps = find_steps(reports, whole, store, limits.last - limits.first, engine, selection.step)
    close_unended(reports, limits.last, store)
    spans = [report.spans() for report in reports]
    zero = limits.first
    windows = choose_windows(reports, whole, selection, steps, limits)
    rewrite_records(reports, whole, selection, windows, store, engine)
    if windows:
        limits = Limits(max(limits.first, windows[0][0]), min(limits.last, windows[-1][1]))

    counted = _choose_counted(selection, steps, windows)
    measured = windows if counted is None or steps is None else steps.list_windows(counted)
    joined = join_sources(reports, aligned.to_join, whole, kept, options.sources, windows or [limits], store)
    aligned.to_join.clear()
    tree, new_row = prune_tree(whole, kept)
    for join_result in joined:
        store_joined(join_result, new_row, windows or [limits], store, engine)

    return Job(
        reports=reports,
        store=store,
        sources=options.sources,
        engine=engine,
        skipped=opened.skipped,
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
        measured=measured,
        counted=counted,
        first=limits.first,
        zero=zero,
        last=limits.last,
        joined=joined,
        warnings=_collect_warnings(aligned, whole, checks_ranks=checks_ranks),
    )


def _choose_counted(selection: Selection, steps: Steps | None, windows: Sequence[tuple[int, int]]) -> IntArray | None:
    """Return the indices of the steps that numbers cover; None if they cover a chosen time, or all."""
    if windows or selection.takes_all or (steps is None and not selection.restricts_steps):
        return None
    first, last = choose_steps(selection, steps)
    return np.arange(first, last + 1)


def find_gpu_time(job: Job) -> tuple[int, int] | None:
    """Return when the GPUs work, in ns from time 0 of the trace; None if they do not work."""
    found = measure_gpu_time(job.reports, job.tree)
    return None if found is None else (found[0] - job.origin, found[1] - job.origin)


def store_derived(joined: JoinResult, job: Job) -> None:
    """Store records that were derived from a job and are on its rows, cut to its time."""
    windows = job.windows or [(job.first, job.last)]
    store_joined(joined, np.arange(job.tree.model.row_count), windows, job.store, job.engine)


def _collect_warnings(aligned: AlignedReports, tree: ObjectTree, *, checks_ranks: bool) -> tuple[str, ...]:
    """Return warnings about objects, clocks, ranks without a report, CUDA graphs, and data that nsys lost."""
    reports = aligned.reports
    metadata = [report.metadata for report in reports]
    return (
        *tree.warnings,
        *aligned.alignment.warnings,
        *find_mixed_hosts(metadata),
        *find_doubtful_hosts(metadata, [report.places.called for report in reports]),
        *(find_missing_ranks(metadata, tree.ranks) if checks_ranks else ()),
        *warn_of_mixed_graphs(map(list_traced_graphs, reports)),
        *describe_lost_data({str(report.path): report.diagnostics for report in reports}),
    )
