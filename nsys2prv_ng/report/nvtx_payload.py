"""Decodes NVTX payloads in NVTX_EVENTS.binaryData: bytes of the memory of the profiled program.

Exports with schema 3.24 or later have them if they were made with --include-blobs. A header of four 64-bit numbers
comes before the payload: domain, schema, size of the payload, and a fourth number that is the offset of the payload by
some accounts and the whole size by others. NVTX_PAYLOAD_SCHEMA_ENTRIES has the places of the fields, with the type
codes and flags of NVTX's nvToolsExtPayload.h.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.report.database import Columns, Table

SCHEMAS = Table("NVTX_PAYLOAD_SCHEMAS", ("domainId", "schemaId"), {"alignTo": 0})
ENTRIES = Table(
    "NVTX_PAYLOAD_SCHEMA_ENTRIES",
    ("domainId", "schemaId", "idx", "type"),
    {"flags": 0, "offset": 0},
    text=("name",),
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
