"""Defines the palette of all presets and pages: each kind of activity has the same colour in every picture.

The hues are the palette of Okabe and Ito, which people with any colour vision can distinguish. Values of one kind
differ only in lightness.
"""

from __future__ import annotations

from collections.abc import Mapping

from nsys2prv_ng.paraver import event_types as types

Colour = tuple[int, int, int]

ORANGE = (230, 159, 0)
SKY_BLUE = (86, 180, 233)
GREEN = (0, 158, 115)
YELLOW = (240, 228, 66)
BLUE = (0, 114, 178)
VERMILLION = (213, 94, 0)
PURPLE = (204, 121, 167)
GREY = (153, 153, 153)

NOTHING = (32, 32, 32)
IDLE = (225, 225, 225)
COMPUTE = BLUE
COMMUNICATION = ORANGE
OVERLAP = GREEN
MEMORY = PURPLE
HOST_API = SKY_BLUE
SYNCHRONISATION = VERMILLION
MPI = YELLOW
OPERATING_SYSTEM = GREY
WHOLE_GRAPH = (135, 0, 225)
"""Violet, because a whole graph may be the blue of compute or the rust of waiting."""


def shade(colour: Colour, step: int) -> Colour:
    """Return a lighter colour if `step` is above 0, a darker one if it is below 0; 5 steps lead to white or black."""
    towards = 255 if step > 0 else 0
    red, green, blue = (round(part + (towards - part) * abs(step) / 5) for part in colour)
    return red, green, blue


# ---- activities ------------------------------------------------------------------------------------------------------

WAITING = shade(SYNCHRONISATION, -1)
"""Rust. Readers who cannot see green distinguish vermillion less well from the orange of communication."""

GPU_ACTIVITIES = {
    "compute": COMPUTE, "compute_over_moving": OVERLAP, "moving": COMMUNICATION, "waiting": WAITING,
    "waiting_hidden": shade(COMPUTE, 3), "memory": MEMORY, "idle": IDLE, "not_split": shade(COMMUNICATION, 3),
    "compute_over_not_split": shade(OVERLAP, -2), "whole_graph": WHOLE_GRAPH,
}  # fmt: skip
"""Colours of what a GPU does, in the order of the values of types.GPU_WAITS."""

ACTIVITIES: Mapping[str, Colour] = GPU_ACTIVITIES | {
    "own_code": shade(YELLOW, 2),
    "cuda": HOST_API,
    "mpi_waiting": WAITING,
    "mpi_moving": COMMUNICATION,
    "mpi_not_split": shade(COMMUNICATION, 3),
}
"""Colours of activities in the pictures of a page: of GPUs, or of main threads if there are no GPUs."""

PATH_KINDS = {
    0: NOTHING, types.PATH_COMPUTE: COMPUTE, types.PATH_GRAPH: WHOLE_GRAPH, types.PATH_MOVING: COMMUNICATION,
    types.PATH_NOT_SPLIT: shade(COMMUNICATION, 3), types.PATH_MEMORY: MEMORY, types.PATH_LAUNCH: shade(HOST_API, 2),
    types.PATH_GAP: IDLE, types.PATH_CUDA_CALL: HOST_API, types.PATH_SYSTEM_CALL: shade(OPERATING_SYSTEM, -2),
    types.PATH_HOST: GREEN, types.PATH_MPI: MPI, types.PATH_OUTSIDE: WAITING, types.PATH_UNKNOWN: shade(GREY, -3),
}  # fmt: skip
"""Colours of the critical path: the colours of its activities. Green is host code, because the path never overlaps.

With any colour vision, two kinds differ by at least 13 in CIE Lab, except MPI and communication that is not split.
"""
