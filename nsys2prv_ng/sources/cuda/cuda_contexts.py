"""Finds the devices of CUDA contexts, because some records name device 0 whatever the device of their context is."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.report.database import Table
from nsys2prv_ng.report.metadata import PID_MASK
from nsys2prv_ng.sources.shared.mappings import map_unambiguous
from nsys2prv_ng.sources.shared.report_reader import ReportReader

TABLE = Table("TARGET_INFO_CUDA_CONTEXT_INFO", ("processId", "contextId", "deviceId"))

_NO_CONTEXT = 0


def find_devices(reader: ReportReader, process: IntArray, context: IntArray, device: IntArray) -> IntArray:
    """Return CUDA's ordinal of the device of each of n records, by its process and context.

    A record without a context (static memory) belongs to the device of its process, if the process has only one. If the
    report does not contain the device of a context, the ordinal is the recorded one.
    """
    contexts = reader.columns(TABLE.name)
    pid = process & PID_MASK
    pids, context_devices = contexts["processId"], contexts["deviceId"]
    at = find_rows([pids, contexts["contextId"]], [pid, context])

    single = map_unambiguous(zip(pids.tolist(), context_devices.tolist(), strict=True))
    single_at = find_rows([np.array([*single], np.int64)], [pid])
    single_devices = np.array([*single.values()], np.int64)

    corrected: IntArray = device.copy()
    corrected[at >= 0] = context_devices[at[at >= 0]]
    has_no_context = (at < 0) & (context == _NO_CONTEXT) & (single_at >= 0)
    corrected[has_no_context] = single_devices[single_at[has_no_context]]
    return corrected
