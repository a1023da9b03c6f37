"""The critical path of real reports: each segment proven by what plain SQL finds in the reports."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from fnmatch import fnmatch
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from nsys2prv_ng.analysis.path.critical_path import CriticalPath, find_critical_path, load_path_lanes
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.job.open_job import Job, open_job
from nsys2prv_ng.objects.places import Stream, Thread
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.reading.open_reports import ReadOptions, Selection
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.registry import DERIVED, SOURCES
from tests.analysis.path.path_reports import Capture
from tests.analysis.path.test_critical_path import OUTSIDE, check_sums, found_path
from tests.conftest import REPORTS, Unpacked
from tests.report_sets import find_set, list_sets, sets
from tests.report_truth import BETWEEN_GPUS, Report
from tests.spans import MISSING

_MOST = 4_000
"""Segments of a path that are proven."""
_SHORTEST = 10_000
"""Calls of the operating system that are shorter (ns) are not read."""
_DEEPEST = 300
"""Calls and operations that are looked at for one that contains a segment."""
NCCL, COMPUTE, MEMORY = (types.PATH_MOVING, types.PATH_NOT_SPLIT), (types.PATH_COMPUTE,), (types.PATH_MEMORY,)
GRAPHS = (types.PATH_GRAPH,)
CALLS = (types.PATH_CUDA_CALL, types.PATH_SYSTEM_CALL, types.PATH_MPI)


EVERY_PUSH = (
    *("samples/ddp-2x2", "samples/mpi-4", "samples/single-graph", "gpu/autograd-1", "gpu/oneproc-4gpu"),
    *("gpu/sampled-1", "cpu/2022.4.2-ompi", "cpu/2023.4.4-mpich_all", "public/pipit_cloverleaf"),
)
"""NCCL, MPI in CUDA, in NVTX and alone, graphs, copies between GPUs, ranges of autograd, no ranges at all."""
EMPTY = ("cpu/2024.2.3-acc_gcc", "cpu/2024.2.3-nccl_mimic", "cpu/2024.2.3-omp_clang")
"""Sets without calls and operations: of OpenACC, NVTX and OpenMP alone."""


def list_path_sets() -> list[object]:
    """Return all sets of reports that may have a path as parameters, by name."""
    named = {name: own for name, own in list_sets().items() if not name.startswith("whatif/")}
    parameters = [pytest.param(own, id=name) for name, own in named.items() if name not in EMPTY]
    return sets(parameters, push=EVERY_PUSH) + MISSING


class Intervals(NamedTuple):
    """n operations of a stream or calls of a thread, by begin; `latest` is the latest end up to each."""

    begin: np.ndarray
    end: np.ndarray
    name: list[str]
    launched: np.ndarray
    latest: np.ndarray

    def list_around(self, begin: int, end: int) -> list[int]:
        """Return those that contain a time."""
        last = int(np.searchsorted(self.begin, begin, "right"))
        return [i for i in range(max(0, last - _DEEPEST), last) if self.end[i] >= end]

    def find_overlap(self, begin: int, end: int) -> bool:
        before = int(np.searchsorted(self.begin, end))
        return before > 0 and bool(self.latest[before - 1] > begin)


class Truth:
    """What one report has, on the common clock."""

    def __init__(self, path: Path, clock: ClockMap) -> None:
        self.report = Report(path)
        self._clock = clock

    @cached_property
    def operations(self) -> dict[tuple[int, ...], Intervals]:
        """Operations by process, device, context and stream."""
        operations = self.report.operations
        calls = self.report.calls
        calls = calls.assign(process=[int(tid) >> 24 for tid in calls["tid"]]).sort_values("begin")
        first = calls[calls["correlation"] != 0].drop_duplicates(["process", "correlation"])
        launches = first.set_index(["process", "correlation"])["begin"].to_dict()
        keys = zip(operations["process"], operations["correlation"], strict=True)
        launched = [launches.get(key, -1) for key in keys]
        groups = operations.assign(launched=launched).groupby(["process", "device", "context", "stream"])
        return {key: self._make_intervals(own) for key, own in groups}

    @cached_property
    def calls(self) -> dict[int, Intervals]:
        """The calls that the path knows, by globalTid."""
        parts = [self.report.calls[["begin", "end", "tid", "name"]]]
        if self.report.has("OSRT_API"):
            parts.append(
                self.report.sql(
                    f"""SELECT start AS begin, "end", globalTid AS tid, value AS name FROM OSRT_API
                    JOIN StringIds ON id = nameId WHERE "end" - start >= {_SHORTEST} AND eventClass = 27"""
                )
            )
        for table in sorted(self.report.tables):
            if re.fullmatch("MPI_(P2P|COLLECTIVES|START_WAIT|OTHER)_EVENTS", table):
                query = f'SELECT start AS begin, "end", globalTid AS tid, value AS name FROM {table}'
                parts.append(self.report.sql(f"{query} JOIN StringIds ON id = textId"))
        if self.report.has("NVTX_EVENTS"):  # where 2022.4.2 has the calls of MPI
            parts.append(self.report.nvtx.loc[self.report.nvtx["domain"] == "MPI"].assign(name=lambda own: own["text"]))
        calls = pd.concat([part for part in parts if len(part)] or parts)
        calls = calls[calls["end"].notna()]
        return {tid: self._make_intervals(own.assign(launched=-1)) for tid, own in calls.groupby("tid")}

    def _make_intervals(self, events: pd.DataFrame) -> Intervals:
        ordered = events.sort_values(["begin", "end"])
        begin, end, launched = (self._clock(ordered[name].to_numpy(np.int64)) for name in ("begin", "end", "launched"))
        return Intervals(begin, end, ordered["name"].tolist(), launched, np.maximum.accumulate(end))


@lru_cache(maxsize=4)
def get_truth(path: Path, clock: ClockMap) -> Truth:
    return Truth(path, clock)


class Segment(NamedTuple):
    begin: int
    end: int
    kind: int
    row: int
    name: str


def list_segments(found: CriticalPath) -> list[Segment]:
    names = [found.names[name] if name >= 0 else "" for name in found.name.tolist()]
    columns = (found.begin, found.end, found.kind, found.row)
    segments = [
        Segment(*values, name)
        for *values, name in zip(*(column.tolist() for column in columns), names, strict=True)  # type: ignore[misc]
    ]
    random = np.random.default_rng(1)
    chosen = random.choice(len(segments), min(_MOST, len(segments)), replace=False)
    return [segments[number] for number in sorted(chosen.tolist())]


def prove(segment: Segment, places: dict[int, tuple[Truth, object]], lows: set[int]) -> str:
    """Return what is wrong with a segment, nothing if it is as the reports show."""
    begin, end, kind, row, name = segment
    truth, place = places[row]
    if kind == types.PATH_HOST:
        assert isinstance(place, Thread)
        calls = truth.calls.get(place.global_tid)
        return "within a call" if calls is not None and calls.find_overlap(begin, end) else ""
    if kind in CALLS:
        assert isinstance(place, Thread)
        calls = truth.calls[place.global_tid]
        if "Query" in name:  # it waited since the query before
            begin = end - 1
        around = [calls.name[i] for i in calls.list_around(begin, end)]
        return "" if any(fnmatch(re.sub(r"_v[0-9]+$", "", own), name) for own in around) else f"in {around}"
    assert isinstance(place, Stream)
    operations = truth.operations[place[:4]]
    if kind in (*NCCL, *COMPUTE, *MEMORY, *GRAPHS):
        around = [operations.name[i] for i in operations.list_around(begin, end)]
        communicates = name.startswith("nccl") or name == BETWEEN_GPUS
        copies = name.startswith("Mem") and not communicates
        is_of_kind = (kind in NCCL) == communicates and (kind in MEMORY) == copies
        is_of_kind &= kind not in GRAPHS or re.fullmatch("graph [0-9]+", name) is not None
        return "" if name in around and is_of_kind else f"in {around}"
    followers = [i for i in operations.list_around(end, end) if operations.begin[i] == end]
    followers = [i for i in followers if operations.name[i] == name]
    if kind == types.PATH_LAUNCH:
        return "" if begin in {*lows, *(int(operations.launched[i]) for i in followers)} and followers else "no launch"
    if kind == types.PATH_GAP:
        ended = any(begin in own.end for key, own in truth.operations.items() if key[0] == place.process)
        return "" if followers and (ended or begin in lows) else "between other operations"
    return "of another kind"


def check_segments(job: Job, found: CriticalPath, paths: Sequence[Path]) -> None:
    """Prove the segments of a path, whatever was selected."""
    by_name = {path.name: path for path in paths}
    truths = [get_truth(by_name[report.path.name], report.clock) for report in job.reports]
    places = {
        row: (truth, place)
        for truth, report, rows in zip(truths, job.reports, job.whole.rows, strict=True)
        for place, row in zip(report.places.all, rows.tolist(), strict=True)
    }
    lows = {low for low, _ in found.windows}
    known = [segment for segment in list_segments(found) if segment.kind not in (types.PATH_UNKNOWN, OUTSIDE)]
    wrong = [(segment, why) for segment in known if (why := prove(segment, places, lows))]
    assert not wrong, wrong[:5]
    assert found.length[found.kind == types.PATH_UNKNOWN].sum() < sum(high - low for low, high in found.windows) / 100


@pytest.mark.parametrize("reports", list_path_sets())
def test_each_segment_is_what_the_reports_show(reports: Sequence[Path], unpacked: Unpacked, tmp_path: Path) -> None:
    paths = [unpacked(path) for path in reports]
    with found_path(paths, tmp_path, shortest=_SHORTEST) as (job, found):
        assert OUTSIDE not in found.kind
        check_segments(job, found, paths)


@pytest.mark.slow
@pytest.mark.parametrize("name", sets(EMPTY))
def test_reports_without_calls_and_operations_have_no_path(name: str, unpacked: Unpacked, tmp_path: Path) -> None:
    paths = sorted(REPORTS.glob(f"{name}*")) or [REPORTS / f"{name}.sqlite"]
    with open_job([unpacked(path) for path in paths], tmp_path, ReadOptions(), Progress()) as job:
        assert find_critical_path(job, load_path_lanes(job, find_waits(job))) is None


# ---- selections and damage -------------------------------------------------------------------------------------------

SAMPLE_SETS = ("samples/ddp-2x2", "samples/mpi-4", "samples/single-graph")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sets((*SAMPLE_SETS, "exercises/ex3a-pp2", "exercises/ex1a-slow"), push=["samples/single-graph"])
)
def test_windows_of_time(name: str, tmp_path: Path) -> None:
    """Windows between events, within them, at their limits, and up to the end."""
    paths = find_set(name)
    with found_path(paths, tmp_path) as (job, found):
        length = job.scope.duration
        limits = (found.begin[:: 1 + found.begin.size // 2] - job.scope.origin).tolist()
    random = np.random.default_rng(1)
    inside = [sorted(random.integers(1, length, 2).tolist()) for _ in range(2)]
    ends: list[tuple[int, int | None]] = [(length // 2, None), (length * 7 // 10, length * 4 // 5)]
    for window in [*inside, *pairwise(limits), *ends]:
        with found_path(paths, tmp_path, Selection(window=tuple(window)), shortest=_SHORTEST) as (job, found):
            assert found.steps is None and len(found.windows) == 1
            check_segments(job, found, paths)


RANGES = {"samples/mpi-4": "halo exchange", "samples/ddp-2x2": "backward*", "exercises/ex3a-pp2": "layer3*"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sets(RANGES, push=["samples/mpi-4"]))
def test_windows_of_ranges(name: str, tmp_path: Path) -> None:
    paths = find_set(name)
    with found_path(paths, tmp_path, Selection(nvtx_range=RANGES[name]), shortest=_SHORTEST) as (job, found):
        assert len(found.windows) > 3
        check_segments(job, found, paths)


@pytest.mark.slow
@pytest.mark.parametrize("name", sets(RANGES, push=["samples/mpi-4"]))
def test_chosen_ranks(name: str, tmp_path: Path) -> None:
    """The path stays on the chosen ranks, and leaves them only within what waits for others."""
    paths = find_set(name)
    for ranks in ({0}, {1, 2}):
        with found_path(paths, tmp_path, Selection(ranks=frozenset(ranks)), shortest=_SHORTEST) as (job, found):
            assert {job.whole.ranks[task] for task in job.whole.task_of_row[found.row].tolist()} <= ranks
            assert OUTSIDE in found.kind
            waits = {found.names[n] for n in found.name[found.kind == OUTSIDE].tolist()}
            assert all(wait.startswith(("nccl", "MPI_")) for wait in waits)
            check_segments(job, found, paths)
    with found_path(paths, tmp_path, Selection(ranks=frozenset(range(4))), shortest=_SHORTEST) as (job, found):
        assert OUTSIDE not in found.kind


def list_pairs(of_push: dict[str, str], names: Sequence[str]) -> list[object]:
    """Return each name with each key as parameters; of these, every push takes a key with the name that is given."""
    return [case for key, pushed in of_push.items() for case in sets([(name, key) for name in names], push=[pushed])]


DDP, MPI, GRAPH = SAMPLE_SETS
SET_OF_SOURCE = {
    **{"cuda_sync": GRAPH, "os_runtime": GRAPH, "launch_lines": MPI, "cuda_api": GRAPH, "nvtx": GRAPH},
    **{"kernels": GRAPH, "memory_operations": GRAPH, "mpi": MPI, "nccl": DDP},
}
"""The set that every push reads without each source; it has events of it."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "source"), list_pairs(SET_OF_SOURCE, SAMPLE_SETS))
def test_without_a_source(name: str, source: str, tmp_path: Path) -> None:
    sources = tuple(own for own in SOURCES + DERIVED if own.name != source)
    with open_job(find_set(name), tmp_path, ReadOptions(sources=sources), Progress()) as job:
        found = find_critical_path(job, load_path_lanes(job, find_waits(job)))
        assert found is not None
        check_sums(found)


SET_OF_TABLE = {
    **{"CUPTI_ACTIVITY_KIND_RUNTIME": GRAPH, "CUPTI_ACTIVITY_KIND_KERNEL": GRAPH, "CUPTI_ACTIVITY_KIND_MEMCPY": GRAPH},
    **{"CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": GRAPH, "CUPTI_ACTIVITY_KIND_CUDA_EVENT": GRAPH, "OSRT_API": GRAPH},
    **{"NVTX_EVENTS": GRAPH, "ThreadNames": GRAPH},
}
"""The set of which every push loses rows of each table."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "table"), list_pairs(SET_OF_TABLE, (GRAPH, DDP)))
def test_without_the_rows_of_a_table(name: str, table: str, tmp_path: Path) -> None:
    """Rank 1's rows of the table are lost; without one, those of the only report."""
    paths = [Path(shutil.copy(path, tmp_path)) for path in find_set(name)]
    for statement in (f'DELETE FROM "{table}"', f'DELETE FROM "{table}" WHERE rowid % 3'):
        with closing(sqlite3.connect(paths[min(1, len(paths) - 1)])) as database, database:
            database.execute(statement)
        with found_path(paths, tmp_path, Selection(window=(1_000, None))) as (_, found):
            assert found.begin.size
        for path in find_set(name):
            shutil.copy(path, tmp_path)


def test_operations_without_threads(tmp_path: Path) -> None:
    capture = Capture()
    capture.kernel(1, 0, 1_000)
    capture.kernel(1, 500_000, 600_000)
    with found_path([capture.write(tmp_path / "report.sqlite")], tmp_path) as (_, found):
        assert found.kind.tolist() == [types.PATH_COMPUTE, types.PATH_GAP, types.PATH_COMPUTE]
