"""When each GPU was idle for which cause: the causes of analysis/gpus/idle_causes.py as pieces of time, not as sums.

The pieces of a gap follow each other without a break, so that any part of a gap has its causes to the ns. Only what the
host was in cuts a gap into several pieces: each is attributed to the innermost NVTX push/pop range of the thread, else
to that of the main thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.gpus import idle_causes
from nsys2prv_ng.analysis.gpus.activity import NO_GAPS, Devices, Gaps
from nsys2prv_ng.analysis.host_activity import load_thread_ranges
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.step_functions import NOTHING, split_at_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.records.store import Store

CAUSES = (idle_causes.HOST, idle_causes.QUEUED, idle_causes.GRAPH, idle_causes.UNKNOWN, idle_causes.CUT)
"""Names of the causes, by number."""
_HOST, _UNKNOWN = CAUSES.index(idle_causes.HOST), CAUSES.index(idle_causes.UNKNOWN)


class IdlePieces(NamedTuple):
    """n pieces of the gaps of GPUs: row of the GPU, begin and end (ns), cause and range.

    `cause` is an index into CAUSES; `range` one into `names`, NOTHING outside of all ranges and for other causes.
    """

    row: IntArray
    begin: IntArray
    end: IntArray
    cause: IntArray
    range: IntArray
    names: list[str]


_Columns = tuple[IntArray, IntArray, IntArray, IntArray, IntArray]


def split_gaps(job: Job, devices: Devices, group: Sequence[int], gaps: Gaps) -> IdlePieces:
    """Split the gaps of GPUs by their causes, into pieces in no order.

    `group`: the indices of all reports of the GPUs. Without the sources of launches no cause is known.
    """
    parts: list[_Columns] = []
    names: dict[str, int] = {}
    if any(source not in job.reports[0].results for source in idle_causes.NEEDED):
        return IdlePieces(*_keep_whole(gaps, _UNKNOWN), [])
    for own in idle_causes.assign_causes(job, devices, group, gaps):
        if own.host is None:
            parts.append(_keep_whole(own.gaps, CAUSES.index(own.cause)))
        else:
            parts.append(_split_by_range(own.host, own.gaps, names, job.store))
    row, begin, end, cause, in_range = (np.concatenate(column) for column in zip(*parts, strict=True))
    return IdlePieces(row, begin, end, cause, in_range, list(names))


def _keep_whole(gaps: Gaps, cause: int) -> _Columns:
    """Return each gap as one piece."""
    n = gaps.row.size
    return gaps.row, gaps.begin, gaps.end, np.full(n, cause, np.int64), np.full(n, NOTHING, np.int64)


def _split_by_range(host: idle_causes.Host, gaps: Gaps, names: dict[str, int], store: Store) -> _Columns:
    """Split gaps by the ranges that the thread of each was in; number new `names`."""
    threads = np.unique(host.thread)
    ranges = load_thread_ranges(host.report, threads, store)
    number = np.array([*(names.setdefault(name, len(names)) for name in ranges.names), NOTHING], np.int64)
    parts: list[_Columns] = [_keep_whole(NO_GAPS, _HOST)]
    for place in threads.tolist():
        own = gaps.take(np.flatnonzero(host.thread == place))
        pieces = split_at_steps(own.begin, own.end, ranges.steps[place])
        row, cause = own.row[pieces.interval], np.full(pieces.begin.size, _HOST, np.int64)
        parts.append((row, pieces.begin, pieces.end, cause, number[pieces.value]))
    row, begin, end, cause, in_range = (np.concatenate(column) for column in zip(*parts, strict=True))
    return row, begin, end, cause, in_range
