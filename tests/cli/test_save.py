"""The option --save of summary: the JSON in a file, whole or not at all, beside the text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng import UsageError
from tests.cli.program_runs import run
from tests.cli.test_program import assert_one_line
from tests.conftest import SAMPLES

SAMPLE = SAMPLES / "single-graph.sqlite"


def test_the_file_has_what_json_prints_and_the_text_stays(tmp_path: Path) -> None:
    saved = run("summary", SAMPLE, "-q", "--save", tmp_path / "summary.json")
    text, printed = run("summary", SAMPLE, "-q"), run("summary", SAMPLE, "-q", "--json")
    assert (saved.returncode, saved.stdout) == (0, text.stdout)
    assert (tmp_path / "summary.json").read_text() == printed.stdout
    assert json.loads(printed.stdout)["tasks"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


@pytest.mark.parametrize("name", ["single.sqlite", "missing/job.json", "folder.json", ""])
def test_a_file_that_cannot_be_is_refused_before_reading(tmp_path: Path, name: str) -> None:
    """A report given by mistake stays as it is."""
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "single.sqlite").write_text("a report")
    with pytest.raises(UsageError) as caught:
        nsys2prv_ng.summarize(["no-such.nsys-rep"], save=str(tmp_path / name) if name else "")
    assert caught.value.parameter == "save"
    if name:
        assert_one_line(run("summary", "no-such.nsys-rep", "--save", tmp_path / name), 2)
    assert (tmp_path / "single.sqlite").read_text() == "a report"


def test_after_an_error_there_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "damaged.sqlite").write_bytes(b"no database")
    assert run("summary", tmp_path / "damaged.sqlite", "--save", tmp_path / "summary.json").returncode != 0
    assert not (tmp_path / "summary.json").exists()
