"""Says which time is judged, names the parts of the time of GPUs, and describes efficiencies in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nsys2prv_ng.summary.efficiency import numbers as rates
from nsys2prv_ng.text.formatting import count_noun, format_number, format_percent, format_time
from nsys2prv_ng.text.names import name_task, quote_name

WHOLE_GRAPHS = "whole_graph_ns"

PARTS = {
    WHOLE_GRAPHS: "opaque CUDA graphs",
    "waiting_ns": "wait time",
    "moving_ns": "data transfer",
    "not_split_ns": "unclassified communication",
    "memory_ns": "exposed copies",
    "host_ns": "host-bound",
    "queued_ns": "queued",
    "graph_ns": "in CUDA graphs",
    "unknown_ns": "no launch recorded",
    "cut_ns": "cut by the window",
    "before_first_ns": "before the first operation",
    "after_last_ns": "after the last operation",
    "not_captured_ns": "not captured",
    "outside_ns": "imbalance",
}
"""Label of each part of GPU time that is not compute.

Time in graphs that were traced as a whole may be compute: it does not count as lost.
"""

COMPUTE = "compute"
"""Label of the part of GPU time that is compute; in a comparison, a colon and the kernel class may follow."""

IN_CUDA, IN_MPI = "in CUDA", "in MPI or imbalance"
"""Parts of main threads. The end of a step that another rank finishes later counts as imbalance."""


class NamedWindow(NamedTuple):
    """A window, its name in a sentence, and its title above a column."""

    name: str
    title: str
    numbers: rates.WindowEfficiency


class PartOfTime(NamedTuple):
    """A part of the time of all GPUs in a window: its field in Losses, label, time (ns)."""

    key: str
    label: str
    ns: int


def list_windows(efficiency: rates.EfficiencyNumbers, steps: rates.StepNumbers | None) -> list[NamedWindow]:
    """Return the time that numbers cover, and the work if that is less: the steps, or the time in which GPUs work."""
    if steps is not None and are_steps(efficiency.windows_ns, efficiency.steps_ns):
        return [NamedWindow(name_steps(steps), "steps", efficiency)]
    whole, title = ("the chosen time", "chosen") if efficiency.is_chosen else ("the capture", "capture")
    windows = [NamedWindow(whole, title, efficiency)]
    if efficiency.in_steps is not None and steps is not None:
        windows.append(NamedWindow(name_steps(steps), "steps", efficiency.in_steps))
    elif efficiency.in_work is not None:
        windows.append(NamedWindow("the time in which GPUs work", "work", efficiency.in_work))
    return windows


def are_steps(windows_ns: Sequence[tuple[int, int]], steps_ns: tuple[int, int] | None) -> bool:
    """Return whether windows reach from the start of the steps to their end: each limit may differ by 1 ns."""
    if steps_ns is None or not windows_ns:
        return False
    return abs(windows_ns[0][0] - steps_ns[0]) <= 1 and abs(windows_ns[-1][1] - steps_ns[1]) <= 1


def choose_window(efficiency: rates.EfficiencyNumbers, steps: rates.StepNumbers | None) -> NamedWindow:
    """Return the work, if it is known and the user chose no time, else the whole time."""
    return list_windows(efficiency, steps)[0 if efficiency.is_chosen else -1]


def name_steps(steps: rates.StepNumbers) -> str:
    """Return the name and numbers of the steps that count."""
    return name_numbered(steps.name, steps.first, steps.last)


def name_numbered(name: str, first: int, last: int) -> str:
    """Return the name of ranges with the numbers of the first and last of them."""
    return f"{quote_name(name)} {first}" + (f" to {last}" if last != first else "")


def list_losses(losses: rates.Losses) -> list[PartOfTime]:
    """Return the parts of GPU time that are lost, without empty ones, the longest first."""
    parts = [PartOfTime(key, label, int(getattr(losses, key))) for key, label in PARTS.items() if key != WHOLE_GRAPHS]
    return sorted((part for part in parts if part.ns), key=lambda part: -part.ns)


def list_parts(losses: rates.Losses) -> list[PartOfTime]:
    """Return compute, what may be compute, and what is lost: together the time of all GPUs."""
    parts = [PartOfTime("compute_ns", COMPUTE, losses.compute_ns)]
    if losses.whole_graph_ns:
        parts.append(PartOfTime(WHOLE_GRAPHS, PARTS[WHOLE_GRAPHS], losses.whole_graph_ns))
    return [*parts, *list_losses(losses)]


def find_most_compute(window: rates.WindowEfficiency) -> float | None:
    """Return the largest possible share of compute in GPU time; None if the share is known for certain."""
    losses = window.losses
    if losses is None or not losses.whole_graph_ns or not window.length_ns:
        return None
    return (losses.compute_ns + losses.whole_graph_ns) / (losses.devices * window.length_ns)


def find_main_range(losses: rates.Losses) -> rates.IdleInRange | None:
    """Return the range with most of the host-bound time; None if no range has at least half of it."""
    return next((first for first in losses.idle_by_range[:1] if 2 * first.ns >= losses.host_ns), None)


_FACTOR = 10
"""Least spread that is easier to read as a factor: 1000% and more."""
_LEAST_SHOWN = 0.0005
"""Least share that is not printed as 0.0%."""


def describe_parts(efficiency: rates.EfficiencyNumbers, steps: rates.StepNumbers | None) -> str:
    """Return a sentence on where the time of all GPUs goes, without shares that round to 0.0%; "" without GPUs."""
    window = choose_window(efficiency, steps)
    losses = window.numbers.losses
    if losses is None or not window.numbers.length_ns:
        return ""
    whole = losses.devices * window.numbers.length_ns
    parts = [part for part in list_parts(losses) if part.ns >= _LEAST_SHOWN * whole]
    listed = ", ".join(f"{format_percent(part.ns, whole)} {part.label}" for part in parts)
    return f"Time of {count_noun(losses.devices, 'GPU')} in {window.name}: {listed}"


def describe_steps(steps: rates.StepNumbers) -> str:
    """Return how long steps take, how they differ, and which ranks are fastest and slowest without waiting."""
    times = f"{name_steps(steps)}: median {format_time(steps.median_ns)}"
    times += " of all kinds" if len(steps.kinds) > 1 else ""
    if steps.count > 1:
        if steps.turns_ns is not None:
            short, long = map(format_time, steps.turns_ns)
            times += f", alternating between {short} and {long}"
        times += f", {format_time(steps.min_ns)} to {format_time(steps.max_ns)}"
        factor = f"{format_number(round(steps.spread))} times the median"
        spread = format_percent(steps.spread, 1) if steps.spread < _FACTOR else factor
        times += f" (spread {spread}), slowest {steps.slowest}"
    if steps.drift is not None:
        speed = "slower" if steps.drift > 0 else "faster"
        share = format_percent(abs(steps.drift), 1)
        times += f", later half {share} {speed}" if abs(steps.drift) >= _LEAST_SHOWN else ", later half as fast"
    if len(steps.ranks) > 1:
        by_time = sorted(steps.ranks, key=lambda rank: rank.median_without_waiting_ns)
        times += f"; without waiting for others {_describe_rank(by_time[0])} to {_describe_rank(by_time[-1])}"
    return times


def _describe_rank(rank: rates.StepOfRank) -> str:
    return f"{format_time(rank.median_without_waiting_ns)} ({name_task(rank.rank, rank.task)})"
