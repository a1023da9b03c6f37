"""Declares presets of waits: which ranks wait, for which straggler and how long, and the root cause of its delay.

Their files are in the folder `analysis`. Waits are derived over all ranks of a job: an NCCL kernel, or an MPI call,
waits until the last rank has started its own, and then transfers data. An unclassified kernel or call counts only in
the windows of GPUs.

Rows of ranks show the highest value of the rank's streams and threads. So transfer (2) prevails over wait (1): a rank
waits only while none of its streams and threads transfers data.
"""

from __future__ import annotations

from cfgs.generate import colours
from cfgs.generate.paraver_cfg import (
    ANY_DRAW,
    GRADIENT,
    JOINED,
    LOGARITHMIC,
    MAXIMUM,
    MILLISECONDS,
    SIGN,
    TASK,
    Derived,
    Folder,
    Function,
    Histogram,
    Look,
    Messages,
    View,
    Window,
    codes,
    divided,
    has_value,
    logarithm,
    only,
    product,
    span,
)
from cfgs.generate.shared import (
    FLAG,
    GPU_MOVING,
    GPU_NOT_SPLIT,
    GPU_WAITING,
    MOST_NAMES,
    NAMES,
    activity_with_waits,
    activity_with_waits_of_ranks,
    names,
    ranks,
)
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType

_RELEASES = Messages((types.TAG_RELEASE,))
_LATENESS_DECADES = 11


def _show_ranks(name: str, look: Look, event_type: EventType, messages: Messages | None = None) -> Window:
    """Show the highest value among the streams and threads of each rank."""
    return ranks(name, look, only(event_type), units=MILLISECONDS, messages=messages)


WAITS = Folder("analysis")

# ---- waits of ranks --------------------------------------------------------------------------------------------------

_waited_for = _show_ranks("Straggler", codes(colours.NAMES, ANY_DRAW), types.WAITED_FOR, _RELEASES)
_reason = _show_ranks(
    "Root cause of the arrival delay", codes(colours.LATE_REASONS, ANY_DRAW), types.WAIT_REASON, _RELEASES
)
WAITS.add(
    "waited_for",
    "Straggler that each rank waits for, and root cause of its delay: timeline, and wait time per straggler (ms)",
    """
One row per rank. First window: the colour is the straggler, the rank that arrived last. Lines lead from it to the ranks
that it released. Second window: the root cause of its delay. Histograms: wait time of each rank, by straggler and by
root cause. In the histogram by straggler, the column with the highest total is the rank that costs the others most.
A wait in analysis/nccl_waiting is dark here if no rank was last by more than the clock error. If a rank waits for
several stragglers at once, its row shows the highest number.
analysis/lateness shows the arrival delay of each rank.
""",
    _waited_for,
    _reason,
    Histogram("Wait time by root cause [ms]", _reason, "Time", maximum=max(types.LATE_REASONS)),
    Histogram("Wait time by straggler [ms]", _waited_for, "Time", maximum=MOST_NAMES),
    hidden_first=(_reason,),
    menu="Who waits for whom?",
)


_parts = Window("Wait and transfer", codes(colours.PARTS, ANY_DRAW), events=only(types.OPERATION_PART))
_parts_of_ranks = _show_ranks(
    "Wait and transfer of each rank", codes(colours.PARTS, ANY_DRAW), types.OPERATION_PART, _RELEASES
)
WAITS.add(
    "nccl_waiting",
    "NCCL kernels and MPI calls split into wait for the straggler and data transfer: timeline, and time per rank (ms)",
    """
Rust: wait until the last rank arrives. Orange: data transfer. Unclassified kernels and calls are dark here; the final
report of the translation counts them by reason.
First window: one row per rank. A rank waits if one of its kernels or calls waits and none transfers data. Lines lead
from the straggler to the ranks that it released. Second window: the same for each stream and thread. Histogram: time in
the first window. The rank with the least wait time is often the straggler: see analysis/waited_for.
""",
    _parts_of_ranks,
    _parts,
    Histogram("Wait and transfer of each rank [ms]", _parts_of_ranks, "Time", maximum=types.MOVING_PART),
    menu="Who waits for whom?",
)


def _show_lateness(name: str, look: Look, *top: Function, messages: Messages | None = None) -> Window:
    """Show the arrival delay of each rank during the kernel or call for which the others waited.

    If a rank is late in two streams at once, the larger delay is one burst.
    """
    top = (JOINED, *top)
    return ranks(name, look, only(types.LATENESS), top=top, units=MILLISECONDS, messages=messages)


_late_decades = _show_lateness("log10 of the arrival delay [ns]", GRADIENT, logarithm(10))
_late_milliseconds = _show_lateness("Arrival delay [ms]", GRADIENT, divided(1_000_000))
WAITS.add(
    "lateness",
    "Arrival delay of each rank in communication: timeline, count of last arrivals by delay, and total delay (ms)",
    """
The arrival delay is the time from the start of the last of the other ranks to the start of the straggler, in an NCCL
kernel or MPI call in which the others waited. It is shown while the straggler's kernel or call runs.
Timeline: one row per rank, on a logarithmic scale (us). Lines lead to the ranks that waited. Histograms: number of last
arrivals of each rank, and total arrival delay (ms), in bins of 1-3 us, 3-10 us, 10-32 us, ... The column label is the
base-10 logarithm of the delay in nanoseconds: [3.0..3.5) is 1 to 3.2 us, [6.0..6.5) is 1 to 3.2 ms. If a rank is late
in two streams at once, the larger delay counts. The histograms omit delays below 10 ns. analysis/waited_for shows what
the delays cost the other ranks.
""",
    _show_lateness("Arrival delay of each rank [us]", LOGARITHMIC, divided(1000), messages=_RELEASES),
    Histogram(
        "Total arrival delay [ms] by log10 of ns",
        _late_decades,
        "Sum bursts",
        maximum=_LATENESS_DECADES,
        delta=0.5,
        data=_late_milliseconds,
    ),
    Histogram("Last arrivals by log10 of ns", _late_decades, "# Bursts", maximum=_LATENESS_DECADES, delta=0.5),
    menu="Who waits for whom?",
)

# ---- GPUs as a whole -------------------------------------------------------------------------------------------------

_exposed_values = (GPU_MOVING, GPU_WAITING, GPU_NOT_SPLIT)
_exposed = activity_with_waits_of_ranks(
    "Exposed communication of each rank",
    *(value for value in types.GPU_WAITS if value and value not in _exposed_values),
    units=MILLISECONDS,
)
WAITS.add(
    "exposed_communication",
    "Exposed communication, split into wait and data transfer: timeline, and time per rank (ms)",
    """
Exposed communication is NCCL time that no compute overlaps. Rust: exposed wait for a straggler, which better load
balance would save. Orange: exposed data transfer, which a faster network or more overlap would save. Pale orange:
unclassified.
Timeline and second histogram: one row per rank. If a rank has several GPUs, its row shows the highest of their values.
First histogram: everything that the GPUs (Metrics GPUn) do, in percent of the time from the first operation to the
last. During overlapped transfers and waits, the GPU computes. The histogram shows totals; the sigma button shows the
row of each GPU. views/per_gpu_waits shows the same over time.
""",
    _exposed,
    Histogram(
        "Activity of each GPU, with waits [%]",
        activity_with_waits(),
        "% Time",
        maximum=max(types.GPU_WAITS),
        only_totals=True,
    ),
    Histogram("Exposed communication of each rank [ms]", _exposed, "Time", minimum=GPU_MOVING, maximum=GPU_NOT_SPLIT),
    menu="Who waits for whom?",
)

# ---- pipelines -------------------------------------------------------------------------------------------------------

# The bytes of sends and receives are not 0 while a kernel that carries them out runs. The names of kernels would need
# no payload, but their values differ between traces. Between the types of bytes is the type of the peer, which has an
# event only at the start of a kernel, so that the last event of the range is 0 when the kernel has ended.
_in_send_receive = Window(
    "In an NCCL kernel that sends or receives",
    FLAG,
    events=span(types.NCCL_SEND_BYTES, types.NCCL_RECEIVE_BYTES),
    compose=SIGN,
)
_is_waiting = Window("Wait", FLAG, events=only(types.OPERATION_PART), thread=has_value(types.WAITING_PART))
_on_gpu = families.make_nvtx_on_gpu("", 0)
_range = names("NVTX range on the stream", only(_on_gpu, families.NVTX_DEFAULT + _on_gpu.number))
_rank = Window("Straggler on the stream", NAMES, events=only(types.WAITED_FOR))
_bubble = product("Wait in a send or receive", FLAG, _is_waiting, _in_send_receive)


def _show_bubble(name: str, value: View, while_in: View, messages: Messages | None = None) -> Derived:
    """Show a value of streams while they wait in a send or receive, with a row per rank."""
    return product(name, NAMES, value, while_in, level=TASK, above=MAXIMUM, units=MILLISECONDS, messages=messages)


_bubble_rank = _show_bubble("Straggler in sends and receives", _rank, _in_send_receive)
_bubble_range = _show_bubble("NVTX range of waits in sends and receives", _range, _bubble)
WAITS.add(
    "pipeline_bubble",
    "Pipeline bubble: wait time in NCCL sends and receives, by straggler and by NVTX range",
    """
One row per rank. First window: the colour is the straggler, in a kernel that sends or receives. Second window: the
colour is the innermost NVTX range that launched the kernel, such as the forward pass of a microbatch. Histograms: wait
time of each rank in sends and receives (ms), by NVTX range and by straggler. Long waits of later stages in the first
microbatches, and of earlier stages in the last ones, are the bubble of each iteration. Waits of the same length in
every microbatch mean load imbalance between stages.
Needs NCCL payloads in the trace, which tell what a kernel sends and receives. The second window needs NVTX ranges of
the default domain.
""",
    _bubble_rank,
    _bubble_range,
    Histogram("Wait time in sends and receives, by NVTX range [ms]", _bubble_range, "Time", maximum=MOST_NAMES),
    Histogram("Wait time in sends and receives, by straggler [ms]", _bubble_rank, "Time", maximum=MOST_NAMES),
    hidden_first=(_range, _rank, _is_waiting, _in_send_receive),
    menu="Who waits for whom?",
)
