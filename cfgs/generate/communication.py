"""Declares NCCL presets: calls, kernels, and the computation beside them.

Their files are in the folder `analysis`, where users look for them, after the presets of the module `analysis`.
"""

from __future__ import annotations

from cfgs.generate import colours
from cfgs.generate.paraver_cfg import (
    GRADIENT,
    MAXIMUM,
    MILLISECONDS,
    SIGN,
    TASK,
    Derived,
    Folder,
    Histogram,
    Window,
    codes,
    only,
    plus,
    product,
)
from cfgs.generate.shared import COMPUTE_CLASSES, MOST_NAMES, NCCL_RANGES, in_class, names
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import palette
from nsys2prv_ng.paraver.value_tables import COMMUNICATION_CLASSES


def _make_bytes() -> Derived:
    """Return the bytes of an NCCL call: the message of a collective, or the sent and received bytes."""
    collective, sent, received = (
        Window(size.label, GRADIENT, events=only(size))
        for size in (types.NCCL_BYTES, types.NCCL_SEND_BYTES, types.NCCL_RECEIVE_BYTES)
    )
    messages = Derived("NCCL sent and received", GRADIENT, operation="add", first=sent, second=received)
    return Derived("NCCL bytes", GRADIENT, operation="add", first=messages, second=collective)


# Calls are counted, and their bytes are summed, by name at their start: each start is one burst, even if calls nest.
_begins = Window("NCCL calls", codes(colours.NAMES), events=NCCL_RANGES)
_kernel_names = names("NCCL kernels of each rank", only(types.NCCL_KERNEL), level=TASK, above=MAXIMUM)
_running = Window(
    "Concurrent NCCL kernels", GRADIENT, events=only(types.NCCL_KERNEL), compose=SIGN, level=TASK, units=MILLISECONDS
)
_computing = in_class("Compute kernels of the rank, plus one", COMPUTE_CLASSES, level=TASK, top=(plus(1),))
_communicating = in_class("In communication", COMMUNICATION_CLASSES, level=TASK, top=(SIGN,))
_beside = product(
    "Communication and compute kernels of the rank",
    codes(colours.NCCL_AND_OTHERS),
    _computing,
    _communicating,
    level=TASK,
)

COMMUNICATION = Folder("analysis")
COMMUNICATION.add(
    "nccl_calls_2dh",
    "NCCL calls of each host thread by operation: count and bytes; and NCCL time of each rank by kernel name",
    """
First histogram: bytes of the calls of each host thread: the collective size, or the bytes sent and received (needs NCCL
payloads in the trace). Second histogram: number of calls. Both have one row per host thread, because overlapping calls
of a rank cannot be counted on one row. Operations come from the NVTX domain NCCL.
Third histogram: NCCL time of each rank by kernel name (ms). Calls return early, so communication takes the time of the
kernels, wait time included. The time of overlapping kernels adds up; if their names differ, all of it is in the last of
their columns.
""",
    Histogram("Bytes of NCCL calls", _begins, "Sum bursts", maximum=MOST_NAMES, data=_make_bytes()),
    Histogram("Number of NCCL calls", _begins, "# Bursts", maximum=MOST_NAMES),
    Histogram("NCCL time of each rank [ms]", _kernel_names, "Integral", maximum=MOST_NAMES, data=_running),
    menu="What is communicated?",
)

COMMUNICATION.add(
    "nccl_kernel_concurrency",
    "Concurrent NCCL kernels on each rank",
    """
One row per rank. The value is the number of NCCL kernels over all GPUs and streams of the rank; more kernels are
lighter. Concurrent NCCL kernels on a GPU share multiprocessors and links, and can slow each other down.
""",
    Window(
        "Concurrent NCCL kernels",
        codes(colours.counts(palette.COMMUNICATION)),
        events=only(types.NCCL_KERNEL),
        compose=SIGN,
        level=TASK,
    ),
    menu="What is communicated?",
)

COMMUNICATION.add(
    "concurrency_of_computation_during_nccl",
    "Compute kernels concurrent with communication: timeline, and share of each rank's communication time (%)",
    """
Communication is NCCL kernels, kernels of other libraries that move data between GPUs, and copies between GPUs.
One row per rank. The value is 0 without communication, 1 while nothing computes beside it (orange: exposed
communication), 2 while one compute kernel runs at the same time, and n + 1 for n compute kernels (green: overlapped).
Kernels of all GPUs of the rank count together, so for a rank with several GPUs see
analysis/overlap-communication-compute-2dh-timeline instead. Choose statistic Time for microseconds.
""",
    _beside,
    Histogram("Compute kernels during communication, plus one [%]", _beside, "% Time", maximum=64),
    menu="What is communicated?",
)
