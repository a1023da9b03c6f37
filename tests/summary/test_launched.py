"""Kernel time by the NVTX range that launched it, against plain SQL and a loop over kernels."""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import Unpacked
from tests.report_truth import split_name
from tests.summary.made import summarize_reports

LAUNCHED = """
    SELECT k."end" - k.start, r.start, r.globalTid
    FROM CUPTI_ACTIVITY_KIND_KERNEL k
    JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId
    JOIN StringIds s ON s.id = k.shortName
    WHERE s.value NOT LIKE 'nccl%'
"""
RANGES = """
    SELECT n.globalTid, n.start, n."end", COALESCE(d.text || ':', '') || COALESCE(n.text, s.value)
    FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId
    LEFT JOIN NVTX_EVENTS d ON d.eventType = 75 AND d.domainId = n.domainId
    WHERE n.eventType = 59 AND n."end" IS NOT NULL
    ORDER BY n.start
"""


def find_range(ranges: list[tuple[int, int, str]], time: int) -> str:
    """The name of the range around a time that started last; "" if there is none."""
    for begin, end, name in reversed(ranges[: bisect_right(ranges, time, key=lambda own: own[0])]):
        if begin <= time < end:
            return name
    return ""


def list_launched(report: Path) -> dict[str, tuple[int, int]]:
    """Number and time (ns) of kernels by the innermost range of the launching thread, else of the main thread."""
    with closing(sqlite3.connect(report)) as database:
        of_thread: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        for thread, begin, end, text in database.execute(RANGES):
            of_thread[thread].append((begin, end, split_name(text)[0]))
        count, time = Counter[str](), Counter[str]()
        for ns, sent, thread in database.execute(LAUNCHED):
            process = thread >> 24 & 0xFFFFFF
            main = thread >> 24 << 24 | process
            name = find_range(of_thread[thread], sent) or find_range(of_thread[main], sent)
            count[name] += 1
            time[name] += ns
    return {name: (count[name], time[name]) for name in count}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["whatif/w-gemm", pytest.param("exercises/ex1b-fp32", marks=pytest.mark.all_sets)])
def test_launched_is_what_plain_sql_finds(shared_reports: Path, unpacked: Unpacked, name: str) -> None:
    """Backward runs on a thread of its own, whose kernels belong to the main thread's range unless it has one."""
    report = unpacked(shared_reports / f"{name}.rank0.sqlite")
    found = summarize_reports([report]).launched
    expected = list_launched(report)
    assert len(expected) > 3
    assert {each.range: (each.count, each.total_ns) for each in found} == expected
    times = [each.total_ns for each in found]
    assert times == sorted(times, reverse=True)
