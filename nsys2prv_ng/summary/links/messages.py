"""Finds the messages between ranks, and when the data of each moved: from when both sides run until the receive ends.

A message waits until both sides run, like a collective until its last rank arrives. A kernel or call that carries
several messages moves data from when all of them have both sides. It ends when the last of them has arrived, so a
message is rated only if all messages that share its two kernels or calls have the same size.

What is not certain is not rated:

- a send that ended before its receive ran, or that an MPI library buffers: its data moved at an unknown time;
- an MPI message that both sides had posted well before both were in a call that completes it: the data may have moved
  in between, or not;
- a message next to a collective in the same kernel, and one whose waits are not known.

NCCL messages are known only with the payload of NCCL's calls, which reports may lack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.waiting import map_rows_to_gpus
from nsys2prv_ng.analysis.waits.clocks import Parts, get_uncertainty
from nsys2prv_ng.analysis.waits.rules import mark_rendezvous
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import encode_rows, find_rows, mark_duplicates
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray, mark, pick
from nsys2prv_ng.intervals.step_functions import mark_inside
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.operations.parts import MessagePairs
from nsys2prv_ng.report.export_settings import JSON_OPTION, describe_payload_remedy
from nsys2prv_ng.sources.shared.reasons import PAYLOAD_NOT_EXPORTED

_MOST_UNSURE = 0.1
"""Most time between the posting of an MPI message and the calls that complete it, as a share of its transfer time.

A choice: a rate is wrong by as much, which is below the quarter that makes a pair slow."""


class Messages(NamedTuple):
    """n messages that count, in columns. Times are ns.

    `sender` and `receiver` are ends: the row of a GPU in the trace for NCCL, the task of the trace for MPI.

    `together`: the most messages that the kernel or call of a side carries. `is_closed`: whether its kernels or
    calls carry messages between these two ends only. `ns`: transfer time; 0 if it is not known. `error`: how far
    the transfer time may be wrong, because two clocks measured it.
    """

    is_mpi: BoolArray
    sender: IntArray
    receiver: IntArray
    sending_task: IntArray
    receiving_task: IntArray
    between_nodes: BoolArray
    bytes: IntArray
    together: IntArray
    is_closed: BoolArray
    ns: IntArray
    error: FloatArray

    def take(self, which: IntArray | BoolArray) -> Messages:
        """Return the messages that indices or a mask select."""
        return Messages._make([column[which] for column in self])


def list_messages(job: Job, waits: Waits, parts: Parts, shown: IntArray) -> Messages:
    """Return the messages whose receive counts and is in the chosen time as a whole.

    `parts`: the parts of all operations of the job. `shown`: the kernels and calls that count, as indices in `waits`.
    """
    marks = mark(shown, waits.row.size)
    bounds, gpu_of_row = get_uncertainty(job), np.append(map_rows_to_gpus(job), -1)
    kinds = (np.bool_, *[np.int64] * 4, np.bool_, *[np.int64] * 2, np.bool_, np.int64, np.float64)
    found = [Messages._make([np.zeros(0, kind) for kind in kinds])]
    for joined in job.joined:
        for source, pairs in joined.messages.items():
            is_mpi = source == source_names.MPI
            found.append(_list_of_source(job, waits, parts, marks, pairs, bounds, gpu_of_row, is_mpi=is_mpi))
    return Messages._make([np.concatenate(columns) for columns in zip(*found, strict=True)])


def _list_of_source(
    job: Job,
    waits: Waits,
    parts: Parts,
    shown: BoolArray,
    pairs: MessagePairs,
    bounds: FloatArray,
    gpu_of_row: IntArray,
    *,
    is_mpi: bool,
) -> Messages:
    """Return the messages of one library that count."""
    node_of_row = np.array([task.node for task in job.whole.model.tasks], np.int64)[job.whole.task_of_row]
    one, other = node_of_row[pairs.sender], node_of_row[pairs.receiver]
    error = np.where(one == other, 0.0, bounds[one] + bounds[other])
    rows = [job.new_row[row] for row in (pairs.sender, pairs.receiver)]
    tasks = [pick(job.tree.task_of_row, row, -1) for row in rows]
    ends = tasks if is_mpi else [gpu_of_row[pairs.send_row], gpu_of_row[pairs.receive_row]]
    ends = [end.astype(np.int64) for end in ends]

    known = [side.is_known for side in pairs.sides]
    every = [waits.row, waits.begin, waits.end]
    wait = [find_rows(every, [side.row, side.begin, side.end]) for side in pairs.sides]
    is_here = mark_inside(pairs.receive_begin, pairs.receive_end, job.scope.windows)
    is_shown = (ends[0] >= 0) & (ends[1] >= 0) & (tasks[0] >= 0) & (tasks[1] >= 0)
    counts = known[1] & is_shown & pick(shown, wait[1], False) & is_here

    moving = _measure_moving(pairs, ends, is_mpi=is_mpi)
    if is_mpi:
        blocks = (pairs.send_begin == pairs.send_arrived) & (moving.together == 1)
        known[0] = known[0] & (blocks | mark_rendezvous(pairs, node_of_row, bounds))
    has_parts = np.append(waits.has_parts & shown, False)
    certain = has_parts[wait[0]] & has_parts[wait[1]] & known[0]
    certain &= mark_inside(pairs.send_begin, pairs.send_end, job.scope.windows)
    once = np.flatnonzero(~mark_duplicates(parts.row, parts.begin))
    collectives = [parts.row[once], parts.begin[once]]
    for side in pairs.sides:
        certain &= find_rows(collectives, [side.row, side.begin]) < 0
    rated = certain & moving.is_certain & (pairs.bytes > 0) & (moving.ns > 0)
    return Messages(
        is_mpi=np.full(counts.size, is_mpi),
        sender=ends[0],
        receiver=ends[1],
        sending_task=tasks[0].astype(np.int64),
        receiving_task=tasks[1].astype(np.int64),
        between_nodes=one != other,
        bytes=np.maximum(pairs.bytes, 0),
        together=moving.together,
        is_closed=moving.is_closed,
        ns=np.where(rated, moving.ns, 0),
        error=error,
    ).take(counts)


class _Moving(NamedTuple):
    """When the data of n messages moved, and what shares their kernels or calls (as in Messages)."""

    ns: IntArray
    is_certain: BoolArray
    together: IntArray
    is_closed: BoolArray


def _measure_moving(pairs: MessagePairs, ends: Sequence[IntArray], *, is_mpi: bool) -> _Moving:
    """Measure from when both sides of all messages in the two kernels or calls run, to the end of the receive."""
    send, receive = pairs.sides
    n = send.row.size
    code, _ = encode_rows(np.append(send.row, receive.row), np.append(send.begin, receive.begin))
    calls = int(code.max(initial=-1)) + 1
    running, posted = np.maximum(send.begin, receive.begin), np.maximum(send.arrived, receive.arrived)

    def reduce_calls(values: IntArray, how: np.ufunc) -> tuple[IntArray, IntArray]:
        """Reduce values of messages over each kernel or call; return the results for the two of each message."""
        start = np.iinfo(np.int64).min if how is np.maximum else np.iinfo(np.int64).max
        found = np.full(calls, start, np.int64)
        how.at(found, code, np.append(values, values))
        return found[code[:n]], found[code[n:]]

    def share(values: IntArray) -> BoolArray:
        """Mark the messages whose two kernels or calls each carry one value only."""
        ups, downs = reduce_calls(values, np.maximum), reduce_calls(values, np.minimum)
        return np.asarray((ups[0] == downs[0]) & (ups[1] == downs[1]), np.bool_)

    start, first = (np.maximum(*reduce_calls(times, np.maximum)) for times in (running, posted))
    together = np.bincount(code, minlength=calls)
    link, _ = encode_rows(np.minimum(*ends), np.maximum(*ends))
    ways = [encode_rows(side, *ends)[0] for side in (code[:n], code[n:])]
    is_closed = share(link) & (np.bincount(ways[0])[ways[0]] == 1) & (np.bincount(ways[1])[ways[1]] == 1)
    ns, is_known = receive.end - start, (send.is_known & receive.is_known).astype(np.int64)
    certain = share(pairs.bytes) & share(is_known) & (send.end >= start)
    if is_mpi:
        certain &= start - first <= _MOST_UNSURE * ns
    return _Moving(ns, certain, np.maximum(together[code[:n]], together[code[n:]]), is_closed)


NO_PAYLOAD = "its NCCL call has no payload"
"""A reason why kernels are not split, in addition to the reasons in analysis/waits/rules.py."""


def mark_without_payload(job: Job) -> BoolArray:
    """Mark the reports in which NCCL calls have no payload."""
    results = (report.results.get(source_names.NCCL) for report in job.reports)
    reasons = set(PAYLOAD_NOT_EXPORTED.values())
    return np.array([result is not None and not reasons.isdisjoint(result.dropped) for result in results], np.bool_)


def find_payload_remedy(job: Job) -> str:
    """Return how to export reports with payload, for the reports that lack it; an empty text if no report does."""
    lacking = [report for report, lacks in zip(job.reports, mark_without_payload(job), strict=True) if lacks]
    for_json = PAYLOAD_NOT_EXPORTED[JSON_OPTION]  # whatever the version, the advanced NCCL trace has payloads as JSON
    if lacking and all(for_json in report.results[source_names.NCCL].dropped for report in lacking):
        return f"export with {JSON_OPTION}"
    return describe_payload_remedy(report.metadata.schema_version for report in lacking) if lacking else ""
