"""Loads what each task launched on its GPUs: kernels and whole CUDA graphs, in the order of their launches.

Names are numbered by a checksum of their text, so that equal names of different reports have equal numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_distinct
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.device_sweep import MEMORY, WHOLE_GRAPH
from nsys2prv_ng.job.device_operations import DeviceOperations, Launches, load_device_operations, load_launches
from nsys2prv_ng.job.names import find_checksum
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.records.store import Store

_MOST_UNKNOWN = 0.01
"""Maximum share of operations of a task whose launch the capture lacks, if its launches are to give the order."""
_OPTIMIZER = re.compile(r"multi_tensor|adam|lamb|sgd|optim|adagrad|rmsprop|muon", re.IGNORECASE)
_ATTENTION = re.compile(r"attention|sdpa|fmha|flash|softmax", re.IGNORECASE)


class LaunchedWork(NamedTuple):
    """The n operations of a task in order of launch, and its k names. Times are on the common clock (ns)."""

    name: IntArray
    """Index of each operation's name (n)."""
    launched: IntArray
    """Begin of the call that launched each operation (n), ascending; of the operation, if calls are not known."""
    begin: IntArray
    end: IntArray
    texts: list[str]
    checksum: IntArray
    """Checksum of each name (k)."""
    is_graph: BoolArray
    """Whether each name (k) is a CUDA graph, traced as a whole."""
    is_optimizer: BoolArray
    """Whether each name (k) looks like a kernel of an optimizer, which a training step has once."""
    is_attention: BoolArray
    """Whether each name (k) looks like a kernel of attention, which a layer of a transformer has once."""


def make_work(
    texts: Sequence[str], name: IntArray, graph: BoolArray, launched: IntArray, begin: IntArray, end: IntArray
) -> LaunchedWork:
    """Sort the operations of a task by launch. `name`: index of each operation's text; `graph`: graphs as a whole."""
    order = np.lexsort((name, begin, launched))
    index, used = find_distinct(name[order])
    chosen = [texts[number] for number in used.tolist()]
    checksum = [find_checksum(text) for text in chosen]
    is_graph = np.zeros(used.size, np.bool_)
    is_graph[index[graph[order]]] = True
    marks = [np.array([bool(hint.search(text)) for text in chosen], np.bool_) for hint in (_OPTIMIZER, _ATTENTION)]
    sums = np.array(checksum, np.int64)
    return LaunchedWork(index, launched[order], begin[order], end[order], chosen, sums, is_graph, *marks)


def load_work(
    reports: Sequence[tuple[ReportRecords, IntArray]], tree: ObjectTree, store: Store
) -> dict[int, LaunchedWork]:
    """Return the work of each task with kernels or graphs in some reports, each of which has its rows."""
    texts: list[str] = []
    parts = [[np.zeros(0, np.int64) for _ in range(6)]]
    for report, rows in reports:
        operations = load_device_operations(report, store)
        task_of_place = np.where(rows >= 0, tree.task_of_row[rows], -1)
        launched = _find_launched(operations, load_launches(report, store), task_of_place)
        chosen = np.flatnonzero(operations.kind != MEMORY)
        task = task_of_place[operations.place[chosen]]
        name = len(texts) + operations.name[chosen]
        graph = (operations.kind[chosen] == WHOLE_GRAPH).astype(np.int64)
        parts.append([task, name, graph, launched[chosen], operations.begin[chosen], operations.end[chosen]])
        texts += operations.names
    task, name, graph, launched, begin, end = (np.concatenate(column) for column in zip(*parts, strict=True))
    name = _join_equal_names(texts, name)
    found = {}
    for number in np.unique(task).tolist():
        own = np.flatnonzero(task == number)
        sent = _choose_order(launched[own], begin[own])
        found[number] = make_work(texts, name[own], graph[own] > 0, sent, begin[own], end[own])
    return found


_UNKNOWN = np.iinfo(np.int64).min


def _find_launched(operations: DeviceOperations, launches: Launches, task_of_place: IntArray) -> IntArray:
    """Return the begin of the call that launched each operation (n); _UNKNOWN without one.

    Of the nodes of a graph, only the first one on each stream has a launch of its own. The others follow it, or the
    last launch of a graph by their task if they ran on a further row of their stream.
    """
    launch = launches.find(operations.place, operations.begin)
    launched = np.append(launches.sent, _UNKNOWN)[launch]
    nodes = np.flatnonzero(operations.is_node)
    for group in (operations.place[nodes], task_of_place[operations.place[nodes]]):
        order = np.lexsort((operations.begin[nodes], group))
        at, group = nodes[order], group[order]
        before = np.maximum.accumulate(np.where(launched[at] != _UNKNOWN, np.arange(at.size), -1))
        follows = (before >= 0) & (group[before] == group)
        launched[at[follows]] = launched[at[before[follows]]]
    return launched


def _choose_order(launched: IntArray, begin: IntArray) -> IntArray:
    """Return the time that orders each operation: its launch, or its own begin if launches are missing."""
    unknown = launched == _UNKNOWN
    return begin if unknown.mean() > _MOST_UNKNOWN else np.where(unknown, begin, launched)


def _join_equal_names(texts: Sequence[str], name: IntArray) -> IntArray:
    """Return for each operation the first index of its text."""
    first: dict[str, int] = {}
    index = np.array([first.setdefault(text, number) for number, text in enumerate(texts)], np.int64)
    return index[name]
