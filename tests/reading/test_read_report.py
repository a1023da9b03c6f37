"""A report that several processes read is the report that one reads: the same ids, records, counts and warnings."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nsys2prv_ng
from nsys2prv_ng.errors import ReportError, TranslationError
from nsys2prv_ng.reading import open_reports, read_report
from nsys2prv_ng.reading.read_report import Helpers
from nsys2prv_ng.reading.read_reports import ReadReport, load_states
from nsys2prv_ng.records.runs import load_records
from nsys2prv_ng.records.store import LocalStore
from nsys2prv_ng.sources.registry import APART, DERIVED, SOURCES, WITH_EVIDENCE
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from tests.conftest import SAMPLES
from tests.report.table_folders import KINDS, folder_of
from tests.tiers import cases

NAMES = ["ddp-2x2.rank1", "mpi-4.rank0", "single-graph"]


def describe(report: ReadReport, store: LocalStore) -> list[Any]:
    """Everything that was read."""
    places, labels = report.places, report.labels
    found: list[Any] = [vars(places), labels.types, labels.names, labels.unused, report.metadata.warnings]
    for name, result in report.results.items():
        counts = result.read, result.dropped, result.closed, result.written, result.accounted
        found += [name, counts, [list(map(np.ndarray.tolist, load_records(run, store).columns)) for run in result.runs]]
        found += [
            [each.tolist() if isinstance(each, np.ndarray) else each for each in run.facts] for run in result.runs
        ]
        found += [
            [
                u.place.tolist(),
                u.begin.tolist(),
                u.closing,
                [[np.array(v).tolist() for v in pair] for pair in u.opening],
            ]
            for u in result.unended
        ]
    found += [column.tolist() for column in load_states(report.states, len(places.all), store)]
    return found


def read(path: Path, folder: Path, processes: int) -> list[Any]:
    options = SourceOptions(osrt_min=0)
    with LocalStore(folder, 10**9) as store, store.lend_shelves(2) as take_shelf:
        helpers = Helpers(processes, take_shelf)
        ticks: list[int] = []
        sources = SOURCES + DERIVED
        report = read_report.read_report(path, sources, options, store, ticks.append, WITH_EVIDENCE, helpers)
        assert sum(ticks) == len(sources)
        shelves = {run.slot.shelf for result in report.results.values() for run in result.runs}
        assert len(shelves) == 1 + processes or not all(report.results[group[0]].runs for group in APART)
        return describe(report, store)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("name", cases(NAMES, quick=1))
def test_the_same_ids_and_records(tmp_path: Path, name: str, processes: int) -> None:
    assert read(SAMPLES / f"{name}.sqlite", tmp_path, processes) == read(SAMPLES / f"{name}.sqlite", tmp_path, 0)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("kind", cases(KINDS, quick=1))
def test_folders_of_tables(tmp_path: Path, kind: str) -> None:
    """pyarrow, which reads them, has threads of its own, also in the process that starts others."""
    report = folder_of(SAMPLES / "ddp-2x2.rank0.sqlite", tmp_path, kind)
    expected = read(report, tmp_path, 0)
    for _ in range(3):
        assert read(report, tmp_path, 2) == expected


def test_sources_that_are_read_apart_are_in_one_group() -> None:
    names = [name for group in APART for name in group]
    assert len(set(names)) == len(names) and set(names) < {source.name for source in SOURCES}


def translate(reports: list[Path], path: Path, jobs: int, **options: Any) -> list[bytes]:
    nsys2prv_ng.translate(reports, path, force=True, jobs=jobs, **options)
    return [file.read_bytes() for file in sorted(path.parent.glob("a.*"))]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"memory": 1}, {"osrt_min": 0, "sources": "os_runtime,gpu_metrics,kernels"}])
@pytest.mark.parametrize("count", [1, 2])
def test_the_same_bytes_of_few_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, options: dict[str, Any]
) -> None:
    """Also where each of two reports is read by several processes."""
    reports = sorted(SAMPLES.glob("ddp-2x2.*.sqlite"))[:count]
    expected = translate(reports, tmp_path / "a.prv", 1, **options)
    monkeypatch.setattr(open_reports, "_LARGE", 0)
    for jobs in (2, 3, 8):
        assert translate(reports, tmp_path / "a.prv", jobs, **options) == expected


@pytest.mark.slow
@pytest.mark.parametrize("is_repeated", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_a_helper_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, is_repeated: bool
) -> None:
    """Another does its work, once; nobody is left behind."""
    reports = sorted(SAMPLES.glob("ddp-2x2.*.sqlite"))[:count]
    expected = translate(reports, tmp_path / "a.prv", 1)
    monkeypatch.setattr(open_reports, "_LARGE", 0)
    real, killed = read_report._read_apart, multiprocessing.get_context("fork").Value("i", 0)

    def die(*arguments: Any) -> Any:
        part = real(*arguments)
        with killed:
            killed.value += 1
            is_turn = is_repeated or killed.value == 1
        if is_turn:
            os.kill(os.getpid(), signal.SIGKILL)
        return part

    monkeypatch.setattr(read_report, "_read_apart", die)
    if is_repeated:
        with pytest.raises(TranslationError, match="lack of memory"):
            translate(reports, tmp_path / "a.prv", 4)
    else:
        assert translate(reports, tmp_path / "a.prv", 4) == expected
    assert killed.value >= 2 and not multiprocessing.active_children()


@pytest.mark.parametrize("function", ["_read_apart", "_read_sources"])
def test_an_error_of_either_is_raised_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    def refuse(*_: Any) -> None:
        raise ReportError("damaged")

    monkeypatch.setattr(read_report, function, refuse)
    with pytest.raises(ReportError, match="damaged"):
        read(SAMPLES / f"{NAMES[0]}.sqlite", tmp_path, 2)
    assert not multiprocessing.active_children()
