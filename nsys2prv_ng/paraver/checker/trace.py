"""Checks whether a trace keeps every rule of Paraver, including rules about which Paraver never complains.

Paraver silently drops lines, cuts numbers, and shows wrong intervals. This checker is stricter than Paraver on purpose:
Paraver shows a trace without problems here as it was meant.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import accumulate
from pathlib import Path

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, ByteArray, IntArray
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver.checker import trace_lines
from nsys2prv_ng.paraver.checker import trace_records as rules
from nsys2prv_ng.paraver.files import is_trace, list_trace_files
from nsys2prv_ng.paraver.read import prv_reader
from nsys2prv_ng.paraver.read.label_files import ParaverConfig, read_pcf, read_row
from nsys2prv_ng.paraver.read.problems import SHOWN_LINES, Findings, Problem, aggregate_problems, sort_by_line
from nsys2prv_ng.value_class import ValueClass

__all__ = ["CheckResult", "Problem", "check_trace"]

_BLOCK_BYTES = 1 << 20
_MAX_LINE_BYTES = 4 << 20
"""Longer lines are a problem, and their fields are not checked."""


class CheckResult(ValueClass):
    """The result of a check. `problems` are wrong; Paraver accepts `warnings`, but they are rarely meant.

    records: number of well-formed lines and pairs, {"states": n, "events": n, "pairs": n, "communications": n}.
    duration: end time of the header in its unit (ns in traces of this package). tasks, rows (threads), nodes: numbers
    in the header, 0 if it cannot be read.
    """

    problems: list[Problem]
    warnings: list[Problem]
    records: dict[str, int]
    duration: int
    tasks: int
    rows: int
    nodes: int


def check_trace(
    path: Path,
    *,
    progress: Callable[[int], object] | None = None,
    block_bytes: int = _BLOCK_BYTES,
    max_line: int = _MAX_LINE_BYTES,
) -> CheckResult:
    """Check x.prv or x.prv.gz with x.pcf and x.row, in one pass and in bounded memory.

    `progress` gets the number of bytes of the .prv read since its last call. Raises TranslationError if the .prv cannot
    be read or is not a Paraver trace at all. The result has everything else, with one entry per kind of problem.
    """
    if not is_trace(path):
        raise TranslationError(f"{path}: not a Paraver trace: its name must end in .prv or .prv.gz")
    pcf_path, row_path, _ = list_trace_files(path)
    prv, pcf = Findings(path), Findings(pcf_path)
    with closing(prv_reader.TraceStream(path, max_line, progress)) as stream:
        line = prv_reader.read_first_line(stream)
        if line.endswith("\r"):
            prv.add(1, "carriage return: lines must end with a line feed alone", "carriage return")
        header = prv_reader.read_header(line.removesuffix("\r"), prv)
        head, lines = _read_communicators(stream, header, prv)
        config = _read_config(pcf_path, pcf)
        body = BodyCheck(path, header, config, lines, max_line)
        for text, size in stream.read_blocks(block_bytes, head):
            body.check(text, size)
        _check_end(stream, body, prv)
    row = _check_row(row_path, header)
    return CheckResult(
        problems=sort_by_line(prv.list_problems() + body.list_problems())
        + sort_by_line(pcf.list_problems())
        + sort_by_line(row.list_problems()),
        warnings=sort_by_line(prv.list_warnings() + body.list_warnings()) + sort_by_line(pcf.list_warnings()),
        records=body.records,
        duration=header.duration or 0,
        tasks=header.tasks,
        rows=header.rows,
        nodes=len(header.cpus),
    )


def _read_communicators(
    stream: prv_reader.TraceStream, header: prv_reader.TraceHeader, findings: Findings
) -> tuple[bytes, int]:
    """Read the communicators. Return what was read of the first line of the body, and the number of lines before it."""
    for number in range(header.communicators):
        line = stream.read_line()
        if line[:1] not in (b"c", b"C", b"i", b"I"):
            message = f"the header announces {header.communicators} communicators, and only {number} lines follow"
            findings.add(number + 2, message, "communicators")
            return line, number + 1
        prv_reader.check_communicator(line.decode("latin-1").removesuffix("\n"), number + 2, header, findings)
    return b"", header.communicators + 1


def _read_config(path: Path, findings: Findings) -> ParaverConfig | None:
    try:
        return read_pcf(path, findings)
    except OSError as error:
        findings.add(0, f"cannot be read ({error.strerror}): labels and intervals are not checked", "unreadable")
        return None


def _check_end(stream: prv_reader.TraceStream, body: BodyCheck, findings: Findings) -> None:
    if stream.damage:
        findings.add(body.lines, stream.damage, "damage")
    elif not stream.complete:
        findings.add(body.lines, "the last line has no newline: the trace may not be complete", "newline")
    if not any(body.records.values()):
        findings.add(0, "no record at all: Paraver refuses such a trace", "no record")


def _check_row(path: Path, header: prv_reader.TraceHeader) -> Findings:
    """Read the .row, and compare the sizes of its levels with the objects of the header."""
    findings = Findings(path)
    try:
        levels = read_row(path, findings)
    except OSError as error:
        findings.add(0, f"cannot be read ({error.strerror}): objects have numbers for names", "unreadable")
        return findings
    if not header.applications:
        return findings
    objects = {"WORKLOAD": 1, "APPL": len(header.applications), "TASK": header.tasks, "THREAD": header.rows}
    objects |= {"SYSTEM": int(bool(header.cpus)), "NODE": len(header.cpus), "CPU": sum(header.cpus)}
    for name, level in levels.items():
        if name in objects and level.size != objects[name]:
            message = f"level {name} has SIZE {level.size}, the header of the .prv has {objects[name]}"
            findings.add(level.line, message, f"objects {name}")
    return findings


MAX_DEPTHS = 1 << 27
"""Highest number of interval depths (rows times interval types) to follow; each takes 12 bytes if used.

A choice, at most 1.6 GB: with a lower one, intervals of large traces are not checked.
"""


MOST_TALLIED = 1 << 13
"""Most pairs of numbers without a label that are told apart, so that memory is bounded: a choice."""
SHOWN_VALUES = 20
"""Number of unlabelled values with a problem of their own; one problem sums up the others."""
_INT32_MAX = 2**31 - 1
_UNLABELLED = {
    "event type {0} is not declared in the .pcf": "event types are not declared",
    "value {1} of event type {0} has no label in the .pcf": "values have no label",
    "state {0} has no label in the .pcf": "states have no label",
}
"""Messages for what has no label: for a pair of numbers, and for many others."""


class BodyCheck:
    """The check of the records after the first `lines` lines of a trace.

    Memory depends on the objects in `header` and the labels in `config`, not on the trace. Without `config`, labels and
    intervals are not checked. Without objects in `header`, objects, overlaps and intervals are not checked.
    """

    def __init__(
        self, path: Path, header: prv_reader.TraceHeader, config: ParaverConfig | None, lines: int, max_line: int
    ) -> None:
        self.lines = lines
        self._path = path
        self._header = header
        self._config = config
        self._max_line = max_line
        self._end_time = -1 if header.duration is None else header.duration
        self._previous_time = 0
        self._counts = np.zeros(4, np.int64)
        """Number of well-formed records by kind; index 0 counts pairs."""
        self._notes = trace_lines.new_notes(rules.RULES)
        self._tallies = {message: _Tally() for message in _UNLABELLED}
        self._objects = _make_objects(header)
        self._state_end = np.zeros(header.rows, np.int64)
        self._prepare_labels(config)

    @property
    def records(self) -> dict[str, int]:
        """The number of well-formed records by kind, and of pairs."""
        pairs, states, events, communications = self._counts.tolist()
        return {"states": states, "events": events, "pairs": pairs, "communications": communications}

    def _prepare_labels(self, config: ParaverConfig | None) -> None:
        declared = {} if config is None else dict(sorted(config.types.items()))
        self._types = np.array(list(declared), np.int64)
        is_interval = np.array([each.is_interval for each in declared.values()], bool)
        self._too_many = self._header.rows * int(is_interval.sum()) > MAX_DEPTHS
        is_interval &= not self._too_many
        self._column = np.where(is_interval, np.cumsum(is_interval) - 1, -1).astype(np.int64)
        tables = [each.values for each in declared.values()]
        self._has_labels = np.array([table is not None for table in tables], bool)
        tables.append(None if config is None else config.states)
        keys = [_make_keys(number, np.array(list(table or ()), np.int64)) for number, table in enumerate(tables)]
        labels = np.sort(np.concatenate(keys))
        self._labels = labels[labels >= 0]
        shape = self._header.rows, int(is_interval.sum())
        self._intervals = rules.Intervals(np.zeros(shape, np.int32), np.zeros(shape, np.int64))

    def check(self, text: ByteArray, size: int) -> None:
        """Check text[:size]: whole lines, each with its newline."""
        records = self._read(text, size)
        columns = records.columns
        rows = np.full(columns.shape[1], -1, np.int64)
        if self._header.applications:
            for sender in (False, True):
                rules.find_rows(columns, sender, self._objects, self._notes, rows)
        self._previous_time = rules.check_times(columns, self._previous_time, self._end_time, self._notes)
        rules.check_states(columns, rows, self._state_end, self._notes)
        declared = _find(self._types, records.pairs[trace_lines.TYPE])
        column = np.where(declared < 0, -1, np.append(self._column, -1)[declared])
        rules.check_pairs(records, rows, column, self._intervals, self._notes)
        if self._config is not None:
            self._check_labels(records, declared)

    def _check_labels(self, records: trace_lines.Records, declared: IntArray) -> None:
        """Count types, values (not 0) and states without a label. declared: index of the type of each pair, or -1."""
        columns, (record, event_type, value) = records
        line = columns[trace_lines.LINE]
        is_type = (event_type >= 1) & (event_type <= _INT32_MAX)
        labelled = np.append(self._has_labels, False)[declared] & (value != 0)
        lacks_label = labelled & (_find(self._labels, _make_keys(declared, value)) < 0)
        is_state = (columns[1] == trace_lines.STATE) & (columns[8] <= _INT32_MAX)
        state = columns[8, is_state]
        is_unknown = _find(self._labels, _make_keys(self._types.size, state)) < 0
        types, values, states = self._tallies.values()
        types.add(line[record], event_type, value * 0, is_type & (declared < 0))
        values.add(line[record], event_type, value, lacks_label)
        states.add(line[is_state], state, state * 0, is_unknown)

    def _read(self, text: ByteArray, size: int) -> trace_lines.Records:
        """Return the readable records of a block."""
        lines = np.count_nonzero(text[:size] == ord("\n"))
        count = lines + np.count_nonzero(text[:size] == ord(":"))
        ends = np.empty(lines, np.int64), np.zeros(lines + 1, np.int64)
        fields = trace_lines.Fields(np.empty(count, np.int64), np.empty(count, np.uint8), *ends)
        trace_lines.split_fields(text, size, *fields)
        room = trace_lines.Records(
            np.empty((trace_lines.COLUMNS, lines), np.int64), np.empty((3, count // 2), np.int64)
        )
        records, pairs = trace_lines.read_records(
            text, self.lines, self._max_line, fields, self._notes, room, self._counts
        )
        self.lines += lines
        self._counts[0] += pairs
        return trace_lines.Records(*map(np.ascontiguousarray, (room.columns[:, :records], room.pairs[:, :pairs])))

    def list_problems(self) -> list[Problem]:
        """Return the problems of the lines so far, and the intervals that are still open."""
        problems = trace_lines.read_notes(self._path, self._notes, trace_lines.LINE_RULES | rules.RECORD_RULES)
        for message, tally in self._tallies.items():
            problems += tally.list_problems(self._path, message, _UNLABELLED[message])
        if self._too_many:
            message = "too many interval types and rows: intervals are not checked"
            problems.append(Problem(str(self._path), 0, message))
        return problems + self._list_open_intervals()

    def list_warnings(self) -> list[Problem]:
        """Return the findings that Paraver accepts although they are rarely meant."""
        return trace_lines.read_notes(self._path, self._notes, rules.RECORD_WARNINGS)

    def _list_open_intervals(self) -> list[Problem]:
        """Return one problem per event type for the first SHOWN_VALUES types in the trace, and one for all others."""
        problems: list[Problem] = []
        if self._config is None or not self._intervals.depth.size:
            return problems
        depth, opened_at = self._intervals
        threads = self._header.list_thread_names()
        for declared, column in zip(
            dict(sorted(self._config.types.items())).values(), self._column.tolist(), strict=True
        ):
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
            count = sum(problem.count for problem in rest)
            problems[SHOWN_VALUES:] = [Problem(str(self._path), rest[0].line, message, count)]
        return problems


def _make_objects(header: prv_reader.TraceHeader) -> rules.Objects:
    tasks = [task for application in header.applications for task in application]
    first_task = [0, *accumulate(len(application) for application in header.applications)]
    first_row = [0, *accumulate(threads for threads, _ in tasks)]
    first_cpu = [*accumulate(header.cpus, initial=1)]
    # A task on a missing node is one problem of the header, not a problem of each record.
    everything = (1, sum(header.cpus))
    nodes = range(1, len(header.cpus) + 1)
    cpus = [(first_cpu[node - 1], first_cpu[node] - 1) if node in nodes else everything for _, node in tasks]
    node_cpus = np.array(cpus, np.int64).reshape(-1, 2)
    return rules.Objects(np.array(first_task, np.int64), np.array(first_row, np.int64), node_cpus, sum(header.cpus))


def _make_keys(table: IntArray | int, value: IntArray) -> IntArray:
    """Return a key for each value of the table of a type, or of the states; -1 if it does not fit 32 bits."""
    fits = (value >= -_INT32_MAX - 1) & (value <= _INT32_MAX)
    return np.where(fits, (np.asarray(table, np.int64) << 32) | (value & 0xFFFFFFFF), -1)


def _find(known: IntArray, wanted: IntArray) -> IntArray:
    """Return the index of each wanted number among sorted ones; -1 if it is not among them."""
    at = np.searchsorted(known, wanted)
    return np.where(np.append(known, -1)[at] == wanted, at, -1) if known.size else np.full(wanted.size, -1, np.int64)


class _Tally:
    """Numbers without a label: how often they occur, and the first line of each pair of numbers."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], list[int]] = {}
        self._lost = 0

    def add(self, line: IntArray, first: IntArray, second: IntArray, chosen: BoolArray) -> None:
        """Count the chosen pairs of numbers, which are on these lines."""
        if not chosen.any():
            return
        pairs = np.stack((first[chosen], second[chosen]))
        pairs, index, count = np.unique(pairs, axis=1, return_index=True, return_counts=True)
        order = np.argsort(index)
        for *pair, at, times in zip(
            *pairs[:, order].tolist(), line[chosen][index[order]].tolist(), count[order].tolist(), strict=True
        ):
            if tuple(pair) in self._found or len(self._found) < MOST_TALLIED:
                self._found.setdefault(tuple(pair), [at, 0])[1] += times
            else:
                self._lost += times

    def list_problems(self, path: Path, message: str, many: str) -> list[Problem]:
        """Return a problem for each of the first SHOWN_VALUES pairs by line, and one for all others.

        The two integers of a pair fill in `message`; `many` describes the others.
        """
        pairs = sorted((line, first, second, count) for (first, second), (line, count) in self._found.items())
        shown, rest = pairs[:SHOWN_VALUES], pairs[SHOWN_VALUES:]
        problems = [aggregate_problems(path, message.format(*pair), count, [line]) for line, *pair, count in shown]
        if rest:
            count = sum(pair[-1] for pair in rest) + self._lost
            number = f"{'at least ' if self._lost else ''}{len(rest)}"
            problems.append(Problem(str(path), rest[0][0], f"{number} more {many} ({count} times)", count))
        return problems
