"""Rewrites the payloads of a report: JSON text, or bytes, or tables as `nsys export --dynamic-tables=all` makes them.

No export with such tables was at hand. Their layout here is that of NVIDIA's reference of the SQLite schema (3.28.1)
and of its examples. What the reference leaves open has both forms: names or numbers of enumerated values, and
translations of all names of fields or of changed ones only.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import struct
from collections import defaultdict
from pathlib import Path

BYTES, NUMBERS, NAMES = "bytes", "tables with numbers", "tables with names"
_CODES = {5: "i", 18: "Q", 22: "Q"}
_FIRST_SCHEMA = 1 << 24


def rewrite_payloads(source: Path, target: Path, form: str) -> int:
    """Write a copy of a report whose payloads are JSON text, with these payloads in another form; return their number.

    The schema of a payload is one with its fields: NCCL has no two with the same fields and different places.
    """
    target.write_bytes(source.read_bytes())
    with contextlib.closing(sqlite3.connect(target)) as database, database:
        schemas = _read_schemas(database)
        enumeration = dict(database.execute("SELECT name, COALESCE(value, 0) FROM NVTX_PAYLOAD_ENUM_ENTRIES"))
        rows = database.execute(
            "SELECT rowid, globalTid, domainId, COALESCE(jsonText, (SELECT value FROM StringIds WHERE id = jsonTextId))"
            " FROM NVTX_EVENTS WHERE jsonText IS NOT NULL OR jsonTextId IS NOT NULL"
        ).fetchall()
        database.execute("UPDATE NVTX_EVENTS SET jsonText = NULL, jsonTextId = NULL")
        payloads = [(row, tid, domain, json.loads(text)) for row, tid, domain, text in rows]
        if form == BYTES:
            for row, _, domain, payload in payloads:
                schema, fields = schemas[frozenset(payload)]
                blob = _pack(domain, schema, fields, payload, enumeration)
                database.execute("UPDATE NVTX_EVENTS SET binaryData = ? WHERE rowid = ?", (blob, row))
        else:
            _add_event_ids(database)
            _write_tables(database, payloads, schemas, enumeration if form == NUMBERS else {})
    return len(payloads)


def _read_schemas(database: sqlite3.Connection) -> dict[frozenset[str], tuple[int, dict[str, tuple[int, int]]]]:
    """Return the schema of each set of fields, and type and place of each field."""
    fields: dict[int, dict[str, tuple[int, int]]] = defaultdict(dict)
    for schema, name, kind, offset in database.execute(
        "SELECT schemaId, name, type, COALESCE(offset, 0) FROM NVTX_PAYLOAD_SCHEMA_ENTRIES"
    ):
        fields[schema][name] = kind, offset
    return {frozenset(found): (schema, found) for schema, found in fields.items()}


def _pack(
    domain: int, schema: int, fields: dict[str, tuple[int, int]], payload: dict[str, object], names: dict[str, int]
) -> bytes:
    data = bytearray(24)
    for name, (kind, offset) in fields.items():
        value = payload[name]
        number = names[value] if isinstance(value, str) and value in names else int(value)  # type: ignore[call-overload]
        struct.pack_into("<" + _CODES.get(kind, "i"), data, offset, number)
    return struct.pack("<4Q", domain, schema, len(data), 32) + bytes(data)


def _add_event_ids(database: sqlite3.Connection) -> None:
    """Number the events, not from 1 and not without gaps, in the last column, which is the primary key."""
    columns = database.execute("SELECT name, type FROM pragma_table_info('NVTX_EVENTS')").fetchall()
    declared = ", ".join(f'"{name}" {kind}' for name, kind in columns)
    database.execute(f"CREATE TABLE numbered ({declared}, eventId INTEGER NOT NULL PRIMARY KEY)")
    database.execute("INSERT INTO numbered SELECT *, 3 * rowid + 1000 FROM NVTX_EVENTS ORDER BY rowid")
    database.execute("DROP TABLE NVTX_EVENTS")
    database.execute("ALTER TABLE numbered RENAME TO NVTX_EVENTS")


def _write_tables(
    database: sqlite3.Connection,
    payloads: list[tuple[int, int, int, dict[str, object]]],
    schemas: dict[frozenset[str], tuple[int, dict[str, tuple[int, int]]]],
    enumeration: dict[str, int],
) -> None:
    """Write a table for each process, domain and schema, and the tables that name and list them."""
    database.execute("CREATE TABLE NVTX_EVENTS_PAYLOAD_SCHEMAS (eventId, globalPid, domainId, payloadSchemaID)")
    database.execute("CREATE TABLE NVTX_EXPORT_TRANSLATION (originalName TEXT, sanitizedName TEXT)")
    columns_of: dict[str, str] = {}
    for row, tid, domain, payload in payloads:
        schema, fields = schemas[frozenset(payload)]
        process = tid & ~0xFFFFFF
        table = f"DYNAMIC_NVTXPAYLOAD_DATATYPE_{process}_{domain}_{schema}"
        for name in fields:
            columns_of[name] = re.sub(r"\W", "_", name)
        declared = ", ".join(columns_of[name] for name in fields)
        database.execute(f"CREATE TABLE IF NOT EXISTS {table} (payloadIdx, {declared}, eventId)")
        values = []
        for name in fields:
            value = payload[name]
            number = enumeration.get(value, value) if isinstance(value, str) else value
            if isinstance(number, str) and re.fullmatch(r"-?[0-9]+", number):
                number = int(number)
            # SQLite's integers are signed.
            values.append((number + 2**63) % 2**64 - 2**63 if isinstance(number, int) else number)
        event = 3 * row + 1000
        database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * (len(values) + 2))})", (0, *values, event))
        database.execute(
            "INSERT INTO NVTX_EVENTS_PAYLOAD_SCHEMAS VALUES (?, ?, ?, ?)", (event, process, domain, schema)
        )
    changed = {name: column for name, column in columns_of.items() if enumeration or name != column}
    database.executemany("INSERT INTO NVTX_EXPORT_TRANSLATION VALUES (?, ?)", changed.items())
