"""Computes the efficiencies of a job from the times of its GPUs and main threads, and the numbers of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nsys2prv_ng.analysis.efficiency.efficiency import Efficiency
from nsys2prv_ng.analysis.efficiency.times import CLASSES, NOT_SPLIT, WHOLE_GRAPH, DeviceTimes, HostTimes, WindowTimes
from nsys2prv_ng.analysis.efficiency.typical_step import find_turns
from nsys2prv_ng.arrays.groups import find_medians
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.replay.what_if import MOST_UNKNOWN, Saving, Savings
from nsys2prv_ng.steps.steps import Steps
from nsys2prv_ng.summary.efficiency import numbers
from nsys2prv_ng.summary.ranges.waiting import WaitingInRanges

_MOST_COMPARED = 1_000
"""Most steps of each half that are compared with the steps of the other half."""
_MOST_RANGES = 100
"""Most ranges that are listed, the ranges with most time first."""
_UNKNOWN = Saving()
_NOT_PLAYED = Savings()


def sum_efficiency(job: Job, efficiency: Efficiency, saved: Savings = _NOT_PLAYED) -> numbers.EfficiencyNumbers | None:
    """Return the efficiencies of a job; None if it has neither GPUs nor main threads.

    `saved`: what an ideal network saves. If that is not known, serialisation and transfer are not either.
    """
    whole = efficiency.whole
    if whole.devices is None and whole.host is None:
        return None
    steps, work = efficiency.steps, efficiency.at_work
    columns = [] if steps is None else [steps.number.tolist(), steps.host_length.tolist(), _name_kinds(steps)]
    return numbers.EfficiencyNumbers(
        **_rate(whole, saved.whole),
        windows_ns=[(low - job.scope.origin, high - job.scope.origin) for low, high in efficiency.windows],
        is_chosen=bool(job.scope.windows),
        in_steps=_rate_window(efficiency.in_steps, saved.in_steps),
        steps_ns=None if steps is None else _find_window(job, steps),
        in_work=_rate_window(efficiency.in_work, saved.in_work),
        work_ns=None if work is None else (work[0] - job.scope.origin, work[1] - job.scope.origin),
        steps=[
            numbers.StepEfficiency(**_rate(times), number=number, host_ns=host_ns, kind=kind)
            for times, (number, host_ns, kind) in zip(efficiency.by_step, zip(*columns, strict=True), strict=False)
        ],
        ranges=[
            numbers.RangeEfficiency(**_rate(times), domain=domain, name=name, occurrences=occurrences, tasks=tasks)
            for domain, name, occurrences, tasks, times in efficiency.ranges[:_MOST_RANGES]
        ],
    )


def _rate_window(times: WindowTimes | None, saved: Saving) -> numbers.WindowEfficiency | None:
    return None if times is None else numbers.WindowEfficiency(**_rate(times, saved))


def _rate(times: WindowTimes, saved: Saving = _UNKNOWN) -> dict[str, Any]:
    """Return the fields of a WindowEfficiency."""
    devices, host = times.devices, None if times.host is None else rate_host(times.host, times.ns, saved.mpi)
    as_communication = as_useful = None
    if devices is not None:
        unknown = devices.by_class[CLASSES[NOT_SPLIT]] + devices.by_class[CLASSES[WHOLE_GRAPH]]
        network = saved.network if unknown <= MOST_UNKNOWN * devices.devices * times.ns else None
        as_communication = rate_devices(devices, times.ns, devices.compute, devices.most_compute, network)
        # With NCCL as useful, an ideal network would do less of what is useful.
        has_nccl = devices.kernels != devices.compute
        useful_saved = None if has_nccl else network
        as_useful = rate_devices(devices, times.ns, devices.kernels, devices.most_kernels, useful_saved)
    return {
        "length_ns": times.ns,
        "threads": 0 if times.host is None else times.host.threads,
        "nccl_as_communication": numbers.EfficiencyTrees(device=as_communication, host=host),
        "nccl_as_useful": numbers.EfficiencyTrees(device=as_useful, host=host),
        "losses": None if devices is None else _list_losses(times, devices),
    }


def rate_devices(
    devices: DeviceTimes, window: int, useful: int, most_useful: int, saved: int | None = None
) -> numbers.DeviceEfficiency:
    """Return the efficiencies of GPUs. `useful`: useful time (ns) of all GPUs; `most_useful`: the most of any GPU.

    `saved`: how much shorter (ns) the window is on an ideal network; None if that is not known.
    """
    load_balance = _divide(useful, devices.devices * most_useful)
    communication = _divide(most_useful, devices.most_active)
    orchestration = _divide(devices.most_active, window)
    serialisation, transfer, product = _split(most_useful, window, saved)
    return numbers.DeviceEfficiency(
        parallel=load_balance * communication * orchestration,
        load_balance=load_balance,
        communication=communication,
        orchestration=orchestration,
        pop_communication=product,
        serialisation=serialisation,
        transfer=transfer,
    )


def rate_host(host: HostTimes, window: int, saved: int | None = None) -> numbers.HostEfficiency:
    """Return the efficiencies of main threads.

    `saved`: how much shorter (ns) the window is if MPI moves data in no time; None if that is not known.
    """
    load_balance = _divide(host.outside_mpi, host.threads * host.most_outside_mpi)
    serialisation, transfer, product = _split(host.most_outside_mpi, window, saved)
    communication = _divide(host.most_outside_mpi, window) if product is None else product
    offload = _divide(host.useful, host.outside_mpi)
    mpi_parallel = load_balance * communication
    return numbers.HostEfficiency(
        parallel=mpi_parallel * offload,
        mpi_parallel=mpi_parallel,
        mpi_load_balance=load_balance,
        mpi_communication=communication,
        offload=offload,
        mpi_balance_in_nodes=_divide(host.node_outside_mpi, host.node_threads * host.most_outside_mpi),
        mpi_balance_of_nodes=_divide(host.outside_mpi * host.node_threads, host.threads * host.node_outside_mpi),
        mpi_serialisation=serialisation,
        mpi_transfer=transfer,
    )


def _split(most_useful: int, window: int, saved: int | None) -> tuple[float | None, float | None, float | None]:
    """Return (serialisation, transfer, product): most useful time / ideal window x ideal window / window; or None."""
    if saved is None:
        return None, None, None
    ideal = min(max(window - saved, most_useful), window)
    serialisation, transfer = _divide(most_useful, ideal), _divide(ideal, window)
    return serialisation, transfer, serialisation * transfer


def _divide(part: int, whole: int) -> float:
    """Return the float that is nearest to a ratio; 0 if the whole is 0."""
    return part / whole if whole else 0.0


def _list_losses(times: WindowTimes, devices: DeviceTimes) -> numbers.Losses:
    host = sorted(times.idle_by_range.items(), key=lambda item: (-item[1], item[0]))
    return numbers.Losses(
        devices=devices.devices,
        **{f"{name}_ns": ns for name, ns in devices.by_class.items()},
        outside_ns=devices.devices * times.ns - sum(devices.by_class.values()),
        idle_by_range=[numbers.IdleInRange(range=name, ns=ns) for name, ns in host],
        compute_by_class=devices.compute_by_class,
    )


# ---- steps -----------------------------------------------------------------------------------------------------------


def sum_steps(job: Job, efficiency: Efficiency, waiting: WaitingInRanges) -> numbers.StepNumbers | None:
    """Return the numbers of the steps of a job; None without steps.

    `waiting`: when the threads of the job wait for other ranks.
    """
    steps = efficiency.steps
    if steps is None:
        return None
    length = steps.length
    low, median, high = int(length.min()), _find_median(length), int(length.max())
    return numbers.StepNumbers(
        name=steps.name,
        delimiter=steps.delimiter,
        similarity=steps.similarity,
        repeats=steps.repeats,
        ends_on="gpu" if steps.on_gpu else "host",
        window_ns=_find_window(job, steps),
        host_median_ns=_find_median(steps.host_length),
        count=length.size,
        warmup=0 if job.scope.selection.restricts_time else steps.warmup,
        first=int(steps.number[0]),
        last=int(steps.number[-1]),
        median_ns=median,
        min_ns=low,
        max_ns=high,
        spread=_divide(high - low, median),
        slowest=int(steps.number[np.argmax(length)]),
        drift=_measure_drift(length),
        turns_ns=find_turns(length),
        ranks=_list_ranks(job, steps, waiting),
        kinds=_list_kinds(steps, efficiency.by_step),
    )


def _name_kinds(steps: Steps) -> list[str]:
    """Return the name of each step's kind."""
    return [steps.kinds[kind] for kind in steps.kind.tolist()]


def _list_kinds(steps: Steps, by_step: Sequence[WindowTimes]) -> list[numbers.StepKind]:
    """Return the kinds of the steps (m), of which the first ones were measured; none if there is only one."""
    length, kinds = steps.length, np.unique(steps.kind).tolist()
    found = []
    for number in kinds if len(kinds) > 1 or steps.batches.size else []:
        chosen = np.flatnonzero(steps.kind == number)
        measured = [by_step[at] for at in chosen.tolist() if at < len(by_step)]
        batches = steps.batches[chosen]
        amounts = [None if (column < 0).any() else int(column.sum()) for column in batches.T]
        found.append(
            numbers.StepKind(
                name=steps.kinds[number],
                count=chosen.size,
                total_ns=int(length[chosen].sum()),
                median_ns=_find_median(length[chosen]),
                losses=_add_losses(measured) if len(measured) == chosen.size else None,
                **dict(zip(_AMOUNTS, amounts, strict=False)),
            )
        )
    return sorted(found, key=lambda kind: -kind.total_ns)


_AMOUNTS = ("context_requests", "context_tokens", "generation_requests", "generation_tokens")


def _add_losses(windows: Sequence[WindowTimes]) -> numbers.Losses | None:
    """Return the parts of several windows of the same GPUs as those of one; None without GPUs."""
    losses = [_list_losses(times, times.devices) for times in windows if times.devices is not None]
    if not losses or len(losses) < len(windows):
        return None
    names = [name for name, ns in vars(losses[0]).items() if isinstance(ns, int) and name != "devices"]
    sums = {name: sum(getattr(each, name) for each in losses) for name in names}
    return replace(losses[0], compute_by_class={}, **sums)


def _find_window(job: Job, steps: Steps) -> tuple[int, int]:
    """Return the start of the first step and the end of the last (ns), from time 0 of the trace."""
    return int(steps.start[0]) - job.scope.origin, int(steps.stop[-1]) - job.scope.origin


def _find_median(ns: IntArray) -> int:
    return round(float(np.median(ns)))


def _measure_drift(length: IntArray) -> float | None:
    """Return by how much later steps are longer, as a part of the median step: the Hodges-Lehmann shift.

    It is 0 if short and long steps alternate, while the medians of the two halves may then be far apart.
    """
    half = length.size // 2
    if not half:
        return None
    every = -(-half // _MOST_COMPARED)
    # Samples are taken from sorted lengths. If steps take turns, every second step could be all the short ones of one
    # half and all the long ones of the other.
    earlier, later = (np.sort(lengths)[every // 2 :: every] for lengths in (length[:half], length[-half:]))
    shifts = later[:, None] - earlier
    return _divide(_find_median(shifts), _find_median(length))


def _list_ranks(job: Job, steps: Steps, waiting: WaitingInRanges) -> list[numbers.StepOfRank]:
    # While a GPU waits, its rank does not need the time, whatever its host does.
    measure = waiting.measure_all if steps.on_gpu else waiting.measure_threads
    waits = measure(steps.row, steps.begin, steps.end)
    waits[steps.row < 0] = 0  # no thread is known
    whole, host = steps.end - steps.begin, steps.host_end - steps.host_begin
    measured = {"median_ns": whole, "host_median_ns": host, "median_without_waiting_ns": whole - waits}
    medians = {name: find_medians(steps.task, column) for name, column in measured.items()}
    tasks, _ = medians["median_ns"]
    return [
        numbers.StepOfRank(
            rank=job.tree.ranks[task],
            task=job.tree.model.tasks[task].name,
            **{name: round(float(each[row])) for name, (_, each) in medians.items()},
        )
        for row, task in enumerate(tasks.tolist())
    ]
