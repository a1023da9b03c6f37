"""How reports are read on this machine: how many processes share the large ones, and what memory that takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.reading import open_reports
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.reading.read_report import Helpers
from nsys2prv_ng.runtime import limits
from nsys2prv_ng.runtime.limits import Resources
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.registry import APART
from tests.conftest import SAMPLES


class Warnings(Progress):
    def __init__(self) -> None:
        self.said: list[str] = []

    def warn(self, message: str) -> None:
        self.said.append(message)


def read(folder: Path, jobs: int, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[str]]:
    """Read the reports of ddp-2x2 as if they had some sizes; return the helpers of each reader, and the warnings."""
    counts = []

    def make_helpers(processes: int, started: object) -> Helpers:
        counts.append(processes)
        return Helpers(0, lambda _: None)

    monkeypatch.setattr(open_reports, "Helpers", make_helpers)
    monkeypatch.setattr(open_reports, "get_export_size", lambda path: sizes.get(path.name.split(".")[1], 1000))
    progress = Warnings()
    options = ReadOptions(resources=Resources(jobs, 1 << 40))
    with open_job(sorted(SAMPLES.glob("ddp-2x2.*.sqlite")), folder, options, progress) as job:
        assert len(job.reports) == 4
    return counts[0], progress.said


@pytest.mark.parametrize(
    ("jobs", "large", "helpers"),
    [
        (1, ("rank0",), 0),
        (2, ("rank0",), 1),
        (3, ("rank0",), len(APART)),
        (2, ("rank0", "rank2"), 0),
        (4, ("rank0", "rank2"), 1),
        (4, ("rank0", "rank1", "rank2", "rank3"), 0),
        (8, ("rank0", "rank1", "rank2", "rank3"), 1),
    ],
)
def test_large_reports_get_the_cores_that_small_ones_leave(
    jobs: int, large: tuple[str, ...], helpers: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert read(tmp_path, jobs, dict.fromkeys(large, 200 << 20), monkeypatch)[0] == helpers


def test_a_report_that_cannot_fit_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sizes = {"rank2": (1 << 40) + limits.BESIDE_READING}
    assert read(tmp_path, 1, sizes, monkeypatch)[1] == []
    (warning,) = read(tmp_path, 1, {"rank2": sizes["rank2"] + 1}, monkeypatch)[1]
    assert "ddp-2x2.rank2.sqlite" in warning
    assert "whatever the limit" in warning
