"""Finds the NCCL messages in steps, the kernels that carry them, and the stages of a pipeline that they show.

There are no stages if they are not certain to be one pipeline. Messages connect GPUs to chains. They are
parallel pipelines if

- each GPU sends to or receives from one or two others, and no chain is a ring;
- all chains have equally many GPUs;
- in every step, the first message of the first GPU is sent to the second one, and the first message of each other GPU
  is received from the one before it. Only one direction of a chain can satisfy this;
- messages go back as well, as gradients do, or a chain has at least three GPUs.

Rings are left out: interleaved stages make a ring, but so does the exchange of sequence parts, for instance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.waiting import map_rows_to_gpus
from nsys2prv_ng.analysis.waits.clocks import get_uncertainty
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import encode_rows, find_rows, find_starts, list_rows, mark_duplicates
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray, pick, put
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.operations.parts import MessagePairs
from nsys2prv_ng.reading.device_operations import load_launched_operations
from nsys2prv_ng.report.table_reader import NULL
from nsys2prv_ng.steps.steps import Steps

_FEWEST_FORWARD = 3
"""Fewest stages of a pipeline without messages backwards: a rank that only feeds another one makes no pipeline."""


class StepMessages(NamedTuple):
    """n messages in steps, in columns: ends are GPUs, `step` an index, `send` and `receive` kernels, in any numbers.

    `sent_at` and `received_at`: start (ns) of the kernel of each side, on the clock of the side.
    """

    sender: IntArray
    receiver: IntArray
    step: IntArray
    bytes: IntArray
    send: IntArray
    receive: IntArray
    sent_at: IntArray
    received_at: IntArray


def find_stages(messages: StepMessages, steps: int) -> list[list[int]] | None:
    """Return the GPUs of each stage, one of each parallel pipeline in each; None without a certain pipeline.

    `steps`: the number of steps, which all must have messages.
    """
    _, at = encode_rows(messages.sender, messages.receiver)
    used = list(zip(messages.sender[at].tolist(), messages.receiver[at].tolist(), strict=True))
    chains = _list_chains(used)
    if chains is None or len({len(chain) for chain in chains}) != 1:
        return None
    first = _find_first(messages, steps)
    oriented = []
    for chain in chains:
        ways = [way for way in (chain, chain[::-1]) if _starts_at_first(way, first)]
        if len(ways) != 1:
            return None
        oriented.append(ways[0])
    forward = {pair for chain in oriented for pair in pairwise(chain)}
    back = {(receiver, sender) for sender, receiver in forward}.intersection(used)
    if len(back) < len(forward) if back else len(oriented[0]) < _FEWEST_FORWARD:
        return None
    return [list(stage) for stage in zip(*sorted(oriented), strict=True)]


def _list_chains(pairs: Sequence[tuple[int, int]]) -> list[list[int]] | None:
    """Return the GPUs of each chain from one end to the other; None if not all pairs are in chains, or without any."""
    neighbours: dict[int, set[int]] = defaultdict(set)
    for one, other in pairs:
        neighbours[one].add(other)
        neighbours[other].add(one)
    if any(len(others) > 2 for others in neighbours.values()):
        return None
    chains, seen = [], set[int]()
    for start in sorted(gpu for gpu, others in neighbours.items() if len(others) == 1):
        if start not in seen:
            chain = [start]
            while more := neighbours[chain[-1]] - set(chain[-2:]):
                chain += more
            chains.append(chain)
            seen.update(chain)
    return chains if chains and len(seen) == len(neighbours) else None


def _find_first(messages: StepMessages, steps: int) -> dict[int, tuple[bool, int]]:
    """Return (whether it sends, its peer) of each GPU's first message, if this is the same in each step.

    GPUs without messages in some step, or with different messages in the first kernel of a step, are left out.
    """
    gpu = np.concatenate([messages.sender, messages.receiver])
    peer = np.concatenate([messages.receiver, messages.sender])
    sends = np.repeat(np.array([1, 0]), messages.sender.size)
    step = np.tile(messages.step, 2)
    begin = np.concatenate([messages.sent_at, messages.received_at])
    order = np.lexsort((begin, step, gpu))
    starts = find_starts(gpu[order], step[order])
    leader = np.repeat(order[starts], np.diff(np.append(starts, order.size)))
    in_first = order[begin[order] == begin[leader]]
    _, distinct = encode_rows(gpu[in_first], sends[in_first], peer[in_first])
    kinds = in_first[distinct]
    known, kinds_of = np.unique(gpu[kinds], return_counts=True)
    seen, steps_of = np.unique(gpu[order[starts]], return_counts=True)
    certain = known[(kinds_of == 1) & (steps_of[np.searchsorted(seen, known)] == steps)]
    own = kinds[np.isin(gpu[kinds], certain)]
    firsts = zip((sends[own] > 0).tolist(), peer[own].tolist(), strict=True)
    return dict(zip(gpu[own].tolist(), firsts, strict=True))


def _starts_at_first(chain: Sequence[int], first: dict[int, tuple[bool, int]]) -> bool:
    """Return whether steps start at the first GPU of a chain, and reach each other GPU from the one before it."""
    received = all(first.get(gpu) == (False, before) for before, gpu in pairwise(chain))
    return received and first.get(chain[0]) == (True, chain[1])


def count_micro_batches(messages: StepMessages, steps: int) -> int | None:
    """Return the number of messages of each size from each GPU to each neighbour in a step; None if it differs.

    Messages of one size that one kernel sends together count once: they are parts of one micro-batch.
    """
    _, distinct = encode_rows(messages.sender, messages.receiver, messages.step, messages.bytes, messages.send)
    sent = [column[distinct] for column in (messages.sender, messages.receiver, messages.bytes, messages.step)]
    code, first = encode_rows(*sent)
    counts = np.bincount(code)
    _, kinds = encode_rows(*(column[first] for column in sent[:3]))
    is_complete = first.size == kinds.size * steps
    return int(counts[0]) if is_complete and (counts == counts[0]).all() else None


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
    row, begin, end, *_ = (np.append(*columns) for columns in zip(*pairs.sides, strict=True))
    arrived = np.append(pairs.receive_arrived, pairs.send_arrived)
    gpu = pick(map_rows_to_gpus(job), row, -1)
    step = _find_steps(job, steps, pick(job.new_row, row, -1), begin)
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
        return here, pick(steps.step, steps.host.find(task, known.launched[at]), -1)

    step = np.full(row.size, -1, np.int64)
    for here, found in job.engine.map(find, range(len(job.reports))):
        step[here] = found
    return step


def list_step_messages(sides: Sides) -> StepMessages:
    kernel, _ = encode_rows(sides.row, sides.begin)
    columns = sides.gpu, kernel, sides.begin
    (sender, receiver), (send, receive), (sent_at, received_at) = (np.split(column, 2) for column in columns)
    step = np.split(sides.step, 2)[0]
    kept = sender != receiver
    found = StepMessages(sender, receiver, step, sides.bytes, send, receive, sent_at, received_at)
    return StepMessages._make([column[kept] for column in found])


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
    gpu = put(sides.gpu[known], kernel, index.size, 0)
    return MessageKernels(index, gpu, released[1] >= released[0], error)
