"""Checks the records of a .prv block by block, and keeps what one block must know of those before it."""

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
    read_records,
    split_fields,
)
from nsys2prv_ng.paraver.checker.trace_notes import SHOWN_VALUES, new_notes, new_tally, read_notes, read_tally
from nsys2prv_ng.paraver.checker.trace_records import RECORD_RULES, RECORD_WARNINGS
from nsys2prv_ng.paraver.read.header_reader import TraceHeader
from nsys2prv_ng.paraver.read.pcf_reader import ParaverConfig
from nsys2prv_ng.paraver.read.problems import SHOWN_LINES, Problem, aggregate_problems
from nsys2prv_ng.paraver.value_tables import NOTHING_RECORDED

MAX_DEPTHS = 1 << 27
"""Highest number of interval depths (rows times interval types) to follow; each takes 12 bytes, where used."""


class BodyCheck:
    """The check of the records after the first `lines` lines of a trace.

    Memory depends on the objects in `header` and the labels in `config`, not on the trace. Without `config`, labels and
    intervals are not checked; without objects in `header`, neither are objects, overlaps and intervals.
    `types` holds the event types seen so far.
    """

    def __init__(
        self, path: Path, header: TraceHeader, config: ParaverConfig | None, lines: int, max_line: int
    ) -> None:
        self.lines = lines
        self.types: set[int] = set()
        self.records = {"states": 0, "events": 0, "pairs": 0, "communications": 0}
        self._path = path
        self._header = header
        self._config = config
        self._max_line = max_line
        self._end_time = -1 if header.duration is None else header.duration
        self._previous_time = 0
        self._line_notes = new_notes(len(LINE_RULES))
        self._notes = new_notes(len(RECORD_RULES) + len(RECORD_WARNINGS))
        self._undeclared, self._unlabelled, self._unlabelled_states = new_tally(), new_tally(), new_tally()
        self._first_task, self._first_row, self._node_cpus = _make_object_tables(header)
        self._state_end = np.zeros(header.rows, np.int64)
        self._prepare_labels(config or ParaverConfig())

    def _prepare_labels(self, config: ParaverConfig) -> None:
        self._type_keys, self._type_slots = _make_hash_table(np.array(list(config.types), np.int64))
        self._label_keys, self._type_labels = _make_label_tables(config)
        labels_of_0 = [(declared.values or {}).get(0) for declared in config.types.values()]
        is_interval = np.array([label not in (None, NOTHING_RECORDED) for label in labels_of_0], bool)
        self._type_columns = np.where(is_interval, np.cumsum(is_interval) - 1, -1).astype(np.int64)
        intervals = int(is_interval.sum())
        self._too_many = self._header.rows * intervals > MAX_DEPTHS
        if self._too_many:
            self._type_columns[:] = -1
            intervals = 0
        self._depth = np.zeros((self._header.rows, intervals), np.int32)
        self._opened_at = np.zeros((self._header.rows, intervals), np.int64)

    def check(self, text: ByteArray, size: int) -> None:
        """Check text[:size]: whole lines, each with its newline."""
        columns, pairs, n_pairs = self._read(text, size)
        self.types.update(np.unique(pairs[TYPE, :n_pairs]).tolist())
        rows = np.full(columns.shape[1], -1, np.int64)
        if self._header.applications:
            cpus = sum(self._header.cpus)
            for sender in (False, True):
                rules.find_rows(
                    columns, sender, self._first_task, self._first_row, self._node_cpus, cpus, self._notes, rows
                )
        self._previous_time = rules.check_times(columns, rows.size, self._previous_time, self._end_time, self._notes)
        rules.check_states(columns, rows, self._state_end, self._notes)
        rules.check_types(columns, pairs, n_pairs, self._notes)
        if self._config is not None:
            self._check_labels(columns, pairs, n_pairs, rows)

    def _read(self, text: ByteArray, size: int) -> tuple[IntArray, IntArray, int]:
        """Return columns and pairs of the readable records, and the number of pairs."""
        lines = np.count_nonzero(text[:size] == ord("\n"))
        fields = lines + np.count_nonzero(text[:size] == ord(":"))
        values, forms = np.empty(fields, np.int64), np.empty(fields, np.uint8)
        line_end, line_field = np.empty(lines, np.int64), np.zeros(lines + 1, np.int64)
        split_fields(text, size, values, forms, line_end, line_field)
        columns = np.empty((COLUMNS, lines), np.int64)
        pairs = np.empty((3, fields // 2), np.int64)
        well_formed = np.zeros(4, np.int64)
        records, n_pairs = read_records(
            text,
            self.lines,
            self._max_line,
            values,
            forms,
            line_end,
            line_field,
            self._line_notes,
            columns,
            pairs,
            well_formed,
        )
        self.lines += lines
        for kind, name in ((STATE, "states"), (EVENT, "events"), (COMMUNICATION, "communications")):
            self.records[name] += int(well_formed[kind])
        self.records["pairs"] += n_pairs
        return columns[:, :records], pairs, n_pairs

    def _check_labels(self, columns: IntArray, pairs: IntArray, n_pairs: int, rows: IntArray) -> None:
        types = np.empty(n_pairs, np.int64)
        rules.check_state_labels(columns, rows.size, self._label_keys, self._unlabelled_states)
        rules.find_types(columns, pairs, self._type_keys, self._type_slots, self._undeclared, types)
        rules.check_value_labels(columns, pairs, types, self._type_labels, self._label_keys, self._unlabelled)
        rules.follow_intervals(
            columns, rows, pairs, types, self._type_columns, self._depth, self._opened_at, self._notes
        )

    def list_problems(self) -> list[Problem]:
        """Return the problems of the lines so far, and of the intervals that are still open."""
        problems = read_notes(self._path, self._line_notes, LINE_RULES) + read_notes(
            self._path, self._notes, RECORD_RULES
        )
        for tally, message, many in (
            (self._undeclared, "event type {0} is not declared in the .pcf", "event types are not declared"),
            (self._unlabelled, "value {1} of event type {0} has no label in the .pcf", "values have no label"),
            (self._unlabelled_states, "state {0} has no label in the .pcf", "states have no label"),
        ):
            problems += read_tally(self._path, tally, message, many)
        if self._too_many:
            message = "too many interval types and rows: intervals are not checked"
            problems.append(Problem(str(self._path), 0, message))
        return problems + self._list_open_intervals()

    def list_warnings(self) -> list[Problem]:
        """Return what Paraver accepts although it is rarely meant."""
        return read_notes(self._path, self._notes, RECORD_WARNINGS)

    def _list_open_intervals(self) -> list[Problem]:
        """Return one problem per event type for the first SHOWN_VALUES types in the trace, and one for all others."""
        problems: list[Problem] = []
        if self._config is None or not self._depth.size:
            return problems
        threads = self._header.list_thread_names()
        for declared, column in zip(self._config.types.values(), self._type_columns.tolist(), strict=True):
            rows = np.flatnonzero(self._depth[:, column]) if column >= 0 else np.empty(0, np.int64)
            if rows.size:
                opened = self._opened_at[rows, column]
                where = f"event type {declared.number} ({declared.label[:80]}) on {threads[rows[opened.argmin()]]}"
                lines = np.sort(opened)[:SHOWN_LINES].tolist()
                count = int(self._depth[rows, column].sum())
                problems.append(aggregate_problems(self._path, f"an interval of {where} never ends", count, lines))
        problems.sort(key=lambda problem: problem.line)
        rest = problems[SHOWN_VALUES:]
        if rest:
            message = f"intervals of {len(rest)} more event types never end"
            problems[SHOWN_VALUES:] = [
                Problem(str(self._path), rest[0].line, message, sum(problem.count for problem in rest))
            ]
        return problems


def _make_object_tables(header: TraceHeader) -> tuple[IntArray, IntArray, IntArray]:
    """Return first_task, first_row and node_cpus as `find_rows` takes them."""
    tasks = [task for application in header.applications for task in application]
    first_task = [0, *accumulate(len(application) for application in header.applications)]
    first_row = [0, *accumulate(threads for threads, _ in tasks)]
    first_cpu = [*accumulate(header.cpus, initial=1)]
    # A task on a node that does not exist is one problem of the header, not a problem of each of its records.
    everything = (1, sum(header.cpus))
    cpus = [
        (first_cpu[node - 1], first_cpu[node] - 1) if 1 <= node <= len(header.cpus) else everything for _, node in tasks
    ]
    return np.array(first_task, np.int64), np.array(first_row, np.int64), np.array(cpus, np.int64).reshape(-1, 2)


def _make_label_tables(config: ParaverConfig) -> tuple[IntArray, IntArray]:
    """Return the hash set of labelled values, and the label table of each type (-1 without one).

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
    return _make_hash_table(np.concatenate(keys))[0], np.array(table_of_type, np.int64)


def _make_label_keys(table: int, labels: dict[int, str]) -> IntArray:
    return (table << 32) | (np.array(list(labels), np.int64) & 0xFFFFFFFF)


def _make_hash_table(keys: IntArray) -> tuple[IntArray, IntArray]:
    """Return an open-addressing table of keys, at most half full, and the index of the key in each slot."""
    size = 1 << (2 * keys.size).bit_length()
    table = np.full(size, rules.EMPTY, np.int64)
    slots = np.zeros(size, np.int64)
    rules.insert_keys(table, slots, keys)
    return table, slots
