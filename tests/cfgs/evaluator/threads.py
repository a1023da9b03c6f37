"""The bursts that Paraver's functions of the level thread make of each thread's records."""

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
    """By thread, the value where nothing is left of the trace."""
    ids: np.ndarray
    """Identities of the records."""


@dataclass
class _Values:
    """What a function makes of the chosen records: a value from each one on, before the first one and at the end."""

    records: Records
    values: np.ndarray
    before: np.ndarray | float = 0.0
    after: np.ndarray | float = 0.0


def leaves_of(records: TraceRecords, spec: WindowSpec) -> Leaves:
    name = spec.functions["thread"].name
    parameters = [np.array(values) for values in spec.functions["thread"].parameters]
    if name in STATE_FUNCTIONS:
        found = _of_states(records, name, parameters)
    elif name in EVENT_FUNCTIONS:
        found = _of_events(records.chosen_events(spec.filter), records.rows, name, parameters, spec.unit)
    elif name in COMMUNICATION_FUNCTIONS:
        found = _of_communications(records, spec, name)
    else:
        found = _of_objects(records, spec, name, parameters)
    return _leaves(records, found)


def _leaves(records: TraceRecords, found: _Values) -> Leaves:
    chosen, rows = found.records, records.rows
    per_row = np.bincount(chosen.row, minlength=rows) + 1
    start = np.concatenate([[0], np.cumsum(per_row)])
    is_first = np.zeros(start[-1], bool)
    is_first[start[:-1]] = True
    bursts = np.zeros(start[-1], BURST)
    bursts["begin"][~is_first] = chosen.time
    bursts["begin_id"][~is_first] = chosen.id
    bursts["value"][~is_first] = found.values
    bursts["value"][is_first] = found.before
    bursts["end"][:-1], bursts["end_id"][:-1] = bursts["begin"][1:], bursts["begin_id"][1:]
    is_last = np.r_[is_first[1:], True]
    bursts["end"][is_last] = records.finish
    bursts["end_id"][is_last] = -1 - np.arange(rows)
    kept = (bursts["end"] > 0) | is_last  # Paraver goes on to the first burst that ends after 0
    row = np.repeat(np.arange(rows), per_row)[kept]
    first = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))])
    return Leaves(bursts[kept], first, np.broadcast_to(found.after, rows).astype(np.float64), chosen.id)


def _of_states(records: TraceRecords, name: str, parameters: list[np.ndarray]) -> _Values:
    found = records.chosen_states()
    value = found.value
    functions: dict[str, Callable[[], np.ndarray]] = {
        "State As Is": lambda: value,
        "Useful": lambda: value == _RUNNING,
        "State Sign": lambda: value != 0,
        "Given State": lambda: value * np.isin(value, parameters[0]),
        "In State": lambda: np.isin(value, parameters[0]),
        "Not In State": lambda: ~np.isin(value, parameters[0]),
    }
    return _Values(found, _chosen(functions, name)())


def _of_events(found: Records, rows: int, name: str, parameters: list[np.ndarray], unit: float) -> _Values:
    time, value = found.time.astype(np.float64), found.value
    is_last = np.r_[np.diff(found.row) != 0, True][: len(value)]
    first_of_row = np.searchsorted(found.row, np.arange(rows))
    has_any = np.searchsorted(found.row, np.arange(rows), "right") > first_of_row

    def next_of(column: np.ndarray) -> np.ndarray:
        return np.where(is_last, 0.0, np.r_[column[1:], 0.0][: len(column)])

    def first_of(column: np.ndarray) -> np.ndarray:
        return np.where(has_any, np.r_[column, 0.0][np.where(has_any, first_of_row, 0)], 0.0)

    def rate(amount: np.ndarray, duration: np.ndarray) -> np.ndarray:
        is_some = duration > 0
        return np.where(is_some, amount * parameters[0][0] / np.where(is_some, duration / unit, 1.0), 0.0)

    def given() -> np.ndarray:
        return np.isin(value, parameters[0])

    duration = np.where(is_last, 0.0, next_of(time) - time)
    functions: dict[str, Callable[[], _Values]] = {
        "Last Evt Type": lambda: _Values(found, found.type),
        "Last Evt Val": lambda: _Values(found, value),
        "Last Evt Val w/o Bursts": lambda: _Values(found, _last_not_zero(found)),
        "Next Evt Type": lambda: _Values(found, next_of(found.type), first_of(found.type)),
        "Next Evt Val": lambda: _Values(found, next_of(value), first_of(value)),
        "Avg Next Evt Val": lambda: _Values(
            found, rate(next_of(value), duration), rate(first_of(value), first_of(time))
        ),
        "Avg Last Evt Val": lambda: _Values(found, rate(value, duration)),
        "Given Evt Val": lambda: _Values(found, value * given()),
        "In Evt Val": lambda: _Values(found, given()),
        "Not In Evt Val": lambda: _Values(found, ~given()),
        "In Evt Range": lambda: _Values(found, (value >= parameters[0][0]) & (value <= parameters[1][0])),
        "Int. Between Evt": lambda: _Values(found, duration / unit),
    }
    return _chosen(functions, name)()


def _last_not_zero(found: Records) -> np.ndarray:
    """The last value other than 0 of the thread."""
    index = np.arange(len(found.value))
    is_first = np.r_[True, np.diff(found.row) != 0][: len(index)]
    last = np.maximum.accumulate(np.where((found.value != 0) | is_first, index, 0)) if len(index) else index
    return found.value[last]


def _of_communications(records: TraceRecords, spec: WindowSpec, name: str) -> _Values:
    way, _, what = name.partition(" ")
    if what not in ("Messages in Transit", "Bytes in Transit"):
        raise NotImplementedError(name)
    found = records.communications(spec, way == "Send", what.startswith("Bytes"))
    total = np.cumsum(found.value)
    first = np.searchsorted(found.row, found.row)
    return _Values(found, total - np.r_[0.0, total][first])


def _of_objects(records: TraceRecords, spec: WindowSpec, name: str, parameters: list[np.ndarray]) -> _Values:
    found = records.states_and_events(spec.filter)
    nodes_of_cpu = np.repeat(np.arange(len(records.trace.cpus)) + 1, records.trace.cpus)
    rows = np.arange(records.rows)
    tasks = records.object_of("task", rows)
    of_row = {"Application ID": rows * 0, "TaskID": tasks, "Thread ID": rows}
    if name in of_row:
        number = of_row[name] + 1
        return _Values(found, number[found.row], number, number)
    functions: dict[str, Callable[[], np.ndarray]] = {
        "Node ID": lambda: np.r_[0, nodes_of_cpu][found.cpu],
        "Cpu ID": lambda: found.cpu,
        "In Appl ID": lambda: np.ones(len(found.row)),
        "In Task ID": lambda: tasks[found.row] + 1,
        "In Thread ID": lambda: found.row + 1,
        "In Cpu ID": lambda: found.cpu,
    }
    number = _chosen(functions, name)()
    return _Values(found, number * np.isin(number, parameters[0]) if parameters else number)


def _chosen(functions: dict, name: str) -> Callable:
    if name not in functions:
        raise NotImplementedError(name)
    return functions[name]
