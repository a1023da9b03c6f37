"""Finds steps that every task shows by the order of its ranges, or of its kernels and CUDA graphs.

Each task has several candidates, by its ranges (steps/range_periods.py) or by its kernels and CUDA graphs
(steps/repeated_steps.py), and the tasks agree on one (steps/agreement.py). All tasks with kernels or graphs count.

- By ranges, a step is as long as the ranges that mark it.
- By kernels, a step begins with the launch of its first operation, and ends where the next one begins: launches of a
  step do not depend on how long its operations wait for those of the step before. The last step ends after its last
  launch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.groups import Table, join_tables, make_objects
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.objects.tree import ObjectTree, group_reports_by_task
from nsys2prv_ng.paraver import families
from nsys2prv_ng.reading.opened_events import ABSENT, Names, find_checksum, load_nvtx_ranges
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.parallel import Engine
from nsys2prv_ng.steps.agreement import Found, agree
from nsys2prv_ng.steps.numbered_names import OTHER_WORK
from nsys2prv_ng.steps.range_periods import RangeParts, RangeSequence, find_parts, is_operator, name_family
from nsys2prv_ng.steps.repeated_steps import Candidate, find_candidates, name_delimiter
from nsys2prv_ng.steps.work import LaunchedWork, load_work

_LEAST_OF_TASK = 0.01
"""Least kernels of a task that must have steps, as a share of the most of any task. A choice: a start-up's."""
_MOST_NAMES = 3
"""Most names of ranges in the name of a step that is made of several."""


class Repetitions(NamedTuple):
    """The steps of a job by what it repeats.

    `table`, by task and step: task, row of the thread that marks it (or the task's first one; -1 without one), number,
    report (number of its capture), begin and end on the host (ns), text (of its range, or what it is instead). `name`:
    of the ranges; or what delimits the steps of the first task: `CUDA graph`, or a kernel. `similarity`: how similar
    the steps of a task are, from 0 to 1: of the task where they are least similar. `repeats`: how many shorter periods
    a step contains.
    """

    table: Table
    name: str
    similarity: float
    repeats: int


_OF_LIBRARIES = frozenset((families.NCCL_DOMAIN, families.GIL_DOMAIN, "CCCL", "TSL"))
"""Domains whose ranges are calls of libraries: of NCCL, of CUB and Thrust (hf-base), of XLA (jax-1)."""

_Loaded = dict[int, LaunchedWork]
_Find = Callable[[Sequence[int], _Loaded], dict[int, list[Found]]]
"""Returns candidates by task, given the indices of reports and the work of their tasks."""


def find_repetitions(
    reports: Sequence[ReportRecords], tree: ObjectTree, store: Store, fewest: int, engine: Engine
) -> Repetitions | None:
    """Return the steps that kernels and graphs show, `fewest` or more of them; None if they show none.

    Each piece of work has the operations of one task in memory, or of the tasks of one report.
    """

    def find(group: Sequence[int], tasks: _Loaded) -> dict[int, list[Found]]:
        return {
            task: [_place_in_time(candidate, work) for candidate in find_candidates(work, fewest)]
            for task, work in tasks.items()
        }

    return _find_agreed(reports, tree, store, fewest, engine, find)


def find_range_periods(
    reports: Sequence[ReportRecords], tree: ObjectTree, store: Store, fewest: int, engine: Engine
) -> Repetitions | None:
    """Return the steps that the order of NVTX ranges shows, `fewest` or more of them; None if it shows none.

    Each piece of work has the ranges and operations of one task in memory, or of the tasks of one report.
    """

    def find(group: Sequence[int], tasks: _Loaded) -> dict[int, list[Found]]:
        ranges = _load_ranges([(index, reports[index]) for index in group], tree, store)
        return {task: ranges.find_candidates(task, work, fewest) for task, work in tasks.items()}

    return _find_agreed(reports, tree, store, fewest, engine, find)


def _find_agreed(
    reports: Sequence[ReportRecords], tree: ObjectTree, store: Store, fewest: int, engine: Engine, find: _Find
) -> Repetitions | None:
    """Return the steps that the tasks with kernels or graphs agree on; None if there are none.

    A task that launches hardly any, as a process that only looks for a GPU, need not have steps.
    """

    def find_in_group(group: Sequence[int]) -> tuple[dict[int, list[Found]], dict[int, int]]:
        tasks = load_work([(reports[index], tree.rows[index]) for index in group], tree, store)
        return find(group, tasks), {task: work.name.size for task, work in tasks.items()}

    found: dict[int, list[Found]] = {}
    launched: dict[int, int] = {}
    captures: list[tuple[int, int]] = []
    begins: dict[int, IntArray] = {}
    groups = group_reports_by_task([report.places for report in reports], tree)
    for group, (part, number) in zip(groups, engine.map(find_in_group, groups), strict=True):
        found |= part
        launched |= number
        if part:
            limits = [reports[index].find_capture() for index in group]
            captures.append((min(first for first, _ in limits), max(last for _, last in limits)))
            begins |= dict.fromkeys(part, np.sort([first for first, _ in limits]))
    least = _LEAST_OF_TASK * max(launched.values(), default=0)
    found = {task: candidates for task, candidates in found.items() if candidates or launched[task] >= least}
    if not found or not all(found.values()):
        return None
    agreed = agree(found, fewest, (max(first for first, _ in captures), min(last for _, last in captures)))
    return None if agreed is None else _tabulate(agreed, tree, begins)


def _tabulate(agreed: Mapping[int, Found], tree: ObjectTree, captures: Mapping[int, IntArray]) -> Repetitions:
    """Return the steps of all tasks. They are numbered from 1 unless all tasks number them alike. `captures`: when
    those of each task begin (ns)."""
    tasks, first = np.unique(tree.task_of_row[tree.host_rows], return_index=True)
    threads = dict(zip(tasks.tolist(), tree.host_rows[first].tolist(), strict=True))
    chosen = agreed[min(agreed)]
    number = chosen.number
    if any(not np.array_equal(each.number, number) for each in agreed.values()):
        number = np.arange(1, chosen.steps + 1)
    parts = []
    for task, steps in agreed.items():
        row = steps.row if steps.row >= 0 else threads.get(task, -1)
        of_task = {"task": np.full(steps.steps, task), "row": np.full(steps.steps, row), "number": number}
        of_task["report"] = np.searchsorted(captures[task], steps.begin, "right")
        parts.append({**of_task, "begin": steps.begin, "end": steps.end, "text": steps.text})
    similarity = min(each.similarity for each in agreed.values())
    name = chosen.name
    if chosen.row >= 0 and len({each.name for each in agreed.values()}) > 1:  # `rank0/step`, `rank1/step`
        name = name_family(name)
    return Repetitions(join_tables(parts), name, similarity, chosen.repeats)


# ---- kernels ---------------------------------------------------------------------------------------------------------


def _place_in_time(candidate: Candidate, work: LaunchedWork) -> Found:
    """Return the steps of a candidate by their times."""
    limits = work.launched[np.minimum(candidate.limits, work.launched.size - 1)]
    limits[-1] = work.launched[candidate.limits[-1] - 1] + 1
    core = "training" if candidate.is_phase.any() else ""  # phases are told apart by the optimizer
    return Found(
        kind=candidate.kind,
        rank=candidate.rank,
        name=name_delimiter(work, candidate.limits),
        similarity=candidate.similarity,
        begin=limits[:-1],
        end=limits[1:],
        done=np.maximum.reduceat(work.end[: candidate.limits[-1]], candidate.limits[:-1]),
        number=np.arange(1, candidate.steps + 1),
        text=np.where(candidate.is_phase, OTHER_WORK, core).astype(object),
        row=-1,
        repeats=candidate.repeats,
    )


# ---- ranges ----------------------------------------------------------------------------------------------------------


class _Ranges(NamedTuple):
    """n ranges of some tasks, in columns; `name` is an index of `names`, `number` is ABSENT without one."""

    task: IntArray
    row: IntArray
    nests: IntArray
    name: IntArray
    number: IntArray
    begin: IntArray
    end: IntArray
    names: list[str]

    def find_candidates(self, task: int, work: LaunchedWork, fewest: int) -> list[Found]:
        """Return the steps of a task by the ranges of each of its threads; the best first.

        Those of threads that launch come first: others, as loaders of data, open their ranges at the same time.
        """
        families = Names()
        family = families.number([name_family(name) for name in self.names], np.arange(len(self.names)))
        mine = np.flatnonzero(self.task == task)
        found = []
        for row, nests in sorted(set(zip(self.row[mine].tolist(), self.nests[mine].tolist(), strict=True))):
            own = mine[(self.row[mine] == row) & (self.nests[mine] == nests)]
            own = own[np.lexsort((-self.end[own], self.begin[own]))]
            sequence = RangeSequence(
                family[self.name[own]], self.begin[own], self.end[own], self.number[own] != ABSENT, families.texts
            )
            parts = find_parts(sequence, work, fewest, nests=bool(nests))
            if parts is not None:
                found.append(self._place(own[parts[0]], parts[1], families.texts, row, work))
        kinds = Counter(each.kind for each in found)  # threads that do the same beside each other are no steps
        return sorted((each for each in found if kinds[each.kind] == 1), key=lambda each: each.rank, reverse=True)

    def _place(self, line: IntArray, parts: RangeParts, families: list[str], row: int, work: LaunchedWork) -> Found:
        """Return parts by their times and names. `line`: index of each range of the sequence."""
        head = line[parts.first]
        begin, end = self.begin[head], self.end[line[parts.after - 1]]
        text = make_objects([self.names[name] for name in self.name[head].tolist()])
        core = head[~parts.is_extra]
        of_step = [families[name] for name in parts.names]
        if len(parts.names) > 1:
            name = " + ".join(of_step) if len(of_step) <= _MOST_NAMES else f"{of_step[0]} + ... + {of_step[-1]}"
            text[~parts.is_extra] = name
        else:
            texts = {self.names[index] for index in np.unique(self.name[core]).tolist()}
            name = texts.pop() if len(texts) == 1 else of_step[0]
        number = self.number[head]
        if len(parts.names) > 1 or parts.is_extra.any() or np.any(np.diff(number) <= 0) or ABSENT in number:
            number = np.arange(1, head.size + 1)
        known = np.searchsorted(work.launched, np.append(begin[1:], np.iinfo(np.int64).max))
        done = np.maximum.accumulate(np.append(end[0], work.end))[known]
        kind = "ranges", find_checksum("\n".join(of_step))
        rank = row in work.threads, *parts.rank
        return Found(kind, rank, name, parts.similarity, begin, end, np.maximum(done, end), number, text, row)


def _load_ranges(reports: Sequence[tuple[int, ReportRecords]], tree: ObjectTree, store: Store) -> _Ranges:
    """Return the ranges of the program in some reports, which come with their indices."""
    names, parts = Names(), [[np.zeros(0, np.int64) for _ in range(7)]]
    for index, report in reports:
        ranges = load_nvtx_ranges(report, store, lambda domain: domain not in _OF_LIBRARIES, with_start_end=True)
        row = tree.rows[index][ranges.place].astype(np.int64)
        is_phase = np.array([not is_operator(text) for _, text in ranges.keys], np.bool_)
        shown = np.flatnonzero((row >= 0) & is_phase[ranges.key])
        name = names.number([text for _, text in ranges.keys], ranges.key[shown])
        task, nests = tree.task_of_row[row[shown]], ranges.is_push_pop[shown].astype(np.int64)
        parts.append([task, row[shown], nests, name, ranges.number[shown], ranges.begin[shown], ranges.end[shown]])
    task, row, nests, name, number, begin, end = (
        np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True)
    )
    return _Ranges(task, row, nests, name, number, begin, end, names.texts)
