"""Plans a trace: derives what follows from the whole job, numbers all names, and cuts the lines into slices.

It is the only step that looks at all reports together. What it returns is all that the other steps need besides the
records in the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nsys2prv_ng.analysis.path.critical_path import check_size, find_critical_path
from nsys2prv_ng.analysis.waits.clock_check import check_clocks
from nsys2prv_ng.analysis.waits.late_reasons import find_reasons
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.job.open_job import Job, find_gpu_time
from nsys2prv_ng.job.open_reports import ReadOptions
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.paraver.kept_labels import read_kept_labels
from nsys2prv_ng.paraver.labels import KeptLabels, Labels, Numbering
from nsys2prv_ng.paraver.load_cost import measure_load, warn_of_load
from nsys2prv_ng.paraver.model import Communicator, format_prv_header, format_row
from nsys2prv_ng.paraver.pcf_writer import format_pcf
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.gather import PlacedRun
from nsys2prv_ng.records.runs import Run
from nsys2prv_ng.report.diagnostics import ERROR, WARNING
from nsys2prv_ng.sources.shared.result import Result, StateIntervals
from nsys2prv_ng.sources.shared.source import JoinResult, Source
from nsys2prv_ng.translation.defaults import SHORTEST_LINE_NS
from nsys2prv_ng.translation.overview import declare_types, make_overview
from nsys2prv_ng.translation.path_records import derive_path
from nsys2prv_ng.translation.result import NsysMessages, SourceAccount, TranslationResult
from nsys2prv_ng.translation.slices import Slices, cut_into_slices
from nsys2prv_ng.translation.states import make_state_records
from nsys2prv_ng.translation.step_records import derive_steps
from nsys2prv_ng.translation.wait_records import derive_waits


@dataclass(frozen=True)
class TranslationPlan(ReadOptions):
    """What a translation reads, and what it writes and replaces."""

    align_report: Path | None = None
    """File to write the clocks of the nodes to."""
    wait_lines: int = SHORTEST_LINE_NS
    """Length (ns) of the shortest wait that gets a line."""
    stats: Path | None = None
    """File to write the TranslationResult to, as JSON."""
    labels_from: Path | None = None
    """A .pcf whose numbers of types and names are kept."""
    force: bool = False
    """Replace files of the same names."""
    paraver_memory: int = 0
    """Bytes of Paraver's memory above which the trace is too large; 0 is no limit."""
    summary: bool = False
    """Sum up the job as well."""
    overview: bool = False
    """Write what shows where to look, of a limited size, instead of all events."""


@dataclass(frozen=True)
class TracePlan:
    """A trace that is to be written: its texts, its slices, and the account of it."""

    header: str
    pcf: str
    row: str
    slices: Slices
    result: TranslationResult
    """Without the sizes of the files and the time that they take."""


def plan_trace(job: Job, output: Path, plan: TranslationPlan) -> TracePlan:
    """Return all that is needed to write the trace of a job."""
    kept_labels = read_kept_labels(plan.labels_from) if plan.labels_from else None
    waits = find_waits(job)
    late = find_reasons(job, waits, name_hosts=plan.summary)
    derived = derive_waits(job, waits, late, plan.wait_lines)
    needs_path = job.finds_waits and (plan.summary or not plan.overview)
    path = find_critical_path(job, waits, name_ranges=plan.summary) if needs_path else None
    derived_path = derive_path(job, path, derived.labels)
    derived_steps = derive_steps(job, derived.labels)
    job = replace(job, joined=[*job.joined, derived.joined, derived_path, derived_steps])
    if plan.overview:
        declare_types(derived.labels)
    numbering = _number_names(job, derived.labels, kept_labels)
    model = job.tree.model
    header = format_prv_header(model, job.start_utc, job.duration, _list_communicators(job))
    overview = None
    if plan.overview and not job.is_empty:
        states = _make_states(job, derived.states)
        overview = make_overview(job, waits, late, states, numbering, len(header.encode()))
    runs = _list_runs(job, derived.states, numbering) if overview is None else list(map(PlacedRun, overview.runs))
    slices = cut_into_slices(runs, model.number_rows(), job.origin, compressed=output.name.endswith(".gz"))
    summary = None
    if plan.summary:
        from nsys2prv_ng.summary.compute.job import compute_summary  # takes a tenth of a second to import

        summary = compute_summary(job, waits, late, path)
    warnings = [*job.warnings, *check_clocks(job), *(check_size(job) if needs_path else ())]
    warnings += warn_of_load(measure_load(placed.run for placed in runs), plan.paraver_memory)
    if job.is_empty:
        warnings.append("the reports contain no events of the selected sources; the trace shows only the capture")
    accounts = _add_up_accounts(job.reports, job.sources, job.joined)
    result = TranslationResult(
        output=str(output),
        sources=accounts if overview is None else overview.change_accounts(accounts),
        reports=[report.account() for report in job.reports],
        skipped=job.skipped,
        start_utc_ns=job.start_utc,
        duration_ns=job.duration,
        nodes=len(model.nodes),
        tasks=len(model.tasks),
        rows=model.row_count,
        states=_count_lines(runs, rec.STATE),
        events=_count_lines(runs, rec.EVENT),
        communications=_count_lines(runs, rec.COMMUNICATION),
        bytes=0,
        file_bytes=0,
        seconds=0.0,
        warnings=warnings,
        messages=_count_messages(job.reports),
        clocks=job.alignment,
        pairs=sum(placed.run.facts.pairs for placed in runs),
        summary=summary,
        overview=None if overview is None else overview.facts,
        gpu_time_ns=find_gpu_time(job),
    )
    return TracePlan(
        header=header,
        pcf=format_pcf(numbering, None if overview is None else overview.types),
        row=format_row(model, output.name.removesuffix(".gz").removesuffix(".prv")),
        slices=slices,
        result=result,
    )


def _number_names(job: Job, derived: Labels, kept_labels: KeptLabels | None) -> Numbering:
    """Return the numbers of all types and names, once all reports are read."""
    assigned = {space: values for part in job.joined for space, values in part.assigned.items()}
    return Numbering([*(report.labels for report in job.reports), derived], assigned, kept_labels)


def _list_runs(job: Job, waits: StateIntervals, numbering: Numbering) -> list[PlacedRun]:
    """Return all runs of records: those of the reports, of joins over the reports, and the states."""
    joined = [PlacedRun(run) for part in job.joined for result in part.accounts.values() for run in result.runs]
    return [*_list_report_runs(job, numbering), *joined, *map(PlacedRun, _make_states(job, waits))]


def _make_states(job: Job, waits: StateIntervals) -> list[Run]:
    limits = job.first, job.last
    return make_state_records(job.reports, job.tree, job.spans, job.windows, job.store, job.engine, limits, waits)


def _list_report_runs(job: Job, numbering: Numbering) -> list[PlacedRun]:
    """Return the runs of all reports, with the maps to the rows, numbers and times of the trace."""
    runs = []
    for report, rows in zip(job.reports, job.tree.rows, strict=True):
        maps = (rows, *numbering.maps(report.labels))
        runs += [PlacedRun(run, 0 if run.on_common_clock else report.clock.offset, maps) for run in report.runs()]
    return runs


def _list_communicators(job: Job) -> list[Communicator]:
    """Return the communicators, with the numbers of those of their tasks that are in the trace."""
    number = dict.fromkeys(range(1, len(job.whole.model.tasks) + 1), 0)
    for old, new in enumerate(job.new_row):
        if new >= 0:
            number[int(job.whole.task_of_row[old]) + 1] = int(job.tree.task_of_row[new]) + 1
    communicators = []
    for part in job.joined:
        for communicator in part.communicators:
            tasks = tuple(number[task] for task in communicator.tasks if number[task])
            if tasks:
                communicators.append(Communicator(communicator.number, tasks))
    return communicators


def _count_lines(runs: Sequence[PlacedRun], kind: int) -> int:
    """Return the number of lines of a kind of record in the .prv."""
    return sum(run.run.facts.kinds[kind] for run in runs)


def _add_up_accounts(
    reports: Sequence[ReportRecords], sources: Sequence[Source], joined: Sequence[JoinResult]
) -> list[SourceAccount]:
    """Return the events of each source over all reports, then those of the joins over the reports."""
    accounts = [
        _add_up(source.name, source.title, [report.results[source.name] for report in reports])
        for source in sources
        if not source.accounted_in_join
    ]
    return accounts + [_add_up(name, name, [result]) for part in joined for name, result in part.accounts.items()]


def _add_up(name: str, title: str, results: Sequence[Result]) -> SourceAccount:
    account = SourceAccount(name, title)
    for result in results:
        account.read += result.read
        account.written += result.written
        account.closed_at_end += result.closed
        account.cut_at_end += result.cut
        account.load += measure_load(result.runs)
        for reason, count in result.dropped.items():
            account.drop(reason, count)
    return account


def _count_messages(reports: Sequence[ReportRecords]) -> NsysMessages:
    """Return how much nsys itself complained."""
    counts = [report.diagnostics.counts for report in reports]
    warnings, errors = (sum(count.get(severity, 0) for count in counts) for severity in (WARNING, ERROR))
    lost = sum(message.count for report in reports for message in report.diagnostics.messages if message.is_certain)
    return NsysMessages(warnings, errors, sum(WARNING in count or ERROR in count for count in counts), lost)
