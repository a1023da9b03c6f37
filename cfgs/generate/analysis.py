"""Declares presets that measure how GPUs and streams spend their time: gaps, delays, sizes and durations."""

from __future__ import annotations

from typing import Any

from cfgs.generate import colours
from cfgs.generate.paraver_cfg import (
    ANY_DRAW,
    BEGIN_TIME,
    GRADIENT,
    JOINED,
    LAST_TYPE,
    LOGARITHMIC,
    MAXIMUM,
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
    at_least,
    codes,
    divided,
    equal_to,
    has_value,
    logarithm,
    only,
    product,
    several,
)
from cfgs.generate.shared import (
    COMPUTE_CLASSES,
    FLAG,
    IN_ANY,
    IN_COMPUTE,
    IN_IDLE,
    MOST_NAMES,
    NAMES,
    NVTX_RANGES,
    activity,
    activity_of_ranks,
    activity_or_idle_of_ranks,
    gpus,
    idle_stretches,
    in_class,
    inside,
    kernel_names,
    sampled_functions,
)
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import palette
from nsys2prv_ng.paraver.event_type import EventType

ANALYSIS = Folder("analysis")

_MOST = max(colours.GPU_ACTIVITY)


# ---- GPUs as a whole -------------------------------------------------------------------------------------------------

ANALYSIS.add(
    "gpu-gaps",
    "Idle gaps between GPU operations, coloured by length (us)",
    """
One row per rank. The colour is the length of the whole gap, on a logarithmic scale. If a rank has several GPUs, its
row shows the longest of their gaps at each time. A gap lasts from the end of an operation (kernel, copy, set or graph
of any stream and process) to the start of the next one on the same GPU. Time before a GPU's first operation or after
its last one is not a gap. NVIDIA's gpu_gaps uses the same definition.
analysis/gap_histogram counts the gaps by length.
""",
    idle_stretches("Idle gaps of GPUs [us]", LOGARITHMIC, level=TASK, above=MAXIMUM, top=(divided(1000),)),
    menu="Why are GPUs idle?",
)

ANALYSIS.add(
    "gpu_active",
    "Active GPUs: any kernel, copy, set or graph is running",
    """
One row per rank. The value is the number of active GPUs: 0 or 1 if the rank has one GPU.
""",
    gpus("Active GPUs", IN_ANY, palette.OVERLAP, level=TASK),
    menu="What do the GPUs do?",
)

ANALYSIS.add(
    "gpu_useful",
    "Useful GPUs: compute kernels are running",
    """
One row per rank. The value is the number of GPUs that run compute kernels or graphs: 0 or 1 if the rank has one GPU.
NCCL kernels, copies and sets do not count as useful. If the job uses NCCL, opaque CUDA graphs do not count either,
because they may contain NCCL kernels. This is Useful of the POP metrics for accelerators.
""",
    gpus("Useful GPUs", IN_COMPUTE, palette.COMPUTE, level=TASK),
    menu="What do the GPUs do?",
)

_useful = gpus("Useful GPUs", IN_COMPUTE, palette.COMPUTE, units=MILLISECONDS, level=TASK)
_any_useful = gpus("Any GPU useful", IN_COMPUTE, palette.COMPUTE, level=TASK, top=(SIGN,))
ANALYSIS.add(
    "gpu_useful_sumtime_2dh",
    "Useful GPU time of each rank: total time in compute kernels (ms)",
    """
One row per rank, with the sum over its GPUs. Kernels that overlap on a GPU count once. A GPU shared by several ranks
counts for the lowest rank.
If each rank has one GPU, the average of the column divided by its maximum is the GPU load balance. For several GPUs per
rank, and for GPUs without useful time, see model/gpu_efficiency.
""",
    Histogram("Useful GPU time of each rank [ms]", _any_useful, "Integral", maximum=1, data=_useful),
    menu="What do the GPUs do?",
)

ANALYSIS.add(
    "kernels-inflight",
    "Kernels in flight on each rank: launched and not finished",
    """
A kernel or graph is in flight from the start of its launch call to its own end, whether it is running or queued. The
value is the sum over all GPUs of the rank. If it drops to 0 while the host is busy, the rank is host-bound. If it stays
high, the host is far ahead, and a synchronisation takes long.
""",
    Window("Kernels in flight", GRADIENT, events=only(types.KERNELS_IN_FLIGHT), level=TASK),
    menu="Why are GPUs idle?",
)

_kernels_running = Window(
    "Kernels running",
    codes(colours.counts(palette.COMPUTE)),
    events=only(types.KERNELS_RUNNING),
    level=TASK,
    units=MILLISECONDS,
)
ANALYSIS.add(
    "kernels_running",
    "Concurrent kernels on each rank: timeline, and time per rank by number of kernels (ms)",
    """
One row per rank. The value is the number of kernels over all GPUs and streams of the rank, NCCL kernels included; more
kernels are lighter. An opaque CUDA graph counts as one. Histogram: each column is a number of kernels.
A value above the number of GPUs means that kernels share a GPU. If the value never exceeds it, more streams could fill
a GPU that one kernel leaves partly idle; hwcounters/sm_active shows whether one does.
""",
    _kernels_running,
    Histogram("Time of each rank by concurrent kernels [ms]", _kernels_running, "Time", minimum=1, maximum=64),
    menu="Which kernels take the time?",
)

ANALYSIS.add(
    "overlap-communication-compute-2dh-timeline",
    "Overlapped and exposed communication: timeline, and share of the GPU time of each rank (%)",
    """
Communication is NCCL time. The value Communication is exposed communication; Compute and communication is overlapped
communication. Values with Memory are the same with concurrent copies or sets. An Opaque CUDA graph was traced as a
whole: it may be compute or communication.
Timeline: one row per rank; dark is idle. Histograms: totals over all GPUs (Metrics GPUn), and one row per rank, in
percent of the time from the GPU's first operation to its last. Choose statistic Time for microseconds. If a rank has
several GPUs, its row shows the highest of their values, and idle if no GPU is active; the sigma button shows the row of
each GPU.
""",
    activity_of_ranks(),
    Histogram("Activity of each GPU [%]", activity(), "% Time", maximum=_MOST, only_totals=True),
    Histogram("Activity of the GPU of each rank [%]", activity_or_idle_of_ranks(), "% Time", maximum=_MOST),
    menu="What is communicated?",
)

# Two columns for each power of ten of ns: gaps last from 10 ns to 10^10 ns (10 s).
_GAP_NAME = "log10 of the idle gap [ns]"
_gap_decades = idle_stretches(_GAP_NAME, GRADIENT, top=(logarithm(10),))
_gap_decades_of_ranks = idle_stretches(
    f"{_GAP_NAME} of each rank", GRADIENT, level=TASK, above=MAXIMUM, top=(JOINED, logarithm(10))
)


def _count_gaps(name: str, control: View) -> Histogram:
    return Histogram(name, control, "# Bursts", maximum=11, delta=0.5, only_totals=control.level != TASK)


ANALYSIS.add(
    "gap_histogram",
    "Number of GPU idle gaps of each rank by length, in bins of 1-3 us, 3-10 us, 10-32 us, ...",
    """
First histogram: totals over all GPUs (Metrics GPUn); the sigma button shows the row of each GPU. Second histogram: one
row per rank. If a rank has several GPUs, it counts the longest of their gaps at each time, and no gap within a longer
one.
A column is a range of lengths, two columns per power of ten. Its label is the base-10 logarithm of the length in
nanoseconds: [3.0..3.5) is 1 to 3.2 us, [3.5..4.0) is 3.2 to 10 us, [6.0..6.5) is 1 to 3.2 ms. Choose statistic Time to
see which lengths cost most. Gaps shorter than 10 ns are not counted.
analysis/gpu-gaps defines a gap and shows when gaps occur.
""",
    _count_gaps("Idle gaps of each GPU by log10 of ns", _gap_decades),
    _count_gaps("Idle gaps of each rank by log10 of ns", _gap_decades_of_ranks),
    menu="Why are GPUs idle?",
)

# A sample is a point, and the time until the next sample is a burst of the window. Where idle time starts or ends, it
# cuts a burst into pieces. The first piece starts with the burst, and only the first piece counts. So each sample
# counts once, by the activity of the GPUs at its time.
_gpu_idle = gpus("Any GPU of the rank idle", IN_IDLE, palette.IDLE, level=TASK, top=(SIGN,))
_sampled = sampled_functions("Function of the last sample")
_sampled_at = sampled_functions("Time of the last sample [ns]", compose=BEGIN_TIME, units=NANOSECONDS)
_while_idle = product("Sampled functions while a GPU of the rank is idle", NAMES, _sampled, _gpu_idle)
_piece_at = product("Start of each piece [ns]", GRADIENT, _sampled, _gpu_idle, top=(BEGIN_TIME,), units=NANOSECONDS)
_is_first = Derived(
    "Sample taken here",
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
    "CPU samples of host threads while the GPU is idle, by function",
    """
Timeline: function of the last sample, while a GPU of the rank is idle (see analysis/gpu-gaps). Histogram: number of
samples taken while a GPU of the rank was idle, with a row for each host thread and a column for each function. Look at
the thread that launches the work: its functions show what delays the launches. A function without a symbol, as in
stripped libraries, appears as its module in parentheses. Threads are sampled only while they run, not while they wait:
basics/os_runtime and basics/cuda_api show the waits. Compare with all samples in basics/sampled_functions.
""",
    _while_idle,
    Histogram("Samples taken while a GPU of the rank is idle", _taken_idle, "# Bursts", maximum=MOST_NAMES),
    hidden_first=(_gpu_idle,),
    menu="Why are GPUs idle?",
)

# ---- kernels ---------------------------------------------------------------------------------------------------------

ANALYSIS.add(
    "in_useful_kernel",
    "Streams in a compute kernel: 0 or 1 for each stream",
    """
The value is 1 in a compute kernel, and 0 otherwise. Kernels that communicate, copies and sets do not count. For GPUs as
a whole see analysis/gpu_useful.
""",
    in_class("In a compute kernel", COMPUTE_CLASSES, codes(colours.counts(palette.COMPUTE))),
    menu="Which kernels take the time?",
)

ANALYSIS.add(
    "kernel-timepercent",
    "Share of each compute kernel in the compute time of each stream (%)",
    """
One row per stream, one column per kernel name. Each row adds up to 100: the time of the stream in compute kernels.
Choose statistic % Window Time for the share of the trace, Time for microseconds, # Bursts for the number of kernels.
There is one row per stream, because a row per rank could show only one of several overlapping kernels.
""",
    Histogram("Time in kernels [%]", kernel_names("Compute kernels", COMPUTE_CLASSES), "% Time", maximum=MOST_NAMES),
    menu="Which kernels take the time?",
)

_class = Window("Kernel classes", codes(colours.KERNEL_CLASSES, ANY_DRAW), events=only(types.KERNEL_CLASS))
ANALYSIS.add(
    "kernel_classes",
    "Share of kernel time by kernel class on each stream: GEMMs by precision, attention, NCCL, ... (%)",
    """
Timeline and histogram. The class of a kernel follows from its name. Each row of the histogram adds up to 100: the time
of the stream in kernels. Choose statistic Time for microseconds, # Bursts for the number of kernels. There is one row
per stream, because a row per rank could show only one of several overlapping kernels, such as NCCL or compute.
GEMMs (matrix products) are blue, NCCL is orange, and classes that move data, such as copies, are purple.
""",
    _class,
    Histogram("Kernel time by class [%]", _class, "% Time", maximum=24),
    menu="Which kernels take the time?",
)


def _make_kernel_threads() -> View:
    attributes = [Window(axis.label, GRADIENT, events=only(axis)) for axis in (*types.GRID, *types.BLOCK)]
    # An attribute has an event at the start of a kernel, and no event resets it at the end.
    threads: View = inside("In a compute kernel", only(types.KERNEL))
    for i, attribute in enumerate(attributes):
        name = "Threads of the kernel" if i == len(attributes) - 1 else f"Threads of the kernel, factor {i + 1}"
        threads = product(name, LOGARITHMIC, attribute, threads)
    return threads


ANALYSIS.add(
    "evolution_of_nb_threads_per_kernel",
    "Threads of each compute kernel over time",
    """
The value is grid size times block size (x, y and z) of the kernel on the stream, on a logarithmic scale. A GPU with 132
multiprocessors runs up to 270,336 threads at the same time: smaller kernels leave it partly empty.
""",
    _make_kernel_threads(),
    menu="Which kernels take the time?",
)

# The delay is the last event at the start of a kernel. Without a delay, and at the end, the kernel is the last event.
_has_delay = Window(
    "In a kernel that has a delay",
    GRADIENT,
    events=several(types.KERNEL, types.NCCL_KERNEL, types.QUEUE_DELAY),
    thread=LAST_TYPE,
    compose=equal_to(types.QUEUE_DELAY.number),
)
_delay = Window("Queue delay of the last kernel with one", GRADIENT, events=only(types.QUEUE_DELAY))
_queue_delay = product("Queue delay of the kernel [us]", LOGARITHMIC, _delay, _has_delay, top=(divided(1000),))
_delay_decades = product("log10 of the queue delay [ns]", GRADIENT, _delay, _has_delay, top=(logarithm(10),))
ANALYSIS.add(
    "queue_delay",
    "Queue delay of each kernel: from the end of the launch call to the start of the kernel (us)",
    """
Timeline: while a kernel runs, its queue delay on a logarithmic scale. Histogram: number of kernels of each stream by
delay, in bins of 1-3 us, 3-10 us, 10-32 us, ... The column label is the base-10 logarithm of the delay in nanoseconds:
[3.0..3.5) is 1 to 3.2 us, [6.0..6.5) is 1 to 3.2 ms.
A delay of a few microseconds is launch latency. A longer one means that the kernel waited for earlier work in its
stream, or for another stream. Kernels that started before their call returned have no delay and are not shown, nor are
kernels without a call in the trace. The histogram omits delays shorter than 10 ns. It has one row per stream, because
overlapping kernels of a rank cannot be counted on one row.
""",
    _queue_delay,
    Histogram("Kernels by log10 of the queue delay in ns", _delay_decades, "# Bursts", maximum=11, delta=0.5),
    hidden_first=(_has_delay,),
    menu="Why are GPUs idle?",
)

_readbacks = Window("Where the host waits for the GPU", NAMES, events=only(types.READBACK))
_after_readbacks = Window("Idle after a wait of the host", NAMES, events=only(types.IDLE_AFTER_READBACK))
ANALYSIS.add(
    "read_backs",
    "Read-backs: where host threads wait for the GPU, and how long the GPU is idle after that (us)",
    """
Timelines: on host threads the calls that wait for the GPU, named after the copy that they wait for; on GPUs the idle
time that began during such a wait, until the thread had launched the next operation. Histograms: the time of each, by
copy. A GPU without idle time after a wait loses nothing by it. Many short waits for copies to the host are values that
are read in a loop: .item(), float(x), print. nsys2prv-ng summary --details has the calls, ranges and sizes.
""",
    _readbacks,
    _after_readbacks,
    Histogram("Time of waits for the GPU [us]", _readbacks, "Time", maximum=6),
    Histogram("Idle time after waits [us]", _after_readbacks, "Time", maximum=6),
    menu="Why are GPUs idle?",
)

# ---- memory ----------------------------------------------------------------------------------------------------------


def _in_operations(name: str, operations: tuple[int, ...], **properties: Any) -> Window:
    return Window(name, FLAG, events=only(types.MEMORY_OPERATION), thread=has_value(*operations), **properties)


def _make_memory_kind(name: str, event_type: EventType, operations: tuple[int, ...]) -> Histogram:
    """Return a histogram of the time (ms) of these operations by kind of memory, with a row for each rank.

    An operation with a kind has an event for it at its start, and none that resets it at its end. The times of
    overlapping operations add up.
    """
    look = codes(colours.MEMORY_KINDS)
    kind = Window(event_type.label, look, events=only(event_type))
    within = _in_operations("In a memory operation", operations)
    running = _in_operations("Concurrent memory operations", operations, level=TASK, units=MILLISECONDS)
    control = product(f"{event_type.label}, while it lasts", look, kind, within, level=TASK, above=MAXIMUM)
    return Histogram(name, control, "Integral", maximum=len(colours.MEMORY_KINDS) - 1, data=running)


_OPERATIONS = tuple(types.MEMORY_OPERATION.values or {})
_COPIES = tuple(value for value in _OPERATIONS if value != 6)  # a set copies from nowhere
_size = Window("log2 of the size [bytes]", GRADIENT, events=only(types.MEMORY_BYTES), top=(logarithm(2),))
ANALYSIS.add(
    "memcpy_sizes",
    "Copies and sets: count by size on each stream, and time per rank by memory kind (pageable, pinned, ...)",
    """
First histogram: number of operations by size, in powers of two: column 10 is 1 to 2 KiB, column 20 is 1 to 2 MiB. It
has one row per stream, because overlapping operations of a rank cannot be counted on one row. Choose statistic Time to
see which sizes cost most. Operations of less than 2 bytes are not counted.
Second and third histogram: time of the operations of each rank (ms) by destination and by source memory kind. The time
of overlapping operations adds up; if their kinds differ, all of it is in the last of their columns. Copies between
device and pageable memory are slower than copies with pinned memory, and their calls block.
For bandwidth see basics/memory_operations.
""",
    Histogram("Memory operations by log2 of bytes", _size, "# Bursts", maximum=50),
    _make_memory_kind("Time by destination memory kind [ms]", types.MEMORY_DESTINATION_KIND, _OPERATIONS),
    _make_memory_kind("Time by source memory kind [ms]", types.MEMORY_SOURCE_KIND, _COPIES),
    menu="Which memory is used and copied?",
)

# ---- iterations ------------------------------------------------------------------------------------------------------


def _select_depth(depth: int) -> View:
    """Select the whole ranges of one nesting depth, so that ranges nested in them do not cut them."""
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
    at_depth = product(f"Range while at depth {depth}", GRADIENT, name, is_depth)
    look = codes(colours.NAMES)
    title = f"NVTX ranges of depth {depth}"
    return Derived(title, look, operation="controlled: maximum", first=at_depth, second=within, units=MILLISECONDS)


def _average_durations(ranges: View, name: str) -> Histogram:
    return Histogram(name, ranges, "Average Burst Time", maximum=MOST_NAMES)


_outer, _inner = _select_depth(1), _select_depth(2)
ANALYSIS.add(
    "iteration_time",
    "Average duration of NVTX ranges by name and host thread (ms): outermost ranges and the next level",
    """
Timelines and histograms of push/pop ranges of the default domain: ranges at depth 1, such as iterations or steps, and
ranges at depth 2, such as their phases. Durations include nested ranges. A number in a range's name ("step 3") is cut
off, so that all steps share one column. Choose statistic Maximum or Stdev Burst Time to see the variation, # Bursts to
count the ranges. If iterations are nested deeper, change the depth in the functions Is In Range and Is Equal of the
windows.
""",
    _outer,
    _inner,
    _average_durations(_inner, "Average duration of ranges of depth 2 [ms]"),
    _average_durations(_outer, "Average duration of ranges of depth 1 [ms]"),
    menu="What does the host do?",
)
