"""Loads what each task launched on its GPUs, in the order of the launches, and counts the names in parts of it.

The work of a task is kernels and CUDA graphs that were traced as a whole.
A name has a checksum of its text, so that equal names of different reports have equal checksums.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import encode_rows
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray, IntTable, find_most_at, mark, pick
from nsys2prv_ng.intervals.device_sweep import MEMORY, WHOLE_GRAPH
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.reading.device_operations import DeviceOperations, Launches, load_device_operations, load_launches
from nsys2prv_ng.reading.opened_events import Names, find_checksum
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.jit import compiled

_MOST_UNKNOWN = 0.01
"""Maximum share of operations of a task whose launch the capture lacks, if its launches are to give the order."""
_OPTIMIZER = re.compile(r"multi_tensor|adam|lamb|sgd|optim|adagrad|rmsprop|muon", re.IGNORECASE)
_ATTENTION = re.compile(r"attention|sdpa|fmha|flash|softmax", re.IGNORECASE)


class LaunchedWork(NamedTuple):
    """The n operations of a task in order of launch, and its k names. Times are on the common clock (ns).

    - `name`: index of each operation's name (n).
    - `launched`: begin of the call that launched each operation (n), ascending; of the operation, if calls are not
      known.
    - `checksum`: checksum of each name (k).
    - `is_graph`: whether each name (k) is a CUDA graph, traced as a whole.
    - `is_optimizer`: whether each name (k) looks like a kernel of an optimizer, which a training step has once.
    - `is_attention`: whether each name (k) looks like a kernel of attention, which a layer of a transformer has once.
    - `copied`: begins of the calls that launched copies and sets, ascending.
    - `threads`: rows of the threads that launched operations, also for other tasks.
    """

    name: IntArray
    launched: IntArray
    begin: IntArray
    end: IntArray
    texts: list[str]
    checksum: IntArray
    is_graph: BoolArray
    is_optimizer: BoolArray
    is_attention: BoolArray
    copied: IntArray
    threads: frozenset[int] = frozenset()


def make_work(
    texts: Sequence[str],
    name: IntArray,
    graph: BoolArray,
    launched: IntArray,
    begin: IntArray,
    end: IntArray,
    copied: IntArray | None = None,
) -> LaunchedWork:
    """Sort the operations of a task by launch. `name`: index of each operation's text; `graph`: graphs as a whole;
    `copied`: launches of its copies.

    Names are numbered by their first operations, so that what the texts are does not matter.
    """
    order = np.lexsort((end, begin, launched))
    _, first, index = np.unique(name[order], return_index=True, return_inverse=True)
    by_first = np.argsort(first)
    index, used = np.argsort(by_first)[index], name[order][first[by_first]]
    chosen = [texts[number] for number in used.tolist()]
    checksum = [find_checksum(text) for text in chosen]
    is_graph = mark(index[graph[order]], used.size)
    return LaunchedWork(
        name=index,
        launched=launched[order],
        begin=begin[order],
        end=end[order],
        texts=chosen,
        checksum=np.array(checksum, np.int64),
        is_graph=is_graph,
        is_optimizer=np.array([bool(_OPTIMIZER.search(text)) for text in chosen], np.bool_),
        is_attention=np.array([bool(_ATTENTION.search(text)) for text in chosen], np.bool_),
        copied=np.sort(np.zeros(0, np.int64) if copied is None else copied),
    )


def load_work(
    reports: Sequence[tuple[ReportRecords, IntArray]], tree: ObjectTree, store: Store
) -> dict[int, LaunchedWork]:
    """Return the work of each task with kernels or graphs in some reports, each of which has its rows."""
    names = Names()
    parts = [[np.zeros(0, np.int64) for _ in range(7)]]
    copied = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    threads = set[int]()
    for report, rows in reports:
        operations, launches = load_device_operations(report, store), load_launches(report, store)
        threads.update(np.unique(rows[launches.thread]).tolist())
        task_of_place = np.where(rows >= 0, tree.task_of_row[rows], -1)
        launched = find_launched(operations, launches, task_of_place)
        is_copy = operations.kind & MEMORY > 0
        copies = np.flatnonzero(is_copy & (launched != UNKNOWN))
        copied.append((task_of_place[operations.place[copies]], launched[copies]))
        chosen = np.flatnonzero(~is_copy)
        row = rows[operations.place[chosen]]
        task = task_of_place[operations.place[chosen]]
        name = names.number(operations.names, operations.name[chosen])
        graph = (operations.kind[chosen] == WHOLE_GRAPH).astype(np.int64)
        parts.append([task, row, name, graph, launched[chosen], operations.begin[chosen], operations.end[chosen]])
    task, row, name, graph, launched, begin, end = (np.concatenate(column) for column in zip(*parts, strict=True))
    task_of_copy, copies_sent = (np.concatenate(column) for column in zip(*copied, strict=True))
    texts, found = names.texts, {}
    for number in np.unique(task).tolist():
        mine = np.flatnonzero(task == number)
        mine = mine[np.argsort(row[mine], kind="stable")]
        sent = _choose_order(launched[mine], begin[mine])
        copies_of_task = copies_sent[task_of_copy == number]
        work = make_work(texts, name[mine], graph[mine] > 0, sent, begin[mine], end[mine], copies_of_task)
        found[number] = work._replace(threads=frozenset(threads))
    return found


UNKNOWN = np.iinfo(np.int64).min


def find_launched(operations: DeviceOperations, launches: Launches, task_of_place: IntArray) -> IntArray:
    """Return the begin of the call that launched each operation (n); UNKNOWN without one.

    Of the nodes of a graph, only the first one on each stream has a launch of its own. The others follow it, or the
    last launch of a graph by their task if they ran on a further row of their stream.
    """
    launch = launches.find(operations.place, operations.begin)
    launched = pick(launches.sent, launch, UNKNOWN)
    nodes = np.flatnonzero(operations.is_node)
    for group in (operations.place[nodes], task_of_place[operations.place[nodes]]):
        order = np.lexsort((operations.begin[nodes], group))
        at, group = nodes[order], group[order]
        before = np.maximum.accumulate(np.where(launched[at] != UNKNOWN, np.arange(at.size), -1))
        follows = (before >= 0) & (group[before] == group)
        launched[at[follows]] = launched[at[before[follows]]]
    return launched


def _choose_order(launched: IntArray, begin: IntArray) -> IntArray:
    """Return the time that orders each operation: its launch, or its own begin if launches are missing."""
    unknown = launched == UNKNOWN
    return begin if unknown.mean() > _MOST_UNKNOWN else np.where(unknown, begin, launched)


_WORD = 4
"""Number of names that foretell the next one."""


# ---- parts -----------------------------------------------------------------------------------------------------------


class PartCounts(NamedTuple):
    """How often each of r pairs of a name and a part of m parts comes."""

    name: IntArray
    part: IntArray
    times: IntArray
    parts: int

    def choose(self, first: int, last: int) -> PartCounts:
        """Return the counts of the parts first to last - 1."""
        kept = (self.part >= first) & (self.part < last)
        return PartCounts(self.name[kept], self.part[kept] - first, self.times[kept], last - first)

    def keep(self, which: BoolArray) -> PartCounts:
        """Return the counts of some parts (m), numbered anew."""
        kept = which[self.part]
        number = np.cumsum(which) - 1
        return PartCounts(self.name[kept], number[self.part[kept]], self.times[kept], int(which.sum()))

    def find_typical(self, names: int) -> IntArray:
        """Return how often a part has each of k names, at the median of all parts (the lower one)."""
        most = int(self.times.max(initial=0)) + 1
        ranked = np.sort(self.name * most + self.times)
        present = np.bincount(self.name, minlength=names)
        at = (self.parts - 1) // 2 - (self.parts - present)
        start = np.cumsum(present) - present
        typical = np.zeros(names, np.int64)
        known = np.flatnonzero((at >= 0) & (present > 0))
        typical[known] = ranked[start[known] + at[known]] - known * most
        return typical

    def compare(self, typical: IntArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return what each part (m) shares with the typical part, and what either has. `weight` of a name (k)."""
        least = np.minimum(self.times, typical[self.name])
        shared, present = (
            np.bincount(self.part, times * weight[self.name], self.parts).astype(np.float64)
            for times in (least, self.times)
        )
        return shared, present + float(typical @ weight) - shared


def count_names(name: IntArray, names: int, limits: IntArray) -> PartCounts:
    """Return the counts of the names in the parts between limits (m + 1). `name`: index, below `names`, of each (n)."""
    pairs = np.empty((3, int(limits[-1] - limits[0])), np.int64)
    found = _count_in_parts(name, limits, np.full(names, -1), pairs)
    found_name, found_part, times = pairs[:, :found].copy()
    return PartCounts(found_name, found_part, times, limits.size - 1)


@compiled
def _count_in_parts(name: IntArray, limits: IntArray, latest: IntArray, pairs: IntTable) -> int:
    """Set name, part and count of each pair of a name and a part that has it, and return how many there are.

    `limits`: of m parts (m + 1). `latest`: the latest pair of each name, -1 at first.
    """
    found = 0
    for part in range(limits.size - 1):
        first = found
        for at in range(limits[part], limits[part + 1]):
            word = name[at]
            if latest[word] < first:
                pairs[0, found], pairs[1, found], pairs[2, found] = word, part, 0
                latest[word] = found
                found += 1
            pairs[2, latest[word]] += 1
    return found


def find_largest_sum(value: FloatArray) -> tuple[int, int]:
    """Return the first index and the one after the last index of the run of values with the largest sum."""
    # No run contains an infinite value, since it costs more than all others are worth.
    total = np.append(0.0, np.cumsum(np.where(np.isinf(value), -np.abs(value[~np.isinf(value)]).sum() - 1, value)))
    least = np.minimum.accumulate(total)
    last = int(np.argmax(total - least))
    return int(np.flatnonzero(total[: last + 1] == least[last])[-1]), last


def foresee(name: IntArray) -> float:
    """Return the share of names (n) that are the most frequent ones after the same four names; 1 for a few names.

    A name does not count for itself, so that rare words foretell nothing.
    """
    size = name.size - _WORD
    if size < 2 * _WORD:
        return 1.0
    word = np.zeros(size, np.int64)
    names = int(name.max()) + 1
    for at in range(_WORD):
        word, _ = encode_rows(word * names + name[at : at + size])
    pair, first = encode_rows(word * names + name[_WORD:])
    count = np.bincount(pair)
    owner = word[first]
    times = np.bincount(owner, count).astype(np.int64)
    best = find_most_at(count, owner, times.size, 0)
    again = times > 1
    return float((best[again] - 1).sum() / max((times[again] - 1).sum(), 1))
