"""Makes the data of one report that NCCL joins over all reports: uses of communicators, and messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nsys2prv_ng.arrays.groups import sum_columns
from nsys2prv_ng.arrays.row_keys import mark_duplicates
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.nccl.calls import RECEIVING, NcclCalls, find_sizes
from nsys2prv_ng.sources.nccl.kernels import NcclKernels
from nsys2prv_ng.sources.nccl.payload_events import RANK_NAMES
from nsys2prv_ng.sources.nccl.purposes import find_purposes
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import NO_END


@dataclass(frozen=True)
class NcclJoinData:
    """The data of one report for `join`.

    Communicators are indices into `communicators`, times are in ns, and NULL stands for an unrecorded value.
    """

    communicators: list[str]
    sizes: list[int]
    """Number of ranks of each communicator; 0 if no call records it."""
    operations: list[str]
    rank_names: list[str]
    """Names of communicator ranks in the space RANK_NAMES."""
    uses: pd.DataFrame
    """communicator, place, rank, devices, begin: values that calls on each thread record, and when first."""
    messages: pd.DataFrame
    """communicator, caller (place of the thread), peer, id (the same on both sides), receives, bytes, order (time of
    the call); place, begin and end of the kernel that carries out the message, else of the call."""
    calls: list[str]
    """Names of calls."""
    purposes: pd.DataFrame
    """communicator, place, purpose of the calls of each process (purposes.py)."""
    used: pd.DataFrame
    """communicator, name (index into `calls`), bytes: the distinct sizes of calls."""

    def list_used(self) -> list[tuple[str, str, int]]:
        """Return communicator, call and size (bytes) of the distinct calls."""
        rows = self.used[["communicator", "name", "bytes"]].to_numpy(np.int64).tolist()
        return [(self.communicators[c], self.calls[name], size) for c, name, size in rows]


def make_join_data(
    reader: ReportReader, calls: NcclCalls, table: pd.DataFrame, kernels: NcclKernels, pairs: pd.DataFrame
) -> NcclJoinData:
    """Make the data of one report from its table of calls, which has indices into their names.

    `pairs`: indices of kernels and of their calls.
    """
    payload = calls.payload
    column = {name: table[name].to_numpy() for name in table.columns}
    has_communicator = np.flatnonzero(column["communicator"] >= 0)
    key = ["communicator", "place", "rank", "devices"]
    uses = sum_columns({name: column[name][has_communicator] for name in (*key, "begin")}, key, {"begin": "min"})
    rank_names = list(reader.labels.names.get(RANK_NAMES, {}))
    sizes = find_sizes(table, len(payload.communicators))
    known = has_communicator[column["bytes"][has_communicator] != NULL]
    distinct = [column[name][known] for name in ("communicator", "name", "bytes")]
    once = np.flatnonzero(~mark_duplicates(*distinct))
    communicator, name, size = (values[once] for values in distinct)
    number, names = pd.factorize(np.array(calls.names, object)[name], sort=True)
    used = pd.DataFrame({"communicator": communicator, "name": number, "bytes": size}, index=known[once])
    return NcclJoinData(
        payload.communicators,
        sizes,
        payload.operations,
        rank_names,
        uses,
        _list_messages(column, kernels, pairs),
        list(names),
        find_purposes(reader, calls, table),
        used,
    )


def _list_messages(column: Mapping[str, IntArray], kernels: NcclKernels, pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the messages among the calls, by the columns of their table, as in NcclJoinData.

    A message is drawn from and to its kernel, if it is known; if it has several, the first.
    """
    kernel, call = (pairs[name].to_numpy(np.int64) for name in ("kernel", "call"))
    kernel_of_call = np.full(column["communicator"].size, -1, np.int64)
    latest_first = np.argsort(kernels.begin[kernel], kind="stable")[::-1]
    kernel_of_call[call[latest_first]] = kernel[latest_first]
    has_route = (column["peer"] != NULL) | (column["id"] != NULL)
    rows = np.flatnonzero(column["is_message"] & has_route & (column["communicator"] >= 0))
    own = {name: column[name][rows] for name in ("communicator", "place", "peer", "id", "bytes", "begin", "end")}
    at = kernel_of_call[rows]
    own["end"] = np.where(own["end"] == NO_END, own["begin"], own["end"])
    drawn = {"place": kernels.place, "begin": kernels.begin, "end": kernels.end}
    return pd.DataFrame(
        {
            **own,
            **{name: np.where(at >= 0, np.append(values, 0)[at], own[name]) for name, values in drawn.items()},
            "receives": column["direction"][rows] == RECEIVING,
            "order": own["begin"],
            "caller": own["place"],
            "has_kernel": at >= 0,
        },
        index=rows,
    )
