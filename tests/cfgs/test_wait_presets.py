"""Presets of waits on made traces, compared with loops over each nanosecond of each row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby

import numpy as np
import pytest

from cfgs.generate import colours
from tests.cfgs.recorded import Histogram, show
from tests.cfgs.waits_trace import (
    ACTIVITY,
    END,
    GPUS,
    LATENESS,
    PART,
    RANGE,
    RANK,
    REASON,
    RECEIVED,
    SENT,
    TASK_OF_ROW,
    Values,
    make_waits_trace,
)
from tests.trace_reader import Trace

pytestmark = pytest.mark.slow  # translates whole jobs

ROWS = range(len(TASK_OF_ROW))
WAITING, MOVING = 1, 2


@pytest.fixture(scope="module", params=[1, 2, 3])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Values]:
    return make_waits_trace(tmp_path_factory.mktemp("waits"), request.param)


def find_highest(of_row: Callable[[int, int], int]) -> list[list[int]]:
    """Return the highest value among the rows of each rank, in each nanosecond."""
    return [
        [max(of_row(row, time) for row in ROWS if TASK_OF_ROW[row] == task) for time in range(END)]
        for task in range(max(TASK_OF_ROW) + 1)
    ]


def count_time(highest: list[list[int]], *columns: int) -> list[list[int]]:
    return [[values.count(column) for column in columns] for values in highest]


def list_columns(histogram: Histogram, columns: int) -> list[list[float]]:
    """Return the first columns, in ns; all others must be empty."""
    assert not histogram.cells[:, columns:].any()
    return (histogram.cells[:, :columns] * 1_000_000).round(3).tolist()


def list_runs(values: list[int]) -> Iterator[int]:
    """Return each value other than 0 once for each stretch of it."""
    return (value for value, _ in groupby(values) if value)


# ---- streams and threads ---------------------------------------------------------------------------------------------


def test_time_of_each_rank_waiting_and_moving(made: tuple[Trace, Values]) -> None:
    trace, values = made
    shown = show("analysis/nccl_waiting", trace)
    highest = find_highest(lambda row, time: values[PART][row, time])
    assert list_columns(shown.histograms[0], 2) == count_time(highest, WAITING, MOVING)
    of_rows = shown.windows[-1]
    assert of_rows.name == "Wait and transfer" and of_rows.level == "thread"
    for row, begin, end, value in of_rows.bursts.itertuples(index=False):
        assert set(values[PART][int(row), int(begin) : int(end)].tolist()) <= {value}


def test_time_waited_by_rank_waited_for_and_by_reason(made: tuple[Trace, Values]) -> None:
    trace, values = made
    by_reason, by_rank = show("analysis/waited_for", trace).histograms
    for histogram, number, last in ((by_rank, RANK, 3), (by_reason, REASON, 5)):
        highest = find_highest(lambda row, time, number=number: values[number][row, time])
        assert list_columns(histogram, last) == count_time(highest, *range(1, last + 1))


def test_times_and_sum_of_lateness_by_class(made: tuple[Trace, Values]) -> None:
    trace, values = made
    sums, times = show("analysis/lateness", trace).histograms
    highest = find_highest(lambda row, time: values[LATENESS][row, time])
    for task, of_task in enumerate(highest):
        late = list(list_runs(of_task))
        halves = [math.floor(2 * math.log10(value)) / 2 for value in late]
        assert {half: n for half, n in times.frame.iloc[task].items() if n} == Counter(halves)
        for half in set(halves):
            expected = sum(value for value, its_half in zip(late, halves, strict=True) if its_half == half)
            assert sums.frame.iloc[task][half] * 1e6 == pytest.approx(expected, rel=1e-12)


def test_waiting_in_sends_and_receives(made: tuple[Trace, Values]) -> None:
    trace, values = made
    by_range, by_rank = show("analysis/pipeline_bubble", trace).histograms
    carries = (values[SENT] > 0) | (values[RECEIVED] > 0)
    ranks = find_highest(lambda row, time: values[RANK][row, time] * carries[row, time])
    assert list_columns(by_rank, 3) == count_time(ranks, 1, 2, 3)
    waits = carries & (values[PART] == WAITING)
    ranges = find_highest(lambda row, time: values[RANGE][row, time] * waits[row, time])
    assert list_columns(by_range, 3) == count_time(ranges, 1, 2, 3)
    assert sum(map(sum, count_time(ranges, 1, 2, 3))) > 0


# ---- GPUs ------------------------------------------------------------------------------------------------------------


def test_exposed_communication_of_ranks_and_gpus(made: tuple[Trace, Values]) -> None:
    trace, values = made
    of_gpus, of_ranks = show("analysis/exposed_communication", trace).histograms
    highest = find_highest(lambda row, time: v if (v := values[ACTIVITY][row, time]) in (3, 4, 8) else 0)
    expected = count_time(highest, *range(3, 9))
    assert (of_ranks.cells * 1_000_000).round(3).tolist() == expected
    for row in ROWS:
        share = [100 * (values[ACTIVITY][row] == value).sum() / END for value in range(1, 11)]
        assert of_gpus.cells[row].tolist() == pytest.approx(share if row in GPUS else [0] * 10)


def test_activity_of_gpus_over_time(made: tuple[Trace, Values]) -> None:
    trace, values = made
    of_ranks, of_gpus = show("views/per_gpu_waits", trace).windows
    highest = find_highest(lambda row, time: 0 if (v := values[ACTIVITY][row, time]) == 7 else v)
    for shown, expected in ((of_ranks, highest), (of_gpus, values[ACTIVITY])):
        drawn = np.zeros(np.shape(expected), np.int64)
        for row, begin, end, value in shown.bursts.itertuples(index=False):
            drawn[int(row), int(begin) : int(end)] = value
        assert drawn.tolist() == np.asarray(expected).tolist()


# ---- colours ---------------------------------------------------------------------------------------------------------

# Machado, Oliveira and Fernandes 2009: what people without cones of one kind see, on linear RGB.
VISIONS = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
SRGB_TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
WHITE = (0.95047, 1.0, 1.08883)


def see(colour: tuple[int, int, int], vision: list[list[float]]) -> np.ndarray:
    """Return CIE Lab of a colour as someone with this vision sees it."""
    parts = np.array(colour) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    xyz = np.array(SRGB_TO_XYZ) @ np.clip(np.array(vision) @ linear, 0, 1) / WHITE
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("vision", VISIONS)
def test_waiting_stands_out_with_any_colour_vision(vision: str) -> None:
    seen = {value: see(colour, VISIONS[vision]) for value, colour in colours.GPU_WAITS.items()}
    waiting = 4
    differences = {(a, b): float(np.linalg.norm(seen[a] - seen[b])) for a in seen for b in seen if a < b}
    assert min(differences.values()) > 16
    assert min(difference for pair, difference in differences.items() if waiting in pair) > 29
    parts = [see(colours.PARTS[part], VISIONS[vision]) for part in (WAITING, MOVING)]
    assert float(np.linalg.norm(parts[0] - parts[1])) > 29
