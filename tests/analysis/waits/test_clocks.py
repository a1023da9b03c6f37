"""Clocks that contradict the durations of NCCL kernels, compared with plain loops; clock errors that were planted."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from statistics import median_high
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng import summarize
from nsys2prv_ng.analysis.waits.clocks import FEWEST, Entries, check_clocks, measure_differences, measure_errors
from nsys2prv_ng.clock.alignment_table import Alignment, NodeClock
from nsys2prv_ng.job.open_job import Job, open_job
from nsys2prv_ng.operations.matching import match_collectives
from nsys2prv_ng.operations.parts import SYNCHRONISING, TO_ROOT
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.translate import translate
from tests.analysis.waits.test_planted_waits import delay, read_kernels, read_utc
from tests.analysis.waits.test_waits import locate
from tests.clock.injected import Error, put_into
from tests.conftest import Unpacked
from tests.examples import examples
from tests.operations.made import MS, table
from tests.report_sets import find_set, sets
from tests.tiers import cases

SETS = ("samples/ddp-2x2", "exercises/ex2b-overlap", "exercises/ex2b-manual", "exercises/ex3a-pp2", "bench/ddplong-2x2")


# ---- plain loops -----------------------------------------------------------------------------------------------------

part = st.tuples(st.integers(0, 3), st.integers(0, 1000), st.integers(0, 1000))
operation = st.tuples(st.lists(part, min_size=1, max_size=6), st.integers(0, 4).map(bool))


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(150))
@given(st.one_of(st.lists(operation, max_size=12), st.lists(operation, min_size=40, max_size=150)))
def test_differences_by_their_definition(operations: list[tuple[list[tuple[int, int, int]], bool]]) -> None:
    """`part`: node, begin, duration."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for parts, is_chosen in operations:
        parts.sort(key=lambda row: row[0])
        shortest, latest = min(row[2] for row in parts), max(row[1] for row in parts)
        least: dict[int, int] = {}
        last: dict[int, int] = {}
        for node, begin, duration in parts:
            last[node] = max(last.get(node, begin), begin)
            difference = (duration - shortest) - (latest - begin)
            least[node] = min(least.get(node, difference), difference)
        first = min(least)
        for node in least:
            if is_chosen and node != first:
                found.setdefault((node, first), []).append((last[node], least[node] - least[first]))
    rows = [row for parts, _ in operations for row in parts]
    node, begin, duration = np.array(rows, np.int64).reshape(-1, 3).T
    got = measure_differences(
        np.cumsum([0, *(len(parts) for parts, _ in operations)]),
        np.array([is_chosen for _, is_chosen in operations], np.bool_),
        node,
        begin,
        begin + duration,
    )
    expected = []
    for (one, other), timed in sorted(found.items()):
        timed.sort(key=lambda row: row[0])
        n = len(timed)
        count = min(max(n // FEWEST, 1), 8)
        best: list[tuple[float, int, float]] = []
        for k in range(count):
            values = sorted(value for i, (_, value) in enumerate(timed) if i * count // n == k)
            size = len(values)
            error = 1.57 * (values[3 * size // 4] - values[size // 4]) / size**0.5
            best.append((abs(median_high(values)) - error, median_high(values), error))
        expected.append((one, other, n, *max(best, key=lambda row: row[0])[1:]))
    assert list(zip(*(column.tolist() for column in got), strict=True)) == expected


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([("a", "", None), ("b", "", 3e6)], "b is up to 2.00 ms ahead of a; {}: align by collectives"),
        (
            [("a", "utc", 0.0), ("b", "offset", 1e6)],
            "b is up to 2.00 ms ahead of a; {}: trust no shorter wait between them",
        ),
        ([("a", "offset", 0.0), ("b", "offset", 3e6)], ""),
    ],
    ids=["UTC", "beyond the bound", "within the bound"],
)
def test_fitted_clocks_may_be_wrong_by_their_bounds(nodes: list[tuple[str, str, float | None]], expected: str) -> None:
    warnings = check_clocks(make_job(nodes, ahead=2 * MS))
    text = expected.format("waits between them may be wrong by as much")
    assert warnings == ([f"the clocks of nodes contradict the durations of NCCL kernels: {text}"] if expected else [])


def make_job(
    nodes: list[tuple[str, str, float | None]],
    ahead: int,
    count: int = FEWEST,
    kind: int = SYNCHRONISING,
    name: str = "w",
) -> Job:
    """Return a job of two ranks on two nodes; the clock of the second is ahead (ns)."""
    random = np.random.default_rng(count)
    reports = []
    for rank, wrong in enumerate((0, ahead)):
        rows = []
        for i in range(count):
            begin, end = i * 50 * MS + int(random.integers(0, 9 * MS)), i * 50 * MS + 10 * MS
            rows.append((name, "all", 8, 0, begin + wrong, end + wrong, kind, rank == 0))
        reports.append(([table(rows)], rank, 0))
    way = "auto" if nodes[0][1] else "utc"
    clocks = [NodeClock(name, model=model, reference="a", bound=bound) for name, model, bound in nodes]
    read = [SimpleNamespace(node=node, clock=lambda time: time) for node in range(2)]
    whole = SimpleNamespace(rows=[np.array([0]), np.array([1])])
    job = SimpleNamespace(
        finds_waits=True,
        alignment=Alignment(way, 0, clocks),
        operations=match_collectives(reports),
        reports=read,
        whole=whole,
        offsets=[0, 0],
    )
    return cast(Job, job)


def test_few_operations_and_those_of_other_kinds_show_nothing() -> None:
    plain: list[tuple[str, str, float | None]] = [("a", "", None), ("b", "", None)]
    assert check_clocks(make_job(plain, 2 * MS, FEWEST))
    assert check_clocks(make_job(plain, 2 * MS, FEWEST - 1)) == []
    assert check_clocks(make_job(plain, 2 * MS, FEWEST, TO_ROOT)) == []
    assert check_clocks(make_job(plain, 2 * MS, FEWEST, name="mpi w")) == []


# ---- real reports of one physical clock ------------------------------------------------------------------------------


@pytest.mark.parametrize("reports", sets(SETS))
def test_right_clocks_agree_with_durations(reports: str, tmp_path: Path) -> None:
    for align in ("auto", "utc"):
        with open_job(find_set(reports), tmp_path, ReadOptions(align=align), Progress()) as job:
            assert len(job.alignment.nodes) == 2
            assert check_clocks(job) == []


@pytest.mark.all_sets
@pytest.mark.slow
@pytest.mark.parametrize("ahead", cases([-200_000, 5 * MS], push=1))
def test_a_wrong_clock_is_named(ahead: int, tmp_path: Path) -> None:
    """One warning of a translation, of its summary, and of a summary without a trace; none once clocks are aligned."""
    reports = find_set("samples/ddp-2x2")
    copies = put_into(reports, [Error(), Error(), Error(ahead), Error(ahead)], tmp_path / "wrong")
    stats = tmp_path / "stats.json"
    plan = TranslationPlan(align="utc", stats=stats, summary=True)
    result = translate(copies, tmp_path / "out.prv", plan)
    [warning] = result.warnings
    names = ("gpunode02", "gpunode01") if ahead > 0 else ("gpunode01", "gpunode02")
    shown = re.fullmatch(r".*: (\S+) is up to ([0-9.]+) (ms|us) ahead of (\S+); .*: align by collectives", warning)
    assert shown is not None and (shown[1], shown[4]) == names
    assert float(shown[2]) * {"ms": MS, "us": 1000}[shown[3]] == pytest.approx(abs(ahead), abs=25_000)
    written = json.loads(stats.read_text())
    assert written["warnings"] == written["summary"]["warnings"] == [warning]
    assert summarize(copies, align="utc").warnings == [warning]
    assert summarize(copies, align="auto").warnings == []


@pytest.mark.slow
@pytest.mark.parametrize("wrong", cases([0, 2, 1, 3], push=2))
def test_the_wrong_one_of_four_nodes_is_named(wrong: int, tmp_path: Path) -> None:
    """Each report as a node: of those on the list, only pairs with the wrong one are named."""
    errors = [Error(5 * MS if rank == wrong else 0, 0, host) for rank, host in enumerate("abcd")]
    copies = put_into(find_set("samples/ddp-2x2"), errors, tmp_path / "wrong")
    with open_job(copies, tmp_path, ReadOptions(align="utc"), Progress()) as job:
        [warning] = check_clocks(job)
    shown = warning.partition(": ")[2].partition(";")[0].split(", ")
    assert all(pair.startswith(f"{'abcd'[wrong]} is up to 5.0") for pair in shown)


@pytest.mark.slow
def test_a_clock_that_jumps_is_named(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    """A jump of 1 ms before the last fifth of a run, which takes longer to move data: causality still holds."""
    sources = locate(shared_reports, unpacked, "ex2b-overlap")
    reports = [Path(shutil.copy(source, tmp_path)) for source in sources]
    begins = [begin for begin, _, _ in read_kernels(sources[2], "ncclDevKernel_%")]
    for source, report in zip(sources[2:], reports[2:], strict=True):
        delay(report, begins[len(begins) * 80 // 100] - 1 + read_utc(sources[2]) - read_utc(source), MS)
    with open_job(reports, tmp_path, ReadOptions(), Progress()) as job:
        assert job.alignment.after.broken == 0
        [warning] = check_clocks(job)
    assert ": gpunode02 is up to 1.0" in warning and warning.endswith(": trust no shorter wait between them")


@pytest.mark.slow
def test_where_no_wait_is_shown_nothing_is_checked(tmp_path: Path) -> None:
    wrong = Error(5 * MS)
    copies = put_into(find_set("samples/ddp-2x2"), [Error(), Error(), wrong, wrong], tmp_path / "wrong")
    for options in (ReadOptions(align="none"), ReadOptions(align="utc", find_waits=False)):
        with open_job(copies, tmp_path, options, Progress()) as job:
            assert check_clocks(job) == []


clock_part = st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 30), st.booleans(), st.booleans())
bound = st.sampled_from([0.0, 2.0, 10.0, np.inf])


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(400))
@given(st.lists(st.lists(clock_part, min_size=1, max_size=5), max_size=6), st.tuples(bound, bound, bound))
def test_errors_by_their_definition(
    operations: list[list[tuple[int, int, int, bool, bool]]], bounds: tuple[float, float, float]
) -> None:
    """`clock_part`: node, begin, duration, whether others wait for it, whether it waits."""
    expected = [0.0] * 3
    for parts in operations:
        entering = [row for row in parts if row[3]]
        leaving = [row for row in parts if row[4]]
        if not entering or not leaving:
            continue
        late = max(entering, key=lambda row: row[1])
        early = min(leaving, key=lambda row: row[1] + row[2])
        violation = late[1] - (early[1] + early[2])
        if late[0] != early[0] and violation > bounds[late[0]] + bounds[early[0]]:
            left = min(row[1] + row[2] for row in parts if row[0] == late[0])
            for node in (late[0], early[0]):
                expected[node] = max(expected[node], violation, left - (early[1] + early[2]))
    columns = [list(column) for column in zip(*(row for parts in operations for row in parts), strict=True)] or [[]] * 5
    node, begin, duration = (np.array(column, np.int64) for column in columns[:3])
    enters, leaves = (np.array(column, np.bool_) for column in columns[3:])
    first = np.cumsum([0, *(len(parts) for parts in operations)])
    got = measure_errors(first, Entries(node, begin, begin + duration, enters, leaves), np.array(bounds))
    assert got.tolist() == expected
