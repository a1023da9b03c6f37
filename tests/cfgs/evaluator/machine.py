"""Paraver's intervals: each node is at one burst of its row, and `advance` moves it to the next one.

A window's nodes are, from below: the bursts that a function makes of a thread's records (LEAF), the results of compose
functions (COMPOSE, JOIN), the combinations of several objects (UPPER) and of two windows (DERIVED, CONTROLLED, SHIFT).
As in Paraver, nodes that share a child also share its place.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
from numba import njit

from tests.cfgs.evaluator import functions
from tests.cfgs.evaluator.functions import accumulate_controlled, combine_children, combine_two, compose

LEAF, COMPOSE, JOIN, UPPER, DERIVED, CONTROLLED, SHIFT = range(7)
DONE = -1
FIRST_THREAD_END = -1
"""Identity of the end of the trace on the first thread; on thread i it is -1 - i. Records have none below 0."""


@njit(cache=True, error_model="numpy")
def _set_begin(node, time, identity):
    node.begin, node.begin_id = time, identity


@njit(cache=True, error_model="numpy")
def _set_end(node, time, identity):
    node.end, node.end_id = time, identity


@njit(cache=True, error_model="numpy")
def _copy(node, child):
    _set_begin(node, child.begin, child.begin_id)
    _set_end(node, child.end, child.end_id)


@njit(cache=True, error_model="numpy")
def _advance_leaf(m, node, start):
    node.position = 0 if start else node.position + 1
    if node.position < node.count:
        burst = m.leaf[node.first + node.position]
        _set_begin(node, burst.begin, burst.begin_id)
        _set_end(node, burst.end, burst.end_id)
        node.value = burst.value
    else:
        _set_begin(node, m.finish, node.finish_id)
        _set_end(node, m.finish, node.finish_id)
        node.value = node.tail
    return DONE, False


@njit(cache=True, error_model="numpy")
def _advance_compose(m, node, start, phase):
    below = m.child[node.first].node
    if phase == 0:
        return below, start
    child = m.node[below]
    _copy(node, child)
    if start:
        node.value = 0.0
    node.value = compose(m, node, child.value)
    return DONE, False


@njit(cache=True, error_model="numpy")
def _advance_join(m, node, start, phase):
    """Join bursts of one value. The child is at the first burst that is not joined, or the last one of the trace."""
    below = m.child[node.first].node
    child = m.node[below]
    if phase == 0 and start:
        return below, True
    if phase == start:
        _copy(node, child)
        node.value = child.value
        node.position = FIRST_THREAD_END
        return below, False
    if child.value != node.value:
        return DONE, False
    _set_end(node, child.end, child.end_id)
    if node.end_id in (FIRST_THREAD_END, node.position):
        return DONE, False
    node.position = node.end_id
    return below, False


@njit(cache=True, error_model="numpy")
def _look_at(m, node, i, start):
    """Remember the burst of child i; at the start, its begin and end may become the node's."""
    slot = m.child[node.first + i]
    child = m.node[slot.node]
    slot.end, slot.value, slot.turn = child.end, child.value, int(node.memory_0)
    node.memory_0 += 1.0
    if start and (i == 0 or child.begin > node.begin):
        _set_begin(node, child.begin, child.begin_id)
    if start and (i == 0 or child.end < node.end):
        _set_end(node, child.end, child.end_id)


@njit(cache=True, error_model="numpy")
def _find_due(m, node):
    """Return the child with the earliest end when last looked at; of several, the one looked at first."""
    best = 0
    for i in range(1, node.count):
        slot, best_slot = m.child[node.first + i], m.child[node.first + best]
        if slot.end < best_slot.end or (slot.end == best_slot.end and slot.turn < best_slot.turn):
            best = i
    return best


@njit(cache=True, error_model="numpy")
def _advance_upper(m, node, start, phase):
    if start:
        if phase == 0:
            node.position, node.memory_0 = 0, 0.0
        else:
            _look_at(m, node, phase - 1, True)
        if phase < node.count:
            return m.child[node.first + phase].node, True
        node.value = combine_children(m, node)
        return DONE, False
    if phase == 0:
        _set_begin(node, node.end, node.end_id)
        node.step = 0
    else:
        _look_at(m, node, node.position, False)
        node.step += 1
    due = _find_due(m, node)
    while node.step < node.count and m.child[node.first + due].end == node.begin:
        # One turn for each child, even if some stay at bursts without length.
        below = m.child[node.first + due].node
        if m.node[below].end <= node.begin:
            node.position = due
            return below, False
        _look_at(m, node, due, False)
        node.step += 1
        due = _find_due(m, node)
    child = m.node[m.child[node.first + due].node]
    _set_end(node, child.end, child.end_id)
    node.value = combine_children(m, node)
    return DONE, False


@njit(cache=True, error_model="numpy")
def _see_parent(m, node, i, start):
    """Take the value of parent i of a derived window, and its end if it is the next one before the trace's."""
    parent = m.node[m.child[node.first + i].node]
    if start and (i == 0 or parent.begin > node.begin):
        _set_begin(node, parent.begin, parent.begin_id)
    if (start or parent.end < m.finish) and (node.position == 0 or parent.end < node.end):
        _set_end(node, parent.end, parent.end_id)
        node.position = 1
    factor = node.factor_0 if i == 0 else node.factor_1
    value = parent.value * factor
    if abs(factor) < 1.0:  # Paraver divides here, which rounds otherwise
        value = parent.value / (1.0 / abs(factor))
        value = -value if factor < 0.0 else value
    if i == 0:
        node.left = value
    else:
        node.right = value


@njit(cache=True, error_model="numpy")
def _advance_derived(m, node, start, phase):
    if phase == 0:
        if not start:
            _set_begin(node, node.end, node.end_id)
        node.position = node.step = 0
    else:
        _see_parent(m, node, node.step, start)
        node.step += 1
    while node.step < 2:
        parent = m.child[node.first + node.step].node
        if start or m.node[parent].end <= node.begin:
            return parent, start
        _see_parent(m, node, node.step, start)
        node.step += 1
    if node.position == 0:
        _set_end(node, m.finish, node.finish_id)
    node.value = combine_two(node, m.node[m.child[node.first].node].begin)
    return DONE, False


@njit(cache=True, error_model="numpy")
def _advance_controlled(m, node, start, phase):
    below, control = m.child[node.first].node, m.child[node.first + 1].node
    data = m.node[below]
    if phase == 0:
        return control, start
    if phase == 1 and start:
        return below, True
    if phase == 1 + start:
        _copy(node, m.node[control])
        node.value = 0.0
        node.step = 0
        if node.begin >= m.finish:
            return DONE, False
    if node.step == 0 and data.end <= node.begin:
        return below, False
    node.value = accumulate_controlled(node, data.value * node.factor_0, data.end - data.begin, node.step == 0)
    node.step = 1
    return (below, False) if data.end < node.end else (DONE, False)


@njit(cache=True, error_model="numpy")
def _advance_shifted(m, node, start, phase):
    """Remember bursts of the child: the node is at one of them and shows the value of another."""
    below = m.child[node.first].node
    if phase == 0:
        return below, start
    if phase == 1 and start:
        node.position = 0
    child, size = m.node[below], abs(node.shift) + 1
    newest = node.parameter_0 + node.position % size
    burst = m.ring[newest]
    burst.begin, burst.end, burst.value = child.begin, child.end, child.value
    burst.begin_id, burst.end_id = child.begin_id, child.end_id
    node.position += 1
    is_full = node.position >= size
    oldest = node.parameter_0 + (node.position % size if is_full else 0)
    place, seen = (m.ring[oldest], m.ring[newest]) if node.shift > 0 else (m.ring[newest], m.ring[oldest])
    _copy(node, place)
    node.value = seen.value if is_full else 0.0
    return (below, False) if start and node.shift > 0 and not is_full else (DONE, False)


@njit(cache=True, error_model="numpy")
def advance(m, n, start):
    """Move a node to the first burst of its row if `start`, otherwise to the next one.

    The function of each kind of node returns the child that has to move first (and whether to its first burst), or
    DONE; it is called again with the number of moves of children so far.
    """
    depth = 0
    m.frame[0, 0], m.frame[0, 1], m.frame[0, 2] = n, start, 0
    while depth >= 0:
        frame = m.frame[depth]
        node, is_start, phase = m.node[frame[0]], frame[1] == 1, frame[2]
        kind = node.kind
        if kind == LEAF:
            below, below_start = _advance_leaf(m, node, is_start)
        elif kind == COMPOSE:
            below, below_start = _advance_compose(m, node, is_start, phase)
        elif kind == JOIN:
            below, below_start = _advance_join(m, node, is_start, phase)
        elif kind == UPPER:
            below, below_start = _advance_upper(m, node, is_start, phase)
        elif kind == DERIVED:
            below, below_start = _advance_derived(m, node, is_start, phase)
        elif kind == CONTROLLED:
            below, below_start = _advance_controlled(m, node, is_start, phase)
        else:
            below, below_start = _advance_shifted(m, node, is_start, phase)
        frame[2] += 1
        if below == DONE:
            depth -= 1
        else:
            depth += 1
            m.frame[depth, 0], m.frame[depth, 1], m.frame[depth, 2] = below, below_start, 0


@njit(cache=True, error_model="numpy")
def collect_bursts(m, n, beyond):
    """Return begin, end, value and first record of each burst up to the end of the trace, and of `beyond` more."""
    advance(m, n, True)
    node = m.node[n]
    rows = np.empty((64, 4))
    size = 0
    while True:
        if size == len(rows):
            rows = np.concatenate((rows, np.empty_like(rows)))
        rows[size, 0], rows[size, 1], rows[size, 2] = node.begin, node.end, node.value
        rows[size, 3] = node.begin_id
        size += 1
        if node.end >= m.finish:
            if beyond == 0:
                return rows[:size]
            beyond -= 1
        advance(m, n, False)


@njit(cache=True, error_model="numpy")
def find_scale(m, n):
    """Return minimum (of values other than 0) and maximum of a node, 0 if there is none, and whether it has a 0."""
    advance(m, n, True)
    node = m.node[n]
    minimum, maximum, zero = 0.0, 0.0, False
    while True:
        zero |= node.value == 0.0
        if maximum < node.value:
            maximum = node.value
        if minimum == 0.0 or (minimum > node.value and node.value != 0.0):
            minimum = node.value
        if node.begin >= m.finish:
            return minimum, maximum, zero
        advance(m, n, False)


@njit(cache=True, error_model="numpy")
def collect_overlaps(m, control_node, data_node):
    """Return begin, end, value of the control and value of the data, of each overlap of their bursts."""
    control, data = m.node[control_node], m.node[data_node]
    rows = np.empty((64, 4))
    size = 0
    advance(m, control_node, True)
    is_data_started = control_node == data_node
    while control.begin < m.finish:
        begin, end = control.begin, control.end
        if begin != end:
            if not is_data_started:
                advance(m, data_node, True)
                is_data_started = True
            while data.end <= begin and data.begin < m.finish:
                advance(m, data_node, False)
            while True:
                if data.begin < end and data.begin != data.end:
                    if size == len(rows):
                        rows = np.concatenate((rows, np.empty_like(rows)))
                    rows[size, 0], rows[size, 1] = max(begin, data.begin), min(end, data.end)
                    rows[size, 2], rows[size, 3] = control.value, data.value
                    size += 1
                if data.end >= end or data.begin >= m.finish:
                    break
                advance(m, data_node, False)
            while data.begin == data.end and data.end <= end and data.end < m.finish:
                advance(m, data_node, False)
        if end >= m.finish:  # beyond the end, a node does not always stay there
            break
        advance(m, control_node, False)
    return rows[:size]


def _forget_stale_code() -> None:
    """Delete cached code older than functions.py: numba does not notice a change of what it inlined from there."""
    changed = Path(functions.__file__).stat().st_mtime
    for index in Path(advance.stats.cache_path).glob("machine.*.nbi"):
        with contextlib.suppress(FileNotFoundError):
            if index.stat().st_mtime < changed:
                index.unlink()


_forget_stale_code()
