"""Payloads of NCCL's calls in small reports: JSON text, bytes, what is missing or damaged."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.report.database import NULL, Columns, Database, Table
from nsys2prv_ng.report.nvtx_payload import ENTRIES, ENUM_ENTRIES, ENUMS, SCHEMAS, PayloadLayout
from tests.examples import examples
from tests.sources.nccl import nccl_reports as reports
from tests.sources.nccl import nccl_truth as truth
from tests.sources.nccl.nccl_reports import COMMUNICATOR, OPERATION, PEER, RANK, RANKS, ROOT, SIZE, Call, Kernel
from tests.sources.small_reports import get_account, translate_reports
from tests.tiers import cases

BIG, SMALL = 2**64 - 3, 5  # the first is beyond the signed numbers
CALLS = [
    Call(10, 19, "ncclCommInitRank", {COMMUNICATOR: BIG, RANKS: 1, RANK: 0, "CUDA device": 0}),
    Call(20, 29, "ncclAllReduce", {COMMUNICATOR: BIG, SIZE: 4096, OPERATION: "Sum"}),
    Call(30, 39, "ncclAllReduce", {COMMUNICATOR: SMALL, SIZE: 2**40, OPERATION: "Avg"}),
    Call(40, 49, "ncclBroadcast", {COMMUNICATOR: BIG, SIZE: 16, ROOT: 0}),
    Call(50, 59, "ncclReduce", {COMMUNICATOR: BIG, SIZE: 8, ROOT: 0, OPERATION: "Max"}),
    Call(60, 69, "ncclAllGather", {COMMUNICATOR: BIG, SIZE: 24}),
    Call(70, 79, "ncclSend", {COMMUNICATOR: BIG, SIZE: 32, PEER: 0}),
    Call(80, 89, "ncclRecv", {COMMUNICATOR: BIG, SIZE: 32, PEER: 0}),
]
KERNELS = [
    Kernel(100 + 10 * i, 105 + 10 * i, f"ncclDevKernel_{name}", call.begin + 1)
    for i, (call, name) in enumerate(
        zip(CALLS[1:6], ("AllReduce_Sum_f32", "AllReduce_Sum_f32", "Broadcast", "Reduce", "AllGather"), strict=True)
    )
]
ALONE = "RANK=0;WORLD_SIZE=1"
"""Environment of the only rank of a job."""
LABELS = {BIG: "communicator 1 (rank 0)", SMALL: "communicator 2 (rank 0)"}


def lines_of(path: Path, output: Path) -> tuple[Counter[tuple[object, ...]], dict[str, int]]:
    """Lines about NCCL in the trace of one report: row, UTC from the start, pairs; and what was dropped."""
    trace, summary = translate_reports([path], output, "kernels,nvtx,nccl")
    begins, _ = truth.collect_lines(trace, summary.start_utc_ns)
    in_trace: Counter[tuple[object, ...]] = Counter()
    for (_, place, time, pairs), count in begins.items():
        in_trace[place, time - reports.UTC, pairs] += count
    return in_trace, get_account(summary, "nccl").dropped


def expected_lines() -> Counter[tuple[object, ...]]:
    numbers = {BIG: 0, SMALL: 0}
    in_trace: Counter[tuple[object, ...]] = Counter()
    for i, call in enumerate(CALLS):
        communicator = call.payload[COMMUNICATOR]
        assert isinstance(communicator, int)
        sequence = 0
        if 1 <= i < 6:
            numbers[communicator] += 1
            sequence = numbers[communicator]
        elif i >= 6:
            sequence = 1
        named = truth.Call(0, call.begin, call.end or 0, call.name, dict(call.payload), sequence=sequence)
        pairs = truth.list_pairs([named], LABELS[communicator])
        in_trace["host", call.begin, pairs] += 1
        if 1 <= i < 6:
            in_trace["stream", KERNELS[i - 1].begin, tuple(sorted([*pairs, (truth.CALLS, 1)], key=str))] += 1
    return in_trace


@pytest.mark.parametrize("form", [reports.JSON, reports.BLOB, reports.BLOB_OF_SIZE, reports.HEXADECIMAL])
def test_payloads_of_calls_and_kernels(tmp_path: Path, form: str) -> None:
    """In JSON and in every form of bytes that was ever described; no capture with bytes was at hand."""
    path = reports.write_nccl_report(tmp_path / "report.sqlite", CALLS, KERNELS, form, ALONE)
    in_trace, dropped = lines_of(path, tmp_path / "trace.prv")
    assert dropped == {}
    assert in_trace == expected_lines()


def test_json_text_may_be_registered(tmp_path: Path) -> None:
    text = '{"NCCL communicator ID":18446744073709551613,"Message size [bytes]":64,"Reduction operation":"Min"}'
    columns = ("start", "end", "eventType", "globalTid", "textId", "domainId", "jsonTextId")
    tid = reports.make_global_tid(77, 77)
    rows = [(0, None, 75, tid, 2, 1, None), (10, 20, 59, tid, 3, 1, 4), (30, 40, 59, tid, 3, 1, None)]
    tables = {"NVTX_EVENTS": (columns, rows)}
    path = reports.export(tmp_path / "report.sqlite", ["", "x", "NCCL", "ncclAllReduce", text], tables)
    in_trace, dropped = lines_of(path, tmp_path / "trace.prv")
    pairs = {truth.COMMUNICATOR: "communicator 1 (1 rank)", truth.BYTES: 64, truth.OPERATION: "Min", truth.SEQUENCE: 1}
    assert in_trace == Counter({("host", 10, tuple(sorted(pairs.items(), key=str))): 1})
    assert dropped == {"call without payload: the export has none": 1}


@pytest.mark.slow
def test_operations_have_the_numbers_of_nccl(tmp_path: Path) -> None:
    """ncclRedOp_t plus 1; a number instead of a name is that of ncclRedOp_t; other names follow."""
    operations = ["Avg", 1, "PreMulSum", "Sum", 2]
    calls = [
        Call(10 * i, 10 * i + 5, "ncclAllReduce", {COMMUNICATOR: 1, SIZE: 8, OPERATION: operation})
        for i, operation in enumerate(operations, 1)
    ]
    path = reports.write_nccl_report(tmp_path / "report.sqlite", calls)
    trace, _ = translate_reports([path], tmp_path / "trace.prv", "nccl")
    values = trace.events[trace.events["type"] == truth.OPERATION]["value"].tolist()
    assert values == [5, 2, 6, 1, 3]
    assert trace.values[truth.OPERATION] == {1: "Sum", 2: "Product", 3: "Max", 5: "Avg", 6: "PreMulSum"}


@pytest.mark.slow
def test_the_layout_of_nccls_domain_is_taken_where_processes_share_its_number(tmp_path: Path) -> None:
    """Domains are numbered by process: another one's first domain may have schemas with the same ids."""
    tables = reports.make_layout_tables([1])
    columns, entries = tables["NVTX_PAYLOAD_SCHEMA_ENTRIES"]
    schema = reports.FIRST_SCHEMA + 5
    other = [(1, schema, i, None, reports.INT, name, None, None, 4 * i or None) for i, name in enumerate("ab")]
    for number, rows in enumerate(([*other, *entries], [*entries, *other], [*other, *other, *entries, *entries])):
        more = {"NVTX_PAYLOAD_SCHEMA_ENTRIES": (columns, rows)}
        path = reports.write_nccl_report(tmp_path / f"{number}.sqlite", CALLS[1:3], form=reports.BLOB, more=more)
        in_trace, dropped = lines_of(path, tmp_path / f"{number}.prv")
        assert dropped == {} and len(in_trace) == 2
        assert sum((truth.OPERATION, "Avg") in pairs for _, _, pairs in in_trace) == 1  # type: ignore[operator]


@pytest.mark.slow
@pytest.mark.parametrize(
    "payload",
    cases(
        [
            b"",
            b"\1" * 31,
            struct.pack("<4Q", 1, 3, 8, 32) + bytes(8),
            struct.pack("<4Q", 9, (1 << 24) + 5, 24, 32),
            "zz",
        ],
        push=3,
    ),
)
def test_bytes_that_are_not_understood_are_counted(tmp_path: Path, payload: object) -> None:
    path = reports.write_nccl_report(tmp_path / "report.sqlite", CALLS[1:2], KERNELS[:1], reports.BLOB)
    reports.execute(path, "UPDATE NVTX_EVENTS SET binaryData = ? WHERE eventType = 59", payload)
    in_trace, dropped = lines_of(path, tmp_path / "trace.prv")
    assert not in_trace
    assert dropped == {"call with a payload that is not understood": 1, "kernel whose calls have no payload": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", cases(["{", "[1]", "null", "17", "{}", '{"Colour": 3}', '{"NCCL communicator ID": null}'], push=3)
)
def test_text_that_is_not_understood_is_counted(tmp_path: Path, text: str) -> None:
    path = reports.write_nccl_report(tmp_path / "report.sqlite", CALLS[1:2])
    reports.execute(path, "UPDATE NVTX_EVENTS SET jsonText = ? WHERE eventType = 59", text)
    in_trace, dropped = lines_of(path, tmp_path / "trace.prv")
    assert not in_trace
    assert dropped == {"call with a payload that is not understood": 1}


@pytest.mark.slow
def test_payloads_that_are_not_there_are_asked_for(tmp_path: Path) -> None:
    path = reports.write_nccl_report(tmp_path / "report.sqlite", CALLS, KERNELS, reports.NO_PAYLOAD)
    in_trace, dropped = lines_of(path, tmp_path / "trace.prv")
    assert not in_trace
    # Payloads of calls that make communicators are not missed: not every version of NCCL gives them one.
    assert dropped == {
        "call without payload: the export has none, make it with nsys export --include-json=true": 7,
        "kernel whose calls have no payload": 5,
    }


# ---- calls that cannot be shown --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_calls_that_cannot_be_shown_are_counted(tmp_path: Path) -> None:
    good = CALLS[1]
    calls = [
        good,
        replace(good, begin=40, end=30),
        replace(good, begin=0, end=0),
        replace(good, begin=200, end=220),
        replace(good, begin=210, end=230),  # crosses the one before
    ]
    path = reports.write_nccl_report(tmp_path / "report.sqlite", calls)
    reports.execute(path, "INSERT INTO NVTX_EVENTS SELECT * FROM NVTX_EVENTS WHERE start = 20")
    reports.execute(path, "UPDATE NVTX_EVENTS SET globalTid = NULL WHERE rowid = (SELECT MAX(rowid) FROM NVTX_EVENTS)")
    in_trace, dropped = lines_of(path, tmp_path / "trace.prv")
    assert sorted(time for _, time, _ in in_trace) == [20, 200]  # type: ignore[type-var]
    assert dropped == {
        "no thread": 1,
        "ends before it starts": 1,
        "no time (start and end are 0)": 1,
        "partly overlaps another call on its thread": 1,
    }


@pytest.mark.slow
def test_a_call_without_an_end_lasts_until_the_trace_ends(tmp_path: Path) -> None:
    calls = [replace(CALLS[1], end=None), Call(50, 60, "ncclAllReduce", CALLS[2].payload)]
    path = reports.write_nccl_report(tmp_path / "report.sqlite", calls)
    trace, summary = translate_reports([path], tmp_path / "trace.prv", "nccl")
    assert get_account(summary, "nccl").closed_at_end == 1
    sizes = trace.events[trace.events["type"] == truth.BYTES]
    assert list(zip(sizes["time"], sizes["value"], strict=True)) == [(0, 4096), (30, 2**40), (40, 0), (40, 0)]


@pytest.mark.slow
def test_nccls_domain_is_known_by_its_calls_where_its_name_is_missing(tmp_path: Path) -> None:
    """A capture that began later lacks the row that names the domain; a domain of another name is not NCCL's."""
    path = reports.write_nccl_report(tmp_path / "report.sqlite", CALLS, KERNELS, environment=ALONE, named_domain=False)
    assert lines_of(path, tmp_path / "trace.prv")[0] == expected_lines()
    path = reports.write_nccl_report(tmp_path / "other.sqlite", CALLS)
    reports.execute(path, "UPDATE NVTX_EVENTS SET text = 'mine' WHERE eventType = 75")
    assert lines_of(path, tmp_path / "other.prv") == (Counter(), {})


@pytest.mark.slow
def test_a_report_without_nccl_has_none(samples: Path, tmp_path: Path) -> None:
    trace, summary = translate_reports([samples / "single-graph.sqlite"], tmp_path / "trace.prv", "kernels,nccl")
    assert (get_account(summary, "nccl").read, get_account(summary, "nccl_messages").read) == (0, 0)
    assert not trace.events["type"].between(9500, 9510).any()


# ---- layout ----------------------------------------------------------------------------------------------------------

_SIZED = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 8: "Q", 12: "B", 16: "I", 17: "q", 18: "Q", 20: "d", 22: "Q"}


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.sampled_from(sorted(_SIZED)), min_size=1, max_size=8), st.booleans(), st.integers(0, 2**64 - 1))
def test_fields_lie_where_a_c_compiler_puts_them(kinds: list[int], offsets_given: bool, seed: int) -> None:
    """Python's struct aligns as C does; offsets are in the table (0 as NULL) or follow from the types."""
    values = [(seed >> (5 * i)) & 0x3F for i in range(len(kinds))]
    formats = "".join(_SIZED[kind] for kind in kinds)
    data = struct.pack("@" + formats, *values)
    ends = [struct.calcsize("@" + formats[: i + 1]) for i in range(len(kinds))]
    offsets = [end - struct.calcsize("@" + code) for end, code in zip(ends, formats, strict=True)]
    n = len(kinds)

    def columns(table: Table) -> Columns:
        one, no_text = np.ones(n, np.int64), {"name": pa.chunked_array([], pa.string())}
        none = np.zeros(0, np.int64)
        if table == SCHEMAS:
            return Columns(1, {"domainId": one[:1], "schemaId": one[:1], "alignTo": 0 * one[:1]}, {})
        if table == ENTRIES:
            numbers = {"domainId": one, "schemaId": one, "idx": np.arange(n), "type": np.array(kinds), "flags": 0 * one}
            offset = np.array(offsets) if offsets_given else 0 * one
            names = pa.chunked_array([[f"field {i}" for i in range(n)]])
            return Columns(n, {**numbers, "offset": offset}, {"name": names})
        assert table in (ENUMS, ENUM_ENTRIES)
        return Columns(0, dict.fromkeys(("domainId", "schemaId", "size", "value"), none), no_text)

    fields = PayloadLayout(columns, "field 0").fields(struct.pack("<4Q", 1, 1, len(data), 32) + data)
    assert fields == {f"field {i}": value for i, value in enumerate(values)}


def test_blobs_are_read_as_bytes_whatever_their_type(tmp_path: Path) -> None:
    table = {"T": (("a", "b"), [(1, b"\x00\xff"), (2, "00ff"), (3, None), (4, 17)])}
    database = Database(reports.export(tmp_path / "report.sqlite", [""], table))
    declared = replace(ENUMS, name="T", required=("a",), optional={}, blob=("b", "c"))
    columns = database.read(declared, "")
    database.close()
    assert columns["a"].tolist() == [1, 2, 3, 4] and NULL not in columns["a"]
    assert columns.blobs["b"].to_pylist() == [b"\x00\xff", b"00ff", None, None]
    assert columns.blobs["c"].to_pylist() == [None] * 4


@pytest.mark.slow
def test_numbers_that_no_communicator_has(tmp_path: Path) -> None:
    """Ranks and devices up to 2**63 are damage, and nobody counts them."""
    huge = {RANKS: 2**62, RANK: 2**61, "No. of devices": 2**60, PEER: 2**62, ROOT: 2**62}
    calls = [
        Call(10, 19, "ncclCommInitRank", {COMMUNICATOR: BIG, **huge}),
        Call(20, 29, "ncclSend", {COMMUNICATOR: BIG, SIZE: 8, **huge}),
        Call(30, 39, "ncclReduce", {COMMUNICATOR: BIG, SIZE: 8, OPERATION: "\ud800", **huge}),
    ]
    path = reports.write_nccl_report(tmp_path / "a.sqlite", calls, environment=f"RANK=0;WORLD_SIZE={'9' * 5000}")
    _, dropped = lines_of(path, tmp_path / "a.prv")
    assert dropped == {}
