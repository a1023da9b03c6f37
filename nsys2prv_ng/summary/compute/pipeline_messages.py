"""Finds the NCCL messages of the steps that numbers count, and the kernels that carry them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.waiting import map_rows_to_gpus
from nsys2prv_ng.analysis.waits.clocks import get_uncertainty
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import encode_rows, find_rows, list_rows, mark_duplicates
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.operations.parts import MessagePairs
from nsys2prv_ng.reading.device_operations import load_launched_operations
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.steps.steps import Steps
from nsys2prv_ng.summary.compute.pipeline_stages import StepMessages

_NEVER = np.iinfo(np.int64).min


class Sides(NamedTuple):
    """Both sides of n messages in steps, first all sends, then all receives (2n rows). Times are ns.

    `row`: of the whole tree. `other`: when the other side no longer had to wait for this one. `error`: how far the
    clocks of both sides may differ (n).
    """

    row: IntArray
    begin: IntArray
    end: IntArray
    gpu: IntArray
    step: IntArray
    other: IntArray
    bytes: IntArray
    error: FloatArray


def load_sides(job: Job, steps: Steps) -> Sides | None:
    """Return the NCCL messages in the steps; None without any, or if a side of a message is unknown or not shown."""
    found = [pairs for joined in job.joined for source, pairs in joined.messages.items() if source == source_names.NCCL]
    if not found:
        return None
    pairs = MessagePairs._make([np.concatenate(columns) for columns in zip(*found, strict=True)])
    row, begin, end = (
        np.concatenate([getattr(pairs, f"{side}_{name}") for side in ("send", "receive")])
        for name in ("row", "begin", "end")
    )
    gpu = np.append(map_rows_to_gpus(job), -1)[row]
    step = _find_steps(job, steps, np.append(job.new_row, -1)[row], begin)
    sent, received = np.split(step, 2)
    inside = (sent >= 0) | (received >= 0)
    both = np.tile(inside, 2)
    is_known = (gpu >= 0) & (begin != NULL) & (end != NULL)
    if not inside.any() or not is_known[both].all() or (sent != received).any():
        return None
    node_of_row = np.array([task.node for task in job.whole.model.tasks], np.int64)[job.whole.task_of_row]
    one, other = node_of_row[pairs.sender], node_of_row[pairs.receiver]
    bounds = get_uncertainty(job)
    error = np.where(one == other, 0.0, bounds[one] + bounds[other])
    arrived = np.concatenate([pairs.receive_arrived, pairs.send_arrived])
    columns = [column[both] for column in (row, begin, end, gpu, step, arrived)]
    return Sides._make([*columns, pairs.bytes[inside], error[inside]])


def _find_steps(job: Job, steps: Steps, row: IntArray, begin: IntArray) -> IntArray:
    """Return the index of the step that launched each kernel (n), by row of the trace and start (ns); -1 for none."""
    order = np.argsort(row, kind="stable")
    ascending = row[order]

    def find(index: int) -> tuple[IntArray, IntArray]:
        """Return the kernels of a report with a recorded launch, and their steps."""
        rows = job.tree.rows[index]
        here = order[list_rows(ascending, np.unique(rows[rows >= 0]))]
        if not here.size:
            return here, here
        known = load_launched_operations(job.reports[index], job.store)
        once = np.flatnonzero(~mark_duplicates(known.place, known.begin) & known.is_known)
        at = find_rows([rows[known.place[once]], known.begin[once]], [row[here], begin[here]])
        here, at = here[at >= 0], once[at[at >= 0]]
        task = job.tree.task_of_row[row[here]].astype(np.int64)
        return here, np.append(steps.step, -1)[steps.host.find(task, known.launched[at])]

    step = np.full(row.size, -1, np.int64)
    for here, found in job.engine.map(find, range(len(job.reports))):
        step[here] = found
    return step


def list_step_messages(sides: Sides) -> StepMessages:
    kernel, _ = encode_rows(sides.row, sides.begin)
    (sender, receiver), (send, receive), (sent_at, received_at) = (
        np.split(column, 2) for column in (sides.gpu, kernel, sides.begin)
    )
    step = np.split(sides.step, 2)[0]
    kept = sender != receiver
    columns = (sender, receiver, step, sides.bytes, send, receive, sent_at, received_at)
    return StepMessages._make([column[kept] for column in columns])


class MessageKernels(NamedTuple):
    """The kernels with messages in steps: index in `Waits`, GPU, whether the last released message is received.

    `error`: how far the clocks of its two sides may differ (ns), the largest of all messages of the kernel.
    """

    at: IntArray
    gpu: IntArray
    receives: BoolArray
    error: FloatArray


def find_message_kernels(job: Job, waits: Waits, sides: Sides) -> MessageKernels:
    at = find_rows([waits.row, waits.begin, waits.end], [sides.row, sides.begin, sides.end])
    known = np.flatnonzero(at >= 0)
    messages = sides.bytes.size
    index, kernel = np.unique(at[known], return_inverse=True)
    released = np.full((2, index.size), _NEVER)
    is_receive = known >= messages
    for side in (0, 1):
        own = is_receive == side
        np.maximum.at(released[side], kernel[own], sides.other[known[own]])
    error = np.zeros(index.size)
    np.maximum.at(error, kernel, sides.error[known % messages])
    gpu = np.zeros(index.size, np.int64)
    gpu[kernel] = sides.gpu[known]
    return MessageKernels(index, gpu, released[1] >= released[0], error)
