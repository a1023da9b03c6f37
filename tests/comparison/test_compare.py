"""Verdicts: what steps can show and what they cannot."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from nsys2prv_ng.comparison.compare import compare_sides
from nsys2prv_ng.comparison.gate import judge
from nsys2prv_ng.comparison.model import Comparability, Pair, Side
from nsys2prv_ng.comparison.result import Comparison, format_comparison
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.kernels.numbers import KernelNumbers
from nsys2prv_ng.summary.memory.numbers import MemoryOperationNumbers
from nsys2prv_ng.summary.ranges.numbers import RangeOfTask, RepeatedRange
from tests.comparison.made import GPUS, MS, make_summary
from tests.comparison.made_runs import make_facts


def steps_of(*milliseconds: float) -> JobSummary:
    return make_summary([{"compute_ns": int(ms * MS) * GPUS} for ms in milliseconds])


def pair_of(a: JobSummary, b: JobSummary) -> Pair:
    return compare_sides([Side("before", a), Side("after", b)]).pairs[0]


@pytest.mark.parametrize(
    ("a", "b", "kind", "p"),
    [
        ([100, 101, 102, 103], [90, 91, 92, 93], "faster", 2 / 70),
        ([90, 91, 92, 93], [100, 101, 102, 103], "slower", 2 / 70),
        ([100, 100.1, 100.2, 100.3], [101, 101.1, 101.2, 101.3], "below noise", 2 / 70),
        ([100, 110, 120, 130], [90, 105, 115, 125], "no difference", 0.68571),
        ([100, 101, 102], [50, 51, 52], "inconclusive", None),
        ([100, 101, 102, 103, 104], [50, 51, 52], "inconclusive", None),
    ],
)
def test_verdict(a: list[float], b: list[float], kind: str, p: float | None) -> None:
    verdict = pair_of(steps_of(*a), steps_of(*b)).verdict
    assert verdict.kind == kind
    assert verdict.measure == "step"
    assert verdict.p == (None if p is None else pytest.approx(p, abs=1e-4))


def test_a_run_does_not_differ_from_itself() -> None:
    for count in (1, 4, 40):
        pair = pair_of(*[steps_of(*(100 + i % 7 for i in range(count)))] * 2)
        assert pair.verdict.kind == ("inconclusive" if count == 1 else "no difference")
        assert pair.difference_ns == 0 and not any(row.differs for row in pair.rows)
        assert not any(row.differs for table in pair.tables for row in table.rows)


def test_without_steps_the_captures_are_compared() -> None:
    whole = replace(make_summary([]), windows_ns=[], steps=None)
    assert whole.efficiency is not None
    a = replace(whole, efficiency=replace(steps_of(100).efficiency, steps=[], in_steps=None))  # type: ignore[type-var]
    b = replace(whole, efficiency=replace(steps_of(150).efficiency, steps=[], in_steps=None))  # type: ignore[type-var]
    pair = pair_of(a, b)
    assert (pair.verdict.kind, pair.verdict.measure, pair.difference_ns) == ("inconclusive", "capture", 50 * MS)
    assert sum(row.difference_ns for row in pair.rows) == 50 * MS
    assert pair.name_notes(str) == ["no steps were found in before and after"]
    assert pair_of(steps_of(1, 2, 3, 4), b).verdict.measure == "capture"


def test_later_runs_are_compared_with_the_first() -> None:
    sides = [Side(name, steps_of(*(ms + i for i in range(4)))) for name, ms in (("a", 100), ("b", 90), ("c", 80))]
    comparison = compare_sides(sides)
    assert [(pair.a.label, pair.b.label, pair.difference_ns) for pair in comparison.pairs] == [
        ("a", "b", -10 * MS),
        ("a", "c", -20 * MS),
    ]
    document = json.loads(json.dumps(comparison.to_dict()))
    assert document["pairs"][0]["verdict"] == document["verdict"]
    assert [pair["b"]["label"] for pair in document["pairs"]] == ["b", "c"]


# ---- tables ----------------------------------------------------------------------------------------------------------


def kernel(name: str, kind: str, count: int, total: int) -> KernelNumbers:
    return KernelNumbers(name=name, kernel_class=kind, count=count, total_ns=total, min_ns=1, max_ns=1)


def test_what_a_third_run_lacks_prevents_no_table_of_the_first_two() -> None:
    summary = replace(steps_of(100, 101, 102, 103), kernels=[kernel("gemm", "gemm", 10, 10**6)])
    same, untraced = (
        Side(label, replace(summary, facts=make_facts(sources=sources)))
        for label, sources in (("b", {"kernels": 1}), ("c", {"nvtx": 1}))
    )
    one, other = compare_sides([same._replace(label="a"), same, untraced]).pairs
    assert "kernels" in {table.key for table in one.tables} and not any("traced" in note for note in one.notes)
    assert "kernels" not in {table.key for table in other.tables} and any("traced" in note for note in other.notes)
    [of_two] = compare_sides([same._replace(label="a"), untraced]).pairs
    assert [table.key for table in of_two.tables] == [table.key for table in other.tables]


def rows_of(pair: Pair, key: str) -> dict[str, Any]:
    return {row.name: row for table in pair.tables if table.key == key for row in table.rows}


def test_totals_are_for_each_step_and_gpu() -> None:
    """Two and four steps on one GPU (none is listed): 20 ms in 10 kernels are 10 ms in 5 a step."""
    a = replace(steps_of(100, 100), kernels=[kernel("gemm", "GEMM", 10, 20 * MS)])
    b = replace(steps_of(*[100] * 4), kernels=[kernel("gemm", "GEMM", 40, 80 * MS)])
    row = rows_of(pair_of(a, b), "kernels")["gemm"]
    assert (row.a, row.b, row.count_a, row.count_b, row.differs) == (10 * MS, 20 * MS, 5, 10, True)


def test_steps_that_take_turns_have_a_note() -> None:
    """The medians of the same program are 18 and 145 ms, as its capture began with a step of either kind."""
    a, b = (steps_of(*[*one, *([18, 145] * 5)][:9]) for one in ((), (145,)))
    assert a.steps is not None
    pair = pair_of(replace(a, steps=replace(a.steps, turns_ns=(18 * MS, 145 * MS))), b)
    assert (pair.verdict.a_ns, pair.verdict.b_ns, pair.verdict.kind) == (18 * MS, 145 * MS, "inconclusive")
    [note] = [note for note in pair.notes if "alternate" in note]
    assert note.startswith("the steps of {a} alternate between 18.0 ms and 145 ms")


def test_totals_of_summaries_that_are_not_restricted_to_steps() -> None:
    steps = [{"compute_ns": 100 * MS * GPUS}] * 4
    chosen, whole = make_summary(steps), make_summary(steps, chosen=False)
    whole = replace(whole, kernels=[kernel("gemm", "GEMM", 10, 20 * MS)])
    pair = pair_of(whole, whole)
    assert rows_of(pair, "kernels")["gemm"].a == 20 * MS
    assert [table.title for table in pair.tables if table.key == "kernels"] == ["Kernels, in the time read, per GPU"]
    assert pair.notes == ["all tables but the first cover all the time of both summaries, not only their steps"]
    mixed = pair_of(chosen, whole)
    assert not rows_of(mixed, "kernels") and rows_of(mixed, "efficiencies")
    assert mixed.notes[0].startswith("no tables of totals, because {b} is not restricted")
    assert pair_of(whole, chosen).notes[0].startswith("no tables of totals, because {a} is not restricted")


def add_transfer(summary: JobSummary, transfer: float) -> JobSummary:
    """Return a summary whose steps have the rates of a replay."""
    efficiency = summary.efficiency
    assert efficiency is not None and efficiency.in_steps is not None
    trees = efficiency.in_steps.nccl_as_communication
    assert trees.device is not None
    device = replace(trees.device, pop_communication=transfer, serialisation=1.0, transfer=transfer)
    in_steps = replace(efficiency.in_steps, nccl_as_communication=replace(trees, device=device))
    return replace(summary, efficiency=replace(efficiency, in_steps=in_steps))


def test_rates_of_a_replay_are_compared_if_both_sides_have_them() -> None:
    plain = steps_of(100)
    known = pair_of(add_transfer(plain, 0.5), add_transfer(plain, 0.75))
    name = "GPUs, NCCL as communication: transfer"
    row = rows_of(known, "efficiencies")[name]
    assert (row.a, row.b, row.differs) == (0.5, 0.75, True)
    assert rows_of(known, "efficiencies")["GPUs, NCCL as communication: POP communication"].b == 0.75
    for pair in (pair_of(add_transfer(plain, 0.5), plain), pair_of(plain, add_transfer(plain, 0.5))):
        assert rows_of(pair, "efficiencies") == rows_of(pair_of(plain, plain), "efficiencies")


@pytest.mark.parametrize(
    ("a", "b", "differs"),
    [
        (20 * MS, 20.3 * MS, False),  # 1.5 %
        (20 * MS, 21 * MS, True),  # 5 % and one percent of the step
        (MS, 1.4 * MS, False),  # 0.4 percent of the step
        (None, 10, True),
        (10, None, True),
    ],
)
def test_what_is_more_than_noise(a: float | None, b: float | None, differs: bool) -> None:
    sides = [
        replace(
            steps_of(100),
            memory_operations=[MemoryOperationNumbers(operation="HtoD", count=1, bytes=5, total_ns=int(ns), rated_ns=1)]
            if ns
            else [],
        )
        for ns in (a, b)
    ]
    row = rows_of(pair_of(sides[0], sides[1]), "copies")["HtoD"]
    assert row.differs is differs
    assert (row.a, row.b) == (a, b)


def test_kernels_of_a_class_are_one_row() -> None:
    a = replace(steps_of(100), kernels=[kernel("sgemm", "GEMM FP32", 2, 9 * MS), kernel("sgemv", "GEMM FP32", 2, MS)])
    b = replace(steps_of(100), kernels=[kernel("nvjet", "GEMM BF16", 1, 4 * MS)])
    row = rows_of(pair_of(a, b), "kernels")["other GEMM kernels"]
    assert (row.a, row.b, row.only_a, row.only_b) == (10 * MS, 4 * MS, ("sgemm", "sgemv"), ("nvjet",))


def test_ranges_have_means_and_noise_by_their_share_of_the_step() -> None:
    def with_range(ns: int) -> JobSummary:
        tasks = [
            RangeOfTask(rank=rank, task=f"rank {rank}", count=8, total_ns=8 * ns, min_ns=ns, max_ns=ns)
            for rank in range(4)
        ]
        return replace(steps_of(*[100] * 4), ranges=[RepeatedRange(domain="", name="forward", depth=1, tasks=tasks)])

    row = rows_of(pair_of(with_range(10 * MS), with_range(12 * MS)), "ranges")["forward"]
    assert (row.a, row.b, row.count_a, row.count_b, row.differs) == (10 * MS, 12 * MS, 8, 8, True)
    row = rows_of(pair_of(with_range(MS), with_range(MS + MS // 5)), "ranges")["forward"]
    assert not row.differs  # 0.2 ms twice in a step of 100 ms


# ---- text ------------------------------------------------------------------------------------------------------------


def test_text() -> None:
    steps = [{"compute_ns": 40 * MS, "host_ns": 20 * MS, "queued_ns": 1000 * i} for i in range(6)]
    late = [step | {"host_ns": 60 * MS} for step in steps]
    a = make_summary(late, ranges={"data\nloading": 360 * MS})
    comparison = compare_sides([Side("slow", a), Side("fast", make_summary(steps, ranges={"data\nloading": 120 * MS}))])
    answer, table, last = format_comparison(comparison).split("\n\n")
    assert " ".join(answer.split()).startswith(
        "FASTER `fast` is faster than `slow`: 15.0 ms per median `step` instead of 25.0 ms (-10.0 ms, -40.0%,"
        " p = 0.002) PARTS host-bound -10.0 ms (mainly `data loading`)"
        " RUN `slow`: 0 GPUs, 4 ranks, 6 steps `step`, median 25.0 ms"
    )
    assert last == "Tables: --details   Report: --html FILE   Data: --json"
    assert [" ".join(line.split()) for line in table.splitlines()] == [
        "Mean time per GPU and step, p of a Mann-Whitney rank test:",
        "part slow fast change of step p",
        "host-bound 15.0 ms 5.00 ms -10.0 ms -40.0% 0.002",
        "2 smaller parts 10.0 ms 10.0 ms 0 ns +0.0%",
        "median step 25.0 ms 15.0 ms -10.0 ms -40.0% 0.002",
    ]


def test_parts_may_differ_where_steps_do_not() -> None:
    """What compute wins, hosts lose."""
    a = [{"compute_ns": (50 * MS + i) * GPUS, "host_ns": (10 * MS - i) * GPUS} for i in range(6)]
    b = [{"compute_ns": (20 * MS + i) * GPUS, "host_ns": (40 * MS - i) * GPUS} for i in range(6)]
    text = " ".join(format_comparison(compare_sides([Side("A", make_summary(a)), Side("B", make_summary(b))])).split())
    assert text.startswith("NO DIFFERENCE `A` and `B` do not differ significantly: ")
    assert "PARTS compute -30.0 ms, host-bound +30.0 ms, although the steps do not differ " in text


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("shows_all", [False, True])
def test_no_line_is_wider(width: int, shows_all: bool) -> None:
    long = "a name with blanks and\x1b[31mcolour " * 20
    a = replace(
        steps_of(*range(100, 106)), kernels=[kernel(long + "1", long, 10**7, 10**15), kernel(long, "GEMM", 1, 1)]
    )
    b = replace(steps_of(*range(10, 16)), kernels=[kernel(long + "2", long, 10**7, 10**13)])
    text = format_comparison(compare_sides([Side(long, a), Side(long + "b", b)]), width, shows_all=shows_all)
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text


def test_shown_rows_add_up() -> None:
    """What is not shown is one row, so that a reader can add up the numbers of programs as well."""
    pair = pair_of(steps_of(100, 101, 102, 103), steps_of(90, 91, 92, 93))
    document = Comparison(Comparability([]), [pair], None).to_dict()
    assert sum(row["difference_ns"] for row in document["rows"]) == document["difference_ns"] == -10 * MS


def test_steps_that_are_not_the_same_are_no_evidence() -> None:
    """Steps of 100 ms of one name and of 25 ms of another, as of microbatches."""
    a, b = steps_of(*[100] * 6), steps_of(*[25] * 6)
    assert b.steps is not None
    pair = pair_of(a, replace(b, steps=replace(b.steps, name="microbatch")))
    assert (pair.verdict.kind, pair.verdict.measure, pair.verdict.p) == ("inconclusive", "capture", None)
    assert judge(pair, 0.05).code == 4
    sides = [Side("x", a), Side("y", replace(b, steps=replace(b.steps, name="other")))]
    text = format_comparison(compare_sides(sides), 200)
    reason = "because their steps are not known to be the same work"
    assert " ".join(text.split()).startswith(f"INCONCLUSIVE no times of `x` and `y` can be compared, {reason} ")


def test_many_small_parts_are_not_most_of_it() -> None:
    """Ten parts of 10 ms each grow by 2.5 ms each."""
    names = ["compute", "waiting", "moving", "not_split", "memory", "host", "queued", "graph", "unknown", "cut"]
    a, b = (make_summary([{f"{name}_ns": ms * GPUS for name in names}] * 6) for ms in (10 * MS, 12_500_000))
    text = format_comparison(compare_sides([Side("a", a), Side("b", b)]), 200)
    assert "PARTS         largest of many: " in text


def test_sides_with_and_without_gpus_are_not_divided() -> None:
    a = steps_of(*[100] * 4)
    host = a.efficiency
    assert host is not None
    steps = [replace(step, losses=None) for step in host.steps]
    b = replace(a, efficiency=replace(host, losses=None, steps=steps))
    [row] = pair_of(a, b).rows
    assert row.name == "not divided into parts"
