"""Lists the changes that address a bottleneck, and describes what they would save."""

from __future__ import annotations

from dataclasses import replace

from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay.changes import read_changes
from nsys2prv_ng.replay.numbers import Scenario
from nsys2prv_ng.sources.cuda.kernel_classes import OTHER
from nsys2prv_ng.summary.verdicts import bottlenecks
from nsys2prv_ng.summary.verdicts.bottlenecks import Bottleneck
from nsys2prv_ng.summary.verdicts.case import (
    COPY_BOUND,
    HALF,
    HOST_BOUND,
    IF_BOUND,
    LEAST,
    NETWORK_BOUND,
    WAIT_BOUND,
    Case,
    find_rank,
    is_worth,
)
from nsys2prv_ng.summary.verdicts.path import bound_gain
from nsys2prv_ng.summary.verdicts.slow_steps import name_step
from nsys2prv_ng.summary.verdicts.variants import is_launch_change
from nsys2prv_ng.summary.what_if import name_pace
from nsys2prv_ng.text.formatting import format_percent, format_time
from nsys2prv_ng.text.names import clean_name, quote_name

_MOST_GAINS = 3
_SOME = 0.001
"""Least share of a step that is not nothing."""
_SAME = 0.01
"""Two savings are the same if they differ by less than this share."""
_LEAST_OTHER = 0.5
"""Least part of the best saving that a change of another kind needs to be listed."""
_NEAR = 0.01
"""The mean step is near the median if they differ by at most this share of it."""
_FAR_BELOW = 0.1
"""A saving that is smaller by this share of a step than the time of its class needs the reason: what limits then."""
_BOUNDS = {
    bottlenecks.TRANSFER.key: NETWORK_BOUND,
    bottlenecks.HOST.key: HOST_BOUND,
    bottlenecks.LAUNCH.key: HOST_BOUND,
    bottlenecks.COPIES.key: COPY_BOUND,
    bottlenecks.IMBALANCE.key: WAIT_BOUND,
    bottlenecks.PIPELINE.key: WAIT_BOUND,
}
"""The bound that a class removes."""
_KINDS = {
    bottlenecks.COMPUTE.key: ("class ", "kernel ", "range "),
    bottlenecks.HOST.key: ("range ", "call "),
    bottlenecks.LAUNCH.key: ("range ", "call "),
    bottlenecks.STRAGGLER.key: ("range ", "call "),
}
"""Kinds of changes that address a class; other classes list the best change of any kind after their bound."""
_NOT_COMPUTE = (bottlenecks.HOST.key, bottlenecks.LAUNCH.key, bottlenecks.COPIES.key, bottlenecks.STRAGGLER.key)
"""Classes of which faster launches, and ranges with kernels, are no cure: half as long, kernels are faster as well."""
_UNCLASSIFIED = "no replay can tell what unclassified kernels would do"
_UNKNOWN = {
    bottlenecks.INSTRUMENTED: "a replay would keep what the ranges of operators cost the host",
    bottlenecks.COMPUTE_OPAQUE: "the report does not have the kernels inside the graphs",
    bottlenecks.OPAQUE: "the report does not have the kernels inside the graphs",
}
"""Why no replay can predict savings in some classes."""
_OVERLAP_SLOWS = "overlap saves less, as it slows kernels"
_HOW = {0.0: "no time", 0.5: "half as long"}
"""What a factor makes of a time."""


def list_gains(case: Case, bottleneck: Bottleneck) -> list[Scenario]:
    """Return the bound of a class, then the changes that address it, then another bound that saves nearly as much."""
    if bottleneck.key in bottlenecks.SLOW or bottleneck in _UNKNOWN:
        return []  # what a replay saves in every step is another matter
    gains: list[Scenario] = []
    bound = case.bounds.get(_BOUNDS.get(bottleneck.key, ""))
    if bottleneck.key == bottlenecks.STRAGGLER.key:
        rank = case.rank_change
        bound = rank if rank is not None and is_worth(rank) else case.bounds.get(WAIT_BOUND)
    if bound is not None:
        gains.append(bound)
    kinds = _KINDS.get(bottleneck.key)
    changes = case.changes
    if bottleneck.key in _NOT_COMPUTE:
        changes = [each for each in changes if _can_help_host(each.change)]
    named = changes[:1] if kinds is None else [each for each in changes if each.change.startswith(kinds)]
    if bottleneck.key == bottlenecks.COMPUTE.key:
        named = sorted(named, key=lambda each: not each.change.startswith("class "))[:1] + named
    gains += [each for n, each in enumerate(named) if each.share >= LEAST and each not in named[:n]]
    largest = [each for each in case.changes if each.change.startswith("class ") and each not in gains][:1]
    if largest and gains and largest[0].saving_ns > max(each.saving_ns for each in gains):
        gains.insert(1, largest[0])  # another cause, and a larger one
    if kinds is None and bound is not None:  # the same saving, by another name
        gains = [
            each for each in gains if each is bound or abs(each.saving_ns - bound.saving_ns) > _SAME * bound.saving_ns
        ]
    others = sorted(case.bounds.values(), key=lambda each: -each.saving_ns)
    least = _LEAST_OTHER * gains[0].saving_ns if gains else 0
    more = [each for each in others if each not in gains and each.saving_ns >= least and each.share >= LEAST][:1]
    return gains[: _MOST_GAINS - len(more)] + more


def _can_help_host(change: str) -> bool:
    """Return whether somebody with a slow host can make a change: kernels launch as before, and in no less time."""
    return not is_launch_change(change) and (not change.startswith("range ") or change.endswith("= 0"))


def describe_gains(
    case: Case, bottleneck: Bottleneck, gains: list[Scenario], share: float | None
) -> tuple[str, list[str]]:
    """Return what changes save a step, or a bound by the critical path, and the keys of the evidence."""
    if bottleneck.key in bottlenecks.SLOW:
        return _describe_slow_steps(case), ["steps"]
    numbers = case.summary.what_if
    if numbers is None:
        bounds = [] if case.losses is None else [bound_gain(case.summary, bottleneck, share)]
        return "; ".join(filter(None, [*bounds, *_bound_overlap(case, bottleneck, share)])), ["critical_path"]
    if bottleneck in _UNKNOWN or bottleneck.key == bottlenecks.UNCLASSIFIED.key:
        return f"unknown: {_UNKNOWN.get(bottleneck, _UNCLASSIFIED)}", ["what_if"]
    if not gains:
        return "nothing measurable: no change that was tried saves more than the steps vary by", ["what_if"]
    first, *others = gains
    often = " a step" if numbers.steps else " in all"
    saves = f"about {format_time(first.saving_ns)}{often} ({format_percent(first.share, 1)}{_name_whole(case)})"
    saves += f" {describe_change(first)}"
    parts = [
        f"{format_time(other.saving_ns)} {describe_change(other)}{_limit_compute(case, bottleneck, other)}"
        for other in others
    ]
    falls_short = share is not None and first.change in IF_BOUND and first.share < share - _FAR_BELOW
    saves += _describe_limit(case, first) if falls_short else _limit_compute(case, bottleneck, first)
    parts += _bound_overlap(case, bottleneck, share, first)
    if bottleneck.key == bottlenecks.COMPUTE.key:
        hosts = [each for each in numbers.scenarios if each.change == HOST_BOUND and each not in gains]
        parts += [_bound_host(each) for each in hosts]
    return "; ".join([saves, *parts]), ["what_if"]


def _bound_host(scenario: Scenario) -> str:
    """Return what a faster host saves at most."""
    share = format_percent(scenario.share, 1)
    return f"at most {share} from a faster host" if scenario.share >= _SOME else "nothing from a faster host"


def _bound_overlap(case: Case, bottleneck: Bottleneck, share: float | None, gain: Scenario | None = None) -> list[str]:
    """Return how much less overlap saves: transfer and copies hide behind the rest of the time, which they slow."""
    if bottleneck.key == bottlenecks.TRANSFER.key and share is None:
        share = case.mpi_transfer_share
    if bottleneck.key not in (bottlenecks.TRANSFER.key, bottlenecks.COPIES.key) or share is None:
        return []
    rest = 1 - share
    if rest < (HALF * share if gain is None else gain.share):
        return [f"overlap saves at most {format_percent(rest, 1)}, the rest of the time"]
    is_bound = gain is not None and gain.change == NETWORK_BOUND
    return [_OVERLAP_SLOWS] if is_bound and bottleneck in bottlenecks.OVERLAPPED else []


def _describe_limit(case: Case, scenario: Scenario) -> str:
    """Return what sets the pace after a change; "" if it is not known."""
    limit = scenario.limited_by
    if limit is None or limit.share <= HALF:
        return ""
    who = name_pace(limit if case.summary.ranks > 1 else replace(limit, rank=None))
    return f" (then {who} sets the pace)"


def _limit_compute(case: Case, bottleneck: Bottleneck, scenario: Scenario) -> str:
    """Return that hosts set the pace of a compute-bound job after a change; "" otherwise."""
    limit = scenario.limited_by
    is_limited = bottleneck.key == bottlenecks.COMPUTE.key and limit is not None and limit.what == "host"
    return _describe_limit(case, scenario) if is_limited else ""


def _name_whole(case: Case) -> str:
    """Return what a saving is a part of, if it is not the median step, which the header has."""
    numbers, steps = case.summary.what_if, case.summary.steps
    if numbers is None or steps is None or not numbers.steps:
        return ""
    is_near = abs(numbers.step_ns - steps.median_ns) <= _NEAR * steps.median_ns
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
    change = scenario.change
    if change in IF_BOUND:
        return IF_BOUND[change]
    rank = find_rank(scenario)
    if rank is not None:
        return f"if rank {rank} were as fast as the others"
    changes = read_changes(change)
    how = _HOW.get(changes[0].factor) if len(changes) == 1 else None
    if how is None or changes[0].target not in what.NAMED or changes[0].ranks is not None:
        return f"with {quote_name(change)}"
    name = changes[0].name
    kernels = "kernels of no known class" if name == OTHER else f"{clean_name(name)} kernels"
    subjects = {what.CLASS: kernels, what.KERNEL: f"kernel {quote_name(name)}"}
    return f"if {subjects.get(changes[0].target, quote_name(name))} took {how}"
