"""The walk along the critical path, compared with the longest path of a graph, and case by case."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from nsys2prv_ng.analysis.path import columns as path
from nsys2prv_ng.analysis.path.walk import join_tables, walk
from tests.analysis.path.path_job import SmallJob
from tests.analysis.path.path_truth import find_longest, make_arrays, name_streams, read_segments
from tests.examples import examples
from tests.tiers import cases

LATEST = np.iinfo(np.int64).max


@pytest.mark.parametrize("kind", [path.PathOperations, path.PathCalls])
def test_rows_of_tables_are_fields(kind: type[path.PathOperations | path.PathCalls]) -> None:
    assert [getattr(path, name.upper()) for name in kind._fields] == list(range(len(kind._fields)))


# ---- jobs made by chance ---------------------------------------------------------------------------------------------


def check(seed: int, latency: int) -> bool:
    """Compare the path of a job made by chance with its longest path; return whether there is only one."""
    job = SmallJob(seed, latency=latency)
    longest = find_longest(job)
    arrays = make_arrays(job)
    kind, last = longest.last
    start = path.Start(arrays.number[last], path.NONE) if kind == "end" else path.Start(path.NONE, last.thread)
    tables = join_tables(np.stack(arrays.operations), np.stack(arrays.calls), arrays.threads)
    for low in (0, longest.length * 2 // 3):
        segments = walk(tables, start, (low, longest.length))
        pieces = name_streams(read_segments(segments), arrays.operations)
        assert [piece.begin for piece in pieces] == [low, *(piece.end for piece in pieces[:-1])]
        assert pieces[-1].end == longest.length
        assert set(pieces[1:]) <= longest.possible
        if longest.pieces is not None:
            later = [piece for piece in longest.pieces if piece.end > low]
            assert pieces == [piece._replace(begin=max(low, piece.begin)) for piece in later]
    return longest.pieces is not None


@pytest.mark.parametrize("latency", cases([0, 9_000], quick=1))
def test_the_longest_path(latency: int) -> None:
    assert sum(check(seed, latency) for seed in range(60)) > 40


@pytest.mark.slow
@pytest.mark.parametrize("latency", cases([0, 9_000], push=[9_000]))
def test_the_longest_path_of_many_jobs(latency: int) -> None:
    count = examples(720)
    assert sum(check(seed, latency) for seed in range(60, 60 + count)) > count * 2 // 3


# ---- cases -----------------------------------------------------------------------------------------------------------


def op(stream: int, begin: int, end: int, launch: tuple[int, int] | None = None, **others: int) -> dict[str, int]:
    """Return an operation; `launch`: thread and begin of the call."""
    thread, launched = launch or (path.NONE, path.NEVER)
    defaults = {"device": 0, "process": 0, "producer": path.NONE, "culprit": path.NONE, "kind": path.OPERATION}
    times = {"begin": begin, "end": end, "until": begin, "launched": launched}
    return {**defaults, **times, "stream": stream, "thread": thread, **others}


def call(thread: int, begin: int, end: int, **others: int) -> dict[str, int]:
    defaults = {"sync": path.NO_SYNC, "target": path.NONE, "culprit": path.NONE}
    return {**defaults, "thread": thread, "begin": begin, "end": end, "since": begin, "until": begin, **others}


class Threads:
    """Threads that launch kernels, all of process 0 unless their processes are given."""

    def __init__(self, count: int, processes: Sequence[int] = (), **columns: Sequence[int]) -> None:
        self.process = list(processes or [0] * count)
        self.columns = {"shortest_wait": [1] * count, "creator": [path.NONE] * count, "created": [0] * count, **columns}


def find_path(
    ops: Sequence[dict[str, int]],
    calls: Sequence[dict[str, int]],
    threads: Threads,
    start: path.Start,
    window: tuple[int, int],
) -> list[tuple[int, int, int, int]]:
    """Return the path as (begin, kind, stream or thread, operation or call), the last first.

    Its segments must add up to the window.
    """
    operations = path.PathOperations(**{name: column([o[name] for o in ops]) for name in path.PathOperations._fields})
    call_columns = {name: column([c.get(name, c["until"]) for c in calls]) for name in path.PathCalls._fields}
    n = len(threads.process)
    first = np.searchsorted(call_columns["thread"], np.arange(n + 1)).astype(np.int64)
    tables = join_tables(
        np.stack(operations),
        np.stack(path.PathCalls(**call_columns)),
        path.PathThreads(
            column(threads.process),
            first,
            np.ones(n, np.bool_),
            **{name: column(values) for name, values in threads.columns.items()},
        ),
    )
    segments = walk(tables, start, window)
    low, high = window
    begins, ends = segments.begin.tolist(), segments.end.tolist()
    assert ends == [high, *begins[:-1]] and (begins or [low])[-1] == low
    lane = np.where(segments.thread >= 0, segments.thread, np.append(operations.stream, path.NONE)[segments.operation])
    thing = np.where(segments.thread >= 0, segments.call, segments.operation)
    return list(zip(begins, segments.kind.tolist(), lane.tolist(), thing.tolist(), strict=True))


def column(values: Sequence[int]) -> np.ndarray:
    return np.array(values, np.int64)


def on_thread(number: int) -> path.Start:
    return path.Start(path.NONE, number)


def test_a_call_of_mpi_that_waits_for_the_device_and_then_for_a_rank() -> None:
    """The later of the two counts: MPI copies from the device, then waits."""
    threads = Threads(2, [0, 1])
    staged = op(0, 110, 200, (0, 50))
    for late, expected in ((5_000, [(5_000, path.CALL, 0, 1), (100, path.CODE, 1, -1)]), (150, None)):
        calls = [
            call(0, 50, 60),
            call(0, 100, 6_000, sync=path.SYNC_STREAM, target=0, culprit=1, culprit_begin=late, until=late),
            call(1, 90, 100),
            call(1, late, 6_000),
        ]
        found = find_path([staged], calls, threads, on_thread(0), (100, 6_000))
        assert found == (expected or [(200, path.CALL, 0, 1), (110, path.OPERATION, 0, 0), (100, path.LAUNCH, 0, 0)])


def test_a_call_of_mpi_that_waits_for_the_device_and_then_for_a_rank_that_is_not_selected() -> None:
    calls = [call(0, 100, 6_000, sync=path.SYNC_STREAM, target=0, culprit=path.LOST, until=5_000)]
    found = find_path([op(0, 110, 200, (0, 50))], calls, Threads(1), on_thread(0), (0, 6_000))
    assert found == [(5_000, path.CALL, 0, 0), (100, path.OUTSIDE, 0, 0), (0, path.CODE, 0, -1)]


def test_a_device_that_is_not_waited_for() -> None:
    """The other device of the process ends just before the call returns."""
    ops = [op(0, 20, 900, (0, 10)), op(1, 40, 995, (0, 30), device=1)]
    for sync, last in ((path.SYNC_DEVICE, 0), (path.SYNC_PROCESS, 1)):
        calls = [call(0, 10, 15), call(0, 30, 35), call(0, 50, 1_000, sync=sync, target=0)]
        found = find_path(ops, calls, Threads(1), on_thread(0), (100, 1_000))
        assert found == [(ops[last]["end"], path.CALL, 0, 2), (100, path.OPERATION, last, last)]


def test_a_process_without_operations_that_waits_for_its_device() -> None:
    calls = [call(0, 10, 90), call(1, 20, 95, sync=path.SYNC_PROCESS)]
    found = find_path([op(0, 5, 60)], calls, Threads(2, [0, 7]), on_thread(1), (0, 100))
    assert found == [(95, path.CODE, 1, -1), (20, path.CALL, 1, 1), (0, path.CODE, 1, -1)]


@pytest.mark.parametrize("sync", [path.SYNC_STREAM, path.SYNC_DEVICE])
def test_an_operation_that_another_thread_launches_within_the_call(sync: int) -> None:
    ops = [op(0, 20, 900, (0, 10)), op(0, 901, 950, (1, 500))]
    calls = [call(0, 10, 15), call(0, 30, 1_000, sync=sync, target=0), call(1, 500, 510)]
    found = find_path(ops, calls, Threads(2), on_thread(0), (100, 1_000))
    assert found == [(900, path.CALL, 0, 1), (100, path.OPERATION, 0, 0)]


def test_operations_without_launches() -> None:
    """All operations before the end of a call count where no launch shows which it waited for."""
    ops = [op(0, 20, 400), op(0, 500, 900)]
    calls = [call(0, 30, 1_000, sync=path.SYNC_STREAM, target=0)]
    found = find_path(ops, calls, Threads(1), on_thread(0), (100, 1_000))
    on_stream = [(500, path.OPERATION, 0, 1), (400, path.GAP, 0, 1), (100, path.OPERATION, 0, 0)]
    assert found == [(900, path.CALL, 0, 0), *on_stream]


def test_an_operation_on_another_stream_that_ended_just_before() -> None:
    """As with the legacy default stream, which no event shows. It counts within 10 us, and on the device only."""
    for ended, device, near in ((99_000, 0, True), (101_500, 0, True), (89_000, 0, False), (99_000, 1, False)):
        ops = [op(0, 100_000, 200_000, (0, 20_000)), op(1, 30_000, ended, (0, 10_000), device=device)]
        calls = [call(0, 10_000, 11_000), call(0, 20_000, 21_000)]
        found = find_path(ops, calls, Threads(1), path.Start(0, path.NONE), (15_000, 200_000))
        if near:
            gap = [(ended, path.GAP, 0, 0)] if ended < 100_000 else []
            assert found[1:3] == [*gap, (30_000, path.OPERATION, 1, 1), (15_000, path.LAUNCH, 1, 1)][:2]
        else:
            assert found[1:] == [(20_000, path.LAUNCH, 0, 0), (15_000, path.CODE, 0, -1)]


def test_an_operation_that_began_before_the_one_before_it_ended() -> None:
    """As with a programmatic dependent launch: the path goes back to what still ran, not to what was before it."""
    ops = [op(0, 0, 1_000, (0, 0)), op(0, 2_000, 105_000, (0, 10)), op(0, 100_000, 200_000, (0, 20))]
    calls = [call(0, 0, 5), call(0, 10, 15), call(0, 20, 25)]
    found = find_path(ops, calls, Threads(1), path.Start(2, path.NONE), (500, 200_000))
    assert found == [
        (100_000, path.OPERATION, 0, 2),
        (2_000, path.OPERATION, 0, 1),
        (1_000, path.GAP, 0, 1),
        (500, path.OPERATION, 0, 0),
    ]


def test_the_first_operation_of_a_stream_without_a_launch() -> None:
    ops = [op(0, 100, 50_000, (0, 90)), op(1, 90_000, 95_000)]
    found = find_path(ops, [call(0, 90, 95)], Threads(1), path.Start(1, path.NONE), (80, 95_000))
    assert found[:3] == [(90_000, path.OPERATION, 1, 1), (50_000, path.GAP, 1, 1), (100, path.OPERATION, 0, 0)]
    alone = find_path(ops[1:], [], Threads(1), path.Start(0, path.NONE), (80, 95_000))
    assert alone == [(90_000, path.OPERATION, 1, 0), (80, path.UNKNOWN, 1, 0)]


# ---- threads ---------------------------------------------------------------------------------------------------------

WAIT = path.SYNC_THREAD


def test_a_thread_that_waited_for_another_one() -> None:
    """The path changes to it where the wait ends, not where the other's last call did."""
    calls = [call(0, 0, 100), call(0, 110, 90_000, sync=WAIT), call(0, 95_000, 95_100), call(1, 80_000, 80_100)]
    found = find_path([], calls, Threads(2), on_thread(0), (80_000, 100_000))
    assert found == [
        (95_100, path.CODE, 0, -1),
        (95_000, path.CALL, 0, 2),
        (90_000, path.CODE, 0, -1),
        (80_100, path.CODE, 1, -1),
        (80_000, path.CALL, 1, 3),
    ]


def test_a_thread_that_is_woken_late() -> None:
    """The one that woke it waits itself by then: until its wait it was active."""
    calls = [
        call(0, 0, 100),
        call(0, 110, 90_000, sync=WAIT),
        call(1, 0, 200, sync=WAIT),
        call(1, 80_000, 80_100),
        call(1, 80_150, 99_000, sync=WAIT),
    ]
    found = find_path([], calls, Threads(2), on_thread(0), (80_000, 95_000))
    assert found == [
        (90_000, path.CODE, 0, -1),
        (80_150, path.CALL, 0, 1),
        (80_100, path.CODE, 1, -1),
        (80_000, path.CALL, 1, 3),
    ]


def test_a_wait_for_a_thread_that_no_report_shows() -> None:
    """Neither a thread that made no call since, nor one that had waited before, ended the wait."""
    calls = [call(0, 200, 90_000, sync=WAIT), call(1, 0, 100), call(2, 150, 95_000, sync=WAIT)]
    found = find_path([], calls, Threads(3), on_thread(0), (0, 90_000))
    assert found == [(200, path.CALL, 0, 0), (0, path.CODE, 0, -1)]


def test_a_long_time_without_calls() -> None:
    """Another thread's calls count only where a wait as long would not be recorded."""
    calls = [call(0, 0, 100), call(0, 90_000, 91_000), call(1, 50_000, 50_100)]
    for shortest, other in ((LATEST, True), (200_000, True), (30_000, False)):
        threads = Threads(2, shortest_wait=[shortest] * 2)
        found = find_path([], calls, threads, on_thread(0), (50_000, 91_000))
        expected = [(50_100, path.CODE, 0, -1), (50_000, path.CALL, 1, 2)] if other else [(50_000, path.CODE, 0, -1)]
        assert found == [(90_000, path.CALL, 0, 1), *expected]
    brief = [call(0, 0, 80_000), call(0, 90_000, 91_000), call(1, 85_000, 85_100)]
    found = find_path([], brief, Threads(2, shortest_wait=[LATEST] * 2), on_thread(0), (80_000, 91_000))
    assert found == [(90_000, path.CALL, 0, 1), (80_000, path.CODE, 0, -1)]


def test_a_thread_that_was_created() -> None:
    """Before its first call the path is on the thread that created it, even if others made calls since."""
    calls = [call(0, 100, 200), call(1, 250, 90_000), call(2, 95_000, 96_000)]
    threads = Threads(3, shortest_wait=[LATEST] * 3, creator=[path.NONE, 0, 0], created=[0, 150, 180])
    found = find_path([], calls, threads, on_thread(2), (50, 96_000))
    assert found == [(95_000, path.CALL, 2, 2), (180, path.CODE, 2, -1), (100, path.CALL, 0, 0), (50, path.CODE, 0, -1)]


# ---- damage ----------------------------------------------------------------------------------------------------------


def test_nothing_to_start_from() -> None:
    found = find_path([], [], Threads(0), path.Start(path.NONE, path.NONE), (5, 9))
    assert found == [(5, path.UNKNOWN, path.NONE, path.NONE)]


def test_a_path_of_many_segments() -> None:
    n = 20_000
    calls = [call(0, 10 * k, 10 * k + 5) for k in range(n)]
    found = find_path([], calls, Threads(1), on_thread(0), (0, 10 * n))
    assert len(found) == 2 * n


@pytest.mark.parametrize("seed", range(40))
def test_columns_that_contradict_each_other(seed: int) -> None:
    """Whatever the columns hold, the walk ends, and its segments add up to the window (checked by `find_path`)."""
    random = np.random.default_rng(seed)
    n, m, threads, streams = (int(number) for number in random.integers(1, 30, 4))
    latest = int(random.choice([50, 100_000]))

    def choose(low: int, high: int) -> int:
        return int(random.integers(low, high))

    ops = []
    for stream, begin in sorted((choose(0, streams), choose(0, latest)) for _ in range(n)):
        launch = (choose(0, threads), choose(0, latest)) if choose(0, 4) else None
        others = {
            "producer": choose(-1, n),
            "culprit": choose(-2, n),
            "until": choose(0, latest),
            "process": stream % 3,
        }
        ops.append(op(stream, begin, begin + choose(0, latest), launch, device=stream % 5, **others))
    calls = []
    for thread in range(threads):
        limits = sorted(choose(0, latest) for _ in range(2 * (m // threads)))
        for begin, end in zip(limits[::2], limits[1::2], strict=True):
            sync = choose(0, 6)
            target = {path.SYNC_OPERATION: n, path.SYNC_STREAM: streams, path.SYNC_DEVICE: 5}.get(sync, 0)
            others = {"culprit": choose(-2, threads), "culprit_begin": choose(0, latest), "until": choose(0, latest)}
            calls.append(call(thread, begin, end, sync=sync, target=choose(0, target) if target else -1, **others))
    columns = {"creator": [choose(-1, threads) for _ in range(threads)]}
    columns["created"] = [choose(0, latest) for _ in range(threads)]
    columns["shortest_wait"] = [choose(0, latest) for _ in range(threads)]
    group = Threads(threads, [number % 3 for number in range(threads)], **columns)
    for start in (path.Start(choose(0, n), path.NONE), on_thread(choose(0, threads))):
        find_path(ops, calls, group, start, (choose(-5, latest // 2), latest + choose(0, 50)))
