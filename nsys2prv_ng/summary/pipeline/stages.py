"""Finds the stages of a pipeline from the messages between GPUs; nothing if they are not certain to be one.

Messages connect GPUs to chains. They are parallel pipelines if

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

from nsys2prv_ng.arrays.row_keys import encode_rows, find_starts
from nsys2prv_ng.arrays.types import IntArray

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
    used = _list_pairs(messages)
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
    if back and len(back) < len(forward):
        return None
    if not back and len(oriented[0]) < _FEWEST_FORWARD:
        return None
    return [list(stage) for stage in zip(*sorted(oriented), strict=True)]


def _list_pairs(messages: StepMessages) -> list[tuple[int, int]]:
    """Return the distinct pairs of a sending and a receiving GPU."""
    _, at = encode_rows(messages.sender, messages.receiver)
    return list(zip(messages.sender[at].tolist(), messages.receiver[at].tolist(), strict=True))


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
        if start in seen:
            continue
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
    return {
        number: (bool(is_send), other)
        for number, is_send, other in zip(gpu[own].tolist(), sends[own].tolist(), peer[own].tolist(), strict=True)
    }


def _starts_at_first(chain: Sequence[int], first: dict[int, tuple[bool, int]]) -> bool:
    """Return whether steps start at the first GPU of a chain, and reach each other GPU from the one before it."""
    return first.get(chain[0]) == (True, chain[1]) and all(
        first.get(gpu) == (False, before) for before, gpu in pairwise(chain)
    )


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
