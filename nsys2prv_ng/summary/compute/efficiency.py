"""Computes the efficiencies of a job from the times of its GPUs and main threads, and the numbers of its steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from nsys2prv_ng.analysis.efficiency.efficiency import Efficiency, RangeTimes
from nsys2prv_ng.analysis.efficiency.step_turns import find_turns
from nsys2prv_ng.analysis.efficiency.times import DeviceTimes, HostTimes, WindowTimes
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.job.steps import Steps
from nsys2prv_ng.summary.compute.range_waits import WaitingInRanges
from nsys2prv_ng.summary.numbers.efficiency import (
    DeviceEfficiency,
    EfficiencyNumbers,
    EfficiencyTrees,
    HostEfficiency,
    IdleInRange,
    Losses,
    RangeEfficiency,
    StepEfficiency,
    StepNumbers,
    StepOfRank,
    WindowEfficiency,
)

_MOST_COMPARED = 1_000
"""Most steps of each half that are compared with the steps of the other half."""
_MOST_RANGES = 100
"""Most ranges that are listed, the ranges with most time first."""


def sum_efficiency(job: Job, efficiency: Efficiency) -> EfficiencyNumbers | None:
    """Return the efficiencies of a job; None if it has neither GPUs nor main threads."""
    whole = efficiency.whole
    if whole.devices is None and whole.host is None:
        return None
    steps, work = efficiency.steps, efficiency.at_work
    in_steps = None if efficiency.in_steps is None else WindowEfficiency(**_rate(efficiency.in_steps))
    numbers = [] if steps is None else steps.number[: len(efficiency.by_step)].tolist()
    return EfficiencyNumbers(
        **_rate(whole),
        windows_ns=[(low - job.origin, high - job.origin) for low, high in efficiency.windows],
        is_chosen=bool(job.windows),
        in_steps=in_steps,
        steps_ns=None if steps is None else (int(steps.begin.min()) - job.origin, int(steps.end.max()) - job.origin),
        in_work=None if efficiency.in_work is None else WindowEfficiency(**_rate(efficiency.in_work)),
        work_ns=None if work is None else (work[0] - job.origin, work[1] - job.origin),
        steps=[
            StepEfficiency(**_rate(times), number=number)
            for number, times in zip(numbers, efficiency.by_step, strict=True)
        ],
        ranges=[_rate_range(times) for times in efficiency.ranges[:_MOST_RANGES]],
    )


def _rate_range(row: RangeTimes) -> RangeEfficiency:
    fields = _rate(row.times)
    return RangeEfficiency(**fields, domain=row.domain, name=row.name, occurrences=row.occurrences, tasks=row.tasks)


def _rate(times: WindowTimes) -> dict[str, Any]:
    """Return the fields of a WindowEfficiency."""
    devices, host = times.devices, None if times.host is None else rate_host(times.host, times.ns)
    as_communication = as_useful = None
    if devices is not None:
        as_communication = rate_devices(devices, times.ns, devices.compute, devices.most_compute)
        as_useful = rate_devices(devices, times.ns, devices.kernels, devices.most_kernels)
    return {
        "window_ns": times.ns,
        "threads": 0 if times.host is None else times.host.threads,
        "nccl_as_communication": EfficiencyTrees(device=as_communication, host=host),
        "nccl_as_useful": EfficiencyTrees(device=as_useful, host=host),
        "losses": None if devices is None else _list_losses(times, devices),
    }


def rate_devices(devices: DeviceTimes, window: int, useful: int, most_useful: int) -> DeviceEfficiency:
    """Return the efficiencies of GPUs. `useful`: useful time (ns) of all GPUs; `most_useful`: the most of any GPU."""
    load_balance = _divide(useful, devices.devices * most_useful)
    communication = _divide(most_useful, devices.most_active)
    orchestration = _divide(devices.most_active, window)
    return DeviceEfficiency(
        parallel=load_balance * communication * orchestration,
        load_balance=load_balance,
        communication=communication,
        orchestration=orchestration,
    )


def rate_host(host: HostTimes, window: int) -> HostEfficiency:
    """Return the efficiencies of main threads."""
    load_balance = _divide(host.outside_mpi, host.threads * host.most_outside_mpi)
    communication = _divide(host.most_outside_mpi, window)
    offload = _divide(host.useful, host.outside_mpi)
    mpi_parallel = load_balance * communication
    return HostEfficiency(
        parallel=mpi_parallel * offload,
        mpi_parallel=mpi_parallel,
        mpi_load_balance=load_balance,
        mpi_communication=communication,
        offload=offload,
        mpi_balance_in_nodes=_divide(host.node_outside_mpi, host.node_threads * host.most_outside_mpi),
        mpi_balance_of_nodes=_divide(host.outside_mpi * host.node_threads, host.threads * host.node_outside_mpi),
    )


def _divide(part: int, whole: int) -> float:
    """Return the float that is nearest to a ratio; 0 if the whole is 0."""
    return part / whole if whole else 0.0


def _list_losses(times: WindowTimes, devices: DeviceTimes) -> Losses:
    host = sorted(times.idle_by_range.items(), key=lambda item: (-item[1], item[0]))
    return Losses(
        devices=devices.devices,
        **{f"{name}_ns": ns for name, ns in devices.by_class.items()},
        outside_ns=devices.devices * times.ns - sum(devices.by_class.values()),
        idle_by_range=[IdleInRange(range=name, ns=ns) for name, ns in host],
        compute_by_class=devices.compute_by_class,
    )


# ---- steps -----------------------------------------------------------------------------------------------------------


def sum_steps(job: Job, efficiency: Efficiency, waiting: WaitingInRanges) -> StepNumbers | None:
    """Return the numbers of the steps of a job; None without steps.

    `waiting`: when the threads of the job wait for other ranks.
    """
    steps = efficiency.steps
    if steps is None:
        return None
    length = steps.end - steps.begin
    longest = steps.find_latest(length)
    low, median, high = int(longest.min()), _find_median(longest), int(longest.max())
    waits = waiting.measure_threads(steps.row, steps.begin, steps.end)
    waits[steps.row < 0] = 0  # no thread is known
    return StepNumbers(
        name=steps.name,
        count=longest.size,
        warmup=steps.warmup,
        first=int(steps.number[0]),
        last=int(steps.number[-1]),
        median_ns=median,
        min_ns=low,
        max_ns=high,
        spread=_divide(high - low, median),
        slowest=int(steps.number[np.argmax(longest)]),
        drift=_measure_drift(longest),
        turns_ns=find_turns(longest),
        ranks=_list_ranks(job, steps, length, waits),
    )


def _find_median(ns: IntArray) -> int:
    return round(float(np.median(ns)))


def _measure_drift(longest: IntArray) -> float | None:
    """Return by how much later steps are longer, as a part of the median step: the Hodges-Lehmann shift.

    It is 0 if short and long steps alternate, while the medians of the two halves may then be far apart.
    """
    half = longest.size // 2
    if not half:
        return None
    every = -(-half // _MOST_COMPARED)
    # Samples are taken from sorted lengths. If steps take turns, every second step could be all the short ones of one
    # half and all the long ones of the other.
    earlier, later = (np.sort(lengths)[every // 2 :: every] for lengths in (longest[:half], longest[-half:]))
    shifts = later[:, None] - earlier
    return _divide(_find_median(shifts), _find_median(longest))


def _list_ranks(job: Job, steps: Steps, length: IntArray, waits: IntArray) -> list[StepOfRank]:
    lengths = pd.DataFrame({"task": steps.task, "whole": length, "needed": length - waits})
    return [
        StepOfRank(
            rank=job.tree.ranks[row.Index],
            task=job.tree.model.tasks[row.Index].name,
            median_ns=round(row.whole),
            median_without_waiting_ns=round(row.needed),
        )
        for row in lengths.groupby("task").median().itertuples()
    ]
