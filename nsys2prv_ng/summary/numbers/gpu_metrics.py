"""The means of GPU metrics in a summary."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GpuMetricNumbers:
    """A metric of a physical GPU in the chosen time: its mean, weighted by how long each sample holds.

    analysis/gpus/metrics.py defines how long that is. Numbers are in `unit`, as in the trace.
    """

    node: str
    gpu: int
    ranks: list[int]
    """Those that used the GPU."""
    metric: str
    unit: str
    """Empty where the name of the metric has none."""
    mean: float
    min: float
    max: float
    samples: int
