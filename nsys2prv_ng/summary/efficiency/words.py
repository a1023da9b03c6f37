"""Describes efficiencies in sentences: what GPUs do with their time, and how long steps take."""

from __future__ import annotations

from nsys2prv_ng.summary.efficiency.numbers import EfficiencyNumbers, StepNumbers, StepOfRank
from nsys2prv_ng.summary.efficiency.windows import choose_window, list_parts, name_steps
from nsys2prv_ng.text.formatting import count_noun, format_percent, format_time
from nsys2prv_ng.text.names import name_task

_FACTOR = 10
"""Least spread that is easier to read as a factor: 1000% and more."""
_LEAST_SHOWN = 0.0005
"""Least share that is not printed as 0.0%."""


def describe_parts(efficiency: EfficiencyNumbers, steps: StepNumbers | None) -> str:
    """Return a sentence on where the time of all GPUs goes, without shares that round to 0.0%; "" without GPUs."""
    window = choose_window(efficiency, steps)
    losses = window.numbers.losses
    if losses is None or not window.numbers.window_ns:
        return ""
    whole = losses.devices * window.numbers.window_ns
    parts = [part for part in list_parts(losses) if part.ns >= _LEAST_SHOWN * whole]
    listed = ", ".join(f"{format_percent(part.ns, whole)} {part.label}" for part in parts)
    return f"Time of {count_noun(losses.devices, 'GPU')} in {window.name}: {listed}"


def describe_steps(steps: StepNumbers) -> str:
    """Return how long steps take, how they differ, and which ranks are fastest and slowest without waiting."""
    times = f"{name_steps(steps)}: median {format_time(steps.median_ns)}"
    if steps.count > 1:
        if steps.turns_ns is not None:
            short, long = map(format_time, steps.turns_ns)
            times += f", alternating between {short} and {long}"
        times += f", {format_time(steps.min_ns)} to {format_time(steps.max_ns)}"
        times += f" (spread {_format_spread(steps.spread)}), slowest {steps.slowest}"
    if steps.drift is not None:
        speed = "slower" if steps.drift > 0 else "faster"
        share = format_percent(abs(steps.drift), 1)
        times += f", later half {share} {speed}" if abs(steps.drift) >= _LEAST_SHOWN else ", later half as fast"
    if len(steps.ranks) > 1:
        by_time = sorted(steps.ranks, key=lambda rank: rank.median_without_waiting_ns)
        times += f"; without waiting for others {_describe_rank(by_time[0])} to {_describe_rank(by_time[-1])}"
    return times


def _describe_rank(rank: StepOfRank) -> str:
    return f"{format_time(rank.median_without_waiting_ns)} ({name_task(rank.rank, rank.task)})"


def _format_spread(spread: float) -> str:
    """Return (max - min) / median as a percentage, or as a factor if it is large."""
    return format_percent(spread, 1) if spread < _FACTOR else f"{spread:,.0f} times the median"
