"""The gate of `compare` as a pipeline of tests runs it: exit codes, what stderr says, histories."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program_runs import run
from tests.comparison.gate_captures import read_captures


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Two captures of a program that its GPU limits, as it is and with 10 % more kernels; and of a host-bound one."""
    for state in ("apart/gpu-none-0", "apart/gpu-kernel-10", "apart/host-none-0"):
        for number, capture in enumerate(read_captures()[state][:2]):
            capture.save(tmp_path / f"{state.partition('/')[2]}.{number}.json")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["gpu-none-0.0", "gpu-none-0.1"], 0, "--fail-over 5%: not slower (+"),
        (["gpu-none-0.0", "gpu-kernel-10.1"], 3, "--fail-over 5%: slower (+"),
        (["host-none-0.0", "host-none-0.1"], 4, "captures of such a program vary by 9."),
    ],
)
def test_exit_codes(saved: Path, words: list[str], code: int, text: str) -> None:
    files = [saved / f"{word}.json" for word in words]
    for limit in ("5", "5%", "0.05"):
        done = run("compare", *files, "--fail-over", limit, "-q")
        assert done.returncode == code
        assert text in done.stderr and len(done.stderr.splitlines()) == 1
    done = run("compare", *files, "--fail-over", "5%", "--fail-undecided", "-q")
    assert done.returncode == (code and 3)


def test_slower_outweighs_undecided(saved: Path) -> None:
    names = ("gpu-none-0.0", "host-none-0.0", "gpu-kernel-10.0")
    done = run("compare", *(saved / f"{name}.json" for name in names), "--fail-over", "5%", "-q")
    assert done.returncode == 3
    assert [line.partition(": ")[2][:15] for line in done.stderr.splitlines()] == ["`host-none-0.0`", "`gpu-kernel-10."]


def test_a_history_from_the_command_line(saved: Path, tmp_path: Path) -> None:
    history = tmp_path / "history"
    new = saved / "gpu-kernel-10.0.json"
    done = run("compare", new, "--against", history, "-q")
    assert done.returncode == 2 and "no such folder; make it, and add captures with" in done.stderr
    history.mkdir()
    done = run("compare", new, "--against", history, "-q")
    assert done.returncode == 2 and ": it has no earlier capture; save one of this" in done.stderr
    done = run("compare", new, "--against", history, "--fail-over", "5%", "-q")
    assert done.returncode == 4 and "it has no earlier capture; save one of this" in done.stderr
    for number in range(2):
        (history / f"v{number}.json").write_bytes((saved / f"gpu-none-0.{number}.json").read_bytes())
    done = run("compare", new, "--against", history, "--fail-over", "5%", "--markdown", "-q")
    assert done.returncode == 3
    assert "**HISTORY** 2 captures, 13.3 ms to 13.4 ms, the last 2 for the baseline" in done.stdout
    assert "| <code>v0</code> | 2026-11-30T21:14 |" in done.stdout
    both = run("compare", new, "+", saved / "gpu-kernel-10.1.json", "--against", history, "--fail-over", "5%", "-q")
    assert both.returncode == 3 and "over 2 and 2 captures" in " ".join(both.stdout.split())


def test_what_cannot_be_asked_of_a_gate(saved: Path) -> None:
    files = [saved / f"gpu-none-0.{number}.json" for number in range(2)]
    done = run("compare", *files, "--fail-undecided", "-q")
    assert (done.returncode, done.stdout) == (2, "") and "--fail-undecided: needs --fail-over" in done.stderr
    done = run("compare", *files, "--fail-over", "much", "-q")
    assert (done.returncode, done.stdout) == (2, "") and "write a percentage, like 5%" in done.stderr
