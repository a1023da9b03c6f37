"""Calls by name and ranges step by step, against plain loops over the tables of real reports."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng.summary.job import JobSummary
from tests.conftest import SAMPLES, Unpacked
from tests.report_truth import PUSH_POP, Report, split_name
from tests.steps.step_truth import StepTruth, list_ranges
from tests.tiers import cases

SETS = {
    "single-graph": "samples/single-graph*.sqlite",
    "ddp-2x2": "samples/ddp-2x2.rank*.sqlite",
    "m-late": "whatif/m-late.rank*.sqlite",
    "ex1c-accum": "exercises/ex1c-accum.rank*.sqlite",
}
_WHERE = """WHERE t.eventClass NOT IN (31, 32) AND t."end" - t.start >= 10000"""
"""Calls from 10 us on, without the start and the end of tracing."""
Call = tuple[int, int, str, str]
"""Begin, end, name, source."""


def find_files(pattern: str, shared: Path, unpacked: Unpacked) -> list[Path]:
    folder, _, name = pattern.partition("/")
    place = SAMPLES if folder == "samples" else shared / folder
    return [unpacked(path) for path in sorted(place.glob(name)) or [place / name]]


def list_calls(report: Report) -> dict[int, list[Call]]:
    """All calls of each thread."""
    calls: dict[int, list[Call]] = defaultdict(list)
    for row in report.calls.itertuples():
        calls[row.tid].append((row.begin, row.end, row.name, "cuda_api"))
    tables = {"OSRT_API": "os_runtime", "MPI_P2P_EVENTS": "mpi", "MPI_COLLECTIVES_EVENTS": "mpi",
              "MPI_OTHER_EVENTS": "mpi", "MPI_START_WAIT_EVENTS": "mpi"}  # fmt: skip
    for table, source in tables.items():
        if not report.has(table):
            continue
        column = "nameId" if source == "os_runtime" else "textId"
        rows = report.sql(
            f"""SELECT t.start, t."end", t.globalTid, s.value FROM {table} t
            JOIN StringIds s ON s.id = t.{column} {_WHERE if source == "os_runtime" else ""}"""
        )
        for begin, end, tid, name in rows.itertuples(index=False, name=None):
            calls[tid].append((begin, end, join_variants(name), source))
    return calls


def join_variants(name: str) -> str:
    """Return the name of a call without what distinguishes the variants of calls of pthreads."""
    if not name.startswith("pthread"):
        return name
    return re.sub(r"(?<=_)(try|timed|clock|\*)(?=(wrlock|rdlock|lock|wait)$)", "", name)


def drop_inner(calls: Iterable[Call]) -> list[Call]:
    """The calls of a thread that no other call contains."""
    kept: list[Call] = []
    for each in sorted(calls, key=lambda call: (call[0], -call[1])):
        if not kept or each[0] >= max(end for _, end, _, _ in kept[-3:]):
            kept.append(each)
    return kept


@pytest.fixture(scope="module", params=cases(SETS, push=set(SETS) - {"ex1c-accum", "ddp-2x2"}, quick=["single-graph"]))
def made(request: pytest.FixtureRequest, shared_reports: Path, unpacked: Unpacked) -> tuple[JobSummary, list[Report]]:
    files = find_files(SETS[request.param], shared_reports, unpacked)
    return nsys2prv_ng.summarize(files, jobs=1), [Report(file) for file in files]


def find_steps(summary: JobSummary, reports: list[Report]) -> StepTruth | None:
    if summary.steps is None:
        return None
    return StepTruth(reports, list_ranges(reports, summary.steps.name))


def test_calls_that_no_other_contains(made: tuple[JobSummary, list[Report]]) -> None:
    """Calls that go on as everything else has ended, as those of idle threads do, end with it."""
    summary, reports = made
    truth = find_steps(summary, reports)
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    after_all: dict[tuple[str, str], int] = defaultdict(int)
    last = min(report.utc + report.last_event for report in reports)
    for index, report in enumerate(reports):
        for tid, calls in list_calls(report).items():
            is_main = (tid & 0xFFFFFF) == (tid >> 24 & 0xFFFFFF)
            for begin, end, name, source in drop_inner(calls):
                if source == "mpi" or (truth is not None and not truth.counts((index, tid >> 24), begin + report.utc)):
                    continue
                own = sums[name, source]
                own[0] += 1
                own[1] += end - begin
                own[2] += (end - begin) * is_main
                after_all[name, source] += max(0, end + report.utc - last)
    found = {(join_variants(call.name), call.source): call for call in summary.calls}
    assert {key: [call.count, call.main_ns] for key, call in found.items()} == {
        key: [count, on_main] for key, (count, _, on_main) in sums.items()
    }
    for key, (_, ns, _) in sums.items():
        assert ns - after_all[key] <= found[key].total_ns <= ns
    assert sum(ns == 0 for ns in after_all.values()) > 0.6 * len(sums)


def test_ranges_in_each_step(made: tuple[JobSummary, list[Report]]) -> None:
    summary, reports = made
    truth = find_steps(summary, reports)
    for each in summary.ranges:
        if truth is None:
            assert all(task.per_step == 0 for task in each.tasks)
            continue
        counts: dict[int, set[int]] = {}
        for index, report in enumerate(reports):
            own = report.nvtx[(report.nvtx["style"] == PUSH_POP) & (report.nvtx["domain"] == each.domain)]
            for process in {tid >> 24 for tid in own["tid"]}:
                steps = [
                    truth.find_step((index, process), begin + report.utc)
                    for begin, tid, text in zip(own["begin"], own["tid"], own["text"], strict=True)
                    if tid >> 24 == process and each.name in (text, split_name(text)[0])
                ]
                counts[index] = {steps.count(number) for number in truth.counted}
        expected = {index: own.pop() if len(own) == 1 else 0 for index, own in counts.items()}
        assert {task.rank: task.per_step for task in each.tasks} == {
            rank: expected[rank] for rank in expected if rank in {task.rank for task in each.tasks}
        }


def test_waits_of_functions_are_those_of_ranks(made: tuple[JobSummary, list[Report]]) -> None:
    """Each kernel has one function and one rank."""
    summary, _ = made
    waits = 0 if summary.waits is None else sum(rank.wait_ns for rank in summary.waits.ranks)
    assert sum(nccl.wait_ns for nccl in summary.nccl) == waits
    assert all(0 <= nccl.wait_ns <= nccl.kernel_ns for nccl in summary.nccl)
