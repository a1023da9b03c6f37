"""A trace too large for Paraver: what is printed, and that the commands do what they promise."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from nsys2prv_ng.paraver.load_cost import LoadCost
from tests.cli.program_runs import run
from tests.conftest import SAMPLES

REPORTS = sorted(SAMPLES.glob("ddp-2x2.rank0.sqlite"))
LIMIT = 18 * 2**20
SOURCES = "kernels,memory_operations,cuda_api,launch_lines"


def list_commands(text: str) -> dict[str, list[str]]:
    """The words of each command below "what helps", by the words above it."""
    lines = text.partition("what helps:\n")[2].splitlines()
    return {words.strip(): shlex.split(command) for words, command in zip(lines[::2], lines[1::2], strict=True)}


@pytest.mark.slow
def test_a_translation_prints_what_helps(tmp_path: Path) -> None:
    trace = tmp_path / "my trace.prv"
    given = [*REPORTS, trace, "--ranks", "0", "--stats", tmp_path / "s.json", "--no-derived", "--sources", SOURCES]
    done = run(*given, "--paraver-memory", "18M")
    stats = json.loads((tmp_path / "s.json").read_text())
    assert stats["paraver_memory"] > LIMIT
    assert "too large a trace: Paraver needs about" in done.stderr
    (window,) = (command for words, command in list_commands(done.stdout).items() if words.startswith("a window"))
    assert window[1:4] == ["translate", str(REPORTS[0]), str(tmp_path / "my trace-window.prv")]
    assert {"--ranks", "--sources", "--no-derived"} < set(window) and window[-2] == "--time"
    (lines,) = (command for words, command in list_commands(done.stdout).items() if words.startswith("without"))
    assert lines[:2] == ["nsys2prv-ng", "translate"] and "--stats" not in lines and "--ranks" in lines
    assert run(*lines[1:]).returncode == 0
    smaller = read_load(tmp_path / "my trace-no-launch_lines.prv")
    assert smaller.communications < 100 and smaller.record_memory < 0.8 * (stats["paraver_memory"] - 14_000_000)


@pytest.mark.slow
def test_an_inspection_prints_what_helps(tmp_path: Path) -> None:
    done = run("inspect", *REPORTS, "--paraver-memory", "18M")
    assert "a trace of all of it: about" in done.stdout and "too large a trace" in done.stdout
    (window,) = (command for words, command in list_commands(done.stdout).items() if words.startswith("a window"))
    assert window[:2] == ["nsys2prv-ng", "translate"]
    assert run(*window[1:], cwd=tmp_path).returncode == 0
    assert read_load(tmp_path / "trace-window.prv").memory < 1.3 * LIMIT
    assert "what helps" not in run("inspect", *REPORTS, "--paraver-memory", "0").stdout


@pytest.mark.slow
def test_a_merge_prints_what_helps(tmp_path: Path) -> None:
    """The sources of reports that were read before are chosen: only a window is left of so small a trace."""
    assert run("shard", "-q", *REPORTS, tmp_path / "read").returncode == 0
    for command in (["merge"], ["translate", "--force"]):
        done = run(*command, tmp_path / "read", tmp_path / "x.prv.gz", "--paraver-memory", "18M")
        ((words, pasted),) = list_commands(done.stdout).items()
        assert words.startswith("a window")
        assert pasted[1:4] == ["translate", str(tmp_path / "read"), str(tmp_path / "x-window.prv.gz")]


def read_load(trace: Path) -> LoadCost:
    states = events = pairs = communications = 0
    for line in trace.read_text().splitlines()[1:]:
        states, communications = states + line.startswith("1:"), communications + line.startswith("3:")
        events += line.startswith("2:")
        pairs += (line.count(":") - 5) // 2 if line.startswith("2:") else 0
    return LoadCost(states, events, pairs, communications)
