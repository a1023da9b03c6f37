"""Finds the tasks of a job, its processes in the order of their ranks, over all reports; and ranks without a report.

Also defines the rows of a task, and makes their labels, as users read them in Paraver and in paramedir's tables. BSC's
BasicAnalysis treats a row as a stream only if its label is exactly `CUDA-D<n>.S<n>`, and as the metrics of a GPU only
if its label is `Metrics GPU<n>`. So these labels repeat: for further rows of a stream, and for GPUs with the same
number on two nodes. The name of the task shows the rank. All other labels are unique within a trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from typing import Any, NamedTuple

from nsys2prv_ng.grouping import group_by_key
from nsys2prv_ng.objects.places import Device, NodePart, Place, Places, Stream, Thread
from nsys2prv_ng.report.metadata import PID_MASK, Metadata, choose_rank_variable
from nsys2prv_ng.text.formatting import make_unique
from nsys2prv_ng.text.names import to_one_line


@dataclass(eq=False)
class ReportPlaces:
    """A report in the tree: its places, its node, and the first and last time (ns, common clock) of its capture."""

    metadata: Metadata
    places: Places
    node: int
    first: int
    last: int


@dataclass(eq=False)
class Task:
    """A process in one report, or in several (capture ranges of one run); without a process, a node itself.

    `is_rank_certain`: whether the rank comes from the launcher or MPI, and they agree. (NCCL numbers the ranks of each
    communicator.) `parent`: rank of the process that started this process, if this process has no rank itself.
    """

    node: int
    name: str
    process: int | None
    order: tuple[int, ...]
    members: list[ReportPlaces] = field(default_factory=list)
    rank: int | None = None
    is_rank_certain: bool = False
    parent: int | None = None

    @property
    def owner(self) -> int | None:
        """The rank of the task, or of the process that started it."""
        return self.parent if self.rank is None else self.rank


def find_tasks(reports: Sequence[ReportPlaces]) -> tuple[list[Task], list[str], dict[int, int]]:
    """Return every process with a call, range or device operation: ranks first, then their children.

    Also return warnings, and the number of processes of each rank that more than one process claims.
    """
    choose_rank_variable([report.metadata for report in reports])
    applications: list[Task] = []
    children: list[Task] = []
    for index, report in enumerate(reports):
        called, launcher = report.places.called, report.metadata.rank
        ranks = report.places.application & called
        programs = report.places.instrumented or called
        processes = sorted(ranks) or (sorted(programs) if len(programs) == 1 else [])
        for process in sorted(called):
            name = report.metadata.get_process_name(process)
            if process not in processes:
                prefix = "" if launcher is None else f"rank {launcher}: "
                order = index, process
                children.append(Task(report.node, prefix + name, process, order, [report], parent=launcher))
                continue
            task = Task(report.node, f"{name} {process & PID_MASK}", process, (), [report])
            alone = len(processes) == 1
            task.rank = report.metadata.find_rank(process, alone=alone)
            # A program that its launcher did not connect to MPI is rank 0 in MPI, whatever its rank in the launcher.
            known = {report.metadata.ranks.get(process), launcher if alone else None} - {None}
            task.is_rank_certain = len(known) == 1
            task.order = (launcher is None, launcher or 0, index, process)
            applications.append(task)
    applications = _join_repeats(applications)
    warnings, claimed_ranks = _name_ranks(applications)
    warnings += _find_other_order(applications)
    applications.sort(key=lambda task: (task.rank is None, task.rank or 0, task.order))
    tasks = applications + _join_repeats(children)
    names = Counter(task.name for task in tasks)
    for task in tasks:
        if names[task.name] > 1 and task.process is not None:
            task.name += f" {task.process & PID_MASK}"
    return tasks, warnings, claimed_ranks


def _join_repeats(tasks: list[Task]) -> list[Task]:
    """Join the tasks of a process with capture ranges in several reports that do not overlap in time.

    Only one of the reports may show the rank, such as the one with the start of NCCL.
    """
    joined: list[Task] = []
    by_identity: dict[tuple[object, ...], list[Task]] = {}
    for task in sorted(tasks, key=lambda task: task.members[0].first):
        same = by_identity.setdefault((task.node, task.process, task.name), [])
        in_turn = (other for other in same if other.members[-1].last < task.members[0].first)
        before = next((other for other in in_turn if None in (other.rank, task.rank) or other.rank == task.rank), None)
        if before is None:
            same.append(task)
            joined.append(task)
        else:
            before.members += task.members
            before.order = min(before.order, task.order)
            if before.rank is None:
                before.rank, before.is_rank_certain = task.rank, task.is_rank_certain
    position = {task: i for i, task in enumerate(tasks)}
    return sorted(joined, key=position.__getitem__)


def _name_ranks(tasks: list[Task]) -> tuple[list[str], dict[int, int]]:
    """Name tasks by their rank. If two claim the same rank, both keep it.

    Return a warning for each such rank, and the number of certain claims of each rank with more than one.
    """
    warnings = []
    claimed = group_by_key((task.rank, task) for task in tasks if task.rank is not None)
    certain = {rank: sum(task.is_rank_certain for task in claimants) for rank, claimants in claimed.items()}
    for rank, claimants in sorted(claimed.items()):
        for task in claimants:
            task.name = f"rank {rank}"
        if len(claimants) > 1:
            is_one_report = len({member for task in claimants for member in task.members}) == 1
            question = "were the workers in this report restarted" if is_one_report else "are these reports of one job"
            warnings.append(f"{len(claimants)} processes say that they are rank {rank}: {question}?")
    return warnings, {rank: count for rank, count in certain.items() if count > 1}


def _find_other_order(tasks: Sequence[Task]) -> list[str]:
    """Return a warning if NCCL gives all tasks other ranks than the environment.

    torchrun may number nodes otherwise than Slurm, whose SLURM_PROCID is then no rank of the program. But the
    program may also have made this communicator in another order. So nothing changes.
    """
    order: dict[int, int] = {}
    for task in tasks:
        known = (member.metadata for member in task.members if task.process in member.metadata.nccl_ranks)
        metadata = next(known, None)
        if metadata is None or metadata.ranks or metadata.launched is None or task.rank is None:
            return []
        order[task.rank] = metadata.nccl_ranks[task.process or 0]
        variable = metadata.launched.variable
    other = [rank for rank in order if rank != order[rank]]
    if not other or not sorted(order) == sorted(order.values()) == list(range(len(tasks))):
        return []
    return [
        f"NCCL has the {len(tasks)} ranks in another order than {variable}: rank {other[0]} is NCCL's rank"
        f" {order[other[0]]}; ranks have wrong names if a launcher such as torchrun numbered the processes anew"
    ]


def find_idle_threads(tasks: Sequence[Task]) -> dict[Task, set[int]]:
    """Return the globalTids of the threads that made only operating-system calls, by task.

    The main thread is not among them. All reports of the task count.
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


# ---- ranks that left no report ---------------------------------------------------------------------------------------

_MOST_SHOWN = 20


def find_missing_ranks(reports: Sequence[Metadata], ranks_of_tasks: Iterable[int | None]) -> list[str]:
    """Return a warning for each kind of launcher that started ranks which left no report.

    The environment of ranks with a report gives the number of ranks. `ranks_of_tasks`: the ranks found by any means,
    because one report can contain several ranks.
    """
    launched_ranks: dict[tuple[str, int], set[int]] = {}
    for report in reports:
        launched = report.launched
        if launched is not None and launched.size is not None:
            launched_ranks.setdefault((launched.variable, launched.size), set()).add(launched.rank)
    known = {rank for rank in ranks_of_tasks if rank is not None}
    warnings = []
    for (variable, size), ranks in sorted(launched_ranks.items()):
        # The launched programs may themselves launch ranks, one on each node: then their numbers are not ranks.
        if max(known, default=0) < size:
            ranks |= known
        gaps = _find_gaps(ranks, size)
        if gaps:
            many = len(gaps) > 1 or gaps[0][0] != gaps[0][1]
            shown = [str(first) if first == last else f"{first}-{last}" for first, last in gaps[:_MOST_SHOWN]]
            listed = ", ".join(shown) + (", and others" if len(gaps) > _MOST_SHOWN else "")
            warnings.append(f"no report of rank{'s' if many else ''} {listed} of {size:,} (by {variable})")
    return warnings


def _find_gaps(ranks: set[int], size: int) -> list[tuple[int, int]]:
    """Return the first and last rank of each run of missing ranks below `size`."""
    gaps, expected = [], 0
    for rank in [*sorted(rank for rank in ranks if rank < size), size]:
        if rank > expected:
            gaps.append((expected, rank - 1))
        expected = rank + 1
    return gaps


# ---- rows of a task --------------------------------------------------------------------------------------------------

FOLDED = 2
"""First part of the `order` of the row of folded threads, after False (main thread) and True (other threads).

The second part is the number of folded threads.
"""


class RowKind(IntEnum):
    """Kinds of rows, in the order in which a task shows them."""

    THREAD = 0
    STREAM = 1
    DEVICE = 2
    NODE = 3
    NODE_PART = 4


class RowKey(NamedTuple):
    """The identity of a row within its task, across reports. The keys sort the rows of a task.

    `gpu`: number of the GPU of a stream or device; -1 for other rows. `order`: distinguishes and sorts the rows of one
    kind and GPU.
    """

    kind: RowKind
    gpu: int
    order: tuple[Any, ...]


def is_folded(key: RowKey) -> bool:
    """Return whether a row is the row of the folded threads of its task."""
    return key.kind == RowKind.THREAD and key.order[0] == FOLDED


class Row(NamedTuple):
    """A row of a task, with the first place for which it was made.

    `metadata`: metadata of the report with the place.
    """

    key: RowKey
    metadata: Metadata
    place: Place


# ---- labels ----------------------------------------------------------------------------------------------------------

_FIXED = (RowKind.STREAM, RowKind.DEVICE)
"""Kinds of rows whose labels BasicAnalysis reads."""


class LabelledTask(NamedTuple):
    """The inputs for the labels of a task's rows.

    `folded`: names of the threads that share the row of folded threads, from `name_threads`. `rank`: the rank of the
    process, or of the process that started it.
    """

    rows: Sequence[Row]
    folded: Sequence[str]
    rank: int | None
    node: str


def label_rows(tasks: Sequence[LabelledTask]) -> list[list[str]]:
    """Return the labels of the rows of each task: `r2 python3 1987` for a host thread of rank 2.

    If labels repeat (the names of folded threads count as well), the label of a host thread ends with its id, and the
    label of the row of folded threads with the id of the process. If they still repeat, the name of the node goes in
    front if it differs, otherwise a number at the end.
    """
    rows = [row for task in tasks for row in task.rows]
    texts = [text for task in tasks for text in _name_rows(task.rows, task.rank)]
    nodes = [task.node for task in tasks for _ in task.rows]
    folded = Counter(_format_rank(task.rank) + name for task in tasks for name in task.folded)
    times = folded + Counter(texts)
    for i, row in enumerate(rows):
        if row.key.kind == RowKind.THREAD and times[texts[i]] > 1:
            assert isinstance(row.place, Thread)
            texts[i] += f" {(row.place.process if is_folded(row.key) else row.place.global_tid) & PID_MASK}"
    free = [i for i, row in enumerate(rows) if row.key.kind not in _FIXED]
    times = Counter(text for text, _ in set(zip(texts, nodes, strict=True)))
    for i in free:
        if times[texts[i]] > 1:
            texts[i] = f"{nodes[i]} {texts[i]}"
    fixed = {text for text, row in zip(texts, rows, strict=True) if row.key.kind in _FIXED}
    unique = make_unique([*fixed, *(texts[i] for i in free)])
    for i, text in zip(free, unique[len(fixed) :], strict=True):
        texts[i] = text
    left = iter(texts)
    return [[next(left) for _ in task.rows] for task in tasks]


# ---- names within a task ---------------------------------------------------------------------------------------------


def name_threads(reports: Sequence[Metadata], tids: Iterable[int]) -> list[str]:
    """Return the names of threads of a process by globalTid, each from a report of the process that has the name."""
    names = []
    for tid in tids:
        naming = (report for report in reports if tid in report.threads)
        names.append(_name_thread(next(naming, reports[0]), Thread(tid)))
    return names


def _name_thread(metadata: Metadata, thread: Thread) -> str:
    """Return the name of a thread on one line, or else the name of its process."""
    return to_one_line(metadata.threads.get(thread.global_tid) or metadata.get_process_name(thread.process))


def _format_rank(rank: int | None) -> str:
    return "" if rank is None else f"r{rank} "


def _name_rows(rows: Sequence[Row], rank: int | None) -> list[str]:
    """Return names for the rows of a task, with the rank for host threads. Threads with the same name share it."""
    prefix = _format_rank(rank)
    stream_numbers = _number_streams(rows)
    part_names = _name_node_parts(rows)
    names = []
    for key, metadata, place in rows:
        if is_folded(key):
            names.append(f"{prefix}other threads ({key.order[1]})")
        elif isinstance(place, Thread):
            names.append(prefix + _name_thread(metadata, place))
        elif isinstance(place, Stream):
            names.append(f"CUDA-D{key.gpu}.S{stream_numbers[key.gpu, place.stream, place.context]}")
        elif isinstance(place, Device):
            names.append(f"Metrics GPU{key.gpu}")
        elif isinstance(place, NodePart):
            names.append(to_one_line(next(part_names)))
        else:
            names.append("node")
    return names


def _name_node_parts(rows: Sequence[Row]) -> Iterator[str]:
    """Return names for parts of a node. Parts with the same name are numbered across all reports."""
    parts: dict[str, dict[object, int]] = {}
    names = []
    for key, _, place in rows:
        if isinstance(place, NodePart):
            part = key.order[0]
            same_name = parts.setdefault(place.name, {})
            number = same_name.setdefault(part, len(same_name) + 1)
            names.append(f"{place.name}{f'-{number}' if number > 1 else ''}{place.suffix}")
    return iter(make_unique(names))


def _number_streams(rows: Sequence[Row]) -> dict[tuple[int, int, int], int]:
    """Return the number in the label of each stream of a task, by GPU, stream and context.

    If several contexts of a GPU have a stream with the same number, the lowest context keeps the number. Another gets
    1000 times the stream plus the context (stream 7 of context 2 is 7002), or the next number that no stream of the
    process has.
    """
    streams = sorted({(key.gpu, place.stream, place.context) for key, _, place in rows if isinstance(place, Stream)})
    taken = {stream for _, stream, _ in streams}
    numbers: dict[tuple[int, int, int], int] = {}
    named: set[tuple[int, int]] = set()
    for gpu, stream, context in streams:
        number = stream
        if (gpu, stream) in named:
            number = next(free for free in count(1000 * stream + context) if free not in taken)
            taken.add(number)
        named.add((gpu, stream))
        numbers[gpu, stream, context] = number
    return numbers
