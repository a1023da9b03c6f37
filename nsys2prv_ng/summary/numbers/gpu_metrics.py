"""The means of GPU metrics in a summary."""

from __future__ import annotations

from nsys2prv_ng.light_dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class GpuMetricNumbers:
    """A metric of a physical GPU in the chosen time: its mean, weighted by how long each sample is in force.

    analysis/gpus/metrics.py defines how long that is. Numbers are in `unit`, as in the trace.
    """

    node: str
    gpu: int
    ranks: list[int]
    """The ranks that used the GPU."""
    metric: str
    unit: str
    """Empty if the name of the metric has no unit."""
    mean: float
    min: float
    max: float
    samples: int
