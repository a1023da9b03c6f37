"""Slow steps beside usual ones: on made steps, and on a real report against its NVTX ranges."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from nsys2prv_ng.summary.answer.answer import answer
from nsys2prv_ng.summary.answer.slow_steps import (
    describe_extra,
    describe_slow,
    describe_usual,
    find_slow_steps,
    locate_slowest,
)
from nsys2prv_ng.summary.gpus.numbers import Cause
from tests.conftest import Unpacked
from tests.report_sets import find_set, list_sets, sets
from tests.report_truth import Report
from tests.summary.made import IN_STEPS, summarize_reports
from tests.summary.made_summary import MS, STEPS, STEPS_NS, make_losses, make_summary, set_steps
from tests.summary.test_tables import make_gpu

LOSSES = make_losses(compute=40, host=60)


def test_slow_and_usual_steps_in_words() -> None:
    found = find_slow_steps(set_steps(make_summary(LOSSES), [20, 21, 60, 19, 20, 50, 20, 20, 20], first=4))
    assert found is not None
    assert [step.number for step in found.slow] == [6, 9]
    assert (found.excess_ns, found.whole_ns) == ((60 + 50 - 2 * 20) * MS, 250 * MS)
    assert describe_slow(found, "step") == "2 of 9 steps (6, 9) take 50.0-60.0 ms, the median step 20.0 ms"
    assert describe_extra(found) == "their additional time: host-bound 100.0%"
    assert describe_usual(found) == (
        "the other 7 steps (19.0-21.0 ms): host-bound 100.0% of GPU time; to judge 3 of them alone: --steps 10:12"
    )


def test_where_the_slowest_step_is() -> None:
    """With a step before it and one after it; not where steps have gaps between them."""
    summary = set_steps(make_summary(LOSSES), [20, 21, 60, 19, 20, 50, 20, 20, 20], first=4)
    found = find_slow_steps(summary)
    assert found is not None and summary.efficiency is not None
    for window, place in (((5 * MS, 255 * MS), (25 * MS, 125 * MS)), ((5 * MS, 256 * MS), None)):
        efficiency = replace(summary.efficiency, steps_ns=window)
        assert locate_slowest(replace(summary, efficiency=efficiency), found) == place
    assert locate_slowest(replace(summary, efficiency=None), found) is None


def test_many_slow_steps_are_not_all_listed() -> None:
    summary = set_steps(make_summary(LOSSES), [20, 50, 20, 20] * 10)
    found = find_slow_steps(summary)
    assert found is not None and len(found.slow) == 10
    slow = "10 of 40 steps (2, 6, 10, 14, 18, 22, 26, 30, ...) take 50.0 ms, the median step 20.0 ms"
    assert describe_slow(found, "step") == slow
    lines = {line.label: line.text for line in answer(summary).statements}
    assert lines["BOTTLENECK"] == f"Slow steps: {slow}"
    assert (
        lines["GAIN"] == "about 300 ms in all (27.3% of the steps' time) if the slow steps were as fast as the median"
    )


def test_one_slow_step_without_gpus() -> None:
    summary = set_steps(make_summary(LOSSES), [20, 20, 100, 20])
    assert summary.efficiency is not None
    bare = [replace(step, losses=None) for step in summary.efficiency.steps]
    found = find_slow_steps(replace(summary, efficiency=replace(summary.efficiency, steps=bare)))
    assert found is not None
    assert describe_slow(found, "step") == "step 3 takes 100 ms, the median step 20.0 ms"
    assert describe_extra(found) == ""
    assert describe_usual(found) == "the other 3 steps (20.0 ms); to judge 2 of them alone: --steps 1:2"


def test_steps_that_take_turns_are_not_slow() -> None:
    summary = set_steps(make_summary(LOSSES), [20, 20, 60, 20, 20, 60])
    assert find_slow_steps(summary) is not None and summary.steps is not None
    assert find_slow_steps(replace(summary, steps=replace(summary.steps, turns_ns=(20 * MS, 60 * MS)))) is None


def test_a_cut_list_of_steps_says_nothing() -> None:
    """Only the first of very many steps are listed: their share of the time of all is not known."""
    summary = set_steps(make_summary(LOSSES), [20, 60, 20, 20])
    assert summary.steps is not None and find_slow_steps(summary) is not None
    assert find_slow_steps(replace(summary, steps=replace(summary.steps, count=5))) is None


def test_slow_steps_that_are_not_the_bottleneck_are_named_too() -> None:
    verdict = answer(set_steps(make_summary(LOSSES), [20] * 10 + [55]))
    assert verdict.bottleneck != "slow steps"
    [text] = [line.text for line in verdict.statements if line.label == "STEPS"]
    assert text.startswith("step 11 takes 55.0 ms, the median step 20.0 ms; the other 10 steps (20.0 ms)")


@pytest.mark.parametrize(("slow_ns", "says"), [(160, "; hosts are mostly in `cudaMalloc`"), (140, "")])
def test_calls_of_the_usual_steps_do_not_explain_slow_ones(slow_ns: int, says: str) -> None:
    """The calls of hosts are known for all steps together. The usual steps have 150 ns of host-bound time."""
    cause = Cause(cause="host", range="", call="cudaMalloc", ns=100, gaps=1)
    summary = set_steps(replace(make_summary(LOSSES), gpus=[make_gpu(0, [], [cause])]), [20, 20, 100, 20])
    assert summary.efficiency is not None
    steps = [
        replace(step, losses=replace(LOSSES, host_ns=slow_ns if step.number == 3 else 50))
        for step in summary.efficiency.steps
    ]
    summary = replace(summary, windows_ns=[STEPS_NS], efficiency=replace(summary.efficiency, steps=steps))
    verdict = answer(summary)
    [text] = [line.text for line in verdict.statements if line.label == "WHERE"]
    assert ("hosts" in text) == bool(says) and text.endswith(says)


def test_steps_that_are_not_listed_have_no_slow_ones() -> None:
    assert find_slow_steps(replace(make_summary(LOSSES), steps=replace(STEPS, max_ns=900 * MS))) is None


SETS = {name: paths for name, paths in list_sets().items() if not name.startswith("cpu/")}
WITH_SLOW = {"whatif/x-uneven", "exercises/tpgraph-1x4"}
_PUSH = {"samples/ddp-2x2", "exercises/ex1a-slow", "whatif/hf-base"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sets(sorted(set(SETS) - WITH_SLOW), push=_PUSH))
def test_other_real_reports_have_no_slow_steps(name: str) -> None:
    """So there is nothing to compare, and no table."""
    assert find_slow_steps(summarize_reports(find_set(name), IN_STEPS)) is None


@pytest.mark.slow
def test_steps_with_new_shapes(shared_reports: Path, unpacked: Unpacked) -> None:
    """The steps that first see a sequence length take about 100 ms longer, all of it on the host."""
    path = unpacked(shared_reports / "whatif/x-uneven.rank0.sqlite")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        rows = database.execute(
            """SELECT "end" - start FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId
            WHERE coalesce(text, value) LIKE 'step%' AND eventType = 59 ORDER BY start"""
        ).fetchall()
    times = [ns for (ns,) in rows][1:]  # the first one is warm-up
    slow = [number for number, ns in enumerate(times, 1) if ns >= 2 * median(times)]
    assert len(slow) >= 5
    verdict = answer(summarize_reports([path], IN_STEPS))
    assert verdict.bottleneck == "slow steps"
    longest = sorted(slow, key=lambda number: -times[number - 1])
    assert [place.name for place in verdict.where if place.kind == "step"] == [str(number) for number in longest]
    texts = {line.label: line.text for line in verdict.statements}
    excess = sum(times[number - 1] - median(times) for number in slow)
    assert float(texts["GAIN"].split()[1]) * MS == pytest.approx(excess, rel=0.02)
    assert "host-bound" in texts["WHERE"] and texts["STEPS"].endswith("--steps 17:29")
    # The part of the trace to look at has the longest step, whose range is on the host.
    steps = Report(path).nvtx
    longest_step = steps[steps["text"].str.startswith("step")].sort_values("begin").iloc[longest[0]]
    first = Report(path).first_event
    assert first is not None
    low, high = longest_step["begin"], longest_step["end"]
    shown = [float(text.removesuffix("s")) * 1e9 for text in texts["SEE"].split("--time ")[1].split(":")]
    assert shown[0] <= low - first and high - first <= shown[1] and shown[1] - shown[0] < 1.5 * (high - low)
