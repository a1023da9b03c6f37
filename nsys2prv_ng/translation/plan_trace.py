"""Plans a trace: derives records from the job as a whole, numbers all names, and cuts the lines into slices.

This is the only step that looks at all reports together. The other steps need its result and the records in the store,
nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from nsys2prv_ng.analysis.path.critical_path import check_size, find_critical_path, load_path_lanes
from nsys2prv_ng.analysis.waits.clocks import check_clocks
from nsys2prv_ng.analysis.waits.late_reasons import find_reasons
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.job.open_job import Job, find_gpu_time
from nsys2prv_ng.paraver.labels import Labels, Numbering, format_pcf, read_kept_labels
from nsys2prv_ng.paraver.load_cost import measure_load, warn_of_load
from nsys2prv_ng.paraver.model import Communicator, format_prv_header, format_row
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.gather import PlacedRun
from nsys2prv_ng.report.diagnostics import ERROR, WARNING
from nsys2prv_ng.runtime.limits import give_back_freed_memory
from nsys2prv_ng.sources.shared.source import JoinResult, Result, Source
from nsys2prv_ng.translation.defaults import SHORTEST_LINE_NS
from nsys2prv_ng.translation.derived_records import derive_path, derive_readbacks, derive_steps, derive_waits
from nsys2prv_ng.translation.overview import make_overview
from nsys2prv_ng.translation.overview_rows import SHARES
from nsys2prv_ng.translation.result import NsysMessages, SourceAccount, TraceFacts
from nsys2prv_ng.translation.slices import Slices, cut_into_slices
from nsys2prv_ng.translation.states import make_state_records
from nsys2prv_ng.value_class import ValueClass


class TranslationPlan(ReadOptions):
    """What a translation reads, writes and replaces."""

    align_report: Path | None = None
    """File for the node clocks."""
    wait_lines: int = SHORTEST_LINE_NS
    """Length of the shortest wait that gets a line (ns)."""
    stats: Path | None = None
    """File for the TranslationResult, as JSON."""
    labels_from: Path | None = None
    """A .pcf whose type and value numbers are kept."""
    force: bool = False
    """Replace existing files."""
    paraver_memory: int = 0
    """Memory in Paraver above which the trace is too large (bytes); 0 sets no limit."""
    summary: bool = False
    """Also compute the summary of the job."""
    overview_trace: bool = False
    """Write a trace of limited size that shows where to look, instead of all events."""


class TracePlan(ValueClass):
    """A trace that is ready to be written: its texts, its slices and its account."""

    header: str
    pcf: str
    row: str
    slices: Slices
    facts: TraceFacts


def plan_trace(job: Job, output: Path, plan: TranslationPlan, note: str = "") -> TracePlan:
    """Return everything that is needed to write the trace of a job. `note`: what the application's name says of it."""
    kept_labels = read_kept_labels(plan.labels_from) if plan.labels_from else None
    waits = find_waits(job)
    needs_path = job.finds_waits and (plan.summary or not plan.overview_trace)
    lanes = load_path_lanes(job, waits) if needs_path and plan.summary else None
    with (
        job.engine.beside(lambda: find_critical_path(job, load_path_lanes(job, waits), name_ranges=False))
        if needs_path and not plan.summary
        else nullcontext(lambda: find_critical_path(job, lanes))
    ) as wait_for_path:
        late = find_reasons(job, waits, name_hosts=plan.summary)
        labels = Labels()
        derived_waits, waiting = derive_waits(job, waits, late, plan.wait_lines, labels)
        path = wait_for_path()
    derived_path = derive_path(job, path, labels)
    give_back_freed_memory()
    derived_steps = derive_steps(job, labels)
    derived_readbacks = derive_readbacks(job, labels)
    job = replace(job, joined=[*job.joined, derived_waits, derived_path, derived_steps, derived_readbacks])
    if plan.overview_trace:
        for event_type in SHARES:
            labels.declare(event_type)
    assigned = {space: values for part in job.joined for space, values in part.assigned.items()}
    numbering = Numbering([*(report.labels for report in job.reports), labels], assigned, kept_labels)
    model = job.tree.model
    header = format_prv_header(model, job.start_utc, job.scope.duration, _list_communicators(job))
    states = make_state_records(job, waiting)
    accounts = _add_up_accounts(job.reports, job.sources, job.joined)
    overview = None
    if plan.overview_trace and not job.is_empty:
        overview = make_overview(job, waits, late, states, numbering, len(header.encode()))
        accounts = overview.change_accounts(accounts)
        runs = list(map(PlacedRun, overview.runs))
    else:
        runs = [*_list_runs(job, numbering), *map(PlacedRun, states)]
    slices = cut_into_slices(runs, model.number_rows(), job.scope.origin, compressed=output.name.endswith(".gz"))
    summary = None
    if plan.summary:
        from nsys2prv_ng.summary.summarize import Known, summarize  # takes a tenth of a second to import

        summary, _ = summarize(job, waits, Known(late, lanes, path))
    load = measure_load(placed.run for placed in runs)
    warnings = [*job.warnings, *check_clocks(job), *(check_size(job) if needs_path else ())]
    warnings += warn_of_load(load, plan.paraver_memory)
    if job.is_empty:
        warnings.append("the reports contain no events of the selected sources; the trace shows only the capture")
    facts = TraceFacts(
        sources=accounts,
        reports=[report.account() for report in job.reports],
        skipped=job.skipped,
        start_utc_ns=job.start_utc,
        duration_ns=job.scope.duration,
        nodes=len(model.nodes),
        tasks=len(model.tasks),
        rows=model.row_count,
        **vars(load),
        warnings=warnings,
        messages=_count_messages(job.reports),
        clocks=job.alignment,
        summary=summary,
        overview=None if overview is None else overview.facts,
        gpu_time_ns=find_gpu_time(job),
    )
    return TracePlan(
        header=header,
        pcf=format_pcf(numbering, None if overview is None else overview.types),
        row=format_row(model, output.name.removesuffix(".gz").removesuffix(".prv") + note),
        slices=slices,
        facts=facts,
    )


def _list_runs(job: Job, numbering: Numbering) -> list[PlacedRun]:
    """Return the runs of all reports, with maps to rows, numbers and times of the trace, and the runs of all joins."""
    runs = []
    for report, rows in zip(job.reports, job.tree.rows, strict=True):
        maps = (rows, *numbering.maps(report.labels))
        runs += [PlacedRun(run, 0 if run.on_common_clock else report.clock.offset, maps) for run in report.runs()]
    return runs + [PlacedRun(run) for part in job.joined for result in part.accounts.values() for run in result.runs]


def _list_communicators(job: Job) -> list[Communicator]:
    """Return the communicators that have tasks in the trace, with the numbers of these tasks."""
    number_of_task = [0, *(job.new_task + 1).tolist()]  # tasks count from 1; 0 stands for a task that was not chosen
    communicators = [
        Communicator(whole.number, tuple(number_of_task[task] for task in whole.tasks if number_of_task[task]))
        for part in job.joined
        for whole in part.communicators
    ]
    return [communicator for communicator in communicators if communicator.tasks]


def _add_up_accounts(
    reports: Sequence[ReportRecords], sources: Sequence[Source], joined: Sequence[JoinResult]
) -> list[SourceAccount]:
    """Return the account of each source over all reports, then the accounts of the joins over the reports."""
    accounts = [
        _add_up(source.name, source.title, [report.results[source.name] for report in reports])
        for source in sources
        if not source.accounted_in_join
    ]
    return accounts + [_add_up(name, name, [result]) for part in joined for name, result in part.accounts.items()]


def _add_up(name: str, title: str, results: Sequence[Result]) -> SourceAccount:
    whole = Result()
    for result in results:
        whole.add(result)
    closed, cut = sum(result.closed for result in results), sum(result.cut for result in results)
    return SourceAccount(name, title, whole.read, whole.written, whole.dropped, closed, cut, measure_load(whole.runs))


def _count_messages(reports: Sequence[ReportRecords]) -> NsysMessages:
    """Count the warnings and errors that nsys reported."""
    counts = [report.diagnostics.counts for report in reports]
    warnings, errors = (sum(count.get(severity, 0) for count in counts) for severity in (WARNING, ERROR))
    lost = sum(message.count for report in reports for message in report.diagnostics.messages if message.is_certain)
    return NsysMessages(warnings, errors, sum(WARNING in count or ERROR in count for count in counts), lost)
