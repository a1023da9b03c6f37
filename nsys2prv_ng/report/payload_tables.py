"""Reads NVTX payloads from tables: nsys export --dynamic-tables, experimental since nsys 2026.4 (schema 3.28).

According to NVIDIA's reference of the SQLite schema, each payload schema of a process and domain has a table
DYNAMIC_NVTXPAYLOAD_DATATYPE_<globalPid>_<domainId>_<schemaId> with a row for each payload: `eventId`, which refers to
NVTX_EVENTS, and a column for each field that holds one value. NVTX_EXPORT_TRANSLATION has the name of the column of
each field, and NVTX_EVENTS_PAYLOAD_SCHEMAS lists every event with a payload. Arrays have their own tables with longer
names.

The program does not read what the reference leaves open: events with several payloads, and fields whose column is not
certain.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa

from nsys2prv_ng.arrays.row_keys import find_distinct_rows, find_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.report.database import NULL, Database, Table
from nsys2prv_ng.report.nvtx_payload import Fields

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
    payload_of_event = np.full(event.size, -1, np.int64)
    payload_of_event[order] = index
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
