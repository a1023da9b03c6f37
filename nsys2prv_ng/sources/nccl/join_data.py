"""Makes the data of one report that NCCL joins over all reports: uses of communicators, and messages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from nsys2prv_ng.arrays.groups import sum_groups
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
    uses = table.loc[table["communicator"] >= 0, ["communicator", "place", "rank", "devices", "begin"]]
    uses = sum_groups(uses, ["communicator", "place", "rank", "devices"], {"begin": "min"})

    # A message is drawn from and to its kernel, if it is known; if it has several, the first.
    order = np.argsort(kernels.begin[pairs["kernel"]], kind="stable")
    first = pairs.iloc[order].drop_duplicates("call")
    kernel_of_call = np.full(len(table), -1, np.int64)
    kernel_of_call[first["call"]] = first["kernel"]
    has_route = (table["peer"] != NULL) | (table["id"] != NULL)
    rows = np.flatnonzero(table["is_message"] & has_route & (table["communicator"] >= 0))
    messages = table.iloc[rows][["communicator", "place", "peer", "id", "bytes", "begin", "end"]].copy()
    messages["receives"] = table["direction"].to_numpy()[rows] == RECEIVING
    messages["order"] = messages["begin"]
    messages["caller"] = messages["place"]
    messages.loc[messages["end"] == NO_END, "end"] = messages["begin"]
    has_kernel = kernel_of_call[rows] >= 0
    messages["has_kernel"] = has_kernel
    kernel = kernel_of_call[rows][has_kernel]
    for name, values in (("place", kernels.place), ("begin", kernels.begin), ("end", kernels.end)):
        messages.loc[has_kernel, name] = values[kernel]
    rank_names = list(reader.labels.names.get(RANK_NAMES, {}))
    sizes = find_sizes(table, len(payload.communicators))
    known = table.loc[(table["communicator"] >= 0) & (table["bytes"] != NULL), ["communicator", "name", "bytes"]]
    used = known.drop_duplicates().astype(np.int64)
    used["name"], names = pd.factorize(np.array(calls.names, object)[used["name"]], sort=True)
    return NcclJoinData(
        payload.communicators,
        sizes,
        payload.operations,
        rank_names,
        uses,
        messages,
        list(names),
        find_purposes(reader, calls, table),
        used,
    )
