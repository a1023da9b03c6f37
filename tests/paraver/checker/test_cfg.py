"""The rules of cfgs. Each of these files was tried with paramedir; the messages say what it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver.checker.cfg import check_cfg
from nsys2prv_ng.paraver.checker.trace import check_trace
from nsys2prv_ng.paraver.read.prv_reader import TraceHeader
from tests.cli.program_runs import run
from tests.paraver.checker.cfg_text import CfgText, assert_problem, messages, typed, warned
from tests.paraver.checker.trace_files import TraceFiles, compress


def test_a_sound_cfg(tmp_path: Path) -> None:
    result = CfgText().check(tmp_path)
    assert result.problems == result.warnings == []
    assert (result.windows, result.histograms) == (3, 1)
    alone = check_cfg(CfgText().write(tmp_path), None, TraceHeader())
    assert alone.problems == alone.warnings == []


def test_what_is_no_cfg(tmp_path: Path) -> None:
    for name, says in (("t.txt", "its name must end in .cfg"), ("missing.cfg", "No such file")):
        with pytest.raises(TranslationError, match=says):
            check_cfg(tmp_path / name, None, TraceHeader())


def test_what_a_trace_holds(tmp_path: Path) -> None:
    """The types are those with events, not those that are only declared."""
    prv = TraceFiles().write(tmp_path)
    contents = check_trace(prv).contents
    assert contents.types == {9600, 9700}
    assert contents.config is not None
    assert set(contents.config.types) == {9600, 9700, 9701}
    assert (contents.header.tasks, contents.header.rows, contents.header.cpus) == (2, 3, (2, 1))
    assert check_trace(compress(prv, 100)).contents == contents
    (tmp_path / "t.pcf").unlink()
    assert check_trace(prv).contents.config is None


def test_the_command(tmp_path: Path) -> None:
    prv = TraceFiles().write(tmp_path)
    good = typed("window_filter_module evt_type 1 9600").write(tmp_path).rename(tmp_path / "good.cfg")
    absent = typed("window_filter_module evt_type 1 9701").write(tmp_path).rename(tmp_path / "absent.cfg")
    bad = (
        typed("window_filter_module evt_type 1 9600")
        .replace("window_units", "window_units x")
        .write(tmp_path)
        .rename(tmp_path / "bad.cfg")
    )
    checked = run("check", prv, "--cfg", good, "--cfg", absent)
    assert checked.returncode == 0
    assert f"{good}: 1 window, 0 histograms" in checked.stdout
    assert 'event type 9701 "More bytes" is not in the trace: Paraver asks before it shows' in checked.stdout
    checked = run("check", "--quiet", prv, "--cfg", good, "--cfg", absent)
    assert (checked.returncode, checked.stdout) == (0, "")
    checked = run("check", "--quiet", prv, "--cfg", good, "--cfg", bad)
    line = typed("window_filter_module evt_type 1 9600").find("window_units")
    assert checked.returncode == 1
    assert checked.stdout == f"{bad}:{line}: window_units 'x' is not a unit of time: Paraver takes Microseconds\n"
    assert checked.stderr == f"nsys2prv-ng: error: {bad}: 1 kinds of problem\n"
    assert run("check", "--quiet", prv, "--cfg", tmp_path / "missing.cfg").returncode == 1


# Line that is replaced, what takes its place, and the only problem: its line from there, and how it begins.
BROKEN = [
    ("Analyzer2D.Statistic", ["Analyzer2D.Statistic: Average"], 0, "'Average' is not a statistic: Paraver crashes"),
    ("Analyzer2D.Statistic", ["Analyzer2D.Statistic: Time "], 0, "'Time ' is not a statistic: Paraver crashes"),
    ("Analyzer2D.Statistic", [], -5, "a histogram without Analyzer2D.Statistic: Paraver crashes"),
    ("Analyzer2D.Control", [], -3, "a histogram without Analyzer2D.ControlWindow: Paraver crashes"),
    (
        "Analyzer2D.Control",
        ["Analyzer2D.ControlWindow: 4"],
        0,
        "Analyzer2D.ControlWindow: there is no window 4: Paraver drops",
    ),
    (
        "Analyzer2D.Data",
        ["Analyzer2D.DataWindow: 0"],
        0,
        "Analyzer2D.DataWindow: there is no window 0: Paraver crashes",
    ),
    (
        "Analyzer2D.Data",
        ["Analyzer2D.DataWindow: 3"],
        -1,
        "one of windows 3 (Analyzer2D.DataWindow) and 1 (Analyzer2D.ControlW",
    ),
    (
        "Analyzer2D.AnalysisLimits",
        [],
        -8,
        "a histogram without Analyzer2D.AnalysisLimits: Paraver shows nothing but zeros",
    ),
    (
        "Analyzer2D.Maximum",
        ["Analyzer2D.Maximum: 0.5"],
        0,
        "Analyzer2D.Minimum: 1 is above the maximum 0.5: no value has a column",
    ),
    ("Analyzer2D.Maximum", ["Analyzer2D.Maximum: 1e8"], 1, "99999999 columns: Paraver runs out of memory"),
    ("Analyzer2D.Delta", ["Analyzer2D.Delta: 0"], 0, "Analyzer2D.Delta: must be above 0: Paraver crashes"),
    ("Analyzer2D.Delta", ["Analyzer2D.Delta: -1"], 0, "Analyzer2D.Delta: must be above 0: Paraver crashes"),
    (
        "Analyzer2D.Objects",
        ["Analyzer2D.Objects: 0,3"],
        0,
        "Analyzer2D.Objects: row 3, the trace has 3 at level thread (from 0)",
    ),
]


@pytest.mark.parametrize(("start", "new", "after", "message"), BROKEN, ids=[f"{c[1]}-{c[3]}" for c in BROKEN])
def test_a_broken_rule(tmp_path: Path, start: str, new: list[str], after: int, message: str) -> None:
    assert_problem(tmp_path, start, new, after, message)


KEPT = [
    ("Analyzer2D.Delta", ["Analyzer2D.Delta: 0.5"]),
    ("Analyzer2D.Maximum", ["Analyzer2D.Maximum: 1"]),
    ("Analyzer2D.AnalysisLimits", ["Analyzer2D.AnalysisLimits: Allwindow"]),
    ("Analyzer2D.Objects", []),
    ("Analyzer2D.ComputeYScale", ["Analyzer2D.ComputeYScale: True"]),
    (
        "Analyzer2D.Objects",
        ["Analyzer2D.3D_ControlWindow: 1", "Analyzer3D.ComputeYScale: True", "Analyzer2D.3D_Delta: 0"],
    ),
]


@pytest.mark.parametrize(("start", "new"), KEPT, ids=[str(case) for case in KEPT])
def test_rules_that_are_kept(tmp_path: Path, start: str, new: list[str]) -> None:
    result = CfgText().replace(start, *new).check(tmp_path)
    assert result.problems == result.warnings == []


WARNED = [("Analyzer2D.DataWindow", [], "a histogram without Analyzer2D.DataWindow: Paraver takes its control window")]


@pytest.mark.parametrize(("start", "new", "message"), WARNED, ids=[case[2] for case in WARNED])
def test_what_is_rarely_meant_is_a_warning(tmp_path: Path, start: str, new: list[str], message: str) -> None:
    result = CfgText().replace(start, *new).check(tmp_path)
    assert result.problems == []
    assert [warning.startswith(message) for warning in warned(result)] == ([True] if message else []), result.warnings


def test_columns_by_their_number(tmp_path: Path) -> None:
    text = CfgText().replace("Analyzer2D.UseFixed", "Analyzer2D.UseFixedDelta: False")
    assert text.replace("Analyzer2D.Delta", "Analyzer2D.Delta: 0").check(tmp_path).problems == []
    (message,) = messages(text.replace("Analyzer2D.NumC", "Analyzer2D.NumColumns: 0").check(tmp_path))
    assert message == "Analyzer2D.NumColumns: must be above 0 without a fixed delta: Paraver crashes"
    assert text.replace("Analyzer2D.ComputeY", "Analyzer2D.ComputeYScale: True").check(tmp_path).problems == []


def test_planes(tmp_path: Path) -> None:
    text = CfgText().insert("Analyzer2D.Data", "Analyzer2D.3D_ControlWindow: 1", "Analyzer3D.ComputeYScale: False")
    text.insert("Analyzer2D.Data", "Analyzer2D.3D_Delta: 0", "Analyzer2D.3D_Minimum: 2", "Analyzer2D.3D_Maximum: 1")
    assert messages(text.check(tmp_path)) == [
        "Analyzer2D.3D_Delta: must be above 0: Paraver crashes",
        "Analyzer2D.3D_Minimum: 2 is above the maximum 1: no value has a plane",
    ]


@pytest.mark.parametrize(("control", "data", "levels"), [(2, 1, "thread and task"), (1, 3, ""), (3, 2, ""), (2, 3, "")])
def test_windows_of_a_histogram(tmp_path: Path, control: int, data: int, levels: str) -> None:
    text = CfgText().replace("Analyzer2D.Control", f"Analyzer2D.ControlWindow: {control}")
    text.replace("Analyzer2D.Data", f"Analyzer2D.DataWindow: {data}").replace("Analyzer2D.Objects")
    (message,) = messages(text.check(tmp_path))
    names = f"windows {data} (Analyzer2D.DataWindow) and {control} (Analyzer2D.ControlWindow)"
    derived = f"one of {names} is derived from the other"
    assert message.startswith(f"{names} have levels {levels}, the first must not be finer" if levels else derived)
    assert message.endswith("Paraver drops the histogram and shows its window")


def test_a_histogram_asks_its_control_window_at_once(tmp_path: Path) -> None:
    text = CfgText().replace("Analyzer2D.X", "Analyzer2D.Objects: All").replace("Analyzer2D.Objects: 0")
    text.replace("Analyzer2D.Analysis").insert("Analyzer2D.Name", "Analyzer2D.AnalysisLimits: Allwindow")
    assert messages(text.check(tmp_path)) == [
        "Analyzer2D.AnalysisLimits: stands above Analyzer2D.ControlWindow: Paraver crashes",
        "Analyzer2D.Objects: stands above Analyzer2D.ControlWindow: Paraver crashes",
    ]
