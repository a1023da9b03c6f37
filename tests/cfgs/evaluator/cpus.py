"""The bursts of each CPU, from which Paraver computes those of nodes and of the system.

A CPU shows the thread that has the turn.
"""

from __future__ import annotations

from copy import copy

import numpy as np
from numba import njit

from tests.cfgs.evaluator.file import Function, WindowSpec
from tests.cfgs.evaluator.functions import BURST
from tests.cfgs.evaluator.graph import Graph, Objects
from tests.cfgs.evaluator.machine import collect_bursts
from tests.cfgs.evaluator.names import STATE_FUNCTIONS
from tests.cfgs.evaluator.records import Records, TraceRecords
from tests.cfgs.evaluator.threads import Leaves, make_leaves

_AS_IS = Function("As Is", [])


def make_cpu_leaves(records: TraceRecords, spec: WindowSpec) -> Leaves:
    """Return bursts as `make_leaves` does, but by CPU, after the functions of thread, compose_thread and cpu."""
    thread_leaves = make_leaves(records, spec)
    threads, first = _collect_threads(records, spec, thread_leaves)
    trace = records.trace
    node_of_cpu = np.repeat(np.arange(len(trace.cpus)), trace.cpus)
    node_of_thread = np.array(trace.nodes)[np.array(trace.task_of_row) - 1] - 1
    cpus = np.arange(1, len(node_of_cpu) + 1)
    limits = np.searchsorted(records.by_cpu.cpu, np.r_[cpus, len(cpus) + 1])
    bursts_of_cpus, tails = [], []
    for cpu, node, start, stop in zip(cpus, node_of_cpu, limits, limits[1:], strict=False):
        chosen = records.by_cpu.select(np.arange(start, stop))
        is_valid = np.isin(chosen.id, thread_leaves.ids)
        if spec.functions["thread"].name in STATE_FUNCTIONS:
            is_valid = _find_valid_states(records, chosen)
        idle = np.r_[chosen.row, np.flatnonzero(node_of_thread == node), 0][0]
        is_communication = chosen.id >= records.first_communication
        time, row = np.r_[0.0, chosen.time], np.r_[idle, chosen.row]
        steps = _find_steps(row, np.r_[False, is_valid], np.r_[False, is_communication])
        values, tail = _find_values(cpu, time[steps], row[steps], row[-1], threads, first, records.finish)
        bursts = np.zeros(len(steps), BURST)
        bursts["begin"], bursts["begin_id"], bursts["value"] = time[steps], np.r_[0, chosen.id][steps], values
        bursts["end"], bursts["end_id"] = np.r_[time[steps[1:]], records.finish], np.r_[bursts["begin_id"][1:], 0]
        bursts["end_id"][-1] = -1 - records.rows - cpu
        is_last = np.arange(len(steps)) == len(steps) - 1
        bursts_of_cpus.append(bursts[(bursts["end"] > 0) | is_last])
        tails.append(tail)
    bursts = np.concatenate(bursts_of_cpus)
    bursts["value"] = _apply_cpu_function(spec.functions["cpu"], bursts["value"])
    ends = np.cumsum([len(bursts_of_cpu) for bursts_of_cpu in bursts_of_cpus])
    return Leaves(
        bursts, np.r_[0, ends], _apply_cpu_function(spec.functions["cpu"], np.array(tails)), thread_leaves.ids
    )


def _apply_cpu_function(function: Function, values: np.ndarray) -> np.ndarray:
    """Return the values that a function of the level cpu makes of the values of threads."""
    chosen = np.isin(values, function.parameters[0]) if function.parameters else values != 0
    return np.where(chosen, 1.0 if function.name.endswith("Sign") else values, 0.0)


def _collect_threads(records: TraceRecords, spec: WindowSpec, leaves: Leaves) -> tuple[np.ndarray, np.ndarray]:
    """Return begin, end, value and CPU of the bursts of each thread and of one at the end; where each thread starts."""
    window = copy(spec)
    window.level, window.extra = "thread", []
    window.functions = spec.functions | {"topcompose1": _AS_IS, "topcompose2": _AS_IS}
    graph = Graph([window], Objects(records.trace), lambda _: leaves)
    nodes = [graph.make_top(0, row) for row in range(records.rows)]
    machine = graph.make_machine(records.finish)
    bursts_of_threads = [collect_bursts(machine, node, 1) for node in nodes]
    cpu_of_record = np.zeros(records.first_communication + 8 * len(records.trace.communications), np.int64)
    cpu_of_record[records.all.id] = records.all.cpu
    last = np.searchsorted(records.all.row, np.arange(records.rows), "right") - 1
    for row, bursts in enumerate(bursts_of_threads):
        begin_id = bursts[:, 3].astype(np.int64)
        cpu = cpu_of_record[np.maximum(begin_id, 0)]
        if last[row] >= 0 and records.all.row[last[row]] == row:
            cpu[begin_id < 0] = records.all.cpu[last[row]]
        bursts[:, 3] = cpu
    return np.concatenate(bursts_of_threads), np.cumsum([0, *map(len, bursts_of_threads)])


def _find_valid_states(records: TraceRecords, chosen: Records) -> np.ndarray:
    """Return a mask of the starts of states, and of the ends at which no other state starts on the CPU."""
    is_state = (chosen.id >= records.first_state) & (chosen.id < records.first_communication)
    is_begin = is_state & (chosen.type > 0)
    begins = np.r_[0, np.cumsum(is_begin)]
    after_time = np.searchsorted(chosen.time, chosen.time, "right")
    return is_begin | (is_state & (begins[after_time] == begins[1:]))


@njit(cache=True)
def _find_steps(row, is_valid, is_communication):
    """Return the records where bursts of a CPU start: those of the function, and where the turn of a thread starts."""
    steps = np.zeros(len(row), np.int64)
    size = 1
    at = 0
    for i in range(1, len(row)):
        if is_valid[i] or (not is_communication[i] and row[i] != row[at]):
            steps[size] = at = i
            size += 1
    return steps[:size]


@njit(cache=True)
def _find_values(cpu, time, row, last_row, threads, first, finish):
    """Return the value of the thread that has the turn, 0 if its burst started on another CPU; and the final value."""
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
