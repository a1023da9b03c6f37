"""Chooses the steps to replay of a job that is too large to be replayed as a whole: an excerpt.

An excerpt has consecutive steps that count, as many as the limit allows, with a mean length near the median step. A few
steps before them (the lead-in) are replayed too, but not counted: they show what the first one follows. What starts
after the last step has no influence on it, so that it is not needed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.path.critical_path import PATH_SOURCES, count_lane_events
from nsys2prv_ng.analysis.path.streams import Span
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.counted import list_counted
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.runs import load_times
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.replay.numbers import Replayed
from nsys2prv_ng.steps.steps import Steps

MOST = 8_000_000
"""Most operations and calls to replay: each takes about 450 bytes, with two changes that are played at once."""
_LEADS = (2, 1)
"""Numbers of steps of a lead-in, the best first. Without one, predictions for real captures were wrong by up to 40%."""


class Excerpt(NamedTuple):
    """A job whose steps are only those of the excerpt, and the span of time (ns) to load."""

    job: Job
    span: Span
    lengths: IntArray
    """Lengths (ns) of all steps of the whole job that count."""
    replayed: Replayed | None
    """Which steps were chosen; None if these are all that count, because the user chose few."""


def is_too_large(job: Job) -> bool:
    """Return whether a job has too many operations and calls to be replayed as a whole."""
    return count_lane_events(job) > MOST


def choose_excerpt(job: Job) -> Excerpt | None:
    """Return an excerpt of a job; None without steps, or if even one step with its lead-in is too large."""
    steps = job.steps
    counted = np.zeros(0, np.int64) if steps is None else list_counted(job, steps)
    if steps is None or not counted.size:
        return None
    lows, highs = _find_limits(steps)
    before_low, before_high = np.split(_count_before(job, np.append(lows, highs)), 2)
    for lead in _LEADS:
        chosen = _choose_run(steps, counted, before_low, before_high, lead)
        if chosen is not None:
            break
    else:
        return None
    first, last = chosen
    opens = max(first - lead, 0)
    base = max(opens - 1, 0)  # the first step starts when the step before it ends
    lengths = (steps.stop - steps.start)[counted]
    replayed = None
    if last - first + 1 < counted.size:
        numbers = int(steps.number[first]), int(steps.number[last])
        replayed = Replayed(steps=numbers, of_steps=counted.size, of_operations=count_lane_events(job))
    scope = replace(job.scope, counted=np.arange(first, last + 1) - base)
    part = replace(job, steps=steps.take(np.arange(base, last + 1)), scope=scope)
    return Excerpt(part, (int(lows[opens]), int(highs[last])), lengths, replayed)


def _find_limits(steps: Steps) -> tuple[IntArray, IntArray]:
    """Return the first and last time (m, ns) that each step depends on, both ascending.

    The first one includes the end of the step before on each task.
    """
    low, high = np.full(steps.number.size, np.iinfo(np.int64).max), steps.stop.copy()
    np.minimum.at(low, steps.step, steps.host_begin)
    np.maximum.at(high, steps.step, steps.host_end)
    later = steps.step + 1 < low.size
    np.minimum.at(low, steps.step[later] + 1, steps.end[later])
    return np.minimum.accumulate(low[::-1])[::-1], np.maximum.accumulate(high)


def _count_before(job: Job, times: IntArray) -> IntArray:
    """Return the number of operations and calls of a job before each time (n, ns)."""
    store = job.store
    counts = job.engine.map(lambda report: _count_in_report(report, times, store), job.reports)
    return np.sum(list(counts), axis=0, dtype=np.int64) // 2  # each has a line for its start and one for its end


def _count_in_report(report: ReportRecords, times: IntArray, store: Store) -> IntArray:
    """Return the number of lines of operations and calls of a report before each time (n, ns)."""
    total = np.zeros(times.size, np.int64)
    for run in report.runs(PATH_SOURCES):
        own = load_times(run, store)
        total += np.searchsorted(own if run.on_common_clock else report.clock(own), times)
    return total


def _choose_run(
    steps: Steps, counted: IntArray, before_low: IntArray, before_high: IntArray, lead: int
) -> tuple[int, int] | None:
    """Return the first and last step of the excerpt with a lead-in of some steps; None if the lead-in is longer.

    `counted`: the steps that count. `before_low`, `before_high`: operations and calls before the limits of each step.
    """
    at = np.arange(counted.size)
    most = before_low[np.maximum(counted - lead, 0)] + MOST
    last = np.searchsorted(before_high[counted], most, "right") - 1
    gaps = counted - at  # constant while steps follow each other
    last = np.minimum(last, np.searchsorted(gaps, gaps, "right") - 1)
    count = last - at + 1
    # A run that ends where the one before it does is only a part of that one.
    longest = np.flatnonzero((count >= lead) & np.append(True, last[1:] > last[:-1]))
    if not longest.size:
        return None
    longest = longest[count[longest] >= np.median(count[longest])]
    lengths = (steps.stop - steps.start)[counted]
    sums = np.append(0, np.cumsum(lengths))
    mean = (sums[last[longest] + 1] - sums[longest]) / count[longest]
    best = longest[np.argmin(np.abs(mean - np.median(lengths)))]
    return int(counted[best]), int(counted[last[best]])
