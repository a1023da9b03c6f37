"""Finds tables of events that no source reads, as newer versions of nsys write them, and work of GPUs among them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.report import diagnostics
from nsys2prv_ng.report.database import Database
from nsys2prv_ng.report.nvtx_payload import PREFIX
from nsys2prv_ng.sources.registry import DERIVED, SOURCES

_DESCRIPTIONS = re.compile(rf"(TARGET_INFO|META_DATA|ENUM)_.*|ANALYSIS_DETAILS|{diagnostics.TABLE}|{PREFIX}.*")
"""Tables without events: of the machine, the capture and the export, messages of nsys, and payloads."""
_TIME = re.compile(
    r"(start|begin|end|stop|time|timestamp|duration)(_?ns|Ns|ed)?"
    r"|\w*(Start|Begin|End|Stop|Time|Timestamp|TimeStamp|Duration|[a-z]At|Ns)"
    r"|\w+_(start|begin|end|stop|time|timestamp|duration|at|ns)"
)
"""Names of columns that only tables of events have, such as start, rawTimestamp and startedAt: those of NVIDIA's
documentation of schema 3.28, and other ways to write them."""
_LENGTH = re.compile(r".*(end|stop|duration).*", re.IGNORECASE)
"""Names among these of tables whose events last: samples are no work."""
_STREAM, _ON_GPU = "streamId", {"deviceId", "contextId", "gpuId"}
_ELSEWHERE = {"globalTid", "SMId"}
"""Columns of calls on host threads, and of blocks and warps, whose kernels have a table of their own."""
_GRAPHICS = "_WORKLOAD"
"""How the names of tables with the work of graphics end: they have the thread of the call, too."""


def list_unread_tables(database: Database) -> Iterator[str]:
    """Yield the tables that no source reads and that may have events, in the order of names."""
    declared = {table.name for source in SOURCES + DERIVED for table in source.tables}
    yield from sorted(table for table in database.tables - declared if not _DESCRIPTIONS.fullmatch(table))


def count_events(database: Database, table: str) -> int:
    """Return the number of rows of a table with times; 0 without times. Raises ReportError if it cannot be read."""
    return database.count_rows(table) if _list_times(database.list_columns(table)) else 0


def warn_of_unread_work(database: Database) -> list[str]:
    """Return a warning if tables with work of GPUs have rows, but no source reads them."""
    tables = [table for table in list_unread_tables(database) if _has_gpu_work(database, table)]
    if not tables:
        return []
    return [f"no source reads the work of GPUs in {', '.join(tables)}: GPUs may work while they seem idle"]


def _list_times(columns: Iterable[str]) -> list[str]:
    return [column for column in columns if _TIME.fullmatch(column)]


def _has_gpu_work(database: Database, table: str) -> bool:
    try:
        columns = database.list_columns(table)
        on_gpu = bool(columns & _ON_GPU and not columns & _ELSEWHERE)
        is_work = _STREAM in columns or on_gpu or table.endswith(_GRAPHICS)
        times = _list_times(columns)
        return is_work and len(times) > 1 and any(map(_LENGTH.fullmatch, times)) and database.count_rows(table) > 0
    except ReportError:  # a damaged table that nothing needs
        return False
