"""Completion: the questions that the scripts of the shells ask, and bash itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nsys2prv_ng.sources.registry import SOURCES
from tests.cli.program_runs import run

SOURCE_NAMES = [source.name for source in SOURCES]


def ask(monkeypatch: pytest.MonkeyPatch, shell: str, line: str) -> list[str]:
    """Ask as the script of a shell does, with the cursor at the end of a line."""
    words = line.split(" ")
    variables = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)} if shell == "bash" else {}
    variables |= {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    for name, value in {**variables, "_NSYS2PRV_NG_COMPLETE": f"complete_{shell}"}.items():
        monkeypatch.setenv(name, value)
    done = run()
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        ("nsys2prv-ng su", ["summary"]),
        ("nsys2prv-ng summary a.sqlite --strict --al", ["--align"]),
        # Without a command, and behind options, translate and the command that runs.
        ("nsys2prv-ng a.sqlite --metrics", ["--metrics", "--metrics-changes"]),
        ("nsys2prv-ng -q a.sqlite --metrics-", ["--metrics-changes"]),
        ("nsys2prv-ng -j 1 what-if a.sqlite --ti", ["--time"]),
        ("nsys2prv-ng summary --align c", ["collectives"]),
        ("nsys2prv-ng translate --kernel-names ", ["short", "demangled"]),
        ("nsys2prv-ng a.sqlite --sources ker", ["kernels"]),
        ("nsys2prv-ng a.sqlite --sources nvtx,kernels,nv", ["nvtx,kernels,nvtx_on_gpu"]),
        ("nsys2prv-ng a.sqlite --min-duration mp", ["mpi="]),
        # Files are the shell's.
        ("nsys2prv-ng translate a", []),
        ("nsys2prv-ng a.sq", []),
        ("nsys2prv-ng summary --align-", []),
        ("nsys2prv-ng summary --html p", []),
        ("nsys2prv-ng sumary a", []),
    ],
)
def test_answers(monkeypatch: pytest.MonkeyPatch, line: str, answers: list[str]) -> None:
    assert ask(monkeypatch, "bash", line) == answers


def test_sources_are_all_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(monkeypatch, "bash", "nsys2prv-ng a.sqlite --sources ") == SOURCE_NAMES


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_the_same(monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    """They show the help of each answer as well."""
    answer = " ".join(ask(monkeypatch, shell, "nsys2prv-ng a.sqlite --metrics-"))
    assert "--metrics-changes" in answer and "only when its value changes" in answer
    assert "collectives" in " ".join(ask(monkeypatch, shell, "nsys2prv-ng summary a --align c"))


def test_scripts_of_shells(monkeypatch: pytest.MonkeyPatch) -> None:
    for shell, word in (
        ("bash", "complete -o default"),
        ("zsh", "#compdef nsys2prv-ng"),
        ("fish", "complete --command"),
    ):
        monkeypatch.setenv("_NSYS2PRV_NG_COMPLETE", f"source_{shell}")
        assert word in run().stdout


@pytest.mark.slow
def test_bash_completes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What bash has after the functions of its script ran."""
    bash = shutil.which("bash")
    assert bash is not None
    monkeypatch.setenv("_NSYS2PRV_NG_COMPLETE", "source_bash")
    (tmp_path / "script").write_text(run().stdout)
    monkeypatch.delenv("_NSYS2PRV_NG_COMPLETE")
    program = tmp_path / "nsys2prv-ng"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nsys2prv_ng "$@"\n')
    program.chmod(0o755)
    ask_bash = f"""
    source {tmp_path}/script
    COMP_WORDS=(nsys2prv-ng a.sqlite --metrics-) COMP_CWORD=2
    $(complete -p nsys2prv-ng | sed 's/.*-F //; s/ .*//') {program}
    printf '%s\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run([bash, "-c", ask_bash], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("--metrics-changes\n", "")
