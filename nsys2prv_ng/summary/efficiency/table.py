"""Tables of efficiencies: the trees, with a definition of each number, and where GPU time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nsys2prv_ng.summary.efficiency.numbers import DeviceEfficiency, EfficiencyNumbers, HostEfficiency, StepNumbers
from nsys2prv_ng.summary.efficiency.windows import list_windows
from nsys2prv_ng.text.formatting import count_noun, format_time
from nsys2prv_ng.text.grid import Cell, Column, Grid, Score, Term

DEVICE_TERMS = {
    "parallel": Term(
        "parallel", "Time that all GPUs compute, of the time of all GPUs: load balance x communication x orchestration"
    ),
    "load_balance": Term("load balance", "Mean time that a GPU computes, of the longest of any GPU", 1),
    "communication": Term(
        "communication",
        "Longest time that a GPU computes, of the longest time that one computes, communicates or copies",
        1,
    ),
    "orchestration": Term(
        "orchestration", "Longest time that a GPU computes, communicates or copies, of the time of the window", 1
    ),
}
POP_TERMS = {
    "pop_communication": Term(
        "POP communication", "Longest time that a GPU computes, of the time of the window: serialisation x transfer"
    ),
    "serialisation": Term(
        "serialisation", "Longest time that a GPU computes, of the time of the window if data moved in no time", 1
    ),
    "transfer": Term("transfer", "Time of the window if data moved in no time, of its real time", 1),
}
HOST_TERMS = {
    "parallel": Term(
        "parallel",
        "Time of all main threads outside of MPI and CUDA calls, of all of their time: MPI parallel x device offload",
    ),
    "mpi_parallel": Term(
        "MPI parallel", "Time of all main threads outside of MPI, of all of their time: load balance x communication", 1
    ),
    "mpi_load_balance": Term("load balance", "Mean time of a main thread outside of MPI, of the longest of any", 2),
    "mpi_communication": Term(
        "communication",
        "Longest time of a main thread outside of MPI, of the time of the window: serialisation x transfer",
        2,
    ),
    "mpi_serialisation": Term(
        "serialisation",
        "Longest time of a main thread outside of MPI, of the time of the window if MPI moved data in no time",
        3,
    ),
    "mpi_transfer": Term("transfer", "Time of the window if MPI moved data in no time, of its real time", 3),
    "offload": Term(
        "device offload", "Time of all main threads outside of MPI and CUDA calls, of their time outside of MPI", 1
    ),
}
"""Name, definition (docs/guides/paraver.md), depth of each efficiency, by its field, in the order of the tree."""


# ---- tables ----------------------------------------------------------------------------------------------------------


def tabulate_efficiency(efficiency: EfficiencyNumbers, steps: StepNumbers | None) -> Grid:
    """Return the efficiencies in the whole time and in the work: a tree for GPUs and a tree for main threads.

    If the results of the conventions differ, each window has two columns. Conventions do not affect main threads.
    """
    windows = list_windows(efficiency, steps)
    times = [f"{window.name} ({format_time(window.numbers.length_ns)})" for window in windows]
    caption = f"Efficiencies in {' and '.join(times)}"
    columns = [Column(window.title) for window in windows]
    trees = [window.numbers.nccl_as_communication for window in windows]
    useful = [window.numbers.nccl_as_useful for window in windows]
    hosts = [tree.host for tree in trees]
    if trees != useful:
        caption += ", with NCCL as communication (BasicAnalysis) or useful (TALP)"
        columns = [replace(column, over=kind) for kind in ("communication", "useful") for column in columns]
        trees += useful
    rows: list[list[Cell]] = []
    devices, losses = [tree.device for tree in trees], efficiency.losses
    if losses is not None and None not in devices:
        rows += list_device_scores(f"{count_noun(losses.devices, 'GPU')}, parallel", devices)
    terms = {key: term for key, term in HOST_TERMS.items() if any(applies(key, host) for host in hosts)}
    if None not in hosts and (losses is not None or "mpi_parallel" in terms):
        root = f"{count_noun(efficiency.threads, 'main thread')}, parallel"
        rows += list_scores(terms, root, [*hosts, *[None] * (len(columns) - len(hosts))])
    return Grid(caption=caption, columns=[Column(""), *columns], rows=rows, over="NCCL is")


def applies(key: str, host: HostEfficiency | None) -> bool:
    """Return whether a rate applies to main threads: rates of MPI, and of CUDA, do not if no thread calls it."""
    if host is None or getattr(host, key) is None or (key.startswith("mpi_") and host.mpi_parallel == 1):
        return False
    return key != "offload" or host.offload != 1


def list_device_scores(
    root: str, trees: Sequence[DeviceEfficiency | None], terms: Mapping[str, Term] = DEVICE_TERMS
) -> list[list[Cell]]:
    """Return the rows of both trees of GPUs; that of POP only if it applies to any. `root`: name of the first row."""
    has_pop = any(tree is not None and tree.pop_communication is not None for tree in trees)
    return list_scores(terms, root, trees) + (list_scores(POP_TERMS, "", trees) if has_pop else [])


def list_scores(terms: Mapping[str, Term], root: str, trees: Sequence[object]) -> list[list[Cell]]:
    """Return a row for each efficiency, with a cell for each tree (None: empty). `root`: name of the first row."""
    named = {key: replace(term, text=root) if key == "parallel" else term for key, term in terms.items()}
    return [[term, *(Score(getattr(tree, key, None)) for tree in trees)] for key, term in named.items()]
