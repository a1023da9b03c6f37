"""The time of a job that the user chose: what records are cut to, and what numbers cover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.selection import Selection, choose_steps, find_windows
from nsys2prv_ng.job.steps import Steps
from nsys2prv_ng.light_dataclass import dataclass


@dataclass(frozen=True)
class Scope:
    """The chosen time of a job. All times are on the common clock (ns)."""

    selection: Selection
    first: int
    """Limits of the records, after they were cut."""
    last: int
    zero: int
    """Time from which the option `time` counts: the first record, before any cut."""
    windows: list[tuple[int, int]]
    """The times that records are cut to; empty if they are not cut."""
    measured: list[tuple[int, int]]
    """The times that numbers cover: `windows`, or else the chosen steps, or without a choice the steps after the
    warm-up; empty if all time counts."""
    counted: IntArray | None = None
    """Indices of the steps that numbers cover, ascending; None if they do not cover steps as such."""

    @property
    def shown(self) -> list[tuple[int, int]]:
        """The windows that records are cut to, or else the limits of the records."""
        return self.windows or [(self.first, self.last)]

    @property
    def covered(self) -> list[tuple[int, int]]:
        """The times that numbers cover, or else the limits of the records."""
        return self.measured or [(self.first, self.last)]

    @property
    def origin(self) -> int:
        """Time 0 of the trace.

        If several events of a type and row are at time 0, Paraver takes only the last one. Ranges that a window cut
        would lose the ranges around them, so the trace of a window starts 1 ns before it.
        """
        return self.first - 1 if self.windows else self.first

    @property
    def duration(self) -> int:
        """Time from 0 to the last record (ns)."""
        return self.last - self.origin

    def cover_steps(self, steps: Steps, counted: IntArray) -> Scope:
        """Return the scope whose numbers cover the steps at these ascending indices only."""
        return replace(self, counted=counted, measured=steps.list_windows(counted))


def choose_scope(
    selection: Selection,
    steps: Steps | None,
    limits: tuple[int, int],
    ranges: Sequence[IntArray],
    gpu_time: tuple[int, int] | None,
) -> Scope:
    """Return the chosen time of a job. Raises UsageError if no time or no step is left.

    `limits`: first and last time of the records. `ranges`, `gpu_time`: as in `find_windows`.
    """
    first, last = limits
    if selection.cuts_records:
        windows = find_windows(selection, ranges, steps, gpu_time, limits)
        return Scope(selection, max(first, windows[0][0]), min(last, windows[-1][1]), first, windows, windows)
    scope = Scope(selection, first, last, first, [], [])
    if selection.takes_all or (steps is None and not selection.restricts_steps):
        return scope
    low, high = choose_steps(selection, steps)
    assert steps is not None
    return scope.cover_steps(steps, np.arange(low, high + 1))
