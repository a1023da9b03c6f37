"""Reports that were read into a folder give the same trace and numbers as the reports themselves."""

from __future__ import annotations

import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng.errors import ReportError, TranslationError, UsageError
from nsys2prv_ng.reading import shards
from nsys2prv_ng.reading.shards import WhatToRead, load_shards, write_shard
from nsys2prv_ng.report.files import get_report_size
from nsys2prv_ng.sources.registry import DERIVED, SOURCES
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from tests.conftest import SAMPLES
from tests.tiers import cases

EVERYTHING = WhatToRead(tuple(source.name for source in SOURCES + DERIVED), SourceOptions(), True)
DDP = sorted(SAMPLES.glob("ddp-2x2.*.sqlite"))
GRAPH = SAMPLES / "single-graph.sqlite"


def read_trace(path: Path) -> list[bytes]:
    return [path.with_suffix(f".{suffix}").read_bytes() for suffix in ("prv", "pcf", "row")]


def test_a_report_is_read_once(tmp_path, monkeypatch):
    ticks: list[int] = []
    first = write_shard(GRAPH, tmp_path, EVERYTHING, ticks.append)
    assert sum(ticks) == len(EVERYTHING.sources)
    monkeypatch.setattr(shards, "read_report", lambda *_: pytest.fail("read again"))
    assert write_shard(GRAPH, tmp_path, EVERYTHING, ticks.append) == first
    assert sum(ticks) == 2 * len(EVERYTHING.sources)


def test_another_content_or_choice_is_another_shard(tmp_path):
    report = shutil.copyfile(GRAPH, tmp_path / "a.sqlite")
    folder = tmp_path / "parts"
    folder.mkdir()
    few = replace(EVERYTHING, sources=("kernels",))
    first = write_shard(report, folder, few)
    assert write_shard(report, folder, replace(few, sources=("nvtx",))) != first
    os.utime(report, ns=(0, 5))
    assert write_shard(report, folder, few) != first
    assert get_report_size(report) == get_report_size(GRAPH)


def test_reports_that_agree_in_name_size_and_time(tmp_path):
    """As those of ranks that have folders of their own, out of an archive that keeps seconds."""
    few = replace(EVERYTHING, sources=("kernels",))
    folder = tmp_path / "parts"
    folder.mkdir()
    made = []
    for rank in (1, 3):
        (tmp_path / f"rank{rank}").mkdir()
        report = shutil.copyfile(DDP[rank], tmp_path / f"rank{rank}" / "report.sqlite")
        os.utime(report, ns=(0, 10**18))
        made.append(write_shard(report, folder, few))
    assert DDP[1].stat().st_size == DDP[3].stat().st_size
    assert len({shard.report.path for shard in load_shards(made)}) == 2


def test_a_report_never_counts_twice(tmp_path):
    folder = tmp_path / "parts"
    report = shutil.copyfile(DDP[0], tmp_path / "a.sqlite")
    nsys2prv_ng.shard(report, folder, sources=["kernels"], derived=False)
    shutil.copyfile(DDP[1], report)  # the program ran once more
    (made,) = nsys2prv_ng.shard(report, folder, sources=["kernels"], derived=False)
    with pytest.raises(TranslationError, match=f"holds the same report as {made.name}: remove the older one"):
        nsys2prv_ng.translate(folder, tmp_path / "a.prv")
    with pytest.raises(UsageError, match="given twice"):
        nsys2prv_ng.shard([report, tmp_path / "b" / ".." / "a.sqlite"], folder)


@pytest.mark.parametrize("damage", ["cut manifest", "cut columns", "lost columns"])
def test_a_damaged_shard_is_read_again(tmp_path, damage):
    few = replace(EVERYTHING, sources=("kernels",))
    manifest = write_shard(GRAPH, tmp_path, few)
    (columns,) = tmp_path.glob("*.columns")
    before = columns.read_bytes()
    if damage == "lost columns":
        columns.unlink()
    else:
        path = manifest if damage == "cut manifest" else columns
        path.write_bytes(path.read_bytes()[:-100])
    assert write_shard(GRAPH, tmp_path, few) == manifest
    report = load_shards([manifest])[0]
    assert (tmp_path / report.columns).read_bytes() == before


def test_a_folder_takes_reports_that_are_read_alike(tmp_path):
    nsys2prv_ng.shard(GRAPH, tmp_path, sources=["kernels"])
    with pytest.raises(UsageError, match="read with other options; choose another folder"):
        nsys2prv_ng.shard(DDP[0], tmp_path)
    assert len(list(tmp_path.glob("*.shard"))) == 1


def test_options_of_what_was_read_are_refused(tmp_path):
    nsys2prv_ng.shard(GRAPH, tmp_path / "parts", sources=["kernels"])
    for name, value in {"sources": ["nvtx"], "osrt_min": 0, "derived": False, "stack_depth": 3}.items():
        with pytest.raises(UsageError, match=f"^{name}.*give that command this option"):
            nsys2prv_ng.translate(tmp_path / "parts", tmp_path / "a.prv", **{name: value})


def test_an_error_leaves_nothing(tmp_path):
    (tmp_path / "broken.sqlite").write_bytes(b"SQLite format 3\0" + bytes(100))
    folder = tmp_path / "parts"
    folder.mkdir()
    with pytest.raises(ReportError):
        write_shard(tmp_path / "broken.sqlite", folder, EVERYTHING)
    assert not list(folder.iterdir())


def test_shards_that_were_read_differently(tmp_path):
    made = [
        write_shard(DDP[0], tmp_path, replace(EVERYTHING, sources=("kernels",))),
        write_shard(DDP[1], tmp_path, replace(EVERYTHING, sources=("nvtx",))),
    ]
    with pytest.raises(TranslationError, match="other options"):
        load_shards(made)


def test_a_folder_of_shards_stands_for_all_reports(tmp_path):
    write_shard(GRAPH, tmp_path, replace(EVERYTHING, sources=("kernels",)))
    with pytest.raises(UsageError, match="name nothing beside it"):
        nsys2prv_ng.translate([tmp_path, DDP[0]], tmp_path / "a.prv")
    with pytest.raises(UsageError, match="nvtx_range"):
        nsys2prv_ng.translate([tmp_path], tmp_path / "a.prv", nvtx_range="x")


@pytest.fixture(scope="module", params=cases(["mpi-4", "ddp-2x2"], push=1))
def job_and_parts(request, tmp_path_factory):
    """The reports of a job, and the folder with their shards."""
    reports, parts = sorted(SAMPLES.glob(f"{request.param}.*.sqlite")), tmp_path_factory.mktemp("job") / "parts"
    assert len(nsys2prv_ng.shard(reports[:1], parts)) == 1  # as each node does it
    made = nsys2prv_ng.shard(reports[::-1], parts, jobs=2)
    assert sorted(path.name for path in parts.glob("*.shard")) == sorted(path.name for path in made)
    return reports, parts


CHOICES = {
    "time and ranks": {"time": (200_000_000, 600_000_000), "ranks": [1, 2]},
    "time": {"time": (200_000_000, 600_000_000)},
    "ranks": {"ranks": [1]},
    "all": {},
    "utc": {"align": "utc"},
}


@pytest.mark.slow
@pytest.mark.parametrize("chosen", cases(CHOICES, push=1))
def test_the_same_trace_and_summary(tmp_path, job_and_parts, chosen):
    reports, parts = job_and_parts
    expected = nsys2prv_ng.translate(reports, tmp_path / "a.prv", summary=True, **CHOICES[chosen])
    before = read_trace(tmp_path / "a.prv")
    found = nsys2prv_ng.translate(parts, tmp_path / "a.prv", summary=True, force=True, **CHOICES[chosen])
    assert read_trace(tmp_path / "a.prv") == before
    assert replace(found, seconds=expected.seconds) == expected
    assert len(list(parts.iterdir())) == 2 * len(reports), "the folder stays as it was"


@pytest.mark.slow
def test_the_same_summary(job_and_parts):
    reports, parts = job_and_parts
    assert nsys2prv_ng.summarize(parts).to_dict() == nsys2prv_ng.summarize(reports).to_dict()
    assert len(list(parts.iterdir())) == 2 * len(reports), "the folder stays as it was"


def test_a_run_that_starts_as_another_ends_keeps_its_columns(tmp_path, monkeypatch):
    """The other run has closed its columns, and its manifest is not there yet."""
    write, others = shards.write_kept, []

    def write_late(*arguments):
        written = set(tmp_path.glob("*.columns"))
        other = threading.Thread(target=lambda: write_shard(GRAPH, tmp_path, EVERYTHING))
        others.append(other)
        monkeypatch.setattr(shards, "write_kept", write)
        other.start()
        other.join(0.5)
        assert written and written <= set(tmp_path.glob("*.columns"))
        write(*arguments)

    monkeypatch.setattr(shards, "write_kept", write_late)
    manifest = write_shard(GRAPH, tmp_path, EVERYTHING)
    others[0].join()
    (shard,) = load_shards([manifest])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([manifest.name, shard.columns])
