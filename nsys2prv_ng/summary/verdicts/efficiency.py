"""Describes efficiencies in sentences: what GPUs do with their time, and how long steps take."""

from __future__ import annotations

from nsys2prv_ng.report.graph_tracing import REMEDY
from nsys2prv_ng.summary.numbers.efficiency import EfficiencyNumbers, Losses, StepNumbers, StepOfRank
from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.tables.efficiency import (
    are_steps,
    choose_window,
    find_most_compute,
    list_losses,
    list_parts,
    list_windows,
    name_gpu_time,
    name_steps,
)
from nsys2prv_ng.text.formatting import count_noun, format_percent, format_time
from nsys2prv_ng.text.names import describe_place, name_largest, name_task, quote_name

_MOST_LOSSES = 3
_LEAST_SHARE = 0.05
"""Least share of the time of all GPUs at which a loss is worth a word."""
_LEAST_SHOWN = 0.0005
"""Least share that is not printed as 0.0%."""


def describe_window(summary: JobSummary) -> str:
    """Return a sentence on the steps that all numbers cover, and on what they do not cover; "" without steps."""
    steps, start_up = summary.steps, summary.start_up
    if steps is None or summary.efficiency is None or not are_steps(summary.windows_ns, summary.efficiency.steps_ns):
        return ""
    text = f"All numbers are of {name_steps(steps)}"
    if steps.ends_on == "gpu":
        text += ": a step ends when the GPUs have ended what it launched"
    if steps.delimiter:
        text += f". No NVTX ranges mark them: {quote_name(steps.delimiter)} delimits what recurs"
        text += f", which is {format_percent(steps.similarity, 1)} alike"
    if start_up is None:
        return text
    waited = f", in which ranks waited {format_time(start_up.wait_ns)} for others" if start_up.wait_ns else ""
    text += f". Start-up is excluded: {format_time(start_up.before_ns)}"
    text += f" with {count_noun(start_up.warmup, 'warm-up step')}{waited}"
    return text + (f"; so is {format_time(start_up.after_ns)} after the last step" if start_up.after_ns else "")


def describe_whole_graphs(efficiency: EfficiencyNumbers | None, steps: StepNumbers | None) -> str:
    """Return a sentence on the time in opaque CUDA graphs, which may be compute or not; "" without any."""
    if efficiency is None:
        return ""
    for window in [choose_window(efficiency, steps), *list_windows(efficiency, steps)]:
        losses = window.numbers.losses
        if losses is not None and losses.whole_graph_ns and window.numbers.window_ns:
            share = format_percent(losses.whole_graph_ns, losses.devices * window.numbers.window_ns)
            return (
                f"{share} of {name_gpu_time(window, losses)} is in CUDA graphs that nsys traced as a whole. NCCL may "
                "be in them: whether they compute, wait or move data is not known, and efficiencies count them as "
                f"communication where NCCL is. To know it, {REMEDY}"
            )
    return ""


def describe_efficiency(efficiency: EfficiencyNumbers | None, steps: StepNumbers | None) -> str:
    """Return a sentence on what GPUs do with their time; without GPUs, on what main threads do."""
    if efficiency is None:
        return ""
    window = choose_window(efficiency, steps)
    numbers = window.numbers
    if not numbers.window_ns:
        return ""
    span = f"{window.name} ({format_time(numbers.window_ns)})"
    device, host, losses = numbers.nccl_as_communication.device, numbers.nccl_as_communication.host, numbers.losses
    if device is not None and losses is not None:
        most = find_most_compute(numbers)
        share = format_percent(device.parallel, 1) + ("" if most is None else f" to {format_percent(most, 1)}")
        doing = f"{_count(losses.devices, 'GPU', 'computes', 'compute')} {share} of {span}"
        lost = _describe_losses(losses, numbers.window_ns)
        return f"{doing}: {lost}" if lost else doing
    if host is None or host.mpi_parallel == 1:
        return ""
    parts = f"load balance {format_percent(host.mpi_load_balance, 1)}"
    parts += f", communication {format_percent(host.mpi_communication, 1)}"
    doing = f"{_count(numbers.threads, 'main thread', 'is', 'are')} outside of MPI"
    return f"{doing} {format_percent(host.mpi_parallel, 1)} of {span}: {parts}"


def _count(number: int, noun: str, one: str, several: str) -> str:
    return f"{count_noun(number, noun)} {one if number == 1 else several}"


def _describe_losses(losses: Losses, window: int) -> str:
    """Return the largest losses as the rest of a sentence; "" if all losses are small."""
    whole = losses.devices * window
    large = [part for part in list_losses(losses) if part.ns >= _LEAST_SHARE * whole][:_MOST_LOSSES]
    clauses: list[str] = []
    for part in large:
        verb = "" if clauses else " is lost"
        detail = _describe_range(losses) if part.key == "host_ns" else ""
        clauses.append(f"{format_percent(part.ns, whole)}{verb} {part.clause}{detail}")
    return ", ".join(clauses)


def _describe_range(losses: Losses) -> str:
    """Return the range with most of the host-bound time, or the two largest."""
    places = [(describe_place(idle.range), idle.ns) for idle in losses.idle_by_range]
    return f" ({name_largest(places, losses.host_ns)})" if places else ""


# ---- below the tables ------------------------------------------------------------------------------------------------


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
        times += f" (spread {format_percent(steps.spread, 1)}), slowest {steps.slowest}"
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
