"""Damaged files are read as sqlite3 reads them, or left to it, or refused; never beyond a page, and never for ever."""

from __future__ import annotations

import sqlite3
import struct
from collections import Counter
from contextlib import closing
from pathlib import Path

import numba as nb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.report import page_kernels
from nsys2prv_ng.report.database import Database, Table
from nsys2prv_ng.report.pages import SMALL, PageReader
from nsys2prv_ng.runtime import jit
from tests.examples import examples
from tests.report.page_databases import Plan, by_pages, by_sqlite, large_export, list_columns

EXAMPLES = 250
KERNELS = ("count_cells", "read_children", "read_leaves")
ROWS = tuple((i * 7 % 5, i, -i * 2**40, None) for i in range(60))
TYPES = ("INTEGER",) * 4
TEXTS = tuple((i, f"text {i}" * (i % 90), i * 2**20) for i in range(90))
PLANS = {
    "tree of 512": Plan(512, types=TYPES, rows=ROWS, copies=20),
    "key": Plan(512, types=TYPES, rows=ROWS, copies=9, key="alias", operations=("delete", "add", "insert")),
    "reserved": Plan(1024, 32, auto_vacuum=1, types=TYPES, rows=ROWS, copies=9, operations=("add with default",)),
    "overflow": Plan(512, types=("INTEGER", "TEXT", "INTEGER"), rows=TEXTS, copies=4),
    "one page": Plan(4096, types=TYPES, rows=ROWS, journal="WAL"),
    "large pages": Plan(65536, types=TYPES, rows=ROWS, copies=60),
}
LAST = dict.fromkeys(PLANS) | {"reserved": 4, "overflow": 2}
"""How many columns are asked for: values behind long texts, and defaults, are left to sqlite3."""


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """Contents of sound files, and columns that are read from them."""
    path = tmp_path_factory.mktemp("sound") / "a.sqlite"
    found = {}
    for name, plan in PLANS.items():
        found[name] = (plan.make(path).read_bytes(), list_columns(path)[: LAST[name]])
        assert outcome(path, found[name][1]) == "read"
    return found


@pytest.fixture(scope="module")
def checked_kernels():
    """The kernels compiled so that they raise IndexError where they would read or write outside an array."""
    with pytest.MonkeyPatch.context() as patch:
        for name in KERNELS:
            patch.setattr(
                page_kernels, name, nb.njit(boundscheck=True, **jit._UNCOUNTED)(getattr(page_kernels, name).py_func)
            )
        yield


CHANGES = st.tuples(
    st.sampled_from(["bit", "byte", "head", "cell", "number", "header", "zeros", "copy", "cut"]),
    st.integers(0, 2**20),
    st.integers(0, 2**20),
    st.sampled_from([0, 1, 2, 5, 10, 13, 127, 255]) | st.integers(0, 255),
)
"""What happens to files: its kind, a page, a place in it, and a new value."""


def change(data: bytearray, page_size: int, kind: str, page: int, place: int, value: int) -> None:
    pages = len(data) // page_size
    start = page % pages * page_size
    at = start + place % page_size
    if kind == "bit":
        data[at] ^= 1 << value % 8
    elif kind == "byte":
        data[at] = value
    elif kind == "head":
        data[start + place % 40] = value
    elif kind == "cell":
        pointer = start + 8 + 2 * (value % 10)
        cell = int.from_bytes(data[pointer : pointer + 2], "big") + place % 16
        data[start + cell % page_size] = value
    elif kind == "number":  # of a page, at the places in which it is in the head of a page and in its last cells
        at = start + (8, page_size - 6, page_size - 7, page_size - 12, page_size - 14)[place % 5]
        data[at : at + 4] = struct.pack(">I", value % (pages + 2))
    elif kind == "header":
        data[16 + place % 84] = value
    elif kind == "zeros":
        size = min((16, 512, page_size)[place % 3], page_size)
        data[start : start + size] = bytes(size)
    elif kind == "copy":
        other = place % pages * page_size
        data[start : start + page_size] = data[other : other + page_size]
    elif pages > 1:
        del data[start + place % page_size + page_size :]


def outcome(path: Path, columns: list[str]) -> str:
    """What the reader did with a file, which must be no other than what sqlite3 does if it reads anything."""
    try:
        found = by_pages(path, columns)
    except sqlite3.DatabaseError as error:
        assert "circles" in str(error)
        return "refused"
    if found is None:
        return "left"
    np.testing.assert_array_equal(found, by_sqlite(path, columns))
    return "read"


@pytest.mark.parametrize("name", PLANS)
def test_damaged_files(tmp_path, bases, name, checked_kernels):
    outcomes = Counter()
    path = tmp_path / "a.sqlite"
    sound, columns = bases[name]

    # The assertion below is about what is drawn, which must not change from run to run.
    @settings(max_examples=examples(EXAMPLES), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(changes=st.lists(CHANGES, min_size=1, max_size=3))
    def check(changes):
        content = bytearray(sound)
        for each in changes:
            change(content, PLANS[name].page_size, *each)
        path.write_bytes(content)
        outcomes[outcome(path, columns)] += 1

    check()
    assert outcomes["read"] > examples(5) and outcomes["left"] > examples(40)  # so that both were tried


@pytest.mark.parametrize("name", PLANS)
def test_many_flipped_bytes(tmp_path, bases, name, checked_kernels):
    """Thousands of files, each with some bytes of its pages' beginnings or of anything set to anything."""
    random = np.random.default_rng(5)
    sound, columns = bases[name]
    path = tmp_path / "a.sqlite"
    for _ in range(examples(EXAMPLES)):
        content = np.frombuffer(sound, np.uint8).copy()
        places = random.integers(100, content.size, random.integers(1, 30))
        near = random.random(places.size) < 0.5
        places[near] -= places[near] % 512 - random.integers(0, 64, near.sum())
        content[places] = random.integers(0, 256, places.size)
        content[:100] = np.frombuffer(sound[:100], np.uint8)
        path.write_bytes(content.tobytes())
        outcome(path, columns)


def interior(children: list[int], page_size: int) -> bytes:
    """An interior page of a table's b-tree."""
    cells = b"".join(struct.pack(">IB", child, 1) for child in children[:-1])
    first = page_size - len(cells)
    head = struct.pack(">BHHHBI", 5, 0, len(children) - 1, first, 0, children[-1])
    pointers = b"".join(struct.pack(">H", first + 5 * i) for i in range(len(children) - 1))
    return (head + pointers).ljust(first, b"\0") + cells


def with_root(path: Path, pages: list[list[int]]) -> Path:
    """A table whose root and the pages after it have the children given, counted from the root (0)."""
    plan = Plan(512, types=("INTEGER",), rows=tuple((i,) for i in range(3000)))
    plan.make(path)
    with sqlite3.connect(path) as connection:
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 't'")
    content = bytearray(path.read_bytes())
    for i, children in enumerate(pages):
        at = (root + i - 1) * 512
        content[at : at + 512] = interior([root + child for child in children], 512)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "pages",
    [
        [[0, 0]],
        [[1, 0, 2]],
        [[1, 2], [0, 0], [0, 0]],
        [[3, 3]],
        [[level + 1] * 40 for level in range(12)],  # 40**12 leaves: sqlite3 would read until the end of time
    ],
)
def test_pages_in_circles_are_refused(tmp_path, pages):
    path = with_root(tmp_path / "a.sqlite", pages)
    with pytest.raises(sqlite3.DatabaseError, match="circles"):
        by_pages(path, ["c0"])
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.DatabaseError, match="circles"):
        PageReader(path).check_tree(connection, "t")


def test_error_of_a_damaged_report(tmp_path):
    """Pages in circles are an error of the table."""
    path = large_export(tmp_path / "a.sqlite")
    with sqlite3.connect(path) as connection:
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'EVENTS'")
    content = bytearray(path.read_bytes())
    content[(root - 1) * 4096 : root * 4096] = interior([root] * 9, 4096)
    path.write_bytes(content)
    database = Database(path)
    with pytest.raises(TranslationError, match=r"a\.sqlite: table EVENTS cannot be read .*circles.*export the report"):
        database.read(Table("EVENTS", ("start",)), "")
    with pytest.raises(TranslationError, match=r"a\.sqlite: table EVENTS cannot be read .*circles.*export the report"):
        database.count_rows("EVENTS")
    database.close()


@pytest.mark.parametrize("pages", [5, 40, -1])
def test_cut_reports(tmp_path, pages):
    """They are left to sqlite3, which says what is wrong with them."""
    path = large_export(tmp_path / "a.sqlite")
    content = path.read_bytes()
    assert len(content) > SMALL * 4096
    path.write_bytes(content[: pages * 4096])
    with pytest.raises(TranslationError, match="malformed"):
        Database(path).read(Table("EVENTS", ("start",)), "")
    with pytest.raises(TranslationError, match="malformed"):
        Database(path).count_rows("EVENTS")
