"""Where most of a sum over tasks or GPUs is, if it is not spread over them."""

from __future__ import annotations

from collections.abc import Mapping

from nsys2prv_ng.text.formatting import format_percent


def name_largest(parts: Mapping[str, int], whole: int, count: int) -> str:
    """Return the name of the largest part and its share, such as `rank 0: 97.8%`; empty if the sum is spread.

    A sum over `count` tasks or GPUs is spread unless one has more than halfway between an even share and all of it.
    """
    if count < 2 or not parts:
        return ""
    name = max(parts, key=lambda name: (parts[name], name))
    return f"{name}: {format_percent(parts[name], whole)}" if 2 * count * parts[name] > (count + 1) * whole else ""
