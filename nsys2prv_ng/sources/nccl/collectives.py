"""Collects evidence for the alignment of clocks from NCCL's kernels.

A collective ends on the GPUs of all its ranks at about the same time. A receive ends when its data has arrived, a while
after its send has handed the data to the network. Calls on the host are not evidence, because they return when the
kernel has been launched.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from nsys2prv_ng.arrays.row_keys import encode_rows, find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.operations.parts import (
    ANY_SIZE,
    FROM_ROOT,
    LOOSE,
    OTHER,
    SYNCHRONISING,
    TO_ROOT,
    Collectives,
    Evidence,
    RankMessages,
    get_kinds,
)
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import PID_MASK, Metadata
from nsys2prv_ng.sources.nccl.calls import RECEIVING, find_sizes
from nsys2prv_ng.sources.nccl.kernels import FUNCTIONS, NO_FUNCTION, NcclKernels, parse_function
from nsys2prv_ng.sources.shared.nccl_ranges import COLLECTIVES

_KINDS = {
    **dict.fromkeys(("ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclAlltoAll"), SYNCHRONISING),
    **dict.fromkeys(("ncclBroadcast", "ncclBcast", "ncclScatter"), FROM_ROOT),
    **dict.fromkeys(("ncclReduce", "ncclGather"), TO_ROOT),
}
_SYNCHRONISING_FUNCTIONS = [parse_function(name) for name in ("ncclAllReduce", "ncclAllGather", "ncclReduceScatter")]
"""Not ncclAlltoAll, which runs in kernels of sends and receives."""


_OF_COLLECTIVES = ("name", "communicator", "process", "bytes", "root", "id")


def collect_evidence(
    names: list[str],
    communicators: list[str],
    table: pd.DataFrame,
    kernel: NcclKernels,
    pairs: pd.DataFrame,
) -> Evidence:
    """Return the collectives of one report, with the times of their kernels.

    `table` contains the calls: process, name (index into `names`), communicator (index into `communicators`, or -1),
    bytes, root, and the caller's rank if a call records it. `pairs` contains indices of kernels and of the calls that
    they carry out. If no call records its communicator, kernels are compared in the order in which they ran on each
    stream, and so are kernels that CUDA graphs launch. Kernels outside collectives are in a separate table.
    """
    process, device = (np.where(kernel.place >= 0, column, -1) for column in (kernel.process, kernel.device))
    member, first = encode_rows(process, device)
    owners = list(zip((process[first] & PID_MASK).tolist(), device[first].tolist(), strict=True))
    in_graph = (kernel.graph_node != NULL) & (kernel.range < 0)
    only = pairs[~pairs["call"].duplicated(keep=False)]
    is_collective = np.array([name in COLLECTIVES for name in names], np.bool_)
    at, only_call = only["kernel"].to_numpy(np.int64), only["call"].to_numpy(np.int64)
    call = {name: table[name].to_numpy(np.int64)[only_call] for name in _OF_COLLECTIVES}
    usable = is_collective[call["name"]] & (call["communicator"] >= 0)
    counted = np.zeros(kernel.begin.size, np.bool_)
    tables = []
    if usable.any():
        at, call = at[usable], {name: column[usable] for name, column in call.items()}
        operation, size, root = (call[name] for name in ("name", "bytes", "root"))
        rank, communicator = _find_callers_ranks(table, call), call["communicator"]
        known_size, keys = np.where(size == NULL, ANY_SIZE, size), [f"nccl {name}" for name in communicators]
        by_call = _make_table(kernel, member, at, keys, communicator, known_size, OTHER)._replace(
            operations=names,
            operation=operation,
            kind=get_kinds(_KINDS, names, operation, size, root, rank),
            is_root=root == rank,
            has_communicator=np.ones(at.size, np.bool_),
            sizes=find_sizes(table, len(communicators)),
            ids=_choose_ids(member[at], communicator, call["id"]),
        )
        tables.append(by_call)
        counted[at] = True
    sizes = _find_call_sizes(kernel, table, only)
    kinds = ("stream", ~in_graph & ~usable.any(), False), ("graph stream", in_graph, True)
    for name, chosen, are_in_graphs in kinds:
        at = _choose_by_sequence(kernel, sizes, chosen)
        if at.size:
            by_sequence = _collect_by_sequence(kernel, member, sizes, at, name)
            tables.append(by_sequence._replace(in_graphs=are_in_graphs))
            counted[at] = True
    # The other kernels match no operation.
    loose = np.flatnonzero(~counted & (kernel.place >= 0))
    if loose.size:
        no_communicator, any_size = np.zeros(loose.size, np.int64), np.full(loose.size, ANY_SIZE, np.int64)
        tables.append(_make_table(kernel, member, loose, ["nccl"], no_communicator, any_size, LOOSE))
    return Evidence([rows._replace(owners=owners) for rows in tables])


def _choose_ids(member: IntArray, communicator: IntArray, ids: IntArray) -> IntArray:
    """Return the id of each of n operations; NULL in communicators where a member's operations share ids or lack one.

    Only an id that stands for one operation can match it.
    """
    if (ids == NULL).all():  # only the advanced trace has ids
        return ids
    table = pd.DataFrame({"communicator": communicator, "member": member, "id": ids})
    table["unfit"] = table.duplicated() | (table["id"] == NULL)
    unfit = table.groupby("communicator")["unfit"].transform("any").to_numpy(np.bool_)
    return np.where(unfit, NULL, ids)


def _find_callers_ranks(table: pd.DataFrame, call: Mapping[str, IntArray]) -> IntArray:
    """Return the caller's rank in the communicator of each call, if any call of the process records it, else NULL."""
    rank = table["rank"].to_numpy(np.int64)
    known = np.flatnonzero(rank != NULL)
    by_member = ((table[name].to_numpy(np.int64)[known], call[name]) for name in ("process", "communicator"))
    code, _ = encode_rows(*map(np.concatenate, by_member))
    of_known, of_call = code[: known.size], code[known.size :]
    lowest, highest = np.full(code.size, _NO_LOWEST), np.full(code.size, NULL)
    np.minimum.at(lowest, of_known, rank[known])
    np.maximum.at(highest, of_known, rank[known])
    return np.where(lowest == highest, lowest, NULL)[of_call]


_NO_LOWEST = np.iinfo(np.int64).max


def _find_call_sizes(kernel: NcclKernels, table: pd.DataFrame, pairs: pd.DataFrame) -> IntArray:
    """Return the bytes of the call of each kernel; ANY_SIZE if they are unknown."""
    size = np.full(kernel.begin.size, ANY_SIZE, np.int64)
    call_size = table["bytes"].to_numpy(np.int64)[pairs["call"].to_numpy(np.int64)]
    size[pairs["kernel"].to_numpy(np.int64)] = np.where(call_size == NULL, ANY_SIZE, call_size)
    return size


def _choose_by_sequence(kernel: NcclKernels, size: IntArray, chosen: BoolArray) -> IntArray:
    """Return the indices of the chosen kernels that all ranks of a communicator run, in order of time."""
    synchronises = np.isin(kernel.function, _SYNCHRONISING_FUNCTIONS) & (size != 0)
    at = np.flatnonzero((kernel.place >= 0) & synchronises & chosen)
    return at[np.argsort(kernel.begin[at], kind="stable")]


def _collect_by_sequence(kernel: NcclKernels, member: IntArray, size: IntArray, at: IntArray, name: str) -> Collectives:
    """Return kernels (indices `at`) by stream. The streams of a rank are numbered by their first kernels."""
    streams = pd.DataFrame({"member": member[at], "place": kernel.place[at]})
    distinct = streams.drop_duplicates()
    distinct = distinct.assign(stream=distinct.groupby("member").cumcount())
    stream = streams.merge(distinct, on=["member", "place"], how="left")["stream"].to_numpy(np.int64)
    names = [f"nccl {name} {number}" for number in range(int(stream.max(initial=-1)) + 1)]
    return _make_table(kernel, member, at, names, stream, size[at], SYNCHRONISING)


def _make_table(
    kernel: NcclKernels,
    member: IntArray,
    at: IntArray,
    communicators: list[str],
    communicator: IntArray,
    size: IntArray,
    kind: int,
) -> Collectives:
    """Return kernels of unknown communicators, by the functions in their names."""
    return Collectives(
        communicators=communicators,
        operations=[*(f"nccl function {number}" for number in range(len(FUNCTIONS))), "nccl function unknown"],
        communicator=communicator,
        operation=np.where(kernel.function[at] == NO_FUNCTION, len(FUNCTIONS), kernel.function[at]),
        bytes=size,
        member=member[at],
        begin=kernel.begin[at],
        end=kernel.end[at],
        kind=np.full(at.size, kind),
        is_root=np.zeros(at.size, np.bool_),
        has_communicator=np.zeros(at.size, np.bool_),
        place=kernel.place[at],
        sizes=[0] * len(communicators),
    )


# ---- messages --------------------------------------------------------------------------------------------------------


_OF_MESSAGES = ("communicator", "process", "peer", "direction", "begin", "bytes")


def collect_messages(
    metadata: Metadata, communicators: list[str], table: pd.DataFrame, kernel: NcclKernels, pairs: pd.DataFrame
) -> RankMessages:
    """Return the sends and receives of one report, with the times of their kernels.

    `table` contains the calls, `pairs` the indices of kernels and of the calls that they carry out. A kernel that
    carries out several messages ends with the last, so it does not show when each message handed over its data.
    """
    has_communicator = np.flatnonzero(table["communicator"].to_numpy() >= 0)
    columns = (table[name].to_numpy(np.int64)[has_communicator] for name in ("communicator", "process", "rank"))
    _, used = find_distinct_rows(*columns)
    processes = list(dict.fromkeys(process for _, process, _ in used))
    ranks = {process: metadata.find_rank(process, alone=len(processes) == 1) for process in processes}
    is_message = np.zeros(len(table), np.bool_)
    is_message[has_communicator] = (table["is_message"] & (table["peer"] != NULL)).to_numpy()[has_communicator]
    kernel_of_pair, call_of_pair = (pairs[name].to_numpy(np.int64) for name in ("kernel", "call"))
    shares = np.bincount(kernel_of_pair)[kernel_of_pair] > 1
    has_one_kernel = np.bincount(call_of_pair)[call_of_pair] == 1
    rows = np.flatnonzero(has_one_kernel & is_message[call_of_pair])
    at, call = kernel_of_pair[rows], {name: table[name].to_numpy(np.int64)[call_of_pair[rows]] for name in _OF_MESSAGES}
    is_send = call["direction"] != RECEIVING
    return RankMessages(
        communicators=communicators,
        sizes=find_sizes(table, len(communicators)),
        uses=[(c, p, rank) for c, p, rank in used],
        job_ranks={process: rank for process, rank in ranks.items() if rank is not None},
        job_size=metadata.job_size,
        communicator=call["communicator"],
        process=call["process"],
        peer=call["peer"],
        is_send=is_send,
        order=call["begin"],
        time=np.where(is_send, kernel.begin[at], kernel.end[at]),
        handed=np.where(shares[rows], NULL, kernel.end[at]),
        bytes=call["bytes"],
    )
