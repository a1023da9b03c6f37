"""Why hosts launched late: programs with planted causes, against loops over their reports in plain SQL."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.steps.numbered_names import OTHER_WORK
from nsys2prv_ng.summary.answer.answer import add_verdict
from nsys2prv_ng.summary.answer.case import Case
from nsys2prv_ng.summary.answer.host_rules import find_host_cause
from nsys2prv_ng.summary.answer.rules import has_slow_steps
from nsys2prv_ng.summary.gpus import host_causes
from nsys2prv_ng.summary.gpus.host_causes import HostCause, sum_host_causes
from nsys2prv_ng.summary.gpus.numbers import Cause
from nsys2prv_ng.summary.job import JobSummary
from tests.comparison.test_programs import find_report
from tests.summary.made import IN_STEPS, summarize_reports
from tests.summary.test_tables import make_gpu
from tests.tiers import cases

PLANTED: dict[str, HostCause | None] = {
    "gnn-a": host_causes.PREPARING,  # samples on the CPU, and copies from pageable memory
    "gnn-b": None,  # samples on the GPU
    "pong-a": host_causes.PREPARING,  # gathers in NumPy
    "pong-b": None,
    "patches-a": host_causes.WAITING,  # its workers augment
    "patches-b": None,  # they hand over bytes
    "checkpoint-a": host_causes.SAVING,  # torch.save on the main thread
    "checkpoint-b": None,  # in another thread
    "pltrainer-a": None,  # much of it is in the validation, kernel by kernel
    "evalloop-a": None,
    "evalloop-b": None,
    "flaxtrain-a": None,  # threads of XLA wait for the main thread, and copy
    "nbody-a": None,  # compiles once
    "llmserve-a": host_causes.LOADING,  # cuDNN and cuBLAS build or load kernels for each new length of a prompt
    "llmserve-b": host_causes.LOADING,
}
"""Programs of benchmarks/programs, and why their hosts are late for a third of host-bound idle time or more."""
ANSWERS = {
    host_causes.PREPARING: ("preparing data on the main thread", "data-beside-gpu"),
    host_causes.WAITING: ("waiting for data loader workers", "loader-workers"),
    host_causes.SAVING: ("writing checkpoints", "async-checkpoints"),
    host_causes.LOADING: ("compiling or loading kernels", "few-shapes"),
}
"""What the title of the bottleneck says, and the remedy."""
PUSHED = ("gnn-a", "patches-a", "checkpoint-a", "checkpoint-b", "llmserve-a", "nbody-a")


def summarize(name: str, selection: Selection | None = None) -> JobSummary:
    return summarize_reports([find_report(*name.rsplit("-", 1))], selection)


def list_parts(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield what the launching thread called while the GPU was idle, the operation that followed, and ns."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        operations, calls, threads = [], {}, defaultdict(list)
        host = {(1, 0): "from", (1, 1): "from", (2, 0): "to pageable", (2, 1): "to pinned"}
        for table in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"):
            if f"CUPTI_ACTIVITY_KIND_{table}" in tables:
                kind = "copyKind, CASE copyKind WHEN 1 THEN srcKind ELSE dstKind END" if table == "MEMCPY" else "0, 0"
                query = f'SELECT start, "end", correlationId, {kind} FROM CUPTI_ACTIVITY_KIND_{table}'
                operations += [(*row[:3], host.get(row[3:], "")) for row in database.execute(query)]
        query = 'SELECT start, "end", globalTid, value, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME'
        for begin, end, thread, name, correlation in database.execute(f"{query} JOIN StringIds ON id = nameId"):
            calls[correlation] = begin, end, thread
            threads[thread].append((begin, end, name))
        if "OSRT_API" in tables:
            query = 'SELECT start, "end", globalTid, value FROM OSRT_API JOIN StringIds ON id = nameId'
            for begin, end, thread, name in database.execute(f'{query} WHERE "end" - start >= 10000'):
                threads[thread].append((begin, end, name))
    for own in threads.values():
        own.sort(key=lambda call: (call[0], -call[1]))
    idle_from = None
    for start, end, correlation, followed in sorted(operations):
        if idle_from is not None and start > idle_from and correlation in calls:
            _, returned, thread = calls[correlation]
            at, until = idle_from, min(max(idle_from, returned), start)
            inside = [call for call in threads[thread] if call[0] < until and call[1] > at]
            followed = followed if thread & 0xFFFFFF == thread >> 24 & 0xFFFFFF else ""  # only main threads
            loads = any("LibraryLoad" in name or "ModuleLoad" in name for _, _, name in inside)
            for call_begin, call_end, name in [*inside, (until, until, "")]:
                if call_begin > at:
                    yield "", "loads" if loads else followed, min(call_begin, until) - at
                    at = min(call_begin, until)
                if call_end > at:
                    yield name, "loads" if loads else followed, min(call_end, until) - at
                    at = min(call_end, until)
        idle_from = end if idle_from is None else max(idle_from, end)


def sum_planted(path: Path) -> tuple[Counter[str], int]:
    """Return the host-bound idle time (ns) by cause, by its own rules, and all of it."""
    parts = list(list_parts(path))
    whole = sum(ns for _, _, ns in parts)
    files = sum(ns for name, _, ns in parts if name in ("writev", "write", "fwrite", "fsync"))
    sums = Counter[str]()
    for name, followed, ns in parts:
        if followed == "loads":
            sums[host_causes.LOADING.words] += ns
        elif name in ("sem_clockwait", "sem_timedwait", "poll", "select") and followed == "from":
            sums[host_causes.WAITING.words] += ns
        elif files > 0.05 * whole and (name in ("writev", "write", "fwrite") or followed == "to pageable"):
            sums[host_causes.SAVING.words] += ns
        elif followed == "from" and not name.startswith(("cu", "pthread", "sem_", "poll", "futex")):
            sums[host_causes.PREPARING.words] += ns
    return sums, whole


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(PLANTED, push=PUSHED))
def test_causes_against_loops(name: str) -> None:
    found = {cause.words: time.ns for cause, time in sum_host_causes(summarize(name).gpus).items()}
    expected, whole = sum_planted(find_report(*name.rsplit("-", 1)))
    assert whole > 0
    for words in {*found, *expected}:
        assert found.get(words, 0) == pytest.approx(expected[words], rel=0.01, abs=0.005 * whole), words


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(PLANTED, push=PUSHED))
def test_planted_causes_are_found(name: str) -> None:
    summary = summarize(name, IN_STEPS)
    assert find_host_cause(Case(summary)) == PLANTED[name]
    verdict = add_verdict(summary).verdict
    assert verdict is not None
    first, where, cause = verdict.statements[0].text, verdict.statements[1].text, PLANTED[name]
    assert [title for title, _ in ANSWERS.values() if title in first] == ([] if cause is None else [ANSWERS[cause][0]])
    where = re.sub(r"\d+ gaps", "gaps", where)
    assert cause is None or (verdict.remedies[0].key == ANSWERS[cause][1] and cause.words in where)


def test_what_writes_logs_or_reads_back_is_no_checkpoint() -> None:
    """A checkpoint does both: it copies to pageable memory, and writes."""
    copied = Cause(cause="host", range="", call="", next="copy to pageable memory", ns=60, gaps=3)
    written = Cause(cause="host", range="", call="writev", ns=40, gaps=2)
    for parts, ns in (([copied], 0), ([written], 0), ([copied, written], 100)):
        found = sum_host_causes([make_gpu(0, [], parts)])
        assert found.get(host_causes.SAVING, host_causes.CauseTime([])).ns == ns


@pytest.mark.parametrize(
    ("call", "following", "cause"),
    [
        ("", "copy from pageable memory", host_causes.PREPARING),
        ("read", "copy from pinned memory", host_causes.PREPARING),
        ("", "", None),  # before a kernel
        ("cudaStreamSynchronize", "copy from pageable memory", None),  # waits for the GPU
        ("futex", "copy from pinned memory", None),  # threads of other runtimes wait so
        ("pthread_cond_*wait", "copy from pinned memory", None),  # and Python for its lock
        ("poll", "copy from pinned memory", host_causes.WAITING),
        ("poll", "", None),
        ("fork", "", host_causes.STARTING),
        ("waitpid", "", host_causes.STARTING),
        ("", "loaded kernels", host_causes.LOADING),
        ("poll", "loaded kernels", host_causes.LOADING),
    ],
)
def test_each_part_has_one_cause_at_most(call: str, following: str, cause: HostCause | None) -> None:
    part = Cause(cause="host", range="", call=call, next=following, ns=7, gaps=1)
    found = sum_host_causes([make_gpu(0, [], [part]), make_gpu(1, [], [part])])
    assert {each: time.ns for each, time in found.items()} == ({} if cause is None else {cause: 14})


@pytest.mark.slow
def test_one_slow_step_of_many_is_not_the_bottleneck() -> None:
    """Step 30 of nbody-a compiles a kernel: its only load, in its longest gap. Its cure is arrays that stay."""
    summary = add_verdict(summarize("nbody-a", IN_STEPS))
    assert summary.verdict is not None and [each.key for each in summary.verdict.remedies] == ["stay-on-device"]
    case = Case(summary)
    assert case.slow_steps is not None and [step.number for step in case.slow_steps.slow] == [30]
    assert case.slow_steps.share > 0.25 and not has_slow_steps(case)
    assert case.host_causes[host_causes.LOADING].gaps == 1


@pytest.mark.slow
def test_validation_that_takes_most_of_the_time() -> None:
    """Validations of pltrainer-a run with a batch of 1: its b, with a batch of 48, is as fast as GAIN says."""
    summary = add_verdict(summarize("pltrainer-a", IN_STEPS))
    verdict, kind = summary.verdict, Case(summary).other_kind
    assert verdict is not None and summary.steps is not None
    assert kind is not None and kind.name == OTHER_WORK
    texts = {line.label: line.text for line in verdict.statements}
    share = kind.total_ns / sum(each.total_ns for each in summary.steps.kinds)
    assert f"{100 * share:.1f}% of the time is other work between steps" in texts["WHERE"]
    assert "cheaper-validation" in [each.key for each in verdict.remedies]
    assert Case(summarize("pltrainer-b", IN_STEPS)).other_kind is None
