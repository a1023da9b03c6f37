"""Calls of the CUDA API by their correlation id, which names them in what they caused.

A correlation id is unique within a process only, so the key is (process, correlation id) within a report.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.report.metadata import process_of
from nsys2prv_ng.sources.base import IntArray, Reading, unsound_times
from nsys2prv_ng.sources.cuda_api import RUNTIME

TABLE = Table(RUNTIME, ("start", "end", "globalTid"), {"correlationId": NULL})

NO_CALL = "no call recorded with its correlation id"


class Calls(NamedTuple):
    """Begin and end (ns; NULL where it has none) and thread of the calls that have a correlation id."""

    key: pd.MultiIndex
    begin: IntArray
    end: IntArray
    global_tid: IntArray

    def find(self, process: IntArray, correlation: IntArray) -> IntArray:
        """Index of the call with each correlation id in each process; -1 where none was recorded."""
        call = self.key.get_indexer(pd.MultiIndex.from_arrays([process, correlation]))
        return np.where(correlation == NULL, -1, call).astype(np.int64)


def queue_delays(reading: Reading, process: IntArray, correlation: IntArray, begin: IntArray) -> IntArray:
    """Time (ns) from the end of the call that launched each kernel to its begin, as in NVIDIA's cuda_kern_exec_trace.

    NULL for a kernel that began before its call ended: it did not wait. So for one without a recorded call.
    """
    by_id = reading.once(recorded_calls)
    call = by_id.find(process, correlation)
    launched = np.where(call >= 0, by_id.end[call], NULL) if by_id.end.size else np.full(begin.size, NULL, np.int64)
    return np.where((launched != NULL) & (launched <= begin), begin - launched, NULL)


def recorded_calls(reading: Reading) -> Calls:
    """The calls of a report; call through `reading.once`."""
    columns = reading.columns(RUNTIME)
    correlation, tid, begin = columns["correlationId"], columns["globalTid"], columns["start"]
    end = columns["end"]
    # What the trace cannot show of a call is nothing to measure from; a missing end alone is no damage to its begin.
    unsound = unsound_times(begin, np.where(end == NULL, begin, end)).values()
    rows = np.flatnonzero((correlation != NULL) & (tid != NULL) & ~np.logical_or.reduce(list(unsound)))
    rows = rows[np.argsort(begin[rows], kind="stable")]
    key = pd.MultiIndex.from_arrays([process_of(tid[rows]), correlation[rows]])
    # Of calls that share an id the outermost began first.
    first = ~key.duplicated()
    rows = rows[first]
    return Calls(key[first], begin[rows], end[rows], tid[rows])
