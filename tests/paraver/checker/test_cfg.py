"""The rules of cfgs. Each of these files was tried with paramedir; the messages say what it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.cli import run as program
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver.checker.cfg import check_cfg
from nsys2prv_ng.paraver.checker.trace import check_trace
from nsys2prv_ng.paraver.read.prv_reader import TraceHeader
from tests.paraver.checker.cfg_text import CfgText, typed
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


def run(*arguments: object) -> int:
    return program.run([str(argument) for argument in arguments])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prv = TraceFiles().write(tmp_path)
    good = typed("window_filter_module evt_type 1 9600").write(tmp_path).rename(tmp_path / "good.cfg")
    absent = typed("window_filter_module evt_type 1 9701").write(tmp_path).rename(tmp_path / "absent.cfg")
    bad = (
        typed("window_filter_module evt_type 1 9600")
        .replace("window_units", "window_units x")
        .write(tmp_path)
        .rename(tmp_path / "bad.cfg")
    )
    assert run("check", prv, "--cfg", good, "--cfg", absent) == 0
    output = capsys.readouterr()
    assert f"{good}: 1 window, 0 histograms" in output.out
    assert 'event type 9701 "More bytes" is not in the trace: Paraver asks before it shows' in output.out
    assert run("check", "--quiet", prv, "--cfg", good, "--cfg", absent) == 0
    assert capsys.readouterr().out == ""
    assert run("check", "--quiet", prv, "--cfg", good, "--cfg", bad) == 1
    output = capsys.readouterr()
    line = typed("window_filter_module evt_type 1 9600").find("window_units")
    assert output.out == f"{bad}:{line}: window_units 'x' is not a unit of time: Paraver takes Microseconds\n"
    assert output.err == f"nsys2prv-ng: error: {bad}: 1 kinds of problem\n"
    assert run("check", "--quiet", prv, "--cfg", tmp_path / "missing.cfg") == 1
