"""Declares presets that show one kind of event each, by name."""

from __future__ import annotations

from cfgs.generate import colours
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
    COMPUTE_CLASSES,
    LAUNCH_LINES,
    MOST_NAMES,
    NAMES,
    NCCL_RANGES,
    NVTX_RANGES,
    cuda_kinds,
    kernel_names,
    names,
    sampled_functions,
)
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families, palette
from nsys2prv_ng.paraver.value_tables import COMMUNICATION_CLASSES

BASICS = Folder("basics")


BASICS.add(
    "states",
    "State of each host thread and stream: running, waiting, communicating, moving memory",
    """
A stream is Running in compute kernels and graphs, in Group Communication in NCCL kernels, in Memory transfer in copies
and sets, and idle otherwise. A host thread is Running from its first event to its last, except in calls that have
another state: calls that wait for the device are Synchronization, blocking OS calls are Blocked, and MPI calls have the
states of Extrae. Dark: time without a state.
""",
    Window("States", codes(colours.STATES, ANY_DRAW), events=EVERYTHING, thread=STATE),
    menu="What do the GPUs do?",
)

BASICS.add(
    "cuda_api",
    "CUDA API calls of each host thread, by name",
    """
For nested calls, the innermost is shown.
Stream rows are empty here; views/cuda_activities shows their activity.
""",
    names("CUDA API calls", only(types.CUDA_API)),
    menu="What does the host do?",
)

BASICS.add(
    "kernels",
    "Compute kernels of each stream, and communication kernels except NCCL's, by name",
    """
First window: kernels of libraries other than NCCL that communicate. Second window: kernels that compute.
For NCCL kernels see basics/nccl, and for opaque CUDA graphs basics/graphs.
For kernel classes (GEMM, attention, ...) see analysis/kernel_classes.
""",
    kernel_names("Communication kernels except NCCL's", COMMUNICATION_CLASSES),
    kernel_names("Compute kernels", COMPUTE_CLASSES),
    menu="Which kernels take the time?",
)

BASICS.add(
    "memory_operations",
    "Copies and sets of each stream: kind and bandwidth (GB/s)",
    """
First window: kind of operation. Second window: bandwidth, the bytes of the operation divided by its duration, in GB/s
(10^9 bytes per second). Short operations do not reach link bandwidth. For sizes see analysis/memcpy_sizes.
""",
    Window("Memory operations", codes(colours.MEMORY_OPERATIONS), events=only(types.MEMORY_OPERATION)),
    # The size becomes 0 at the end of an operation, so the next event of the type is the end. Bytes per ns are GB/s.
    Window(
        "Bandwidth of memory operations [GB/s]",
        GRADIENT,
        events=only(types.MEMORY_BYTES),
        thread=function("Avg Last Evt Val", 1),
        units="Nanoseconds",
    ),
    menu="Which memory is used and copied?",
)

_other_domains = names("NVTX ranges of other domains", matching("NVTX * range"))
BASICS.add(
    "nvtx",
    "NVTX push/pop ranges of each host thread; innermost range",
    """
First window: ranges of the default domain. Second window: ranges of all other domains (NCCL, cuBLAS, and domains of the
program). In the second window the meaning of a colour depends on the domain, which Paraver's information panel shows.
For ranges projected onto streams see views/nvtx_on_gpu, for iteration times analysis/iteration_time. For start/end
ranges choose the event type "NVTX start/end range, lane 1" in the filter.
""",
    names("NVTX ranges", NVTX_RANGES),
    _other_domains,
    hidden_first=(_other_domains,),
    menu="What does the host do?",
)

_calls = names("NCCL calls", NCCL_RANGES)
BASICS.add(
    "nccl",
    "NCCL calls of each host thread and NCCL kernels of each stream, by name, with messages between ranks",
    """
First window: NCCL kernels. Lines connect each send with its receive, if NCCL payloads were traced.
Second window: NCCL calls, from the NVTX domain NCCL. A call returns as soon as its kernel is queued. A collective takes
the time of its kernel, which includes the wait for the straggler.
""",
    names("NCCL kernels", only(types.NCCL_KERNEL), messages=Messages((types.TAG_NCCL,))),
    _calls,
    hidden_first=(_calls,),
    menu="What is communicated?",
)

BASICS.add(
    "mpi",
    "MPI calls of each host thread, by name, with messages",
    """
Point-to-point calls are yellow, collectives orange, one-sided calls purple, I/O light blue, other calls grey.
Lines are messages, from the start of the send to the end of the receive.
""",
    Window(
        "MPI calls",
        codes(colours.MPI_CALLS),
        events=span(types.MPI_CALLS["p2p"], types.MPI_CALLS["io"]),
        compose=STACKED,
        messages=Messages((types.TAG_LAUNCH, types.TAG_COPY, types.TAG_NCCL, types.TAG_RELEASE, types.TAG_PATH), "!="),
    ),
    menu="What is communicated?",
)

_pthread = names("pthread calls", only(types.PTHREAD))
BASICS.add(
    "os_runtime",
    "OS runtime and pthread calls of each host thread, by name",
    """
First window: OS runtime calls. Second window: pthread calls.
Calls shorter than 10 us are missing unless the trace was translated with --osrt-min 0.
""",
    names("OS runtime calls", only(types.OS_RUNTIME)),
    _pthread,
    hidden_first=(_pthread,),
    menu="What does the host do?",
)

_modules = Window("Sampled modules", NAMES, events=only(types.SAMPLED_MODULE))
_sampled = sampled_functions("Sampled functions")
BASICS.add(
    "sampled_functions",
    "CPU samples of each host thread by function: timeline, and number of samples",
    """
First window: function of the last sample. Second window: module (library or program) of that function. Histogram:
number of samples of each thread by function; choose the second window as control window to count by module.
A function without a symbol, as in stripped libraries, appears as its module in parentheses. Threads are sampled only
while they run, not while they wait: the last function stays until the next sample. Callers (event types "Sampled
functions (depth n)") are in the trace down to --stack-depth.
For samples taken while GPUs are idle see analysis/sampled_while_gpu_idle.
""",
    _sampled,
    _modules,
    Histogram("Samples by function", _sampled, "# Bursts", maximum=MOST_NAMES),
    hidden_first=(_modules,),
    menu="What does the host do?",
)

_called_python = Window("Functions of libraries that it called", NAMES, events=only(types.CALLED_PYTHON))
_sampled_python = Window("Sampled Python functions", NAMES, events=only(types.SAMPLED_PYTHON[0]))
BASICS.add(
    "sampled_python",
    "Python samples of each host thread by function, over time",
    """
First window: the innermost function of the program in the last sample, with its file. Second window: the function of a
library that it called. Third window: the function that ran. Callers (event types "Sampled Python functions (depth n)")
are in the trace down to --stack-depth.
Needs --python-sampling=true when profiling. Back traces of CUDA calls are in the first window, too.
""",
    Window("Python functions of the program", NAMES, events=only(types.PROGRAM_PYTHON)),
    _called_python,
    _sampled_python,
    hidden_first=(_called_python, _sampled_python),
    menu="What does the host do?",
)

BASICS.add(
    "gil",
    "Threads of Python that hold or wait for its lock (GIL)",
    """
Only one thread of a process holds the lock: the others wait for it, or do without it, as within CUDA and system calls.
Needs --trace=python-gil when profiling.
""",
    names("Python's lock (GIL)", only(families.make_nvtx_range(families.GIL_DOMAIN), families.NVTX_GIL)),
    menu="What does the host do?",
)

BASICS.add(
    "diagnostics",
    "Warnings and errors of nsys on the row of each node",
    """
Each message is drawn until the next one: zoom to its start, or show flags. Messages from after the capture, when nsys
wrote the report, have no time and are missing here; nsys2prv-ng inspect shows all messages.
""",
    Window("Warnings and errors of nsys", NAMES, events=only(types.DIAGNOSTIC)),
    menu="What does the host do?",
)

BASICS.add(
    "graphs",
    "Opaque CUDA graphs of each stream (traced as a whole), by name",
    """
If nsys traced graphs by node (--cuda-graph-trace=node), see basics/kernels for their kernels; this window is empty.
""",
    names("CUDA graphs", only(types.GRAPH_LAUNCH)),
    menu="Which kernels take the time?",
)

BASICS.add(
    "launch_lines",
    "Lines from each CUDA call to the kernel, graph, copy or set that it launched",
    """
Zoom in first: a trace has thousands of lines. A line goes from the start of the call to the start of the operation. A
long line is queued work (see analysis/queue_delay).
API calls are light blue, kernels blue, NCCL kernels orange, memory operations purple, opaque CUDA graphs pale blue.
""",
    cuda_kinds("Calls, operations and launches", messages=LAUNCH_LINES),
    menu="Why are GPUs idle?",
)

_faults_of_cpus = Window("Function of the last CPU page fault", NAMES, events=only(types.CPU_PAGE_FAULT))
BASICS.add(
    "unified_memory",
    "Unified memory page faults: rate on each GPU, and function on CPUs",
    """
First window: GPU page faults per microsecond since the previous group of faults, on the rows Metrics.
Second window: function of the last CPU page fault, on the main thread of its process.
basics/memory_operations shows the resulting migrations.
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
    menu="Which memory is used and copied?",
)

BASICS.add(
    "gpu_contexts",
    "Process and context that each GPU runs, on the rows Metrics",
    """
Ranks that share a GPU take turns, unless they are clients of the same MPS server.
Needs --gpuctxsw=true when profiling.
""",
    names("GPU contexts", only(types.GPU_CONTEXT)),
    menu="What do the GPUs do?",
)

_acc_launches, _acc_other, _acc_lines = (
    names("OpenACC launches", only(types.OPENACC[2])),
    names("OpenACC compute constructs, waits, devices", only(types.OPENACC[0])),
    names("Source lines of OpenACC launches", only(types.OPENACC_SOURCE[2])),
)
BASICS.add(
    "openacc",
    "OpenACC of each host thread: data, launches, other events, and source lines of launches",
    """
First window: data clauses (enter and exit data, uploads, downloads). Second window: launches. Third window: compute
constructs, updates, waits, devices. Fourth window: source lines of the launches. For nested events, the innermost is
shown.
""",
    names("OpenACC data", only(types.OPENACC[1])),
    _acc_launches,
    _acc_other,
    _acc_lines,
    hidden_first=(_acc_launches, _acc_other, _acc_lines),
    menu="What does the host do?",
)

_transfers = Window(
    "Concurrent UCX transfers",
    codes(colours.counts(palette.COMMUNICATION)),
    events=span(types.UCX_TRANSFERS[0], types.UCX_TRANSFERS[-1]),
    compose=NESTING,
)
BASICS.add(
    "ucx",
    "UCX calls of each host thread by name, and number of pending transfers",
    """
First window: calls. Second window: number of transfers that the thread has submitted and that are still pending.
""",
    names("UCX calls", only(types.UCX_CALL)),
    _transfers,
    hidden_first=(_transfers,),
    menu="What is communicated?",
)

BASICS.add(
    "system_calls",
    "System calls of each host thread, by name",
    """
Calls shorter than 10 us are missing unless the trace was translated with --osrt-min 0.
""",
    names("System calls", only(types.SYSTEM_CALL)),
    menu="What does the host do?",
)

_decoding, _jpeg = (
    names("Video decoder calls", only(types.VIDEO_DECODER_CALL)),
    names("JPEG calls", only(types.VIDEO_JPEG_CALL)),
)
_engines = Window(
    "Concurrent jobs of video engines",
    codes(colours.counts(palette.COMPUTE)),
    events=span(types.VIDEO_WORK[0, 0], types.VIDEO_WORK[3, types.VIDEO_LANES - 1]),
    compose=NESTING,
)
BASICS.add(
    "video",
    "Video encoder, decoder and JPEG calls of each host thread, and its jobs on the video engines",
    """
First window: encoder calls. Second window: decoder calls. Third window: JPEG calls. Fourth window: number of jobs of
the thread that are running on the GPU's video engines.
""",
    names("Video encoder calls", only(types.VIDEO_ENCODER_CALL)),
    _decoding,
    _jpeg,
    _engines,
    hidden_first=(_decoding, _jpeg, _engines),
    menu="What does the host do?",
)
