"""Makes the rows of Paraver for the places of all reports: nodes, tasks in rank order, and the threads of tasks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.objects.places import Device, NodePart, Places, Stream, Thread
from nsys2prv_ng.objects.tasks import (
    FOLDED,
    LabelledTask,
    ReportPlaces,
    Row,
    RowKey,
    RowKind,
    Task,
    find_idle_threads,
    find_tasks,
    is_folded,
    label_rows,
    name_threads,
)
from nsys2prv_ng.paraver.model import MAX_ROWS, TaskRows, TraceModel
from nsys2prv_ng.report.gpus import Gpu
from nsys2prv_ng.report.metadata import PID_MASK
from nsys2prv_ng.value_class import ValueClass

_GpuKey = tuple[str, int]


class ObjectTree(ValueClass):
    """The model of the trace, the row of each place of each report (-1: no row), and facts about the ranks.

    `host_rows`: rows of host threads. `task_of_row`: index of each row's task. `ranks`: rank of each task; None for a
    task without a rank. `belongs_to`: the same, with the rank of its parent for a child of a rank; -1 for none.
    `is_node`: whether a task stands for its node. `gpu_of_row`: number of the GPU of each row of a stream or device; -1
    for other rows. `is_idle`: whether each row belongs to a host thread, except the main thread, that made only
    operating-system calls. `claimed_ranks`: number of processes of each rank that more than one process claims.
    `folded`: number of the folded thread at each place of each report, over the whole trace; -1 for other places.
    """

    model: TraceModel
    rows: list[IntArray]
    host_rows: IntArray
    task_of_row: IntArray
    ranks: list[int | None]
    belongs_to: IntArray
    is_node: list[bool]
    gpu_of_row: IntArray
    is_idle: BoolArray
    warnings: list[str]
    claimed_ranks: dict[int, int]
    folded: list[IntArray]


def build_tree(reports: Sequence[ReportPlaces], node_names: Sequence[str], *, fold_threads: bool = False) -> ObjectTree:
    """Make rows for every place of every report. `fold_threads` gives the idle threads of a task one row.

    The order of `reports` must not depend on their file names. Raises TranslationError for more rows than Paraver
    takes.
    """
    tasks, warnings, claimed_ranks = find_tasks(reports)
    idle = find_idle_threads(tasks)
    several = {task: threads for task, threads in idle.items() if len(threads) > 1}
    folded = several if fold_threads else {}
    locator = _Locator(
        tasks={(report, task.process): task for task in tasks for report in task.members if task.process is not None},
        gpu_owners=_find_gpu_owners(tasks),
        part_repeats=_number_repeated_parts(reports),
        node_tasks={node: Task(node, node_names[node], None, ()) for node in sorted({r.node for r in reports})},
        folded=folded,
    )
    located = [[locator.locate(report, number) for number in range(len(report.places.all))] for report in reports]
    rows_of_task = _collect_rows(reports, located)
    used = [task for task in [*tasks, *locator.node_tasks.values()] if task in rows_of_task]
    keys = [(task, row.key) for task in used for row in rows_of_task[task]]
    saved = 0 if fold_threads else sum(len(threads) - 1 for threads in several.values())
    if len(keys) > MAX_ROWS and saved:
        raise TranslationError(
            f"the trace would have {len(keys):,} rows and Paraver takes {MAX_ROWS:,}; with idle threads folded it has"
            f" {len(keys) - saved:,}: fold them, or select fewer ranks or sources",
            see=("fold_threads", "ranks", "sources"),
        )
    row_numbers = {task_and_key: number for number, task_and_key in enumerate(keys)}
    return ObjectTree(
        model=_make_model(used, rows_of_task, node_names, folded),
        rows=[np.array([-1 if at is None else row_numbers[at] for at in places], np.int64) for places in located],
        host_rows=np.array([row for row, (_, key) in enumerate(keys) if key.kind == RowKind.THREAD], np.int64),
        task_of_row=np.repeat(np.arange(len(used)), [len(rows_of_task[task]) for task in used]),
        ranks=[task.rank for task in used],
        belongs_to=np.array([-1 if task.owner is None else task.owner for task in used], np.int64),
        is_node=[task.process is None for task in used],
        gpu_of_row=np.array([key.gpu for _, key in keys], np.int64),
        is_idle=_mark_idle(keys, idle),
        warnings=warnings,
        claimed_ranks=claimed_ranks,
        folded=_number_folded(reports, tasks, folded),
    )


def _mark_idle(keys: Sequence[tuple[Task, RowKey]], idle: Mapping[Task, Collection[int]]) -> BoolArray:
    """Mark the rows of idle threads, and the rows that idle threads share."""
    idle_threads = {(task, tid & PID_MASK) for task, threads in idle.items() for tid in threads}
    is_idle = [
        key.kind == RowKind.THREAD and (is_folded(key) or (task, key.order[1]) in idle_threads) for task, key in keys
    ]
    return np.array(is_idle, np.bool_)


def _number_folded(
    reports: Sequence[ReportPlaces], tasks: Sequence[Task], folded: Mapping[Task, Collection[int]]
) -> list[IntArray]:
    """Return the number of the folded thread at each place of each report; -1 for other places."""
    threads = [(task, tid) for task in tasks for tid in sorted(folded.get(task, ()))]
    number = {(report, tid): i for i, (task, tid) in enumerate(threads) for report in task.members}
    numbers = []
    for report in reports:
        tids = (place.global_tid if isinstance(place, Thread) else -1 for place in report.places.all)
        numbers.append(np.array([number.get((report, tid), -1) for tid in tids], np.int64))
    return numbers


def _collect_rows(
    reports: Sequence[ReportPlaces], located: Sequence[Sequence[tuple[Task, RowKey] | None]]
) -> dict[Task, list[Row]]:
    """Return the sorted rows of each task with rows."""
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
    """Return the model of the trace: number the nodes that have tasks, and label the rows of the tasks."""
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
    rows = [TaskRows(task.name, nodes.index(task.node), texts) for task, texts in zip(tasks, labels, strict=True)]
    return TraceModel([node_names[node] for node in nodes], rows)


# ---- places --------------------------------------------------------------------------------------------------------


class _Locator(ValueClass):
    """Finder of the task and row of a place.

    `tasks`: task by report and process. `gpu_owners`: task by node and GPU. `node_tasks`: the task that stands for each
    node; it need not have rows. `folded`: the globalTids of the threads of each task that share a row.
    """

    tasks: Mapping[tuple[ReportPlaces, int], Task]
    gpu_owners: Mapping[tuple[int, _GpuKey], Task]
    part_repeats: Mapping[tuple[ReportPlaces, NodePart], int]
    node_tasks: Mapping[int, Task]
    folded: Mapping[Task, Collection[int]]

    def locate(self, report: ReportPlaces, number: int) -> tuple[Task, RowKey] | None:
        """Return the task of a place, and its row in the task; None for a thread that was merely observed."""
        if number in report.places.only_observed:
            return None
        place = report.places.all[number]
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
            gpu = report.metadata.get_gpu(place.gpu)
            owner = self.gpu_owners.get((report.node, make_gpu_key(gpu)), node_task)
            return owner, RowKey(RowKind.DEVICE, gpu.number, make_gpu_key(gpu))
        if isinstance(place, NodePart):
            part = *_split_numbers(place.name), place.key, self.part_repeats.get((report, place), 0)
            return node_task, RowKey(RowKind.NODE_PART, -1, (part, place.port, place.suffix, place.is_local))
        return node_task, RowKey(RowKind.NODE, -1, ())


def group_by_shared_rows(rows: Sequence[IntArray]) -> list[list[int]]:
    """Group arrays of rows: return the sorted indices of each group. Arrays with a common row are in one group.

    Negative rows do not count.
    """
    group_of_row: dict[int, int] = {}
    groups: dict[int, list[int]] = {}
    for i, array in enumerate(rows):
        distinct = np.unique(array[array >= 0]).tolist()
        members = [i]
        for other in {group_of_row[row] for row in distinct if row in group_of_row}:
            members += groups.pop(other)
        groups[i] = sorted(members)
        for member in members:
            group_of_row.update(dict.fromkeys(np.unique(rows[member][rows[member] >= 0]).tolist(), i))
    return sorted(groups.values())


def group_reports_by_task(places: Sequence[Places], tree: ObjectTree) -> list[list[int]]:
    """Group reports: return the sorted indices of each group. Reports with threads or streams of one task are
    together."""
    tasks = []
    for report_places, rows in zip(places, tree.rows, strict=True):
        is_used = np.array([isinstance(place, Thread | Stream) for place in report_places.all], np.bool_)
        row = rows[is_used]
        tasks.append(tree.task_of_row[row[row >= 0]])
    return group_by_shared_rows(tasks)


def make_gpu_key(gpu: Gpu) -> _GpuKey:
    """Return the identity of a GPU of a node across reports: its uuid, or its number if the uuid is unknown."""
    return (gpu.uuid, 0) if gpu.uuid else ("", gpu.number)


def _find_gpu_owners(tasks: Iterable[Task]) -> dict[tuple[int, _GpuKey], Task]:
    """Return the first task that ran operations on each GPU, by node and GPU."""
    owners: dict[tuple[int, _GpuKey], Task] = {}
    for task in tasks:
        for member in task.members:
            for place in member.places.all:
                if isinstance(place, Stream) and place.process == task.process:
                    gpu = member.metadata.gpu(place.process, place.device)
                    owners.setdefault((task.node, make_gpu_key(gpu)), task)
    return owners


# ---- rows ----------------------------------------------------------------------------------------------------------


def _split_numbers(name: str) -> tuple[tuple[str | int, ...], str]:
    """Return a key that sorts names by the numbers in them: core 2 before core 10."""
    parts = re.split(r"([0-9]{1,18})", name)
    return tuple(int(part) if i % 2 else part for i, part in enumerate(parts)), name


def _number_repeated_parts(reports: Sequence[ReportPlaces]) -> dict[tuple[ReportPlaces, NodePart], int]:
    """Number the parts of a node that look alike although each belongs to one report.

    If such reports do not overlap in time (capture ranges of one run do not), their parts are one part and share a
    number.
    """
    numbers: dict[tuple[ReportPlaces, NodePart], int] = {}
    ends: dict[tuple[int, NodePart], list[int]] = {}
    for report in sorted(reports, key=lambda report: report.first):
        for place in report.places.all:
            if isinstance(place, NodePart) and place.is_local:
                last = ends.setdefault((report.node, place), [])
                number = next((i for i, end in enumerate(last) if end < report.first), len(last))
                last[number:] = [report.last, *last[number + 1 :]]
                numbers[report, place] = number
    return numbers
