"""Reports of one physical clock with an error put into some of them, so that the truth is known."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from nsys2prv_ng.sources.registry import select_sources
from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.result import TranslationResult
from nsys2prv_ng.translation.translate import translate
from tests.trace_reader import Trace, pair_intervals, read_trace

TIME_COLUMNS = ("start", "end", "timestamp", "rawTimestamp")
NCCL_KERNEL, MPI_COLLECTIVE = 63000007, 50000002


@dataclass(frozen=True)
class Error:
    """What is wrong with a clock: it shows u + offset + drift * (u - u0) at the true time u (ns)."""

    offset: int = 0
    drift: float = 0.0
    host: str | None = None
    """Another host name, for a report that is to count as another clock."""


def utc_of(report: Path) -> int:
    with contextlib.closing(sqlite3.connect(report)) as database:
        return int(database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()[0])


def put_into(
    reports: Sequence[Path], errors: Sequence[Error], folder: Path, *, without: Sequence[str] = ()
) -> list[Path]:
    """Copies of reports with the errors of their clocks in the session's start and in every column of times.

    Clocks agree (but for their offsets) when the first session starts. Tables of `without` are left out of the copies.
    """
    folder.mkdir(exist_ok=True)
    start = min(map(utc_of, reports))
    copies = []
    for report, error in zip(reports, errors, strict=True):
        copy = folder / report.name
        shutil.copyfile(report, copy)
        with contextlib.closing(sqlite3.connect(copy)) as database:
            database.execute("PRAGMA journal_mode = OFF")
            with database:
                _put_into(database, error, start, without)
        copies.append(copy)
    return copies


def _put_into(database: sqlite3.Connection, error: Error, start: int, without: Sequence[str]) -> None:
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        if table in without:
            database.execute(f'DROP TABLE "{table}"')
            continue
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        times = [name for name in columns if name in TIME_COLUMNS]
        if times and error.drift:
            sets = (f'"{name}" = "{name}" + CAST(ROUND("{name}" * {error.drift!r}) AS INTEGER)' for name in times)
            database.execute(f'UPDATE "{table}" SET {", ".join(sets)}')
    (utc,) = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
    shown = utc + error.offset + round(error.drift * (utc - start))
    database.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = ?", (shown,))
    if error.host is not None:
        database.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = ? WHERE name = 'Hostname'", (error.host,))


# ---- what became of it -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Aligned:
    """A trace of reports with errors, and the times in it (UTC, ns) beside the true ones, in the same order."""

    summary: TranslationResult
    trace: Trace
    shown: list[np.ndarray]
    true: list[np.ndarray]

    @property
    def worst_us(self) -> float:
        """Largest distance from the truth of any begin or end."""
        return max(float(np.abs(a - b).max()) for a, b in zip(self.shown, self.true, strict=True)) / 1000

    @property
    def worst_apart_us(self) -> float:
        """The same between ranks: largest distance from where the truth lies if rank 0 is taken to be right."""
        common = float(np.median(self.shown[0] - self.true[0]))
        return max(float(np.abs(a - b - common).max()) for a, b in zip(self.shown, self.true, strict=True)) / 1000

    @property
    def drift_ppm(self) -> list[float]:
        assert self.summary.clocks is not None
        return [node.numbers.drift_ppm for node in self.summary.clocks.nodes]

    @property
    def models(self) -> set[str]:
        assert self.summary.clocks is not None
        return {node.model for node in self.summary.clocks.nodes}


NCCL_KERNELS = """SELECT k.start, k."end" FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
    WHERE s.value LIKE 'nccl%' ORDER BY 1, 2"""
MPI_COLLECTIVES = """SELECT e.start, e."end" FROM MPI_COLLECTIVES_EVENTS e JOIN StringIds s ON s.id = e.textId
    WHERE s.value NOT LIKE 'MPI_File%' ORDER BY 1, 2"""


def aligned(
    truth: Sequence[Path],
    reports: Sequence[Path],
    folder: Path,
    *,
    source: str,
    align: str | Path = "auto",
    report: Path | None = None,
) -> Aligned:
    """Translate `reports`, of rank 0, 1, ..., and compare with `truth`: what they are copies of."""
    output = folder / f"{source}-{Path(align).stem}.prv"
    options = TranslationPlan(sources=select_sources(source), align=align, align_report=report, force=True)
    summary = translate(reports, output, options)
    trace = read_trace(output)
    event_type, query = (NCCL_KERNEL, NCCL_KERNELS) if source == "kernels" else (MPI_COLLECTIVE, MPI_COLLECTIVES)
    found = pair_intervals(trace, event_type)
    task = np.array(trace.task_of_row)[found["row"]] - 1
    shown, true = [], []
    for rank, path in enumerate(truth):
        of_rank = found[task == rank].sort_values(["begin", "end"])[["begin", "end"]].to_numpy()
        with contextlib.closing(sqlite3.connect(path)) as database:
            rows = pd.read_sql_query(query, database).to_numpy() + utc_of(path)
        assert of_rank.shape == rows.shape
        shown.append(of_rank + summary.start_utc_ns)
        true.append(rows)
    return Aligned(summary, trace, shown, true)
