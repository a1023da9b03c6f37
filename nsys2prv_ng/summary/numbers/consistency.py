"""Checks that the numbers of a saved summary fit together: its file may come from others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from nsys2prv_ng.summary.numbers.links import LinkNumbers


class Counted(Protocol):
    """A row with the number of what it sums up."""

    @property
    def count(self) -> int: ...


def check_counts(rows: Iterable[Counted]) -> None:
    """Raise ValueError if a row counts nothing: it has no mean."""
    if any(row.count < 1 for row in rows):
        raise ValueError("a row counts nothing")


def check_links(links: LinkNumbers) -> None:
    """Raise ValueError if a link names a GPU, rank or node that is not listed, or an exchange sends nothing."""
    of_nodes = [(link.sender, link.receiver) for link in links.node_links]
    of_ends = [(link.sender, link.receiver) for link in links.links]
    for slow in links.slow:
        (of_nodes if slow.are_nodes else of_ends).append((slow.sender, slow.receiver))
    of_rates = [(rate.sender, rate.receiver) for rate in links.rates]
    for pairs, listed in ((of_nodes, links.nodes), (of_ends, links.ends), (of_rates, links.ends)):
        if any(index is None or not 0 <= index < len(listed) for pair in pairs for index in pair):
            raise ValueError("a link names what is not listed")
    if any(sum(sent.bytes for sent in exchange.sent) < 1 for exchange in links.all_to_all):
        raise ValueError("an exchange sends nothing")
