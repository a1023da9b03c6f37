"""Rows of data behind the tables: sums by plain loops over the numbers of a summary."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from nsys2prv_ng.summary.efficiency.numbers import EfficiencyTrees, HostEfficiency, StepNumbers, WindowEfficiency
from nsys2prv_ng.summary.efficiency.table import tabulate_efficiency
from nsys2prv_ng.summary.efficiency.windows import list_parts
from nsys2prv_ng.summary.gpus.numbers import Cause, GpuNumbers
from nsys2prv_ng.summary.gpus.table import tabulate_causes
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.path.numbers import PathName, PathNumbers, PathOfRank, PathPart
from nsys2prv_ng.summary.path.table import tabulate_path
from nsys2prv_ng.summary.waits.numbers import Bandwidth, Excess
from nsys2prv_ng.summary.waits.table import tabulate_bandwidth, tabulate_excess
from nsys2prv_ng.summary.waits.words import list_bandwidth, list_stragglers
from nsys2prv_ng.text.grid import Cell, Count, Grid, Name, Ns, Score, Share, Term
from tests.summary.made import summarize_reports
from tests.summary.made_summary import make_losses, make_summary


@pytest.fixture(scope="module")
def found(samples: Path) -> JobSummary:
    return summarize_reports(sorted(samples.glob("mpi-4.rank*.sqlite")))


# ---- causes ----------------------------------------------------------------------------------------------------------


LABELS = {
    "queued": "(queued)",
    "graph": "(in a CUDA graph)",
    "unknown": "(no launch recorded)",
    "cut": "(cut by the window)",
}


def label(cause: Cause) -> tuple[str, str]:
    if cause.cause in LABELS:
        return LABELS[cause.cause], ""
    return cause.range or "(outside NVTX ranges)", cause.call or "(code outside calls)"


@pytest.mark.slow
def test_causes_of_all_gpus(found: JobSummary) -> None:
    rows = tabulate_causes(found.gpus).rows
    causes = [cause for gpu in found.gpus for cause in gpu.idle_causes or []]
    assert len(rows) < len(causes)
    whole = sum(gpu.idle_ns for gpu in found.gpus)
    assert sum(cause.ns for cause in causes) == whole
    times = []
    for range_, call, before, *cells in rows:
        name = re.sub(r"^.+ \((.+)\)$", r"\1", str(call))  # words may stand before it
        alike = [cause for cause in causes if (*label(cause), cause.next) == (str(range_), name, str(before))]
        times.append(sum(cause.ns for cause in alike))
        assert cells[:3] == [Ns(times[-1]), Share(times[-1], whole), Count(sum(cause.gaps for cause in alike))]
    assert sum(times) == whole and times == sorted(times, reverse=True)


@pytest.mark.slow
def test_labels_of_causes(found: JobSummary) -> None:
    causes = [Cause(cause=name, range="", call="", ns=10 - i, gaps=1) for i, name in enumerate([*LABELS, "host"])]
    grid = tabulate_causes([replace(found.gpus[0], idle_causes=causes), replace(found.gpus[0], idle_causes=None)])
    assert [tuple(map(str, row[:2])) for row in grid.rows] == [
        ("(queued)", ""),
        ("(in a CUDA graph)", ""),
        ("(no launch recorded)", ""),
        ("(cut by the window)", ""),
        ("(outside NVTX ranges)", "(code outside calls)"),
    ]


@pytest.mark.parametrize(
    ("ranks", "shown"),
    [
        (([0], [1], [2]), ["rank 1: 90.0%", "", "rank 0: 100.0%"]),
        (([0], [0], [0]), ["n GPU 1: 90.0%", "", "n GPU 0: 100.0%"]),  # the rank says nothing if it has all of them
        (([0, 3], [1], [2]), ["rank 1: 90.0%", "", "n GPU 0: 100.0%"]),
        (([], [1], [0, 1]), ["n GPU 1: 90.0%", "", "n GPU 0: 100.0%"]),
    ],
)
def test_the_gpu_that_has_most_of_a_cause(ranks: tuple[list[int], ...], shown: list[str]) -> None:
    times = ((5, 50, 20), (90, 50, 0), (5, 50, 0))
    gpus = [
        make_gpu(
            i,
            own,
            [Cause(cause="host", range=name, call="", ns=ns, gaps=1) for name, ns in zip("fgh", parts, strict=True)],
        )
        for i, (own, parts) in enumerate(zip(ranks, times, strict=True))
    ]
    rows = {str(row[0]): str(row[6]) for row in tabulate_causes(gpus).rows}
    assert [rows[name] for name in "fgh"] == shown


def make_gpu(number: int, ranks: list[int], causes: list[Cause]) -> GpuNumbers:
    return GpuNumbers(
        node="n",
        gpu=number,
        name="",
        ranks=ranks,
        tasks=[],
        span_ns=1,
        busy_ns=1,
        compute_ns=1,
        communication_ns=0,
        overlap_ns=0,
        memory_ns=0,
        idle_ns=0,
        gaps=0,
        longest_gap_ns=0,
        longest_gap_at_ns=None,
        idle_causes=causes,
        peak_memory_bytes=None,
    )


# ---- efficiencies ----------------------------------------------------------------------------------------------------


def list_scores(grid: Grid) -> list[tuple[Term, list[float | None]]]:
    """The term and the values of each row."""
    return [
        (term, [cell.value for cell in cells if isinstance(cell, Score)])
        for term, *cells in grid.rows
        if isinstance(term, Term)
    ]


def list_children(rows: list[tuple[Term, list[float | None]]], parent: int) -> list[tuple[Term, list[float | None]]]:
    """The rows below one, down to the next that is as high."""
    children = []
    depth = rows[parent][0].depth
    for row in rows[parent + 1 :]:
        if row[0].depth <= depth:
            break
        if row[0].depth == depth + 1:
            children.append(row)
    return children


def list_titles(grid: Grid) -> list[str]:
    return [column.title for column in grid.columns[1:]]


@pytest.mark.slow
def test_each_efficiency_is_the_product_of_those_below(found: JobSummary) -> None:
    assert found.efficiency is not None
    grid = tabulate_efficiency(found.efficiency, found.steps)
    assert list_titles(grid) == ["capture", "steps"] and not any(column.over for column in grid.columns)
    rows = list_scores(grid)
    assert [term.text for term, _ in rows] == [
        *("4 GPUs, parallel", "load balance", "communication", "orchestration"),
        *("4 main threads, parallel", "MPI parallel", "load balance", "communication", "device offload"),
    ]
    parents = 0
    for index, (term, values) in enumerate(rows):
        assert len(values) == 2 and term.about and not term.about.endswith(".")
        children = list_children(rows, index)
        if children:
            parents += 1
            for column, value in enumerate(values):
                assert value == pytest.approx(prod(child[column] or 0 for _, child in children))
            # The definition names them as the table does.
            assert term.about.endswith(": " + " x ".join(child.text for child, _ in children))
    assert parents == 3


def make_pop(window: WindowEfficiency) -> WindowEfficiency:
    """Return a window with rates of a replay: its real time is 1.25 times that on an ideal network."""
    trees = window.nccl_as_communication
    assert trees.device is not None and trees.host is not None
    pop = trees.device.communication * trees.device.orchestration
    device = replace(trees.device, pop_communication=pop, serialisation=pop / 0.8, transfer=0.8)
    host = replace(trees.host, mpi_serialisation=trees.host.mpi_communication / 0.8, mpi_transfer=0.8)
    return replace(window, nccl_as_communication=EfficiencyTrees(device=device, host=host))


@pytest.mark.slow
def test_the_rates_of_a_replay_are_factors(found: JobSummary) -> None:
    """Of a tree of their own for GPUs, and of MPI's communication; where they are not known, cells are empty."""
    assert found.efficiency is not None and found.efficiency.in_steps is not None
    efficiency = replace(found.efficiency, in_steps=make_pop(found.efficiency.in_steps))
    grid = tabulate_efficiency(efficiency, found.steps)
    rows = list_scores(grid)
    assert [(term.depth, term.text) for term, _ in rows] == [
        *((0, "4 GPUs, parallel"), (1, "load balance"), (1, "communication"), (1, "orchestration")),
        *((0, "POP communication"), (1, "serialisation"), (1, "transfer")),
        *((0, "4 main threads, parallel"), (1, "MPI parallel"), (2, "load balance"), (2, "communication")),
        *((3, "serialisation"), (3, "transfer"), (1, "device offload")),
    ]
    # As the conventions differ now, there are two columns of each: the capture and the steps.
    assert list_titles(grid) == ["capture", "steps"] * 2
    parents = 0
    for index, (term, values) in enumerate(rows):
        children = list_children(rows, index)
        if children:
            parents += 1
            assert term.about.endswith(": " + " x ".join(child.text for child, _ in children))
            assert values[1] == pytest.approx(prod(child[1] or 0 for _, child in children))
    assert parents == 5
    for term, (capture, steps, *useful) in rows:
        if term.text in ("POP communication", "serialisation", "transfer"):
            assert capture is None and steps is not None and set(useful) == {None}


def test_the_host_has_no_convention() -> None:
    found = make_summary(
        make_losses(compute=50, moving=50),
        HostEfficiency(
            parallel=0.5,
            mpi_parallel=0.5,
            mpi_load_balance=0.5,
            mpi_communication=1.0,
            offload=1.0,
            mpi_balance_in_nodes=1.0,
            mpi_balance_of_nodes=1.0,
        ),
    )
    efficiency = found.efficiency
    assert efficiency is not None and efficiency.in_steps is not None
    device = efficiency.in_steps.nccl_as_communication.device
    assert device is not None
    useful = replace(efficiency.in_steps.nccl_as_useful, device=replace(device, parallel=1.0))
    in_steps = replace(efficiency.in_steps, nccl_as_useful=useful, length_ns=efficiency.length_ns // 2)
    efficiency = replace(efficiency, in_steps=in_steps)
    grid = tabulate_efficiency(replace(efficiency, is_chosen=True), found.steps)
    assert list_titles(grid) == ["chosen", "steps", "chosen", "steps"]
    assert [column.over for column in grid.columns[1:]] == [*["communication"] * 2, *["useful"] * 2]
    by_label = {(term.depth, term.text): values for term, values in list_scores(grid)}
    assert by_label[0, "2 GPUs, parallel"] == [1.0, 0.5, 1.0, 1.0]
    assert "device offload" not in {text for _, text in by_label}
    assert list_titles(tabulate_efficiency(efficiency, None)) == ["capture"]
    labels = {term.text for term, _ in list_scores(tabulate_efficiency(efficiency, found.steps))}
    assert not any("main thread" in text or "MPI" in text for text in labels)  # the capture has no main threads


def test_parts_add_up(found: JobSummary) -> None:
    assert found.efficiency is not None and isinstance(found.steps, StepNumbers)
    for window in (found.efficiency, found.efficiency.in_steps):
        assert window is not None and window.losses is not None
        parts = list_parts(window.losses)
        assert parts[0][:2] == ("compute_ns", "compute") and all(part.label and part.ns for part in parts)
        assert sum(part.ns for part in parts) == window.length_ns * window.losses.devices
        times = [part.ns for part in parts[1:]]
        assert times == sorted(times, reverse=True)


# ---- stragglers ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_stragglers(found: JobSummary) -> None:
    assert found.waits is not None
    rows = list_stragglers(found.waits)
    assert sorted(rank.task for rank, _ in rows) == [f"rank {n}" for n in range(4)]
    caused = [rank.all_caused_ns for rank, _ in rows]
    assert caused == sorted(caused, reverse=True)
    for rank, main in rows:
        costs = [cost for cost in found.waits.costs if cost.task == rank.task]
        assert rank.all_caused_ns == sum(cost.ns for cost in costs) > 0 and main is not None
        by_reason = {reason: sum(c.ns for c in costs if c.reason == reason) for reason in {c.reason for c in costs}}
        assert (main.reason, main.ns) == max(by_reason.items(), key=lambda item: item[1])
        of_reason = [cost for cost in costs if cost.reason == main.reason]
        by_range = {name: sum(c.ns for c in of_reason if c.range == name) for name in {c.range for c in of_reason}}
        assert (main.row.range, main.row.ns) == max(by_range.items(), key=lambda item: item[1])
        assert main.label == main.row.range


# ---- the critical path, bandwidth ------------------------------------------------------------------------------------


def test_rows_of_the_path() -> None:
    both = [PathOfRank(rank=0, task="rank 0", ns=60), PathOfRank(rank=None, task="a task", ns=40)]
    parts = [
        PathPart(path_class="Compute", name="gemm", range="", count=2, ns=100, ranks=both),
        PathPart(path_class="CPU code", name="", range="", count=1, ns=40, ranks=both[1:]),
        PathPart(
            path_class="CUDA API call",
            name="cudaMalloc",
            range="layer",
            count=1,
            ns=10,
            ranks=[PathOfRank(rank=1, task="rank 1", ns=9), PathOfRank(rank=0, task="rank 0", ns=1)],
        ),
    ]
    names = [
        PathName(path_class="Compute", name="gemm", count=2, ns=100, imbalance_ns=30),
        PathName(path_class="Data transfer", name="cudaMalloc", count=2, ns=100, imbalance_ns=7),
    ]
    path = PathNumbers(
        length_ns=160,
        windows_ns=[(0, 160)],
        step_name=None,
        steps=[],
        classes={},
        ranks=both,
        names=names,
        parts=parts,
        switches=1,
        followed=0,
        unsure=0,
    )
    rows: list[list[Cell]] = [
        [Name("Compute"), Name("gemm"), Name(""), Ns(100), Share(100, 160), Ns(30), "2"],
        [
            Name("CPU code"),
            Name("(code outside calls)"),
            Name("(outside NVTX ranges)"),
            Ns(40),
            Share(40, 160),
            Ns(None),
            "a task",
        ],
        [Name("CUDA API call"), Name("cudaMalloc"), Name("layer"), Ns(10), Share(10, 160), Ns(None), "rank 1"],
    ]
    assert tabulate_path(path, has_several=True).rows == rows
    assert tabulate_path(path, has_several=False).rows == [[*row[:5], "", ""] for row in rows]


def test_bandwidth_of_one_size_in_two_communicators() -> None:
    bandwidth = [
        Bandwidth(
            function="AllReduce",
            communicator="a",
            ranks=4,
            bytes=1_000_000,
            count=2,
            ns=1000,
            algorithm_bytes_per_s=300,
            bus_bytes_per_s=450,
        ),
        Bandwidth(
            function="AllReduce",
            communicator="b",
            ranks=4,
            bytes=1_000_001,
            count=1,
            ns=3000,
            algorithm_bytes_per_s=100,
            bus_bytes_per_s=150,
        ),
        Bandwidth(
            function="AllReduce",
            communicator="c",
            ranks=2,
            bytes=9_000_000,
            count=1,
            ns=10,
            algorithm_bytes_per_s=7,
            bus_bytes_per_s=8,
        ),
    ]
    assert [tuple(row) for row in list_bandwidth(bandwidth)] == [
        ("AllReduce", 2, "9.00 MB", 9_000_000, 1, 10, 7.0, 8.0, ""),
        ("AllReduce", 4, "1.00 MB", 3_000_001, 3, 4000, 150.0, 225.0, ""),
    ]
    assert [row[5] for row in tabulate_bandwidth(bandwidth).rows] == [Ns(10), Ns(4000 / 3)]


# ---- excess ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "shown"), [(0, 10**9), (1, 10**9), (4, 10**9 // 4)])
def test_excess_is_shown_for_each_step(samples: Path, count: int, shown: int) -> None:
    """Saved summaries may have a count of zero steps."""
    summary = summarize_reports(sorted(samples.glob("ddp-2x2.rank*.sqlite")))
    assert summary.waits and summary.steps
    excess = Excess(kind="range", domain="", name="load", ns=10**9, others_ns=0)
    summary = replace(
        summary, waits=replace(summary.waits, excess=[excess]), steps=replace(summary.steps, count=count), windows_ns=[]
    )
    ((name, kind, time, others, more),) = tabulate_excess(summary.waits, summary.measured_ns, summary.step_count).rows
    assert (name, kind, time, others, more) == (Name("load"), "range", Ns(shown), Ns(0), Ns(shown))
