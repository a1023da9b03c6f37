"""Values of every Arrow type are those that SQLite has of the same value."""

from __future__ import annotations

import math
import sqlite3
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.report import table_folder
from nsys2prv_ng.report.database import NULL, Database, Table
from tests.examples import examples
from tests.report.table_folders import KINDS, write_folder
from tests.sources.small_reports import export

LARGEST = 2**63 - 1
NAN = math.nan
DAY_NS = 86400 * 10**9
TABLE = Table("T", ("k",), {"v": NULL}, text=("v",), real=("v",), blob=("v",))

# Array, then its values as integers, as real numbers, and of their own kind.
NUMBERS = {
    "int8": (pa.array([-128, None, 127], pa.int8()), [-128, NULL, 127], [-128.0, NAN, 127.0], [-128, None, 127]),
    "uint32": (pa.array([2**32 - 1, None], pa.uint32()), [2**32 - 1, NULL], [2.0**32 - 1, NAN], [2**32 - 1, None]),
    "int64": (pa.array([-(2**53), LARGEST]), [-(2**53), LARGEST], [-(2.0**53), 2.0**63], [-(2**53), LARGEST]),
    "uint64": (
        pa.array([2**64 - 1, 2**63, 5, None], pa.uint64()),
        [-1, NULL, 5, NULL],
        [-1.0, -(2.0**63), 5.0, NAN],
        [-1, -(2**63), 5, None],
    ),
    "bool": (pa.array([True, False, None]), [1, 0, NULL], [1.0, 0.0, NAN], [1, 0, None]),
    "float": (pa.array([1.5, None, -2.75], pa.float32()), [1, NULL, -2], [1.5, NAN, -2.75], [1.5, None, -2.75]),
    "half": (pa.array(np.array([1.5, -0.5], np.float16)), [1, 0], [1.5, -0.5], [1.5, -0.5]),
    "double": (
        pa.array([1e300, -1e300, math.inf, -math.inf, 0.9]),
        [LARGEST, NULL, LARGEST, NULL, 0],
        [1e300, -1e300, math.inf, -math.inf, 0.9],
        [1e300, -1e300, math.inf, -math.inf, 0.9],
    ),
    "decimal": (pa.array([Decimal("7.75"), None], pa.decimal128(38, 2)), [NULL, NULL], [NAN, NAN], [None, None]),
    "timestamp": (pa.array([1, None], pa.timestamp("us", "UTC")), [NULL, NULL], [NAN, NAN], [None, None]),
    "null": (pa.nulls(2), [NULL, NULL], [NAN, NAN], [None, None]),
    "dictionary": (
        pa.array([9, 9, None, 4]).dictionary_encode(),
        [9, 9, NULL, 4],
        [9.0, 9.0, NAN, 4.0],
        [9, 9, None, 4],
    ),
    "list": (pa.array([[1], None]), [NULL, NULL], [NAN, NAN], [None, None]),
    "struct": (pa.array([{"a": 1}]), [NULL], [NAN], [None]),
    "sliced": (pa.array([1, 2, 3], pa.uint16())[1:], [2, 3], [2.0, 3.0], [2, 3]),
}
LATIN = b"Zeit" + b"\xfc"
WORDS = [None, "", "a", "é\U0001f600", "a"]
TEXTS = {
    "string": pa.array(WORDS),
    "large string": pa.array(WORDS, pa.large_string()),
    "dictionary": pa.array(WORDS).dictionary_encode(),
    "dictionary of large strings": pa.array(WORDS, pa.dictionary(pa.uint8(), pa.large_string())),
}
BYTES = [None, b"", b"ab", b"\xff\0", b"ab"]
BLOBS = {"binary": pa.array(BYTES), "large binary": pa.array(BYTES, pa.large_binary())}
if hasattr(pa, "string_view"):
    TEXTS["view"] = pa.array(WORDS, pa.string_view())
    BLOBS["view"] = pa.array(BYTES, pa.binary_view())


def assert_reals(found, expected):
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, np.array(expected, np.float64))


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name):
    array, integers, reals, objects = NUMBERS[name]
    array = table_folder.check_values(array)
    found = table_folder.read_integers(array)
    assert found.dtype == np.int64 and found.tolist() == integers
    found[:] = 0  # it is the caller's
    assert_reals(table_folder.read_reals(array), reals)
    values = table_folder.read_objects(array)
    assert values == objects and list(map(type, values)) == list(map(type, objects))
    assert (
        table_folder.read_texts(array).to_pylist() == table_folder.read_blobs(array).to_pylist() == [None] * len(array)
    )


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name):
    array = table_folder.check_values(TEXTS[name])
    assert table_folder.read_texts(array).type == pa.string() and table_folder.read_texts(array).to_pylist() == WORDS
    assert table_folder.read_objects(array) == WORDS
    assert table_folder.read_blobs(array).type == pa.binary()
    assert table_folder.read_blobs(array).to_pylist() == [None if word is None else word.encode() for word in WORDS]
    assert table_folder.read_integers(array).tolist() == [NULL] * len(WORDS)
    assert_reals(table_folder.read_reals(array), [NAN] * len(WORDS))


@pytest.mark.parametrize("name", BLOBS)
def test_blobs(name):
    array = table_folder.check_values(BLOBS[name])
    assert table_folder.read_blobs(array).type == pa.binary()
    assert table_folder.read_blobs(array).to_pylist() == table_folder.read_objects(array) == BYTES
    assert table_folder.read_texts(array).to_pylist() == [None] * len(BYTES)
    assert table_folder.read_integers(array).tolist() == [NULL] * len(BYTES)


def test_blobs_of_a_fixed_size():
    array = table_folder.check_values(pa.array([b"ab", None], pa.binary(2)))
    assert table_folder.read_blobs(array).to_pylist() == table_folder.read_objects(array) == [b"ab", None]


def not_utf8(values):
    return pa.array(values, pa.binary()).view(pa.string())


@pytest.mark.parametrize("kind", KINDS)
def test_text_that_is_not_utf8(tmp_path, kind):
    """nsys on a Chinese Windows writes the name of the time zone in GBK."""
    names = {"id": pa.array([0, 1]), "value": not_utf8([LATIN, b"a"])}
    column = not_utf8([LATIN, None, b"a"])
    values = {"k": pa.array([1, 2, 3]), "v": column}
    folder = write_folder(tmp_path / "r", {"StringIds": pa.table(names), "T": pa.table(values)}, kind)
    database = Database(folder)
    assert list(database.read_objects("StringIds", ["value"])["value"]) == ["Zeit\ufffd", "a"]
    columns = database.read(TABLE, "")
    assert columns.texts["v"].to_pylist() == ["Zeit\ufffd", None, "a"]
    assert columns.blobs["v"].to_pylist() == [LATIN, None, b"a"]


SQLITE = {
    pa.int64(): st.integers(-(2**63), LARGEST),
    pa.float64(): st.floats(),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    pa.binary(): st.binary(),
}


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(40))
@given(st.data())
def test_any_values_are_read_as_from_sqlite(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("report")
    kind = data.draw(st.sampled_from(list(SQLITE)))
    values = data.draw(st.lists(st.none() | SQLITE[kind], max_size=8))
    rows = list(enumerate(values))
    names = pa.table({"id": pa.array([0, 1]), "value": pa.array(["", "x"])})
    tables = {
        "StringIds": names,
        "T": pa.table({"k": pa.array(range(len(rows)), pa.int64()), "v": pa.array(values, kind)}),
    }
    made = [export(folder / "r.sqlite", ["", "x"], {"T": (("k", "v"), rows)})]
    made += [write_folder(folder / each, tables, each) for each in KINDS]
    wanted = data.draw(st.lists(st.integers(-(2**63), LARGEST) | st.integers(-2, 2), max_size=3))
    wanted += [value for value in values[:2] if isinstance(value, int)]
    first, *others = (everything(path, wanted) for path in made)
    for other in others:
        assert repr(other) == repr(first)  # by which what is not a number is itself


def everything(path, wanted):
    database = Database(path)
    columns = database.read(TABLE, "")
    small = [database.read_objects("T", ["v", "none"]), database.read_objects("T", ["k", "v"], {"v": wanted})]
    database.close()
    of_kinds = (columns.numbers["k"], columns.numbers["v"], columns.reals["v"])
    return (
        columns.rows,
        *(column.tolist() for column in of_kinds),
        columns.texts["v"].to_pylist(),
        columns.blobs["v"].to_pylist(),
        *small,
    )


def test_sqlite_casts_numbers_so():
    """What the tests above take for granted."""
    with sqlite3.connect(":memory:") as connection:
        for value, whole in ((1e300, LARGEST), (-1e300, -(2**63)), (math.inf, LARGEST), (-2.75, -2)):
            assert connection.execute("SELECT CAST(? AS INTEGER)", (value,)).fetchone() == (whole,)
