"""Fits corrections of clocks to matched operations: chooses the model, if any, and estimates the error.

Each connected set of domains is fitted by itself. Its reference, whose clock stays, is the domain with the most rows.
A model is kept only if it better explains operations to which it was not fitted: blocks of time take turns in being
fitted and being predicted. Errors come from omitting one block at a time (jackknife), so that they include slow
variations, which more operations would not average out. A correction is not made if it is below its error on every node
and causality holds without it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from nsys2prv_ng.arrays.row_keys import count_earlier, encode_rows, take_groups
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray
from nsys2prv_ng.clock.matches import Lines, Matches, find_violations
from nsys2prv_ng.clock.normal import BLOCKS, NormalProblem, Solution, compute_residuals, drop_blocks, solve
from nsys2prv_ng.value_class import ValueClass

# Conditions for fitting drift, from measurements: its error is 15 to 25 ppm in a window of 0.7 s, 0.1 ppm in 5.4 s.
DRIFT_SPAN_NS = 5 * 10**9
DRIFT_OPERATIONS = 50
DRIFT_BLOCKS = 4
MOST_DRIFT = 50e-6

# A choice, as the next one is, of drift against an offset alone: without it, noise would decide between equal models.
BETTER = 0.95
"""A correction must lower the held-out residual to at most this share of the residual of plain UTC."""
_BETTER_WITH_DRIFT = 0.99

# A choice, which bounds the time of a fit: errors come from slow variations, which more operations do not average out.
MOST_ROWS = 1 << 19
"""Most rows to fit. From more operations, evenly spread ones are chosen."""

_STUDENT = (np.inf, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36)
"""97.5 % quantiles of Student's distribution by degrees of freedom."""

UTC, OFFSET, DRIFT = "utc", "offset", "offset and drift"
_Models = dict[str, Solution]
"""Solutions by model."""


class ClockFit(ValueClass):
    """The fit of a connected set of domains. Arrays have a value for each of `domains`; the first is the reference.

    `offset` (ns, at the time `since` of the matches), `drift` (relative); `offset_error` and `drift_error` are standard
    errors over blocks (NaN if there are too few). `bound` is the bound of the error anywhere in the window with 95 %
    confidence: Student's quantile times the standard error, plus the most that uncorrected drift may add, plus the
    median residual, because ranks need not leave an operation at the same time; `correction_error` is the part of it
    that is the error of the correction itself, without uncorrected drift.

    `held_out`: held-out residual (ns) by model; empty if no block can be held out. `half_window`: half of the time (ns)
    from the first operation to the last, with `since` in the middle. `suggested`: the largest correction (ns) within
    the window that the operations suggest, applied or not.
    """

    domains: IntArray
    model: str
    since: int
    offset: FloatArray
    drift: FloatArray
    offset_error: FloatArray
    drift_error: FloatArray
    bound: FloatArray
    operations: IntArray
    median: FloatArray
    percentile_95: FloatArray
    scale: float
    held_out: dict[str, float]
    half_window: float
    suggested: FloatArray
    correction_error: FloatArray

    @property
    def largest(self) -> FloatArray:
        """The largest correction (ns) of each domain within the window."""
        return np.abs(self.offset) + np.abs(self.drift) * self.half_window


def make_lines(domains: int, fits: Iterable[ClockFit] = ()) -> Lines:
    """Return the corrections of all domains by their fits; none for domains without a fit."""
    lines = Lines(*np.zeros((3, domains)))
    for fit in fits:
        lines.offset[fit.domains], lines.drift[fit.domains], lines.since[fit.domains] = fit.offset, fit.drift, fit.since
    return lines


def fit_sets(matches: Matches, names: Sequence[str], *, always: bool) -> list[ClockFit]:
    """Fit corrections of every set of two or more domains, with these names, that operations connect.

    `always`: correct even if that does not lower the held-out residual, is below its error, or has no held-out
    residual.
    """
    label = _find_components(matches, len(names))
    set_of_operation = np.where(matches.fits, label[matches.domain[matches.first[:-1]]], -1)
    sets = (np.flatnonzero(set_of_operation == number) for number in np.unique(set_of_operation[set_of_operation >= 0]))
    return [_fit_set(matches, _thin(matches, operations), names, always) for operations in sets]


def _find_components(matches: Matches, domains: int) -> IntArray:
    """Return a number for each domain. Domains that operations connect have the same number."""
    first, domain = matches.first, matches.domain.astype(np.int64)
    fits = np.repeat(matches.fits, np.diff(first))
    pairs = np.repeat(domain[first[:-1]], np.diff(first))[fits], domain[fits]
    one, other = (column[encode_rows(*pairs)[1]] for column in pairs)
    label, before = np.arange(domains), np.zeros(0, np.int64)
    while not np.array_equal(label, before):
        before = label.copy()
        np.minimum.at(label, one, before[other])
        np.minimum.at(label, other, before[one])
    return label


def _thin(matches: Matches, operations: IntArray) -> IntArray:
    """Return every n-th operation of each communicator if there are many operations."""
    rows = int(np.diff(matches.first)[operations].sum())
    return operations[count_earlier(matches.group[operations]) % -(-rows // MOST_ROWS) == 0]


def _fit_set(matches: Matches, operations: IntArray, names: Sequence[str], always: bool) -> ClockFit:
    problem, domains, since = _make_problem(matches, operations, names)
    n = domains.size
    none = np.zeros(n, np.bool_)
    models = {UTC: Solution(np.zeros(n), np.zeros(n), 0.0, np.zeros(0), none), OFFSET: solve(problem, none)}
    drifting = _find_drifting(problem)
    if drifting.any():
        with_drift = solve(problem, drifting)
        steep = np.abs(with_drift.drift) > MOST_DRIFT * problem.half_window
        if steep.any():
            with_drift = solve(problem, drifting & ~steep, with_drift)
        models[DRIFT] = with_drift
    held_out = _compute_held_out(problem, models)
    model = _choose_model(held_out, models, always)
    if model == DRIFT and not _is_significant(problem, models[DRIFT]):
        model = OFFSET
    fit = _describe(problem, domains, since, model, models, held_out)
    if not always and model != UTC and _is_within_error(matches, fit, len(names)):
        return _describe(problem, domains, since, UTC, models, held_out)
    return fit


def _is_within_error(matches: Matches, fit: ClockFit, domains: int) -> bool:
    """Return whether every correction is within its error and causality holds without corrections, too."""
    if not (fit.largest <= fit.correction_error).all():
        return False
    plain, corrected = make_lines(domains), make_lines(domains, [fit])
    return find_violations(matches, plain).broken <= find_violations(matches, corrected).broken


def _choose_model(held_out: dict[str, float], models: _Models, always: bool) -> str:
    if not held_out:
        return OFFSET if always else UTC
    best = OFFSET
    if DRIFT in models and held_out[DRIFT] < _BETTER_WITH_DRIFT * held_out[OFFSET]:
        best = DRIFT
    return best if always or held_out[best] < BETTER * held_out[UTC] else UTC


def _make_problem(matches: Matches, operations: IntArray, names: Sequence[str]) -> tuple[NormalProblem, IntArray, int]:
    """Return the problem, the domain of each of its clocks, and the middle of its window."""
    first, rows = take_groups(matches.first, operations)
    domain_of_row = matches.domain[rows]
    leave = matches.leave[rows]

    row_count = np.bincount(domain_of_row, minlength=len(names))
    used: list[int] = np.flatnonzero(row_count).tolist()
    domains = np.array(sorted(used, key=lambda d: (-row_count[d], names[d])), np.int64)
    clock = np.empty(len(names), np.int32)
    clock[domains] = np.arange(domains.size, dtype=np.int32)

    low, high = int(leave.min()), int(leave.max())
    since, half = (low + high) // 2, max((high - low) / 2, 1.0)
    end = (leave - since).astype(np.float64)
    s = end / half
    start = s[first[:-1]]
    block = np.clip(((start + 1.0) / 2.0 * BLOCKS).astype(np.int64), 0, BLOCKS - 1)
    problem = NormalProblem(domains.size, first, clock[domain_of_row], end, s, block, half)
    return problem.part(np.argsort(block, kind="stable")), domains, since


def _find_drifting(problem: NormalProblem) -> BoolArray:
    """Mark the clocks with enough operations, over enough time, in enough blocks."""
    n = problem.clocks
    low, high = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(low, problem.clock, problem.end)
    np.maximum.at(high, problem.clock, problem.end)
    blocks = np.zeros((n, BLOCKS), np.bool_)
    blocks[problem.clock, problem.block[problem.operation]] = True
    enough = (high - low >= DRIFT_SPAN_NS) & (_count_operations(problem) >= DRIFT_OPERATIONS)
    enough &= blocks.sum(axis=1) >= DRIFT_BLOCKS
    enough[0] = False
    return np.asarray(enough, np.bool_)


def _count_operations(problem: NormalProblem) -> IntArray:
    """Return the number of operations of each clock."""
    operation = problem.operation
    key = np.unique(operation * problem.clocks + problem.clock)
    return np.bincount(key % problem.clocks, minlength=problem.clocks).astype(np.int64)


# ---- held-out residuals ----------------------------------------------------------------------------------------------


def _compute_held_out(problem: NormalProblem, models: _Models) -> dict[str, float]:
    """Return the residual (ns) of held-out operations by model: the mean of the medians of all clocks."""
    blocks = np.unique(problem.block)
    if blocks.size < 2:
        return {}
    odd = np.searchsorted(blocks, problem.block) % 2 == 1
    halves = np.flatnonzero(~odd), np.flatnonzero(odd)
    sums: dict[str, list[float]] = {name: [] for name in models}
    for fitted, held_out in (halves, halves[::-1]):
        train, test = problem.part(fitted), problem.part(held_out)
        for name, solution in models.items():
            predicted = solution if name == UTC else solve(train, solution.drifting, solution)
            sums[name] += [float(np.median(values)) for values in _list_residuals(test, predicted) if values.size]
    return {name: float(np.mean(medians)) for name, medians in sums.items()}


def _list_residuals(problem: NormalProblem, solution: Solution) -> list[FloatArray]:
    """Return the absolute residuals (ns) of each clock."""
    residual = np.abs(compute_residuals(problem, solution.offset, solution.drift))
    order = np.argsort(problem.clock, kind="stable")
    limits = np.searchsorted(problem.clock[order], np.arange(problem.clocks + 1))
    return [residual[order[low:high]] for low, high in pairwise(limits)]


# ---- errors ----------------------------------------------------------------------------------------------------------


def _compute_errors(problem: NormalProblem, solution: Solution) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Return the errors of each clock's offset, drift (relative) and correction at the ends, and Student's quantile."""
    replicates = drop_blocks(problem, solution)
    count = len(replicates)
    offset, drift = replicates[:, : problem.clocks], replicates[:, problem.clocks :]

    def error(values: FloatArray) -> FloatArray:
        if count < 2:
            return np.full(problem.clocks, np.nan)
        return np.asarray(np.sqrt((count - 1) / count * ((values - values.mean(axis=0)) ** 2).sum(axis=0)))

    at_ends = np.maximum(error(offset + drift), error(offset - drift))
    return error(offset), error(drift) / problem.half_window, at_ends, _STUDENT[min(count - 1, len(_STUDENT) - 1)]


def _is_significant(problem: NormalProblem, solution: Solution) -> bool:
    """Return whether the drift of some clock is more than twice its standard error."""
    drifting, (_, error, _, _) = solution.drifting, _compute_errors(problem, solution)
    return bool((np.abs(solution.drift[drifting]) / problem.half_window > 2 * error[drifting]).any())


def _describe(
    problem: NormalProblem, domains: IntArray, since: int, model: str, models: _Models, held_out: dict[str, float]
) -> ClockFit:
    solution, estimate = models[model], models[OFFSET if model == UTC else model]
    drifting = solution.drifting
    offset_error, drift_error, at_ends, quantile = _compute_errors(problem, estimate)
    clock_residuals = _list_residuals(problem, solution)
    median = np.array([np.median(values) for values in clock_residuals])

    # The error includes everything that is not corrected: the estimated offset under plain UTC, and unfitted drift.
    correction_error = quantile * np.maximum(offset_error, at_ends) + median
    correction_error[0] = 0.0
    bound = correction_error.copy()
    if model == UTC:
        bound += np.abs(estimate.offset)
    if not drifting[1:].all():
        bound += ~drifting * _bound_drift(problem) * problem.half_window
    bound[0] = 0.0
    return ClockFit(
        domains=domains,
        model=model,
        since=since,
        offset=np.rint(solution.offset),
        drift=solution.drift / problem.half_window,
        offset_error=offset_error,
        drift_error=np.where(drifting, drift_error, np.nan),
        bound=bound,
        operations=_count_operations(problem),
        median=median,
        percentile_95=np.array([np.percentile(values, 95) for values in clock_residuals]),
        scale=estimate.scale,
        held_out=held_out,
        half_window=problem.half_window,
        suggested=np.abs(estimate.offset) + np.abs(estimate.drift),
        correction_error=correction_error,
    )


def _bound_drift(problem: NormalProblem) -> FloatArray:
    """Return the largest drift (relative) of each clock that these operations allow, but at most MOST_DRIFT."""
    every = np.arange(problem.clocks) > 0
    solution = solve(problem, every)
    _, error, _, _ = _compute_errors(problem, solution)
    possible = np.abs(solution.drift) / problem.half_window + 2 * np.nan_to_num(error, nan=MOST_DRIFT)
    return np.minimum(possible, MOST_DRIFT)
