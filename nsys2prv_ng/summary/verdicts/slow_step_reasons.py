"""Explains slow steps in a clause: the call, range, kernels or rank with at least half of what they take longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from nsys2prv_ng.summary.efficiency.windows import COMPUTE, IN_CUDA, IN_MPI, PARTS
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.steps.numbers import LateInSlow, SlowStepNumbers
from nsys2prv_ng.summary.verdict import Place
from nsys2prv_ng.summary.verdicts.slow_steps import name_step_range
from nsys2prv_ng.text.formatting import format_time
from nsys2prv_ng.text.names import clean_name, name_task, quote_name

_ALL = 0.995
"""Least share of the difference that is all of it. It may exceed the difference, if slow steps have less of others."""

_COMPUTES = [COMPUTE, PARTS["whole_graph_ns"]]
_TRANSFERS = [PARTS["moving_ns"], PARTS["not_split_ns"], PARTS["memory_ns"]]
_ON_HOSTS = [PARTS["host_ns"], PARTS["unknown_ns"], IN_CUDA, IN_MPI]
"""The parts of a step (up to a colon) that kernels, transfers and calls take time of."""


class Explanation(NamedTuple):
    """What explains slow steps: how much of their difference (ns), where that is in words, and the same as places."""

    ns: float
    where: str
    places: list[Place]


def describe_reason(summary: JobSummary) -> tuple[str, list[Place]]:
    """Return what the slow steps have more of, and its places; ("", []) if nothing is half of the difference."""
    numbers = summary.slow_steps
    reason = None if numbers is None else _find_reason(numbers, summary)
    if numbers is None or reason is None:
        return "", []
    which = "only in slow steps" if len(numbers.slow) > 1 else "only in this step"
    where, more = reason.where, ""
    # A call that takes no time shows what a step does: a library that loads kernels has compiled them before.
    only = next((each for each in numbers.only_slow if each.kind == "call"), None)
    if only is not None:
        if any((place.kind, place.name) == (only.kind, only.name) for place in reason.places):
            where += f" ({which})"
        else:
            more = f"; {quote_name(only.name)} ({format_time(only.ns)}) {which}"
    part = "" if reason.ns >= _ALL * numbers.difference_ns else f"{format_time(reason.ns)} of "
    return f"{part}the {format_time(numbers.difference_ns)} more are {where}{more}", reason.places


def _find_reason(numbers: SlowStepNumbers, summary: JobSummary) -> Explanation | None:
    """Return the first reason that is at least half of the difference: a late rank, the host, kernels and transfers."""
    if numbers.late is not None:
        return _blame(numbers.late)
    found = (reason for reason in (*_find_on_hosts(numbers, summary), *_find_in_changes(numbers)) if 2 * reason.ns >= numbers.difference_ns)
    return next(found, None)


def _blame(late: LateInSlow) -> Explanation:
    """Return the rank that others wait for, each for the same time on average."""
    name = name_task(late.rank, late.task)
    places = [Place(kind="rank", name=name)]
    places += [Place(kind="range", name=late.range)] if late.range else []
    places += [Place(kind="call", name=late.what)] if late.what else []
    inside = " / ".join(quote_name(text) for text in (late.range, late.what) if text)
    return Explanation(late.ns / max(late.others, 1), f"wait for {name}" + (f" ({inside})" if inside else ""), places)


def _find_on_hosts(numbers: SlowStepNumbers, summary: JobSummary) -> Iterator[Explanation]:
    """Yield the call, or user code, with most of the difference in host-bound time, then the range with most of it."""
    step = name_step_range(summary)
    by_call, by_range = Counter[str](), Counter[str]()
    for part in numbers.idle:
        by_call[part.name] += part.difference_ns
        by_range[part.range] += part.difference_ns
    ranges = [(name, ns) for name, ns in by_range.most_common(1) if name not in ("", step) and 2 * ns >= numbers.difference_ns]
    places = [Place(kind="range", name=name) for name, _ in ranges]
    inside = "".join(f"in range {quote_name(name)}" for name, _ in ranges)
    for call, ns in by_call.most_common(1):
        where = f"in {quote_name(call)}" if call else "outside traced calls"
        calls = [Place(kind="call", name=call)] if call else []
        yield Explanation(ns, f"{inside}, {where}" if inside else where, [*calls, *places])
    for _, ns in ranges:
        yield Explanation(ns, inside, places)


def _find_in_changes(numbers: SlowStepNumbers) -> Iterator[Explanation]:
    """Yield the kernels and transfers, and if reports do not show when GPUs are idle the call, with most time more.

    They may run beside something else: the parts of the step that they are in must be half of the difference, too.
    """
    kinds = [("kernel", "in kernel {}", _COMPUTES), ("class", "in {} kernels", _COMPUTES)]
    kinds += [("transfer", "in {}", _TRANSFERS)]
    kinds += [] if numbers.idle else [("call", "in {}", _ON_HOSTS)]
    for kind, where, names in kinds:
        part = sum(part.difference_ns for part in numbers.parts if part.name.partition(":")[0] in names)
        change = next((each for each in numbers.changes if each.kind == kind), None)
        if change is not None:
            name = clean_name(change.name) if kind == "class" else quote_name(change.name)
            yield Explanation(min(change.difference_ns, part), where.format(name), [Place(kind=kind, name=change.name)])
