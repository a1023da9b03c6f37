"""The critical path in summaries: sums of a small path that was added up by hand, and the text on it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nsys2prv_ng.analysis.path import critical_path
from nsys2prv_ng.analysis.path.critical_path import CriticalPath
from nsys2prv_ng.api.calls import summarize
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.steps.steps import Steps
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.path.measure import sum_critical_path
from nsys2prv_ng.summary.path.numbers import PathName, PathNumbers, PathOfRank, PathStep
from nsys2prv_ng.summary.path.table import describe_path
from nsys2prv_ng.summary.text import format_path
from tests.conftest import SAMPLES
from tests.report_truth import Report
from tests.steps import made_steps
from tests.steps.step_truth import StepTruth, list_ranges

NAMES, RANGES = ["gemm", "AllReduce", "cudaMalloc"], ["forward", "loading"]
SEGMENTS = [
    # begin, end, row, kind, name, range, operation
    (1000, 1300, 0, types.PATH_HOST, -1, 1, -1),
    (1300, 1350, 0, types.PATH_HOST, -1, 0, -1),
    (1350, 1400, 0, types.PATH_CUDA_CALL, 2, 0, 70),
    (1400, 1405, 1, types.PATH_LAUNCH, 0, 0, 5),
    (1405, 1505, 1, types.PATH_COMPUTE, 0, 0, 5),
    (1505, 1600, 3, types.PATH_MOVING, 1, 0, 9),
    (1600, 1610, 3, types.PATH_GAP, 0, 0, 10),
    (1610, 1800, 3, types.PATH_COMPUTE, 0, 0, 10),
    (1800, 2000, 2, types.PATH_HOST, -1, -1, -1),
]
"""Rows 0 and 1 are of rank 0, rows 2 and 3 of rank 1."""


def make_steps(begin: IntArray, end: IntArray) -> Steps:
    """Return the steps 7, 8 and so on of a task."""
    count = begin.size
    return made_steps.make_steps("step", 7 + np.arange(count), np.zeros(count, np.int64), np.arange(count), begin, end)


def make_path(steps: Steps | None = None) -> CriticalPath:
    columns = [np.array(column, np.int64) for column in zip(*SEGMENTS, strict=True)]
    mean = np.array([200, 40, 0])
    return CriticalPath([(1000, 2000)], steps, *columns, names=NAMES, ranges=RANGES, mean=mean, followed=3, unsure=2)


def sum_path(path: CriticalPath) -> PathNumbers:
    tasks = [SimpleNamespace(name="rank 0"), SimpleNamespace(name="rank 1")]
    whole = SimpleNamespace(task_of_row=np.array([0, 0, 1, 1]), ranks=[0, 1], model=SimpleNamespace(tasks=tasks))
    job: Any = SimpleNamespace(whole=whole, scope=SimpleNamespace(origin=900))
    return sum_critical_path(job, path)


def of_job(path: PathNumbers | None, tasks: int = 2, chosen: Sequence[str] = ()) -> Any:
    return SimpleNamespace(critical_path=path, tasks=tasks, chosen=chosen)


def describe(path: PathNumbers | None, tasks: int = 2, chosen: Sequence[str] = ()) -> str:
    return describe_path(path, has_several=tasks > 1, is_part="ranks" in chosen)


def test_sums_of_a_small_path() -> None:
    path = sum_path(make_path())
    assert path.length_ns == 1000
    assert path.windows_ns == [(100, 1100)]
    assert path.classes == {
        "CPU code": 550,
        "Compute": 290,
        "Data transfer": 95,
        "CUDA API call": 50,
        "GPU gap": 10,
        "Launch latency": 5,
    }
    assert path.ranks == [PathOfRank(rank=0, task="rank 0", ns=505), PathOfRank(rank=1, task="rank 1", ns=495)]
    assert path.names == [
        PathName(path_class="Compute", name="gemm", count=2, ns=290, imbalance_ns=90),
        PathName(path_class="Data transfer", name="AllReduce", count=1, ns=95, imbalance_ns=55),
    ]
    assert path.switches == 1
    parts = [(part.path_class, part.name, part.range, part.count, part.ns) for part in path.parts]
    assert parts[:4] == [
        ("CPU code", "", "loading", 1, 300),
        ("Compute", "gemm", "", 2, 290),
        ("CPU code", "", "", 1, 200),
        ("Data transfer", "AllReduce", "", 1, 95),
    ]
    assert path.parts[1].ranks == [PathOfRank(rank=1, task="rank 1", ns=190), PathOfRank(rank=0, task="rank 0", ns=100)]
    assert sum(part.ns for part in path.parts) == 1000


def test_steps_end_where_the_next_begins() -> None:
    begin, end = np.array([1000, 1450]), np.array([1460, 2000])
    path = sum_path(make_path(make_steps(begin, end)))
    assert path.step_name == "step"
    assert path.steps == [
        PathStep(number=7, ns=450, classes={"CPU code": 350, "CUDA API call": 50, "Compute": 45, "Launch latency": 5}),
        PathStep(number=8, ns=550, classes={"Compute": 245, "CPU code": 200, "Data transfer": 95, "GPU gap": 10}),
    ]


def test_the_verdict() -> None:
    path = sum_path(make_path(make_steps(np.array([1000, 1450]), np.zeros(2, np.int64))))
    assert describe(path) == (
        "The critical path of `step` 7 to 8 (1.00 us) is 55.0% CPU code, 29.0% compute, 9.5% data transfer; "
        "most in `loading` of rank 0: 30.0%"
    )
    assert describe(None) == ""


def test_the_verdict_says_that_the_path_leaves_the_selected_ranks() -> None:
    path = make_path()
    kind = np.where(path.kind == types.PATH_MOVING, types.PATH_OUTSIDE, path.kind)
    numbers = sum_path(path._replace(kind=kind))
    most = "most in `loading` of rank 0: 30.0%"
    assert describe(numbers, chosen=["ranks"]).endswith(f"{most}. It leaves the selected ranks for 95 ns")
    assert describe(numbers, chosen=["time"]).endswith(most)


def test_a_path_that_stays_on_one_of_several_tasks() -> None:
    path = make_path()
    path = path._replace(row=np.zeros(path.row.size, np.int64))
    assert "most in `loading` of rank 0: 30.0%" in describe(sum_path(path))
    assert "most in `loading`: 30.0%" in describe(sum_path(path), 1)


def test_one_task_has_no_imbalance() -> None:
    path = make_path()
    [_, table, tasks] = format_path(of_job(sum_path(path._replace(row=np.zeros(path.row.size, np.int64))), 1), 120)
    assert table[1].split() == ["critical", "path", "operation", "or", "call", "NVTX", "range", "time", "share"]
    assert tasks == []


def test_a_job_without_gpus_has_no_imbalance() -> None:
    path = sum_path(make_path())
    path = replace(path, names=[replace(name, imbalance_ns=None) for name in path.names])
    [_, table, _] = format_path(of_job(path), 120)
    assert table[0] == "Critical path by operation, a share limits what changes save:"
    assert table[1].split()[-2:] == ["share", "tasks"]


def test_the_tables() -> None:
    path = sum_path(make_path())
    sentence, table, tasks = format_path(of_job(path), 120)
    assert " ".join(sentence) == describe(path)
    rows = [line.split("  ") for line in table]
    compute = next(" ".join(filter(None, row)).split() for row in rows if row[0] == "Compute")
    assert compute == ["Compute", "gemm", "290", "ns", "29.0%", "90", "ns", "2"]
    assert " ".join(tasks) == (
        "It changes tasks 1 time: rank 0 50.5%, rank 1 49.5%. In 2 of 3 waits that it follows, "
        "the clocks do not tell for sure which rank was last"
    )


def test_what_is_before_an_operation_says_so() -> None:
    path = make_path()
    path = path._replace(kind=np.where(path.kind == types.PATH_HOST, types.PATH_GAP, path.kind), name=path.name * 0)
    assert "most in GPU gap before `gemm`" in describe(sum_path(path))


@pytest.mark.parametrize("width", [80, 120])
def test_names_of_reports_stay_on_their_line(width: int) -> None:
    path = make_path()._replace(
        names=["gemm\n\x1b[31m", "AllReduce", "cuda\tMalloc"], ranges=["for\rward", "load\ning"]
    )
    assert describe(sum_path(path)).isprintable()
    for line in (line for block in format_path(of_job(sum_path(path)), width) for line in block):
        assert line.isprintable() and len(line) <= width


@pytest.mark.slow
def test_too_many_operations_and_calls_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    report = SAMPLES / "mpi-4.rank0.sqlite"
    with closing(sqlite3.connect(report)) as database:
        [count] = database.execute("SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    monkeypatch.setattr(critical_path, "_MOST", count)  # there are calls besides
    summary = summarize([str(report)])
    assert summary.critical_path is None
    assert any("the critical path was not looked for" in warning for warning in summary.warnings)


@pytest.mark.slow
def test_every_division_of_a_real_path_adds_up() -> None:
    reports = [SAMPLES / f"mpi-4.rank{rank}.sqlite" for rank in range(4)]
    summary = summarize([str(report) for report in reports])
    path = summary.critical_path
    assert path is not None and path.step_name == "iteration"
    sums = [
        sum(path.classes.values()),
        sum(task.ns for task in path.ranks),
        sum(step.ns for step in path.steps),
        sum(high - low for low, high in path.windows_ns),
    ]
    found = [Report(report) for report in reports]
    low, high = StepTruth(found, list_ranges(found, "iteration")).window
    assert sums == [path.length_ns] * 4 == [high - low] * 4
    assert summary.start_utc_ns + path.windows_ns[0][0] == low
    for step in path.steps:
        assert sum(step.classes.values()) == step.ns
    assert JobSummary.from_dict(json.loads(json.dumps(summary.to_dict()))) == summary
