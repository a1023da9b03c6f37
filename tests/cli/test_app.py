"""The command is found wherever it stands, and what is a report stays one."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer.main

from nsys2prv_ng.cli import app as cli_app
from nsys2prv_ng.cli.app import _GONE, app
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.version import __version__
from tests.cli.program_runs import run

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def put_command_first(words: list[str]) -> list[str]:
    return cli_app.put_command_first(words, COMMANDS)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("", ""),
        ("summary -v a.sqlite", "summary -v a.sqlite"),
        ("-v summary a.sqlite", "summary -v a.sqlite"),
        ("--quiet translate a.sqlite o.prv", "translate --quiet a.sqlite o.prv"),
        ("--ranks 0 --html=x.html summary a.sqlite", "summary --ranks 0 --html=x.html a.sqlite"),
        # The value of an option is no command, nor is a word behind the first report.
        ("--step check a.sqlite o.prv", "translate --step check a.sqlite o.prv"),
        ("--step check summary a.sqlite", "summary --step check a.sqlite"),
        ("--step=a check o.prv", "check --step=a o.prv"),
        ("-q a.sqlite check", "translate -q a.sqlite check"),
        ("a.sqlite o.prv", "translate a.sqlite o.prv"),
        ("--step", "translate --step"),
        ("-- check o.prv", "translate -- check o.prv"),
        ("a" * 5000, "translate " + "a" * 5000),
        ("help", "--help"),
        ("help summary", "summary --help"),
        ("help -q", "--help"),
        ("-h", "-h"),
        ("-V", "-V"),
        ("--show-completion bash", "--show-completion bash"),
        ("--install-completion=fish", "--install-completion=fish"),
        ("check=1.sqlite o.prv", "translate check=1.sqlite o.prv"),
        ("--version", "--version"),
    ],
)
def test_the_command_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, meant: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert put_command_first(typed.split()) == meant.split()


def test_a_report_named_like_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind an option it is a report, as a word nearly like a command is one."""
    monkeypatch.chdir(tmp_path)
    for name in ("check", "help", "sumary"):
        (tmp_path / name).touch()
        assert put_command_first(["-q", name, "o.prv"]) == ["translate", "-q", name, "o.prv"]
    for name in ("help", "sumary", "./check"):
        assert put_command_first([name, "o.prv"]) == ["translate", name, "o.prv"]
    with pytest.raises(UsageError, match=r"\?inspect: no such command or report; did you mean inspect\?"):
        put_command_first(["\x1binspect"])


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("cut a.prv b.prv", f"cut has gone: {_GONE['cut']}"),
        ("merge shards o.prv", f"merge has gone: {_GONE['merge']}"),
        ("hlep", "hlep: no such command or report; did you mean help?"),
        ("help sumary", "help sumary: no such command; did you mean summary?"),
        ("help nothing", f"help nothing: no such command; known are {', '.join(COMMANDS)}"),
    ],
)
def test_mistyped_words_get_a_guess(typed: str, says: str) -> None:
    done = run(*typed.split())
    assert (done.returncode, done.stderr) == (2, f"nsys2prv-ng: error: {says}\n")


@pytest.mark.parametrize(
    "words",
    [
        ["summary", ""],
        ["", "o.prv"],
        ["compare", "a.json", "--", ""],
        ["-q", "a.sqlite", ""],
        ["-q", ""],
        ["summary", "--skip-warmup", ""],
    ],
)
def test_an_empty_word_is_an_error(words: list[str]) -> None:
    with pytest.raises(UsageError, match="an argument is empty"):
        put_command_first(words)


@pytest.mark.parametrize("words", [["summary", "--tmp", "", "a.sqlite"], ["translate", "a.sqlite", "-j", ""]])
def test_options_say_what_is_wrong_with_their_values(words: list[str]) -> None:
    assert put_command_first(words) == words


@pytest.mark.parametrize("command", ["slurm", "run-rank", "record"])
def test_a_program_may_take_empty_words(command: str) -> None:
    words = [command, "--delay", "2", "--", "python", "train.py", ""]
    assert put_command_first(words) == words


@pytest.mark.slow
def test_the_program_reads_them() -> None:
    assert run("-V").stdout == run("--version").stdout == f"nsys2prv-ng {__version__}\n"
    assert run("help", "check").stdout == run("check", "--help").stdout != run("help").stdout == run("-h").stdout
