"""Rows on what the host did while GPUs were idle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nsys2prv_ng.analysis import idle_causes
from nsys2prv_ng.summary.layout import NO_CALL, NO_RANGE
from nsys2prv_ng.summary.model import GpuNumbers

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


def list_causes(gpus: Sequence[GpuNumbers]) -> list[CauseRow]:
    """Return the causes of the idle time, summed over all GPUs, the longest first."""
    sums: dict[tuple[str, str, str], tuple[int, int]] = {}
    for gpu in gpus:
        for part in gpu.idle_causes or ():
            key = part.cause, part.range, part.call
            ns, gaps = sums.get(key, (0, 0))
            sums[key] = ns + part.ns, gaps + part.gaps
    rows = [CauseRow(cause, *_label(cause, range_, call), *sums[cause, range_, call]) for cause, range_, call in sums]
    return sorted(rows, key=lambda row: -row.ns)


def _label(cause: str, range_: str, call: str) -> tuple[str, str]:
    if cause != idle_causes.HOST:
        return _LABELS[cause], ""
    return range_ or NO_RANGE, call or NO_CALL
