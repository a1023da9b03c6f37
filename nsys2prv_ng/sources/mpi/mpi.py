"""MPI: calls on host threads with their parameters, communicators, and a line for each message with two known ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import encode_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.lanes import mark_crossing
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Value
from nsys2prv_ng.paraver.mpi_values import CLASSES, COLLECTIVE, VALUES, assign, classify_call
from nsys2prv_ng.records.columns import Pair, make_intervals, select
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.sources.mpi import collectives as mpi_collectives
from nsys2prv_ng.sources.mpi import nvtx_ranges as mpi_nvtx
from nsys2prv_ng.sources.mpi.calls import RECEIVES, SENDS, SEVERAL_ROWS, get_role, get_state
from nsys2prv_ng.sources.mpi.communicators import TABLE as COMMUNICATORS
from nsys2prv_ng.sources.mpi.communicators import WORLD, AllCommunicators, Communicators, read_communicators
from nsys2prv_ng.sources.mpi.matching import CapturedTime, ReportMessages, match_messages
from nsys2prv_ng.sources.mpi.messages import ANY_SOURCE, NOBODY, MpiMessages, MpiRows, read_messages
from nsys2prv_ng.sources.shared.host_calls import select_sound_intervals
from nsys2prv_ng.sources.shared.source import (
    EventRows,
    JoinInput,
    JoinResult,
    ReportReader,
    Result,
    Source,
    StateIntervals,
)

_CALL = ("start", "end", "globalTid", "textId")
_PARAMETERS = ("commHandle", "tag", "remoteRank", "size", "recvSize", "rootRank", "requestHandle")
TABLES = tuple(Table(name, _CALL, dict.fromkeys(_PARAMETERS, NULL)) for name in mpi_nvtx.EVENT_TABLES)

_RANKS, _COMMUNICATORS = types.MPI_PARTNER.names, types.MPI_COMMUNICATOR.names


_MERGED = "tells more of a call that another row shows"


@dataclass(frozen=True)
class MpiJoinData:
    """What one report leaves for all of them together."""

    communicators: Communicators
    messages: MpiMessages
    ranks: dict[str, tuple[str, int]]
    """Communicator and rank in it of each name in the space of ranks."""
    names: list[str]
    """Names of the calls."""
    begun: IntArray
    """Places of calls that initialised MPI, if every row of the report is sound: nothing is missing since then."""
    ended: IntArray
    """Places of calls that finalised it."""


def read(reader: ReportReader) -> Result:
    """An interval for each call with its parameters. Rows that tell more of a call that is shown are merged into it."""
    columns, index, names = _gather(reader)
    result = Result(read=index.size)
    if index.size:
        rows = select_sound_intervals(result, columns["start"], columns["end"], columns["globalTid"])
        _Report(reader, result, {name: column[rows] for name, column in columns.items()}, index[rows], names)
    return result


def _gather(reader: ReportReader) -> tuple[dict[str, IntArray], IntArray, list[str]]:
    """All rows of calls of a report, whatever table they are in: columns, index of each one's name, distinct names."""
    tables = [reader.columns(table.name) for table in TABLES]
    columns = {name: np.concatenate([table[name] for table in tables]) for name in (*_CALL, *_PARAMETERS)}
    index, names = reader.names(columns["textId"])
    ranges = reader.once(mpi_nvtx.find_mpi_ranges)
    if ranges.rows.size:
        nvtx = reader.columns(mpi_nvtx.NVTX)
        null = np.full(ranges.rows.size, NULL)
        columns = {name: nvtx[name][ranges.rows] if name in _CALL else null for name in columns}
        index, names = ranges.name_index, ranges.names
    return columns, index, names


def _partners(remote: IntArray, role: IntArray, process: IntArray, mpich: set[int]) -> IntArray:
    """Partners with MPI's constants, which differ between implementations, as ANY_SOURCE and NOBODY."""
    any_source = np.where(np.isin(process, list(mpich)), -2, -1)
    is_any = (remote == any_source) & (role & SENDS == 0)
    return np.where((remote == NULL) | (remote >= 0), remote, np.where(is_any, ANY_SOURCE, NOBODY))


def _calls(rows: MpiRows, thread: IntArray, name: IntArray) -> tuple[IntArray, IntArray]:
    """First and last row of each call, of which some have several: a Sendrecv first the send, then the receive."""
    order = np.lexsort((rows.end, name, rows.begin, thread))
    same = np.ones(order.size, np.bool_)
    for column in (thread, rows.begin, name):
        same[1:] &= column[order][1:] == column[order][:-1]
    same[:1] = False
    same &= rows.role[order] & SEVERAL_ROWS != 0
    starts = np.flatnonzero(~same)
    first, last = order[starts], order[np.append(starts, order.size)[1:] - 1]
    in_rows = np.argsort(first)
    return first[in_rows], last[in_rows]


class _Calls(NamedTuple):
    """First and last row of each of n calls."""

    first: IntArray
    last: IntArray


class _Report:
    """The MPI calls of one report, in columns of rows that have a thread and sound times."""

    def __init__(
        self, reader: ReportReader, result: Result, columns: dict[str, IntArray], index: IntArray, names: list[str]
    ) -> None:
        self.labels, self.result, self.columns = reader.labels, result, columns
        self.communicators = read_communicators(reader)
        self.ranks: dict[str, tuple[str, int]] = {}
        tid, begin = columns["globalTid"], columns["start"]
        process, role = get_process(tid), np.array([get_role(name) for name in names], np.int64)[index]
        self.rows = MpiRows(
            begin=begin,
            end=columns["end"],
            process=process,
            place=reader.places.threads(tid, application=True),
            role=role,
            communicator=self.communicators.meant(process, columns["commHandle"], begin),
            partner=_partners(columns["remoteRank"], role, process, self.communicators.mpich),
            tag=columns["tag"],
            bytes=columns["size"],
            request=columns["requestHandle"],
        )
        first, last = _calls(self.rows, tid, index)
        value = np.array([VALUES.get(name, 0) for name in names], np.int64)[index]
        begun, ended = (self.rows.place[value == VALUES[name]] for name in ("MPI_Init", "MPI_Finalize"))
        messages = read_messages(self.rows, first, last)
        result.shared = MpiJoinData(
            self.communicators,
            messages,
            self.ranks,
            names,
            begun if not result.dropped else begun[:0],
            ended,
        )
        ranks = reader.metadata.ranks
        calls = mpi_collectives.CollectiveCalls(
            index[first],
            process[first],
            self.rows.communicator[first],
            begin[first],
            self.rows.end[last],
            columns["size"][first],
            columns["rootRank"][first],
        )
        result.evidence.collectives.append(mpi_collectives.collect_evidence(calls, names, self.communicators, ranks))
        if begun.size:  # Else the first messages may be missing, and the k-th sent is not the k-th received.
            known = reader.places, self.communicators, ranks
            result.evidence.messages.append(mpi_collectives.collect_messages(messages, *known))
        result.drop(_MERGED, index.size - first.size)
        crosses = mark_crossing(tid[first], begin[first], self.rows.end[last])
        result.drop("crosses another of its thread", int(crosses.sum()))
        self._write(first[~crosses], last[~crosses], index, names)

    def _write(self, first: IntArray, last: IntArray, index: IntArray, names: list[str]) -> None:
        """Records and states of calls, given by their first and last row."""
        of_class = np.array([CLASSES.index(classify_call(name)) for name in names], np.int64)[index[first]]
        for number in np.unique(of_class):
            here = of_class == number
            name, calls = CLASSES[number], _Calls(first[here], last[here])
            used, position = np.unique(index[calls.first], return_inverse=True)
            ids = self.labels.name_ids(types.MPI_CALLS[name].names, [names[i] for i in used])[position]
            self._write_class(name, calls, ids)
        state = np.array([get_state(name) for name in names], np.int64)[index[first]]
        rows = self.rows
        self.result.states.append(StateIntervals(rows.place[first], rows.begin[first], rows.end[last], state))

    def _write_class(self, of_class: str, calls: _Calls, ids: IntArray) -> None:
        """Records of the calls of one class. Amounts end with their call: calls with the same of them go together."""
        handle = self.labels.handle(types.MPI_CALLS[of_class])
        parameters = self._collective_parameters if of_class == COLLECTIVE else self._message_parameters
        attributes, amounts = parameters(calls)
        has = np.zeros(ids.size, np.int64)
        for bit, amount in enumerate(amounts):
            has |= np.asarray(amount.present, np.int64) << bit
        begin, end, place = self.rows.begin[calls.first], self.rows.end[calls.last], self.rows.place[calls.first]
        opening = [Pair(handle, ids), *attributes, *amounts]
        for some in np.unique(has):
            part = has == some
            closing = [handle, *(amount.handle for bit, amount in enumerate(amounts) if some >> bit & 1)]
            self.result.records.append(
                make_intervals(place[part], begin[part], end[part], select(opening, part), closing)
            )

    def _collective_parameters(self, calls: _Calls) -> tuple[list[Pair], list[Pair]]:
        """(root and communicator, bytes sent and received) of collectives."""
        attributes = [
            *self._ranks(
                types.MPI_ROOT, calls.first, np.where(self.columns["rootRank"] >= 0, self.columns["rootRank"], NULL)
            ),
            *self._communicators(types.MPI_COLLECTIVE_COMMUNICATOR, calls.first),
        ]
        sent = self._numbers(types.MPI_SENT_BYTES, self.columns["size"][calls.first])
        return attributes, sent + self._numbers(types.MPI_RECEIVED_BYTES, self.columns["recvSize"][calls.first])

    def _message_parameters(self, calls: _Calls) -> tuple[list[Pair], list[Pair]]:
        """(partner, tag and communicator, bytes) of calls; what a Sendrecv receives has types of its own."""
        rows, both = self.rows, SENDS | RECEIVES
        attributes = [
            *self._ranks(types.MPI_PARTNER, calls.first, rows.partner),
            *self._numbers(types.MPI_TAG, rows.tag[calls.first]),
            *self._communicators(types.MPI_COMMUNICATOR, calls.first),
        ]
        amounts = self._numbers(types.MPI_BYTES, rows.bytes[calls.first])
        is_both = rows.role[calls.first] & both == both
        if is_both.any():
            partner = np.where(rows.role & both == both, rows.partner, NULL)
            attributes += self._ranks(types.MPI_SENDRECV_SOURCE, calls.last, partner)
            attributes += self._numbers(types.MPI_SENDRECV_TAG, np.where(is_both, rows.tag[calls.last], NULL))
            received = np.where(is_both, rows.bytes[calls.last], NULL)
            amounts += self._numbers(types.MPI_SENDRECV_BYTES, received)
        return attributes, amounts

    def _numbers(self, event_type: EventType, values: IntArray) -> list[Pair]:
        """Pairs of an event type where there is a value."""
        present = values != NULL
        return [Pair(self.labels.handle(event_type), values, present)] if present.any() else []

    def _ranks(self, event_type: EventType, rows: IntArray, ranks: IntArray) -> list[Pair]:
        """Pairs of ranks of the rows' communicators, by names that `join` gives values to."""
        present = ranks[rows] != NULL
        if not present.any():
            return []
        communicator, rank = self.rows.communicator[rows[present]], ranks[rows[present]]
        codes, first = encode_rows(communicator, rank)
        distinct = zip(communicator[first].tolist(), rank[first].tolist(), strict=True)
        meant = [(self.communicators.keys[i], local) for i, local in distinct]
        named = {f"{key} {local}": (key, local) for key, local in meant}
        self.ranks |= named
        ids = np.zeros(rows.size, np.int64)
        ids[present] = self.labels.name_ids(event_type.names, named)[codes]
        return [Pair(self.labels.handle(event_type), ids, present)]

    def _communicators(self, event_type: EventType, rows: IntArray) -> list[Pair]:
        """Pairs of the rows' communicators, where they have one."""
        present = self.columns["commHandle"][rows] != NULL
        if not present.any():
            return []
        used, position = np.unique(self.rows.communicator[rows[present]], return_inverse=True)
        ids = np.zeros(rows.size, np.int64)
        ids[present] = self.labels.name_ids(event_type.names, [self.communicators.keys[i] for i in used])[position]
        return [Pair(self.labels.handle(event_type), ids, present)]


# ---- all reports together ----------------------------------------------------------------------------------------


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """Values of calls, ranks and communicators, which all reports tell together, and messages from task to task."""
    told = [(part, part.shared) for part in parts if isinstance(part.shared, MpiJoinData)]
    if not told:
        return JoinResult()
    communicators = AllCommunicators(shared.communicators for _, shared in told)
    task_of_rank = _tasks_of_ranks(tree)
    names = {name for _, shared in told for name in shared.names}
    calls = {name: Value(*value) for name, value in assign(names).items()}
    ranks = {name: rank for _, shared in told for name, rank in shared.ranks.items()}
    joined = JoinResult(
        assigned={
            **{event_type.names: calls for event_type in types.MPI_CALLS.values()},
            _RANKS: _rank_values(ranks, communicators, tree),
            _COMMUNICATORS: communicators.values(),
        },
        communicators=communicators.header(task_of_rank),
    )
    reports = [ReportMessages(s.messages, s.communicators.keys, part.rows, part.clock) for part, s in told]
    result = match_messages(reports, communicators, tree.task_of_row, task_of_rank, _captured(told, tree))
    if result.read:
        joined.accounts["mpi_messages"] = result
    return joined


def _tasks_of_ranks(tree: ObjectTree) -> dict[int, int]:
    """Index of the task of each rank that only one task claims."""
    claimed: dict[int, list[int]] = {}
    for task, rank in enumerate(tree.ranks):
        if rank is not None:
            claimed.setdefault(rank, []).append(task)
    return {rank: tasks[0] for rank, tasks in claimed.items() if len(tasks) == 1}


def _rank_values(
    names: dict[str, tuple[str, int]], communicators: AllCommunicators, tree: ObjectTree
) -> dict[str, Value]:
    """Value of each rank of a communicator: its rank in the world plus one; the values above are of what is no rank."""
    world = communicators.groups.get(WORLD)
    above = max([world.size if world else 0, *(rank + 1 for rank in tree.ranks if rank is not None)])
    values = {}
    for name, (key, local) in names.items():
        rank = communicators.world_rank(key, local) if local >= 0 else None
        if rank is not None:
            values[name] = Value(rank + 1, f"rank {rank}")
        elif local == ANY_SOURCE:
            values[name] = Value(above + 3, "any source")
        else:
            values[name] = Value(above + 2, "no process") if local == NOBODY else Value(above + 1, "unknown rank")
    return values


def _captured(told: Sequence[tuple[JoinInput, MpiJoinData]], tree: ObjectTree) -> CapturedTime:
    """Tasks that are in one report, which has every call since MPI was initialised, and perhaps until its end."""
    find_reports: Counter[int] = Counter()
    begun: set[int] = set()
    ended: set[int] = set()
    for part, shared in told:
        find_reports.update(set(tree.task_of_row[part.rows[part.rows >= 0]].tolist()))
        begun.update(tree.task_of_row[part.rows[shared.begun]].tolist())
        ended.update(tree.task_of_row[part.rows[shared.ended]].tolist())
    from_init = {task for task in begun if find_reports[task] == 1}
    return CapturedTime(from_init, from_init & ended)


SOURCE = Source(
    "mpi",
    "MPI calls",
    (*TABLES, COMMUNICATORS, mpi_nvtx.TABLE),
    read,
    join,
    rows=(
        *(EventRows(table.name, "globalTid") for table in TABLES),
        EventRows(mpi_nvtx.NVTX, "globalTid", names=mpi_nvtx.NAMES, otherwise=True),
    ),
    row="calls",
)
