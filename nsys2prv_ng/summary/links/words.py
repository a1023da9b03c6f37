"""Names what sends and receives."""

from __future__ import annotations

from nsys2prv_ng.summary.links.numbers import Link, LinkEnd, MessageRate
from nsys2prv_ng.text.names import clean_name, name_task


def name_class(row: MessageRate | Link) -> str:
    """Return whether messages stay within a node, in words."""
    return "between nodes" if row.between_nodes else "within nodes"


def name_end(end: LinkEnd) -> str:
    """Return what sends or receives, for a text: its rank, node and GPU."""
    gpu = "" if end.gpu is None else f" GPU {end.gpu}"
    return f"{name_task(end.rank, end.task)} ({clean_name(end.node)}{gpu})"
