"""Makes heat maps of GPU metrics: SMs, tensor cores, DRAM and NVLink. Jobs with many GPUs have a row for each node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from nsys2prv_ng.analysis.gpus.activity import Devices
from nsys2prv_ng.analysis.heat_maps import average_metrics
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import families
from nsys2prv_ng.summary.pictures.numbers import HeatMap, MapKind
from nsys2prv_ng.text.formatting import count_noun

MOST_ROWS = 256
"""Most rows of a map. Above it, a row has the mean over the GPUs of a node, or of several consecutive nodes."""
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
_KINDS = {
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


def draw_metrics(
    job: Job, devices: Devices, edges: IntArray, name_gpus: Callable[[IntArray], list[str]]
) -> Iterator[HeatMap]:
    """Yield a map of each quantity that nsys sampled on any GPU; of NVLink only if it moved data.

    `name_gpus`: returns the names of the GPUs of rows. Each worker loads the records of one report at once.
    """
    groups, names = ({}, []) if len(devices.rows) <= MOST_ROWS else _group_nodes(devices)
    for key, (row, value) in average_metrics(job, METRICS, edges, groups).items():
        kind = _KINDS[key]
        if not (value >= (_LEAST_NVLINK if key.startswith("nvlink") else 0)).any():  # also if all values are unknown
            continue
        if names:
            count = count_noun(len(devices.rows), "GPU")
            kind = replace(kind, about=f"{kind.about} Rows are means over GPUs, since the job has {count}.")
        rows = [names[number] for number in row.tolist()] if names else name_gpus(row)
        yield HeatMap(key=key, **vars(kind), rows=rows, values=value)


def _group_nodes(devices: Devices) -> tuple[dict[int, int], list[str]]:
    """Return the group of each GPU by its row, and the name of each group: MOST_ROWS groups at most, in order."""
    nodes = list(dict.fromkeys(devices.rows[row].node for row in sorted(devices.rows)))
    each = -(-len(nodes) // MOST_ROWS)
    group_of_node = {node: number // each for number, node in enumerate(nodes)}
    parts = [nodes[first : first + each] for first in range(0, len(nodes), each)]
    names = [part[0] if len(part) == 1 else f"{part[0]} to {part[-1]}" for part in parts]
    return {row: group_of_node[device.node] for row, device in devices.rows.items()}, names
