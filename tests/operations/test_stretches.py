"""Sequences of two ranks of which operations were lost, compared with what is known of them."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.operations.lag import Lag, Sequence, find_lag
from nsys2prv_ng.operations.stretches import find_agreeing, find_lags
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.runtime.progress import Progress
from tests.conftest import Unpacked
from tests.examples import examples
from tests.operations.made import MS, program, seen
from tests.report_sets import sets

PIECE = 16


def list_pairs(one: Sequence, other: Sequence) -> list[tuple[int, int]]:
    """Return the indices of operations that are matched, in both sequences."""
    return [
        (lag.first + i, lag.first + i - lag.lag)
        for lag in find_lags(one, other)
        for i in find_agreeing(one, other, lag).tolist()
    ]


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(150))
@given(
    n=st.integers(320, 640),
    period=st.integers(1, 8),
    of_other=st.booleans(),
    losses=st.lists(st.tuples(st.floats(0.15, 0.8), st.integers(1, 40)), min_size=1, max_size=4),
    offset=st.integers(-500 * MS, 500 * MS),
    drift=st.floats(-20e-6, 20e-6),
    seed=st.integers(0, 10**6),
)
def test_no_other_operations_are_matched_than_those_that_are_one(
    *, n: int, period: int, of_other: bool, losses: list[tuple[float, int]], offset: int, drift: float, seed: int
) -> None:
    """`losses` of one rank: where, and how many in a row. Few operations near them are not matched."""
    whole = program(n // period, period, seed)
    n = whole.end.size
    kept = np.ones((2, n), np.bool_)
    for where, count in losses:
        kept[int(of_other), int(where * n) : int(where * n) + min(count, n // 10)] = False
    known = [np.flatnonzero(mask) for mask in kept]
    ranks = seen(whole, 0, n, 0, 0.0, seed + 1), seen(whole, 0, n, offset, drift, seed + 2)
    one, other = (Sequence._make([column[at] for column in rank]) for rank, at in zip(ranks, known, strict=True))
    pairs = list_pairs(one, other)
    assert all(known[0][i] == known[1][k] for i, k in pairs)
    assert len({i for i, _ in pairs}) == len({k for _, k in pairs}) == len(pairs)
    # Pieces with a loss have no lag, and stretches between losses may be too short for two pieces.
    missed = int((kept[0] & kept[1]).sum()) - len(pairs)
    assert missed <= 3 * PIECE * (len(losses) + 1)


@settings(deadline=None, max_examples=examples(80))
@given(
    where=st.lists(st.sampled_from([1, 3, 5, 7, 9]), min_size=1, max_size=3, unique=True),
    period=st.integers(1, 8),
    seed=st.integers(0, 10**6),
)
def test_a_lost_operation_costs_itself_alone(where: list[int], period: int, seed: int) -> None:
    """Losses that are far from each other and from the ends, one by one in either rank."""
    whole = program(480 // period, period, seed)
    n = whole.end.size
    random = np.random.default_rng(seed)
    kept = np.ones((2, n), np.bool_)
    for tenth in where:
        kept[int(random.integers(0, 2)), tenth * n // 10 + int(random.integers(0, 5))] = False
    known = [np.flatnonzero(mask) for mask in kept]
    ranks = seen(whole, 0, n, 0, 0.0, seed + 1), seen(whole, 0, n, 3 * MS, 5e-6, seed + 2)
    one, other = (Sequence._make([column[at] for column in rank]) for rank, at in zip(ranks, known, strict=True))
    pairs = list_pairs(one, other)
    assert [known[0][i] for i, _ in pairs] == [known[1][k] for _, k in pairs]
    assert {int(known[0][i]) for i, _ in pairs} == set(np.flatnonzero(kept[0] & kept[1]).tolist())


@settings(deadline=None, max_examples=examples(50))
@given(st.integers(20, 60), st.integers(1, 4), st.integers(0, 15), st.integers(0, 15), st.integers(0, 10**6))
def test_where_nothing_was_lost_there_is_one_lag(steps: int, period: int, low: int, high: int, seed: int) -> None:
    whole = program(steps, period, seed)
    n = whole.end.size
    one = seen(whole, min(low, n // 5), n, 0, 0.0, seed + 1)
    other = seen(whole, 0, n - min(high, n // 5), 5 * MS, 1e-5, seed + 2)
    found = find_lag(one, other)
    assert found is not None and find_lags(one, other) == [found]


def test_short_sequences_and_unlike_ones() -> None:
    whole = program(10, 3, 1)
    assert find_lags(whole, whole) == [Lag(0, 0, 30)]
    assert find_lags(whole, whole._replace(size=whole.size + 1)) == []
    assert find_lags(whole, whole._replace(end=whole.end + 10**10)) == []
    one = Sequence._make([column[:1] for column in whole])
    assert find_lags(one, one) == [Lag(0, 0, 1)]


# ---- real reports ----------------------------------------------------------------------------------------------------

LOST = {
    "exercises/ex1a-slow": [(0, 30)],
    "exercises/ex2b-manual": [(1, 20), (2, 50), (2, 80)],
    "exercises/ex2b-overlap": [(2, 50)],
    "exercises/ex3a-pp1": [(2, 33), (2, 66)],
    "exercises/ex3a-pp2": [(0, 30), (3, 60)],
}


@pytest.mark.parametrize("reports", sets(LOST))
def test_a_lost_kernel_of_a_real_report_costs_one_operation(
    reports: str, shared_reports: Path, unpacked: Unpacked, tmp_path: Path
) -> None:
    """Kernels of all-reduces are deleted from reports: of which rank, and after how many percent."""
    sources = [unpacked(shared_reports / f"{reports}.rank{rank}.sqlite") for rank in range(4)]
    copies = [Path(shutil.copy(source, tmp_path)) for source in sources]
    for rank, percent in LOST[reports]:
        delete_kernel(copies[rank], percent)
    before, after = find_operations(sources, tmp_path), find_operations(copies, tmp_path)
    lost = set().union(*before) - set().union(*after)
    assert len(lost) <= 2 * len(LOST[reports])  # the deleted ones, and those of which nothing else is left
    assert after == {left for operation in before if len(left := operation - lost) > 1}


def delete_kernel(report: Path, percent: int) -> None:
    with closing(sqlite3.connect(report)) as database, database:
        rows = database.execute(
            """SELECT k.rowid FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
            WHERE s.value LIKE 'ncclDevKernel_AllReduce%' ORDER BY k.start"""
        ).fetchall()
        database.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid = ?", rows[len(rows) * percent // 100])


def find_operations(reports: list[Path], folder: Path) -> set[frozenset[tuple[int, int]]]:
    """Return the parts of each operation: report and begin."""
    with open_job(reports, folder, ReadOptions(), Progress()) as job:
        operations, table = job.operations, job.operations.table
        report = {path.name: number for number, path in enumerate(reports)}
        number = [report[records.path.name] for records in job.reports]
        parts = [
            (number[r], begin)
            for r, begin in zip(
                table.report[operations.part].tolist(), table.begin[operations.part].tolist(), strict=True
            )
        ]
        limits = operations.first.tolist()
    return {frozenset(parts[low:high]) for low, high in pairwise(limits)}
