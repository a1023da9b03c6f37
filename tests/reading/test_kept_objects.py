"""What is kept comes back; nothing else is made of a file, whatever it says."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.reading import kept_objects
from nsys2prv_ng.reading.kept_objects import load_kept, write_kept
from nsys2prv_ng.records.store import Slot, StoredColumns
from tests.examples import examples


class Pair(NamedTuple):
    handle: int | IntArray
    present: BoolArray | None = None


@dataclass(frozen=True)
class Kept:
    """One field of each type that can be kept."""

    stored: StoredColumns
    array: IntArray
    again: IntArray
    path: Path
    names: Mapping[str, dict[int, float]]
    sets: tuple[set[int], frozenset[str]]
    pairs: Sequence[Pair]
    window: tuple[int, int] | None
    flags: list[bool]
    texts: tuple[str, ...]
    anything: object = None


OPEN_TYPES = (Pair, IntArray, dict[str, int])


def make_kept(**changed: Any) -> Kept:
    array = np.arange(6).reshape(3, 2)
    kept: dict[str, Any] = {
        "stored": StoredColumns(Slot("a", True, 3), 2, (np.dtype(np.int8), np.dtype("<U3"))),
        "array": array,
        "again": array,
        "path": Path("a/b"),
        "names": {"\udc80 <&>": {-1: 0.1}, "": {}},
        "sets": ({1, 2}, frozenset({"x"})),
        "pairs": [Pair(np.int64(3)), Pair(np.arange(2, dtype=np.int32), np.array([True, False]))],
        "window": (-(2**63), 2**63 - 1),
        "flags": [True],
        "texts": ("a", "b"),
    }
    return Kept(**{**kept, **changed})


def load(path: Path) -> Kept:
    return load_kept(path, Kept, OPEN_TYPES)


def write(path: Path, **changed: Any) -> Path:
    write_kept(path, make_kept(**changed), OPEN_TYPES)
    return path


def test_every_type_comes_back(tmp_path):
    value, back = make_kept(), load(write(tmp_path / "a"))
    for name in ("stored", "path", "names", "sets", "window", "flags", "texts", "anything"):
        assert getattr(back, name) == getattr(value, name), name
    assert isinstance(back.stored, StoredColumns) and isinstance(back.stored.slot, Slot)
    np.testing.assert_array_equal(back.array, value.array)
    assert back.array is back.again and back.array.flags.writeable
    plain, with_arrays = back.pairs
    assert plain == Pair(3) and with_arrays.handle.tolist() == [0, 1] and with_arrays.present.tolist() == [True, False]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("value", [None, Pair(2), np.arange(3), {"a": 1}], ids=str)
def test_objects_have_one_of_the_declared_types(tmp_path, value):
    back = load(write(tmp_path / "a", anything=value)).anything
    assert type(back) is type(value) and np.all(back == value)


def test_what_cannot_be_kept_is_an_error_of_the_program(tmp_path):
    for value in (np.array([object()]), np.zeros(2, "M8[ns]"), np.zeros(2, "i4,i8")):
        with pytest.raises(TypeError, match="cannot be kept"):
            write(tmp_path / "a", array=value)
    assert not list(tmp_path.iterdir())


def edit(path: Path, change: Any) -> None:
    """Change the JSON text of a file: `change` gets the list of fields and may return another one."""
    header, content = split(path.read_bytes())
    length = int(header.split()[0])
    fields = json.loads(content[:length])
    text = json.dumps(change(fields) or fields).encode()
    path.write_bytes(join(len(text), text + content[length:]))


def split(whole: bytes) -> tuple[bytes, bytes]:
    """Return the line with the length of the text and the hash, and what follows."""
    header, _, content = whole.removeprefix(kept_objects._MAGIC).partition(b"\n")
    return header, content


def join(length: int, content: bytes) -> bytes:
    """Return a file with a hash that is right."""
    return kept_objects._MAGIC + b"%d %s\n" % (length, kept_objects._hash(content)) + content


FIELDS = {name: number for number, name in enumerate(Kept.__dataclass_fields__)}


def replace_field(name: str, value: Any) -> Any:
    def change(fields: list[Any]) -> None:
        fields[FIELDS[name]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        # Arrays of Python objects, whose bytes would be addresses, also within other types.
        *(replace_field("array", [dtype, [1], 0]) for dtype in ("O", "|O8", "object", "O,i4", "(2,)O", "V8", "M8[ns]")),
        *(replace_field("stored", [[[1, "a"], True, 3], 2, [dtype]]) for dtype in ("O", "V8", "S0", ["O"], None)),
        # Arrays beyond the file, of negative or huge size, or of another type than declared.
        replace_field("array", ["<i8", [700], 0]),
        replace_field("array", ["<i8", [2**62, 4], 0]),
        replace_field("array", ["<i8", [-1], 0]),
        replace_field("array", ["<i8", [-1, -6], 0]),
        replace_field("array", ["<i8", [1], -8]),
        replace_field("array", ["<i8", [1], 4]),
        replace_field("array", [">i8", [1], 0]),
        replace_field("array", ["<f8", [1], 0]),
        replace_field("array", ["|b1", [1], 0]),
        replace_field("array", ["<U1", [1], 0]),
        # Values of other types than declared.
        replace_field("window", [1, [2**63, 0]]),
        replace_field("window", [1, [10**4000, 0]]),
        replace_field("window", [1, [1.0, 0]]),
        replace_field("window", [1, [True, 0]]),
        replace_field("window", [1, [0]]),
        replace_field("window", [2, None]),
        replace_field("window", ["0", None]),
        replace_field("window", [0, {}]),
        replace_field("flags", [1]),
        replace_field("flags", None),
        replace_field("texts", ["a", 1]),
        replace_field("texts", "ab"),
        replace_field("names", {"a": 1}),
        replace_field("names", [["a"]]),
        replace_field("path", ["a"]),
        replace_field("path", 1),
        replace_field("sets", [[[]], []]),
        replace_field("anything", ["os.system", "touch made"]),
        replace_field("anything", [9, None]),
        lambda fields: fields.pop() and None,
        lambda fields: fields.append(0),
        lambda fields: {"a": 1},
        lambda fields: 7,
    ],
)
def test_values_of_other_types_are_damage(tmp_path, change):
    path = write(tmp_path / "a")
    edit(path, change)
    with pytest.raises(ReportError, match="is damaged; make it again"):
        load(path)


class Harmful:
    """Would run a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return __import__("os").system, ("touch made",)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_pickles_are_not_read(tmp_path, monkeypatch, protocol):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "a"
    harmful = pickle.dumps(Harmful(), protocol)
    for content in (kept_objects._MAGIC + harmful, join(len(harmful), harmful)):
        file.write_bytes(content)
        with pytest.raises(ReportError, match="is damaged"):
            load(file)
    assert not (tmp_path / "made").exists()


def test_other_files(tmp_path):
    file = tmp_path / "a"
    for content, message in (
        (b"", "something else"),
        (b"SQLite format 3\0", "something else"),
        (b"nsys2prv-ng 0.0.1 keeps\n" + pickle.dumps({}), "another version"),
        (kept_objects._MAGIC, "damaged"),
        (join(2, b"[]"), "damaged"),
        (join(10**17, b"[]"), "damaged"),
        (join(-2, b"[]"), "damaged"),
        (join(200_000, b"[" * 200_000), "damaged"),
    ):
        file.write_bytes(content)
        with pytest.raises(ReportError, match=message):
            load(file)
    with pytest.raises(ReportError, match="cannot be read"):
        load(tmp_path / "missing")


@dataclass(frozen=True)
class Small:
    array: IntArray = field(default_factory=lambda: np.arange(20))
    texts: tuple[str, ...] = ("a", "b")


@pytest.mark.slow
def test_every_cut_is_noticed(tmp_path):
    file = tmp_path / "a"
    write_kept(file, Small())
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(ReportError):
            load_kept(file, Small)


@pytest.mark.slow
def test_every_changed_byte_is_noticed(tmp_path):
    file = tmp_path / "a"
    write_kept(file, Small())
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ReportError):
            load_kept(file, Small)


@pytest.mark.slow
def test_random_damage_is_an_error_or_another_value_of_the_same_types(tmp_path):
    file = write(tmp_path / "a")
    (header, whole), generator = split(file.read_bytes()), random.Random(7)
    ended = {"error": 0, "value": 0}
    for _ in range(examples(3_000)):
        content = bytearray(whole)
        for _ in range(generator.choice((1, 1, 2, 8))):
            content[generator.randrange(len(content))] = generator.randrange(256)
        file.write_bytes(join(int(header.split()[0]), bytes(content)))
        try:
            back = load(file)
        except ReportError:
            ended["error"] += 1
        else:
            ended["value"] += 1
            write_kept(tmp_path / "b", back, OPEN_TYPES)  # only values of the declared types can be written
    assert min(ended.values()) > examples(100), ended
