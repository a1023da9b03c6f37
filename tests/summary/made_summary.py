"""Small summaries of what GPUs and main threads do, for tests of what is printed on them."""

from __future__ import annotations

from nsys2prv_ng.summary.numbers.efficiency import (
    DeviceEfficiency,
    EfficiencyNumbers,
    EfficiencyTrees,
    HostEfficiency,
    IdleInRange,
    Losses,
    StepNumbers,
    WindowEfficiency,
)
from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.numbers.waits import Culprit, LateCost, LongestWait, RankWaits, WaitNumbers

MS = 10**6
WINDOW = 100 * MS
"""Time of each window."""
STEPS = StepNumbers("step", 5, 1, 1, 5, 20 * MS, 20 * MS, 20 * MS, 0.0, 1, 0.0, [])
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
    ranges = [IdleInRange(name, share * unit) for name, share in (by_range or {}).items()]
    classes = {name: share * unit for name, share in (by_class or {}).items()}
    whole_graphs = parts.get("whole_graph", 0) * unit
    return Losses(devices, *(parts.get(name, 0) * unit for name in names), ranges, classes, whole_graphs)


def make_window(losses: Losses | None, host: HostEfficiency | None = None) -> WindowEfficiency:
    device = None if losses is None else DeviceEfficiency(losses.compute_ns / (losses.devices * WINDOW), 1.0, 1.0, 1.0)
    trees = EfficiencyTrees(device, host)
    return WindowEfficiency(WINDOW, 2, trees, trees, losses)


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
    nothing: list[list[object]] = [[] for _ in range(8)]
    return JobSummary(2, 1, 2, 2, 0, 1200 * MS, *nothing, waits=waits, efficiency=efficiency, steps=steps)  # type: ignore[arg-type]


def make_waits(ranks: list[RankWaits], costs: list[LateCost], culprits: list[Culprit], split: int = 100) -> WaitNumbers:
    return WaitNumbers(split, split, 0, split, 0, {}, 0, ranks, culprits, costs, [])


def make_rank(number: int, waits: int, caused: int, longest: LongestWait | None = None) -> RankWaits:
    return RankWaits(number, f"rank {number}", waits, waits, waits, 0, 0, 100, 1, caused, 0, None, longest, None)
