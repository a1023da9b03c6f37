"""The truth of damaged reports reads no more of them than the translation that it is compared with."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from nsys2prv_ng.translation.result import SourceAccount
from tests.damage_truth import Truth, check_accounts

_COLUMNS = '"start", "end", globalTid, nameId, globalPid, deviceId, contextId, streamId'


def _write_report(path: Path) -> None:
    """Write one call, and kernels on a page that is damaged."""
    with closing(sqlite3.connect(path, isolation_level=None)) as sql:
        for kind in ("RUNTIME", "KERNEL"):
            sql.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_{kind} ({_COLUMNS})")
            sql.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_{kind} VALUES (1, 2, 1 << 24, 0, 1 << 24, 0, 0, 0)")
        ((page,),) = sql.execute("SELECT rootpage FROM sqlite_master WHERE name LIKE '%KERNEL'").fetchall()
        ((size,),) = sql.execute("PRAGMA page_size").fetchall()
    data = bytearray(path.read_bytes())
    data[(page - 1) * size : page * size] = b"\xa5" * size
    path.write_bytes(data)


def test_counts_only_the_sources_asked_for(tmp_path: Path) -> None:
    report = tmp_path / "damaged.sqlite"
    _write_report(report)
    assert Truth(report).count({"cuda_api"}) == {"cuda_api": Counter({"": 1})}
    with pytest.raises(sqlite3.DatabaseError, match="malformed"):
        Truth(report).count({"kernels"})


def test_checks_accounts_of_a_report_with_damage_where_nothing_was_read(tmp_path: Path) -> None:
    report = tmp_path / "damaged.sqlite"
    _write_report(report)
    account = SourceAccount(name="cuda_api", title="CUDA API", read=1, written=1)
    assert check_accounts([report], [account]) == ""
    wrong = SourceAccount(name="cuda_api", title="CUDA API", read=2, written=2)
    assert check_accounts([report], [wrong]).startswith("cuda_api: read 2")
