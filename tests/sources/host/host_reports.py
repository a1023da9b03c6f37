"""Small reports of given rows, translations of some sources only, and the expected rows of threads in a trace."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pandas as pd

from nsys2prv_ng.paraver.checker.trace import check_trace
from nsys2prv_ng.sources.registry import select_sources
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.result import SourceAccount, TranslationResult
from nsys2prv_ng.translation.translate import translate
from tests.trace_reader import Trace, pair_intervals, read_trace

PID = 0xFFFFFF
UTC = 1_700_000_000_000_000_000

Rows = Iterable[Sequence[object]]


def make_tid(process: int, thread: int | None = None) -> int:
    """Return the globalTid of a thread, by default the main thread."""
    return 1 << 56 | process << 24 | (process if thread is None else thread)


def write_small_report(
    path: Path,
    tables: Mapping[tuple[str, str], Rows],
    strings: Sequence[str] = (),
    *,
    duration: int = 1_000_000,
    environment: str = "",
) -> Path:
    """Write a report with rows of tables, by (name, columns separated by blanks); string ids count from 0."""
    connection = sqlite3.connect(path)
    all_tables: dict[tuple[str, str], Rows] = {
        ("StringIds", "id value"): list(enumerate(strings)),
        ("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"): [(UTC,)],
        ("ANALYSIS_DETAILS", "duration"): [(duration,)],
        ("META_DATA_CAPTURE", "name value"): [("PROCESS_0:ENVIRONMENT_VARIABLE", environment)],
        **tables,
    }
    for (table, columns), rows in all_tables.items():
        names = columns.split()
        quoted = ", ".join(f'"{name}"' for name in names)
        connection.execute(f"CREATE TABLE {table} ({quoted})")
        connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", rows)
    connection.commit()
    connection.close()
    return path


def translate_sources(
    reports: Sequence[Path], folder: Path, sources: str, options: SourceOptions | None = None
) -> tuple[TranslationResult, Trace]:
    """Translate some sources of reports; return the result and the trace.

    The trace must be sound, and every event read must be written or counted as dropped.
    """
    chosen = TranslationPlan(sources=select_sources(sources), source_options=options or SourceOptions(), force=True)
    summary = translate(reports, folder / "trace.prv", chosen)
    for account in summary.sources:
        assert account.read == account.written + sum(account.dropped.values()), account
    assert check_trace(folder / "trace.prv").problems == []
    return summary, read_trace(folder / "trace.prv").omit_path()


def get_account(summary: TranslationResult, source: str) -> SourceAccount:
    return next(account for account in summary.sources if account.name == source)


def copy_without_other_calls(report: Path, folder: Path) -> Path:
    """Copy a report without calls of threads, except those of the operating system and of CUDA.

    A trace shows the observations of threads that make calls, whether or not the calls are chosen.
    """
    copy = folder / report.name
    shutil.copyfile(report, copy)
    with closing(sqlite3.connect(copy)) as database, database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            if (
                name == "NVTX_EVENTS"
                or name.startswith("OPENMP_")
                or (name.startswith("MPI_") and name.endswith("_EVENTS"))
            ):
                database.execute(f'DROP TABLE "{name}"')
    return copy


def find_idle_threads(report: Path) -> set[int]:
    """Return the globalTids of threads, main ones not among them, in no table but those of what the system did."""
    with closing(sqlite3.connect(f"{report.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        calls = {"OSRT_API", "SYSCALL", "SCHED_EVENTS", "COMPOSITE_EVENTS", "PROFILER_OVERHEAD", "ThreadNames"}
        threads: dict[bool, set[int]] = {True: set(), False: set()}
        for table in tables:
            if "globalTid" in [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]:
                found = database.execute(f'SELECT DISTINCT globalTid FROM "{table}" WHERE globalTid IS NOT NULL')
                threads[table in calls] |= {tid for (tid,) in found}
    mask = (1 << 24) - 1
    return {tid for tid in threads[True] - threads[False] if tid & mask != tid >> 24 & mask}


def cut_idle_calls(calls: pd.DataFrame, idle: set[int]) -> tuple[pd.DataFrame, int]:
    """Return calls (begin, end and tid), and how many are missing: those of idle threads end with all others.

    This is done only where they outlast the others by more than a tenth of their time.
    """
    others = calls[~calls["tid"].isin(idle)]
    last = others["end"].max()
    if others.empty or calls["end"].max() - last <= 0.1 * (last - calls["begin"].min()):
        return calls, 0
    own = calls[~calls["tid"].isin(idle) | (calls["begin"] < last) | (calls["end"] <= last)]
    return own.assign(end=own["end"].clip(upper=last)), len(calls) - len(own)


def collect_in_report_time(trace: Trace, summary: TranslationResult, utc: int, *event_types: int) -> pd.DataFrame:
    """Return intervals with begin and end on a report's clock (time 0 is `utc`), and the label of each value."""
    intervals = pair_intervals(trace, *event_types)
    shift = summary.start_utc_ns - utc
    names = [trace.values[kind][value] for kind, value in zip(intervals["type"], intervals["value"], strict=True)]
    return intervals.assign(begin=intervals["begin"] + shift, end=intervals["end"] + shift, name=names)


def number_thread_rows(tids: Iterable[int]) -> dict[int, int]:
    """Return the row of each thread in a trace of one report without GPU: by process, the main thread first."""
    order = sorted(set(tids), key=lambda t: (t >> 24, t & PID != t >> 24 & PID, t & PID))
    return {thread: row for row, thread in enumerate(order)}


def sum_painted(frame: pd.DataFrame) -> dict[tuple[int, int], int]:
    """Return the length (ns) of the union of the intervals of each (row, state), by one sweep each."""
    lengths: dict[tuple[int, int], int] = {}
    for key, group in frame.groupby(["row", "state"]):
        total, reached = 0, None
        for begin, end in sorted(zip(group["begin"], group["end"], strict=True)):
            low = begin if reached is None else max(begin, reached)
            if end > low:
                total += end - low
                reached = end
        if total:
            lengths[key] = total
    return lengths
