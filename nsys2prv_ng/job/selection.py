"""What of the reports the user wants in the trace: a time, ranks, GPUs, intervals of some length."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.intervals.windows import cut_to_windows
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver.model import TraceModel
from nsys2prv_ng.records.clip import clip_to_windows, drop_short_intervals
from nsys2prv_ng.records.columns import Records
from nsys2prv_ng.sources.shared.result import Result, StateIntervals

Window = tuple[int | None, int | None]

_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_MOST_NUMBERS = 10**6
_TIME = re.compile(r"(\d+)(?:\.(\d*))?(ns|us|ms|s)")


@dataclass(frozen=True)
class Selection:
    """What the user wants; what is None or empty restricts nothing.

    `window`: limits in ns from the start of the trace. `nvtx_range`: only while such a range is open on any rank (its
    times are found by the NVTX source). `shortest`: by source, intervals of less than so many ns are left out.
    """

    window: Window | None = None
    nvtx_range: str = ""
    ranks: frozenset[int] | None = None
    gpus: frozenset[int] | None = None
    shortest: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises UsageError for a window that is none."""
        low, high = self.window or (None, None)
        if (low or 0) < 0 or (high is not None and high <= (low or 0)):
            typed = ":".join("" if limit is None else f"{limit}ns" for limit in (low, high))
            raise UsageError(f"--time {typed}: FROM must be before TO, and neither before the trace")


# ---- as it is typed --------------------------------------------------------------------------------------------------


def parse_time(text: str) -> int:
    """Nanoseconds of a time with a unit, like 1.5s. Raises UsageError."""
    match = _TIME.fullmatch(text.strip())
    if not match:
        raise UsageError(f"'{text}' is no time with a unit (ns, us, ms, s), like 250ms")
    unit = _UNITS[match[3]]
    fraction = match[2] or ""
    return int(match[1]) * unit + int(fraction or 0) * unit // 10 ** len(fraction)


def parse_window(text: str) -> Window:
    """Limits of FROM:TO, either of which may be left out."""
    limits = text.split(":")
    if len(limits) != 2:
        raise UsageError(f"--time {text}: write FROM:TO with units, like 1.5s:2s, :800ms or 2s:")
    low, high = (parse_time(limit) if limit else None for limit in limits)
    return low, high


def parse_numbers(option: str, text: str) -> frozenset[int]:
    """Numbers of a list like 0-3,8."""
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise UsageError(f"{option} {text}: '{part}' is no number and no span of numbers, like 0-3,8")
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= _MOST_NUMBERS:
            raise UsageError(f"{option} {text}: '{part}' is longer than any job")
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


def parse_min_durations(texts: Iterable[str]) -> dict[str, int]:
    """Lengths by source, of SOURCE=TIME."""
    shortest = {}
    for text in texts:
        source, _, length = text.partition("=")
        if not source or not length:
            raise UsageError(f"--min-duration {text}: write SOURCE=TIME, like cuda_api=10us")
        shortest[source] = parse_time(length)
    return shortest


# ---- on what was read ------------------------------------------------------------------------------------------------


def drop_short(result: Result, shortest: int) -> None:
    """Leave out intervals that last less than `shortest` (ns); nesting and states stay as they were."""
    before = result.written
    result.records = [drop_short_intervals(records, shortest) for records in result.records]
    result.drop("shorter than --min-duration", before - result.written)


def find_windows(selection: Selection, ranges: Sequence[IntArray], first: int, last: int) -> list[tuple[int, int]]:
    """The times to show on the common clock, sorted and apart from each other. Raises UsageError where none is left.

    `ranges`: begin and end of the chosen NVTX ranges, n x 2 of each report; first and last: limits of the trace.
    """
    low, high = selection.window or (None, None)
    low = first if low is None else first + low
    high = last if high is None else first + high
    if low >= last:
        length = (last - first) / 1e9
        raise UsageError(f"--time begins {(low - first) / 1e9:g} s after the start of a trace of {length:g} s")
    if not selection.nvtx_range:
        return [(low, high)]
    every = np.concatenate([*ranges, np.zeros((0, 2), np.int64)])
    if not len(every):
        raise UsageError(
            f"--nvtx-range '{selection.nvtx_range}': no NVTX range has this text in any report; where the texts end in"
            f" numbers, try '{selection.nvtx_range}*'"
        )
    begin, end = np.clip(every[np.argsort(every[:, 0], kind="stable")], low, min(high, last)).T
    long = end > begin
    begin, end = begin[long], end[long]
    # A window begins where a range begins after all before it have ended.
    open_until = np.maximum.accumulate(end)
    starts = np.flatnonzero(np.concatenate([[True], begin[1:] > open_until[:-1]])) if begin.size else begin
    ends = np.append(starts[1:] - 1, begin.size - 1) if begin.size else begin
    return list(zip(begin[starts].tolist(), open_until[ends].tolist(), strict=True))


def cut_result(result: Result, windows: Sequence[tuple[int, int]]) -> None:
    """Cut records to windows; what lies outside is counted as dropped."""
    before = result.written
    parts: list[Records] = []
    for records in result.records:
        part, pieces = clip_to_windows(records, windows)
        parts.append(part)
        result.pieces += pieces
    result.records = parts
    result.drop("outside the chosen time", before - result.written)


def cut_states(states: StateIntervals, windows: Sequence[tuple[int, int]]) -> StateIntervals:
    """The pieces of states within windows, which are sorted and apart."""
    index, _, begin, end = cut_to_windows(states.begin, states.end, windows)
    return StateIntervals(states.place[index], begin, end, states.state[index])


# ---- on the objects --------------------------------------------------------------------------------------------------


def select_rows(tree: ObjectTree, selection: Selection) -> BoolArray:
    """Rows of the chosen ranks (with their children, and the nodes they ran on) and GPUs; UsageError if none is."""
    kept = np.ones(tree.model.row_count, np.bool_)
    if selection.ranks is not None:
        ranks = np.array([-1 if rank is None else rank for rank in tree.belongs_to], np.int64)
        wanted = np.isin(ranks, list(selection.ranks))
        nodes = {task.node for task, is_wanted in zip(tree.model.tasks, wanted, strict=True) if is_wanted}
        for i, task in enumerate(tree.model.tasks):
            wanted[i] |= tree.is_node[i] and task.node in nodes
        kept &= wanted[tree.task_of_row]
        if not kept.any():
            known = ", ".join(str(rank) for rank in sorted(set(ranks.tolist())) if rank >= 0)
            raise UsageError(f"--ranks: none of them is in the reports, which hold {known or 'no ranks'}")
    if selection.gpus is not None:
        kept &= (tree.gpu_of_row < 0) | np.isin(tree.gpu_of_row, list(selection.gpus))
        if not (kept & (tree.gpu_of_row >= 0)).any():
            known = ", ".join(map(str, sorted(set(tree.gpu_of_row[tree.gpu_of_row >= 0].tolist()))))
            raise UsageError(
                f"--gpus: none of them is in the chosen reports, which hold {f'GPU {known}' if known else 'no GPU'}"
            )
    return kept


def prune_tree(tree: ObjectTree, kept: BoolArray) -> tuple[ObjectTree, IntArray]:
    """The tree without some rows, and the new row of each old one (-1 for those left out)."""
    new_row = np.where(kept, np.cumsum(kept) - 1, -1)
    tasks = [i for i in range(len(tree.model.tasks)) if kept[tree.task_of_row == i].any()]
    nodes = sorted({tree.model.tasks[i].node for i in tasks})
    rows = []
    for i in tasks:
        of_task = kept[tree.task_of_row == i]
        names = [name for name, is_kept in zip(tree.model.tasks[i].threads, of_task, strict=True) if is_kept]
        rows.append(replace(tree.model.tasks[i], node=nodes.index(tree.model.tasks[i].node), threads=names))
    host = new_row[tree.host_rows]
    return (
        replace(
            tree,
            model=TraceModel([tree.model.nodes[node] for node in nodes], rows),
            rows=[np.where(of >= 0, new_row[of], -1) for of in tree.rows],
            host_rows=host[host >= 0],
            task_of_row=np.repeat(np.arange(len(rows)), [len(task.threads) for task in rows]),
            ranks=[tree.ranks[i] for i in tasks],
            belongs_to=[tree.belongs_to[i] for i in tasks],
            is_node=[tree.is_node[i] for i in tasks],
            gpu_of_row=tree.gpu_of_row[kept],
        ),
        new_row,
    )
