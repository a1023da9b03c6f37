"""Reports, read: every source of every report, and what the reports tell of their clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.clock.collectives import Evidence
from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.job.accounts import ReportAccount
from nsys2prv_ng.job.spill import SpilledStates, load_for_change, spill_records, spill_states
from nsys2prv_ng.objects.places import Places, Thread
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.records.runs import Run
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.report.database import NULL, Columns, Database, Table
from nsys2prv_ng.report.diagnostics import Diagnostics, read_diagnostics
from nsys2prv_ng.report.files import get_report_name, refuse_no_reports
from nsys2prv_ng.report.metadata import Metadata, Strings, read_metadata
from nsys2prv_ng.runtime.jit import load_numba
from nsys2prv_ng.runtime.parallel import Work, run_in_processes
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources import SOURCES, WITH_EVIDENCE
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import EventRows, Source, SourceOptions
from nsys2prv_ng.text.formatting import count_noun


@dataclass
class ReportRecords:
    """One report, read: its records by source in a store, with its own times until `clock` is applied to them."""

    path: Path
    metadata: Metadata
    places: Places
    labels: Labels
    results: dict[str, Result]
    evidence: Evidence
    states: SpilledStates
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    """What nsys said of the capture."""
    clock: ClockMap = field(default_factory=ClockMap)
    node: int = 0

    def runs(self) -> Iterator[Run]:
        for result in self.results.values():
            yield from result.runs

    def limits(self) -> tuple[int, int] | None:
        """First and last time on the common clock, unended intervals by their begin; None where there is nothing."""
        limits = []
        for run in self.runs():
            low, high = run.facts.first, run.facts.last
            limits.append((low, high) if run.on_common_clock else (self.clock.at(low), self.clock.at(high)))
        for result in self.results.values():
            limits += [(self.clock.at(int(u.begin.min())), self.clock.at(int(u.begin.max()))) for u in result.unended]
        return (min(low for low, _ in limits), max(high for _, high in limits)) if limits else None

    def spans(self) -> tuple[IntArray, IntArray]:
        """First and last time (ns) of the events of each place on the common clock; first > last where it has none."""
        first = np.full(len(self.places.all), np.iinfo(np.int64).max, np.int64)
        last = np.full(len(self.places.all), np.iinfo(np.int64).min, np.int64)
        for run in self.runs():
            place = np.flatnonzero(run.facts.place_first <= run.facts.place_last)
            begin, end = run.facts.place_first[place], run.facts.place_last[place]
            if not run.on_common_clock:
                begin, end = self.clock(begin), self.clock(end)
            first[place], last[place] = np.minimum(first[place], begin), np.maximum(last[place], end)
        return first, last

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
    store: Store,
    progress: Progress,
    *,
    processes: int,
    collect_evidence: bool,
    skipped: dict[Path, ReportError] | None = None,
) -> list[ReportRecords]:
    """Every source of every report, in an order of reports that does not depend on the command line's.

    `processes` read at once, each with a shelf of its own in the store, from 1 on. `with_evidence`: also what they
    tell of their clocks. Reports that cannot be read are noted in `left_out`; without it, or if none is left, the
    ReportError of the first is raised.
    """

    def read_one(index: int, tick: Callable[[int], object]) -> ReportRecords | ReportError:
        try:
            return _read(exports[index], sources, options, store, tick, collect_evidence)
        except ReportError as error:
            if skipped is None:
                raise
            return error

    with progress.step(f"reading {count_noun(len(exports), 'report')}", len(exports) * len(sources), "source") as step:
        if processes > 1:
            load_numba()
            answers = run_in_processes(
                Work(len(exports), read_one), processes, step.update, lambda n: store.use_shelf(n + 1)
            )
        else:
            answers = [read_one(index, step.update) for index in range(len(exports))]
    if skipped is not None:
        errors = zip(exports, answers, strict=True)
        skipped.update({path: error for path, error in errors if isinstance(error, ReportError)})
    read = [answer for answer in answers if isinstance(answer, ReportRecords)]
    read.sort(key=lambda report: make_sort_key(report.path, report.metadata))
    refuse_no_reports(read, skipped)
    for report in read:
        for warning in report.metadata.warnings:
            progress.warn(f"{report.path}: {warning}")
    return read


def _read(
    path: Path,
    sources: Sequence[Source],
    options: SourceOptions,
    store: Store,
    tick: Callable[[int], object],
    collect_evidence: bool,
) -> ReportRecords:
    """One report, with its records in the store."""
    database = Database(path)
    try:
        strings = Strings(database)
        metadata = read_metadata(database, strings)
        reader = ReportReader(database, metadata, strings, sources, options)
        results = {}
        for source in sources:
            result = results[source.name] = source.read(reader)
            spill_records(result, store, on_common_clock=False)
            tick(1)
        evidence = _evidence(reader, results) if collect_evidence else Evidence()
        if reader.places.only_observed:
            _note_other_calls(database, reader)
        diagnostics = read_diagnostics(database)
    finally:
        database.close()
    _drop_without_row(reader.places, results, store)
    reader.labels.note_used(_used_handles(results))
    states = spill_states([states for result in results.values() for states in result.states], store)
    for result in results.values():
        result.states = []
    return ReportRecords(path, metadata, reader.places, reader.labels, results, evidence, states, diagnostics)


def make_sort_key(path: Path, metadata: Metadata) -> tuple[Any, ...]:
    """Reports are ordered by what they say, then by their names, which are those of their exports of any kind."""
    return metadata.utc_of_zero or 0, metadata.host, get_report_name(path), str(path.parent), path.name


def _evidence(reader: ReportReader, results: dict[str, Result]) -> Evidence:
    """What a report tells of its clock, by the sources that were chosen and those that were not."""
    together = Evidence()
    for source in WITH_EVIDENCE:
        result = results.get(source.name) or source.read(reader.apart(source))
        together.collectives += result.evidence.collectives
        together.messages += result.evidence.messages
        result.evidence = Evidence()
    return together


def _note_other_calls(database: Database, reader: ReportReader) -> None:
    """Which threads made calls that the user did not choose: what was observed of them is shown all the same."""
    others = (rows for source in SOURCES if source.name not in reader.chosen for rows in source.rows)
    for rows in others:
        if not rows.process or rows.names is not None or rows.table not in database.tables:
            continue

        def calling(columns: Columns, rows: EventRows = rows) -> IntArray:
            return np.unique(columns[rows.process][rows.make_task(columns)])

        with suppress(ReportError):  # what was not chosen may be damaged
            for found in database.by_block(
                Table(rows.table, (), dict.fromkeys(rows.process_columns, NULL)), "", calling
            ):
                reader.places.note_calls(found, rows.application, rows.system_calls)


def _drop_without_row(places: Places, results: dict[str, Result], store: Store) -> None:
    """Leave out what was observed of threads that made no call: they have no row.

    This is done before the limits of the trace are known, which it would move, and before it is asked whether the
    reports hold anything at all.
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


def _used_handles(results: dict[str, Result]) -> set[int]:
    """Handles of the types of all events, also of those that the end of the trace will close."""
    used = {int(handle) for result in results.values() for run in result.runs for handle in run.facts.handles}
    for result in results.values():
        for unended in result.unended:
            pairs = [np.unique(pair.handle).tolist() for pair in unended.opening]
            used.update(*pairs, map(int, unended.closing))
    return used
