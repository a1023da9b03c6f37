"""The predicted trace is sound, whatever moves before its first report event."""

from __future__ import annotations

from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng.paraver.checker.trace import check_trace
from tests.conftest import SAMPLES

DDP = sorted(SAMPLES.glob("ddp-2x2*.sqlite"))


@pytest.mark.parametrize("count", [2, 4])
def test_no_joined_record_lies_outside_the_trace(tmp_path: Path, count: int) -> None:
    """Levels of memory are made of all reports, and move with their GPU: before everything else, if ranges vanish."""
    output = tmp_path / "predicted.prv"
    nsys2prv_ng.what_if(DDP[:count], output=output, change=["range '*' = 0"], jobs=1)
    assert check_trace(output).problems == []
    end = int(output.read_text().partition(":")[2].partition("_ns")[0].rpartition(":")[2])
    assert end > 0
