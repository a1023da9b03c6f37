"""Collects operations of one report in which ranks may wait for each other: NCCL's kernels, those of others, copies.

If no call records the communicator of NCCL's kernels, they are compared in the order in which they ran on each stream,
and so are kernels that CUDA graphs launch.

Kernels of other libraries record no communicator. They are matched by their order if each rank launches the same names
in the same order on the streams with such kernels, numbered by their first ones; the others are only known to exist.
`analysis/waits/waits.py` then checks that no rank left before another had entered. Copies move data from their start to
their end: what they wait for is over before they start.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays import row_keys as keys
from nsys2prv_ng.arrays.types import IntArray, pick, put
from nsys2prv_ng.operations import parts
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import PID_MASK, Metadata, get_process
from nsys2prv_ng.sources.cuda.communication import OTHER, find_classes, mark_communication
from nsys2prv_ng.sources.cuda.device_operations import KERNEL, MEMCPY, locate
from nsys2prv_ng.sources.nccl.calls import RECEIVING, CallTable, find_sizes
from nsys2prv_ng.sources.nccl.kernels import FUNCTIONS, NO_FUNCTION, CallPairs, NcclKernels, parse_function
from nsys2prv_ng.sources.shared.nccl_names import COLLECTIVES
from nsys2prv_ng.sources.shared.report_reader import ReportReader

_KINDS = {
    **dict.fromkeys(("ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclAlltoAll"), parts.SYNCHRONISING),
    **dict.fromkeys(("ncclBroadcast", "ncclBcast", "ncclScatter"), parts.FROM_ROOT),
    **dict.fromkeys(("ncclReduce", "ncclGather"), parts.TO_ROOT),
}
_SYNCHRONISING_FUNCTIONS = [parse_function(name) for name in ("ncclAllReduce", "ncclAllGather", "ncclReduceScatter")]
"""Not ncclAlltoAll, which runs in kernels of sends and receives."""


class _Work(NamedTuple):
    """n operations on streams: rank, place, start and end (ns), index of the name.

    `names`: names of operations. `owners`: process id and device of each rank.
    """

    names: list[str]
    owners: list[tuple[int, int]]
    member: IntArray
    place: IntArray
    begin: IntArray
    end: IntArray
    name: IntArray

    def take(self, at: IntArray) -> _Work:
        """Return the operations at these indices."""
        return _Work(self.names, self.owners, *(column[at] for column in self[2:]))


def _make_work(names: list[str], process: IntArray, device: IntArray, *columns: IntArray) -> _Work:
    """Return n operations. `columns`: the last four of the result."""
    member, first = keys.encode_rows(process, device)
    owners = zip((process[first] & PID_MASK).tolist(), device[first].tolist(), strict=True)
    return _Work(names, list(owners), member, *columns)


def _make_table(
    work: _Work, titles: list[str], title: IntArray | int, size: IntArray | int, kind: int
) -> parts.Collectives:
    """Return operations as the parts of ranks. `title`: index of what each is a part of."""
    n = work.begin.size
    return parts.Collectives(
        communicators=titles,
        operations=work.names,
        communicator=np.full(n, title),
        operation=work.name,
        bytes=np.full(n, size),
        member=work.member,
        begin=work.begin,
        end=work.end,
        kind=np.full(n, kind),
        is_root=np.zeros(n, np.bool_),
        has_communicator=np.zeros(n, np.bool_),
        place=work.place,
        sizes=[0] * len(titles),
        owners=work.owners,
    )


def _collect_by_sequence(work: _Work, name: str, size: IntArray | int, kind: int) -> parts.Collectives:
    """Return operations, in the order of their starts, by stream. A rank's streams are numbered by their first ones."""
    codes, first = keys.encode_rows(work.member, work.place)
    stream = keys.count_earlier(work.member[first])[codes]
    names = [f"{name}{number}" for number in range(int(stream.max()) + 1)]
    return _make_table(work, names, stream, size, kind)


def collect_evidence(
    names: list[str], communicators: list[str], table: CallTable, kernel: NcclKernels, pairs: CallPairs
) -> parts.Evidence:
    """Return the collectives of NCCL, with the times of their kernels. Its other kernels are in a separate table."""
    functions = [*(f"nccl function {number}" for number in range(len(FUNCTIONS))), "nccl function unknown"]
    function = np.where(kernel.function == NO_FUNCTION, len(FUNCTIONS), kernel.function)
    owner = (np.where(kernel.place >= 0, column, -1) for column in (kernel.process, kernel.device))
    work = _make_work(functions, *owner, kernel.place, kernel.begin, kernel.end, function)
    in_graph = (kernel.graph_node != NULL) & (kernel.range < 0)
    is_only = ~keys.mark_repeated(pairs.call)
    only = CallPairs(pairs.kernel[is_only], pairs.call[is_only])
    is_collective = np.array([name in COLLECTIVES for name in names], np.bool_)
    usable = is_collective[table.name[only.call]] & (table.communicator[only.call] >= 0)
    counted = np.zeros(kernel.begin.size, np.bool_)
    tables = []
    call_size = np.where(table.bytes == NULL, parts.ANY_SIZE, table.bytes)
    if usable.any():
        at, call = only.kernel[usable], only.call[usable]
        operation, root, communicator = table.name[call], table.root[call], table.communicator[call]
        rank, titles = _find_callers_ranks(table)[call], [f"nccl {name}" for name in communicators]
        by_call = _make_table(work.take(at), titles, communicator, call_size[call], parts.OTHER)._replace(
            operations=names,
            operation=operation,
            kind=parts.get_kinds(_KINDS, names, operation, table.bytes[call], root, rank),
            is_root=root == rank,
            has_communicator=np.ones(at.size, np.bool_),
            sizes=find_sizes(table, len(communicators)),
            ids=_choose_ids(work.member[at], communicator, table.id[call]),
        )
        tables.append(by_call)
        counted[at] = True
    sizes = put(call_size[only.call], only.kernel, kernel.begin.size, parts.ANY_SIZE)
    # All ranks of a communicator run these, in order of time.
    in_order = np.isin(kernel.function, _SYNCHRONISING_FUNCTIONS) & (sizes != 0) & (kernel.place >= 0)
    kinds = (parts.STREAM, ~in_graph & ~usable.any(), False), ("nccl graph stream ", in_graph, True)
    for name, chosen, are_in_graphs in kinds:
        at = np.flatnonzero(in_order & chosen)
        at = at[np.argsort(kernel.begin[at], kind="stable")]
        if at.size:
            by_sequence = _collect_by_sequence(work.take(at), name, sizes[at], parts.SYNCHRONISING)
            tables.append(by_sequence._replace(in_graphs=are_in_graphs))
            counted[at] = True
    # The other kernels match no operation.
    loose = np.flatnonzero(~counted & (kernel.place >= 0))
    if loose.size:
        tables.append(_make_table(work.take(loose), ["nccl"], 0, parts.ANY_SIZE, parts.LOOSE))
    return parts.Evidence(tables)


def _choose_ids(member: IntArray, communicator: IntArray, ids: IntArray) -> IntArray:
    """Return the id of each of n operations; NULL in communicators where a member's operations share ids or lack one.

    Only an id that stands for one operation can match it.
    """
    is_unfit = keys.mark_duplicates(communicator, member, ids) | (ids == NULL)
    return np.where(np.isin(communicator, communicator[is_unfit]), NULL, ids)


def _find_callers_ranks(table: CallTable) -> IntArray:
    """Return the caller's rank in the communicator of each call, if any call of the process records it, else NULL."""
    rows = np.flatnonzero(table.rank != NULL)
    rows = rows[~keys.mark_duplicates(table.process[rows], table.communicator[rows], table.rank[rows])]
    rows = rows[~keys.mark_repeated(table.process[rows], table.communicator[rows])]
    known = keys.find_rows([table.process[rows], table.communicator[rows]], [table.process, table.communicator])
    return pick(table.rank[rows], known, NULL)


def collect_others(reader: ReportReader) -> list[parts.Collectives]:
    """Return the kernels and copies of a report that communicate, without NCCL's kernels."""
    operations, classes = reader.once(locate), reader.once(find_classes)
    communicates = (operations.place >= 0) & mark_communication(classes)
    kernels = communicates & (operations.spread({KERNEL: 1}) > 0) & (classes == OTHER)
    reads_copies = source_names.MEMORY_OPERATIONS in reader.chosen
    copies = communicates & (operations.spread({MEMCPY: int(reads_copies)}) > 0)
    if not (kernels | copies).any():
        return []
    begin, end, pid, device = (operations.stack(name) for name in ("start", "end", "globalPid", "deviceId"))
    name, is_node = np.zeros(begin.size, np.int64), operations.stack("graphNodeId") != NULL
    name[kernels], names = reader.names(operations.stack("shortName")[kernels])
    columns = get_process(pid), device, operations.place, begin, end, name
    tables = []
    for title, titles, chosen, kind in (
        ("stream", names, kernels & ~is_node, parts.SYNCHRONISING),
        ("graph stream", names, kernels & is_node, parts.SYNCHRONISING),
        ("copies", ["copies"], copies, parts.COPIED),
    ):
        at = np.flatnonzero(chosen)
        if at.size:
            at = at[np.argsort(begin[at], kind="stable")]
            work = _make_work(titles, *(column[at] for column in columns))
            table = _collect_by_sequence(work, f"{parts.ORDERED}{title} ", parts.ANY_SIZE, kind)
            tables.append(table._replace(in_graphs=title == "graph stream"))
    return tables


def collect_messages(
    metadata: Metadata, communicators: list[str], table: CallTable, kernel: NcclKernels, pairs: CallPairs
) -> parts.RankMessages:
    """Return the sends and receives of one report, with the times of their kernels.

    A kernel that carries out several messages ends with the last, so it does not show when each message handed over its
    data.
    """
    has_communicator = table.communicator >= 0
    columns = (column[has_communicator] for column in (table.communicator, table.process, table.rank))
    uses = [(communicator, process, rank) for communicator, process, rank in keys.find_distinct_rows(*columns)[1]]
    processes = {process for _, process, _ in uses}
    ranks = {process: metadata.find_rank(process, alone=len(processes) == 1) for _, process, _ in uses}
    is_message = table.is_message & (table.peer != NULL) & has_communicator
    rows = np.flatnonzero(~keys.mark_repeated(pairs.call) & is_message[pairs.call])
    call, at = pairs.call[rows], pairs.kernel[rows]
    is_send = table.direction[call] != RECEIVING
    return parts.RankMessages(
        communicators=communicators,
        sizes=find_sizes(table, len(communicators)),
        uses=uses,
        job_ranks={process: rank for process, rank in ranks.items() if rank is not None},
        job_size=metadata.job_size,
        communicator=table.communicator[call],
        process=table.process[call],
        peer=table.peer[call],
        is_send=is_send,
        order=table.begin[call],
        time=np.where(is_send, kernel.begin[at], kernel.end[at]),
        handed=np.where(keys.mark_repeated(pairs.kernel)[rows], NULL, kernel.end[at]),
        bytes=table.bytes[call],
    )
