"""Reads NCCL's kernels, and finds the calls that each kernel carries out.

A kernel belongs to the call within which it was launched, on the thread of the call and during its range. Between the
outermost ncclGroupStart and ncclGroupEnd of a thread, calls are only collected; ncclGroupEnd launches their kernels. If
a group launched several kernels, each kernel gets

- the calls of the function in its name (SendRecv for sends and receives, or for whatever was called alone), if there
  are any;
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

from nsys2prv_ng.arrays.row_keys import combine_columns, count_earlier, encode_rows, find_distinct, list_indices
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.sources.cuda.communication import is_nccl
from nsys2prv_ng.sources.cuda.device_operations import KERNEL, locate, read_recorded_calls
from nsys2prv_ng.sources.nccl.calls import NcclCalls
from nsys2prv_ng.sources.shared.report_reader import ReportReader

_FUNCTION = re.compile(r"AllReduce|AllGather|ReduceScatter|SendRecv|Reduce|Broadcast")
_FUNCTION_OF_CALL = dict.fromkeys(("ncclSend", "ncclRecv", "ncclAlltoAll", "ncclGather", "ncclScatter"), "SendRecv")
_FUNCTION_OF_CALL["ncclBcast"] = "Broadcast"
FUNCTIONS = ("AllReduce", "AllGather", "ReduceScatter", "Reduce", "Broadcast", "SendRecv")
NO_FUNCTION = -1


def parse_function(name: str) -> int:
    """Return the index into FUNCTIONS for the name of a call or kernel; NO_FUNCTION if the name contains none.

    ncclDevKernel_Generic contains none.
    """
    match = _FUNCTION.search(name)
    text = _FUNCTION_OF_CALL.get(name) or (match.group() if match else "")
    return FUNCTIONS.index(text) if text else NO_FUNCTION


def find_called(called: IntArray, group: IntArray) -> IntArray:
    """Return the only function of all calls in the group of each of n calls; NO_FUNCTION if there are several or none.

    `called`: the function of each call.
    """
    known = called != NO_FUNCTION
    low, high = np.full((2, int(group.max(initial=-1)) + 1), NO_FUNCTION)
    low[:] = len(FUNCTIONS)
    np.minimum.at(low, group[known], called[known])
    np.maximum.at(high, group[known], called[known])
    return np.where(low == high, low, NO_FUNCTION)[group]


def correct_functions(named: IntArray, called: IntArray) -> IntArray:
    """Return the functions of n kernels, given by their names and by the calls that launched them, if these are known.

    NCCL 2.12 to 2.14 names kernels SendRecv that carry out any other call (docs/development/programs.md).
    """
    return np.where((named == FUNCTIONS.index("SendRecv")) & (called != NO_FUNCTION), called, named)


class NcclKernels(NamedTuple):
    """n NCCL kernels. Times in ns.

    `place`: -1 for a dropped kernel. `function`: index into FUNCTIONS, or NO_FUNCTION. `range`: index of the innermost
    range in which the kernel was launched; -1 if there is none. `called`: whether the CUDA call that launched the
    kernel was recorded. `graph_node`: the node of a CUDA graph that the kernel is; NULL if it is not a node.
    """

    place: IntArray
    begin: IntArray
    end: IntArray
    process: IntArray
    device: IntArray
    function: IntArray
    range: IntArray
    called: BoolArray
    graph_node: IntArray


def read_kernels(reader: ReportReader, calls: NcclCalls) -> NcclKernels:
    """Read NCCL's kernels, and find the NCCL call in which each kernel was launched."""
    ranges = calls.ranges
    functions = np.array([parse_function(name) for name in calls.names], np.int64)[ranges.name]
    operations, columns = reader.once(locate), reader.columns(KERNEL)
    index, names = reader.names(columns["shortName"])
    rows = np.flatnonzero(np.array([is_nccl(name) for name in names], np.bool_)[index])
    call = operations.take(KERNEL, operations.call)[rows]
    within = reader.once(read_recorded_calls).find_ranges(call, *ranges[:3])
    named = np.array([parse_function(name) for name in names], np.int64)[index[rows]]
    return NcclKernels(
        place=operations.take(KERNEL, operations.place)[rows],
        begin=columns["start"][rows],
        end=columns["end"][rows],
        process=get_process(columns["globalPid"][rows]),
        device=columns["deviceId"][rows],
        function=correct_functions(named, pick(find_called(functions, calls.group), within, NO_FUNCTION)),
        range=within,
        called=call >= 0,
        graph_node=columns["graphNodeId"][rows],
    )


class GroupedCalls(NamedTuple):
    """n calls, in the order in which they were made.

    `function`: index into FUNCTIONS, or NO_FUNCTION. `kind`: a number that calls with equal names and payloads share.
    """

    group: IntArray
    function: IntArray
    communicator: IntArray
    kind: IntArray


class GroupedKernels(NamedTuple):
    """n kernels: the group of calls that launched each, and its start (ns)."""

    group: IntArray
    function: IntArray
    device: IntArray
    begin: IntArray


class CallPairs(NamedTuple):
    """n pairs of a kernel and a call that it carries out (indices), sorted by kernel and call."""

    kernel: IntArray
    call: IntArray


def assign_calls(calls: GroupedCalls, kernels: GroupedKernels) -> CallPairs:
    """Return the pairs of kernels and calls."""
    order = np.lexsort((kernels.begin, kernels.device, kernels.group))
    key, candidate, count = _list_candidates(kernels.group[order], kernels.function[order], calls.group, calls.function)
    candidate, first = order[candidate], np.cumsum(count) - count

    call = np.flatnonzero(count[key] > 0)
    key = key[call]
    position = np.zeros(call.size, np.int64)
    several = np.flatnonzero(count[key] > 1)
    if several.size:
        among, chosen = count[key[several]], call[several]
        position[several] = _find_positions(key[several], calls.kind[chosen], calls.communicator[chosen], among)
    is_one = position >= 0
    every = key[~is_one]
    kernel = candidate[np.append(first[key[is_one]] + position[is_one], list_indices(first[every], count[every]))]
    call = np.append(call[is_one], np.repeat(call[~is_one], count[every]))
    by_kernel = np.lexsort((call, kernel))
    return CallPairs(kernel[by_kernel], call[by_kernel])


def _list_candidates(
    group: IntArray, function: IntArray, group_of_call: IntArray, function_of_call: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return (key of each call, candidates ordered by key, number of candidates of each key).

    Candidates are indices of kernels: those with the function of the call, or all of the group if none has it. Those of
    a key are in the order of the kernels.
    """
    n, every = group.size, np.full(group.size, NO_FUNCTION - 1)
    groups = np.concatenate([group, group, group_of_call])
    named = combine_columns(groups, np.concatenate([function, every, function_of_call]))
    wanted = np.where(np.isin(named[2 * n :], named[:n]), function_of_call, NO_FUNCTION - 1)
    key = find_distinct(combine_columns(groups, np.concatenate([function, every, wanted])))[0]
    of_candidate, of_call = key[: 2 * n], key[2 * n :]
    candidate = np.argsort(of_candidate, kind="stable") % max(n, 1)
    return of_call, candidate, np.bincount(of_candidate, minlength=int(of_call.max(initial=-1)) + 1)


def _find_positions(key: IntArray, kind: IntArray, communicator: IntArray, among: IntArray) -> IntArray:
    """Return the position, among the candidates, of the kernel that carries out each call; -1 for all candidates.

    Calls are in the order in which they were made. `key`: the same for calls with the same candidates, which are
    `among` many.
    """
    key, _ = encode_rows(key)
    equal, _ = encode_rows(key, kind)
    used, first = encode_rows(key, communicator)
    calls = np.bincount(key)[key]
    has_rest = np.bincount(equal)[equal] % among != 0
    even = np.bincount(key, has_rest)[key] == 0
    communicators = np.bincount(key[first])[key]
    by_communicator = count_earlier(key[first])[used]
    return np.select(
        [even, communicators == among, calls % among == 0],
        [count_earlier(equal) % among, by_communicator, count_earlier(key) // np.maximum(calls // among, 1)],
        -1,
    )
