"""Finds the reports of the exercises and runs commands on them: for the programs beside this module."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
_HTML = re.compile(r"^ {4}(nsys2prv-ng .* exercises/.* --html (\S+))$", re.MULTILINE)
_GUIDES = ROOT / "docs/guides"


def find_exercises() -> Path:
    """Return the folder of the exercises' reports; unpack them first where that has not been done."""
    folder = ROOT / "exercises"
    if not folder.exists():
        with TemporaryDirectory(prefix=".exercises-", dir=ROOT) as partial:
            with tarfile.open(ROOT / "samples/exercises.tar.xz") as archive:  # not by `tar`, which needs `xz`
                archive.extraction_filter = getattr(tarfile, "data_filter", None)  # older Pythons have none
                archive.extractall(partial)
            with suppress(OSError):  # another process has just done it
                Path(partial, folder.name).rename(folder)
    return folder


def find_html_commands(pattern: str = "*.md") -> dict[str, str]:
    """Return the commands of guides that write HTML of exercises, by the name of the file."""
    texts = [page.read_text(encoding="utf-8") for page in sorted(_GUIDES.glob(pattern))]
    return {name: command for text in texts for command, name in _HTML.findall(text)}


def expand_words(command: str, folder: Path) -> list[str]:
    """Return the words of a command after the program, with the files of a folder that patterns stand for."""
    words: list[str] = []
    for word in shlex.split(command)[1:]:
        files = folder.glob(word) if "*" in word else ()
        words += sorted(path.relative_to(folder).as_posix() for path in files) or [word]
    return words


def run_command(command: str, folder: Path) -> str:
    """Run a command of a page in an empty folder, with `samples` and `exercises` in it; return its standard output."""
    for reports in (ROOT / "samples", find_exercises()):
        (folder / reports.name).symlink_to(reports)
    words = [sys.executable, "-m", "nsys2prv_ng", *expand_words(command, folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, cwd=folder, env=environment)
    return done.stdout
