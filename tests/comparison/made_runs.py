"""Summaries of runs with numbers that tests choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields, replace
from typing import Any, TypeVar

from nsys2prv_ng.comparison.model import Side
from nsys2prv_ng.summary.efficiency.numbers import (
    DeviceEfficiency,
    EfficiencyNumbers,
    EfficiencyTrees,
    HostEfficiency,
    Losses,
    StepNumbers,
    WindowEfficiency,
)
from nsys2prv_ng.summary.gpus.numbers import GpuNumbers
from nsys2prv_ng.summary.job import JobFacts, JobSummary

MS = 10**6
_Window = TypeVar("_Window", bound=WindowEfficiency)


def make_gpu(number: int, name: str = "NVIDIA H200") -> GpuNumbers:
    times = ("span", "busy", "compute", "communication", "overlap", "memory", "idle", "longest_gap")
    return GpuNumbers(
        node="node",
        gpu=number,
        name=name,
        ranks=[number],
        tasks=[f"python {number}"],
        gaps=0,
        longest_gap_at_ns=None,
        idle_causes=None,
        peak_memory_bytes=None,
        **{f"{name}_ns": 0 for name in times},
    )


def make_facts(**changed: Any) -> JobFacts:
    fields: dict[str, Any] = {
        "nsys_versions": ["2025.3.2.0"],
        "schema_versions": ["3.20.3"],
        "programs": ["python3"],
        "sources": {"kernels": 1, "nvtx": 1},
        "graphs": [],
        "lost_data_messages": 0,
        "lacks_ranks": False,
        "captures": [],
    }
    return JobFacts(**fields | changed)


def make_losses(devices: int, compute_ns: int) -> Losses:
    """Losses of GPUs that only compute, and that nobody explains."""
    names = {field.name for field in fields(Losses) if field.default is MISSING and field.default_factory is MISSING}
    rest = {name: 0 for name in names if name.endswith("_ns")}
    return Losses(**rest | {"devices": devices, "compute_ns": compute_ns})


def make_window(length: int, useful: Sequence[int], active: Sequence[int], in_mpi: int = 0) -> dict[str, Any]:
    """Times (ms): length, useful and active time of each GPU, and the time that each main thread is in MPI."""
    device = None
    if useful:
        balance, rest = sum(useful) / (len(useful) * max(useful)), max(useful) / max(active)
        orchestration = max(active) / length
        device = DeviceEfficiency(
            parallel=balance * rest * orchestration,
            load_balance=balance,
            communication=rest,
            orchestration=orchestration,
        )
    outside = (length - in_mpi) / length
    host = HostEfficiency(
        parallel=outside,
        mpi_parallel=outside,
        mpi_load_balance=1.0,
        mpi_communication=outside,
        offload=1.0,
        mpi_balance_in_nodes=1.0,
        mpi_balance_of_nodes=1.0,
    )
    trees = EfficiencyTrees(device=device, host=host)
    losses = make_losses(len(useful), sum(useful) * MS) if useful else None
    return {
        "length_ns": length * MS,
        "threads": max(1, len(useful)),
        "nccl_as_communication": trees,
        "nccl_as_useful": trees,
        "losses": losses,
    }


def hide_in_graphs(side: Side, part: float) -> Side:
    """Return a run of which a part of the compute time is in graphs as a whole, in the capture and in its steps."""
    efficiency = side.summary.efficiency
    assert efficiency is not None and efficiency.in_steps is not None
    in_steps, whole = (_move(own, part) for own in (efficiency.in_steps, efficiency))
    return Side(side.label, replace(side.summary, efficiency=replace(whole, in_steps=in_steps)))


def _move(window: _Window, part: float) -> _Window:
    assert window.losses is not None
    compute = window.losses.compute_ns
    hidden = round(compute * part)
    return replace(window, losses=replace(window.losses, compute_ns=compute - hidden, whole_graph_ns=hidden))


def make_run(
    label: str,
    useful: Sequence[int],
    step: int,
    *,
    steps: int = 10,
    active: Sequence[int] = (),
    ranks: int | None = None,
    in_mpi: int = 0,
    step_name: str = "step",
    model: str = "NVIDIA H200",
    facts: JobFacts | None = None,
    **changed: Any,
) -> Side:
    """A run of steps of `step` ms without time between them; `useful` time (ms) of each GPU in all steps.

    `active`: the same with communication. The capture is twice as long, and as much is useful in it. `ranks`: also the
    number of main threads.
    """
    window = make_window(step * steps, useful, active or useful, in_mpi)
    whole = make_window(2 * step * steps, useful, active or useful, in_mpi)
    count = len(useful) if ranks is None else ranks
    window["threads"] = whole["threads"] = count
    numbers = StepNumbers(
        name=step_name,
        delimiter="",
        similarity=1.0,
        ends_on="gpu",
        window_ns=(0, step * steps * MS),
        host_median_ns=step * MS,
        count=steps,
        warmup=1,
        first=1,
        last=steps,
        median_ns=step * MS,
        min_ns=step * MS,
        max_ns=step * MS,
        spread=0.0,
        slowest=1,
        drift=0.0,
        ranks=[],
    )
    efficiency = EfficiencyNumbers(**whole, in_steps=WindowEfficiency(**window))
    fields: dict[str, Any] = {
        "reports": count,
        "nodes": 1,
        "ranks": count,
        "tasks": count,
        "start_utc_ns": len(label),
        "duration_ns": 2 * step * steps * MS,
        "windows_ns": [],
        "gpus": [make_gpu(number, model) for number in range(len(useful))],
        "efficiency": efficiency,
        "steps": numbers,
        "facts": facts or make_facts(captures=[f"{label} {number}" for number in range(count)]),
        **{key: [] for key in ("ranges", "kernels", "memory_operations", "nccl", "mpi", "absent")},
    }
    return Side(label, JobSummary(**fields | changed))
