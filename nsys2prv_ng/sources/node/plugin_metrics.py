"""What plugins of nsys sampled, as the bytes that passed a network interface: generic events, of a type with fields.

Each type of each plugin's process is a row with the node's own task; a field is a metric by its name. A plugin tells
neither units nor what it watches, but in its name and those of its fields, and its values are shown as they are.

Exports from 2024 on have the values as numbers; in older ones they are cut from a text of JSON for each event, which
takes several times as long. Some thousand texts are in memory at once, and what is cut from them stays. Generic events
that hold metrics of GPUs or of the system on chip are the business of others, and those of tracers (ftrace, hypervisor,
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
from nsys2prv_ng.sources.node import cpu_counters, gpu_metrics
from nsys2prv_ng.sources.node.json_numbers import Values, convert_to_real, find_numbers, find_values
from nsys2prv_ng.sources.shared.reasons import NO_VALUES
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.samples import Block, Key, add_node_samples, make_block, scale_values
from nsys2prv_ng.sources.shared.source import EventRows, Source

NAME = "plugin_metrics"
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
"""ENUM_NSYS_GENERIC_EVENT_GROUP: groups of sources that are no plugins."""

INTEGER, REAL, UNKNOWN = "integer", "real", "unknown"
KINDS = {0: INTEGER, 1: INTEGER, 2: REAL, 3: REAL}
"""What ENUM_NSYS_GENERIC_EVENT_FIELD_TYPE says of a field's values."""


@dataclass(frozen=True)
class _Described:
    """What the report says of types of generic events."""

    name: dict[int, str]
    """Name of each type, empty where it has none."""
    source: dict[int, str]
    """Name of the source of each type, likewise."""
    fields: dict[Key, str]
    """Names of fields by type and index; empty where the export lacks the name."""
    listed: dict[int, list[str]]
    """Names of the fields of each type, in no order that matters."""
    kinds: dict[Key, str]
    """Whether fields are integers or real."""
    tracers: set[int]
    """Types whose events are no metrics."""

    def kind_of(self, field: Key) -> str:
        return self.kinds.get(field, UNKNOWN)

    def names_all(self, types: Iterable[int]) -> bool:
        """Whether all fields of some types have a name by their index, and each type some."""
        named = {key[0]: True for key in self.fields}
        named |= {key[0]: False for key, name in self.fields.items() if not name}
        return all(named.get(type_id, False) for type_id in types)


def read(reader: ReportReader) -> Result:
    """A line for each event of a plugin."""
    result = Result()
    columns = reader.columns(EVENTS.name)
    if not columns.rows:
        return result
    described = _described(reader)
    of_others, of_tracers = _not_of_plugins(reader, described)
    result.read += int(of_tracers.sum())
    result.drop(NO_METRIC, int(of_tracers.sum()))
    events = np.flatnonzero(~of_others & ~of_tracers)
    if events.size:
        _add(reader, result, events, described)
    return result


def count_plugin_rows(reader: ReportReader) -> int:
    """Number of generic events that are values of plugins."""
    of_others, of_tracers = _not_of_plugins(reader, _described(reader))
    return int((~of_others & ~of_tracers).sum())


def count_tracer_rows(reader: ReportReader) -> int:
    """Number of those that tracers wrote."""
    return int(_not_of_plugins(reader, _described(reader))[1].sum())


def _not_of_plugins(reader: ReportReader, described: _Described) -> tuple[BoolArray, BoolArray]:
    """Events that other sources read, or tell of, and those of tracers."""
    of_soc = reader.columns(cpu_counters.SOC_NAMES.name)["typeId"]
    type_id = reader.columns(EVENTS.name)["typeId"]
    of_others = np.isin(type_id, np.concatenate([gpu_metrics.read_json_types(reader), of_soc]))
    return of_others, np.isin(type_id, sorted(described.tracers)) & ~of_others


def _add(reader: ReportReader, result: Result, events: IntArray, described: _Described) -> None:
    columns = reader.columns(EVENTS.name)
    time = np.where(columns["timestamp"] != NULL, columns["timestamp"], columns["rawTimestamp"])[events]
    type_id, thread = columns["typeId"][events], columns["globalTid"][events]
    process = np.where(thread != NULL, thread >> 24, NULL)
    of_events = _Events(columns["genericEventId"][events], time, type_id, process)
    found = None
    if not (reader.has(DATA.name) and described.names_all(np.unique(type_id).tolist())):
        found = _of_texts(reader, events, of_events, described)
    found = found or _of_numbers(reader, result, of_events, described)

    def row(device: Key) -> NodePart | None:
        return None if device[0] == NULL else NodePart(_row(reader, described, *device), device, is_own=True)

    def metric(kind: Key) -> EventType | None:
        if NULL in kind:
            return None
        name, unit = families.split_name_and_unit(found.names.get(kind) or f"field {kind[1]}")
        return families.make_node_metric(NAME, f"Plugin: {name}", unit, real=kind in found.real)

    add_node_samples(reader, result, found.blocks, row, metric, _VALUES)


def _row(reader: ReportReader, described: _Described, type_id: int, process: int) -> str:
    """Name of the plugin's process where that is known, else of its source, and of the type."""
    metadata = reader.metadata
    name = described.source.get(type_id) or "plugin"
    if process in metadata.processes or get_main_thread(process) in metadata.threads:
        name = metadata.process_name(process)
    return f"{name} {described.name.get(type_id, '')}".strip()


@dataclass(frozen=True)
class _Events:
    """Events of plugins, of n: id (NULL in old exports), time (ns), type and process (NULL: unknown)."""

    id: IntArray
    time: IntArray
    type_id: IntArray
    process: IntArray

    def block(self, event: IntArray, field: IntArray, value: IntArray) -> Block:
        """Values of events, by index; those of no event of a plugin, -1, are left out."""
        if (event < 0).any():
            known = np.flatnonzero(event >= 0)
            event, field, value = event[known], field[known], value[known]
        type_id = self.type_id[event]
        return make_block(self.time[event], [type_id, self.process[event]], [type_id, field], value)


class _Found(NamedTuple):
    """Values of events, the names of their fields, and which of these are real."""

    blocks: list[Block]
    names: Mapping[Key, str]
    real: set[Key]


# ---- values as numbers -----------------------------------------------------------------------------------------------


def _of_numbers(reader: ReportReader, result: Result, events: _Events, described: _Described) -> _Found:
    """Values of the table that has them. Events that have none are dropped."""
    order = np.argsort(events.id, kind="stable")
    ids = events.id[order]
    has_values = np.zeros(ids.size, np.bool_)

    def event_of(wanted: IntArray) -> IntArray:
        at = np.minimum(np.searchsorted(ids, wanted), ids.size - 1)
        found = np.where((ids[at] == wanted) & (wanted != NULL), order[at], -1)
        has_values[found[found >= 0]] = True
        return found

    def block(columns: Columns) -> Block:
        return events.block(event_of(columns["genericEventId"]), columns["fieldIdx"], _integers(columns))

    types = np.unique(events.type_id).tolist()
    kinds = {key: described.kind_of(key) for key in described.fields if key[0] in types}
    if set(kinds.values()) == {INTEGER} and {key[0] for key in kinds} == set(types):
        found = _Found(reader.by_block(DATA.name, block), described.fields, set())
    else:
        columns = reader.columns(DATA.name)
        found = _with_reals(reader, columns, events, event_of(columns["genericEventId"]), described)
    without = int((~has_values).sum())
    result.read += without
    result.drop(NO_VALUES, without)
    return found


def _integers(columns: Columns) -> IntArray:
    return np.where(columns["intVal"] != NULL, columns["intVal"], columns["uintVal"])


def _with_reals(
    reader: ReportReader, columns: Columns, events: _Events, event: IntArray, described: _Described
) -> _Found:
    """All values; a field is real as its type says, or because some value is."""
    value = _integers(columns)
    reals = reader.read(_REALS).reals
    given = np.where(np.isnan(reals["doubleVal"]), reals["floatVal"], reals["doubleVal"])
    known = np.flatnonzero(event >= 0)
    code, first = keys.encode_rows(events.type_id[event[known]], columns["fieldIdx"][known])
    kinds = [(int(events.type_id[event[row]]), int(columns["fieldIdx"][row])) for row in known[first]]
    some = np.zeros(len(kinds), np.bool_)
    some[code[(value[known] == NULL) & ~np.isnan(given[known])]] = True
    is_real = np.array(
        [
            described.kind_of(kind) == REAL or (any_real and described.kind_of(kind) == UNKNOWN)
            for kind, any_real in zip(kinds, some.tolist(), strict=True)
        ],
        np.bool_,
    )
    of_real = known[is_real[code]]
    whole = np.where(value[of_real] != NULL, value[of_real].astype(np.float64), np.nan)
    value[of_real] = scale_values(np.where(np.isnan(given[of_real]), whole, given[of_real]))
    block = events.block(event, columns["fieldIdx"], value)
    real: set[Key] = {kind for kind, each in zip(kinds, is_real.tolist(), strict=True) if each}
    return _Found([block], described.fields, real)


# ---- values in texts -------------------------------------------------------------------------------------------------


class _Cut(NamedTuple):
    """Values of events of one type, by field: signed integers that were not real numbers, or such as `scaled` gives."""

    event: IntArray
    fields: list[Key]
    values: list[Values]


class _Cutter:
    """Cuts values from one block of texts after the other, all in the order of the table."""

    def __init__(self, rows: IntArray, events: _Events, described: _Described) -> None:
        self._rows = rows
        self._events = events
        self._described = described
        self._start = 0
        self._fields: dict[int, list[tuple[Key, str]]] = {}
        self.real: set[Key] = set()
        self.has_text = False

    def __call__(self, texts: pa.Array) -> list[_Cut]:
        low, high = np.searchsorted(self._rows, [self._start, self._start + len(texts)])
        rows = self._rows[low:high] - self._start
        self._start += len(texts)
        if not self.has_text and texts.null_count < len(texts):
            self.has_text = bool(texts.is_valid().to_numpy(zero_copy_only=False)[rows].any())
        type_ids = self._events.type_id[low:high]
        found = []
        for type_id in np.unique(type_ids).tolist():
            of_type = np.flatnonzero(type_ids == type_id)
            found.append(self._cut(type_id, of_type + low, texts, rows[of_type]))
        return found

    def _cut(self, type_id: int, event: IntArray, texts: pa.Array, rows: IntArray) -> _Cut:
        fields = self._fields_of(type_id, texts, rows)
        distinct = list(dict.fromkeys(name for _, name in fields))
        found = dict(zip(distinct, find_numbers(texts, rows, distinct), strict=True))
        values = [find_values(found[name], self._described.kind_of(key) == REAL) for key, name in fields]
        self.real.update(key for (key, _), each in zip(fields, values, strict=True) if each.is_real)
        return _Cut(event, [key for key, _ in fields], values)

    def _fields_of(self, type_id: int, texts: pa.Array, rows: IntArray) -> list[tuple[Key, str]]:
        """Fields of a type and their names; none while no text has told of any."""
        if not self._fields.get(type_id):
            described = self._described
            if described.names_all([type_id]):
                fields = [(key, name) for key, name in sorted(described.fields.items()) if key[0] == type_id]
            else:
                listed = described.listed.get(type_id) or _names_in_text(texts.take(pa.array(rows)))
                fields = [((type_id, i), name) for i, name in enumerate(listed)]
            self._fields[type_id] = fields
        return self._fields[type_id]

    def names(self) -> dict[Key, str]:
        return {key: name for fields in self._fields.values() for key, name in fields}

    def block(self, cut: _Cut) -> Block:
        """Values of all fields, those of a field as real numbers if one is in any block."""
        # Without a field there is still an event, whose value is missing.
        values = np.full((cut.event.size, max(len(cut.fields), 1)), NULL, np.int64)
        for i, (key, each) in enumerate(zip(cut.fields, cut.values, strict=True)):
            values[:, i] = convert_to_real(each) if key in self.real and not each.is_real else each.value
        index = np.array([key[1] for key in cut.fields] or [0], np.int64)
        return self._events.block(np.repeat(cut.event, index.size), np.tile(index, cut.event.size), values.ravel())


def _of_texts(reader: ReportReader, rows: IntArray, events: _Events, described: _Described) -> _Found | None:
    """Values that are cut from the texts of events in these rows; None if only the table of values has any."""
    cutter = _Cutter(rows, events, described)
    cuts = reader.text_by_block(EVENTS.name, "data", cutter)
    if not cutter.has_text and reader.has(DATA.name):
        return None
    blocks: list[Block] = []
    for i, of_block in enumerate(cuts):
        blocks.extend(map(cutter.block, of_block))
        cuts[i] = []
    return _Found(blocks, cutter.names(), cutter.real)


def _names_in_text(texts: pa.Array) -> list[str]:
    """Names of the fields of a type that is not described, by the first text that has any."""
    return next((list(found) for text in texts.unique().to_pylist() if (found := _json(text))), [])


# ---- descriptions ----------------------------------------------------------------------------------------------------


def _described(reader: ReportReader) -> _Described:
    """From the tables of sources, types and fields, or the JSON in them."""
    return reader.once(_read_descriptions)


def _read_descriptions(reader: ReportReader) -> _Described:
    sources, types, fields = (reader.columns(table.name) for table in (SOURCES, TYPES, FIELDS))
    name_of_source, tracer_sources = {}, set()
    for source, name, group, text in zip(
        sources["sourceId"].tolist(),
        reader.strings.known(sources["nameId"]),
        sources["sourceGroupId"].tolist(),
        sources.texts["data"].to_pylist(),
        strict=True,
    ):
        said = _json(text)
        name_of_source[source] = name or _text(said.get("Name"))
        if group in _TRACERS or said.get("SourceGroup") in _TRACERS.values():
            tracer_sources.add(source)
    described = _Described({}, {}, {}, {}, {}, set())
    for type_id, source, name, text in zip(
        types["typeId"].tolist(),
        types["sourceId"].tolist(),
        reader.strings.known(types["nameId"]),
        types.texts["data"].to_pylist(),
        strict=True,
    ):
        said = _json(text)
        described.name[type_id] = name or _text(said.get("Name"))
        described.source[type_id] = name_of_source.get(source, "")
        if source in tracer_sources:
            described.tracers.add(type_id)
        listed = said.get("Fields")
        names = (
            [_text(each.get("Name")) for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        )
        described.listed[type_id] = [each for each in names if each]
    names = reader.strings.known(fields["fieldNameId"])
    kinds = zip(fields["typeId"].tolist(), fields["fieldIdx"].tolist(), strict=True)
    for kind, name, type_of_field in zip(kinds, names, fields["type"].tolist(), strict=True):
        described.fields[kind] = name
        if type_of_field in KINDS:
            described.kinds[kind] = KINDS[type_of_field]
    return described


def _json(text: str | None) -> dict[str, object]:
    """An object of JSON; empty for anything else."""
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


SOURCE = Source(
    NAME,
    "Metrics of nsys's plugins",
    (EVENTS, DATA, FIELDS, TYPES, SOURCES, gpu_metrics.NAMES, cpu_counters.SOC_NAMES),
    read,
    rows=(EventRows(EVENTS.name, count=count_plugin_rows),),
    row="events",
)
