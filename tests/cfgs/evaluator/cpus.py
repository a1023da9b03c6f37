"""The bursts of each CPU, of which Paraver makes those of nodes and of the system: of the thread whose turn it is."""

from __future__ import annotations

from copy import copy

import numpy as np
from numba import njit

from tests.cfgs.evaluator.file import Function, WindowSpec
from tests.cfgs.evaluator.functions import BURST
from tests.cfgs.evaluator.graph import Graph, Objects
from tests.cfgs.evaluator.machine import timeline
from tests.cfgs.evaluator.names import STATE_FUNCTIONS
from tests.cfgs.evaluator.records import Records, TraceRecords
from tests.cfgs.evaluator.threads import Leaves, leaves_of

_AS_IS = Function("As Is", [])


def cpu_leaves_of(records: TraceRecords, spec: WindowSpec) -> Leaves:
    """As `leaves_of` but by CPU, with the functions of the levels thread, compose_thread and cpu."""
    of_threads = leaves_of(records, spec)
    threads, first = _threads(records, spec, of_threads)
    trace = records.trace
    node_of_cpu = np.repeat(np.arange(len(trace.cpus)), trace.cpus)
    node_of_thread = np.array(trace.nodes)[np.array(trace.task_of_row) - 1] - 1
    cpus = np.arange(1, len(node_of_cpu) + 1)
    limits = np.searchsorted(records.by_cpu.cpu, np.r_[cpus, len(cpus) + 1])
    found, tails = [], []
    for cpu, node, start, stop in zip(cpus, node_of_cpu, limits, limits[1:], strict=False):
        chosen = records.by_cpu.only(np.arange(start, stop))
        is_valid = np.isin(chosen.id, of_threads.ids)
        if spec.functions["thread"].name in STATE_FUNCTIONS:
            is_valid = _valid_states(records, chosen)
        idle = np.r_[chosen.row, np.flatnonzero(node_of_thread == node), 0][0]
        is_communication = chosen.id >= records.first_communication
        time, row = np.r_[0.0, chosen.time], np.r_[idle, chosen.row]
        steps = _steps(row, np.r_[False, is_valid], np.r_[False, is_communication])
        values, tail = _values(cpu, time[steps], row[steps], row[-1], threads, first, records.finish)
        bursts = np.zeros(len(steps), BURST)
        bursts["begin"], bursts["begin_id"], bursts["value"] = time[steps], np.r_[0, chosen.id][steps], values
        bursts["end"], bursts["end_id"] = np.r_[time[steps[1:]], records.finish], np.r_[bursts["begin_id"][1:], 0]
        bursts["end_id"][-1] = -1 - records.rows - cpu
        is_last = np.arange(len(steps)) == len(steps) - 1
        found.append(bursts[(bursts["end"] > 0) | is_last])
        tails.append(tail)
    bursts = np.concatenate(found)
    bursts["value"] = _of_cpu(spec.functions["cpu"], bursts["value"])
    ends = np.cumsum([len(one) for one in found])
    return Leaves(bursts, np.r_[0, ends], _of_cpu(spec.functions["cpu"], np.array(tails)), of_threads.ids)


def _of_cpu(function: Function, values: np.ndarray) -> np.ndarray:
    chosen = np.isin(values, function.parameters[0]) if function.parameters else values != 0
    return np.where(chosen, 1.0 if function.name.endswith("Sign") else values, 0.0)


def _threads(records: TraceRecords, spec: WindowSpec, leaves: Leaves) -> tuple[np.ndarray, np.ndarray]:
    """Begin, end, value and CPU of the bursts of each thread and of one at the end; where each one starts."""
    window = copy(spec)
    window.level, window.extra = "thread", []
    window.functions = spec.functions | {"topcompose1": _AS_IS, "topcompose2": _AS_IS}
    graph = Graph([window], Objects(records.trace), lambda _: leaves)
    nodes = [graph.top(0, row) for row in range(records.rows)]
    machine = graph.machine(records.finish)
    found = [timeline(machine, node, 1) for node in nodes]
    cpu_of = np.zeros(records.first_communication + 8 * len(records.trace.communications), np.int64)
    cpu_of[records.all.id] = records.all.cpu
    last = np.searchsorted(records.all.row, np.arange(records.rows), "right") - 1
    for row, bursts in enumerate(found):
        begin_id = bursts[:, 3].astype(np.int64)
        cpu = cpu_of[np.maximum(begin_id, 0)]
        if last[row] >= 0 and records.all.row[last[row]] == row:
            cpu[begin_id < 0] = records.all.cpu[last[row]]
        bursts[:, 3] = cpu
    return np.concatenate(found), np.cumsum([0, *map(len, found)])


def _valid_states(records: TraceRecords, chosen: Records) -> np.ndarray:
    """Beginnings of states, and ends at which no other state begins on the CPU."""
    is_state = (chosen.id >= records.first_state) & (chosen.id < records.first_communication)
    is_begin = is_state & (chosen.type > 0)
    begins = np.r_[0, np.cumsum(is_begin)]
    after_time = np.searchsorted(chosen.time, chosen.time, "right")
    return is_begin | (is_state & (begins[after_time] == begins[1:]))


@njit(cache=True)
def _steps(row, is_valid, is_communication):
    """Records at which a CPU's bursts begin: those of the function, and those where another thread's turn begins."""
    found = np.zeros(len(row), np.int64)
    size = 1
    at = 0
    for i in range(1, len(row)):
        if is_valid[i] or (not is_communication[i] and row[i] != row[at]):
            found[size] = at = i
            size += 1
    return found[:size]


@njit(cache=True)
def _values(cpu, time, row, last_row, threads, first, finish):
    """What the thread whose turn it is shows, if its burst began on this CPU; and what it shows at the end."""
    place = first.copy()
    values = np.zeros(len(time) + 1)
    for i in range(len(time) + 1):
        thread = row[i] if i < len(time) else last_row
        begin = time[i] if i < len(time) else finish
        at = place[thread]
        while threads[at, 1] <= begin and threads[at, 0] < finish:
            at += 1
        place[thread] = at
        values[i] = threads[at, 2] if threads[at, 3] == cpu else 0.0
    return values[:-1], values[-1]
