"""Reads reports: every source of every report, and the evidence of their clocks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.objects.places import Places
from nsys2prv_ng.operations.parts import Evidence
from nsys2prv_ng.paraver.event_types import STATES
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.reading.accounts import ReportAccount
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.clip import retime_records
from nsys2prv_ng.records.columns import Records, shift_times
from nsys2prv_ng.records.runs import Run, load_records, store_records
from nsys2prv_ng.records.store import Store, StoredColumns, load_columns, store_columns
from nsys2prv_ng.report.diagnostics import Diagnostics
from nsys2prv_ng.report.formats import get_report_name
from nsys2prv_ng.report.metadata import Metadata
from nsys2prv_ng.runtime.machine_code import load_numba
from nsys2prv_ng.runtime.parallel import Engine
from nsys2prv_ng.runtime.processes import Work, run_in_processes
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.shared.source import Result, StateIntervals
from nsys2prv_ng.text.formatting import count_noun
from nsys2prv_ng.value_class import ValueClass


def spill_records(result: Result, store: Store, *, on_common_clock: bool) -> None:
    """Move the records that a result has in memory to the store."""
    records = rec.concatenate(result.records)
    result.records = []
    result.runs += store_records(records, store, on_common_clock=on_common_clock)


@contextmanager
def load_for_change(result: Result, store: Store, clock: ClockMap | None = None) -> Iterator[None]:
    """Load the records of a result to change them, and spill them at the end.

    With its report's `clock` they are then on the common clock; without it they must all be on one clock.
    """
    on_own_clock = [run for run in result.runs if not run.on_common_clock]
    common = clock is not None or not on_own_clock
    assert common or len(on_own_clock) == len(result.runs)
    result.records += [load_on_clock(run, store, clock) for run in result.runs]
    result.runs = []
    yield
    spill_records(result, store, on_common_clock=common)


def change_records(
    changes: Sequence[tuple[Result, ClockMap | None, T]],
    change: Callable[[Result, T], None],
    store: Store,
    engine: Engine,
) -> None:
    """Change the records of results, wherever the engine works.

    Each result comes with a clock for `load_for_change` and with the second argument of `change`.
    """

    def change_one(item: tuple[Result, ClockMap | None, T]) -> Result:
        result, clock, known = item
        with load_for_change(result, store, clock):
            change(result, known)
        return result

    copies = [(result.copy_records(), clock, known) for result, clock, known in changes]
    for (result, _, _), changed in zip(changes, engine.map(change_one, copies), strict=True):
        result.take_records(changed)


def load_on_clock(run: Run, store: Store, clock: ClockMap | None) -> Records:
    """Return the records of a run: on the common clock with its report's `clock`, otherwise as they are stored."""
    records = load_records(run, store)
    if clock is None or run.on_common_clock:
        return records
    if clock.drift:
        return retime_records(records, clock)
    shift_times(records, clock.offset)
    return records


_STATE_COLUMNS = np.int32, np.int64, np.int64, np.int16
"""Stored types of place, begin, end and state."""


def spill_states(states: Sequence[StateIntervals], store: Store) -> StoredColumns | None:
    """Move states to the store; None if there are none."""
    columns = [np.concatenate(column) for column in zip(*states, strict=True)]
    if not columns or not columns[0].size:
        return None
    return store_columns([c.astype(dtype, copy=False) for c, dtype in zip(columns, _STATE_COLUMNS, strict=True)], store)


def load_states(states: StoredColumns | None, places: int, store: Store) -> StateIntervals:
    """Return states that were spilled. `places`: number of places of their report."""
    if states is None:
        return StateIntervals(*(np.zeros(0, np.int64) for _ in range(4)))
    loaded = StateIntervals(*(column.astype(np.int64, copy=False) for column in load_columns(states, store)))
    if states.slot.is_named:
        place, begin, end, state = loaded
        far = rec.FARTHEST_TIME
        limits = (place, 0, places - 1), (state, 0, max(STATES)), (begin, -far, far), (end, -far, far)
        if (begin > end).any() or not all(((low <= c) & (c <= high)).all() for c, low, high in limits):
            raise rec.make_damage_error(states.slot.shelf)
    return loaded


T = TypeVar("T")


class _Report(ValueClass):
    """One report: its records by source are in a store.

    `states`: states that its events request, with its own places and times. `diagnostics`: messages from nsys about the
    capture.
    """

    path: Path
    metadata: Metadata
    places: Places
    labels: Labels
    results: dict[str, Result]
    states: StoredColumns | None
    diagnostics: Diagnostics


class ReadReport(_Report):
    """One report as it was read, with the times of its own clock.

    `evidence`: evidence of its clock in its events, by source; empty unless it was requested.
    """

    evidence: dict[str, Evidence]

    def place_on(self, node: int, clock: ClockMap) -> ReportRecords:
        """Return the report on a node and, through `clock`, on the common clock, without the data that sources join."""
        results = {name: result.copy_records() for name, result in self.results.items()}
        known = {field.name: getattr(self, field.name) for field in fields(_Report)}
        return ReportRecords(**{**known, "results": results}, node=node, clock=clock)


class ReportRecords(_Report):
    """One report on its node and on the common clock.

    Runs of records that are not `on_common_clock` have the report's own times, to which `clock` must be applied.
    """

    node: int
    clock: ClockMap

    def runs(self, sources: Collection[str] | None = None) -> Iterator[Run]:
        """Yield the runs of records of all sources, or of some of them."""
        for name, result in self.results.items():
            if sources is None or name in sources:
                yield from result.runs

    def limits(self) -> tuple[int, int] | None:
        """Return the first and last time (ns, common clock); None if empty. Unended intervals count by their start."""
        limits = [self.find_limits(run) for run in self.runs()]
        for result in self.results.values():
            limits += [(self.clock.at(int(u.begin.min())), self.clock.at(int(u.begin.max()))) for u in result.unended]
        return (min(low for low, _ in limits), max(high for _, high in limits)) if limits else None

    def find_capture(self) -> tuple[int, int]:
        """Return the first and last time (ns, common clock) of the records in the capture, whose end may not be known.

        Kernels and calls may run on after the capture, even into the next one of their process.
        """
        metadata, (first, last) = self.metadata, self.limits() or (0, 0)
        if metadata.utc_of_zero is None or metadata.duration <= 0:
            return first, last
        return max(first, self.clock.at(metadata.begin)), min(last, self.clock.at(metadata.end) - 1)

    def spans(self) -> tuple[IntArray, IntArray]:
        """Return the first and last time of each place's events (ns, common clock); first > last without events."""
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
        """Return the places with events in a run, and the first and last time of their events (ns, common clock)."""
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


def read_each(
    work: Work[T],
    processes: int,
    tick: Callable[[int], object],
    started: Callable[[int], object] = lambda _: None,
    meanwhile: Callable[[], object] = lambda: None,
) -> list[T]:
    """Return the results of all pieces of work, in order: in this process, or as `run_in_processes` does them.

    `meanwhile` saves time while other processes work; alone, this process does not call it.
    """
    processes = min(processes, work.count)
    if processes <= 1:
        return [work.do(index, tick) for index in range(work.count)]
    load_numba()
    return run_in_processes(work, processes, tick, started, meanwhile, may_fork=True)


def order_reports(read: list[ReadReport], progress: Progress) -> list[ReadReport]:
    """Return reports in an order that depends only on the reports; print their warnings, each text once."""
    read.sort(key=lambda report: make_sort_key(report.path, report.metadata))
    paths_of_warning: dict[str, list[Path]] = {}
    for report in read:
        for warning in report.metadata.warnings:
            paths_of_warning.setdefault(warning, []).append(report.path)
    for warning, paths in paths_of_warning.items():
        others = f" and {count_noun(len(paths) - 1, 'other report')}" if len(paths) > 1 else ""
        progress.warn(f"{paths[0]}{others}: {warning}")
    return read


def make_sort_key(path: Path, metadata: Metadata) -> tuple[Any, ...]:
    """Return the sort key of a report: its content, then its name. It is the same for any kind of export."""
    return metadata.utc_of_zero or 0, metadata.host, get_report_name(path), str(path.parent), path.name
