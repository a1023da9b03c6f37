"""Presets that show one kind of event each, by name."""

from __future__ import annotations

from cfgs.generate import palette
from cfgs.generate.paraver_cfg import (
    ANY_DRAW,
    EVERYTHING,
    GRADIENT,
    NESTING,
    STACKED,
    STATE,
    Folder,
    Histogram,
    Messages,
    Window,
    codes,
    function,
    matching,
    only,
    span,
)
from cfgs.generate.shared import (
    LAUNCH_LINES,
    MOST_NAMES,
    NAMES,
    NCCL_RANGES,
    NVTX_RANGES,
    cuda_kinds,
    names,
    sampled_functions,
)
from nsys2prv_ng.paraver import event_types as types

BASICS = Folder("basics")


BASICS.add(
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

BASICS.add(
    "cuda_api",
    "CUDA API calls of each host thread, by name",
    """
Where a call is made inside of another, the inner one is shown while it lasts.
Streams are empty: their side is in views/cuda_activities.
""",
    names("CUDA API calls", only(types.CUDA_API)),
)

BASICS.add(
    "kernels",
    "Compute kernels of each stream, by name",
    """
NCCL's kernels are in basics/nccl, graphs that were traced as a whole in basics/graphs.
Classes of kernels (matrix products, attention, ...) are in analysis/kernel_classes.
""",
    names("Compute kernels", only(types.KERNEL)),
)

BASICS.add(
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
BASICS.add(
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
BASICS.add(
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

BASICS.add(
    "mpi",
    "MPI calls of each host thread, by name, with messages",
    """
Point-to-point calls are yellow, collectives orange, one-sided purple, I/O light blue, others grey.
Lines are messages, from the begin of the send to the end of the receive.
""",
    Window(
        "MPI calls",
        codes(palette.MPI_CALLS),
        events=span(types.MPI_CALLS["p2p"], types.MPI_CALLS["io"]),
        compose=STACKED,
        messages=Messages((types.TAG_LAUNCH, types.TAG_COPY, types.TAG_NCCL), "!="),
    ),
)

_pthread = names("pthread calls", only(types.PTHREAD))
BASICS.add(
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

_modules = Window("Sampled modules", NAMES, events=only(types.SAMPLED_MODULE))
_sampled = sampled_functions("Sampled functions")
BASICS.add(
    "sampled_functions",
    "Functions that samples of the CPU found each host thread in: by time, and how many samples of each",
    """
First window: the function of the last sample; second window: the module (library or program) that it is in. Histogram:
number of samples of each thread by function; with the second window as control window, by module.
A function without a name, as in stripped libraries, is shown as its module in parentheses. A thread is sampled while it
runs, not while it waits: its last function stays until the next sample. Of the other levels of the stack (event types
"Sampled functions (depth n)") the trace has what it was translated with: --stack-depth.
What is sampled while GPUs are idle is in analysis/sampled_while_gpu_idle.
""",
    _sampled,
    _modules,
    Histogram("Samples by function", _sampled, "# Bursts", maximum=MOST_NAMES),
    hidden_first=(_modules,),
)

BASICS.add(
    "sampled_python",
    "Functions of Python that nsys's samples found each host thread in, by time",
    """
The function of the last sample, with its file. Its callers are the event types "Sampled Python functions (depth n)", of
which the trace has what it was translated with: --stack-depth. Needs --python-sampling=true when profiling.
""",
    Window("Sampled Python functions", NAMES, events=only(types.SAMPLED_PYTHON[0])),
)

BASICS.add(
    "diagnostics",
    "Warnings and errors of nsys on the row of each node, by text",
    """
Each lasts until the next, so zoom to its begin, or show flags. Those that nsys gave when it made the report, after the
capture, have no time; nsys2prv-ng inspect shows all.
""",
    Window("Warnings and errors of nsys", NAMES, events=only(types.DIAGNOSTIC)),
)

BASICS.add(
    "graphs",
    "CUDA graphs that were traced as a whole, of each stream, by name",
    """
Where nsys traced graphs by node (--cuda-graph-trace=node), their kernels are in basics/kernels instead, and this
window is empty.
""",
    names("CUDA graphs", only(types.GRAPH_LAUNCH)),
)

BASICS.add(
    "launch_lines",
    "Lines from each CUDA call to the kernel, graph, copy or set that it launched",
    """
Zoom in: a trace has thousands of lines. A line begins at the begin of the call and ends at the begin of the
operation; a long line is work that waited for the stream (see analysis/queue_delay).
Light blue is an API call, blue a kernel, orange an NCCL kernel, purple a memory operation, pale blue a graph.
""",
    cuda_kinds("Calls, operations and launches", messages=LAUNCH_LINES),
)

_faults_of_cpus = Window("Function of the last CPU page fault", NAMES, events=only(types.CPU_PAGE_FAULT))
BASICS.add(
    "unified_memory",
    "Page faults of unified memory: of each GPU by rate, of CPUs by function",
    """
First window: page faults of GPUs for each microsecond since the group of faults before, on the rows Metrics.
Second window: the function in which a CPU faulted last, on the main thread of its process.
The migrations that follow are copies: basics/memory_operations shows them with values of their own.
""",
    Window(
        "GPU page faults [1/us]",
        GRADIENT,
        events=only(types.GPU_PAGE_FAULTS),
        thread=function("Avg Next Evt Val", 1000),
        units="Nanoseconds",
    ),
    _faults_of_cpus,
    hidden_first=(_faults_of_cpus,),
)

BASICS.add(
    "gpu_contexts",
    "Process and context that each GPU works for, on the rows Metrics",
    """
Where ranks share a GPU they take turns, unless they are clients of one MPS server. Needs --gpuctxsw=true when
profiling.
""",
    names("GPU contexts", only(types.GPU_CONTEXT)),
)

_acc_launches, _acc_other, _acc_lines = (
    names("OpenACC launches", only(types.OPENACC[2])),
    names("OpenACC compute constructs, waits, devices", only(types.OPENACC[0])),
    names("Source lines of OpenACC launches", only(types.OPENACC_SOURCE[2])),
)
BASICS.add(
    "openacc",
    "OpenACC of each host thread: data, launches, the rest, and source lines of launches",
    """
First window: data clauses (enter and exit data, uploads, downloads). Second window: launches. Third window: compute
constructs, updates, waits, devices. Fourth window: the lines of the program that launched. Where an event is inside of
another of its window, the inner one is shown while it lasts.
""",
    names("OpenACC data", only(types.OPENACC[1])),
    _acc_launches,
    _acc_other,
    _acc_lines,
    hidden_first=(_acc_launches, _acc_other, _acc_lines),
)

_transfers = Window(
    "UCX transfers at a time",
    codes(palette.counts(palette.COMMUNICATION)),
    events=span(types.UCX_TRANSFERS[0], types.UCX_TRANSFERS[-1]),
    compose=NESTING,
)
BASICS.add(
    "ucx",
    "UCX calls of each host thread by name, and how many transfers are under way",
    """
First window: calls. Second window: transfers that a thread submitted and that are not complete.
""",
    names("UCX calls", only(types.UCX_CALL)),
    _transfers,
    hidden_first=(_transfers,),
)

BASICS.add(
    "system_calls",
    "System calls of each host thread, by name",
    """
Calls shorter than 10 us are left out of the trace unless it was translated with --osrt-min 0.
""",
    names("System calls", only(types.SYSTEM_CALL)),
)

_decoding, _jpeg = (
    names("Video decoder calls", only(types.VIDEO_DECODER_CALL)),
    names("JPEG calls", only(types.VIDEO_JPEG_CALL)),
)
_engines = Window(
    "Works of video engines at a time",
    codes(palette.counts(palette.COMPUTE)),
    events=span(types.VIDEO_WORK[0, 0], types.VIDEO_WORK[3, types.VIDEO_LANES - 1]),
    compose=NESTING,
)
BASICS.add(
    "video",
    "Video: calls of the encoder, the decoder and JPEG of each host thread, and what engines do for it",
    """
First window: encoder. Second window: decoder. Third window: JPEG. Fourth window: how many works of the GPU's video
engines are under way that the thread called for.
""",
    names("Video encoder calls", only(types.VIDEO_ENCODER_CALL)),
    _decoding,
    _jpeg,
    _engines,
    hidden_first=(_decoding, _jpeg, _engines),
)
