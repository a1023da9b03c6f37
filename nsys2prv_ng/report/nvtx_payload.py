"""Reads NVTX payloads: bytes of the memory of the profiled program, or tables of their fields.

Exports with schema 3.24 or later have the bytes in NVTX_EVENTS.binaryData if they were made with --include-blobs. A
header of four 64-bit numbers comes before the payload: domain, schema, size of the payload, and a fourth number that is
the offset of the payload by some accounts and the whole size by others. NVTX_PAYLOAD_SCHEMA_ENTRIES has the places of
the fields, with the type codes and flags of NVTX's nvToolsExtPayload.h.

Tables are those of nsys export --dynamic-tables, experimental since nsys 2026.4 (schema 3.28). According to NVIDIA's
reference of the SQLite schema, each payload schema of a process and domain has a table
DYNAMIC_NVTXPAYLOAD_DATATYPE_<globalPid>_<domainId>_<schemaId> with a row for each payload: `eventId`, which refers to
NVTX_EVENTS, and a column for each field that holds one value. NVTX_EXPORT_TRANSLATION has the name of the column of
each field, and NVTX_EVENTS_PAYLOAD_SCHEMAS lists every event with a payload. Arrays have their own tables with longer
names. The program does not read what the reference leaves open: events with several payloads, and fields whose column
is not certain.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from nsys2prv_ng.arrays.row_keys import find_distinct_rows, find_rows
from nsys2prv_ng.arrays.types import IntArray, put
from nsys2prv_ng.report.database import NULL, Columns, Database, Table

SCHEMAS = Table("NVTX_PAYLOAD_SCHEMAS", ("domainId", "schemaId"), {"alignTo": 0})
ENTRIES = Table(
    "NVTX_PAYLOAD_SCHEMA_ENTRIES", ("domainId", "schemaId", "idx", "type"), {"flags": 0, "offset": 0}, text=("name",)
)
ENUMS = Table("NVTX_PAYLOAD_ENUMS", ("domainId", "schemaId"), {"size": 4})
ENUM_ENTRIES = Table("NVTX_PAYLOAD_ENUM_ENTRIES", ("domainId", "schemaId"), {"value": 0}, text=("name",))
LAYOUT_TABLES = (SCHEMAS, ENTRIES, ENUMS, ENUM_ENTRIES)

Fields = dict[str, object]
"""Fields of a payload by name: numbers, or names of enumerated values."""

_HEADER = struct.Struct("<4Q")
_HEXADECIMAL = re.compile(rb"(?:0x)?((?:[0-9a-fA-F]{2})+)")

# NVTX_PAYLOAD_ENTRY_TYPE_*: the fixed-size types, as on 64-bit Linux.
_FORMATS = dict(enumerate("bBhHiIqQqQbBhHiIqQfd", 1)) | {22: "Q", 23: "Q", 32: "B", 68: "I", 69: "I", 70: "Q"}
_NO_PLAIN_VALUE = 0xFE
"""Flags of pointers, offsets and arrays: the entry does not contain the value itself."""
_FIRST_SCHEMA = 1 << 24
"""Types with this number or a higher one are ids of schemas and enumerations."""


_Key = tuple[int, int]
"""Domain and schema."""


class _Entry(NamedTuple):
    name: str
    offset: int
    format: str
    enumeration: dict[int, str]


class PayloadLayout:
    """Places of the fields in each schema.

    `columns` reads the columns of each of LAYOUT_TABLES. Each process numbers its domains, so a domain and schema may
    have several definitions: the definition with a field named `wanted` is used, else the first one.
    """

    def __init__(self, columns: Callable[[Table], Columns], wanted: str) -> None:
        schemas, enums = columns(SCHEMAS), columns(ENUMS)
        self._alignment = _map_keys(schemas["domainId"], schemas["schemaId"], schemas["alignTo"])
        self._enum_sizes = _map_keys(enums["domainId"], enums["schemaId"], enums["size"])
        self._enum_values: dict[_Key, dict[int, str]] = {}
        entries = columns(ENUM_ENTRIES)
        named = entries.texts["name"].to_pylist()
        numbers = [entries[name].tolist() for name in ("domainId", "schemaId", "value")]
        for domain, schema, value, name in zip(*numbers, named, strict=True):
            self._enum_values.setdefault((domain, schema), {})[value] = name or f"value {value}"

        self._schemas: dict[_Key, list[_Entry]] = {}
        for key, definitions in _group_definitions(columns(ENTRIES)).items():
            definition = next((d for d in definitions if wanted in {row.name for row in d}), definitions[0])
            self._schemas[key] = self._place_entries(key, definition)

    def fields(self, blob: str | bytes) -> Fields | None:
        """Return the fields of a payload; None for bytes that are not a payload, or for an unknown schema."""
        data = blob.encode() if isinstance(blob, str) else blob
        hexadecimal = _HEXADECIMAL.fullmatch(data)  # a raw header has bytes of 0
        data = bytes.fromhex(hexadecimal[1].decode()) if hexadecimal else data
        if len(data) < _HEADER.size:
            return None
        domain, schema, size, offset = _HEADER.unpack_from(data)
        entries = self._schemas.get((domain, schema))
        if entries is None:
            return None
        start = offset if _HEADER.size <= offset and offset + size <= len(data) else _HEADER.size
        payload = data[start : start + size]
        fields: Fields = {}
        for entry in entries:
            if entry.offset >= 0 and entry.offset + struct.calcsize(entry.format) <= len(payload):
                (value,) = struct.unpack_from("<" + entry.format, payload, entry.offset)
                fields[entry.name] = entry.enumeration.get(value, value)
        return fields

    def _place_entries(self, key: _Key, definition: Sequence[_Row]) -> list[_Entry]:
        """Return entries with plain values. An entry without an offset follows the one before, aligned to its type."""
        entries = []
        end: int | None = 0
        for row in definition:
            type_key = (key[0], row.type)
            kind = _FORMATS.get(row.type, "")
            if row.type >= _FIRST_SCHEMA and type_key not in self._alignment:  # no schema, so an enumeration
                kind = {1: "b", 2: "h", 8: "q"}.get(self._enum_sizes.get(type_key, 4), "i")
            if not kind or row.flags & _NO_PLAIN_VALUE:
                end = None  # its size is not known
                continue
            size = struct.calcsize(kind)
            if row.offset > 0 or row.position == 0:
                offset = row.offset
            elif end is not None:
                step = min(size, self._alignment.get(key) or size)
                offset = -(-end // step) * step
            else:
                continue
            entries.append(_Entry(row.name, offset, kind, self._enum_values.get(type_key, {})))
            end = offset + size
        return entries


class _Row(NamedTuple):
    position: int
    type: int
    flags: int
    offset: int
    name: str


def _group_definitions(columns: Columns) -> dict[_Key, list[list[_Row]]]:
    """Return the rows of each schema in the order of its fields: one list for each registration."""
    names = [name or "" for name in columns.texts["name"].to_pylist()]
    numbers = [columns[name].tolist() for name in ("domainId", "schemaId", "idx", "type", "flags", "offset")]
    definitions_by_key: dict[_Key, list[dict[int, _Row]]] = {}
    for domain, schema, position, kind, flags, offset, name in zip(*numbers, names, strict=True):
        row = _Row(position, kind, flags, offset, name)
        definitions = definitions_by_key.setdefault((domain, schema), [])
        # The row continues the latest definition that ends just before it, or else (rows may be in any order) a
        # definition that lacks it. Otherwise it starts a new definition.
        lacking = [d for d in reversed(definitions) if position not in d]
        continued = next((d for d in lacking if len(d) == position), lacking[-1] if lacking else None)
        if continued is None:
            definitions.append(continued := {})
        continued[position] = row
    return {key: [sorted(d.values()) for d in definitions] for key, definitions in definitions_by_key.items()}


def _map_keys(domain: IntArray, schema: IntArray, value: IntArray) -> dict[_Key, int]:
    return dict(zip(zip(domain.tolist(), schema.tolist(), strict=True), value.tolist(), strict=True))


PREFIX = "DYNAMIC_"
"""Start of the names of tables whose columns depend on the profiled program."""
LINKS = Table("NVTX_EVENTS_PAYLOAD_SCHEMAS", (), {"eventId": NULL})
_NAMES = "NVTX_EXPORT_TRANSLATION"
_DATA = re.compile(PREFIX + r"NVTXPAYLOAD_DATATYPE_(-?[0-9]{1,20})_([0-9]{1,20})_[0-9]{1,20}")
_EVENT = "eventId"


def read_payload_tables(
    database: Database, event: IntArray, process: IntArray, domain: IntArray, names: Sequence[str]
) -> tuple[IntArray, list[Fields | None]]:
    """Return (index into the payloads for each event, -1 for events without a payload; distinct payloads).

    The events are n rows of NVTX_EVENTS, given by their `eventId` (NULL if unknown), process key and domain.
    Payloads contain the fields with these names. A payload is None if nothing in it is certain.
    """
    if LINKS.name not in database.tables:
        return np.full(event.size, -1, np.int64), []
    order, ids = _sort_unique(event)
    payloads: list[Fields | None] = [None]
    index = np.full(ids.size, -1, np.int64)
    renamed = database.read_objects(_NAMES, ["originalName", "sanitizedName"])
    named = [*zip(renamed["originalName"], renamed["sanitizedName"], strict=True), *zip(names, names, strict=True)]
    for key, table in _list_tables(database, process, domain) if ids.size else []:
        columns = _choose_columns(database.list_columns(table), names, named)
        if not columns:
            continue
        read, codes, fields = _read_fields(database, table, columns)
        has_key = (process[order] == key[0]) & (domain[order] == key[1])
        place = find_rows([ids], [read])
        is_known = (place >= 0) & has_key[place]
        place, codes = place[is_known], codes[is_known]
        times = np.bincount(place, minlength=ids.size)
        again = (times > 1) | ((times > 0) & (index >= 0))
        index[place] = len(payloads) + codes
        index[again] = 0
        payloads += fields
    linked = np.isin(ids, database.read(LINKS, "")[_EVENT])
    index[linked & (index < 0)] = 0
    payload_of_event = put(index, order, event.size)
    return payload_of_event, payloads


def _sort_unique(event: IntArray) -> tuple[IntArray, IntArray]:
    """Return (rows of the events with an id that no other row has, in the order of ids; these ids)."""
    ids, first, count = np.unique(event, return_index=True, return_counts=True)
    sound = (count == 1) & (ids != NULL)
    return first[sound].astype(np.int64), ids[sound]


def _list_tables(database: Database, process: IntArray, domain: IntArray) -> list[tuple[tuple[int, int], str]]:
    """Return (process and domain, table) of each payload table in the processes and domains of the events."""
    _, used = find_distinct_rows(process, domain)
    known = set(used)
    tables = []
    for table in sorted(database.tables):
        if match := _DATA.fullmatch(table):
            key = (int(match[1]) + 2**63) % 2**64 - 2**63 >> 24  # signed, like all integer columns
            if (key, int(match[2])) in known:
                tables.append(((key, int(match[2])), table))
    return tables


def _choose_columns(present: Collection[str], names: Sequence[str], named: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the column of each field by the name of the field, if it is certain.

    `present`: the columns of a table. `named`: pairs of a field and a column that may belong to it.
    """
    if _EVENT not in present:
        return {}
    pairs = dict.fromkeys((field, column) for field, column in named if column in present)
    columns_of_field, fields_of_column = Counter(field for field, _ in pairs), Counter(column for _, column in pairs)
    certain = ((f, c) for f, c in pairs if columns_of_field[f] == fields_of_column[c] == 1)
    return {field: column for field, column in certain if field in names}


def _read_fields(
    database: Database, table: str, columns: Mapping[str, str]
) -> tuple[IntArray, IntArray, list[Fields | None]]:
    """Return (event of each row of a table, index into its distinct rows for each row, distinct rows as fields).

    A column without any number is read as text.
    """
    read = database.read(Table(table, (_EVENT,), dict.fromkeys(columns.values(), NULL)), "")
    as_text = [column for column in columns.values() if (read[column] == NULL).all()]
    texts = database.read(Table(table, (_EVENT,), text=tuple(as_text)), "").texts if as_text else {}
    values, words = [], {}
    for column in columns.values():
        if column in texts:
            encoded = texts[column].combine_chunks().dictionary_encode()
            words[column] = encoded.dictionary.to_pylist()
            values.append(encoded.indices.cast(pa.int64()).fill_null(NULL).to_numpy(zero_copy_only=False))
        else:
            values.append(read[column])
    codes, rows = find_distinct_rows(*values)
    distinct: list[Fields | None] = [
        {
            field: words[column][value] if column in words else value
            for (field, column), value in zip(columns.items(), row, strict=True)
            if value != NULL
        }
        for row in rows
    ]
    return read[_EVENT], codes, distinct
