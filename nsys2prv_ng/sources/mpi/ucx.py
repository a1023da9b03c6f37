"""UCX: calls of its protocol layer UCP on host threads, and the transfers that some of them began.

A call that submits a transfer is short; the transfer lasts until UCP calls back that it is complete (the User Guide's
chapter on UCX). Transfers of a thread overlap, so they have lanes. Which receive meets which send is not told: no
lines. No capture was at hand: the tables are those of real exports without events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_distinct
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.lanes import assign_lanes
from nsys2prv_ng.objects.places import Thread
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.labels import Value
from nsys2prv_ng.records.columns import Pair, make_intervals
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.sources.shared.host_calls import select_sound_calls, select_sound_intervals
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import EventRows, JoinInput, JoinResult, Source

_COLUMNS = ("start", "end", "globalTid", "textId")
_MESSAGE = {"packedSize": NULL, "tag": NULL, "peerWorkerUid": NULL}
CALLS = Table("UCP_EVENTS", _COLUMNS)
SUBMISSIONS = Table("UCP_SUBMIT_EVENTS", _COLUMNS, _MESSAGE)
TRANSFERS = Table("UCP_PROGRESS_EVENTS", _COLUMNS, _MESSAGE)
WORKERS = Table("UCP_WORKERS", ("globalTid", "workerUid"))


class Workers(NamedTuple):
    """Workers of UCP: names of those that a report's calls have as peers, and the process of each that is its own."""

    peers: list[str]
    process: dict[str, int]


def read(reader: ReportReader) -> Result:
    """An interval for each call, nested as calls are, and one on a lane for each transfer."""
    result = Result()
    _add_calls(reader, result)
    _add_transfers(reader, result)
    own = reader.columns(WORKERS.name)
    names, processes = map(_worker, own["workerUid"].tolist()), get_process(own["globalTid"]).tolist()
    peers = list(reader.labels.names.get(types.UCX_PEER.names, {}))
    result.shared = Workers(peers, dict(zip(names, processes, strict=True)))
    return result


def _add_calls(reader: ReportReader, result: Result) -> None:
    plain, submitting = (reader.columns(table.name) for table in (CALLS, SUBMISSIONS))
    columns = {name: np.concatenate([plain[name], submitting[name]]) for name in _COLUMNS}
    nothing = np.full(plain.rows, NULL, np.int64)
    columns |= {name: np.concatenate([nothing, submitting[name]]) for name in _MESSAGE}
    result.read += plain.rows + submitting.rows
    rows = select_sound_calls(result, columns["start"], columns["end"], columns["globalTid"])
    if not rows.size:
        return
    text, begin, end, thread, size, tag, peer = (
        columns[name][rows] for name in ("textId", "start", "end", "globalTid", *_MESSAGE)
    )
    labels = reader.labels
    handle = labels.handle(types.UCX_CALL)
    opening = [
        Pair(handle, _names(reader, text)),
        Pair(labels.handle(types.UCX_BYTES), size, size != NULL),
        Pair(labels.handle(types.UCX_TAG), tag, tag != NULL),
        Pair(labels.handle(types.UCX_PEER), _peers(reader, peer), peer != NULL),
    ]
    place = reader.places.threads(thread, application=True)
    result.records.append(make_intervals(place, begin, end, opening, [handle]))


def _add_transfers(reader: ReportReader, result: Result) -> None:
    columns = reader.columns(TRANSFERS.name)
    result.read += columns.rows
    rows = select_sound_intervals(result, columns["start"], columns["end"], columns["globalTid"])
    text, begin, end, thread, size = (
        columns[name][rows] for name in ("textId", "start", "end", "globalTid", "packedSize")
    )
    lanes = assign_lanes(thread, begin, end)
    beyond = lanes >= types.UCX_LANES
    result.drop(f"more than {types.UCX_LANES} transfers of a thread at a time", int(beyond.sum()))
    names = _names(reader, text)
    place = reader.places.threads(thread, application=True)
    of_bytes = reader.labels.handle(types.UCX_TRANSFER_BYTES)
    for lane in np.unique(lanes[~beyond]):
        on = np.flatnonzero(lanes == lane)
        handle = reader.labels.handle(types.UCX_TRANSFERS[lane])
        opening = [Pair(handle, names[on]), Pair(of_bytes, size[on], size[on] != NULL)]
        result.records.append(make_intervals(place[on], begin[on], end[on], opening, [handle]))


def _names(reader: ReportReader, text: IntArray) -> IntArray:
    """Values of the names of calls and transfers, which share them."""
    index, names = reader.names(text)
    return reader.labels.name_ids(types.UCX_CALL.names, names)[index]


def _peers(reader: ReportReader, peer: IntArray) -> IntArray:
    """Values of the workers that messages go to or come from; 0 where that is not told."""
    value = np.zeros(peer.size, np.int64)
    told = peer != NULL
    index, uids = find_distinct(peer[told])
    value[told] = reader.labels.name_ids(types.UCX_PEER.names, map(_worker, uids.tolist()))[index]
    return value


def _worker(uid: int) -> str:
    return f"worker {uid & 2**64 - 1:#x}"


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """A worker is shown as the task that has it, where a report tells, with the number of the task."""
    owners: dict[str, set[int]] = {}
    peers: set[str] = set()
    for part in parts:
        assert isinstance(part.shared, Workers)
        peers.update(part.shared.peers)
        task_of = {
            place.process: int(tree.task_of_row[row])
            for place, row in zip(part.places.all, part.rows.tolist(), strict=True)
            if isinstance(place, Thread) and row >= 0
        }
        for worker, process in part.shared.process.items():
            if process in task_of:
                owners.setdefault(worker, set()).add(task_of[process])
    # Uids need not differ between nodes: one that several tasks have tells of none.
    of_task = {worker: min(tasks) for worker, tasks in owners.items() if len(tasks) == 1}
    values = {worker: Value(task + 1, tree.model.tasks[task].name) for worker, task in of_task.items()}
    others = sorted(peers - set(values))
    values |= {name: Value(len(tree.model.tasks) + i, name) for i, name in enumerate(others, 1)}
    return JoinResult({types.UCX_PEER.names: values})


SOURCE = Source(
    "ucx",
    "UCX calls and transfers",
    (CALLS, SUBMISSIONS, TRANSFERS, WORKERS),
    read,
    join,
    rows=tuple(EventRows(table.name, "globalTid") for table in (CALLS, SUBMISSIONS, TRANSFERS)),
    row="calls and transfers",
)
