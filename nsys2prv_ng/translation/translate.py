"""The translation of a set of reports into one trace, told once."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.open_job import ReadOptions, open_job
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver.configuration import format_pcf
from nsys2prv_ng.paraver.kept_labels import read_kept_labels
from nsys2prv_ng.paraver.labels import Numbering
from nsys2prv_ng.paraver.model import Communicator, format_prv_header, format_row
from nsys2prv_ng.paraver.output import TraceOutput, list_trace_files
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.report.diagnostics import ERROR, WARNING
from nsys2prv_ng.runtime.files import write_atomically
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import JoinResult, Source
from nsys2prv_ng.summary.compute import compute_summary
from nsys2prv_ng.translation.extra_outputs import check_extra_outputs, check_reports_stay
from nsys2prv_ng.translation.result import NsysMessages, SourceAccount, TranslationResult
from nsys2prv_ng.translation.states import make_state_records
from nsys2prv_ng.translation.write_records import PlacedRun, write_records


@dataclass(frozen=True)
class Options(ReadOptions):
    """How to translate, besides what is read: what to write and to replace."""

    align_report: Path | None = None
    summary: Path | None = None
    """Files to write besides the trace: the clocks of the nodes, and the summary as JSON."""
    labels_from: Path | None = None
    """A .pcf whose numbers of types and names are kept."""
    force: bool = False
    overview: bool = False
    """Sum up the first numbers of the job as well."""


def translate(
    reports: Sequence[Path],
    output: Path,
    options: Options = Options(),
    progress: Progress = Progress(),  # noqa: B008 (has no state)
) -> TranslationResult:
    """Write the trace of some reports and return what was done.

    Raises TranslationError (UsageError among them) with one line for the user; nothing is then left under `output`,
    unless a file besides the trace cannot be written.
    """
    began = time.perf_counter()
    side_files = [path for path in (options.summary, options.align_report) if path is not None]
    inputs = [*reports, *(path for path in (options.labels_from, options.align) if isinstance(path, Path))]
    check_reports_stay(reports, list_trace_files(output))
    check_extra_outputs(side_files, [*inputs, *list_trace_files(output)], force=options.force)
    with ExitStack() as opened:
        threads = options.resources.threads
        trace = opened.enter_context(TraceOutput(output, force=options.force, jobs=threads))
        kept_labels = read_kept_labels(options.labels_from) if options.labels_from else None
        job = opened.enter_context(open_job(reports, output.parent, options, progress))
        read, tree = job.reports, job.tree

        assigned = {space: values for each in job.joined for space, values in each.assigned.items()}
        numbering = Numbering([report.labels for report in read], assigned, kept_labels)
        runs = _of_reports(read, tree, numbering)
        runs += [PlacedRun(run) for each in job.joined for result in each.accounts.values() for run in result.runs]
        runs += [
            PlacedRun(run) for run in make_state_records(read, tree, job.spans, job.windows, job.store, job.workers)
        ]

        trace.write_text("pcf", format_pcf(numbering))
        trace.write_text("row", format_row(tree.model, output.name.removesuffix(".gz").removesuffix(".prv")))
        communicators = _communicators(job.joined, job.whole, job.new_row, tree)
        trace.write_prv(format_prv_header(tree.model, job.start_utc, job.duration, communicators).encode())
        size = write_records(trace, runs, tree.model.row_numbers(), job.origin, job.store, progress, threads=threads)
        numbers = compute_summary(job) if options.overview else None

    warnings = list(job.warnings)
    if job.is_empty:
        warnings.append("none of the chosen kinds of event is in these reports: the trace only shows their capture")
    for warning in warnings:
        progress.warn(warning)
    lines = {kind: sum(each.run.facts.kinds[kind] for each in runs) for kind in rec.KINDS}
    summary = TranslationResult(
        output=str(output),
        sources=_accounts(read, options.sources, job.joined),
        reports=[report.account() for report in read],
        skipped=job.skipped,
        start_utc_ns=job.start_utc,
        duration_ns=job.duration,
        nodes=len(tree.model.nodes),
        tasks=len(tree.model.tasks),
        rows=tree.model.row_count,
        states=lines[rec.STATE],
        events=lines[rec.EVENT],
        communications=lines[rec.COMMUNICATION],
        bytes=size,
        file_bytes=output.stat().st_size if output.is_file() else size,
        seconds=time.perf_counter() - began,
        warnings=warnings,
        messages=_messages(read),
        clocks=job.alignment,
        overview=numbers,
    )
    if options.align_report is not None:
        write_atomically(options.align_report, job.alignment.toml())
    if options.summary is not None:
        write_atomically(options.summary, json.dumps(summary.to_dict(), indent=2) + "\n")
    return summary


def _of_reports(read: Sequence[ReportRecords], tree: ObjectTree, numbering: Numbering) -> list[PlacedRun]:
    """The runs of all reports, with what makes their rows, numbers and times those of the trace."""
    runs = []
    for report, rows in zip(read, tree.rows, strict=True):
        maps = (rows, *numbering.maps(report.labels))
        runs += [PlacedRun(run, 0 if run.on_common_clock else report.clock.offset, maps) for run in report.runs()]
    return runs


def _communicators(
    joined: Sequence[JoinResult], whole: ObjectTree, new_row: IntArray, tree: ObjectTree
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
    read: Sequence[ReportRecords], sources: Sequence[Source], joined: Sequence[JoinResult]
) -> list[SourceAccount]:
    """Events by source over all reports, then what was made of the reports together."""
    accounts = [
        _account(source.name, source.title, [report.results[source.name] for report in read])
        for source in sources
        if not source.derived
    ]
    return accounts + [_account(name, name, [result]) for each in joined for name, result in each.accounts.items()]


def _messages(read: Sequence[ReportRecords]) -> NsysMessages:
    counts = [report.diagnostics.counts for report in read]
    warnings, errors = (sum(each.get(severity, 0) for each in counts) for severity in (WARNING, ERROR))
    lost = sum(message.count for report in read for message in report.diagnostics.messages if message.is_certain)
    return NsysMessages(warnings, errors, sum(WARNING in each or ERROR in each for each in counts), lost)


def _account(name: str, title: str, results: Sequence[Result]) -> SourceAccount:
    account = SourceAccount(name, title)
    for result in results:
        account.read += result.read
        account.written += result.written
        account.closed_at_end += result.closed
        for reason, count in result.dropped.items():
            account.drop(reason, count)
    return account
