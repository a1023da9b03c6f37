"""Small exports for a test: their making, their translation, and their trace."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nsys2prv_ng.paraver.checker.trace import check_trace
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.sources.registry import select_sources
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.result import SourceAccount, TranslationResult
from nsys2prv_ng.translation.translate import translate
from tests.trace_reader import Trace, read_trace

PROCESS = 1 << 48 | 77 << 24
"""globalPid of a process with pid 77."""
MAIN = PROCESS | 77
WORKER = PROCESS | 78
UTC = 1_700_000_000 * 10**9

Rows = tuple[Sequence[str], Sequence[Sequence[object]]]


def export(path: Path, strings: Sequence[str], tables: Mapping[str, Rows], utc: int = UTC, host: str = "host") -> Path:
    """Write an export with tables, given as columns and rows; the id of a string is its place in `strings`."""
    base: dict[str, Rows] = {
        "StringIds": (("id", "value"), list(enumerate(strings))),
        "TARGET_INFO_SESSION_START_TIME": (("utcEpochNs",), [(utc,)]),
        "TARGET_INFO_SYSTEM_ENV": (("name", "value"), [("Hostname", host)]),
        "META_DATA_EXPORT": (("name", "value"), [("EXPORT_SCHEMA_VERSION", "3.20.3")]),
        "ANALYSIS_DETAILS": (("duration",), [(10_000,)]),
    }
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        for name, (columns, rows) in {**base, **tables}.items():
            database.execute(f'CREATE TABLE "{name}" ({", ".join(f"{chr(34)}{c}{chr(34)}" for c in columns)})')
            database.executemany(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(columns))})', rows)
    return path


def translate_reports(
    reports: Sequence[Path],
    output: Path,
    sources: str,
    options: SourceOptions = SourceOptions(),  # noqa: B008 (does not change)
    window: tuple[int | None, int | None] | None = None,
) -> tuple[Trace, TranslationResult]:
    """Translate reports; return the trace, which must keep every rule of Paraver, and the result.

    Every event read must be written or counted as dropped.
    """
    result = translate(
        reports,
        output,
        TranslationPlan(
            sources=select_sources(sources),
            source_options=options,
            selection=Selection(window=window),
            several_jobs=True,
        ),
    )
    assert check_trace(output).problems == []
    for source in result.sources:
        assert source.read == source.written + sum(source.dropped.values()), source
    return read_trace(output).omit_path(), result


def get_account(result: TranslationResult, name: str) -> SourceAccount:
    """Return the account of a source."""
    return next(account for account in result.sources if account.name == name)


def read_rows(report: Path, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query by plain sqlite3."""
    with contextlib.closing(sqlite3.connect(f"{report.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        return database.execute(query).fetchall()


def read_utc(report: Path) -> int:
    """Return UTC (ns) of timestamp 0 of a report."""
    return int(read_rows(report, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")[0][0])
