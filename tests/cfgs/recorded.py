"""What Paraver shows of a preset on a trace: what its own paramedir printed, recorded in tests/data/paramedir.

A recording belongs to the bytes of the .cfg and of the three files of the trace. `python -m cfgs.record` makes it.
If the variable PARAMEDIR names paramedir, it prints again here, and must print what is recorded.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
import subprocess
from dataclasses import dataclass
from functools import cached_property, lru_cache
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest

from tests.conftest import DATA, REPOSITORY
from tests.trace_reader import Trace

FOLDER = DATA / "paramedir"
PARAMEDIR = os.environ.get("PARAMEDIR")
AGAIN = "record it again: python -m cfgs.record"
DECIMALS = 17
"""Digits after the point: a double that is not small is printed exactly."""

Printed = dict[str, str]
"""Texts of paramedir by the part of a preset; `cfg` has the SHA-256 of the whole preset.

Windows are shortened: bursts of a row follow each other without a gap from 0, so that their starts need not be kept.
"""
Recording = dict[str, Printed]
"""What is printed of a preset, by the SHA-256 of the trace."""

recorder: dict[str, Recording] | None = None
"""What `python -m cfgs.record` collects, by preset; None if recordings are only read."""


@dataclass(frozen=True)
class Source:
    """A preset and a trace."""

    name: str
    trace: Trace

    @cached_property
    def cfg(self) -> str:
        return (REPOSITORY / f"cfgs/{self.name}.cfg").read_text()

    @cached_property
    def parts(self) -> tuple[list[str], list[str]]:
        """The texts of windows and of histograms, the head of the file before the first."""
        head, *histograms = self.cfg.split("< NEW ANALYZER2D >")
        first, *windows = re.split(r"(?m)^(?=window_name )", head)
        return [first, *windows], histograms

    def print_part(self, kind: str, number: int) -> str:
        """Return what paramedir prints of a window, or of a histogram, both from 0: the last part of a file."""
        key, cfg, trace = f"{kind} {number}", _hash(self.cfg.encode()), _hash_trace(self.trace.path)
        recorded = read_recording(self.name).get(trace, {})
        if recorder is not None:
            is_known = recorded.get("cfg") == cfg and key in recorded
            printed = recorded[key] if is_known else self._run(kind, number)
            kept = recorder.setdefault(self.name, {}).setdefault(trace, {})
            if kept.get("cfg") != cfg:
                kept.clear()
            kept |= {"cfg": cfg, key: printed}
            return printed
        if recorded.get("cfg", cfg) != cfg:
            pytest.fail(f"cfgs/{self.name}.cfg has changed: {AGAIN}")
        if key not in recorded:
            pytest.fail(f"cfgs/{self.name}.cfg: nothing is recorded of {kind} {number} on this trace: {AGAIN}")
        if PARAMEDIR is not None:
            assert self._run(kind, number) == recorded[key], f"cfgs/{self.name}.cfg: {AGAIN}"
        return recorded[key]

    def _run(self, kind: str, number: int) -> str:
        windows, histograms = self.parts
        if kind == "window":
            text = "".join(windows[: number + 2])
        else:
            text = "".join([*windows, "< NEW ANALYZER2D >", histograms[number]])
        assert PARAMEDIR is not None, "the variable PARAMEDIR does not name paramedir"
        with TemporaryDirectory() as home:
            _write_preferences(PARAMEDIR, Path(home))
            cfg, table = Path(home) / "part.cfg", Path(home) / "table.csv"
            cfg.write_text(text)
            done = _start(PARAMEDIR, Path(home), "-tu", str(self.trace.path.resolve()), str(cfg), str(table))
            assert table.exists() and "Error" not in done, done
            return _shorten(table.read_text()) if kind == "window" else table.read_text()


def _shorten(printed: str) -> str:
    """Return the object, length and value of each burst, without the zeros at the end."""
    lines, before, end = [], "", 0
    for row, begin, length, value in (line.split("\t") for line in printed.splitlines()):
        end = end if row == before else 0
        assert int(begin) == end
        before, end = row, end + int(length)
        lines.append(f"{row}\t{length}\t{value.rstrip('0').rstrip('.')}\n")
    return "".join(lines)


def _start(program: str, home: Path, *arguments: str) -> str:
    environment = os.environ | {"HOME": str(home), "LC_ALL": "C"}
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, cwd=home, env=environment, check=False, timeout=600
    )
    return done.stdout + done.stderr


@lru_cache
def _make_preferences(program: str) -> str:
    """Return the preferences that paramedir writes at its first start, with DECIMALS."""
    with TemporaryDirectory() as home:
        _start(program, Path(home), "--version")
        text = (Path(home) / ".paraver/paraver.xml").read_text()
    text, changed = re.subn(r"(?<=decimal_precision>)\d+(?=</)", str(DECIMALS), text)
    assert changed == 2
    return text


def _write_preferences(program: str, home: Path) -> None:
    (home / ".paraver").mkdir()
    (home / ".paraver/paraver.xml").write_text(_make_preferences(program))


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _hash_trace(path: Path) -> str:
    return _hash(b"".join(path.with_suffix(suffix).read_bytes() for suffix in (".prv", ".pcf", ".row")))


@lru_cache(maxsize=4)
def read_recording(name: str) -> Recording:
    """Return the recording of a preset; an empty one if there is none."""
    path = FOLDER / f"{name}.json.xz"
    return json.loads(lzma.decompress(path.read_bytes())) if path.exists() else {}


def read_all() -> dict[str, Recording]:
    """Return the recordings of all presets, by name."""
    names = [path.relative_to(FOLDER).as_posix().removesuffix(".json.xz") for path in FOLDER.glob("*/*.xz")]
    return {name: dict(read_recording(name)) for name in names}


def write_recordings(recordings: dict[str, Recording]) -> None:
    """Write recordings of presets by name, and remove all others."""
    wanted = {FOLDER / f"{name}.json.xz": recording for name, recording in recordings.items()}
    for path, recording in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        data = lzma.compress(json.dumps(recording, indent=0, sort_keys=True).encode(), preset=9 | lzma.PRESET_EXTREME)
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)
    for path in set(FOLDER.glob("*/*.xz")) - set(wanted):
        path.unlink()


# ---- what is printed -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """A timeline of a preset."""

    source: Source
    number: int

    @property
    def text(self) -> str:
        return self.source.parts[0][self.number + 1]

    @property
    def name(self) -> str:
        return _read_key(self.text, "window_name")

    @property
    def level(self) -> str:
        return _read_key(self.text, "window_level")

    @cached_property
    def bursts(self) -> pd.DataFrame:
        """Return object (from 0, at the window's level), begin, end and value, by object and time; times in ns."""
        printed = self.source.print_part("window", self.number)
        names = ["object", "length", "value"]
        columns = pd.read_csv(StringIO(printed), sep="\t", names=names, dtype={"object": str, "value": float})
        numbers, _ = pd.factorize(columns["object"])  # each object has a burst, and they are in order
        end = columns.groupby(numbers)["length"].cumsum()
        begin = end - columns["length"]
        return pd.DataFrame({"object": numbers, "begin": begin, "end": end, "value": columns["value"]})

    def list_types(self) -> list[int]:
        """Return the event types of the trace that the window shows, or the window it takes its labels from."""
        if "window_identifiers" in self.text:
            return Window(self.source, int(_read_key(self.text, "window_identifiers").split()[0]) - 1).list_types()
        numbers = [int(number) for number in _read_key(self.text, "window_filter_module evt_type").split()[1:]]
        labels = re.findall(r'"([^"]*)"', _read_key(self.text, "window_filter_module evt_type_label"))
        return [number for number, label in self.source.trace.types.items() if number in numbers or label in labels]


@dataclass(frozen=True)
class Histogram:
    """A histogram of a preset. Rows are the objects of its control window."""

    source: Source
    number: int

    @property
    def text(self) -> str:
        return self.source.parts[1][self.number]

    @property
    def name(self) -> str:
        return _read_key(self.text, "Analyzer2D.Name:")

    @cached_property
    def _table(self) -> tuple[list[str], np.ndarray, dict[str, np.ndarray]]:
        """Return the labels of the columns that have cells, the cells, and totals of the columns by their name."""
        head, *lines = self.source.print_part("histogram", self.number).split("\n")
        labels = head.split("\t")[1:-1]
        rows = [line.split("\t")[:-1] for line in lines]
        end = next((i for i, row in enumerate(rows) if not row), len(rows))
        cells = np.array([row[1:] for row in rows[:end]], np.float64).reshape(end, len(labels))
        totals = {row[0]: np.array(row[1:], np.float64) for row in rows[end:] if row}
        return labels, cells, totals

    @property
    def totals(self) -> dict[str, dict[str, float]]:
        """The totals of each column, such as `Average`, by its label."""
        labels, _, totals = self._table
        return {label: {name: row[i] for name, row in totals.items()} for i, label in enumerate(labels)}

    @property
    def cells(self) -> np.ndarray:
        """The statistic, a row for each object and a column for each bin; 0 where no burst is in a cell."""
        return self.frame.to_numpy()

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The cells by object (from 0) and the lowest value of each bin.

        Paraver hides columns without cells. If it fits the columns to the trace, these are missing here as well.
        """
        labels, cells, _ = self._table
        control = Window(self.source, int(_read_key(self.text, "Analyzer2D.ControlWindow:")) - 1)
        frame = pd.DataFrame(cells, columns=[self._find_value(label, control) for label in labels])
        if not labels:
            frame = frame.reindex(range(_count_objects(self.source.trace, control.level)))
        if _read_key(self.text, "Analyzer2D.ComputeYScale:") == "True":
            return frame
        low, high, delta = (
            float(_read_key(self.text, f"Analyzer2D.{key}:")) for key in ("Minimum", "Maximum", "Delta")
        )
        count = int(np.ceil((high - low) / delta)) + (delta == 1)
        bins = np.rint((frame.columns.to_numpy(np.float64) - low) / delta).astype(np.int64)
        full = np.zeros((len(frame), count))
        full[:, bins] = frame.to_numpy()
        return pd.DataFrame(full, columns=low + np.arange(count) * delta)

    def _find_value(self, label: str, control: Window) -> float:
        """Return the lowest value of a column: its label is a range, the label of the value, or the value."""
        tables = [self.source.trace.values.get(number, {}) for number in control.list_types()]
        values = {value for table in tables for value, text in table.items() if text == label}
        if values:
            (value,) = values
            return float(value)
        return float(label.removeprefix("value ").removeprefix("[").partition("..")[0].replace(",", ""))


@dataclass(frozen=True)
class Shown:
    """What Paraver shows of a preset: all windows, also those only used by others, and all histograms."""

    windows: list[Window]
    histograms: list[Histogram]

    @property
    def last(self) -> Window | Histogram:
        """The part that paramedir prints of the whole file."""
        return (self.histograms or self.windows)[-1]


def show(name: str, trace: Trace) -> Shown:
    """Return what Paraver shows of the preset `FOLDER/NAME` on a trace."""
    source = Source(name, trace)
    windows, histograms = source.parts
    return Shown(
        [Window(source, number) for number in range(len(windows) - 1)],
        [Histogram(source, number) for number in range(len(histograms))],
    )


def _read_key(text: str, key: str) -> str:
    match = re.search(rf"(?m)^{re.escape(key)} (.*)$", text)
    return match[1] if match else ""


def _count_objects(trace: Trace, level: str) -> int:
    return {"thread": sum(trace.threads), "task": len(trace.threads), "node": len(trace.cpus)}[level]
