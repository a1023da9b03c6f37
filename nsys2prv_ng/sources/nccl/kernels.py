"""Reads NCCL's kernels, and finds the calls that each kernel carries out.

A kernel belongs to the call within which it was launched, on the thread of the call and during its range. Between the
outermost ncclGroupStart and ncclGroupEnd of a thread, calls are only collected; ncclGroupEnd launches their kernels. If
a group launched several kernels, each kernel gets

- the calls of the function in its name (SendRecv for sends and receives), if there are any;
- a part of these calls if several kernels have the same function (one for each device of a process, or for each
  communicator): an equal share of equal calls, because the devices of a process make the same collective calls; else
  the calls of one communicator, in the order of their first calls; else consecutive calls in equal parts, in the order
  of devices;
- all calls of its function if no such division comes out even, because reports do not record which calls it carries
  out.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.nesting import find_innermost
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.sources.cuda import launch_calls
from nsys2prv_ng.sources.cuda.device_operations import KERNEL, locate
from nsys2prv_ng.sources.cuda.kernels import is_nccl
from nsys2prv_ng.sources.nccl.calls import NcclRanges
from nsys2prv_ng.sources.shared.report_reader import ReportReader

_FUNCTION = re.compile(r"AllReduce|AllGather|ReduceScatter|SendRecv|Reduce|Broadcast")
_FUNCTION_OF_CALL = {
    "ncclBcast": "Broadcast",
    **dict.fromkeys(("ncclSend", "ncclRecv", "ncclAlltoAll", "ncclGather", "ncclScatter"), "SendRecv"),
}
FUNCTIONS = ("AllReduce", "AllGather", "ReduceScatter", "Reduce", "Broadcast", "SendRecv")
NO_FUNCTION = -1


def parse_function(name: str) -> int:
    """Return the index into FUNCTIONS for the name of a call or kernel; NO_FUNCTION if the name contains none.

    ncclDevKernel_Generic contains none.
    """
    match = _FUNCTION.search(name)
    text = _FUNCTION_OF_CALL.get(name) or (match.group() if match else "")
    return FUNCTIONS.index(text) if text else NO_FUNCTION


class NcclKernels(NamedTuple):
    """n NCCL kernels. Times in ns."""

    place: IntArray
    """-1 for a dropped kernel."""
    begin: IntArray
    end: IntArray
    process: IntArray
    device: IntArray
    function: IntArray
    """Index into FUNCTIONS, or NO_FUNCTION."""
    range: IntArray
    """Index of the innermost range in which the kernel was launched; -1 if there is none."""
    called: BoolArray
    """Whether the CUDA call that launched the kernel was recorded."""
    graph_node: IntArray
    """The node of a CUDA graph that the kernel is; NULL if it is not a node."""


def read_kernels(reader: ReportReader, ranges: NcclRanges) -> NcclKernels:
    """Read NCCL's kernels, and find the NCCL call in which each kernel was launched."""
    columns, operations = reader.columns(KERNEL), reader.once(locate)
    index, names = reader.names(columns["shortName"])
    rows = np.flatnonzero(np.array([is_nccl(name) for name in names], np.bool_)[index])
    recorded = reader.once(launch_calls.read_recorded_calls)
    call = operations.take(KERNEL, reader.once(launch_calls.find_launches))[rows]
    known = np.flatnonzero(call >= 0)
    tid, time = recorded.global_tid[call[known]], recorded.begin[call[known]]
    within = np.full(rows.size, -1, np.int64)
    order = np.lexsort((time, tid))
    launched_in = find_innermost(ranges.global_tid, ranges.begin, ranges.end, tid[order], time[order])
    within[known[order]] = launched_in.innermost
    return NcclKernels(
        place=operations.take(KERNEL, operations.place)[rows],
        begin=columns["start"][rows],
        end=columns["end"][rows],
        process=get_process(columns["globalPid"][rows]),
        device=columns["deviceId"][rows],
        function=np.array([parse_function(name) for name in names], np.int64)[index[rows]],
        range=within,
        called=call >= 0,
        graph_node=columns["graphNodeId"][rows],
    )


def assign_calls(calls: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """Return pairs of `kernel` and `call` that it carries out (positions in the tables), sorted by kernel and call.

    `calls`, in the order in which they were made: group, function, communicator, and kind, which is the same for calls
    with the same name and payload. `kernels`: the group that launched each kernel, function, device, begin (ns).
    """
    call = calls.assign(call=np.arange(len(calls)))
    kernel = kernels.assign(kernel=np.arange(len(kernels))).sort_values(["group", "device", "begin"], kind="stable")
    kernel = kernel.drop(columns=["device", "begin"])

    # Candidates: kernels of the same function, or all kernels of the group if none has the function of the call.
    keys = ["group", "function"]
    by_function = pd.MultiIndex.from_frame(kernel[keys])
    named = pd.MultiIndex.from_frame(call[keys]).isin(by_function)
    call.loc[~named, "function"] = NO_FUNCTION - 1
    candidates = pd.concat([kernel, kernel.assign(function=NO_FUNCTION - 1)])
    candidates = candidates[pd.MultiIndex.from_frame(candidates[keys]).isin(pd.MultiIndex.from_frame(call[keys]))]
    candidates["position"] = candidates.groupby(keys).cumcount()
    sizes = candidates.groupby(keys).size().rename("kernels").reset_index()
    call = call.merge(sizes, on=keys)  # drops calls without a kernel

    call["position"] = _find_positions(call, keys)
    one = call[call["position"] >= 0].merge(candidates, on=[*keys, "position"])
    every = call[call["position"] < 0].drop(columns="position").merge(candidates, on=keys)
    pairs: pd.DataFrame = pd.concat([one, every])[["kernel", "call"]].astype(np.int64)
    return pairs.sort_values(["kernel", "call"])


def _find_positions(call: pd.DataFrame, keys: list[str]) -> IntArray:
    """Return the position, among the candidates, of the kernel that carries out each call; -1 for all candidates."""
    groups = call.groupby(keys)
    among, order = call["kernels"], groups.cumcount()
    equal = call.groupby([*keys, "kind"])
    even = (equal["call"].transform("size") % among == 0).groupby([call[name] for name in keys]).transform("all")
    first = call.groupby([*keys, "communicator"])["call"].transform("min")
    by_communicator = first.groupby([call[name] for name in keys]).rank(method="dense").astype(np.int64) - 1
    communicators = groups["communicator"].transform("nunique")
    part = groups["call"].transform("size") // among
    equal_parts = groups["call"].transform("size") % among == 0
    position = np.select(
        [even, communicators == among, equal_parts],
        [equal.cumcount() % among, by_communicator, order // part.clip(lower=1)],
        -1,
    )
    return np.asarray(position, np.int64)
