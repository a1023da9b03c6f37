"""Reads reports: every source of every report, and what the reports show of their clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.job.accounts import ReportAccount
from nsys2prv_ng.job.spill import load_for_change, spill_records, spill_states
from nsys2prv_ng.objects.places import Places, Thread
from nsys2prv_ng.operations.parts import Evidence
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.records.runs import Run
from nsys2prv_ng.records.store import LocalStore, Store, StoredColumns, store_columns
from nsys2prv_ng.report.database import NULL, Columns, Database, Table
from nsys2prv_ng.report.diagnostics import Diagnostics, read_diagnostics
from nsys2prv_ng.report.files import refuse_no_reports
from nsys2prv_ng.report.formats import get_report_name
from nsys2prv_ng.report.metadata import Metadata, Strings, read_metadata
from nsys2prv_ng.runtime.jit import load_numba
from nsys2prv_ng.runtime.parallel import Work, run_in_processes
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources import SOURCES
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import EventRows, Source
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from nsys2prv_ng.text.formatting import count_noun


@dataclass(frozen=True)
class ReadReport:
    """One report as it was read: its records by source are in a store, with the times of its own clock."""

    path: Path
    metadata: Metadata
    places: Places
    labels: Labels
    results: dict[str, Result]
    states: StoredColumns | None
    """What its events ask for, with its own places and times."""
    diagnostics: Diagnostics
    """What nsys reported about the capture."""
    evidence: dict[str, Evidence]
    """What its events show of its clock, by source; nothing unless it was asked for."""

    def place_on(self, node: int, clock: ClockMap) -> ReportRecords:
        """Return the report on a node and, by `clock`, on the common clock, without what sources join."""
        return ReportRecords(
            path=self.path,
            metadata=self.metadata,
            places=self.places,
            labels=self.labels,
            results={name: result.copy_records() for name, result in self.results.items()},
            states=self.states,
            diagnostics=self.diagnostics,
            node=node,
            clock=clock,
        )


@dataclass(frozen=True)
class ReportRecords:
    """One report on its node and on the common clock: its records by source are in a store.

    Runs of records that are not `on_common_clock` have the report's own times, to which `clock` is to be applied.
    """

    path: Path
    metadata: Metadata
    places: Places
    labels: Labels
    results: dict[str, Result]
    states: StoredColumns | None
    """What its events ask for, with its own places and times."""
    diagnostics: Diagnostics
    """What nsys reported about the capture."""
    node: int
    clock: ClockMap

    def runs(self) -> Iterator[Run]:
        for result in self.results.values():
            yield from result.runs

    def limits(self) -> tuple[int, int] | None:
        """Return the first and last time on the common clock (ns), unended intervals by their begin; None if empty."""
        limits = [self.find_limits(run) for run in self.runs()]
        for result in self.results.values():
            limits += [(self.clock.at(int(u.begin.min())), self.clock.at(int(u.begin.max()))) for u in result.unended]
        return (min(low for low, _ in limits), max(high for _, high in limits)) if limits else None

    def spans(self) -> tuple[IntArray, IntArray]:
        """Return first and last time (ns) of the events of each place (common clock); first > last if it has none."""
        first = np.full(len(self.places.all), np.iinfo(np.int64).max, np.int64)
        last = np.full(len(self.places.all), np.iinfo(np.int64).min, np.int64)
        for place, begin, end in map(self.find_spans, self.runs()):
            first[place], last[place] = np.minimum(first[place], begin), np.maximum(last[place], end)
        return first, last

    def find_limits(self, run: Run) -> tuple[int, int]:
        """Return the first and last time of a run on the common clock (ns)."""
        low, high = run.facts.first, run.facts.last
        return (low, high) if run.on_common_clock else (self.clock.at(low), self.clock.at(high))

    def find_spans(self, run: Run) -> tuple[IntArray, IntArray, IntArray]:
        """Return the places that have events in a run, and the first and last time of these (ns, common clock)."""
        place = np.flatnonzero(run.facts.place_first <= run.facts.place_last)
        first, last = run.facts.place_first[place], run.facts.place_last[place]
        return (place, first, last) if run.on_common_clock else (place, self.clock(first), self.clock(last))

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
    store: LocalStore,
    progress: Progress,
    *,
    workers: int,
    evidence: Sequence[Source] = (),
    errors: dict[Path, ReportError] | None = None,
) -> list[ReadReport]:
    """Read every source of every report, in an order of reports that does not depend on the command line's.

    `workers` processes read at the same time, each with a shelf of its own in the store, from 1 on.
    `evidence`: the sources of operations over ranks to collect, chosen or not. Reports that cannot be read are skipped,
    with their errors in `errors`; without it, or if no report is left, the ReportError of the first is raised.
    """

    def read_one(index: int, tick: Callable[[int], object]) -> ReadReport | ReportError:
        try:
            return read_report(exports[index], sources, options, store, tick, evidence)
        except ReportError as error:
            if errors is None:
                raise
            return error

    with progress.step(f"reading {count_noun(len(exports), 'report')}", len(exports) * len(sources), "source") as step:
        if workers > 1:
            load_numba()
            answers = run_in_processes(
                Work(len(exports), read_one), workers, step.update, lambda n: store.use_shelf(n + 1)
            )
        else:
            answers = [read_one(index, step.update) for index in range(len(exports))]
    if errors is not None:
        answered = zip(exports, answers, strict=True)
        errors.update({path: answer for path, answer in answered if isinstance(answer, ReportError)})
    read = [answer for answer in answers if isinstance(answer, ReadReport)]
    refuse_no_reports(read, errors)
    return order_reports(read, progress)


def order_reports(read: list[ReadReport], progress: Progress) -> list[ReadReport]:
    """Return reports in an order that depends on nothing but them, and print what they warn of, each text once."""
    read.sort(key=lambda report: make_sort_key(report.path, report.metadata))
    paths_of_warning: dict[str, list[Path]] = {}
    for report in read:
        for warning in report.metadata.warnings:
            paths_of_warning.setdefault(warning, []).append(report.path)
    for warning, paths in paths_of_warning.items():
        others = f" and {count_noun(len(paths) - 1, 'other report')}" if len(paths) > 1 else ""
        progress.warn(f"{paths[0]}{others}: {warning}")
    return read


def read_report(
    path: Path,
    sources: Sequence[Source],
    options: SourceOptions,
    store: Store,
    tick: Callable[[int], object],
    evidence_sources: Sequence[Source],
) -> ReadReport:
    """Read an export and put its records into the store. `tick` is called with 1 for each source."""
    database = Database(path)
    try:
        strings = Strings(database)
        metadata = read_metadata(database, strings)
        reader = ReportReader(database, metadata, strings, sources, options)
        results = {}
        for source in sources:
            result = results[source.name] = source.read(reader)
            spill_records(result, store, on_common_clock=False)
            if result.join_columns:
                result.stored_join_columns = store_columns(result.join_columns, store)
                result.join_columns = []
            assert result.read == result.accounted, f"{source.name}: {result.read} read, {result.accounted} accounted"
            tick(1)
        evidence = _collect_evidence(reader, results, evidence_sources)
        if reader.places.only_observed or reader.places.has_idle_threads():
            _note_other_calls(database, reader)
        diagnostics = read_diagnostics(database)
    finally:
        database.close()
    _drop_without_row(reader.places, results, store)
    reader.labels.note_used(_find_used_handles(results))
    states = spill_states([states for result in results.values() for states in result.states], store)
    for result in results.values():
        result.states = []
    return ReadReport(
        path=path,
        metadata=metadata,
        places=reader.places,
        labels=reader.labels,
        results=results,
        states=states,
        diagnostics=diagnostics,
        evidence=evidence,
    )


def make_sort_key(path: Path, metadata: Metadata) -> tuple[Any, ...]:
    """Return what reports are ordered by: their content, then their names, the same for any kind of export."""
    return metadata.utc_of_zero or 0, metadata.host, get_report_name(path), str(path.parent), path.name


def _collect_evidence(
    reader: ReportReader, results: dict[str, Result], sources: Sequence[Source]
) -> dict[str, Evidence]:
    """Return what a report shows of its clock, by the sources that were chosen and those that were not."""
    evidence = {}
    for source in sources:
        result = results.get(source.name)
        if result is None:  # its places are not those of the trace
            result = source.read(reader.apart(source))
            parts = result.evidence.collectives
            result.evidence.collectives = [part._replace(place=np.full(part.place.size, -1)) for part in parts]
        evidence[source.name] = result.evidence
        result.evidence = Evidence()
    return evidence


def _note_other_calls(database: Database, reader: ReportReader) -> None:
    """Note threads that made calls which the user did not choose: what was observed of them is shown all the same.

    Where nothing was observed, such calls make no task: only which threads are idle depends on them.
    """
    shows_observed = bool(reader.places.only_observed)
    others = (rows for source in SOURCES if source.name not in reader.chosen for rows in source.counted_tables)
    for rows in others:
        if not rows.process or rows.names is not None or rows.table not in database.tables:
            continue

        def find_callers(columns: Columns, rows: EventRows = rows) -> IntArray:
            return np.unique(columns[rows.process][rows.make_task(columns)])

        with suppress(ReportError):  # what was not chosen may be damaged
            table = Table(rows.table, (), dict.fromkeys(rows.process_columns, NULL))
            for threads in database.read_by_block(table, "", find_callers):
                if shows_observed:
                    reader.places.note_calls(threads, rows.application, rows.system_calls)
                elif not rows.system_calls:
                    reader.places.note_studied(threads)


def _drop_without_row(places: Places, results: dict[str, Result], store: Store) -> None:
    """Drop what was observed of threads that made no call: they have no row.

    It is a part of reading because it may drop everything that a report holds, and because it moves the limits of the
    report: both must be final before any stage of the job asks for them.
    """
    if not places.only_observed:
        return
    no_call, no_task = np.zeros((2, len(places.all)), np.bool_)
    for number in places.only_observed:
        thread = places.all[number]
        assert isinstance(thread, Thread)
        (no_call if thread.process in places.called else no_task)[number] = True
    observed = np.array(sorted(places.only_observed), np.int64)
    for result in results.values():
        has_some = any(run.facts.has_events_on(observed) for run in result.runs)
        with load_for_change(result, store) if has_some else nullcontext():
            result.drop_places(no_task, "its process made no traced call")
            result.drop_places(no_call, "its thread made no traced call")


def _find_used_handles(results: dict[str, Result]) -> set[int]:
    """Return the handles of the types of all events, also of those that the end of the trace will close."""
    used = {int(handle) for result in results.values() for run in result.runs for handle in run.facts.handles}
    for result in results.values():
        for unended in result.unended:
            pairs = [np.unique(pair.handle).tolist() for pair in unended.opening]
            used.update(*pairs, map(int, unended.closing))
    return used
