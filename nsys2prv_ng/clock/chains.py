"""Fits clocks by collectives first, then fits sets that no collective connects by messages in both directions.

Collectives are exact to a few microseconds. Messages are exact only if a link takes equally long in both directions. So
messages never move clocks against each other if collectives connect them: such a set counts as one clock. Errors of
links add up along a chain of links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import FloatArray, IntArray
from nsys2prv_ng.clock.exchanges import Link, make_exchanges
from nsys2prv_ng.clock.fit import DRIFT, OFFSET, UTC, ClockFit, fit_sets, make_lines
from nsys2prv_ng.clock.matches import Matches
from nsys2prv_ng.clock.messages import Delays


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

    exchanges, links = _exchange_between_sets(matches, fits, set_of_domain)
    set_names = [names[members.domains[0] if isinstance(members, ClockFit) else members] for members in sets]

    def find_link_errors(used: IntArray) -> FloatArray:
        return _add_along_paths(links, int(used[0]), len(sets))[used]

    chains = fit_sets(exchanges, set_names, always=always, link_errors=find_link_errors)
    joined = {int(number) for chain in chains for number in chain.domains}
    kept = [fit for number, fit in enumerate(fits) if number not in joined]
    return kept + [_join(chain, sets) for chain in chains]


def _exchange_between_sets(
    matches: Matches, fits: Sequence[ClockFit], set_of_domain: IntArray
) -> tuple[Matches, list[Link]]:
    """Return the result of `make_exchanges` for messages between sets, at times that the collectives have corrected."""
    delays = matches.delays
    crosses = set_of_domain[delays.sender] != set_of_domain[delays.receiver]
    delays = Delays(*(column[crosses] for column in delays))
    offset, drift, since = make_lines(set_of_domain.size, fits)

    def correct(times: IntArray, domain: npt.NDArray[np.int32]) -> IntArray:
        moved: IntArray = times + np.rint(offset[domain] + drift[domain] * (times - since[domain])).astype(np.int64)
        return moved

    return make_exchanges(
        delays._replace(
            sent=correct(delays.sent, delays.sender),
            received=correct(delays.received, delays.receiver),
            sender=set_of_domain[delays.sender].astype(np.int32),
            receiver=set_of_domain[delays.receiver].astype(np.int32),
        )
    )


def _add_along_paths(links: Sequence[Link], start: int, sets: int) -> FloatArray:
    """Return the sum of link errors (ns) along the best path from a set to each other set (Bellman-Ford)."""
    total, before = np.full(sets, np.inf), np.zeros(0)
    total[start] = 0.0
    while not np.array_equal(total, before):
        before = total.copy()
        for a, b, error in links:
            total[b] = min(total[b], total[a] + error)
            total[a] = min(total[a], total[b] + error)
    return total


_ERRORS = ("offset_error", "drift_error", "bound", "correction_error")
_COLUMNS = ("offset", "drift", *_ERRORS, "suggested", "operations", "median", "percentile_95")


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
        bound=members.bound + shift["bound"],
        correction_error=members.correction_error + shift["correction_error"],
        suggested=members.suggested + shift["suggested"],
        operations=members.operations + shift["operations"],
        median=np.maximum(members.median, shift["median"]),
        percentile_95=np.maximum(members.percentile_95, shift["percentile_95"]),
        scale=max(members.scale, chain.scale),
        half_window=max(members.half_window, chain.half_window),
    )
