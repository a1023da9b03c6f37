"""Comparisons of real reports: exercises with known answers, changes of known size, and one run with itself."""

from __future__ import annotations

import sqlite3
import statistics
from bisect import bisect_right
from contextlib import closing
from dataclasses import replace
from itertools import accumulate, combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import nsys2prv_ng
from nsys2prv_ng.comparison.compare import compare_sides
from nsys2prv_ng.comparison.gate import judge
from nsys2prv_ng.comparison.model import Pair, Side
from nsys2prv_ng.comparison.result import format_comparison
from nsys2prv_ng.summary.difference.statistics import LEVEL, NOISE, compare_ranks, find_median
from nsys2prv_ng.summary.job import JobSummary
from tests.analysis.waits.test_planted_waits import copy_to_one_node, delay, read_kernels, read_utc
from tests.comparison.made import GPUS, make_summary
from tests.conftest import Unpacked
from tests.report_truth import Report
from tests.spans import sum_common, sum_lengths, unite
from tests.steps.step_truth import StepTruth, list_ranges
from tests.tiers import cases

MS = 10**6
_ON_TWO_NODES = 20_000
"""By how much (ns) the ends of steps may move as the clocks of two nodes are aligned, which are one clock in truth."""
_STEPS = """SELECT e.start, e."end" FROM NVTX_EVENTS e LEFT JOIN StringIds s ON s.id = e.textId
    WHERE coalesce(e.text, s.value) GLOB 'step [0-9]*' AND e.eventType = 59 ORDER BY e.start"""


def read_steps(report: Path) -> list[tuple[int, int]]:
    """Begin and end (ns, clock of the report) of the ranges of all steps, by plain SQL."""
    with closing(sqlite3.connect(report)) as database:
        return database.execute(_STEPS).fetchall()


def compare(*sides: list[Path]) -> Pair:
    return nsys2prv_ng.compare(sides, labels=["A", "B"], jobs=1).pairs[0]


# ---- exercises -------------------------------------------------------------------------------------------------------


def of_exercise(folder: Path, unpacked: Unpacked, name: str) -> list[Path]:
    return [unpacked(folder / f"exercises/{name}.rank{rank}.sqlite") for rank in range(4)]


def find_steps(reports: list[Path], name: str = "step") -> StepTruth:
    """The steps of a job, by plain loops over its reports."""
    own = [Report(path) for path in reports]
    return StepTruth(own, list_ranges(own, name))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("a", "b", "kind", "change", "causes"),
    cases(
        [
            ("ex1a-slow", "ex1a-fast", "faster", -0.986, ["host-bound", "wait time"]),
            ("ex3a-pp1", "ex3a-pp2", "inconclusive", 0.034, ["data transfer", "host-bound"]),
            ("ex1b-fp32", "ex1a-fast", "inconclusive", -0.066, ["compute", "wait time"]),
            ("ex1a-fast", "ex1b-fp32", "inconclusive", 0.071, ["compute", "wait time"]),
            ("ex2b-manual", "ex2b-overlap", "inconclusive", -0.166, ["data transfer", "wait time"]),
            ("ex2a-zero2", "ex2a-zero3", "inconclusive", 0.362, ["data transfer", "compute"]),
            ("ex1a-fast", "ex1c-accum", "inconclusive", 2.267, ["wait time", "host-bound"]),
        ],
        push=1,
    ),
)
def test_exercises(
    shared_reports: Path, unpacked: Unpacked, a: str, b: str, kind: str, change: float, causes: list[str]
) -> None:
    """The steps, their medians and p are those of loops over the reports, and the p of all ways to divide the steps."""
    sides = [of_exercise(shared_reports, unpacked, name) for name in (a, b)]
    pair = compare(*sides)
    truths = [find_steps(side, "iteration" if "ex3a" in a else "step") for side in sides]
    lengths = [truth.lengths[truth.warmup :] for truth in truths]
    before, after = map(statistics.median, lengths)
    apart = _ON_TWO_NODES if a == "ex2a-zero2" else 0.5
    for found, true in zip((pair.a.step_ns, pair.b.step_ns), lengths, strict=True):
        assert found == pytest.approx(true, abs=apart, rel=0)
    assert (pair.verdict.a_ns, pair.verdict.b_ns) == pytest.approx((before, after), abs=apart, rel=0)
    assert pair.verdict.kind == kind
    assert pair.verdict.change == pytest.approx(after / before - 1, abs=1e-4) == pytest.approx(change, abs=1e-3)
    if min(map(len, lengths)) >= 4:
        assert pair.verdict.p == pytest.approx(find_share(*lengths))
    assert (judge(pair, 0.05).code == 3) is (kind == "slower")
    assert sum_compute(pair)[:2] == causes
    for side, ns in ((pair.a, sum(row.a_ns for row in pair.rows)), (pair.b, sum(row.b_ns for row in pair.rows))):
        assert ns == side.step_median_ns
    kernels = {row.name: row for table in pair.tables if table.key == "kernels" for row in table.rows}
    if a == "ex1a-slow":
        assert pair.cause == "data loading"
    if a == "ex1b-fp32":
        gemms = kernels["other GEMM kernels"]
        assert gemms.a > 5 * gemms.b and gemms.only_a and gemms.only_b
    if a == "ex3a-pp1":
        assert kernels["ncclDevKernel_SendRecv"].a is None


def find_share(a: list[int], b: list[int]) -> float:
    """Return the share of all ways to divide the steps in which ranks are as far apart."""
    ordered = sorted(a + b)
    assert len(set(ordered)) == len(ordered)
    away = abs(2 * sum(map(ordered.index, a)) - len(a) * (len(ordered) - 1))
    ways = [abs(2 * sum(way) - len(a) * (len(ordered) - 1)) for way in combinations(range(len(ordered)), len(a))]
    return sum(other >= away for other in ways) / len(ways)


@pytest.mark.slow
def test_overlapped_communication(shared_reports: Path, unpacked: Unpacked) -> None:
    """A rank of each run: what its kernels do in the chosen steps, by plain SQL and unions of intervals."""
    reports = [unpacked(shared_reports / f"exercises/ex2b-{name}.rank1.sqlite") for name in ("manual", "overlap")]
    pair = compare(*([report] for report in reports))
    rows = {row.name: row for table in pair.tables if table.key == "activity" for row in table.rows}
    for report, side, letter in zip(reports, (pair.a, pair.b), "ab", strict=True):
        truth = find_steps([report])
        compute, nccl = split_kernels(report, *(limit - read_utc(report) for limit in truth.window))
        hidden = sum_common(unite(compute), unite(nccl))
        exposed = sum_lengths(unite(nccl)) - hidden
        count = len(truth.counted)
        assert count == len(side.step_ns)
        found = [getattr(rows[f"{name} communication"], letter) for name in ("overlapped", "exposed")]
        assert found == pytest.approx([hidden / count, exposed / count], abs=1)
    assert rows["overlapped communication"].b > 20 * rows["overlapped communication"].a


def split_kernels(report: Path, low: int, high: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return kernels but NCCL's, and NCCL's: begin and end (ns) within a window."""
    kernels = {"%": set(read_kernels(report, "%")), "nccl": set(read_kernels(report, "ncclDevKernel%"))}
    kernels["%"] -= kernels["nccl"]
    compute, nccl = (
        pd.DataFrame(
            [(max(begin, low), min(end, high)) for begin, end, _ in own if begin < high and end > low],
            columns=["begin", "end"],
        )
        for own in kernels.values()
    )
    return compute, nccl


def sum_compute(pair: Pair) -> list[str]:
    """Names of the rows, those first that differ most, with all classes of compute as one."""
    sums: dict[str, int] = {}
    for row in pair.rows[:-1]:
        name = row.name.partition(":")[0]
        sums[name] = sums.get(name, 0) + row.difference_ns
    return sorted(sums, key=lambda name: -abs(sums[name]))


# ---- changes of known size -------------------------------------------------------------------------------------------


class Stretched:
    """Time in which kernels take longer by a part of their time: `at(t)` is the new time of t."""

    def __init__(self, kernels: list[tuple[int, int, int]], part: float) -> None:
        self.begin: list[int] = []
        self.end: list[int] = []
        for begin, end, _ in sorted(kernels):
            if self.end and begin <= self.end[-1]:
                self.end[-1] = max(self.end[-1], end)
            else:
                self.begin.append(begin)
                self.end.append(end)
        self.until = [0, *accumulate(end - begin for begin, end in zip(self.begin, self.end, strict=True))]
        self.part = part

    def covered(self, time: int) -> int:
        i = bisect_right(self.begin, time)
        return self.until[i] - max(0, self.end[i - 1] - time) if i else 0

    def at(self, time: int | None) -> int | None:
        return None if time is None else time + int(self.part * self.covered(time))


def stretch(report: Path, copy: Path, times: Stretched) -> Path:
    copy.write_bytes(report.read_bytes())
    with closing(sqlite3.connect(copy)) as database, database:
        database.create_function("stretched", 1, times.at, deterministic=True)
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for column in [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]:
                if column in ("start", "end", "timestamp") and table.isupper():
                    database.execute(f'UPDATE "{table}" SET "{column}" = stretched("{column}")')
    return copy


@pytest.mark.slow
def test_kernels_that_take_ten_percent_longer(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    """Kernels of one rank but NCCL's are longer, and all that follows is later: a step by a tenth of their time."""
    report = unpacked(shared_reports / "exercises/ex1b-fp32.rank0.sqlite")
    times = Stretched(sorted(set(read_kernels(report, "%")) - set(read_kernels(report, "ncclDevKernel%"))), 0.1)
    slower = stretch(report, tmp_path / "slower.sqlite", times)
    pair = compare([report], [slower])
    before, after = find_steps([report]), find_steps([slower])
    used = len(pair.a.step_ns)
    assert pair.a.step_ns == before.lengths[-used:] and pair.b.step_ns == after.lengths[-used:]
    utc = read_utc(report)
    growth = [
        times.covered(stop - utc) - times.covered(start - utc)
        for start, stop in zip(before.start[-used:], before.stop[-used:], strict=True)
    ]
    rows = {row.name: row for row in pair.rows[:-1]}
    compute = sum(row.difference_ns for name, row in rows.items() if name.startswith("compute"))
    assert compute == pytest.approx(0.1 * np.mean(growth), rel=0.01)
    assert pair.difference_ns == find_median(pair.b.step_ns) - find_median(pair.a.step_ns)
    others = {name: abs(row.difference_ns) for name, row in rows.items() if not name.startswith("compute")}
    assert max(others.values()) < 0.02 * compute
    assert sum_compute(pair)[0] == "compute"


@pytest.mark.all_sets
@pytest.mark.slow
def test_two_milliseconds_of_waiting_in_each_step(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    """Rank 0 comes 2 ms late to one collective of each step: of four GPUs one has nothing to do and three wait."""
    before = of_exercise(shared_reports, unpacked, "ex1a-slow")
    after = copy_to_one_node(before, tmp_path)
    for report in after:
        report.chmod(0o644)
    kernels = [read_kernels(report, "ncclDevKernel_%") for report in before]
    later = [read_utc(report) - read_utc(before[0]) for report in before]
    begins = [[begin + shift for begin, _, _ in own] for own, shift in zip(kernels, later, strict=True)]
    chosen = choose_collectives(read_steps(before[0]), kernels[0], begins, read_kernels(before[0], "%"))
    assert len(chosen) == len(read_steps(before[0]))
    for number, launch in reversed(chosen):  # what comes before stays where it is
        for rank in range(4):
            delay(after[rank], launch if rank == 0 else kernels[rank][number][1], 2 * MS)
    pair = compare(before, after)
    rows = {row.name: row.difference_ns for row in pair.rows}
    assert pair.difference_ns == 2 * MS
    assert rows["wait time"] == pytest.approx(1.5 * MS, rel=0.02)
    assert rows["host-bound"] == pytest.approx(0.5 * MS, rel=0.02)
    assert sum_compute(pair)[:2] == ["wait time", "host-bound"]


def choose_collectives(
    steps: list[tuple[int, int]],
    kernels: list[tuple[int, int, int]],
    begins: list[list[int]],
    every: list[tuple[int, int, int]],
) -> list[tuple[int, int]]:
    """Return one collective of each step, and its launch on rank 0, whose GPU is idle then while the others wait."""
    chosen = []
    for begin, end in steps:
        for number, (_, until, launch) in enumerate(kernels):
            is_idle = not any(first <= launch < last for first, last, _ in every)
            if begin < launch and until < end and is_idle and all(own[number] < launch for own in begins[1:]):
                chosen.append((number, launch))
                break
    return chosen


# ---- no change -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_does_not_differ_from_itself(samples: Path) -> None:
    summary = nsys2prv_ng.summarize(sorted(samples.glob("ddp-2x2.rank*.sqlite")), skip_warmup=True, jobs=1)
    pair = compare_sides([Side("A", summary), Side("B", summary)]).pairs[0]
    assert pair.verdict.kind == "no difference"
    assert [row for row in pair.rows if row.difference_ns or row.differs] == []
    assert [row for table in pair.tables for row in table.rows if row.differs or row.a != row.b] == []
    text = format_comparison(compare_sides([Side("A", summary), Side("B", summary)]))
    assert text.startswith("NO DIFFERENCE `A` and `B` do not differ significantly: ")


@pytest.mark.slow
def test_reports_without_steps_are_compared_as_a_whole(shared_reports: Path) -> None:
    reports = [shared_reports / f"cpu/2024.2.3-nccl_mimic_rank{rank}.sqlite" for rank in range(2)]
    summary = nsys2prv_ng.summarize(reports, jobs=1)
    pair = compare(reports, reports)
    assert (pair.verdict.kind, pair.verdict.measure) == ("inconclusive", "capture")
    assert summary.efficiency is not None
    assert pair.verdict.a_ns == summary.efficiency.length_ns
    assert pair.a.length_ns == summary.duration_ns
    with pytest.raises(nsys2prv_ng.UsageError, match="skip_warmup"):
        nsys2prv_ng.compare([reports, reports], skip_warmup=True, jobs=1)


@pytest.mark.all_sets
@pytest.mark.slow
def test_random_halves_of_one_run_rarely_differ(shared_reports: Path, unpacked: Unpacked) -> None:
    """The steps of a real run, split by chance two thousand times: a difference is found in less than one of twenty."""
    reports = [unpacked(shared_reports / f"bench/ddplong-2x2.rank{rank}.sqlite.xz") for rank in range(4)]
    truth = find_steps(reports)
    steps = np.array(truth.lengths[truth.warmup :])
    assert steps.size >= 57
    random = np.random.default_rng(11)
    found = faster = 0
    for _ in range(2000):
        mixed = random.permutation(steps)
        a, b = mixed[: steps.size // 2].tolist(), mixed[steps.size // 2 :].tolist()
        p = compare_ranks(a, b)
        found += p < LEVEL
        faster += p < LEVEL and abs(find_median(b) - find_median(a)) >= NOISE * find_median(a)
    assert 0 < found <= 0.05 * 2000 * 1.1  # the level itself, within what 2000 tries can show
    assert faster < 0.05 * 2000


@pytest.mark.parametrize(("less", "kind"), [(0.0, "no difference"), (0.1, "faster")])
def test_halves_of_which_one_is_faster(less: float, kind: str) -> None:
    random = np.random.default_rng(5)
    steps = random.normal(100 * MS, 2 * MS, 40).astype(int)
    halves: list[JobSummary] = [
        make_summary([{"compute_ns": int(ns * (1 - part)) * GPUS} for ns in half])
        for half, part in ((steps[:20], 0.0), (steps[20:], less))
    ]
    assert compare_sides([Side("A", halves[0]), Side("B", halves[1])]).pairs[0].verdict.kind == kind


# ---- without steps ---------------------------------------------------------------------------------------------------


def test_without_steps_the_work_of_gpus_is_compared(samples: Path) -> None:
    """From the first operation to the last by plain SQL, also if that is most of the capture."""
    report = samples / "single-graph.sqlite"
    with closing(sqlite3.connect(report)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master") if "CUPTI_ACTIVITY" in name]
        tables = [name for name in tables if name.endswith(("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))]
        spans = [database.execute(f'SELECT min(start), max("end") FROM {name}').fetchone() for name in tables]
    true = max(end for _, end in spans if end) - min(begin for begin, _ in spans if begin)
    summary = nsys2prv_ng.summarize(report, jobs=1)
    assert summary.efficiency is not None and summary.efficiency.in_work is not None
    whole = replace(summary, efficiency=replace(summary.efficiency, in_work=None))
    for side in (summary, whole):
        pair = compare_sides([Side("A", summary), Side("B", side)]).pairs[0]
        assert (pair.verdict.a_ns, pair.verdict.b_ns, pair.verdict.p) == (true, true, None)
        assert pair.rows[-1].a_ns == pair.rows[-1].b_ns == 0 and not any(row.difference_ns for row in pair.rows)
    assert "in which GPUs work instead of" in format_comparison(compare_sides([Side("A", summary), Side("B", whole)]))
