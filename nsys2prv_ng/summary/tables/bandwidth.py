"""The table of the bandwidth of NCCL by size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nsys2prv_ng.summary.numbers.waits import Bandwidth
from nsys2prv_ng.text.formatting import format_bytes
from nsys2prv_ng.text.grid import Cell, Count, Grid, Name, Ns, Rate, make_columns


class BandwidthRow(NamedTuple):
    """`operations` collectives of one function, number of ranks and size as it is printed, over all communicators.

    `ns` is the time in which all of them moved data; the rates are in bytes/s.
    """

    function: str
    ranks: int
    size: str
    bytes: int
    """The sum of their sizes."""
    operations: int
    ns: int
    algorithm_bytes_per_s: float
    bus_bytes_per_s: float

    @property
    def mean_ns(self) -> float:
        return self.ns / self.operations


def tabulate_bandwidth(bandwidth: Sequence[Bandwidth]) -> Grid:
    """Return the bandwidth of collectives by function, number of ranks and size, those with most bytes first."""
    rows: list[list[Cell]] = [
        [
            Name(row.function),
            Count(row.ranks),
            row.size,
            Count(row.operations),
            Ns(row.mean_ns),
            Rate(row.algorithm_bytes_per_s),
            Rate(row.bus_bytes_per_s),
        ]
        for row in list_bandwidth(bandwidth)
    ]
    caption = (
        f"Bandwidth of the {sum(part.count for part in bandwidth):,} collectives in which every rank's waiting is "
        "known, from the begin of the last rank on"
    )
    columns = make_columns("NCCL", "ranks", "size", "count", "mean", "algorithm", "bus")
    return Grid(caption=caption, columns=columns, rows=rows, more="sizes")


def list_bandwidth(bandwidth: Sequence[Bandwidth]) -> list[BandwidthRow]:
    """Return the bandwidth by size, those first that carried most bytes."""
    groups: dict[tuple[str, int, str], list[Bandwidth]] = {}
    for each in bandwidth:
        groups.setdefault((each.function, each.ranks, format_bytes(each.bytes)), []).append(each)
    return sorted((_sum_group(*key, parts) for key, parts in groups.items()), key=lambda row: -row.bytes)


def _sum_group(function: str, ranks: int, size: str, parts: Sequence[Bandwidth]) -> BandwidthRow:
    count, ns = sum(part.count for part in parts), sum(part.ns for part in parts)
    algorithm = sum(part.algorithm_bytes_per_s * part.ns for part in parts) / ns
    bus = sum(part.bus_bytes_per_s * part.ns for part in parts) / ns
    whole = sum(part.bytes * part.count for part in parts)
    return BandwidthRow(function, ranks, size, whole, count, ns, algorithm, bus)
