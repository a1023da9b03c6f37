"""Tables on messages: their rates by size, the traffic and rate of each pair, and what ranks send in all-to-alls."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.summary.numbers.links import Link, LinkNumbers, MessageRate
from nsys2prv_ng.summary.words.links import name_class, name_end
from nsys2prv_ng.text.formatting import count_noun
from nsys2prv_ng.text.grid import Bytes, Cell, Column, Count, Grid, Name, Ns, Rate, make_columns
from nsys2prv_ng.text.names import clean_name, name_task

NO_COLLECTIVES = "Collectives belong to no pair: reports do not record the path of their data"


def list_link_tables(links: LinkNumbers) -> list[Grid]:
    """Return all tables on messages."""
    makers = (tabulate_message_rates, tabulate_node_links, tabulate_links, tabulate_exchanges)
    return [make(links) for make in makers]


def tabulate_message_rates(links: LinkNumbers) -> Grid:
    """Return the rates of messages by size, within and between nodes apart, most bytes first."""
    by_pair: dict[tuple[object, ...], list[float]] = {}
    for rate in links.rates:
        by_pair.setdefault(_get_key(rate), []).append(rate.algorithm_bytes_per_s)
    rows: list[list[Cell]] = []
    for rate in links.sizes:
        pairs = by_pair.get(_get_key(rate), [])
        rows.append(
            [
                rate.library,
                name_class(rate),
                Bytes(rate.bytes),
                "" if rate.together == 1 else Count(rate.together),
                Count(rate.pairs),
                Count(rate.count),
                Ns(rate.ns / rate.count),
                Rate(rate.algorithm_bytes_per_s),
                Rate(min(pairs)) if len(pairs) > 1 else "",
                Rate(max(pairs)) if len(pairs) > 1 else "",
            ]
        )
    titles: list[str | Column] = ["messages", "", "size", Column("in a call", optional=True), "pairs", "count", "mean"]
    titles += ["algbw", Column("slowest pair", optional=True, minor=True), Column("fastest", optional=True, minor=True)]
    caption = f"Rates of {count_noun(links.rated, 'message')} of {links.messages:,}, from when both sides run"
    return Grid(caption=caption, columns=make_columns(*titles), rows=rows, names=2, more="sizes")


def _get_key(rate: MessageRate) -> tuple[object, ...]:
    return rate.library, rate.between_nodes, rate.bytes, rate.together


def tabulate_node_links(links: LinkNumbers) -> Grid:
    """Return the traffic of each pair of nodes; no rows for a single node, whose pairs another table has."""
    rows = links.node_links if any(link.between_nodes for link in links.node_links) else []
    return _tabulate("Messages between nodes", [clean_name(node) for node in links.nodes], rows)


def tabulate_links(links: LinkNumbers, between: bool | None = None) -> Grid:
    """Return the traffic of pairs of GPUs or ranks: of all, or those within (False) or `between` (True) nodes."""
    kinds = {"GPUs" if end.gpu is not None else "ranks" for end in links.ends}
    rows = [link for link in links.links if between in (None, link.between_nodes)]
    return _tabulate(f"Messages between {' and '.join(sorted(kinds))}", [name_end(end) for end in links.ends], rows)


def _tabulate(caption: str, names: Sequence[str], links: Sequence[Link]) -> Grid:
    rows: list[list[Cell]] = [
        [
            Name(names[link.sender]),
            Name(names[link.receiver]),
            link.library,
            Count(link.count),
            Bytes(link.bytes),
            Rate(link.bytes_per_s),
        ]
        for link in links
    ]
    return Grid(
        caption=f"{caption}, and their rate while data moves",
        columns=make_columns("from", "to", Column("", optional=True), "count", "bytes", "rate"),
        rows=rows,
        names=3,
        more="pairs",
        below=[NO_COLLECTIVES],
    )


def tabulate_exchanges(links: LinkNumbers) -> Grid:
    """Return how evenly ranks send in all-to-all exchanges."""
    rows: list[list[Cell]] = []
    for exchange in links.all_to_all:
        most = max(exchange.sent, key=lambda rank: rank.bytes)
        sizes = [rank.bytes for rank in exchange.sent]
        rows.append(
            [
                exchange.function,
                Name(name_task(most.rank, most.task)) if most.bytes > min(sizes) else "-",
                Count(exchange.count),
                Bytes(min(sizes)),
                Bytes(sum(sizes) / len(sizes)),
                Bytes(most.bytes),
                f"{exchange.imbalance:.2f}",
            ]
        )
    titles = ("all-to-all", "sends most", "count", "least", "mean", "most", "most / mean")
    caption = "Bytes that ranks send in all-to-all exchanges"
    return Grid(caption=caption, columns=make_columns(*titles), rows=rows, names=2)
