"""Names what changed most between two sides: ranges, calls, kernels, transfers, also those that only one side has.

All times are means of a step. A kind is named if its parts of the difference (budget.py) changed by more than noise:

- kernels: compute. The class of kernels that changed most, or one kernel if it has nearly all of that. Per GPU.
- transfers: exposed copies, and communication. The operation that changed most. Per GPU.
- ranges and calls: host-bound time, and the wait time that follows from it. Per rank, or per process
  where ranks are unknown. A range counts without
  its waits for other ranks; of a range and the ranges in it, the innermost that has nearly all of the change. Without
  such ranges, the two calls that changed most. OS runtime calls count on main threads, as idle threads wait in them.

A range or call that only one side has is named even if host-bound time does not differ, for hosts run ahead of their
GPUs: a range of LEAST of a step or more, the largest call of NOISE of a step or more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from nsys2prv_ng import source_names
from nsys2prv_ng.paraver.value_tables import BY_NCCL, COMMUNICATION_CLASSES, HANDS_OVER, KERNEL_CLASSES
from nsys2prv_ng.steps.numbered_names import is_step
from nsys2prv_ng.summary.difference.budget import HOST_BOUND, LEAST, BudgetRow
from nsys2prv_ng.summary.difference.statistics import NOISE
from nsys2prv_ng.summary.efficiency.windows import COMPUTE, IN_CUDA, IN_MPI, PARTS
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.others import list_comparable
from nsys2prv_ng.summary.sums import sum_by_key
from nsys2prv_ng.text.formatting import shorten_range_name
from nsys2prv_ng.text.names import USER_CODE
from nsys2prv_ng.value_class import ValueClass

_NEARLY = 0.8
"""Least share of a change that is nearly all of it. A choice: with less, a second name is as important."""
_SOME = 0.2
"""Least share of a part of the difference that explains it. A choice: with less, names that change by chance do."""
_MOST_CHANGES = 3
_ON_HOSTS = (HOST_BOUND, PARTS["waiting_ns"], PARTS["outside_ns"], USER_CODE, IN_CUDA, IN_MPI)
_TRANSFERS = (PARTS["moving_ns"], PARTS["not_split_ns"], PARTS["memory_ns"])
_COMPUTES = (COMPUTE, PARTS["whole_graph_ns"])
_COMMUNICATION = [KERNEL_CLASSES[number] for number in COMMUNICATION_CLASSES]
_ON_GPU, _ON_HOST = 0.03, 0.25
"""Shares of a time by which it differs between two captures of one program in one of a hundred cases: 2.6 times the
square root of 2 times what GPUs and hosts vary by (comparison/evidence.py), 1 % and, beside the speed of hosts, 7 %."""
Per = Literal["rank", "process", "GPU"]
Kind = Literal["range", "call", "kernel", "transfer"]
_PARTS = {"range": _ON_HOSTS, "call": _ON_HOSTS, "kernel": _COMPUTES, "transfer": _TRANSFERS}
"""The parts of the difference (up to a colon) that each kind explains."""


class _Named(NamedTuple):
    """Time (ns) of a name in all steps: by rank for ranges, else under None. Ranges have a depth."""

    ns: Mapping[int | None, int]
    depth: int = 0


Sizes = tuple[int, int]
"""How many steps of each side are compared as one."""
_ALONE = 1, 1


def list_changes(a: JobSummary, b: JobSummary, kind: Kind, sizes: Sizes = _ALONE) -> list[Change]:
    """Return the change of each name of a kind, the largest first; of kernels by class. Both summaries are of steps."""
    return _compare(a, b, kind, sizes, *map(_LISTS[kind], (a, b)))


def find_changes(
    a: JobSummary,
    b: JobSummary,
    rows: Sequence[BudgetRow],
    step_ns: int,
    prevented: frozenset[str],
    sizes: Sizes = _ALONE,
) -> list[Change]:
    """Return what changed most, at most three. Both summaries are of steps.

    `step_ns`: the step of side a. `prevented`: keys of tables to omit.
    """
    limits = step_ns * NOISE, step_ns * LEAST
    found = [
        *(() if "kernels" in prevented else find_kernels(a, b, sizes)),
        *_compare(a, b, "transfer", sizes, *(_sum_transfers(side, prevented) for side in (a, b)))[:1],
        *(() if "ranges" in prevented else _find_ranges(a, b, limits, sizes)),
    ]
    found = [change for change in found if _is_named(change, rows, limits)]
    calls = [call for call in list_changes(a, b, "call", sizes) if _is_named(call, rows, limits)]
    ranges = [change for change in found if change.kind == "range"]
    if ranges:  # beside them, only what they do not contain
        calls = [call for call in calls if call.only and not any(_has_nearly_all(own, call) for own in ranges)][:1]
    found += calls[:2]
    found = [change for change in found if _count_sure(change) > 0]
    return sorted(found, key=_count_sure, reverse=True)[:_MOST_CHANGES]


def _count_sure(change: Change) -> float:
    """Return how much (ns) of a change is more than captures of one program vary by: evidence, not size alone."""
    of_gpu = change.kind in ("kernel", "transfer")
    return abs(change.difference_ns) - (_ON_GPU if of_gpu else _ON_HOST) * min(change.a_ns, change.b_ns)


def _is_named(change: Change, rows: Sequence[BudgetRow], limits: tuple[float, float]) -> bool:
    """Return whether a change is more than noise and explains a part of the difference, or only one side has it."""
    noise, least = limits
    parts = [row for row in rows if row.differs and row.name.partition(":")[0] in _PARTS[change.kind]]
    part = sum(row.difference_ns for row in parts)
    share = change.difference_ns / part if part and abs(part) >= noise else 0.0
    size = abs(change.difference_ns)
    if change.only and change.kind in ("range", "call"):
        return size >= (least if change.kind == "range" else noise)
    return size >= noise and share >= _SOME


def _compare(
    a: JobSummary, b: JobSummary, kind: Kind, sizes: Sizes, before: Mapping[str, _Named], after: Mapping[str, _Named]
) -> list[Change]:
    """Return the change of each name, the largest first."""
    names = list_comparable(before, after)
    names = [name for name in names if any(name in side and side[name].ns for side in (before, after))]
    changes = [_make_change(a, b, kind, name, (before.get(name), after.get(name)), sizes) for name in names]
    return sorted(changes, key=lambda change: -abs(change.difference_ns))


def _make_change(
    a: JobSummary, b: JobSummary, kind: Kind, name: str, sides: tuple[_Named | None, _Named | None], sizes: Sizes
) -> Change:
    """Return the change of a name: of one rank if that has nearly all of it, else the mean."""
    per: Per = "GPU" if kind in ("kernel", "transfer") else b.users[0]
    times = [
        {rank: ns * size / max(1, side.step_count) for rank, ns in (named.ns if named else {}).items()}
        for side, named, size in zip((a, b), sides, sizes, strict=True)
    ]
    ranks = {rank: times[1].get(rank, 0) - times[0].get(rank, 0) for rank in {*times[0], *times[1]}}
    most = max(ranks, key=lambda rank: abs(ranks[rank]))
    has_several = max(_count(a, per), _count(b, per)) > 1 and None not in ranks
    is_one = has_several and abs(ranks[most]) >= _NEARLY * sum(map(abs, ranks.values()))
    if is_one:
        a_ns, b_ns = (own.get(most, 0) for own in times)
    else:
        a_ns, b_ns = (sum(own.values()) / _count(side, per) for own, side in zip(times, (a, b), strict=True))
    return Change(
        kind=kind,
        name=name,
        a_ns=round(a_ns),
        b_ns=round(b_ns),
        difference_ns=round(b_ns) - round(a_ns),
        per=per,
        rank=most if is_one else None,
        only="B" if sides[0] is None else "A" if sides[1] is None else "",
    )


def _count(summary: JobSummary, per: Per) -> int:
    return max(1, len(summary.gpus)) if per == "GPU" else summary.users[1]


# ---- on GPUs ---------------------------------------------------------------------------------------------------------


def find_kernels(a: JobSummary, b: JobSummary, sizes: Sizes = _ALONE) -> list[Change]:
    """Return the class of kernels that changed most, or the kernel that has nearly all of its change."""
    classes = list_changes(a, b, "kernel", sizes)
    if not classes:
        return []
    inner = _compare(a, b, "kernel", sizes, *(_sum_kernels(side, classes[0].name) for side in (a, b)))
    return [inner[0] if _has_nearly_all(inner[0], classes[0]) else classes[0]]


def _sum_kernels(summary: JobSummary, kernel_class: str | None = None) -> dict[str, _Named]:
    """Return the time of all classes of kernels that compute, or of the kernels of one class by name.

    A name can be of several kernels, which its demangled names tell apart.
    """
    named = [(each.kernel_class if kernel_class is None else each.name, each) for each in summary.kernels]
    chosen = {kernel_class} if kernel_class is not None else {name for name, _ in named} - {*_COMMUNICATION}
    sums = sum_by_key((name, each.total_ns) for name, each in named if each.kernel_class in chosen)
    return {name: _Named({None: ns}) for name, ns in sums.items()}


def _sum_transfers(summary: JobSummary, prevented: frozenset[str]) -> dict[str, _Named]:
    """Return the time of copies and sets, of kernels that communicate, and in which NCCL moved data without waits."""
    copies = [] if "copies" in prevented else summary.memory_operations
    kernels, nccl = ([], []) if "nccl" in prevented else (summary.kernels, summary.nccl)
    times = [(each.operation, each.total_ns) for each in copies if not each.operation.endswith(BY_NCCL)]
    times += [(each.name, each.total_ns) for each in kernels if each.kernel_class == _COMMUNICATION[1]]
    times += [(each.function, each.kernel_ns - each.wait_ns) for each in nccl]
    return {name: _Named({None: ns}) for name, ns in sum_by_key(times).items() if ns}


# ---- on hosts --------------------------------------------------------------------------------------------------------


def _find_ranges(a: JobSummary, b: JobSummary, limits: tuple[float, float], sizes: Sizes) -> list[Change]:
    """Return the range that changed most, and the range of one side only that has most time."""
    before, after = (_list_ranges(side) for side in (a, b))
    changes = _compare(a, b, "range", sizes, before, after)
    if not changes or not changes[0].difference_ns:
        return []
    depth = {name: each.depth for side in (before, after) for name, each in side.items()}
    inner = [change for change in changes if _has_nearly_all(change, changes[0])]
    chosen = max(inner, key=lambda change: depth[change.name])
    around = [other for other in changes if depth[other.name] < depth[chosen.name] and _has_nearly_all(chosen, other)]
    others = [change for change in changes if change.only and change not in (chosen, *around)]
    return [chosen, *others[:1]]


def _list_ranges(summary: JobSummary) -> dict[str, _Named]:
    """Return all ranges but those of the steps themselves, without the waits of their threads for other ranks."""
    step = "" if summary.steps is None else summary.steps.name
    return {
        shorten_range_name(each.domain, each.name): _Named(
            sum_by_key((task.rank, task.total_ns - task.waiting_ns) for task in each.tasks), each.depth
        )
        for each in summary.ranges
        if not is_step(each.name, step)
    }


def _list_calls(summary: JobSummary) -> dict[str, _Named]:
    calls = {
        call.name: call.main_ns if call.source == source_names.OS_RUNTIME else call.total_ns
        for call in summary.calls
        if call.name not in HANDS_OVER
    }
    calls |= {call.call: call.total_ns for call in summary.mpi}
    return {name: _Named({None: ns}) for name, ns in calls.items() if ns}


_LISTS: Mapping[Kind, Callable[[JobSummary], Mapping[str, _Named]]] = {
    "range": _list_ranges,
    "call": _list_calls,
    "kernel": _sum_kernels,
    "transfer": lambda summary: _sum_transfers(summary, frozenset()),
}


def _has_nearly_all(part: Change, whole: Change) -> bool:
    """Return whether a part has nearly all of a change."""
    one, all_ns = part.difference_ns, whole.difference_ns
    return one * all_ns > 0 and abs(one) >= _NEARLY * abs(all_ns)


class Change(ValueClass):
    """A range, call, class of kernels, kernel or transfer whose time changed: means over the steps."""

    kind: Literal["range", "call", "kernel", "transfer"]
    name: str
    a_ns: int
    b_ns: int
    difference_ns: int
    per: Per
    """What the times are means over."""
    rank: int | None
    """The rank with nearly all of the change, of which the times are then; None for the mean."""
    only: Literal["", "A", "B"]
    """The only side that has it."""
