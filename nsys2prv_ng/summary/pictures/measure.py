"""Collects what a page draws: quantities over time, one typical step, and the durations of steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis import heat_maps as states
from nsys2prv_ng.analysis.efficiency import typical_step
from nsys2prv_ng.analysis.efficiency.windows import WindowPlan, make_plan
from nsys2prv_ng.analysis.gpus import waiting as on_gpu
from nsys2prv_ng.analysis.gpus.activity import Devices, list_devices
from nsys2prv_ng.analysis.heat_maps import Shares, average_metrics, find_lateness
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.states import make_edges
from nsys2prv_ng.job.counted import list_counted_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.palette import ACTIVITIES
from nsys2prv_ng.steps.numbered_names import number_step
from nsys2prv_ng.summary.pictures.numbers import HeatMap, MapKind, Pace, Pictures, TypicalStep
from nsys2prv_ng.text.formatting import count_noun, format_ranks

_MOST_CELLS = 1_100_000
_MOST_MAPS = 12
_BINS = 100, 1_000
"""Fewest and most bins of a heat map: their number keeps the cells of all heat maps below _MOST_CELLS."""


def collect_pictures(job: Job, waits: Waits, slow: int | None = None) -> Pictures:
    """Return what a page draws of a job. `waits`: all waits of the job. `slow`: the number of a slow step, if any.

    The heat maps show the chosen time. If no time was chosen, they reach from the first GPU operation, or MPI operation
    over ranks, to the last; without GPUs, from the first MPI call to the last. Each worker loads the records of one
    report, or of one group of GPUs, at once.
    """
    devices, plan = list_devices(job), make_plan(job, list_counted_steps(job))
    groups = _find_rows(job, devices)
    count = sum(rows.row.size for rows in groups)
    begin, end = states.find_span(job, waits, gpus=groups[0].are_gpus)
    fewest, most = _BINS
    bins = max(fewest, min(most, _MOST_CELLS // (_MOST_MAPS * max(count, 1))))
    edges = make_edges(begin, max(begin + 1, end), bins)
    chosen = [] if plan.steps is None or not count else typical_step.choose_steps(plan.steps)
    is_typical = len(chosen) == 1
    if slow is not None and plan.steps is not None and is_typical:
        chosen.append(typical_step.find_step(plan.steps, slow))
    step_edges = [typical_step.make_step_edges(step, count) for step in chosen]
    swept = [_sweep(job, waits, plan, rows, edges, step_edges) for rows in groups]
    steps = [
        _draw_step(job, waits, step, [(part.longest[n], part.rows) for part in swept]) for n, step in enumerate(chosen)
    ]
    return Pictures(
        begin_ns=int(edges[0]) - job.scope.zero,
        end_ns=int(edges[-1]) - job.scope.zero,
        heat_maps=[
            *(heat for shares, _, rows in swept for heat in _draw_shares(shares, rows)),
            *_draw_others(job, waits, devices, edges),
        ],
        step=steps[0] if steps else None,
        other_step=steps[1] if len(steps) > 1 else None,
        is_other_slow=slow is not None and is_typical,
        pace=make_pace(job),
        shift_ns=job.scope.origin - job.scope.zero,
        alignment=job.alignment.way,
        clocks=job.alignment.nodes,
    )


class _Swept(NamedTuple):
    """What the rows of a group did: over all time, and in each chosen step."""

    shares: Shares
    longest: list[typical_step.LongestStates]
    rows: _Rows


def _sweep(job: Job, waits: Waits, plan: WindowPlan, rows: _Rows, edges: IntArray, steps: Sequence[IntArray]) -> _Swept:
    """Sweep once over the states of the rows of a group."""
    count = len(rows.activities) + 1
    shares = Shares(rows.row, edges, {key: kind.states for key, kind in rows.kinds.items()}, count)
    longest = [typical_step.LongestStates(rows.row, step, count) for step in steps]
    if rows.kinds or longest:
        swept = states.list_gpu_states(job, waits) if rows.are_gpus else states.list_host_states(job, waits, plan)
        for flat in swept:
            shares.add(flat)
            for states_in_step in longest:
                states_in_step.add(flat)
    return _Swept(shares, longest, rows)


# ---- rows ------------------------------------------------------------------------------------------------------------


_COMPUTING = on_gpu.COMPUTE_ALONE, on_gpu.COMPUTE_OVER_MOVING, on_gpu.WAITING_HIDDEN, on_gpu.COMPUTE_OVER_UNSPLIT
_BUSY = (*_COMPUTING, on_gpu.MOVING, on_gpu.WAITING, on_gpu.MEMORY_ALONE, on_gpu.UNSPLIT, on_gpu.WHOLE_GRAPH)
_KNOWN = "A GPU is known from the first operation of a capture to its last."
_GPU_KINDS = {
    "busy": MapKind("GPU busy", f"Time in which any operation ran. {_KNOWN}", "analysis/gpu_active", _BUSY),
    "computing": MapKind(
        "GPU computing", "Time in which a kernel other than NCCL's ran.", "analysis/gpu_useful", _COMPUTING
    ),
    "whole_graph": MapKind(
        "Opaque CUDA graphs",
        "Time in CUDA graphs that were traced as a whole, which may compute or communicate.",
        "",
        (on_gpu.WHOLE_GRAPH,),
    ),
    "moving": MapKind(
        "Exposed communication: transfer",
        "Time of NCCL transfer without compute, and of waits within the clock error.",
        "analysis/exposed_communication",
        (on_gpu.MOVING,),
    ),
    "waiting": MapKind(
        "Exposed communication: wait",
        "Time in which NCCL kernels waited for another rank, without compute.",
        "analysis/exposed_communication",
        (on_gpu.WAITING,),
    ),
    "not_split": MapKind(
        "Exposed communication: unclassified",
        "Time of NCCL kernels without compute, which may be wait or transfer.",
        "analysis/exposed_communication",
        (on_gpu.UNSPLIT,),
    ),
}
_CAPTURED = "A thread is known while its report was captured."
_HOST_KINDS = {
    "busy": MapKind(
        "Main thread outside of MPI",
        f"Time of the main thread outside of MPI calls. {_CAPTURED}",
        "",
        (states.OWN_CODE, states.CUDA),
    ),
    "moving": MapKind(
        "MPI: transfer", "Time in which MPI calls moved data.", "analysis/nccl_waiting", (states.MPI_MOVING,)
    ),
    "waiting": MapKind(
        "MPI: wait", "Time in which MPI calls waited for another rank.", "analysis/nccl_waiting", (states.MPI_WAITING,)
    ),
    "not_split": MapKind(
        "MPI: unclassified",
        "Other time in MPI: calls that do not communicate, or whose wait is unknown.",
        "",
        (states.MPI_NOT_SPLIT,),
    ),
}
# The colours of the states of GPUs precede those of threads.
_GPU_ACTIVITIES = {key: types.GPU_WAITS[value] for value, key in zip([*types.GPU_WAITS][1:], ACTIVITIES, strict=False)}
_HOST_ACTIVITIES = {
    "own_code": "User code",
    "cuda": "CUDA",
    "mpi_waiting": "MPI wait",
    "mpi_moving": "MPI transfer",
    "mpi_not_split": "MPI unclassified",
}
"""Activities of main threads. The index of an activity is one less than the value of its state."""


class _Rows(NamedTuple):
    """GPUs, or main threads: their rows in the trace, their names, and what is drawn of them."""

    row: IntArray
    names: list[str]
    are_gpus: bool
    kinds: Mapping[str, MapKind]
    activities: Mapping[str, str]


def _find_rows(job: Job, devices: Devices) -> list[_Rows]:
    """Return the GPUs, if there are any, and the main threads, if they call MPI or there are no GPUs."""
    gpus = states.find_gpu_rows(job, devices)
    groups = [_Rows(gpus, _name_gpus(job, devices, gpus), True, _GPU_KINDS, _GPU_ACTIVITIES)] if gpus.size else []
    hosts = states.find_host_rows(job)
    has_mpi = bool(hosts.size) and any(report.results[source_names.MPI].runs for report in job.reports)
    if has_mpi or not groups:
        tasks = [job.tree.model.tasks[task].name for task in job.tree.task_of_row[hosts].tolist()]
        names = [f"{task}, main thread" for task in tasks] if groups else tasks
        groups.append(_Rows(hosts, names, False, _HOST_KINDS if has_mpi else {}, _HOST_ACTIVITIES))
    return groups


def _name_gpus(job: Job, devices: Devices, rows: IntArray) -> list[str]:
    """Return a name for each GPU: the ranks that use it, or else the tasks, and its node and number."""
    names = []
    for row in rows.tolist():
        device = devices.rows[row]
        ranks = device.list_ranks(job.tree.ranks)
        tasks = [job.tree.model.tasks[task].name for task in sorted(device.tasks)]
        users = [format_ranks(ranks)] if ranks else tasks
        names.append(", ".join([*users, f"{device.node} GPU {device.gpu.number}"]))
    return names


# ---- heat maps -------------------------------------------------------------------------------------------------------


_LATENESS = MapKind(
    "Arrival delay",
    "Longest delay with which the rank arrived after all others, which waited for it. 0: no wait beyond the clock "
    "error. Blank: no arrival, or only unclassified ones.",
    "analysis/lateness",
    unit="ns",
)


def _draw_shares(shares: Shares, rows: _Rows) -> Iterator[HeatMap]:
    """Yield a map of each kind. Communication and whole graphs have a map only if the job has any of that time."""
    has_any = {key: bool(ns.any()) for key, ns in shares.ns.items()}
    for key, kind in rows.kinds.items():
        together = ("moving", "waiting") if key in ("moving", "waiting") else (key,)
        if key in ("busy", "computing") or any(has_any[other] for other in together):
            yield HeatMap(key=key, **vars(kind), rows=rows.names, values=shares.get_percent(key).value)


def _draw_others(job: Job, waits: Waits, devices: Devices, edges: IntArray) -> Iterator[HeatMap]:
    """Yield the maps of tasks and of GPUs that do not show states, if anything is known of their quantity."""
    late = find_lateness(job, waits, edges)
    if np.isfinite(late.value).any():
        names = [job.tree.model.tasks[task].name for task in late.row.tolist()]
        yield HeatMap(key="lateness", **vars(_LATENESS), rows=names, values=late.value)
    yield from draw_metrics(job, devices, edges)


# ---- the typical step ------------------------------------------------------------------------------------------------


def _draw_step(
    job: Job, waits: Waits, step: typical_step.StepSpan, swept: Sequence[tuple[typical_step.LongestStates, _Rows]]
) -> TypicalStep:
    """Return the step with the rows and activities of all groups, one group after the other."""
    activities: dict[str, str] = {}
    values = []
    for longest, rows in swept:
        values.append(np.where(longest.state > 0, longest.state + len(activities), 0).astype(np.uint8))
        activities |= rows.activities
    return TypicalStep(
        name=number_step(step.name, str(step.number)),
        begin_ns=step.begin - job.scope.zero,
        end_ns=step.end - job.scope.zero,
        ns=step.length,
        rows=[name for _, rows in swept for name in rows.names],
        activities=activities,
        values=np.concatenate(values),
        ranges=typical_step.list_ranges(job, waits, step),
    )


MOST_CELLS = 200_000
_FEWEST_STEPS = 100


def make_pace(job: Job) -> Pace | None:
    """Return the pace of all steps, whatever time was chosen, on the chosen tasks; None if no steps were found.

    All these tasks are shown. If there are too many steps, only the slowest of each block of consecutive steps is
    shown: the step with the longest span on any task, and on a tie the first one.
    """
    steps = job.steps
    if steps is None:
        return None
    task = job.new_task[steps.task]
    chosen = np.flatnonzero(task >= 0)
    if not chosen.size:
        return None
    tasks, row = np.unique(task[chosen], return_inverse=True)
    step, begin, end = steps.step[chosen], steps.begin[chosen], steps.end[chosen]
    ns = np.zeros((tasks.size, steps.number.size), np.int64)
    ns[row, step] = end - begin
    every = -(-steps.number.size // max(_FEWEST_STEPS, MOST_CELLS // tasks.size))
    warmup, counts = steps.warmup, ns[:, steps.warmup :]
    # Blocks do not mix warm-up steps and others.
    before, after = (_choose_slowest(part.max(axis=0), every) for part in (ns[:, :warmup], counts))
    shown = np.concatenate([before, warmup + after])
    return Pace(
        name=steps.name,
        tasks=[job.tree.model.tasks[number].name for number in tasks.tolist()],
        numbers=steps.number[shown],
        warmup=before.size,
        ns=ns[:, shown],
        count=counts.shape[1],
        median_ns=np.median(counts, axis=1),
        least_ns=counts.min(axis=1),
        most_ns=counts.max(axis=1),
        begin_ns=steps.start[shown] - job.scope.zero,
        end_ns=steps.stop[shown] - job.scope.zero,
        every=every,
    )


def _choose_slowest(longest: IntArray, every: int) -> IntArray:
    """Return the index of the largest value of each block of `every` values; the last block may be shorter."""
    blocks = np.full((-(-longest.size // every), every), -1, np.int64)
    blocks.ravel()[: longest.size] = longest
    return np.asarray(np.arange(len(blocks)) * every + np.argmax(blocks, axis=1), np.int64)


# ---- GPU metrics -----------------------------------------------------------------------------------------------------


MOST_ROWS = 256
"""Most rows of a map of a metric. Above it, a row is the mean over the GPUs of a node, or of consecutive nodes."""
METRICS = {
    "sm": families.SMS_ACTIVE,
    "tensor": families.TENSOR_ACTIVE,
    "dram": families.DRAM_READS + families.DRAM_WRITES,
    "nvlink_received": families.NVLINK_RECEIVED,
    "nvlink_transmitted": families.NVLINK_TRANSMITTED,
}
"""Patterns of metric names for each key."""
_LEAST_NVLINK = 5
"""Percent that a bin of a map of NVLink reaches at least. Below it the counters show rounding and idle links."""
_HELD = "Each sample holds until the next."
_LINK = f"Mean share of the bandwidth of the GPU's NVLinks in use for data. {_HELD}"
_METRIC_KINDS = {
    "sm": MapKind("SMs active", f"Mean share of the multiprocessors that had work. {_HELD}", "hwcounters/sm_active"),
    "tensor": MapKind(
        "Tensor cores active",
        f"Mean share of cycles in which tensor cores were active. {_HELD}",
        "hwcounters/tensor_active",
    ),
    "dram": MapKind(
        "DRAM bandwidth",
        f"Mean share of the bandwidth of the GPU's memory in use: reads and writes together. {_HELD}",
        "hwcounters/dram_bandwidth",
    ),
    "nvlink_received": MapKind("NVLink: received", _LINK, "hwcounters/nvlink"),
    "nvlink_transmitted": MapKind("NVLink: transmitted", _LINK, "hwcounters/nvlink"),
}


def draw_metrics(job: Job, devices: Devices, edges: IntArray) -> Iterator[HeatMap]:
    """Yield a map of each quantity that nsys sampled on any GPU; of NVLink only if it moved data.

    Each worker loads the records of one report at once.
    """
    groups, names = ({}, []) if len(devices.rows) <= MOST_ROWS else _group_nodes(devices)
    for key, (row, value) in average_metrics(job, METRICS, edges, groups).items():
        kind = _METRIC_KINDS[key]
        if not (value >= (_LEAST_NVLINK if key.startswith("nvlink") else 0)).any():  # also if all values are unknown
            continue
        if names:
            count = count_noun(len(devices.rows), "GPU")
            kind = replace(kind, about=f"{kind.about} Rows are means over GPUs, since the job has {count}.")
        rows = [names[number] for number in row.tolist()] if names else _name_gpus(job, devices, row)
        yield HeatMap(key=key, **vars(kind), rows=rows, values=value)


def _group_nodes(devices: Devices) -> tuple[dict[int, int], list[str]]:
    """Return the group of each GPU by its row, and the name of each group: MOST_ROWS groups at most, in order."""
    nodes = list(dict.fromkeys(devices.rows[row].node for row in sorted(devices.rows)))
    each = -(-len(nodes) // MOST_ROWS)
    group_of_node = {node: number // each for number, node in enumerate(nodes)}
    parts = [nodes[first : first + each] for first in range(0, len(nodes), each)]
    names = [part[0] if len(part) == 1 else f"{part[0]} to {part[-1]}" for part in parts]
    return {row: group_of_node[device.node] for row, device in devices.rows.items()}, names
