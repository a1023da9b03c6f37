"""Remedies for kernels: found where the cause was planted, not in the cure, and predicted as the cure turned out.

The captures with the cure, and the programs' own clocks, are the truth.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import nsys2prv_ng
from nsys2prv_ng.summary.job import JobSummary
from tests.conftest import DATA, unpack
from tests.tiers import cases

PROGRAMS = DATA / "programs"
TRUTH: dict[str, Any] = json.loads((PROGRAMS / "truth.json").read_text())
PLANTED = {
    "accel": ("autocast", 0.2),
    "cloze": ("autocast", 0.25),
    "evalloop": ("one-batch", 0.1),
    "hftrainer": ("no-checkpointing", 0.1),
    "pltrainer": ("one-batch", 0.1),
    "ppo": ("one-batch", 0.1),
    "recsys": ("merged-embeddings", 0.1),
    "seg": ("channels-last", 0.2),
    "speech": ("whole-sequences", 0.25),
    "sweep": ("one-batch", 0.2),
}
"""The remedy of each program, and by how much of the measured saving under nsys its prediction may be wrong."""
ALONE = {"denoise": ("fused-optimizer", 0.15), "gan": ("fused-optimizer", 0.1)}
"""The same for programs whose saving without nsys is predicted, as shares: nsys slows `a` of denoise twofold, and the
means of gan include steps that warm up."""
HALVED = {"diffusion": "one-batch"}
"""Programs whose cure halves what repeats; the remedy removes nearly all."""
OF_KERNELS = {key for key, *_ in (*PLANTED.values(), *ALONE.values())} | set(HALVED.values())


def summarize(name: str, mode: str) -> JobSummary:
    return nsys2prv_ng.summarize([find_report(name, mode)])


def find_report(name: str, mode: str) -> Path:
    return unpack(PROGRAMS / f"{name}-{mode}.rank0.sqlite.xz")


def list_found(summary: JobSummary) -> dict[str, float]:
    """Return the saving of each remedy for kernels, as a share of a step."""
    assert summary.verdict is not None and summary.what_if is not None
    step = summary.what_if.step_ns
    return {each.key: (each.saving_ns or 0) / step for each in summary.verdict.remedies if each.key in OF_KERNELS}


@pytest.mark.parametrize(
    "name", cases({**PLANTED, **ALONE, **HALVED}, push=("seg", "recsys", "hftrainer"), quick=("seg",))
)
def test_a_planted_cause_is_found_and_its_cure_predicted(name: str) -> None:
    found = list_found(summarize(name, "a"))
    if name in HALVED:
        assert next(iter(found)) == HALVED[name]
        return
    key, within = (PLANTED | ALONE)[name]
    clock = "mean_ms" if name in PLANTED else "alone_ms"
    measured = 1 - TRUTH[name]["b"][clock] / TRUTH[name]["a"][clock]
    assert next(iter(found)) == key, "the first one in TRY"
    assert found[key] == pytest.approx(measured, rel=within)


@pytest.mark.parametrize("name", cases({**PLANTED, **ALONE}, push=("recsys",), quick=("recsys",)))
def test_a_cured_program_has_the_cause_no_more(name: str) -> None:
    assert (PLANTED | ALONE)[name][0] not in list_found(summarize(name, "b"))


@pytest.mark.parametrize("name", cases(("heat", "nbody", "solver"), push=("solver",), quick=("solver",)))
def test_kernels_of_no_known_class_have_their_own_names(name: str) -> None:
    """`Other` is no place, and the kernel with most time in plain SQL is in its stead; numba's tag is not shown."""
    summary = summarize(name, "b")
    with closing(sqlite3.connect(find_report(name, "b"))) as report:
        rows = report.execute(
            """SELECT value, sum("end" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = shortName
            GROUP BY value ORDER BY 2 DESC"""
        ).fetchall()
    times: dict[str, int] = defaultdict(int)
    for text, ns in rows:
        times[text.partition("[abi:")[0]] += ns
    assert {kernel.name for kernel in summary.kernels} <= set(times)
    assert summary.verdict is not None
    largest = next(iter(times))
    assert max(summary.kernels, key=lambda kernel: kernel.total_ns).name == largest
    assert "Other" not in [place.name for place in summary.verdict.where]
    if summary.verdict.bottleneck == "compute-bound":
        assert summary.verdict.where[0].kind == "kernel" and summary.verdict.where[0].name == largest
        assert summary.verdict.gains[0].change == f"kernel '{largest}' * 0.5"
