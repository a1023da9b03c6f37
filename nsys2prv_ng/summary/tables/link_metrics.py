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
    by_counter: dict[tuple[str, str, bool, str], list[LinkMetric]] = {}
    for metric in metrics:
        by_counter.setdefault((metric.link, metric.metric, metric.is_rate, metric.nccl), []).append(metric)
    ordered = sorted(
        by_counter.items(), key=lambda item: (_ORDER.index(item[0][0]), -(_find_mean(item[1]) or 0), item[0])
    )
    rows: list[list[Cell]] = []
    for (link, counter, is_rate, _), links in ordered:
        means = _list_means(links)
        extremes = [_show(pick(means), is_rate) if len(means) > 1 else "" for pick in (min, max)]
        mean = _show(_find_mean(links), is_rate)
        rows.append(
            [link, Name(counter), Count(len(links)), mean, *extremes, *_show_samples(links), *_show_nccl(links)]
        )
    titles: list[str | Column] = ["link", "counter", "links", "mean"]
    titles += [Column("lowest", optional=True, minor=True), Column("highest", optional=True), "samples"]
    return Grid(
        caption="Link counters: mean over all links, and during NCCL",
        columns=make_columns(*titles, *_make_nccl_columns()),
        rows=rows,
        names=2,
        more="counters",
        below=_describe_peak(metrics),
        tight=True,
    )


def tabulate_links_with_metrics(metrics: Sequence[LinkMetric]) -> Grid:
    """Return the means of each counter of each link."""
    rows: list[list[Cell]] = [
        [
            Name(name_link(metric)),
            Name(metric.metric),
            _show(metric.mean, metric.is_rate),
            *_show_samples([metric]),
            *_show_nccl([metric]),
        ]
        for metric in metrics
    ]
    columns = make_columns("on", "counter", "mean", "samples", *_make_nccl_columns())
    return Grid(caption="Counters of each link", columns=columns, rows=rows, names=2, more="counters of links")


def name_link(metric: LinkMetric) -> str:
    """Return the device and its node, for a text."""
    return f"{clean_name(metric.node)} {clean_name(metric.device)}"


def _make_nccl_columns() -> list[Column]:
    second = [Column(title, optional=True) for title in _TITLES.values()]
    return [*second, Column("samples then", optional=True)]


def _show_samples(links: Sequence[LinkMetric]) -> list[Cell]:
    return [Count(sum(link.samples for link in links))]


def _show_nccl(links: Sequence[LinkMetric]) -> list[Cell]:
    """Return the mean during NCCL in the column of what it covers, and the number of its samples."""
    first = links[0]
    if not first.nccl:
        return ["", "", ""]
    means = [mean for link in links if (mean := link.nccl_mean) is not None]
    cell = _show(sum(means) / len(means) if means else None, first.is_rate)
    samples = Count(sum(link.nccl_samples for link in links))
    return [*(cell if nccl == first.nccl else "" for nccl in _TITLES), samples]


def _describe_peak(metrics: Sequence[LinkMetric]) -> list[str]:
    return [NO_PEAK] if any(not metric.is_rate for metric in metrics) else []


# ---- means -----------------------------------------------------------------------------------------------------------


def _list_means(links: Sequence[LinkMetric]) -> list[float]:
    return [mean for link in links if (mean := link.mean) is not None]


def _find_mean(links: Sequence[LinkMetric]) -> float | None:
    means = _list_means(links)
    return sum(means) / len(means) if means else None


def _show(mean: float | None, is_rate: bool) -> Cell:
    """Return a cell of a rate (bytes/s) or of a percentage; "-" for a mean of too few samples."""
    if is_rate or mean is None:
        return Rate(mean)
    return Share(mean, 100)
