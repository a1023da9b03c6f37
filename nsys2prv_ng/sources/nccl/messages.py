"""Joins NCCL over all reports: communicators, the tasks of their ranks, and messages between ranks.

All ranks of a communicator use the same 64-bit id. Its ranks may differ from the ranks of the job: the calls that
create or end it record which task is its rank r. If the reports contain no such call for some ranks, these ranks go to
the remaining members, in the order of tasks, provided that no member is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.objects.places import Thread
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.operations.parts import MessagePairs
from nsys2prv_ng.operations.ranks import CommunicatorRanks
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.labels import Labels, Value
from nsys2prv_ng.records.columns import make_communications
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import PID_MASK
from nsys2prv_ng.sources.nccl.calls import RECEIVING, find_sizes
from nsys2prv_ng.sources.nccl.inspector import InspectorLogs, read_inspector_logs
from nsys2prv_ng.sources.nccl.kernels import NcclKernels
from nsys2prv_ng.sources.nccl.payload import Payloads
from nsys2prv_ng.sources.nccl.payload_events import RANK_NAMES
from nsys2prv_ng.sources.shared.pairs import parse_rank
from nsys2prv_ng.sources.shared.reasons import PEER_UNKNOWN, RANK_UNKNOWN, RECEIVE_ALONE, SEND_ALONE
from nsys2prv_ng.sources.shared.result import NO_END, Result
from nsys2prv_ng.sources.shared.source import JoinInput, JoinResult
from nsys2prv_ng.text.names import quote_name

MESSAGES = "nccl_messages"
_BY_ID = -2
"""Stands for the sender of a message that its id matches."""


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
    used: pd.DataFrame
    """communicator, name (index into `calls`), bytes: the distinct sizes of calls."""

    def list_used(self) -> list[tuple[str, str, int]]:
        """Return communicator, call and size (bytes) of the distinct calls."""
        rows = self.used[["communicator", "name", "bytes"]].to_numpy(np.int64).tolist()
        return [(self.communicators[c], self.calls[name], size) for c, name, size in rows]


def make_join_data(
    labels: Labels, names: list[str], payload: Payloads, table: pd.DataFrame, kernels: NcclKernels, pairs: pd.DataFrame
) -> NcclJoinData:
    """Make the data of one report from its table of calls, which has indices into their names.

    `pairs`: indices of kernels and of their calls.
    """
    uses = table.loc[table["communicator"] >= 0, ["communicator", "place", "rank", "devices", "begin"]]
    uses = uses.groupby(["communicator", "place", "rank", "devices"], as_index=False)["begin"].min()

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
    rank_names = list(labels.names.get(RANK_NAMES, {}))
    sizes = find_sizes(table, len(payload.communicators))
    known = table.loc[(table["communicator"] >= 0) & (table["bytes"] != NULL), ["communicator", "name", "bytes"]]
    used = known.drop_duplicates().astype(np.int64)
    used["name"], calls = pd.factorize(np.array(names, object)[used["name"]], sort=True)
    return NcclJoinData(payload.communicators, sizes, payload.operations, rank_names, uses, messages, list(calls), used)


_Reports = Sequence[tuple[JoinInput, NcclJoinData]]


@dataclass
class _Communicator(CommunicatorRanks):
    """A communicator: its number in the trace, the tasks that use it, and the task of each known rank."""

    name: str = ""
    number: int = 0
    first: int = 0
    """Time of its first use (ns)."""
    recorded: int = 0
    """Number of ranks that calls record; 0 if none does."""

    @property
    def ranks(self) -> int:
        """Number of ranks; if no call records it, the number of ranks that use the communicator or are named."""
        return self.size or max(len(self.members), len(self.member_of_rank), self.largest + 1)


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """Return values for communicators, operations and ranks, and a communication for each send and its receive."""
    reports = [(part, part.data) for part in parts]
    folder = next((part.nccl_inspector for part in parts), None)
    logs = None if folder is None else read_inspector_logs(folder)
    communicators = _find_communicators(reports, tree, logs)
    joined = JoinResult()
    if logs is not None:
        used = [call for _, data in reports for call in data.list_used()]
        joined.warnings = logs.check({c.name: c.recorded for c in communicators.values()}, used)
    joined.assigned[types.NCCL_COMMUNICATOR.names] = {
        c.name: Value(c.number, f"comm {c.number}{_name(c.name, logs)} ({c.ranks} rank{'' if c.ranks == 1 else 's'})")
        for c in communicators.values()
    }
    operations = {name for _, data in reports for name in data.operations}
    others = sorted(operations - set(types.NCCL_OPERATIONS))
    numbers = types.NCCL_OPERATIONS | {name: i for i, name in enumerate(others, len(types.NCCL_OPERATIONS) + 1)}
    joined.assigned[types.NCCL_OPERATION.names] = {name: Value(numbers[name], name) for name in operations}
    rank_names = {name for _, data in reports for name in data.rank_names}
    joined.assigned[RANK_NAMES] = _assign_ranks(rank_names, tree, communicators)
    joined.accounts[MESSAGES], joined.messages[source_names.NCCL] = _match_messages(reports, tree, communicators)
    return joined


# ---- communicators ---------------------------------------------------------------------------------------------------


def _name(communicator: str, logs: InspectorLogs | None) -> str:
    """Return the name that logs give to a communicator, as part of its label; empty without one."""
    name = logs.communicators[communicator].name if logs and communicator in logs.communicators else ""
    return f" {quote_name(name)}" if name else ""


def _find_communicators(reports: _Reports, tree: ObjectTree, logs: InspectorLogs | None) -> dict[str, _Communicator]:
    """Return all communicators by id, numbered from 1: the largest first, then by tasks, then by first use.

    What calls do not record of their sizes and ranks may be in logs.
    """
    communicators: dict[str, _Communicator] = {}
    for part, data in reports:
        columns = (data.uses[name].tolist() for name in ("communicator", "place", "rank", "devices", "begin"))
        for index, place, rank, devices, begin in zip(*columns, strict=True):
            name = data.communicators[index]
            used = part.clock.at(begin)
            communicator = communicators.setdefault(name, _Communicator(name=name, first=used))
            task = int(tree.task_of_row[part.rows[place]])
            communicator.first = min(communicator.first, used)
            communicator.members.add(task)
            if rank != NULL:
                communicator.member_of_rank[rank] = task
            if devices != NULL:
                communicator.member_of_rank |= dict.fromkeys(range(devices), task)
        for name, size in zip(data.communicators, data.sizes, strict=True):
            # If its calls were all dropped, it is new here.
            communicator = communicators.setdefault(name, _Communicator(name=name))
            communicator.size = communicator.recorded = max(communicator.size, size)
        for name, rank in map(parse_rank, data.rank_names):
            if name:
                communicators[name].largest = max(communicators[name].largest, rank)
    if logs is not None:
        _add_logged(reports, tree, communicators, logs)
    complete = _is_complete(reports, tree)
    ordered = sorted(communicators.values(), key=lambda c: (-c.ranks, sorted(c.members), c.first, c.name))
    for number, communicator in enumerate(ordered, 1):
        communicator.number = number
        communicator.fill_in_order(complete=complete)
    return communicators


def _add_logged(
    reports: _Reports, tree: ObjectTree, communicators: dict[str, _Communicator], logs: InspectorLogs
) -> None:
    """Add the sizes and ranks of communicators that no call records, from logs."""
    for part, data in reports:
        for index, place in data.uses[["communicator", "place"]].drop_duplicates().to_numpy(np.int64).tolist():
            communicator = communicators[data.communicators[index]]
            logged = logs.communicators.get(communicator.name)
            thread = part.places.all[place]
            if logged is not None and isinstance(thread, Thread):
                communicator.size = communicator.size or logged.size
                rank = logged.find_rank(part.metadata.host, thread.process & PID_MASK)
                if rank is not None:
                    communicator.member_of_rank.setdefault(rank, int(tree.task_of_row[part.rows[place]]))


def _is_complete(reports: _Reports, tree: ObjectTree) -> bool:
    """Return whether every rank of the job is in the trace, as far as the reports record the size of the job."""
    sizes = [part.metadata.job_size for part, _ in reports]
    return sum(rank is not None for rank in tree.ranks) >= max(sizes, default=0)


def _assign_ranks(names: Iterable[str], tree: ObjectTree, communicators: dict[str, _Communicator]) -> dict[str, Value]:
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
        values[name] = Value(value, f"rank {rank} of {f'comm {number}' if number else 'a communicator'}, task unknown")
    return values


# ---- messages --------------------------------------------------------------------------------------------------------


def _match_messages(
    reports: _Reports, tree: ObjectTree, communicators: dict[str, _Communicator]
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


def _gather_messages(reports: _Reports, tree: ObjectTree, communicators: dict[str, _Communicator]) -> pd.DataFrame:
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
