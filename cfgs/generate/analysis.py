"""Presets that measure: how GPUs and streams spend their time, gaps, delays, sizes and durations."""

from __future__ import annotations

from cfgs.generate import palette
from cfgs.generate.paraver_cfg import (
    ANY_DRAW,
    BEGIN_TIME,
    GRADIENT,
    JOINED,
    LAST_TYPE,
    LOGARITHMIC,
    MILLISECONDS,
    NANOSECONDS,
    NESTING,
    SIGN,
    STACKED,
    TASK,
    Derived,
    Folder,
    Histogram,
    View,
    Window,
    any_of,
    at_least,
    codes,
    divided,
    equal_to,
    logarithm,
    one_of,
    only,
    product,
)
from cfgs.generate.shared import (
    FLAG,
    IN_ANY,
    IN_COMPUTE,
    IN_IDLE,
    MOST_NAMES,
    NAMES,
    NVTX_RANGES,
    activity,
    activity_of_ranks,
    gpus,
    idle_stretches,
    inside,
    names,
    sampled_functions,
)
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType

ANALYSIS = Folder("analysis")


# ---- GPUs as a whole -------------------------------------------------------------------------------------------------

ANALYSIS.add(
    "gpu-gaps",
    "How long GPUs are idle between operations: each idle stretch by its length (us)",
    """
A row for each rank; of several GPUs the longest stretch at each time. The colour is the length of the whole stretch,
on a logarithmic scale. A GPU is idle from the end of an operation (kernel, copy, set or graph of any stream and
process) to the begin of the next, never before its first nor after its last: NVIDIA's gpu_gaps.
How many there are of which length is in analysis/gap_histogram.
""",
    idle_stretches("Idle stretches of GPUs [us]", LOGARITHMIC, level=TASK, above="Maximum", top=(divided(1000),)),
)

ANALYSIS.add(
    "gpu_active",
    "When GPUs are active: any kernel, copy, set or graph runs",
    """
A row for each rank; the value is the number of its GPUs that are active, 0 or 1 where a rank has one.
""",
    gpus("Active GPUs", IN_ANY, palette.OVERLAP, level=TASK),
)

ANALYSIS.add(
    "gpu_useful",
    "When GPUs do useful work: compute kernels run",
    """
A row for each rank; the value is the number of its GPUs that are in compute kernels or graphs, 0 or 1 where a rank
has one. NCCL kernels, copies and sets are not useful here: this is Useful of the POP metrics for accelerators.
""",
    gpus("Useful GPUs", IN_COMPUTE, palette.COMPUTE, level=TASK),
)

_useful = gpus("Useful GPUs", IN_COMPUTE, palette.COMPUTE, units=MILLISECONDS)
ANALYSIS.add(
    "gpu_useful_sumtime_2dh",
    "Useful time of each GPU: sum of the time in compute kernels (ms)",
    """
A row for each GPU (Metrics GPUn). Kernels that overlap on a GPU count once.
Average over maximum of the column is the load balance of GPUs; with statistic % Window Time it is the share of the
trace.
""",
    Histogram("Useful time of each GPU [ms]", _useful, "Time", maximum=1),
)

ANALYSIS.add(
    "kernels-inflight",
    "Kernels in flight on each rank: launched and not finished",
    """
A kernel or graph is in flight from the begin of its launch call to its end, running or waiting in a stream. GPUs of a
rank are added. Where it falls to 0 while the host is busy, the GPU waits for the host; where it is high all the time,
the host is far ahead and a synchronisation will take long.
""",
    Window("Kernels in flight", GRADIENT, events=only(types.KERNELS_IN_FLIGHT), level=TASK),
)

ANALYSIS.add(
    "overlap-communication-compute-2dh-timeline",
    "Communication that compute hides, and that it does not: percent of each GPU's time, and when",
    """
Timeline: a row for each rank; of several GPUs the highest value; dark is idle. Histogram: on the rows Metrics
GPUn, one for each GPU. Communication is time in NCCL kernels. Alone it is exposed; Compute
and communication is hidden. Values with Memory are the same with copies or sets beside.
Percent of the time from the GPU's first operation to its last; choose statistic Time for microseconds.
""",
    activity_of_ranks(),
    Histogram("Activity of each GPU [%]", activity(), "% Time", maximum=8),
)

# Decades of ns in halves: gaps are from 10 ns to 10^10 ns (10 s).
_gap_decades = idle_stretches("log10 of the idle stretch [ns]", GRADIENT, top=(logarithm(10),))
ANALYSIS.add(
    "gap_histogram",
    "Number of idle stretches of each GPU by their length, in half decades of nanoseconds",
    """
A row for each GPU (Metrics GPUn). Columns are powers of ten: [3.0..3.5) is from 1 us to 3.2 us, [6.0..6.5) from 1 ms
to 3.2 ms. Choose statistic Time to see which lengths cost most. Definition: see
analysis/gpu-gaps. Stretches below 10 ns are left out.
""",
    Histogram("Idle stretches by log10 of ns", _gap_decades, "# Bursts", maximum=11, delta=0.5),
)

# A sample is a point, and the time until the next sample is a burst of the window. Begins and ends of idle time cut a
# burst into pieces. The first piece begins when the burst does: each sample counts once, by what the GPUs did when it
# was taken.
_gpu_idle = gpus("A GPU of the rank is idle", IN_IDLE, palette.IDLE, level=TASK, top=(SIGN,))
_sampled = sampled_functions("Function of the last sample")
_sampled_at = sampled_functions("Time of the last sample [ns]", compose=BEGIN_TIME, units=NANOSECONDS)
_while_idle = product("Sampled functions while a GPU of the rank is idle", NAMES, _sampled, _gpu_idle)
_piece_at = product("Begin of each piece [ns]", GRADIENT, _sampled, _gpu_idle, top=(BEGIN_TIME,), units=NANOSECONDS)
_is_first = Derived(
    "Where a sample was taken",
    FLAG,
    operation="substract",
    first=_piece_at,
    second=_sampled_at,
    top=(equal_to(0),),
    units=NANOSECONDS,
)
_taken_idle = product("Functions of samples taken while a GPU of the rank is idle", NAMES, _while_idle, _is_first)
ANALYSIS.add(
    "sampled_while_gpu_idle",
    "Where the host is while the GPU idles: functions that samples of the CPU found host threads in meanwhile",
    """
Timeline: the function of the last sample, while a GPU of the rank is idle (see analysis/gpu-gaps). Histogram: a row for
each host thread, a column for each function: number of samples that were taken while a GPU of the rank was idle. The
thread that launches the work tells what keeps it from launching. A function without a name, as in stripped libraries,
is shown as its module in parentheses. A thread is sampled while it runs, not while it waits: what it waits for is in
basics/os_runtime and basics/cuda_api. Compare with all samples in basics/sampled_functions.
""",
    _while_idle,
    Histogram("Samples taken while a GPU of the rank is idle", _taken_idle, "# Bursts", maximum=MOST_NAMES),
    hidden_first=(_gpu_idle,),
)

# ---- kernels ---------------------------------------------------------------------------------------------------------

ANALYSIS.add(
    "in_useful_kernel",
    "When each stream is in a compute kernel",
    """
1 in a compute kernel, else 0; NCCL kernels, copies and sets are not counted. For whole GPUs see analysis/gpu_useful.
""",
    Window("In a compute kernel", codes(palette.counts(palette.COMPUTE)), events=only(types.KERNEL), compose=NESTING),
)

ANALYSIS.add(
    "kernel-timepercent",
    "Share of each compute kernel in the kernel time of each stream (%)",
    """
A row for each stream, a column for each name. Rows add up to 100: the time of the stream in compute kernels. Choose
statistic % Window Time for the share of the trace, Time for microseconds, # Bursts for the number of kernels.
""",
    Histogram("Time in kernels [%]", names("Compute kernels", only(types.KERNEL)), "% Time", maximum=MOST_NAMES),
)

_class = Window("Kernel classes", codes(palette.KERNEL_CLASSES, ANY_DRAW), events=only(types.KERNEL_CLASS))
ANALYSIS.add(
    "kernel_classes",
    "Time of each stream in classes of kernels: matrix products by precision, attention, NCCL, ... (%)",
    """
Timeline and histogram. Classes are told from the kernels' names; rows of the histogram add up to 100, the time of the
stream in kernels. Choose statistic Time for microseconds, # Bursts for the number of kernels.
Matrix products (GEMM) are blue, NCCL is orange, what moves data is purple.
""",
    _class,
    Histogram("Time in classes of kernels [%]", _class, "% Time", maximum=24),
)


def _make_kernel_threads() -> View:
    attributes = [Window(axis.label, GRADIENT, events=only(axis)) for axis in (*types.GRID, *types.BLOCK)]
    # Attributes are given at the begin of a kernel and not reset at its end.
    threads: View = inside("In a compute kernel", only(types.KERNEL))
    for i, attribute in enumerate(attributes):
        name = "Threads of the kernel" if i == len(attributes) - 1 else f"Threads of the kernel, factor {i + 1}"
        threads = product(name, LOGARITHMIC, attribute, threads)
    return threads


ANALYSIS.add(
    "evolution_of_nb_threads_per_kernel",
    "Number of threads of each compute kernel over time",
    """
Grid times block (x, y and z) of the kernel that runs on each stream, on a logarithmic scale. A GPU of 132
multiprocessors holds 270,336 threads at a time: smaller kernels leave it partly empty.
""",
    _make_kernel_threads(),
)

# On the line of a kernel's begin the delay is the last event; at its end, and without a delay, the kernel is.
_has_delay = Window(
    "In a kernel that has a delay",
    GRADIENT,
    events=any_of(types.KERNEL, types.NCCL_KERNEL, types.QUEUE_DELAY),
    thread=LAST_TYPE,
    compose=equal_to(types.QUEUE_DELAY.number),
)
_delay = Window("Queue delay of the last kernel that had one", GRADIENT, events=only(types.QUEUE_DELAY))
_queue_delay = product("Queue delay of the kernel [us]", LOGARITHMIC, _delay, _has_delay, top=(divided(1000),))
_delay_decades = product("log10 of the queue delay [ns]", GRADIENT, _delay, _has_delay, top=(logarithm(10),))
ANALYSIS.add(
    "queue_delay",
    "How long kernels waited in their stream: from the end of the launch call to their start (us)",
    """
Timeline: while a kernel runs, how long it had waited, on a logarithmic scale. Histogram: number of kernels of each
stream by their delay, in half decades of nanoseconds: [3.0..3.5) is from 1 us to 3.2 us, [6.0..6.5) from 1 ms to 3.2
ms. Kernels that started before their call returned have no delay and are left out, as are those without a call in the
trace. Delays below 10 ns are not in the histogram. Some microseconds are the latency of a launch; more is work before
it in the stream, or waiting for another stream.
""",
    _queue_delay,
    Histogram("Kernels by log10 of the queue delay in ns", _delay_decades, "# Bursts", maximum=11, delta=0.5),
    hidden_first=(_has_delay,),
)

# ---- memory ----------------------------------------------------------------------------------------------------------


def _make_memory_kind(name: str, event_type: EventType, operations: tuple[int, ...]) -> Histogram:
    """Make a histogram of operations by kind of memory.

    The kind is given at the begin of an operation that has one, and not reset at its end.
    """
    look = codes(palette.MEMORY_KINDS)
    kind = Window(event_type.label, look, events=only(event_type))
    within = Window("In a memory operation", FLAG, events=only(types.MEMORY_OPERATION), thread=one_of(*operations))
    control = product(f"{event_type.label}, while it lasts", look, kind, within, units=MILLISECONDS)
    return Histogram(name, control, "Time", maximum=len(palette.MEMORY_KINDS) - 1)


_OPERATIONS = tuple(types.MEMORY_OPERATION.values or {})
_COPIES = tuple(value for value in _OPERATIONS if value != 6)  # a set copies from nowhere
_size = Window("log2 of the size [bytes]", GRADIENT, events=only(types.MEMORY_BYTES), top=(logarithm(2),))
ANALYSIS.add(
    "memcpy_sizes",
    "Copies and sets of each stream by size in powers of two of bytes, and by kind of memory (pageable, pinned, ...)",
    """
Three histograms with a row for each stream. By the kind of memory copied to and copied from: time of the operations
(ms); # Bursts counts them. Copies between device and pageable memory are slower than with pinned memory, and their
calls wait. By size: number of operations. Column 10 is from 1 KiB to 2 KiB, column 20 from 1 MiB to 2 MiB. Choose
statistic Time to see which sizes cost most. Operations of less than 2 bytes are left out. Bandwidths are in
basics/memory_operations.
""",
    _make_memory_kind("Time by kind of memory copied to [ms]", types.MEMORY_DESTINATION_KIND, _OPERATIONS),
    _make_memory_kind("Time by kind of memory copied from [ms]", types.MEMORY_SOURCE_KIND, _COPIES),
    Histogram("Memory operations by log2 of bytes", _size, "# Bursts", maximum=50),
)

# ---- iterations ------------------------------------------------------------------------------------------------------


def _select_depth(depth: int) -> View:
    """Select the ranges at a depth of nesting as a whole: ranges that nest deeper do not cut them."""
    within = Window(
        f"In a range of depth {depth}",
        GRADIENT,
        events=NVTX_RANGES,
        compose=NESTING,
        top=(at_least(depth), JOINED),
        units=MILLISECONDS,
    )
    name = Window(f"Innermost range (for depth {depth})", GRADIENT, events=NVTX_RANGES, compose=STACKED)
    is_depth = Window(f"Depth is {depth}", GRADIENT, events=NVTX_RANGES, compose=NESTING, top=(equal_to(depth),))
    at_depth = product(f"Range while it is of depth {depth}", GRADIENT, name, is_depth)
    look = codes(palette.NAMES)
    title = f"NVTX ranges of depth {depth}"
    return Derived(title, look, operation="controlled: maximum", first=at_depth, second=within, units=MILLISECONDS)


def _average_durations(ranges: View, name: str) -> Histogram:
    return Histogram(name, ranges, "Average Burst Time", maximum=MOST_NAMES)


_outer, _inner = _select_depth(1), _select_depth(2)
ANALYSIS.add(
    "iteration_time",
    "Average duration of NVTX ranges by name and host thread (ms): outermost ranges, and those inside of them",
    """
Timelines and histograms of push/pop ranges of the default domain: those of depth 1, as iterations or steps, and those
of depth 2, as their phases. Durations are of whole ranges, what is nested included; a number in a range's name ("step
3") is cut off, so that all steps are one column. Choose statistic Maximum or Stdev Burst Time for what varies, #
Bursts for how many. If iterations are deeper, change the depth in the functions Is In Range and Is Equal of the
windows.
""",
    _outer,
    _inner,
    _average_durations(_inner, "Average duration of ranges of depth 2 [ms]"),
    _average_durations(_outer, "Average duration of ranges of depth 1 [ms]"),
)
