"""Links PyTorch's backward passes to the ranges of the program whose forward operators they belong to.

`torch.autograd.profiler.emit_nvtx` writes a sequence number into the texts of operators: each thread counts the nodes
of the graph that its operators make, and an operator has the number of the next node. So of the operators of a thread
with one number, the last one made the node, and the backward range of this node has its number, on whichever thread it
runs. Threads count apart, so a number says nothing if two threads of a process have it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import encode_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick, put
from nsys2prv_ng.intervals.nesting import find_innermost
from nsys2prv_ng.reading.opened_events import ABSENT

_ENGINE = "autograd::engine::evaluate_function: "
"""Start of the names of ranges in which the engine runs a node of the graph, whose name follows."""
_NODE = re.compile(r"Backwards?[0-9]*$")
"""End of the names of ranges of nodes, such as `MmBackward0`."""
_OPERATOR = re.compile(r"(aten|autograd|torch)::")
"""Start of the names of operators, as far as they have no sequence number."""


class TimedRanges(NamedTuple):
    """n ranges, ordered by place, start and falling end (ns).

    `parent`: the range around each, which may be on another thread; -1 for none. `step`: the step in which each starts,
    as any number. `sequence`: ABSENT for none.
    """

    place: IntArray
    begin: IntArray
    end: IntArray
    parent: IntArray
    process: IntArray
    step: IntArray
    sequence: IntArray


def link_backward(ranges: TimedRanges, key: IntArray, names: Sequence[str]) -> tuple[IntArray, IntArray]:
    """Return (backward ranges, range of the program that each belongs to), as indices. `key`: the name of each range.

    A backward range is the outermost one on its thread that runs a node of the graph. It belongs to the innermost range
    of the program around the forward operator with its number, in the same step. It is omitted if no operator before it
    has this number, if those of several threads have, if no range of the program is around the operator, or if that
    range is still open: then the backward pass is within it anyway.
    """
    has_number = ranges.sequence != ABSENT
    is_backward, number = _find_nodes(ranges, key, names)
    runs = np.flatnonzero(is_backward)
    limits = ranges.place[runs], ranges.begin[runs], ranges.end[runs]
    head = runs[find_innermost(*limits, *limits[:2]).parent < 0]
    head = head[number[head] != ABSENT]
    forward = _find_forward(ranges, np.flatnonzero(has_number & ~is_backward), head, number[head])
    head, around = head[forward >= 0], forward[forward >= 0]
    is_operator = np.array([_OPERATOR.match(name) is not None for name in names], np.bool_)[key]
    is_operator |= is_backward | has_number
    while (inside := pick(is_operator, around, False)).any():
        around = np.where(inside, ranges.parent[around], around)
    is_over = (around >= 0) & (ranges.end[around] < ranges.begin[head])
    return head[is_over], around[is_over]


def _find_nodes(ranges: TimedRanges, key: IntArray, names: Sequence[str]) -> tuple[BoolArray, IntArray]:
    """Return (mask of the ranges that run a node of the graph, sequence number of each range).

    A range of the engine has the number of the node within it.
    """
    known = {name: number for number, name in enumerate(names)}
    runs = [known.get(name.removeprefix(_ENGINE), -1) if name.startswith(_ENGINE) else -1 for name in names]
    child = np.flatnonzero((ranges.sequence != ABSENT) & (ranges.parent >= 0))
    child = child[ranges.place[ranges.parent[child]] == ranges.place[child]]
    child = child[np.array(runs, np.int64)[key[ranges.parent[child]]] == key[child]]
    number = ranges.sequence.copy()
    number[ranges.parent[child[::-1]]] = ranges.sequence[child[::-1]]  # the first one counts
    is_backward = np.array([_NODE.search(name) is not None for name in names], np.bool_)[key]
    is_backward &= ranges.sequence != ABSENT
    is_backward |= np.array([name.startswith(_ENGINE) for name in names], np.bool_)[key]
    is_backward[child] = True
    return is_backward, number


def _find_forward(ranges: TimedRanges, operators: IntArray, head: IntArray, number: IntArray) -> IntArray:
    """Return the last operator with the number of each backward range that started before it in its process and step.

    -1 if there is none, or if operators of several threads have started before it.
    """
    both = np.concatenate([operators, head])
    numbers = np.concatenate([ranges.sequence[operators], number])
    group, _ = encode_rows(ranges.process[both], ranges.step[both], numbers)
    order = np.lexsort((ranges.begin[both], group))  # operators stay before backward ranges
    group, is_operator = group[order], order < operators.size
    last = np.cumsum(is_operator)[~is_operator] - 1  # of each backward range, among the operators in this order
    of_operator, sorted_operators = group[is_operator], operators[order[is_operator]]
    is_first = np.diff(of_operator, prepend=-1) != 0
    moves = np.cumsum(~is_first & (np.diff(ranges.place[sorted_operators], prepend=-1) != 0))
    start = np.maximum.accumulate(np.where(is_first, np.arange(moves.size), 0))
    of_one_thread = np.append(moves == moves[start], False)
    is_found = (pick(of_operator, last, -1) == group[~is_operator]) & of_one_thread[last]
    found = np.where(is_found, pick(sorted_operators, last, -1), -1)
    return put(found, order[~is_operator] - operators.size, head.size)
