"""NCCL's calls in a report: ranges of NVTX's domain NCCL, with what their payloads say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.lanes import mark_crossing
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.report.nvtx_payload import SCHEMAS
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.sources.nccl import payload as nccl_payload
from nsys2prv_ng.sources.nccl.payload import Payloads
from nsys2prv_ng.sources.nvtx.events import NVTX, PUSH_POP, read_nvtx_events
from nsys2prv_ng.sources.shared.reasons import NO_THREAD, OVERLAPS_CALL, find_unsound_times
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import NO_END, Result

SEND, RECEIVE = "ncclSend", "ncclRecv"
COLLECTIVES = frozenset(
    "nccl" + name
    for name in (
        *("AllReduce", "AllGather", "ReduceScatter", "Reduce", "Broadcast", "Bcast", "AlltoAll", "Gather", "Scatter"),
    )
)
_COMMUNICATING = COLLECTIVES | {SEND, RECEIVE, "ncclPutSignal", "ncclSignal", "ncclWaitSignal"}
"""Calls to which every version of NCCL that has payloads gives one."""
COMMUNICATING = re.compile("|".join(sorted(_COMMUNICATING)))

_DOMAIN_CREATE = 75
_DOMAIN = "NCCL"

_NO_PAYLOAD = "call without payload: the export has none"
_NO_BLOBS = "call without payload: the export has none, make it with nsys export --include-blobs=true"
_NOT_UNDERSTOOD = "call with a payload that is not understood"


class NcclRanges(NamedTuple):
    """NCCL's calls of n, by thread, begin, and end with the outer first: those of a thread nest. Times in ns."""

    global_tid: IntArray
    begin: IntArray
    end: IntArray
    name: IntArray
    """Index into the names of `Calls`."""

    def take(self, rows: IntArray) -> NcclRanges:
        return NcclRanges(*(column[rows] for column in self))


@dataclass(frozen=True)
class NcclCalls:
    """NCCL's calls in a report, those that only make up groups among them."""

    ranges: NcclRanges
    names: list[str]
    launch: IntArray
    """Number of the launch that each belongs to: one for each group, and one for each call outside of any."""
    shown: IntArray
    """Indices of the calls that have a payload that is understood."""
    payload: Payloads
    """Payloads of the shown calls."""


def read_calls(reader: ReportReader, result: Result) -> NcclCalls:
    """NCCL's calls that have a thread and sound times and nest.

    `result` counts as read those that move data or have a payload, and as dropped those of them that are not shown.
    """
    columns = reader.columns(NVTX)
    rows, name, names = _rows(reader)
    payload = nccl_payload.read_payloads(reader, rows)
    counted = payload.given | np.array([each in _COMMUNICATING for each in names], np.bool_)[name]
    result.read += int(counted.sum())

    tid, begin, end = (columns[column][rows] for column in ("globalTid", "start", "end"))
    no_thread = tid == NULL
    reasons = {NO_THREAD: no_thread}
    known_end = np.where(end == NULL, np.maximum(begin, 1), end)
    end = np.where(end == NULL, NO_END, end)
    reasons |= {reason: mask & ~no_thread for reason, mask in find_unsound_times(begin, known_end).items()}
    sound = np.flatnonzero(~np.logical_or.reduce(list(reasons.values())))
    crosses = np.zeros(rows.size, np.bool_)
    crosses[sound] = mark_crossing(tid[sound], begin[sound], end[sound])
    reasons[OVERLAPS_CALL] = crosses
    left = ~np.logical_or.reduce(list(reasons.values()))
    no_blobs = reader.has(SCHEMAS.name)
    reasons[_NO_BLOBS if no_blobs else _NO_PAYLOAD] = left & ~payload.given
    reasons[_NOT_UNDERSTOOD] = left & payload.given & ~payload.understood
    for reason, mask in reasons.items():
        result.drop(reason, int((mask & counted).sum()))

    kept = np.flatnonzero(left)
    kept = kept[np.lexsort((-end[kept], begin[kept], tid[kept]))]
    ranges = NcclRanges(tid[kept], begin[kept], end[kept], name[kept])
    shown = np.flatnonzero(payload.understood[kept])
    return NcclCalls(ranges, names, _launches(ranges, names), shown, payload.take(kept[shown]))


def _rows(reader: ReportReader) -> tuple[IntArray, IntArray, list[str]]:
    """(rows of NCCL's calls, index of each into the names, names).

    NCCL's domain is found by its name or, where a capture began after it was made, by names that begin with nccl.
    """
    columns, texts = reader.columns(NVTX), reader.once(read_nvtx_events).texts
    kind, domain, process = columns["eventType"], columns["domainId"], get_process(columns["globalTid"])
    created = np.flatnonzero(kind == _DOMAIN_CREATE)
    name_of = {(int(process[row]), int(domain[row])): texts.text(int(row)) for row in created}

    rows = np.flatnonzero(np.isin(kind, PUSH_POP) & (domain != 0))
    codes, domains = find_distinct_rows(process[rows], domain[rows])
    may_be = [(name_of.get((p, d)) or _DOMAIN) == _DOMAIN for p, d in domains]
    rows = rows[np.array(may_be, np.bool_)[codes]]
    index = texts.name_index[texts.index[rows]]
    is_call = np.array([(name or "").startswith("nccl") for name in texts.names], np.bool_)[index]
    return rows[is_call], index[is_call], texts.names


def _launches(ranges: NcclRanges, names: list[str]) -> IntArray:
    role = np.array([{"ncclGroupStart": 1, "ncclGroupEnd": -1}.get(name, 0) for name in names], np.int64)
    return np.asarray(_number_launches(ranges.global_tid, role[ranges.name]), np.int64)


@compiled
def _number_launches(tid, step):  # type: ignore[no-untyped-def]
    """Groups nest: one is from the outermost start (step 1) of a thread to its end (step -1)."""
    launch = np.empty(tid.size, np.int64)
    depth, count = 0, 0
    for i in range(tid.size):
        if i == 0 or tid[i] != tid[i - 1]:
            depth = 0
        if depth == 0:
            count += 1
        launch[i] = count - 1
        depth = max(depth + step[i], 0)
    return launch
