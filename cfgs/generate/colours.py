"""Defines the colours of the values of event types in presets, by the palette of presets and pages."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.palette import (
    BLUE,
    COMMUNICATION,
    COMPUTE,
    GPU_ACTIVITIES,
    GREEN,
    GREY,
    HOST_API,
    IDLE,
    MEMORY,
    MPI,
    NOTHING,
    OPERATING_SYSTEM,
    ORANGE,
    OVERLAP,
    PURPLE,
    SKY_BLUE,
    SYNCHRONISATION,
    VERMILLION,
    WAITING,
    WHOLE_GRAPH,
    YELLOW,
    Colour,
    shade,
)
from nsys2prv_ng.paraver.value_tables import CLASSES

Colours = Mapping[int, Colour]


def counts(colour: Colour) -> dict[int, Colour]:
    """Return the colours of counts: 1 has the colour itself, and higher counts are lighter."""
    return {0: NOTHING} | {count: shade(colour, min(count - 1, 4)) for count in range(1, 65)}


NCCL_AND_OTHERS = {0: NOTHING, 1: COMMUNICATION} | {1 + count: OVERLAP for count in range(1, 65)}
"""Colours of NCCL kernels alone (1) and together with other kernels (2 and more)."""

_RUNNING = {1: COMPUTE, 2: COMMUNICATION, 3: OVERLAP, 16: WHOLE_GRAPH, 17: COMPUTE, 18: WHOLE_GRAPH, 19: OVERLAP}
GPU_ACTIVITY = {
    **{0: NOTHING, 4: MEMORY, 8: IDLE},
    **_RUNNING,
    **{4 + activity: shade(colour, 2) for activity, colour in _RUNNING.items()},
}
"""Activity together with memory operations has the colour of the activity, but lighter."""

PARTS = {0: NOTHING, types.WAITING_PART: WAITING, types.MOVING_PART: COMMUNICATION}
"""Colours of the parts of a kernel or call over ranks."""

GPU_WAITS = {0: NOTHING} | dict(enumerate(GPU_ACTIVITIES.values(), 1))
"""The colours of GPU_ACTIVITY, with a separate one for waiting. Waiting that compute hides costs nothing: pale blue.

With any colour vision, waiting differs from every other colour by at least 29 in CIE Lab, and any two differ by at
least 16.
"""

LATE_REASONS = {
    0: NOTHING,
    types.LATE_LAUNCH: HOST_API,
    types.LATE_DEVICE: COMPUTE,
    types.LATE_DEPENDENCY: SYNCHRONISATION,
    types.LATE_CALL: MPI,
    types.LATE_UNKNOWN: GREY,
}
"""Colours of the reasons why a rank was late: the colours of the activity in which it was late."""

KINDS = {
    0: NOTHING,
    types.CUDA_API.number: HOST_API,
    types.MEMORY_OPERATION.number: MEMORY,
    types.KERNEL.number: COMPUTE,
    types.NCCL_KERNEL.number: COMMUNICATION,
    types.GRAPH_LAUNCH.number: shade(COMPUTE, 3),
}
"""Colours of the kinds of CUDA activity by the number of the event type."""

STATES = {
    types.IDLE: NOTHING,
    types.RUNNING: COMPUTE,
    types.WAITING_MESSAGE: shade(MPI, -1),
    types.BLOCKING_SEND: shade(MPI, 1),
    types.SYNCHRONIZATION: SYNCHRONISATION,
    types.TEST_PROBE: shade(MPI, 3),
    types.WAITING: shade(MPI, -2),
    types.BLOCKED: OPERATING_SYSTEM,
    types.IMMEDIATE_SEND: shade(MPI, 2),
    types.IMMEDIATE_RECEIVE: shade(MPI, -3),
    types.INPUT_OUTPUT: shade(OPERATING_SYSTEM, 2),
    types.GROUP_COMMUNICATION: COMMUNICATION,
    types.OTHERS: MPI,
    types.SEND_RECEIVE: shade(MPI, 1),
    types.MEMORY_TRANSFER: MEMORY,
    types.PROFILING: shade(OPERATING_SYSTEM, -3),
    types.ONE_SIDED: shade(MEMORY, 2),
}

MEMORY_OPERATIONS = {0: NOTHING} | {
    value: shade(MEMORY, step)
    for value, step in zip(types.MEMORY_OPERATION.values or {}, cycle((3, -1, 1, -3, 2, -2, 0)), strict=False)
}

# The colours of pageable and pinned memory differ most, because readers must distinguish these two.
MEMORY_KINDS = {0: NOTHING, 1: VERMILLION, 2: GREEN, 3: MEMORY} | {
    value: shade(MEMORY, step) for value, step in zip(range(4, 9), (2, 3, -1, -2, 1), strict=True)
}

_STEPS = (0, 2, -2, 3, -1, 1, -3)
"""Steps of lightness by which values of one hue differ."""
_KERNEL_FAMILIES = (
    (range(1, 10), COMPUTE),
    (range(10, 12), SKY_BLUE),
    (range(12, 14), GREEN),
    (range(14, 16), VERMILLION),
    (range(16, 20), PURPLE),
    (range(20, 22), YELLOW),
    (range(22, 24), COMMUNICATION),
    (range(24, 25), GREY),
)
KERNEL_CLASSES = {0: NOTHING} | {
    value: shade(colour, step)
    for values, colour in _KERNEL_FAMILIES
    for value, step in zip(values, cycle(_STEPS), strict=False)
}
"""Matrix products are blue, classes that move data are purple, and so on. Later classes have Paraver's colours."""


MPI_CALLS = {0: NOTHING} | {
    value: shade(hue, step)
    for call_class, hue in zip(CLASSES, (MPI, COMMUNICATION, GREY, PURPLE, SKY_BLUE), strict=True)
    for value, step in zip(types.MPI_CALLS[call_class].values or {}, cycle(_STEPS), strict=False)
    if value
}
"""Point-to-point, collective, other, one-sided and I/O calls differ in hue."""

_HUES = (BLUE, ORANGE, GREEN, PURPLE, SKY_BLUE, VERMILLION, YELLOW, GREY)
NAMES: Colours = {0: NOTHING} | {
    1 + i + len(_HUES) * turn: shade(hue, step)
    for turn, step in enumerate((0, 2, -2, 3, -1))
    for i, hue in enumerate(_HUES)
}
"""Colours of names that depend on the program. Further names have Paraver's own colours."""
