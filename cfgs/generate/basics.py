"""Presets of one kind of event each: what happened, by name."""

from __future__ import annotations

from cfgs.generate import palette
from cfgs.generate.paraver_cfg import (
    ANY_DRAW,
    EVERYTHING,
    GRADIENT,
    STACKED,
    STATE,
    Messages,
    Preset,
    View,
    Window,
    codes,
    function,
    matching,
    only,
    span,
)
from cfgs.generate.shared import LAUNCH_LINES, NAMES, NCCL_RANGES, NVTX_RANGES, cuda_kinds, names
from nsys2prv_ng.paraver import event_types as types

PRESETS: list[Preset] = []


def _preset(name: str, summary: str, description: str, *shown: View, hidden_first: tuple[View, ...] = ()) -> None:
    PRESETS.append(Preset("basics", name, summary, description, shown, hidden_first))


_preset(
    "states",
    "What each thread and stream does: running, waiting, communicating, moving memory",
    """
A stream is Running in compute kernels and graphs, in Group Communication in NCCL kernels, in Memory transfer in
copies and sets, and idle otherwise. A host thread is Running from its first event to its last; calls that wait for
the device are Synchronization, blocking calls of the operating system Blocked; MPI calls have the states of Extrae.
Dark is time without a state.
""",
    Window("States", codes(palette.STATES, ANY_DRAW), events=EVERYTHING, thread=STATE),
)

_preset(
    "cuda_api",
    "CUDA API calls of each host thread, by name",
    """
Where a call is made inside of another, the inner one is shown while it lasts.
Streams are empty: their side is in views/cuda_activities.
""",
    names("CUDA API calls", only(types.CUDA_API)),
)

_preset(
    "kernels",
    "Compute kernels of each stream, by name",
    """
NCCL's kernels are in basics/nccl, graphs that were traced as a whole in basics/graphs.
Classes of kernels (matrix products, attention, ...) are in analysis/kernel_classes.
""",
    names("Compute kernels", only(types.KERNEL)),
)

_preset(
    "memory_operations",
    "Copies and sets of each stream: kind and bandwidth (GB/s)",
    """
First window: kind of operation. Second window: its bytes divided by its duration, in GB/s (10^9 bytes per second).
Short operations do not reach the bandwidth of the link. Sizes are in analysis/memcpy_sizes.
""",
    Window("Memory operations", codes(palette.MEMORY_OPERATIONS), events=only(types.MEMORY_OPERATION)),
    # Bytes are 0 from the end of an operation on, so the next event of the type is its end. Bytes/ns are GB/s.
    Window(
        "Bandwidth of memory operations [GB/s]",
        GRADIENT,
        events=only(types.MEMORY_BYTES),
        thread=function("Avg Last Evt Val", 1),
        units="Nanoseconds",
    ),
)

_other_domains = names("NVTX ranges of other domains", matching("NVTX * range"))
_preset(
    "nvtx",
    "NVTX push/pop ranges of each host thread, the innermost at each time",
    """
First window: ranges of the default domain. Second window: those of all other domains together (NCCL, cuBLAS, the
program's own); what a colour means there depends on the domain, which the information panel of Paraver tells.
Ranges on the streams that they launched work on are in views/nvtx_on_gpu, durations of iterations in
analysis/iteration_time. For start/end ranges choose the event type "NVTX start/end range, lane 1" in the filter.
""",
    names("NVTX ranges", NVTX_RANGES),
    _other_domains,
    hidden_first=(_other_domains,),
)

_calls = names("NCCL calls", NCCL_RANGES)
_preset(
    "nccl",
    "NCCL calls of each host thread and NCCL kernels of each stream, by name, with messages between ranks",
    """
First window: NCCL's kernels. Lines connect sends and receives that belong together (where NCCL's payload was traced).
Second window: NCCL's calls, from NVTX domain NCCL. A call returns when its kernel is queued: the time that a
collective takes is that of its kernel, which waits for the slowest rank.
""",
    names("NCCL kernels", only(types.NCCL_KERNEL), messages=Messages((types.TAG_NCCL,))),
    _calls,
    hidden_first=(_calls,),
)

_preset(
    "mpi",
    "MPI calls of each host thread, by name, with messages",
    """
Point-to-point calls are yellow, collectives orange, one-sided purple, I/O light blue, others grey.
Lines are messages, from the begin of the send to the end of the receive.
""",
    Window(
        "MPI calls",
        codes(palette.MPI_CALLS),
        events=span(*(types.MPI_CALLS[each] for each in ("p2p", "io"))),
        compose=STACKED,
        messages=Messages((types.TAG_LAUNCH, types.TAG_COPY, types.TAG_NCCL), "!="),
    ),
)

_pthread = names("pthread calls", only(types.PTHREAD))
_preset(
    "os_runtime",
    "Calls of the operating system and of pthreads of each host thread, by name",
    """
First window: calls of the operating system. Second window: calls of pthreads.
Calls shorter than 10 us are left out of the trace unless it was translated with --osrt-min 0.
""",
    names("OS runtime calls", only(types.OS_RUNTIME)),
    _pthread,
    hidden_first=(_pthread,),
)

_preset(
    "diagnostics",
    "Warnings and errors of nsys on the row of each node, by text",
    """
Each lasts until the next, so zoom to its begin, or show flags. Those that nsys gave when it made the report, after the
capture, have no time; nsys2prv-ng inspect shows all.
""",
    Window("Warnings and errors of nsys", NAMES, events=only(types.DIAGNOSTIC)),
)

_preset(
    "graphs",
    "CUDA graphs that were traced as a whole, of each stream, by name",
    """
Where nsys traced graphs by node (--cuda-graph-trace=node), their kernels are in basics/kernels instead, and this
window is empty.
""",
    names("CUDA graphs", only(types.GRAPH_LAUNCH)),
)

_preset(
    "launch_lines",
    "Lines from each CUDA call to the kernel, graph, copy or set that it launched",
    """
Zoom in: a trace has thousands of lines. A line begins at the begin of the call and ends at the begin of the
operation; a long line is work that waited for the stream (see analysis/queue_delay).
Light blue is an API call, blue a kernel, orange an NCCL kernel, purple a memory operation, pale blue a graph.
""",
    cuda_kinds("Calls, operations and launches", messages=LAUNCH_LINES),
)
