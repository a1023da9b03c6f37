"""Declares the remedies: what to try, when it applies, what a replay changes for it, and the line of TRY with its code.

A remedy needs evidence in the reports. Its section in docs/guides/remedies.md has the code before and after, and what
it saved in programs whose cause is known. GAIN and TRY list remedies in one order: those with a prediction before those
with a bound, the largest saving first.
"""

from __future__ import annotations

from collections.abc import Callable

from nsys2prv_ng.replay.changes import Change
from nsys2prv_ng.replay.numbers import Scenario
from nsys2prv_ng.summary.answer import rules
from nsys2prv_ng.summary.answer.case import COPY_BOUND, HOST_BOUND, LEAST, Case, is_worth
from nsys2prv_ng.value_class import ValueClass

_MOST = 3
"""Most remedies of an answer: one line each."""


class Remedy(ValueClass, kw_only=True, frozen=True):
    """Something to try.

    `key`: its section in docs/guides/remedies.md. `title`: what it is, as a noun, for GAIN. `hint`: the line of TRY,
    with the code. `applies`: whether reports show what it removes; it is asked only if its changes, if any, save
    something.

    `changes`: what a replay changes for it, with factors that were measured; () if none can tell. `is_bound`: whether
    it saves at most as much. `measure_idle`: without changes, the idle time of GPUs (ns, over all GPUs) that it can
    remove.
    """

    key: str
    title: str
    hint: str
    applies: Callable[[Case], bool]
    changes: tuple[Change, ...] = ()
    is_bound: bool = False
    measure_idle: Callable[[Case], int] | None = None


class Tried(ValueClass):
    """A remedy that applies, and what it saves of a step: as a share, and in ns (None without a replay)."""

    remedy: Remedy
    share: float
    saving_ns: int | None
    is_bound: bool
    scenario: Scenario | None = None


REMEDIES = (
    Remedy(
        key="cuda-graphs",
        title="CUDA graphs",
        hint="launch less: CUDA graphs (torch.compile(mode='reduce-overhead')), larger kernels, larger batches",
        applies=rules.launches,
        changes=(HOST_BOUND,),
        is_bound=True,
    ),
    Remedy(
        key="stay-on-device",
        title="arrays that stay on the GPU",
        hint="the same arrays go to the GPU and back: keep them there (cuda.to_device, cupy.asarray, .to('cuda'))",
        applies=rules.copies_to_and_fro,
        changes=(COPY_BOUND,),
        is_bound=True,
    ),
    Remedy(
        key="pinned-copies",
        title="pinned memory and copies that overlap",
        hint="pin_memory=True and .to('cuda', non_blocking=True); cudaMallocHost, cudaMemcpyAsync on a second stream",
        applies=lambda case: rules.copies_pageable(case) and not rules.copies_to_and_fro(case),
        changes=(COPY_BOUND,),
        is_bound=True,
    ),
)
"""All remedies."""


def list_proposed() -> list[tuple[Change, ...]]:
    """Return the changes that a replay tries for remedies."""
    return [each.changes for each in REMEDIES if each.changes]


def list_remedies(case: Case) -> list[Tried]:
    """Return the remedies for which there is evidence, and that save enough, the largest saving first, bounds last."""
    found = [tried for each in REMEDIES for tried in _try(case, each) if tried.share >= LEAST]
    return sorted(found, key=lambda tried: (tried.is_bound, -tried.share))[:_MOST]


def _try(case: Case, remedy: Remedy) -> list[Tried]:
    """Return what a remedy saves; [] if it does not apply, or saves nothing measurable."""
    if remedy.changes:
        scenario = next((each for each in case.scenarios if each.changes == remedy.changes), None)
        if scenario is None or not is_worth(scenario) or not remedy.applies(case):
            return []
        return [Tried(remedy, scenario.share, scenario.saving_ns, remedy.is_bound, scenario)]
    if remedy.measure_idle is None or not case.gpu_ns or not remedy.applies(case):
        return []
    share, numbers = remedy.measure_idle(case) / case.gpu_ns, case.summary.what_if
    return [Tried(remedy, share, None if numbers is None else round(share * numbers.step_ns), True)]
