"""Spans of time in which operations run, by plain loops: the truth about activity, overlap and gaps."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from contextlib import closing
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.conftest import HAS_LARGE_REPORTS, NO_REPORTS, REPORTS, SAMPLES
from tests.report_sets import list_sets, sets

Spans = list[tuple[int, int]]
MISSING = [] if HAS_LARGE_REPORTS else [pytest.param([], id="large reports", marks=[pytest.mark.skip(NO_REPORTS)])]
"""Parameter that shows that the reports beside the repository are missing."""


def unite(operations: pd.DataFrame) -> Spans:
    """Return the spans in which any of the operations runs, joined where they touch."""
    joined: list[list[int]] = []
    for begin, end in sorted(zip(operations["begin"], operations["end"], strict=True)):
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([begin, end])
    return [(begin, end) for begin, end in joined if end > begin]


def sum_lengths(spans: Spans) -> int:
    """Return the sum of the lengths of spans (ns)."""
    return sum(end - begin for begin, end in spans)


def sum_common(first: Spans, second: Spans) -> int:
    """Return the time that is in both (ns)."""
    either = unite(pd.DataFrame(first + second, columns=["begin", "end"]))
    return sum_lengths(first) + sum_lengths(second) - sum_lengths(either)


def find_gaps(operations: pd.DataFrame) -> Spans:
    """Return gaps from the i-th smallest end to the (i + 1)-th smallest begin if that is later: NVIDIA's gpu_gaps."""
    begins, ends = np.sort(operations["begin"])[1:], np.sort(operations["end"])[:-1]
    return list(zip(ends[begins > ends].tolist(), begins[begins > ends].tolist(), strict=True))


def list_single_reports() -> list[Any]:
    """Return real reports for pytest, one by one and by name: samples/, and others of some MB that may be missing."""
    folders = [SAMPLES, *(REPORTS / kind for kind in ("gpu", "cpu", "public"))]
    paths = sorted(path for folder in folders for path in folder.glob("*.sqlite"))
    return sets(pytest.param(path, id=f"{path.parent.name}/{path.stem}") for path in paths) + MISSING


def list_reports_with(*tables: str, push: Collection[str] | None = None) -> list[Any]:
    """Return real reports for pytest that have rows in each of these tables, or in one of several words, by name."""
    found = []
    for path in [*sorted(SAMPLES.glob("*.sqlite")), *sorted(REPORTS.glob("*/*.sqlite"))]:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            there = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
            filled = {name for name in there.intersection(" ".join(tables).split()) if has_rows(database, name)}
        if all(not filled.isdisjoint(words.split()) for words in tables):
            found.append(pytest.param(path, id=f"{path.parent.name}/{path.stem}"))
    return sets(found, push) + MISSING


def has_rows(database: sqlite3.Connection, table: str) -> bool:
    return database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None


def list_report_sets(names: Iterable[str], push: Collection[str] | None = None) -> list[Any]:
    """Return the reports of sets for pytest, by name; every push takes those in `push`, or else the covering ones."""
    reports = {name: list_sets().get(name) for name in names}
    skip = pytest.mark.skip(NO_REPORTS)
    return sets([pytest.param(own, id=name, marks=() if own else skip) for name, own in reports.items()], push)
