"""Samples of the threads that keep a GPU waiting, against SQL and loops over the report and its JSON."""

from __future__ import annotations

import bisect
import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

import nsys2prv_ng
from tests.conftest import DATA, unpack
from tests.tiers import cases

PLANTED = {
    "gnn": ("grow (gnn.py)", ""),
    "pong": ("sample (pong.py)", ""),
    "evalloop": ("evaluate (evalloop.py)", ""),
    "patches": ("step (patches.py)", "queue.get"),
}
"""What is slow on purpose in each capture (benchmarks/programs): the program's function, and what it calls."""


def find_report(name: str) -> Path:
    return unpack(DATA / "sampled" / f"{name}.sqlite.xz")


def is_library(path: str) -> bool:
    return "/lib/python" in path or "-packages/" in path or path.startswith("<")


def describe(frames: list[tuple[str, str]]) -> tuple[str, str]:
    """Return the program's function and the library's that it called, of frames from the innermost one."""
    level = next((n for n, (_, path) in enumerate(frames) if not is_library(path)), None)
    if level is None:
        return "", ""
    name, path = frames[level]
    inner = {"wrapper", "inner", "decorate_context"}
    below = frames[:level][::-1]
    public = [each for each in below if not each[0].startswith("_") and each[0] not in inner]
    called = ""
    for function, file in (public or below)[:1]:
        package = (
            file.rsplit("-packages/", 1)[-1]
            if "-packages/" in file
            else file.split("/lib/python", 1)[1].split("/", 1)[1]
        )
        called = f"{package.split('/')[0].removesuffix('.py')}.{function}"
    return f"{name} ({path.rsplit('/', 1)[-1]})", called


def list_parts(
    path: Path, windows: list[tuple[int, int]], longest: tuple[int, int]
) -> tuple[list[tuple[int, tuple[str, str]]], list[tuple[int, int]]]:
    """Return the marks (time, functions) on the main thread within windows, and the parts of gaps (begin, end).

    A part ends with the return of the launch that ended the gap. `windows`: from time 0 of the trace; `longest`: the
    length of the longest gap in them, and its start, likewise.
    """
    with closing(sqlite3.connect(path)) as report:
        strings = dict(report.execute("SELECT id, value FROM StringIds"))
        operations = sorted(
            row
            for table in ("KERNEL", "MEMCPY", "MEMSET")
            for row in report.execute(f"SELECT start, end, correlationId FROM CUPTI_ACTIVITY_KIND_{table}")
        )
        calls = {
            row[0]: row[1:]
            for row in report.execute(
                "SELECT correlationId, start, max(end) FROM CUPTI_ACTIVITY_KIND_RUNTIME GROUP BY correlationId"
            )
        }
        (main,) = report.execute(
            "SELECT globalTid FROM NVTX_EVENTS "
            "WHERE eventType = 34 AND globalTid % 16777216 = globalTid / 16777216 % 16777216"
        ).fetchone()
        rows = report.execute(
            "SELECT start, jsonText, jsonTextId FROM NVTX_EVENTS WHERE eventType = 34 AND globalTid = ? ORDER BY start",
            (main,),
        ).fetchall()
    samples = []
    for start, text, number in rows:
        (mark,) = json.loads(text or strings[number]).values()
        frames = mark["Frames"]
        named = [
            (strings[each["Function"]].replace("&lt;", "<").replace("&gt;", ">"), strings[each["File"]])
            for each in frames
        ]
        samples.append((start, describe(named)))
    gaps, busy_until = [], operations[0][0]
    for n, (start, end, _) in enumerate(operations):
        if start > busy_until:
            together = [calls[each[2]] for each in operations[n:] if each[0] == start and each[2] in calls]
            gaps.append((busy_until, start, min(together)[1] if together else busy_until))
        busy_until = max(busy_until, end)
    length, longest_at = longest
    (origin,) = {begin - longest_at for begin, end, _ in gaps if end - begin == length}
    kept = [each for each in samples if any(low <= each[0] - origin < high for low, high in windows)]
    return kept, [(begin, min(returned, end)) for begin, end, returned in gaps]


def count_by_loop(path: Path, windows: list[tuple[int, int]], longest: tuple[int, int]) -> Counter[tuple[str, str]]:
    """Return the samples in parts of gaps."""
    samples, parts = list_parts(path, windows, longest)
    times = [time for time, _ in samples]
    found: Counter[tuple[str, str]] = Counter()
    for begin, end in parts:
        for n in range(bisect.bisect_left(times, begin), bisect.bisect_left(times, end)):
            found[samples[n][1]] += 1
    return found


@pytest.mark.parametrize("name", cases(PLANTED, push=("gnn", "patches"), quick=("gnn",)))
def test_samples_are_those_of_the_report_and_name_the_planted_cause(name: str) -> None:
    summary = nsys2prv_ng.summarize([find_report(name)])
    (gpu,) = summary.gpus
    assert gpu.longest_gap_at_ns is not None
    longest = gpu.longest_gap_ns, gpu.longest_gap_at_ns
    counted = Counter({(each.function, each.called): each.samples for each in gpu.sampled})
    assert counted == count_by_loop(find_report(name), summary.windows_ns, longest)
    planted = [each for each in gpu.sampled if (each.function, each.called) == PLANTED[name]]
    assert planted and planted[0] in gpu.sampled[:3]


def test_a_gap_waits_for_the_function_whose_call_ended_it() -> None:
    """As in evalloop: `evaluate` reads each picture's classes, and `step` launches the training."""
    path = find_report("evalloop-calls")
    summary = nsys2prv_ng.summarize([path])
    (gpu,) = summary.gpus
    assert gpu.longest_gap_at_ns is not None
    marks, parts = list_parts(path, summary.windows_ns, (gpu.longest_gap_ns, gpu.longest_gap_at_ns))
    times, found = [time for time, _ in marks], Counter[str]()
    for begin, end in parts:
        n = bisect.bisect_left(times, end) - 1
        if end > begin and n >= 0 and times[n] >= begin:
            found[marks[n][1][0]] += end - begin
    assert {each.function: each.ns for each in gpu.sampled} == {name: ns for name, ns in found.items() if name}
    assert summary.verdict is not None
    assert {"step (evalloop.py)", "evaluate (evalloop.py)"} == {name for name, _ in found.most_common(2)}
    [where] = [each.text for each in summary.verdict.statements if each.label == "WHERE"]
    names = [
        f"`{name}` {ns / sum(high - low for low, high in summary.windows_ns):.0%}" for name, ns in found.most_common(2)
    ]
    assert where.startswith(f"{', '.join(names)} of the step until they call CUDA (4,510 calls)")


def test_reports_without_samples_say_nothing() -> None:
    assert all(not gpu.sampled for gpu in nsys2prv_ng.summarize([unpack(DATA / "programs/gnn-a.rank0.sqlite.xz")]).gpus)
