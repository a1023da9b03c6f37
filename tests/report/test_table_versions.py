"""Tables whose names end in a version are read, or refused with a message."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.report.database import Table, open_database
from nsys2prv_ng.report.metadata import Strings, read_metadata
from tests.sources.small_reports import MAIN, Rows, export, translate_reports

COLUMNS = ("start", "end", "eventType", "globalTid", "textId", "domainId")
ROWS = [(10, 20, 59, MAIN, 1, 0), (30, 50, 59, MAIN, 2, 0)]
NVTX = Table("NVTX_EVENTS", COLUMNS)


def write(path: Path, *names: str) -> Path:
    tables: dict[str, Rows] = dict.fromkeys(names, (COLUMNS, ROWS))
    return export(path, ["", "one", "two"], tables)


def test_a_versioned_table_makes_the_trace_of_the_plain_one(tmp_path: Path) -> None:
    plain, versioned = (write(tmp_path / f"{name}.sqlite", name) for name in ("NVTX_EVENTS", "NVTX_EVENTS_V3"))
    for path in (plain, versioned):
        translate_reports([path], path.with_suffix(".prv"), "nvtx")
    _, *body = plain.with_suffix(".prv").read_text().splitlines()
    _, *other = versioned.with_suffix(".prv").read_text().splitlines()
    assert body == other
    assert len(body) > len(ROWS)
    with open_database(versioned) as database:
        assert "NVTX_EVENTS" in database.tables
        assert "NVTX_EVENTS_V3" not in database.tables
        assert database.count_rows("NVTX_EVENTS") == len(ROWS)
        assert database.read_objects("NVTX_EVENTS", ["start"], {"textId": [2]}) == {"start": [30]}


def test_several_versions_are_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", "NVTX_EVENTS_V2", "NVTX_EVENTS_V3")
    with open_database(path) as database, pytest.raises(ReportError, match="NVTX_EVENTS_V2 and NVTX_EVENTS_V3"):
        database.read(NVTX, "")


def test_a_plain_table_counts_and_the_versions_beside_it_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", "NVTX_EVENTS")
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE NVTX_EVENTS_V2 AS SELECT * FROM NVTX_EVENTS WHERE 0")
    with open_database(path) as opened:
        assert opened.count_rows("NVTX_EVENTS") == len(ROWS)
        assert [w for w in read_metadata(opened, Strings(opened)).warnings if "NVTX_EVENTS_V2" in w]
