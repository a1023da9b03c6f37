"""Causes of delay that were put into copies of real reports: the critical path runs through them to the nanosecond."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from nsys2prv_ng.paraver import event_types as types
from tests.analysis.path.test_critical_path import found_path
from tests.analysis.waits.test_planted_waits import DELAY, copy_to_one_node, delay, find_late, read_kernels, read_utc
from tests.analysis.waits.test_waits import locate
from tests.conftest import Unpacked
from tests.report_sets import find_set, sets
from tests.tiers import cases

pytestmark = pytest.mark.slow


class Piece(NamedTuple):
    """A segment of the path; times in UTC."""

    begin: int
    end: int
    kind: int
    name: str
    range: str
    rank: int


def read_path(reports: Sequence[Path], folder: Path) -> list[Piece]:
    """Return the path through the reports of a job, after its first step: a delay makes no step a warm-up."""
    with found_path(reports, folder, warmup=1) as (job, found):
        ranks = [job.whole.ranks[task] for task in job.whole.task_of_row[found.row].tolist()]
        base = job.alignment.utc_base
        columns = ((found.begin + base).tolist(), (found.end + base).tolist(), found.kind.tolist())
        names = [found.names[name] if name >= 0 else "" for name in found.name.tolist()]
        ranges = [found.ranges[own] if own >= 0 else "" for own in found.range.tolist()]
        return [Piece(*values) for values in zip(*columns, names, ranges, ranks, strict=True)]  # type: ignore[arg-type]


def sum_within(pieces: Sequence[Piece], low: int, high: int) -> Counter[tuple[int, str, int]]:
    """Return the length of the path within a time by kind, name of an operation, and rank."""
    total = Counter[tuple[int, str, int]]()
    for piece in pieces:
        length = min(piece.end, high) - max(piece.begin, low)
        if length > 0:
            total[piece.kind, piece.name, piece.rank] += length
    return total


def sum_kinds(pieces: Sequence[Piece]) -> Counter[int]:
    total = Counter[int]()
    for piece in pieces:
        total[piece.kind] += piece.end - piece.begin
    return total


@pytest.mark.parametrize("rank", cases([0, 3], push=1))
def test_a_host_that_sleeps(samples: Path, tmp_path: Path, rank: int) -> None:
    """Before a launch call of one rank: all others wait for it in the collective."""
    reports = copy_to_one_node([samples / f"ddp-2x2.rank{r}.sqlite" for r in range(4)], tmp_path)
    kernels = [read_kernels(report, "ncclDevKernel_%") for report in reports]
    compute = sorted(set(read_kernels(reports[rank], "%")) - set(kernels[rank]))
    number, time = find_late(kernels[rank], compute, "host")
    assert find_path_through(reports, kernels, rank, number, time, tmp_path) == (types.PATH_HOST, "", rank)


STRETCHED = (
    *("samples/ddp-2x2", "samples/mpi-4", "samples/single-graph", "gpu/oneproc-4gpu", "gpu/autograd-1"),
    *("exercises/ex1a-slow", "exercises/ex1b-fp32", "exercises/ex2b-overlap", "exercises/ex3a-pp1"),
    *("exercises/ex3a-pp2", "exercises/tpgraph-1x4"),
)


@pytest.mark.parametrize("name", sets(STRETCHED, push=["samples/single-graph"]))
def test_what_the_path_is_in_takes_longer(name: str, tmp_path: Path) -> None:
    """Kernels, host code, calls and moving: the piece is longer, and the rest of the path as it was.

    All ranks get the time at once, so that whatever they are in takes longer; what waits, waits longer.
    """
    reports = copy_to_one_node(find_set(name), tmp_path)
    before = read_path(reports, tmp_path)
    utc = [read_utc(report) for report in reports]
    for kind in sorted({piece.kind for piece in before} - {types.PATH_GAP, types.PATH_LAUNCH}):
        longest = max((piece for piece in before if piece.kind == kind), key=lambda piece: piece.end - piece.begin)
        time = (longest.begin + longest.end) // 2
        if longest.end - longest.begin < 20_000:
            continue
        copies = [Path(shutil.copy(report, tmp_path / f"{kind} {report.name}")) for report in reports]
        for copy, own in zip(copies, utc, strict=True):
            delay(copy, time - own)
        moved = [
            piece._replace(
                begin=piece.begin + (DELAY if piece.begin >= time else 0),
                end=piece.end + (DELAY if piece.end > time else 0),
            )
            for piece in before
        ]
        assert read_path(copies, tmp_path) == moved


def find_path_through(
    reports: Sequence[Path],
    kernels: Sequence[Sequence[tuple[int, int, int]]],
    rank: int,
    number: int,
    time: int,
    folder: Path,
) -> tuple[int, str, int]:
    """Delay a rank from a time on, and the others from the end of a collective on; return what the path is in then."""
    for other, report in enumerate(reports):
        delay(report, time if other == rank else kernels[other][number][1])
    low = time + read_utc(reports[rank])
    [found] = sum_within(read_path(reports, folder), low, low + DELAY)
    return found


@pytest.mark.all_sets
@pytest.mark.parametrize("name", ["ex3a-pp2", "ex2b-overlap", "ex2b-manual"])
def test_a_slower_link(shared_reports: Path, unpacked: Unpacked, tmp_path: Path, name: str) -> None:
    """One all-reduce takes longer on all of its ranks: the path moves data for as much longer, and nothing else."""
    check_slower_link(copy_to_one_node(locate(shared_reports, unpacked, name), tmp_path), tmp_path)


def test_a_slower_link_of_a_sample(samples: Path, tmp_path: Path) -> None:
    check_slower_link(copy_to_one_node([samples / f"ddp-2x2.rank{r}.sqlite" for r in range(4)], tmp_path), tmp_path)


def check_slower_link(reports: Sequence[Path], folder: Path) -> None:
    before = read_path(reports, folder)
    on_path = [piece for piece in before if piece.kind == types.PATH_MOVING]
    longest = max(on_path, key=lambda piece: piece.end - piece.begin)
    utc = [read_utc(report) for report in reports]
    kernels = [read_kernels(report, "nccl%") for report in reports]
    ends = [[end + own for _, end, _ in rank] for rank, own in zip(kernels, utc, strict=True)]
    number = ends[longest.rank].index(longest.end)
    for report, rank, own in zip(reports, ends, utc, strict=True):
        delay(report, rank[number] - own)
    after = read_path(reports, folder)
    difference = sum_kinds(after)
    difference.subtract(sum_kinds(before))
    assert {kind: ns for kind, ns in difference.items() if ns} == {types.PATH_MOVING: DELAY}


# ---- what is known of programs ---------------------------------------------------------------------------------------


def test_a_rank_that_loads_data(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    """ex1a-slow: nearly all of the path is the loading of data of rank 0."""
    pieces = read_path(locate(shared_reports, unpacked, "ex1a-slow"), tmp_path)
    window = pieces[-1].end - pieces[0].begin
    loading = sum(piece.end - piece.begin for piece in pieces if (piece.range, piece.rank) == ("data loading", 0))
    assert loading > 0.95 * window and {piece.rank for piece in pieces} == {0}


def test_a_pipeline(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    """ex3a-pp2: the path computes and sends from stage to stage, all of them in turn."""
    pieces = read_path(locate(shared_reports, unpacked, "ex3a-pp2"), tmp_path)
    window = pieces[-1].end - pieces[0].begin
    computing, sending = (
        sum(piece.end - piece.begin for piece in pieces if piece.kind == kind and piece.name.startswith(name))
        for kind, name in ((types.PATH_COMPUTE, ""), (types.PATH_MOVING, "ncclDevKernel_SendRecv"))
    )
    assert computing > window / 3 and sending > window / 3 and computing + sending > 0.85 * window
    for rank in range(4):
        assert sum(piece.end - piece.begin for piece in pieces if piece.rank == rank) > window / 10
    stages = [piece.rank // 2 for piece in pieces]
    assert sum(earlier != later for earlier, later in pairwise(stages)) >= 4  # in each iteration
