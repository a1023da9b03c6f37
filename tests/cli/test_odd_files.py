"""What is no file, given as an input or an output: one line, and no waiting for who would write to a pipe."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.cli.program_runs import run
from tests.conftest import SAMPLES

pytestmark = pytest.mark.slow
SAMPLE = SAMPLES / "single-graph.sqlite"


def make(kind: str, path: Path) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(str(path))
    else:
        path.symlink_to("/dev/null")


@pytest.fixture(params=["pipe", "folder", "socket", "link to a device"])
def odd(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kind of what is in a folder under each of these names."""
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    for name in ("x.json", "x.html", "x.prv", "x.toml", "x.cfg", "y.pcf"):
        make(request.param, Path(name))
    return str(request.param)


INPUTS = [
    ["compare", "x.json", "x.json"],
    ["compare", "x.json", "--", SAMPLE],
    ["summary", "x.json"],
    ["check", "x.prv"],
    [SAMPLE, "o.prv", "--align", "x.toml"],
    [SAMPLE, "o.prv", "--labels-from", "y.pcf"],
]
OUTPUTS = [
    ["summary", SAMPLE, "--html", "x.html"],
    ["summary", SAMPLE, "--save", "x.json"],
    ["compare", SAMPLE, "--", SAMPLE, "--html", "x.html"],
    [SAMPLE, "x.prv"],
    [SAMPLE, "x.prv", "--force"],
    [SAMPLE, "y.prv", "--force"],
    [SAMPLE, "o.prv", "--stats", "x.json", "--force"],
    [SAMPLE, "o.prv", "--align-report", "x.toml", "--force"],
    ["what-if", SAMPLE, "x.prv", "--change", "host = ideal", "--force"],
]


@pytest.mark.parametrize("words", INPUTS + OUTPUTS)
def test_what_is_no_file(odd: str, words: list[object]) -> None:
    if "t.prv" in words:
        assert run(SAMPLE, "t.prv", "--sources", "nvtx", "--no-derived").returncode == 0
    before = {path: path.lstat().st_mode for path in Path().iterdir()}
    done = run(*words)
    assert done.returncode in (1, 2)
    [line] = done.stderr.splitlines()[-1:]
    assert line.startswith("nsys2prv-ng: error: ") and ("x." in line or "y." in line)
    assert "Traceback" not in done.stderr and "internal error" not in line
    assert {path: path.lstat().st_mode for path in Path().iterdir()} == before


@pytest.mark.parametrize("name", ["/dev/null", "/dev/stdout"])
@pytest.mark.parametrize("option", ["--html", "--save", "--stats"])
def test_devices_stay_what_they_are(tmp_path: Path, name: str, option: str) -> None:
    """As root, renaming a file to them would replace them. What goes to stdout is --json."""
    before = os.lstat(name)
    words = [SAMPLE, tmp_path / "o.prv", "--force"] if option == "--stats" else ["summary", SAMPLE]
    with (tmp_path / "printed").open("wb") as printed:
        kept = os.dup(1)
        os.dup2(printed.fileno(), 1)  # where stdout leads to a file, its name would be replaced
        done = run(*words, option, name)
        os.dup2(kept, 1)
        os.close(kept)
    assert (os.lstat(name).st_ino, os.lstat(name).st_mode) == (before.st_ino, before.st_mode)
    assert done.returncode in (1, 2) and name in done.stderr.splitlines()[-1]
