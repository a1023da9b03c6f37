"""Declares presets of waits: which ranks wait, for whom and how long, and why the rank waited for was late.

Their files are in the folder `analysis`. Waits are derived over all ranks of a job: an NCCL kernel, or an MPI call,
waits until the last rank has started its own, and then moves data. A kernel or call that could not be split counts only
in the windows of GPUs.

Rows of ranks show the highest value of the rank's streams and threads. So moving (2) prevails over waiting (1): a rank
waits only while none of its streams and threads moves data.
"""

from __future__ import annotations

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
from nsys2prv_ng.paraver import families, palette
from nsys2prv_ng.paraver.event_type import EventType

_RELEASES = Messages((types.TAG_RELEASE,))
_LATENESS_DECADES = 11


def _show_ranks(name: str, look: Look, event_type: EventType, messages: Messages | None = None) -> Window:
    """Show the highest value among the streams and threads of each rank."""
    return ranks(name, look, only(event_type), units=MILLISECONDS, messages=messages)


WAITS = Folder("analysis")

# ---- waiting and moving ----------------------------------------------------------------------------------------------

_parts = Window("Waiting and moving", codes(palette.PARTS, ANY_DRAW), events=only(types.OPERATION_PART))
_parts_of_ranks = _show_ranks(
    "Waiting and moving of each rank", codes(palette.PARTS, ANY_DRAW), types.OPERATION_PART, _RELEASES
)
WAITS.add(
    "nccl_waiting",
    "NCCL kernels and MPI calls split into waiting for a rank and moving data: over time, and time of each rank (ms)",
    """
Rust is waiting until the last rank has begun, orange is moving data. Kernels and calls that could not be split are dark
here: the account that the translation prints counts them with the reasons.
First window: one row per rank. A rank waits where a kernel or call of it waits and none moves data. Lines lead from the
last rank to those that it released. Second window: the same for each stream and thread. Histogram: time of the first
window. A rank that waits little is one that the others wait for: see analysis/waited_for.
""",
    _parts_of_ranks,
    _parts,
    Histogram("Waiting and moving of each rank [ms]", _parts_of_ranks, "Time", maximum=types.MOVING_PART),
)

# ---- who is waited for, and why --------------------------------------------------------------------------------------

_waited_for = _show_ranks("Rank waited for", codes(palette.NAMES, ANY_DRAW), types.WAITED_FOR, _RELEASES)
_reason = _show_ranks(
    "Why the rank waited for was late", codes(palette.LATE_REASONS, ANY_DRAW), types.WAIT_REASON, _RELEASES
)
WAITS.add(
    "waited_for",
    "Rank that each rank waits for, and why that rank was late: over time, and time waited for each rank (ms)",
    """
One row per rank. First window: the colour is the rank waited for, the one that began last. Lines lead from it to those
that it released. Second window: why it was late. Histograms: time that each rank waits, by the rank waited for and by
the reason. In the first, the column with the highest total is the rank that costs the others most.
A wait in analysis/nccl_waiting is dark here if no rank was last by more than the uncertainty of the clocks. If a rank
waits for several ranks at once, its row shows the highest number.
analysis/lateness shows by how much a rank was late.
""",
    _waited_for,
    _reason,
    Histogram("Time waited by reason [ms]", _reason, "Time", maximum=max(types.LATE_REASONS)),
    Histogram("Time waited by rank waited for [ms]", _waited_for, "Time", maximum=MOST_NAMES),
    hidden_first=(_reason,),
)


def _show_lateness(name: str, look: Look, *top: Function, messages: Messages | None = None) -> Window:
    """Show the lateness of each rank during the kernel or call for which the others waited.

    If a rank is late in two streams at once, the larger lateness is one burst.
    """
    top = (JOINED, *top)
    return ranks(name, look, only(types.LATENESS), top=top, units=MILLISECONDS, messages=messages)


_late_decades = _show_lateness("log10 of the lateness [ns]", GRADIENT, logarithm(10))
_late_milliseconds = _show_lateness("Lateness [ms]", GRADIENT, divided(1_000_000))
WAITS.add(
    "lateness",
    "By how much each rank was late in communication: over time, number of times by lateness, and sum (ms)",
    """
Lateness is by how much a rank began after the last of the others, in an NCCL kernel or MPI call that they waited in. It
is shown while that kernel or call of the late rank lasts.
Timeline: one row per rank, on a logarithmic scale (us); lines lead to the ranks that waited. Histograms: number of
times that each rank was last, and sum of its lateness (ms), by lateness in classes 1-3 us, 3-10 us, 10-32 us, ... A
column is labelled with the logarithm (base 10) of the lateness in nanoseconds: [3.0..3.5) is 1 to 3.2 us, [6.0..6.5) is
1 to 3.2 ms. Where a rank is late in two streams at once, the larger lateness counts. Lateness below 10 ns is not in the
histograms. What the lateness cost the others is in analysis/waited_for.
""",
    _show_lateness("Lateness of each rank [us]", LOGARITHMIC, divided(1000), messages=_RELEASES),
    Histogram(
        "Sum of lateness [ms] by log10 of ns",
        _late_decades,
        "Sum bursts",
        maximum=_LATENESS_DECADES,
        delta=0.5,
        data=_late_milliseconds,
    ),
    Histogram("Times last by log10 of ns", _late_decades, "# Bursts", maximum=_LATENESS_DECADES, delta=0.5),
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
    "Communication that no compute hides, by waiting for a rank and moving data: over time, and time of each rank (ms)",
    """
Exposed communication is time in NCCL kernels while the GPU computes nothing. Rust is waiting for a rank, which a better
balance would save. Orange is moving data, which a faster network or more overlap would save. Pale orange could not be
split.
Timeline and second histogram: one row per rank. If a rank has several GPUs, its row shows the highest of their values.
First histogram: everything that the GPUs (Metrics GPUn) do, in percent of the time from the first operation to the
last; hidden communication is in the columns of compute. It shows the totals; the button with a sigma shows the row of
each GPU. views/per_gpu_waits shows the same over time.
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
_is_waiting = Window("Waiting", FLAG, events=only(types.OPERATION_PART), thread=has_value(types.WAITING_PART))
_on_gpu = families.make_nvtx_on_gpu("", 0)
_range = names("NVTX range on the stream", only(_on_gpu, families.NVTX_DEFAULT + _on_gpu.number))
_rank = Window("Rank waited for on the stream", NAMES, events=only(types.WAITED_FOR))
_bubble = product("Waiting in a send or receive", FLAG, _is_waiting, _in_send_receive)


def _show_bubble(name: str, value: View, while_in: View, messages: Messages | None = None) -> Derived:
    """Show a value of streams while they wait in a send or receive, with a row per rank."""
    return product(name, NAMES, value, while_in, level=TASK, above=MAXIMUM, units=MILLISECONDS, messages=messages)


_bubble_rank = _show_bubble("Rank waited for in sends and receives", _rank, _in_send_receive)
_bubble_range = _show_bubble("NVTX range that waits in sends and receives", _range, _bubble)
WAITS.add(
    "pipeline_bubble",
    "Waiting in NCCL's sends and receives, as between the stages of a pipeline: by rank waited for and by NVTX range",
    """
One row per rank. First window: the colour is the rank waited for, in a kernel that sends or receives. Second window:
the colour is the NVTX range that the kernel was launched in, such as the forward pass of a microbatch; where ranges
nest, the innermost. Histograms: time that each rank waits in sends and receives (ms), by NVTX range and by rank waited
for. Long waits of later stages in the first microbatches, and of earlier stages in the last ones, are the bubble that
each iteration has. Waits of the same length in every microbatch mean that the stages are not balanced.
Needs NCCL's payload in the trace, which shows what a kernel sends and receives. The second window needs NVTX ranges of
the default domain.
""",
    _bubble_rank,
    _bubble_range,
    Histogram("Time waited in sends and receives, by NVTX range [ms]", _bubble_range, "Time", maximum=MOST_NAMES),
    Histogram("Time waited in sends and receives, by rank waited for [ms]", _bubble_rank, "Time", maximum=MOST_NAMES),
    hidden_first=(_range, _rank, _is_waiting, _in_send_receive),
)
