"""Holds what the program says of a class of bottlenecks; bottlenecks.py lists them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nsys2prv_ng.replay.changes import Change
from nsys2prv_ng.summary.answer import where
from nsys2prv_ng.summary.answer.case import Case
from nsys2prv_ng.summary.answer.where import Found
from nsys2prv_ng.summary.efficiency.numbers import Losses
from nsys2prv_ng.value_class import ValueClass


class Bottleneck(ValueClass, kw_only=True):
    """A class of bottlenecks, or a variant of one. A field that is left out does not apply to it.

    `rule`: when a job is in it, in words. `evidence`: keys of the JSON of a summary with the numbers. `applies`:
    whether a job is in it; None if what changes save, or else what is lost, decides (`bound`, `loss`). `refines`: the
    class that it is a variant of, which is asked for only if a job is in that one.

    `loss`: fields of Losses with the GPU time that is in the class. `bound`: the idealised change that removes the
    bottleneck; what.RANK stands for any one rank. `gains`: targets of the changes that count as its gains; () for none;
    None: the best change of any target. `without_kernels`: whether changes of launches, and of ranges with their
    kernels, do not count: kernels would be faster as well. `unknown`: why no replay can predict its gains.

    `sentence`: what a job is like, with the words of `answer.py`: {share} of {whole}, {in_mpi}, {worth} and {waits}.
    `worth`: what {worth} stands for, if its gain is much more than its share. `on_hosts`: a field of MpiWaits with its
    time on main threads, and its sentence, for jobs whose GPU time does not show it. `on_path`: kinds of time on the
    critical path that it can save at most, and what would save them, as a clause.

    `of_steps`: whether one or a few slow steps are the cause. `needs_host`: whether hosts limit what it can gain, so
    that GAIN names them. `overlaps`: whether its time can hide behind the rest of the time, and no further.
    `overlap_slows`: whether its hint is overlap with kernels, which NCCL's kernels slow: both need the GPU and its
    memory. `doubt`: evidence of the doubt that its title has already.
    """

    key: str
    title: str
    rule: str
    hint: str
    preset: str
    evidence: tuple[str, ...]

    applies: Callable[[Case], bool] | None = None
    refines: Bottleneck | None = None
    loss: tuple[str, ...] = ()
    bound: Change | None = None
    gains: tuple[str, ...] | None = None
    without_kernels: bool = False
    unknown: str = ""
    sentence: str = ""
    worth: str = ""
    on_hosts: tuple[str, str] | None = None
    places: Callable[[Case], Found] = where.find_none
    on_path: tuple[tuple[int, ...], str] | None = None
    of_steps: bool = False
    needs_host: bool = False
    overlaps: bool = False
    overlap_slows: bool = False
    doubt: tuple[str, ...] = ()

    def measure(self, losses: Losses) -> int:
        """Return the GPU time (ns) in the class."""
        return sum(getattr(losses, name) for name in self.loss)


def refine(whole: Bottleneck, applies: Callable[[Case], bool], **others: Any) -> Bottleneck:
    """Return a variant of a class: what differs, and when it applies."""
    return replace(whole, refines=whole, applies=applies, **others)
