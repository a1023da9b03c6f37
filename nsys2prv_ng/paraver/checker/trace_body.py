"""Checks the records of a .prv block by block, and keeps the state that carries over between blocks."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import numpy as np

from nsys2prv_ng.arrays.types import ByteArray, IntArray
from nsys2prv_ng.paraver.checker import trace_records as rules
from nsys2prv_ng.paraver.checker.trace_lines import (
    COLUMNS,
    COMMUNICATION,
    EVENT,
    LINE_RULES,
    STATE,
    TYPE,
    Fields,
    Records,
    read_records,
    split_fields,
)
from nsys2prv_ng.paraver.checker.trace_notes import SHOWN_VALUES, new_notes, new_tally, read_notes, read_tally
from nsys2prv_ng.paraver.read.header_reader import TraceHeader
from nsys2prv_ng.paraver.read.pcf_reader import ParaverConfig
from nsys2prv_ng.paraver.read.problems import SHOWN_LINES, Problem, aggregate_problems

MAX_DEPTHS = 1 << 27
"""Highest number of interval depths (rows times interval types) to follow; each takes 12 bytes if used."""


class BodyCheck:
    """The check of the records after the first `lines` lines of a trace.

    Memory depends on the objects in `header` and the labels in `config`, not on the trace. Without `config`, labels and
    intervals are not checked. Without objects in `header`, objects, overlaps and intervals are not checked. `types` are
    the event types seen so far.
    """

    def __init__(
        self, path: Path, header: TraceHeader, config: ParaverConfig | None, lines: int, max_line: int
    ) -> None:
        self.lines = lines
        self.types: set[int] = set()
        self._path = path
        self._header = header
        self._config = config
        self._max_line = max_line
        self._end_time = -1 if header.duration is None else header.duration
        self._previous_time = 0
        self._counts = np.zeros(4, np.int64)
        """Number of well-formed records by kind; index 0 counts pairs."""
        self._notes = new_notes(rules.RULES)
        self._tallies = rules.Tallies(new_tally(), new_tally(), new_tally())
        self._objects = _make_objects(header)
        self._state_end = np.zeros(header.rows, np.int64)
        self._prepare_labels(config or ParaverConfig())

    @property
    def records(self) -> dict[str, int]:
        """The number of well-formed records by kind, and of pairs."""
        kinds = {"states": STATE, "events": EVENT, "pairs": 0, "communications": COMMUNICATION}
        return {name: int(self._counts[kind]) for name, kind in kinds.items()}

    def _prepare_labels(self, config: ParaverConfig) -> None:
        is_interval = np.array([declared.is_interval for declared in config.types.values()], bool)
        columns = np.where(is_interval, np.cumsum(is_interval) - 1, -1).astype(np.int64)
        intervals = int(is_interval.sum())
        self._too_many = self._header.rows * intervals > MAX_DEPTHS
        if self._too_many:
            columns[:] = -1
            intervals = 0
        types = _make_hash_table(np.array(list(config.types), np.int64))
        self._labels = rules.Labels(types, *_make_label_tables(config), columns)
        shape = self._header.rows, intervals
        self._intervals = rules.Intervals(np.zeros(shape, np.int32), np.zeros(shape, np.int64))

    def check(self, text: ByteArray, size: int) -> None:
        """Check text[:size]: whole lines, each with its newline."""
        records = self._read(text, size)
        columns = records.columns
        self.types.update(np.unique(records.pairs[TYPE]).tolist())
        rows = np.full(columns.shape[1], -1, np.int64)
        if self._header.applications:
            for sender in (False, True):
                rules.find_rows(columns, sender, self._objects, self._notes, rows)
        self._previous_time = rules.check_times(columns, self._previous_time, self._end_time, self._notes)
        rules.check_states(columns, rows, self._state_end, self._notes)
        rules.check_types(records, self._notes)
        if self._config is not None:
            rules.check_state_labels(columns, self._labels, self._tallies)
            rules.check_pairs(records, rows, self._labels, self._intervals, self._tallies, self._notes)

    def _read(self, text: ByteArray, size: int) -> Records:
        """Return the readable records of a block."""
        lines = np.count_nonzero(text[:size] == ord("\n"))
        count = lines + np.count_nonzero(text[:size] == ord(":"))
        ends = np.empty(lines, np.int64), np.zeros(lines + 1, np.int64)
        fields = Fields(np.empty(count, np.int64), np.empty(count, np.uint8), *ends)
        split_fields(text, size, *fields)
        room = Records(np.empty((COLUMNS, lines), np.int64), np.empty((3, count // 2), np.int64))
        records, pairs = read_records(text, self.lines, self._max_line, fields, self._notes, room, self._counts)
        self.lines += lines
        self._counts[0] += pairs
        return Records(*map(np.ascontiguousarray, (room.columns[:, :records], room.pairs[:, :pairs])))

    def list_problems(self) -> list[Problem]:
        """Return the problems of the lines so far, and the intervals that are still open."""
        problems = read_notes(self._path, self._notes, LINE_RULES | rules.RECORD_RULES)
        for tally, message, many in (
            (self._tallies.types, "event type {0} is not declared in the .pcf", "event types are not declared"),
            (self._tallies.values, "value {1} of event type {0} has no label in the .pcf", "values have no label"),
            (self._tallies.states, "state {0} has no label in the .pcf", "states have no label"),
        ):
            problems += read_tally(self._path, tally, message, many)
        if self._too_many:
            message = "too many interval types and rows: intervals are not checked"
            problems.append(Problem(str(self._path), 0, message))
        return problems + self._list_open_intervals()

    def list_warnings(self) -> list[Problem]:
        """Return the findings that Paraver accepts although they are rarely meant."""
        return read_notes(self._path, self._notes, rules.RECORD_WARNINGS)

    def _list_open_intervals(self) -> list[Problem]:
        """Return one problem per event type for the first SHOWN_VALUES types in the trace, and one for all others."""
        problems: list[Problem] = []
        if self._config is None or not self._intervals.depth.size:
            return problems
        depth, opened_at = self._intervals
        threads = self._header.list_thread_names()
        for declared, column in zip(self._config.types.values(), self._labels.interval.tolist(), strict=True):
            rows = np.flatnonzero(depth[:, column]) if column >= 0 else np.empty(0, np.int64)
            if rows.size:
                opened = opened_at[rows, column]
                where = f"event type {declared.number} ({declared.label[:80]}) on {threads[rows[opened.argmin()]]}"
                lines = np.sort(opened)[:SHOWN_LINES].tolist()
                count = int(depth[rows, column].sum())
                problems.append(aggregate_problems(self._path, f"an interval of {where} never ends", count, lines))
        problems.sort(key=lambda problem: problem.line)
        rest = problems[SHOWN_VALUES:]
        if rest:
            message = f"intervals of {len(rest)} more event types never end"
            problems[SHOWN_VALUES:] = [
                Problem(str(self._path), rest[0].line, message, sum(problem.count for problem in rest))
            ]
        return problems


def _make_objects(header: TraceHeader) -> rules.Objects:
    tasks = [task for application in header.applications for task in application]
    first_task = [0, *accumulate(len(application) for application in header.applications)]
    first_row = [0, *accumulate(threads for threads, _ in tasks)]
    first_cpu = [*accumulate(header.cpus, initial=1)]
    # A task on a missing node is one problem of the header, not a problem of each record.
    everything = (1, sum(header.cpus))
    cpus = [
        (first_cpu[node - 1], first_cpu[node] - 1) if 1 <= node <= len(header.cpus) else everything for _, node in tasks
    ]
    node_cpus = np.array(cpus, np.int64).reshape(-1, 2)
    return rules.Objects(np.array(first_task, np.int64), np.array(first_row, np.int64), node_cpus, sum(header.cpus))


def _make_label_tables(config: ParaverConfig) -> tuple[rules.HashTable, IntArray]:
    """Return the table of labelled values, and the number of each type's label table (-1 without one).

    Types of one block share a table.
    """
    tables = {id(config.states): rules.STATE_LABELS}
    keys = [_make_label_keys(rules.STATE_LABELS, config.states)]
    table_of_type = []
    for declared in config.types.values():
        if declared.values is None:
            table_of_type.append(-1)
            continue
        if id(declared.values) not in tables:
            tables[id(declared.values)] = len(tables)
            keys.append(_make_label_keys(tables[id(declared.values)], declared.values))
        table_of_type.append(tables[id(declared.values)])
    return _make_hash_table(np.concatenate(keys)), np.array(table_of_type, np.int64)


def _make_label_keys(table: int, labels: dict[int, str]) -> IntArray:
    return (table << 32) | (np.array(list(labels), np.int64) & 0xFFFFFFFF)


def _make_hash_table(keys: IntArray) -> rules.HashTable:
    size = 1 << (2 * keys.size).bit_length()
    table = rules.HashTable(np.full(size, rules.EMPTY, np.int64), np.zeros(size, np.int64))
    rules.insert_keys(table, keys)
    return table
