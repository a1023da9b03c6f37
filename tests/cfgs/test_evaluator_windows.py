"""The evaluator of .cfg files: levels above threads, windows derived from others, and histograms."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.cfgs.cases import (
    A_KERNELS,
    B_KERNELS,
    C_KERNELS,
    CLOCK,
    MIXED,
    RUNNING,
    SIGNS,
    Case,
    _functions,
    check,
    derived,
    histogram,
    parameters,
    single,
    upper,
    valued,
    write_trace,
)
from tests.trace_reader import Trace, read_trace

pytestmark = pytest.mark.slow  # compiles the evaluator of presets

TASK_0 = [(0, 10, 0), (10, 15, 1), (15, 20, 2), (20, 30, 2), (30, 35, 1), (35, 100, 0)]
BUSY = [(0, 10, 0), (10, 15, 1), (15, 20, 2), (20, 25, 2), (25, 30, 3), (30, 35, 2), (35, 45, 1), (45, 100, 0)]
UPPERS = {
    # With two threads, A's burst without length is not seen: each step lets as many bursts end as there are threads.
    "adding": Case(single(level="task", composes=SIGNS), {0: TASK_0, 1: valued(C_KERNELS, 0, 1, 0)}),
    "application": Case(single(level="appl", composes=SIGNS), {0: BUSY}),
    "workload": Case(single(level="workload", composes=SIGNS), {0: BUSY}),
    "maximum": Case(upper("Maximum"), {0: valued(TASK_0, 0, 1, 3, 3, 3, 0)}),
    # Of values other than 0, as long as the last one is not 0.
    "minimum": Case(upper("Minimum"), {0: valued(TASK_0, 0, 0, 1, 2, 3, 0)}),
    "average": Case(upper("Average"), {0: valued(TASK_0, 0, 0.5, 2, 2.5, 1.5, 0)}),
    "adding sign": Case(upper("AddingSign"), {0: valued(TASK_0, 0, 1, 1, 1, 1, 0)}),
    "thread i": Case(
        upper("Thread i", more=parameters("task", "Thread i", "1 2")),
        {0: valued(TASK_0, 0, 0, 3, 3, 3, 0), 1: valued(C_KERNELS, 0, 0, 0)},
    ),
    # All threads have the same value, one of those.
    "activity": Case(
        upper("Activity", thread="Last Evt Type", more=parameters("task", "Activity", "2 7 8")),
        {0: [(0, 10, 0), (10, 15, 0), (15, 20, 7), (20, 30, 7), (30, 35, 7), (35, 100, 7)]},
    ),
    "in activity": Case(
        upper("In Activity", thread="Last Evt Type", more=parameters("task", "In Activity", "1 7")),
        {0: [(0, 10, 0), (10, 15, 0), (15, 20, 1), (20, 30, 1), (30, 35, 1), (35, 100, 1)]},
    ),
    # On a CPU, nothing is before its first record.
    "node": Case(single(level="node", composes=SIGNS), {0: valued(BUSY, 0, 1, 2, 2, 3, 2, 1, 0)}),
    "system": Case(single(level="system", composes=SIGNS), {0: BUSY}),
    "cpu": Case(single(level="cpu"), {1: B_KERNELS, 2: C_KERNELS}),
}
ON_A = [(0, 10, 0), (10, 20, 1), (20, 20, 0), (20, 30, 2), (30, 40, 0), (40, 60, 0), (60, 70, 0), (70, 100, 0)]
SECOND = f"{single()}\n{single(types=f'1 {CLOCK}')}\n"

DERIVED = {
    "product": Case(f"{single()}\n{RUNNING}\n{derived('product', '1 2')}", {0: ON_A, 1: valued(B_KERNELS, 0, 0, 0)}),
    "add": Case(f"{single()}\n{RUNNING}\n{derived('add', '1 2')}", {0: valued(ON_A, 1, 2, 1, 3, 1, 0, 0, 1)}),
    "different": Case(
        f"{single()}\n{RUNNING}\n{derived('different', '1 2')}", {0: valued(ON_A, 1, 0, 1, 1, 1, 0, 0, 1)}
    ),
    "factors": Case(
        f"{single()}\n{RUNNING}\n{derived('substract', '1 2', factors='10 -0.5')}",
        {0: valued(ON_A, 0.5, 10.5, 0.5, 20.5, 0.5, 0, 0, 0.5)},
    ),
    "maximum": Case(f"{single()}\n{RUNNING}\n{derived('maximum', '1 2')}", {0: valued(ON_A, 1, 1, 1, 2, 1, 0, 0, 1)}),
    "minimum": Case(f"{single()}\n{RUNNING}\n{derived('minimum', '1 2')}", {0: valued(ON_A, 0, 1, 0, 1, 0, 0, 0, 0)}),
    # Divided by 0 is 0.
    "divide": Case(
        f"{SECOND}{derived('divide', '1 2')}",
        {0: valued(A_KERNELS, 0, 0, 0, 0, 0), 1: [(0, 15, 0), (15, 35, 2), (35, 50, 0), (50, 100, 0)]},
    ),
    # The window of the finer level comes first, whatever the file says, but the factors stay where they are.
    "swapped": Case(
        f"{MIXED}{derived('substract', '1 2', factors='10 1')}",
        {
            1: [(0, 10, 0), (10, 15, -1), (15, 20, 28), (20, 30, 28), (30, 35, 29), (35, 100, 0)],
            2: [(0, 25, 0), (25, 45, 9), (45, 100, 0)],
        },
    ),
    "shifted back": Case(
        f"{single()}\n{single()}\n{derived('substract', '1 2', more='window_shifts 0 -1')}",
        {1: valued(B_KERNELS, 0, 3, -3), 2: valued(C_KERNELS, 0, 1, -1)},
    ),
    "shifted ahead": Case(
        f"{single()}\n{single()}\n{derived('add', '1 2', more='window_shifts 1 0')}",
        {1: valued(B_KERNELS, 3, 3, 0), 2: valued(C_KERNELS, 1, 1, 0)},
    ),
    "above": Case(
        f"{single()}\n{RUNNING}\n{derived('product', '1 2', more='window_level task')}"
        + _functions("selected", [("task", "Maximum")]),
        {
            0: [
                (0, 10, 0),
                (10, 15, 1),
                (15, 20, 1),
                (20, 30, 2),
                (30, 35, 0),
                (35, 40, 0),
                (40, 60, 0),
                (60, 70, 0),
                (70, 100, 0),
            ]
        },
    ),
    # The bursts are those of the second window.
    "controlled add": Case(
        f"{single()}\n{RUNNING}\n{derived('controlled: add', '1 2')}",
        {0: [(0, 40, 3), (40, 60, 0), (60, 70, 0), (70, 100, 0)], 1: [(0, 100, 3)]},
    ),
    "controlled maximum": Case(
        f"{single()}\n{RUNNING}\n{derived('controlled: maximum', '1 2')}",
        {0: [(0, 40, 2), (40, 60, 0), (60, 70, 0), (70, 100, 0)]},
    ),
    "composed": Case(
        f"{single()}\n{RUNNING}\n"
        + derived("product", "1 2", [("topcompose1", "Sign"), ("extratopcompose1", "Join Bursts")]),
        {0: [(0, 10, 0), (10, 20, 1), (20, 20, 0), (20, 30, 1), (30, 100, 0)]},
    ),
}
TIME = [[80, 10, 10, 0], [80, 0, 0, 20], [80, 20, 0, 0]]
NAN = math.nan

HISTOGRAMS = {
    # Bursts without length are not counted: A has three of value 0 but one of them is empty.
    "time": Case(single() + histogram("Time"), cells=TIME),
    "bursts": Case(single() + histogram("# Bursts"), cells=[[2, 1, 1, 0], [2, 0, 0, 1], [2, 1, 0, 0]]),
    # Shares are those of what is within the limits.
    "share": Case(
        single() + histogram("% Time", limits="1 3 1"), cells=[[50, 50, 0], [0, 0, 100], [100, 0, 0]], first_bin=1
    ),
    "share not zero": Case(
        single() + histogram("% Time Not Zero"), cells=[[0, 50, 50, 0], [0, 0, 0, 100], [0, 100, 0, 0]]
    ),
    "share of the window": Case(single() + histogram("% Window Time"), cells=TIME),
    # With another delta, the last bin includes the maximum, and there is none of its own.
    "wide bins": Case(single() + histogram("Time", limits="0 3 1.5"), cells=[[90, 10], [80, 20], [100, 0]], delta=1.5),
    "integral": Case(single() + histogram("Integral"), cells=[[0, 10, 20, 0], [0, 0, 0, 60], [0, 20, 0, 0]]),
    "average value": Case(
        SECOND + histogram("Average value", 1, 2), cells=[[0] * 4, [(22.5 + 22.5 + 150) / 80, 0, 0, 1.5], [0] * 4]
    ),
    "average value not zero": Case(
        single() + single("State As Is", None) + histogram("Average value != 0", 1, 2),
        cells=[[(10 + 10 + 180 + 30) / 70, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
    ),
    "average burst time": Case(
        single() + histogram("Average Burst Time"), cells=[[40, 10, 10, 0], [40, 0, 0, 20], [40, 20, 0, 0]]
    ),
    "burst time in us": Case(
        single(unit="Microseconds") + histogram("Average Burst Time"),
        cells=[[0.04, 0.01, 0.01, 0], [0.04, 0, 0, 0.02], [0.04, 0.02, 0, 0]],
    ),
    # Pieces of the data window's bursts where one of the control window's ends.
    "sum": Case(
        single() + single("State As Is", None) + histogram("Sum bursts", 1, 2),
        cells=[[1 + 1 + 9 + 0 + 1, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
    ),
    "average per burst": Case(
        single() + single("State As Is", None) + histogram("Average per Burst", 1, 2),
        cells=[[2.4, 1, 1, 0], [0] * 4, [0] * 4],
    ),
    "average per burst not zero": Case(
        single() + single("State As Is", None) + histogram("Average per Burst != 0", 1, 2),
        cells=[[3, 1, 1, 0], [NAN, 0, 0, NAN], [NAN, NAN, 0, 0]],
    ),
    "bursts not zero": Case(
        single() + single("State As Is", None) + histogram("# Bursts != 0", 1, 2),
        cells=[[4, 1, 1, 0], [0] * 4, [0] * 4],
    ),
    "maximum": Case(
        single() + single("State As Is", None) + histogram("Maximum", 1, 2), cells=[[9, 1, 1, 0], [0] * 4, [0] * 4]
    ),
    # Of values other than 0.
    "minimum": Case(
        single() + single("State As Is", None) + histogram("Minimum", 1, 2), cells=[[1, 1, 1, 0], [0] * 4, [0] * 4]
    ),
    # The minimum is that of values other than 0, and 5% is added to the maximum.
    "computed scale": Case(
        single() + histogram("Time").replace("Scale: False", "Scale: True"),
        cells=[[10, 10, 0], [0, 0, 20], [20, 0, 0]],
        first_bin=1,
    ),
    "computed scale from 0": Case(
        single() + histogram("Time", more="Analyzer2D.ComputeYScaleZero: True").replace("Scale: False", "Scale: True"),
        cells=TIME,
    ),
    "columns": Case(
        single() + histogram("Time", more="Analyzer2D.NumColumns: 2"), cells=[[90, 10], [80, 20], [100, 0]], delta=1.5
    ),
    # Data of a task by threads is that of the first task, for all of them.
    "coarser data": Case(
        single() + single(level="task", composes=SIGNS) + histogram("Integral", 1, 2),
        cells=[[5, 15, 20, 0], [5, 0, 0, 35], [25, 15, 0, 0]],
    ),
}
ALL = {"upper": UPPERS, "derived": DERIVED, "histogram": HISTOGRAMS}
CASES = {f"{group}: {name}": case for group, cases in ALL.items() for name, case in cases.items()}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return read_trace(write_trace(tmp_path_factory.mktemp("trace")))


@pytest.mark.parametrize("name", CASES)
def test_windows_and_histograms(name: str, trace: Trace, tmp_path: Path) -> None:
    check(CASES[name], trace, tmp_path)
