"""Tables of messages and of link counters, and sentences on links that are slower than their peers.

Messages: their rates by size, the traffic and rate of each pair, and what ranks send in all-to-alls. Counters: each
over all its links, and of each link.
"""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.summary.links import numbers
from nsys2prv_ng.summary.links.words import name_class, name_end
from nsys2prv_ng.text.formatting import count_noun
from nsys2prv_ng.text.grid import Bytes, Cell, Column, Count, Grid, Name, Ns, Rate, Share, make_columns, tabulate
from nsys2prv_ng.text.names import clean_name, name_task

NO_COLLECTIVES = "Collectives belong to no pair: reports do not record the path of their data"


def list_link_tables(links: numbers.LinkNumbers) -> list[Grid]:
    """Return all tables on messages."""
    return [tabulate_message_rates(links), tabulate_node_links(links), tabulate_links(links), tabulate_exchanges(links)]


def tabulate_message_rates(links: numbers.LinkNumbers) -> Grid:
    """Return the rates of messages by size, within and between nodes apart, most bytes first."""
    by_pair: dict[tuple[object, ...], list[float]] = {}
    for rate in links.rates:
        by_pair.setdefault(_get_key(rate), []).append(rate.algorithm_bytes_per_s)
    rows: list[list[Cell]] = []
    for rate in links.sizes:
        pairs = by_pair.get(_get_key(rate), [])
        extremes = (Rate(min(pairs)), Rate(max(pairs))) if len(pairs) > 1 else ("", "")
        together = "" if rate.together == 1 else Count(rate.together)
        what: list[Cell] = [rate.library, name_class(rate), Bytes(rate.bytes), together]
        counts = Count(rate.pairs), Count(rate.count)
        rows.append([*what, *counts, Ns(rate.ns / rate.count), Rate(rate.algorithm_bytes_per_s), *extremes])
    titles: list[str | Column] = ["messages", "", "size", Column("in a call", optional=True), "pairs", "count", "mean"]
    titles += ["algbw", Column("slowest pair", optional=True, minor=True), Column("fastest", optional=True, minor=True)]
    caption = f"Rates of {count_noun(links.rated, 'message')} of {links.messages:,}, from when both sides run"
    return Grid(caption=caption, columns=make_columns(*titles), rows=rows, names=2, more="sizes")


def _get_key(rate: numbers.MessageRate) -> tuple[object, ...]:
    return rate.library, rate.between_nodes, rate.bytes, rate.together


def tabulate_node_links(links: numbers.LinkNumbers) -> Grid:
    """Return the traffic of each pair of nodes; no rows for a single node, whose pairs another table has."""
    rows = links.node_links if any(link.between_nodes for link in links.node_links) else []
    return _tabulate("Messages between nodes", [clean_name(node) for node in links.nodes], rows)


def tabulate_links(links: numbers.LinkNumbers, between: bool | None = None) -> Grid:
    """Return the traffic of pairs of GPUs or ranks: of all, or those within (False) or `between` (True) nodes."""
    kinds = {"GPUs" if end.gpu is not None else "ranks" for end in links.ends}
    rows = [link for link in links.links if between in (None, link.between_nodes)]
    return _tabulate(f"Messages between {' and '.join(sorted(kinds))}", [name_end(end) for end in links.ends], rows)


def _tabulate(caption: str, names: Sequence[str], links: Sequence[numbers.Link]) -> Grid:
    return tabulate(
        links,
        [
            ("from", lambda link: Name(names[link.sender])),
            ("to", lambda link: Name(names[link.receiver])),
            (Column("", optional=True), lambda link: link.library),
            ("count", lambda link: Count(link.count)),
            ("bytes", lambda link: Bytes(link.bytes)),
            ("rate", lambda link: Rate(link.bytes_per_s)),
        ],
        caption=f"{caption}, and their rate while data moves",
        names=3,
        more="pairs",
        below=[NO_COLLECTIVES],
    )


def tabulate_exchanges(links: numbers.LinkNumbers) -> Grid:
    """Return how evenly ranks send in all-to-all exchanges."""
    rows: list[list[Cell]] = []
    for exchange in links.all_to_all:
        most = max(exchange.sent, key=lambda rank: rank.bytes)
        sizes = [rank.bytes for rank in exchange.sent]
        sender = Name(name_task(most.rank, most.task)) if most.bytes > min(sizes) else "-"
        sent = map(Bytes, (min(sizes), sum(sizes) / len(sizes), most.bytes))
        rows.append([exchange.function, sender, Count(exchange.count), *sent, f"{exchange.imbalance:.2f}"])
    titles = ("all-to-all", "sends most", "count", "least", "mean", "most", "most / mean")
    caption = "Bytes that ranks send in all-to-all exchanges"
    return Grid(caption=caption, columns=make_columns(*titles), rows=rows, names=2)


NO_PEAK = "Percentages are of the peak of the counter: reports do not contain the speed of links"
_ORDER = {
    link: place
    for place, link in enumerate((numbers.NVLINK, numbers.PCIE, numbers.INFINIBAND, numbers.ETHERNET, numbers.NETWORK))
}
"""Place of each kind of link in the table; a kind that another version wrote comes last."""
_TITLES = {numbers.TRANSFER: "NCCL transfer", numbers.KERNELS: "NCCL kernels"}
"""Titles of the second mean, by what it covers."""
_NCCL_COLUMNS = [Column(title, optional=True) for title in (*_TITLES.values(), "samples then")]


def tabulate_link_metrics(metrics: Sequence[numbers.LinkMetric]) -> Grid:
    """Return the mean of each counter over all its links, and the lowest and highest mean; the highest means first."""
    by_counter: dict[tuple[str, str, str], list[numbers.LinkMetric]] = {}
    for metric in metrics:
        by_counter.setdefault((metric.link, metric.metric, metric.nccl), []).append(metric)
    rows: list[list[Cell]] = []
    for (link, counter, _), links in sorted(
        by_counter.items(),
        key=lambda item: (_ORDER.get(item[0][0], len(_ORDER)), -(_average(_list_means(item[1])) or 0)),
    ):
        means, is_rate = _list_means(links), _are_rates(links)
        extremes = [_show([extreme(means)], is_rate) if len(means) > 1 else "" for extreme in (min, max)]
        first: list[Cell] = [Name(link), Name(counter), Count(len(links)), _show(means, is_rate)]
        rows.append([*first, *extremes, Count(sum(each.samples for each in links)), *_show_nccl(links)])
    titles: list[str | Column] = ["link", "counter", "links", "mean"]
    titles += [Column("lowest", optional=True, minor=True), Column("highest", optional=True), "samples"]
    return Grid(
        caption="Link counters: mean over all links, and during NCCL",
        columns=make_columns(*titles, *_NCCL_COLUMNS),
        rows=rows,
        names=2,
        more="counters",
        below=[] if _are_rates(metrics) else [NO_PEAK],
        tight=True,
    )


def tabulate_links_with_metrics(metrics: Sequence[numbers.LinkMetric]) -> Grid:
    """Return the means of each counter of each link."""
    rows: list[list[Cell]] = []
    for metric in metrics:
        names = Name(f"{clean_name(metric.node)} {clean_name(metric.device)}"), Name(metric.metric)
        mean = _show(_list_means([metric]), _are_rates([metric]))
        rows.append([*names, mean, Count(metric.samples), *_show_nccl([metric])])
    columns = make_columns("on", "counter", "mean", "samples", *_NCCL_COLUMNS)
    return Grid(caption="Counters of each link", columns=columns, rows=rows, names=2, more="counters of links")


def _show_nccl(links: Sequence[numbers.LinkMetric]) -> list[Cell]:
    """Return the mean during NCCL in the column of what it covers, and the number of its samples."""
    during = links[0].nccl
    if not during:
        return ["", "", ""]
    means = [mean for link in links if (mean := link.nccl_mean) is not None]
    cell = _show(means, _are_rates(links))
    return [*(cell if nccl == during else "" for nccl in _TITLES), Count(sum(link.nccl_samples for link in links))]


def _are_rates(links: Sequence[numbers.LinkMetric]) -> bool:
    """Return whether means are in bytes/s, otherwise in percent."""
    return all(link.percent is None for link in links)


def _list_means(links: Sequence[numbers.LinkMetric]) -> list[float]:
    """Return the means of the links that have enough samples."""
    return [mean for link in links if (mean := link.mean) is not None]


def _average(means: Sequence[float]) -> float | None:
    return sum(means) / len(means) if means else None


def _show(means: Sequence[float], is_rate: bool) -> Cell:
    """Return a cell of the mean of means, a rate (bytes/s) or a percentage; "-" if all have too few samples."""
    mean = _average(means)
    return Rate(mean) if is_rate or mean is None else Share(mean, 100)
