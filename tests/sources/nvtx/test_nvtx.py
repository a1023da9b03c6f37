"""Samples of Python: functions of the stack in the JSON of marks, against Python's own reader of JSON."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.sources.shared.source_options import SourceOptions
from tests.conftest import DATA, NO_REPORTS, REPORTS, unpack
from tests.sources.small_reports import MAIN, Rows, export, translate_reports
from tests.trace_reader import Trace

FUNCTION = 30000300
COLUMNS = ("start", "end", "eventType", "globalTid", "domainId", "text", "jsonText")
STRINGS = ["step", "/home/one/train.py", "main", "<module>", "/usr/lib/python3/runpy.py"]
CREATED = (1, None, 75, MAIN, 1, "Python Periodic Sampling", None)


def sample(time: int, *frames: tuple[int, int, int]) -> tuple[object, ...]:
    stack_frames = [{"Function": function, "File": file, "Line": line} for function, file, line in frames]
    stack = {"Thread state ID": 1, "Thread state": "Running", "Frames count": len(stack_frames), "Frames": stack_frames}
    text = json.dumps({"Python Periodic Sampling": stack}, separators=(",", ":"))
    return (time, None, 34, MAIN, 1, "", text)


def shown(trace: Trace, level: int, start: int = 0) -> list[tuple[int, str]]:
    events = trace.events[trace.events["type"] == FUNCTION + level]
    return [(e.time + start, trace.values[e.type][e.value]) for e in events.itertuples()]


def nvtx(*rows: tuple[object, ...]) -> dict[str, Rows]:
    return {"NVTX_EVENTS": (COLUMNS, [CREATED, *rows])}


def test_functions_by_level(tmp_path: Path) -> None:
    tables = nvtx(
        sample(10, (0, 1, 12), (2, 1, 40), (3, 4, 1)),
        sample(20, (0, 1, 13)),
        sample(30),
        (40, None, 34, MAIN, 1, "", "{ damaged"),
        (50, None, 34, MAIN, 1, "", None),
        sample(60, (77, 99, 1)),  # names that the export lacks
    )
    report = export(tmp_path / "a.sqlite", STRINGS, tables)
    trace, _ = translate_reports([report], tmp_path / "x.prv", "nvtx", SourceOptions(stack_depth=2))
    assert shown(trace, 0, 10) == [(10, "step (train.py)"), (20, "step (train.py)"), (60, "name 77 (name 99)")]
    assert shown(trace, 1, 10) == [(10, "main (train.py)")]
    assert shown(trace, 2, 10) == []
    assert not any("JSON" in label for label in trace.types.values())


def test_one_level_unless_more_are_asked_for(tmp_path: Path) -> None:
    report = export(tmp_path / "a.sqlite", STRINGS, nvtx(sample(10, (0, 1, 12), (2, 1, 40))))
    trace, _ = translate_reports([report], tmp_path / "x.prv", "nvtx")
    assert [level for level in range(100) if FUNCTION + level in trace.types] == [0]


LIBRARIES = ["/opt/lib/python3.12/site-packages/torch/nn/functional.py", "/usr/lib/python3.12/queue.py", "<string>"]
ENVIRONMENT = ["/home/one/train.py", *LIBRARIES, "step", "_call_impl", "relu", "get", "&lt;module&gt;", "wrapper"]
USER, TORCH, QUEUE, FROZEN, STEP, CALL, RELU, GET, MODULE, WRAPPER = range(10)
OF_STACKS = [
    ([(RELU, TORCH), (CALL, TORCH), (STEP, USER), (MODULE, USER)], "step (train.py)", "torch.relu"),
    ([(RELU, TORCH), (GET, TORCH), (WRAPPER, TORCH), (STEP, USER)], "step (train.py)", "torch.get"),
    ([(CALL, TORCH), (CALL, FROZEN), (STEP, USER)], "step (train.py)", "_call_impl"),
    ([(GET, QUEUE), (MODULE, USER)], "<module> (train.py)", "queue.get"),
    ([(STEP, USER), (GET, QUEUE), (MODULE, USER)], "step (train.py)", None),
    ([(GET, QUEUE)], None, None),
]
"""Stacks from the innermost function, the innermost one of the program, and what this called of a library."""


def test_functions_of_the_program(tmp_path: Path) -> None:
    rows = [sample(10 * n, *((*frame, 1) for frame in frames)) for n, (frames, _, _) in enumerate(OF_STACKS, 1)]
    report = export(tmp_path / "a.sqlite", ENVIRONMENT, nvtx(*rows))
    trace, _ = translate_reports([report], tmp_path / "x.prv", "nvtx")
    for level, column in ((100, 1), (101, 2)):
        assert shown(trace, level, 10) == [
            (10 * n, each[column]) for n, each in enumerate(OF_STACKS, 1) if each[column]
        ]


@pytest.mark.slow
@pytest.mark.skipif(not REPORTS.is_dir(), reason=NO_REPORTS)
def test_a_real_report(tmp_path: Path) -> None:
    path = REPORTS / "gpu/sampled-1.sqlite"
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as report:
        names = dict(report.execute("SELECT id, value FROM StringIds"))
        rows = report.execute("SELECT start, jsonText FROM NVTX_EVENTS WHERE eventType = 34 ORDER BY start").fetchall()
    trace, _ = translate_reports([path], tmp_path / "x.prv", "nvtx", SourceOptions(stack_depth=100))
    stacks = [(start, json.loads(text)["Python Periodic Sampling"]["Frames"]) for start, text in rows]
    first = rows[0][0] - trace.events[trace.events["type"] == FUNCTION]["time"].min()
    for level in (0, 1, 10, 30):
        expected = []
        for start, frames in stacks:
            if level < len(frames):
                function, file = (frames[level][key] for key in ("Function", "File"))
                name, folder = names.get(function, f"name {function}"), names.get(file, f"name {file}")
                expected.append((start, f"{name} ({folder.rpartition('/')[2]})"))
        assert shown(trace, level, first) == expected


def test_back_traces_name_the_function_of_the_program_that_called(tmp_path: Path) -> None:
    """And nothing of the stack: calls are not samples."""
    path = unpack(DATA / "sampled/evalloop-calls.sqlite.xz")
    with closing(sqlite3.connect(path)) as report:
        names = dict(report.execute("SELECT id, value FROM StringIds"))
        rows = report.execute("SELECT start, jsonText FROM NVTX_EVENTS WHERE eventType = 34 ORDER BY start").fetchall()
    trace, _ = translate_reports([path], tmp_path / "x.prv", "nvtx")
    expected = []
    for start, text in rows:
        frames = json.loads(text)["Python Backtrace on CUDA"]["Frames"]
        own = [each for each in frames if "-packages/" not in names[each["File"]] and names[each["File"]][0] == "/"]
        if own:
            expected.append((start, f"{names[own[0]['Function']]} ({names[own[0]['File']].rpartition('/')[2]})"))
    events = trace.events[trace.events["type"] == FUNCTION + 100]
    labels = [trace.values[FUNCTION + 100][value] for value in events["value"]]
    assert len(expected) > 8000
    assert labels == [function for _, function in expected]
    assert (events["time"].diff().iloc[1:].to_numpy() == np.diff([start for start, _ in expected])).all()
    assert not (trace.events["type"] == FUNCTION).any()
