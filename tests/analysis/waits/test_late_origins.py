"""Who delayed the ranks that others waited for: random jobs and real reports by plain loops, and a planted delay."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.analysis.waits.late_origins import LateOnes, Links, Partners, find_origins, make_lists
from nsys2prv_ng.analysis.waits.rules import BELOW_UNCERTAINTY, NOT_SYNCHRONISED, SPLIT
from nsys2prv_ng.analysis.waits.waits import Waits
from tests.analysis.waits import late_truth as truth
from tests.analysis.waits.test_late_reasons import name, reasons_of, shift
from tests.analysis.waits.waits_truth import Kernel, find_truth
from tests.clock.injected import Error, put_into
from tests.examples import examples
from tests.report_sets import find_set
from tests.report_truth import Report

# ---- random small jobs -----------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Step:
    """An operation of one rank: of its device alone, or its part of an operation over ranks."""

    rank: int
    begin: int
    end: int
    is_linked: bool
    """Whether it had waited for the one before it."""
    peers: list[Step] = field(default_factory=list)
    """The parts of all ranks, of a message those of the other sides; none for an operation of one rank."""
    is_message: bool = False
    verdict: int = SPLIT
    released_by: Step | None = None
    """The last part, if this one waited for it."""
    wait: int = 0

    def blames(self) -> Step | None:
        return self.released_by if self.wait else None


def run_job(random: np.random.Generator) -> list[list[Step]]:
    """Return the operations of each rank in their order."""
    ranks = int(random.integers(2, 6))
    now = [0] * ranks
    done: list[list[Step]] = [[] for _ in range(ranks)]
    communicators = [
        sorted(random.choice(ranks, int(random.integers(2, ranks + 1)), replace=False).tolist()) for _ in range(3)
    ]
    for _ in range(int(random.integers(3, 25))):
        is_message = bool(random.random() < 0.5)
        sides = random.choice(ranks, int(random.integers(2, min(ranks, 3) + 1)), replace=False).tolist()
        members = sides if is_message else communicators[int(random.integers(0, 3))]
        parts = []
        for rank in members:
            for _ in range(int(random.integers(0, 3))):
                length = int(random.choice([1, 5, 20]))
                done[rank].append(Step(rank, now[rank], now[rank] + length, bool(random.random() < 0.85)))
                now[rank] += length
            parts.append(Step(rank, now[rank], 0, bool(random.random() < 0.85), is_message=is_message))
            done[rank].append(parts[-1])
        verdict = int(random.choice([SPLIT] * 8 + [NOT_SYNCHRONISED, BELOW_UNCERTAINTY]))
        for number, part in enumerate(parts):
            # A kernel with messages to several ranks waits for all of them, and they for it alone.
            part.peers = parts if not is_message else parts[1:] if number == 0 else parts[:1]
            part.verdict = verdict
            last = max(part.begin, *(peer.begin for peer in part.peers))
            part.end = now[part.rank] = last + int(random.integers(1, 4))
            if verdict == SPLIT:
                latest = [peer for peer in part.peers if peer.begin == last]
                part.wait = last - part.begin
                part.released_by = latest[0] if len(latest) == 1 else None
    return done


def find_origin(late: Step, before: dict[Step, Step], waiters: Sequence[Step]) -> Step | None:
    """Return the late part that began the delay of one, as the module's rules say."""
    begins = sorted(part.begin for part in waiters)
    amount = late.begin - begins[len(begins) // 2]
    waiting = {part.rank for part in waiters}
    origin = None
    step = before.get(late)
    while step is not None:
        if step.peers:
            if step.verdict not in (SPLIT, BELOW_UNCERTAINTY):
                return origin
            blamed = step.blames()
            went_on = {blamed.rank} if blamed is not None and step.is_message else {part.rank for part in step.peers}
            if waiting <= went_on:
                return origin
            if 2 * step.wait >= amount:
                if blamed is None:
                    return origin
                origin, waiting, amount, step = blamed, {step.rank}, step.wait, before.get(blamed)
                continue
        step = before.get(step)
    return origin


def make_waits(parts: list[Step]) -> Waits:
    blamed = [part.blames() for part in parts]
    columns: list[list[int]] = [
        [part.rank for part in parts],
        [part.begin for part in parts],
        [part.end for part in parts],
        [part.begin + part.wait for part in parts],
        [part.verdict for part in parts],
        [-1 if part is None else part.rank for part in blamed],
        [0 if part is None else part.begin for part in blamed],
        [0] * len(parts),
        [-1] * len(parts),
    ]
    return Waits(*(np.array(column, np.int64) for column in columns), is_mpi=np.zeros(len(parts), np.bool_))


@settings(deadline=None, max_examples=examples(400))
@given(st.integers(0, 10**9))
def test_random_jobs(seed: int) -> None:
    done = run_job(np.random.default_rng(seed))
    before = {new: old for steps in done for old, new in pairwise(steps) if new.is_linked}
    parts = sorted((step for steps in done for step in steps if step.peers), key=lambda part: (part.rank, part.begin))
    waiters: dict[Step, list[Step]] = defaultdict(list)
    for part in parts:
        if (blamed := part.blames()) is not None:
            waiters[blamed].append(part)
    late = sorted(waiters, key=lambda part: (part.rank, part.begin))
    waits = make_waits(parts)
    instance = np.array([late.index(b) if (b := part.blames()) else -1 for part in parts], np.int64)

    links = Links(waits, len(late))
    for rank, steps in enumerate(done):
        at = {step: i for i, step in enumerate(steps)}
        held = [part for part in late if part in at and part in before]
        links.connect(
            np.full(len(steps), rank),
            np.array([step.begin for step in steps], np.int64),
            np.array([at[before[step]] if step in before else -1 for step in steps], np.int64),
            np.array([late.index(part) for part in held], np.int64),
            np.array([at[before[part]] for part in held], np.int64),
        )
    number = np.arange(len(parts))
    is_message = np.array([part.is_message for part in parts], np.bool_)
    pairs = [(i, peer.rank) for i, part in enumerate(parts) for peer in part.peers]
    tasks = make_lists(*np.array(pairs, np.int64).reshape(-1, 2).T, len(parts))
    partners = Partners(np.where(is_message, -1, number), np.where(is_message, number, -1), tasks)
    begin = np.array([part.begin for part in late], np.int64)
    medians = [sorted(other.begin for other in waiters[part])[len(waiters[part]) // 2] for part in late]
    task = np.array([part.rank for part in late], np.int64)
    waiting = [(i, other.rank) for i, part in enumerate(late) for other in waiters[part]]
    lists = make_lists(*np.array(waiting, np.int64).reshape(-1, 2).T, len(late))
    known = (links.held_by, links.previous, waits.has_parts, waits.wait)
    lateness = begin - np.array(medians, np.int64)
    got = find_origins(*known, instance, LateOnes(begin, lateness, task, lists), partners)
    expected = [find_origin(part, before, waiters[part]) for part in late]
    assert got.tolist() == [-1 if origin is None else late.index(origin) for origin in expected]


def test_kernels_that_clocks_show_as_each_other_s_origin_end_the_chain() -> None:
    """Two late kernels at one time, each of which had waited for the other: neither is an origin."""
    columns = np.array([[0, 0, 1, 1], [0, 10, 0, 10], [9, 19, 9, 19], [9, 10, 9, 10], [SPLIT] * 4, [1, -1, 0, -1]])
    culprit_begin, margin, operation = np.array([[10, 0, 10, 0], [0] * 4, [-1] * 4])
    waits = Waits(*columns, culprit_begin, margin, operation, is_mpi=np.zeros(4, np.bool_))
    links = Links(waits, 2)
    for rank in range(2):
        one = np.array([rank])
        links.connect(np.full(2, rank), np.array([0, 10]), np.array([-1, 0]), one, np.array([0]))
    assert links.held_by.tolist() == [0, 2]
    nobody = np.full(4, -1)
    partners = Partners(nobody, nobody, make_lists(*np.zeros((2, 0), np.int64), 0))
    waiters = make_lists(np.array([0, 1]), np.array([2, 3]), 2)
    late = LateOnes(np.array([10, 10]), np.array([5, 5]), np.array([0, 1]), waiters)
    known = (links.held_by, links.previous, waits.has_parts, waits.wait)
    assert find_origins(*known, np.array([1, -1, 0, -1]), late, partners).tolist() == [-1, -1]


# ---- real reports ----------------------------------------------------------------------------------------------------


class RealRank:
    """A rank's report, with what each operation of its GPU had waited for."""

    def __init__(self, path: Path) -> None:
        self.report = Report(path)
        self.rank = truth.Rank(self.report)
        self.at_begin = {(truth.stream_of(row), row.begin): row for row in self.rank.operations}

    def find(self, begin: int) -> Any:
        return self.rank.find_nccl(begin)

    def last_ended(self, row: Any) -> Any | None:
        near = sorted(self.rank.list_near(row), key=lambda other: other.end)
        own = [other for other in near if truth.stream_of(other) == truth.stream_of(row)]
        return (own or near or [None])[-1]

    def before(self, row: Any) -> Any | None:
        """Return what an operation had waited for, if it was launched long before."""
        launch = self.rank.launches.get((truth.stream_of(row), row.begin))
        if row.begin in self.rank.graph_nodes or (launch is not None and row.begin - launch[1] > truth.PROMPT):
            return self.last_ended(row)
        return None


def walk_back(real: RealRank, row: Any | None, kernels: dict[int, Kernel]) -> Iterator[Kernel]:
    """Yield the kernels of NCCL on the way back, from the operation that a kernel was late with."""
    while row is not None:
        if str(row.name).startswith("nccl"):
            yield kernels[row.begin]
        row = real.before(row)


def find_real_origins(paths: Sequence[Path]) -> dict[tuple[int, int], tuple[int, int] | None]:
    """Return the origin of each late kernel, both as rank and begin (UTC, ns): by plain loops over all reports."""
    ranks = [RealRank(path) for path in paths]
    every = find_truth(paths)
    by_begin = [{kernel.begin: kernel for kernel in kernels} for kernels in every]
    parts: dict[tuple[object, ...], list[Kernel]] = defaultdict(list)
    for kernels in every:
        for kernel in kernels:
            parts[kernel.operation].append(kernel)
    waiters: dict[tuple[int, int], list[Kernel]] = defaultdict(list)
    for members in parts.values():
        [*_, last] = sorted(members, key=lambda kernel: kernel.begin)
        for kernel in members:
            if kernel.last >= 0 and kernel.wait:
                waiters[last.rank, last.begin].append(kernel)

    held: dict[tuple[int, int], Any | None] = {}
    for (rank, begin), waiting in waiters.items():
        real = ranks[rank]
        why = truth.explain(real.rank, begin, is_mpi=False, waits=[(kernel.begin, kernel.until) for kernel in waiting])
        is_held = why.reason in (truth.DEVICE, truth.DEPENDENCY)
        held[rank, begin] = real.last_ended(real.find(begin)) if is_held else None
        assert (held[rank, begin].begin if is_held else -1) == why.operation_begin

    origins: dict[tuple[int, int], tuple[int, int] | None] = {}
    for key, waiting in waiters.items():
        begins = sorted(kernel.begin for kernel in waiting)
        amount, who = key[1] - begins[len(begins) // 2], {kernel.rank for kernel in waiting}
        origins[key], late = None, key
        while True:
            cause = None
            for kernel in walk_back(ranks[late[0]], held[late], by_begin[late[0]]):
                blames = kernel.last >= 0 and kernel.wait > 0
                others = {other.rank for other in parts[kernel.operation]}
                if not kernel.is_collective:
                    others = {kernel.last} if blames else others - {kernel.rank}
                if who <= others:
                    break
                if kernel.wait and 2 * kernel.wait >= amount:
                    cause = kernel if blames else None
                    break
            if cause is None:
                break
            last = max(parts[cause.operation], key=lambda kernel: kernel.begin)
            origins[key], late, amount, who = (last.rank, last.begin), (last.rank, last.begin), cause.wait, {late[0]}
    return origins


SETS = {"exercises/ex3a-pp2": 50, "exercises/ex2b-overlap": 0, "exercises/ex3a-pp1": 0, "exercises/ex1a-slow": 0}


@pytest.mark.all_sets
@pytest.mark.slow
@pytest.mark.parametrize(("reports", "least"), SETS.items(), ids=SETS)
def test_each_origin_is_what_loops_over_the_reports_find(reports: str, least: int, tmp_path: Path) -> None:
    """All ranks are put on one node, so that clocks are exact. Where all take part in all, none has an origin."""
    paths = put_into(find_set(reports), [Error(host="one")] * 4, tmp_path / "one")
    expected = find_real_origins(paths)
    with reasons_of(paths, tmp_path) as (job, _, reasons):
        rank = [job.whole.ranks[task] for task in job.whole.task_of_row[reasons.row].tolist()]
        keys = list(zip(rank, (reasons.begin + job.alignment.utc_base).tolist(), strict=True))
        got = {keys[i]: keys[k] if k >= 0 else None for i, k in enumerate(reasons.origin.tolist())}
        assert reasons.origin_task.tolist() == [
            job.whole.task_of_row[reasons.row[k]] if k >= 0 else -1 for k in reasons.origin.tolist()
        ]
    assert got == expected
    count = sum(origin is not None for origin in got.values())
    assert count > least if least else count == 0


# ---- a planted delay -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_late_send_is_the_origin_of_a_late_all_reduce(tmp_path: Path) -> None:
    """Rank 0 is late to send to rank 2, which then is late in an all-reduce with rank 3.

    Rank 3 waits for rank 2, and has nothing to do with rank 0. The host of rank 2 launches ahead.
    """
    delay = 10**9
    paths = put_into(find_set("exercises/ex3a-pp2"), [Error(host="one")] * 4, tmp_path / "one")
    ranks, every = [RealRank(path) for path in paths], find_truth(paths)
    receive, reduce = choose_receive(ranks[2], every[2])
    [send] = [kernel for kernel in every[0] if kernel.operation == receive.operation]
    [waiting] = [kernel for kernel in every[3] if kernel.operation == reduce.operation]
    row = ranks[0].find(send.begin)
    tid, since = ranks[0].rank.launches[truth.stream_of(row), send.begin]
    after = min(kernel.begin for kernel in every[1] if kernel.is_collective and kernel.until >= since)
    utc = [real.report.utc for real in ranks]
    _, launched = ranks[2].rank.launches[truth.stream_of(ranks[2].find(reduce.begin)), reduce.begin]
    shift(paths[0], since - utc[0], delay)
    shift(paths[1], after + 1 - utc[1], delay)
    shift(paths[2], launched + 1 - utc[2], delay, device_since=receive.begin + 1 - utc[2])
    shift(paths[3], waiting.begin + 1 - utc[3], delay)
    start = since - utc[0]
    with closing(sqlite3.connect(paths[0])) as connection, connection:
        connection.execute(
            """INSERT INTO NVTX_EVENTS (start, "end", eventType, text, globalTid, domainId)
            VALUES (?, ?, 59, 'planted', ?, 0)""",
            (start, start + delay, tid),
        )
    with reasons_of(paths, tmp_path) as (job, waits, reasons):
        begin = reasons.begin + job.alignment.utc_base
        [late] = np.flatnonzero(begin == reduce.begin + delay)
        [origin] = np.flatnonzero(begin == send.begin + delay)
        assert reasons.origin[late] == origin and reasons.reason[late] in (truth.DEVICE, truth.DEPENDENCY)
        assert job.whole.ranks[reasons.origin_task[late]] == 0
        assert (reasons.reason[origin], name(reasons.names, reasons.range[origin])) == (truth.LAUNCH, "planted")
        for index in (late, origin):
            assert waits.wait[reasons.instance == index].sum() == pytest.approx(delay, rel=0.02)


def choose_receive(real: RealRank, kernels: list[Kernel]) -> tuple[Kernel, Kernel]:
    """Return a kernel in the middle that receives from rank 0, and the next collective, which it delays."""
    by_begin = {kernel.begin: kernel for kernel in kernels}
    for number in range(len(kernels) // 2, len(kernels) - 1):
        receive, reduce = kernels[number : number + 2]
        if not receive.is_collective and receive.operation[1:3] == (0, 2) and reduce.is_collective:
            held = real.last_ended(real.find(reduce.begin))
            if held is not None and next(walk_back(real, held, by_begin), None) is receive:
                return receive, reduce
    raise AssertionError("no such kernel")
