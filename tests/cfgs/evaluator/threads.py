"""Paraver's functions of the level thread: from the records of each thread to bursts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.cfgs.evaluator.file import WindowSpec
from tests.cfgs.evaluator.functions import BURST
from tests.cfgs.evaluator.names import COMMUNICATION_FUNCTIONS, EVENT_FUNCTIONS, STATE_FUNCTIONS
from tests.cfgs.evaluator.records import Records, TraceRecords

_RUNNING = 1


@dataclass
class Leaves:
    """Bursts of all threads, those of thread i from first[i] to first[i + 1]."""

    bursts: np.ndarray
    first: np.ndarray
    tail: np.ndarray
    """By thread, the value after the end of the trace."""
    ids: np.ndarray
    """Identities of the records."""


@dataclass
class _Values:
    """The values of a function: from each chosen record on, before the first one and at the end."""

    records: Records
    values: np.ndarray
    before: np.ndarray | float = 0.0
    after: np.ndarray | float = 0.0


def make_leaves(records: TraceRecords, spec: WindowSpec) -> Leaves:
    """Return the bursts of all threads by a window's function of the level thread."""
    name = spec.functions["thread"].name
    parameters = [np.array(values) for values in spec.functions["thread"].parameters]
    if name in STATE_FUNCTIONS:
        values = _apply_state_function(records, name, parameters)
    elif name in EVENT_FUNCTIONS:
        values = _apply_event_function(records.select_events(spec.filter), records.rows, name, parameters, spec.unit)
    elif name in COMMUNICATION_FUNCTIONS:
        values = _apply_communication_function(records, spec, name)
    else:
        values = _apply_object_function(records, spec, name, parameters)
    return _cut_bursts(records, values)


def _cut_bursts(records: TraceRecords, values: _Values) -> Leaves:
    """Return bursts from each record to the next one of its thread."""
    chosen, rows = values.records, records.rows
    per_row = np.bincount(chosen.row, minlength=rows) + 1
    start = np.concatenate([[0], np.cumsum(per_row)])
    is_first = np.zeros(start[-1], bool)
    is_first[start[:-1]] = True
    bursts = np.zeros(start[-1], BURST)
    bursts["begin"][~is_first] = chosen.time
    bursts["begin_id"][~is_first] = chosen.id
    bursts["value"][~is_first] = values.values
    bursts["value"][is_first] = values.before
    bursts["end"][:-1], bursts["end_id"][:-1] = bursts["begin"][1:], bursts["begin_id"][1:]
    is_last = np.r_[is_first[1:], True]
    bursts["end"][is_last] = records.finish
    bursts["end_id"][is_last] = -1 - np.arange(rows)
    kept = (bursts["end"] > 0) | is_last  # Paraver goes on to the first burst that ends after 0
    row = np.repeat(np.arange(rows), per_row)[kept]
    first = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))])
    return Leaves(bursts[kept], first, np.broadcast_to(values.after, rows).astype(np.float64), chosen.id)


def _apply_state_function(records: TraceRecords, name: str, parameters: list[np.ndarray]) -> _Values:
    states = records.select_states()
    value = states.value
    functions: dict[str, Callable[[], np.ndarray]] = {
        "State As Is": lambda: value,
        "Useful": lambda: value == _RUNNING,
        "State Sign": lambda: value != 0,
        "Given State": lambda: value * np.isin(value, parameters[0]),
        "In State": lambda: np.isin(value, parameters[0]),
        "Not In State": lambda: ~np.isin(value, parameters[0]),
    }
    return _Values(states, _choose(functions, name)())


def _apply_event_function(events: Records, rows: int, name: str, parameters: list[np.ndarray], unit: float) -> _Values:
    time, value = events.time.astype(np.float64), events.value
    is_last = np.r_[np.diff(events.row) != 0, True][: len(value)]
    first_of_row = np.searchsorted(events.row, np.arange(rows))
    has_any = np.searchsorted(events.row, np.arange(rows), "right") > first_of_row

    def get_next(column: np.ndarray) -> np.ndarray:
        return np.where(is_last, 0.0, np.r_[column[1:], 0.0][: len(column)])

    def get_first(column: np.ndarray) -> np.ndarray:
        return np.where(has_any, np.r_[column, 0.0][np.where(has_any, first_of_row, 0)], 0.0)

    def compute_rate(amount: np.ndarray, duration: np.ndarray) -> np.ndarray:
        is_some = duration > 0
        return np.where(is_some, amount * parameters[0][0] / np.where(is_some, duration / unit, 1.0), 0.0)

    def is_given() -> np.ndarray:
        return np.isin(value, parameters[0])

    duration = np.where(is_last, 0.0, get_next(time) - time)
    functions: dict[str, Callable[[], _Values]] = {
        "Last Evt Type": lambda: _Values(events, events.type),
        "Last Evt Val": lambda: _Values(events, value),
        "Last Evt Val w/o Bursts": lambda: _Values(events, _find_last_not_zero(events)),
        "Next Evt Type": lambda: _Values(events, get_next(events.type), get_first(events.type)),
        "Next Evt Val": lambda: _Values(events, get_next(value), get_first(value)),
        "Avg Next Evt Val": lambda: _Values(
            events, compute_rate(get_next(value), duration), compute_rate(get_first(value), get_first(time))
        ),
        "Avg Last Evt Val": lambda: _Values(events, compute_rate(value, duration)),
        "Given Evt Val": lambda: _Values(events, value * is_given()),
        "In Evt Val": lambda: _Values(events, is_given()),
        "Not In Evt Val": lambda: _Values(events, ~is_given()),
        "In Evt Range": lambda: _Values(events, (value >= parameters[0][0]) & (value <= parameters[1][0])),
        "Int. Between Evt": lambda: _Values(events, duration / unit),
    }
    return _choose(functions, name)()


def _find_last_not_zero(events: Records) -> np.ndarray:
    """Return the last value other than 0 of the thread at each event."""
    index = np.arange(len(events.value))
    is_first = np.r_[True, np.diff(events.row) != 0][: len(index)]
    last = np.maximum.accumulate(np.where((events.value != 0) | is_first, index, 0)) if len(index) else index
    return events.value[last]


def _apply_communication_function(records: TraceRecords, spec: WindowSpec, name: str) -> _Values:
    way, _, what = name.partition(" ")
    if what not in ("Messages in Transit", "Bytes in Transit"):
        raise NotImplementedError(name)
    changes = records.select_communications(spec, way == "Send", what.startswith("Bytes"))
    total = np.cumsum(changes.value)
    first = np.searchsorted(changes.row, changes.row)
    return _Values(changes, total - np.r_[0.0, total][first])


def _apply_object_function(records: TraceRecords, spec: WindowSpec, name: str, parameters: list[np.ndarray]) -> _Values:
    chosen = records.select_states_and_events(spec.filter)
    nodes_of_cpu = np.repeat(np.arange(len(records.trace.cpus)) + 1, records.trace.cpus)
    rows = np.arange(records.rows)
    tasks = records.find_object("task", rows)
    number_of_row = {"Application ID": rows * 0, "TaskID": tasks, "Thread ID": rows}
    if name in number_of_row:
        number = number_of_row[name] + 1
        return _Values(chosen, number[chosen.row], number, number)
    functions: dict[str, Callable[[], np.ndarray]] = {
        "Node ID": lambda: np.r_[0, nodes_of_cpu][chosen.cpu],
        "Cpu ID": lambda: chosen.cpu,
        "In Appl ID": lambda: np.ones(len(chosen.row)),
        "In Task ID": lambda: tasks[chosen.row] + 1,
        "In Thread ID": lambda: chosen.row + 1,
        "In Cpu ID": lambda: chosen.cpu,
    }
    number = _choose(functions, name)()
    return _Values(chosen, number * np.isin(number, parameters[0]) if parameters else number)


def _choose(functions: dict, name: str) -> Callable:
    """Return a function by its name. Raises NotImplementedError if it is not computed here."""
    if name not in functions:
        raise NotImplementedError(name)
    return functions[name]
