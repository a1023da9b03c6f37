"""The text on efficiencies: a verdict in words, a table of both conventions, where the time goes, and the steps."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.summary.efficiency_model import EfficiencyNumbers, Losses, StepNumbers, StepOfRank, WindowEfficiency
from nsys2prv_ng.summary.layout import clean_name, format_percent, make_table, wrap
from nsys2prv_ng.text.formatting import count_noun, format_time

_MOST_LOSSES = 3
_LEAST_SHARE = 0.05
"""Part of the time of all GPUs from which a loss is worth a word."""
_LEAST_SHOWN = 0.0005
"""Part that is not shown as 0.0%."""
_MOST = 0.5
"""Part of a loss from which one range is most of it."""
PARTS = {
    "waiting_ns": ("waiting for other ranks", "as NCCL waits for other ranks"),
    "moving_ns": ("moving data", "as NCCL moves data"),
    "not_split_ns": ("waiting or moving", "as NCCL waits or moves data"),
    "memory_ns": ("copies alone", "as only copies run"),
    "host_ns": ("host late", "as the host does not launch"),
    "queued_ns": ("already queued", "as operations that were launched before have not begun"),
    "graph_ns": ("in CUDA graphs", "as nodes of CUDA graphs have not begun"),
    "unknown_ns": ("no launch recorded", "as nothing runs, and no launch is recorded"),
    "cut_ns": ("cut by the window", "as nothing runs until the chosen time ends"),
    "before_first_ns": ("before the first operation", "as the first operation has not begun"),
    "after_last_ns": ("after the last operation", "as the last operation has ended"),
    "not_captured_ns": ("not captured", "as no report captures the GPU"),
    "outside_ns": ("outside own ranges", "as the ranges of other ranks are longer"),
}
"""What the text calls each part of the time that is not compute: in a list, and in a verdict."""


def format_efficiency_verdict(efficiency: EfficiencyNumbers | None, steps: StepNumbers | None, width: int) -> list[str]:
    """Return what GPUs do with their time, in a sentence; without GPUs, what main threads do."""
    if efficiency is None:
        return []
    window, name = _choose_window(efficiency, steps)
    if not window.window_ns:
        return []
    span = f"{name} ({format_time(window.window_ns)})"
    device, host, losses = window.nccl_as_communication.device, window.nccl_as_communication.host, window.losses
    if device is not None and losses is not None:
        doing = f"{_count(losses.devices, 'GPU', 'computes', 'compute')} {format_percent(device.parallel, 1)} of {span}"
        lost = _describe_losses(losses, window.window_ns)
        return wrap(f"{doing}: {lost}" if lost else doing, width)
    if host is None or host.mpi_parallel == 1:
        return []
    parts = f"load balance {format_percent(host.mpi_load_balance, 1)}"
    parts += f", communication {format_percent(host.mpi_communication, 1)}"
    doing = f"{_count(window.threads, 'main thread', 'is', 'are')} outside of MPI"
    return wrap(f"{doing} {format_percent(host.mpi_parallel, 1)} of {span}: {parts}", width)


def _choose_window(efficiency: EfficiencyNumbers, steps: StepNumbers | None) -> tuple[WindowEfficiency, str]:
    """Return the steps where there are some and the user chose no time, else the whole time, and its name."""
    if efficiency.in_steps is not None and steps is not None and not efficiency.is_chosen:
        return efficiency.in_steps, _name_steps(steps)
    return efficiency, _name_whole(efficiency)


def _name_whole(efficiency: EfficiencyNumbers) -> str:
    return "the chosen time" if efficiency.is_chosen else "the capture"


def _name_steps(steps: StepNumbers) -> str:
    numbers = str(steps.first) if steps.first == steps.last else f"{steps.first} to {steps.last}"
    return f"`{clean_name(steps.name)}` {numbers}"


def _count(number: int, noun: str, one: str, several: str) -> str:
    return f"{count_noun(number, noun)} {one if number == 1 else several}"


def _sort_parts(losses: Losses) -> list[tuple[str, int]]:
    """Return the parts that are not compute, by their time."""
    parts = [(name, int(getattr(losses, name))) for name in PARTS]
    return sorted((part for part in parts if part[1]), key=lambda part: -part[1])


def _describe_losses(losses: Losses, window: int) -> str:
    """Return the largest losses as the rest of a sentence; nothing if all are small."""
    whole = losses.devices * window
    large = [(name, ns) for name, ns in _sort_parts(losses) if ns >= _LEAST_SHARE * whole][:_MOST_LOSSES]
    clauses: list[str] = []
    for name, ns in large:
        verb = "" if clauses else " is lost"
        detail = _describe_range(losses) if name == "host_ns" else ""
        clauses.append(f"{format_percent(ns, whole)}{verb} {PARTS[name][1]}{detail}")
    return ", ".join(clauses)


def _describe_range(losses: Losses) -> str:
    """Return the range with most of the time in which the host did not launch."""
    if not losses.idle_by_range or losses.idle_by_range[0].ns < _MOST * losses.host_ns:
        return ""
    name = losses.idle_by_range[0].range
    return f" (mostly in `{clean_name(name)}`)" if name else " (mostly outside NVTX ranges)"


# ---- tables ----------------------------------------------------------------------------------------------------------


def describe_efficiency(efficiency: EfficiencyNumbers | None, steps: StepNumbers | None, width: int) -> list[list[str]]:
    """Return the sections on efficiencies, each as its lines: a table, and the steps."""
    if efficiency is None or not efficiency.window_ns:
        return []
    return [_tabulate(efficiency, steps, width), _describe_steps(steps, width)]


def _tabulate(efficiency: EfficiencyNumbers, steps: StepNumbers | None, width: int) -> list[str]:
    windows: list[tuple[WindowEfficiency, str]] = [(efficiency, _name_whole(efficiency))]
    names = ["chosen" if efficiency.is_chosen else "capture"]
    if efficiency.in_steps is not None and steps is not None:
        windows.append((efficiency.in_steps, _name_steps(steps)))
        names.append("steps")
    shown = [window for window, _ in windows]
    has_conventions = any(window.nccl_as_communication != window.nccl_as_useful for window in shown)
    rows = [*_list_device_rows(shown, both=has_conventions), *_list_host_rows(shown, both=has_conventions)]
    if not rows:
        return []
    caption = f"Efficiencies in {' and '.join(f'{name} ({format_time(own.window_ns)})' for own, name in windows)}"
    titles = ["", *names]
    if has_conventions:
        caption += ", with kernels of NCCL as communication (as in BasicAnalysis) or useful (as in TALP)"
        empty = ["" for _ in names[1:]]
        rows = [["", *names, *names], *rows]
        titles = ["NCCL is", "communication", *empty, "useful", *empty]
    table = make_table(titles, rows, width, texts=1)
    return [*wrap(f"{caption}:", width), *table, *_list_parts(*_choose_window(efficiency, steps), width)]


def _list_device_rows(windows: Sequence[WindowEfficiency], *, both: bool) -> list[list[str]]:
    """Return the rows of GPUs; `both`: with columns for both conventions."""
    trees = [window.nccl_as_communication for window in windows]
    trees += [window.nccl_as_useful for window in windows] if both else []
    known = [tree.device for tree in trees if tree.device is not None]
    losses = windows[0].losses
    if losses is None or len(known) < len(trees):
        return []
    parts = ("parallel", "load_balance", "communication", "orchestration")
    names = [f"{count_noun(losses.devices, 'GPU')}, parallel", *(f"  {part.replace('_', ' ')}" for part in parts[1:])]
    return [
        [name, *(format_percent(getattr(device, part), 1) for device in known)]
        for name, part in zip(names, parts, strict=True)
    ]


def _list_host_rows(windows: Sequence[WindowEfficiency], *, both: bool) -> list[list[str]]:
    """Return the rows of main threads, which have no convention; those of MPI and of CUDA only where there is any."""
    known = [window.nccl_as_communication.host for window in windows]
    hosts = [host for host in known if host is not None]
    has_gpus = windows[0].losses is not None
    has_mpi, has_offload = any(host.mpi_parallel < 1 for host in hosts), any(host.offload < 1 for host in hosts)
    if len(hosts) < len(known) or not (has_gpus or has_mpi):
        return []
    rows = [("parallel", f"{count_noun(windows[0].threads, 'main thread')}, parallel")]
    if has_mpi:
        rows += [("mpi_parallel", "  MPI parallel"), ("mpi_load_balance", "    load balance")]
        rows += [("mpi_communication", "    communication")]
    if has_offload:
        rows += [("offload", "  device offload")]
    empty = ["" for _ in hosts] if both else []
    return [[name, *(format_percent(getattr(host, part), 1) for host in hosts), *empty] for part, name in rows]


def _list_parts(window: WindowEfficiency, name: str, width: int) -> list[str]:
    """Return where the time of all GPUs goes, in a sentence; what is shown as nothing is missing."""
    losses = window.losses
    if losses is None or not window.window_ns:
        return []
    whole = losses.devices * window.window_ns
    parts = [("compute", losses.compute_ns), *((PARTS[part][0], ns) for part, ns in _sort_parts(losses))]
    parts = [(text, ns) for text, ns in parts if ns >= _LEAST_SHOWN * whole]
    listed = ", ".join(f"{format_percent(ns, whole)} {text}" for text, ns in parts)
    return wrap(f"Time of {count_noun(losses.devices, 'GPU')} in {name}: {listed}", width)


def _describe_steps(steps: StepNumbers | None, width: int) -> list[str]:
    """Return how long steps take, how they differ, and which ranks need longest and shortest for themselves."""
    if steps is None:
        return []
    times = f"{_name_steps(steps)}: median {format_time(steps.median_ns)}"
    if steps.count > 1:
        times += f", {format_time(steps.min_ns)} to {format_time(steps.max_ns)}"
        times += f" (spread {format_percent(steps.spread, 1)}), slowest {steps.slowest}"
    if steps.drift is not None:
        times += f", later half {format_percent(abs(steps.drift), 1)} {'slower' if steps.drift > 0 else 'faster'}"
    if len(steps.ranks) > 1:
        by_time = sorted(steps.ranks, key=lambda rank: rank.median_without_waiting_ns)
        times += f"; without waiting for others {_describe_rank(by_time[0])} to {_describe_rank(by_time[-1])}"
    return wrap(times, width)


def _describe_rank(rank: StepOfRank) -> str:
    name = rank.task if rank.rank is None else f"rank {rank.rank}"
    return f"{format_time(rank.median_without_waiting_ns)} ({clean_name(name)})"
