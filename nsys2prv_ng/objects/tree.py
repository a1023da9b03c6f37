"""From the places of all reports to Paraver's rows: nodes, tasks in the order of ranks, the threads of each task."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.objects.places import Device, Node, NodePart, Place, Places, Stream, Thread
from nsys2prv_ng.paraver.model import TaskRows, TraceModel
from nsys2prv_ng.report.metadata import PID_MASK, Gpu, Metadata
from nsys2prv_ng.text.formatting import make_unique


@dataclass(frozen=True)
class ReportPlaces:
    """A report's part in the tree: its node, and the times (ns, on the common clock) of its first and last record."""

    metadata: Metadata
    places: Places
    node: int
    first: int
    last: int


@dataclass
class Task:
    """A process, in one report or (capture ranges of one run) in several; or, without a process, a node itself."""

    node: int
    name: str
    process: int | None
    order: tuple[object, ...]
    members: list[ReportPlaces] = field(default_factory=list)
    rank: int | None = None
    parent: int | None = None
    """Rank of the process that started this one, which is none itself."""


@dataclass(frozen=True)
class ObjectTree:
    """The model of the trace, each report's row of each place (-1: none), and what to know of the ranks."""

    model: TraceModel
    rows: list[IntArray]
    host_rows: IntArray
    """Rows of host threads."""
    task_of_row: IntArray
    """Index of each row's task."""
    ranks: list[int | None]
    """Rank of each task; None for what is no rank."""
    belongs_to: list[int | None]
    """The same, but of the children of a rank the rank."""
    is_node: list[bool]
    """Whether a task stands for its node."""
    gpu_of_row: IntArray
    """Number of the GPU of each row of a stream or device, -1 of the others."""
    warnings: list[str]


def build_tree(reports: Sequence[ReportPlaces], node_names: Sequence[str]) -> ObjectTree:
    """Rows for every place of every report. `reports` are in an order that does not depend on how they were named."""
    tasks, warnings = _tasks(reports)
    task_of = {(id(member), task.process): task for task in tasks for member in task.members}
    owners = _gpu_owners(tasks)
    repeats = _repeats_of_parts(reports)
    own_tasks = {node: Task(node, node_names[node], None, ()) for node in sorted({report.node for report in reports})}

    def task_and_key(report: ReportPlaces, place: Place) -> tuple[Task, tuple[object, ...]]:
        """The task of a place, and what it is called there, which sorts as its rows do."""
        if isinstance(place, Thread):
            tid = place.global_tid & PID_MASK
            return task_of[id(report), place.process], (0, tid != place.process & PID_MASK, tid)
        if isinstance(place, Stream):
            gpu = report.metadata.gpu(place.process, place.device)
            return task_of[id(report), place.process], (1, gpu.number, place.stream, place.context, place.lane)
        if isinstance(place, Device):
            gpu = report.metadata.gpus.get(place.gpu) or Gpu(place.gpu, "", "")
            owner = owners.get((report.node, make_gpu_key(gpu)), own_tasks[report.node])
            return owner, (2, gpu.number, make_gpu_key(gpu))
        if isinstance(place, NodePart):
            part = *_by_number(place.name), place.key, repeats.get((id(report), place), 0)
            return own_tasks[report.node], (4, part, place.port, place.suffix, place.of_report)
        return own_tasks[report.node], (3,)

    keys_of: dict[int, dict[tuple[object, ...], tuple[ReportPlaces, Place]]] = {}
    found: list[list[tuple[Task, tuple[object, ...]] | None]] = []
    for report in reports:
        located: list[tuple[Task, tuple[object, ...]] | None] = []
        for number, place in enumerate(report.places.all):
            if number in report.places.only_observed:
                located.append(None)
                continue
            task, key = task_and_key(report, place)
            located.append((task, key))
            keys_of.setdefault(id(task), {}).setdefault(key, (report, place))
        found.append(located)

    used = [task for task in [*tasks, *own_tasks.values()] if id(task) in keys_of]
    row_of: dict[tuple[int, tuple[object, ...]], int] = {}
    rows, host_rows = [], []
    for task in used:
        keys = sorted(keys_of[id(task)])  # type: ignore[type-var]
        names = _row_names([(key, *keys_of[id(task)][key]) for key in keys])
        for key in keys:
            if key[0] == 0:
                host_rows.append(len(row_of))
            row_of[id(task), key] = len(row_of)
        rows.append(TaskRows(task.name, task.node, names))

    nodes = list(dict.fromkeys(task.node for task in used))
    rows = [TaskRows(task.name, nodes.index(task.node), task.threads) for task in rows]
    model = TraceModel([node_names[node] for node in nodes], rows)
    maps = [np.array([-1 if at is None else row_of[id(at[0]), at[1]] for at in of], np.int64) for of in found]
    return ObjectTree(
        model,
        maps,
        np.array(host_rows, np.int64),
        np.repeat(np.arange(len(rows)), [len(task.threads) for task in rows]),
        [task.rank for task in used],
        [task.rank if task.parent is None else task.parent for task in used],
        [task.process is None for task in used],
        np.array([key[1] if key[0] in (1, 2) else -1 for _, key in row_of], np.int64),
        warnings,
    )


def group_by_shared_rows(rows: Sequence[IntArray]) -> list[list[int]]:
    """Indices of arrays of rows by group, in order: arrays with a row in common are in one; negative rows are none."""
    group_of_row: dict[int, int] = {}
    groups: dict[int, list[int]] = {}
    for i, of_array in enumerate(rows):
        own = np.unique(of_array[of_array >= 0]).tolist()
        members = [i]
        for other in {group_of_row[row] for row in own if row in group_of_row}:
            members += groups.pop(other)
        groups[i] = sorted(members)
        for member in members:
            group_of_row.update(dict.fromkeys(np.unique(rows[member][rows[member] >= 0]).tolist(), i))
    return sorted(groups.values())


def make_gpu_key(gpu: Gpu) -> tuple[str, int]:
    """What makes a GPU of a node the same in several reports: its uuid; its number only where that is unknown."""
    return (gpu.uuid, 0) if gpu.uuid else ("", gpu.number)


def _gpu_owners(tasks: Iterable[Task]) -> dict[tuple[int, tuple[str, int]], Task]:
    """The lowest task that ran operations on each GPU."""
    owners: dict[tuple[int, tuple[str, int]], Task] = {}
    for task in tasks:
        for member in task.members:
            for place in member.places.all:
                if isinstance(place, Stream) and place.process == task.process:
                    gpu = member.metadata.gpu(place.process, place.device)
                    owners.setdefault((task.node, make_gpu_key(gpu)), task)
    return owners


# ---- tasks ---------------------------------------------------------------------------------------------------------


def _tasks(reports: Sequence[ReportPlaces]) -> tuple[list[Task], list[str]]:
    """Every process with a call, range or device operation: ranks first, then their children."""
    applications: list[Task] = []
    children: list[Task] = []
    for index, report in enumerate(reports):
        called = report.places.called
        ranks = report.places.application & called
        programs = report.places.instrumented or called
        processes = sorted(ranks) or (sorted(programs) if len(programs) == 1 else [])
        for process in sorted(called):
            name = report.metadata.process_name(process)
            if process not in processes:
                prefix = f"rank {report.metadata.rank}: " if report.metadata.rank is not None else ""
                child = Task(report.node, prefix + name, process, (index, process), [report])
                child.parent = report.metadata.rank
                children.append(child)
                continue
            task = Task(report.node, f"{name} {process & PID_MASK}", process, (), [report])
            task.rank = _rank(report.metadata, process, alone=len(processes) == 1)
            launcher = report.metadata.rank
            task.order = (launcher is None, launcher or 0, index, process)
            applications.append(task)
    applications = _join_repeats(applications)
    warnings = _name_ranks(applications)
    applications.sort(key=lambda task: (task.rank is None, task.rank or 0, task.order))
    return _with_unique_names(applications + _join_repeats(children)), warnings


def _with_unique_names(tasks: list[Task]) -> list[Task]:
    count = Counter(task.name for task in tasks)
    for task in tasks:
        if count[task.name] > 1 and task.process is not None:
            task.name += f" {task.process & PID_MASK}"
    return tasks


def _rank(metadata: Metadata, process: int, *, alone: bool) -> int | None:
    if process in metadata.ranks:
        return metadata.ranks[process]
    # The environment is that of the launched process: of several, it cannot tell which.
    if alone and metadata.rank is not None:
        return metadata.rank
    return metadata.nccl_ranks.get(process)


def _join_repeats(tasks: list[Task]) -> list[Task]:
    """One task for a process whose capture ranges are in several reports, which do not overlap in time."""
    joined: list[Task] = []
    by_identity: dict[tuple[object, ...], list[Task]] = {}
    for task in sorted(tasks, key=lambda t: t.members[0].first):
        same = by_identity.setdefault((task.node, task.process, task.name, task.rank), [])
        before = next((other for other in same if other.members[-1].last < task.members[0].first), None)
        if before is None:
            same.append(task)
            joined.append(task)
        else:
            before.members += task.members
            before.order = min(before.order, task.order)  # type: ignore[type-var]
    position = {id(task): i for i, task in enumerate(tasks)}
    return sorted(joined, key=lambda task: position[id(task)])


def _name_ranks(tasks: list[Task]) -> list[str]:
    """Name tasks by their rank. Where two claim the same, both keep it and the user is told."""
    warnings = []
    claimed: dict[int, list[Task]] = {}
    for task in tasks:
        if task.rank is not None:
            claimed.setdefault(task.rank, []).append(task)
    for rank, claimants in sorted(claimed.items()):
        for task in claimants:
            task.name = f"rank {rank}"
        if len(claimants) > 1:
            warnings.append(f"{len(claimants)} processes say that they are rank {rank}: are these reports of one job?")
    return warnings


# ---- rows ----------------------------------------------------------------------------------------------------------


def _by_number(name: str) -> tuple[tuple[object, ...], str]:
    """What sorts names by the numbers in them: core 2 before core 10."""
    parts = re.split(r"([0-9]{1,18})", name)
    return tuple(int(part) if i % 2 else part for i, part in enumerate(parts)), name


def _repeats_of_parts(reports: Sequence[ReportPlaces]) -> dict[tuple[int, NodePart], int]:
    """Which of several parts that look the same is meant, by id of the report: where reports that each have their own
    do not overlap in time, as capture ranges of one run do not, it is one."""
    found: dict[tuple[int, NodePart], int] = {}
    ends: dict[tuple[int, NodePart], list[int]] = {}
    for report in sorted(reports, key=lambda each: each.first):
        for place in report.places.all:
            if isinstance(place, NodePart) and place.of_report:
                last = ends.setdefault((report.node, place), [])
                number = next((i for i, end in enumerate(last) if end < report.first), len(last))
                last[number:] = [report.last, *last[number + 1 :]]
                found[id(report), place] = number
    return found


def _names_of_parts(rows: Sequence[tuple[tuple[object, ...], ReportPlaces, Place]]) -> list[str]:
    """Unique names of the rows of parts of a node: parts of one name are numbered, whichever reports have them."""
    parts: dict[str, dict[object, int]] = {}
    names = []
    for key, _, place in rows:
        if isinstance(place, NodePart):
            alike = parts.setdefault(place.name, {})
            number = alike.setdefault(key[1], len(alike) + 1)
            names.append(f"{place.name}{f'-{number}' if number > 1 else ''}{place.suffix}")
    return make_unique(names)


def _row_names(rows: Sequence[tuple[tuple[object, ...], ReportPlaces, Place]]) -> list[str]:
    """Names of a task's rows, unique within it."""
    contexts: dict[tuple[object, object], set[object]] = {}
    for key, _, place in rows:
        if isinstance(place, Stream):
            contexts.setdefault((key[1], key[2]), set()).add(key[3])
    names_of_parts = iter(_names_of_parts(rows))
    names = []
    for key, report, place in rows:
        if isinstance(place, Thread):
            names.append(report.metadata.threads.get(place.global_tid) or report.metadata.process_name(place.process))
        elif isinstance(place, Stream):
            context = f"-C{place.context}" if len(contexts[key[1], key[2]]) > 1 else ""
            lane = f"-{place.lane + 1}" if place.lane else ""
            names.append(f"CUDA-D{key[1]}.S{place.stream}{context}{lane}")
        elif isinstance(place, Device):
            names.append(f"Metrics GPU{key[1]}")
        elif isinstance(place, NodePart):
            names.append(next(names_of_parts))
        else:
            assert isinstance(place, Node)
            names.append("node")
    threads = [name for name, (_, _, place) in zip(names, rows, strict=True) if isinstance(place, Thread)]
    repeated = {name for name, count in Counter(threads).items() if count > 1}
    return [
        f"{name} {place.global_tid & PID_MASK}" if isinstance(place, Thread) and name in repeated else name
        for name, (_, _, place) in zip(names, rows, strict=True)
    ]
