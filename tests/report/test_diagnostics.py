"""Messages of nsys: how many of each severity, and which of them tell of lost data."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.report.database import Database
from nsys2prv_ng.report.diagnostics import Diagnostics, Message, join_text, read_diagnostics
from tests.sources.small_reports import export


def test_counts_and_messages(tmp_path: Path) -> None:
    rows = [(1, "fine"), (2, "a\n  b"), (2, "a b"), (3, "c"), (4, "d"), (0, "e"), (None, "f"), ("x", None), (2, None)]
    report = export(tmp_path / "a.sqlite", [""], {"DIAGNOSTIC_EVENT": (("severity", "text"), rows)})
    found = read_diagnostics(Database(report))
    assert found.counts == {"info": 1, "warning": 3, "error": 1, "verbose": 1, "unknown": 3}
    assert found.messages == [Message("warning", "a b", 2), Message("error", "c", 1), Message("warning", "", 1)]


def test_reports_without_messages(tmp_path: Path) -> None:
    assert read_diagnostics(Database(export(tmp_path / "a.sqlite", [""], {}))) == Diagnostics()
    older = export(tmp_path / "b.sqlite", [""], {"DIAGNOSTIC_EVENT": (("timestamp",), [(1,)])})
    assert read_diagnostics(Database(older)) == Diagnostics()


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("Not all CUDA events might have been collected.", True),
        ("CUDA profiling might have not been started correctly.", True),
        ("12 events were lost.", True),
        ("Buffer overflow: dropping events", True),
        ("No cuDNN trace will be generated from that library.", True),
        ("Unable to collect CPU kernel IP samples.", True),
        ("No NVTX events collected. Does the process use NVTX?", False),
        ("Scheduling information is absent.", False),
        ("This is close to what nsys does.", False),
    ],
)
def test_which_tell_of_lost_data(text: str, lost: bool) -> None:
    assert Message("warning", text, 1).reports_lost_data == lost
    assert Message("error", text, 1).reports_lost_data


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "Loading '/home/user/lib/x.so' failed:\n/home/user/lib/x.so: no such file",
            "Loading 'x.so' failed: x.so: no such file",
        ),
        ("found in /opt/a b", "found in a b"),
        (
            "run sh -c 'echo 1 >/proc/sys/kernel/perf_event_paranoid'",
            "run sh -c 'echo 1 >/proc/sys/kernel/perf_event_paranoid'",
        ),
        ("and/or 3/4 of https://host/page", "and/or 3/4 of https://host/page"),
        (None, ""),
    ],
)
def test_texts_have_no_folders_of_files(text: str | None, shown: str) -> None:
    assert join_text(text) == shown
