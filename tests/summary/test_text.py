"""The text of an overview: units, widths, many GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nsys2prv_ng.summary.model import JobSummary
from nsys2prv_ng.summary.text import format_tables
from nsys2prv_ng.text.formatting import format_time
from tests.summary.made import overview_of


@pytest.fixture(scope="module")
def found(samples: Path) -> JobSummary:
    return overview_of(sorted(samples.glob("ddp-2x2.rank*.sqlite")))


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_wider(found: JobSummary, width: int) -> None:
    long = "x" * 300
    kernels = [replace(kernel, name=f"{kernel.name}\n{long}") for kernel in found.kernels]
    ranges = [replace(each, name=long) for each in found.ranges]
    gpus = [replace(gpu, node=f"a-node-with-a-rather-long-name{i}") for i, gpu in enumerate(found.gpus)]
    for each in (found, replace(found, kernels=kernels, ranges=ranges, gpus=gpus)):
        assert max(map(len, format_tables(each, width).splitlines())) <= width


@pytest.mark.slow
def test_of_many_gpus_the_most_idle_are_shown(found: JobSummary) -> None:
    one = found.gpus[0]
    gpus = [replace(one, gpu=n, busy_ns=one.span_ns - n * 1000, idle_ns=n * 1000) for n in range(40)]
    shown = format_tables(replace(found, gpus=gpus, waits=None)).split("\n\n")[1].splitlines()
    assert [line.split()[2] for line in shown if line.startswith("gpunode")] == [str(n) for n in range(24, 40)]
    assert shown[-1] == "  and 24 more that are less idle (the JSON has all)"
    whole = sum(gpu.idle_ns for gpu in gpus)
    assert shown[-3].split()[-2:] == format_time(whole).split()


def test_ranks_are_shown_as_spans(found: JobSummary) -> None:
    shown = format_tables(replace(found, gpus=[replace(found.gpus[0], ranks=[0, 1, 2, 5, 7, 8])]))
    assert "\n  ranks 0-2,5,7-8, NVIDIA H200 " in shown
