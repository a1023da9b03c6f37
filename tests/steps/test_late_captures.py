"""Ranks whose captures begin and end within different steps, cut out of a sample: the steps that all ranks have."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import nsys2prv_ng
from tests.job.test_captures_in_turn import capture
from tests.report_truth import Report


def find_middle(report: Path, step: int) -> int:
    """Return the time within a step of a report."""
    return Report(report).value(f"SELECT (start + end) / 2 FROM NVTX_EVENTS WHERE text = 'step {step}'")


def cut(report: Path, copy: Path, first: int | None, last: int | None, *, is_marked: bool) -> Path:
    """Write a report as if its capture began within a step, and ended within another one."""
    end = Report(report).value("SELECT duration FROM ANALYSIS_DETAILS") if last is None else find_middle(report, last)
    begin = 0 if first is None else find_middle(report, first)
    capture(report, copy, begin, end)
    with closing(sqlite3.connect(copy)) as database, database:
        database.execute(f'UPDATE NVTX_EVENTS SET "end" = NULL WHERE "end" > {end - begin}')
        if not is_marked:
            database.execute("DELETE FROM NVTX_EVENTS WHERE text LIKE 'step %'")
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("is_marked", [True, False])
@pytest.mark.parametrize(
    "limits",
    [
        [(None, None), (0, None), (None, None), (1, None)],
        [(None, None), (None, None), (None, 5), (None, 4)],
        [(0, None), (None, 5), (None, None), (None, None)],
    ],
)
def test_the_steps_that_all_ranks_have(samples, tmp_path, limits, is_marked):
    """They last as long as in the sample. Those that kernels show nearly do, and may include a part of a step."""
    reports = sorted(samples.glob("ddp-2x2.*.sqlite"))
    cuts = [
        cut(report, tmp_path / report.name, *of_rank, is_marked=is_marked)
        for report, of_rank in zip(reports, limits, strict=True)
    ]
    first = max(0 if begin is None else begin + 1 for begin, _ in limits)
    last = min(5 if end is None else end - 1 for _, end in limits)
    expected = nsys2prv_ng.summarize(reports, steps=(first + 1, last)).steps  # the first one warms up
    got = nsys2prv_ng.summarize(cuts).steps
    if is_marked:
        assert (got.name, got.first, got.last) == ("step", first + 1, last)
        assert got.median_ns == expected.median_ns
    else:
        assert got.delimiter and got.count in (last - first, last - first + 1)
        assert got.median_ns == pytest.approx(expected.median_ns, rel=0.05)
