"""Declares presets of slow steps and slow kernels: durations of steps and kernels by rank, over time and by name.

Their files are in the folder `analysis`, where users look for them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cfgs.generate import colours
from cfgs.generate.paraver_cfg import (
    BURST_TIME,
    GRADIENT,
    LOGARITHMIC,
    MILLISECONDS,
    SIGN,
    STACKED,
    TASK,
    Derived,
    Folder,
    Function,
    Histogram,
    Look,
    View,
    Window,
    at_least,
    codes,
    has_value,
    only,
    product,
)
from cfgs.generate.shared import FLAG, GPU_WAITING, IN_COMPUTE, IN_IDLE, MAIN_THREAD, MOST_NAMES, NAMES, gpus
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import palette
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.steps.kinds import MOST_KINDS

SLOW = Folder("analysis")


def _show_step(name: str, look: Look, event_type: EventType, *top: Function) -> Window:
    """Show the steps of the main thread of each rank."""
    return Window(name, look, events=only(event_type), level=TASK, above=MAIN_THREAD, top=top, units=MILLISECONDS)


def _measure_steps(name: str, event_type: EventType) -> Derived:
    """Show how long each step takes (ms), while it lasts."""
    bursts = _show_step(f"Steps and gaps: {name}", GRADIENT, event_type, BURST_TIME)
    within = _show_step("In a step", GRADIENT, event_type, SIGN)
    return product(name, GRADIENT, bursts, within, level=TASK, units=MILLISECONDS)


def _by_step(name: str, step: View, data: View, statistic: str = "Integral", maximum: float | None = None) -> Histogram:
    return Histogram(name, step, statistic, maximum=maximum, data=data)


def _count_gpus(name: str, doing: tuple[int, ...], colour: palette.Colour, **properties: Any) -> Window:
    """Count the GPUs of each rank with one of these activities."""
    return gpus(name, doing, colour, level=TASK, units=MILLISECONDS, **properties)


# ---- steps -----------------------------------------------------------------------------------------------------------

_step = _show_step("Step of each rank", NAMES, types.STEP)
_host_step = _show_step("Step on the host of each rank", NAMES, types.HOST_STEP)
_idle = _count_gpus("Idle GPUs of each rank", IN_IDLE, palette.IDLE)
_computing = _count_gpus("Useful GPUs of each rank", IN_COMPUTE, palette.COMPUTE)
_waiting = Window(
    "GPUs of each rank in an exposed wait",
    codes(colours.counts(palette.WAITING)),
    events=only(types.GPU_ACTIVITY_WITH_WAITS),
    thread=has_value(GPU_WAITING),
    level=TASK,
    units=MILLISECONDS,
)
_durations = _measure_steps("Duration of each step [ms]", types.STEP)
_host_durations = _measure_steps("Duration of each step on the host [ms]", types.HOST_STEP)
SLOW.add(
    "slow_steps",
    "Duration of each step, on GPUs and on hosts, and what differs in slow steps: idle, wait and compute time (ms)",
    """
Timelines, one row per rank: the colour is the duration of the whole step. Colours run from the shortest step (green) to
the longest (blue). First window: the step of the job, which ends with its GPUs, so all ranks have the same. Second
window: the range of each host, in which it launches the work.
Histograms, one row per rank and one column per step: GPU time in idle gaps, in exposed wait for a straggler, and in
compute. What is longer in the slow steps than in the others is why they are slow: idle gaps mean that the host is late,
and exposed wait leads to the rank that does not wait. If compute time is longer, see analysis/slow_kernels. A rank with
several GPUs has the sum. Warm-up steps have columns too. nsys2prv-ng summary --details compares slow steps with the
others part by part.
""",
    _durations,
    _host_durations,
    _by_step("Compute time of each step [ms]", _step, _computing),
    _by_step("Exposed wait of each step [ms]", _step, _waiting),
    _by_step("Idle gaps of each step [ms]", _step, _idle),
    hidden_first=(_host_durations, _computing, _waiting, _idle),
    menu="Why are some steps slow?",
)

_KINDS = MOST_KINDS + 1
_kind = _show_step("Kind of step of each rank", NAMES, types.STEP_KIND)
_data = {
    "Compute time": _count_gpus("Useful GPUs of each rank", IN_COMPUTE, palette.COMPUTE),
    "Exposed wait": replace(_waiting),
    "Idle gaps": _count_gpus("Idle GPUs of each rank", IN_IDLE, palette.IDLE),
}
_durations_beside = _measure_steps("Duration of each step [ms]", types.STEP)
SLOW.add(
    "steps_by_kind",
    "Kinds of steps (training and validation, prefill and decode): duration of each step, and time of each kind (ms)",
    """
Only traces whose steps are of several kinds show anything here: by the names of their ranges, the markers of a serving
engine, or the work that was launched in them. Timelines, one row per rank: the kind of each step, and the duration of
each step as in analysis/slow_steps. Histograms, one row per rank and one column per kind: the time in steps of this
kind, and the GPU time in idle gaps, in exposed wait for a straggler, and in compute. Warm-up steps count. To read
analysis/slow_steps or analysis/iteration_time by kind, zoom to steps of one kind. nsys2prv-ng summary --details has all
parts of the mean step of each kind.
""",
    _kind,
    _durations_beside,
    # Without kinds, columns fitted to the trace are one for all time.
    *(_by_step(f"{name} in steps of each kind [ms]", _kind, data, maximum=_KINDS) for name, data in _data.items()),
    Histogram("Time in steps of each kind [ms]", _kind, "Time", maximum=_KINDS),
    hidden_first=(_durations_beside, *_data.values()),
    menu="Why are some steps slow?",
)

# ---- kernels ---------------------------------------------------------------------------------------------------------


def _add_up_by_step(name: str, data: View) -> Derived:
    """Show the time (ms) of each step in which `data` is 1, while the step lasts."""
    # A controlled function does not cut the bursts of its data, so they are cut here.
    step = _show_step("Step of each rank", GRADIENT, types.STEP)
    within = _show_step("In a step", GRADIENT, types.STEP, SIGN)
    cut = product("Useful GPUs in steps", GRADIENT, data, within, level=TASK)
    share = Derived(
        "Useful GPUs, mean of the step", GRADIENT, operation="controlled: average", first=cut, second=step, level=TASK
    )
    return product(name, GRADIENT, share, _measure_steps("Duration of each step [ms]", types.STEP), level=TASK)


_chosen_kernels = Window(
    "Chosen kernels",
    FLAG,
    events=only(types.KERNEL),
    compose=STACKED,
    top=(at_least(1),),  # values of names, from 1 on
)
_kernel_bursts = Window("Duration of each kernel, and gaps", LOGARITHMIC, events=only(types.KERNEL), compose=BURST_TIME)
_kernel_durations = product("Duration of each compute kernel [us]", LOGARITHMIC, _kernel_bursts, _chosen_kernels)
_kernel_names = Window("Compute kernels", NAMES, events=only(types.KERNEL), compose=STACKED)
_compute_by_step = _add_up_by_step(
    "Compute time of each step [ms]", _count_gpus("Useful GPUs", IN_COMPUTE, palette.COMPUTE)
)
SLOW.add(
    "slow_kernels",
    "Kernels slow at times or on one rank: compute time of each step, and durations of kernels over time and by name",
    """
First window, one row per rank: the colour is the compute time of the GPU in the whole step. Colours run from the least
(green) to the most (blue). A rank whose colour differs from the others, or changes in the middle, has slower kernels or
more work: throttled clocks, another process on the GPU, or another algorithm. Second window, one row per stream: the
duration of each compute kernel, on a logarithmic scale. For one kernel only, set both limits of the function Is In
Range of the window Chosen kernels to the value of its name. Histogram, one row per stream and one column per kernel
name: mean duration (us). Compare the rows of a column: if all kernels of one rank are slower, its GPU is; if it is one
kernel, look at that kernel. Zoom to the steps before and after a change to compare them. Choose statistic # Bursts to
see that the number of kernels is the same, Stdev Burst Time for the variation. Kernels that run beside NCCL kernels
share the GPU with them and are slower for it. nsys2prv-ng summary prints SLOW if it finds such kernels.
""",
    _compute_by_step,
    _kernel_durations,
    Histogram("Mean duration of kernels by name [us]", _kernel_names, "Average Burst Time", maximum=MOST_NAMES),
    hidden_first=(_compute_by_step,),
    menu="Why are some steps slow?",
)
