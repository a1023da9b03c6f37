"""Which calls of NCCL a kernel carries out.

A kernel belongs to the call on whose thread, and within whose range, it was launched. Calls between the outermost
ncclGroupStart and ncclGroupEnd of a thread are only collected there; ncclGroupEnd launches their kernels. Of a group
that launched several kernels each has

- the calls of its own function, which its name tells (SendRecv for sends and receives), where there are any;
- of those, where several kernels have the same function (one for each device of a process, or for each communicator):
  an equal share of equal calls, as the devices of a process make the same collective calls; else the calls of one
  communicator, in the order of their first calls; else consecutive calls in equal parts, in the order of devices;
- if none of this comes out even, all calls of its function: which of them are its own is recorded nowhere.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.sources.cuda import launch_calls as calls
from nsys2prv_ng.sources.cuda.device_operations import KERNEL, locate
from nsys2prv_ng.sources.cuda.kernels import mark_nccl
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
    """What a call or kernel does, by its name; NO_FUNCTION for one that does not say, as ncclDevKernel_Generic."""
    found = _FUNCTION.search(name)
    text = _FUNCTION_OF_CALL.get(name) or (found.group() if found else "")
    return FUNCTIONS.index(text) if text else NO_FUNCTION


class NcclKernels(NamedTuple):
    """NCCL's kernels of n: place (-1 for one that has none), begin and end (ns), device, and function."""

    place: IntArray
    begin: IntArray
    end: IntArray
    device: IntArray
    function: IntArray
    range: IntArray
    """Index of the innermost range in which it was launched; -1 where there is none."""
    called: BoolArray
    """Whether the call that launched it was recorded."""


def read_kernels(reader: ReportReader, ranges: NcclRanges) -> NcclKernels:
    """NCCL's kernels, and in which of NCCL's calls each was launched."""
    columns = reader.columns(KERNEL)
    if not columns.rows:
        none = np.zeros(0, np.int64)
        return NcclKernels(none, none, none, none, none, none, np.zeros(0, np.bool_))
    index, names = reader.names(columns["shortName"])
    rows = np.flatnonzero(np.array([mark_nccl(name) for name in names], np.bool_)[index])
    call_by_id = reader.once(calls.read_recorded_calls)
    call = reader.once(calls.find_launches)[KERNEL][rows]
    known = np.flatnonzero(call >= 0)
    tid, time = call_by_id.global_tid[call[known]], call_by_id.begin[call[known]]
    within = np.full(rows.size, -1, np.int64)
    order = np.lexsort((time, tid))
    within[known] = _innermost(ranges.global_tid, ranges.begin, ranges.end, tid, time, order)
    return NcclKernels(
        place=reader.once(locate)[KERNEL].place[rows],
        begin=columns["start"][rows],
        end=columns["end"][rows],
        device=columns["deviceId"][rows],
        function=np.array([parse_function(name) for name in names], np.int64)[index[rows]],
        range=within,
        called=call >= 0,
    )


@compiled
def _innermost(tid, begin, end, point_tid, point_time, order):  # type: ignore[no-untyped-def]
    """Index of the innermost range of its thread that each point lies in, limits included; -1 if in none."""
    found = np.full(order.size, -1, np.int64)
    stack = np.empty(64, np.int64)
    depth, i = 0, 0
    for p in order:
        while i < tid.size and (tid[i] < point_tid[p] or (tid[i] == point_tid[p] and begin[i] <= point_time[p])):
            while depth > 0 and (tid[stack[depth - 1]] != tid[i] or end[stack[depth - 1]] < begin[i]):
                depth -= 1
            if depth == stack.size:
                stack = np.concatenate((stack, stack))
            stack[depth] = i
            depth += 1
            i += 1
        while depth > 0 and (tid[stack[depth - 1]] != point_tid[p] or end[stack[depth - 1]] < point_time[p]):
            depth -= 1
        if depth > 0:
            found[p] = stack[depth - 1]
    return found


class SharedCalls(NamedTuple):
    """Calls of n, in the order in which they were made: launch, function, and kind and communicator as any numbers.

    `kind` is the same for calls that agree in name and payload.
    """

    launch: IntArray
    function: IntArray
    kind: IntArray
    communicator: IntArray


class SharedKernels(NamedTuple):
    """Kernels of n: the launch that they belong to, function, device, and begin (ns)."""

    launch: IntArray
    function: IntArray
    device: IntArray
    begin: IntArray


def assign_calls(calls_: SharedCalls, kernels_: SharedKernels) -> tuple[IntArray, IntArray]:
    """Pairs (kernel, call) of indices, ordered by kernel and call."""
    call = pd.DataFrame(calls_._asdict()).assign(call=np.arange(calls_.launch.size))
    kernel = pd.DataFrame({"launch": kernels_.launch, "function": kernels_.function})
    kernel["kernel"] = np.arange(len(kernel))
    kernel = kernel.iloc[np.lexsort((kernels_.begin, kernels_.device, kernels_.launch))]

    # Candidates: kernels of the same function, or all of the launch for calls whose function no kernel names.
    group = ["launch", "function"]
    by_function = pd.MultiIndex.from_frame(kernel[group])
    named = pd.MultiIndex.from_frame(call[group]).isin(by_function)
    call.loc[~named, "function"] = NO_FUNCTION - 1
    candidates = pd.concat([kernel, kernel.assign(function=NO_FUNCTION - 1)])
    candidates = candidates[pd.MultiIndex.from_frame(candidates[group]).isin(pd.MultiIndex.from_frame(call[group]))]
    candidates["position"] = candidates.groupby(group).cumcount()
    sizes = candidates.groupby(group).size().rename("kernels").reset_index()
    call = call.merge(sizes, on=group)  # calls without a kernel go

    call["position"] = _positions(call, group)
    one = call[call["position"] >= 0].merge(candidates, on=[*group, "position"])
    every = call[call["position"] < 0].drop(columns="position").merge(candidates, on=group)
    pairs = pd.concat([one, every])[["kernel", "call"]].sort_values(["kernel", "call"])
    return pairs["kernel"].to_numpy(np.int64), pairs["call"].to_numpy(np.int64)


def _positions(call: pd.DataFrame, group: list[str]) -> IntArray:
    """Position among its candidates of the kernel that carries out each call; -1 for all of them."""
    groups = call.groupby(group)
    among, order = call["kernels"], groups.cumcount()
    equal = call.groupby([*group, "kind"])
    even = (equal["call"].transform("size") % among == 0).groupby([call[name] for name in group]).transform("all")
    first = call.groupby([*group, "communicator"])["call"].transform("min")
    by_communicator = first.groupby([call[name] for name in group]).rank(method="dense").astype(np.int64) - 1
    communicators = groups["communicator"].transform("nunique")
    part = groups["call"].transform("size") // among
    partial_results = groups["call"].transform("size") % among == 0
    position = np.select(
        [even, communicators == among, partial_results],
        [equal.cumcount() % among, by_communicator, order // part.clip(lower=1)],
        -1,
    )
    return np.asarray(position, np.int64)
