"""Tables of efficiencies: the trees with a definition of each number, and where the time of GPUs goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from nsys2prv_ng.summary.numbers.efficiency import EfficiencyNumbers, IdleInRange, Losses, StepNumbers, WindowEfficiency
from nsys2prv_ng.text.formatting import count_noun, format_percent, format_time
from nsys2prv_ng.text.grid import Bar, BarPart, Cell, Column, Grid, Score, Term, make_columns
from nsys2prv_ng.text.names import quote_name

_MOST = 0.5
"""Part of a loss from which one range is most of it."""
WHOLE_GRAPHS = "whole_graph_ns"
PARTS = {
    WHOLE_GRAPHS: ("whole CUDA graphs", ""),
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
"""What the text calls each part of the time that is not compute: in a list, and in a verdict.

Time in graphs as a whole may be compute: it is not lost.
"""
DEVICE_TERMS = {
    "parallel": (
        0,
        "Time that all GPUs compute, of the time of all GPUs: load balance x communication x orchestration",
    ),
    "load_balance": (1, "Mean time that a GPU computes, of the longest of any GPU"),
    "communication": (
        1,
        "Longest time that a GPU computes, of the longest time that one computes, communicates or copies",
    ),
    "orchestration": (1, "Longest time that a GPU computes, communicates or copies, of the time of the window"),
}
HOST_TERMS = {
    "parallel": (
        0,
        "",
        "Time of all main threads outside of MPI and CUDA calls, of all of their time: MPI parallel x device offload",
    ),
    "mpi_parallel": (
        1,
        "MPI parallel",
        "Time of all main threads outside of MPI, of all of their time: load balance x communication",
    ),
    "mpi_load_balance": (2, "load balance", "Mean time of a main thread outside of MPI, of the longest of any"),
    "mpi_communication": (
        2,
        "communication",
        "Longest time of a main thread outside of MPI, of the time of the window",
    ),
    "offload": (
        1,
        "device offload",
        "Time of all main threads outside of MPI and CUDA calls, of their time outside of MPI",
    ),
}
"""Depth in the tree, name and definition of each efficiency (docs/reference/summary.md), in the order of the tree."""


class NamedWindow(NamedTuple):
    """A window and its names in a sentence and above a column."""

    name: str
    title: str
    numbers: WindowEfficiency


class EfficiencyRow(NamedTuple):
    """An efficiency in all columns (numbers from 0 to 1; None where it has no convention); depth 0 is a root."""

    key: str
    """The field of DeviceEfficiency or HostEfficiency."""
    label: str
    depth: int
    about: str
    """What it is, in a sentence."""
    values: list[float | None]


class EfficiencyTable(NamedTuple):
    """The trees of GPUs and of main threads.

    The columns are the windows with NCCL as communication and, if the conventions differ, once more with it as useful.
    """

    windows: list[NamedWindow]
    has_conventions: bool
    rows: list[EfficiencyRow]


class PartOfTime(NamedTuple):
    """A part of the time of all GPUs in a window: the field of Losses, its labels in a list and a verdict, ns."""

    key: str
    label: str
    clause: str
    ns: int


def list_windows(efficiency: EfficiencyNumbers, steps: StepNumbers | None) -> list[NamedWindow]:
    """Return the whole time and the work in it, if that is less: the steps, or the time in which GPUs work."""
    whole, title = ("the chosen time", "chosen") if efficiency.is_chosen else ("the capture", "capture")
    windows = [NamedWindow(whole, title, efficiency)]
    if efficiency.in_steps is not None and steps is not None:
        if not (efficiency.is_chosen and is_of_steps(efficiency.windows_ns, efficiency.steps_ns)):
            windows.append(NamedWindow(name_steps(steps), "steps", efficiency.in_steps))
    elif efficiency.in_work is not None:
        windows.append(NamedWindow("the time in which GPUs work", "work", efficiency.in_work))
    return windows


def is_of_steps(windows_ns: Sequence[tuple[int, int]], steps_ns: tuple[int, int] | None) -> bool:
    """Return whether the chosen windows are one, which is that of the steps: a ns longer at both limits."""
    if steps_ns is None or len(windows_ns) != 1:
        return False
    return all(abs(x - y) <= 1 for x, y in zip(windows_ns[0], steps_ns, strict=True))


def choose_window(efficiency: EfficiencyNumbers, steps: StepNumbers | None) -> NamedWindow:
    """Return the work where it is known and the user chose no time, else the whole time."""
    return list_windows(efficiency, steps)[0 if efficiency.is_chosen else -1]


def name_steps(steps: StepNumbers) -> str:
    """Return the name and numbers of the steps that do not warm up."""
    numbers = str(steps.first) if steps.first == steps.last else f"{steps.first} to {steps.last}"
    return f"{quote_name(steps.name)} {numbers}"


def name_gpu_time(window: NamedWindow, losses: Losses) -> str:
    """Return what the time of all GPUs in a window is called in a sentence."""
    whose = "the GPU's" if losses.devices == 1 else "the GPUs'"
    return window.name if window.title == "work" else f"{whose} time in {window.name}"


# ---- where the time goes ---------------------------------------------------------------------------------------------


def list_losses(losses: Losses) -> list[PartOfTime]:
    """Return the parts that are lost and not empty, by their time."""
    parts = [PartOfTime(key, *texts, int(getattr(losses, key))) for key, texts in PARTS.items() if key != WHOLE_GRAPHS]
    return sorted((part for part in parts if part.ns), key=lambda part: -part.ns)


def list_parts(losses: Losses) -> list[PartOfTime]:
    """Return compute, what may be compute, and what is lost, which add up to the time of all GPUs."""
    parts = [PartOfTime("compute_ns", "compute", "", losses.compute_ns)]
    if losses.whole_graph_ns:
        parts.append(PartOfTime(WHOLE_GRAPHS, *PARTS[WHOLE_GRAPHS], losses.whole_graph_ns))
    return [*parts, *list_losses(losses)]


def find_most_compute(window: WindowEfficiency) -> float | None:
    """Return the part of the time of all GPUs that is compute at most; None if that is known for certain."""
    losses = window.losses
    if losses is None or not losses.whole_graph_ns or not window.window_ns:
        return None
    return (losses.compute_ns + losses.whole_graph_ns) / (losses.devices * window.window_ns)


def find_main_range(losses: Losses) -> IdleInRange | None:
    """Return the range with most of the time in which the host does not launch; None if no range has half of it."""
    if not losses.idle_by_range or losses.idle_by_range[0].ns < _MOST * losses.host_ns:
        return None
    return losses.idle_by_range[0]


# ---- the trees -------------------------------------------------------------------------------------------------------


def make_efficiency_table(efficiency: EfficiencyNumbers, steps: StepNumbers | None) -> EfficiencyTable:
    """Return the efficiencies in the whole time and in the work."""
    windows = list_windows(efficiency, steps)
    shown = [window.numbers for window in windows]
    has_conventions = any(window.nccl_as_communication != window.nccl_as_useful for window in shown)
    rows = [*_list_device_rows(shown, both=has_conventions), *_list_host_rows(shown, both=has_conventions)]
    return EfficiencyTable(windows, has_conventions, rows)


def _list_device_rows(windows: Sequence[WindowEfficiency], *, both: bool) -> list[EfficiencyRow]:
    """Return the rows of GPUs; `both`: with columns for both conventions."""
    trees = [window.nccl_as_communication for window in windows]
    trees += [window.nccl_as_useful for window in windows] if both else []
    known = [tree.device for tree in trees if tree.device is not None]
    losses = windows[0].losses
    if losses is None or len(known) < len(trees):
        return []
    root = f"{count_noun(losses.devices, 'GPU')}, parallel"
    return [
        EfficiencyRow(
            key, key.replace("_", " ") if depth else root, depth, about, [getattr(device, key) for device in known]
        )
        for key, (depth, about) in DEVICE_TERMS.items()
    ]


def _list_host_rows(windows: Sequence[WindowEfficiency], *, both: bool) -> list[EfficiencyRow]:
    """Return the rows of main threads, which have no convention; those of MPI and of CUDA only where there is any."""
    known = [window.nccl_as_communication.host for window in windows]
    hosts = [host for host in known if host is not None]
    has_gpus = windows[0].losses is not None
    has_mpi, has_offload = any(host.mpi_parallel < 1 for host in hosts), any(host.offload < 1 for host in hosts)
    if len(hosts) < len(known) or not (has_gpus or has_mpi):
        return []
    empty = [None for _ in hosts] if both else []
    root = f"{count_noun(windows[0].threads, 'main thread')}, parallel"
    return [
        EfficiencyRow(key, name or root, depth, about, [*(getattr(host, key) for host in hosts), *empty])
        for key, (depth, name, about) in HOST_TERMS.items()
        if (has_mpi or not key.startswith("mpi_")) and (has_offload or key != "offload")
    ]


# ---- tables ----------------------------------------------------------------------------------------------------------


def tabulate_efficiency(efficiency: EfficiencyNumbers, steps: StepNumbers | None) -> Grid:
    """Return the efficiencies in the whole time and in the work."""
    table = make_efficiency_table(efficiency, steps)
    times = [f"{window.name} ({format_time(window.numbers.window_ns)})" for window in table.windows]
    caption = f"Efficiencies in {' and '.join(times)}"
    columns = [Column(window.title) for window in table.windows]
    if table.has_conventions:
        caption += ", with kernels of NCCL as communication (as in BasicAnalysis) or useful (as in TALP)"
        columns = [replace(column, over=kind) for kind in ("communication", "useful") for column in columns]
    rows: list[list[Cell]] = [
        [Term(row.label, row.about, row.depth), *(Score(value) for value in row.values)] for row in table.rows
    ]
    return Grid(caption=caption, columns=[Column(""), *columns], rows=rows, over="NCCL is")


def tabulate_parts(windows: Sequence[NamedWindow]) -> Grid:
    """Return the time of all GPUs in each window as parts that add up to it."""
    rows: list[list[Cell]] = []
    labels: dict[str, str] = {}
    devices = 0
    for window in windows:
        losses = window.numbers.losses
        if losses is None:
            continue
        whole = losses.devices * window.numbers.window_ns
        parts = list_parts(losses)
        labels |= {part.key: part.label for part in parts}
        devices = devices or losses.devices
        shares = ", ".join(f"{format_percent(part.ns, whole)} {part.label}" for part in parts if part.ns >= whole / 200)
        bar = Bar([BarPart(part.label, part.key, part.ns) for part in parts], whole)
        rows.append([window.name.replace("`", ""), shares, bar])
    return Grid(
        caption=f"Where the time of {count_noun(devices, 'GPU')} goes",
        columns=make_columns("", "parts from 0.5% on", Column("", wide=True)),
        rows=rows,
        names=2,
        legend=[(key, labels[key]) for key in ("compute_ns", *PARTS) if key in labels],
    )
