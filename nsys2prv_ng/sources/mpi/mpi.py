"""Reads MPI calls on host threads with their parameters, communicators, and messages with two known ends.

Ranks and communicators are registered by name. Their values depend on all reports, so `join` assigns them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.groups import map_unambiguous
from nsys2prv_ng.arrays.row_keys import find_starts
from nsys2prv_ng.arrays.types import IntArray, PlaceColumn
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.intervals.nesting import mark_crossing
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Labels, Value
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.paraver.value_tables import CLASSES, COLLECTIVE, VALUES, assign_values, classify_call
from nsys2prv_ng.records.columns import Pair, make_intervals, select
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.runtime.limits import allow_pandas
from nsys2prv_ng.sources.mpi import messages as mpi_messages
from nsys2prv_ng.sources.mpi import nvtx_ranges
from nsys2prv_ng.sources.mpi.communicators import TABLE as COMMUNICATORS
from nsys2prv_ng.sources.mpi.communicators import WORLD, AllCommunicators, Communicators, read_communicators
from nsys2prv_ng.sources.mpi.messages import ANY_SOURCE, NOBODY, RECEIVES, SENDS, MpiCalls, MpiMessages, MpiRows
from nsys2prv_ng.sources.shared import report_reader
from nsys2prv_ng.sources.shared.host_calls import select_sound_intervals
from nsys2prv_ng.sources.shared.reasons import OVERLAPS_CALL, SAME_CALL
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import EventRows, JoinInput, JoinResult, Result, Source
from nsys2prv_ng.value_class import ValueClass

_CALL = ("start", "end", "globalTid", "textId")
_PARAMETERS = ("commHandle", "tag", "remoteRank", "size", "recvSize", "rootRank", "requestHandle")
TABLES = tuple(Table(name, _CALL, dict.fromkeys(_PARAMETERS, NULL)) for name in nvtx_ranges.EVENT_TABLES)


class MpiJoinData(ValueClass):
    """The data of one report for `join`.

    `rank_names`: names of ranks in the space RANK_NAMES. `initialised`: places of the calls that initialised MPI; none
    if unsound rows were dropped, because later calls may be lost. `finalised`: places of the calls that finalised MPI.
    """

    communicators: Communicators
    messages: MpiMessages
    rank_names: list[str]
    call_names: list[str]
    initialised: PlaceColumn
    finalised: PlaceColumn


def read(reader: ReportReader) -> Result:
    """Return an interval for each call, with its parameters. The rows of one call are merged into one interval."""
    columns, name, names = _gather(reader)
    result = Result(read=name.size)
    if not name.size:
        return result
    sound = select_sound_intervals(result, columns["start"], columns["end"], columns["globalTid"])
    columns, name = {key: column[sound] for key, column in columns.items()}, name[sound]
    communicators = read_communicators(reader)
    rows = _make_rows(reader, communicators, columns, name, names)
    calls = _find_calls(rows)
    messages = mpi_messages.read_messages(calls)
    initialised, finalised = (_find_places(rows, names, function) for function in ("MPI_Init", "MPI_Finalize"))

    ranks = reader.metadata.ranks
    result.evidence.collectives.append(mpi_messages.collect_evidence(calls, names, communicators, ranks))
    if initialised.size:  # otherwise the first messages may be missing, and the k-th sent is not the k-th received
        result.evidence.messages.append(mpi_messages.collect_messages(messages, communicators, ranks))
    if result.dropped:
        initialised = initialised[:0]
    result.drop(SAME_CALL, name.size - calls.first.size)
    crosses = mark_crossing(rows.thread[calls.first], rows.begin[calls.first], rows.end[calls.last])
    result.drop(OVERLAPS_CALL, int(crosses.sum()))
    _write(reader.labels, result, calls.take(~crosses), names, communicators.keys)
    rank_names = list(reader.labels.names.get(RANK_NAMES, {}))
    result.join_data = MpiJoinData(communicators, messages, rank_names, names, initialised, finalised)
    return result


def _gather(reader: ReportReader) -> tuple[dict[str, IntArray], IntArray, list[str]]:
    """Return the rows of a report's calls from all tables: columns, index of each name, distinct names."""
    columns = reader.stack(nvtx_ranges.EVENT_TABLES, (*_CALL, *_PARAMETERS))
    index, names = reader.names(columns["textId"])
    ranges = reader.once(nvtx_ranges.find_mpi_ranges)
    if ranges.rows.size:
        nvtx = reader.columns(nvtx_ranges.NVTX)
        null = np.full(ranges.rows.size, NULL)
        columns = {name: nvtx[name][ranges.rows] if name in _CALL else null for name in columns}
        index, names = ranges.name_index, ranges.names
    return columns, index, names


def _make_rows(
    reader: ReportReader, communicators: Communicators, columns: dict[str, IntArray], name: IntArray, names: list[str]
) -> MpiRows:
    """Make rows with places, roles, communicators and partners from nsys's columns."""
    tid, begin, handle = columns["globalTid"], columns["start"], columns["commHandle"]
    process, role = get_process(tid), np.array([mpi_messages.get_role(name) for name in names], np.int64)[name]
    return MpiRows(
        begin=begin,
        end=columns["end"],
        thread=tid,
        process=process,
        place=reader.places.threads(tid, application=True),
        name=name,
        role=role,
        communicator=communicators.resolve(process, handle, begin),
        has_communicator=handle != NULL,
        partner=_translate_partners(columns["remoteRank"], role, process, communicators.mpich),
        tag=columns["tag"],
        root=columns["rootRank"],
        bytes=columns["size"],
        received_bytes=columns["recvSize"],
        request=columns["requestHandle"],
    )


def _translate_partners(remote: IntArray, role: IntArray, process: IntArray, mpich: set[int]) -> IntArray:
    """Return the partners, with ANY_SOURCE and NOBODY for MPI's constants, which differ between implementations."""
    any_source = np.where(np.isin(process, list(mpich)), -2, -1)
    is_any = (remote == any_source) & (role & SENDS == 0)
    return np.where((remote == NULL) | (remote >= 0), remote, np.where(is_any, ANY_SOURCE, NOBODY))


def _find_calls(rows: MpiRows) -> MpiCalls:
    """Return the first and last row of each call. A Sendrecv has two rows: first the send, then the receive."""
    order = np.lexsort((rows.end, rows.name, rows.begin, rows.thread))
    is_first = rows.role[order] & mpi_messages.SEVERAL_ROWS == 0
    is_first[find_starts(rows.thread[order], rows.begin[order], rows.name[order])] = True
    starts = np.flatnonzero(is_first)
    first, last = order[starts], order[np.append(starts, order.size)[1:] - 1]
    in_rows = np.argsort(first)
    return MpiCalls(rows, first[in_rows], last[in_rows])


def _find_places(rows: MpiRows, names: list[str], function: str) -> IntArray:
    """Return the places of the rows of an MPI function, under any name with the same value."""
    is_function = np.array([VALUES.get(name) == VALUES[function] for name in names], np.bool_)
    return rows.place[is_function[rows.name]]


def _write(labels: Labels, result: Result, calls: MpiCalls, names: list[str], keys: list[str]) -> None:
    """Add records and states of calls. `keys`: the keys of communicators."""
    rows, name = calls.rows, calls.rows.name[calls.first]
    class_number = np.array([CLASSES.index(classify_call(text)) for text in names], np.int64)[name]
    for number in np.unique(class_number):
        here = class_number == number
        ids = report_reader.register_used(labels, types.MPI_CALLS[CLASSES[number]].names, names, name[here])
        _write_class(labels, result, CLASSES[number], calls.take(here), ids, keys)
    state = np.array([mpi_messages.get_state(text) for text in names], np.int64)[name]
    result.add_states(rows.place[calls.first], rows.begin[calls.first], rows.end[calls.last], state)


def _write_class(
    labels: Labels, result: Result, call_class: str, calls: MpiCalls, ids: IntArray, keys: list[str]
) -> None:
    """Add the records of the calls of one class.

    Amounts are reset at the end of their call, so calls with the same kinds of amounts are written together.
    """
    handle = labels.handle(types.MPI_CALLS[call_class])
    make_pairs = make_collective_pairs if call_class == COLLECTIVE else make_message_pairs
    attributes, amounts = make_pairs(labels, keys, calls)
    amount_bits = np.zeros(ids.size, np.int64)
    for bit, amount in enumerate(amounts):
        amount_bits |= np.asarray(amount.present, np.int64) << bit
    rows = calls.rows
    place, begin, end = rows.place[calls.first], rows.begin[calls.first], rows.end[calls.last]
    opening = [Pair(handle, ids), *attributes, *amounts]
    for bits in np.unique(amount_bits):
        part = amount_bits == bits
        closing = [handle, *(amount.handle for bit, amount in enumerate(amounts) if bits >> bit & 1)]
        result.records.append(make_intervals(place[part], begin[part], end[part], select(opening, part), closing))


# ---- parameters of calls ---------------------------------------------------------------------------------------------


RANK_NAMES, COMMUNICATOR_NAMES = types.MPI_PARTNER.names, types.MPI_COMMUNICATOR.names
"""Name spaces of communicator ranks and of communicators."""


def make_collective_pairs(labels: Labels, keys: Sequence[str], calls: MpiCalls) -> tuple[list[Pair], list[Pair]]:
    """Make pairs for root and communicator, and pairs for sent and received bytes of collectives.

    The bytes are amounts, which are reset to 0 at the end of a call. `keys`: the keys of communicators.
    """
    rows = calls.rows
    root, communicator = rows.root[calls.first], rows.communicator[calls.first]
    attributes = [
        _make_rank_pair(labels, keys, types.MPI_ROOT, communicator, np.where(root >= 0, root, NULL)),
        _make_communicator_pair(labels, keys, types.MPI_COLLECTIVE_COMMUNICATOR, calls),
    ]
    amounts = [
        report_reader.make_number_pair(labels, types.MPI_SENT_BYTES, rows.bytes[calls.first]),
        report_reader.make_number_pair(labels, types.MPI_RECEIVED_BYTES, rows.received_bytes[calls.first]),
    ]
    return attributes, amounts


def make_message_pairs(labels: Labels, keys: Sequence[str], calls: MpiCalls) -> tuple[list[Pair], list[Pair]]:
    """Make pairs for partner, tag and communicator, and pairs for bytes of other calls, likewise.

    The receiving half of a Sendrecv has separate event types.
    """
    rows, first, last = calls
    is_sendrecv = rows.role[first] & (SENDS | RECEIVES) == SENDS | RECEIVES
    received_columns = rows.partner, rows.tag, rows.bytes
    source, tag, received = (np.where(is_sendrecv, column[last], NULL) for column in received_columns)
    attributes = [
        _make_rank_pair(labels, keys, types.MPI_PARTNER, rows.communicator[first], rows.partner[first]),
        report_reader.make_number_pair(labels, types.MPI_TAG, rows.tag[first]),
        _make_communicator_pair(labels, keys, types.MPI_COMMUNICATOR, calls),
        _make_rank_pair(labels, keys, types.MPI_SENDRECV_SOURCE, rows.communicator[last], source),
        report_reader.make_number_pair(labels, types.MPI_SENDRECV_TAG, tag),
    ]
    amounts = [
        report_reader.make_number_pair(labels, types.MPI_BYTES, rows.bytes[first]),
        report_reader.make_number_pair(labels, types.MPI_SENDRECV_BYTES, received),
    ]
    return attributes, amounts


def _make_rank_pair(
    labels: Labels, keys: Sequence[str], event_type: EventType, communicator: IntArray, rank: IntArray
) -> Pair:
    """Make a pair for the calls with a rank."""
    ids = report_reader.register_ranks(labels, event_type.names, keys, communicator, rank)
    return report_reader.make_partial_pair(labels, event_type, ids, rank != NULL)


def _make_communicator_pair(labels: Labels, keys: Sequence[str], event_type: EventType, calls: MpiCalls) -> Pair:
    """Make a pair for the calls with a communicator."""
    present = calls.rows.has_communicator[calls.first]
    ids = report_reader.register_used(labels, event_type.names, keys, calls.rows.communicator[calls.first][present])
    return report_reader.make_partial_pair(labels, event_type, ids, present)


# ---- all reports together ----------------------------------------------------------------------------------------


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """Return the values of calls, ranks and communicators, which depend on all reports, and messages between tasks."""
    reports: list[tuple[JoinInput, MpiJoinData]] = [(part, part.data) for part in parts if part.data is not None]
    if not reports:
        return JoinResult()
    communicators = AllCommunicators(data.communicators for _, data in reports)
    task_of_rank = map_unambiguous((rank, task) for task, rank in enumerate(tree.ranks) if rank is not None)
    call_names = {name for _, data in reports for name in data.call_names}
    calls = {name: Value(*value) for name, value in assign_values(call_names).items()}
    rank_names = {name for _, data in reports for name in data.rank_names}
    joined = JoinResult(
        assigned={
            **{event_type.names: calls for event_type in types.MPI_CALLS.values()},
            RANK_NAMES: _assign_ranks(rank_names, communicators, tree),
            COMMUNICATOR_NAMES: communicators.make_values(),
        },
        communicators=communicators.make_header(task_of_rank),
    )
    allow_pandas()
    try:
        from nsys2prv_ng.sources.mpi.matching import ReportMessages, match_messages
    except Exception as error:  # a damaged installation of pandas may raise anything
        text = f"MPI messages cannot be matched without pandas ({error}); install pandas again, or skip MPI"
        raise TranslationError(text, see=("sources",)) from error
    messages = [ReportMessages(d.messages, d.communicators.keys, part.rows, part.clock) for part, d in reports]
    result, joined.messages[source_names.MPI] = match_messages(
        messages, communicators, tree.task_of_row, task_of_rank, *_find_captured_time(reports, tree)
    )
    if result.read:
        joined.accounts["mpi_messages"] = result
    return joined


def _assign_ranks(names: Iterable[str], communicators: AllCommunicators, tree: ObjectTree) -> dict[str, Value]:
    """Return the value of each rank of a communicator: its rank in the world plus one.

    Higher values stand for an unknown rank, no process and any source.
    """
    above = max([communicators.get_group(WORLD).size, *(rank + 1 for rank in tree.ranks if rank is not None)])
    values = {}
    for name in names:
        key, local = report_reader.parse_rank(name)
        rank = communicators.get_world_rank(key, local) if local >= 0 else None
        if rank is not None:
            values[name] = Value(rank + 1, f"rank {rank}")
        elif local == ANY_SOURCE:
            values[name] = Value(above + 3, "any source")
        else:
            values[name] = Value(above + 2, "no process") if local == NOBODY else Value(above + 1, "unknown rank")
    return values


def _find_captured_time(
    reports: Sequence[tuple[JoinInput, MpiJoinData]], tree: ObjectTree
) -> tuple[set[int], set[int]]:
    """Find the tasks in only one report that have every call since MPI_Init, and among them, until MPI_Finalize."""
    report_count: Counter[int] = Counter()
    initialised: set[int] = set()
    finalised: set[int] = set()
    for part, data in reports:
        report_count.update(set(tree.task_of_row[part.rows[part.rows >= 0]].tolist()))
        initialised.update(tree.task_of_row[part.rows[data.initialised]].tolist())
        finalised.update(tree.task_of_row[part.rows[data.finalised]].tolist())
    from_init = {task for task in initialised if report_count[task] == 1}
    return from_init, from_init & finalised


SOURCE = Source(
    source_names.MPI,
    "MPI calls",
    (*TABLES, COMMUNICATORS, nvtx_ranges.TABLE),
    read,
    join,
    MpiJoinData,
    counted_tables=(
        *(EventRows(table.name, "globalTid") for table in TABLES),
        EventRows(nvtx_ranges.NVTX, "globalTid", names=nvtx_ranges.NAMES, otherwise=True),
    ),
    noun="calls",
    needed_by=("mpi", "critical_path"),
    load=LoadCost(states=2, events=4, pairs=7, communications=0.3),
)
