"""Summaries of jobs that never ran, with chosen steps, for tests of comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from nsys2prv_ng.summary.efficiency.numbers import (
    DeviceEfficiency,
    EfficiencyNumbers,
    EfficiencyTrees,
    HostEfficiency,
    IdleInRange,
    Losses,
    StepEfficiency,
    StepNumbers,
    WindowEfficiency,
)
from nsys2prv_ng.summary.job import JobSummary

MS = 10**6
GPUS = 4


def make_summary(
    steps: Sequence[Mapping[str, int]],
    *,
    gpus: int = GPUS,
    chosen: bool = True,
    ranges: Mapping[str, int] | None = None,
    **others: Any,
) -> JobSummary:
    """Return a summary with steps: for each the times (ns) of its parts, over all GPUs. The rest is outside own ranges.

    `chosen`: whether it is restricted to the steps. `ranges`: time over all steps and GPUs in which hosts were late.
    """
    efficiencies = [make_window(parts, gpus) for parts in steps]
    total = {name: sum(parts.get(name, 0) for parts in steps) for name in {name for parts in steps for name in parts}}
    whole = make_window(total, gpus, ranges)
    numbered = [StepEfficiency(**vars(window), number=number) for number, window in enumerate(efficiencies, 1)]
    times = sorted(window.length_ns for window in efficiencies)
    span = (1, 1 + whole.length_ns)
    windows = [(0, 2 + whole.length_ns)] if chosen else []
    values: dict[str, Any] = {
        "reports": gpus, "nodes": 1, "ranks": gpus, "tasks": gpus, "start_utc_ns": 0,
        "duration_ns": whole.length_ns + 2,
        "windows_ns": windows, "gpus": [], "ranges": [], "kernels": [], "memory_operations": [], "nccl": [], "mpi": [],
        "absent": [],
        "efficiency": EfficiencyNumbers(
            **vars(whole), windows_ns=windows, is_chosen=chosen, in_steps=whole if steps else None,
            steps_ns=span if steps else None, steps=numbered,
        ),
        "steps": make_steps(times) if times else None,
    }  # fmt: skip
    return JobSummary(**values | others)


def make_steps(times: Sequence[int]) -> StepNumbers:
    return StepNumbers(
        name="step",
        delimiter="",
        similarity=1.0,
        ends_on="gpu",
        window_ns=(1, 1 + sum(times)),
        host_median_ns=times[0],
        count=len(times),
        warmup=1,
        first=1,
        last=len(times),
        median_ns=times[len(times) // 2],
        min_ns=times[0],
        max_ns=times[-1],
        spread=0.0,
        slowest=1,
        drift=None,
        ranks=[],
    )


def make_window(parts: Mapping[str, int], gpus: int, ranges: Mapping[str, int] | None = None) -> WindowEfficiency:
    """Return a window that is as long as its parts need, with a rest outside of own ranges."""
    window = -(-sum(parts.values()) // gpus)
    known = {field.name: parts.get(field.name, 0) for field in fields(Losses) if field.name.endswith("_ns")}
    known["outside_ns"] += gpus * window - sum(parts.values())
    idle = [IdleInRange(range=name, ns=ns) for name, ns in (ranges or {}).items()]
    trees = EfficiencyTrees(
        device=DeviceEfficiency(parallel=0.5, load_balance=1.0, communication=0.5, orchestration=1.0),
        host=HostEfficiency(
            parallel=0.75,
            mpi_parallel=1.0,
            mpi_load_balance=1.0,
            mpi_communication=1.0,
            offload=0.75,
            mpi_balance_in_nodes=1.0,
            mpi_balance_of_nodes=1.0,
        ),
    )
    return WindowEfficiency(
        length_ns=window,
        threads=gpus,
        nccl_as_communication=trees,
        nccl_as_useful=trees,
        losses=Losses(devices=gpus, **known, idle_by_range=idle),
    )
