"""Paraver's functions of the values of bursts, in numba: of one window, of several objects, of two windows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.typed import List

COMPOSES = ["As Is", "Sign", "1-Sign", "Mod", "Mod+1", "Div", "Prod", "Add", "Subs", "Complement", "Inverse Div"]
COMPOSES += ["Select Range", "Select Range [)", "Is In Range", "Is In Range [)", "Is Equal", "Is Equal (Sign)"]
COMPOSES += ["Floor", "Ceil", "Round", "Abs", "Stacked Val", "In Stacked Val", "Nesting level", "Enumerate"]
COMPOSES += ["Accumulate", "Delta", "Burst Time", "Divide by Burst Time", "Begin Time", "End Time", "Translate"]
COMPOSES += ["log N", "exp", "sin", "cos", "sqrt (abs)", "arc tan"]
(AS_IS, SIGN, ONE_MINUS_SIGN, MOD, MOD_PLUS_1, DIV, PROD, ADD, SUBS, COMPLEMENT, INVERSE_DIV) = range(11)
(SELECT_RANGE, SELECT_RANGE_OPEN, IS_IN_RANGE, IS_IN_RANGE_OPEN, IS_EQUAL, IS_EQUAL_SIGN) = range(11, 17)
(FLOOR, CEIL, ROUND, ABS, STACKED, IN_STACKED, NESTING, ENUMERATE) = range(17, 25)
(ACCUMULATE, DELTA, BURST_TIME, DIVIDE_BY_BURST_TIME, BEGIN_TIME, END_TIME, TRANSLATE) = range(25, 32)
(LOG, EXP, SIN, COS, ROOT, ARC_TAN) = range(32, 38)

UPPERS = ["Adding", "AddingSign", "Average", "Maximum", "Minimum", "Activity", "In Activity", "Thread i", "Add Tasks"]
UPPERS += ["Changed value"]
(ADDING, ADDING_SIGN, AVERAGE, MAXIMUM, MINIMUM, ACTIVITY, IN_ACTIVITY, THREAD_I, ADD_TASKS, CHANGED) = range(10)

DERIVEDS = ["add", "product", "substract", "divide", "maximum", "minimum", "different"]
DERIVEDS += ["controlled: clear by", "controlled: enumerate"]
(D_ADD, D_PRODUCT, D_SUBTRACT, D_DIVIDE, D_MAXIMUM, D_MINIMUM, D_DIFFERENT, CLEAR_BY, ENUMERATE_BY) = range(9)
CONTROLLEDS = ["controlled: maximum", "controlled: add", "controlled: average"]
(C_MAXIMUM, C_ADD, C_AVERAGE) = range(3)

_INT, _FLOAT = np.int64, np.float64
NODE = np.dtype(
    [(name, _INT) for name in ("kind", "code", "first", "count", "parameter_0", "parameter_1", "parameter_2", "shift")]
    + [(name, _INT) for name in ("finish_id", "begin_id", "end_id", "position", "step", "top")]
    + [(name, _FLOAT) for name in ("unit", "factor_0", "factor_1", "tail", "begin", "end", "value")]
    + [(name, _FLOAT) for name in ("left", "right", "memory_0", "memory_1", "memory_2")]
)
"""A node: `first` and `count` of its children or of its bursts; parameters from _0 to _1 and from _1 to _2."""
CHILD = np.dtype([("node", _INT), ("turn", _INT), ("end", _FLOAT), ("value", _FLOAT)])
"""A child of a node, with its state when the node last looked at it."""
BURST = np.dtype([("begin_id", _INT), ("end_id", _INT), ("begin", _FLOAT), ("end", _FLOAT), ("value", _FLOAT)])


class Machine(NamedTuple):
    """The nodes of some windows, each at one burst."""

    node: np.ndarray
    child: np.ndarray
    leaf: np.ndarray
    ring: np.ndarray
    parameter: np.ndarray
    finish: float
    frame: np.ndarray
    """Nodes on their way to the next burst."""
    stacked: Any
    below: Any
    """Values on the stacks of all nodes, and the place of the value below each; 0 is the bottom of every stack."""


def make_machine(
    node: np.ndarray, child: np.ndarray, leaf: np.ndarray, ring: int, parameter: list[float], finish: float
):
    """Return a machine of these nodes, with room for `ring` bursts that shifted nodes remember."""
    stacked, below = List(), List()
    stacked.append(0.0)
    below.append(0)
    parameters = np.array([*parameter, 0.0])
    frame = np.zeros((len(node) + 1, 3), np.int64)
    return Machine(node, child, leaf, np.zeros(ring + 1, BURST), parameters, float(finish), frame, stacked, below)


@njit(cache=True, error_model="numpy")
def _push(m, node, value):
    m.stacked.append(value)
    m.below.append(node.top)
    node.top = len(m.stacked) - 1


@njit(cache=True, error_model="numpy")
def _pop(m, node):
    if node.top and node.top == len(m.stacked) - 1:
        node.top = m.below.pop()
        m.stacked.pop()
    elif node.top:
        node.top = m.below[node.top]


@njit(cache=True, error_model="numpy")
def _in_range(m, node, value, is_open):
    """Return whether a value is in a range: the first parameter lists maxima, the second minima."""
    for i in range(min(node.parameter_1 - node.parameter_0, node.parameter_2 - node.parameter_1)):
        maximum, minimum = m.parameter[node.parameter_0 + i], m.parameter[node.parameter_1 + i]
        if minimum <= value and (value < maximum or (value == maximum and not is_open)):
            return True
    return False


@njit(cache=True, error_model="numpy")
def _is_any(m, node, value):
    return np.any(m.parameter[node.parameter_0 : node.parameter_1] == value)


@njit(cache=True, error_model="numpy")
def compose(m, node, value):
    """Apply the compose function of a node to a value."""
    code = node.code
    parameter = m.parameter[node.parameter_0] if node.parameter_1 > node.parameter_0 else 0.0
    divider = parameter if parameter != 0.0 else 1.0
    if code == SIGN:
        return 1.0 if value != 0.0 else 0.0
    if code == ONE_MINUS_SIGN:
        return 0.0 if value != 0.0 else 1.0
    if code == MOD:
        return np.fmod(value, divider)
    if code == MOD_PLUS_1:
        return np.fmod(value, divider) + 1.0
    if code == DIV:
        return value / parameter if parameter != 0.0 else np.fmod(value, 1.0)
    if code == PROD:
        return value * parameter
    if code == ADD:
        return value + parameter
    if code == SUBS:
        return value - parameter
    if code == COMPLEMENT:
        return parameter - value
    if code == INVERSE_DIV:
        return parameter / value if value != 0.0 else 0.0
    if code in (SELECT_RANGE, SELECT_RANGE_OPEN):
        return value if _in_range(m, node, value, code == SELECT_RANGE_OPEN) else 0.0
    if code in (IS_IN_RANGE, IS_IN_RANGE_OPEN):
        return 1.0 if _in_range(m, node, value, code == IS_IN_RANGE_OPEN) else 0.0
    if code == IS_EQUAL:
        return value if _is_any(m, node, value) else 0.0
    if code == IS_EQUAL_SIGN:
        return 1.0 if _is_any(m, node, value) else 0.0
    if code == FLOOR:
        return np.floor(value)
    if code == CEIL:
        return np.ceil(value)
    if code == ROUND:
        return np.rint(value)
    if code == ABS:
        return abs(value)
    if code == TRANSLATE:
        for i in range(node.parameter_0, node.parameter_1 - 1, 2):
            if m.parameter[i] == value:
                return m.parameter[i + 1]
        return value
    return (
        _compute_transcendental(code, value, parameter)
        if code >= LOG
        else _compose_with_memory(m, node, value, parameter)
    )


@njit(cache=True, error_model="numpy")
def _compute_transcendental(code, value, parameter):
    if code == LOG:
        result = np.log(value) / np.log(parameter)
        return 0.0 if value <= 0.0 or result < 0.0 else result
    if code == EXP:
        is_undefined = (parameter < 0.0 and value != np.floor(value)) or (parameter == 0.0 and value < 0.0)
        return 0.0 if is_undefined else parameter**value
    if code == SIN:
        return np.sin(value)
    if code == COS:
        return np.cos(value)
    return np.sqrt(abs(value)) if code == ROOT else np.arctan(value)


@njit(cache=True, error_model="numpy")
def _compose_with_memory(m, node, value, parameter):
    """Apply a compose function that depends on the bursts before, or on the times of this one."""
    code = node.code
    if code in (STACKED, IN_STACKED):
        if value != 0.0:
            _push(m, node, value)
        else:
            _pop(m, node)
        top = m.stacked[node.top]
        return top if code == STACKED or top == parameter else 0.0
    if code == NESTING:
        node.memory_0 = node.memory_0 + 1.0 if value != 0.0 else max(node.memory_0 - 1.0, 0.0)
        return node.memory_0
    if code == ENUMERATE:
        return node.value + 1.0 if value != 0.0 else node.value
    if code == ACCUMULATE:
        return node.value + value
    if code == DELTA:
        change = value - node.memory_0
        node.memory_0 = value
        return change
    duration = node.end - node.begin
    if code == BURST_TIME:
        return duration / node.unit
    if code == DIVIDE_BY_BURST_TIME:
        return value / (duration / node.unit) if duration != 0.0 else 0.0
    if code == BEGIN_TIME:
        return node.begin / node.unit
    if code == END_TIME:
        return node.end / node.unit
    return value


@njit(cache=True, error_model="numpy")
def combine_children(m, node):
    """Apply the function of a node to the values of its children."""
    code = node.code
    values = m.child[node.first : node.first + node.count].value
    result = 0.0
    if code in (ADDING, ADDING_SIGN, AVERAGE):
        for value in values:
            result += value
        if code == ADDING_SIGN:
            return 1.0 if result > 0.0 else 0.0
        return result / node.count if code == AVERAGE else result
    if code == MAXIMUM:
        for value in values:
            if value > result:
                result = value
        return result
    if code == MINIMUM:
        for value in values:
            if result == 0.0 or value < result:
                result = value
        return result
    if code in (ACTIVITY, IN_ACTIVITY):
        if values[0] == 0.0 or not _is_any(m, node, values[0]) or np.any(values != values[0]):
            return 0.0
        return 1.0 if code == IN_ACTIVITY else values[0]
    if code == THREAD_I:
        index = m.parameter[node.parameter_0]
        return values[int(index) - 1] if 0.0 < index <= node.count else 0.0
    if code == ADD_TASKS:
        for index in m.parameter[node.parameter_0 : node.parameter_1]:
            result += values[int(index)]
        return result
    return values[node.position]


@njit(cache=True, error_model="numpy")
def combine_two(node, begin):
    """Combine the values of two windows; the burst of the first one starts at `begin`."""
    code, left, right = node.code, node.left, node.right
    if code == D_ADD:
        return left + right
    if code == D_PRODUCT:
        return left * right
    if code == D_SUBTRACT:
        return left - right
    if code == D_DIVIDE:
        return left / right if right != 0.0 else 0.0
    if code == D_MAXIMUM:
        return left if left > right else right
    if code == D_MINIMUM:
        return left if left < right else right
    if code == D_DIFFERENT:
        return 1.0 if left != right else 0.0
    result = 0.0
    if code == CLEAR_BY:
        if right < node.memory_0:
            node.memory_1 = begin
        elif node.memory_1 != begin or begin == 0.0:
            result = left
    else:
        if right < node.memory_0:
            node.memory_2 = 0.0
        elif node.memory_1 == 0.0 or (begin != node.memory_1 and left != 0.0):
            node.memory_2 += 1.0
        node.memory_1 = begin
        result = node.memory_2
    node.memory_0 = right
    return result


@njit(cache=True, error_model="numpy")
def accumulate_controlled(node, value, duration, is_first):
    """Return the value of a node after one more burst of the data within a burst of the control."""
    if node.code == C_MAXIMUM:
        return node.value if node.value > value else value
    if node.code == C_ADD:
        return node.value + value
    if is_first:
        node.memory_0 = node.memory_1 = 0.0
    node.memory_0 += value * duration
    node.memory_1 += duration
    return node.memory_0 / node.memory_1 if node.memory_1 != 0.0 else 0.0
