"""The critical path through reports: of jobs made by chance, with the longest path as the truth, and case by case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.analysis.path import columns as path
from nsys2prv_ng.analysis.path.calls import find_queued_before
from nsys2prv_ng.analysis.path.critical_path import CriticalPath, find_critical_path, load_path_lanes
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.job.open_job import Job, open_job
from nsys2prv_ng.objects.places import Stream, Thread
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.reading.open_reports import ReadOptions, Selection
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from tests.analysis.path.path_job import SmallJob
from tests.analysis.path.path_reports import (
    DEVICE,
    EVENT_SYNC,
    ON_DEVICE,
    PAGEABLE,
    PINNED,
    STREAM_SYNC,
    STREAM_WAIT,
    TO_DEVICE,
    TO_HOST,
    Capture,
    write_job,
)
from tests.analysis.path.path_truth import STREAM, THREAD, Lane, find_longest
from tests.sources.small_reports import UTC
from tests.tiers import cases


@contextmanager
def found_path(
    reports: Sequence[Path],
    folder: Path,
    selection: Selection = Selection(),  # noqa: B008 (does not change)
    *,
    name_ranges: bool = True,
    shortest: int = 0,
    warmup: int | None = None,
) -> Iterator[tuple[Job, CriticalPath]]:
    """Open the reports of a job and find its critical path, which must add up. `warmup`: steps that do not count."""
    options = ReadOptions(
        selection=selection, source_options=SourceOptions(osrt_min=shortest, nvtx_range=selection.nvtx_range)
    )
    with open_job(reports, folder, options, Progress()) as opened:
        job = opened
        if warmup is not None and job.steps is not None:
            steps = job.steps._replace(warmup=warmup)
            measured = [(int(steps.start[warmup]), int(steps.stop[-1]))]
            job = replace(job, steps=steps, scope=replace(job.scope, measured=measured))
        found = find_critical_path(job, load_path_lanes(job, find_waits(job)), name_ranges=name_ranges)
        assert found is not None
        check_sums(found)
        yield job, found


def check_sums(found: CriticalPath) -> None:
    """Check that the segments of each window follow each other from its begin to its end."""
    begin, end = found.begin.tolist(), found.end.tolist()
    assert all(low < high for low, high in zip(begin, end, strict=True))
    limits = [time for window in found.windows for time in window]
    cuts = [0, *(i + 1 for i in range(len(begin) - 1) if begin[i + 1] != end[i]), len(begin)]
    assert [time for low, high in pairwise(cuts) for time in (begin[low], end[high - 1])] == limits


# ---- jobs made by chance ---------------------------------------------------------------------------------------------

KINDS = {
    path.OPERATION: {types.PATH_COMPUTE, types.PATH_MEMORY},
    path.MOVING: {types.PATH_MOVING},
    path.LAUNCH: {types.PATH_LAUNCH},
    path.GAP: {types.PATH_GAP},
    path.CALL: {types.PATH_CUDA_CALL, types.PATH_SYSTEM_CALL, types.PATH_MPI},
    path.CODE: {types.PATH_HOST},
}


def list_lanes(job: Job, small: SmallJob) -> dict[int, Lane]:
    """Return the thread or stream of the simulated job by row."""
    lanes: dict[int, Lane] = {}
    for report, rows in zip(job.reports, job.whole.rows, strict=True):
        for place, row in zip(report.places.all, rows.tolist(), strict=True):
            if isinstance(place, Stream):
                lanes[row] = STREAM, place.stream
            elif isinstance(place, Thread):
                rank = (place.global_tid >> 24 & 0xFFFFFF) - 100
                lanes[row] = THREAD, small.threads.index(rank) + ((place.global_tid & 0xFFFFFF) - 100 - rank) // 1_000
    return lanes


def compare(seed: int, folder: Path, latency: int) -> bool:
    """Compare the path of a job, read from reports, with its longest path since all threads made a call.

    Return whether there is only one longest path, and all threads launch kernels in that time.
    """
    small = SmallJob(seed, latency=latency)
    longest = find_longest(small)
    low = max(min(call.begin for call in small.calls if call.thread == thread) for thread in range(len(small.threads)))
    launching = {call.thread for call in small.calls if call.action in ("launch", "nccl") and call.begin >= low}
    if longest.pieces is None or len(launching) < len(small.threads):
        return False
    first = 1 if any(call.action == "nccl" for call in small.calls) else 3  # what `write_job` adds
    selection = Selection(window=(low - first, longest.length - first))
    with found_path(write_job(small, folder), folder, selection, name_ranges=False) as (job, found):
        lanes = list_lanes(job, small)
        shift = longest.length - int(found.end[-1])
        columns = (found.begin + shift, found.end + shift, found.kind, found.row)
        pieces = list(zip(*(column.tolist() for column in columns), strict=True))
    expected = [piece for piece in longest.pieces if piece.end > low]
    assert len(pieces) == len(expected)
    for (begin, end, kind, row), piece in zip(pieces, expected, strict=True):
        assert (begin, end, lanes[row]) == (max(low, piece.begin), piece.end, piece.lane)
        assert kind in KINDS[piece.kind]
    return True


@pytest.mark.slow
@pytest.mark.parametrize("latency", cases([0, 9_000], push=[9_000]))
def test_the_longest_path_through_reports(tmp_path_factory: pytest.TempPathFactory, latency: int) -> None:
    assert sum(compare(seed, tmp_path_factory.mktemp("job"), latency) for seed in range(5)) >= 3


@pytest.mark.slow
@pytest.mark.all_sets
@pytest.mark.parametrize("latency", [0, 9_000])
def test_the_longest_path_through_many_reports(tmp_path_factory: pytest.TempPathFactory, latency: int) -> None:
    assert sum(compare(seed, tmp_path_factory.mktemp("job"), latency) for seed in range(5, 30)) > 14


# ---- cases -----------------------------------------------------------------------------------------------------------

CUDA, SYSTEM, HOST, COMPUTE, MEMORY, GAP, LAUNCH, OUTSIDE, UNKNOWN = (
    *(types.PATH_CUDA_CALL, types.PATH_SYSTEM_CALL, types.PATH_HOST, types.PATH_COMPUTE, types.PATH_MEMORY),
    *(types.PATH_GAP, types.PATH_LAUNCH, types.PATH_OUTSIDE, types.PATH_UNKNOWN),
)


def read_path(
    capture: Capture,
    folder: Path,
    selection: Selection = Selection(),  # noqa: B008 (does not change)
) -> list[tuple[int, int, str]]:
    """Return the path through one report: begin (ns of the report), kind, and name of the operation or call."""
    with found_path([capture.write(folder / "report.sqlite")], folder, selection) as (job, found):
        begin = (found.begin + job.alignment.utc_base - UTC).tolist()
        names = [found.names[name] if name >= 0 else "" for name in found.name.tolist()]
        return list(zip(begin, found.kind.tolist(), names, strict=True))


@pytest.mark.parametrize(
    ("call", "kind", "memory", "waits"),
    cases(
        [
            ("cudaMemcpy", TO_HOST, (DEVICE, PINNED), True),
            ("cudaMemcpy", ON_DEVICE, (DEVICE, DEVICE), False),
            ("cudaMemcpyAsync", TO_HOST, (DEVICE, PINNED), False),
            ("cudaMemcpyAsync", TO_HOST, (DEVICE, PAGEABLE), True),
            ("cudaMemcpyAsync", TO_DEVICE, (PAGEABLE, DEVICE), True),
            ("cudaMemcpyAsync", ON_DEVICE, (DEVICE, DEVICE), False),
        ],
        quick=2,
    ),
)
def test_copies_that_wait(call: str, kind: int, memory: tuple[int, int], waits: bool, tmp_path: Path) -> None:
    """Copies on the device, and those of pinned memory, end within their calls by chance."""
    capture = Capture()
    capture.call("cudaGetDevice", 0, 100)
    capture.copy(capture.call(call, 1_000, 90_000), 60_000, 80_000, kind=kind, memory=memory)
    copy = {TO_HOST: "Memcpy device to host", TO_DEVICE: "Memcpy host to device"}.get(kind, "")
    rest = [(80_000, CUDA, call), (60_000, MEMORY, copy), (1_000, LAUNCH, copy)] if waits else [(1_000, CUDA, call)]
    assert read_path(capture, tmp_path) == [(0, CUDA, "cudaGetDevice"), (100, HOST, ""), *rest[::-1]]


@pytest.mark.slow
@pytest.mark.parametrize(("call", "waits"), [("cudaFree", True), ("cudaFreeAsync", False), ("cudaFreeHost", True)])
def test_calls_that_wait_by_their_names(call: str, waits: bool, tmp_path: Path) -> None:
    capture = Capture()
    capture.kernel(capture.call("cudaLaunchKernel", 0, 100), 5_000, 80_000)
    capture.call(call, 200, 90_000)
    begin = [(0, CUDA, "cudaLaunchKernel"), (100, HOST, ""), (200, CUDA, call)]
    on_device = [(0, LAUNCH, "kernel"), (5_000, COMPUTE, "kernel"), (80_000, CUDA, call)]
    assert read_path(capture, tmp_path) == (on_device if waits else begin)


def make_queries(*begins: int) -> Capture:
    """Return a capture of a kernel that ends at 80 us, and of queries of an event after it that take 1 us each."""
    capture = Capture()
    capture.kernel(capture.call("cudaLaunchKernel", 0, 100), 5_000, 80_000)
    capture.record(5, 200, 300)
    for begin in begins:
        capture.sync("cudaEventQuery", begin, begin + 1_000, EVENT_SYNC, event=5)
    return capture


@pytest.mark.slow
def test_a_thread_that_asks_for_an_event_again_and_again(tmp_path: Path) -> None:
    """It waits where it does nothing else in between."""
    assert read_path(make_queries(*range(1_000, 90_000, 10_000)), tmp_path) == [
        (0, LAUNCH, "kernel"),
        (5_000, COMPUTE, "kernel"),
        (80_000, CUDA, "cudaEventQuery"),
    ]


def test_a_thread_that_sleeps_before_it_asks_again(tmp_path: Path) -> None:
    capture = make_queries(1_000, 90_000)
    capture.system_call("clock_nanosleep", 4_000, 85_000)
    found = read_path(capture, tmp_path)
    assert found == [(0, LAUNCH, "kernel"), (5_000, COMPUTE, "kernel"), (80_000, CUDA, "cudaEventQuery")]


@pytest.mark.slow
@pytest.mark.parametrize("begins", [(1_000, 90_000), (79_500,)])
def test_a_thread_that_asks_now_and_then(begins: Sequence[int], tmp_path: Path) -> None:
    """As PyTorch's allocators do: the operation ends between two queries, or within one, by chance."""
    found = read_path(make_queries(*begins), tmp_path)
    queries = [(begin, CUDA, "cudaEventQuery") for begin in begins]
    assert found[-1:] == queries[-1:] and (found[3], found[4]) == ((300, HOST, ""), queries[0])


def make_graph() -> Capture:
    """Return a capture of a graph with three nodes, and of an event after it."""
    capture = Capture()
    launch = capture.call("cudaGraphLaunch", 0, 100)
    for node, begin in enumerate((5_000, 20_000, 40_000), 1):
        capture.kernel(launch, begin, begin + 10_000, name=f"node {node}", node=node)
    capture.record(5, 200, 300)
    return capture


@pytest.mark.slow
def test_a_stream_that_waits_for_a_graph(tmp_path: Path) -> None:
    """It waits for the last node, which ended more than 10 us before."""
    capture = make_graph()
    capture.sync("cudaStreamWaitEvent", 400, 500, STREAM_WAIT, stream=8, event=5)
    capture.kernel(capture.call("cudaLaunchKernel", 600, 700), 65_000, 80_000, stream=8, name="consumer")
    assert read_path(capture, tmp_path)[-3:] == [
        (40_000, COMPUTE, "node 3"),
        (50_000, GAP, "consumer"),
        (65_000, COMPUTE, "consumer"),
    ]


@pytest.mark.slow
def test_a_thread_that_waits_for_a_graph(tmp_path: Path) -> None:
    capture = make_graph()
    capture.sync("cudaEventSynchronize", 15_500, 55_000, EVENT_SYNC, event=5)
    found = read_path(capture, tmp_path)
    assert found[-2:] == [(40_000, COMPUTE, "node 3"), (50_000, CUDA, "cudaEventSynchronize")]


def test_a_stream_that_waits_for_a_host_function(tmp_path: Path) -> None:
    """It is CPU code on the path, whichever stream it is on."""
    capture = Capture()
    capture.kernel(capture.call("cudaLaunchKernel", 0, 100), 5_000, 50_000, name="producer")
    capture.host_function(capture.call("cudaLaunchHostFunc", 200, 300), 51_000, 90_000, "load")
    capture.record(1, 400, 500, stream=7)
    capture.sync("cudaStreamWaitEvent", 600, 700, STREAM_WAIT, stream=8, event=1)
    capture.kernel(capture.call("cudaLaunchKernel", 800, 900), 92_000, 99_000, stream=8, name="consumer")
    assert read_path(capture, tmp_path) == [
        (0, LAUNCH, "producer"),
        (5_000, COMPUTE, "producer"),
        (50_000, GAP, "load"),
        (51_000, HOST, "load"),
        (90_000, GAP, "consumer"),
        (92_000, COMPUTE, "consumer"),
    ]


@pytest.mark.slow
def test_events_that_a_stream_without_operations_passes_on(tmp_path: Path) -> None:
    """As in FSDP, where a stream waits for one that waits for a third; the last one began more than 10 us later."""
    capture = Capture()
    capture.kernel(capture.call("cudaLaunchKernel", 0, 100), 5_000, 50_000, name="producer")
    capture.record(1, 200, 300, stream=7)
    capture.sync("cudaStreamWaitEvent", 400, 500, STREAM_WAIT, stream=20, event=1)
    capture.record(2, 600, 700, stream=20)
    capture.sync("cudaStreamWaitEvent", 800, 900, STREAM_WAIT, stream=21, event=2)
    capture.kernel(capture.call("cudaLaunchKernel", 1_000, 1_100), 65_000, 80_000, stream=21, name="consumer")
    assert read_path(capture, tmp_path) == [
        (0, LAUNCH, "producer"),
        (5_000, COMPUTE, "producer"),
        (50_000, GAP, "consumer"),
        (65_000, COMPUTE, "consumer"),
    ]


def test_streams_of_a_gpu_that_is_not_chosen_are_apart(tmp_path: Path) -> None:
    """A stream without operations waits for nothing, though a stream of the other GPU waits for the first kernel."""
    capture = Capture()
    capture.kernel(capture.call("cudaLaunchKernel", 0, 100), 5_000, 50_000, name="first")
    capture.record(3, 110, 120, stream=1)
    capture.record(1, 200, 300, stream=7)
    capture.sync("cudaStreamWaitEvent", 400, 500, STREAM_WAIT, stream=8, event=1, device=1)
    capture.record(2, 600, 700, stream=1)
    capture.sync("cudaStreamWaitEvent", 800, 900, STREAM_WAIT, stream=21, event=2)
    capture.kernel(capture.call("cudaLaunchKernel", 1_000, 1_100), 65_000, 80_000, stream=21, name="last")
    capture.kernel(capture.call("cudaLaunchKernel", 1_200, 1_300), 66_000, 70_000, stream=8, device=1)
    path = read_path(capture, tmp_path, Selection(gpus=frozenset({0})))
    assert (1_000, LAUNCH, "last") in path and GAP not in [kind for _, kind, _ in path]


@pytest.mark.slow
@pytest.mark.parametrize(("queued", "waits"), [(1_050, True), (900, False)])
def test_a_launch_call_that_waits_for_a_place_in_the_queue(queued: int, waits: bool, tmp_path: Path) -> None:
    """The host is far ahead of the device: a call returns as an operation ends, since the queue was full."""
    capture = Capture()
    capture.kernel(capture.call("cudaLaunchKernel", 0, 50), 1_000, 3_000_000, name="long")
    for number in range(1, queued + 1):
        launch = capture.call("cudaLaunchKernel", 100 * number, 3_005_000 if number == queued else 100 * number + 50)
        begin = 3_010_000 + 10_000 * number
        capture.kernel(launch, begin, begin + 9_000)
    capture.kernel(capture.call("cudaLaunchKernel", 3_006_000, 3_007_000), 3_008_000, 30_000_000, stream=8)
    found = read_path(capture, tmp_path)
    if waits:
        assert found[:3] == [(0, LAUNCH, "long"), (1_000, COMPUTE, "long"), (3_000_000, CUDA, "cudaLaunchKernel")]
    else:
        assert found[-4] == (100 * queued, CUDA, "cudaLaunchKernel") and len(found) == 2 * queued + 4
    assert found[-3:] == [(3_005_000, HOST, ""), (3_006_000, LAUNCH, "kernel"), (3_008_000, COMPUTE, "kernel")]


@pytest.mark.parametrize("seed", range(4))
def test_operations_before_the_first_known_launch_were_queued(seed: int) -> None:
    """Nothing is known of streams without any known launch, as those of migrations of managed memory."""
    chance = np.random.default_rng(seed)
    stream, is_known = chance.integers(0, 5, 40), chance.random(40) < 0.1
    expected = []
    for k, own in enumerate(stream.tolist()):
        later = [n for n in range(k, 40) if stream[n] == own and is_known[n]]
        expected.append(bool(later) and not any(stream[n] == own and is_known[n] for n in range(k + 1)))
    assert find_queued_before(stream, is_known).tolist() == expected


@pytest.mark.slow
@pytest.mark.parametrize("recorded", [True, False])
def test_a_worker_thread_begins_where_it_is_created(recorded: bool, tmp_path: Path) -> None:
    """Without calls of the operating system, the main thread is taken for its creator, at its first event."""
    capture = Capture()
    capture.call("cudaGetDevice", 0, 100)
    if recorded:
        capture.system_call("pthread_create", 20_000, 40_000)
    capture.call("cudaMalloc", 300_000, 500_000, thread=1)
    capture.system_call("poll", 45_000, 400_000) if recorded else capture.call("cudaSetDevice", 45_000, 400_000)
    capture.kernel(capture.call("cudaLaunchKernel", 510_000, 520_000, thread=1), 530_000, 600_000)
    on_main = [(0, CUDA, "cudaGetDevice"), (100, HOST, "")]
    created = [(20_000, SYSTEM, "pthread_create"), (40_000, HOST, "")]
    other = [(45_000, CUDA, "cudaSetDevice")]
    assert read_path(capture, tmp_path) == [
        *on_main,
        *(created if recorded else other),
        (300_000, CUDA, "cudaMalloc"),
        (500_000, HOST, ""),
        (510_000, LAUNCH, "kernel"),
        (530_000, COMPUTE, "kernel"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("shown", ["wait", "no wait", "nothing"])
def test_a_thread_that_hands_over(shown: str, tmp_path: Path) -> None:
    """The main thread makes no calls for long, while a worker launches kernels: it waited, or was busy itself.

    Without calls of the operating system, it is taken to have waited since the worker's last call.
    """
    capture = Capture()
    for thread in (0, 1):
        launch = capture.call("cudaLaunchKernel", 20_000 * thread, 20_000 * thread + 100, thread)
        capture.kernel(launch, 30_000 + 10_000 * thread, 35_000 + 10_000 * thread, stream=7 + thread)
    if shown != "nothing":
        capture.system_call("read", 110_000, 121_000, thread=2)
    if shown == "wait":
        capture.system_call("pthread_cond_timedwait", 150_000, 480_000)
    capture.call("cudaMalloc", 400_000, 450_000, thread=1)
    capture.call("cudaMalloc", 500_000, 600_000)
    with found_path([capture.write(tmp_path / "report.sqlite")], tmp_path) as (job, found):
        begin = (found.begin + job.alignment.utc_base - UTC).tolist()
        pieces = list(zip(begin, found.kind.tolist(), found.row.tolist(), strict=True))
    last, on_worker = (500_000, CUDA, 0), (400_000, CUDA, 1)
    if shown == "wait":
        assert pieces[-4:] == [on_worker, (450_000, HOST, 1), (480_000, HOST, 0), last]
    elif shown == "nothing":
        assert pieces[-3:] == [on_worker, (450_000, HOST, 0), last]
    else:
        assert pieces[-2:] == [(100, HOST, 0), last]


def make_late_rank(folder: Path) -> list[Path]:
    """Write reports of two ranks: rank 0 waits in NCCL from 20 us on, until rank 1 has computed up to 80 us."""
    captures = [Capture(rank, 2) for rank in range(2)]
    for capture, begin in zip(captures, (20_000, 82_000), strict=True):
        capture.call("cudaGetDevice", 10, 100)
        capture.kernel(capture.call("cudaLaunchKernel", 200, 300), 5_000, begin - 2_000, name="compute")
        capture.nccl_call(350, 550)
        nccl = capture.call("cuLaunchKernelEx", 400, 500)
        capture.kernel(nccl, begin, 100_000, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    return [capture.write(folder / f"rank{capture.rank}.sqlite") for capture in captures]


@pytest.mark.slow
def test_a_window_that_ends_while_a_rank_waits(tmp_path: Path) -> None:
    """The path is on the rank that it waits for, though that is late only after the window."""
    with found_path(make_late_rank(tmp_path), tmp_path, Selection(window=(0, 50_000))) as (job, found):
        names = [found.names[name] if name >= 0 else "" for name in found.name.tolist()]
        rank = [job.whole.ranks[task] for task in job.whole.task_of_row[found.row].tolist()]
        assert list(zip(names, rank, strict=True))[-2:] == [("compute", 1), ("compute", 1)]


@pytest.mark.slow
def test_a_rank_that_is_not_selected(tmp_path: Path) -> None:
    with found_path(make_late_rank(tmp_path), tmp_path, Selection(ranks=frozenset({0}))) as (_, found):
        last = [(found.kind[i], int(found.length[i])) for i in (-3, -2, -1)]
        assert last == [(GAP, 2_000), (OUTSIDE, 62_000), (types.PATH_MOVING, 18_000)]


@pytest.mark.slow
def test_a_window_after_a_collective(tmp_path: Path) -> None:
    """What the window cuts on the row of a kernel of NCCL that ended before is no communication."""
    captures = [Capture(rank, 2) for rank in range(2)]
    for capture, begin in zip(captures, (20_000, 30_000), strict=True):
        capture.nccl_call(350, 550)
        nccl = capture.call("cuLaunchKernelEx", 400, 500)
        capture.kernel(nccl, begin, 50_000, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
        capture.kernel(capture.call("cudaLaunchKernel", 600, 700), 60_000, 100_000, name="compute")
    reports = [capture.write(tmp_path / f"rank{capture.rank}.sqlite") for capture in captures]
    with found_path(reports, tmp_path, Selection(window=(80_000, None))) as (_, found):
        assert found.kind.tolist() == [COMPUTE]


@pytest.mark.slow
def test_a_thread_that_waits_for_a_stream_that_waits_for_another(tmp_path: Path) -> None:
    capture = Capture()
    capture.kernel(capture.call("cudaLaunchKernel", 0, 100), 5_000, 10_000, stream=8, name="own")
    capture.kernel(capture.call("cudaLaunchKernel", 200, 300), 5_000, 50_000, stream=7, name="other")
    capture.record(1, 400, 500, stream=7)
    capture.sync("cudaStreamWaitEvent", 600, 700, STREAM_WAIT, stream=8, event=1)
    capture.sync("cudaStreamSynchronize", 800, 55_000, STREAM_SYNC, stream=8)
    found = read_path(capture, tmp_path)
    assert found[-2:] == [(5_000, COMPUTE, "other"), (50_000, CUDA, "cudaStreamSynchronize")]
