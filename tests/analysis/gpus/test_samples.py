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


def count_by_loop(path: Path, windows: list[tuple[int, int]], longest_at: int) -> Counter[tuple[str, str]]:
    """Return the samples in parts of gaps that end with the return of the launch that ended the gap.

    `windows`: from time 0 of the trace; `longest_at`: the start of the longest gap in them, likewise.
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
        frames = json.loads(text or strings[number])["Python Periodic Sampling"]["Frames"]
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
    lengths = {}
    for origin in {begin - longest_at for begin, _, _ in gaps}:
        inside = [
            (end - begin, begin)
            for begin, end, _ in gaps
            for low, high in windows
            if low <= begin - origin and end - origin <= high
        ]
        if inside and max(inside)[1] - origin == longest_at:
            lengths[max(inside)[0]] = origin
    origin = lengths[max(lengths)]
    times = [time for time, _ in samples]
    found: Counter[tuple[str, str]] = Counter()
    for begin, end, returned in gaps:
        for n in range(bisect.bisect_left(times, begin), bisect.bisect_left(times, min(returned, end))):
            if any(low <= times[n] - origin < high for low, high in windows):
                found[samples[n][1]] += 1
    return found


@pytest.mark.parametrize("name", cases(PLANTED, push=("gnn", "patches"), quick=("gnn",)))
def test_samples_are_those_of_the_report_and_name_the_planted_cause(name: str) -> None:
    summary = nsys2prv_ng.summarize([find_report(name)])
    (gpu,) = summary.gpus
    assert gpu.longest_gap_at_ns is not None
    counted = Counter({(each.function, each.called): each.samples for each in gpu.sampled})
    assert counted == count_by_loop(find_report(name), summary.windows_ns, gpu.longest_gap_at_ns)
    planted = [each for each in gpu.sampled if (each.function, each.called) == PLANTED[name]]
    assert planted and planted[0] in gpu.sampled[:3]


def test_reports_without_samples_say_nothing() -> None:
    assert all(not gpu.sampled for gpu in nsys2prv_ng.summarize([unpack(DATA / "programs/gnn-a.rank0.sqlite.xz")]).gpus)
