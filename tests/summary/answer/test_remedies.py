"""Each remedy has a section with code before and after, and GAIN and TRY list remedies in one order."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng.replay.numbers import Scenario, WhatIfNumbers
from nsys2prv_ng.summary.answer.answer import SECTIONS
from nsys2prv_ng.summary.answer.bottlenecks import BOTTLENECKS
from nsys2prv_ng.summary.answer.busy_bottlenecks import COMPUTE, COPIES, SLOW_STEPS, TRANSFER
from nsys2prv_ng.summary.answer.case import HOST_BOUND, Case
from nsys2prv_ng.summary.answer.idle_bottlenecks import HOST, LAUNCH
from nsys2prv_ng.summary.answer.remedies import REMEDIES, list_remedies
from nsys2prv_ng.summary.gpus.numbers import Cause
from nsys2prv_ng.summary.job import JobSummary
from tests.conftest import DATA, unpack
from tests.summary.made_summary import MS, STEPS_NS, make_losses, make_summary
from tests.summary.test_tables import make_gpu

ROOT = Path(__file__).parents[3]
PAGE, SECTION_FILES = ROOT / "docs/guides/remedies.md", ROOT / "nsys2prv_ng/html/summary_sections"


def test_each_remedy_has_a_section_with_code_before_and_after() -> None:
    head, *parts = re.split(r"(?m)^## (.+)$", PAGE.read_text(encoding="utf-8"))
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert head and set(sections) == {each.key for each in REMEDIES}
    for key, text in sections.items():
        [code] = re.findall(r"(?s)```\w+\n(.*?)```", text)
        assert re.search(r"(?m)^(#|//) before", code) and re.search(r"(?m)^(#|//) after", code), key
        assert "Saved: " in text, key


def test_the_page_has_the_section_that_an_answer_names() -> None:
    """The titles are those of sections that name the same preset."""
    source = "".join(path.read_text(encoding="utf-8") for path in SECTION_FILES.glob("*.py"))
    titles = set(re.findall(r'Section\("[a-z-]+", "([^"]+)"', source))
    assert {each.preset for each in BOTTLENECKS} == set(SECTIONS)
    assert set(SECTIONS.values()) <= titles


def make_idle_job(*causes: Cause, noise_ms: int = 0) -> JobSummary:
    """Return a job whose GPU is idle for its host 60 % of its steps; an ideal host saves 10 of the 100 ms of a step."""
    saves = Scenario(
        changes=(HOST_BOUND,),
        predicted_step_ns=90 * MS,
        saving_ns=10 * MS,
        share=0.1,
        limited_by=None,
        connected=True,
        measurable=True,
    )
    numbers = WhatIfNumbers(
        steps=5, step_ns=100 * MS, noise_ns=noise_ms * MS, limited_by=None, scenarios=[saves], slack=[], unsplit_ns=0
    )
    job = make_summary(make_losses(compute=40, host=60))
    return replace(job, windows_ns=[STEPS_NS], gpus=[make_gpu(0, [0], list(causes))], what_if=numbers)


ADDRESSED = {
    "compute_ns": {"autocast", "channels-last", "fused-attention", "few-rows", "lookup", "weights-in-16-bits"},
    "memory_ns": {"one-copy", "pinned-copies", "stay-on-device"},
}
"""Remedies of classes that few remedies address."""


def test_remedies_address_what_they_shorten() -> None:
    """None is the answer to a class of communication, whose hint stays; all others address hosts."""
    assert not [each.key for each in REMEDIES if each.address(TRANSFER) or each.address(SLOW_STEPS)]
    of_hosts = {each.key for each in REMEDIES if each.address(HOST)}
    assert of_hosts == {each.key for each in REMEDIES if each.address(LAUNCH)}
    both = {"fused-optimizer", "merged-embeddings", "whole-sequences", "one-batch", "no-checkpointing"}
    assert {each.key for each in REMEDIES if each.address(COMPUTE)} == ADDRESSED["compute_ns"] | both
    assert {each.key for each in REMEDIES if each.address(COPIES)} == ADDRESSED["memory_ns"]
    assert of_hosts == {each.key for each in REMEDIES} - ADDRESSED["compute_ns"] - {"pinned-copies"}


@pytest.mark.parametrize(("noise_ms", "is_found"), [(4, True), (6, False)])
def test_a_bound_saves_more_than_two_runs_differ_by(noise_ms: int, is_found: bool) -> None:
    """Ten ms of a step of 100 ms: twice the variation of the steps, or less."""
    launches = Cause(cause="host", range="", call="", ns=60 * MS, gaps=6000)
    summary = make_idle_job(launches, noise_ms=noise_ms)
    assert [each.remedy.key for each in list_remedies(Case(summary), LAUNCH)] == ["cuda-graphs"] * is_found


def test_idle_time_counts_as_far_as_it_is_in_the_judged_time() -> None:
    """Causes of all time may be more than the steps have: those of mpi-4 saved 450 % of a step with `--time :`."""
    [each] = [each for each in REMEDIES if each.key == "data-beside-gpu"]
    assert each.cause is not None
    gap = Cause(cause="host", range="", call="", next="copy from pageable memory", ns=900 * MS, gaps=9)
    summary = make_idle_job(gap)
    [tried] = [one for one in list_remedies(Case(summary), HOST) if one.remedy is each]
    assert tried.share == pytest.approx(0.6), "that of host-bound time, not 900 ms of a second"
    elsewhere = replace(summary, windows_ns=[(0, 2000 * MS)])
    assert each not in [one.remedy for one in list_remedies(Case(elsewhere), HOST)]


@pytest.mark.parametrize("name", ["seg-b", "forecast-b"])
def test_factors_of_a_remedy_are_no_gain_where_it_does_not_apply(name: str) -> None:
    """A replay tries copies and casts at 0.02 of their time, as in a program that casts its weights each time."""
    summary = nsys2prv_ng.summarize([unpack(DATA / f"programs/{name}.rank0.sqlite.xz")])
    assert summary.what_if is not None
    tried = {str(each.only) for each in summary.what_if.scenarios if each.only is not None}
    assert "class 'Copy, cast or fill' * 0.02" in tried
    [gain] = [line.text for line in summary.verdict.statements if line.label == "GAIN"]
    assert " * " not in gain and "weights" not in gain
