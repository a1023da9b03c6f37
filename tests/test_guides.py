"""The commands of the guides, run as they stand, on reports that stand in for those of readers."""

from __future__ import annotations

import itertools
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.program_runs import run
from tests.report.fake_nsys import hide_nsys, write_report
from tests.test_docs import DOCS, EXERCISES, RUN, list_blocks
from tests.tiers import cases

PAGES = sorted([*(DOCS / "guides").glob("*.md"), *(DOCS / "start").glob("*.md")])
FOLDERS = (".", "profile", "before", "before2", "after", "after2", "four-ranks", "eight-ranks")
"""Where readers have their reports."""
RUNS = ("profile-4711", "profile-4712")
"""What Slurm jobs of readers left: folders with the numbers of a summary."""
_ELSEWHERE = re.compile(r"\$|--dask [ts]|REPORT|--version$| (run-rank|record) ")
"""Fragments of scripts, clusters, arrays, forms, the program of an environment, programs under nsys: of these, other
tests run some."""


def find_commands(page: Path) -> list[str]:
    """Return the commands of a page that nothing else runs: quotes, marked blocks, or the site for HTML of quotes."""
    text = page.read_text()
    quoted = {quote.strip() for quote in re.findall(r"<!-- prints: (.*?)(?: \||-->)", text)}
    blocks = [block.replace("\\\n", " ") for block in list_blocks(text) if block not in list_blocks(text, RUN)]
    commands = re.findall(r"^ *(nsys2prv-ng .*?) *(?:#.*)?$", "\n".join(blocks), re.MULTILINE)
    quoted |= {command for command in commands if re.sub(r" --html \S+$", "", command) in quoted}
    return [command for command in commands if command not in quoted and not _ELSEWHERE.search(command)]


def expand(command: str, folder: Path) -> list[str]:
    """Return the words after the program's name, up to a redirection, with the files that patterns stand for."""
    return list(itertools.takewhile(lambda word: word[0] not in "<>|", EXERCISES.expand_words(command, folder)))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the samples, and with two reports in each of a reader's folders."""
    folder = tmp_path_factory.mktemp("reader")
    samples, exercises = DOCS.parent / "samples", EXERCISES.find_exercises()
    for reports in (samples, exercises):
        (folder / reports.name).symlink_to(reports)
    for own in FOLDERS:
        job = "ddp-2x2" if own.endswith("ranks") else "mpi-4"  # what is compared may be small
        for rank in range(2):
            write_report(folder / own / f"rank{rank}.nsys-rep")  # older than its export
            # Pages choose late times of the reports beside them.
            sample = exercises / f"ex1a-slow.rank{rank}.sqlite" if own == "." else samples / f"{job}.rank{rank}.sqlite"
            shutil.copyfile(sample, folder / own / f"rank{rank}.sqlite")
    for own in RUNS:
        (folder / own).mkdir()
        saved = run("summary", samples / "single-graph.sqlite", "--save", folder / own / "summary.json", cwd=folder)
        assert saved.returncode == 0, saved.stderr
    (folder / "talp").mkdir()
    return folder


@pytest.fixture(autouse=True)
def _without_nsys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A real nsys would export what stands for reports; without one, the exports beside them are theirs."""
    hide_nsys(monkeypatch, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", cases([page for page in PAGES if find_commands(page)], push=1), ids=lambda page: page.stem
)
def test_commands_run(page: Path, home: Path) -> None:
    commands = find_commands(page)
    if "out.parts" in " ".join(commands) and not (home / "out.parts").exists():
        assert run("shard", "rank0.nsys-rep", "rank1.nsys-rep", "out.parts", cwd=home).returncode == 0
    for command in commands:
        done = run(*expand(command, home), cwd=home)
        assert done.returncode == 0, f"{command}: {done.stderr}"
