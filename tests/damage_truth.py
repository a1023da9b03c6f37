"""Events of damaged reports by plain SQL and plain loops, to compare accounts with."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.damage_folders import quote

if TYPE_CHECKING:
    from nsys2prv_ng.translation.result import SourceAccount

LONGEST = 2**53
FARTHEST = 2**62 - 2 * LONGEST
INTEGER = """NULLIF(CASE typeof({0}) WHEN 'integer' THEN {0} WHEN 'real' THEN CAST({0} AS INTEGER) END,
    -9223372036854775807 - 1)"""
"""SQL for the integer that a value of any type stands for; the smallest one stands for NULL."""

CALLS = (
    ("cuda_api", ("CUPTI_ACTIVITY_KIND_RUNTIME",)),
    ("profiler_overhead", ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")),
    ("mpi", ("MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS")),
)
OPERATIONS = (
    ("kernels", ("CUPTI_ACTIVITY_KIND_KERNEL",)),
    ("memory_operations", ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")),
)
"""Sources, and the tables of each."""
_OPERATION = ("start", "end", "globalPid", "deviceId", "contextId", "streamId")
SEVERAL_ROWS = re.compile(r"(?i:MPI_I?sendrecv(_replace)?|MPI_(Startall|(Wait|Test)(all|any|some)))")
"""MPI calls with a row for each of their requests."""
MERGED = "merged into another row of the same call"


class Truth:
    """The events of one report, by source."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tables = {name for (name,) in self._query("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def _query(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            return connection.execute(query).fetchall()

    def _read(self, table: str, *columns: str, text: str = "NULL") -> list[Any]:
        """Return integers of all rows, None in columns that are missing, and a text."""
        if table not in self._tables:
            return []
        existing = {name for (name,) in self._query(f"SELECT name FROM pragma_table_xinfo('{table}')")}
        values = [INTEGER.format(quote(name)) if name in existing else "NULL" for name in columns]
        text = f"CASE typeof({text}) WHEN 'text' THEN {text} END" if text in existing else "NULL"
        return self._query(f"SELECT {', '.join(values)}, {text} FROM {quote(table)} NOT INDEXED")

    def count(self, sources: Collection[str]) -> dict[str, Counter[str]]:
        """Return, by source, how many events are read, by the reason for which they are dropped, or the empty string.

        Only the tables of these sources are read: others may be damaged where no translation of these looks. Calls that
        overlap others on their thread count as not dropped.
        """
        counts: dict[str, Counter[str]] = {}
        for source, tables in CALLS:
            if source in sources:
                counts[source] = self._count_calls(source, tables)
        for source, tables in OPERATIONS:
            if source in sources:
                counts[source] = Counter(fault for table in tables for fault in self._find_operation_faults(table))
        if "cuda_sync" in sources:
            counts["cuda_sync"] = Counter(self._find_sync_faults())
        return counts

    # ---- calls -------------------------------------------------------------------------------------------------------

    def _count_calls(self, source: str, tables: Iterable[str]) -> Counter[str]:
        calls = [call for table in tables for call in self._read_calls(table)]
        if source != "mpi":
            return Counter(_find_call_fault(call) for call in calls)
        calls = calls or self._list_mpi_ranges()
        merged = self._count_merged(calls)
        return Counter(_find_call_fault(call) for call in calls) + Counter({"": -merged, MERGED: merged})

    def _read_calls(self, table: str) -> list[Any]:
        """Return begin, end, thread and id of the name of each call."""
        name = "textId" if table.startswith("MPI") else "nameId"
        return [row[:4] for row in self._read(table, "start", "end", "globalTid", name)]

    @cached_property
    def _strings(self) -> dict[int, str]:
        return {key: text for key, text in self._read("StringIds", "id", text="value") if text is not None}

    def _list_mpi_ranges(self) -> list[Any]:
        """Return the ranges of the domain MPI that are named as calls, as nsys exported MPI before 2023.4."""
        columns = "start", "end", "globalTid", "textId", "eventType", "domainId"
        rows = self._read("NVTX_EVENTS", *columns, text="text")
        named = [(*row[:4], row[4], (_shift(row[2]), row[5] or 0), row[6] or self._strings.get(row[3])) for row in rows]
        domains = {key for *_, kind, key, text in named if kind == 75 and text == "MPI"}
        return [row[:4] for row in named if row[4] == 59 and row[5] in domains and str(row[6]).startswith("MPI_")]

    def _count_merged(self, calls: list[Any]) -> int:
        """Return how many rows are further requests of a call that another row shows."""
        several = [
            (begin, thread, name)
            for begin, end, thread, name in calls
            if not _find_call_fault((begin, end, thread, name)) and SEVERAL_ROWS.fullmatch(self._strings.get(name, ""))
        ]
        return len(several) - len(set(several))

    # ---- operations of GPUs ------------------------------------------------------------------------------------------

    def _find_operation_faults(self, table: str) -> Iterator[str]:
        """Yield why each operation is dropped, or the empty string."""
        for begin, end, *place, _ in self._read(table, *_OPERATION):
            yield "no process, device, context or stream" if None in place else _find_time_fault(begin, end)

    def _find_sync_faults(self) -> Iterator[str]:
        """Yield why each synchronization and each CUDA event is dropped."""
        recorded = {
            (_shift(thread), correlation)
            for begin, end, thread, correlation, _ in self._read(
                CALLS[0][1][0], "start", "end", "globalTid", "correlationId"
            )
            if None not in (thread, correlation) and not _find_time_fault(begin, begin if end is None else end)
        }
        for kind in ("SYNCHRONIZATION", "CUDA_EVENT"):
            table = f"CUPTI_ACTIVITY_KIND_{kind}"
            for begin, end, pid, correlation, _ in self._read(table, "start", "end", "globalPid", "correlationId"):
                if pid is None:
                    yield "no process"
                elif (_shift(pid), correlation) not in recorded:
                    yield "no call recorded with its correlation id"
                else:
                    yield _find_time_fault(begin, end) if kind == "SYNCHRONIZATION" else ""


def _shift(key: int | None) -> Any:
    return None if key is None else key >> 24


def _find_call_fault(call: Any) -> str:
    begin, end, thread, _ = call
    return "no thread" if thread is None else _find_time_fault(begin, end)


def _find_time_fault(begin: int | None, end: int | None) -> str:
    if begin is None or end is None:
        return "no start or end"
    if end < begin:
        return "ends before it starts"
    if begin == end == 0:
        return "no time (start and end are 0)"
    is_endless = abs(begin) > FARTHEST or end - begin > LONGEST
    return "longer than Paraver can show" if is_endless else ""


# ---- comparison with the program -------------------------------------------------------------------------------------


def check_accounts(reports: Sequence[Path], accounts: Iterable[SourceAccount]) -> str:
    """Return which account of a translation differs from the reports, exports to SQLite, or the empty string."""
    accounts = list(accounts)
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for report in reports:
        for source, counted in Truth(report).count({account.name for account in accounts}).items():
            counts[source] += counted
    for account in accounts:
        if account.name not in counts:
            continue
        counted = counts[account.name]
        read = sum(counted.values())
        dropped = {reason: account.dropped.get(reason, 0) for reason in counted if reason}
        if account.read != read or any(counted[reason] != number for reason, number in dropped.items()):
            return f"{account.name}: read {account.read}, dropped {account.dropped}; in the reports {dict(counted)}"
    return ""
