"""Reports, read: every source of every report, and what the reports tell of their clocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.clock.collectives import Evidence
from nsys2prv_ng.objects.places import Places, Thread
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.paraver.records import Records, used_handles
from nsys2prv_ng.progress import Progress
from nsys2prv_ng.report.database import Database
from nsys2prv_ng.report.files import name_of_report
from nsys2prv_ng.report.metadata import Metadata, Strings, read_metadata
from nsys2prv_ng.sources import WITH_EVIDENCE
from nsys2prv_ng.sources.base import Reading, Result, Source, SourceOptions
from nsys2prv_ng.summary import ReportAccount


@dataclass
class ReportRecords:
    """One report, read: its records by source, on the common clock once `clock` has been applied to them."""

    path: Path
    metadata: Metadata
    places: Places
    labels: Labels
    results: dict[str, Result]
    evidence: Evidence
    clock: ClockMap = field(default_factory=ClockMap)
    node: int = 0

    def records(self) -> Iterator[Records]:
        for result in self.results.values():
            yield from result.records

    def limits(self) -> tuple[int, int] | None:
        """First and last time of the records, unended intervals by their begin; None where there is no record."""
        limits = [records.limits() for records in self.records() if len(records)]
        for result in self.results.values():
            limits += [(int(u.begin.min()), int(u.begin.max())) for u in result.unended]
        return (min(low for low, _ in limits), max(high for _, high in limits)) if limits else None

    def account(self) -> ReportAccount:
        metadata = self.metadata
        return ReportAccount(
            file=str(self.path),
            host=metadata.host,
            nsys_version=metadata.nsys_version,
            schema_version=metadata.schema_version,
            offset_ns=self.clock.offset,
            warnings=metadata.warnings,
        )


def read_reports(
    exports: Sequence[Path],
    sources: Sequence[Source],
    options: SourceOptions,
    progress: Progress,
    *,
    with_evidence: bool,
) -> list[ReportRecords]:
    """Every source of every report, in an order of reports that does not depend on the command line's.

    `with_evidence`: also what they tell of their clocks. Raises TranslationError for a report that cannot be read.
    """
    read = []
    with progress.step(f"reading {_reports(len(exports))}", len(exports) * len(sources), "source") as step:
        for path in exports:
            database = Database(path)
            try:
                strings = Strings(database)
                metadata = read_metadata(database, strings)
                reading = Reading(database, metadata, strings, sources, options)
                results = {}
                for source in sources:
                    results[source.name] = source.read(reading)
                    step.update(1)
                evidence = _evidence(reading, results) if with_evidence else Evidence()
                for warning in metadata.warnings:
                    progress.warn(f"{path}: {warning}")
                report = ReportRecords(path, metadata, reading.places, reading.labels, results, evidence)
                _drop_without_row(report)
                reading.labels.note_used(_used_handles(report))
                read.append(report)
            finally:
                database.close()
    return sorted(read, key=_order)


def _order(report: ReportRecords) -> tuple[object, ...]:
    """By what the report says, then by its name, which is that of its exports of any kind."""
    path, metadata = report.path, report.metadata
    return metadata.utc_of_zero or 0, metadata.host, name_of_report(path), str(path.parent), path.name


def _evidence(reading: Reading, results: dict[str, Result]) -> Evidence:
    """What a report tells of its clock, by the sources that were chosen and those that were not."""
    together = Evidence()
    for source in WITH_EVIDENCE:
        result = results.get(source.name) or source.read(reading.apart(source))
        together.collectives += result.evidence.collectives
        together.messages += result.evidence.messages
        result.evidence = Evidence()
    return together


def _drop_without_row(report: ReportRecords) -> None:
    """Leave out what was observed of threads that made no call: they have no row.

    This is done before the limits of the trace are known, which it would move, and before it is asked whether the
    reports hold anything at all.
    """
    places = report.places
    if not places.only_observed:
        return
    no_call, no_task = np.zeros((2, len(places.all)), np.bool_)
    for number in places.only_observed:
        thread = places.all[number]
        assert isinstance(thread, Thread)
        (no_call if thread.process in places.called else no_task)[number] = True
    for result in report.results.values():
        result.drop_places(no_task, "its process made no traced call")
        result.drop_places(no_call, "its thread made no traced call")


def _used_handles(report: ReportRecords) -> set[int]:
    """Handles of the types of all events, also of those that the end of the trace will close."""
    used = {int(handle) for records in report.records() for handle in used_handles(records)}
    for result in report.results.values():
        for unended in result.unended:
            pairs = [np.unique(pair.handle).tolist() for pair in unended.opening]
            used.update(*pairs, map(int, unended.closing))
    return used


def _reports(count: int) -> str:
    return "1 report" if count == 1 else f"{count} reports"
