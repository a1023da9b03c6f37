"""Fits clocks by collectives first, then fits sets that no collective connects by messages in both directions.

Collectives are exact to a few microseconds. Messages are exact only if a link takes equally long in both directions. So
messages never move clocks against each other if collectives connect them: such a set counts as one clock. Links with
the smallest errors connect the sets. Errors add up along a path, so the reference is the set in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.clock.fit import DRIFT, OFFSET, UTC, ClockFit, fit_sets, make_lines
from nsys2prv_ng.clock.links import Link, fit_links
from nsys2prv_ng.clock.matches import Delays, Matches, find_violations
from nsys2prv_ng.grouping import group_by_key
from nsys2prv_ng.value_class import ValueClass


def fit_clocks(matches: Matches, names: Sequence[str], *, always: bool) -> list[ClockFit]:
    """Fit corrections of every set of two or more domains that collectives or messages in both directions connect.

    `always`: correct even if that does not lower the held-out residual, is below its error, or cannot be held out.
    """
    fits = fit_sets(matches, names, always=always)
    if not matches.delays.sent.size:
        return fits
    alone = np.ones(len(names), np.bool_)
    for fit in fits:
        alone[fit.domains] = False
    sets: list[ClockFit | int] = [*fits, *np.flatnonzero(alone).tolist()]
    set_of_domain = np.zeros(len(names), np.int64)
    for number, members in enumerate(sets):
        set_of_domain[members.domains if isinstance(members, ClockFit) else members] = number

    delays = _correct_between_sets(matches.delays, fits, set_of_domain)
    if not delays.sent.size:
        return fits
    low = int(min(delays.sent.min(), delays.received.min()))
    high = int(max(delays.sent.max(), delays.received.max()))
    since, half_window = (low + high) // 2, max((high - low) / 2, 1.0)
    links = _join_parallel(fit_links(delays, since, half_window))
    set_names = [names[members.domains[0] if isinstance(members, ClockFit) else members] for members in sets]
    result = list(fits)
    for tree in _find_trees(links, set_names):
        chain = _describe(tree, since, half_window)
        joined = _join(chain, sets)
        others = [fit for fit in result if not np.isin(fit.domains, joined.domains).any()]
        if not always and (chain.largest <= chain.correction_error).all():
            plain, corrected = (make_lines(len(names), each) for each in (result, [*others, joined]))
            if find_violations(matches, plain).broken <= find_violations(matches, corrected).broken:
                joined = _join(_keep_utc(chain), sets)
        result = [*others, joined]
    return result


def _correct_between_sets(delays: Delays, fits: Sequence[ClockFit], set_of_domain: IntArray) -> Delays:
    """Return the messages between sets, at times that the collectives have corrected, with sets as domains."""
    crosses = set_of_domain[delays.sender] != set_of_domain[delays.receiver]
    delays = Delays(*(column[crosses] for column in delays))
    offset, drift, since = make_lines(set_of_domain.size, fits)

    def correct(times: IntArray, domain: npt.NDArray[np.int32]) -> IntArray:
        return times + np.rint(offset[domain] + drift[domain] * (times - since[domain])).astype(np.int64)

    return delays._replace(
        sent=correct(delays.sent, delays.sender),
        received=correct(delays.received, delays.receiver),
        sender=set_of_domain[delays.sender].astype(np.int32),
        receiver=set_of_domain[delays.receiver].astype(np.int32),
    )


# ---- paths of links --------------------------------------------------------------------------------------------------


def _turn(link: Link) -> Link:
    """Return the same link from the other clock to the first."""
    # The first clock shows t - offset when the other shows t.
    offset = -link.offset * (1 - link.drift)
    return replace(link, one=link.other, other=link.one, offset=offset, drift=-link.drift)


def _join_parallel(links: Sequence[Link]) -> list[Link]:
    """Return one link for each pair of sets: the mean of all its links, weighted by their errors."""
    upward = (link if link.one < link.other else _turn(link) for link in links)
    return [_average(group) for group in group_by_key(((link.one, link.other), link) for link in upward).values()]


def _average(links: Sequence[Link]) -> Link:
    """Return the mean of parallel links. Its error is not smaller than theirs: they may be asymmetric alike."""
    weight = np.array([link.error for link in links]) ** -2.0
    weight /= weight.sum()
    averaged = ("offset", "drift", "error", "offset_error", "median", "percentile_95")
    means: dict[str, Any] = {
        name: float(weight @ np.array([getattr(link, name) for link in links])) for name in averaged
    }
    drift_error = np.array([link.drift_error for link in links])
    mean_error = float(np.nanmean(drift_error)) if np.isfinite(drift_error).any() else np.nan
    return replace(links[0], drift_error=mean_error, pairs=sum(link.pairs for link in links), **means)


class _Tree(ValueClass):
    """The sets that links connect, the reference first, and for each of the others the link that leads to it.

    `error`: sum of the errors (ns) of the links to each set.
    """

    sets: list[int]
    links: list[Link]
    error: list[float]


def _find_trees(links: Sequence[Link], names: Sequence[str]) -> list[_Tree]:
    """Return a tree of best paths for each group of connected sets."""
    neighbours = group_by_key((each.one, each) for link in links for each in (link, _turn(link)))
    trees, seen = [], set[int]()
    for start in sorted(neighbours, key=lambda number: names[number]):
        if start not in seen:
            tree = _grow(neighbours, _find_middle(neighbours, start, names))
            trees.append(tree)
            seen.update(tree.sets)
    return trees


def _grow(neighbours: dict[int, list[Link]], start: int) -> _Tree:
    """Return the tree of the paths with the smallest errors from a set (Dijkstra, 1959)."""
    tree = _Tree([], [], [])
    reached = set[int]()
    waiting: list[tuple[float, int, int, Link | None]] = [(0.0, start, start, None)]
    while waiting:
        error, number, _, by = heappop(waiting)
        if number in reached:
            continue
        reached.add(number)
        tree.sets.append(number)
        tree.error.append(error)
        if by is not None:
            tree.links.append(by)
        for link in neighbours[number]:
            if link.other not in reached:
                heappush(waiting, (error + link.error, link.other, number, link))
    return tree


def _find_middle(neighbours: dict[int, list[Link]], start: int, names: Sequence[str]) -> int:
    """Return the set in the middle of the longest path: the farthest set from it is as near as possible."""
    tree = _grow(neighbours, _grow(neighbours, start).sets[-1])
    link_to = {link.other: link for link in tree.links}
    error = dict(zip(tree.sets, tree.error, strict=True))
    path = [tree.sets[-1]]
    while path[-1] in link_to:
        path.append(link_to[path[-1]].one)
    return min(path, key=lambda number: (max(error[number], tree.error[-1] - error[number]), names[number]))


# ---- corrections -----------------------------------------------------------------------------------------------------

_ERRORS = ("offset_error", "drift_error", "bound", "correction_error")
_SUMMED = ("bound", "correction_error", "suggested", "operations")
_COLUMNS = ("offset", "drift", *_ERRORS, "suggested", "operations", "median", "percentile_95")


def _describe(tree: _Tree, since: int, half_window: float) -> ClockFit:
    """Return the corrections of the sets of a tree: each undoes the differences along its path."""
    count = len(tree.sets)
    place = {number: i for i, number in enumerate(tree.sets)}
    offset, drift, variance, drift_variance, median, percentile = np.zeros((6, count))
    pairs = np.zeros(count, np.int64)
    for i, link in enumerate(tree.links, start=1):
        before = place[link.one]
        # A clock shows `offset` more than the one before it, whose correction counts from that earlier time.
        offset[i] = offset[before] - link.offset * (1 - link.drift + drift[before])
        drift[i] = drift[before] - link.drift
        variance[i] = variance[before] + link.offset_error**2
        drift_variance[i] = drift_variance[before] + np.nan_to_num(link.drift_error) ** 2
        for end in (before, i):
            pairs[end] += link.pairs
            median[end] = max(median[end], link.median)
            percentile[end] = max(percentile[end], link.percentile_95)
    error = np.array(tree.error)
    model = DRIFT if drift.any() else OFFSET
    return ClockFit(
        domains=np.array(tree.sets, np.int64),
        model=model,
        since=since,
        offset=np.rint(offset),
        drift=drift,
        offset_error=np.sqrt(variance),
        drift_error=np.where(drift != 0.0, np.sqrt(drift_variance), np.nan),
        bound=error,
        operations=pairs,
        median=median,
        percentile_95=percentile,
        scale=float(median.max()),
        held_out={model: float(median.max())},
        half_window=half_window,
        suggested=np.abs(offset) + np.abs(drift) * half_window,
        correction_error=error,
    )


def _keep_utc(chain: ClockFit) -> ClockFit:
    """Return a fit that corrects nothing; its bound includes what it does not correct."""
    none = np.zeros(chain.domains.size)
    return replace(chain, model=UTC, offset=none, drift=none, bound=chain.bound + chain.largest)


def _join(chain: ClockFit, sets: Sequence[ClockFit | int]) -> ClockFit:
    """Return the corrections of all domains of a chain: first within its set, then of the set as a whole."""
    parts = [_place(chain, i, sets[number]) for i, number in enumerate(chain.domains.tolist())]
    models = {part.model for part in parts} | {chain.model}
    names = ("domains", *_COLUMNS)
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return replace(
        chain,
        **columns,
        model=next(model for model in (DRIFT, OFFSET, UTC) if model in models),
        scale=max(part.scale for part in parts),
        held_out=chain.held_out if all(part.held_out for part in parts) else {},
        half_window=max(part.half_window for part in parts),
    )


def _place(chain: ClockFit, i: int, members: ClockFit | int) -> ClockFit:
    """Return the fit of the i-th set of a chain, relative to the chain's reference and the middle of its window."""
    one = slice(i, i + 1)
    shift = {name: getattr(chain, name)[one] for name in _COLUMNS}
    if not isinstance(members, ClockFit):
        return replace(chain, domains=np.array([members], np.int64), **shift)
    within = members.offset + members.drift * (chain.since - members.since)
    return replace(
        members,
        since=chain.since,
        offset=np.rint(within + shift["offset"] + shift["drift"] * within),
        drift=members.drift + shift["drift"] + members.drift * shift["drift"],
        offset_error=members.offset_error + np.nan_to_num(shift["offset_error"], nan=0.0 if i == 0 else np.nan),
        drift_error=members.drift_error + np.nan_to_num(shift["drift_error"]),
        **{name: getattr(members, name) + shift[name] for name in _SUMMED},
        median=np.maximum(members.median, shift["median"]),
        percentile_95=np.maximum(members.percentile_95, shift["percentile_95"]),
        scale=max(members.scale, chain.scale),
        half_window=max(members.half_window, chain.half_window),
    )
