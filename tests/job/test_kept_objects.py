"""What is kept comes back; nothing else is made of a file, whatever it says."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.job import kept_objects
from nsys2prv_ng.job.kept_objects import load_kept, write_kept
from nsys2prv_ng.records.store import Slot, StoredColumns


def test_objects_arrays_tables_and_paths_come_back(tmp_path):
    value = {
        "columns": StoredColumns(Slot("a", True, 3), 2, (np.dtype(np.int8),)),
        "array": np.arange(5),
        "table": pd.DataFrame({"a": [1, 2], "b": [True, False]}),
        "empty": pd.DataFrame({"a": np.zeros(0, np.int64)}),
        "path": Path("a/b"),
        "sets": ({1, 2}, frozenset({"x"})),
        "number": np.int64(3),
    }
    write_kept(tmp_path / "a", value)
    back = load_kept(tmp_path / "a", dict)
    assert back["columns"] == value["columns"] and back["path"] == value["path"]
    assert back["sets"] == value["sets"] and back["number"] == 3
    np.testing.assert_array_equal(back["array"], value["array"])
    for name in ("table", "empty"):
        pd.testing.assert_frame_equal(back[name], value[name])
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


class Harmful:
    """Would run a command when it is loaded."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "harmful",
    [
        Harmful(eval, "open('made', 'w')"),
        Harmful(__import__("os").system, "touch made"),
        Harmful(__import__("subprocess").run, ["touch", "made"]),
        Harmful(Path.touch, Path("made")),
        Harmful(write_kept, Path("made"), 1),  # a function of this package
    ],
    ids=["eval", "os", "subprocess", "method", "own"],
)
def test_files_that_would_do_something(tmp_path, monkeypatch, harmful):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "a"
    file.write_bytes(kept_objects._MAGIC + pickle.dumps(harmful))
    with pytest.raises(ReportError, match="is damaged"):
        load_kept(file, dict)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("nsys2prv_ng.report.nsys", "subprocess.Popen"),  # by way of a module that a module imports
        ("nsys2prv_ng.records.store", "Path.touch"),
        ("nsys2prv_ng.records.store", "ExitStack"),
    ],
)
def test_classes_of_others_in_modules_of_this_package(tmp_path, module, name):
    made = tmp_path / "made"
    names = b"".join(b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, name))
    arguments = pickle.dumps((["touch", str(made)],), 2)[2:-1]
    file = tmp_path / "a"
    file.write_bytes(kept_objects._MAGIC + b"\x80\x04" + names + b"\x93" + arguments + b"R.")
    with pytest.raises(ReportError, match="is damaged"):
        load_kept(file, dict)
    assert not made.exists()


def test_other_files(tmp_path):
    file = tmp_path / "a"
    for content, message in (
        (b"", "something else"),
        (b"SQLite format 3\0", "something else"),
        (b"nsys2prv-ng 0.0.1 keeps\n" + pickle.dumps({}), "another version"),
        (kept_objects._MAGIC, "damaged"),
        (kept_objects._MAGIC + pickle.dumps([]), "damaged"),
    ):
        file.write_bytes(content)
        with pytest.raises(ReportError, match=message):
            load_kept(file, dict)
    with pytest.raises(ReportError, match="cannot be read"):
        load_kept(tmp_path / "missing", dict)


@pytest.mark.slow
def test_every_cut_is_noticed(tmp_path):
    file = tmp_path / "a"
    write_kept(file, {"array": np.arange(100), "texts": ["a", "b"]})
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(ReportError):
            load_kept(file, dict)
