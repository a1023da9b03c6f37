"""Measures what the counters of links saw, over all the time that numbers cover and while NCCL transfers data.

NCCL transfers data on a GPU while one of its kernels does (analysis/gpus/waiting.py), on a node while a GPU of the node
does, and for a switch while any GPU does. If no NCCL kernel there is classified, all the time of its NCCL kernels
counts instead. A sample counts if that covers all the time for which it is in force: others mix transfer with the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.gpus import waiting
from nsys2prv_ng.analysis.gpus.activity import Devices
from nsys2prv_ng.analysis.gpus.metrics import NO_VALUES, CoveredValues, MetricSums, PartsOfTime, count_sampled
from nsys2prv_ng.analysis.network_metrics import list_network_reports, measure_network_metrics
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.step_functions import CoveredTime, Intervals, find_intervals, join_intervals
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.objects.places import NodePart
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.sources.node.hardware_counters import SWITCH
from nsys2prv_ng.summary.links.numbers import ETHERNET, INFINIBAND, KERNELS, NETWORK, NVLINK, PCIE, TRANSFER, LinkMetric

FEWEST_SAMPLES = 5
"""Fewest samples of a mean."""
_NCCL = "NCCL"
_PERCENT = "%"
_BYTES = "bytes/ms"
"""Unit of the network's rates."""
_PER_S = 1000
_GPU_LINKS = (NVLINK, PCIE)
_NETWORKS = {"IB": INFINIBAND, "IPoIB": INFINIBAND, "Eth": ETHERNET}
"""By the first word of a counter, which ends with a colon."""
_TRANSFERS = (waiting.MOVING, waiting.COMPUTE_OVER_MOVING)
_UNCLASSIFIED = (waiting.UNSPLIT, waiting.COMPUTE_OVER_UNSPLIT)


def is_gpu_link(kind: EventType) -> bool:
    """Return whether a GPU metric is a percentage of a link."""
    return kind.label.startswith(_GPU_LINKS) and kind.unit.endswith(_PERCENT)


def find_nccl_time(job: Job, waits: Waits, devices: Devices) -> NcclTime | None:
    """Return when NCCL transfers data, for links of GPUs and networks; None if no report sampled any link."""
    samples_gpus = any(is_gpu_link(kind) for _, kinds in count_sampled(job) for kind in kinds)
    return NcclTime(job, waits, devices) if samples_gpus or list_network_reports(job) else None


class NcclTime:
    """When NCCL transfers data on the GPU, or on the GPUs of the node or job, to which a row of the trace belongs.

    The last two are known only in a job with counters of network cards or switches.
    """

    def __init__(self, job: Job, waits: Waits, devices: Devices) -> None:
        """Sweep over what the GPUs did. `devices`: the GPUs by their row."""
        self._scope = _find_scopes(job, devices)
        self._has_networks = bool(list_network_reports(job))
        transfers: list[Intervals] = []
        kernels: list[Intervals] = []
        for row, time, value in waiting.sweep_gpu_waits(job, waits):
            transfers.append(find_intervals(row, time, np.isin(value, _TRANSFERS)))
            kernels.append(find_intervals(row, time, np.isin(value, _UNCLASSIFIED)))
        moving, running = (self._spread(join_intervals(parts)) for parts in (transfers, kernels))
        self._has_transfer = np.isin(np.arange(self._scope.size), moving[0])
        self._has_kernels = np.isin(np.arange(self._scope.size), running[0])
        row, begin, end = running
        unknown = ~self._has_transfer[row]
        self._covered = CoveredTime(join_intervals([moving, (row[unknown], begin[unknown], end[unknown])]))

    def find(self, row: int, begin: IntArray, end: IntArray) -> IntArray:
        """Return 0 for each of n times (ns) on a row of the trace in which NCCL transfers all the time, else -1."""
        scope = np.full(begin.size, self._scope.of_row[row])
        return np.where(self._covered.measure(scope, begin, end) == end - begin, 0, -1)

    def name(self, row: int) -> str:
        """Return what is known of NCCL on a row: TRANSFER, KERNELS, or "" for nothing."""
        scope = self._scope.of_row[row]
        return TRANSFER if self._has_transfer[scope] else KERNELS if self._has_kernels[scope] else ""

    @property
    def part(self) -> PartsOfTime:
        """The part of the time, for the counters of GPUs."""
        return PartsOfTime(_NCCL, is_gpu_link, self.find)

    def _spread(self, transfers: Intervals) -> Intervals:
        """Return the intervals of GPUs, and again for its node and for the job if any counter needs them."""
        if not self._has_networks:
            return transfers
        row, begin, end = transfers
        scopes = (row, self._scope.node_of_row[row], np.full(row.size, self._scope.size - 1))
        return join_intervals((scope, begin, end) for scope in scopes)


class _Scopes(NamedTuple):
    """The GPUs whose transfers count on each row of the trace: a scope is a row of a GPU, a node, or last the job.

    `node_of_row`: scope of the node of each row.
    """

    of_row: IntArray
    node_of_row: IntArray
    size: int


def _find_scopes(job: Job, devices: Devices) -> _Scopes:
    model, task_of_row = job.tree.model, job.tree.task_of_row
    rows = task_of_row.size
    node_of_row = rows + np.array([task.node for task in model.tasks], np.int64)[task_of_row]
    of_row = node_of_row.copy()
    of_gpus = np.array(list(devices.rows), np.int64)
    of_row[of_gpus] = of_gpus
    size = rows + len(model.nodes) + 1
    for report, row_of_place in zip(job.reports, job.tree.rows, strict=True):
        for place, row in zip(report.places.all, row_of_place.tolist(), strict=True):
            if isinstance(place, NodePart) and row >= 0 and place.name.startswith(f"{SWITCH} "):
                of_row[row] = size - 1
    return _Scopes(of_row, node_of_row, size)


# ---- numbers ---------------------------------------------------------------------------------------------------------


def list_link_metrics(
    job: Job, nccl: NcclTime | None, devices: Devices, of_gpus: Sequence[MetricSums]
) -> list[LinkMetric]:
    """Return the counters of links: of GPUs, from all their metrics, then of network cards and switches, by row."""
    if nccl is None:
        return []
    part = PartsOfTime(_NCCL, lambda _: True, nccl.find)
    networks = measure_network_metrics(job, lambda kind: kind.unit == _BYTES, part)
    labels = [label for task in job.tree.model.tasks for label in task.threads]
    metrics = []
    for sums in of_gpus:
        if is_gpu_link(sums.event_type):
            link = next(name for name in _GPU_LINKS if sums.event_type.label.startswith(name))
            node, gpu = devices.rows[sums.row].node, devices.rows[sums.row].gpu.number
            metrics.append(_make(sums, nccl, link=link, node=node, gpu=gpu, device=f"GPU {gpu}"))
    for sums in networks:
        task = job.tree.model.tasks[job.tree.task_of_row[sums.row]]
        word, colon, _ = sums.event_type.label.partition(":")
        link = _NETWORKS.get(word, NETWORK) if colon else NETWORK
        node = job.tree.model.nodes[task.node]
        name = labels[sums.row].removeprefix(f"{node} ")  # equal names of several nodes have it
        metrics.append(_make(sums, nccl, link=link, node=node, gpu=None, device=name))
    return metrics


def _make(sums: MetricSums, nccl: NcclTime, *, link: str, node: str, gpu: int | None, device: str) -> LinkMetric:
    in_transfer = sums.covered.get((_NCCL, 0), NO_VALUES)
    percent, rate = _split_mean(sums, sums.event_type)
    nccl_percent, nccl_rate = _split_mean(in_transfer, sums.event_type)
    return LinkMetric(
        link=link,
        node=node,
        gpu=gpu,
        device=device,
        metric=sums.event_type.label,
        percent=percent,
        bytes_per_s=rate,
        samples=sums.samples,
        nccl=nccl.name(sums.row),
        nccl_percent=nccl_percent,
        nccl_bytes_per_s=nccl_rate,
        nccl_samples=in_transfer.samples,
    )


def _split_mean(values: CoveredValues | MetricSums, kind: EventType) -> tuple[float | None, int | None]:
    """Return a mean as (percent, bytes/s), one of them None; both without enough samples."""
    mean = values.mean if values.samples >= FEWEST_SAMPLES else None
    if kind.unit != _BYTES or mean is None:
        return mean, None
    return None, round(mean * _PER_S)
