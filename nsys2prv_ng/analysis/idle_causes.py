"""Why GPUs were idle: where the host thread was that launched what ended each gap.

A gap is ended by the operation that begins then; of several at once by the one that was launched first. If its launch
call had returned before the gap began, the host was ahead and did not keep the GPU waiting. Else the gap is that
thread's: each part of it goes to the innermost NVTX push/pop range and the outermost call (of CUDA, MPI or the
operating system) that the thread was in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.analysis.gpu_activity import Devices, Gaps
from nsys2prv_ng.analysis.opened_events import ABSENT, OpenedEvents, load_opened_events, load_source_records
from nsys2prv_ng.arrays.row_keys import find_rows, mark_duplicates
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.states import FlatStates, flatten, flatten_innermost
from nsys2prv_ng.intervals.step_functions import StepFunction, make_steps, split_at_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.records.store import Store

HOST, QUEUED, GRAPH, UNKNOWN, CUT = "host", "queued", "graph", "unknown", "cut"
"""Causes: the thread that launched next; launched before; between nodes of a CUDA graph; no launch was recorded; the
gap goes on after the chosen time. What was launched before the chosen time counts as launched before."""

KEYS = ["row", "cause", "range", "call"]
NEEDED = ("launch_lines", "cuda_api")
"""Sources without which nothing is known of any cause."""


def find_causes(job: Job, devices: Devices, group: Sequence[int], gaps: Gaps) -> pd.DataFrame:
    """Time `ns` and number of `gaps` by `row` of the GPU, `cause`, and for HOST by `range` and `call` ("" for none).

    `group`: all reports, by index, of the GPUs. A gap in several parts counts in each.
    """
    parts = []
    if job.windows:
        cut = np.isin(gaps.end, [high for _, high in job.windows])
        parts.append(_count_whole(gaps.take(np.flatnonzero(cut)), CUT))
        gaps = gaps.take(np.flatnonzero(~cut))
    for index in group:
        report = job.reports[index]
        calls = load_opened_events(report, "cuda_api", job.store)
        begins = np.array([low for low, _ in job.windows], np.int64)
        launches = _find_launches(report, calls, devices.rows_of_reports[index], gaps, begins, job.store)
        ended = gaps.take(launches.gap)
        queued = launches.returned <= ended.begin
        parts.append(_count_whole(ended.take(np.flatnonzero(queued)), QUEUED))
        waited = np.flatnonzero(~queued)
        parts.append(_attribute_to_host(report, calls, ended.take(waited), launches.thread[waited], job.store))
        gaps = gaps.take(np.setdiff1d(np.arange(gaps.row.size), launches.gap))
    for index in group:
        of_graph = _mark_ended_by_graph(job.reports[index], devices.rows_of_reports[index], gaps, job.store)
        parts.append(_count_whole(gaps.take(np.flatnonzero(of_graph)), GRAPH))
        gaps = gaps.take(np.flatnonzero(~of_graph))
    parts.append(_count_whole(gaps, UNKNOWN))
    table: pd.DataFrame = pd.concat(parts, ignore_index=True).groupby(KEYS, as_index=False)[["ns", "gaps"]].sum()
    return table


def _count_whole(gaps: Gaps, cause: str) -> pd.DataFrame:
    return pd.DataFrame(
        {"row": gaps.row, "cause": cause, "range": "", "call": "", "ns": gaps.end - gaps.begin, "gaps": 1}
    )


_NO_CALL = np.iinfo(np.int64).max


class _Launches(NamedTuple):
    """Launches of what ended gaps, of n: index of the gap, place of the thread, when the call returned (ns)."""

    gap: IntArray
    thread: IntArray
    returned: IntArray


def _find_launches(
    report: ReportRecords, calls: OpenedEvents, gpu_of_place: IntArray, gaps: Gaps, begins: IntArray, store: Store
) -> _Launches:
    """The first launch of what begins at the end of each gap, where a report has it and its call.

    `begins` of windows: a line from a launch before one begins there, where the call is not.
    """
    lines = load_source_records(report, "launch_lines", store)
    words = lines.first[:-1]
    gpu, start = gpu_of_place[lines.handle[words]], lines.value[words + 1]
    gap = find_rows([gaps.row, gaps.end], [gpu, start])
    rows = np.flatnonzero(gap >= 0)
    rows = rows[np.lexsort((lines.place[rows], lines.time[rows]))]
    rows = rows[~mark_duplicates(gap[rows])]
    gap, thread, sent = gap[rows], lines.place[rows].astype(np.int64), lines.time[rows]
    longest_first = np.argsort(-calls.length, kind="stable")  # of calls that began at once the outermost
    place, begin = calls.place[longest_first], calls.begin[longest_first]
    first = longest_first[~mark_duplicates(place, begin)]
    call = find_rows([calls.place[first], calls.begin[first]], [thread, sent])
    returned = np.where(np.isin(sent, begins), sent, np.append(calls.end[first], _NO_CALL)[call])
    known = np.flatnonzero(returned != _NO_CALL)
    return _Launches(gap[known], thread[known], returned[known])


def _mark_ended_by_graph(report: ReportRecords, gpu_of_place: IntArray, gaps: Gaps, store: Store) -> BoolArray:
    """Whether each gap ends with a node of a graph. (The first one of a launch has a line from it.)"""
    ended = np.zeros(gaps.row.size, np.bool_)
    for source in ("kernels", "memory_operations"):
        found = load_opened_events(report, source, store)
        nodes = np.flatnonzero(found.values(types.GRAPH_NODE_ID) != ABSENT)
        gap = find_rows([gaps.row, gaps.end], [gpu_of_place[found.place[nodes]], found.begin[nodes]])
        ended[gap[gap >= 0]] = True
    return ended


# ---- the host --------------------------------------------------------------------------------------------------------


class _Layer(NamedTuple):
    """What threads were in, one thing at a time, and the names of it."""

    flat: FlatStates
    names: list[str]

    def of(self, thread: int) -> StepFunction:
        low, high = np.searchsorted(self.flat.row, [thread, thread + 1])
        return make_steps(self.flat.begin[low:high], self.flat.end[low:high], self.flat.state[low:high])


def _attribute_to_host(
    report: ReportRecords, cuda: OpenedEvents, gaps: Gaps, thread: IntArray, store: Store
) -> pd.DataFrame:
    """Parts of the gaps by what the thread of each was in."""
    threads = np.unique(thread)
    ranges, calls = _load_ranges(report, threads, store), _load_calls(report, cuda, threads, store)
    parts = []
    for each in threads.tolist():
        mine = np.flatnonzero(thread == each)
        of_range = split_at_steps(gaps.begin[mine], gaps.end[mine], ranges.of(each))
        of_call = split_at_steps(of_range.begin, of_range.end, calls.of(each))
        parts.append(
            pd.DataFrame(
                {
                    "gap": mine[of_range.of[of_call.of]],
                    "range": of_range.value[of_call.of],
                    "call": of_call.value,
                    "ns": of_call.end - of_call.begin,
                }
            )
        )
    pieces = pd.concat([pd.DataFrame(columns=["gap", "range", "call", "ns"], dtype=np.int64), *parts])
    in_gap = pieces.groupby(["gap", "range", "call"], as_index=False)["ns"].sum()
    in_gap["row"] = gaps.row[in_gap["gap"].to_numpy(np.int64)]
    found = in_gap.groupby(["row", "range", "call"], as_index=False).agg(ns=("ns", "sum"), gaps=("gap", "size"))
    for column, names in (("range", ranges.names), ("call", calls.names)):
        found[column] = [names[i] if i >= 0 else "" for i in found[column].tolist()]
    return found.assign(cause=HOST)


def _load_ranges(report: ReportRecords, threads: IntArray, store: Store) -> _Layer:
    found = load_opened_events(report, "nvtx", store)
    push_pop = [each for each in found.types("nvtx") if each.number == families.make_nvtx_range("").number]
    intervals, names = _collect_intervals([(found, push_pop)], threads)
    return _Layer(flatten_innermost(*intervals), names)


def _load_calls(report: ReportRecords, cuda: OpenedEvents, threads: IntArray, store: Store) -> _Layer:
    parts: list[tuple[OpenedEvents, list[EventType]]] = [
        (cuda, [types.CUDA_API]),
        (load_opened_events(report, "mpi", store), list(types.MPI_CALLS.values())),
        (load_opened_events(report, "os_runtime", store), [types.OS_RUNTIME, types.PTHREAD]),
    ]
    intervals, names = _collect_intervals(parts, threads)
    return _Layer(flatten(*intervals), names)


def _collect_intervals(
    parts: Iterable[tuple[OpenedEvents, Sequence[EventType]]], threads: IntArray
) -> tuple[tuple[IntArray, IntArray, IntArray, IntArray], list[str]]:
    """(place, begin, end, index of the name) of the intervals of some types on some threads, and the names."""
    names: list[str] = []
    columns: list[tuple[IntArray, ...]] = []
    for found, event_types in parts:
        on_threads = np.isin(found.place, threads)
        for event_type in event_types:
            value = found.values(event_type)
            lines = np.flatnonzero(on_threads & (value != ABSENT))
            known = found.names(event_type)
            index = np.full(max(known, default=0) + 1, -1, np.int64)
            index[list(known)] = len(names) + np.arange(len(known))
            names += [shorten_range_name(event_type.member, name) for name in known.values()]
            columns.append((found.place[lines], found.begin[lines], found.end[lines], index[value[lines]]))
    place, begin, end, index = (
        (np.concatenate(column) for column in zip(*columns, strict=True)) if columns else _NO_INTERVALS
    )
    return (place, begin, end, index), names


_NO_INTERVALS = tuple(np.zeros(0, np.int64) for _ in range(4))


def shorten_range_name(domain: str, name: str) -> str:
    """A range with its domain, as in NVIDIA's tables; those of the default domain and all calls by their name."""
    return f"{domain}:{name}" if domain else name
