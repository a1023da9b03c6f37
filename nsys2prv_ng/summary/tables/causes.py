"""Rows on what the host did while GPUs were idle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from nsys2prv_ng.analysis.gpus import idle_causes
from nsys2prv_ng.summary.numbers.job import GpuNumbers
from nsys2prv_ng.summary.tables.largest import name_largest
from nsys2prv_ng.text.names import NO_CALL, NO_RANGE

_LABELS = {
    idle_causes.QUEUED: "(already queued)",
    idle_causes.GRAPH: "(in a CUDA graph)",
    idle_causes.UNKNOWN: "(no launch recorded)",
    idle_causes.CUT: "(cut by the window)",
}


class CauseRow(NamedTuple):
    """Idle time (ns) of all GPUs with one cause, labels of range and call ("": it has none), and its gaps."""

    cause: str
    """As in Cause."""
    range: str
    call: str
    ns: int
    gaps: int
    mostly_on: str
    """The GPU that has most of the time, by its rank where that has no other, and its share; empty if none has."""


def list_causes(gpus: Sequence[GpuNumbers]) -> list[CauseRow]:
    """Return the causes of the idle time, summed over all GPUs, the longest first."""
    sums: dict[tuple[str, str, str], tuple[int, int]] = {}
    parts: dict[tuple[str, str, str], dict[str, int]] = {}
    for gpu, name in zip(gpus, _name_gpus(gpus), strict=True):
        for part in gpu.idle_causes or ():
            key = part.cause, part.range, part.call
            ns, gaps = sums.get(key, (0, 0))
            sums[key] = ns + part.ns, gaps + part.gaps
            of_gpu = parts.setdefault(key, {})
            of_gpu[name] = of_gpu.get(name, 0) + part.ns
    count = len([gpu for gpu in gpus if gpu.idle_causes])
    rows = [
        CauseRow(cause, *_label(cause, range_, call), ns, gaps, name_largest(parts[cause, range_, call], ns, count))
        for (cause, range_, call), (ns, gaps) in sums.items()
    ]
    return sorted(rows, key=lambda row: -row.ns)


def _name_gpus(gpus: Sequence[GpuNumbers]) -> list[str]:
    """Return how cells name GPUs: by the rank where each has only the other, else by node and number."""
    times = Counter(rank for gpu in gpus for rank in gpu.ranks)
    return [
        f"rank {gpu.ranks[0]}" if len(gpu.ranks) == 1 and times[gpu.ranks[0]] == 1 else f"{gpu.node} GPU {gpu.gpu}"
        for gpu in gpus
    ]


def _label(cause: str, range_: str, call: str) -> tuple[str, str]:
    if cause != idle_causes.HOST:
        return _LABELS[cause], ""
    return range_ or NO_RANGE, call or NO_CALL
