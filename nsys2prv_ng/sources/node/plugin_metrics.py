"""Samples of nsys's plugins, such as the bytes that passed a network interface: generic events of a type with fields.

Each type of each plugin's process is a row with the node's own task; a field is a metric by its name. Only the names of
a plugin and of its fields show what it samples and in which unit; its values are shown as they are.

Exports from 2024 on have the values as numbers. In older ones they are cut from a text of JSON for each event, which
takes several times as long; some thousand texts are in memory at once, and what is cut from them stays. Generic events
that hold metrics of GPUs or of the system on chip belong to other sources, and those of tracers (ftrace, hypervisor,
ETW) are no metrics.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from nsys2prv_ng.arrays import row_keys as keys
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.objects.places import NodePart
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.report.metadata import get_main_thread
from nsys2prv_ng.sources import source_names
from nsys2prv_ng.sources.node import cpu_counters, gpu_metrics
from nsys2prv_ng.sources.node.json_numbers import Values, convert_to_real, find_numbers, find_values
from nsys2prv_ng.sources.shared.reasons import NO_VALUES
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.samples import Block, Key, add_node_samples, make_block, scale_values
from nsys2prv_ng.sources.shared.source import EventRows, Source

_VALUES = "plugins"

EVENTS = Table(
    "GENERIC_EVENTS",
    ("typeId",),
    {"genericEventId": NULL, "timestamp": NULL, "rawTimestamp": NULL, "globalTid": NULL},
)
DATA = Table("GENERIC_EVENT_DATA", ("genericEventId", "fieldIdx"), {"intVal": NULL, "uintVal": NULL})
_REALS = Table(DATA.name, (), real=("floatVal", "doubleVal"))
FIELDS = Table("GENERIC_EVENT_TYPE_FIELDS", ("typeId", "fieldIdx"), {"fieldNameId": NULL, "type": NULL})
TYPES = Table("GENERIC_EVENT_TYPES", ("typeId", "sourceId"), {"nameId": NULL}, text=("data",))
SOURCES = Table("GENERIC_EVENT_SOURCES", ("sourceId",), {"nameId": NULL, "sourceGroupId": NULL}, text=("data",))

NO_METRIC = "no metric: an event of ftrace, a hypervisor or ETW"
_TRACERS = {1: "FTrace", 2: "NvMedia", 3: "Hypervisor", 4: "ETW"}
"""ENUM_NSYS_GENERIC_EVENT_GROUP: groups of sources that are not plugins."""

INTEGER, REAL, UNKNOWN = "integer", "real", "unknown"
KINDS = {0: INTEGER, 1: INTEGER, 2: REAL, 3: REAL}
"""The kinds of values by ENUM_NSYS_GENERIC_EVENT_FIELD_TYPE."""


@dataclass(frozen=True)
class _Descriptions:
    """The report's descriptions of types of generic events."""

    name: dict[int, str]
    """Name of each type; empty where it has none."""
    source: dict[int, str]
    """Name of the source of each type; empty where it has none."""
    fields: dict[Key, str]
    """Names of fields by type and index; empty where the export lacks the name."""
    listed: dict[int, list[str]]
    """Names of the fields of each type, in no order that matters."""
    kinds: dict[Key, str]
    """Whether fields are integers or real."""
    tracers: set[int]
    """Types whose events are no metrics."""

    def get_kind(self, field: Key) -> str:
        return self.kinds.get(field, UNKNOWN)

    def names_all(self, types: Iterable[int]) -> bool:
        """Return whether all fields of some types have a name by their index, and each type has fields."""
        named = {key[0]: True for key in self.fields}
        named |= {key[0]: False for key, name in self.fields.items() if not name}
        return all(named.get(type_id, False) for type_id in types)


def read(reader: ReportReader) -> Result:
    """Read a line for each event of a plugin."""
    result = Result()
    columns = reader.columns(EVENTS.name)
    if not columns.rows:
        return result
    described = _describe(reader)
    is_other, is_tracer = _mark_other_events(reader, described)
    result.read += int(is_tracer.sum())
    result.drop(NO_METRIC, int(is_tracer.sum()))
    events = np.flatnonzero(~is_other & ~is_tracer)
    if events.size:
        _add(reader, result, events, described)
    return result


def count_plugin_rows(reader: ReportReader) -> int:
    """Return the number of generic events that are values of plugins."""
    is_other, is_tracer = _mark_other_events(reader, _describe(reader))
    return int((~is_other & ~is_tracer).sum())


def count_tracer_rows(reader: ReportReader) -> int:
    """Return the number of generic events that tracers wrote."""
    return int(_mark_other_events(reader, _describe(reader))[1].sum())


def _mark_other_events(reader: ReportReader, described: _Descriptions) -> tuple[BoolArray, BoolArray]:
    """Mark the generic events that other sources read or report, and those of tracers."""
    soc_types = reader.columns(cpu_counters.SOC_NAMES.name)["typeId"]
    type_id = reader.columns(EVENTS.name)["typeId"]
    is_other = np.isin(type_id, np.concatenate([gpu_metrics.read_json_types(reader), soc_types]))
    return is_other, np.isin(type_id, sorted(described.tracers)) & ~is_other


def _add(reader: ReportReader, result: Result, events: IntArray, described: _Descriptions) -> None:
    columns = reader.columns(EVENTS.name)
    time = np.where(columns["timestamp"] != NULL, columns["timestamp"], columns["rawTimestamp"])[events]
    type_id, thread = columns["typeId"][events], columns["globalTid"][events]
    process = np.where(thread != NULL, thread >> 24, NULL)
    plugin_events = _Events(columns["genericEventId"][events], time, type_id, process)
    values = None
    if not (reader.has(DATA.name) and described.names_all(np.unique(type_id).tolist())):
        values = _read_texts(reader, events, plugin_events, described)
    values = values or _read_numbers(reader, result, plugin_events, described)

    def make_row(device: Key) -> NodePart | None:
        return None if device[0] == NULL else NodePart(_name_row(reader, described, *device), device, is_own=True)

    def make_metric(kind: Key) -> EventType | None:
        if NULL in kind:
            return None
        name, unit = families.split_name_and_unit(values.names.get(kind) or f"field {kind[1]}")
        return families.make_node_metric(source_names.PLUGIN_METRICS, f"Plugin: {name}", unit, real=kind in values.real)

    add_node_samples(reader, result, values.blocks, make_row, make_metric, _VALUES)


def _name_row(reader: ReportReader, described: _Descriptions, type_id: int, process: int) -> str:
    """Return the name of the plugin's process where that is known, else of its source, and that of the type."""
    metadata = reader.metadata
    name = described.source.get(type_id) or "plugin"
    if process in metadata.processes or get_main_thread(process) in metadata.threads:
        name = metadata.get_process_name(process)
    return f"{name} {described.name.get(type_id, '')}".strip()


@dataclass(frozen=True)
class _Events:
    """n events of plugins: id (NULL in old exports), time (ns), type and process (NULL: unknown)."""

    id: IntArray
    time: IntArray
    type_id: IntArray
    process: IntArray

    def make_block(self, event: IntArray, field: IntArray, value: IntArray) -> Block:
        """Make a block of values by the index of their event, skipping values of no event of a plugin (-1)."""
        if (event < 0).any():
            known = np.flatnonzero(event >= 0)
            event, field, value = event[known], field[known], value[known]
        type_id = self.type_id[event]
        return make_block(self.time[event], [type_id, self.process[event]], [type_id, field], value)


class _PluginValues(NamedTuple):
    """Values of events, the names of their fields, and the fields with real numbers."""

    blocks: list[Block]
    names: Mapping[Key, str]
    real: set[Key]


# ---- values as numbers -----------------------------------------------------------------------------------------------


def _read_numbers(reader: ReportReader, result: Result, events: _Events, described: _Descriptions) -> _PluginValues:
    """Read the values from their table. Events without values are dropped."""
    order = np.argsort(events.id, kind="stable")
    ids = events.id[order]
    has_values = np.zeros(ids.size, np.bool_)

    def find_event(wanted: IntArray) -> IntArray:
        at = np.minimum(np.searchsorted(ids, wanted), ids.size - 1)
        event = np.where((ids[at] == wanted) & (wanted != NULL), order[at], -1)
        has_values[event[event >= 0]] = True
        return event

    def make_value_block(columns: Columns) -> Block:
        return events.make_block(find_event(columns["genericEventId"]), columns["fieldIdx"], _merge_integers(columns))

    types = np.unique(events.type_id).tolist()
    kinds = {key: described.get_kind(key) for key in described.fields if key[0] in types}
    if set(kinds.values()) == {INTEGER} and {key[0] for key in kinds} == set(types):
        values = _PluginValues(reader.read_by_block(DATA.name, make_value_block), described.fields, set())
    else:
        columns = reader.columns(DATA.name)
        values = _read_reals(reader, columns, events, find_event(columns["genericEventId"]), described)
    without = int((~has_values).sum())
    result.read += without
    result.drop(NO_VALUES, without)
    return values


def _merge_integers(columns: Columns) -> IntArray:
    return np.where(columns["intVal"] != NULL, columns["intVal"], columns["uintVal"])


def _read_reals(
    reader: ReportReader, columns: Columns, events: _Events, event: IntArray, described: _Descriptions
) -> _PluginValues:
    """Read all values. A field is real by its type, or because some value is."""
    value = _merge_integers(columns)
    reals = reader.read(_REALS).reals
    given = np.where(np.isnan(reals["doubleVal"]), reals["floatVal"], reals["doubleVal"])
    known = np.flatnonzero(event >= 0)
    code, first = keys.encode_rows(events.type_id[event[known]], columns["fieldIdx"][known])
    kinds = [(int(events.type_id[event[row]]), int(columns["fieldIdx"][row])) for row in known[first]]
    has_reals = np.zeros(len(kinds), np.bool_)
    has_reals[code[(value[known] == NULL) & ~np.isnan(given[known])]] = True
    is_real = np.array(
        [
            described.get_kind(kind) == REAL or (any_real and described.get_kind(kind) == UNKNOWN)
            for kind, any_real in zip(kinds, has_reals.tolist(), strict=True)
        ],
        np.bool_,
    )
    rows = known[is_real[code]]
    whole = np.where(value[rows] != NULL, value[rows].astype(np.float64), np.nan)
    value[rows] = scale_values(np.where(np.isnan(given[rows]), whole, given[rows]))
    block = events.make_block(event, columns["fieldIdx"], value)
    real: set[Key] = {kind for kind, kind_is_real in zip(kinds, is_real.tolist(), strict=True) if kind_is_real}
    return _PluginValues([block], described.fields, real)


# ---- values in texts -------------------------------------------------------------------------------------------------


class _CutValues(NamedTuple):
    """Values of events of one type, by field: signed integers, or real numbers as `scale_values` returns them."""

    event: IntArray
    fields: list[Key]
    values: list[Values]


class _Cutter:
    """Cuts values from one block of texts after the other, all in the order of the table."""

    def __init__(self, rows: IntArray, events: _Events, described: _Descriptions) -> None:
        self._rows = rows
        self._events = events
        self._described = described
        self._start = 0
        self._fields: dict[int, list[tuple[Key, str]]] = {}
        self.real: set[Key] = set()
        self.has_text = False

    def __call__(self, texts: pa.Array) -> list[_CutValues]:
        low, high = np.searchsorted(self._rows, [self._start, self._start + len(texts)])
        rows = self._rows[low:high] - self._start
        self._start += len(texts)
        if not self.has_text and texts.null_count < len(texts):
            self.has_text = bool(texts.is_valid().to_numpy(zero_copy_only=False)[rows].any())
        type_ids = self._events.type_id[low:high]
        cuts = []
        for type_id in np.unique(type_ids).tolist():
            events = np.flatnonzero(type_ids == type_id)
            cuts.append(self._cut(type_id, events + low, texts, rows[events]))
        return cuts

    def _cut(self, type_id: int, event: IntArray, texts: pa.Array, rows: IntArray) -> _CutValues:
        fields = self._find_fields(type_id, texts, rows)
        distinct = list(dict.fromkeys(name for _, name in fields))
        numbers = dict(zip(distinct, find_numbers(texts, rows, distinct), strict=True))
        values = [find_values(numbers[name], self._described.get_kind(key) == REAL) for key, name in fields]
        self.real.update(key for (key, _), field_values in zip(fields, values, strict=True) if field_values.is_real)
        return _CutValues(event, [key for key, _ in fields], values)

    def _find_fields(self, type_id: int, texts: pa.Array, rows: IntArray) -> list[tuple[Key, str]]:
        """Return the fields of a type and their names; none until a text shows some."""
        if not self._fields.get(type_id):
            described = self._described
            if described.names_all([type_id]):
                fields = [(key, name) for key, name in sorted(described.fields.items()) if key[0] == type_id]
            else:
                listed = described.listed.get(type_id) or _find_names_in_text(texts.take(pa.array(rows)))
                fields = [((type_id, i), name) for i, name in enumerate(listed)]
            self._fields[type_id] = fields
        return self._fields[type_id]

    def names(self) -> dict[Key, str]:
        return {key: name for fields in self._fields.values() for key, name in fields}

    def make_block(self, cut: _CutValues) -> Block:
        """Make a block of the values of all fields. Those of a field are real numbers if one is in any block."""
        # An event without a field is still an event, and its value is missing.
        values = np.full((cut.event.size, max(len(cut.fields), 1)), NULL, np.int64)
        for i, (key, column) in enumerate(zip(cut.fields, cut.values, strict=True)):
            values[:, i] = convert_to_real(column) if key in self.real and not column.is_real else column.value
        index = np.array([key[1] for key in cut.fields] or [0], np.int64)
        return self._events.make_block(np.repeat(cut.event, index.size), np.tile(index, cut.event.size), values.ravel())


def _read_texts(
    reader: ReportReader, rows: IntArray, events: _Events, described: _Descriptions
) -> _PluginValues | None:
    """Cut values from the texts of events in these rows; None if only the table of values has any."""
    cutter = _Cutter(rows, events, described)
    cuts = reader.read_texts_by_block(EVENTS.name, "data", cutter)
    if not cutter.has_text and reader.has(DATA.name):
        return None
    blocks: list[Block] = []
    for i, block_cuts in enumerate(cuts):
        blocks.extend(map(cutter.make_block, block_cuts))
        cuts[i] = []
    return _PluginValues(blocks, cutter.names(), cutter.real)


def _find_names_in_text(texts: pa.Array) -> list[str]:
    """Return the names of the fields of a type that is not described, by the first text that has any."""
    return next((list(members) for text in texts.unique().to_pylist() if (members := _parse_json(text))), [])


# ---- descriptions ----------------------------------------------------------------------------------------------------


def _describe(reader: ReportReader) -> _Descriptions:
    """Return the descriptions in the tables of sources, types and fields, or in the JSON there."""
    return reader.once(_read_descriptions)


def _read_descriptions(reader: ReportReader) -> _Descriptions:
    sources, types, fields = (reader.columns(table.name) for table in (SOURCES, TYPES, FIELDS))
    name_of_source, tracer_sources = {}, set()
    for source, name, group, text in zip(
        sources["sourceId"].tolist(),
        reader.strings.get_names(sources["nameId"]),
        sources["sourceGroupId"].tolist(),
        sources.texts["data"].to_pylist(),
        strict=True,
    ):
        members = _parse_json(text)
        name_of_source[source] = name or _get_text(members.get("Name"))
        if group in _TRACERS or members.get("SourceGroup") in _TRACERS.values():
            tracer_sources.add(source)
    described = _Descriptions({}, {}, {}, {}, {}, set())
    for type_id, source, name, text in zip(
        types["typeId"].tolist(),
        types["sourceId"].tolist(),
        reader.strings.get_names(types["nameId"]),
        types.texts["data"].to_pylist(),
        strict=True,
    ):
        members = _parse_json(text)
        described.name[type_id] = name or _get_text(members.get("Name"))
        described.source[type_id] = name_of_source.get(source, "")
        if source in tracer_sources:
            described.tracers.add(type_id)
        listed = members.get("Fields")
        names = (
            [_get_text(field.get("Name")) for field in listed if isinstance(field, dict)]
            if isinstance(listed, list)
            else []
        )
        described.listed[type_id] = [field_name for field_name in names if field_name]
    names = reader.strings.get_names(fields["fieldNameId"])
    kinds = zip(fields["typeId"].tolist(), fields["fieldIdx"].tolist(), strict=True)
    for kind, name, type_of_field in zip(kinds, names, fields["type"].tolist(), strict=True):
        described.fields[kind] = name
        if type_of_field in KINDS:
            described.kinds[kind] = KINDS[type_of_field]
    return described


def _parse_json(text: str | None) -> dict[str, object]:
    """Return an object of JSON; an empty one for anything else."""
    try:
        parsed = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _get_text(value: object) -> str:
    return value if isinstance(value, str) else ""


SOURCE = Source(
    source_names.PLUGIN_METRICS,
    "Metrics of nsys's plugins",
    (EVENTS, DATA, FIELDS, TYPES, SOURCES, gpu_metrics.NAMES, cpu_counters.SOC_NAMES),
    read,
    counted_tables=(EventRows(EVENTS.name, count=count_plugin_rows),),
    noun="events",
)
