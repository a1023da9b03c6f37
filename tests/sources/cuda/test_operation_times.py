"""Operations with impossible times: planted ones are found, by loops; traces are those of the reports without them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.cuda.device_operations import (
    CLOCK_ERROR,
    SLOWEST_FIRST_LAUNCH,
    find_clock_errors,
    mark_overtaken,
)
from nsys2prv_ng.sources.shared.reasons import AFTER_CAPTURE, BEFORE_LAUNCH
from nsys2prv_ng.text.formatting import format_time
from tests.cli.program_runs import run
from tests.report_truth import Report
from tests.translated import KERNEL, NCCL_KERNEL, changed, translated_set

MILLISECOND = 10**6
SOURCES = "kernels,cuda_api"


# ---- clocks that are behind ------------------------------------------------------------------------------------------


def make_operations(delay, duration, gap=100_000):
    """Begin, end (true) and launch of operations that are launched every `gap` ns and wait for the one before."""
    launched = np.arange(1, len(delay) + 1, dtype=np.int64) * gap
    begin, end, free = np.zeros((2, len(delay)), np.int64)[0], np.zeros(len(delay), np.int64), 0
    for i, at in enumerate(launched.tolist()):
        begin[i] = max(at + delay[i], free)
        end[i] = free = begin[i] + duration
    return begin, end, launched


def find(begin, end, launched, device=0):
    count = np.zeros(begin.size, np.int64)
    return find_clock_errors(count + 5, count + device, begin, end, launched)


@pytest.mark.parametrize("duration", [1_000, 50_000, 101_000])  # idle, busy, always behind its launches
@pytest.mark.parametrize("behind", [0, 2_000, 150_000, 20 * MILLISECOND])
@pytest.mark.parametrize("count", [4, 500])
def test_a_clock_is_behind_by_what_launches_prove(duration, behind, count):
    delay = np.random.default_rng(0).integers(4_000, 30_000, count)
    begin, end, launched = make_operations(delay, duration)
    found = find(begin - behind, end - behind, launched)
    leads = [launch - (at - behind) for at, launch in zip(begin.tolist(), launched.tolist(), strict=True)]
    early = [lead for lead in leads if lead > 0]
    if not early or (duration > 100_000 and len(early) < 3):
        assert not found
    else:
        assert [(e.process, e.device, e.behind, e.early, e.launched) for e in found] == [
            (5, 0, max(early), len(early), count)
        ]


@pytest.mark.parametrize("lead", [10_000, 3 * MILLISECOND, 7_000 * MILLISECOND])
@pytest.mark.parametrize("corrupt", [1, 2, 20, 100])
def test_corrupt_records_are_no_clock(corrupt, lead):
    begin, end, launched = make_operations(np.full(1_000, 5_000), 1_000)
    which = np.random.default_rng(1).choice(1_000, corrupt, replace=False)
    begin[which] = launched[which] - lead
    assert not find(begin, end, launched)


def test_corrupt_records_do_not_move_a_clock_that_is_behind():
    begin, end, launched = make_operations(np.full(1_000, 5_000), 1_000)
    begin, end = begin - 150_000, end - 150_000
    begin[[10, 500]] -= np.array([3, 9]) * 1_000 * MILLISECOND
    assert [error.behind for error in find(begin, end, launched)] == [145_000]


@pytest.mark.parametrize("lead", [3 * MILLISECOND, 1_000 * MILLISECOND])
@pytest.mark.parametrize("corrupt", [3, 20, 200])
def test_corrupt_records_that_are_alike_do_not_move_a_clock(corrupt, lead):
    begin, end, launched = make_operations(np.full(1_000, 5_000), 1_000)
    begin, end = begin - 150_000, end - 150_000
    which = np.random.default_rng(1).choice(1_000, corrupt, replace=False)
    begin[which], end[which] = launched[which] - lead, launched[which] - lead + 1_000
    assert [(error.behind, error.open) for error in find(begin, end, launched)] == [(145_000, SLOWEST_FIRST_LAUNCH)]


@pytest.mark.parametrize("duration", [1_000, 90_000])
@pytest.mark.parametrize("drift", [100_000, 5 * MILLISECOND, 40 * MILLISECOND])
def test_the_bound_holds_for_a_clock_that_drifts(drift, duration):
    """After the correction, no operation is farther from its true time than what is said to be open."""
    delay = np.random.default_rng(0).integers(4_000, 30_000, 1_000)
    begin, end, launched = make_operations(delay, duration)
    behind = np.linspace(0, drift, 1_000).astype(np.int64)
    [error] = find(begin - behind, end - behind, launched)
    assert np.abs(error.behind - behind).max() <= error.open <= SLOWEST_FIRST_LAUNCH + 1.1 * drift


def test_operations_without_a_recorded_launch_prove_nothing():
    begin, end, launched = make_operations(np.full(100, 5_000), 1_000)
    launched[::2] = NULL
    assert not find(begin, end, launched)
    assert [error.launched for error in find(begin - 150_000, end - 150_000, launched)] == [50]


def test_operations_that_end_late_though_their_stream_went_on():
    random = np.random.default_rng(2)
    for _ in range(50):
        stream, begin = random.integers(0, 3, 30), random.integers(0, 100, 30)
        end = begin + random.integers(0, 60, 30)
        expected = [
            end[i] > 90 and any(stream[k] == stream[i] and begin[k] > begin[i] and end[k] <= 90 for k in range(30))
            for i in range(30)
        ]
        assert mark_overtaken(stream, begin, end, 90).tolist() == expected


# ---- real reports with corrupt records -------------------------------------------------------------------------------


def kernels(translated):
    found = translated.intervals(KERNEL, NCCL_KERNEL)
    return sorted(found[["row", "begin", "end", "name"]].itertuples(index=False, name=None))


def pick_kernel(report: Path, which: int) -> tuple[int, int, int]:
    query = f"SELECT rowid, start, end FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start LIMIT 1 OFFSET {which}"
    return Report(report).connection.execute(query).fetchone()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("end = end + 6900000000", AFTER_CAPTURE),
        ("start = start + 6900000000, end = end + 6900000000", AFTER_CAPTURE),
        ("end = (SELECT duration + 1000000 FROM ANALYSIS_DETAILS)", AFTER_CAPTURE),  # others of its stream have ended
        ("start = start - 3000000000", BEFORE_LAUNCH),
        ("start = start - 3000000000, end = end - 3000000000", BEFORE_LAUNCH),
    ],
)
def test_a_corrupt_kernel_is_as_if_it_were_not_there(samples, tmp_path, change, reason):
    sample = samples / "ddp-2x2.rank1.sqlite"
    rowid, *_ = pick_kernel(sample, 1_500)
    corrupt = f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET {change} WHERE rowid = {rowid}"
    without = changed(sample, tmp_path / "a.sqlite", [f"DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid = {rowid}"])
    got = translated_set([changed(sample, tmp_path / "b.sqlite", [corrupt])], tmp_path / "got", SOURCES)
    expected = translated_set([without], tmp_path / "expected", SOURCES)
    assert kernels(got) == kernels(expected)
    assert got.trace.duration == expected.trace.duration
    account = got.account("kernels")
    assert account.dropped == {reason: 1}
    assert account.read == account.written + 1
    assert account.read == Report(sample).value("SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL")


@pytest.mark.slow
def test_a_clock_that_is_behind_is_corrected(samples, tmp_path):
    """The kernels are where those of the sample are, but for what the fastest launch took."""
    sample = samples / "ddp-2x2.rank1.sqlite"
    moves = [
        f"UPDATE CUPTI_ACTIVITY_KIND_{table} SET start = start - 150000, end = end - 150000"
        for table in ("KERNEL", "MEMCPY", "MEMSET")
    ]
    fastest = Report(sample).value(
        "SELECT MIN(k.start - r.start) FROM"
        " (SELECT * FROM (SELECT start, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL"
        " UNION ALL SELECT start, correlationId FROM CUPTI_ACTIVITY_KIND_MEMCPY"
        " UNION ALL SELECT start, correlationId FROM CUPTI_ACTIVITY_KIND_MEMSET)) k"
        " JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId)"
    )
    behind = changed(sample, tmp_path / "r.sqlite", moves)
    got = translated_set([behind], tmp_path / "got", "kernels,memory_operations,cuda_api")
    expected = translated_set([sample], tmp_path / "expected", "kernels,memory_operations,cuda_api")
    assert 0 < fastest < 10_000
    assert kernels(got) == [(r, b - fastest, e - fastest, n) for r, b, e, n in kernels(expected)]
    assert got.account("kernels").dropped == {}


def test_three_corrupt_kernels_do_not_move_the_gpu(samples, tmp_path):
    """All operations of a GPU are 400 us early, and three kernels start 1 s before their launch."""
    sample, kernels = samples / "single-graph.sqlite", "CUPTI_ACTIVITY_KIND_KERNEL"
    tables = [kernels, *(f"CUPTI_ACTIVITY_KIND_{table}" for table in ("MEMCPY", "MEMSET", "GRAPH_TRACE"))]
    calls = "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId)"
    union = " UNION ALL ".join(f"SELECT start, correlationId FROM {table}" for table in tables)
    fastest = Report(sample).value(f"SELECT MIN(k.start - r.start) FROM ({union}) k {calls}")
    corrupt = (
        f"UPDATE {kernels} AS k SET start = r.start - 1000000000, end = r.start - 1000000000 + k.end - k.start"
        " FROM CUPTI_ACTIVITY_KIND_RUNTIME r WHERE r.correlationId = k.correlationId"
        f" AND k.rowid IN (SELECT k.rowid FROM {kernels} k {calls} ORDER BY k.start LIMIT 3 OFFSET 100)"
    )
    early = [f"UPDATE {table} SET start = start - 400000, end = end - 400000" for table in tables]
    report = changed(sample, tmp_path / "r.sqlite", [*early, corrupt])
    got = translated_set([report], tmp_path / "got", "kernels,cuda_api", derived=False)
    assert got.account("kernels").dropped == {BEFORE_LAUNCH: 3}
    done = run("summary", report)
    assert f"GPU 0 by {format_time(400_000 - fastest)} (" in done.stderr
    for text in (done.stdout, run("summary", sample).stdout):
        assert (
            next(line for line in text.splitlines() if line.startswith("BOTTLENECK"))
            .split()[1]
            .startswith("Host-bound")
        )


@pytest.mark.parametrize("sources", ["kernels", "kernels,cuda_api"])
@pytest.mark.parametrize("lead", [CLOCK_ERROR - 1, CLOCK_ERROR + 10**7])
def test_launches_prove_nothing_about_a_kernel_that_is_a_little_early(samples, tmp_path, lead, sources):
    """Whether the sources that are chosen read the launch calls or not."""
    sample = samples / "mpi-4.rank0.sqlite"
    rowid, *_ = pick_kernel(sample, 5)
    early = (
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL AS k SET start = (SELECT r.start FROM CUPTI_ACTIVITY_KIND_RUNTIME r"
        f" WHERE r.correlationId = k.correlationId) - {lead} WHERE rowid = {rowid}"
    )
    report = changed(sample, tmp_path / "r.sqlite", [early])
    got = translated_set([report], tmp_path / "got", sources, derived=False)
    assert got.account("kernels").dropped == ({} if lead < CLOCK_ERROR else {BEFORE_LAUNCH: 1})
