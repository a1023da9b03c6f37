"""Payloads of NCCL's calls as tables: the same trace as from the same payloads as bytes and as JSON text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from nsys2prv_ng.inspection.inspect import inspect
from nsys2prv_ng.report.database import NULL, Database
from nsys2prv_ng.report.metadata import Strings, read_metadata
from nsys2prv_ng.report.nvtx_payload import read_payload_tables
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.registry import select_sources
from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.translate import translate
from tests.conftest import Unpacked
from tests.report.table_folders import folder_of
from tests.sources.nccl import nccl_reports as reports
from tests.sources.nccl.payload_tables import BYTES, NAMES, NUMBERS, rewrite_payloads
from tests.sources.nccl.test_payload import ALONE, CALLS, KERNELS, expected_lines, lines_of


def translate_bytes(report: Path, folder: Path) -> dict[str, bytes]:
    """Return the files of the trace of a report."""
    folder.mkdir()
    translate([report], folder / "trace.prv", TranslationPlan(sources=select_sources("kernels,nvtx,nccl")))
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".prv", ".pcf", ".row")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "forms"), [("gpu/ddp-2x2.rank0", (NUMBERS, NAMES)), ("exercises/ex3a-pp2.rank0", (NUMBERS,))]
)
def test_real_payloads_in_every_form(
    shared_reports: Path, unpacked: Unpacked, tmp_path: Path, name: str, forms: tuple[str, ...]
) -> None:
    """Equal bytes of all files of the trace."""
    original = unpacked(shared_reports / f"{name}.sqlite")
    expected = translate_bytes(original, tmp_path / "json")
    assert set(expected) == {"trace.prv", "trace.pcf", "trace.row"}
    for form in (BYTES, *forms):
        folder = tmp_path / f"report with {form}"
        folder.mkdir()
        assert rewrite_payloads(original, folder / original.name, form) > 100
        assert translate_bytes(folder / original.name, tmp_path / form) == expected


def write_tables(tmp_path: Path, form: str = NUMBERS) -> Path:
    """Write a small report with payloads as tables, of all of NCCL's calls."""
    plain = reports.write_nccl_report(
        tmp_path / "plain.sqlite", CALLS, KERNELS, environment=ALONE, more=reports.make_layout_tables([1])
    )
    for column in ("jsonTextId", "domain"):
        reports.execute(plain, f"ALTER TABLE NVTX_EVENTS ADD COLUMN {column}")
    rewrite_payloads(plain, tmp_path / "report.sqlite", form)
    return tmp_path / "report.sqlite"


@pytest.mark.parametrize("form", [NUMBERS, NAMES])
def test_payloads_of_calls_and_kernels(tmp_path: Path, form: str) -> None:
    """Communicators beyond the signed numbers, and every field."""
    in_trace, dropped = lines_of(write_tables(tmp_path, form), tmp_path / "trace.prv")
    assert dropped == {}
    assert in_trace == expected_lines()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "arrow stream"])
def test_folders_keep_unsigned_numbers(tmp_path: Path, kind: str) -> None:
    """Where SQLite has only signed ones of 64 bits, folders have the types of the fields."""

    def convert(table: pa.Table) -> pa.Table:
        names = [name for name in table.column_names if name in ("NCCL_communicator_ID", "Message_size__bytes_")]
        for name in names:
            values = pa.array([value % 2**64 for value in table[name].to_pylist()], pa.uint64())
            table = table.set_column(table.column_names.index(name), name, values)
        return table

    folder = folder_of(write_tables(tmp_path), tmp_path / "folder", kind, convert)
    in_trace, dropped = lines_of(folder, tmp_path / "trace.prv")
    assert dropped == {}
    assert in_trace == expected_lines()


def test_rank_and_inspection(tmp_path: Path) -> None:
    """The rank is in a payload; tables of payloads are no events, even where a field is called like a time."""
    path = write_tables(tmp_path)
    reports.execute(path, "CREATE TABLE DYNAMIC_NVTXPAYLOAD_DATATYPE_5_1_2 (start, eventId)")
    reports.execute(path, "INSERT INTO DYNAMIC_NVTXPAYLOAD_DATATYPE_5_1_2 VALUES (1, 2)")
    settings = [("EXPORT_SCHEMA_VERSION", "3.28.1"), ("EXPORT_PARAM_INCLUDE_BLOBS", "false")]
    for setting in settings:
        reports.execute(path, "INSERT INTO META_DATA_EXPORT VALUES (?, ?)", *setting)
    database = Database(path)
    assert read_metadata(database, Strings(database)).nccl_ranks == {1 << 24 | 77: 0}
    database.close()
    (found,) = inspect([path], Progress(), 1).reports
    assert (found.not_translated, found.warnings) == ([], [])
    reports.execute(path, "DROP TABLE NVTX_EVENTS_PAYLOAD_SCHEMAS")
    (found,) = inspect([path], Progress(), 1).reports
    assert [(each.rows, each.why.split("; ")[1]) for each in found.not_translated] == [
        (7, "export with --include-blobs=true")
    ]


@pytest.mark.parametrize("ids", [[NULL, NULL], [1006, 1006], [7, 8]])
def test_events_without_an_id_of_their_own(tmp_path: Path, ids: list[int]) -> None:
    """They have no payload: nothing shows which is theirs."""
    database = Database(write_tables(tmp_path))
    process, domain = np.array([1 << 24 | 77] * 2), np.array([1, 1])
    index, _ = read_payload_tables(database, np.array(ids), process, domain, (reports.SIZE,))
    known, payloads = read_payload_tables(database, np.array([1006, 1009]), process, domain, (reports.SIZE,))
    database.close()
    assert index.tolist() == [-1, -1]
    # The second event, which makes a communicator, and the third, an all-reduce of 4096 bytes.
    assert [payloads[i] for i in known.tolist()] == [None, {reports.SIZE: 4096}]


@pytest.mark.parametrize(
    ("statement", "lost"),
    [
        # The row of the first all-reduce in a second table, or twice in its own.
        ("INSERT INTO {reduce} SELECT 0, 7, 7, 0, 0, eventId FROM {all} WHERE Message_size__bytes_ = 4096", 1),
        ("INSERT INTO {all} SELECT * FROM {all}", 2),
        # An event without its row; tables that are no table of the schema; fields whose column is not certain.
        ("DELETE FROM {all}", 2),
        ("ALTER TABLE {all} RENAME TO {all}_values", 2),
        ("ALTER TABLE {all} RENAME TO DYNAMIC_NVTXPAYLOAD_DATATYPE_5_1_16777221", 2),
        ("ALTER TABLE {all} RENAME COLUMN eventId TO event", 2),
        ("UPDATE NVTX_EXPORT_TRANSLATION SET sanitizedName = 'x' || sanitizedName", 6),
        ("UPDATE NVTX_EXPORT_TRANSLATION SET sanitizedName = 'Root'", 8),
    ],
)
@pytest.mark.slow
def test_what_is_not_certain_is_dropped(tmp_path: Path, statement: str, lost: int) -> None:
    """Counted, with the reason; the other calls keep their lines."""
    path = write_tables(tmp_path)
    tables = {
        name: f"DYNAMIC_NVTXPAYLOAD_DATATYPE_{reports.make_global_tid(77, 0)}_1_{(1 << 24) + number}"
        for name, number in (("all", 5), ("reduce", 8))
    }
    reports.execute(path, statement.format(**tables))
    in_trace, dropped = lines_of(path, tmp_path / "trace.prv")
    assert dropped["call with a payload that is not understood"] == lost
    assert {time for _, time, _ in in_trace} <= {time for _, time, _ in expected_lines()}
