"""The lines of the guide for users of other programs: each runs on reports, and gives rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsys2prv_ng.bundled.presets import list_presets
from tests.cli.program_runs import run
from tests.report_sets import find_set
from tests.test_docs import DOCS

pytestmark = pytest.mark.slow

PAGE = (DOCS / "guides/from-analysers.md").read_text()
ROWS = re.findall(r"^\| (.*?) \| (.*`.*) \|$", PAGE, re.MULTILINE)
CELLS = [(theirs, text) for theirs, here in ROWS for text in re.findall(r"`([^`]+)`", here)]
PRESETS = {preset.name for preset in list_presets()}
COMMANDS = [text for _, text in CELLS if text.startswith("nsys2prv-ng ")]
LINES = list(dict.fromkeys(text for _, text in CELLS if "/" not in text.split()[0] and text not in COMMANDS))
SETS = ("samples/ddp-2x2", "samples/mpi-4", "gpu/um-1")
"""Training, MPI and managed memory: each line gives rows on one of them."""


@pytest.fixture(scope="module")
def jobs() -> list[dict[str, Any]]:
    """What the first block of the page defines, for the reports of each set."""
    (setup,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    opened = []
    for name in SETS:
        variables: dict[str, Any] = {}
        exec(re.sub(r"glob\.glob\(.*\)", repr([*map(str, find_set(name))]), setup), variables)
        opened.append(variables)
    return opened


@pytest.mark.parametrize("line", LINES)
def test_a_line_gives_rows(line: str, jobs: list[dict[str, Any]]) -> None:
    assert sum(len(eval(line, variables)) for variables in jobs) > 0


@pytest.mark.parametrize("command", sorted({*COMMANDS}))
def test_a_command_runs(command: str, tmp_path: Path) -> None:
    reports = " ".join(map(str, find_set("samples/mpi-4")))
    done = run(*command.replace("REPORT...", reports).split()[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") > 3


def test_other_cells_are_presets() -> None:
    assert len(ROWS) > 50
    named = {text for _, text in CELLS} - {*LINES} - {*COMMANDS}
    assert named <= PRESETS
    assert len(ROWS) == PAGE.count("\n| ") - PAGE.count("| here |")


GROUPED = (DOCS / "reference/summary.md").read_text().partition("## What became a group-by")[2]


@pytest.mark.parametrize("line", re.findall(r"\| `(pandas\..*?|job\..*?)` \|$", GROUPED, re.MULTILINE))
def test_a_line_gives_what_a_table_gave(line: str, jobs: list[dict[str, Any]]) -> None:
    found = [eval(line.replace(r"\|", "|"), {"pandas": pd, "job": variables["job"]}) for variables in jobs]
    assert sum(map(len, found)) > 0


def test_lines_give_what_nsys_stats_gives(jobs: list[dict[str, Any]]) -> None:
    """Statistics of calls, against plain loops over the values."""
    frame = eval('sum_up(calls, "name")', jobs[1])
    calls = jobs[1]["job"].cuda_calls
    for name, row in frame.head(5).iterrows():
        rows = zip(calls["name"], calls["start_ns"], calls["end_ns"], strict=True)
        us = [(end - start) / 1000 for each, start, end in rows if each == name]
        assert (row["count"], row["sum"], row["min"], row["max"]) == pytest.approx((len(us), sum(us), min(us), max(us)))
