"""Several captures a side: they are the samples, and the tables are of the typical one."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import median

import pytest

import nsys2prv_ng
from nsys2prv_ng.comparison.compare import compare_sides
from nsys2prv_ng.comparison.result import Comparison, format_comparison
from nsys2prv_ng.comparison.sides import choose_typical, make_side
from nsys2prv_ng.html.comparison_page import render_comparison
from nsys2prv_ng.summary.job import JobSummary
from tests.comparison.made import GPUS, MS, make_summary
from tests.comparison.made_runs import make_facts
from tests.conftest import Unpacked
from tests.report_truth import Report
from tests.steps.step_truth import StepTruth, list_ranges


def capture(name: str, *milliseconds: float, **parts: int) -> JobSummary:
    """A capture with steps of these lengths, which compute but for other parts (ns of a GPU)."""
    rest = sum(parts.values())
    steps = [
        {"compute_ns": (int(ms * MS) - rest) * GPUS, **{key: ns * GPUS for key, ns in parts.items()}}
        for ms in milliseconds
    ]
    return make_summary(steps, facts=make_facts(captures=[name]))


def captures(name: str, *milliseconds: float) -> list[JobSummary]:
    """Captures of six steps around these lengths."""
    return [
        capture(f"{name}{number}", *(ms + shift / 100 for shift in (-2, -1, 0, 0.5, 1, 7)))
        for number, ms in enumerate(milliseconds)
    ]


def compare(a: list[JobSummary], b: list[JobSummary]) -> Comparison:
    return compare_sides([make_side("a", a), make_side("b", b)])


def read(comparison: Comparison) -> str:
    return " ".join(format_comparison(comparison).split())


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        ([100, 104, 99, 103], [90, 94, 91, 92], "faster"),
        ([90, 94, 91, 92], [100, 104, 99, 103], "slower"),
        ([100, 108, 96, 103], [101, 95, 98, 106], "no difference"),
        ([100, 100.2, 100.1, 100.3], [101, 101.2, 101.1, 101.3], "below noise"),
        ([100, 104, 99], [90, 94, 91, 92], "faster"),
    ],
)
def test_medians_of_captures_are_compared(a: list[float], b: list[float], kind: str) -> None:
    """Steps of each capture are within 0.1 ms, so that those of any two captures differ: that is no evidence."""
    comparison = compare(captures("a", *a), captures("b", *b))
    [pair] = comparison.pairs
    assert (pair.verdict.kind, pair.verdict.samples, pair.verdict.measure) == (kind, "captures", "step")
    middle = [(ms + 0.0025) * MS for ms in (median(a), median(b))]
    assert [pair.verdict.a_ns, pair.verdict.b_ns] == pytest.approx(middle, abs=1)
    assert pair.verdict.difference_ns == pair.verdict.b_ns - pair.verdict.a_ns
    assert [len(side.captures) for side in (pair.a, pair.b)] == [len(a), len(b)]
    if min(len(a), len(b)) < 4:  # too few for a rank test
        assert pair.verdict.p is None
    else:
        assert pair.verdict.p == pytest.approx(count_ways(a, b))


def count_ways(a: list[float], b: list[float]) -> float:
    """The share of all ways to divide the captures in which a wins as many pairs, or as few."""
    every, pairs = a + b, len(a) * len(b)

    def count_far(chosen: set[int]) -> float:
        wins = sum(every[i] > every[j] for i in chosen for j in range(len(every)) if j not in chosen)
        return abs(wins - pairs / 2)

    far = count_far(set(range(len(a))))
    ways = list(combinations(range(len(every)), len(a)))
    return sum(count_far(set(way)) >= far for way in ways) / len(ways)


def test_steps_of_two_captures_differ_by_chance_where_captures_do_not() -> None:
    """The program that was captured four times, twice on a slow day: its first two captures differ in all steps."""
    every = captures("x", 100, 112, 101, 111)
    assert compare(every[:1], every[1:2]).pairs[0].verdict.kind == "slower"
    assert "captures of such a program vary by 1.0%" in read(compare(every[:1], every[1:2]))
    assert compare(every, captures("y", 113, 99, 112.5, 100.5)).pairs[0].verdict.kind == "no difference"


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        ([100, 102], [90, 91], "Every capture of `b` is faster than all of `a`"),
        ([90, 91], [100, 102], "Every capture of `b` is slower than all of `a`"),
        ([90, 101], [100, 102], "The captures of `a` and `b` overlap"),
        ([100], [90, 91, 92, 93, 94], "Every capture of `b` is faster than all of `a`"),
    ],
)
def test_doubtful_captures_have_a_range(a: list[float], b: list[float], text: str) -> None:
    sides = [
        [capture(f"{name}{n}", *[ms] * 4, host_ns=80 * MS) for n, ms in enumerate(of)]
        for name, of in zip("ab", (a, b), strict=True)
    ]
    comparison = compare(*sides)
    assert comparison.pairs[0].verdict.kind == "inconclusive" and text in read(comparison)


@pytest.mark.parametrize(
    ("milliseconds", "typical"), [([5, 1, 3], 2), ([1, 9, 2, 3], 2), ([4], 0), ([1, 3], 0), ([7, 7, 7], 0)]
)
def test_tables_are_of_the_typical_capture(milliseconds: list[float], typical: int) -> None:
    every = captures("a", *milliseconds)
    assert choose_typical(every) == typical
    side = make_side("a", every)
    assert side.summary is every[typical]
    pair = compare(every, captures("b", 1, 2)).pairs[0]
    assert pair.a.table_capture == typical and pair.a.step_ns == pair.a.captures[typical].step_ns
    if len(every) > 1:
        notes = " ".join(pair.name_notes(str.upper))
        assert f"all tables but the first are of capture {typical + 1} of A, capture 1 of B," in notes


def test_parts_are_means_over_captures_and_add_up() -> None:
    """Two captures of 10 and 14 ms, of which the host is late for 1 and 3 ms; later 6 and 8 ms more."""
    a = [capture("a1", *[10] * 4, host_ns=1 * MS), capture("a2", *[14] * 4, host_ns=3 * MS)]
    b = [capture("b1", *[16] * 4, host_ns=7 * MS), capture("b2", *[22] * 4, host_ns=11 * MS)]
    pair = compare(a, b).pairs[0]
    rows = {row.name: (row.a_ns, row.b_ns, row.p) for row in pair.rows}
    assert rows["host-bound"] == (2 * MS, 9 * MS, None)
    assert rows["compute"] == (10 * MS, 10 * MS, None)
    assert sum(row.difference_ns for row in pair.rows) == pair.difference_ns == 7 * MS
    four = compare(a * 2, b * 2).pairs[0]
    assert next(row.p for row in four.rows if row.name == "host-bound") == pytest.approx(2 / 70)


def test_captures_that_are_not_of_one_run_are_named() -> None:
    a = captures("a", 100, 101)
    other = make_summary([{"compute_ns": 100 * MS}] * 4, gpus=1, facts=make_facts(captures=["x"]))
    findings = compare([*a, other], captures("b", 90)).comparability.findings
    assert any(
        "the captures of a differ in number of GPUs, number of processes:" in finding.text for finding in findings
    )
    named = replace(a[1], steps=replace(a[1].steps, name="epoch"))  # type: ignore[type-var]
    comparison = compare([a[0], named], captures("b", 90))
    assert comparison.pairs[0].verdict.measure == "capture"
    same = compare([a[0], a[0]], captures("b", 90)).comparability.findings
    assert any("a, capture 1, a, capture 2 have 1 report in common" in finding.text for finding in same)
    assert not any("capture" in finding.text for finding in compare(a, captures("b", 90)).comparability.findings)


def test_the_page_shows_captures() -> None:
    sides = [make_side("a", captures("a", 100, 101, 102)), make_side("b", captures("b", 90, 91, 92))]
    page = render_comparison(compare_sides(sides), sides, [None, None])
    assert "median of 3 captures 101 ms, 100 ms to 102 ms" in page


def test_saved_summaries_as_captures(tmp_path: Path) -> None:
    a, b = captures("a", 100, 101), captures("b", 90, 91)
    files = [tmp_path / f"{name}.json" for name in ("a1", "a2", "b1", "b2")]
    for file, summary in zip(files, (*a, *b), strict=True):
        summary.save(file)
    expected = compare(a, b).pairs[0]
    for sides in (
        [[[files[0]], [files[1]]], [[files[2]], [files[3]]]],
        [[a[0], files[1]], b],
        [tuple(a), [[str(files[2])], b[1]]],
    ):
        comparison = nsys2prv_ng.compare(sides, labels=["a", "b"])  # type: ignore[arg-type]
        assert comparison.pairs[0] == expected
    with pytest.raises(nsys2prv_ng.UsageError, match="cannot be restricted"):
        nsys2prv_ng.compare([[a[0], a[1]], b], steps="1:2")
    with pytest.raises(nsys2prv_ng.UsageError, match="at least two"):
        nsys2prv_ng.compare([a])


@pytest.mark.slow
def test_two_real_captures_of_one_program(shared_reports: Path, unpacked: Unpacked) -> None:
    """The same program twice, against one whose main thread computes 15 ms more in each step."""
    names = ("w-base", "w-base-again", "w-load")
    reports = [unpacked(shared_reports / f"whatif/{name}.rank0.sqlite") for name in names]
    medians = []
    for path in reports:
        own = [Report(path)]
        truth = StepTruth(own, list_ranges(own, "step"))
        medians.append(median(truth.lengths[truth.warmup :]))
    pair = nsys2prv_ng.compare([[[reports[0]], [reports[1]]], [[reports[2]]]], labels=["a", "b"], jobs=1).pairs[0]
    assert [each.step_median_ns for each in pair.a.captures] == medians[:2]
    assert (pair.verdict.a_ns, pair.verdict.b_ns) == pytest.approx((sum(medians[:2]) / 2, medians[2]), abs=0.5)
    assert pair.verdict.kind == "slower"
    assert [(change.name, change.only) for change in pair.changes] == [("data loading", "")]
    assert pair.changes[0].difference_ns == pytest.approx(15 * MS, rel=0.02)
