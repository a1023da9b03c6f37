"""Kinds of steps in a summary: numbers that add up, words, and slow steps of one kind."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from statistics import median

import pytest

from nsys2prv_ng.summary.answer.answer import answer, describe_job
from nsys2prv_ng.summary.answer.slow_steps import describe_slow, find_slow_steps, locate_slowest
from nsys2prv_ng.summary.efficiency.numbers import EfficiencyNumbers, Losses, StepKind
from nsys2prv_ng.summary.efficiency.windows import list_parts
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.steps.table import describe_kinds, list_kind_tables, name_kind
from nsys2prv_ng.text.layout import format_grid
from tests.conftest import DATA, unpack
from tests.summary.made import IN_STEPS, summarize_reports
from tests.summary.made_summary import MS, make_losses, make_summary, set_steps

LOSSES = make_losses(1, host=100)
TRAIN, EVAL = "train", "eval"


def make_kind(name: str, lengths_ms: list[int], losses: Losses | None = None, **batches: int) -> StepKind:
    lengths = [length * MS for length in lengths_ms]
    return StepKind(
        name=name, count=len(lengths), total_ns=sum(lengths), median_ns=round(median(lengths)), losses=losses, **batches
    )


def set_kinds(times_ms: list[int], names: list[str]) -> JobSummary:
    """Return a summary whose steps have these lengths and kinds."""
    summary = set_steps(make_summary(LOSSES), times_ms)
    assert summary.efficiency is not None and summary.steps is not None
    by_kind = defaultdict(list)
    for name, time in zip(names, times_ms, strict=True):
        by_kind[name].append(time)
    kinds = sorted((make_kind(*item) for item in by_kind.items()), key=lambda kind: -kind.total_ns)
    steps = [replace(step, kind=name) for step, name in zip(summary.efficiency.steps, names, strict=True)]
    return replace(
        summary, steps=replace(summary.steps, kinds=kinds), efficiency=replace(summary.efficiency, steps=steps)
    )


# ---- words and tables ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("", "steps"),
        ("decode", "decode steps"),
        ("with 3 more kernels", "steps with 3 more kernels"),
        ("that load kernels", "steps that load kernels"),
    ],
)
def test_where_the_name_of_a_kind_stands(kind: str, text: str) -> None:
    assert name_kind(kind, "steps") == text


def test_kinds_in_words() -> None:
    summary = set_kinds([10] * 9 + [300, 300, 310], [TRAIN] * 9 + [EVAL] * 3)
    assert summary.steps is not None
    assert describe_kinds(summary.steps) == (
        "eval: 3 of 12 steps (median 300 ms), 91.0% of the time; "
        "train: 9 of 12 steps (median 10.0 ms), 9.0% of the time"
    )
    assert describe_job(summary).endswith("| median eval step 300 ms, train step 10.0 ms")


def test_main_parts_are_named_if_they_differ() -> None:
    slow, fast = make_losses(1, host=100), make_losses(1, compute=100)
    kinds = [
        make_kind(EVAL, [100], replace(slow, host_ns=75 * MS, compute_ns=25 * MS)),
        make_kind(TRAIN, [50], replace(fast, host_ns=5 * MS, compute_ns=45 * MS)),
    ]
    steps = set_kinds([1] * 4, [TRAIN] * 4).steps
    assert steps is not None
    assert describe_kinds(replace(steps, kinds=kinds)) == (
        "eval: 1 of 2 steps (median 100 ms), 66.7% of the time, host-bound 75.0% of it; "
        "train: 1 of 2 steps (median 50.0 ms), 33.3% of the time, compute 90.0% of it"
    )


def test_one_kind_has_no_words_and_no_table() -> None:
    assert describe_kinds(set_steps(make_summary(LOSSES), [10] * 5).steps) == describe_kinds(None) == ""
    assert list_kind_tables(set_steps(make_summary(LOSSES), [10] * 5).steps) == list_kind_tables(None) == []


def test_batches_are_columns() -> None:
    steps = set_kinds([1] * 4, [TRAIN] * 4).steps
    assert steps is not None
    numbers = {"context_requests": 3, "context_tokens": 1536, "generation_requests": 0}
    table = list_kind_tables(replace(steps, kinds=[make_kind("prefill", [10, 20], **numbers)]))[0]
    assert format_grid(table, 120)[1:] == [
        "kind     steps   median     mean  share of time  context requests  context tokens  generation requests",
        "prefill      2  15.0 ms  15.0 ms         100.0%                 3           1,536                    0",
    ]


# ---- slow steps ------------------------------------------------------------------------------------------------------


def test_a_longer_kind_is_not_slow() -> None:
    times, names = [10, 10, 10, 30] * 4, [TRAIN, TRAIN, TRAIN, EVAL] * 4
    assert find_slow_steps(set_steps(make_summary(LOSSES), times)) is not None
    assert find_slow_steps(set_kinds(times, names)) is None


def test_slow_steps_of_one_kind() -> None:
    times, names = [10, 10, 10, 30] * 4, [TRAIN, TRAIN, TRAIN, EVAL] * 4
    times[4] = 90
    summary = set_kinds(times, names)
    found = find_slow_steps(summary)
    assert found is not None
    assert [step.number for step in found.slow] == [5] and len(found.usual) == 11 and len(found.others) == 4
    assert (found.excess_ns, found.whole_ns) == (80 * MS, sum(times) * MS)
    assert describe_slow(found, "step") == "step 5 takes 90.0 ms, the median train step 10.0 ms"


def test_where_the_slowest_step_of_a_kind_is() -> None:
    times, names = [10, 10, 10, 300] * 4, [TRAIN, TRAIN, TRAIN, EVAL] * 4
    times[5] = 500
    summary = set_kinds(times, names)
    assert summary.efficiency is not None
    summary = replace(summary, efficiency=replace(summary.efficiency, steps_ns=(0, sum(times) * MS)))
    found = find_slow_steps(summary)
    assert found is not None
    assert locate_slowest(summary, found) == (sum(times[:4]) * MS, sum(times[:7]) * MS)


# ---- real reports ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_numbers_of_kinds_are_those_of_their_steps() -> None:
    summary = summarize_reports([unpack(DATA / "programs/evalloop-a.rank0.sqlite.xz")], IN_STEPS)
    steps, efficiency = summary.steps, summary.efficiency
    assert steps is not None and isinstance(efficiency, EfficiencyNumbers)
    assert [kind.name for kind in steps.kinds] == ["train", "eval"]
    for kind in steps.kinds:
        own = [step for step in efficiency.steps if step.kind == kind.name]
        lengths = [step.length_ns for step in own]
        assert (len(own), sum(lengths), round(median(lengths))) == (kind.count, kind.total_ns, kind.median_ns)
        assert kind.losses is not None and sum(part.ns for part in list_parts(kind.losses)) == kind.total_ns
        assert kind.losses.host_ns == sum(step.losses.host_ns for step in own if step.losses is not None)
    (line,) = [statement for statement in answer(summary).statements if statement.label == "KINDS"]
    train, evaluation = steps.kinds
    assert line.text.startswith(f"train: {train.count} of {steps.count} steps (")
    assert f"; eval: {evaluation.count} of {steps.count} steps (" in line.text
