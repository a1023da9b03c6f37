"""What calls wait for on GPUs: also where a process has no operations, and where a copy reads pageable memory."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.replay import devices
from nsys2prv_ng.replay.apply import apply_changes
from nsys2prv_ng.replay.changes import parse_changes
from nsys2prv_ng.replay.graph import STAGE, WAKE, play
from tests.analysis.path.path_reports import Capture
from tests.conftest import DATA, SAMPLES, Unpacked
from tests.replay.jobs import opened_model

TABLES = [f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET")]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_without_operations_waits_for_none(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its calls name groups of streams that do not exist. As Python, the loop raises an error for a wrong index."""
    monkeypatch.setattr(devices, "_follow", devices._follow.py_func)  # type: ignore[attr-defined]
    reports = [tmp_path / f"mpi-4.rank{n}.sqlite" for n in (0, 1)]
    for report in reports:
        shutil.copyfile(SAMPLES / report.name, report)
    with closing(sqlite3.connect(reports[rank], isolation_level=None)) as sql:
        existing = {name for (name,) in sql.execute("SELECT name FROM sqlite_master")}
        for table in existing.intersection(TABLES):
            sql.execute(f"DELETE FROM {table}")
    with opened_model(reports, tmp_path) as model:
        graph, lanes = model.graph, model.lanes
        wakes = (graph.kind == WAKE) & (graph.since < model.numbers.call_begin) & (model.edge_call >= 0)
        assert wakes.any()
        operation = graph.since[wakes] % model.numbers.operations
        thread = lanes.calls.thread[model.edge_call[wakes]]
        assert (lanes.operations.process[operation] == lanes.threads.process[thread]).all()


@pytest.mark.parametrize("others", ["other copies", "no other copies"])
def test_a_call_that_reads_pageable_memory_takes_as_long_as_its_copy(
    others: str, unpacked: Unpacked, tmp_path: Path
) -> None:
    """Such a call returns a few microseconds before its copy ends; without copies it does not block."""
    report = tmp_path / "report.sqlite"
    shutil.copyfile(unpacked(DATA / "h100/pageable.rank0.sqlite.xz"), report)
    with closing(sqlite3.connect(report, isolation_level=None)) as sql:
        if others == "no other copies":  # calls that do not block show how long a call of this name needs
            sql.execute(
                "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE correlationId IN "
                "(SELECT correlationId FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE srcKind != 0)"
            )
            sql.execute("DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE srcKind != 0")
        rows = sql.execute(
            "SELECT call.end - call.start, copy.end - copy.start FROM CUPTI_ACTIVITY_KIND_MEMCPY copy "
            "JOIN CUPTI_ACTIVITY_KIND_RUNTIME call USING (correlationId) "
            "WHERE srcKind = 0 AND dstKind = 2 AND copy.start < call.end AND call.end < copy.end"
        ).fetchall()
    assert rows
    with opened_model([report], tmp_path) as model:
        graph, numbers = model.graph, model.numbers
        staged = graph.kind == STAGE
        call, operation = model.edge_call[staged], graph.since[staged]

        def measure(time: IntArray) -> list[tuple[int, int]]:
            begin, end = time[numbers.call_begin + call], time[numbers.call_end + call]
            length = time[numbers.operation_end + operation] - time[operation]
            return sorted(zip((end - begin).tolist(), length.tolist(), strict=True))

        assert measure(play(graph, graph.weight)) == sorted(rows)
        half, in_range, none = (
            measure(play(graph, apply_changes(model, parse_changes(change))))
            for change in ("copies * 0.5", "range 'data movement' * 0.5", "copies = 0")
        )
    calls, copies = (sorted(column) for column in zip(*rows, strict=True))
    for changed in (half, in_range):
        halves = sorted(length for _, length in changed)
        assert all(abs(length - copy / 2) <= 1 for copy, length in zip(copies, halves, strict=True))
        assert sum(calls) - sum(length for length, _ in changed) == pytest.approx(sum(copies) / 2, rel=0.3)
    saved = sum(calls) - sum(length for length, _ in none)
    assert saved == pytest.approx(sum(copies), rel=0.3) and max(none)[0] < calls[0] / 2


@pytest.mark.parametrize(
    ("change", "saved"),
    [("host = ideal", 39_000), ("kernel 'kernel' = 0", 45_000), ("copies = 0", 0), ("kernel 'load' = 0", None)],
)
def test_a_stream_goes_on_after_a_host_function(change: str, saved: int | None, tmp_path: Path) -> None:
    """It starts when the kernel before it has ended, and takes as long as it did; a faster host takes less."""
    capture = Capture()
    capture.kernel(capture.call("cudaLaunchKernel", 0, 100), 5_000, 50_000)
    capture.host_function(capture.call("cudaLaunchHostFunc", 200, 300), 51_000, 90_000, "load")
    capture.kernel(capture.call("cudaLaunchKernel", 400, 500), 92_000, 99_000, name="consumer")
    with opened_model([capture.write(tmp_path / "a.sqlite")], tmp_path) as model:
        begin = int(model.lanes.operations.begin.argmax())
        assert model.lanes.names[model.lanes.operation_name[begin]] == "consumer"
        before = play(model.graph, model.graph.weight)[begin]
        if saved is None:  # no kernel has the name of the function
            with pytest.raises(UsageError, match="no kernel is named"):
                apply_changes(model, parse_changes(change))
        else:
            after = play(model.graph, apply_changes(model, parse_changes(change)))[begin]
            assert before - after == pytest.approx(saved, abs=1_000)


def test_launches_wait_for_what_was_queued_before_the_capture(tmp_path: Path) -> None:
    """The queue is full of copies of 100 us as the capture begins: each launch waits for the end of one of them.

    It begins 15 us after the one before it could end and returns 10 us after its copy, which no change shortens.
    """
    copies, launches, length = 1_100, 200, 100_000
    capture = Capture()
    for number in range(copies):
        capture.copy(1_000_000 + number, number * length, (number + 1) * length)  # of calls that nobody recorded
    for number in range(launches):
        call = capture.call("cudaLaunchKernel", (number + 1) * length + 15_000, (number + 2) * length + 10_000)
        capture.kernel(call, copies * length + number * 1_000, copies * length + (number + 1) * 1_000)
    with opened_model([capture.write(tmp_path / "report.sqlite")], tmp_path) as model:
        graph = model.graph
        time, changed = (play(graph, w) for w in (graph.weight, apply_changes(model, parse_changes("copies = 0"))))
    assert time.max() - time.min() == copies * length + launches * 1_000
    assert changed.max() - time.min() == length + launches * 15_000 + 10_000
