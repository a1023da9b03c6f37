"""Dependencies on host threads: calls follow each other, and a thread may go on only after another one.

- A call starts after the call before it on its thread. A long time without calls (path/walk.py) may have been a wait
  for the thread of the process that launches kernels and was active last; then it starts after that one's last call.
- A call returns when its own work is done. One that waited for another thread returns after that thread's last call.
- The first call of a thread follows what its process did before. What a process does first keeps its observed time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.path import columns as path
from nsys2prv_ng.analysis.path.columns import BEGIN, END, NEVER, PathLists, PathTables
from nsys2prv_ng.analysis.path.lanes import Lanes
from nsys2prv_ng.analysis.path.walk import HANDED_OVER_NS, find_active, find_call
from nsys2prv_ng.arrays.row_keys import encode_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray, IntTable, pick
from nsys2prv_ng.intervals.step_functions import find_latest
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.replay import graph as columns
from nsys2prv_ng.replay.graph import ALWAYS, CODE, NONE, Edges, Numbers, make_edges
from nsys2prv_ng.runtime.jit import compiled


def list_thread_edges(lanes: Lanes, numbers: Numbers, task: IntArray) -> list[Edges]:
    """Return the dependencies between the calls of threads. `task`: of each thread."""
    calls = lanes.calls
    every = np.arange(numbers.calls)
    before = np.where(np.append(NONE, calls.thread[:-1])[: every.size] == calls.thread, every - 1, NONE)
    handed, of_call = np.full((2, numbers.calls), NONE)
    _find_handovers(lanes.tables, before, handed, of_call)
    begin, end = numbers.call_begin + every, numbers.call_end + every
    alone = np.flatnonzero((before < 0) & (handed < 0))
    # What comes before a capture of the task is not known.
    capture, _ = encode_rows(task, lanes.thread_report)
    earlier = find_before(lanes, numbers, capture, capture[calls.thread[alone]], calls.begin[alone])
    # A thread that waited for another one did nothing else meanwhile.
    is_handed = handed >= 0
    return [
        make_edges(np.where(before >= 0, numbers.call_end + before, NONE), begin, CODE),
        make_edges(_name_nodes(numbers, handed), np.where(is_handed, begin, NONE), CODE),
        make_edges(earlier, begin[alone], columns.AFTER),
        make_edges(begin, end, columns.CALL, ALWAYS),
        make_edges(_name_nodes(numbers, of_call), end, columns.HANDOVER, ALWAYS),
    ]


def find_before(lanes: Lanes, numbers: Numbers, group: IntArray, wanted: IntArray, time: IntArray) -> IntArray:
    """Return the node of the last start or end of a call before each time (n, ns) on any thread of a group.

    `group`: of each thread, from NONE; `wanted`: the group of each time. It is NONE without such a call.
    """
    members = np.argsort(group, kind="stable")
    most = max(int(group.max(initial=NONE)), int(wanted.max(initial=NONE)))  # a group may have no threads
    first = np.searchsorted(group[members], np.arange(most + 2))
    found = np.full(time.size, NONE)
    _, calls, threads, _ = lanes.tables
    _find_before(calls, threads, members, first, wanted.astype(np.int64), time, found)
    return _name_nodes(numbers, found)


@compiled
def _find_before(
    calls: IntTable,
    threads: IntTable,
    members: IntArray,
    first: IntArray,
    wanted: IntArray,
    time: IntArray,
    found: IntArray,
) -> None:
    """Set what `find_before` finds: 2 * c for the start of call c, 2 * c + 1 for its end.

    Threads members[first[g]] .. members[first[g + 1] - 1] are those of group g.
    """
    for i in range(time.size):
        latest = NEVER
        if wanted[i] < 0:
            continue
        for n in range(first[wanted[i]], first[wanted[i] + 1]):
            c = find_call(calls, threads, members[n], time[i])
            if c >= 0 and calls[BEGIN, c] > latest:
                latest, found[i] = calls[BEGIN, c], 2 * c
            if c >= 0 and latest < calls[END, c] <= time[i]:
                latest, found[i] = calls[END, c], 2 * c + 1


def limit_returns(edges: Edges, time: IntArray, numbers: Numbers, name: IntArray) -> None:
    """Let edges to the end of a call take at most what the shortest call of its name needs.

    That is the least time (ns) from the start of a call of this name, or from when it no longer had to wait, to its
    end; of a call that copies pageable memory, to the start of its copy. How long data move is known for each call and
    stays. `time`: of each node (ns), `name`: number of the name of each call. Changes `least` of the edges.
    """
    of_calls = np.stack([np.full(numbers.calls, NEVER), np.zeros(numbers.calls, np.int64)])
    shortest = np.full(int(name.max(initial=NONE)) + 1, ALWAYS)
    moves = columns.mark_kinds(np.arange(len(columns.NAMES)), (*columns.NETWORK, columns.STAGE))
    _limit_returns(edges, time, numbers.call_begin, name, moves, of_calls, shortest)


@compiled
def _limit_returns(
    edges: Edges, time: IntArray, begin: int, name: IntArray, moves: BoolArray, of_calls: IntTable, shortest: IntArray
) -> None:
    """Do what `limit_returns` says. `begin`: the first start of a call; `moves`: whether data move along each kind.

    `of_calls`: until when each call had to wait, NEVER at first, and the time (ns) that it took then. `shortest`: the
    least time of each name, ALWAYS at first.
    """
    waited, needed = of_calls[0], of_calls[1]
    end, others = begin + name.size, begin + 2 * name.size
    since, to, kind, least = edges
    for e in range(to.size):
        if end <= to[e] < others and not moves[kind[e]] and time[since[e]] <= time[to[e]]:
            waited[to[e] - end] = max(waited[to[e] - end], time[since[e]])
    for call in range(needed.size):
        if waited[call] > NEVER:
            needed[call] = time[end + call] - waited[call]
    for e in range(to.size):
        if end <= to[e] < others and kind[e] == columns.STAGE:
            needed[to[e] - end] = time[since[e]] - time[begin + to[e] - end]
    for call in range(needed.size):
        if waited[call] > NEVER:
            shortest[name[call]] = min(shortest[name[call]], needed[call])
    for e in range(to.size):
        if end <= to[e] < others and not moves[kind[e]]:
            least[e] = min(least[e], shortest[name[to[e] - end]])


def _name_nodes(numbers: Numbers, found: IntArray) -> IntArray:
    """Return the nodes of calls: 2 * c stands for the start of call c, 2 * c + 1 for its end, NONE for none."""
    first = np.where(found & 1, numbers.call_end, numbers.call_begin)
    return np.where(found >= 0, first + (found >> 1), NONE)


@compiled
def _find_handovers(tables: PathTables, before: IntArray, handed: IntArray, returned: IntArray) -> None:
    """Set what of another thread came before the start of each call, and before its return: 2 * call + is its end.

    Both are NONE at first, and stay so without such a call.
    """
    _, calls, threads, lists = tables
    for c in range(before.size):
        thread, now = calls[path.THREAD, c], calls[BEGIN, c]
        after = NEVER
        if before[c] >= 0:
            after = calls[END, before[c]]
        if before[c] < 0 or HANDED_OVER_NS <= now - after < threads[path.SHORTEST_WAIT, thread]:
            handed[c] = _find_last(calls, threads, lists, thread, after, now)
        if calls[path.SYNC, c] == path.SYNC_THREAD:
            returned[c] = _find_last(calls, threads, lists, thread, now, calls[END, c])


@compiled
def _find_last(calls: IntTable, threads: IntTable, lists: PathLists, thread: int, after: int, now: int) -> int:
    """Return the last start or end of another thread's call from `after` to `now` (ns), as `_find_handovers` does."""
    other, _, waits = find_active(calls, threads, lists, thread, after, now)
    if other < 0:
        return NONE
    c = find_call(calls, threads, other, now)
    return 2 * c + (0 if waits or calls[END, c] > now else 1)


class Marks(NamedTuple):
    """Nodes from `first` on: the ends of the ranges that mark the steps on each task, then their starts (2n)."""

    first: int
    time: IntArray
    thread: IntArray
    """The thread of each range; NONE if it is not known."""


def list_marks(job: Job, lanes: Lanes, numbers: Numbers, task: IntArray, first: int) -> tuple[Marks, Edges]:
    """Return the marks of the steps of a job, and their dependencies on the calls before them.

    A mark without a call before it on its thread follows what its task did before. `task`: of each thread.
    """
    steps = job.steps
    if steps is None:
        none = np.zeros(0, np.int64)
        return Marks(first, none, none), make_edges(none, none, CODE)
    time = np.concatenate([steps.host_end, steps.host_begin])
    # A row has a thread for each capture of its process.
    order = np.lexsort((lanes.thread_first, lanes.thread_row))
    at = find_latest(lanes.thread_row[order], lanes.thread_first[order], np.tile(steps.row, 2), time)
    thread = np.where(at >= 0, pick(order, at, NONE), NONE)
    calls = lanes.calls
    call = find_latest(calls.thread, calls.begin, thread, time)
    has_call = (call >= 0) & (thread >= 0)
    is_inside = has_call & (pick(calls.end, call, 0) > time)
    since = np.where(is_inside, numbers.call_begin, numbers.call_end) + call
    alone = np.flatnonzero(~has_call)
    since[alone] = find_before(lanes, numbers, task, np.tile(steps.task, 2)[alone], time[alone])
    kind = np.where(has_call, CODE, columns.AFTER)
    return Marks(first, time, thread), make_edges(since, first + np.arange(time.size), kind)
