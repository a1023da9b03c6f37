"""A summary that is saved and loaded again."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path

import pytest

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.text import format_summary
from tests.summary.made import summarize_reports


@pytest.fixture(scope="module")
def summary(samples: Path) -> JobSummary:
    return summarize_reports(sorted(samples.glob("ddp-2x2.rank*.sqlite")))


@pytest.mark.slow
def test_a_saved_summary_is_the_same_when_loaded(summary: JobSummary, tmp_path: Path) -> None:
    summary.save(tmp_path / "job.json")
    assert JobSummary.load(tmp_path / "job.json") == summary
    assert json.loads((tmp_path / "job.json").read_text()) == json.loads(json.dumps(summary.to_dict()))


@pytest.mark.slow
def test_a_dict_that_was_not_saved(summary: JobSummary) -> None:
    """asdict keeps tuples, JSON makes lists of them."""
    windows = replace(summary, windows_ns=[(0, 5), (7, 9)])
    assert JobSummary.from_dict(windows.to_dict()) == windows


@pytest.mark.slow
def test_keys_of_later_versions_are_ignored(summary: JobSummary) -> None:
    assert JobSummary.from_dict(json.loads(json.dumps(summary.to_dict())) | {"from the future": 1}) == summary


@pytest.mark.slow
def test_version_2_is_read_without_the_keys_that_went(summary: JobSummary) -> None:
    text = json.dumps(summary.to_dict())
    saved = json.loads(text.replace('"length_ns":', '"window_ns":'))
    assert saved["version"] == 3 and text.count('"length_ns":') > 10
    nodes = [{**node, "activity": None} for node in saved["range_tree"]]
    assert JobSummary.from_dict({**saved, "version": 2, "activity": [{"ns": 1}], "range_tree": nodes}) == summary


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("kernels", 0, "count"), 0),
        (("ranges", 0, "tasks", 0, "count"), 0),
        (("memory_operations", 0, "by_memory", 0, "count"), -1),
        (("waits", "bandwidth", 0, "count"), 0),
        (("calls", 0, "count"), 0),
    ],
)
def test_rows_that_count_nothing_are_refused(summary: JobSummary, path: tuple[str | int, ...], value: int) -> None:
    fields = json.loads(json.dumps(summary.to_dict()))
    reduce(getitem, path[:-1], fields)[path[-1]] = value
    with pytest.raises(ValueError, match="counts nothing"):
        JobSummary.from_dict(fields)


@pytest.mark.slow
def test_an_unknown_cause_of_a_gap_has_its_own_name(summary: JobSummary) -> None:
    fields = json.loads(json.dumps(summary.to_dict()))
    fields["gpus"][0]["idle_causes"][0]["cause"] = "from\nthe future"
    assert "from the future" in format_summary(JobSummary.from_dict(fields), 100, details=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("version", 1),
        ("reports", "4"),
        ("reports", True),
        ("reports", None),
        ("duration_ns", 2**70),
        ("gpus", {}),
        ("gpus", [{"node": "a"}]),
        ("windows_ns", [[1]]),
        ("warnings", [1]),
    ],
)
def test_other_content_is_refused(summary: JobSummary, tmp_path: Path, key: str, value: object) -> None:
    fields = json.loads(json.dumps(summary.to_dict())) | {key: value}
    with pytest.raises(ValueError):
        JobSummary.from_dict(fields)
    path = tmp_path / "job.json"
    path.write_text(json.dumps(fields))
    with pytest.raises(TranslationError, match="not a summary"):
        JobSummary.load(path)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_are_not_finite_are_refused(summary: JobSummary, value: float) -> None:
    """JSON has no such numbers, and a comparison with them could not be written."""
    fields = json.loads(json.dumps(summary.to_dict()))
    fields["efficiency"]["nccl_as_communication"]["host"]["mpi_load_balance"] = value
    with pytest.raises(ValueError, match="mpi_load_balance is not finite"):
        JobSummary.from_dict(json.loads(json.dumps(fields)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["critical_path.parts", "critical_path.parts.0.ranks", "critical_path.steps", "ranges.0.tasks"]
)
def test_empty_lists_are_no_error(summary: JobSummary, path: str) -> None:
    """Another program may have written them: everything else is shown."""
    fields = json.loads(json.dumps(summary.to_dict()))
    *before, last = [int(key) if key.isdecimal() else key for key in path.split(".")]
    reduce(getitem, before, fields)[last] = []
    assert "critical path" in format_summary(JobSummary.from_dict(fields), details=True)


def test_its_representation_is_short(summary: JobSummary) -> None:
    assert re.fullmatch(r"<JobSummary of 4 reports, 4 ranks, 4 GPUs, [0-9.]+ m?s>", repr(summary))


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"[" * 100_000, b'{"version": 2}'])
def test_files_that_are_no_summaries_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "job.json"
    path.write_bytes(content)
    with pytest.raises(TranslationError, match=r"job\.json: not a summary.*summary --json"):
        JobSummary.load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TranslationError, match=r"none\.json: cannot be read: No such file"):
        JobSummary.load(tmp_path / "none.json")
