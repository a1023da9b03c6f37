"""The trace of a chosen time against the whole trace, cut by plain loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.paraver.checker.trace import check_trace
from nsys2prv_ng.reading.open_reports import Selection, Window
from tests import translated as of_tests
from tests.tiers import cases
from tests.trace_reader import Trace, pair_intervals
from tests.translated import CUDA_API, Translated, changed

pytestmark = pytest.mark.slow

# What is derived from a window is not a part of what is derived from all: tests/sources/cuda/test_device_activity.py.
translated_set = partial(of_tests.translated_set, derived=False)

OUTSIDE = "outside the chosen time"
Attributes = tuple[tuple[int, int], ...]

STEP, HOST_STEP = 63000430, 63000431
WAITS = 63000450, 63000451
"""Waits for the GPU, and the idle time after them: a wait counts if its thread launched something since the one before,
which a window does not know of its first one."""


def interval_types(trace: Trace) -> list[int]:
    """Event types that open and close: their value 0 is labelled as the end."""
    return [number for number, labels in trace.values.items() if labels.get(0) == "End"]


def attributes_by_line(trace: Trace) -> dict[int, Attributes]:
    """What each line says besides opening and closing intervals: its other types and their first values, sorted."""
    others = trace.events[~trace.events["type"].isin(interval_types(trace))].drop_duplicates(["line", "type"])
    found: dict[int, list[tuple[int, int]]] = {}
    for line, event_type, value in zip(others["line"], others["type"], others["value"], strict=True):
        found.setdefault(line, []).append((event_type, value))
    return {line: tuple(sorted(pairs)) for line, pairs in found.items()}


def common(begin: int, end: int, low: int, high: int) -> tuple[int, int] | None:
    """What is left of an interval that has a length within the window; None where nothing is."""
    begin, end = max(begin, low), min(end, high)
    return (begin, end) if begin < end else None


class Contents:
    """Everything in a trace, with times in UTC, as multisets."""

    def __init__(self, translated: Translated) -> None:
        trace, start = translated.trace, translated.start
        attributes = attributes_by_line(trace)
        found = pair_intervals(trace, *interval_types(trace))
        self.intervals: Counter[tuple[int, ...]] = Counter()
        """(type, value, row, begin, end, attributes of the line of its begin)."""
        for event in found[~found["type"].isin(WAITS)].itertuples():
            key = event.type, event.value, event.row, event.begin + start, event.end + start
            self.intervals[(*key, attributes.get(event.line, ()))] += 1
        interval_lines = {*found["line"], *found["end_line"]}
        points = trace.events[~trace.events["line"].isin(interval_lines)].drop_duplicates("line")
        self.points: Counter[tuple[int, ...]] = Counter()
        """(row, time, attributes)."""
        for point in points.itertuples():
            self.points[point.row, point.time + start, attributes[point.line]] += 1
        self.states = Counter(
            (row, state, begin + start, end + start)
            for row, state, begin, end in zip(*(trace.states[c] for c in ("row", "state", "begin", "end")), strict=True)
        )
        columns = ["send_row", "receive_row", "size", "tag", "send_logical", "receive_logical"]
        self.lines = Counter(
            (*line[:4], line[4] + start, line[5] + start)
            for line in trace.communications[columns].itertuples(index=False, name=None)
        )

    def within(self, low: int, high: int) -> tuple[Counter, Counter, Counter, Counter]:
        """Intervals, points, states and lines as a window must show them."""
        kept: list[Counter] = [Counter() for _ in range(4)]
        for (event_type, value, row, begin, end, others), number in self.intervals.items():
            if begin == end and low <= begin <= high:
                kept[0][event_type, value, row, begin, end, others] += number
            elif left := common(begin, end, low, high):
                kept[0][(event_type, value, row, *left, others)] += number
        for (row, time, others), number in self.points.items():
            if low <= time <= high:
                kept[1][row, time, others] += number
        for (row, state, begin, end), number in self.states.items():
            if left := common(begin, end, low, high):
                kept[2][(row, state, *left)] += number
        for (*ends, send, receive), number in self.lines.items():
            if max(send, receive) >= low and min(send, receive) <= high:
                kept[3][(*ends, min(max(send, low), high), min(max(receive, low), high))] += number
        return kept[0], kept[1], kept[2], kept[3]


def difference(found: Counter, expected: Counter) -> str:
    """What two multisets do not have in common; empty if they are the same."""
    missing, surplus = expected - found, found - expected
    if not missing and not surplus:
        return ""
    some = "".join(f"\n  missing {key}" for key in sorted(missing, key=str)[:5])
    some += "".join(f"\n  not expected {key}" for key in sorted(surplus, key=str)[:5])
    return f"{missing.total()} missing, {surplus.total()} not expected:{some}"


REPORTS = {
    "ddp-2x2": [f"ddp-2x2.rank{rank}.sqlite" for rank in (0, 2)],
    "mpi-4": [f"mpi-4.rank{rank}.sqlite" for rank in range(4)],
    "mpi-2": [f"mpi-4.rank{rank}.sqlite" for rank in (0, 2)],
    "single-graph": ["single-graph.sqlite"],
    "points": ["points.sqlite"],
}


# Two ranks have messages, the points CUDA graphs; several windows are of NCCL.
@pytest.fixture(scope="module", params=cases(REPORTS, push=["points", "mpi-2"], quick=["points"]))
def reports(request: pytest.FixtureRequest, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    if request.param == "points":
        # Calls and kernels without length are single lines; marks are points.
        statements = [
            'UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET "end" = start WHERE rowid % 3 = 0',
            'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = start WHERE rowid % 3 = 0',
            'UPDATE NVTX_EVENTS SET eventType = 34, "end" = NULL WHERE eventType = 59 AND rowid % 4 = 0',
        ]
        folder = tmp_path_factory.mktemp("reports")
        return [changed(samples / "single-graph.sqlite", folder / "points.sqlite", statements)]
    return [samples / name for name in REPORTS[request.param]]


@pytest.fixture(scope="module")
def whole(reports: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Translated:
    return translated_set(reports, tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def contents(whole: Translated) -> Contents:
    return Contents(whole)


def windows(trace: Trace) -> Iterator[Window]:
    """Windows in ns from the start of the trace: some anywhere, and some whose limits are times of events."""
    length = trace.duration
    yield length // 3, 2 * length // 3
    yield None, length // 2
    yield length // 2, None
    yield 0, length
    yield 0, 10 * length
    generator = np.random.default_rng(8)
    times = np.unique(np.concatenate([trace.events["time"], trace.communications["receive_logical"]]))
    for distance in (1, 2, 50, 500):
        first = int(generator.integers(1, max(2, times.size - distance - 1)))
        yield int(times[first]), int(times[min(first + distance, times.size - 1)])
    # One ns on each side of an event in the middle.
    middle = int(times[times.size // 2])
    yield middle, middle + 1
    yield middle - 1, middle


@dataclass(frozen=True)
class Cut:
    """A window, what it must show, and the trace of it; None where there is nothing to show."""

    window: Window
    low: int
    high: int
    expected: tuple[Counter, Counter, Counter, Counter]
    translated: Translated | None

    @cached_property
    def found(self) -> Contents:
        assert self.translated
        return Contents(self.translated)


@pytest.fixture(scope="module")
def cuts(
    reports: list[Path], whole: Translated, contents: Contents, tmp_path_factory: pytest.TempPathFactory
) -> list[Cut]:
    """Every window; one without any event must be refused."""
    found = []
    for window in windows(whole.trace):
        low = whole.start + (window[0] or 0)
        high = whole.start + (whole.trace.duration if window[1] is None else window[1])
        expected = contents.within(low, high)
        translated = None
        if expected[0] or expected[1] or expected[3]:
            translated = translated_set(reports, tmp_path_factory.mktemp("cut"), selection=Selection(window=window))
        else:
            with pytest.raises(UsageError, match="no events in the chosen time"):
                translated_set(reports, tmp_path_factory.mktemp("cut"), selection=Selection(window=window))
        found.append(Cut(window, low, high, expected, translated))
    return found


def shown(cuts: list[Cut]) -> list[Cut]:
    """The cuts that show anything, which most must."""
    found = [cut for cut in cuts if cut.translated]
    assert len(found) >= 9
    return found


def test_intervals_of_a_window_are_cut_from_those_of_the_whole(cuts: list[Cut]) -> None:
    for cut in shown(cuts):
        assert difference(cut.found.intervals, cut.expected[0]) == "", cut.window


def test_points_of_a_window_are_those_of_the_whole(cuts: list[Cut]) -> None:
    for cut in shown(cuts):
        assert difference(cut.found.points, cut.expected[1]) == "", cut.window


def test_states_of_a_window_are_cut_from_those_of_the_whole(cuts: list[Cut]) -> None:
    for cut in shown(cuts):
        assert difference(cut.found.states, cut.expected[2]) == "", cut.window


def test_lines_of_a_window_are_cut_from_those_of_the_whole(cuts: list[Cut]) -> None:
    for cut in shown(cuts):
        assert difference(cut.found.lines, cut.expected[3]) == "", cut.window


def test_the_trace_of_a_window_is_sound_and_within_it(cuts: list[Cut]) -> None:
    for cut in shown(cuts):
        assert cut.translated
        trace = cut.translated.trace
        assert check_trace(trace.path).problems == [], cut.window
        first = cut.translated.start + 1
        assert cut.low <= first <= cut.translated.start + trace.duration <= cut.high
        # At time 0 Paraver takes only the last event of a row and type.
        assert not (trace.events["time"] == 0).any()


def test_rows_and_labels_do_not_depend_on_the_window(reports: list[Path], whole: Translated, tmp_path: Path) -> None:
    length = whole.trace.duration
    trace = translated_set(
        reports, tmp_path, selection=Selection(window=(length // 3, length // 3 + length // 10))
    ).trace
    assert trace.names == whole.trace.names
    assert (trace.threads, trace.nodes, trace.cpus) == (whole.trace.threads, whole.trace.nodes, whole.trace.cpus)
    absent = {STEP, HOST_STEP, *WAITS}  # there may be none in the window
    assert {**whole.trace.types, **trace.types} == whole.trace.types
    assert set(whole.trace.types) - set(trace.types) <= absent
    assert {**whole.trace.values, **trace.values} == whole.trace.values
    assert set(whole.trace.values) - set(trace.values) <= absent


def test_what_lies_outside_is_counted(reports: list[Path], whole: Translated, tmp_path: Path) -> None:
    length = whole.trace.duration
    window = length // 4, length // 2
    translated = translated_set(reports, tmp_path, selection=Selection(window=window))
    for account in translated.summary.sources:
        if account.name in ("critical_path", "path_lines"):
            continue  # a window has a path of its own
        before = whole.account(account.name)
        assert account.read == before.read == account.written + sum(account.dropped.values())
        outside = before.written - account.written
        assert account.dropped == before.dropped | ({OUTSIDE: outside} if outside else {})
    lines = translated.account("launch_lines")
    assert lines.written == len(translated.trace.communications)
    assert translated.account("cuda_api").dropped[OUTSIDE] > 0


@pytest.mark.parametrize("beyond", [0, 1, pytest.param(10**9, marks=pytest.mark.all_sets)])
def test_a_window_after_the_end_is_an_error(
    whole: Translated, reports: list[Path], tmp_path: Path, beyond: int
) -> None:
    with pytest.raises(UsageError, match="time: starts"):
        translated_set(reports, tmp_path, selection=Selection(window=(whole.trace.duration + beyond, None)))
    assert list(tmp_path.iterdir()) == []


def test_a_window_without_events_is_an_error(samples: Path, tmp_path: Path) -> None:
    """Two captures with nothing between them."""
    sample = samples / "single-graph.sqlite"
    later = "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + 100000000000"
    reports = [sample, changed(sample, tmp_path / "later.sqlite", [later])]
    with pytest.raises(UsageError, match="no events in the chosen time"):
        translated_set(reports, tmp_path / "trace", selection=Selection(window=(50 * 10**9, 60 * 10**9)))
    assert list((tmp_path / "trace").iterdir()) == []


def test_what_has_no_end_is_cut_like_the_rest(samples: Path, tmp_path: Path) -> None:
    last = "(SELECT MAX(start) FROM NVTX_EVENTS WHERE text LIKE 'iteration %')"
    statement = f'UPDATE NVTX_EVENTS SET "end" = NULL WHERE start = {last}'
    report = changed(samples / "mpi-4.rank0.sqlite", tmp_path / "report.sqlite", [statement])
    whole = translated_set([report], tmp_path / "whole")
    begin = whole.objects.reports[0].value(f"SELECT {last}") + whole.objects.reports[0].utc - whole.start
    translated = translated_set([report], tmp_path / "cut", selection=Selection(window=(begin + 1000, None)))
    ranges: pd.DataFrame = translated.intervals(9600)
    open_ended = ranges[ranges["begin"] == whole.start + begin + 1000]
    assert open_ended["end"].max() == whole.start + whole.trace.duration
    assert translated.account("nvtx").closed_at_end == 1


# ---- several windows, and intervals left out -------------------------------------------------------------------------


def test_of_several_windows_each_is_cut_from_the_whole(samples: Path, tmp_path: Path) -> None:
    """What is open over several of them is a piece in each; the trace goes on between them, empty."""
    reports = [samples / f"ddp-2x2.rank{rank}.sqlite" for rank in (0, 2)]
    whole = translated_set(reports, tmp_path / "whole")
    steps = whole.nvtx[whole.nvtx["text"] == "backward"].sort_values("begin")
    windows: list[list[int]] = []
    for begin, end in zip(steps["begin"], steps["end"], strict=True):
        if windows and begin <= windows[-1][1]:
            windows[-1][1] = max(windows[-1][1], end)
        else:
            windows.append([begin, end])
    assert 1 < len(windows) < len(steps)
    contents = Contents(whole)
    parts = [contents.within(low, high) for low, high in windows]
    expected = [sum(of_windows, Counter()) for of_windows in zip(*parts, strict=True)]
    translated = translated_set(reports, tmp_path / "cut", selection=Selection(nvtx_range="backward"))
    found = Contents(translated)
    for actual, wanted in zip((found.intervals, found.points, found.states, found.lines), expected, strict=True):
        assert difference(actual, wanted) == ""
    first = windows[0][0] - 1
    assert (translated.start, translated.trace.duration) == (first, windows[-1][1] - first)
    assert check_trace(translated.trace.path).problems == []
    for account in translated.summary.sources:
        assert account.read == account.written + sum(account.dropped.values())


def test_without_short_calls_the_rest_stays_as_it_was(samples: Path, tmp_path: Path) -> None:
    """The first and the last event are short calls: the trace begins and ends with them, and has their states."""
    report = samples / "ddp-2x2.rank0.sqlite"
    sources = "cuda_api,nvtx,kernels"
    whole = translated_set([report], tmp_path / "whole", sources)
    translated = translated_set([report], tmp_path / "cut", sources, Selection(shortest={"cuda_api": 50_000}))
    assert check_trace(translated.trace.path).problems == []
    assert (translated.start, translated.trace.duration) == (whole.start, whole.trace.duration)
    before, after = Contents(whole), Contents(translated)
    assert after.states == before.states
    is_call = {key: key[0] == CUDA_API for key in before.intervals}
    expected = Counter({key: n for key, n in before.intervals.items() if not is_call[key] or key[4] - key[3] >= 50_000})
    assert 0 < expected.total() < before.intervals.total()
    assert difference(after.intervals, expected) == ""
    assert translated.account("cuda_api").dropped == {
        "shorter than the selected minimum": before.intervals.total() - expected.total()
    }
