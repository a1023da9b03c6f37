"""What one report holds, told by counting rows and by the columns that say whose they are: no event is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.objects.places import Places
from nsys2prv_ng.report import diagnostics
from nsys2prv_ng.report.database import NULL, Columns, Database, Table
from nsys2prv_ng.report.diagnostics import Diagnostics, read_diagnostics
from nsys2prv_ng.report.metadata import Metadata, Strings, get_main_thread, get_process, read_metadata
from nsys2prv_ng.report.nvtx_payload import SCHEMAS
from nsys2prv_ng.sources import DERIVED, SOURCES
from nsys2prv_ng.sources.nccl import nccl
from nsys2prv_ng.sources.node import gpu_metrics, plugin_metrics
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import EventRows, SourceOptions

NO_SOURCE = "no source reads it"
NO_PAYLOADS = "payloads of NCCL's calls are not in this export; make it with nsys export --include-blobs=true"

_TIMES = {"start", "timestamp", "rawTimestamp"}
"""Columns that tell tables of events from those that describe something."""
_OF_EXPORT = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_PARTS = {"EXPORT_PARAM_TABLES_TO_EXPORT": "tables", "EXPORT_PARAM_TIMES_TO_EXPORT": "times"}


@dataclass(frozen=True)
class NotTranslated:
    """Rows that no trace will show: how many (None if they cannot be counted), and why."""

    table: str
    rows: int | None
    why: str


@dataclass(frozen=True)
class Obstacle:
    """Why the report cannot be translated as it is, and the sources without which it can."""

    sources: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class ReportContents:
    """What a report holds: its rows by source and by table of events, the processes whose they are."""

    metadata: Metadata
    places: Places
    """A main thread for each process that would be a task, a stream for each of its devices."""
    sources: dict[str, int]
    """Rows of the tables of each source that has rows of its own."""
    tables: dict[str, int]
    """Rows of each of these tables that the report has."""
    made: tuple[str, ...]
    """Sources that would be made of the rows of others."""
    not_translated: list[NotTranslated]
    obstacles: list[Obstacle]
    diagnostics: Diagnostics
    warnings: list[str]


def read_contents(path: Path) -> ReportContents:
    """What an export holds. Raises ReportError for one that cannot be read."""
    database = Database(path)
    try:
        return _look(database)
    finally:
        database.close()


def _look(database: Database) -> ReportContents:
    strings = Strings(database)
    metadata = read_metadata(database, strings)
    exported = _exported(database)
    count_rows = lru_cache(maxsize=None)(database.count_rows)
    places = Places()
    sources: dict[str, int] = {}
    for source in SOURCES:
        if source.rows:
            sources[source.name] = 0
        for rows in source.rows:
            if rows.count is not None and count_rows(rows.table) and not any(map(database.list_missing, source.tables)):
                reader = ReportReader(database, metadata, strings, (source,), SourceOptions())
                sources[source.name] += rows.count(reader)
            elif not (rows.otherwise and sources[source.name]):
                sources[source.name] += _see(database, strings, rows, count_rows, places)
    made = (
        source.name
        for source in SOURCES + DERIVED
        if source.made_of and all(any(map(count_rows, group)) for group in source.made_of)
    )
    tables = {rows.table for source in SOURCES for rows in source.rows} & database.tables
    not_translated = _not_translated(database, metadata, strings, count_rows)
    no_payloads = _lacks_payloads(exported) and count_rows(SCHEMAS.name)
    if sources[nccl.SOURCE.name] and no_payloads:
        not_translated.append(NotTranslated("NVTX_EVENTS", sources[nccl.SOURCE.name], NO_PAYLOADS))
    return ReportContents(
        metadata=metadata,
        places=places,
        sources=sources,
        tables={table: count_rows(table) for table in sorted(tables)},
        made=tuple(made),
        not_translated=not_translated,
        obstacles=_obstacles(database, metadata.schema_version),
        diagnostics=read_diagnostics(database),
        warnings=[*metadata.warnings, *_parts(exported)],
    )


# ---- rows of sources -------------------------------------------------------------------------------------------------


def _see(
    database: Database, strings: Strings, rows: EventRows, count_rows: Callable[[str], int], places: Places
) -> int:
    """Number of the rows, whose processes and devices are noted in `places`."""
    if not count_rows(rows.table) or not rows.process:
        return count_rows(rows.table)
    ids = strings.ids_matching(rows.names) if rows.names is not None else None
    if ids == []:
        return 0
    columns = [*rows.process_columns, *([rows.device] if rows.device else []), *(["textId"] if ids is not None else [])]
    # Whether columns that are required are there is told apart from this.
    parts = database.by_block(
        Table(rows.table, (), dict.fromkeys(columns, NULL)), "", lambda block: _see_block(block, rows, ids)
    )
    found = sorted({each for _, of_block in parts for each in of_block})
    _note(rows, np.array(found, np.int64).reshape(-1, 2), places)
    return count_rows(rows.table) if ids is None else sum(count for count, _ in parts)


def _see_block(columns: Columns, rows: EventRows, ids: Sequence[int] | None) -> tuple[int, list[tuple[int, ...]]]:
    """(number of rows of some names, distinct processes and devices of those that make a task)."""
    kept = np.ones(columns.rows, np.bool_)
    if ids is not None:
        kept &= np.isin(columns["textId"], ids)
    count = int(kept.sum())
    kept &= rows.make_task(columns)
    if rows.device:
        kept &= columns[rows.device] != NULL
    process = get_process(columns[rows.process][kept])
    device = columns[rows.device][kept] if rows.device else np.zeros(process.size, np.int64)
    return count, find_distinct_rows(process, device)[1] if process.size else []


def _note(rows: EventRows, found: IntArray, places: Places) -> None:
    """Processes, by their main thread, and the devices of each, of n x 2."""
    process, device = found.T
    if not process.size:
        return
    main = get_main_thread(process)
    places.threads(main, application=rows.application, system_calls=rows.system_calls)
    if rows.device:
        none = np.zeros(process.size, np.int64)
        places.streams(process, device, none, none, none)


# ---- what would not be in a trace ------------------------------------------------------------------------------------


def _not_translated(
    database: Database, metadata: Metadata, strings: Strings, count_rows: Callable[[str], int]
) -> list[NotTranslated]:
    """Events that no source reads; what cannot be read of them does not hinder a translation."""
    declared = {table.name for source in SOURCES + DERIVED for table in source.tables}
    found = []
    for table in sorted(database.tables - declared - {diagnostics.TABLE}):
        try:
            rows = count_rows(table) if _TIMES & database.list_columns(table) else 0
        except ReportError:
            found.append(NotTranslated(table, None, "cannot be read, and no source does"))
            continue
        if rows:
            found.append(NotTranslated(table, rows, NO_SOURCE))
    return found + _generic(database, metadata, strings, count_rows)


def _generic(
    database: Database, metadata: Metadata, strings: Strings, count_rows: Callable[[str], int]
) -> list[NotTranslated]:
    """Generic events that are no values of plugins: metrics of GPUs, which newer exports have in a table as well, and
    what tracers wrote."""
    table = gpu_metrics.GENERIC.name
    rows = count_rows(table)
    sources = gpu_metrics.SOURCE, plugin_metrics.SOURCE
    if not rows or any(database.list_missing(each) for source in sources for each in source.tables):
        return []  # what is missing is told as an obstacle
    reader = ReportReader(database, metadata, strings, sources, SourceOptions())
    samples = gpu_metrics.read_json_samples(reader)
    of_tracers = plugin_metrics.count_tracer_rows(reader)
    found = []
    if samples and gpu_metrics.METRICS not in database.tables:
        found.append(NotTranslated(table, samples, f"metrics of GPUs {gpu_metrics.ONLY_JSON}"))
    if of_tracers:
        found.append(NotTranslated(table, of_tracers, plugin_metrics.NO_METRIC))
    return found


def _obstacles(database: Database, schema_version: str) -> list[Obstacle]:
    """Columns that sources must have and the report lacks."""
    columns: dict[str, dict[str, None]] = {}
    sources: dict[str, dict[str, None]] = {}
    for source in SOURCES + DERIVED:
        for table in source.tables:
            if missing := database.list_missing(table):
                columns.setdefault(table.name, {}).update(dict.fromkeys(missing))
                sources.setdefault(table.name, {})[source.name] = None
    return [
        Obstacle(
            tuple(sources[table]),
            f"table {table} has no column {', '.join(missing)} (schema version {schema_version});"
            f" export the report again with another version of nsys, or leave out {', '.join(sources[table])}"
            " with --sources",
        )
        for table, missing in columns.items()
    ]


# ---- the export ------------------------------------------------------------------------------------------------------


def _exported(database: Database) -> dict[str, str]:
    """What the export says of how it was made."""
    frames = [database.frame(table, ["name", "value"]) for table in _OF_EXPORT]
    pairs = (pair for frame in frames for pair in zip(frame["name"], frame["value"], strict=True))
    return {str(name): str(value or "") for name, value in pairs}


def _parts(exported: Mapping[str, str]) -> list[str]:
    """A warning where only a part of the report was exported."""
    chosen = [f"{what} {exported[name]}" for name, what in _PARTS.items() if exported.get(name)]
    return [f"it is an export of a part of the report ({', '.join(chosen)})"] if chosen else []


def _lacks_payloads(exported: Mapping[str, str]) -> bool:
    """Whether an export of nsys 2026 or newer was made without what holds NVTX payloads there."""
    return exported.get("EXPORT_PARAM_INCLUDE_BLOBS") == "false" and exported.get("EXPORT_PARAM_INCLUDE_JSON") != "true"
