"""NVTX ranges of a small report: their columns, domains, numbers and depths, and which of them repeat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.reading.opened_events import (
    ABSENT,
    NvtxRanges,
    RangeKey,
    is_program_domain,
    load_nvtx_ranges,
    load_repeated_ranges,
)
from tests.analysis.efficiency.efficiency_reports import opened
from tests.analysis.path.path_reports import Capture

START_END = 60


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """One report: steps with parts and parts of parts, start/end ranges across them, and a call of NCCL."""
    capture = Capture()
    for step in range(3):
        begin = 1_000 * (step + 1)
        capture.range(f"step {step}", begin, begin + 900)
        capture.range("part", begin + 100, begin + 800)
        capture.range("deep", begin + 200, begin + 700)
        capture.range("across", begin + 500, begin + 1_200, kind=START_END)
    capture.range("part", 10_000, 10_100, thread=1)
    capture.range("once", 11_000, 11_100)
    capture.nccl_call(12_000, 12_100)
    with opened([capture.write(tmp_path / "a.sqlite")]) as job:
        yield job


def select(ranges: NvtxRanges, name: str) -> NvtxRanges:
    """Return the ranges of the default domain with a name."""
    return ranges.select(ranges.key == ranges.keys.index(("", name)))


def list_keys(ranges: NvtxRanges) -> list[RangeKey]:
    return [ranges.keys[key] for key in ranges.key.tolist()]


def test_push_pop_ranges_of_all_domains(job: Job) -> None:
    ranges = load_nvtx_ranges(job.reports[0], job.store)
    assert ranges.is_push_pop.all()
    assert set(ranges.keys) >= {("", "step"), ("", "part"), ("NCCL", "ncclAllReduce")}
    assert ("", "across") not in ranges.keys
    steps = select(ranges, "step")
    assert np.diff(steps.begin).tolist() == [1_000, 1_000] and (steps.end - steps.begin).tolist() == [900] * 3
    assert steps.number.tolist() == [0, 1, 2]
    parts = select(ranges, "part")
    assert len(set(parts.place.tolist())) == 2 and set(parts.number.tolist()) == {ABSENT}


def test_depths_of_ranges_of_the_program(job: Job) -> None:
    ranges = load_nvtx_ranges(job.reports[0], job.store, is_program_domain, with_start_end=True)
    assert {domain for domain, _ in ranges.keys} == {""}
    found = set(zip((name for _, name in list_keys(ranges)), ranges.measure_depths().tolist(), strict=True))
    assert found == {("step", 1), ("part", 1), ("part", 2), ("deep", 3), ("across", 1), ("once", 1)}


def test_ranges_that_repeat(job: Job) -> None:
    """A part of a part is too deep; what a thread opens once does not repeat, even if another thread opens it too."""
    ranges, depth = load_repeated_ranges(job.reports[0], job.store, [])
    counted = [(name, level) for (_, name), level in zip(list_keys(ranges), depth.tolist(), strict=True)]
    assert sorted(counted) == [("across", 1)] * 3 + [("part", 2)] * 3 + [("step", 1)] * 3


def test_ranges_that_a_window_cuts_do_not_count(job: Job) -> None:
    """Two whole steps are left, which are too few."""
    last = int(select(load_nvtx_ranges(job.reports[0], job.store), "step").end.max())
    ranges, _ = load_repeated_ranges(job.reports[0], job.store, [(0, last)])
    assert {name for _, name in list_keys(ranges)} == {"part", "across"}
