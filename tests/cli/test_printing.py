"""A trace too large for Paraver: what is printed, and that the options do what they promise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nsys2prv_ng.cli.printing import find_begin
from nsys2prv_ng.options.calls import TranslateOptions
from nsys2prv_ng.paraver.load_cost import LoadCost
from tests.cli.program_runs import run
from tests.conftest import SAMPLES

REPORTS = sorted(SAMPLES.glob("ddp-2x2.rank0.sqlite"))
LIMIT = 18 * 2**20
SOURCES = "cuda_api,kernels,memory_operations,launch_lines"


def list_added(text: str) -> dict[str, list[str]]:
    """The words of each option to add below "what helps", by the first word above it."""
    lines = text.partition("what helps, added to translate:\n")[2].splitlines()
    assert all(added.startswith("    --") for added in lines[1::2])
    return {words.split()[0]: added.split() for words, added in zip(lines[::2], lines[1::2], strict=True)}


@pytest.mark.slow
def test_a_translation_prints_what_helps(tmp_path: Path) -> None:
    """Each option, added to the command, makes a smaller trace."""
    trace, smaller = tmp_path / "my trace.prv", tmp_path / "smaller.prv"
    options = ["--ranks", "0", "--no-derived", "--sources", SOURCES, "--time", "1ms:"]
    done = run(*REPORTS, trace, *options, "--stats", tmp_path / "s.json", "--paraver-memory", "18M")
    memory = json.loads((tmp_path / "s.json").read_text())["paraver_memory"]
    assert memory > LIMIT and "too large a trace: Paraver needs about" in done.stderr
    added = list_added(done.stdout)
    assert set(added) == {"a", "without"} and added["without"][1] == SOURCES.removesuffix(",launch_lines")
    for words in added.values():
        assert run(*REPORTS, smaller, "--force", "-q", *options, *words).returncode == 0
        assert read_load(smaller).record_memory < 0.8 * (memory - 14_000_000)
    window = TranslateOptions(time=added["a"][1]).time
    assert isinstance(window, tuple) and window[0] is not None and window[0] > 10**6


@pytest.mark.slow
def test_an_inspection_prints_what_helps(tmp_path: Path) -> None:
    done = run("inspect", *REPORTS, "--paraver-memory", "18M")
    assert "a trace of all of it: about" in done.stdout and "too large a trace" in done.stdout
    assert run(*REPORTS, "window.prv", *list_added(done.stdout)["a"], cwd=tmp_path).returncode == 0
    assert read_load(tmp_path / "window.prv").memory < 1.3 * LIMIT
    assert "what helps" not in run("inspect", *REPORTS, "--paraver-memory", "0").stdout


@pytest.mark.slow
def test_a_trace_of_shards_prints_what_helps(tmp_path: Path) -> None:
    """The sources of reports that were read before are chosen: only a window is left of so small a trace."""
    assert run("shard", "-q", *REPORTS, tmp_path / "read").returncode == 0
    done = run("translate", tmp_path / "read", tmp_path / "x.prv.gz", "--paraver-memory", "18M")
    [(first, _)] = list_added(done.stdout).values()
    assert first == "--time"


@pytest.mark.slow
def test_an_overview_prints_no_remedy(tmp_path: Path) -> None:
    """It has no events that a source adds, and may need as many bytes for a shorter time."""
    done = run(*REPORTS, tmp_path / "x.prv", "--overview-trace", "--paraver-memory", "13500K")
    assert "too large a trace" in done.stderr and "overview: " in done.stdout
    assert "what helps" not in done.stdout


def test_no_begin_is_known_where_events_decide_it() -> None:
    for options in ({"time": "gpu"}, {"steps": "2"}, {"skip_warmup": True}, {"nvtx_range": "x"}):
        assert find_begin(TranslateOptions(**options)) is None
    assert [find_begin(TranslateOptions(time=time)) for time in (None, ":2s", "1s:")] == [0, 0, 10**9]


def read_load(trace: Path) -> LoadCost:
    states = events = pairs = communications = 0
    for line in trace.read_text().splitlines()[1:]:
        states, communications = states + line.startswith("1:"), communications + line.startswith("3:")
        events += line.startswith("2:")
        pairs += (line.count(":") - 5) // 2 if line.startswith("2:") else 0
    return LoadCost(states, events, pairs, communications)
