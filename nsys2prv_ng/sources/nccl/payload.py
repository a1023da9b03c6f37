"""Reads the payloads of NCCL calls as columns: communicator, bytes, ranks and so on.

NCCL attaches payloads with named fields to its NVTX ranges (src/include/nvtx_payload_schemas.h in NCCL). Exports up to
schema 3.23 contain them as JSON text, later exports as bytes or as tables. NVIDIA's advanced NCCL trace has other
fields, as JSON text (`nsys export --include-json true`): `commHash`, `commRank`, `count` and `dataType` say the same,
`operationId` is equal on all ranks of an operation, and `apiGroupId` in all calls of a group and their launches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.report.metadata import MOST_RANKS
from nsys2prv_ng.report.nvtx_payload import LAYOUT_TABLES, Fields, PayloadLayout
from nsys2prv_ng.sources.nvtx.events import NVTX
from nsys2prv_ng.sources.shared.report_reader import ReportReader, encode_texts, parse_json, read_texts
from nsys2prv_ng.value_class import ValueClass

PAYLOAD_TABLE = Table(NVTX, (), {"jsonTextId": NULL}, text=("jsonText",), blob=("binaryData",))
TABLES = (PAYLOAD_TABLE, *LAYOUT_TABLES)

_COMMUNICATOR = "NCCL communicator ID"
_OPERATION = "Reduction operation"
_HASH, _RANK, _COUNT, _DATA_TYPE = "commHash", "commRank", "count", "dataType"
"""Fields of the advanced NCCL trace."""
_NUMBERS = {
    "bytes": ("Message size [bytes]", 2**63),
    "root": ("Root", MOST_RANKS),
    "peer": ("Peer rank", MOST_RANKS),
    "rank": ("Rank", MOST_RANKS),
    "ranks": ("No. of ranks", MOST_RANKS),
    "devices": ("No. of devices", MOST_RANKS),
}
"""The field of a payload for each column of numbers, and a limit: higher numbers are damage."""
_IDS = {"id": "operationId", "api_group": "apiGroupId"}
"""The field of a payload for each column of 64-bit ids."""
_FIELDS = (_COMMUNICATOR, _OPERATION, *(field for field, _ in _NUMBERS.values()))
_TYPE_SIZES = {
    **dict.fromkeys(("int8", "char", "uint8", "float8e4m3", "float8e5m2"), 1),
    **dict.fromkeys(("float16", "half", "bfloat16"), 2),
    **dict.fromkeys(("int32", "int", "uint32", "float32", "float"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "double"), 8),
}
"""Bytes of the types of NCCL (ncclDataType_t), by their names in lower case without the prefix."""

OPERATIONS = ("Sum", "Product", "Max", "Min", "Avg")
"""NCCL's names of its reduction operations (ncclRedOp_t), starting with operation 0."""


class PayloadColumns(ValueClass, kw_only=True):
    """The fields of n payloads. NULL stands for a field that a payload lacks, -1 for no index.

    `communicator` and `operation`: indices into the names of `Payloads`. `rank`: rank of the caller, as recorded by
    calls that create or end a communicator. `ranks`: number of ranks of the communicator. `devices`: number of ranks of
    a communicator whose ranks are all in the calling process. `id`: 64-bit id of the operation in the advanced trace.
    `api_group`: 64-bit id of the group in the advanced trace.
    """

    communicator: IntArray
    operation: IntArray
    bytes: IntArray
    root: IntArray
    peer: IntArray
    rank: IntArray
    ranks: IntArray
    devices: IntArray
    id: IntArray
    api_group: IntArray


class Payloads(NamedTuple):
    """Payloads of n calls.

    `communicators`: the 64-bit ids of the communicators as 16 hexadecimal digits. `given`: whether the call has a
    payload at all, understood or not.
    """

    communicators: list[str]
    operations: list[str]
    columns: PayloadColumns
    given: BoolArray

    def take(self, rows: IntArray) -> Payloads:
        """Return some of the payloads."""
        taken = {name: column[rows] for name, column in vars(self.columns).items()}
        return self._replace(columns=PayloadColumns(**taken), given=self.given[rows])

    def hide(self, hidden: BoolArray) -> Payloads:
        """Return the payloads without what the calls in a mask have, except `api_group`."""
        missing = dict.fromkeys(("communicator", "operation"), -1) | dict.fromkeys((*_NUMBERS, "id"), NULL)
        shown = {name: np.where(hidden, value, getattr(self.columns, name)) for name, value in missing.items()}
        return self._replace(columns=replace(self.columns, **shown), given=self.given & ~hidden)

    def mark_understood(self) -> BoolArray:
        """Mark the payloads that contain a field of a communication."""
        columns = self.columns
        has_index = (columns.communicator >= 0) | (columns.operation >= 0)
        return has_index | (columns.bytes != NULL) | (columns.root != NULL) | (columns.peer != NULL)


def read_payloads(reader: ReportReader, rows: IntArray) -> Payloads:
    """Read the payloads of these rows of NVTX_EVENTS. Each distinct text or blob is decoded once."""
    columns = reader.columns(NVTX)
    distinct: list[Fields | None] = [None]
    index = np.zeros(rows.size, np.int64)  # 0: no payload

    codes, texts = encode_texts(read_texts(reader, columns, rows, "jsonText", "jsonTextId"))
    _add(distinct, index, codes, list(map(parse_json, texts)))
    codes, blobs = encode_texts(columns.blobs["binaryData"].take(pa.array(rows, pa.int64())).combine_chunks())
    if blobs:
        layout = PayloadLayout(lambda table: reader.columns(table.name), _COMMUNICATOR)
        _add(distinct, index, codes, [layout.fields(blob) for blob in blobs])
    without = np.flatnonzero(index == 0)
    if without.size:
        codes = np.full(rows.size, -1, np.int64)
        codes[without], payloads = reader.read_payload_tables(rows[without], _FIELDS)
        _add(distinct, index, codes, payloads)
    return _make_columns(distinct, index)


def _add(distinct: list[Fields | None], index: IntArray, codes: IntArray, payloads: Sequence[Fields | None]) -> None:
    """Add payloads to the distinct ones, and set the index of each row with a payload (its code is not negative)."""
    has_payload = codes >= 0
    index[has_payload] = len(distinct) + codes[has_payload]
    distinct += payloads


def _make_columns(distinct: Sequence[Fields | None], index: IntArray) -> Payloads:
    """Make columns of the distinct payloads and the index of each row's payload."""
    known = [_translate(fields or {}) for fields in distinct]
    communicator, communicators = _number_names([_get_communicator(fields) for fields in known], index)
    operation, operations = _number_names([_get_operation(fields) for fields in known], index)
    columns = {"communicator": communicator, "operation": operation}
    for name, (field, limit) in _NUMBERS.items():
        values = [_parse_integer(fields.get(field)) for fields in known]
        fits = [NULL if value is None or not 0 <= value < limit else value for value in values]
        columns[name] = np.array(fits, np.int64)[index]
    for name, field in _IDS.items():
        columns[name] = np.array([_parse_id(fields.get(field)) for fields in known], np.int64)[index]
    return Payloads(communicators, operations, PayloadColumns(**columns), index > 0)


def _number_names(payload_names: Sequence[str | None], index: IntArray) -> tuple[IntArray, list[str]]:
    """Return (index into the names or -1 for each row; sorted names that occur), given the name of each payload."""
    occurs = np.bincount(index, minlength=len(payload_names)) > 0
    known = {name for name, is_in_row in zip(payload_names, occurs.tolist(), strict=True) if is_in_row}
    names = sorted(name for name in known if name is not None)
    numbers = {name: i for i, name in enumerate(names)}
    return np.array([numbers.get(name or "", -1) for name in payload_names], np.int64)[index], names


def _translate(fields: Fields) -> Fields:
    """Return the fields of the advanced trace with the names that NCCL's own payloads have."""
    if _HASH not in fields:
        return fields
    translated = {**fields, _COMMUNICATOR: fields[_HASH], _NUMBERS["rank"][0]: fields.get(_RANK)}
    count, name = _parse_integer(fields.get(_COUNT)), str(fields.get(_DATA_TYPE)).lower().removeprefix("nccl")
    if count is not None and name in _TYPE_SIZES:
        translated[_NUMBERS["bytes"][0]] = count * _TYPE_SIZES[name]
    return translated


def _parse_id(value: object) -> int:
    """Return a 64-bit id as a signed integer; NULL if the value is none."""
    number = _parse_integer(value)
    return NULL if number is None or not -(2**63) < number < 2**64 else (number + 2**63) % 2**64 - 2**63


def _get_communicator(fields: Fields) -> str | None:
    """Return the communicator's 64-bit id as 16 hexadecimal digits."""
    value = _parse_integer(fields.get(_COMMUNICATOR))
    return None if value is None else f"{value % 2**64:016x}"


def _get_operation(fields: Fields) -> str | None:
    """Return the name of the reduction operation, which payloads contain as a text or a number."""
    value = fields.get(_OPERATION)
    number = _parse_integer(value)
    if number is None:
        return value if isinstance(value, str) and value else None
    return OPERATIONS[number] if 0 <= number < len(OPERATIONS) else f"operation {number}"


def _parse_integer(value: object) -> int | None:
    """Return the value of an integer or of its text, decimal or with 0x; None for anything else."""
    if isinstance(value, str) and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", value):
        return int(value, 16)
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
