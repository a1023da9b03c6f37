"""Joins NCCL over all reports: communicators, the tasks of their ranks, and messages between ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.operations.parts import MessagePairs
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.labels import Value
from nsys2prv_ng.records.columns import make_communications
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.nccl.communicators import Communicator, Reports, find_communicators
from nsys2prv_ng.sources.nccl.inspector import read_inspector_logs
from nsys2prv_ng.sources.nccl.payload_events import RANK_NAMES
from nsys2prv_ng.sources.shared.pairs import parse_rank
from nsys2prv_ng.sources.shared.reasons import PEER_UNKNOWN, RANK_UNKNOWN, RECEIVE_ALONE, SEND_ALONE
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import JoinInput, JoinResult, NamedCommunicator

MESSAGES = "nccl_messages"
_BY_ID = -2
"""Stands for the sender of a message that its id matches."""


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """Return values for communicators, operations and ranks, and a communication for each send and its receive."""
    reports = [(part, part.data) for part in parts]
    folder = next((part.nccl_inspector for part in parts), None)
    logs = None if folder is None else read_inspector_logs(folder)
    communicators = find_communicators(reports, tree, logs)
    joined = JoinResult()
    if logs is not None:
        used = [call for _, data in reports for call in data.list_used()]
        joined.warnings = logs.check({c.name: c.recorded for c in communicators.values()}, used)
    joined.assigned[types.NCCL_COMMUNICATOR.names] = {c.name: Value(c.number, c.label) for c in communicators.values()}
    joined.nccl_communicators = [
        NamedCommunicator(c.name, c.number, c.label, c.named, c.axis, c.ranks, tuple(sorted(c.members)))
        for c in sorted(communicators.values(), key=lambda c: c.number)
    ]
    operations = {name for _, data in reports for name in data.operations}
    others = sorted(operations - set(types.NCCL_OPERATIONS))
    numbers = types.NCCL_OPERATIONS | {name: i for i, name in enumerate(others, len(types.NCCL_OPERATIONS) + 1)}
    joined.assigned[types.NCCL_OPERATION.names] = {name: Value(numbers[name], name) for name in operations}
    rank_names = {name for _, data in reports for name in data.rank_names}
    joined.assigned[RANK_NAMES] = _assign_ranks(rank_names, tree, communicators)
    joined.accounts[MESSAGES], joined.messages[source_names.NCCL] = _match_messages(reports, tree, communicators)
    return joined


def _assign_ranks(names: Iterable[str], tree: ObjectTree, communicators: dict[str, Communicator]) -> dict[str, Value]:
    """Return the value of each rank: the number and name of its task. Ranks without a task follow."""
    values: dict[str, Value] = {}
    without_task = []
    for name in names:
        communicator, rank = parse_rank(name)
        task = communicators[communicator].member_of_rank.get(rank) if communicator else None
        if task is None:
            without_task.append((communicators[communicator].number if communicator else 0, rank, name))
        else:
            values[name] = Value(task + 1, tree.model.tasks[task].name)
    for value, (number, rank, name) in enumerate(sorted(without_task), len(tree.model.tasks) + 1):
        values[name] = Value(
            value, f"rank {rank} of {f'communicator {number}' if number else 'a communicator'}, task unknown"
        )
    return values


# ---- messages --------------------------------------------------------------------------------------------------------


def _match_messages(
    reports: Reports, tree: ObjectTree, communicators: dict[str, Communicator]
) -> tuple[Result, MessagePairs]:
    """Make a communication from the n-th send of a rank to another rank, and the n-th receive of that rank from it.

    If messages have ids, the only send and the only receive with an id make one instead.

    Also return the messages with kernels at both ends, because a call on the host does not show when data arrives.
    """
    calls = _gather_messages(reports, tree, communicators)
    result = Result()
    has_id = (calls["id"] != NULL) & ~calls.duplicated(["communicator", "id", "receives"], keep=False)
    no_route = ~has_id & (calls["peer"] == NULL)
    unknown = ~has_id & ~no_route & (calls["rank"] < 0)
    known = calls[~unknown & ~no_route].sort_values("order", kind="stable")
    receives = known["receives"].to_numpy(np.bool_)
    known["source"] = np.where(receives, known["peer"], known["rank"])
    known["target"] = np.where(receives, known["rank"], known["peer"])
    by_id = has_id[known.index].to_numpy(np.bool_)
    known.loc[by_id, "source"] = _BY_ID
    known.loc[by_id, "target"] = known["id"]
    known.loc[by_id, "peer_known"] = 1
    route = ["communicator", "source", "target"]
    known["number"] = known.groupby([*route, "receives"]).cumcount()
    sends, receipts = known[~receives], known[receives]
    pairs = sends.merge(receipts, on=[*route, "number"], suffixes=("", "_received"))

    # A message counts as read once, whether the reports contain one of its ends or both.
    result.read = len(calls) - len(pairs)
    result.drop(RANK_UNKNOWN, int(unknown.sum()))
    result.drop(PEER_UNKNOWN, int(no_route.sum()))
    for ends, reason in ((sends, SEND_ALONE), (receipts, RECEIVE_ALONE)):
        peer_known = ends["peer_known"].to_numpy(np.bool_)
        unpaired = ~pd.MultiIndex.from_frame(ends[[*route, "number"]]).isin(
            pd.MultiIndex.from_frame(pairs[[*route, "number"]])
        )
        result.drop(PEER_UNKNOWN, int((unpaired & ~peer_known).sum()))
        result.drop(reason, int((unpaired & peer_known).sum()))
    column = {name: pairs[name].to_numpy(np.int64) for name in pairs.columns}
    size: IntArray = np.where(column["bytes"] == NULL, column["bytes_received"], column["bytes"])
    line = (column["row"], column["begin"], column["row_received"], column["end_received"])
    result.records.append(make_communications(*line, np.maximum(size, 0), types.TAG_NCCL))
    ran = (column["has_kernel"] & column["has_kernel_received"]) > 0
    ends = [[column[f"{name}{end}"][ran] for name in ("row", "begin", "end")] for end in ("", "_received")]
    send, receive = ((row, begin, begin, end) for row, begin, end in ends)
    return result, MessagePairs(*send, *receive, size[ran], send[0], receive[0])


def _gather_messages(reports: Reports, tree: ObjectTree, communicators: dict[str, Communicator]) -> pd.DataFrame:
    """Return the sends and receives of all reports, on the common clock, with rows of the trace.

    `communicator` is its number in the trace, `rank` the caller's rank in it or -1. `peer_known` is set if the task of
    the peer is known.
    """
    tables = []
    for part, data in reports:
        table = data.messages.copy()
        for name in ("order", "begin", "end"):
            table[name] = part.clock(table[name].to_numpy(np.int64))
        table["row"] = part.rows[table["place"].to_numpy(np.int64)]
        table["task"] = tree.task_of_row[part.rows[table["caller"].to_numpy(np.int64)]]
        used = [communicators[name] for name in data.communicators]
        index, task, rank = (table[name].to_numpy(np.int64) for name in ("communicator", "task", "peer"))
        caller, callers = find_distinct_rows(index, task)
        table["rank"] = np.array([used[c].find_rank(task) for c, task in callers], np.int64)[caller]
        peer, peers = find_distinct_rows(index, rank)
        table["peer_known"] = np.array([rank in used[c].member_of_rank for c, rank in peers], np.int64)[peer]
        table["communicator"] = np.array([communicator.number for communicator in used], np.int64)[index]
        tables.append(table)
    messages: pd.DataFrame = pd.concat(tables, ignore_index=True).astype(np.int64)
    return messages
