"""The objects of a trace: its rows, the rows that belong to chosen ranks, and their new numbers.

In the .row of this package, the names of tasks contain their ranks. If a .row has no such names, as in traces of
other tools, the first task of an application is rank 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.cutting.line_fields import Rows
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.paraver.model import format_levels
from nsys2prv_ng.paraver.read.prv_reader import TraceHeader
from nsys2prv_ng.text.formatting import format_number_ranges

Names = Mapping[str, Sequence[str]]
"""Names of objects by the level of the .row."""

_RANK = re.compile(r"rank (\d{1,9})(?: \d+)?", re.ASCII)
_CHILD = re.compile(r"rank (\d{1,9}): .*", re.ASCII)
_DEFAULT_NAME = re.compile(r"(TASK )?\d+(\.\d+)?|", re.ASCII)
_COMMUNICATOR = re.compile(rb"[cC](:\d{1,9}){3,}", re.ASCII)


@dataclass(frozen=True)
class Objects:
    """Tasks, rows and CPUs of a trace, flat over its applications. Numbers count from 0, CPUs from 1.

    threads, node, application: by task. `first_cpu`: by node, with the end of the last node's CPUs at the end.
    """

    threads: IntArray
    node: IntArray
    application: IntArray
    first_cpu: IntArray
    names: Names

    @property
    def row_count(self) -> int:
        return int(self.threads.sum())

    @property
    def task_of_row(self) -> IntArray:
        return np.repeat(np.arange(self.threads.size), self.threads)

    def list_names(self, level: str, count: int) -> Sequence[str]:
        """Return the names of a level of the .row, or none unless each object has a name."""
        names = self.names.get(level, ())
        return names if len(names) == count else ()


def find_objects(header: TraceHeader, names: Names) -> Objects:
    """Return the objects of a header with readable applications."""
    tasks = [(*task, i) for i, application in enumerate(header.applications) for task in application]
    threads, node, application = np.array(tasks, np.int64).reshape(-1, 3).T
    first_cpu = np.array([*accumulate(header.cpus, initial=1)], np.int64)
    return Objects(threads, node - 1, application, first_cpu, names)


def keep_all(objects: Objects) -> Rows:
    """Return all rows of a trace as kept, with their numbers."""
    return _make_rows(objects, np.ones(objects.threads.size, np.bool_))._replace(renumbers=False)


# ---- chosen ranks ----------------------------------------------------------------------------------------------------


def keep_ranks(objects: Objects, ranks: Iterable[int]) -> tuple[Rows, BoolArray]:
    """Return the rows of chosen ranks, and which tasks are kept.

    The children of a rank, and the nodes on which it ran, belong to it. Raises UsageError if the trace has none of the
    ranks.
    """
    rank_of_task = _find_ranks(objects)
    wanted = np.isin(rank_of_task, list(ranks))
    if not wanted.any():
        known = sorted({rank for rank in rank_of_task if rank >= 0})
        present = format_number_ranges(known) or "no ranks"
        raise UsageError(f"none of them is in the trace, which holds {present}", parameter="ranks")
    nodes = objects.list_names("NODE", objects.first_cpu.size - 1)
    tasks = objects.list_names("TASK", objects.threads.size)
    for i, name in enumerate(tasks):
        # A task that stands for a node has the name of the node.
        is_node = rank_of_task[i] < 0 and bool(nodes) and nodes[objects.node[i]] == name
        wanted[i] |= is_node and bool((objects.node[wanted] == objects.node[i]).any())
    return _make_rows(objects, wanted), wanted


def _find_ranks(objects: Objects) -> list[int]:
    """Return the rank that each task is or belongs to; -1 if there is none."""
    names = objects.list_names("TASK", objects.threads.size)
    if all(_DEFAULT_NAME.fullmatch(name) for name in names):
        first = np.searchsorted(objects.application, objects.application)
        return (np.arange(objects.threads.size) - first).tolist()
    matches = [_RANK.fullmatch(name) or _CHILD.fullmatch(name) for name in names]
    return [int(match[1]) if match else -1 for match in matches]


def _make_rows(objects: Objects, is_wanted: BoolArray) -> Rows:
    """Return the rows, with the rows of wanted tasks kept, and the new numbers of objects."""
    is_kept = is_wanted[objects.task_of_row]
    application_count = int(objects.application[-1]) + 1
    first_task = np.searchsorted(objects.application, np.arange(application_count + 1))
    task = np.zeros(objects.threads.size, np.int64)
    for low, high in pairwise(first_task):
        task[low:high] = np.cumsum(is_wanted[low:high]) - 1
    has_task = np.isin(np.arange(application_count), objects.application[is_wanted])
    return Rows(
        first_task.astype(np.int64),
        np.concatenate([[0], np.cumsum(objects.threads)]).astype(np.int64),
        is_kept,
        _number_cpus(objects, is_wanted),
        task,
        np.cumsum(has_task) - 1,
        True,
    )


def _number_cpus(objects: Objects, is_wanted: BoolArray) -> IntArray:
    """Return the new number of each CPU, by the old one; 0 (unknown) for CPUs that are dropped.

    In traces of this package each row has its own CPU, which is dropped with the row. In other traces the CPUs of
    a node stay.
    """
    is_kept = np.zeros(int(objects.first_cpu[-1]), np.bool_)
    cpu_of_row = _find_own_cpus(objects)
    if cpu_of_row.size:
        is_kept[cpu_of_row[is_wanted[objects.task_of_row]]] = True
    else:
        for node in _list_nodes(objects, is_wanted):
            is_kept[objects.first_cpu[node] : objects.first_cpu[node + 1]] = True
    return np.where(is_kept, np.cumsum(is_kept), 0)


def _list_nodes(objects: Objects, is_wanted: BoolArray) -> list[int]:
    """Return the nodes of wanted tasks; none if the trace has no resources."""
    nodes: list[int] = np.unique(objects.node[is_wanted]).tolist()
    return [node for node in nodes if 0 <= node < objects.first_cpu.size - 1]


def _find_own_cpus(objects: Objects) -> IntArray:
    """Return the CPU of each row if the .row names each CPU after one row, as `paraver.model` does; else none.

    CPUs are numbered node by node, in the order of rows.
    """
    threads = objects.list_names("THREAD", objects.row_count)
    cpus = objects.list_names("CPU", objects.row_count)
    if not threads or not cpus or objects.first_cpu[-1] - 1 != objects.row_count:
        return np.zeros(0, np.int64)
    by_node = np.argsort(objects.node[objects.task_of_row], kind="stable")
    cpu_of_row = np.zeros(objects.row_count, np.int64)
    cpu_of_row[by_node] = np.arange(1, objects.row_count + 1)
    named = all(cpus[cpu_of_row[row] - 1].partition(" ")[2] == name for row, name in enumerate(threads))
    return cpu_of_row if named else np.zeros(0, np.int64)


# ---- texts -----------------------------------------------------------------------------------------------------------


def format_objects(objects: Objects, rows: Rows, is_wanted: BoolArray) -> str:
    """Return the kept resources and applications as text for the header."""
    nodes = _list_nodes(objects, is_wanted)
    kept_cpus = np.flatnonzero(rows.cpu)
    counts = [
        int(((kept_cpus >= objects.first_cpu[node]) & (kept_cpus < objects.first_cpu[node + 1])).sum())
        for node in nodes
    ]
    resources = f"{len(nodes)}({','.join(map(str, counts))})" if nodes else "0"
    new_node = {node: number for number, node in enumerate(nodes, 1)}
    applications = []
    for application in np.unique(objects.application[is_wanted]):
        kept = np.flatnonzero(is_wanted & (objects.application == application))
        tasks = ",".join(f"{objects.threads[task]}:{new_node.get(int(objects.node[task]), 0)}" for task in kept)
        applications.append(f"{kept.size}({tasks})")
    return f"{resources}:{len(applications)}:{','.join(applications)}"


def format_names(objects: Objects, rows: Rows, is_wanted: BoolArray) -> str:
    """Return the .row with the names of the kept objects."""
    everything = np.ones(1, np.bool_)
    kept_of_level = {
        "WORKLOAD": everything,
        "APPL": np.isin(np.arange(rows.application.size), objects.application[is_wanted]),
        "TASK": is_wanted,
        "THREAD": rows.is_kept,
        "SYSTEM": everything,
        "NODE": np.isin(np.arange(objects.first_cpu.size - 1), _list_nodes(objects, is_wanted)),
        "CPU": rows.cpu[1:] > 0,
    }
    levels = {}
    for level, is_kept in kept_of_level.items():
        names = objects.list_names(level, is_kept.size)
        kept = [name for name, stays in zip(names, is_kept, strict=False) if stays]
        if level == "CPU" and kept and _find_own_cpus(objects).size:
            kept = _name_cpus(objects, rows, kept)
        if kept:
            levels[level] = kept
    return format_levels(levels)


def _name_cpus(objects: Objects, rows: Rows, names: Sequence[str]) -> list[str]:
    """Return the new names of CPUs: node, number within the node, and the row."""
    old = np.flatnonzero(rows.cpu)
    node = np.searchsorted(objects.first_cpu, old, "right") - 1
    number = np.unique(node, return_inverse=True)[1]
    place = np.arange(old.size) - np.searchsorted(number, number)
    return [
        f"{n + 1}.{p + 1} {name.partition(' ')[2]}"
        for n, p, name in zip(number.tolist(), place.tolist(), names, strict=True)
    ]


def renumber_communicators(lines: Sequence[bytes], rows: Rows, is_wanted: BoolArray) -> list[bytes]:
    """Return the communicators with the kept ones of their tasks; lines of another form are dropped."""
    renumbered = []
    for line in lines:
        if not _COMMUNICATOR.fullmatch(line):
            continue
        application, number, _, *tasks = (int(field) for field in line.split(b":")[1:])
        if not 1 <= application < rows.first_task.size:
            continue
        first, last = rows.first_task[application - 1], rows.first_task[application]
        old = [first + task - 1 for task in tasks if 1 <= task <= last - first]
        new = [int(rows.task[task]) + 1 for task in old if is_wanted[task]]
        if new:
            fields = (int(rows.application[application - 1]) + 1, number, len(new), *new)
            renumbered.append(b":".join([line[:1], *(str(field).encode() for field in fields)]))
    return renumbered
