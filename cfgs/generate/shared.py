"""Makes windows that several presets use.

Each call makes new windows. Windows of one preset may share parents; presets do not share windows.
"""

from __future__ import annotations

from typing import Any

from cfgs.generate import colours
from cfgs.generate.paraver_cfg import (
    ANY_DRAW,
    LAST_TYPE,
    LOGARITHMIC,
    MAXIMUM,
    NESTING,
    NEXT_VALUE,
    SIGN,
    STACKED,
    TASK,
    Derived,
    Events,
    Look,
    Messages,
    Window,
    codes,
    function,
    has_value,
    only,
    product,
    span,
    times,
)
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families, palette
from nsys2prv_ng.paraver.value_tables import COMMUNICATION_CLASSES

NAMES = codes(colours.NAMES, ANY_DRAW)
FLAG = Look(maximum=1)
_ACTIVITY, _WAITS = codes(colours.GPU_ACTIVITY, ANY_DRAW), codes(colours.GPU_WAITS, ANY_DRAW)

MOST_NAMES = 4000
"""Number of columns for ids of names. Paraver hides columns without a name."""

NVTX_RANGES = only(families.make_nvtx_range(""), families.NVTX_DEFAULT)
NCCL_RANGES = only(families.make_nvtx_range("NCCL"), families.NVTX_NCCL)

_KINDS = tuple(value for value in types.GPU_ACTIVITY.values or () if value & 23)
IN_COMPUTE = tuple(value for value in _KINDS if value & 1)
IN_COMMUNICATION = tuple(value for value in _KINDS if value & 2)
IN_KERNELS = tuple(value for value in _KINDS if value & 19)
IN_ANY = _KINDS
IN_IDLE = (8,)
"""Values of GPU_ACTIVITY: a sum of 1 (compute), 2 (communication), 4 (memory) and 16 (whole graphs); 8 is idle."""

COMPUTE_CLASSES = tuple(value for value in types.KERNEL_CLASS.values or () if value not in COMMUNICATION_CLASSES)
"""Values of KERNEL_CLASS; kernels and copies that move data between GPUs have the others, whoever starts them."""

GPU_MOVING, GPU_WAITING, GPU_IDLE, GPU_NOT_SPLIT = 3, 4, 7, 8
"""Values of GPU_ACTIVITY_WITH_WAITS: exposed communication by part, idle, and exposed communication not split."""

MAIN_THREAD = function("Thread i", 1)
"""The first thread of each rank."""

LAUNCH_LINES = Messages((types.TAG_LAUNCH, types.TAG_COPY))


def names(name: str, events: Events, **properties: Any) -> Window:
    """Show the name of the innermost interval; intervals may nest."""
    return Window(name, NAMES, events=events, compose=STACKED, **properties)


def inside(name: str, events: Events, **properties: Any) -> Window:
    """Show 1 inside these intervals, which may nest, and 0 elsewhere."""
    return Window(name, FLAG, events=events, compose=NESTING, top=(SIGN,), **properties)


def in_class(name: str, classes: tuple[int, ...], look: Look = FLAG, **properties: Any) -> Window:
    """Show 1 in kernels of these classes, and in copies that are of these classes because they communicate."""
    return Window(name, look, events=only(types.KERNEL_CLASS), thread=has_value(*classes), **properties)


def kernel_names(name: str, classes: tuple[int, ...]) -> Derived:
    """Show the names of kernels of these classes, without NCCL's."""
    every = names("Kernels except NCCL's", only(types.KERNEL))
    return product(name, NAMES, every, in_class("In such a kernel", classes))


def cuda_kinds(name: str, **properties: Any) -> Derived:
    """Show the event type of the current activity: API call, memory operation, kernel, NCCL kernel or graph.

    All that moves data between GPUs has the type of NCCL kernels, which is the largest that it may have.

    The type of the last event does not drop to 0 at the end of an interval, so it is cut to the inside of intervals. A
    memory operation starts with events of two types; the last is the type of its size.
    """
    events = span(types.CUDA_API, types.GRAPH_LAUNCH)
    sizes = function("Translate", (types.MEMORY_BYTES.number, types.MEMORY_OPERATION.number))
    last = Window("Kind of the last event", codes(colours.KINDS), events=events, thread=LAST_TYPE, compose=sizes)
    within = inside("Inside a call or operation", events)
    kinds = product("Kind of the call or operation", codes(colours.KINDS), last, within)
    communicates = in_class("In communication", COMMUNICATION_CLASSES, compose=times(types.NCCL_KERNEL.number))
    return Derived(name, codes(colours.KINDS), operation="maximum", first=kinds, second=communicates, **properties)


def sampled_functions(name: str, **properties: Any) -> Window:
    """Show the function of the last sample of each thread."""
    return Window(name, NAMES, events=only(types.SAMPLED_FUNCTIONS[0]), **properties)


def gpus(name: str, doing: tuple[int, ...], colour: palette.Colour, **properties: Any) -> Window:
    """Count the GPUs with one of these activities: 0 or 1 at the level of threads."""
    look = codes(colours.counts(colour))
    return Window(name, look, events=only(types.GPU_ACTIVITY), thread=has_value(*doing), **properties)


def activity() -> Window:
    """Show the activity of each GPU, on the rows of GPUs."""
    return Window("Activity of each GPU", _ACTIVITY, events=only(types.GPU_ACTIVITY))


def ranks(name: str, look: Look, events: Events, **properties: Any) -> Window:
    """Show the highest value among the rows of each rank: its threads, streams or GPUs."""
    return Window(name, look, events=events, level=TASK, above=MAXIMUM, **properties)


def activity_of_ranks() -> Window:
    """Show the activity of each rank's GPU. If a rank has several GPUs, show their highest value; idle counts as 0."""
    idle_as_0 = function("Translate", (*IN_IDLE, 0))
    return ranks("Activity of the GPU of each rank", _ACTIVITY, only(types.GPU_ACTIVITY), compose=idle_as_0)


def activity_or_idle_of_ranks() -> Window:
    """Show the activity of each rank's GPU. If a rank has several GPUs, show their highest value; idle is the
    lowest."""
    low, (idle,) = 0.5, IN_IDLE  # between 0, on rows that are not GPUs, and the lowest activity
    return ranks(
        "Activity of the GPU of each rank, or idle",
        _ACTIVITY,
        only(types.GPU_ACTIVITY),
        compose=function("Translate", (idle, low)),
        top=(function("Translate", (low, idle)),),
    )


def activity_with_waits() -> Window:
    """Show the activity of each GPU with waiting apart, on the rows of GPUs."""
    return Window("Activity of each GPU, with waits", _WAITS, events=only(types.GPU_ACTIVITY_WITH_WAITS))


def activity_with_waits_of_ranks(name: str, *hidden: int, **properties: Any) -> Window:
    """Show the activity of each rank's GPU with waiting apart. The `hidden` values count as 0.

    If a rank has several GPUs, show their highest value.
    """
    hide = function("Translate", tuple(number for value in hidden for number in (value, 0)))
    return ranks(name, _WAITS, only(types.GPU_ACTIVITY_WITH_WAITS), compose=hide, **properties)


def idle_stretches(name: str, look: Look, **properties: Any) -> Derived:
    """Show the length (ns) of each gap while it lasts. The event at its end has the length."""
    idle = gpus("GPU idle", IN_IDLE, palette.IDLE)
    length = Window(
        "Length of the idle gap that ends next", LOGARITHMIC, events=only(types.GPU_IDLE_STRETCH), thread=NEXT_VALUE
    )
    return product(name, look, length, idle, **properties)
