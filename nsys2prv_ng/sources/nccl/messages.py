"""Joins NCCL over all reports: communicators, the tasks of their ranks, and messages between ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import count_earlier, find_distinct_rows, find_rows, mark_repeated
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.operations.parts import MessagePairs
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.labels import Value
from nsys2prv_ng.records.columns import make_communications
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.nccl.communicators import Communicator, Reports, find_communicators
from nsys2prv_ng.sources.nccl.join_data import MessageEnds
from nsys2prv_ng.sources.nccl.payload_events import RANK_NAMES
from nsys2prv_ng.sources.shared.reasons import PEER_UNKNOWN, RANK_UNKNOWN, RECEIVE_ALONE, SEND_ALONE
from nsys2prv_ng.sources.shared.report_reader import parse_rank
from nsys2prv_ng.sources.shared.source import JoinInput, JoinResult, NamedCommunicator, Result

MESSAGES = "nccl_messages"
_BY_ID = -2
"""Stands for the sender of a message that its id matches."""


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """Return values for communicators, operations and ranks, and a communication for each send and its receive."""
    reports = [(part, part.data) for part in parts]
    communicators = find_communicators(reports, tree)
    joined = JoinResult()
    joined.assigned[types.NCCL_COMMUNICATOR.names] = {c.name: Value(c.number, c.label) for c in communicators.values()}
    joined.nccl_communicators = [
        NamedCommunicator(c.name, c.number, c.label, c.axis, c.ranks, tuple(sorted(c.members)))
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
    calls, rank, peer_known = _gather_messages(reports, tree, communicators)
    result = Result()
    has_id = (calls.id != NULL) & ~mark_repeated(calls.communicator, calls.id, calls.receives.astype(np.int64))
    no_route = ~has_id & (calls.peer == NULL)
    unknown = ~has_id & ~no_route & (rank < 0)
    rows = np.flatnonzero(~unknown & ~no_route)
    rows = rows[np.argsort(calls.order[rows], kind="stable")]
    known, by_id, rank, peer_known = calls.take(rows), has_id[rows], rank[rows], (peer_known | has_id)[rows]
    source = np.where(by_id, _BY_ID, np.where(known.receives, known.peer, rank))
    target = np.where(by_id, known.id, np.where(known.receives, rank, known.peer))
    number = count_earlier(known.communicator, source, target, known.receives.astype(np.int64))
    sends, receives = np.flatnonzero(~known.receives), np.flatnonzero(known.receives)
    key = (known.communicator, source, target, number)
    match = find_rows([column[receives] for column in key], [column[sends] for column in key])
    matched = receives[match[match >= 0]]
    sent, received = known.take(sends[match >= 0]), known.take(matched)

    # A message counts as read once, whether the reports contain one of its ends or both.
    result.read = calls.order.size - matched.size
    result.drop(RANK_UNKNOWN, int(unknown.sum()))
    result.drop(PEER_UNKNOWN, int(no_route.sum()))
    for alone, reason in ((sends[match < 0], SEND_ALONE), (np.setdiff1d(receives, matched), RECEIVE_ALONE)):
        result.drop(PEER_UNKNOWN, int((~peer_known[alone]).sum()))
        result.drop(reason, int(peer_known[alone].sum()))
    size = np.where(sent.bytes == NULL, received.bytes, sent.bytes)
    line = (sent.place, sent.begin, received.place, received.end)
    result.records.append(make_communications(*line, np.maximum(size, 0), types.TAG_NCCL))
    ran = sent.has_kernel & received.has_kernel
    send, receive = ((end.place[ran], end.begin[ran], end.begin[ran], end.end[ran]) for end in (sent, received))
    return result, MessagePairs(*send, *receive, size[ran], send[0], receive[0])


def _gather_messages(
    reports: Reports, tree: ObjectTree, communicators: dict[str, Communicator]
) -> tuple[MessageEnds, IntArray, BoolArray]:
    """Return (sends and receives of all reports, rank of each caller or -1, whether the task of each peer is known).

    The ends are on the common clock, with numbers of communicators and rows of the trace.
    """
    placed, ranks, known = [], [], []
    for part, data in reports:
        ends, used = data.messages, [communicators[name] for name in data.communicators]
        rows = part.rows[ends.caller]
        caller, callers = find_distinct_rows(ends.communicator, tree.task_of_row[rows])
        peer, peers = find_distinct_rows(ends.communicator, ends.peer)
        ranks.append(np.array([used[c].find_rank(task) for c, task in callers], np.int64)[caller])
        known.append(np.array([rank in used[c].member_of_rank for c, rank in peers], np.bool_)[peer])
        numbers = np.array([communicator.number for communicator in used], np.int64)
        order, begin, end = map(part.clock, (ends.order, ends.begin, ends.end))
        placed.append(
            ends._replace(
                communicator=numbers[ends.communicator],
                caller=rows,
                order=order,
                place=part.rows[ends.place],
                begin=begin,
                end=end,
            )
        )
    calls = MessageEnds._make(map(np.concatenate, zip(*placed, strict=True)))
    return calls, np.concatenate(ranks), np.concatenate(known)
