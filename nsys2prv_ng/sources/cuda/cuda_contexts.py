"""Devices of CUDA contexts: some records name device 0 whatever the device of their context is."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_rows, mark_duplicates
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.report.database import Table
from nsys2prv_ng.report.metadata import PID_MASK
from nsys2prv_ng.sources.shared.report_reader import ReportReader

TABLE = Table("TARGET_INFO_CUDA_CONTEXT_INFO", ("processId", "contextId", "deviceId"))

_NO_CONTEXT = 0


def find_devices(reader: ReportReader, process: IntArray, context: IntArray, device: IntArray) -> IntArray:
    """CUDA's ordinal of the device of each record, by the context that it names with its process.

    A record of no context (static memory) is of the only device of its process, if that has one only. Where the report
    does not tell, the device is as recorded.
    """
    contexts = reader.columns(TABLE.name)
    pid = process & PID_MASK
    pids, of_context = contexts["processId"], contexts["deviceId"]
    known = np.flatnonzero(~mark_duplicates(pids, contexts["contextId"]))
    at = find_rows([pids[known], contexts["contextId"][known]], [pid, context])

    devices: dict[int, set[int]] = {}
    for each, its_device in zip(pids.tolist(), of_context.tolist(), strict=True):
        devices.setdefault(each, set()).add(its_device)
    only = {each: min(its_devices) for each, its_devices in devices.items() if len(its_devices) == 1}
    alone = find_rows([np.array([*only], np.int64)], [pid])
    process_columns = np.array([*only.values()], np.int64)

    found: IntArray = device.copy()
    found[at >= 0] = of_context[known[at[at >= 0]]]
    without = (at < 0) & (context == _NO_CONTEXT) & (alone >= 0)
    found[without] = process_columns[alone[without]]
    return found
