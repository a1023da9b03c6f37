"""The colours of pages: the same as in the presets for Paraver."""

from __future__ import annotations

from nsys2prv_ng.html.charts import Colour, format_colour
from nsys2prv_ng.paraver import palette
from nsys2prv_ng.paraver.event_types import PATH_KINDS

HUES = {
    "busy": palette.COMPUTE, "computing": palette.COMPUTE, "moving": palette.COMMUNICATION, "waiting": palette.WAITING,
    "not_split": palette.shade(palette.COMMUNICATION, -2), "whole_graph": palette.shade(palette.WHOLE_GRAPH, -2),
    "lateness": palette.SYNCHRONISATION, "sm": palette.GREEN, "tensor": palette.COMPUTE, "dram": palette.MEMORY,
    "nvlink_received": palette.COMMUNICATION, "nvlink_transmitted": palette.COMMUNICATION,
}  # fmt: skip
"""Hues of heat maps, by their key. Colours that are pale in the presets are dark here: the value makes them pale."""
LINES = (
    palette.BLUE, palette.ORANGE, palette.GREEN, palette.VERMILLION, palette.PURPLE, palette.SKY_BLUE, palette.GREY,
)  # fmt: skip
"""Hues of lines; a legend tells which is which."""


STRIPS: dict[str, Colour] = {key: (*hue, 255) for key, hue in palette.ACTIVITIES.items()}
STRIPS["idle"] = (*palette.GREY, 100)
"""Colours of strips, by the key of an Activity. Idle time is translucent grey: it must not be bright on dark pages."""
_CELL_HUES = {
    "compute_ns": palette.COMPUTE, "whole_graph_ns": palette.WHOLE_GRAPH, "waiting_ns": palette.WAITING,
    "moving_ns": palette.COMMUNICATION, "not_split_ns": palette.shade(palette.COMMUNICATION, 3),
    "memory_ns": palette.MEMORY, "host_ns": palette.GREEN, "queued_ns": palette.HOST_API,
    "graph_ns": palette.shade(palette.COMPUTE, 3), "unknown_ns": palette.GREY, "cut_ns": palette.shade(palette.GREY, 1),
    "before_first_ns": palette.shade(palette.GREY, 2), "after_last_ns": palette.shade(palette.GREY, 3),
    "not_captured_ns": palette.shade(palette.GREY, 4), "outside_ns": palette.YELLOW,
    "hidden_wait_ns": palette.shade(palette.WAITING, 3), "own_code": palette.ACTIVITIES["own_code"],
    "cuda": palette.ACTIVITIES["cuda"], "mpi": palette.ACTIVITIES["mpi_waiting"], "": palette.GREY,
    **{label: palette.PATH_KINDS[kind] for kind, label in PATH_KINDS.items() if kind in palette.PATH_KINDS},
}  # fmt: skip
"""Hues of the bars in tables, by their key: the fields of Losses, and the classes of the critical path."""


def get_cell_css(hue: str) -> str:
    """Return the hue of a bar in a table as CSS."""
    return format_colour(_CELL_HUES[hue])
