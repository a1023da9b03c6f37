"""Names what sets the pace."""

from __future__ import annotations

from nsys2prv_ng.replay.numbers import Limit
from nsys2prv_ng.text.formatting import format_percent
from nsys2prv_ng.text.names import name_task


def name_limit(limit: Limit | None) -> str:
    """Return what sets the pace in words, and its share; "" if that is not known."""
    return "" if limit is None else f"{name_pace(limit)} ({format_percent(limit.share, 1)})"


def name_pace(limit: Limit) -> str:
    """Return what sets the pace in words: host of rank 3."""
    if limit.what == "network":
        return "the network"
    what = {"launch": "launch latency"}.get(limit.what, limit.what)
    return f"the {what}" if limit.rank is None else f"{what} of {name_task(limit.rank, '')}"
