"""Chooses the prediction for a comparison: what the slower side would save by a change of what differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from nsys2prv_ng.comparison.model import Prediction, Side, Table, Verdict
from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.summary.difference.budget import HOST_BOUND, BudgetRow
from nsys2prv_ng.summary.difference.changes import Change
from nsys2prv_ng.summary.efficiency.windows import COMPUTE, IN_MPI, PARTS
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.text.names import USER_CODE

_Target = tuple[str, str | int]
"""The target of a change, with its name or rank; "" for targets without."""
_ON_HOSTS = ((what.HOST, ""),)
_BY_PART: dict[str, Sequence[_Target]] = {
    PARTS["moving_ns"]: ((what.NETWORK, ""),),
    PARTS["not_split_ns"]: ((what.NETWORK, ""), (what.WAITS, "")),
    PARTS["waiting_ns"]: ((what.WAITS, ""),),
    PARTS["memory_ns"]: ((what.COPIES, ""),),
    HOST_BOUND: _ON_HOSTS,
    USER_CODE: _ON_HOSTS,
    IN_MPI: ((what.NETWORK, ""), (what.WAITS, "")),
}
"""What to change to shorten a part of the step."""


def find_prediction(
    a: Side,
    b: Side,
    verdict: Verdict,
    rows: Sequence[BudgetRow],
    changes: Sequence[Change],
    cause: str,
    tables: Sequence[Table],
) -> Prediction | None:
    """Return the scenario of the slower side that saves most of those related to the difference; None without one.

    Related is what the slower side has more of: what changed most, the MPI calls that differ, and the largest part of
    the difference. `cause`: the range with most of its host-bound time.
    """
    if verdict.kind not in ("faster", "slower"):
        return None
    slower = a if verdict.kind == "faster" else b
    numbers = slower.summary.what_if
    if numbers is None:
        return None
    sign = -1 if slower is a else 1
    related = {
        *_list_of_changes([change for change in changes if change.difference_ns * sign > 0], slower.summary),
        *_list_of_calls(tables, sign),
        *_list_of_largest(rows, sign, cause),
    }
    scenarios = [scenario for scenario in numbers.scenarios if related.intersection(_list_targets(scenario.changes))]
    best = replace(numbers, scenarios=scenarios).best
    return None if best is None else Prediction(slower.label, best.change, best.saving_ns)


def _list_of_changes(changes: Iterable[Change], summary: JobSummary) -> Iterator[_Target]:
    """Yield the targets of what changed most. `summary`: of the slower side."""
    functions = {nccl.function for nccl in summary.nccl}
    for change in changes:
        if change.rank is not None:
            yield what.RANK, change.rank
        if change.kind == "transfer":
            yield what.NETWORK if change.name in functions else what.COPIES, ""
        elif change.kind == "kernel":
            yield what.KERNEL, change.name
            yield what.CLASS, change.name
            yield from ((what.CLASS, own.kernel_class) for own in summary.kernels if own.name == change.name)
        else:
            yield change.kind, change.name


def _list_of_calls(tables: Sequence[Table], sign: int) -> Iterator[_Target]:
    """Yield the network if MPI calls take longer on the slower side, for their wait time or their transfers."""
    rows = [row for table in tables if table.key == "mpi" for row in table.rows]
    if any(row.differs and ((row.b or 0) - (row.a or 0)) * sign > 0 for row in rows):
        yield what.NETWORK, ""


def _list_of_largest(rows: Sequence[BudgetRow], sign: int, cause: str) -> Iterator[_Target]:
    """Yield the targets that shorten the largest part of the difference."""
    largest = max(rows[:-1], key=lambda row: row.difference_ns * sign, default=None)
    if largest is None or largest.difference_ns * sign <= 0:
        return
    part, _, kernel_class = largest.name.partition(": ")
    if part == COMPUTE and kernel_class:
        yield what.CLASS, kernel_class
    if part == HOST_BOUND and cause:
        yield what.RANGE, cause
    yield from _BY_PART.get(part, ())


def _list_targets(changes: Iterable[what.Change]) -> Iterator[_Target]:
    """Yield the targets of the changes of a scenario."""
    for change in changes:
        if change.target in what.NAMED:
            yield change.target, change.name
        elif change.target == what.RANK:
            yield from ((what.RANK, rank) for rank in change.ranks or ())
        else:
            yield change.target, ""
