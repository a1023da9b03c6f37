"""Presets of NCCL: calls, kernels, and the computation beside them.

Their files are in the folder `analysis`, where users look for them, after those that the module `analysis` declares.
"""

from __future__ import annotations

from cfgs.generate.paraver_cfg import (
    GRADIENT,
    MILLISECONDS,
    SIGN,
    TASK,
    Derived,
    Events,
    Folder,
    Function,
    Histogram,
    Window,
    codes,
    only,
    plus,
    product,
)
from cfgs.generate.shared import MOST_NAMES, NCCL_RANGES, names
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import palette


def _make_bytes() -> Derived:
    """Return the bytes of an NCCL call: the message of a collective, or what is sent and received."""
    collective, sent, received = (
        Window(size.label, GRADIENT, events=only(size))
        for size in (types.NCCL_BYTES, types.NCCL_SEND_BYTES, types.NCCL_RECEIVE_BYTES)
    )
    messages = Derived("NCCL sent and received", GRADIENT, operation="add", first=sent, second=received)
    return Derived("NCCL bytes", GRADIENT, operation="add", first=messages, second=collective)


def _count_streams(name: str, events: Events, *top: Function) -> Window:
    """Count the streams of a rank that are in one of these kernels."""
    return Window(name, GRADIENT, events=events, compose=SIGN, level=TASK, top=top)


# Calls are counted, and their bytes summed, by name where they start: each start is one burst, even if calls nest.
_begins = Window("NCCL calls", codes(palette.NAMES), events=NCCL_RANGES)
_kernel_names = names("NCCL kernels", only(types.NCCL_KERNEL), units=MILLISECONDS)
_computing = _count_streams("Compute kernels of the rank, plus one", only(types.KERNEL), plus(1))
_communicating = _count_streams("In an NCCL kernel", only(types.NCCL_KERNEL), SIGN)
_beside = product(
    "NCCL and compute kernels of the rank", codes(palette.NCCL_AND_OTHERS), _computing, _communicating, level=TASK
)

COMMUNICATION = Folder("analysis")
COMMUNICATION.add(
    "nccl_calls_2dh",
    "NCCL calls by operation: number, bytes, and time in kernels, of each host thread and stream",
    """
Three histograms. Number of calls of each host thread by operation. Bytes of the same calls: the message of a
collective, or what is sent and received (needs NCCL's payload in the trace). Time of each stream in NCCL kernels by
name (ms): this is the time that communication takes, since calls return earlier. The operations are those of the NVTX
domain NCCL.
""",
    Histogram("Time in NCCL kernels [ms]", _kernel_names, "Time", maximum=MOST_NAMES),
    Histogram("Bytes of NCCL calls", _begins, "Sum bursts", maximum=MOST_NAMES, data=_make_bytes()),
    Histogram("Number of NCCL calls", _begins, "# Bursts", maximum=MOST_NAMES),
)

COMMUNICATION.add(
    "nccl_kernel_concurrency",
    "Number of NCCL kernels that each rank runs at the same time",
    """
One row per rank. The value is the number of NCCL kernels over all GPUs and streams of the rank; more kernels are
lighter. If a GPU runs more than one, they share multiprocessors and links and can slow each other down.
""",
    Window(
        "Concurrent NCCL kernels",
        codes(palette.counts(palette.COMMUNICATION)),
        events=only(types.NCCL_KERNEL),
        compose=SIGN,
        level=TASK,
    ),
)

COMMUNICATION.add(
    "concurrency_of_computation_during_nccl",
    "Number of compute kernels that run beside NCCL kernels: over time, and in percent of each rank's NCCL time",
    """
One row per rank. The value is 0 without an NCCL kernel, 1 while NCCL kernels run alone (orange: exposed
communication), 2 while one compute kernel runs beside them, and n + 1 for n compute kernels (green). Kernels of all
GPUs of the rank count together, so for a rank with several GPUs see
analysis/overlap-communication-compute-2dh-timeline instead. Choose statistic Time for microseconds.
""",
    _beside,
    Histogram("Compute kernels during NCCL, plus one [%]", _beside, "% Time", maximum=64),
)
