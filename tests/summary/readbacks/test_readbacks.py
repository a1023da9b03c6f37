"""Where hosts wait for GPUs: against plain SQL and loops, and against what programs do as they are written."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing

import numpy as np
import pytest

import nsys2prv_ng
from nsys2prv_ng.replay.changes import Change
from nsys2prv_ng.summary.readbacks.numbers import ReadbackNumbers
from nsys2prv_ng.summary.readbacks.table import describe_readbacks
from tests.conftest import DATA, unpack
from tests.readback_truth import find_program, sum_waits
from tests.summary.made import summarize_reports
from tests.tiers import cases

PROGRAMS = [f"{name}-{mode}" for name in ("solver", "gan", "evalloop", "compiled", "nbody", "heat") for mode in "ab"]
READS = "Memcpy device to host"
PLANTED = {
    "solver-a": ("cudaMemcpyAsync", "Pageable", "cycle", 100, 8),
    "solver-b": ("cudaMemcpyAsync", "Pageable", "cycle", 1, 8),
    "gan-a": ("cudaStreamSynchronize", "Pinned", "", 6, 4),
    "gan-b": None,
    "compiled-a": ("cudaStreamSynchronize", "Pinned", "train_step_{n}", 10, 4),
    "compiled-b": None,
    "ppo-a": ("cudaMemcpyAsync", "Pageable", "rollout", 64, 8),
    "ppo-b": ("cudaMemcpyAsync", "Pageable", "rollout", 4, 128),
}
"""What each step reads, by the programs' sources: call, kind of memory, range, number and bytes."""


@pytest.mark.parametrize("program", cases(PROGRAMS, push=PROGRAMS, quick=("solver-a", "gan-a")))
def test_waits_and_idle_times_are_those_of_loops(program: str) -> None:
    found = defaultdict(lambda: np.zeros(4, np.int64))
    for row in summarize_reports([find_program(program)]).readbacks:
        found[row.call, row.operation, row.memory] += (row.count, row.bytes, row.wait_ns, row.idle_ns)
    assert {key: tuple(sums.tolist()) for key, sums in found.items()} == sum_waits(find_program(program))


@pytest.mark.parametrize("program", cases(PLANTED, push=PLANTED, quick=("solver-a", "gan-b")))
def test_a_step_reads_what_its_program_reads(program: str) -> None:
    summary = nsys2prv_ng.summarize([find_program(program)])
    reads = [row for row in summary.readbacks if row.reads and row.range != "output"]
    planted = PLANTED[program]
    if planted is None:
        assert not reads
        return
    call, memory, range_, count, size = planted
    [row] = reads
    assert (row.call, row.memory, row.range) == (call, memory, range_)
    assert row.count == count * summary.step_count and row.bytes == size * row.count


def test_back_traces_tell_which_function_reads() -> None:
    """In evalloop, `evaluate` reads the classes of each picture; as many waits as it makes in the steps."""
    path = unpack(DATA / "sampled/evalloop-calls.sqlite.xz")
    summary = nsys2prv_ng.summarize([path])
    with closing(sqlite3.connect(path)) as report:
        strings = dict(report.execute("SELECT id, value FROM StringIds"))
        marks = {
            start: json.loads(text or strings[number])["Python Backtrace on CUDA"]["Frames"]
            for start, text, number in report.execute(
                "SELECT start, jsonText, jsonTextId FROM NVTX_EVENTS WHERE eventType = 34"
            )
        }
        waits = report.execute(
            "SELECT r.start FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId "
            "WHERE s.value LIKE 'cudaStreamSynchronize%'"
        ).fetchall()
    calls = Counter(
        next(
            (strings[each["Function"]] for each in marks.get(start, ()) if "-packages/" not in strings[each["File"]]),
            "",
        )
        for (start,) in waits
    )
    [reads] = [row for row in summary.readbacks if row.reads]
    assert reads.function == "evaluate (evalloop.py)"
    # Two of three evaluations are in the steps that count.
    assert reads.count == calls["evaluate"] * 2 // 3


def test_a_host_that_does_not_wait_saves_what_gpus_idle() -> None:
    """The GPU of solver-a works as long as its host does: without waits it is idle no more."""
    summary = nsys2prv_ng.summarize([find_program("solver-a")])
    assert summary.what_if is not None and summary.verdict is not None and summary.efficiency is not None
    [change] = [each for each in summary.what_if.scenarios if each.changes == (Change("readbacks"),)]
    idle = sum(row.idle_ns for row in summary.readbacks) / summary.step_count
    busy = summary.gpus[0].compute_ns / summary.measured_ns * summary.what_if.step_ns
    assert idle < change.saving_ns < summary.what_if.step_ns - busy
    assert summary.verdict.bottleneck == "read-backs"
    assert [each.key for each in summary.verdict.remedies][:1] == ["read-backs"]
    assert "100 read-backs a step of 8 B (`cudaMemcpyAsync`, pageable) in `cycle`" in str(summary.verdict.statements)


def test_nothing_waits_in_a_program_that_reads_nothing() -> None:
    summary = nsys2prv_ng.summarize([find_program("gan-b")])
    assert summary.what_if is not None
    assert Change("readbacks") not in [each.only for each in summary.what_if.scenarios]


def make_row(idle_ns: int, **fields: object) -> ReadbackNumbers:
    usual = {"call": "cudaMemcpyAsync", "range": "", "operation": READS, "memory": "Pinned", "count": 6, "bytes": 24}
    return ReadbackNumbers(**{**usual, "wait_ns": 3000, **fields}, idle_ns=idle_ns)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "steps", "text"),
    [
        ([], 2, ""),
        ([make_row(0)], 2, ""),
        (
            [make_row(2000)],
            2,
            "3 read-backs a step of 4 B (`cudaMemcpyAsync`, pinned) outside NVTX ranges: the host waits 1.50 us a step,"
            " for which GPUs idle 20.0%",
        ),
        (
            [make_row(2000, range="a"), make_row(2000, range="b")],
            12,
            "1 read-back a step of 4 B (`cudaMemcpyAsync`, pinned): the host waits 500 ns a step,"
            " for which GPUs idle 40.0%",
        ),
        (
            [make_row(2000, operation="", memory="", bytes=0, call="cudaDeviceSynchronize", range="a")],
            0,
            "6 waits (`cudaDeviceSynchronize`) in `a`: the host waits 3.00 us, for which GPUs idle 20.0%",
        ),
    ],
)
def test_the_sentence(rows: list[ReadbackNumbers], steps: int, text: str) -> None:
    assert describe_readbacks(rows, max(steps, 1), " a step" if steps else "", 10_000) == text


def test_gpus_idle_for_a_wait_no_longer_than_it_takes() -> None:
    """One wait does not pay for what follows another: of 9000 ns after 1500 ns of waiting, and 1000 after 3000."""
    rows = [make_row(9000, wait_ns=1500), make_row(1000, range="b")]
    text = describe_readbacks(rows, 6, " a step and rank", 10_000)
    wait = "the host waits 750 ns a step and rank, for which GPUs idle 25.0%"
    assert text.endswith(f"outside NVTX ranges, and 1 other: {wait}")
    assert "idle" not in describe_readbacks(rows, 6, " a step", 0), "a replay knows what they would gain"
    assert "idle" not in describe_readbacks([make_row(9000, wait_ns=99)], 6, " a step", 10_000)
