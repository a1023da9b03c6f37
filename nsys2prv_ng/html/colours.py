"""Colours of a page: those that the presets give to the same things."""

from __future__ import annotations

from nsys2prv_ng.html.charts.maps import format_colour
from nsys2prv_ng.paraver import palette

HUES = {
    "busy": palette.COMPUTE,
    "computing": palette.COMPUTE,
    "moving": palette.COMMUNICATION,
    "waiting": palette.WAITING,
    "not_split": palette.shade(palette.COMMUNICATION, -2),
    "lateness": palette.SYNCHRONISATION,
    "sm": palette.GREEN,
    "dram": palette.MEMORY,
    "memory": palette.MEMORY,
}
"""Hues of heat maps, by their key. What the presets show pale is dark here: the value makes it pale."""
LINES = (
    palette.BLUE,
    palette.ORANGE,
    palette.GREEN,
    palette.VERMILLION,
    palette.PURPLE,
    palette.SKY_BLUE,
    palette.GREY,
)
"""Hues of lines that are told apart by their legend."""


def get_css(hue: palette.Colour) -> str:
    """Return a hue as CSS."""
    return format_colour(hue)


ACTIVITIES = {
    "compute": palette.COMPUTE,
    "compute_over_moving": palette.OVERLAP,
    "compute_over_not_split": palette.shade(palette.OVERLAP, -2),
    "moving": palette.COMMUNICATION,
    "waiting": palette.WAITING,
    "waiting_hidden": palette.shade(palette.COMPUTE, 3),
    "not_split": palette.shade(palette.COMMUNICATION, 3),
    "memory": palette.MEMORY,
    "idle": palette.IDLE,
}
