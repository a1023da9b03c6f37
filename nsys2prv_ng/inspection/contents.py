"""Finds the contents of one report without reading events: counts rows, and reads the columns of their processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.objects.places import Places
from nsys2prv_ng.reading.unread_tables import count_events, list_unread_tables
from nsys2prv_ng.report.database import NULL, Columns, Database, Table, open_database
from nsys2prv_ng.report.diagnostics import KINDS, Diagnostics, read_diagnostics
from nsys2prv_ng.report.export_settings import describe_payload_remedy, read_export_settings
from nsys2prv_ng.report.metadata import Metadata, Strings, get_main_thread, get_process, read_metadata
from nsys2prv_ng.report.nvtx_payload import LINKS, SCHEMAS
from nsys2prv_ng.sources.cuda.device_operations import GRAPH, KERNEL
from nsys2prv_ng.sources.cuda.stream_operations import GRAPH_COLUMNS
from nsys2prv_ng.sources.node import gpu_metrics, plugin_metrics
from nsys2prv_ng.sources.registry import DERIVED, SOURCES
from nsys2prv_ng.sources.shared.reasons import NO_METRIC, ONLY_JSON
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import EventRows
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from nsys2prv_ng.value_class import ValueClass

COUNTED_SOURCES = tuple(source for source in SOURCES if source.counted_tables)
"""Sources that have their own rows."""
NO_SOURCE = "no source reads this table"
NO_PAYLOADS = "the export lacks the payloads of NCCL's calls"

_GRAPH_NODE = GRAPH_COLUMNS[0]


class UntranslatedRows(ValueClass):
    """Rows that no trace shows: their number (None if they cannot be counted), and the reason."""

    table: str
    rows: int | None
    why: str


class Obstacle(ValueClass):
    """The reason why a report cannot be translated with all sources, and the sources without which it can."""

    sources: tuple[str, ...]
    why: str


class ReportContents(ValueClass):
    """The contents of a report: its rows by source and by event table, and the processes that they belong to."""

    metadata: Metadata
    places: Places
    """A main thread for each process that would be a task, a stream for each of its devices."""
    sources: dict[str, int]
    """Number of rows of each source that has its own rows."""
    tables: dict[str, int]
    """Number of rows of each table of the sources in the report."""
    derived: tuple[str, ...]
    """Sources that a translation would derive from the rows of other sources."""
    not_translated: list[UntranslatedRows]
    obstacles: list[Obstacle]
    diagnostics: Diagnostics
    warnings: list[str]
    graphs: list[str]
    """How CUDA graphs were traced: kinds of report/diagnostics.py."""


def read_contents(path: Path) -> ReportContents:
    """Read the contents of an export. Raises ReportError if it cannot be read."""
    with open_database(path) as database:
        return _read_contents(database)


def _read_contents(database: Database) -> ReportContents:
    strings = Strings(database)
    metadata = read_metadata(database, strings)
    export_settings = read_export_settings(database)
    places = Places()
    sources = {source.name: 0 for source in COUNTED_SOURCES}
    for source in COUNTED_SOURCES:
        for rows in source.counted_tables:
            is_complete = database.count_rows(rows.table) and not any(map(database.list_missing, source.tables))
            if rows.count is not None and is_complete:
                reader = ReportReader(database, metadata, strings, {source.name: source.tables}, SourceOptions())
                sources[source.name] += rows.count(reader)
            elif not (rows.otherwise and sources[source.name]):
                sources[source.name] += _count_and_place(database, strings, rows, places)
    derived = (
        source.name
        for source in SOURCES + DERIVED
        if source.needed_tables and all(any(map(database.count_rows, group)) for group in source.needed_tables)
    )
    tables = {rows.table for source in COUNTED_SOURCES for rows in source.counted_tables} & database.tables
    not_translated = _find_untranslated(database, metadata, strings)
    asked = [export_settings.get(f"EXPORT_PARAM_INCLUDE_{form}") for form in ("BLOBS", "JSON")]
    without = "false" in asked and "true" not in asked and not database.count_rows(LINKS.name)
    if sources[source_names.NCCL] and without and database.count_rows(SCHEMAS.name):
        why = f"{NO_PAYLOADS}; {describe_payload_remedy([metadata.schema_version])}"
        not_translated.append(UntranslatedRows("NVTX_EVENTS", sources[source_names.NCCL], why))
    return ReportContents(
        metadata=metadata,
        places=places,
        sources=sources,
        tables={table: database.count_rows(table) for table in sorted(tables)},
        derived=tuple(derived),
        not_translated=not_translated,
        obstacles=_find_obstacles(database, metadata.schema_version),
        diagnostics=read_diagnostics(database),
        warnings=metadata.warnings,
        graphs=_list_traced_graphs(database),
    )


# ---- rows of sources -------------------------------------------------------------------------------------------------


def _count_and_place(database: Database, strings: Strings, rows: EventRows, places: Places) -> int:
    """Count the rows, and register their processes and devices in `places`."""
    if not database.count_rows(rows.table) or not rows.process:
        return database.count_rows(rows.table)
    ids = strings.find_matching_ids(rows.names.fullmatch) if rows.names is not None else None
    if ids == []:
        return 0
    columns = [*rows.process_columns, *([rows.device] if rows.device else []), *(["textId"] if ids is not None else [])]
    # Missing columns are not an error here: if a source requires them, they are reported as obstacles.
    table = Table(rows.table, (), dict.fromkeys(columns, NULL))
    blocks = database.read_by_block(table, "", lambda block: _read_block(block, rows, ids))
    pairs = sorted({pair for _, block_pairs in blocks for pair in block_pairs})
    _register_places(rows, np.array(pairs, np.int64).reshape(-1, 2), places)
    return database.count_rows(rows.table) if ids is None else sum(count for count, _ in blocks)


def _read_block(columns: Columns, rows: EventRows, ids: Sequence[int] | None) -> tuple[int, list[tuple[int, ...]]]:
    """Return the number of rows (with one of the names, if given), and the distinct (process, device) pairs.

    The pairs come from rows that make a task.
    """
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


def _register_places(rows: EventRows, pairs: IntArray, places: Places) -> None:
    """Register processes, by their main threads, and their devices in `places`. `pairs` (n x 2): process, device."""
    process, device = pairs.T
    if not process.size:
        return
    main = get_main_thread(process)
    places.threads(main, application=rows.application, system_calls=rows.system_calls)
    if rows.device:
        none = np.zeros(process.size, np.int64)
        places.streams(process, device, none, none, none)


def _list_traced_graphs(database: Database) -> list[str]:
    """Return how CUDA graphs were traced: as kernels with a node id, as whole graphs, or both."""
    table = Table(KERNEL, (), {_GRAPH_NODE: NULL})
    has_nodes = _GRAPH_NODE in database.list_columns(KERNEL) and not all(
        database.read_by_block(table, "", lambda block: bool(np.isin(block[_GRAPH_NODE], (NULL, 0)).all()))
    )
    return [kind for kind, is_there in zip(KINDS, (has_nodes, database.count_rows(GRAPH) > 0), strict=True) if is_there]


# ---- rows that no trace shows ----------------------------------------------------------------------------------------


def _find_untranslated(database: Database, metadata: Metadata, strings: Strings) -> list[UntranslatedRows]:
    """Return the event rows that no source reads. Such a table does not prevent a translation if it cannot be read."""
    untranslated = []
    for table in list_unread_tables(database):
        try:
            rows = count_events(database, table)
        except ReportError:
            untranslated.append(UntranslatedRows(table, None, "cannot be read, but no source needs this table"))
            continue
        if rows:
            untranslated.append(UntranslatedRows(table, rows, NO_SOURCE))
    return untranslated + _find_untranslated_generic(database, metadata, strings)


def _find_untranslated_generic(database: Database, metadata: Metadata, strings: Strings) -> list[UntranslatedRows]:
    """Return the generic events that no source reads.

    These are GPU and plugin metrics in exports that contain them only as JSON, and tracer events.
    """
    table = gpu_metrics.GENERIC.name
    rows = database.count_rows(table)
    sources = gpu_metrics.SOURCE, plugin_metrics.SOURCE
    if not rows or any(database.list_missing(needed) for source in sources for needed in source.tables):
        return []  # missing columns are reported as an obstacle
    reader = ReportReader(database, metadata, strings, {s.name: s.tables for s in sources}, SourceOptions())
    gpu_rows = 0 if reader.has(gpu_metrics.METRICS) else gpu_metrics.read_json_samples(reader)
    found = (
        (gpu_rows, f"metrics of GPUs {ONLY_JSON}"),
        (plugin_metrics.count_plugin_rows(reader, as_json=True), f"metrics of plugins {ONLY_JSON}"),
        (plugin_metrics.count_tracer_rows(reader), NO_METRIC),
    )
    return [UntranslatedRows(table, count, why) for count, why in found if count]


def _find_obstacles(database: Database, schema_version: str) -> list[Obstacle]:
    """Return one obstacle per table that lacks columns which sources require."""
    tables = [(table, source.name) for source in SOURCES + DERIVED for table in source.tables]
    lacking = [(table.name, column, source) for table, source in tables for column in database.list_missing(table)]
    obstacles = []
    for table in dict.fromkeys(table for table, *_ in lacking):
        missing, sources = (tuple(dict.fromkeys(row[i] for row in lacking if row[0] == table)) for i in (1, 2))
        why = f"table {table} has no column {', '.join(missing)} (schema version {schema_version}); export the report"
        why += f" again with another version of nsys, or translate without the sources {', '.join(sources)}"
        obstacles.append(Obstacle(sources, why))
    return obstacles
