"""Lists the changes that address a bottleneck, and describes what they would save."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nsys2prv_ng.paraver.event_types import PATH_KINDS
from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay.numbers import Scenario, name_pace
from nsys2prv_ng.summary.answer.bottleneck import Bottleneck
from nsys2prv_ng.summary.answer.case import (
    HALF,
    HOST_BOUND,
    IF_BOUND,
    LEAST,
    NETWORK_BOUND,
    Case,
    find_rank,
    keeps_kernels,
)
from nsys2prv_ng.summary.answer.remedies import Tried, list_own
from nsys2prv_ng.summary.answer.slow_steps import name_step
from nsys2prv_ng.text.formatting import format_percent, format_time
from nsys2prv_ng.text.names import clean_name, quote_name

_MOST_GAINS = 3
"""Most changes of GAIN: the bound, one that somebody can make, and another cause."""
_SOME = 0.001
"""Least share of a step that is not nothing: less is printed as 0.0%, or nearly."""
_SAME = 0.01
"""Two times are the same if they differ by at most this share.

A range and an ideal network that save the same in the capture mpi-4 differ by less (test_a_saving_is_printed_once)."""
_FAR_BELOW = 0.1
"""A saving that is smaller by this share of a step than the time of its class needs the reason: what limits then.

A choice: too small, and the reason is printed where rounding explains the difference."""
_MOST_OF_SHARE = 2
"""A critical path with more than this many times a class's share of GPU time says nothing of the class.

A choice: of a path that begins on a host long before its GPU, a bound contradicted the share of its class."""
_NEARLY_ALL = 0.95
"""A bound that is more than this part of the time says nothing: a choice."""
_MOST_LONGER = 1.05
"""A path that is this many times as long as the time that is judged says nothing about it.

A choice: paths follow hosts, which may end a little after their GPUs."""
_KERNELS = (what.CLASS, what.KERNEL)
_HOW = {0.0: "no time", HALF: "half as long"}
"""What a factor makes of a time."""


def list_gains(case: Case, bottleneck: Bottleneck) -> list[Scenario]:
    """Return the bound of a class, then the changes that address it, then another bound that saves nearly as much."""
    targets = bottleneck.gains
    if targets == ():
        return []  # what a replay saves in every step is another matter
    bound = case.find_bound(bottleneck.bound)
    gains = [] if bound is None else [bound]
    changes = case.changes
    if bottleneck.without_kernels:
        changes = [each for each in changes if keeps_kernels(each.changes[0])]
    named = changes[:1] if targets is None else [each for each in changes if each.changes[0].target in targets]
    if targets is not None and what.CLASS in targets:
        named = sorted(named, key=lambda each: each.changes[0].target not in _KERNELS)[:1] + named
    gains += [each for n, each in enumerate(named) if each.share >= LEAST and each not in named[:n]]
    classes = (each for each in case.changes if each.changes[0].target in _KERNELS and each not in gains)
    largest = next(classes, None)
    if largest is not None and gains and largest.saving_ns > max(each.saving_ns for each in gains):
        gains.insert(1, largest)  # another cause, and a larger one
    if targets is None and bound is not None:  # the same saving, by another name
        saved = bound.saving_ns
        gains = [each for each in gains if each is bound or abs(each.saving_ns - saved) > _SAME * saved]
    others = sorted(case.bounds.values(), key=lambda each: -each.saving_ns)
    least = HALF * gains[0].saving_ns if gains else 0
    more = [each for each in others if each not in gains and each.saving_ns >= least and each.share >= LEAST][:1]
    return gains[: _MOST_GAINS - len(more)] + more


def describe_gains(
    case: Case, bottleneck: Bottleneck, gains: list[Scenario], share: float | None, tried: list[Tried]
) -> tuple[str, list[str]]:
    """Return what remedies and changes save a step, or a bound by the critical path, and the keys of the evidence.

    Remedies come first, in the order of TRY; of the changes, their bound follows.
    """
    if bottleneck.of_steps:
        return _describe_slow_steps(case), ["steps"]
    numbers = case.summary.what_if
    if numbers is None:
        bounds = [f"{_name_bound(each)} {format_percent(each.share, 1)} {each.remedy.clause}" for each in tried]
        bounds += [] if case.losses is None else [_bound_by_path(case, bottleneck, share)]
        return "; ".join(filter(None, [*bounds, *_bound_overlap(case, bottleneck, share)])), ["critical_path"]
    if bottleneck.unknown:
        return f"unknown: {bottleneck.unknown}", ["what_if"]
    if not gains and not tried:
        return "nothing measurable: no change that was tried saves more than the steps vary by", ["what_if"]
    own = list_own(tried, bottleneck)
    if own:
        known = max(one.share for one in own)
        gains = [each for each in gains[:1] if each.only in IF_BOUND and each.share > known + _SAME]
    elif tried:
        gains = gains[:1]
    changes = list(_list_changes(case, bottleneck, gains, share))
    first, *others = [*_list_remedies(tried), *changes] if own else [*changes, *_list_remedies(tried)]
    often = " a step" if numbers.steps else " in all"
    of_first = gains[0].share if gains and not own else tried[0].share
    whole = f"{often} ({format_percent(of_first, 1)}{_name_whole(case)})"
    parts = [whole.join(first), *map("".join, others)]
    parts += _bound_overlap(case, bottleneck, share, gains[0] if gains else None)
    if bottleneck.needs_host:
        known = max((each.share for each in tried if "host_ns" in each.remedy.against), default=0.0)
        hosts = [each for each in numbers.scenarios if each.only == HOST_BOUND and each not in gains]
        hosts = [each for each in hosts if each.share > known or not known]
        parts += [_bound_host(each) for each in hosts]
    return "; ".join(parts), ["what_if"]


def _list_remedies(tried: list[Tried]) -> list[tuple[str, str]]:
    """Return what each remedy saves, and its name, as the two halves of a clause."""
    return [(_bound_by(each.saving_ns or 0, is_bound=each.remedy.is_bound), f" {each.remedy.clause}") for each in tried]


def _list_changes(
    case: Case, bottleneck: Bottleneck, gains: list[Scenario], share: float | None
) -> Iterator[tuple[str, str]]:
    """Yield what each change saves, and the change and what limits then, as the two halves of a clause."""
    for n, each in enumerate(gains):
        is_bound = each.only in IF_BOUND
        falls_short = share is not None and is_bound and each.share < share - _FAR_BELOW and not n
        limit = _describe_limit(case, each) if falls_short else _limit_by_host(case, bottleneck, each)
        yield _bound_by(each.saving_ns, is_bound=is_bound), f" {describe_change(each)}{limit}"


def _bound_by(ns: int, *, is_bound: bool) -> str:
    return f"{'at most' if is_bound else 'about'} {format_time(ns)}"


def _name_bound(tried: Tried) -> str:
    return "at most" if tried.remedy.is_bound else "about"


def _bound_by_path(case: Case, bottleneck: Bottleneck, share: float | None) -> str:
    """Return what a class can save at most: its time on the critical path; "" without a path.

    `share`: the class's part of GPU time. A path with far more of the class says nothing, as one that begins on a host
    long before its GPU does.
    """
    path, bound = case.summary.critical_path, bottleneck.on_path
    if path is None or not path.length_ns or bound is None or case.window is None:
        return ""
    kinds, clause = bound
    ns = sum(path.classes.get(PATH_KINDS[kind], 0) for kind in kinds)
    is_longer = path.length_ns > _MOST_LONGER * case.window.numbers.length_ns
    is_all = ns >= _NEARLY_ALL * path.length_ns  # nobody can save all of the time
    if is_longer or is_all or (share is not None and ns > _MOST_OF_SHARE * share * path.length_ns):
        return ""
    saves = f"at most {format_time(ns)} of {format_time(path.length_ns)} ({format_percent(ns, path.length_ns)})"
    return f"{saves} {clause} (a bound from the critical path)"


def _bound_host(scenario: Scenario) -> str:
    """Return what a faster host saves at most."""
    share = format_percent(scenario.share, 1)
    return f"at most {share} from a faster host" if scenario.share >= _SOME else "nothing from a faster host"


def _bound_overlap(case: Case, bottleneck: Bottleneck, share: float | None, gain: Scenario | None = None) -> list[str]:
    """Return how much less overlap saves: what can overlap hides behind the rest of the time, which it slows."""
    if share is None and bottleneck.on_hosts is not None:
        share = case.measure_mpi(bottleneck.on_hosts[0]) or None
    if not bottleneck.overlaps or share is None:
        return []
    rest = 1 - share
    if rest < (HALF * share if gain is None else gain.share):
        return [f"overlap can save at most {format_percent(rest, 1)}: there is too little other work to hide behind"]
    is_bound = gain is not None and gain.only == NETWORK_BOUND
    return ["overlap saves less, as it slows kernels"] if is_bound and bottleneck.overlap_slows else []


def _describe_limit(case: Case, scenario: Scenario) -> str:
    """Return what sets the pace after a change; "" if it is not known."""
    limit = scenario.limited_by
    if limit is None or limit.share <= HALF:
        return ""
    who = name_pace(limit if case.summary.ranks > 1 else replace(limit, rank=None))
    return f" (then {who} sets the pace)"


def _limit_by_host(case: Case, bottleneck: Bottleneck, scenario: Scenario) -> str:
    """Return that hosts set the pace after a change, if that matters for the class; "" otherwise."""
    limit = scenario.limited_by
    is_limited = bottleneck.needs_host and limit is not None and limit.what == "host"
    return _describe_limit(case, scenario) if is_limited else ""


def _name_whole(case: Case) -> str:
    """Return what a saving is a part of, if it is not the median step, which the header has."""
    numbers, steps = case.summary.what_if, case.summary.steps
    if numbers is None or steps is None or not numbers.steps:
        return ""
    is_near = abs(numbers.step_ns - steps.median_ns) <= _SAME * steps.median_ns
    return "" if is_near else f" of the mean {format_time(numbers.step_ns)}"


def _describe_slow_steps(case: Case) -> str:
    """Return what slow steps cost in all."""
    found, name = case.slow_steps, name_step(case.summary)
    assert found is not None
    one = len(found.slow) == 1
    often, which = ("once", f"{name} {found.slow[0].number:,}") if one else ("in all", "the slow steps")
    saves = f"about {format_time(found.excess_ns)} {often} ({format_percent(found.share, 1)} of the steps' time)"
    return f"{saves} if {which} were as fast as the median"


def describe_change(scenario: Scenario) -> str:
    """Return a change as a clause: if `data loading` took no time."""
    change = scenario.only
    if change is not None and change in IF_BOUND:
        return IF_BOUND[change]
    rank = find_rank(scenario)
    if rank is not None:
        return f"if rank {rank} were as fast as the others"
    how = None if change is None else _HOW.get(change.factor)
    if change is None or how is None or change.target not in what.NAMED or change.ranks is not None:
        return f"with {quote_name(scenario.change)}"
    subject = quote_name(change.label)
    if change.target == what.KERNEL:
        subject = f"kernel {subject}"
    elif change.target == what.CLASS:
        subject = f"{clean_name(change.label)} kernels"
    return f"if {subject} took {how}"
