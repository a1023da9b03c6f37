"""Divides the difference of two steps into parts that add up to it, to the ns.

The parts are what all GPUs did in a step (Losses in summary/efficiency/numbers.py): their means over GPUs and steps add
up to the mean step. One more row, the median less the mean, completes the sum to the median step. Without GPUs, the
parts are what main threads did. Without steps, the whole captures are divided. If a side has several captures, each of
them counts as one step: its median step, and the means of its parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from nsys2prv_ng.steps.numbered_names import OTHER_WORK
from nsys2prv_ng.summary.difference.statistics import (
    FEWEST,
    LEVEL,
    NOISE,
    Average,
    compare_ranks,
    find_average,
    find_median,
)
from nsys2prv_ng.summary.efficiency.numbers import EfficiencyNumbers, Losses, WindowEfficiency
from nsys2prv_ng.summary.efficiency.windows import COMPUTE, IN_CUDA, IN_MPI, PARTS
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.others import list_comparable
from nsys2prv_ng.summary.sums import sum_by_key
from nsys2prv_ng.text.names import USER_CODE
from nsys2prv_ng.value_class import ValueClass

HOST_BOUND = PARTS["host_ns"]
REST = "median minus mean step"
NOT_DIVIDED = "not divided into parts"
LEAST = 0.005
"""Least share of the step at which a difference is worth a row: half a percent, as docs/guides/comparing.md says."""


class Windows(NamedTuple):
    """Windows of one side: its steps, all its time as a single window, or for several captures one for each.

    `ns`: time of each (n). `unit`: what the parts are times of: "GPU", "main thread", or "" without parts. `units`: the
    number of GPUs or main threads that the parts cover. `parts`: time of all units in each window (n), by part. They
    add up to `ns` times `units`.
    """

    ns: list[int]
    unit: str
    units: int
    parts: list[dict[str, int]]


def list_windows(summary: JobSummary, *, by_step: bool, size: int = 1) -> Windows:
    """Return the steps of a summary, or all the time in which GPUs work, with their parts.

    `size`: how many steps that follow each other are one window.
    """
    efficiency = summary.efficiency
    if efficiency is None:
        return Windows([summary.duration_ns], "", 1, [{}])
    windows: Sequence[WindowEfficiency] = efficiency.steps if by_step else [_find_work(summary, efficiency)]
    ns = [window.length_ns for window in windows]
    losses = [window.losses for window in windows if window.losses is not None]
    if len(losses) == len(windows) and losses[0].devices:
        found = Windows(ns, "GPU", losses[0].devices, [_divide_gpu(window_losses) for window_losses in losses])
    elif all(window.nccl_as_communication.host is not None for window in windows):
        found = Windows(ns, "main thread", 1, [_divide_thread(window) for window in windows])
    else:
        found = Windows(ns, "", 1, [{} for _ in ns])
    groups = group_steps(summary, size) if by_step else []
    if len(groups) in (0, len(ns)):
        return found
    parts = [dict(sum_by_key(item for n in group for item in found.parts[n].items())) for group in groups]
    return found._replace(ns=[sum(ns[n] for n in group) for group in groups], parts=parts)


def group_steps(summary: JobSummary, size: int = 1) -> list[range]:
    """Return the indices of each `size` steps after the warm-up, without the last ones if they are too few.

    Other work than that of steps belongs to the step before it, or to the first step.
    """
    kinds = [] if summary.efficiency is None else [step.kind for step in summary.efficiency.steps]
    starts = [n for n, kind in enumerate(kinds) if kind != OTHER_WORK]
    limits = [0, *starts[size::size], *([len(kinds)] if starts and len(starts) % size == 0 else [])]
    return [range(first, after) for first, after in itertools.pairwise(limits)]


def _find_work(summary: JobSummary, efficiency: EfficiencyNumbers) -> WindowEfficiency:
    """Return the time from the first GPU operation to the last of a job without steps, unless the user chose a time."""
    work, losses = summary.gpu_time_ns, efficiency.losses
    if efficiency.in_work is not None or work is None or losses is None or efficiency.is_chosen or summary.windows_ns:
        return efficiency.in_work or efficiency
    (first, last), (begin, end) = work, efficiency.windows_ns[0] if len(efficiency.windows_ns) == 1 else (0, 0)
    if not begin <= first < last <= end:
        return efficiency
    before, after = losses.devices * (first - begin), losses.devices * (end - last)
    shorter = replace(
        losses, before_first_ns=losses.before_first_ns - before, after_last_ns=losses.after_last_ns - after
    )
    return replace(efficiency, length_ns=last - first, losses=shorter)


def list_captures(summaries: Sequence[JobSummary], *, by_step: bool, size: int = 1) -> Windows:
    """Return a window for each capture: its median step with the means of its parts, or all of its time."""
    captures = [list_windows(summary, by_step=by_step, size=size) for summary in summaries]
    ns = [find_median(capture.ns) for capture in captures]
    if len({(capture.unit, capture.units) for capture in captures}) > 1:  # captures of different sizes
        return Windows(ns, "", 1, [{} for _ in ns])
    return Windows(ns, captures[0].unit, captures[0].units, [_average(capture.parts) for capture in captures])


def _average(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the mean of each part."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: round(sum(part.get(name, 0) for part in parts) / len(parts)) for name in names}


def _divide_gpu(losses: Losses) -> dict[str, int]:
    by_class = losses.compute_by_class
    compute = {f"{COMPUTE}: {name}": ns for name, ns in by_class.items()} if by_class else {COMPUTE: losses.compute_ns}
    return {**compute, **{text: getattr(losses, name) for name, text in PARTS.items()}}


def _divide_thread(window: WindowEfficiency) -> dict[str, int]:
    """Return the parts of the mean main thread; its efficiencies are shares of the window."""
    host = window.nccl_as_communication.host
    assert host is not None
    outside_mpi, useful = (round(part * window.length_ns) for part in (host.mpi_parallel, host.parallel))
    return {USER_CODE: useful, IN_CUDA: outside_mpi - useful, IN_MPI: window.length_ns - outside_mpi}


def make_budget(a: Windows, b: Windows, average: Average = "median") -> list[BudgetRow]:
    """Return the parts of both sides, the largest difference first, and the average less the mean as the last row."""
    if a.unit != b.unit:
        a, b = (side._replace(parts=[{} for _ in side.ns]) for side in (a, b))
    if any(COMPUTE in part for side in (a, b) for part in side.parts):  # a side does not divide compute into classes
        a, b = (side._replace(parts=[_join_compute(part) for part in side.parts]) for side in (a, b))
    median, other = (find_average(side.ns, average) for side in (a, b))
    names = list(dict.fromkeys(name for side in (a, b) for part in side.parts for name in part))
    rows = [row for row in (_make_row(name, a, b, median) for name in names) if row.a_ns or row.b_ns]
    rows.sort(key=lambda row: -abs(row.difference_ns))
    rest_a, rest_b = median - sum(row.a_ns for row in rows), other - sum(row.b_ns for row in rows)
    change = rest_b - rest_a
    is_median = average == "median" and max(len(a.ns), len(b.ns)) > 1
    name = NOT_DIVIDED if not rows else REST if is_median else "rounding"
    return [*rows, BudgetRow(name, rest_a, rest_b, change, None, abs(change) >= NOISE * median)]


def _join_compute(parts: Mapping[str, int]) -> dict[str, int]:
    """Return the parts with all classes of compute as one."""
    return sum_by_key((COMPUTE if name.startswith(COMPUTE) else name, ns) for name, ns in parts.items())


def _make_row(name: str, a: Windows, b: Windows, median: int) -> BudgetRow:
    """Return a row. It differs if a rank test over windows is significant and the difference is worth a row.

    With too few windows for a test, the difference must exceed the noise between two captures of a program.
    """
    a_ns, b_ns = ([part.get(name, 0) for part in side.parts] for side in (a, b))
    mean_a, mean_b = round(sum(a_ns) / (len(a_ns) * a.units)), round(sum(b_ns) / (len(b_ns) * b.units))
    change = mean_b - mean_a
    if min(len(a_ns), len(b_ns)) < FEWEST:
        return BudgetRow(name, mean_a, mean_b, change, None, abs(change) >= NOISE * median)
    p = compare_ranks([ns / a.units for ns in a_ns], [ns / b.units for ns in b_ns])
    return BudgetRow(name, mean_a, mean_b, change, p, p < LEVEL and abs(change) >= LEAST * median)


def find_cause(
    a: JobSummary, b: JobSummary, rows: Sequence[BudgetRow], *, by_step: bool, sizes: tuple[int, int] = (1, 1)
) -> str:
    """Return the NVTX range with most of the difference in host-bound time; "" if no range has most of it.

    `sizes`: how many steps of each side are compared as one.
    """
    late = next((row.difference_ns for row in rows if row.name == HOST_BOUND), 0)
    if not late:
        return ""
    before, after = (_list_ranges(*side, by_step=by_step) for side in zip((a, b), sizes, strict=True))
    change = {name: after.get(name, 0) - before.get(name, 0) for name in list_comparable(before, after)}
    largest = max(sorted(change), key=lambda name: change[name] / late, default="")
    return largest if 2 * change.get(largest, 0) / late >= 1 else ""


def _list_ranges(summary: JobSummary, size: int, *, by_step: bool) -> dict[str, float]:
    """Return the host-bound time of each NVTX range, per `size` steps and GPU."""
    efficiency = summary.efficiency
    window = None if efficiency is None else efficiency.in_steps if by_step else efficiency
    if window is None or window.losses is None or efficiency is None:
        return {}
    windows = len(efficiency.steps) / size if by_step else 1
    return {idle.range: idle.ns / (windows * window.losses.devices) for idle in window.losses.idle_by_range}


class BudgetRow(ValueClass):
    """A part of the step, or of the capture: its mean over steps and over GPUs."""

    name: str
    a_ns: int
    b_ns: int
    difference_ns: int
    p: float | None
    """p of the rank test over the samples; None for less than four a side, and for rows that single samples lack."""
    differs: bool
    """Whether the part differs by more than noise."""
