"""Lists the GPUs of a job: what each did from its first to its last operation, and its gaps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nsys2prv_ng.analysis.gpus.activity import Devices, find_peak_memory
from nsys2prv_ng.analysis.gpus.times import GpuTime
from nsys2prv_ng.arrays.groups import Table, encode_key, make_rows, take_rows
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.summary.gpus.numbers import Cause, GpuNumbers, Sampled


def list_gpus(job: Job, devices: Devices, times: Mapping[int, GpuTime]) -> list[GpuNumbers]:
    """Return the GPUs with any activity or memory in use, in the order of their rows. `times`: by row."""
    memory = find_peak_memory(job, devices.rows)
    rows = sorted({*memory, *times})
    return [_make_gpu(job, devices, row, times.get(row, GpuTime()), memory.get(row)) for row in rows]


def _make_gpu(job: Job, devices: Devices, row: int, time: GpuTime, peak: int | None) -> GpuNumbers:
    device, tree, activity = devices.rows[row], job.tree, time.activity
    return GpuNumbers(
        node=device.node,
        gpu=device.gpu.number,
        name=device.gpu.name,
        ranks=device.list_ranks(tree.ranks),
        tasks=[tree.model.tasks[task].name for task in sorted(device.tasks)],
        span_ns=activity.busy + activity.idle,
        **{f"{kind}_ns": ns for kind, ns in activity._asdict().items()},
        gaps=time.gaps,
        longest_gap_ns=time.longest_ns,
        longest_gap_at_ns=None if time.longest_at is None else time.longest_at - job.scope.origin,
        idle_causes=None if time.causes is None else _list_causes(time.causes),
        sampled=[] if time.sampled is None else _list_samples(time.sampled),
        peak_memory_bytes=peak,
    )


def _list_samples(samples: Table) -> list[Sampled]:
    """Return what samples of hosts show, most samples first."""
    order = np.lexsort([*(encode_key(samples[key]) for key in ("called", "function")), -samples["samples"]])
    return [Sampled(**each) for each in make_rows(take_rows(samples, order))]


def _list_causes(causes: Table) -> list[Cause]:
    """Return the causes of the gaps of a GPU, those with most time first."""
    order = np.lexsort([*(encode_key(causes[key]) for key in ("next", "call", "range", "cause")), -causes["ns"]])
    return [Cause(**each) for each in make_rows({name: column[order] for name, column in causes.items()})]
