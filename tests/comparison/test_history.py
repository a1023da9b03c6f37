"""Histories of saved summaries: what the baseline is, and which changes and drifts are found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nsys2prv_ng
from nsys2prv_ng.comparison.evidence import Shares
from nsys2prv_ng.comparison.gate import judge_runs
from nsys2prv_ng.comparison.history import divide
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.summary.job import JobFacts, JobSummary
from tests.comparison.made import GPUS, MS, make_summary

DAY = 86_400 * 10**9


def capture(level: float, number: int, **facts: Any) -> JobSummary:
    """Return a GPU-bound capture with steps of about `level` ms, of the day of its number."""
    random = np.random.default_rng(number)
    middle = level * (1 + random.normal(0, 0.006))
    known: dict[str, Any] = {
        "nsys_versions": [], "schema_versions": [], "programs": ["train"], "sources": {}, "graphs": [],
        "lost_data_messages": 0, "lacks_ranks": False, "captures": [f"{number:016x}"], "begin_utc_ns": number * DAY,
    }  # fmt: skip
    steps = [{"compute_ns": round((middle + random.normal(0, 0.2)) * MS) * GPUS} for _ in range(8)]
    return make_summary(steps, facts=JobFacts(**known | facts))


def save(folder: Path, levels: list[float], first: int = 1) -> None:
    for number, level in enumerate(levels, first):
        capture(level, number).save(folder)


def test_series_without_changes_are_rarely_divided() -> None:
    """FALSE_ALARM: at most one of a hundred series, of GPU-bound and of host-bound captures."""
    random = np.random.default_rng(0)
    for host in (0.0, 0.9):
        spread = float(np.sqrt(0.01**2 + 0.1**2 * host))
        divided = [len(divide(random.normal(0, spread, 20).tolist(), Shares(host, 0.0, 0.0))) > 1 for _ in range(2000)]
        assert sum(divided) / len(divided) <= 0.01


@pytest.mark.parametrize(("rise", "length"), [(0.05, 1), (0.01, 10), (0.02, 5)])
def test_jumps_and_drifts_are_found(tmp_path: Path, rise: float, length: int) -> None:
    """A program that gets slower at once, or by a little with each of ten commits: the gate fails when it adds up."""
    levels = [100.0] * 12 + [100 * (1 + rise) ** min(n, length) for n in range(1, 10)]
    save(tmp_path, levels)
    new = capture(levels[-1], 99)
    comparison = nsys2prv_ng.compare(new, against=tmp_path)
    assert comparison.history is not None
    assert any(10 <= where <= 12 + length for where in comparison.history.changes)
    total = (1 + rise) ** length - 1
    drift = comparison.history.drift
    assert drift is not None and 0 < drift.low < total
    codes = {ruling.code for ruling in judge_runs(comparison, total / 2)}
    assert 3 in codes


def test_a_slower_program_is_the_usual_one_in_time(tmp_path: Path) -> None:
    """After ten further captures, the gate no longer fails for an old slowdown."""
    save(tmp_path, [100.0] * 8 + [120.0] * 11)
    comparison = nsys2prv_ng.compare(capture(120.0, 99), against=tmp_path)
    assert [ruling.code for ruling in judge_runs(comparison, 0.05)] == [0]
    assert comparison.history is not None and comparison.history.changes == [8]
    assert comparison.history.baseline == 9  # the last ten of nineteen
    assert comparison.pairs[0].a.label == "history" and len(comparison.pairs[0].a.captures) == 10


def test_the_commit_that_mends_a_slowdown_passes(tmp_path: Path) -> None:
    save(tmp_path, [100.0] * 5 + [120.0] * 5)
    (tmp_path / "cut.json").write_text("{")  # a damaged file is none of them
    comparison = nsys2prv_ng.compare(capture(100.0, 99), against=tmp_path)
    assert [ruling.code for ruling in judge_runs(comparison, 0.05)] == [0]
    assert comparison.history is not None and comparison.history.unlike == 1


def test_only_captures_of_the_same_program_size_and_machine_count(tmp_path: Path) -> None:
    save(tmp_path, [100.0, 101.0])
    capture(50.0, 3, programs=["other"]).save(tmp_path)
    capture(50.0, 4, cpus=["faster, 64 cores"]).save(tmp_path)
    replace(capture(50.0, 5), steps=None).save(tmp_path)
    capture(102.0, 6).save(tmp_path)
    new = capture(102.0, 6)  # of the same capture as the last one, which does not count
    history = nsys2prv_ng.compare(new, against=tmp_path).history
    assert history is not None
    assert (len(history.captures), history.new, history.unlike) == (3, 1, 3)
    with pytest.raises(UsageError, match="its captures differ in CPU model, program, steps; save one of this"):
        nsys2prv_ng.compare(capture(1.0, 9, programs=["third"]), against=tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match="it has no earlier capture; save one of this"):
        nsys2prv_ng.compare(new, against=empty)


def test_names_of_saved_captures_are_times(tmp_path: Path) -> None:
    capture(100.0, 20_000).save(tmp_path)
    capture(100.0, 20_000).save(tmp_path)  # the same capture is one file
    assert [path.name for path in tmp_path.iterdir()] == ["2024-10-04T000000-0000000000004e20.json"]


def test_one_run_is_compared_with_a_history(tmp_path: Path) -> None:
    save(tmp_path, [100.0])
    with pytest.raises(UsageError, match="compares one run with a history"):
        nsys2prv_ng.compare(capture(1.0, 7), capture(1.0, 8), against=tmp_path)
    several = nsys2prv_ng.compare([[capture(101.0, 7), capture(101.0, 8)]], against=tmp_path)
    assert several.history is not None and several.history.new == 2
