"""The notebook of the guides, run as it stands: its answers against plain SQL on the reports and plain loops."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import pytest

from tests.report_truth import Report
from tests.test_docs import DOCS, EXERCISES, NOTEBOOK

pytestmark = pytest.mark.slow

DDP = [Report(path) for path in sorted((DOCS.parent / "samples").glob("ddp-2x2.rank*.sqlite"))]
SHAPE = ["name", "grid_x", "grid_y", "grid_z", "block_x"]


@pytest.fixture(scope="module")
def ran() -> tuple[dict[str, Any], dict[str, Any]]:
    """The notebook with its results as they are now, and its variables."""
    notebook = NOTEBOOK.read_notebook()
    return notebook, NOTEBOOK.run_cells(notebook)


@pytest.fixture
def answers(ran: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    return ran[1]


# ---- as it is stored -------------------------------------------------------------------------------------------------


def test_results_are_those_stored(ran: tuple[dict[str, Any], dict[str, Any]]) -> None:
    stored = NOTEBOOK.read_notebook()
    texts = NOTEBOOK.list_texts(ran[0])
    assert len(texts) > 10
    assert texts == NOTEBOOK.list_texts(stored), "python docs/notebook.py writes it"
    assert NOTEBOOK.list_pictures(ran[0]).keys() == NOTEBOOK.list_pictures(stored).keys()


def test_the_page_is_the_notebook() -> None:
    stored = NOTEBOOK.read_notebook()
    assert NOTEBOOK.PAGE.read_text() == NOTEBOOK.write_page(stored), "python docs/notebook.py writes it"
    for name, png in NOTEBOOK.list_pictures(stored).items():
        assert (NOTEBOOK.PICTURES / f"{name}.png").read_bytes() == png


def test_nothing_of_the_machine_is_stored() -> None:
    texts = "".join(NOTEBOOK.list_texts(NOTEBOOK.read_notebook()))
    assert not re.search(r"/(tmp|home|root|work)\b|0x[0-9a-f]{6}|Traceback", texts)


# ---- 1. kernels by shape ---------------------------------------------------------------------------------------------


def sum_shapes() -> tuple[Counter[tuple[object, ...]], Counter[tuple[object, ...]]]:
    """Return the number of kernels and their time (ns) by name, grid and block."""
    count: Counter[tuple[object, ...]] = Counter()
    total: Counter[tuple[object, ...]] = Counter()
    for report in DDP:
        rows = report.connection.execute(
            """SELECT s.value, gridX, gridY, gridZ, blockX, COUNT(*), SUM(k."end" - k.start)
            FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
            WHERE s.value NOT LIKE 'nccl%' GROUP BY 1, 2, 3, 4, 5"""
        )
        for *shape, number, time in rows:
            count[tuple(shape)] += number
            total[tuple(shape)] += time
    return count, total


@pytest.mark.parametrize("name", ["by_shape", "sql_shapes"])
def test_kernels_by_shape(name: str, answers: dict[str, Any]) -> None:
    count, total = sum_shapes()
    found = answers[name].reset_index()
    keys = [tuple(row) for row in found[SHAPE].astype(object).to_numpy().tolist()]
    assert dict(zip(keys, found["count"].tolist(), strict=True)) == dict(count)
    assert dict(zip(keys, found["sum"].tolist(), strict=True)) == pytest.approx(
        {key: time / 1000 for key, time in total.items()}, abs=0.001
    )
    assert found["sum"].is_monotonic_decreasing


# ---- 2. late all-reduces ---------------------------------------------------------------------------------------------


def list_reduces(report: Report) -> Iterator[tuple[int, str, str, int]]:
    """Yield when each all-reduce of a rank starts (UTC), in order, with its pass, layer and number of the step."""
    ranges = report.nvtx[report.nvtx["style"] == "push/pop"]
    steps = sorted(ranges.loc[ranges["text"].str.startswith("iteration"), "begin"])
    rows = report.sql(
        """SELECT k.start, r.start AS launch, r.globalTid AS tid FROM CUPTI_ACTIVITY_KIND_KERNEL k
        JOIN StringIds s ON s.id = k.shortName JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
        ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24
        WHERE s.value LIKE 'ncclDevKernel_AllReduce%' ORDER BY k.start"""
    )
    for start, launch, tid in rows.itertuples(index=False):
        around = ranges[(ranges["tid"] == tid) & (ranges["begin"] <= launch) & (ranges["end"] >= launch)]["text"]
        (layer,) = [text for text in around if text.startswith("layer")]
        (direction,) = [text.split()[0] for text in around if text.startswith(("forward", "backward"))]
        yield start + report.utc, direction, layer, sum(step <= launch for step in steps) - 1


def find_lateness() -> dict[tuple[str, str, int], float]:
    """Return how late all-reduces of a pass, layer and rank start on average, after the first step (us)."""
    reports = [Report(path) for path in sorted(EXERCISES.find_exercises().glob("ex3a-pp2.rank*.sqlite"))]
    late = defaultdict(list)
    for stage in ((0, 1), (2, 3)):
        for both in zip(*(list_reduces(reports[rank]) for rank in stage), strict=True):
            assert len({reduce[1:] for reduce in both}) == 1  # the same all-reduce
            for rank, (start, direction, layer, step) in zip(stage, both, strict=True):
                if step > 0:
                    late[direction, layer, rank].append((start - min(start for start, *_ in both)) / 1000)
    return {key: fmean(values) for key, values in late.items()}


def test_late_all_reduces(answers: dict[str, Any]) -> None:
    truth = find_lateness()
    assert len(truth) == 2 * 6 * 4 and max(truth, key=truth.__getitem__) == ("forward", "layer0", 2)
    assert dict(answers["late"].stack().items()) == pytest.approx(truth)
    sql = answers["sql_late"]
    keys = zip(sql["pass"], sql["layer"], sql["rank"], strict=True)
    assert dict(zip(keys, sql["late_us"], strict=True)) == pytest.approx(truth)


def test_messages_between_the_stages_make_them_late(answers: dict[str, Any]) -> None:
    """Rank 0 is late by what its messages take longer than those of rank 1."""
    durations = answers["messages"].groupby(["rank", "peer"])["ms"].median()
    longer_ms = durations[0, 2] - durations[1, 3]
    assert find_lateness()["forward", "layer0", 0] / 1000 == pytest.approx(longer_ms, rel=0.25)


# ---- 3. overlap ------------------------------------------------------------------------------------------------------


def read_stream(report: Report, stream: int) -> list[tuple[int, int]]:
    query = 'SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE streamId = ? ORDER BY start'
    return report.connection.execute(query, (stream,)).fetchall()


def test_overlap(answers: dict[str, Any]) -> None:
    table, sql = answers["overlap"], answers["sql_overlap"]
    for rank, report in enumerate(DDP):
        compute, nccl = read_stream(report, 7), read_stream(report, 17)
        both = sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in compute for b in nccl) / 1e6
        assert both > 10
        assert table.loc[rank, (True, True)] == pytest.approx(both)
        assert sql["ms"][rank] == pytest.approx(both)
        assert table.loc[rank, (True, False)] == pytest.approx(sum(b - a for a, b in compute) / 1e6 - both)
        assert table.loc[rank, (False, True)] == pytest.approx(sum(b - a for a, b in nccl) / 1e6 - both)


# ---- 4. gaps before the optimizer ------------------------------------------------------------------------------------


def list_gaps(report: Report) -> Iterator[tuple[int, bool]]:
    """Yield the gaps (ns) before kernels of the optimizer, and whether it is the first kernel of its range."""
    launches = {row.correlation: (row.begin, row.tid) for row in report.calls.itertuples()}
    ranges = [*report.nvtx[report.nvtx["text"] == "optimizer"].itertuples()]
    busy_until, seen = None, set()
    for operation in report.operations.sort_values("begin").itertuples():
        begin, tid = launches.get(operation.correlation, (-1, -1))
        within = [each.Index for each in ranges if each.tid == tid and each.begin <= begin <= each.end]
        if operation.table == "KERNEL" and within:
            is_first = within[0] not in seen
            seen.add(within[0])
            if busy_until is not None and operation.begin > busy_until:
                yield operation.begin - busy_until, is_first
        busy_until = max(busy_until or 0, operation.end)


def test_gaps_before_the_optimizer(answers: dict[str, Any]) -> None:
    gaps = [gap for report in DDP for gap in list_gaps(report)]
    before = answers["before"]
    lengths = before["gap_end_ns"] - before["gap_start_ns"]
    assert Counter(zip(lengths.tolist(), before["is_first"].tolist(), strict=True)) == Counter(gaps)
    counts = Counter(gap // 500 / 2 for gap, _ in gaps)
    assert answers["histogram"].to_numpy().sum() == len(gaps) == 960
    shown = answers["histogram"].sum(axis=1)
    assert {interval.left: count for interval, count in shown.items() if count} == counts


def test_views_are_of_the_exported_files(answers: dict[str, Any]) -> None:
    """What SQL answers comes from Parquet, not from the DataFrames of the same names."""
    views = answers["duckdb"].sql("SELECT view_name, sql FROM duckdb_views() WHERE NOT internal").fetchall()
    assert {name for name, sql in views if ".parquet" in sql} >= {"kernels", "launched", "collectives"}
