"""Reads one report: every source, and the evidence of its clock, in one process or in several.

Most of the time to read a report goes into Python and numpy, so a report of many processes of the program is read by
several processes of this one. What they read apart has places and labels of its own, which are joined in the order of
the sources: the ids are the same wherever a source is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.objects.places import Places, Thread
from nsys2prv_ng.operations.parts import Evidence
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.reading.read_reports import ReadReport, load_for_change, spill_records, spill_states
from nsys2prv_ng.reading.unread_tables import warn_of_unread_work
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.records.runs import change_ids
from nsys2prv_ng.records.store import LocalStore, Store, store_columns
from nsys2prv_ng.report.database import NULL, Columns, Database, Table, open_database
from nsys2prv_ng.report.diagnostics import read_diagnostics
from nsys2prv_ng.report.metadata import Strings, read_metadata
from nsys2prv_ng.runtime.limits import give_back_freed_memory
from nsys2prv_ng.runtime.machine_code import load_numba
from nsys2prv_ng.runtime.processes import Work, run_in_processes
from nsys2prv_ng.sources.cuda.cuda_api import warn_of_lost_kernels
from nsys2prv_ng.sources.registry import APART, SOURCES
from nsys2prv_ng.sources.shared.reasons import IMPOSSIBLE, NO_ROW, OTHER_PROGRAM
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source, Unended
from nsys2prv_ng.sources.shared.source_options import SourceOptions

_LARGE = 16 << 20
"""Bytes of records of a source that took so much memory that it is given back before the next source is read."""


class Helpers(NamedTuple):
    """Further processes for a report: their number, and the function that each calls first with its own number."""

    processes: int
    started: Callable[[int], object]


NO_HELPERS = Helpers(0, lambda _: None)


class _Part(NamedTuple):
    """What another process read of a report: records with its own ids, in the store, and its warnings."""

    places: Places
    labels: Labels
    results: dict[str, Result]
    warnings: list[str]


def read_report(
    path: Path,
    sources: Sequence[Source],
    options: SourceOptions,
    store: Store,
    tick: Callable[[int], object],
    evidence_sources: Sequence[Source],
    helpers: Helpers = NO_HELPERS,
) -> ReadReport:
    """Read an export and put its records into the store. `tick` is called with 1 for each source.

    `helpers`: processes that read some of the sources.
    """
    here = [source for source in sources if source.name not in chain(*APART)]
    apart = [[source for source in sources if source.name in names] for names in APART]
    apart = [group for group in apart if group]
    with open_database(path) as database:
        reader = _make_reader(database, sources, options)
        metadata = reader.metadata
        metadata.warnings += warn_of_unread_work(database)
        results: dict[str, Result] = {}

        def read_here() -> None:
            _read_sources(reader, here, store, results, tick)

        count = min(helpers.processes, len(apart))
        if count and isinstance(store, LocalStore):
            limits = [len(apart) * number // count for number in range(count + 1)]
            groups = [list(chain(*apart[low:high])) for low, high in pairwise(limits)]
            load_numba()
            work = Work(count, lambda index, tick: _read_apart(path, sources, groups[index], options, store, tick))
            for part in run_in_processes(work, count, tick, helpers.started, read_here):
                _join(reader, part, results, store)
        else:
            read_here()
            _read_sources(reader, [source for group in apart for source in group], store, results, tick)
        results = {source.name: results[source.name] for source in sources}
        metadata.warnings += warn_of_lost_kernels(reader)
        evidence = _collect_evidence(reader, results, evidence_sources)
        if reader.places.only_observed or reader.places.has_idle_threads():
            _note_other_calls(database, reader)
        diagnostics = read_diagnostics(database)
    metadata.warnings += _warn_of_impossible_times(results)
    _drop_without_row(reader.places, results, store)
    reader.labels.note_used(_find_used_handles(results))
    states = spill_states([states for result in results.values() for states in result.states], store)
    for result in results.values():
        result.states = []
    give_back_freed_memory()  # the next report may be a small one
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


def _make_reader(database: Database, sources: Sequence[Source], options: SourceOptions) -> ReportReader:
    strings = Strings(database)
    metadata = read_metadata(database, strings)
    return ReportReader(database, metadata, strings, {s.name: s.tables for s in sources}, options)


def _read_sources(
    reader: ReportReader,
    sources: Sequence[Source],
    store: Store,
    results: dict[str, Result],
    tick: Callable[[int], object],
) -> None:
    """Read some sources, and put their records into the store."""
    for source in sources:
        result = results[source.name] = source.read(reader)
        spill_records(result, store, on_common_clock=False)
        if result.join_columns:
            result.stored_join_columns = store_columns(result.join_columns, store)
            result.join_columns = []
        if result.side_columns:
            result.stored_side_columns = store_columns(result.side_columns, store)
            result.side_columns = []
        assert result.read == result.accounted, f"{source.name}: {result.read} read, {result.accounted} accounted"
        if sum(run.size for run in result.runs) >= _LARGE:
            give_back_freed_memory()
        tick(1)


# ---- in several processes --------------------------------------------------------------------------------------------


def _read_apart(
    path: Path,
    sources: Sequence[Source],
    chosen: Sequence[Source],
    options: SourceOptions,
    store: Store,
    tick: Callable[[int], object],
) -> _Part:
    """Read some of the sources of an export, with places and labels of their own."""
    with open_database(path) as database:
        reader = _make_reader(database, sources, options)
        known = len(reader.metadata.warnings)
        results: dict[str, Result] = {}
        _read_sources(reader, chosen, store, results, tick)
        return _Part(reader.places, reader.labels, results, reader.metadata.warnings[known:])


def _join(reader: ReportReader, part: _Part, results: dict[str, Result], store: LocalStore) -> None:
    """Add what another process read to a report, whose ids its records get."""
    places = reader.places.add(part.places)
    labels = reader.labels.add(part.labels)
    reader.metadata.warnings += part.warnings
    for name, result in part.results.items():
        result.runs = [change_ids(run, (places, *labels), store) for run in result.runs]
        result.states = [states._replace(place=places[states.place]) for states in result.states]
        result.unended = [_change_unended(unended, places, *labels) for unended in result.unended]
        results[name] = result


def _change_unended(unended: Unended, places: IntArray, types: IntArray, starts: IntArray, tables: IntArray) -> Unended:
    """Return intervals without an end with the ids of a report, as `change_ids` changes records."""

    def change(pair: Pair) -> Pair:
        start = starts[pair.handle]
        is_name = (start >= 0) & (True if pair.present is None else pair.present)
        name = tables[np.where(is_name, start + pair.value, 0)]
        return Pair(types[pair.handle], np.where(is_name, name, pair.value), pair.present)

    closing = types[np.array(unended.closing, np.int64)].tolist()
    return Unended(places[unended.place], unended.begin, list(map(change, unended.opening)), closing)


# ---- once all sources are read ---------------------------------------------------------------------------------------


def _collect_evidence(
    reader: ReportReader, results: dict[str, Result], sources: Sequence[Source]
) -> dict[str, Evidence]:
    """Return the evidence of a report's clock by source, including sources that were not chosen."""
    evidence = {}
    for source in sources:
        result = results.get(source.name)
        if result is None:  # its places are not in the trace
            result = source.read(reader.apart(source.name, source.tables))
            parts = result.evidence.collectives
            result.evidence.collectives = [part._replace(place=np.full(part.place.size, -1)) for part in parts]
        evidence[source.name] = result.evidence
        result.evidence = Evidence()
    return evidence


def _warn_of_impossible_times(results: dict[str, Result]) -> list[str]:
    """Return a warning about events that were dropped because of their times, if there are any."""
    counts = {name: sum(result.dropped.get(reason, 0) for reason in IMPOSSIBLE) for name, result in results.items()}
    listed = ", ".join(f"{count:,} of {name}" for name, count in counts.items() if count)
    why = "they end long after the capture, or start before their launch"
    return [f"events with impossible times are dropped: {listed}; {why}"] if listed else []


def _note_other_calls(database: Database, reader: ReportReader) -> None:
    """Note threads whose calls are of sources that the user did not choose: observations of these threads are shown.

    If nothing was observed, such calls make no task: they only decide which threads are idle.
    """
    shows_observed = bool(reader.places.only_observed)
    others = (rows for source in SOURCES if source.name not in reader.chosen for rows in source.counted_tables)
    for rows in others:
        if not rows.process or rows.names is not None or rows.table not in database.tables:
            continue

        def find_callers(columns: Columns, rows: EventRows = rows) -> IntArray:
            return np.unique(columns[rows.process][rows.make_task(columns)])

        with suppress(ReportError):  # a source that was not chosen may be damaged
            table = Table(rows.table, (), dict.fromkeys(rows.process_columns, NULL))
            for threads in database.read_by_block(table, "", find_callers):
                if shows_observed:
                    reader.places.note_calls(threads, rows.application, rows.system_calls)
                elif not rows.system_calls:
                    reader.places.note_studied(threads)


def _drop_without_row(places: Places, results: dict[str, Result], store: Store) -> None:
    """Drop observations of threads that made no call: these threads have no row.

    This is a part of reading because it may drop everything in a report, and because it moves the limits of the report.
    Both must be final before any stage of the job uses them.
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
            result.drop_places(no_task, OTHER_PROGRAM)
            result.drop_places(no_call, NO_ROW)


def _find_used_handles(results: dict[str, Result]) -> set[int]:
    """Return the handles of the types of all events, including intervals that the end of the trace will close."""
    used = {int(handle) for result in results.values() for run in result.runs for handle in run.facts.handles}
    for result in results.values():
        for unended in result.unended:
            pairs = [np.unique(pair.handle).tolist() for pair in unended.opening]
            used.update(*pairs, map(int, unended.closing))
    return used
