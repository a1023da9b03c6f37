"""Pages from Python and from the command line: whole or not at all, and wrong names before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng import UsageError
from nsys2prv_ng.html.summary_page import render_summary
from nsys2prv_ng.summary.answer.answer import add_verdict
from tests.html.made import job_of


@pytest.mark.all_sets
def test_summarize_writes_the_page_of_its_summary(samples: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.html"
    reports = sorted(samples.glob("mpi-4*.sqlite"))
    summary = nsys2prv_ng.summarize(reports, html=file)
    assert summary == add_verdict(job_of("mpi-4").summary)
    assert file.read_text(encoding="utf-8") == render_summary(*job_of("mpi-4"))
    assert [path.name for path in tmp_path.iterdir()] == ["job.html"]


@pytest.mark.parametrize("name", ["job.prv", "missing/job.html", "folder.html", ""])
def test_a_page_that_cannot_be_is_refused_before_reading(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.html").mkdir()
    for call in (nsys2prv_ng.summarize, lambda reports, html: nsys2prv_ng.compare([reports, reports], html=html)):
        with pytest.raises(UsageError) as caught:
            call(["no-such.nsys-rep"], html=str(tmp_path / name) if name else "")
        assert caught.value.parameter == "html"
