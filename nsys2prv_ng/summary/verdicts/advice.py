"""Describes what to look at first: the largest loss, its cause as far as that is certain, and the preset that shows it.

The numbers of ranks, calls and kernels cover the whole window, while the loss may cover only the time in which GPUs
work. So a cause is named only if all other causes together, in all that time, make
up at most half of the loss. Then it causes at least half of the loss, whatever the others do outside the window.
"""

from __future__ import annotations

from collections.abc import Mapping

from nsys2prv_ng.summary.numbers.efficiency import HostEfficiency, Losses
from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.numbers.late import MainReason, list_stragglers
from nsys2prv_ng.summary.numbers.wait_reasons import NOT_SELECTED, ON_HOST, UNKNOWN
from nsys2prv_ng.summary.numbers.waits import RankWaits, WaitNumbers
from nsys2prv_ng.summary.tables.efficiency import (
    NamedWindow,
    PartOfTime,
    choose_window,
    find_main_range,
    list_losses,
    name_gpu_time,
)
from nsys2prv_ng.text.formatting import count_noun, format_percent
from nsys2prv_ng.text.names import clean_name, describe_place, name_task

_LEAST_SHARE = 0.05
"""Least share of the time of all GPUs, or main threads, at which a loss is worth a look."""
_COMPUTES = 0.8
"""Least share of compute in the time of all GPUs at which kernels are what to look at."""
_HALF = 0.5
"""Share of a loss. A cause is named if all others together make up this share at most."""
_EXPOSED = ("communication that no compute hides", "analysis/exposed_communication")
_PLACES = {
    "waiting_ns": ("waiting for other ranks", "analysis/waited_for"),
    "moving_ns": _EXPOSED,
    "not_split_ns": _EXPOSED,
    "memory_ns": ("copies and sets", "basics/memory_operations"),
    "host_ns": ("the host", "analysis/gpu-gaps"),
    "queued_ns": ("operations that begin late", "analysis/queue_delay"),
    "graph_ns": ("gaps in CUDA graphs", "analysis/gpu-gaps"),
    "unknown_ns": ("gaps of GPUs", "analysis/gpu-gaps"),
    "outside_ns": ("the length of the ranges", "basics/nvtx"),
}
"""What to look at for each part of the time, and the preset that shows it."""
_LIMITS_OF_CAPTURE = ("cut_ns", "before_first_ns", "after_last_ns", "not_captured_ns")
"""Parts that depend on the limits of the capture or the chosen time, not on the program."""


def advise(summary: JobSummary) -> str:
    """Return a sentence on what to look at first; "" if no loss is large."""
    if summary.efficiency is None:
        return ""
    window = choose_window(summary.efficiency, summary.steps)
    text = _describe_largest_loss(summary, window)
    first = "Of what is known, look first at" if _may_lose_more(window.numbers.losses) else "Look first at"
    return f"{first} {text}" if text else ""


def _may_lose_more(losses: Losses | None) -> bool:
    """Return whether graphs that were traced as a whole may lose more than anything else."""
    return losses is not None and losses.whole_graph_ns > max((part.ns for part in list_losses(losses)), default=0)


def _describe_largest_loss(summary: JobSummary, window: NamedWindow) -> str:
    losses, host = window.numbers.losses, window.numbers.nccl_as_communication.host
    if losses is not None and losses.devices and window.numbers.window_ns:
        whole = losses.devices * window.numbers.window_ns
        if losses.compute_ns >= _COMPUTES * whole:
            return _describe_compute(losses, whole, window)
        largest = next((part for part in list_losses(losses) if part.key not in _LIMITS_OF_CAPTURE), None)
        if largest is None or largest.ns < _LEAST_SHARE * whole:
            return ""
        return _describe_loss(summary, largest, whole, window)
    return "" if host is None else _describe_host(host, window)


def _describe_compute(losses: Losses, whole: int, window: NamedWindow) -> str:
    """Return the share of time in which the GPUs compute, and the kernel class with most of that time."""
    verb = "computes" if losses.devices == 1 else "compute"
    share = format_percent(losses.compute_ns, whole)
    text = f"kernels: {count_noun(losses.devices, 'GPU')} {verb} {share} of {window.name}"
    known = {name: ns for name, ns in losses.compute_by_class.items() if name != NOT_SELECTED}
    if known:
        name = max(known, key=lambda name: known[name])
        text += f", {format_percent(known[name], whole)} in class {clean_name(name)}"
    return text + _name_preset("analysis/kernel_classes")


def _describe_loss(summary: JobSummary, part: PartOfTime, whole: int, window: NamedWindow) -> str:
    """Return how much of the time is lost, in what, and what causes most of the loss."""
    losses, waits = window.numbers.losses, summary.waits
    assert losses is not None
    where, more = "", ""
    if part.key == "host_ns":
        more = _describe_range(losses, whole)
    elif part.key == "waiting_ns" and waits is not None:
        where, more = _describe_late(waits, part.ns)
    elif part.key == "moving_ns":
        more = _describe_moving(summary, part.ns)
    elif part.key == "not_split_ns":
        more = "; which of both is not known" + _describe_not_split(waits)
    elif part.key == "memory_ns":
        kind = _find_most({copies.operation: copies.total_ns for copies in summary.memory_operations}, part.ns)
        more = f", most of it in {clean_name(kind)}" if kind else ""
    what, preset = _PLACES[part.key]
    lost = f"{format_percent(part.ns, whole)} of {name_gpu_time(window, losses)} is lost {part.clause}"
    return f"{where or what}: {lost}{more}{_name_preset(preset)}"


def _name_preset(preset: str) -> str:
    return f". The preset {preset} shows it" if preset else ""


def _describe_range(losses: Losses, whole: int) -> str:
    """Return the range that the host was in for most of the loss, or the two largest, with their shares of the time."""
    ranges = losses.idle_by_range[: 1 if find_main_range(losses) else 2]
    parts = [f"{format_percent(idle.ns, whole)} while it was {describe_place(idle.range)}" for idle in ranges]
    return f", {' and '.join(parts)}" if parts else ""


def _describe_moving(summary: JobSummary, lost: int) -> str:
    """Return the function with most of the data transfer, and whether short waits may be part of the loss."""
    waits, function = summary.waits, _find_most({nccl.function: nccl.kernel_ns for nccl in summary.nccl}, lost)
    more = f", most of it in {clean_name(function)}" if function else ""
    if waits is not None and waits.below_uncertainty > _HALF * (waits.split + waits.below_uncertainty):
        more += "; most waits are below the uncertainty of the clocks, and count as moving"
    return more


def _describe_not_split(waits: WaitNumbers | None) -> str:
    """Return the reason why most kernels are not split."""
    reasons = {} if waits is None else waits.not_split
    reason = max(reasons, key=lambda reason: reasons[reason], default="")
    return f" ({clean_name(reason)})" if reason and reasons[reason] >= _HALF * sum(reasons.values()) else ""


def _find_most(times: Mapping[str, int], lost: int) -> str:
    """Return the name whose time (ns) is at least half of a loss for certain; "" if there is none."""
    largest = max(times, key=lambda name: times[name], default="")
    return largest if sum(times.values()) - times.get(largest, 0) <= _HALF * lost else ""


# ---- who is waited for -----------------------------------------------------------------------------------------------


def _describe_late(waits: WaitNumbers, lost: int) -> tuple[str, str]:
    """Return (the rank that causes most of the waiting for certain, the rest of the sentence, with its main reason)."""
    all_of_it = sum(rank.wait_ns for rank in waits.ranks)
    for rank, main in list_stragglers(waits):
        others = all_of_it - rank.caused_wait_ns
        if others <= _HALF * lost:
            name = name_task(rank.rank, rank.task)
            return name, f", most of it for {name}{_describe_reason(rank, main, others, lost)}"
    return "", "; no rank has most of it for certain"


def _describe_reason(rank: RankWaits, main: MainReason | None, others: int, lost: int) -> str:
    """Return why the rank is late, and in which range, if that causes most of the loss."""
    if main is None or main.reason in (UNKNOWN, NOT_SELECTED):
        return ""
    if others + rank.all_caused_ns - main.ns > _HALF * lost:
        return ""
    text, row = f" ({main.reason}", main.row
    if others + rank.all_caused_ns - row.ns <= _HALF * lost:
        text += f", {describe_place(row.range)}" if row.range or main.reason in ON_HOST else ""
    return text + ")"


# ---- jobs without GPUs -----------------------------------------------------------------------------------------------


def _describe_host(host: HostEfficiency, window: NamedWindow) -> str:
    """Return whether load balance or communication costs the main threads more; "" if neither costs much."""
    balance, communication = host.mpi_load_balance, host.mpi_communication
    if 1 - min(balance, communication) < _LEAST_SHARE or balance == communication:
        return ""
    parts = [
        (balance, "load balance outside of MPI", "model/host_efficiency"),
        (communication, "communication in MPI", "basics/mpi"),
    ]
    (low, what, preset), (high, other, _) = sorted(parts)
    rates = f"{format_percent(low, 1)} in {window.name}, and that of {other} is {format_percent(high, 1)}"
    return f"{what}: its efficiency is {rates}{_name_preset(preset)}"
