"""Solves the robust least squares problem of one connected set of clocks.

For the end e_ik (UTC, ns) of operation i on rank k, whose node d has the correction c_d(t) = offset_d + drift_d * t:

    e_ik + c_d(e_ik) = tau_i + noise,

where tau_i, the true end of operation i, is unknown. For weights w_ik it is the weighted mean of the left side.
Substituted back, it leaves normal equations over the clocks alone. Noise has long tails on both sides (a rank may be
delayed by milliseconds). So the method is iteratively reweighted least squares with Huber's weights first, then
Tukey's, which ignore outliers (Holland and Welsch, 1977). Each iteration starts with the median of an operation as its
tau_i.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.row_keys import take_groups
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, Int32Array, IntArray
from nsys2prv_ng.runtime.jit import compiled, take_median
from nsys2prv_ng.value_class import ValueClass

BLOCKS = 8
"""Parts of the window that are held out or omitted in turn. A choice: errors come from so many samples at most."""
_HUBER, _TUKEY = 1.345, 4.685
"""Tuning constants for 95 % efficiency with normal noise."""
_HUBER_STEPS, _STEPS = 4, 25
_LEAST_SCALE_NS = 50.0
"""Least scale of residuals. A choice, which keeps weights finite if nearly all residuals are 0."""
_CONVERGED = 3e-3
"""Change of the corrections, relative to the scale of the residuals, below which the iteration stops."""
_SOLVED = 1e-7
"""Share of the first gradient at which equations count as solved: the next iteration continues from there."""
_MOST_GRADIENTS = 4
"""Most steps of conjugate gradients per unknown; without rounding, one would be enough."""


class NormalProblem(ValueClass):
    """Ends of operations of `clocks` clocks, sorted by block of time: rows first[i] .. first[i + 1] - 1 of operation i.

    `end` is in ns from the middle of the window; `s` is the same in halves of the window, from -1 to 1; `block` is
    the eighth of the window (0 to 7) that contains an operation.
    """

    clocks: int
    first: IntArray
    clock: Int32Array
    end: FloatArray
    s: FloatArray
    block: IntArray
    half_window: float

    def part(self, operations: IntArray) -> NormalProblem:
        """Return the same clocks and window with some of the operations."""
        first, rows = take_groups(self.first, operations)
        columns = (self.clock[rows], self.end[rows], self.s[rows])
        return NormalProblem(self.clocks, first, *columns, self.block[operations], self.half_window)

    @property
    def operation(self) -> IntArray:
        """Index of the operation of each row."""
        return np.repeat(np.arange(self.first.size - 1), np.diff(self.first))


class Solution(ValueClass):
    """Corrections of the clocks (ns): offset in the middle of the window, drift over half of it; and the final weights.

    `drifting` marks the clocks whose drift was free.
    """

    offset: FloatArray
    drift: FloatArray
    scale: float
    weight: FloatArray
    drifting: BoolArray


def solve(problem: NormalProblem, drifting: BoolArray, start: Solution | None = None) -> Solution:
    """Solve for the corrections of all clocks but the first, which stays, and for the drift of `drifting` clocks."""
    n = problem.clocks
    free = _mark_free(drifting)
    theta = np.zeros(2 * n) if start is None else np.concatenate([start.offset, start.drift])
    theta[~free] = 0.0
    weight, scale = np.ones(problem.end.size), np.inf
    first_tukey = _HUBER_STEPS if start is None else 0
    for step in range(_STEPS):
        residual = compute_residuals(problem, theta[:n], theta[n:])
        if step or start is not None:
            scale = max(1.4826 * float(np.median(np.abs(residual))) if residual.size else 0.0, _LEAST_SCALE_NS)
            weight = _compute_weights(residual / scale, huber=step < first_tukey)
        change = _solve_change(problem, weight, residual, free)
        theta += change
        if step > first_tukey and np.abs(change).max(initial=0.0) < _CONVERGED * scale:
            break
    return Solution(theta[:n], theta[n:], scale, weight, drifting)


def drop_blocks(problem: NormalProblem, solution: Solution) -> FloatArray:
    """Return the corrections without the operations of each block in turn, with the same weights, for a jackknife.

    Each row has all offsets, then all drifts.
    """
    free = _mark_free(solution.drifting)
    theta = np.concatenate([solution.offset, solution.drift])
    residual = compute_residuals(problem, solution.offset, solution.drift)
    block_of_row = problem.block[problem.operation]
    weights = (np.where(block_of_row == block, 0.0, solution.weight) for block in np.unique(problem.block))
    changes = [_solve_change(problem, weight, residual, free) for weight in weights]
    return theta + np.stack(changes)


def _mark_free(drifting: BoolArray) -> BoolArray:
    """Mark the unknowns to solve for: all offsets, then all drifts. The first clock stays."""
    stays = np.arange(drifting.size) == 0
    return np.concatenate([~stays, drifting & ~stays])


def compute_residuals(problem: NormalProblem, offset: FloatArray, drift: FloatArray) -> FloatArray:
    """Return the distance of each corrected end (ns) from the median of its operation."""
    corrected = problem.end + offset[problem.clock] + drift[problem.clock] * problem.s
    _subtract_medians(problem.first, corrected, np.empty(np.diff(problem.first).max(initial=0)))
    return corrected


def _compute_weights(x: FloatArray, *, huber: bool) -> FloatArray:
    if huber:
        return _HUBER / np.maximum(np.abs(x), _HUBER)
    inside = np.clip(1.0 - (x / _TUKEY) ** 2, 0.0, None)
    return np.asarray(inside * inside, np.float64)


# ---- equations -------------------------------------------------------------------------------------------------------


def _solve_change(problem: NormalProblem, weight: FloatArray, residual: FloatArray, free: BoolArray) -> FloatArray:
    """Return the changes of the free unknowns (all offsets, then all drifts) that minimise the weighted squares.

    Conjugate gradients (Hestenes and Stiefel, 1952) with the diagonal as preconditioner solve the normal equations.
    Their matrix is never formed, because an operation of all clocks fills it. Unknowns that the equations do not
    determine stay. A constant added to all ends of an operation changes nothing, so ends are relative to its median.
    """
    n, clock, s = problem.clocks, problem.clock, problem.s
    columns = (problem.first, clock, s, weight)
    # The diagonal before the true ends are eliminated, with 1 instead of 0.
    diagonal = np.concatenate([np.bincount(clock, part, n) for part in (weight, weight * s * s)])
    diagonal[~free | (diagonal <= 0.0)] = 1.0
    gradient = -_apply_normal(*columns, residual, free)

    change = np.zeros(free.size)
    scaled = gradient / diagonal
    direction = scaled.copy()
    square = start = float(gradient @ scaled)
    for _ in range(_MOST_GRADIENTS * free.size):
        if square <= _SOLVED**2 * start or square <= 0.0:
            break
        product = _apply_normal(*columns, direction[clock] + s * direction[n + clock], free)
        curvature = float(direction @ product)
        if curvature <= 0.0:
            break
        change += square / curvature * direction
        gradient -= square / curvature * product
        scaled = gradient / diagonal
        before, square = square, float(gradient @ scaled)
        direction = scaled + square / before * direction
    return change


def _apply_normal(
    first: IntArray, clock: Int32Array, s: FloatArray, weight: FloatArray, values: FloatArray, free: BoolArray
) -> FloatArray:
    """Return the product of the matrix and values (one for each row), for the free unknowns; 0 for the others."""
    result = np.zeros(free.size)
    _add_products(first, clock, s, weight, values, result)
    result[~free] = 0.0
    return result


@compiled
def _add_products(
    first: IntArray, clock: Int32Array, s: FloatArray, weight: FloatArray, values: FloatArray, result: FloatArray
) -> None:
    """Add weighted sums by clock of the values minus the mean of their operation to the result, as above."""
    n = result.size // 2
    for i in range(first.size - 1):
        total, mean = 0.0, 0.0
        for k in range(first[i], first[i + 1]):
            total += weight[k]
            mean += weight[k] * values[k]
        if total == 0.0:
            continue
        mean /= total
        for k in range(first[i], first[i + 1]):
            value = weight[k] * (values[k] - mean)
            result[clock[k]] += value
            result[n + clock[k]] += s[k] * value


@compiled
def _subtract_medians(first: IntArray, values: FloatArray, room: FloatArray) -> None:
    """Subtract from the values of each group their median. `room`: for the values of the largest group."""
    for i in range(first.size - 1):
        low, count = first[i], first[i + 1] - first[i]
        for k in range(count):
            room[k] = values[low + k]
        middle = take_median(room, count) if count else 0.0
        for k in range(count):
            values[low + k] -= middle
