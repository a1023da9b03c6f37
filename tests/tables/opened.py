"""Jobs that tests of tables share, and what plain SQL finds in their reports."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import pandas as pd

import nsys2prv_ng
from nsys2prv_ng import OpenJob
from tests.report_sets import find_set
from tests.report_truth import Report


@lru_cache(maxsize=1)
def open_set(name: str) -> OpenJob:
    """Return the job of a set of reports, with clocks as UTC has them. The last one stays open."""
    return nsys2prv_ng.open(find_set(name), align="utc", several_jobs=True)


@lru_cache(maxsize=1)
def list_reports(name: str) -> list[Report]:
    """Return the reports of a set, for SQL."""
    return [Report(path) for path in find_set(name)]


def read_sql(name: str, table: str, query: str) -> pd.DataFrame:
    """Return the rows of a query on the reports that have a table; columns that end in _ns become UTC."""
    frames = []
    for report in list_reports(name):
        if report.has(table):
            frame = report.sql(query)
            times = [column for column in frame.columns if column in TIMES]
            frames.append(frame.assign(**{column: frame[column] + report.utc for column in times}))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


TIMES = ("start_ns", "end_ns", "launch_ns")


def has_columns(name: str, table: str, *columns: str) -> bool:
    """Return whether all reports that have a table have some columns of it."""
    reports = [report for report in list_reports(name) if report.has(table)]
    return all({*columns} <= {*report.sql(f"SELECT * FROM {table} LIMIT 0").columns} for report in reports)


def count_rows(frame: pd.DataFrame, columns: list[str]) -> Counter[tuple[object, ...]]:
    """Return how often each row occurs, with None for what is missing."""
    if not len(frame):
        return Counter()
    plain = [[None if pd.isna(value) else value for value in frame[column].tolist()] for column in columns]
    return Counter(zip(*plain, strict=True))


def in_utc(job: OpenJob, frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with times in UTC."""
    return frame.assign(**{column: frame[column] + job.start_utc_ns for column in TIMES if column in frame.columns})


def check_rows(job: OpenJob, frame: pd.DataFrame, truth: pd.DataFrame) -> None:
    """Compare a table with the rows that SQL finds: the rest was dropped."""
    columns = [*truth.columns]
    shown, expected = count_rows(in_utc(job, frame), columns), count_rows(truth, columns)
    assert frame.attrs["read"] == expected.total()
    assert not shown - expected, next(iter(shown - expected))
    assert (expected - shown).total() == sum(frame.attrs["dropped"].values())
