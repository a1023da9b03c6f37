from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.paraver.checker.trace import check_trace
from tests.paraver.checker.trace_files import ROW, TraceFiles


def at(text: str) -> int:
    """Return the number of the first line of the sound .row that starts with a text."""
    return next(number for number, line in enumerate(ROW.splitlines(), 1) if line.startswith(text))


BROKEN = [
    ("LEVEL CPU", ["LEVEL CPUS SIZE 3"], 0, "'CPUS' is not a level (WORKLOAD, APPL, TASK, THREAD, SYSTEM, NODE, CPU)"),
    (
        "LEVEL APPL",
        ["LEVEL PTASK SIZE 1"],
        0,
        "'PTASK' is not a level (WORKLOAD, APPL, TASK, THREAD, SYSTEM, NODE, CPU)",
    ),
    ("beta", ["beta", "gamma"], 1, "'gamma' is neither a 'LEVEL name SIZE n' line nor one of its names"),
    ("beta", [], -2, "level NODE has SIZE 2 and only 1 names"),
    ("system", [], -1, "level SYSTEM has SIZE 1 and only 0 names"),
    ("alpha", [""], 0, "name 1 of level NODE is empty"),
    ("alpha", ["  "], 0, "name 1 of level NODE is empty"),
    ("alpha", ["alpha\r"], 0, "carriage return: lines must end with a line feed alone"),
    ("alpha", ["alph\udce4"], 0, "the line is not UTF-8"),
    ("rank 1", ["rank 1", "LEVEL NODE SIZE 2", "x", "y"], 1, "level NODE appears twice: its names are appended"),
    ("LEVEL NODE", ["LEVEL NODE SIZE 3", "x"], 0, "level NODE has SIZE 3, the header of the .prv has 2"),
    ("LEVEL CPU", ["LEVEL CPU SIZE 4", "x"], 0, "level CPU has SIZE 4, the header of the .prv has 3"),
    ("LEVEL TASK", ["LEVEL TASK SIZE 3", "x"], 0, "level TASK has SIZE 3, the header of the .prv has 2"),
    ("LEVEL THREAD", ["LEVEL THREAD SIZE 4", "x"], 0, "level THREAD has SIZE 4, the header of the .prv has 3"),
    ("LEVEL APPL", ["LEVEL APPL SIZE 2", "x"], 0, "level APPL has SIZE 2, the header of the .prv has 1"),
    ("LEVEL WORKLOAD", ["LEVEL WORKLOAD SIZE 2", "x"], 0, "level WORKLOAD has SIZE 2, the header of the .prv has 1"),
    ("LEVEL SYSTEM", ["LEVEL SYSTEM SIZE 2", "x"], 0, "level SYSTEM has SIZE 2, the header of the .prv has 1"),
]


@pytest.mark.parametrize(("text", "new", "after", "message"), BROKEN, ids=[case[3] for case in BROKEN])
def test_a_broken_row(tmp_path: Path, text: str, new: list[str], after: int, message: str) -> None:
    result = check_trace(TraceFiles().replace("row", at(text), *new).write(tmp_path))
    problems = [(Path(p.file).name, p.line, p.message, p.count) for p in result.problems]
    assert problems == [("t.row", at(text) + after, message, 1)]


def test_a_level_may_be_absent_and_names_may_look_like_remarks(tmp_path: Path) -> None:
    files = TraceFiles()
    files.row = ["", *files.row[9:13]]
    assert files.row[1] == "LEVEL THREAD SIZE 3"
    assert check_trace(files.write(tmp_path)).problems == []
