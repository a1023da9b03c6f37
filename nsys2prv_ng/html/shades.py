"""Shows efficiencies as numbers on a ground that is the stronger the worse they are."""

from __future__ import annotations

from itertools import pairwise

from nsys2prv_ng.html.blocks import Cell, ShadedCell
from nsys2prv_ng.html.charts.maps import Swatch
from nsys2prv_ng.summary.layout import format_percent

_LIMITS = ((0.9, 0.0), (0.8, 0.25), (0.7, 0.5), (0.5, 0.75))
"""Least efficiency of each shade, and how bad it is; below the last one it is 1."""


def shade(efficiency: float | None) -> Cell:
    """Return the cell of an efficiency (0 to 1, or more for those against another run); empty for None."""
    if efficiency is None:
        return ""
    badness = next((bad for least, bad in _LIMITS if efficiency >= least), 1.0)
    return ShadedCell(format_percent(efficiency, 1), badness)


def make_legend() -> list[Swatch]:
    """Return the shades with their limits, the best first."""
    limits = [least for least, _ in _LIMITS]
    texts = [f"{100 * limits[0]:.0f}% or more"]
    texts += [f"{100 * low:.0f}% to {100 * high:.0f}%" for high, low in pairwise(limits)]
    texts.append(f"less than {100 * limits[-1]:.0f}%")
    grounds = [*(bad for _, bad in _LIMITS), 1.0]
    return [
        Swatch(f"color-mix(in srgb, rgb(var(--bad) / 0.55) {100 * bad:.0f}%, transparent)", text)
        for bad, text in zip(grounds, texts, strict=True)
    ]
