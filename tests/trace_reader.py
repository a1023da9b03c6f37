"""A reader of Paraver traces for tests, which shares no code with the package: columns of the three files."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

STATE, EVENT, COMMUNICATION = 1, 2, 3
PATH, PATH_LINE = 63000420, 55006
"""Event type and tag of the critical path."""
_COLON, _NEWLINE = ord(":"), ord("\n")
_HEADER = re.compile(r"#Paraver \((?P<date>[^)]*)\):(?P<end>\d+)_ns:(?P<resources>\d+\([\d,]+\)):1:(?P<rest>.*)")
_STATE_FIELDS = ["cpu", "appl", "task", "thread", "begin", "end", "state"]
_EVENT_FIELDS = ["cpu", "appl", "task", "thread", "time"]
_SIDE = ["cpu", "appl", "task", "thread", "logical", "physical"]
_COMMUNICATION_FIELDS = [*(f"send_{name}" for name in _SIDE), *(f"receive_{name}" for name in _SIDE), "size", "tag"]


@dataclass(frozen=True)
class Trace:
    """A trace. Rows are numbered from 0, task by task; times are ns; `line` counts the lines of the .prv from 1.

    events: line, time, row, cpu, task, thread, type, value: one for each type:value pair, in the order of the file.
    states: line, begin, end, row, cpu, task, thread, state.
    communications: line, send_row, send_logical, ..., receive_row, receive_logical, ..., size, tag.
    """

    path: Path
    date: str
    duration: int
    cpus: list[int]
    """Number of CPUs of each node."""
    threads: list[int]
    """Number of threads of each task."""
    nodes: list[int]
    """Node, from 1, of each task."""
    communicators: list[str]
    names: dict[str, list[str]]
    """Names of each level of the .row."""
    types: dict[int, str]
    values: dict[int, dict[int, str]]
    """Labels of the values of each event type that has any."""
    events: pd.DataFrame
    states: pd.DataFrame
    communications: pd.DataFrame

    @property
    def task_of_row(self) -> list[int]:
        """Task, from 1, of each row."""
        return [task for task, count in enumerate(self.threads, 1) for _ in range(count)]

    def find_types(self, label: str) -> list[int]:
        """Return the event types with this label, or with this label and a unit in brackets."""
        return [number for number, text in self.types.items() if text == label or text.startswith(f"{label} [")]

    def get_labels(self, event_type: int, values: pd.Series) -> list[str]:
        """Return the labels of values of an event type. Raises KeyError for a value without a label."""
        table = self.values.get(event_type, {})
        return [table[value] for value in values]

    def get_attribute(self, event_type: int) -> pd.Series:
        """Return the first value of an event type on each line that has it, by line."""
        events = self.events[self.events["type"] == event_type]
        return events.drop_duplicates("line").set_index("line")["value"]

    def omit_path(self) -> Trace:
        """Return the trace without the critical path, for tests of what reports show themselves."""
        return replace(
            self,
            types={number: label for number, label in self.types.items() if number != PATH},
            values={number: labels for number, labels in self.values.items() if number != PATH},
            events=self.events[self.events["type"] != PATH].reset_index(drop=True),
            communications=self.communications[self.communications["tag"] != PATH_LINE].reset_index(drop=True),
        )


def read_trace(path: Path) -> Trace:
    """Read the trace x.prv or x.prv.gz with x.pcf and x.row."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    stem = path.name.removesuffix(".gz").removesuffix(".prv")
    end = data.index(b"\n")
    header = _HEADER.fullmatch(data[:end].decode())
    assert header, data[:200]
    cpus = [int(count) for count in header["resources"].split("(")[1].rstrip(")").split(",")]
    application, _, communicator_count = header["rest"].partition("),")
    tasks = [tuple(map(int, task.split(":"))) for task in application.rstrip(")").split("(")[1].split(",")]
    communicators = []
    for _ in range(int(communicator_count or 0)):
        begin, end = end + 1, data.index(b"\n", end + 1)
        communicators.append(data[begin:end].decode())
    first_row = np.concatenate([[0], np.cumsum([threads for threads, _ in tasks])])
    states, events, communications = _read_body(data[end + 1 :], 2 + len(communicators), first_row)
    types, values = _read_pcf((path.parent / f"{stem}.pcf").read_text())
    return Trace(
        path=path,
        date=header["date"],
        duration=int(header["end"]),
        cpus=cpus,
        threads=[threads for threads, _ in tasks],
        nodes=[node for _, node in tasks],
        communicators=communicators,
        names=read_row((path.parent / f"{stem}.row").read_text()),
        types=types,
        values=values,
        events=events,
        states=states,
        communications=communications,
    )


def _read_body(text: bytes, first_line: int, first_row: np.ndarray) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return states, events and communications. Every line must consist of integers between colons."""
    assert text.endswith(b"\n") and not text.translate(None, b"0123456789:-\n")
    characters = np.frombuffer(text, np.uint8)
    is_newline = characters == _NEWLINE
    ends = np.flatnonzero(is_newline | (characters == _COLON))  # of each field
    fields = np.fromstring(text[:-1].replace(b"\n", b":").decode(), np.int64, sep=":")
    assert fields.size == ends.size
    last = np.flatnonzero(is_newline[ends])  # field at the end of each line
    start = np.concatenate([[0], last[:-1] + 1])
    length = last - start + 1
    kind = fields[start]
    assert set(np.unique(kind)) <= {STATE, EVENT, COMMUNICATION}

    def collect_columns(wanted: int, names: list[str]) -> pd.DataFrame:
        lines = np.flatnonzero(kind == wanted)
        if wanted != EVENT:
            assert np.all(length[lines] == 1 + len(names))
        table = {name: fields[start[lines] + 1 + i] for i, name in enumerate(names)}
        return pd.DataFrame({"line": lines + first_line, **table})

    def number_rows(frame: pd.DataFrame, prefix: str = "") -> np.ndarray:
        assert (frame[f"{prefix}appl"] == 1).all()
        return (first_row[frame[f"{prefix}task"] - 1] + frame[f"{prefix}thread"] - 1).astype(np.int64)

    states = collect_columns(STATE, _STATE_FIELDS)
    states["row"] = number_rows(states)
    communications = collect_columns(COMMUNICATION, _COMMUNICATION_FIELDS)
    for side in ("send_", "receive_"):
        communications[f"{side}row"] = number_rows(communications, side)
    event_lines = collect_columns(EVENT, _EVENT_FIELDS)
    event_lines["row"] = number_rows(event_lines)
    lines = np.flatnonzero(kind == EVENT)
    words = length[lines] - 1 - len(_EVENT_FIELDS)
    assert np.all((words >= 2) & (words % 2 == 0))
    pairs = words // 2
    columns = {name: np.repeat(column.to_numpy(), pairs) for name, column in event_lines.items()}
    at = np.repeat(start[lines] + 1 + len(_EVENT_FIELDS) - 2 * (np.cumsum(pairs) - pairs), pairs)
    at += 2 * np.arange(at.size)
    events = pd.DataFrame({**columns, "type": fields[at], "value": fields[at + 1]})
    return states, events, communications


def _read_pcf(text: str) -> tuple[dict[int, str], dict[int, dict[int, str]]]:
    """Return the labels of event types, and of their values. A type or value may be declared only once."""
    types: dict[int, str] = {}
    values: dict[int, dict[int, str]] = {}
    section, block = "", []
    for line in text.splitlines():
        if not line.strip():
            continue
        if re.fullmatch(r"[A-Z_]+", line):
            section = line
            block = [] if section == "EVENT_TYPE" else block
        elif section == "EVENT_TYPE" and not line.startswith("PRECISION"):
            _, number, label = line.split(maxsplit=2)
            assert int(number) not in types
            types[int(number)] = label
            block.append(int(number))
        elif section == "VALUES":
            value, label = line.split(maxsplit=1)
            for number in block:
                assert int(value) not in values.setdefault(number, {})
                values[number][int(value)] = label
    return types, values


def read_row(text: str) -> dict[str, list[str]]:
    """Return the names of each level of a .row."""
    levels: dict[str, list[str]] = {}
    lines = iter(text.splitlines())
    for line in lines:
        if line:
            keyword, level, size, count = line.split()
            assert (keyword, size) == ("LEVEL", "SIZE")
            levels[level] = [next(lines) for _ in range(int(count))]
    return levels


def pair_intervals(trace: Trace, *event_types: int) -> pd.DataFrame:
    """Return the intervals of event types: type, row, begin, end, value, line (of the begin), end_line.

    A value other than 0 opens an interval and 0 closes the last open one of its row and type, in the order of the file.
    Raises AssertionError for a 0 where nothing is open, and for an interval that stays open.
    """
    intervals = []
    chosen = trace.events[trace.events["type"].isin(event_types)]
    stacks: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    columns = (chosen[name].tolist() for name in ("type", "row", "time", "value", "line"))
    for event_type, row, time, value, line in zip(*columns, strict=True):
        stack = stacks.setdefault((event_type, row), [])
        if value:
            stack.append((time, value, line))
        else:
            assert stack, f"{trace.path}:{line}: nothing of type {event_type} is open on row {row}"
            begin, opened, begin_line = stack.pop()
            intervals.append((event_type, row, begin, time, opened, begin_line, line))
    still_open = {key: stack for key, stack in stacks.items() if stack}
    assert not still_open, f"{trace.path}: open at the end: {still_open}"
    return pd.DataFrame(intervals, columns=["type", "row", "begin", "end", "value", "line", "end_line"]).astype(
        np.int64
    )


def compare_tables(actual: pd.DataFrame, expected: pd.DataFrame, columns: Iterable[str]) -> str:
    """Compare two tables as multisets of rows; return the differences as text, empty if there are none."""
    names = list(columns)
    counts = [table.groupby(names, dropna=False).size() for table in (actual[names], expected[names])]
    both = pd.concat(counts, axis=1, keys=["actual", "expected"]).fillna(0).astype(np.int64)
    wrong = both[both["actual"] != both["expected"]]
    return "" if wrong.empty else f"{len(wrong)} rows differ:\n{wrong.head(10).to_string()}"
