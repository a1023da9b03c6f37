"""Finds the tasks of a job, its processes in the order of their ranks, over all reports; and ranks without a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field

from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.objects.places import Places, Thread
from nsys2prv_ng.report.metadata import PID_MASK, Metadata


@dataclass(frozen=True, eq=False)
class ReportPlaces:
    """A report in the tree: its places, its node, and the times (ns, common clock) of its first and last record."""

    metadata: Metadata
    places: Places
    node: int
    first: int
    last: int


@dataclass(eq=False)
class Task:
    """A process in one report, or in several (capture ranges of one run); without a process, a node itself."""

    node: int
    name: str
    process: int | None
    order: tuple[int, ...]
    members: list[ReportPlaces] = field(default_factory=list)
    rank: int | None = None
    is_rank_certain: bool = False
    """Whether the rank comes from the launcher or MPI, and they agree. (NCCL numbers the ranks of each
    communicator.)"""
    parent: int | None = None
    """Rank of the process that started this process, if this process has no rank itself."""

    @property
    def owner(self) -> int | None:
        """The rank of the task, or of the process that started it."""
        return self.parent if self.rank is None else self.rank


def find_tasks(reports: Sequence[ReportPlaces]) -> tuple[list[Task], list[str], dict[int, int]]:
    """Return every process with a call, range or device operation: ranks first, then their children.

    Also return warnings, and the number of processes of each rank that more than one process claims.
    """
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
    applications.sort(key=lambda task: (task.rank is None, task.rank or 0, task.order))
    return _make_names_unique(applications + _join_repeats(children)), warnings, claimed_ranks


def _make_names_unique(tasks: list[Task]) -> list[Task]:
    names = Counter(task.name for task in tasks)
    for task in tasks:
        if names[task.name] > 1 and task.process is not None:
            task.name += f" {task.process & PID_MASK}"
    return tasks


def _join_repeats(tasks: list[Task]) -> list[Task]:
    """Join the tasks of a process with capture ranges in several reports that do not overlap in time."""
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
    """Name tasks by their rank. If two claim the same rank, both keep it.

    Return a warning for each such rank, and the number of certain claims of each rank with more than one.
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
            warnings.append(f"no report of rank{'s' if many else ''} {_format_gaps(gaps)} of {size:,} (by {variable})")
    return warnings


def _find_gaps(ranks: set[int], size: int) -> list[tuple[int, int]]:
    """Return the first and last rank of each run of missing ranks below `size`."""
    gaps, expected = [], 0
    for rank in [*sorted(rank for rank in ranks if rank < size), size]:
        if rank > expected:
            gaps.append((expected, rank - 1))
        expected = rank + 1
    return gaps


def _format_gaps(gaps: Sequence[tuple[int, int]]) -> str:
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in gaps[:_MOST_SHOWN]]
    return ", ".join(shown) + (", and others" if len(gaps) > _MOST_SHOWN else "")
