"""The sets of every push contain what all sets contain; tests of other sets are marked."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nsys2prv_ng import inspect
from tests.conftest import HAS_LARGE_REPORTS, unpack
from tests.report_sets import COVERING, list_sets, name_set, sets
from tests.tiers import cases

SETS = list_sets()
LARGE = {name: reports for name, reports in SETS.items() if name.startswith("bench/")}
SMALL = {name: reports for name, reports in SETS.items() if name not in LARGE}

Contents = dict[str, set[tuple[str, str]]]
"""What each set contains: schema family, and a kind of event."""


def shorten_schema(version: str) -> str:
    """Return the family of a schema: 3.20 of 3.20.3."""
    return ".".join(version.split(".")[:2])


def list_sources(sets: dict[str, list[Path]]) -> Contents:
    """Return the sources, given and derived, that each set has events of."""
    found: Contents = {name: set() for name in sets}
    for report in inspect([unpack(path) for reports in sets.values() for path in reports]).reports:
        schema = shorten_schema(report.schema_version)
        sources = [source for source, rows in report.sources.items() if rows]
        found[name_set(Path(report.file))] |= {(schema, source) for source in (*sources, *report.derived)}
    return found


def list_tables(sets: dict[str, list[Path]]) -> Contents:
    """Return the tables with rows of each set, and the kinds of its NVTX events."""
    found: Contents = {name: set() for name in sets}
    for name, reports in sets.items():
        for path in map(unpack, reports):
            with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
                tables = [table for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
                metadata = next(table for table in tables if table in ("META_DATA_EXPORT", "EXPORT_META_DATA"))
                version = f"SELECT value FROM {metadata} WHERE name = 'EXPORT_SCHEMA_VERSION'"
                ((schema,),) = database.execute(version)
                kinds = [table for table in tables if database.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone()]
                if "NVTX_EVENTS" in kinds:
                    types = database.execute("SELECT DISTINCT eventType FROM NVTX_EVENTS")
                    kinds += [f"NVTX event {number}" for (number,) in types]
            found[name] |= {(shorten_schema(schema), kind) for kind in kinds}
    return found


def find_missing(contents: Contents) -> list[str]:
    """Return what other sets contain and the covering ones do not, with the sets that do."""
    covered = set().union(*(contents.get(name, set()) for name in COVERING))
    missing: dict[tuple[str, str], list[str]] = {}
    for name, kinds in contents.items():
        for kind in kinds - covered:
            missing.setdefault(kind, []).append(name)
    return [f"{kind} of schema {schema}: {', '.join(names)}" for (schema, kind), names in sorted(missing.items())]


@pytest.mark.slow
@pytest.mark.all_sets
def test_the_covering_sets_have_events_of_every_source_of_every_schema() -> None:
    assert find_missing(list_sources(SMALL)) == []


@pytest.mark.slow
@pytest.mark.all_sets
def test_the_covering_sets_have_every_table_and_nvtx_event_of_every_schema() -> None:
    assert find_missing(list_tables(SMALL)) == []


@pytest.mark.slow
@pytest.mark.all_sets
@pytest.mark.skipif(not LARGE, reason="large reports are not here")
def test_large_sets_have_nothing_more() -> None:
    covering = {name: SETS[name] for name in COVERING if name in SETS}
    assert find_missing(list_sources(LARGE | covering)) == []
    assert find_missing(list_tables(LARGE | covering)) == []


@pytest.mark.skipif(not HAS_LARGE_REPORTS, reason="large reports are not here")
def test_every_covering_set_exists() -> None:
    assert set(COVERING) <= set(SETS)


def test_what_no_covering_set_contains_is_listed() -> None:
    contents = {
        next(iter(COVERING)): {("3.0", "mpi")},
        "cpu/a": {("3.0", "mpi"), ("3.0", "ucx")},
        "cpu/b": {("3.0", "ucx")},
    }
    assert find_missing(contents) == ["ucx of schema 3.0: cpu/a, cpu/b"]


def list_marks(parameters: list[Any]) -> dict[str, set[str]]:
    """Return the names of the marks of each parameter, by its first value."""
    return {case.values[0]: {mark.name for mark in case.marks} for case in parameters}


def test_every_push_takes_the_covering_sets() -> None:
    quick, covering, other = "samples/mpi-4", "gpu/um-1", "exercises/a"
    assert list_marks(sets([quick, f"{covering}.rank1", other])) == {
        quick: {"group"},
        f"{covering}.rank1": {"group", "slow"},
        other: {"group", "slow", "all_sets"},
    }
    assert list_marks(sets([other])) == {other: {"group", "slow"}}, "it was chosen for this test alone"
    assert list_marks(sets([quick, covering], push=[covering]))[quick] == {"group", "all_sets"}
    with pytest.raises(AssertionError):
        sets([quick], push=[covering])


def test_cases_are_chosen_by_number_or_name() -> None:
    tiers = {"a": set(), "b": {"slow"}, "c": {"slow", "all_sets"}}
    assert list_marks(cases("abc", push=2, quick=1)) == list_marks(cases("abc", push="ab", quick="a")) == tiers
    assert list_marks(cases([("a", 1)])) == {"a": set()}
    with pytest.raises(AssertionError, match="no case is called"):
        cases("abc", push=["d"])
