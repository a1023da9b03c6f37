"""The sets of every push: they contain what all sets contain, and tests of other sets are found by their ids."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nsys2prv_ng import inspect
from tests.conftest import HAS_LARGE_REPORTS, REPORTS, SAMPLES, unpack
from tests.report_sets import COVERING, SetFinder, find_further_cases, list_sets, name_set

SETS = list_sets(SAMPLES, REPORTS)
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
def test_the_covering_sets_have_events_of_every_source_of_every_schema() -> None:
    assert find_missing(list_sources(SMALL)) == []


@pytest.mark.slow
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


def test_a_set_is_found_in_the_id_of_a_test() -> None:
    find_set = SetFinder(["exercises/a-plain", "exercises/a", "cpu/1-ompi", "cpu/1-ompi_all"])
    ids = {
        "t.py::test[exercises/a]": "exercises/a",
        "t.py::test[exercises/a.rank0]": "exercises/a",
        "t.py::test[10-exercises/a-plain.rank3-1]": "exercises/a-plain",
        "t.py::test[cpu/1-ompi_rank2]": "cpu/1-ompi",
        "t.py::test[cpu/1-ompi_all]": "cpu/1-ompi_all",
        "t.py::test[exercises/b]": None,
        "t.py::test_exercises": None,
    }
    assert {test: find_set(test) for test in ids} == ids


def test_tests_keep_their_sets_where_none_of_them_covers() -> None:
    covering, other = "samples/mpi-4", "exercises/a"
    find_set = SetFinder([other])
    assert find_further_cases([f"t::x[{covering}]", f"t::x[{other}]", f"t::y[{other}]", "t::z"], find_set) == {
        f"t::x[{other}]"
    }
