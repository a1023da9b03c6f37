"""Sums up the messages between GPUs and ranks by size, and finds the pairs of GPUs, ranks or nodes that are slow.

The rate is the algorithm bandwidth of nccl-tests: size / time. The time is the transfer time of `links/messages.py`,
without waiting. If two clocks measured the times of a pair, these times are used only if their median is at least
FEWEST_ERRORS times the clock error.

Slow links are pairs whose messages take far longer than those of other pairs with the same size.
A pair has peers: the other pairs of the same library with messages of the same size, as many in a kernel or call, all
within nodes or all between nodes. It is compared at the size in which it moved most bytes. It is slow if

- it and at least two peers have at least FEWEST messages of the size,
- its median transfer time is at least FAR times the median of its peers' medians, and longer by SHORTEST_NS,
- three quarters of its messages took longer than the third quartile of its peers' third quartiles, by more than the
  clock errors of both.

Medians and quartiles bear single slow messages and single slow peers. If more than a quarter of the peers are as slow,
the pair is not named: then one direction, or the whole network, is slow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nsys2prv_ng.analysis.gpus.activity import DeviceRow
from nsys2prv_ng.analysis.waits.clocks import Parts
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import encode_rows, find_starts
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray, mark
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.summary.links import numbers
from nsys2prv_ng.summary.links.messages import Messages, list_messages

FEWEST_ERRORS = 4
"""Least transfer time, in clock errors: a rate is wrong by a quarter at most, which is what makes a pair slow."""


def measure_links(
    job: Job, waits: Waits, parts: Parts, shown: IntArray, devices: dict[int, DeviceRow]
) -> numbers.LinkNumbers | None:
    """Return the rates by size and the slow pairs; None if no message is known.

    `parts`: the parts of all operations of the job. `shown`: the kernels and calls that count, as indices in `waits`.
    `devices`: the GPUs by their row in the trace.
    """
    messages = list_messages(job, waits, parts, shown)
    if not messages.ns.size:
        return None
    ends, sender, receiver = _name_ends(job, messages, devices)
    nodes = [*job.tree.model.nodes]
    node_of_end = np.array([nodes.index(end.node) for end in ends], np.int64)
    far = messages._replace(sender=sender, receiver=receiver)
    near = messages._replace(sender=node_of_end[sender], receiver=node_of_end[receiver])
    by_pair, by_node = _group(far, by_pair=True), _group(near, by_pair=True)
    slow: list[numbers.SlowLink] = []
    if not job.lacks_ranks:  # messages of kernels may have counterparts that no report shows
        between = _list_slow(by_node.take(np.flatnonzero(by_node.is_closed & by_node.between_nodes)), are_nodes=True)
        named = {(one.sender, one.receiver) for one in between}
        pairs = _list_slow(by_pair.take(np.flatnonzero(by_pair.is_closed)), are_nodes=False)
        slow = [*between, *(one for one in pairs if (node_of_end[one.sender], node_of_end[one.receiver]) not in named)]
    return numbers.LinkNumbers(
        ends=ends,
        nodes=nodes,
        sizes=_list_rates(_group(far, by_pair=False)),
        messages=int(messages.ns.size),
        rated=int(by_pair.messages.sum()),
        slow=slow,
    )


def _name_ends(
    job: Job, messages: Messages, devices: dict[int, DeviceRow]
) -> tuple[list[numbers.LinkEnd], IntArray, IntArray]:
    """Return (all ends in the order of their rows, those that send, those that receive, as indices)."""
    is_mpi = np.tile(messages.is_mpi, 2).astype(np.int64)
    end = np.append(messages.sender, messages.receiver)
    task = np.append(messages.sending_task, messages.receiving_task)
    code, first = encode_rows(is_mpi, end)
    order = np.lexsort((end[first], is_mpi[first]))
    ends = []
    for at in first[order].tolist():
        model, rank = job.tree.model.tasks[int(task[at])], job.tree.ranks[int(task[at])]
        device = None if is_mpi[at] else devices[int(end[at])]
        node, gpu = (job.tree.model.nodes[model.node], None) if device is None else (device.node, device.gpu.number)
        ends.append(numbers.LinkEnd(node=node, gpu=gpu, rank=rank, task=model.name))
    index = np.argsort(order)[code]
    return ends, index[: messages.ns.size], index[messages.ns.size :]


class Groups(NamedTuple):
    """n groups of rated messages of one size, in columns; quartiles and sums of transfer times in ns."""

    is_mpi: IntArray
    sender: IntArray
    receiver: IntArray
    between_nodes: IntArray
    bytes: IntArray
    together: IntArray
    is_closed: IntArray
    pairs: IntArray
    messages: IntArray
    ns: IntArray
    low: IntArray
    median: IntArray
    high: IntArray
    error: FloatArray

    def take(self, which: IntArray) -> Groups:
        """Return the groups at these indices."""
        return Groups._make([column[which] for column in self])


def _group(messages: Messages, *, by_pair: bool) -> Groups:
    """Return the rated messages by size, and by pair or else over all pairs, without groups within the clock error."""
    messages = messages.take(messages.ns > 0)
    pair, _ = encode_rows(messages.sender, messages.receiver)
    one = np.zeros(pair.size, np.int64)
    marks = messages.is_mpi, messages.between_nodes, messages.is_closed
    is_mpi, between, is_closed = (column.astype(np.int64) for column in marks)
    by = (pair, is_closed) if by_pair else (one, one)
    code, _ = encode_rows(is_mpi, between, messages.bytes, messages.together, *by)
    order = np.lexsort((messages.ns, code))
    first = find_starts(code[order])
    count = np.diff(np.append(first, order.size))
    ns = messages.ns[order]
    leader = order[first]
    _, distinct = encode_rows(code, pair)
    groups = Groups(
        is_mpi=is_mpi[leader],
        sender=messages.sender[leader],
        receiver=messages.receiver[leader],
        between_nodes=between[leader],
        bytes=messages.bytes[leader],
        together=messages.together[leader],
        is_closed=is_closed[leader],
        pairs=np.bincount(code[distinct], minlength=first.size),
        messages=count,
        ns=np.add.reduceat(ns, first) if first.size else ns,
        low=ns[first + (count - 1) // 4],
        median=ns[first + count // 2],
        high=ns[first + 3 * count // 4],
        error=np.maximum.reduceat(messages.error[order], first) if first.size else messages.error,
    )
    return groups.take(np.flatnonzero(groups.median >= FEWEST_ERRORS * groups.error))


def _list_rates(groups: Groups) -> list[numbers.MessageRate]:
    """Return the rate of each group, most bytes first."""
    by_bytes = groups.take(np.argsort(-(groups.bytes * groups.messages), kind="stable"))
    return [
        numbers.MessageRate(
            library=numbers.MPI if row.is_mpi else numbers.NCCL,
            between_nodes=bool(row.between_nodes),
            bytes=row.bytes,
            together=row.together,
            pairs=row.pairs,
            count=row.messages,
            ns=row.ns,
            algorithm_bytes_per_s=round(row.bytes * row.messages / row.ns * 1e9),
        )
        for row in _list_lines(by_bytes)
    ]


def _list_lines(groups: Groups) -> list[Any]:
    """Return each group as a tuple of its numbers."""
    return [Groups._make(row) for row in zip(*(column.tolist() for column in groups), strict=True)]


def _list_slow(groups: Groups, *, are_nodes: bool) -> list[numbers.SlowLink]:
    """Return the slow pairs, the one with the lowest rate relative to its peers first."""
    peers, _ = encode_rows(groups.is_mpi, groups.between_nodes, groups.bytes, groups.together)
    pair, _ = encode_rows(groups.is_mpi, groups.sender, groups.receiver)
    which, *of_peers = find_slow_pairs(groups, peers, pair)
    found = [
        numbers.SlowLink(
            library=numbers.MPI if row.is_mpi else numbers.NCCL,
            are_nodes=are_nodes,
            sender=row.sender,
            receiver=row.receiver,
            bytes=row.bytes,
            count=row.messages,
            bytes_per_s=round(row.bytes / row.median * 1e9),
            peers=number,
            peers_low_bytes_per_s=round(row.bytes / longest * 1e9),
            peers_high_bytes_per_s=round(row.bytes / shortest * 1e9),
        )
        for row, number, shortest, longest in zip(
            _list_lines(groups.take(which)), *(column.tolist() for column in of_peers), strict=True
        )
    ]
    return sorted(found, key=lambda one: (one.bytes_per_s / one.peers_low_bytes_per_s, one.sender, one.receiver))


# ---- slow pairs ------------------------------------------------------------------------------------------------------


FEWEST, FEWEST_PEERS = 8, 2
"""Fewest messages, whose quartiles then lie between values on both sides, and fewest peers, which bear a slow one."""
FAR = 4 / 3
"""Least ratio of transfer times: a rate that is a quarter lower.

In a real run over a socket between two nodes, the slowest of four healthy pairs takes 1.19 times as long as its peers.
"""
SHORTEST_NS = 20_000
"""Least difference of transfer times (ns): calls and launches take as long to return."""


def find_slow_pairs(groups: Groups, peers: IntArray, pair: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return (index of each slow pair, number of peers, shortest and longest median of a peer), by the rules above.

    `peers` (n) is equal for groups that are compared, `pair` (n) for one pair at several sizes.
    """
    known = np.flatnonzero(groups.messages >= FEWEST)
    known = known[np.bincount(peers[known])[peers[known]] > FEWEST_PEERS] if known.size else known
    chosen, peers = groups.take(known), peers[known]
    medians, highs = _Others(peers, chosen.median), _Others(peers, chosen.high)
    usual = medians.pick(medians.count // 2)
    limit = highs.pick(-(-3 * (highs.count - 1) // 4))
    errors = _Others(peers, np.rint(np.minimum(chosen.error, np.iinfo(np.int64).max // 4)).astype(np.int64))
    error = chosen.error + errors.pick(errors.count - 1)
    slow = (chosen.median >= FAR * usual) & (chosen.median - usual >= SHORTEST_NS) & (chosen.low - limit > error)
    slow &= _mark_largest(chosen.bytes * chosen.messages, pair[known])
    count = medians.count
    return known[slow], count[slow], medians.pick(np.zeros_like(count))[slow], medians.pick(count - 1)[slow]


def _mark_largest(size: IntArray, pair: IntArray) -> BoolArray:
    """Mark for each pair the group in which it moved most bytes. `size` (n): the bytes of each group."""
    order = np.lexsort((-size, pair))
    return mark(order[find_starts(pair[order])], order.size)


class _Others:
    """The values of the other members of the group of each of n members, in ascending order."""

    def __init__(self, group: IntArray, values: IntArray) -> None:
        code, _ = encode_rows(group)
        order = np.lexsort((values, code))
        self._sorted = values[order]
        first = find_starts(code[order])
        sizes = np.diff(np.append(first, order.size))
        self._first = first[code[order]][np.argsort(order)] if order.size else order
        self._rank = np.argsort(order) - self._first
        self.count: IntArray = (sizes[code] if order.size else order) - 1

    def pick(self, number: IntArray) -> IntArray:
        """Return the value with this number (0: the smallest) among the others of each member."""
        return self._sorted[self._first + number + (number >= self._rank)]
