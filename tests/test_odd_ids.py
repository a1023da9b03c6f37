"""Ids of GPUs, streams, contexts, calls, processes and threads may be any integer: they are names, never sizes."""

from __future__ import annotations

import os
import resource
import sqlite3
import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import nsys2prv_ng
from tests.conftest import SAMPLES
from tests.tiers import cases

pytestmark = pytest.mark.slow

MORE_MEMORY = 3 << 29
"""Bytes of address space beyond those of this process: less than two arrays of 10**8 numbers."""
ODD = ((2**62, "one"), (2**62, "all"), (10**8, "all"), (-1, "some"))
"""Values, each with the rows that get it."""
NAMED = {
    "gpuId": {"gpuId": None, "id": "TARGET_INFO_GPU"},
    "deviceId": {"deviceId": None, "cudaId": "TARGET_INFO_CUDA_DEVICE"},
    "streamId": {"streamId": None},
    "contextId": {"contextId": None},
    "correlationId": {"correlationId": None},
    "globalPid": {"globalPid": None},
    "globalTid": {"globalTid": None},
    "process": {"globalPid": None, "globalTid": None, "pid": None, "processId": None},
}
"""The columns that hold an id, each in all tables or in one."""
WHICH = {
    "one": "rowid = (SELECT max(rowid) FROM {table})",
    "all": "TRUE",
    "some": "{column} = (SELECT max({column}) FROM {table})",
}


def write_odd_report(path: Path, id_name: str, value: int, which: str) -> Path:
    """Write a copy of a sample in which ids of one kind have a value: of one row, of all rows, or of equal ids."""
    path.write_bytes((SAMPLES / "ddp-2x2.rank0.sqlite").read_bytes())
    changed = 0
    with closing(sqlite3.connect(path)) as connection:
        for table, column in list_columns(connection):
            if NAMED[id_name].get(column, "") in (None, table):
                where = WHICH[which].format(table=table, column=column)
                changed += connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,)).rowcount
        connection.commit()
    assert changed
    return path


def list_columns(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        for _, column, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
            yield table, column


def count_rows(report: Path, table: str) -> int:
    with closing(sqlite3.connect(report)) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def use(reports: list[Path], folder: Path, kernels: int) -> None:
    """Use a job in all ways; all of its kernels are accounted for."""
    result = nsys2prv_ng.translate(reports, folder / "o.prv")
    (account,) = [account for account in result.sources if account.name == "kernels"]
    assert account.read == kernels == account.written + sum(account.dropped.values())
    assert nsys2prv_ng.check(folder / "o.prv").problems == []
    nsys2prv_ng.summarize(reports)
    nsys2prv_ng.what_if(reports, change=["call 'cudaLaunchKernel' = 0"], output=folder / "w.prv")
    assert not nsys2prv_ng.inspect(reports).faults


@pytest.fixture(scope="module")
def loaded(tmp_path_factory) -> None:
    """What is loaded and compiled here is shared with the processes whose memory is limited."""
    reports = [SAMPLES / f"ddp-2x2.rank{rank}.sqlite" for rank in (0, 1)]
    use(reports, tmp_path_factory.mktemp("sound"), sum(count_rows(report, KERNELS) for report in reports))


KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
CASES = [pytest.param(name, *odd, id=f"{name}-{odd[0]}-{odd[1]}") for name in NAMED for odd in ODD]


@pytest.mark.parametrize(("name", "value", "which"), cases(CASES, push=["gpuId-100000000-all", "deviceId--1-some"]))
def test_odd_ids(tmp_path, loaded, name, value, which):
    reports = [write_odd_report(tmp_path / "a.sqlite", name, value, which), SAMPLES / "ddp-2x2.rank1.sqlite"]
    kernels = sum(count_rows(report, KERNELS) for report in reports)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MORE_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            use(reports, tmp_path, kernels)
        except BaseException:
            os.write(write, traceback.format_exc()[-3000:].encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        problem = answer.read().decode()
    assert (os.waitpid(child, 0)[1], problem) == (0, "")
