"""Agrees on the steps of a job: of the steps that each task could have, those that are the same on all tasks.

Each task has several candidates: the same steps cut elsewhere, or smaller and larger ones. The tasks agree on

- what is best on each of them, if it cuts different numbers of steps, without those at either end that only some tasks
  have: captures may begin and end within different steps. More than one is left out only if some task was not captured
  in their time;
- else what cuts equally many steps on all tasks, of several the one with most steps;
- else the largest number of steps that all tasks have, as ranks may see different names;
- else the best steps of each task, without those at either end, as in the first case.

In the second and third case the steps must nearly be as many as the best ones of the task with fewest. Fewer steps come
last.

Steps of equal number must overlap in time, from their begin to the end of their last operation. Otherwise there are no
steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import IntArray

_LEAST_OF_BEST = 0.8
"""Minimum number of agreed steps / number of the best steps of the task that has fewest."""


class Found(NamedTuple):
    """Steps that a task may have, in columns of m; times are ns.

    - `kind`: what cuts them, equal on all tasks. `rank`: the better, the larger. `name`: of what cuts them.
    - `similarity`: how similar their work is, from 0 to 1.
    - `begin`, `end`: when each begins and ends on the host. `done`: latest end of what it launched.
    - `number`: what the program calls each of them; else from 1. `text`: the range of each, or what it is instead.
    - `row`: row of the thread that marks them; -1 if none does.
    - `repeats`: how many shorter periods each contains.
    """

    kind: tuple[str, int]
    rank: tuple[float, ...]
    name: str
    similarity: float
    begin: IntArray
    end: IntArray
    done: IntArray
    number: IntArray
    text: npt.NDArray[np.object_]
    row: int
    repeats: int = 1

    @property
    def steps(self) -> int:
        return self.done.size

    def take(self, first: int, count: int) -> Found:
        """Return some of the steps."""
        names = ("begin", "end", "done", "number", "text")
        return self._replace(**{name: getattr(self, name)[first : first + count] for name in names})


def agree(found: Mapping[int, Sequence[Found]], fewest: int, captured: tuple[int, int]) -> dict[int, Found] | None:
    """Return one candidate of each task, such that all have equally many steps that overlap; None if there are none.

    `captured`: from when until when (ns) all tasks were captured.
    """
    for proposal in _propose(list(found.values()), captured):
        if len({candidate.steps for candidate in proposal}) == 1 and proposal[0].steps >= fewest and _overlap(proposal):
            return dict(zip(found, proposal, strict=True))
    return None


def _propose(found: Sequence[Sequence[Found]], captured: tuple[int, int]) -> Iterator[list[Found]]:
    """Yield one candidate of each task, the best ones first."""
    best = [candidate[0] for candidate in found]
    fewer = _LEAST_OF_BEST * min(candidate.steps for candidate in best)
    trimmed = _trim(best, captured)
    is_same = len({candidate.kind for candidate in best}) == 1 < len({candidate.steps for candidate in best})
    if trimmed and is_same:
        yield trimmed
    proposals = [*_propose_same(found), *_propose_equal(found)]
    yield from (chosen for chosen in proposals if chosen[0].steps >= fewer)
    if trimmed and not is_same:
        yield trimmed
    yield from (chosen for chosen in proposals if chosen[0].steps < fewer)


def _propose_same(found: Sequence[Sequence[Found]]) -> list[list[Found]]:
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
            *(chosen[0].kind[0], chosen[0].steps, *(-sum(each.begin[n].item() for each in chosen) for n in (1, 0))),
        ),
        reverse=True,
    )


def _propose_equal(found: Sequence[Sequence[Found]]) -> list[list[Found]]:
    """Return the best candidates with the same number of steps on all tasks, those with most steps first."""
    by_count = [{candidate.steps: candidate for candidate in reversed(candidates)} for candidates in found]
    same = set(by_count[0]).intersection(*by_count[1:])
    return [[counts[count] for counts in by_count] for count in sorted(same, reverse=True)]


def _trim(chosen: Sequence[Found], captured: tuple[int, int]) -> list[Found] | None:
    """Return candidates without steps that only some tasks have; None if all tasks were captured in the time of more
    than one of these at either end."""
    begin, done = max((candidate.begin[0], candidate.done[0]) for candidate in chosen)
    shared = [np.minimum(candidate.done, done) - np.maximum(candidate.begin, begin) for candidate in chosen]
    first = [int(np.argmax(candidate)) for candidate in shared]
    steps = min(candidate.steps - skipped for candidate, skipped in zip(chosen, first, strict=True))
    for candidate, skipped in zip(chosen, first, strict=True):
        before, after = candidate.begin[:skipped], candidate.done[skipped + steps :]
        if np.count_nonzero(before >= captured[0]) > 1 or np.count_nonzero(after <= captured[1]) > 1:
            return None
    return [candidate.take(skipped, steps) for candidate, skipped in zip(chosen, first, strict=True)]


def _overlap(chosen: Sequence[Found]) -> bool:
    """Return whether the steps of equal number overlap, from the first launch to the end of the last operation."""
    begin = np.max([candidate.begin for candidate in chosen], axis=0)
    end = np.min([np.maximum(candidate.done, candidate.end) for candidate in chosen], axis=0)
    return bool((begin < end).all())
