"""Opens the reports of a job: their records on one clock and on the rows of one tree, cut to the user's selection.

Everything that looks at the reports of a job starts here: its translation, and its summary without a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.clock.alignment_table import Alignment
from nsys2prv_ng.clock.domains import find_doubtful_hosts, find_mixed_hosts
from nsys2prv_ng.job import placement
from nsys2prv_ng.job.dropping import cut_result, drop_repeated_samples, drop_unselected_rows, prune_tree, select_rows
from nsys2prv_ng.job.scope import Scope, choose_scope
from nsys2prv_ng.objects.places import Stream
from nsys2prv_ng.objects.tasks import ReportPlaces, find_missing_ranks
from nsys2prv_ng.objects.tree import ObjectTree, build_tree, make_gpu_key
from nsys2prv_ng.operations.matching import Operations
from nsys2prv_ng.reading.accounts import SkippedReport
from nsys2prv_ng.reading.device_operations import list_traced_graphs
from nsys2prv_ng.reading.open_reports import OpenedReports, ReadOptions, choose_evidence, open_reports, refuse_absent
from nsys2prv_ng.reading.read_reports import ReportRecords, load_for_change, spill_records
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.store import Store, StoredColumns, load_columns
from nsys2prv_ng.report.diagnostics import describe_lost_data, warn_of_mixed_graphs
from nsys2prv_ng.runtime.parallel import Engine
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.shared.reasons import NOT_SELECTED
from nsys2prv_ng.sources.shared.source import JoinInput, JoinResult, Result, Source
from nsys2prv_ng.steps.steps import Steps, find_steps
from nsys2prv_ng.value_class import ValueClass


class Job(ValueClass):
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
    scope: Scope
    steps: Steps | None
    """The steps of the program, on rows of the whole tree and not cut to the chosen time; None if there are none or
    they are not needed."""
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
        return self.scope.origin + self.alignment.utc_base


@contextmanager
def open_job(
    reports: Sequence[Path],
    folder: Path,
    options: ReadOptions,
    progress: Progress,
    meanwhile: Callable[[], object] = lambda: None,
) -> Iterator[Job]:
    """Read reports and place their records, which exist while the context is open.

    `reports`: reports, or one folder of shards (reading/shards.py). `folder` takes exports that cannot be beside their
    reports, and the file of records that do not fit into memory, unless the options name another folder for it.
    `meanwhile` may be called while other processes read, for what takes time and is needed later, such as imports.
    Raises TranslationError (including UsageError).
    """
    with open_reports(reports, folder, options, progress, meanwhile) as opened:
        options = opened.options
        refuse_absent(opened.read, options.named_sources)
        count = len(opened.read) + len(opened.skipped)
        aligned = placement.align_reports(
            opened.read, options.align, choose_evidence(options, reports=len(opened.read))
        )
        opened.read.clear()  # also frees the parts of operations, which are matched now
        # A user who gives a single report has chosen it among the reports of the ranks.
        yield _place_reports(aligned, opened, checks_ranks=count > 1 or opened.is_all)


def _place_reports(aligned: placement.AlignedReports, opened: OpenedReports, *, checks_ranks: bool) -> Job:
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

    is_empty = placement.show_captures_if_empty(reports, store)
    drop_repeated_samples(reports, store, engine)

    parts = [ReportPlaces(report.metadata, report.places, report.node, *report.find_capture()) for report in reports]
    whole = build_tree(parts, aligned.node_names, fold_threads=selection.folds_threads)
    if not options.several_jobs:
        placement.refuse_several_jobs(reports, whole)
    kept = select_rows(whole, selection)
    drop_unselected_rows(reports, whole, kept, store, engine)

    placement.cut_idle_ends(reports, whole, store, engine)
    limits = placement.measure_limits(reports)
    steps = None
    if options.find_waits or selection.step or selection.restricts_steps:
        # A range without an end is not a step.
        steps = find_steps(reports, whole, store, limits.last - limits.first, engine, selection.step)
    placement.close_unended(reports, limits.last, store)
    spans = [report.spans() for report in reports]
    ranges = [report.clock(result.windows) for report in reports for result in report.results.values()]
    gpu_time = placement.measure_gpu_time(reports, whole) if selection.only_gpus else None
    scope = choose_scope(selection, steps, limits, ranges, gpu_time)
    placement.rewrite_records(reports, whole, selection, scope.windows, store, engine)

    joined = join_sources(reports, aligned.to_join, whole, kept, options.sources, scope.shown, store)
    aligned.to_join.clear()
    tree, new_row = prune_tree(whole, kept)
    for join_result in joined:
        store_joined(join_result, new_row, scope.shown, store, engine)

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
        scope=scope,
        steps=steps,
        joined=joined,
        warnings=_collect_warnings(aligned, whole, joined, checks_ranks=checks_ranks),
    )


def find_gpu_time(job: Job) -> tuple[int, int] | None:
    """Return when the GPUs work, in ns from time 0 of the trace; None if they do not work."""
    found = placement.measure_gpu_time(job.reports, job.tree)
    return None if found is None else (found[0] - job.scope.origin, found[1] - job.scope.origin)


def store_derived(joined: JoinResult, job: Job) -> None:
    """Store records that were derived from a job and are on its rows, cut to its time."""
    store_joined(joined, np.arange(job.tree.model.row_count), job.scope.shown, job.store, job.engine)


def _collect_warnings(
    aligned: placement.AlignedReports, tree: ObjectTree, joined: Sequence[JoinResult], *, checks_ranks: bool
) -> tuple[str, ...]:
    """Return warnings about objects, clocks, ranks without a report, CUDA graphs, and data that nsys lost."""
    reports = aligned.reports
    metadata = [report.metadata for report in reports]
    return (
        *tree.warnings,
        *_find_shared_gpus(reports, tree, [part.tasks for result in joined for part in result.nccl_communicators]),
        *aligned.alignment.warnings,
        *find_mixed_hosts(metadata),
        *find_doubtful_hosts(metadata, [report.places.called for report in reports]),
        *(find_missing_ranks(metadata, tree.ranks) if checks_ranks else ()),
        *warn_of_mixed_graphs(map(list_traced_graphs, reports)),
        *describe_lost_data({str(report.path): report.diagnostics for report in reports}),
    )


def _find_shared_gpus(
    reports: Sequence[ReportRecords], tree: ObjectTree, communicators: Sequence[Sequence[int]]
) -> list[str]:
    """Return a warning for each GPU that several tasks of one NCCL communicator seem to use, each without another GPU.

    NCCL refuses such a communicator ("Duplicate GPU detected"), so what the reports say of their GPUs must be wrong.
    """
    gpus: dict[int, dict[tuple[int, object], int]] = {}
    for report, rows in zip(reports, tree.rows, strict=True) if communicators else ():
        for place, row in zip(report.places.all, rows.tolist(), strict=True):
            if isinstance(place, Stream) and row >= 0:
                gpu = report.metadata.gpu(place.process, place.device)
                used = gpus.setdefault(int(tree.task_of_row[row]), {})
                used[report.node, make_gpu_key(gpu)] = gpu.number
    sharing: dict[tuple[int, object], set[int]] = {}
    for tasks in communicators:
        users: dict[tuple[int, object], set[int]] = {}
        for task in tasks:
            if len(gpus.get(task, ())) == 1:
                users.setdefault(next(iter(gpus[task])), set()).add(task)
        for key, members in users.items():
            if len(members) > 1:
                sharing.setdefault(key, set()).update(members)
    model, warnings = tree.model, []
    for key, members in sharing.items():
        first, *others = sorted(members)
        number, node = gpus[first][key], model.nodes[model.tasks[first].node]
        names = [model.tasks[task].name for task in (first, *others)]
        shown = (
            ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) < 5 else f"{names[0]} and {len(others)} others"
        )
        warnings.append(
            f"{shown} share an NCCL communicator and seem to use one GPU ({node} GPU {number}), which NCCL refuses:"
            " their GPUs are not known, and numbers of this GPU are those of several"
        )
    return warnings


# ---- joins -----------------------------------------------------------------------------------------------------------


def join_sources(
    reports: Sequence[ReportRecords],
    results: Sequence[Mapping[str, Result]],
    tree: ObjectTree,
    kept: BoolArray,
    sources: Sequence[Source],
    windows: Sequence[tuple[int, int]],
    store: Store,
) -> list[JoinResult]:
    """Return the results that sources make from all reports together, on rows of `tree`, not yet cut to `windows` (ns).

    `results`: what each report was read into, by source. `kept`: mask of the rows that the user chose.
    """
    joined = []
    for source in sources:
        if source.join is not None:
            inputs = [
                JoinInput(
                    metadata=report.metadata,
                    places=report.places,
                    rows=rows,
                    clock=report.clock,
                    data=read[source.name].join_data,
                    load_columns=partial(_load_columns, read[source.name].stored_join_columns, store),
                    windows=windows,
                    kept=kept,
                )
                for report, read, rows in zip(reports, results, tree.rows, strict=True)
            ]
            joined.append(source.join(inputs, tree))
    return joined


def _load_columns(stored: StoredColumns | None, store: Store) -> list[IntArray]:
    return [] if stored is None else load_columns(stored, store)


def store_joined(
    joined: JoinResult, new_row: IntArray, windows: Sequence[tuple[int, int]], store: Store, engine: Engine
) -> None:
    """Store the records of a join, moved to the rows of the trace by `new_row` and cut to its time.

    `engine`: makes partial results.
    """

    def store_result(result: Result) -> Result:
        before = result.written
        result.records = [rec.move_to_rows(records, new_row) for records in result.records]
        result.drop(NOT_SELECTED, before - result.written)
        if len(windows) > 1:
            cut_result(result, windows)
        spill_records(result, store, on_common_clock=True)
        # Joined records exceed the limits only if time was chosen, or if damage hides the calls that they belong to.
        if any(run.facts.first < windows[0][0] or run.facts.last > windows[-1][1] for run in result.runs):
            with load_for_change(result, store):
                cut_result(result, windows)
        return result

    for result in joined.accounts.values():
        store_result(result)
    if joined.partial_results is not None:
        name, make, items = joined.partial_results
        joined.partial_results = None
        whole = joined.accounts[name] = Result()
        for result in engine.map(lambda item: store_result(make(item)), items):
            whole.add(result)
