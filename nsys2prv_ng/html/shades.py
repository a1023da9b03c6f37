"""Shows efficiencies as numbers on a ground that is the stronger the worse they are."""

from __future__ import annotations

from itertools import pairwise

from nsys2prv_ng.html.charts.maps import Swatch

_LIMITS = ((0.9, 0.0), (0.8, 0.25), (0.7, 0.5), (0.5, 0.75))
"""Least efficiency of each shade, and how bad it is; below the last one it is 1."""


def find_badness(efficiency: float) -> float:
    """Return how bad an efficiency is (0: good, 1: bad); it is 0 to 1, or more if it is against another run."""
    return next((bad for least, bad in _LIMITS if efficiency >= least), 1.0)


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
