"""Sums up the bandwidth of NCCL collectives by the size that is printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nsys2prv_ng.summary.numbers.waits import Bandwidth
from nsys2prv_ng.text.formatting import format_bytes


class BandwidthRow(NamedTuple):
    """Collectives of one function, number of ranks and printed size, over communicators of a name; rates in bytes/s."""

    function: str
    ranks: int
    size: str
    bytes: int
    """The sum of their sizes."""
    operations: int
    """The number of collectives."""
    ns: int
    """Their transfer time, summed."""
    algorithm_bytes_per_s: float
    bus_bytes_per_s: float
    communicator: str
    """What the communicators are for, or their name; without one, the only communicator, or their number."""


def list_bandwidth(bandwidth: Sequence[Bandwidth]) -> list[BandwidthRow]:
    """Return the bandwidth by function, number of ranks and size, most bytes first."""
    groups: dict[tuple[str, int, str, str], list[Bandwidth]] = {}
    for part in bandwidth:
        key = part.function, part.ranks, format_bytes(part.bytes), part.communicator_name
        groups.setdefault(key, []).append(part)
    rows = []
    for (function, ranks, size, name), parts in groups.items():
        count, ns = sum(part.count for part in parts), sum(part.ns for part in parts)
        algorithm = sum(part.algorithm_bytes_per_s * part.ns for part in parts) / ns
        bus = sum(part.bus_bytes_per_s * part.ns for part in parts) / ns
        amount = sum(part.bytes * part.count for part in parts)
        communicator = name or _name_unnamed(parts)
        rows.append(BandwidthRow(function, ranks, size, amount, count, ns, algorithm, bus, communicator))
    return sorted(rows, key=lambda row: -row.bytes)


def _name_unnamed(parts: Sequence[Bandwidth]) -> str:
    """Return the only communicator in words, or the number of communicators; empty if they are not known."""
    labels = {part.communicator_label for part in parts}
    if "" in labels:
        return ""
    return labels.pop() if len(labels) == 1 else f"{len(labels):,} communicators"
