"""Finds what programs repeat without marking it: steps that every task shows by its kernels and CUDA graphs.

Each task has several candidates (steps/repeated_steps.py): the same steps cut elsewhere, or smaller and larger ones.
The tasks agree on

- a delimiter that cuts equally many steps on all tasks, of several the one with most steps;
- else the largest number of steps that all tasks have, as ranks may see different names;
- else the best steps of each task, without a first or a last one that only some tasks have.

In the first two cases the steps must nearly be as many as the best ones of the task with fewest. Fewer steps come last.

Steps of equal number must overlap in time, from the first launch to the end of the last operation. Otherwise there are
no steps. All tasks with kernels or graphs count.

A step begins with the launch of its first operation, and ends where the next one begins: launches of a step do not
depend on how long its operations wait for those of the step before. The last step ends after its last launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.groups import Table, join_tables
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.objects.tree import ObjectTree, group_reports_by_task
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.engine import Engine
from nsys2prv_ng.steps.repeated_steps import Candidate, find_candidates, name_delimiter
from nsys2prv_ng.steps.work import LaunchedWork, load_work

_LEAST_OF_BEST = 0.8
"""Minimum number of agreed steps / number of the best steps of the task that has fewest."""


class Repetitions(NamedTuple):
    """The steps of a job by its kernels and graphs.

    `table`, by task and step: task, its first thread's row (-1 without one), number (from 1), begin and end of the
    launches (ns). `delimiter`: what delimits the steps of the first task: `CUDA graph`, or the name of a kernel.
    `similarity`: how similar the steps of a task are, from 0 to 1: of the task where they are least similar.
    """

    table: Table
    delimiter: str
    similarity: float


class _Found(NamedTuple):
    """A candidate of a task, by the times of its m steps (ns).

    `limits` (m + 1): launch of the first operation of each step, and a ns after the last launch of the last step.
    `done` (m): latest end of the operations of each step.
    """

    kind: tuple[str, int]
    rank: tuple[int, float, float, float]
    name: str
    similarity: float
    limits: IntArray
    done: IntArray

    @property
    def steps(self) -> int:
        return self.done.size

    def take(self, first: int, count: int) -> _Found:
        """Return some of the steps."""
        return self._replace(limits=self.limits[first : first + count + 1], done=self.done[first : first + count])


def find_repetitions(
    reports: Sequence[ReportRecords], tree: ObjectTree, store: Store, fewest: int, engine: Engine
) -> Repetitions | None:
    """Return the steps of the tasks of a job, `fewest` or more of them; None if it shows none.

    Each piece of work has the operations of one task in memory, or of the tasks of one report.
    """

    def find(group: Sequence[int]) -> dict[int, list[_Found]]:
        tasks = load_work([(reports[index], tree.rows[index]) for index in group], tree, store)
        return {
            task: [_place_in_time(candidate, work) for candidate in find_candidates(work, fewest)]
            for task, work in tasks.items()
        }

    found: dict[int, list[_Found]] = {}
    for part in engine.map(find, group_reports_by_task([report.places for report in reports], tree)):
        found |= part
        if not all(part.values()):
            return None
    agreed = agree(found, fewest)
    return None if agreed is None else _tabulate(agreed, tree)


def _place_in_time(candidate: Candidate, work: LaunchedWork) -> _Found:
    """Return the steps of a candidate by their times."""
    limits = work.launched[np.minimum(candidate.limits, work.launched.size - 1)]
    limits[-1] = work.launched[candidate.limits[-1] - 1] + 1
    done = np.maximum.reduceat(work.end[: candidate.limits[-1]], candidate.limits[:-1])
    name = name_delimiter(work, candidate.limits)
    return _Found(candidate.kind, candidate.rank, name, candidate.similarity, limits, done)


def _tabulate(agreed: Mapping[int, _Found], tree: ObjectTree) -> Repetitions:
    tasks, first = np.unique(tree.task_of_row[tree.host_rows], return_index=True)
    threads = dict(zip(tasks.tolist(), tree.host_rows[first].tolist(), strict=True))
    parts = []
    for task, candidate in agreed.items():
        of_task = {"task": np.full(candidate.steps, task), "row": np.full(candidate.steps, threads.get(task, -1))}
        number = np.arange(1, candidate.steps + 1)
        parts.append({**of_task, "number": number, "begin": candidate.limits[:-1], "end": candidate.limits[1:]})
    return Repetitions(join_tables(parts), agreed[min(agreed)].name, min(each.similarity for each in agreed.values()))


# ---- agreement -------------------------------------------------------------------------------------------------------


def agree(found: Mapping[int, Sequence[_Found]], fewest: int) -> dict[int, _Found] | None:
    """Return one candidate of each task, such that all have equally many steps that overlap; None if there are none."""
    if not found or not all(found.values()):
        return None
    for proposal in _propose(list(found.values())):
        if len({candidate.steps for candidate in proposal}) == 1 and proposal[0].steps >= fewest and _overlap(proposal):
            return dict(zip(found, proposal, strict=True))
    return None


def _propose(found: Sequence[Sequence[_Found]]) -> Iterator[list[_Found]]:
    """Yield one candidate of each task, the best ones first."""
    fewer = _LEAST_OF_BEST * min(candidate[0].steps for candidate in found)
    proposals = [*_propose_same(found), *_propose_equal(found)]
    yield from (chosen for chosen in proposals if chosen[0].steps >= fewer)
    trimmed = _trim([candidate[0] for candidate in found])
    if trimmed:
        yield trimmed
    yield from (chosen for chosen in proposals if chosen[0].steps < fewer)


def _propose_same(found: Sequence[Sequence[_Found]]) -> list[list[_Found]]:
    """Return candidates of the same delimiter and number of steps on all tasks, those with most steps first."""
    by_kind = [
        {(candidate.kind, candidate.steps): candidate for candidate in reversed(candidates)} for candidates in found
    ]
    proposals = [[kinds[key] for kinds in by_kind] for key in by_kind[0] if all(key in kinds for kinds in by_kind[1:])]
    # Of two phases of the same steps, the one whose worst task is better wins; if none is, the earlier one.
    return sorted(
        proposals,
        key=lambda chosen: (
            min(candidate.rank for candidate in chosen),
            *(chosen[0].kind[0], chosen[0].steps, *(-sum(each.limits[n].item() for each in chosen) for n in (1, 0))),
        ),
        reverse=True,
    )


def _propose_equal(found: Sequence[Sequence[_Found]]) -> list[list[_Found]]:
    """Return the best candidates with the same number of steps on all tasks, those with most steps first."""
    by_count = [{candidate.steps: candidate for candidate in reversed(candidates)} for candidates in found]
    same = set(by_count[0]).intersection(*by_count[1:])
    return [[counts[count] for counts in by_count] for count in sorted(same, reverse=True)]


def _trim(chosen: Sequence[_Found]) -> list[_Found] | None:
    """Return candidates without steps that only some tasks have; None if this is more than one at either end."""
    begin, done = max((candidate.limits[0], candidate.done[0]) for candidate in chosen)
    shared = [np.minimum(candidate.done, done) - np.maximum(candidate.limits[:-1], begin) for candidate in chosen]
    first = [int(np.argmax(candidate)) for candidate in shared]
    left = [candidate.steps - skipped for candidate, skipped in zip(chosen, first, strict=True)]
    if max(first) > 1 or max(left) - min(left) > 1:
        return None
    return [candidate.take(skipped, min(left)) for candidate, skipped in zip(chosen, first, strict=True)]


def _overlap(chosen: Sequence[_Found]) -> bool:
    """Return whether the steps of equal number overlap, from the first launch to the end of the last operation."""
    begin = np.max([candidate.limits[:-1] for candidate in chosen], axis=0)
    end = np.min([np.maximum(candidate.done, candidate.limits[1:]) for candidate in chosen], axis=0)
    return bool((begin < end).all())
