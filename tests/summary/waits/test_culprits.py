"""Why ranks were late and what that cost the others, in a part of the time or of the ranks: against plain loops."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from nsys2prv_ng.analysis.waits.late_reasons import find_reasons
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.job.counted import CountedEvents
from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.options.kinds import parse_window
from nsys2prv_ng.paraver.event_types import LATE_REASONS
from nsys2prv_ng.reading.open_reports import ReadOptions, Selection
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.summary.waits.measure import compute_waits, load_communication
from nsys2prv_ng.text.formatting import format_window
from tests.analysis.waits import late_truth
from tests.analysis.waits.test_planted_waits import copy_to_one_node
from tests.analysis.waits.waits_truth import Kernel
from tests.conftest import Unpacked
from tests.report_truth import Report
from tests.summary.made import summarize_reports
from tests.summary.waits.test_measure import check_sums, clip, find_truth, locate, summed, waits_in
from tests.tiers import cases

pytestmark = pytest.mark.slow

MS = 10**6


class Late(NamedTuple):
    """A kernel that others waited for: its rank, when it began (UTC), and their kernels."""

    rank: int
    begin: int
    waiting: list[Kernel]


def list_late(truth: list[list[Kernel]]) -> list[Late]:
    begin_of = {(kernel.rank, kernel.operation): kernel.begin for kernels in truth for kernel in kernels}
    waiting: dict[tuple[int, int], list[Kernel]] = defaultdict(list)
    for kernels in truth:
        for kernel in kernels:
            if kernel.last >= 0:
                waiting[kernel.last, begin_of[kernel.last, kernel.operation]].append(kernel)
    return [Late(*key, kernels) for key, kernels in sorted(waiting.items())]


def list_costs(
    ranks: list[late_truth.Rank], late: Late, low: int, high: int, chosen: frozenset[int]
) -> Iterator[tuple[tuple[str, str, str, str], int]]:
    """Yield (reason, range, call, operation) and ns of the waiting of the chosen ranks from low to high (UTC)."""
    whole = [(kernel.begin, kernel.until) for kernel in late.waiting]
    cut = [(max(kernel.begin, low), min(kernel.until, high)) for kernel in late.waiting if kernel.rank in chosen]
    cut = [(begin, until) for begin, until in cut if until > begin]
    rank = ranks[late.rank]
    wanted = late_truth.explain(rank, late.begin, is_mpi=False, waits=whole)
    if late.rank not in chosen or late.begin > high:
        wanted = wanted._replace(reason=late_truth.UNKNOWN, operation="")
    elif cut:
        launched = rank.launches[late_truth.stream_of(rank.find_nccl(late.begin)), late.begin]
        assert launched[1] > low, "the window shows the launch"
    if wanted.reason != late_truth.LAUNCH:
        is_known = wanted.reason != late_truth.UNKNOWN
        reason = LATE_REASONS[wanted.reason] if is_known else "not selected"
        for begin, until in cut:
            yield (reason, wanted.ranges[0] if is_known else "", "", wanted.operation), until - begin
        return
    for begin, until in cut:
        tid, sent = launched
        left = until - begin
        for piece in rank.within(tid, begin, min(until, sent)) if sent > begin else ():
            left -= piece.end - piece.begin
            yield (LATE_REASONS[wanted.reason], piece.range, piece.call, ""), piece.end - piece.begin
        [then] = rank.within(tid, sent, sent)
        yield (LATE_REASONS[wanted.reason], then.range, then.call, ""), left


@lru_cache(maxsize=1)
def read_ranks(reports: tuple[Path, ...]) -> list[late_truth.Rank]:
    """Return the reports of all ranks; they keep what was read of them."""
    return [late_truth.Rank(Report(path)) for path in reports]


@pytest.mark.all_sets
@pytest.mark.parametrize(
    ("time", "chosen"),
    [
        ("100ms:270ms", (0, 1, 2, 3)),
        ("20ms:190ms", (1, 2)),
        *(
            pytest.param(*case, marks=pytest.mark.all_sets)
            for case in ((":", (0, 1, 2, 3)), (":", (2, 3)), (":", (0, 1)))
        ),
    ],
)
def test_costs_are_those_of_plain_loops(
    shared_reports: Path, unpacked: Unpacked, time: str, chosen: tuple[int, ...]
) -> None:
    """All ranks of this job are on one node; a kernel that is not chosen, or begins later, cannot be explained."""
    reports = locate(shared_reports, unpacked, "ex1a-fast")
    window = parse_window(time)
    selection = Selection(
        window=None if window == (None, None) else window, ranks=None if len(chosen) == 4 else frozenset(chosen)
    )
    found = summarize_reports(reports, selection)
    low, high = (found.start_utc_ns + t for t in found.windows_ns[0]) if found.windows_ns else (0, 1 << 62)
    ranks = read_ranks(reports)
    costs: Counter[tuple[object, ...]] = Counter()
    for late in list_late(find_truth(reports)):
        for what, ns in list_costs(ranks, late, low, high, frozenset(chosen)):
            costs[(late.rank, *what)] += ns
    shown = {(c.rank, c.reason, c.range, c.call, c.operation): c.ns for c in waits_in(found).costs}
    assert shown == {what: ns for what, ns in costs.items() if ns}
    assert len(shown) == len(waits_in(found).costs) >= 2
    check_sums(found)


@pytest.mark.parametrize("time", cases([":", "4.05s:4.1s", "4.1s:4.2s"], push=1))
def test_costs_of_calls_of_mpi_add_up(samples: Path, time: str) -> None:
    reports = sorted(samples.glob("mpi-4.rank*.sqlite"))
    window = parse_window(time)
    found = summarize_reports(reports, Selection(window=(None, None) if time == ":" else window))
    assert any(cost.reason == "host-bound late call" for cost in waits_in(found).costs)
    check_sums(found)


def test_who_delayed_a_culprit(samples: Path, tmp_path: Path) -> None:
    """Made up here: task 1 was delayed by task 3 in every other of its late calls, task 0 by task 1 in all."""
    reports = sorted(samples.glob("mpi-4.rank*.sqlite"))
    sums: Counter[tuple[str, str]] = Counter()
    numbers: dict[tuple[str, str], set[int]] = defaultdict(set)
    with open_job(reports, tmp_path, ReadOptions(selection=Selection(window=(None, None))), Progress()) as job:
        waits = find_waits(job)
        late = find_reasons(job, waits)
        task = job.whole.task_of_row[late.row]
        origin = np.where(task == 1, np.where(np.arange(task.size) % 2, 3, -1), np.where(task == 0, 1, -1))
        nccl = [load_communication(job, index, CountedEvents(job, index)) for index in range(len(job.reports))]
        found = compute_waits(job, waits, late._replace(origin_task=origin), nccl)
        names = [*(each.name for each in job.whole.model.tasks), ""]
        for i in np.flatnonzero(late.instance >= 0).tolist():
            index = int(late.instance[i])
            key = names[task[index]], names[origin[index]]
            sums[key] += int(waits.until[i] - waits.begin[i])
            numbers[key].add(index)
    assert found is not None
    for key, ns in sums.items():
        rows = [row for row in found.culprits if (row.task, row.origin_task) == key]
        assert (sum(row.ns for row in rows), sum(row.times for row in rows)) == (ns, len(numbers[key]))
        assert {row.origin_rank for row in rows} == {int(key[1].split()[1]) if key[1] else None}
    assert {("rank 1", ""), ("rank 1", "rank 3"), ("rank 0", "rank 1")} < set(sums)
    assert sum(row.ns for row in found.culprits) == sum(sums.values())


# ---- collectives and messages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("time", [":", pytest.param("300ms:320ms", marks=pytest.mark.all_sets)])
def test_collectives_and_messages_of_a_rank(
    shared_reports: Path, unpacked: Unpacked, tmp_path: Path, time: str
) -> None:
    """A pipeline of two stages, each with a communicator of its own; here they are on one node, with one clock."""
    reports = tuple(copy_to_one_node(locate(shared_reports, unpacked, "ex3a-pp2"), tmp_path))
    found = summarize_reports(reports, Selection(window=(None, None) if time == ":" else parse_window(time)))
    low, high = (found.start_utc_ns + t for t in found.windows_ns[0]) if found.windows_ns else (0, 1 << 62)
    truth = find_truth(reports)
    shown = {k.operation for kernels in truth for k in kernels if k.is_collective and clip(k.begin, k.end, low, high)}
    messages: Counter[int] = Counter()
    for kernels in truth:
        for kernel in kernels:
            if not kernel.is_collective:
                messages[kernel.last] += clip(kernel.begin, kernel.until, low, high)
    waits = waits_in(found)
    assert [rank.collectives for rank in waits.ranks] == [
        len(shown & {kernel.operation for kernel in kernels}) for kernels in truth
    ]
    assert [rank.caused_in_messages_ns for rank in waits.ranks] == [messages[rank] for rank in range(4)]
    assert all(0 < rank.last <= rank.collectives < waits.nccl_collectives for rank in waits.ranks)
    assert sum(rank.collectives for rank in waits.ranks) == 2 * waits.nccl_collectives == 2 * len(shown)
    assert any(messages.values())
    check_sums(found)


# ---- the longest wait ------------------------------------------------------------------------------------------------


def find_longest(late: list[Late], rank: int, low: int = 0, high: int = 1 << 62) -> tuple[int, int, int]:
    """Return (ns, begin, end) of the stretch in which others waited longest for a rank without a break."""
    pieces = sorted(
        (max(kernel.begin, low), min(kernel.until, high))
        for one in late
        if one.rank == rank
        for kernel in one.waiting
        if clip(kernel.begin, kernel.until, low, high)
    )
    stretches: list[tuple[int, int, int]] = []
    for begin, end in pieces:
        ns, first, last = stretches.pop() if stretches and begin <= stretches[-1][2] else (0, begin, begin)
        stretches.append((ns + end - begin, first, max(last, end)))
    return max(stretches)


@pytest.mark.parametrize(
    ("name", "time"),
    [("ex3a-pp1", ":"), ("ex1a-slow", "5s:9s"), pytest.param("ex1a-slow", ":", marks=pytest.mark.all_sets)],
)
def test_the_longest_wait(shared_reports: Path, unpacked: Unpacked, name: str, time: str) -> None:
    reports = locate(shared_reports, unpacked, name)
    whole = summed(*reports)
    found = whole if time == ":" else summarize_reports(reports, Selection(window=parse_window(time)))
    low, high = (found.start_utc_ns + t for t in found.windows_ns[0]) if found.windows_ns else (0, 1 << 62)
    late, start = list_late(find_truth(reports)), whole.start_utc_ns
    for rank in waits_in(found).ranks:
        if rank.longest_wait is None:
            assert rank.caused_wait_ns == 0
            continue
        assert rank.rank is not None
        ns, begin, end = find_longest(late, rank.rank, low, high)
        assert (rank.longest_wait.ns, rank.longest_wait.from_ns, rank.longest_wait.to_ns) == (
            *(ns, begin - start),
            end - start,
        )


@pytest.mark.all_sets
@pytest.mark.parametrize(
    "chosen",
    [Selection(window=(20 * MS, None)), Selection(nvtx_range="iteration*"), Selection(), Selection(skips_warmup=True)],
    ids=["later", "ranges", "nothing", "steps"],
)
def test_a_summary_of_the_longest_wait_alone(shared_reports: Path, unpacked: Unpacked, chosen: Selection) -> None:
    """The time of a wait can be pasted, whatever time was chosen when it was printed."""
    reports = locate(shared_reports, unpacked, "ex3a-pp1")
    [late] = (rank for rank in waits_in(summarize_reports(reports, chosen)).ranks if rank.rank == 2)
    assert late.longest_wait is not None
    pasted = parse_window(format_window(late.longest_wait.from_ns, late.longest_wait.to_ns))
    [alone] = (
        rank for rank in waits_in(summarize_reports(reports, replace(chosen, window=pasted))).ranks if rank.rank == 2
    )
    assert alone.longest_wait == late.longest_wait
    assert late.longest_wait.ns <= alone.caused_wait_ns < 1.02 * late.longest_wait.ns
