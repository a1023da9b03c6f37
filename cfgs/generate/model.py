"""Declares presets of efficiencies: the numbers of `nsys2prv-ng summary`, from the totals below Paraver's histograms.

Each histogram has a row for each GPU or rank that counts, with the time that the definitions add up. So Average,
Maximum and Avg/Max of its totals are an efficiency, or both parts of one. A row with 0 counts as well: the column is
the step, or something that the row always has, and the statistic reads another window. If the useful time itself were
the column, a GPU without useful time would be missing from the average.

Paraver has no maximum over GPUs within a window. So a quotient of two maxima is a quotient of two cells.
"""

from __future__ import annotations

from typing import Any

from cfgs.generate import colours
from cfgs.generate.paraver_cfg import (
    ANY_DRAW,
    LAST_TYPE,
    MAXIMUM,
    MILLISECONDS,
    NESTING,
    NEXT_TYPE,
    ONE_MINUS_SIGN,
    SIGN,
    TASK,
    Derived,
    Events,
    Folder,
    Histogram,
    Look,
    View,
    Window,
    codes,
    function,
    only,
    product,
    span,
    times,
)
from cfgs.generate.shared import FLAG, IN_ANY, IN_COMPUTE, IN_IDLE, IN_KERNELS, MAIN_THREAD, NAMES, gpus, ranks
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import palette

MODEL = Folder("model")

_PERCENT = times(100)
_USEFUL = codes({0: palette.NOTHING, 100: palette.COMPUTE})


def _has_events(name: str, events: Events, **properties: Any) -> Derived:
    """Show 1 at all times on rows with any of these events, because there is always a last or a next event."""
    last, following = (
        Window(f"{name}: {which} event", FLAG, events=events, thread=thread, **properties)
        for which, thread in (("last", LAST_TYPE), ("next", NEXT_TYPE))
    )
    return Derived(name, FLAG, operation="maximum", first=last, second=following, top=(SIGN,), **properties)


def _average(name: str, control: View, data: View) -> Histogram:
    """Return the average value of `data` on each row while `control` is 1."""
    return Histogram(name, control, "Average value", maximum=1, data=data, only_totals=control.level != TASK)


def _by_step(name: str, step: View, data: View) -> Histogram:
    """Return the time (ms) in which `data` is 1, by step."""
    return Histogram(name, step, "Integral", maximum=None, data=data, only_totals=step.level != TASK)


def _make_step_lengths() -> Histogram:
    """Return the length of each step on each main thread and GPU; the longest is the window of the step.

    With GPU operations, all rows have the same step.
    """
    step = Window("Step", NAMES, events=only(types.STEP), units=MILLISECONDS)
    return Histogram("Length of each step [ms]", step, "Time", maximum=None, only_totals=True)


# ---- GPUs ------------------------------------------------------------------------------------------------------------


def _make_gpu_times(**properties: Any) -> list[Window]:
    """Return the windows of useful GPUs, GPUs in any kernel, and active GPUs."""
    activities = (("Useful", IN_COMPUTE), ("In any kernel", IN_KERNELS), ("Active", IN_ANY))
    return [gpus(name, doing, palette.COMPUTE, **properties) for name, doing in activities]


_classes = ranks(
    "Useful, communication or memory operations",
    codes(colours.GPU_ACTIVITY, ANY_DRAW),
    only(types.GPU_ACTIVITY),
    compose=function(
        "Translate", (3, 1, 5, 1, 7, 1, 6, 2, *IN_IDLE, 0, 17, 1, 18, 16, 19, 1, 20, 16, 21, 1, 22, 16, 23, 1)
    ),
)
_is_gpu = _has_events("Is a GPU", only(types.GPU_ACTIVITY))
_useful, _kernels, _active = _make_gpu_times(top=(_PERCENT,))
MODEL.add(
    "gpu_efficiency",
    "POP efficiencies of GPUs: parallel, load balance, communication and orchestration (% of the time shown)",
    """
The GPU efficiencies of nsys2prv-ng summary, over the time of the trace. Useful: any kernel except NCCL kernels. Active:
useful, else communication, else memory operations.
Timeline: one row per rank. Blue: useful. Orange: exposed communication. Purple: memory operations without any kernel.
Indigo: opaque CUDA graphs that may contain NCCL kernels and count as communication. If a rank has several GPUs, its row
shows the highest of their values. Histograms: one row per GPU (Metrics GPUn), in percent of the time. They show the
totals of all GPUs; the sigma button shows the rows too.
Parallel efficiency: Average of useful time. Load balance: Avg/Max of useful time. Orchestration: Maximum of active
time. Communication: Maximum of useful time / Maximum of active time. To count NCCL kernels as useful, as in TALP, use
the histogram of any kernel instead of useful time.
The histograms follow the timeline when you zoom. The summary covers the steps after the warm-up, but the trace covers
all time: zoom to these steps, or translate with --skip-warmup, to get the same numbers. Give the same --time, --steps
or --nvtx-range to both. model/gpu_efficiency_by_step has a column for each step.
""",
    _classes,
    _average("Time in any kernel, NCCL's too [%]", _is_gpu, _kernels),
    _average("Active time of each GPU [%]", _is_gpu, _active),
    _average("Useful time of each GPU [%]", _is_gpu, _useful),
    menu="How efficient is the job?",
)

_step_of_gpu = product(
    "Step of each GPU", NAMES, Window("Step of a GPU or thread", NAMES, events=only(types.STEP)), _is_gpu
)
_useful, _kernels, _active = _make_gpu_times(units=MILLISECONDS)
MODEL.add(
    "gpu_efficiency_by_step",
    "GPU efficiencies in each step: useful time, active time, time in any kernel, and step time (ms)",
    """
The GPU efficiencies of nsys2prv-ng summary --json, with a column for each step. A step has the same time on all rows,
and its length is the window T. Histograms: one row per GPU (Metrics GPUn), and for the lengths one per main thread and
GPU. They show the totals; the sigma button shows the rows too.
Load balance: Avg/Max of useful time. Communication: Maximum of useful time / Maximum of active time. Orchestration:
Maximum of active time / T, the Maximum of the lengths. Parallel efficiency: Average of useful time / T.
Useful: any kernel except NCCL kernels. Active: useful, else communication, else memory operations. To count NCCL
kernels as useful, as in TALP, use the histogram of any kernel instead of useful time. Warm-up steps have columns too,
unlike in the summary.
""",
    _by_step("Time in any kernel by step, NCCL's too [ms]", _step_of_gpu, _kernels),
    _make_step_lengths(),
    _by_step("Active time by step [ms]", _step_of_gpu, _active),
    _by_step("Useful time by step [ms]", _step_of_gpu, _useful),
    hidden_first=(_is_gpu, _useful, _kernels, _active),
    menu="How efficient is the job?",
)

# ---- main threads ----------------------------------------------------------------------------------------------------

_MPI_CALLS = list(types.MPI_CALLS.values())
_IN_MPI, _IN_CUDA = span(_MPI_CALLS[0], _MPI_CALLS[-1]), only(types.CUDA_API)


def _is_outside(name: str, events: Events, **properties: Any) -> Window:
    """Show 1 while the main thread of a rank is outside these calls, which may nest."""
    return Window(
        name,
        FLAG,
        events=events,
        compose=NESTING,
        level=TASK,
        above=MAIN_THREAD,
        top=(ONE_MINUS_SIGN, *properties.pop("top", ())),
        **properties,
    )


def _show_useful(look: Look, outside_mpi: View, **properties: Any) -> Derived:
    """Show 1 while the main thread of a rank is outside MPI and CUDA."""
    outside_cuda = _is_outside("Outside of CUDA calls", _IN_CUDA)
    return product("Outside of MPI and CUDA", look, outside_mpi, outside_cuda, level=TASK, **properties)


# Tasks without CUDA or MPI, such as processes that load data, do not count.
_is_rank = Derived(
    "Has calls of MPI or CUDA",
    FLAG,
    operation="maximum",
    first=_has_events("Has calls of MPI", _IN_MPI, level=TASK, above=MAXIMUM),
    second=_has_events("Has CUDA", span(types.CUDA_API, types.GRAPH_LAUNCH), level=TASK, above=MAXIMUM),
    level=TASK,
)
_outside_mpi = _is_outside("Outside of MPI", _IN_MPI)
_useful_host = _show_useful(_USEFUL, _outside_mpi, top=(_PERCENT,))
_percent_outside_mpi = _is_outside("Outside of MPI [%]", _IN_MPI, top=(_PERCENT,))
_rank_outside_mpi = product("Rank outside of MPI", FLAG, _outside_mpi, _is_rank, level=TASK)
MODEL.add(
    "host_efficiency",
    "Efficiencies of main threads: MPI load balance and communication, offload and parallel (% of the time shown)",
    """
The main thread efficiencies of nsys2prv-ng summary, over the time of the trace. Useful: time outside of MPI and CUDA
calls. CUDA calls within MPI count as MPI.
Timeline: one row per rank; blue is useful. Histograms: one row per rank with MPI or CUDA, in percent of the time, and
the totals below.
MPI parallel efficiency: Average of time outside of MPI. MPI load balance: Avg/Max of time outside of MPI. MPI
communication: Maximum of time outside of MPI. Parallel efficiency: Average of useful time. Offload: Average of useful
time / Average of time outside of MPI. A separate histogram shows the offload of each rank.
The histograms follow the timeline when you zoom. The summary covers the steps after the warm-up, but the trace covers
all time: zoom to these steps, or translate with --skip-warmup, to get the same numbers. Give the same --time, --steps
or --nvtx-range to both. model/host_efficiency_by_step has a column for each step.
""",
    _useful_host,
    _average("Offload of each rank [%]", _rank_outside_mpi, _useful_host),
    _average("Time outside of MPI and CUDA [%]", _is_rank, _useful_host),
    _average("Time outside of MPI [%]", _is_rank, _percent_outside_mpi),
    hidden_first=(_percent_outside_mpi, _outside_mpi),
    menu="How efficient is the job?",
)

_outside_mpi = _is_outside("Outside of MPI", _IN_MPI, units=MILLISECONDS)
_useful_host = _show_useful(FLAG, _outside_mpi, units=MILLISECONDS)
_step_of_thread = Window("Step of the main thread", NAMES, events=only(types.STEP), level=TASK, above=MAIN_THREAD)
MODEL.add(
    "host_efficiency_by_step",
    "Main thread efficiencies in each step: time outside of MPI, time outside of MPI and CUDA, and step time (ms)",
    """
The main thread efficiencies of nsys2prv-ng summary --json, with a column for each step. With GPU operations, a step has
the same time on all rows, and its length is the window T. Without GPU operations, each rank's own range counts, and T
is the longest range on any thread. Histograms: one row per rank, with the totals below. The histogram of lengths has
one row per main thread and GPU, and shows only the totals.
MPI load balance: Avg/Max of time outside of MPI. MPI communication: Maximum of time outside of MPI / T, the Maximum of
the lengths. MPI parallel efficiency: Average of time outside of MPI / T. Offload: Average of time outside of MPI and
CUDA / Average of time outside of MPI. Parallel efficiency: Average of time outside of MPI and CUDA / T.
CUDA calls within MPI count as MPI. Warm-up steps have columns too, unlike in the summary.
""",
    _make_step_lengths(),
    _by_step("Time outside of MPI and CUDA by step [ms]", _step_of_thread, _useful_host),
    _by_step("Time outside of MPI by step [ms]", _step_of_thread, _outside_mpi),
    hidden_first=(_outside_mpi, _useful_host),
    menu="How efficient is the job?",
)
