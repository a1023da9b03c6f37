"""Collects communication that is not NCCL's, and that of NCCL's copy engines, to find waits.

Kernels of other libraries record no communicator. They are matched by their order if each rank launches the same names
in the same order on the streams with such kernels, numbered by their first ones; the others are only known to exist.
`analysis/waits/waits.py` then checks that no rank left before another had entered. Copies move data from their start to
their end: what they wait for is over before they start.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import count_earlier, encode_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.operations import parts
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import PID_MASK, get_process
from nsys2prv_ng.sources.cuda.communication import OTHER, find_classes, mark_communication
from nsys2prv_ng.sources.cuda.device_operations import KERNEL, MEMCPY, locate
from nsys2prv_ng.sources.shared.report_reader import ReportReader


def collect_others(reader: ReportReader) -> list[parts.Collectives]:
    """Return the kernels and copies of a report that communicate, without NCCL's kernels."""
    operations, classes = reader.once(locate), reader.once(find_classes)
    placed, tables = operations.place >= 0, []
    is_kernel, is_copy = (
        operations.spread({name: name == table for name in operations.columns}) > 0 for table in (KERNEL, MEMCPY)
    )
    at = np.flatnonzero(placed & is_kernel & (classes == OTHER))
    if at.size:
        is_node = operations.stack("graphNodeId")[at] != NULL
        index, names = reader.names(operations.stack("shortName")[at])
        for title, chosen in (("stream", ~is_node), ("graph stream", is_node)):
            if chosen.any():
                table = _make_table(reader, at[chosen], title, parts.SYNCHRONISING)
                operation = index[chosen][np.argsort(operations.stack("start")[at[chosen]], kind="stable")]
                tables.append(table._replace(operations=names, operation=operation, in_graphs=title != "stream"))
    copies = np.flatnonzero(placed & is_copy & mark_communication(classes))
    if copies.size and source_names.MEMORY_OPERATIONS in reader.chosen:
        tables.append(_make_table(reader, copies, "copies", parts.COPIED))
    return tables


def _make_table(reader: ReportReader, at: IntArray, title: str, kind: int) -> parts.Collectives:
    """Return operations (indices) of one name by stream, in the order of their starts."""
    operations = reader.once(locate)
    begin, end, pid, device = (operations.stack(name) for name in ("start", "end", "globalPid", "deviceId"))
    at = at[np.argsort(begin[at], kind="stable")]
    process, place = get_process(pid[at]), operations.place[at]
    member, first = encode_rows(process, device[at])
    codes, first_of_stream = encode_rows(member, place)
    stream = count_earlier(member[first_of_stream])[codes]
    names = [f"{parts.ORDERED}{title} {number}" for number in range(int(stream.max()) + 1)]
    owners = zip((process[first] & PID_MASK).tolist(), device[at][first].tolist(), strict=True)
    return parts.Collectives(
        communicators=names,
        operations=[title],
        communicator=stream,
        operation=np.zeros(at.size, np.int64),
        bytes=np.full(at.size, parts.ANY_SIZE, np.int64),
        member=member,
        begin=begin[at],
        end=end[at],
        kind=np.full(at.size, kind),
        is_root=np.zeros(at.size, np.bool_),
        has_communicator=np.zeros(at.size, np.bool_),
        place=place,
        sizes=[0] * len(names),
        owners=list(owners),
    )
