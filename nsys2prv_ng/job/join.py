"""Joins the reports by source: results are made on rows of the whole tree and stored on rows of the chosen tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.job.selection import cut_result
from nsys2prv_ng.job.spill import load_for_change, spill_records
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.store import Store, StoredColumns, load_columns
from nsys2prv_ng.runtime.engine import Engine
from nsys2prv_ng.sources.shared.reasons import NOT_SELECTED
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import JoinInput, JoinResult, Source


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
    joined: JoinResult,
    new_row: IntArray,
    windows: Sequence[tuple[int, int]],
    store: Store,
    engine: Engine,
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
