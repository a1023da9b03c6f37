"""Small summaries of what GPUs and main threads do, for tests of what is printed on them."""

from __future__ import annotations

from dataclasses import replace
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
from nsys2prv_ng.summary.waits.numbers import Culprit, LateCost, LongestWait, RankWaits, WaitNumbers

MS = 10**6
WINDOW = 100 * MS
"""Time of each window."""
STEPS = StepNumbers(
    name="step",
    delimiter="",
    similarity=1.0,
    ends_on="gpu",
    window_ns=(1000 * MS, 1100 * MS),
    host_median_ns=15 * MS,
    count=5,
    warmup=1,
    first=1,
    last=5,
    median_ns=20 * MS,
    min_ns=20 * MS,
    max_ns=20 * MS,
    spread=0.0,
    slowest=1,
    drift=0.0,
    ranks=[],
)
STEPS_NS = 1000 * MS, 1100 * MS


def make_losses(
    devices: int = 2, *, by_range: dict[str, int] | None = None, by_class: dict[str, int] | None = None, **parts: int
) -> Losses:
    """Parts in percent of the time of all GPUs, of which `queued` gets what is missing of a hundred."""
    parts.setdefault("queued", 100 - sum(parts.values()))
    assert sum(parts.values()) == 100
    names = ("compute", "waiting", "moving", "not_split", "memory", "host", "queued", "graph", "unknown", "cut")
    names = (*names, "before_first", "after_last", "not_captured", "outside")
    unit = WINDOW // 100 * devices
    ranges = [IdleInRange(range=name, ns=share * unit) for name, share in (by_range or {}).items()]
    classes = {name: share * unit for name, share in (by_class or {}).items()}
    whole_graphs = parts.get("whole_graph", 0) * unit
    times = {f"{name}_ns": parts.get(name, 0) * unit for name in names}
    return Losses(devices=devices, idle_by_range=ranges, compute_by_class=classes, whole_graph_ns=whole_graphs, **times)


def make_window(losses: Losses | None, host: HostEfficiency | None = None) -> WindowEfficiency:
    device = (
        None
        if losses is None
        else DeviceEfficiency(
            parallel=losses.compute_ns / (losses.devices * WINDOW),
            load_balance=1.0,
            communication=1.0,
            orchestration=1.0,
        )
    )
    trees = EfficiencyTrees(device=device, host=host)
    return WindowEfficiency(
        length_ns=WINDOW, threads=2, nccl_as_communication=trees, nccl_as_useful=trees, losses=losses
    )


def make_summary(
    losses: Losses | None,
    host: HostEfficiency | None = None,
    waits: WaitNumbers | None = None,
    *,
    in_steps: bool = True,
    is_chosen: bool = False,
) -> JobSummary:
    """A job whose steps, or else whose capture, have these losses."""
    window = make_window(losses, host)
    # The capture computes all the time, so that nobody takes its numbers for those of the steps.
    fields = vars(window if not in_steps or is_chosen else make_window(make_losses(compute=100)))
    efficiency = EfficiencyNumbers(
        **fields,
        windows_ns=[(0, 1200 * MS)],
        is_chosen=is_chosen,
        in_steps=window if in_steps else None,
        steps_ns=STEPS_NS if in_steps else None,
    )
    steps = STEPS if in_steps else None
    lists = ("windows_ns", "gpus", "ranges", "kernels", "memory_operations", "nccl", "mpi", "absent")
    nothing: dict[str, Any] = {name: [] for name in lists}
    return JobSummary(
        reports=2,
        nodes=1,
        ranks=2,
        tasks=2,
        start_utc_ns=0,
        duration_ns=1200 * MS,
        waits=waits,
        efficiency=efficiency,
        steps=steps,
        **nothing,
    )


def set_steps(summary: JobSummary, times_ms: list[int], losses: Losses | None = None, first: int = 1) -> JobSummary:
    """Return the summary with these steps, each with its length as host-bound time of one GPU, or with `losses`."""
    assert summary.efficiency is not None
    window = make_window(losses)
    found = []
    for number, length in enumerate(times_ms, first):
        idle = replace(make_losses(1, host=100), host_ns=length * MS) if losses is None else losses
        fields = {**vars(window), "length_ns": length * MS, "losses": idle}
        found.append(StepEfficiency(**fields, number=number, host_ns=length * MS))
    middle = sorted(times_ms)[len(times_ms) // 2] * MS
    steps = replace(STEPS, count=len(times_ms), first=first, last=first + len(times_ms) - 1, median_ns=middle)
    steps = replace(steps, min_ns=min(times_ms) * MS, max_ns=max(times_ms) * MS)
    return replace(summary, steps=steps, efficiency=replace(summary.efficiency, steps=found))


def make_waits(ranks: list[RankWaits], costs: list[LateCost], culprits: list[Culprit], split: int = 100) -> WaitNumbers:
    return WaitNumbers(
        operations=split,
        nccl_collectives=split,
        mpi_collectives=0,
        split=split,
        below_uncertainty=0,
        not_split={},
        reports_without_payload=0,
        ranks=ranks,
        culprits=culprits,
        costs=costs,
        bandwidth=[],
    )


def make_rank(number: int, waits: int, caused: int, longest: LongestWait | None = None) -> RankWaits:
    return RankWaits(
        rank=number,
        task=f"rank {number}",
        nccl_ns=waits,
        wait_ns=waits,
        exposed_wait_ns=waits,
        transfer_ns=0,
        unsplit_ns=0,
        collectives=100,
        last=1,
        caused_wait_ns=caused,
        caused_in_messages_ns=0,
        reason=None,
        longest_wait=longest,
        mpi=None,
    )
