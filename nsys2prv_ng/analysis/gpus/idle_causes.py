"""Why GPUs were idle: where the host thread was that launched the operation at the end of each gap.

The operation that begins at the end of a gap ends it; if several begin at once, it is the one that was launched first.
If its launch call had returned before the gap began, the host was ahead and did not keep the GPU waiting. Otherwise the
gap is attributed to that thread: each part of it to the innermost NVTX push/pop range (else that of the main thread)
and the outermost call (of CUDA, MPI or the operating system) that the thread was in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.analysis.gpus.activity import Devices, Gaps
from nsys2prv_ng.analysis.host_activity import load_calls, load_thread_ranges
from nsys2prv_ng.arrays.row_keys import find_rows, mark_duplicates
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.step_functions import split_at_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.job.opened_events import ABSENT, OpenedEvents, load_opened_events, load_source_records
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.records.store import Store

HOST, QUEUED, GRAPH, UNKNOWN, CUT = "host", "queued", "graph", "unknown", "cut"
"""Causes: the thread that launched next; launched before; between nodes of a CUDA graph; no launch was recorded; the
gap goes on after the selected time. An operation launched before the selected time counts as launched before."""

KEYS = ["row", "cause", "range", "call"]
NEEDED = ("launch_lines", "cuda_api")
"""Sources without which no cause is known."""


class Host(NamedTuple):
    """The host that ended gaps: its report, the calls of CUDA in it, and the thread (place) that ended each gap."""

    report: ReportRecords
    calls: OpenedEvents
    thread: IntArray


class CausedGaps(NamedTuple):
    """Gaps with one cause; only those of HOST have a host."""

    cause: str
    gaps: Gaps
    host: Host | None = None


def assign_causes(job: Job, devices: Devices, group: Sequence[int], gaps: Gaps) -> Iterator[CausedGaps]:
    """Yield the gaps of GPUs by their causes, each gap once. `group`: the indices of all reports of the GPUs."""
    if job.windows:
        cut = np.isin(gaps.end, [high for _, high in job.windows])
        yield CausedGaps(CUT, gaps.take(np.flatnonzero(cut)))
        gaps = gaps.take(np.flatnonzero(~cut))
    begins = np.array([low for low, _ in job.windows], np.int64)
    for index in group:
        report = job.reports[index]
        calls = load_opened_events(report, "cuda_api", job.store)
        launches = find_launches(report, calls, devices.rows_of_reports[index], gaps, begins, job.store)
        ended = gaps.take(launches.gap)
        queued = launches.returned <= ended.begin
        yield CausedGaps(QUEUED, ended.take(np.flatnonzero(queued)))
        waited = np.flatnonzero(~queued)
        yield CausedGaps(HOST, ended.take(waited), Host(report, calls, launches.thread[waited]))
        gaps = gaps.take(np.setdiff1d(np.arange(gaps.row.size), launches.gap))
    for index in group:
        is_graph = _mark_ended_by_graph(job.reports[index], devices.rows_of_reports[index], gaps, job.store)
        yield CausedGaps(GRAPH, gaps.take(np.flatnonzero(is_graph)))
        gaps = gaps.take(np.flatnonzero(~is_graph))
    yield CausedGaps(UNKNOWN, gaps)


def find_causes(job: Job, devices: Devices, group: Sequence[int], gaps: Gaps) -> pd.DataFrame:
    """Sum up time `ns` and number of `gaps` by `row` of the GPU, `cause`, and for HOST `range` and `call` ("": none).

    `group`: the indices of all reports of the GPUs. A gap in several parts counts in each part.
    """
    parts = [
        _count_whole(own.gaps, own.cause) if own.host is None else _attribute_to_host(own.host, own.gaps, job.store)
        for own in assign_causes(job, devices, group, gaps)
    ]
    table: pd.DataFrame = pd.concat(parts, ignore_index=True).groupby(KEYS, as_index=False)[["ns", "gaps"]].sum()
    return table


def _count_whole(gaps: Gaps, cause: str) -> pd.DataFrame:
    return pd.DataFrame(
        {"row": gaps.row, "cause": cause, "range": "", "call": "", "ns": gaps.end - gaps.begin, "gaps": 1}
    )


_NO_CALL = np.iinfo(np.int64).max


class Launches(NamedTuple):
    """Launches of operations that ended gaps, in columns of n: gap (index), thread (place), return of the call (ns)."""

    gap: IntArray
    thread: IntArray
    returned: IntArray


def find_launches(
    report: ReportRecords, calls: OpenedEvents, gpu_of_place: IntArray, gaps: Gaps, begins: IntArray, store: Store
) -> Launches:
    """Find the first launch of what begins at the end of each gap, if the report has the launch and its call.

    `begins` of windows: the line of a launch before a window begins at the window's begin, where no call begins.
    """
    lines = load_source_records(report, "launch_lines", store)
    words = lines.first[:-1]
    gpu, start = gpu_of_place[lines.handle[words]], lines.value[words + 1]
    gap = find_rows([gaps.row, gaps.end], [gpu, start])
    rows = np.flatnonzero(gap >= 0)
    rows = rows[np.lexsort((lines.place[rows], lines.time[rows]))]
    rows = rows[~mark_duplicates(gap[rows])]
    gap, thread, sent = gap[rows], lines.place[rows].astype(np.int64), lines.time[rows]
    longest_first = np.argsort(-calls.length, kind="stable")  # if calls began at once, the outermost
    place, begin = calls.place[longest_first], calls.begin[longest_first]
    first = longest_first[~mark_duplicates(place, begin)]
    call = find_rows([calls.place[first], calls.begin[first]], [thread, sent])
    returned = np.where(np.isin(sent, begins), sent, np.append(calls.end[first], _NO_CALL)[call])
    known = np.flatnonzero(returned != _NO_CALL)
    return Launches(gap[known], thread[known], returned[known])


def _mark_ended_by_graph(report: ReportRecords, gpu_of_place: IntArray, gaps: Gaps, store: Store) -> BoolArray:
    """Mark the gaps that end with a node of a graph. (The first node of a launch has a line from it.)"""
    ended = np.zeros(gaps.row.size, np.bool_)
    for source in ("kernels", "memory_operations"):
        operations = load_opened_events(report, source, store)
        nodes = np.flatnonzero(operations.get_values(types.GRAPH_NODE_ID) != ABSENT)
        gap = find_rows([gaps.row, gaps.end], [gpu_of_place[operations.place[nodes]], operations.begin[nodes]])
        ended[gap[gap >= 0]] = True
    return ended


# ---- the host --------------------------------------------------------------------------------------------------------


def _attribute_to_host(host: Host, gaps: Gaps, store: Store) -> pd.DataFrame:
    """Attribute the parts of gaps to what the thread of each gap was in."""
    threads = np.unique(host.thread)
    ranges = load_thread_ranges(host.report, threads, store)
    calls = load_calls(host.report, host.calls, threads, store)
    parts = []
    for number in threads.tolist():
        own_gaps = np.flatnonzero(host.thread == number)
        in_ranges = split_at_steps(gaps.begin[own_gaps], gaps.end[own_gaps], ranges.steps[number])
        in_calls = split_at_steps(in_ranges.begin, in_ranges.end, calls.get_steps(number))
        parts.append(
            pd.DataFrame(
                {
                    "gap": own_gaps[in_ranges.interval[in_calls.interval]],
                    "range": in_ranges.value[in_calls.interval],
                    "call": in_calls.value,
                    "ns": in_calls.end - in_calls.begin,
                }
            )
        )
    pieces = pd.concat([pd.DataFrame(columns=["gap", "range", "call", "ns"], dtype=np.int64), *parts])
    in_gap = pieces.groupby(["gap", "range", "call"], as_index=False)["ns"].sum()
    in_gap["row"] = gaps.row[in_gap["gap"].to_numpy(np.int64)]
    table = in_gap.groupby(["row", "range", "call"], as_index=False).agg(ns=("ns", "sum"), gaps=("gap", "size"))
    for column, names in (("range", ranges.names), ("call", calls.names)):
        table[column] = [names[i] if i >= 0 else "" for i in table[column].tolist()]
    return table.assign(cause=HOST)
