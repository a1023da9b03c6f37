"""Reads samples of nsys's plugins, such as the bytes through a network interface: generic events of a type with fields.

Each type of each plugin process is a row in the task of the node; a field is a metric, identified by its name. Only the
names of a plugin and its fields show what it samples and in which unit, so values are shown as they are.

Exports from 2024 on contain the values as numbers. Older exports contain them only as JSON: their events are dropped,
because a newer nsys exports the same report with numbers. Generic events with metrics of GPUs or of the system on chip
belong to other sources, and the events of tracers (ftrace, hypervisor, ETW) are not metrics.
"""

from __future__ import annotations

from itertools import compress
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays import row_keys as keys
from nsys2prv_ng.arrays.types import BoolArray, IntArray, mark
from nsys2prv_ng.objects.places import NodePart
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.report.metadata import get_main_thread
from nsys2prv_ng.sources.node import gpu_metrics, hardware_counters
from nsys2prv_ng.sources.shared.reasons import NO_METRIC, NO_VALUES, ONLY_JSON
from nsys2prv_ng.sources.shared.report_reader import ReportReader, parse_json
from nsys2prv_ng.sources.shared.samples import Block, Key, add_node_samples, get_times, make_block, scale_values
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source

EVENTS = Table(
    "GENERIC_EVENTS", ("typeId",), {"genericEventId": NULL, "timestamp": NULL, "rawTimestamp": NULL, "globalTid": NULL}
)
DATA = Table("GENERIC_EVENT_DATA", ("genericEventId", "fieldIdx"), {"intVal": NULL, "uintVal": NULL})
_REALS = Table(DATA.name, (), real=("floatVal", "doubleVal"))
FIELDS = Table("GENERIC_EVENT_TYPE_FIELDS", ("typeId", "fieldIdx"), {"fieldNameId": NULL, "type": NULL})
TYPES = Table("GENERIC_EVENT_TYPES", ("typeId", "sourceId"), {"nameId": NULL}, text=("data",))
SOURCES = Table("GENERIC_EVENT_SOURCES", ("sourceId",), {"nameId": NULL, "sourceGroupId": NULL}, text=("data",))

_TRACERS = {1: "FTrace", 2: "NvMedia", 3: "Hypervisor", 4: "ETW"}
"""ENUM_NSYS_GENERIC_EVENT_GROUP: groups of sources that are not plugins."""

_IS_REAL = {0: False, 1: False, 2: True, 3: True}
"""Whether values are real numbers, by ENUM_NSYS_GENERIC_EVENT_FIELD_TYPE."""


class _Descriptions(NamedTuple):
    """The report's descriptions of types of generic events.

    The names of types and of the sources of types (empty if there is none), the names of fields by type and index, and
    whether fields are real numbers, if the report describes this. `tracers`: types whose events are not metrics.
    """

    name: dict[int, str]
    source: dict[int, str]
    fields: dict[Key, str]
    is_real: dict[Key, bool]
    tracers: set[int]


def read(reader: ReportReader) -> Result:
    """Return a line for each event of a plugin."""
    result = Result()
    if not reader.columns(EVENTS.name).rows:
        return result
    rows = np.flatnonzero(reader.once(_divide_events)[0])
    only_json = count_plugin_rows(reader, as_json=True)
    result.read += count_tracer_rows(reader) + only_json
    result.drop(NO_METRIC, count_tracer_rows(reader))
    result.drop(ONLY_JSON, only_json)
    if rows.size and not only_json:
        _add(reader, result, rows)
    return result


def count_plugin_rows(reader: ReportReader, *, as_json: bool = False) -> int:
    """Return the number of plugin values that are read, or that the export contains only as JSON."""
    return int(reader.once(_divide_events)[0].sum()) if reader.has(DATA.name) != as_json else 0


def count_tracer_rows(reader: ReportReader) -> int:
    """Return the number of generic events that tracers wrote."""
    return int(reader.once(_divide_events)[1].sum())


def _divide_events(reader: ReportReader) -> tuple[BoolArray, BoolArray]:
    """Mark the generic events that are values of plugins, and events of tracers. Other sources read or report the rest.

    Call it through `reader.once`.
    """
    soc_types = reader.columns(hardware_counters.SOC_NAMES.name)["typeId"]
    type_id = reader.columns(EVENTS.name)["typeId"]
    is_other = np.isin(type_id, np.concatenate([gpu_metrics.read_json_types(reader), soc_types]))
    is_tracer = np.isin(type_id, sorted(reader.once(_read_descriptions).tracers)) & ~is_other
    return ~is_other & ~is_tracer, is_tracer


def _add(reader: ReportReader, result: Result, rows: IntArray) -> None:
    columns, described = reader.columns(EVENTS.name), reader.once(_read_descriptions)
    number, type_id, thread = (columns[name][rows] for name in ("genericEventId", "typeId", "globalTid"))
    events = _Events(number, get_times(columns)[rows], type_id, np.where(thread != NULL, thread >> 24, NULL))
    blocks, real = _read_values(reader, result, events, described)

    def make_row(device: Key) -> NodePart | None:
        return None if device[0] == NULL else NodePart(_name_row(reader, described, *device), device, is_local=True)

    def make_metric(kind: Key) -> EventType:
        name, unit = families.split_name_and_unit(described.fields.get(kind) or f"field {kind[1]}")
        return families.make_node_metric(source_names.PLUGIN_METRICS, f"Plugin: {name}", unit, real=kind in real)

    add_node_samples(reader, result, blocks, make_row, make_metric, "plugins")


def _name_row(reader: ReportReader, described: _Descriptions, type_id: int, process: int) -> str:
    """Return the name of the plugin's process if it is known, else of its source, followed by the name of the type."""
    metadata = reader.metadata
    name = described.source.get(type_id) or "plugin"
    if process in metadata.processes or get_main_thread(process) in metadata.threads:
        name = metadata.get_process_name(process)
    return f"{name} {described.name.get(type_id, '')}".strip()


# ---- values ----------------------------------------------------------------------------------------------------------


class _Events(NamedTuple):
    """n events of plugins: id, time (ns), type and process (NULL if it is unknown)."""

    id: IntArray
    time: IntArray
    type_id: IntArray
    process: IntArray

    def make_block(self, event: IntArray, field: IntArray, value: IntArray) -> Block:
        """Make a block of values, given the index of their event; skip values that belong to no plugin event (-1)."""
        if (event < 0).any():
            known = np.flatnonzero(event >= 0)
            event, field, value = event[known], field[known], value[known]
        type_id = self.type_id[event]
        return make_block(self.time[event], [type_id, self.process[event]], [type_id, field], value)


def _read_values(
    reader: ReportReader, result: Result, events: _Events, described: _Descriptions
) -> tuple[list[Block], set[Key]]:
    """Return the values of events, and the fields with real numbers; drop events without values."""
    order = np.argsort(events.id, kind="stable")
    ids = events.id[order]
    has_values = np.zeros(ids.size, np.bool_)

    def find_event(wanted: IntArray) -> IntArray:
        at = np.minimum(np.searchsorted(ids, wanted), ids.size - 1)
        event = np.where((ids[at] == wanted) & (wanted != NULL), order[at], -1)
        has_values[event[event >= 0]] = True
        return event

    def make_integer_block(columns: Columns) -> Block:
        return events.make_block(find_event(columns["genericEventId"]), columns["fieldIdx"], _merge_integers(columns))

    types = set(events.type_id.tolist())
    is_real = {key: described.is_real.get(key) for key in described.fields if key[0] in types}
    real: set[Key] = set()
    if set(is_real.values()) == {False} and {key[0] for key in is_real} == types:
        blocks = reader.read_by_block(DATA.name, make_integer_block)
    else:
        columns = reader.columns(DATA.name)
        block, real = _read_reals(reader, columns, events, find_event(columns["genericEventId"]), described)
        blocks = [block]
    result.read += int((~has_values).sum())
    result.drop(NO_VALUES, int((~has_values).sum()))
    return blocks, real


def _merge_integers(columns: Columns) -> IntArray:
    return np.where(columns["intVal"] != NULL, columns["intVal"], columns["uintVal"])


def _read_reals(
    reader: ReportReader, columns: Columns, events: _Events, event: IntArray, described: _Descriptions
) -> tuple[Block, set[Key]]:
    """Read all values. A field is real if its type is, or, without a type, if one of its values is."""
    value = _merge_integers(columns)
    reals = reader.read(_REALS).reals
    given = np.where(np.isnan(reals["doubleVal"]), reals["floatVal"], reals["doubleVal"])
    known = np.flatnonzero(event >= 0)
    code, fields = keys.find_distinct_rows(events.type_id[event[known]], columns["fieldIdx"][known])
    has_reals = mark(code[(value[known] == NULL) & ~np.isnan(given[known])], len(fields))
    is_real = [described.is_real.get(*field) for field in zip(fields, has_reals.tolist(), strict=True)]
    rows = known[np.array(is_real, np.bool_)[code]]
    whole = np.where(value[rows] != NULL, value[rows].astype(np.float64), np.nan)
    value[rows] = scale_values(np.where(np.isnan(given[rows]), whole, given[rows]))
    return events.make_block(event, columns["fieldIdx"], value), set(compress(fields, is_real))


# ---- descriptions ----------------------------------------------------------------------------------------------------


def _read_descriptions(reader: ReportReader) -> _Descriptions:
    """Read the descriptions from the columns, or else the JSON, of the tables of sources, types and fields."""
    source_texts, type_texts, field_texts = (
        reader.strings.get_names(reader.columns(table.name)[name])
        for table, name in ((SOURCES, "nameId"), (TYPES, "nameId"), (FIELDS, "fieldNameId"))
    )
    name_of_source, tracer_sources = {}, set()
    sources = reader.list_rows(SOURCES.name, "sourceId", "sourceGroupId", "data")
    for name, (source, group, text) in zip(source_texts, sources, strict=True):
        members = parse_json(text) or {}
        name_of_source[source] = name or _get_text(members.get("Name"))
        if group in _TRACERS or members.get("SourceGroup") in _TRACERS.values():
            tracer_sources.add(source)
    described = _Descriptions({}, {}, {}, {}, set())
    types = reader.list_rows(TYPES.name, "typeId", "sourceId", "data")
    for name, (type_id, source, text) in zip(type_texts, types, strict=True):
        members = parse_json(text) or {}
        described.name[type_id] = name or _get_text(members.get("Name"))
        described.source[type_id] = name_of_source.get(source, "")
        if source in tracer_sources:
            described.tracers.add(type_id)
        listed = members.get("Fields")
        for index, field in enumerate(listed if isinstance(listed, list) else []):
            described.fields[type_id, index] = _get_text(field.get("Name")) if isinstance(field, dict) else ""
    fields = reader.list_rows(FIELDS.name, "typeId", "fieldIdx", "type")
    for name, (type_id, index, field_type) in zip(field_texts, fields, strict=True):
        described.fields[type_id, index] = name or described.fields.get((type_id, index), "")
        if field_type in _IS_REAL:
            described.is_real[type_id, index] = _IS_REAL[field_type]
    return described


def _get_text(value: object) -> str:
    return value if isinstance(value, str) else ""


SOURCE = Source(
    source_names.PLUGIN_METRICS,
    "Metrics of nsys's plugins",
    (EVENTS, DATA, FIELDS, TYPES, SOURCES, gpu_metrics.NAMES, hardware_counters.SOC_NAMES),
    read,
    counted_tables=(EventRows(EVENTS.name, count=count_plugin_rows),),
    noun="events",
)
