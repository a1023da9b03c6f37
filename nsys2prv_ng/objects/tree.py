"""Rows of Paraver for the places of all reports: nodes, tasks in the order of ranks, the threads of each task."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.objects.labels import LabelledTask, label_rows, name_threads
from nsys2prv_ng.objects.places import Device, NodePart, Place, Places, Stream, Thread
from nsys2prv_ng.objects.rows import FOLDED, Row, RowKey, RowKind, is_folded
from nsys2prv_ng.paraver.model import MAX_ROWS, TaskRows, TraceModel
from nsys2prv_ng.report.metadata import PID_MASK, Gpu, Metadata

_GpuKey = tuple[str, int]


@dataclass(frozen=True, eq=False)
class ReportPlaces:
    """A report's part in the tree: its node, and the times (ns, on the common clock) of its first and last record."""

    metadata: Metadata
    places: Places
    node: int
    first: int
    last: int


@dataclass(eq=False)
class Task:
    """A process, in one report or (capture ranges of one run) in several; or, without a process, a node itself."""

    node: int
    name: str
    process: int | None
    order: tuple[int, ...]
    members: list[ReportPlaces] = field(default_factory=list)
    rank: int | None = None
    is_rank_certain: bool = False
    """Whether the job or MPI gave it its rank; NCCL numbers the ranks of each communicator."""
    parent: int | None = None
    """Rank of the process that started this one, which has no rank itself."""

    @property
    def owner(self) -> int | None:
        """The task's own rank, or that of the process that started it."""
        return self.parent if self.rank is None else self.rank


@dataclass(frozen=True)
class ObjectTree:
    """The model of the trace, each report's row of each place (-1: no row), and what to know of the ranks."""

    model: TraceModel
    rows: list[IntArray]
    host_rows: IntArray
    """Rows of host threads."""
    task_of_row: IntArray
    """Index of each row's task."""
    ranks: list[int | None]
    """Rank of each task; None for a task without a rank."""
    belongs_to: list[int | None]
    """The same, except that children of a rank have its rank."""
    is_node: list[bool]
    """Whether a task stands for its node."""
    gpu_of_row: IntArray
    """Number of the GPU of each row of a stream or device, -1 for the others."""
    is_idle: BoolArray
    """Whether each row is that of a host thread, not the main one, that only made calls of the operating system."""
    warnings: list[str]
    claimed_ranks: dict[int, int]
    """Number of processes of each rank that several have."""
    folded: list[IntArray]
    """Number of the folded thread of each place of each report, of all such threads; -1 for other places."""


def build_tree(reports: Sequence[ReportPlaces], node_names: Sequence[str], *, fold_threads: bool = False) -> ObjectTree:
    """Make rows for every place of every report; `fold_threads` gives the idle threads of a task one row.

    `reports` are in an order that does not depend on how they were named. Raises TranslationError if the rows are more
    than Paraver takes.
    """
    tasks, warnings, claimed_ranks = _find_tasks(reports)
    idle = find_idle_threads(tasks)
    several = {task: threads for task, threads in idle.items() if len(threads) > 1}
    folded = several if fold_threads else {}
    locator = _make_locator(reports, tasks, node_names, folded)
    located = [_locate_places(report, locator) for report in reports]
    rows_of_task = _collect_rows(reports, located)
    used = [task for task in [*tasks, *locator.node_tasks.values()] if task in rows_of_task]
    keys = [(task, row.key) for task in used for row in rows_of_task[task]]
    _check_rows(len(keys), 0 if fold_threads else sum(len(threads) - 1 for threads in several.values()))
    row_numbers = {task_and_key: number for number, task_and_key in enumerate(keys)}
    return ObjectTree(
        model=_make_model(used, rows_of_task, node_names, folded),
        rows=[np.array([-1 if at is None else row_numbers[at] for at in places], np.int64) for places in located],
        host_rows=np.array([row for row, (_, key) in enumerate(keys) if key.kind == RowKind.THREAD], np.int64),
        task_of_row=np.repeat(np.arange(len(used)), [len(rows_of_task[task]) for task in used]),
        ranks=[task.rank for task in used],
        belongs_to=[task.owner for task in used],
        is_node=[task.process is None for task in used],
        gpu_of_row=np.array([key.gpu for _, key in keys], np.int64),
        is_idle=_mark_idle(keys, idle),
        warnings=warnings,
        claimed_ranks=claimed_ranks,
        folded=_number_folded(reports, tasks, folded),
    )


def _mark_idle(keys: Sequence[tuple[Task, RowKey]], idle: Mapping[Task, Collection[int]]) -> BoolArray:
    """Mark the rows of idle threads, and those that they share."""
    own = {(task, tid & PID_MASK) for task, threads in idle.items() for tid in threads}
    is_own = [key.kind == RowKind.THREAD and (is_folded(key) or (task, key.order[1]) in own) for task, key in keys]
    return np.array(is_own, np.bool_)


def _check_rows(rows: int, saved: int) -> None:
    """Raise TranslationError for more rows than Paraver takes; `saved`: by how many folding makes them fewer."""
    if rows > MAX_ROWS and saved:
        raise TranslationError(
            f"the trace would have {rows:,} rows and Paraver takes {MAX_ROWS:,}; with idle threads folded it has"
            f" {rows - saved:,}: fold them, or select fewer ranks or sources",
            see=("fold_threads", "ranks", "sources"),
        )


def _number_folded(
    reports: Sequence[ReportPlaces], tasks: Sequence[Task], folded: Mapping[Task, Collection[int]]
) -> list[IntArray]:
    """Return the number of the folded thread of each place of each report; -1 for other places."""
    threads = [(task, tid) for task in tasks for tid in sorted(folded.get(task, ()))]
    number = {(report, tid): i for i, (task, tid) in enumerate(threads) for report in task.members}
    return [
        np.array(
            [
                number.get((report, place.global_tid), -1) if isinstance(place, Thread) else -1
                for place in report.places.all
            ],
            np.int64,
        )
        for report in reports
    ]


def _collect_rows(
    reports: Sequence[ReportPlaces], located: Sequence[Sequence[tuple[Task, RowKey] | None]]
) -> dict[Task, list[Row]]:
    """Return the sorted rows of each task that has any."""
    by_key: dict[Task, dict[RowKey, Row]] = {}
    for report, task_and_keys in zip(reports, located, strict=True):
        for place, at in zip(report.places.all, task_and_keys, strict=True):
            if at is not None:
                task, key = at
                by_key.setdefault(task, {}).setdefault(key, Row(key, report.metadata, place))
    return {task: [rows[key] for key in sorted(rows)] for task, rows in by_key.items()}


def _make_model(
    tasks: Sequence[Task],
    rows_of_task: Mapping[Task, Sequence[Row]],
    node_names: Sequence[str],
    folded: Mapping[Task, Collection[int]],
) -> TraceModel:
    """Number the nodes that have tasks, and label the rows of these tasks."""
    nodes = list(dict.fromkeys(task.node for task in tasks))
    labels = label_rows(
        [
            LabelledTask(
                rows_of_task[task],
                name_threads([member.metadata for member in task.members], folded.get(task, ())),
                task.owner,
                node_names[task.node],
            )
            for task in tasks
        ]
    )
    rows = [TaskRows(task.name, nodes.index(task.node), own) for task, own in zip(tasks, labels, strict=True)]
    return TraceModel([node_names[node] for node in nodes], rows)


# ---- places --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Locator:
    """What it takes to find the task and the row of a place."""

    tasks: Mapping[tuple[ReportPlaces, int], Task]
    """By report and process."""
    gpu_owners: Mapping[tuple[int, _GpuKey], Task]
    """By node and GPU."""
    part_repeats: Mapping[tuple[ReportPlaces, NodePart], int]
    node_tasks: Mapping[int, Task]
    """The task that stands for each node, which need not have rows."""
    folded: Mapping[Task, Collection[int]]
    """The globalTids of the threads of a task that share a row."""

    def locate(self, report: ReportPlaces, place: Place) -> tuple[Task, RowKey]:
        """Return the task of a place, and its row there."""
        node_task = self.node_tasks[report.node]
        if isinstance(place, Thread):
            tid = place.global_tid & PID_MASK
            task = self.tasks[report, place.process]
            folded = self.folded.get(task, ())
            if place.global_tid in folded:
                return task, RowKey(RowKind.THREAD, -1, (FOLDED, len(folded)))
            return task, RowKey(RowKind.THREAD, -1, (tid != place.process & PID_MASK, tid))
        if isinstance(place, Stream):
            gpu = report.metadata.gpu(place.process, place.device)
            key = RowKey(RowKind.STREAM, gpu.number, (place.stream, place.context, place.lane))
            return self.tasks[report, place.process], key
        if isinstance(place, Device):
            gpu = report.metadata.gpus.get(place.gpu) or Gpu(place.gpu, "", "")
            owner = self.gpu_owners.get((report.node, make_gpu_key(gpu)), node_task)
            return owner, RowKey(RowKind.DEVICE, gpu.number, make_gpu_key(gpu))
        if isinstance(place, NodePart):
            part = *_split_numbers(place.name), place.key, self.part_repeats.get((report, place), 0)
            return node_task, RowKey(RowKind.NODE_PART, -1, (part, place.port, place.suffix, place.is_own))
        return node_task, RowKey(RowKind.NODE, -1, ())


def _make_locator(
    reports: Sequence[ReportPlaces],
    tasks: Sequence[Task],
    node_names: Sequence[str],
    folded: Mapping[Task, Collection[int]],
) -> _Locator:
    return _Locator(
        tasks={(report, task.process): task for task in tasks for report in task.members if task.process is not None},
        gpu_owners=_find_gpu_owners(tasks),
        part_repeats=_number_repeated_parts(reports),
        node_tasks={
            node: Task(node, node_names[node], None, ()) for node in sorted({report.node for report in reports})
        },
        folded=folded,
    )


def find_idle_threads(tasks: Sequence[Task]) -> dict[Task, set[int]]:
    """Return the globalTids of the threads that only made calls of the operating system, by task.

    The main thread is not among them. What counts are all reports of the task.
    """
    idle: dict[Task, set[int]] = {}
    for task in tasks:
        threads: set[int] = set()
        studied: set[int] = set()
        for places in (member.places for member in task.members):
            for number, place in enumerate(places.all):
                if isinstance(place, Thread) and place.process == task.process:
                    if number in places.studied or place.global_tid & PID_MASK == place.process & PID_MASK:
                        studied.add(place.global_tid)
                    elif number not in places.only_observed:
                        threads.add(place.global_tid)
        idle[task] = threads - studied
    return idle


def _locate_places(report: ReportPlaces, locator: _Locator) -> list[tuple[Task, RowKey] | None]:
    """Return the task and the row of each place of a report; None for threads that were merely observed."""
    return [
        None if number in report.places.only_observed else locator.locate(report, place)
        for number, place in enumerate(report.places.all)
    ]


def group_by_shared_rows(rows: Sequence[IntArray]) -> list[list[int]]:
    """Return the indices of arrays of rows by group, in order: arrays with a row in common are in one group.

    Negative rows do not count.
    """
    group_of_row: dict[int, int] = {}
    groups: dict[int, list[int]] = {}
    for i, array in enumerate(rows):
        own = np.unique(array[array >= 0]).tolist()
        members = [i]
        for other in {group_of_row[row] for row in own if row in group_of_row}:
            members += groups.pop(other)
        groups[i] = sorted(members)
        for member in members:
            group_of_row.update(dict.fromkeys(np.unique(rows[member][rows[member] >= 0]).tolist(), i))
    return sorted(groups.values())


def group_reports_by_task(places: Sequence[Places], tree: ObjectTree) -> list[list[int]]:
    """Return the reports by index, in order: those with threads or streams of one task are in one group."""
    tasks = []
    for own, rows in zip(places, tree.rows, strict=True):
        is_used = np.array([isinstance(place, Thread | Stream) for place in own.all], np.bool_)
        row = rows[is_used]
        tasks.append(tree.task_of_row[row[row >= 0]])
    return group_by_shared_rows(tasks)


def make_gpu_key(gpu: Gpu) -> _GpuKey:
    """Return what identifies a GPU of a node across reports: its uuid, or its number where the uuid is unknown."""
    return (gpu.uuid, 0) if gpu.uuid else ("", gpu.number)


def _find_gpu_owners(tasks: Iterable[Task]) -> dict[tuple[int, _GpuKey], Task]:
    """Return the lowest task that ran operations on each GPU, by node and GPU."""
    owners: dict[tuple[int, _GpuKey], Task] = {}
    for task in tasks:
        for member in task.members:
            for place in member.places.all:
                if isinstance(place, Stream) and place.process == task.process:
                    gpu = member.metadata.gpu(place.process, place.device)
                    owners.setdefault((task.node, make_gpu_key(gpu)), task)
    return owners


# ---- tasks ---------------------------------------------------------------------------------------------------------


def _find_tasks(reports: Sequence[ReportPlaces]) -> tuple[list[Task], list[str], dict[int, int]]:
    """Return every process with a call, range or device operation: ranks first, then their children.

    Return warnings as well, and the number of processes of each rank that several have.
    """
    applications: list[Task] = []
    children: list[Task] = []
    for index, report in enumerate(reports):
        called = report.places.called
        ranks = report.places.application & called
        programs = report.places.instrumented or called
        processes = sorted(ranks) or (sorted(programs) if len(programs) == 1 else [])
        for process in sorted(called):
            name = report.metadata.get_process_name(process)
            if process not in processes:
                prefix = f"rank {report.metadata.rank}: " if report.metadata.rank is not None else ""
                child = Task(report.node, prefix + name, process, (index, process), [report])
                child.parent = report.metadata.rank
                children.append(child)
                continue
            task = Task(report.node, f"{name} {process & PID_MASK}", process, (), [report])
            alone = len(processes) == 1
            task.rank = report.metadata.find_rank(process, alone=alone)
            task.is_rank_certain = process in report.metadata.ranks or (alone and report.metadata.rank is not None)
            launcher = report.metadata.rank
            task.order = (launcher is None, launcher or 0, index, process)
            applications.append(task)
    applications = _join_repeats(applications)
    warnings, claimed_ranks = _name_ranks(applications)
    applications.sort(key=lambda task: (task.rank is None, task.rank or 0, task.order))
    return _make_names_unique(applications + _join_repeats(children)), warnings, claimed_ranks


def _make_names_unique(tasks: list[Task]) -> list[Task]:
    names = Counter(task.name for task in tasks)
    for task in tasks:
        if names[task.name] > 1 and task.process is not None:
            task.name += f" {task.process & PID_MASK}"
    return tasks


def _join_repeats(tasks: list[Task]) -> list[Task]:
    """Make one task of a process that has capture ranges in several reports, which do not overlap in time."""
    joined: list[Task] = []
    by_identity: dict[tuple[object, ...], list[Task]] = {}
    for task in sorted(tasks, key=lambda task: task.members[0].first):
        same = by_identity.setdefault((task.node, task.process, task.name, task.rank), [])
        before = next((other for other in same if other.members[-1].last < task.members[0].first), None)
        if before is None:
            same.append(task)
            joined.append(task)
        else:
            before.members += task.members
            before.order = min(before.order, task.order)
    position = {task: i for i, task in enumerate(tasks)}
    return sorted(joined, key=position.__getitem__)


def _name_ranks(tasks: list[Task]) -> tuple[list[str], dict[int, int]]:
    """Name tasks by their rank. Where two claim the same, both keep it.

    Return a warning for each such rank, and the number of claims that are certain, where there are several.
    """
    warnings = []
    claimed: dict[int, list[Task]] = {}
    for task in tasks:
        if task.rank is not None:
            claimed.setdefault(task.rank, []).append(task)
    certain = {rank: sum(task.is_rank_certain for task in claimants) for rank, claimants in claimed.items()}
    for rank, claimants in sorted(claimed.items()):
        for task in claimants:
            task.name = f"rank {rank}"
        if len(claimants) > 1:
            warnings.append(f"{len(claimants)} processes say that they are rank {rank}: are these reports of one job?")
    return warnings, {rank: count for rank, count in certain.items() if count > 1}


# ---- rows ----------------------------------------------------------------------------------------------------------


def _split_numbers(name: str) -> tuple[tuple[str | int, ...], str]:
    """Return what sorts names by the numbers in them: core 2 before core 10."""
    parts = re.split(r"([0-9]{1,18})", name)
    return tuple(int(part) if i % 2 else part for i, part in enumerate(parts)), name


def _number_repeated_parts(reports: Sequence[ReportPlaces]) -> dict[tuple[ReportPlaces, NodePart], int]:
    """Number the parts of a node that look the same although each report has its own.

    Where such reports do not overlap in time, as capture ranges of one run do not, their parts are one and share a
    number.
    """
    numbers: dict[tuple[ReportPlaces, NodePart], int] = {}
    ends: dict[tuple[int, NodePart], list[int]] = {}
    for report in sorted(reports, key=lambda report: report.first):
        for place in report.places.all:
            if isinstance(place, NodePart) and place.is_own:
                last = ends.setdefault((report.node, place), [])
                number = next((i for i, end in enumerate(last) if end < report.first), len(last))
                last[number:] = [report.last, *last[number + 1 :]]
                numbers[report, place] = number
    return numbers
