"""The time of a job that the user chose: what records are cut to, and what numbers cover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.intervals.step_functions import unite_windows
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.steps.steps import Steps
from nsys2prv_ng.value_class import ValueClass


class Scope(ValueClass, frozen=True):
    """The chosen time of a job. All times are on the common clock (ns).

    - `first`, `last`: limits of the records, after they were cut.
    - `zero`: time from which the option `time` counts: the first record, before any cut.
    - `windows`: the times that records are cut to; empty if they are not cut.
    - `measured`: the times that numbers cover: `windows`, or else the chosen steps, or without a choice the steps after
      the warm-up; empty if all time counts.
    - `counted`: indices of the steps that numbers cover, ascending; None if they do not cover steps as such.
    """

    selection: Selection
    first: int
    last: int
    zero: int
    windows: list[tuple[int, int]]
    measured: list[tuple[int, int]]
    counted: IntArray | None = None

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


def find_windows(
    selection: Selection,
    ranges: Sequence[IntArray],
    steps: Steps | None,
    gpu_time: tuple[int, int] | None,
    limits: tuple[int, int],
) -> list[tuple[int, int]]:
    """Return the times to show on the common clock (ns), sorted and apart. Raises UsageError if no time is left.

    `ranges`: begin and end of the chosen NVTX ranges, n x 2 for each report. `steps`: the steps of the job, if the user
    chose some. `gpu_time`: start of the first and end of the last operation of the chosen GPUs. `limits`: first and
    last time of the trace.
    """
    low, high = _find_span(selection, steps, gpu_time, limits)
    if not selection.nvtx_range:
        return [(low, high)]
    every = np.concatenate([*ranges, np.zeros((0, 2), np.int64)])
    if not len(every):
        text = selection.nvtx_range
        hint = "" if text.endswith("*") else f"; if the texts end in numbers, try '{text}*'"
        raise UsageError(f"no NVTX range in any report has this text{hint}", parameter="nvtx_range", value=text)
    begin, end = np.clip(every, low, min(high, limits[1])).T
    windows = unite_windows(begin[end > begin], end[end > begin])
    if not windows:
        raise UsageError(
            "none of these ranges is in the chosen time", parameter="nvtx_range", value=selection.nvtx_range
        )
    return windows


def _find_span(
    selection: Selection, steps: Steps | None, gpu_time: tuple[int, int] | None, limits: tuple[int, int]
) -> tuple[int, int]:
    """Return the limits (ns) that the chosen time and the chosen steps set together."""
    first, last = limits
    low, high = selection.window or (None, None)
    low, high = (None if limit is None else first + limit for limit in (low, high))
    if selection.only_gpus:
        if gpu_time is None:
            raise UsageError("no operation of a GPU was read", parameter="time", value="gpu")
        # As for steps, 1 ns longer at both ends, so that the first and last operation do not count as cut.
        low, high = gpu_time[0] - 1, gpu_time[1] + 1
    if low is not None and low >= last:
        length = (last - first) / 1e9
        after = (low - first) / 1e9
        raise UsageError(f"starts {after:g} s into a trace that lasts {length:g} s", parameter="time")
    if selection.restricts_steps:
        begin, end = _find_step_span(selection, steps)
        begin, end = begin if low is None else max(low, begin), end if high is None else min(high, end)
        if begin >= end:
            raise UsageError("none of the chosen steps is in this time", parameter="time")
        low, high = begin, end
    return first if low is None else low, last if high is None else high


def _find_step_span(selection: Selection, steps: Steps | None) -> tuple[int, int]:
    """Return the time (ns) of the chosen steps.

    The end is 1 ns later, so that what ends with the last step does not count as cut. So is the start earlier, unless
    it is the end of the step before. Raises UsageError if there are no such steps.
    """
    first, last = choose_steps(selection, steps)
    assert steps is not None
    follows = steps.on_gpu and first > 0
    return int(steps.start[first]) - (not follows), int(steps.stop[last]) + 1


def choose_steps(selection: Selection, steps: Steps | None) -> tuple[int, int]:
    """Return the indices of the first and last chosen step; without a choice, of the steps after the warm-up.

    Raises UsageError if there are no such steps.
    """
    parameter = "skip_warmup" if selection.steps is None else "steps"
    if steps is None:
        raise UsageError(
            "no NVTX range with a number, and no sequence of kernels, shows the steps of this program;"
            " read both sources, or name its ranges",
            parameter=parameter,
            see=("step",),
        )
    low, high = selection.steps or (None, None)
    number = steps.number
    chosen = (number >= (number[0] if low is None else low)) & (number <= (number[-1] if high is None else high))
    if selection.skips_warmup or selection.steps is None:
        chosen &= np.arange(number.size) >= steps.warmup
    if not chosen.any():
        held = f"the steps of this job are {number[0]} to {number[-1]}, and {number[steps.warmup]} is the first after"
        raise UsageError(f"there is no such step; {held} the warm-up", parameter=parameter)
    first, last = np.flatnonzero(chosen)[[0, -1]].tolist()
    return first, last
