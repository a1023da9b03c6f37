"""The answer on real reports, whose programs have known bottlenecks, and its lines as people and programs read them."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from nsys2prv_ng.bundled.presets import list_presets
from nsys2prv_ng.summary.answer.answer import add_verdict, answer
from nsys2prv_ng.summary.answer.bottlenecks import BOTTLENECKS
from nsys2prv_ng.summary.answer.gains import describe_change
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.text import format_summary
from nsys2prv_ng.summary.verdict import Verdict
from nsys2prv_ng.text.layout import Style
from tests.conftest import DATA, Unpacked
from tests.replay.test_words import try_change
from tests.report_sets import find_set, sets
from tests.summary.made import IN_STEPS, summarize_reports
from tests.summary.made_summary import make_losses, make_rank, make_summary, make_waits

MS = 10**6


class Truth(NamedTuple):
    """What a program does: the class of its bottleneck, a place that must be named, and words of the hint."""

    bottleneck: str
    place: str
    hint: str


TRUTHS = {
    # Rank 0 loads data for 2 s on its main thread, as all ranks do.
    "exercises/ex1a-slow": Truth("host-bound", "data loading", "workers"),
    "exercises/ex1b-fp32": Truth("compute-bound", "GEMM FP32", "BF16"),
    # Four micro-batches of small kernels; without rank 1's delay rank 0 is as late.
    "exercises/ex1c-accum": Truth("launch-bound", "backward", "CUDA graphs"),
    "exercises/ex2a-zero2": Truth("exposed transfer", "ReduceScatter", "busbw"),
    "exercises/ex2a-zero3": Truth("exposed transfer", "AllGather", "gather less"),
    "exercises/ex2b-manual": Truth("exposed transfer", "AllReduce", "overlap"),
    "exercises/ex3a-pp1": Truth("launch-bound", "", "CUDA graphs"),
    "exercises/ex3a-pp2": Truth("exposed transfer", "SendRecv", "overlap"),
    "exercises/ex3a-pp2-plain": Truth("unclassified communication", "SendRecv", "--include-json"),
    "exercises/tpgraph-1x4": Truth("start-up only", "cuLibraryLoadData", "--steps"),
    "whatif/m-base": Truth("host-bound", "assembly", ""),
    "whatif/m-big": Truth("exposed transfer", "halo", "start messages earlier"),
    "whatif/m-late": Truth("wait for a straggler", "late host", "rank"),
    # Its first steps after the start of the capture are slow on the host: two runs differ by that.
    "whatif/w-base": Truth("compute-bound", "backward", "fuse"),
    "whatif/w-base-again": Truth("compute-bound", "backward", "fuse"),
    "whatif/w-gemm": Truth("compute-bound", "extra work", ""),
    "whatif/w-compiled": Truth("compute-bound", "backward", ""),
    "whatif/w-load": Truth("host-bound", "data loading", "workers"),
    "whatif/w-sync": Truth("compute-bound", "backward", ""),
    "whatif/hf-base": Truth("compute-bound", "Elementwise", ""),
    "whatif/hf-emptycache": Truth("host-bound", "cudaFree", "empty_cache"),
    # What w-base runs, with an NVTX range for each operator: the same kernels, and hosts twice as slow.
    "whatif/w-shapes": Truth("host-bound", "", "capture again without NVTX ranges of operators"),
    # Four GPUs of one process: each copies to the next one when that one's copy has ended.
    "gpu/oneproc-4gpu": Truth("exposed transfer", "Memcpy peer to peer", "wait for each other"),
    "gpu/mpi-4": Truth("exposed transfer", "MPI_Allreduce", "MPI_Iallreduce"),
    "whatif/jax-1": Truth("compute-bound", "Opaque CUDA graph", "--cuda-graph-trace=node"),
}
PUSHED = ("exercises/ex1b-fp32", "exercises/tpgraph-1x4", "whatif/m-late", "whatif/w-load")


def judge_set(name: str) -> JobSummary:
    return add_verdict(summarize_reports(find_set(name), IN_STEPS))


@pytest.mark.slow
@pytest.mark.parametrize("name", sets(TRUTHS, push=PUSHED))
def test_programs_with_a_known_bottleneck(name: str) -> None:
    truth = TRUTHS[name]
    summary = judge_set(name)
    verdict = summary.verdict
    assert verdict is not None
    assert verdict.bottleneck == truth.bottleneck
    assert truth.hint in verdict.hint
    assert not truth.place or truth.place in [place.name for place in verdict.where]
    lines = format_summary(summary, 100, leads="x").splitlines()
    assert len(lines) <= 28 and max(map(len, lines)) <= 100


@pytest.mark.slow
def test_no_rank_alone_is_to_blame_if_the_next_is_as_late() -> None:
    """A replay of ex1c-accum without rank 1's delay is as long: rank 0 is next."""
    verdict = judge_set("exercises/ex1c-accum").verdict
    assert verdict is not None
    assert [straggler.rank for straggler in verdict.stragglers] == [1]
    [line] = [statement.text for statement in verdict.statements if statement.label == "STRAGGLER"]
    assert line.startswith("rank 1 (if it alone were as fast as the others, no step would be shorter): last in ")


def test_messages_and_their_size(shared_reports: Path, unpacked: Unpacked) -> None:
    """No copies surround the messages of m-big: GPU-aware MPI would change nothing."""
    reports = [unpacked(shared_reports / f"whatif/m-big.rank{rank}.sqlite") for rank in range(4)]
    sizes = []
    for report in reports:
        with closing(sqlite3.connect(report)) as database:
            query = "SELECT size FROM MPI_P2P_EVENTS JOIN StringIds ON textId = id WHERE value = 'MPI_Isend'"
            sizes += [size for (size,) in database.execute(query)]
    assert {size * 1e-6 for size in sizes} == {33.554432}
    verdict = judge_set("whatif/m-big").verdict
    assert verdict is not None and "GPU-aware" not in verdict.hint
    [where] = [statement.text for statement in verdict.statements if statement.label == "WHERE"]
    assert where.endswith("; `MPI_Isend` sends 33.6 MB on average")


@pytest.mark.slow
def test_copies_of_pageable_memory(unpacked: Unpacked) -> None:
    """The program copies 134 MB of pageable memory a step in `data movement`, and its host waits in the calls."""
    report = unpacked(DATA / "h100/pageable.rank0.sqlite.xz")
    summary = add_verdict(summarize_reports([report], IN_STEPS))
    verdict = summary.verdict
    assert verdict is not None and verdict.bottleneck == "copies" and "pinned" in verdict.hint
    [gain] = [gain for gain in verdict.gains if gain.change == "copies = 0"]
    with closing(sqlite3.connect(report)) as database:
        query = "SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY"
        [(copied,)] = database.execute(query)
    # The report has a warm-up step beside these.
    assert summary.steps is not None
    assert gain.saving_ns == pytest.approx(copied / (summary.steps.count + 1), rel=0.05)


@pytest.mark.all_sets
def test_a_saving_is_printed_once() -> None:
    """Hosts of mpi-4 are in MPI's transfer whenever they are in `collectives`."""
    summary = judge_set("gpu/mpi-4")
    assert summary.what_if is not None and summary.verdict is not None
    savings = {each.change: each.saving_ns for each in summary.what_if.scenarios}
    assert savings["range 'collectives' = 0"] == pytest.approx(savings["network = ideal"], rel=0.01)
    changes = [gain.change for gain in summary.verdict.gains]
    assert changes[0] == "network = ideal" and "range 'collectives' = 0" not in changes


@pytest.mark.all_sets
def test_overlap_saves_no_more_than_there_is_to_hide_behind() -> None:
    """ex2b-overlap is the twin of ex2b-manual that overlaps, with fewer and larger collectives."""
    manual, overlap = (judge_set(f"exercises/ex2b-{name}") for name in ("manual", "overlap"))
    assert manual.verdict is not None and manual.steps is not None and overlap.steps is not None
    [gain] = [statement.text for statement in manual.verdict.statements if statement.label == "GAIN"]
    share = re.search(r"overlap can save at most ([0-9.]+)%: ", gain)
    assert share is not None
    assert 10 < 100 * (1 - overlap.steps.median_ns / manual.steps.median_ns) < float(share[1]) < 25


def test_a_compiled_program_gains_little_from_a_faster_host() -> None:
    """Its critical path is host code for 78 % of the time, and its GPU computes for 95 % of it."""
    verdict = judge_set("whatif/w-compiled").verdict
    assert verdict is not None
    [gain] = [statement.text for statement in verdict.statements if statement.label == "GAIN"]
    assert gain.endswith("; nothing from a faster host")


# ---- the lines -------------------------------------------------------------------------------------------------------


def job() -> JobSummary:
    losses = make_losses(2, compute=40, host=30, waiting=20, by_range={"load": 30})
    waits = make_waits([make_rank(0, 0, 60 * MS), make_rank(1, 60 * MS, 0)], [], [])
    return add_verdict(make_summary(losses, waits=waits))


def test_labels_stand_in_a_fixed_column() -> None:
    lines = format_summary(job(), 100).splitlines()
    labels = [line[:12].strip() for line in lines if line[:1].isupper()]
    assert labels[:3] == ["BOTTLENECK", "TRY", "SEE"]
    assert all(line[12] != " " for line in lines if line[:1].isupper())


def test_see_names_the_section_of_the_page_if_there_is_one() -> None:
    [see] = [line for line in job().verdict.statements if line.label == "SEE"]
    assert see.text.startswith("analysis/gpu-gaps.cfg") and see.section == "Idle GPUs"
    for page, start in (("", "analysis/gpu-gaps.cfg"), ("a\x1b.html", '"Idle GPUs" in a .html; analysis/gpu-gaps.cfg')):
        assert f"\nSEE         {start}" in format_summary(job(), 100, page=page)


def test_parts_of_gpu_time_are_all_of_it() -> None:
    text = format_summary(job(), 100)
    shares = re.findall(r"^(?:GPU time)? +[a-z -]+ +([0-9.]+)%", text, re.MULTILINE)
    assert sum(map(float, shares)) == pytest.approx(100)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_is_wider(width: int) -> None:
    text = format_summary(job(), width, style=Style("#", False), leads="Tables: --details")
    assert max(map(len, text.splitlines())) <= width


def test_bars_and_bold_labels_only_if_the_style_has_them() -> None:
    plain = format_summary(job(), 100)
    assert "#" not in plain and "\x1b" not in plain
    styled = format_summary(job(), 100, style=Style("#", True))
    assert "\x1b[1mBOTTLENECK  \x1b[0m" in styled and f"40.0%  {'#' * 16}\n" in styled


def test_the_json_has_the_verdict_under_the_words_of_the_lines() -> None:
    summary = job()
    fields = json.loads(json.dumps(summary.to_dict()))
    verdict = fields["verdict"]
    assert {"bottleneck", "where", "gain_ns", "try", "see", "stragglers", "startup", "trust"} <= set(verdict)
    assert verdict["stragglers"][0] == {
        **{"rank": 0, "task": "rank 0", "caused_wait_ns": 60 * MS, "inherited_ns": 0, "reasons": []}
    }
    assert JobSummary.from_dict(fields) == summary
    assert JobSummary.from_dict({**fields, "verdict": None}) == replace(summary, verdict=Verdict.make_unjudged())
    for wrong in ([], "text", {}, {**verdict, "try": 1}):
        with pytest.raises(ValueError, match=r"erdict"):
            JobSummary.from_dict({**fields, "verdict": wrong})


def test_evidence_names_keys_of_the_json() -> None:
    found = job().to_dict()
    keys = {*found, *(f"waits.{key}" for key in found["waits"])}
    assert {key for bottleneck in BOTTLENECKS for key in bottleneck.evidence} <= keys
    verdict: Verdict = answer(job())
    assert {key for statement in verdict.statements for key in statement.evidence} <= keys


def test_a_summary_in_a_notebook_escapes_names() -> None:
    losses = make_losses(2, compute=40, host=60, by_range={"<script>": 60})
    html = add_verdict(make_summary(losses))._repr_html_()
    assert "<script>" not in html and "BOTTLENECK" in html


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("host = ideal", "if the host never delayed the GPUs"),
        ("range 'data loading' = 0", "if `data loading` took no time"),
        ("class 'GEMM FP32' * 0.5", "if GEMM FP32 kernels took half as long"),
        ("kernel 'flash*' * 0.8", "with `kernel 'flash*' * 0.8`"),
        ("rank 3 = median", "if rank 3 were as fast as the others"),
        ("range 'a = 0' = 0", "if `a = 0` took no time"),
        ("range '\x1b[1m`x' * 0.5", "if `[1m'x` took half as long"),
    ],
)
def test_changes_in_words(change: str, says: str) -> None:
    assert describe_change(try_change(change, MS)) == says


# ---- the classes -----------------------------------------------------------------------------------------------------


def test_every_preset_exists() -> None:
    assert {bottleneck.preset for bottleneck in BOTTLENECKS} <= {preset.name for preset in list_presets()}
