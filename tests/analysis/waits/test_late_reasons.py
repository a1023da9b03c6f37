"""Why ranks were late: every late kernel and call looked at by itself, and planted causes."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from nsys2prv_ng.analysis.waits.late_reasons import LateReasons, find_reasons
from nsys2prv_ng.analysis.waits.waits import Waits, find_waits
from nsys2prv_ng.job.open_job import Job, open_job
from nsys2prv_ng.paraver.event_types import LATE_DEVICE
from nsys2prv_ng.reading.open_reports import ReadOptions, Selection
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.registry import select_sources
from tests.analysis.path.path_reports import Capture, write_captures
from tests.analysis.waits import late_truth as truth
from tests.conftest import SAMPLES
from tests.report_sets import find_set, sets
from tests.report_truth import Report
from tests.tiers import cases

MS = 10**6


@contextmanager
def reasons_of(
    reports: Sequence[Path], folder: Path, options: ReadOptions | None = None
) -> Iterator[tuple[Job, Waits, LateReasons]]:
    with open_job(reports, folder, options or ReadOptions(), Progress()) as job:
        waits = find_waits(job)
        yield job, waits, find_reasons(job, waits)


def name(names: Sequence[str], index: int) -> str:
    return names[index] if index >= 0 else ""


# ---- real reports ----------------------------------------------------------------------------------------------------

SETS = [
    "samples/mpi-4",
    "exercises/tpgraph-1x4",
    *(f"exercises/{name}" for name in ("ex1a-slow", "ex1a-fast", "ex3a-pp1")),
]


@pytest.mark.parametrize("reports", sets(SETS))
def test_each_reason_is_what_a_look_at_it_shows(reports: str, tmp_path: Path) -> None:
    """All ranks of these sets are on one node, with clocks that nothing corrects."""
    paths = find_set(reports)
    ranks = [truth.Rank(Report(path)) for path in paths]
    with reasons_of(paths, tmp_path) as (job, waits, reasons):
        utc, task, rank_of_task = job.alignment.utc_base, job.whole.task_of_row, job.whole.ranks
        waiting = defaultdict(list)
        margins: dict[tuple[int, int, bool], int] = {}
        for i in np.flatnonzero(waits.culprit >= 0).tolist():
            key = int(waits.culprit[i]), int(waits.culprit_begin[i]), bool(waits.is_mpi[i])
            waiting[key].append((int(waits.begin[i]) + utc, int(waits.until[i]) + utc))
            margins[key] = max(margins.get(key, 0), int(waits.margin[i]))
            index = reasons.instance[i]
            assert (reasons.row[index], reasons.begin[index]) == key[:2]
        assert (reasons.instance[waits.culprit < 0] == -1).all()
        assert len(waiting) == reasons.row.size > 10
        names = reasons.names
        costs: Counter[tuple[object, ...]] = Counter()
        for i, (row, begin, is_mpi) in enumerate(sorted(waiting)):
            of_task = int(task[row])
            rank = rank_of_task[of_task]
            assert rank is not None
            wanted = truth.explain(ranks[rank], begin + utc, is_mpi=is_mpi, waits=waiting[row, begin, is_mpi])
            shown = [name(names, column[i]) for column in (reasons.range, reasons.call, reasons.operation)]
            assert (reasons.row[i], reasons.begin[i]) == (row, begin)
            assert (reasons.lateness[i], reasons.reason[i]) == (wanted.lateness, wanted.reason), (row, begin)
            assert reasons.margin[i] == margins[row, begin, is_mpi]
            assert shown[0] in wanted.ranges and shown[1] in wanted.calls and shown[2] == wanted.operation
            for (in_range, in_call), ns in wanted.costs.items():
                costs[of_task, wanted.reason, in_range, in_call, wanted.operation] += ns
    columns = ["task", "reason", "range", "call", "operation"]
    assert list(reasons.costs) == [*columns, "ns"]
    shown_costs = {
        tuple(row[:5]): row[5] for row in zip(*(column.tolist() for column in reasons.costs.values()), strict=True)
    }
    assert shown_costs == {why: ns for why, ns in costs.items() if ns}
    assert reasons.costs["ns"].sum() == waits.wait[waits.culprit >= 0].sum()


@pytest.mark.slow
def test_slow_loading_of_data_is_named(tmp_path: Path) -> None:
    """The others wait 7.17 s for rank 0 (plain loops over the reports), most of it while it loads data by itself."""
    with reasons_of(find_set("exercises/ex1a-slow"), tmp_path) as (job, waits, reasons):
        waited = np.bincount(reasons.instance[reasons.instance >= 0], waits.wait[reasons.instance >= 0])
        is_first = job.whole.task_of_row[reasons.row] == 0
        assert is_first.sum() == 155
        assert waited[is_first].sum() == pytest.approx(7167.1 * MS, rel=1e-3)
        totals: Counter[tuple[int, str, str]] = Counter()
        for i in np.flatnonzero(is_first).tolist():
            shown = [name(reasons.names, column[i]) for column in (reasons.range, reasons.call)]
            totals[int(reasons.reason[i]), shown[0], shown[1]] += int(waited[i])
        assert totals.most_common(1)[0][0] == (truth.LAUNCH, "data loading", "")
        assert reasons.costs["range"][0] == "data loading"


# ---- planted causes --------------------------------------------------------------------------------------------------


class Kernel(NamedTuple):
    """A kernel of NCCL, or what is planted before it, on the clock of a report (ns)."""

    begin: int
    end: int
    launched: int
    tid: int


def list_nccl(report: Path) -> list[Kernel]:
    """Return the kernels of NCCL that calls launched, by begin."""
    with closing(sqlite3.connect(report)) as connection:
        rows = connection.execute(
            """SELECT k.start, k."end", r.start, r.globalTid FROM CUPTI_ACTIVITY_KIND_KERNEL k
            JOIN StringIds s ON s.id = k.shortName JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
            ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24
            WHERE s.value LIKE 'nccl%' AND COALESCE(k.graphNodeId, 0) = 0 ORDER BY k.start"""
        )
        return [Kernel(*row) for row in rows]


def shift(report: Path, since: int, delay: int, *, device_since: int | None = None) -> None:
    """Move all that begins or ends after a time of a report; on its device after another time, if that is given.

    The capture ends later, too.
    """
    with closing(sqlite3.connect(report)) as connection, connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in names.fetchall():
            columns = {column[1] for column in connection.execute(f"PRAGMA table_info({table})")}
            if {"start", "globalTid"} <= columns or {"start", "globalPid"} <= columns:
                low = since if device_since is None or "globalTid" in columns else device_since
                for column in sorted({"start", "end"} & columns):
                    connection.execute(
                        f'UPDATE {table} SET "{column}" = "{column}" + ? WHERE "{column}" >= ?', (delay, low)
                    )
        connection.execute("UPDATE ANALYSIS_DETAILS SET duration = duration + ?", (delay,))


def copy_reports(reports: Sequence[Path], folder: Path) -> list[Path]:
    copies = [Path(shutil.copyfile(path, folder / path.name)) for path in reports]
    for path in copies:
        path.chmod(0o644)
    return copies


PLANTED = [("exercises/tpgraph-1x4", 10), ("exercises/ex3a-pp1", 400), ("exercises/ex1a-fast", 100)]
RANK = 2


@pytest.mark.slow
@pytest.mark.parametrize(("reports", "number"), cases(PLANTED, push=1), ids=[name for name, _ in PLANTED])
def test_a_delay_of_a_host_is_named(reports: str, number: int, tmp_path: Path) -> None:
    """One rank's thread is in a range of its own before it launches; the others' kernels last until it comes."""
    delay = 1000 * MS
    paths = copy_reports(find_set(reports), tmp_path)
    late = list_nccl(paths[RANK])[number]
    others = [(path, list_nccl(path)[number]) for rank, path in enumerate(paths) if rank != RANK]
    since = late.launched
    # What the rank had launched before runs when it did: other ranks' kernels of the same operations end with it.
    shift(paths[RANK], since, delay, device_since=late.begin)
    for path, kernel in others:
        shift(path, kernel.begin + 1, delay)
    with closing(sqlite3.connect(paths[RANK])) as connection, connection:
        connection.execute(
            """INSERT INTO NVTX_EVENTS (start, "end", eventType, text, globalTid, domainId)
            VALUES (?, ?, 59, 'planted', ?, 0)""",
            (since, since + delay, late.tid),
        )
    utc = Report(paths[RANK]).utc
    begins = [kernel.begin + Report(path).utc for path, kernel in others]
    planted = sum(since + delay + utc - max(since + utc, begin) for begin in begins)
    with reasons_of(paths, tmp_path) as (job, waits, reasons):
        [index] = np.flatnonzero(reasons.begin + job.alignment.utc_base == late.begin + delay + utc)
        assert job.whole.ranks[job.whole.task_of_row[reasons.row[index]]] == RANK
        assert reasons.reason[index] == truth.LAUNCH
        assert (name(reasons.names, reasons.range[index]), name(reasons.names, reasons.call[index])) == ("planted", "")
        assert reasons.lateness[index] == late.begin + delay + utc - sorted(begins)[1]
        assert reasons.margin[index] == late.begin + delay + utc - max(begins)
        cost = reasons.costs["ns"][reasons.costs["range"] == "planted"]
        assert cost.sum() == planted > 2.7 * delay  # all but what it had launched ahead
        assert [name(reasons.names, each) for each in reasons.range.tolist()].count("planted") == 1
        waited = waits.wait[reasons.instance == index].sum()
        assert waited == sum(late.begin + delay + utc - begin for begin in begins)


@pytest.mark.slow
@pytest.mark.parametrize("own_stream", [True, False], ids=["own stream", "other stream"])
@pytest.mark.parametrize(("reports", "number"), cases(PLANTED, push=1), ids=[name for name, _ in PLANTED])
def test_a_longer_operation_of_a_rank_is_named(reports: str, number: int, *, own_stream: bool, tmp_path: Path) -> None:
    """The kernel of one rank before that of NCCL lasts longer, and all that comes after it is later.

    Its host had launched both in time, or not much later than the others' kernels began.
    """
    delay, pause = 1000 * MS, 2_000
    paths = copy_reports(find_set(reports), tmp_path)
    late = list_nccl(paths[RANK])[number]
    others = [(path, list_nccl(path)[number]) for rank, path in enumerate(paths) if rank != RANK]
    shift(paths[RANK], late.begin, delay)
    for path, kernel in others:
        shift(path, kernel.begin + 1, delay)
    with closing(sqlite3.connect(paths[RANK])) as connection, connection:
        row, begin, longer = connection.execute(
            """SELECT k.rowid, k.start, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
            WHERE k."end" <= ? ORDER BY k."end" DESC LIMIT 1""",
            (late.begin,),
        ).fetchone()
        [stream] = connection.execute(
            "SELECT streamId FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE start = ?", (late.begin + delay,)
        ).fetchone()
        connection.execute(
            'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = ?, streamId = ? WHERE rowid = ?',
            (late.begin + delay - pause, stream if own_stream else 99, row),
        )
    utc = Report(paths[RANK]).utc
    waited = sum(late.begin + delay + utc - kernel.begin - Report(path).utc for path, kernel in others)
    assert waited == pytest.approx(3 * delay, rel=0.01)
    with reasons_of(paths, tmp_path) as (job, waits, reasons):
        [index] = np.flatnonzero(reasons.begin + job.alignment.utc_base == late.begin + delay + utc)
        task = job.whole.task_of_row[reasons.row[index]]
        assert job.whole.ranks[task] == RANK
        assert reasons.reason[index] == (truth.DEVICE if own_stream else truth.DEPENDENCY)
        assert name(reasons.names, reasons.operation[index]) == longer
        assert reasons.call[index] == -1
        rank = truth.Rank(Report(paths[RANK]))
        [(tid, sent)] = [launch for (_, start), launch in rank.launches.items() if start == begin + utc]
        [piece] = rank.within(tid, sent, sent)
        assert name(reasons.names, reasons.range[index]) == piece.range
        assert waits.wait[reasons.instance == index].sum() == waited
        first = [reasons.costs[column][0] for column in ("task", "reason", "operation")]
        assert first == [task, reasons.reason[index], longer]


def test_a_kernel_behind_a_host_function(tmp_path: Path) -> None:
    """It was launched in time: its stream waited for the function, as for any operation before it."""
    captures = []
    for rank, begin in enumerate((10_000, 81_000)):
        capture = Capture(rank, ranks=2)
        if rank:
            capture.host_function(capture.call("cudaLaunchHostFunc", 100, 200), 1_000, 80_000, "load")
        capture.nccl_call(350, 550)
        nccl = capture.call("cuLaunchKernelEx", 400, 500)
        capture.kernel(nccl, begin, 100_000, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
        captures.append(capture)
    with reasons_of([write_captures(captures, tmp_path / "a.sqlite", 2)], tmp_path) as (_, waits, reasons):
        assert waits.wait.tolist() == [71_000, 0]
        assert reasons.reason.tolist() == [LATE_DEVICE]
        assert reasons.costs["operation"].tolist() == ["load"]


# ---- what is not known -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["launch_lines", "cuda_api"])
def test_without_launches_and_calls_nothing_is_known(missing: str, tmp_path: Path) -> None:
    sources = [source.name for source in select_sources(None, derived=False) if source.name != missing]
    options = ReadOptions(sources=select_sources(sources))
    with reasons_of(find_set("exercises/tpgraph-1x4"), tmp_path, options) as (_, waits, reasons):
        assert reasons.row.size > 10
        assert set(reasons.reason.tolist()) == {truth.UNKNOWN}
        assert reasons.names == []
        assert reasons.costs["ns"].sum() == waits.wait[waits.culprit >= 0].sum()


def test_nobody_is_late_in_one_report(tmp_path: Path) -> None:
    with reasons_of([SAMPLES / "single-graph.sqlite"], tmp_path) as (_, waits, reasons):
        assert reasons.row.size == 0
        assert reasons.instance.size == waits.row.size
        assert reasons.costs["ns"].size == 0


@pytest.mark.slow
def test_what_was_launched_before_the_chosen_time_is_no_late_launch(tmp_path: Path) -> None:
    """A window begins just before a kernel that others wait for: when its launch call began is not shown."""
    paths = find_set("exercises/tpgraph-1x4")
    with reasons_of(paths, tmp_path) as (job, waits, whole):
        rank = truth.Rank(Report(paths[0]))
        utc, number = job.alignment.utc_base, 10
        begin = int(whole.begin[number])
        [sent] = [launch[1] for (_, start), launch in rank.launches.items() if start == begin + utc]
        assert whole.reason[number] == truth.LAUNCH
        low, start = sent - utc + 1, job.scope.first
    selection = Selection(window=(low - start, low - start + MS))
    with reasons_of(paths, tmp_path, ReadOptions(selection=selection)) as (job, waits, reasons):
        assert job.scope.windows == [(low, low + MS)]
        assert reasons.begin.tolist() == whole.begin.tolist()  # operations are matched over all time
        shown = reasons.reason != truth.UNKNOWN
        assert reasons.reason[number] == truth.UNKNOWN
        assert ((reasons.begin[shown] >= low) & (reasons.begin[shown] <= low + MS)).all() and shown.any()
        assert reasons.reason[shown].tolist() == whole.reason[shown].tolist()
        assert reasons.costs["ns"].sum() == waits.wait[waits.culprit >= 0].sum()
