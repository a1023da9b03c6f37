"""Small reports with NCCL calls, payloads given as JSON text or as bytes, and kernels.

No capture with binary payloads was at hand. Their layout here is that of NVTX's nvToolsExtPayload.h, of NCCL's
nvtx_payload_schemas.h, and of the tables of exports of schema 3.25 (which hold schemas, but no payloads).
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.sources.small_reports import UTC, Rows, export

COMMUNICATOR, SIZE, OPERATION = "NCCL communicator ID", "Message size [bytes]", "Reduction operation"
RANK, RANKS, DEVICES, PEER, ROOT = "Rank", "No. of ranks", "No. of devices", "Peer rank", "Root"
INT, UINT64, SIZE_T = 5, 18, 22
FIRST_SCHEMA = 1 << 24
REDUCTION = FIRST_SCHEMA + 24
OPERATIONS = ("Sum", "Product", "Max", "Min", "Avg")

# Schema: fields with their types and offsets, and size of the whole.
Schema = tuple[Sequence[tuple[str, int, int | None]], int]
INIT: Schema = ([(COMMUNICATOR, UINT64, None), (RANKS, INT, 8), (RANK, INT, 12), ("CUDA device", INT, 16)], 24)
SCHEMAS: dict[str, tuple[int, Schema]] = {
    "ncclCommInitRank": (0, INIT),
    "ncclCommInitAll": (1, ([(COMMUNICATOR, UINT64, None), (DEVICES, INT, 8)], 16)),
    "ncclAllGather": (4, ([(COMMUNICATOR, UINT64, None), (SIZE, SIZE_T, 8)], 16)),
    "ncclAllReduce": (5, ([(COMMUNICATOR, UINT64, None), (SIZE, SIZE_T, 8), (OPERATION, REDUCTION, 16)], 24)),
    "ncclBroadcast": (6, ([(COMMUNICATOR, UINT64, None), (SIZE, SIZE_T, 8), (ROOT, INT, 16)], 24)),
    "ncclReduce": (
        8,
        ([(COMMUNICATOR, UINT64, None), (SIZE, SIZE_T, 8), (ROOT, INT, 16), (OPERATION, REDUCTION, 20)], 24),
    ),
    "ncclSend": (9, ([(COMMUNICATOR, UINT64, None), (SIZE, SIZE_T, 8), (PEER, INT, 16)], 24)),
    "ncclRecv": (10, ([(COMMUNICATOR, UINT64, None), (SIZE, SIZE_T, 8), (PEER, INT, 16)], 24)),
}
_PACKED = {INT: "<i", UINT64: "<Q", SIZE_T: "<Q", REDUCTION: "<i"}
JSON, BLOB, BLOB_OF_SIZE, HEXADECIMAL, NO_PAYLOAD = "json", "blob", "blob of size", "hexadecimal", "no payload"
"""Forms of payloads in a report. Descriptions differ on the last number of a blob's header: offset or whole size."""


@dataclass(frozen=True)
class Call:
    """A call of NCCL with the fields of its payload, on a thread given by process and number."""

    begin: int
    end: int | None
    name: str
    payload: Mapping[str, object] = field(default_factory=dict)
    process: int = 77
    thread: int = 77
    domain: int = 1


@dataclass(frozen=True)
class Kernel:
    """A kernel and the time of the call that launched it, if one was recorded."""

    begin: int
    end: int
    name: str
    launch: int | None
    device: int = 0
    stream: int = 7
    process: int = 77
    thread: int = 77


def make_global_tid(process: int, thread: int) -> int:
    """Return the globalTid of a thread."""
    return 1 << 48 | process << 24 | thread


def pack_payload(name: str, payload: Mapping[str, object], form: str = BLOB, domain: int = 1) -> object:
    """Return a payload as bytes: domain, schema, size, offset or whole size; then its fields."""
    number, (fields, size) = SCHEMAS[name]
    data = bytearray(size)
    for field_name, kind, offset in fields:
        value = payload[field_name]
        packed = OPERATIONS.index(value) if kind == REDUCTION else value  # type: ignore[arg-type]
        struct.pack_into(_PACKED[kind], data, offset or 0, packed)
    last = 32 + size if form == BLOB_OF_SIZE else 32
    whole = struct.pack("<4Q", domain, FIRST_SCHEMA + number, size, last) + bytes(data)
    return whole.hex() if form == HEXADECIMAL else whole


def write_nccl_report(
    path: Path,
    calls: Sequence[Call],
    kernels: Sequence[Kernel] = (),
    form: str = JSON,
    environment: str = "",
    more: Mapping[str, Rows] | None = None,
    utc: int = UTC,
    named_domain: bool = True,
) -> Path:
    """Write a report with calls and kernels; `form` is that of the payloads."""
    strings = ["", "cudaLaunchKernelExC"]
    strings += sorted({call.name for call in calls} | {kernel.name for kernel in kernels})
    nvtx: list[tuple[object, ...]] = []
    if named_domain:
        for process, domain in sorted({(call.process, call.domain) for call in calls}):
            nvtx.append((0, None, 75, make_global_tid(process, process), None, domain, "NCCL", None, None))
    for call in calls:
        text = json.dumps(dict(call.payload)) if call.payload and form == JSON else None
        data = None
        if call.payload and form not in (JSON, NO_PAYLOAD):
            data = pack_payload(call.name, call.payload, form, call.domain)
        tid, name = make_global_tid(call.process, call.thread), strings.index(call.name)
        nvtx.append((call.begin, call.end, 59, tid, name, call.domain, None, text, data))
    runtime, device = [], []
    for number, kernel in enumerate(kernels, 1):
        tid = make_global_tid(kernel.process, kernel.thread)
        if kernel.launch is not None:
            runtime.append((kernel.launch, kernel.launch + 1, tid, 1, number))
        pid = make_global_tid(kernel.process, 0)
        name = strings.index(kernel.name)
        device.append((kernel.begin, kernel.end, pid, kernel.device, 1, kernel.stream, name, name, number))
    nvtx_columns = ("start", "end", "eventType", "globalTid", "textId", "domainId", "text", "jsonText", "binaryData")
    tables: dict[str, Rows] = {
        "NVTX_EVENTS": (nvtx_columns, nvtx),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (("start", "end", "globalTid", "nameId", "correlationId"), runtime),
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            (
                *("start", "end", "globalPid", "deviceId", "contextId", "streamId"),
                *("shortName", "demangledName", "correlationId"),
            ),
            device,
        ),
        "TARGET_INFO_SYSTEM_ENV": (("name", "value"), [("Hostname", "host"), ("DeviceEnvironment", environment)]),
    }
    if form != JSON:
        tables |= make_layout_tables(sorted({call.domain for call in calls}))
    return export(path, strings, {**tables, **(more or {})}, utc=utc)


def execute(path: Path, statement: str, *values: object) -> None:
    """Change a report by an SQL statement."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(statement, values)


def make_layout_tables(domains: Sequence[int]) -> dict[str, Rows]:
    """Return the tables of the layouts of payloads, as nsys writes them: NULL stands for 0."""
    schemas, entries, enumerations, values = [], [], [], []
    for domain in domains:
        for number, (fields, size) in SCHEMAS.values():
            schemas.append((domain, FIRST_SCHEMA + number, None, 1, None, len(fields), size, None))
            for index, (name, kind, offset) in enumerate(fields):
                entries.append((domain, FIRST_SCHEMA + number, index, None, kind, name, None, None, offset))
        enumerations.append((domain, REDUCTION, None, len(OPERATIONS), 4))
        values += [(domain, REDUCTION, i, name, i or None, None) for i, name in enumerate(OPERATIONS)]
    return {
        "NVTX_PAYLOAD_SCHEMAS": (
            ("domainId", "schemaId", "name", "type", "flags", "numEntries", "payloadSize", "alignTo"),
            schemas,
        ),
        "NVTX_PAYLOAD_SCHEMA_ENTRIES": (
            ("domainId", "schemaId", "idx", "flags", "type", "name", "description", "arrayOrUnionDetail", "offset"),
            entries,
        ),
        "NVTX_PAYLOAD_ENUMS": (("domainId", "schemaId", "name", "numEntries", "size"), enumerations),
        "NVTX_PAYLOAD_ENUM_ENTRIES": (("domainId", "schemaId", "idx", "name", "value", "isFlag"), values),
    }
