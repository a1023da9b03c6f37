"""Reads calls of UCX's protocol layer UCP on host threads, and the transfers that some of these calls start.

A call that submits a transfer is short. The transfer lasts until UCP calls back that it is complete (User Guide,
chapter on UCX). Transfers of a thread overlap, so they have lanes. Reports do not record which receive meets which
send, so there are no lines. No capture with UCX events was available: the tables follow real exports without events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.groups import map_unambiguous
from nsys2prv_ng.arrays.row_keys import find_distinct
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.nesting import assign_lanes
from nsys2prv_ng.objects.places import Thread
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.labels import Value
from nsys2prv_ng.records.columns import Pair, make_intervals
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.sources.shared import report_reader
from nsys2prv_ng.sources.shared.host_calls import select_sound_calls, select_sound_intervals
from nsys2prv_ng.sources.shared.reasons import NO_TRANSFER_LANE
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import EventRows, JoinInput, JoinResult, Result, Source

_COLUMNS = ("start", "end", "globalTid", "textId")
_MESSAGE = {"packedSize": NULL, "tag": NULL, "peerWorkerUid": NULL}
CALLS = Table("UCP_EVENTS", _COLUMNS, _MESSAGE)
SUBMISSIONS = Table("UCP_SUBMIT_EVENTS", _COLUMNS, _MESSAGE)
TRANSFERS = Table("UCP_PROGRESS_EVENTS", _COLUMNS, _MESSAGE)
WORKERS = Table("UCP_WORKERS", ("globalTid", "workerUid"))


class Workers(NamedTuple):
    """UCP workers in one report, by name.

    `peers`: workers that are peers of the report's calls. `process`: process of each worker in this report.
    """

    peers: list[str]
    process: dict[str, int]


def read(reader: ReportReader) -> Result:
    """Return an interval for each call, nested as calls are, and one on a lane for each transfer."""
    result = Result()
    _add_calls(reader, result)
    _add_transfers(reader, result)
    workers = reader.columns(WORKERS.name)
    names, processes = map(_name_worker, workers["workerUid"].tolist()), get_process(workers["globalTid"]).tolist()
    peers = list(reader.labels.names.get(types.UCX_PEER.names, {}))
    result.join_data = Workers(peers, dict(zip(names, processes, strict=True)))
    return result


def _add_calls(reader: ReportReader, result: Result) -> None:
    """Add an interval for each call."""
    columns = reader.stack((CALLS.name, SUBMISSIONS.name), (*_COLUMNS, *_MESSAGE))
    result.read += columns["start"].size
    rows = select_sound_calls(result, columns["start"], columns["end"], columns["globalTid"])
    begin, end, thread, text, size, tag, peer = (columns[name][rows] for name in (*_COLUMNS, *_MESSAGE))
    labels = reader.labels
    opening = [
        report_reader.make_id_pair(reader, types.UCX_CALL, text),
        report_reader.make_number_pair(labels, types.UCX_BYTES, size),
        report_reader.make_number_pair(labels, types.UCX_TAG, tag),
        _make_peer_pair(reader, peer),
    ]
    place = reader.places.threads(thread, application=True)
    result.records.append(make_intervals(place, begin, end, opening, [opening[0].handle]))


def _add_transfers(reader: ReportReader, result: Result) -> None:
    """Add an interval for each transfer, on the first lane that is free on its thread."""
    columns = reader.columns(TRANSFERS.name)
    result.read += columns.rows
    rows = select_sound_intervals(result, columns["start"], columns["end"], columns["globalTid"])
    begin, end, thread, text, size = (columns[name][rows] for name in (*_COLUMNS, "packedSize"))
    lanes = assign_lanes(thread, begin, end)
    shown = result.drop_rows({NO_TRANSFER_LANE: lanes >= types.UCX_LANES})
    place = reader.places.threads(thread, application=True)
    index, names = reader.names(text)
    for lane in np.unique(lanes[shown]):
        here = np.flatnonzero(lanes == lane)
        transfer = report_reader.make_name_pair(reader.labels, types.UCX_TRANSFERS[lane], index[here], names)
        opening = [transfer, report_reader.make_number_pair(reader.labels, types.UCX_TRANSFER_BYTES, size[here])]
        result.records.append(make_intervals(place[here], begin[here], end[here], opening, [transfer.handle]))


def _make_peer_pair(reader: ReportReader, peer: IntArray) -> Pair:
    """Make the pair for the recorded workers that messages go to or come from."""
    known = peer != NULL
    index, uids = find_distinct(peer[known])
    ids = reader.labels.name_ids(types.UCX_PEER.names, map(_name_worker, uids.tolist()))[index]
    return report_reader.make_partial_pair(reader.labels, types.UCX_PEER, ids, known)


def _name_worker(uid: int) -> str:
    return f"worker {uid & 2**64 - 1:#x}"


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """Return the values of workers: the number and name of the task with the worker, if a report records it."""
    owners: list[tuple[str, int]] = []
    peers: set[str] = set()
    for part in parts:
        workers: Workers = part.data
        peers.update(workers.peers)
        task_of_process = {
            place.process: int(tree.task_of_row[row])
            for place, row in zip(part.places.all, part.rows.tolist(), strict=True)
            if isinstance(place, Thread) and row >= 0
        }
        for worker, process in workers.process.items():
            if process in task_of_process:
                owners.append((worker, task_of_process[process]))
    # Uids may be the same on two nodes: a uid of several tasks stands for none of them.
    task_of_worker = map_unambiguous(owners)
    values = {worker: Value(task + 1, tree.model.tasks[task].name) for worker, task in task_of_worker.items()}
    others = sorted(peers - set(values))
    values |= {name: Value(len(tree.model.tasks) + i, name) for i, name in enumerate(others, 1)}
    return JoinResult({types.UCX_PEER.names: values})


SOURCE = Source(
    source_names.UCX,
    "UCX calls and transfers",
    (CALLS, SUBMISSIONS, TRANSFERS, WORKERS),
    read,
    join,
    Workers,
    counted_tables=tuple(EventRows(table.name, "globalTid") for table in (CALLS, SUBMISSIONS, TRANSFERS)),
    noun="calls and transfers",
    needed_by=(),
)
