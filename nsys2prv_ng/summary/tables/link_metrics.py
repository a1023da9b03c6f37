"""Tables of the counters of links: each counter over all its links, and each link."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.summary.numbers.link_metrics import (
    ETHERNET,
    INFINIBAND,
    KERNELS,
    NETWORK,
    NVLINK,
    PCIE,
    TRANSFER,
    LinkMetric,
)
from nsys2prv_ng.text.grid import Cell, Column, Count, Grid, Name, Rate, Share, make_columns
from nsys2prv_ng.text.names import clean_name

NO_PEAK = "Percentages are of the peak of the counter: reports do not contain the speed of links"
_ORDER = (NVLINK, PCIE, INFINIBAND, ETHERNET, NETWORK)
_TITLES = {TRANSFER: "NCCL transfer", KERNELS: "NCCL kernels"}
"""Columns of the second mean, by what it covers."""


def tabulate_link_metrics(metrics: Sequence[LinkMetric]) -> Grid:
    """Return the mean of each counter over all its links, and the lowest and highest mean; the highest means first."""
    by_counter: dict[tuple[str, str, str], list[LinkMetric]] = {}
    for metric in metrics:
        by_counter.setdefault((metric.link, metric.metric, metric.nccl), []).append(metric)
    rows: list[list[Cell]] = []
    for (link, counter, _), links in sorted(by_counter.items(), key=lambda item: (_rank(item[0][0]), _weigh(item[1]))):
        means, is_rate = [mean for own in links if (mean := own.mean) is not None], _are_rates(links)
        extremes = [_show([pick(means)], is_rate) if len(means) > 1 else "" for pick in (min, max)]
        first: list[Cell] = [Name(link), Name(counter), Count(len(links)), _show(means, is_rate)]
        rows.append([*first, *extremes, _count_samples(links), *_show_nccl(links)])
    titles: list[str | Column] = ["link", "counter", "links", "mean"]
    titles += [Column("lowest", optional=True, minor=True), Column("highest", optional=True), "samples"]
    return Grid(
        caption="Link counters: mean over all links, and during NCCL",
        columns=make_columns(*titles, *_make_nccl_columns()),
        rows=rows,
        names=2,
        more="counters",
        below=[] if _are_rates(metrics) else [NO_PEAK],
        tight=True,
    )


def tabulate_links_with_metrics(metrics: Sequence[LinkMetric]) -> Grid:
    """Return the means of each counter of each link."""
    rows: list[list[Cell]] = []
    for metric in metrics:
        mean = _show([] if metric.mean is None else [metric.mean], _are_rates([metric]))
        names = [Name(name_link(metric)), Name(metric.metric)]
        rows.append([*names, mean, _count_samples([metric]), *_show_nccl([metric])])
    columns = make_columns("on", "counter", "mean", "samples", *_make_nccl_columns())
    return Grid(caption="Counters of each link", columns=columns, rows=rows, names=2, more="counters of links")


def name_link(metric: LinkMetric) -> str:
    """Return the device and its node, for a text."""
    return f"{clean_name(metric.node)} {clean_name(metric.device)}"


def _make_nccl_columns() -> list[Column]:
    second = [Column(title, optional=True) for title in _TITLES.values()]
    return [*second, Column("samples then", optional=True)]


def _count_samples(links: Sequence[LinkMetric]) -> Count:
    return Count(sum(link.samples for link in links))


def _show_nccl(links: Sequence[LinkMetric]) -> list[Cell]:
    """Return the mean during NCCL in the column of what it covers, and the number of its samples."""
    during = links[0].nccl
    if not during:
        return ["", "", ""]
    means = [mean for link in links if (mean := link.nccl_mean) is not None]
    cell = _show(means, _are_rates(links))
    return [*(cell if nccl == during else "" for nccl in _TITLES), Count(sum(link.nccl_samples for link in links))]


def _are_rates(links: Sequence[LinkMetric]) -> bool:
    """Return whether means are in bytes/s, otherwise in percent."""
    return all(link.percent is None for link in links)


def _rank(link: str) -> int:
    return _ORDER.index(link) if link in _ORDER else len(_ORDER)


def _weigh(links: Sequence[LinkMetric]) -> float:
    """Return the negative mean of all links, by which counters are sorted."""
    means = [mean for link in links if (mean := link.mean) is not None]
    return -sum(means) / len(means) if means else 0.0


def _show(means: Sequence[float], is_rate: bool) -> Cell:
    """Return a cell of the mean of means, a rate (bytes/s) or a percentage; "-" if all have too few samples."""
    if not means:
        return Rate(None)
    mean = sum(means) / len(means)
    return Rate(mean) if is_rate else Share(mean, 100)
