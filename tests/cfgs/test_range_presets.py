"""The preset of GPU time by NVTX range, compared with loops over ranges and operations of the reports."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import NamedTuple

import pytest

from tests.cfgs import recorded
from tests.conftest import SAMPLES
from tests.translated import SOURCES, Translated, Translations

pytestmark = pytest.mark.slow  # translates whole jobs

SETS = ["mpi-4", "ddp-2x2"]
ON_GPU = 9620


class Range(NamedTuple):
    """A range of the default domain on a thread, or on a stream."""

    begin: int
    end: int
    name: str


Cells = dict[tuple[int, str], int]
"""Time (ns) by row and name of the range."""


@pytest.fixture(scope="module", params=SETS)
def translated(request: pytest.FixtureRequest, translations: Translations) -> Translated:
    reports = [SAMPLES / f"{request.param}.rank{rank}.sqlite" for rank in range(4)]
    return translations(reports, f"{SOURCES},nvtx_on_gpu")


def show(translated: Translated) -> dict[str, Cells]:
    """Return the cells of each histogram of the preset in ns."""
    labels = translated.trace.values[ON_GPU]
    return {
        histogram.name: {
            (row, labels[int(value)]): round(ms * 10**6)
            for value, column in histogram.frame.items()
            for row, ms in enumerate(column)
            if ms
        }
        for histogram in recorded.show("analysis/gpu_time_by_range", translated.trace).histograms
    }


def list_launches(translated: Translated) -> list[tuple[int, Range, list[Range]]]:
    """Return each operation with its row, and the ranges of the thread that launched it, from the outermost one.

    An operation is launched by the first call of its process with its correlation id.
    """
    ranges = translated.nvtx
    ranges = ranges[(ranges["style"] == "push/pop") & (ranges["domain"] == "")]
    of_row = {
        int(row): sorted(Range(*own) for own in zip(frame["begin"], frame["end"], frame["name"], strict=True))
        for row, frame in ranges.groupby("row")
    }
    calls: dict[tuple[int, int], tuple[int, int]] = {}
    listed = translated.calls.sort_values("begin")
    tasks = translated.task_of(listed["row"])
    for task, row, correlation, begin in zip(tasks, listed["row"], listed["correlation"], listed["begin"], strict=True):
        calls.setdefault((int(task), int(correlation)), (int(row), int(begin)))
    launches = []
    for operation in translated.gpu_operations.itertuples():
        row, called = calls[int(operation.task), int(operation.correlation)]
        own = of_row.get(row, [])
        before = own[: bisect_right(own, (called + 1,))]
        around = [each for each in before if each.begin <= called < each.end]
        launches.append((int(operation.row), Range(operation.begin, operation.end, ""), around))
    return launches


def add_up(translated: Translated) -> dict[str, Cells]:
    """Return what the preset promises: by the ranges whose operations on the stream begin before and end after."""
    launches = list_launches(translated)
    spans: dict[tuple[int, Range], tuple[int, int]] = {}
    for row, operation, around in launches:
        for each in around:
            begin, end = spans.get((row, each), (operation.begin, operation.end))
            spans[row, each] = min(begin, operation.begin), max(end, operation.end)
    on_row: dict[int, list[tuple[int, int, int, int, str]]] = {}
    for (row, each), (begin, end) in spans.items():
        on_row.setdefault(row, []).append((begin, -end, each.begin, -each.end, each.name))
    cells: dict[str, Counter[tuple[int, str]]] = {name: Counter() for name in ("outermost", "depth 2", "innermost")}
    for row, operation, _ in launches:
        own = on_row.get(row, [])
        around_it = sorted(each for each in own if each[0] <= operation.begin and operation.end <= -each[1])
        chosen = {"outermost": around_it[:1], "depth 2": around_it[1:2], "innermost": around_it[-1:]}
        for where, picked in chosen.items():
            for *_, name in picked:
                cells[where][row, name] += operation.end - operation.begin
    return {where: dict(counter) for where, counter in cells.items()}


def test_time_of_operations_by_range(translated: Translated) -> None:
    shown, expected = show(translated), add_up(translated)
    assert len(shown) == 3 and all(len(cells) > 3 for cells in expected.values())
    assert shown["GPU time by outermost range [ms]"] == expected["outermost"]
    assert shown["GPU time by range of depth 2 [ms]"] == expected["depth 2"]
    assert shown["GPU time by innermost range [ms]"] == expected["innermost"]


def test_it_is_the_range_of_the_launch_if_one_thread_launches(translated: Translated) -> None:
    """Other threads of ddp-2x2 launch backward passes between the operations of `step`, which takes their time."""
    launched: Counter[tuple[int, str]] = Counter()
    for row, operation, around in list_launches(translated):
        if around:
            launched[row, around[-1].name] += operation.end - operation.begin
    shown = show(translated)["GPU time by innermost range [ms]"]
    more = {key: ns - launched[key] for key, ns in shown.items() if ns != launched[key]}
    assert set(shown) == set(launched)
    assert {name for _, name in more} == ({"step"} if len(translated.trace.values[ON_GPU]) > 8 else set())
    assert all(ns > 0 for ns in more.values())
