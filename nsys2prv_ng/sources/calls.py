"""Calls of the CUDA API by their correlation id, which names them in what they caused.

A correlation id is unique within a process only, so the key is (process, correlation id) within a report.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.report.metadata import process_of
from nsys2prv_ng.sources.base import IntArray, Reading
from nsys2prv_ng.sources.cuda_api import RUNTIME

TABLE = Table(RUNTIME, ("start", "end", "globalTid", "nameId"), {"correlationId": NULL})

NO_CALL = "no call recorded with its correlation id"


class Calls(NamedTuple):
    """Begin (ns) and thread of the calls that have a correlation id."""

    key: pd.MultiIndex
    begin: IntArray
    global_tid: IntArray

    def find(self, process: IntArray, correlation: IntArray) -> IntArray:
        """Index of the call with each correlation id in each process; -1 where none was recorded."""
        call = self.key.get_indexer(pd.MultiIndex.from_arrays([process, correlation]))
        return np.where(correlation == NULL, -1, call).astype(np.int64)


def recorded_calls(reading: Reading) -> Calls:
    """The calls of a report; call through `reading.once`."""
    columns = reading.columns(RUNTIME)
    correlation, tid, begin = columns["correlationId"], columns["globalTid"], columns["start"]
    rows = np.flatnonzero((correlation != NULL) & (tid != NULL) & (begin != NULL))
    rows = rows[np.argsort(begin[rows], kind="stable")]
    key = pd.MultiIndex.from_arrays([process_of(tid[rows]), correlation[rows]])
    # Of calls that share an id the outermost began first.
    first = ~key.duplicated()
    return Calls(key[first], begin[rows][first], tid[rows][first])
