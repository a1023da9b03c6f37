"""Devices of CUDA contexts: some records name device 0 whatever the device of their context is."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsys2prv_ng.report.database import Table
from nsys2prv_ng.report.metadata import PID_MASK
from nsys2prv_ng.sources.base import IntArray, Reading

TABLE = Table("TARGET_INFO_CUDA_CONTEXT_INFO", ("processId", "contextId", "deviceId"))

_NO_CONTEXT = 0


def devices_of(reading: Reading, process: IntArray, context: IntArray, device: IntArray) -> IntArray:
    """CUDA's ordinal of the device of each record, by the context that it names with its process.

    A record of no context (static memory) is of the only device of its process, if that has one only. Where the report
    does not tell, the device is as recorded.
    """
    contexts = reading.columns(TABLE.name)
    pid = process & PID_MASK
    pairs = pd.DataFrame({"pid": contexts["processId"], "context": contexts["contextId"]})
    pairs["device"] = contexts["deviceId"]
    by_context = pairs.drop_duplicates(["pid", "context"])
    key = pd.MultiIndex.from_frame(by_context[["pid", "context"]])
    at = key.get_indexer(pd.MultiIndex.from_arrays([pid, context]))
    of_context = by_context["device"].to_numpy(np.int64)

    only = pairs.groupby("pid")["device"].agg(["min", "max"])
    only = only[only["min"] == only["max"]]
    alone = pd.Index(only.index).get_indexer(pd.Index(pid))
    of_process = only["min"].to_numpy(np.int64)

    found: IntArray = device.copy()
    found[at >= 0] = of_context[at[at >= 0]]
    without = (at < 0) & (context == _NO_CONTEXT) & (alone >= 0)
    found[without] = of_process[alone[without]]
    return found
