"""Summaries of reports with thousands of names: they are bounded, sums hold, and comparisons make no names up."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import nsys2prv_ng
from nsys2prv_ng.comparison.compare import compare_sides
from nsys2prv_ng.comparison.sides import make_side
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.others import join_hidden, limit_names, list_comparable
from nsys2prv_ng.summary.text import format_summary
from tests.summary.made import summarize_reports

MOST, PLANTED = 2_000, 2_500
KERNELS, CALLS, GRAPHS = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "RUNTIME", "GRAPH_TRACE"))
EVERY = 10_000
"""ns from one planted kernel to the next."""


def read_row(report: sqlite3.Connection, table: str, where: str = "1") -> dict[str, Any]:
    found = report.execute(f"SELECT * FROM {table} WHERE {where} LIMIT 1")
    return dict(zip([column[0] for column in found.description], found.fetchone(), strict=True))


def insert(report: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    marks = ", ".join("?" * len(row))
    report.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def add_names(report: sqlite3.Connection, turn: int) -> None:
    """Add PLANTED kernels, the calls that launch them, and ranges around these calls, each with a name of its own.

    `turn`: by how many names the lengths are turned, so that other names have least time.
    """
    ((begin,),) = report.execute(f"SELECT max(end) + 1000000 FROM {CALLS}")
    ((name,),) = report.execute("SELECT max(id) + 1 FROM StringIds")
    ((correlation,),) = report.execute(f"SELECT max(correlationId) + 1000 FROM {CALLS}")
    kernel, marked = read_row(report, KERNELS), read_row(report, "NVTX_EVENTS", "eventType = 59 AND domainId = 0")
    launch = read_row(report, CALLS, f"correlationId = {kernel['correlationId']}")
    for number in range(PLANTED):
        at, letters = begin + number * EVERY, "".join(chr(97 + int(digit)) for digit in str(number))
        for own, stem in enumerate(("kernel", "range", "cudaCall")):
            report.execute("INSERT INTO StringIds VALUES (?, ?)", (name + own, f"{stem}_{letters}_"))
        length = 1_000 + (number + turn) % PLANTED
        names = dict.fromkeys(("demangledName", "shortName", "mangledName"), name)
        times = {"start": at + 4_000, "end": at + 4_000 + length, "correlationId": correlation + number}
        insert(report, KERNELS, kernel | times | names | {"graphNodeId": None})
        times = {"start": at + 200, "end": at + 900 + length // 10, "correlationId": correlation + number}
        insert(report, CALLS, launch | times | {"nameId": name + 2})
        for again in range(3):
            times = {"start": at + 100 + again * 3_000, "end": at + 1_500 + again * 3_000 + length // 10}
            thread = {"globalTid": launch["globalTid"], "text": None, "textId": name + 1}
            insert(report, "NVTX_EVENTS", marked | times | thread)
        name += 3


@pytest.fixture(scope="module")
def planted(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Two reports with the same names, of which others have least time."""
    reports = []
    for turn in (0, PLANTED // 2):
        reports.append(tmp_path_factory.mktemp("planted") / f"turn{turn}.sqlite")
        shutil.copy(samples / "single-graph.sqlite", reports[-1])
        with closing(sqlite3.connect(reports[-1])) as report, report:
            add_names(report, turn)
    yield reports


@cache
def make_both(report: Path) -> tuple[JobSummary, JobSummary]:
    """The summary with all names, and the one that users get."""
    every = summarize_reports([report])
    return every, limit_names(every)


def list_rows(value: Any, path: str = "") -> Iterator[tuple[str, list[Any]]]:
    if isinstance(value, list):
        yield path, value
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield from list_rows(inner, f"{path}.{key}")
    for inner in value if isinstance(value, list) else ():
        yield from list_rows(inner, f"{path}[]")


@pytest.mark.slow
def test_no_list_grows_with_names(planted: list[Path]) -> None:
    every, limited = make_both(planted[0])
    grown = {path for path, rows in list_rows(every.to_dict()) if len(rows) > PLANTED}
    assert {".kernels", ".ranges", ".calls", ".launched"} < grown
    assert (
        max(len(rows) for _, rows in list_rows(limited.to_dict())) <= MOST + 20
    )  # others keep class, source and cause
    assert len(json.dumps(limited.to_dict())) < 4_000_000
    assert every.to_dict().keys() == limited.to_dict().keys()
    assert any("names with least time" in warning for warning in limited.warnings)
    assert format_summary(limited, details=True)


@pytest.mark.slow
def test_sums_are_those_of_plain_sql(planted: list[Path]) -> None:
    _, limited = make_both(planted[0])
    with closing(sqlite3.connect(planted[0])) as report:
        both = " UNION ALL ".join(f'SELECT "end" - start ns FROM {table}' for table in (KERNELS, GRAPHS))
        ((*kernels, most),) = report.execute(f"SELECT count(*), sum(ns), max(ns) FROM ({both})")
        (repeated,) = report.execute(
            "SELECT count(*), sum(r.end - r.start) FROM NVTX_EVENTS r JOIN StringIds s ON s.id = r.textId "
            "WHERE r.eventType = 59 AND s.value LIKE 'range!_%' ESCAPE '!'"
        )
    assert [sum(each.count for each in limited.kernels), sum(each.total_ns for each in limited.kernels)] == kernels
    assert max(each.max_ns for each in limited.kernels) == most
    planted_ranges = [each for each in limited.ranges if each.name.startswith(("range_", "others"))]
    named = [each for each in make_both(planted[0])[0].ranges if not each.name.startswith("range_")]
    hidden = {each.name for each in named} - {each.name for each in limited.ranges}
    more = [each for each in named if each.name in hidden]
    assert sum(each.count for each in planted_ranges) == repeated[0] + sum(each.count for each in more)
    assert sum(each.total_ns for each in planted_ranges) == repeated[1] + sum(each.total_ns for each in more)


@pytest.mark.slow
def test_sums_by_all_that_is_no_name_stay(planted: list[Path]) -> None:
    every, limited = make_both(planted[0])

    def add_up(rows: list[Any], key: str, *sums: str) -> dict[Any, Counter[str]]:
        found: dict[Any, Counter[str]] = {}
        for row in rows:
            found.setdefault(getattr(row, key), Counter()).update({name: getattr(row, name) for name in sums})
        return found

    for rows, key, sums in (
        ("kernels", "kernel_class", ("count", "total_ns")),
        ("calls", "source", ("count", "total_ns", "main_ns")),
        ("launched", "__class__", ("count", "total_ns")),
    ):
        assert add_up(getattr(every, rows), key, *sums) == add_up(getattr(limited, rows), key, *sums)
    whole, cut = ([cause for gpu in side.gpus for cause in gpu.idle_causes or []] for side in (every, limited))
    assert add_up(whole, "cause", "ns", "gaps") == add_up(cut, "cause", "ns", "gaps")
    assert len(cut) < len(whole)
    assert every.efficiency is not None and limited.efficiency is not None
    lost = [side.losses for side in (every.efficiency, limited.efficiency) if side.losses is not None]
    assert sum(each.ns for each in lost[0].idle_by_range) == sum(each.ns for each in lost[1].idle_by_range)
    assert [each for each in limited.kernels if each.name != "others"] == every.kernels[:MOST]


@pytest.mark.slow
def test_names_cut_on_one_side_are_neither_new_nor_gone(planted: list[Path]) -> None:
    (_, a), (_, b) = map(make_both, planted)
    assert {each.name for each in a.kernels} != {each.name for each in b.kernels}
    pair = compare_sides([make_side("a", [a]), make_side("b", [b])]).pairs[0]
    rows = [row for table in pair.tables for row in table.rows]
    assert rows and not [row.name for row in rows if row.a is None or row.b is None]
    for key in ("kernels", "ranges"):
        (table,) = [table for table in pair.tables if table.key == key]
        assert "others" in [row.name for row in table.rows]
        for side, count in ((a, "count_a"), (b, "count_b")):
            assert sum(getattr(row, count) for row in table.rows) == sum(each.count for each in getattr(side, key))


@pytest.mark.slow
def test_a_planted_report_does_not_differ_from_itself(planted: list[Path], tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.json", "b.json")]
    for path in paths:
        make_both(planted[0])[1].save(path)
    found = nsys2prv_ng.compare([paths[0]], [paths[1]])
    rows = [row for table in found.pairs[0].tables for row in table.rows]
    assert rows and not [row.name for row in rows if row.differs or row.a != row.b]


def test_a_real_name_is_no_mark() -> None:
    """A program may call a range `others`: a side with few names has no others."""
    a, b = {"others": [1], "x": [2]}, {"y": [3]}
    assert join_hidden(a, b) == [a, b]
    assert list_comparable(a, b) == ["x", "y"]


def test_names_are_hidden_only_if_the_other_side_has_others() -> None:
    many = {f"k{number}": [number] for number in range(1_000)}
    a, b = many | {"others": [5]}, {"k1": [1], "new": [7]}
    joined = join_hidden(a, b)
    assert joined[0] == a  # b lists all of its names
    assert joined[1] == {"k1": [1], "others": [7]}
    assert "new" not in list_comparable(a, b) and "k2" in list_comparable(a, b)


@pytest.mark.slow
def test_small_jobs_stay_as_they_are(samples: Path) -> None:
    summary = summarize_reports([samples / "single-graph.sqlite"])
    assert asdict(limit_names(summary)) == asdict(summary)
