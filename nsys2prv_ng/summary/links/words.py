"""Names what sends and receives, and describes links that are slower than their peers."""

from __future__ import annotations

from nsys2prv_ng.summary.links import numbers
from nsys2prv_ng.text.formatting import count_noun, format_bytes
from nsys2prv_ng.text.names import clean_name, name_task, quote_name


def name_class(row: numbers.MessageRate | numbers.Link) -> str:
    """Return whether messages stay within a node, in words."""
    return "between nodes" if row.between_nodes else "within nodes"


def name_end(end: numbers.LinkEnd) -> str:
    """Return what sends or receives, for a text: its rank, node and GPU."""
    gpu = "" if end.gpu is None else f" GPU {end.gpu}"
    return f"{name_task(end.rank, end.task)} ({clean_name(end.node)}{gpu})"


_MOST = 3
"""Most pairs of the section on links that have a sentence."""


def describe_slow_links(links: numbers.LinkNumbers | None) -> list[str]:
    """Return a sentence for each pair that is far slower than its peers, the slowest first; [] without any."""
    if links is None:
        return []
    sentences = [_describe_link(links, slow) for slow in links.slow[:_MOST]]
    more = len(links.slow) - _MOST
    return [*sentences, count_noun(more, "more slow pair")] if more > 0 else sentences


def _describe_link(links: numbers.LinkNumbers, slow: numbers.SlowLink) -> str:
    if slow.are_nodes:
        sender, receiver = (quote_name(links.nodes[index]) for index in (slow.sender, slow.receiver))
    else:
        sender, receiver = (name_end(links.ends[index]).replace("`", "'") for index in (slow.sender, slow.receiver))
    low, high = (f"{format_bytes(rate)}/s" for rate in (slow.peers_low_bytes_per_s, slow.peers_high_bytes_per_s))
    peers = low if low == high else f"{low} to {high}"
    return (
        f"{sender} -> {receiver}: {format_bytes(slow.bytes_per_s)}/s, its {count_noun(slow.peers, 'peer')} {peers}"
        f" (median of {count_noun(slow.count, 'message')} of {format_bytes(slow.bytes)})"
    )
