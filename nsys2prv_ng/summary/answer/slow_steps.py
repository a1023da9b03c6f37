"""Finds the few steps that take much longer than the usual ones, describes both kinds, and explains the slow ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import accumulate, chain
from typing import NamedTuple

from nsys2prv_ng.steps.numbered_names import is_step
from nsys2prv_ng.summary.efficiency.numbers import StepEfficiency
from nsys2prv_ng.summary.efficiency.windows import COMPUTE, IN_CUDA, IN_MPI, PARTS, list_parts
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.steps.numbers import LateInSlow, SlowStepNumbers
from nsys2prv_ng.summary.steps.table import list_numbers, name_kind
from nsys2prv_ng.summary.sums import sum_by_key
from nsys2prv_ng.summary.verdict import Place
from nsys2prv_ng.text.calls import describe_call, explain_call
from nsys2prv_ng.text.formatting import format_percent, format_span, format_time
from nsys2prv_ng.text.names import clean_name, name_task, quote_name
from nsys2prv_ng.value_class import ValueClass

_FACTOR = 2
"""A step is slow if it takes at least this many times the median step, as docs/reference/summary.md says."""
_MOST_SLOW = 1 / 3
"""Most steps, as a share of all, that can be slow: with more there is no usual step."""
_FEWEST_STEPS = 4
"""Fewest steps of which one can be slow: one of three is a third of them, and two show nothing usual."""
_LEAST_SHARE = 0.05
"""Least part of the steps' time that slow steps cost, and least part of GPU time that is worth a word: the 5 % that
docs/reference/bottlenecks.md takes for worth a change."""
_MOST_PARTS = 3


class SlowSteps(ValueClass):
    """Slow steps of a kind and the usual ones, in the order of the steps, and the median of the kind (ns).

    `others`: the steps of other kinds.
    """

    slow: list[StepEfficiency]
    usual: list[StepEfficiency]
    median_ns: int
    others: list[StepEfficiency] = field(default_factory=list)

    @property
    def longest(self) -> StepEfficiency:
        """The longest slow step; the first of equal ones."""
        return max(self.slow, key=lambda step: step.length_ns)

    @property
    def excess_ns(self) -> int:
        """How much longer the slow steps take than as many median steps, together."""
        return sum(step.length_ns - self.median_ns for step in self.slow)

    @property
    def whole_ns(self) -> int:
        """The time of all steps."""
        return sum(step.length_ns for step in [*self.slow, *self.usual, *self.others])

    @property
    def share(self) -> float:
        """The excess as a part of the time of all steps, from 0 to 1."""
        return self.excess_ns / self.whole_ns


def name_step(summary: JobSummary) -> str:
    """Return what the program calls its steps, or "step" if no range marks them, or one with more text."""
    steps = summary.steps
    return "step" if steps is None or steps.delimiter or "{n}" in steps.name else clean_name(steps.name)


def name_step_range(summary: JobSummary) -> str:
    """Return the NVTX range of the steps; "" if none marks them."""
    return "" if summary.steps is None or summary.steps.delimiter else summary.steps.name


def find_slow_steps(summary: JobSummary) -> SlowSteps | None:
    """Return the slow steps of a job, those of the kind whose slow steps cost most; None if there are none, or so many
    that no step is usual."""
    steps, efficiency = summary.steps, summary.efficiency
    if steps is None or efficiency is None or len(efficiency.steps) < steps.count:  # only the first of very many steps
        return None
    medians = {kind.name: kind.median_ns for kind in steps.kinds}
    if len(medians) < 2:
        medians = {} if steps.turns_ns is not None else {step.kind: steps.median_ns for step in efficiency.steps[:1]}
    candidates = []
    for kind, median in medians.items():
        own = [step for step in efficiency.steps if step.kind == kind]
        slow = [step for step in own if step.length_ns >= _FACTOR * median]
        usual = [step for step in own if step.length_ns < _FACTOR * median]
        if median and slow and len(own) >= _FEWEST_STEPS and len(slow) <= _MOST_SLOW * len(own):
            others = [step for step in efficiency.steps if step.kind != kind]
            candidates.append(SlowSteps(slow, usual, median, others))
    found = max(candidates, key=lambda each: each.excess_ns, default=None)
    return found if found is not None and found.share >= _LEAST_SHARE else None


def describe_slow(found: SlowSteps, name: str) -> str:
    """Return how many steps are slow, and how long they take."""
    which, kind = list_numbers([step.number for step in found.slow]), found.slow[0].kind if found.others else ""
    takes = f"{name} {which} takes {_format_times(found.slow)}"
    if len(found.slow) > 1:
        count = f"{len(found.slow):,} of {len(found.slow) + len(found.usual):,} {name_kind(kind, 'steps')}"
        takes = f"{count} ({which}) take {_format_times(found.slow)}"
    return f"{takes}, the median {name_kind(kind, name)} {format_time(found.median_ns)}"


def locate_slowest(summary: JobSummary, found: SlowSteps) -> tuple[int, int] | None:
    """Return the start and end (ns) of the longest slow step with its neighbours; None if the steps have gaps.

    In the last step, the captures of other ranks may have ended: it counts if no other step is slow.
    """
    efficiency = summary.efficiency
    if efficiency is None or efficiency.steps_ns is None:
        return None
    low, high = efficiency.steps_ns
    if high - low != found.whole_ns:
        return None
    steps = sorted(efficiency.steps, key=lambda step: step.number)
    ends = [low, *(low + end for end in accumulate(step.length_ns for step in steps))]
    slow = {step.number for step in found.slow}
    places = [at for at, step in enumerate(steps) if step.number in slow]
    if len(places) > 1 and places[-1] == len(steps) - 1:
        places.pop()
    at = max(places, key=lambda at: steps[at].length_ns)
    return ends[max(at - 1, 0)], ends[min(at + 2, len(steps))]


def describe_extra(found: SlowSteps) -> str:
    """Return which parts of GPU time the slow steps have more of than as many usual ones; "" without GPUs."""
    of_slow, of_usual = _sum_parts(found.slow), _sum_parts(found.usual)
    factor = len(found.slow) / len(found.usual)
    extra = {label: ns - factor * of_usual[label] for label, ns in of_slow.items()}
    shares = _list_shares({label: ns for label, ns in extra.items() if ns > 0})
    if not shares:
        return ""
    whose = "its additional time" if len(found.slow) == 1 else "their additional time"
    return f"{whose}: {', '.join(shares)}"


def are_host_bound(found: SlowSteps) -> bool:
    """Return whether the slow steps have most of the host-bound time of all steps."""
    usual = [*found.usual, *found.others]
    of_slow, of_usual = (_sum_parts(steps)[PARTS["host_ns"]] for steps in (found.slow, usual))
    return of_slow > of_usual


def describe_usual(found: SlowSteps) -> str:
    """Return where the GPU time of the usual steps goes, and the option that selects the most of them in a row."""
    shares = _list_shares(_sum_parts(found.usual))
    first, last = _find_longest_run(found)
    noun = name_kind(found.usual[0].kind if found.others else "", "step" if len(found.usual) == 1 else "steps")
    times = f"the other {len(found.usual):,} {noun} ({_format_times(found.usual)})"
    what = f": {', '.join(shares)} of GPU time" if shares else ""
    count = last - first + 1
    which = "them" if count == len(found.usual) else f"{count:,} of them"
    return f"{times}{what}; to judge {which} alone: --steps {first}:{last}"


def _sum_parts(steps: Sequence[StepEfficiency]) -> Counter[str]:
    """Return the parts of the GPU time of some steps (ns) by their labels."""
    losses = [step.losses for step in steps if step.losses is not None]
    return sum_by_key((part.label, part.ns) for each in losses for part in list_parts(each))


def _list_shares(times: Mapping[str, float]) -> list[str]:
    """Return the largest times by their labels, as shares of all."""
    whole = sum(times.values())
    largest = sorted(times.items(), key=lambda item: -item[1])[:_MOST_PARTS]
    return [f"{label} {format_percent(ns, whole)}" for label, ns in largest if ns >= _LEAST_SHARE * whole]


def _find_longest_run(found: SlowSteps) -> tuple[int, int]:
    """Return the numbers of the first and last of most usual steps in a row."""
    runs: list[tuple[int, int]] = []
    for step in found.usual:
        if runs and runs[-1][1] == step.number - 1:
            runs[-1] = (runs[-1][0], step.number)
        else:
            runs.append((step.number, step.number))
    return max(runs, key=lambda run: run[1] - run[0])


def _format_times(steps: Sequence[StepEfficiency]) -> str:
    """Return the length of a step, or the lengths of the shortest and the longest of several."""
    times = [step.length_ns for step in steps]
    return format_time(times[0]) if len(times) == 1 else format_span(min(times), max(times))


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
    found = chain(_find_on_hosts(numbers, summary), _find_in_changes(numbers))
    return next((reason for reason in found if 2 * reason.ns >= numbers.difference_ns), None)


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
    by_call = sum_by_key((part.name, part.difference_ns) for part in numbers.idle)
    by_range = sum_by_key((part.range, part.difference_ns) for part in numbers.idle)
    least = numbers.difference_ns / 2
    ranges = [(name, ns) for name, ns in by_range.most_common(1) if name and not is_step(name, step) and ns >= least]
    places = [Place(kind="range", name=name) for name, _ in ranges]
    inside = "".join(f"in range {quote_name(name)}" for name, _ in ranges)
    for cause in numbers.causes[:1]:
        yield Explanation(cause.difference_ns, f"{cause.name}, {inside}" if inside else cause.name, places)
    if by_call:
        call, ns = by_call.most_common(1)[0]
        where = (
            describe_call(call) if explain_call(call) else f"in {quote_name(call)}" if call else "outside traced calls"
        )
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
