"""Means of GPU metrics in a summary."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.summary.gpus.numbers import GpuMetricNumbers
from tests.analysis.gpus.test_metrics import make_report
from tests.summary.made import summarize_reports


def test_numbers_of_metrics(tmp_path: Path) -> None:
    samples = [(t, 1, m, v) for t, m, v in ((0, 0, 10), (0, 2, 1_410_000_000), (30, 0, 50), (40, 2, 705_000_000))]
    numbers = summarize_reports([make_report(tmp_path / "a.sqlite", samples)])
    assert numbers.gpu_metrics == [
        GpuMetricNumbers(node="host", gpu=1, ranks=[], metric="A", unit="%", mean=20.0, min=10.0, max=50.0, samples=2),
        GpuMetricNumbers(
            node="host", gpu=1, ranks=[], metric="Clock", unit="MHz", mean=1410.0, min=705.0, max=1410.0, samples=2
        ),
    ]


@pytest.mark.slow
def test_ranks_that_used_the_gpu(samples: Path) -> None:
    numbers = summarize_reports(sorted(samples.glob("ddp-2x2.rank*.sqlite")))
    gpus = {(gpu.node, gpu.gpu): gpu.ranks for gpu in numbers.gpus}
    assert {(row.node, row.gpu): row.ranks for row in numbers.gpu_metrics} == gpus
    assert sorted(gpus.values()) == [[0], [1], [2], [3]]
