"""The records of a trace as Paraver loads them: by thread, then time, then kind."""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tests.cfgs.evaluator.file import Filter, WindowSpec
from tests.trace_reader import Trace

_STATE_END, _EVENT, _STATE_BEGIN = 0, 6, 8
_SENDS = [(False, False, 4, 0), (False, True, 5, 1), (True, False, 6, 2), (True, True, 5, 3)]
_RECEIVES = [(True, False, 6, 4), (True, True, 1, 5), (False, False, 6, 6), (False, True, 5, 7)]
"""Records of a communication on the sending and on the receiving thread: is_receive, is_physical, order among records
of the same time, and place among the eight records of a line."""


class Records(NamedTuple):
    """Columns of records, by thread and time."""

    row: np.ndarray
    time: np.ndarray
    cpu: np.ndarray
    value: np.ndarray
    """Value of an event, state (0 where it ends), or the change of the amount in transit by a communication."""
    type: np.ndarray
    """Type of an event, 1 where a state starts, order of a communication's record among those at the same time."""
    id: np.ndarray
    """Identity among all records of the trace, from 1."""

    def select(self, chosen: np.ndarray) -> Records:
        return Records(*(column[chosen] for column in self))

    def sort_by_time(self, *ties: np.ndarray) -> Records:
        """Sort by thread, time and ties, the most significant tie last."""
        return self.select(np.lexsort((*ties, self.time, self.row)))


class TraceRecords:
    """All records of a trace, and the selections that windows make of them."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.rows = sum(trace.threads)
        times = [trace.events["time"], trace.states["begin"], trace.states["end"]]
        self.finish = float(max([trace.duration, *(column.max() for column in times if len(column))]))
        self.first_state = len(trace.events) + 1
        self.first_communication = self.first_state + len(trace.states) + int((trace.states["end"] >= 0).sum())
        """Identities of events are below the former, those of states below the latter."""

    @cached_property
    def events(self) -> Records:
        table = self.trace.events
        value = table["value"].to_numpy(np.float64).copy()
        for number, digits in _read_precisions(self.trace).items():
            value[table["type"] == number] *= 10.0**-digits
        row, time, cpu, kind = (table[name].to_numpy() for name in ("row", "time", "cpu", "type"))
        number = np.arange(1, len(table) + 1)
        return Records(row, time, cpu, value, kind, number).sort_by_time(number)

    @cached_property
    def states(self) -> Records:
        """Both ends of each state; at the same time in the order of the file."""
        table = self.trace.states
        ends = table[table["end"] >= 0]
        begin = [table[name] for name in ("row", "begin", "cpu", "state", "line")]
        end = [ends[name] for name in ("row", "end", "cpu", "state", "line")]
        row, time, cpu, state, line = (np.concatenate(pair) for pair in zip(begin, end, strict=True))
        is_begin = np.arange(len(row)) < len(table)
        number = self.first_state + np.arange(len(row))
        records = Records(row, time, cpu, (state * is_begin).astype(np.float64), is_begin.astype(np.int64), number)
        return records.sort_by_time(~is_begin, line)

    def select_states(self) -> Records:
        """Return both ends of states, without the ends at which another state starts."""
        states = self.states
        if not len(states.row):
            return states
        is_new = np.r_[False, (np.diff(states.row) != 0) | (np.diff(states.time) != 0)]
        group = np.cumsum(is_new)
        last_begin = np.full(group[-1] + 1, -1)
        begins = np.flatnonzero(states.type)
        last_begin[group[begins]] = begins
        return states.select((states.type == 1) | (np.arange(len(group)) > last_begin[group]))

    def select_events(self, wanted: Filter) -> Records:
        """Return the events that pass a filter."""
        return self.events.select(self.find_passing_events(wanted))

    def find_passing_events(self, wanted: Filter) -> np.ndarray:
        """Return a mask of the events that pass a filter."""
        by_type = _find_passing(wanted, "evt_type", self.events.type)
        by_value = by_type
        if wanted.numbers["evt_value"]:
            by_value = _find_passing(wanted, "evt_value", self.events.value)
        return by_type & by_value if wanted.both["typeval"] else by_type | by_value

    def select_states_and_events(self, wanted: Filter) -> Records:
        """Return both ends of all states, and the events that pass a filter."""
        states, events = self.states, self.select_events(wanted)
        both = Records(*(np.concatenate(pair) for pair in zip(states, events, strict=True)))
        state_kind = np.where(states.type == 1, _STATE_BEGIN, _STATE_END)
        kind = np.concatenate([state_kind, np.full(len(events.row), _EVENT)])
        return both.sort_by_time(np.arange(len(kind)), kind)

    def select_communications(self, spec: WindowSpec, is_sender: bool, is_bytes: bool) -> Records:
        """Return the changes of the messages (or bytes) in transit from (or to) each thread, at sends and receives."""
        table, wanted = self.trace.communications, spec.filter
        names = ("send_logical", "send_physical", "receive_logical", "receive_physical")
        send_logical, send_physical, logical, physical = (table[name].to_numpy() for name in names)
        amount = table["size"].to_numpy(np.float64) if is_bytes else np.ones(len(table))
        if wanted.logical:
            amount = np.where(np.maximum(logical, physical) <= send_logical, 0.0, amount)
        else:
            amount = np.where(physical <= send_physical, 0.0, amount)
        side = "send_" if is_sender else "receive_"
        parts = []
        for is_receive, is_physical, kind, place in _SENDS if is_sender else _RECEIVES:
            passes = np.full(len(table), wanted.physical if is_physical else wanted.logical)
            if is_physical and is_receive and wanted.logical:
                passes |= logical <= physical
            counts = np.full(len(table), is_physical != wanted.logical)
            if is_receive and wanted.logical:
                counts = (physical >= logical) == is_physical
            change = amount * counts * (-1.0 if is_receive else 1.0)
            name = f"{'receive' if is_receive else 'send'}_{'physical' if is_physical else 'logical'}"
            number = self.first_communication + np.arange(len(table)) * 8 + place
            columns = (table[f"{side}row"], table[name], table[f"{side}cpu"], change, np.full(len(table), kind), number)
            chosen = passes & self._find_passing_communications(spec)
            parts.append([np.asarray(column)[chosen] for column in columns])
        records = Records(*(np.concatenate(pieces) for pieces in zip(*parts, strict=True)))
        return records.sort_by_time(records.id, records.type)

    def _find_passing_communications(self, spec: WindowSpec) -> np.ndarray:
        table, wanted = self.trace.communications, spec.filter
        if (
            spec.level in ("system", "node", "cpu")
            and wanted.functions["from_obj"] + wanted.functions["to_obj"] != "AllAll"
        ):
            raise NotImplementedError(f"from_obj or to_obj at {spec.level}")
        sender, receiver = (self.find_object(spec.level, table[f"{side}_row"]) + 1 for side in ("send", "receive"))
        values = {"from_obj": sender, "to_obj": receiver, "tag_msg": table["tag"], "size_msg": table["size"]}
        passing = {what: _find_passing(wanted, what, np.asarray(value)) for what, value in values.items()}
        if wanted.functions["bw_msg"] != "All":
            raise NotImplementedError("bw_msg")
        passes, is_decided = np.ones(len(table), bool), np.zeros(len(table), bool)
        for pair, first, second in (("fromto", "from_obj", "to_obj"), ("tagsize", "tag_msg", "size_msg")):
            if wanted.both[pair]:
                passes &= passing[first]
            else:  # where the first of a pair is enough, Paraver checks nothing more
                is_decided |= passes & passing[first]
            passes &= passing[second]
        return passes | is_decided

    @cached_property
    def all(self) -> Records:
        """All records, in the order of each thread; type is the kind, and value means nothing."""
        states, events, table = self.states, self.events, self.trace.communications
        state_kind = np.where(states.type == 1, _STATE_BEGIN, _STATE_END)
        parts = [events._replace(type=np.full(len(events.id), _EVENT)), states._replace(type=state_kind)]
        for side, places in (("send", _SENDS), ("receive", _RECEIVES)):
            for is_receive, is_physical, kind, place in places:
                time = table[f"{'receive' if is_receive else 'send'}_{'physical' if is_physical else 'logical'}"]
                number = self.first_communication + np.arange(len(table)) * 8 + place
                columns = (table[f"{side}_row"], time, table[f"{side}_cpu"], time, np.full(len(table), kind), number)
                parts.append(Records(*(np.asarray(column) for column in columns)))
        records = Records(*(np.concatenate(pieces) for pieces in zip(*parts, strict=True)))
        starts = self.trace.states["line"].to_numpy()
        lines = [self.trace.events["line"], starts, starts[self.trace.states["end"] >= 0], table["line"].repeat(8)]
        line = np.concatenate([[0], *lines])[records.id]
        return records.sort_by_time(records.id, line, records.type)

    @cached_property
    def by_cpu(self) -> Records:
        """All records that have a CPU, by CPU and time."""
        order = np.lexsort((self.all.time, self.all.cpu))
        return self.all.select(order[self.all.cpu[order] > 0])

    def find_object(self, level: str, rows: np.ndarray) -> np.ndarray:
        """Return the index of the object of a level of processes that each thread belongs to."""
        rows = np.asarray(rows, np.int64)
        if level == "thread":
            return rows
        return np.array(self.trace.task_of_row)[rows] - 1 if level == "task" else np.zeros(len(rows), np.int64)


def _find_passing(wanted: Filter, what: str, values: np.ndarray) -> np.ndarray:
    """Return a mask of the values that pass a part of a filter."""
    function, numbers = wanted.functions[what], wanted.numbers[what]
    if function in ("All", "None") or not numbers:
        return np.full(len(values), function == "All")
    if function in ("=", "!="):
        return np.isin(values, numbers, invert=function == "!=")
    if function == ">":
        return values > max(numbers)
    if function == "<":
        return values < min(numbers)
    return (values >= numbers[0]) & (values <= (numbers[1] if len(numbers) > 1 else np.inf))


def _read_precisions(trace: Trace) -> dict[int, int]:
    """Return the event types with a PRECISION in the .pcf, and the number of decimals in their values."""
    stem = trace.path.name.removesuffix(".gz").removesuffix(".prv")
    digits_of_type: dict[int, int] = {}
    block: list[int] = []
    section = ""
    for line in (trace.path.parent / f"{stem}.pcf").read_text().splitlines():
        if re.fullmatch(r"[A-Z_]+", line):
            section = line
            block = [] if section == "EVENT_TYPE" else block
        elif line.startswith("PRECISION"):
            digits_of_type |= dict.fromkeys(block, int(line.split()[1]))
        elif line and section == "EVENT_TYPE":
            block.append(int(line.split()[1]))
    return digits_of_type
