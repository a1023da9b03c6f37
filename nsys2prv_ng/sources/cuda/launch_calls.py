"""Finds CUDA API calls by their correlation id, with which operations name the call that launched them.

A correlation id is unique within a process only. So the key within a report is (process, correlation id).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays import row_keys as keys
from nsys2prv_ng.arrays.pick import pick
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.sources.cuda.cuda_api import RUNTIME
from nsys2prv_ng.sources.cuda.device_operations import KERNEL, locate
from nsys2prv_ng.sources.shared.reasons import find_unsound_times
from nsys2prv_ng.sources.shared.report_reader import ReportReader

TABLE = Table(RUNTIME, ("start", "end", "globalTid"), {"correlationId": NULL})


class LaunchCalls(NamedTuple):
    """n calls with a correlation id: process, id, start, end (ns; NULL if a call has no end) and thread."""

    process: IntArray
    correlation: IntArray
    begin: IntArray
    end: IntArray
    global_tid: IntArray

    def find(self, process: IntArray, correlation: IntArray) -> IntArray:
        """Return the index of the call for each pair of process and correlation id; -1 if no call was recorded."""
        return keys.find_rows([self.process, self.correlation], [process, correlation])


def find_launches(reader: ReportReader) -> IntArray:
    """Return the index of the call that launched each device operation, or -1. Call it through `reader.once`."""
    operations = reader.once(locate)
    process, correlation = operations.stack("globalPid"), operations.stack("correlationId")
    return reader.once(read_recorded_calls).find(get_process(process), correlation)


def compute_queue_delays(reader: ReportReader, rows: IntArray) -> IntArray:
    """Return the time (ns) from the end of the call that launched each kernel (a row) to the kernel's start.

    This is the definition of NVIDIA's cuda_kern_exec_trace. The time is NULL for a kernel that started before its call
    ended, because it did not wait, and for a kernel without a recorded call.
    """
    call = reader.once(locate).take(KERNEL, reader.once(find_launches))[rows]
    begin = reader.columns(KERNEL)["start"][rows]
    launched = pick(reader.once(read_recorded_calls).end, call, NULL)
    return np.where((launched != NULL) & (launched <= begin), begin - launched, NULL)


def read_recorded_calls(reader: ReportReader) -> LaunchCalls:
    """Return the calls of a report. Call it through `reader.once`."""
    columns = reader.columns(RUNTIME)
    correlation, tid, begin = columns["correlationId"], columns["globalTid"], columns["start"]
    end = columns["end"]
    # A call that the trace cannot show is not a reference to measure from. If only its end is missing, its start is.
    unsound = find_unsound_times(begin, np.where(end == NULL, begin, end)).values()
    rows = np.flatnonzero((correlation != NULL) & (tid != NULL) & ~np.logical_or.reduce(list(unsound)))
    rows = rows[np.argsort(begin[rows], kind="stable")]
    process = get_process(tid[rows])
    # If calls share an id, the outermost call started first.
    first = ~keys.mark_duplicates(process, correlation[rows])
    rows = rows[first]
    return LaunchCalls(process[first], correlation[rows], begin[rows], end[rows], tid[rows])
