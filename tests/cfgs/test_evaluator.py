"""The evaluator of .cfg files: functions of threads, compose functions, and refused files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cfgs.cases import (
    A_KERNELS,
    B_KERNELS,
    C_KERNELS,
    CLOCK,
    IDLE,
    KERNELS,
    LABEL,
    MIXED,
    RANGE,
    RUNNING,
    Case,
    check,
    composed,
    derived,
    histogram,
    parameters,
    single,
    upper,
    valued,
    write_cfg,
    write_trace,
)
from tests.cfgs.evaluator.evaluate import Histogram, RefusedError, Window, evaluate
from tests.trace_reader import Trace, read_trace

pytestmark = pytest.mark.slow  # compiles the evaluator of presets

THREADS = {
    # The end of one kernel and the begin of the next at the same time: a burst without length is between.
    "value": Case(single(), KERNELS),
    "label": Case(single(types="1 999", more=f'{LABEL} "Kernel"'), KERNELS),
    "wildcard": Case(single(types="1 999", more=f'{LABEL} "K*l"'), KERNELS),
    "label before number": Case(single(types=f"1 {CLOCK}", more=f'{LABEL} "Kernel"'), KERNELS),
    "unknown label": Case(single(more=f'{LABEL} "Kern"'), KERNELS),
    "range of types": Case(single(types="2 6 7", functions={"evt_type": "[x,y]"}), KERNELS),
    "not of a type": Case(single(types=f"2 {CLOCK} {RANGE}", functions={"evt_type": "!="}), KERNELS),
    "no type": Case(single(types=None, functions={"evt_type": "None"}), {0: IDLE, 1: IDLE, 2: IDLE}),
    "of a value": Case(
        single(functions={"evt_value": "="}, more="window_filter_module evt_value 1 1"),
        {0: [(0, 10, 0), (10, 100, 1)], 1: IDLE, 2: [(0, 25, 0), (25, 100, 1)]},
    ),
    "type": Case(single("Last Evt Type"), {1: valued(B_KERNELS, 0, 7, 7)}),
    # Values have the decimals that PRECISION says. What happens at 0 begins there; at the end nothing is shown.
    "precision": Case(single(types=f"1 {CLOCK}"), {0: IDLE, 1: [(0, 50, 1.5), (50, 100, 3.0)]}),
    "next value": Case(single("Next Evt Val"), {0: valued(A_KERNELS, 1, 0, 2, 0, 0), 1: valued(B_KERNELS, 3, 0, 0)}),
    "next value until the end": Case(single("Next Evt Val", f"1 {CLOCK}"), {1: [(0, 50, 3.0), (50, 100, 7.0)]}),
    "value without ends": Case(single("Last Evt Val w/o Bursts"), {0: valued(A_KERNELS, 0, 1, 1, 2, 2)}),
    "in value": Case(
        single("In Evt Val", more=parameters("thread", "In Evt Val", "2 1 3")), {0: valued(A_KERNELS, 0, 1, 0, 0, 0)}
    ),
    # Before the first event a thread is in no value, and not outside of any either.
    "not in value": Case(
        single("Not In Evt Val", more=parameters("thread", "Not In Evt Val", "1 1")),
        {0: valued(A_KERNELS, 0, 0, 1, 1, 1)},
    ),
    "given value": Case(
        single("Given Evt Val", more=parameters("thread", "Given Evt Val", "2 2 3")),
        {0: valued(A_KERNELS, 0, 0, 0, 2, 0), 1: valued(B_KERNELS, 0, 3, 0)},
    ),
    "in range": Case(
        single("In Evt Range", more=parameters("thread", "In Evt Range", "1 2", "1 3")),
        {0: valued(A_KERNELS, 0, 0, 0, 1, 0), 1: valued(B_KERNELS, 0, 1, 0)},
    ),
    "between events": Case(single("Int. Between Evt"), {0: valued(A_KERNELS, 0, 10, 0, 10, 0)}),
    "between events in us": Case(single("Int. Between Evt", unit="Microseconds"), {1: valued(B_KERNELS, 0, 0.02, 0)}),
    # Before the first event, the time since 0 counts.
    "rate of the next": Case(
        single("Avg Next Evt Val", more=parameters("thread", "Avg Next Evt Val", "1 10")),
        {0: valued(A_KERNELS, 1, 0, 0, 0, 0), 1: valued(B_KERNELS, 2, 0, 0)},
    ),
    "rate of the last": Case(
        single("Avg Last Evt Val", more=parameters("thread", "Avg Last Evt Val", "1 10")),
        {0: valued(A_KERNELS, 0, 1, 0, 2, 0), 1: valued(B_KERNELS, 0, 1.5, 0)},
    ),
    "state": Case(single("State As Is", None), {0: [(0, 40, 1), (40, 60, 9), (60, 70, 0), (70, 100, 1)], 1: IDLE}),
    "useful": Case(single("Useful", None), {0: [(0, 40, 1), (40, 60, 0), (60, 70, 0), (70, 100, 1)], 1: IDLE}),
    # Idle is a state where another one has ended, but not on a thread without any.
    "in state": Case(
        single("In State", None, more=parameters("thread", "In State", "2 0 9")),
        {0: [(0, 40, 0), (40, 60, 1), (60, 70, 1), (70, 100, 0)], 1: IDLE},
    ),
    # Every end of a state is one of a burst, even if another state begins there.
    "task": Case(
        single("TaskID"),
        {
            0: valued([*A_KERNELS[:4], (30, 40, 0), (40, 40, 0), (40, 60, 0), (60, 70, 0), (70, 100, 0)], *[1] * 9),
            1: valued(B_KERNELS, 1, 1, 1),
            2: valued(C_KERNELS, 2, 2, 2),
        },
    ),
    "thread": Case(single("Thread ID"), {1: valued(B_KERNELS, 2, 2, 2), 2: valued(C_KERNELS, 3, 3, 3)}),
    # What is sent until it is received, and once more without change: two records of the receive.
    "bytes sent": Case(
        single("Send Bytes in Transit", None),
        {0: [(0, 10, 0), (10, 25, 64), (25, 25, 0), (25, 60, 0), (60, 80, 8), (80, 80, 0), (80, 100, 0)], 2: IDLE},
    ),
    "messages to receive": Case(
        single("Recv Messages in Transit", None),
        {0: IDLE, 2: [(0, 10, 0), (10, 25, 1), (25, 25, 0), (25, 60, 0), (60, 80, 1), (80, 80, 0), (80, 100, 0)]},
    ),
    "messages of a tag": Case(
        single("Send Messages in Transit", None, functions={"tag_msg": "="}, more="window_filter_module tag_msg 1 6"),
        {0: [(0, 60, 0), (60, 80, 1), (80, 80, 0), (80, 100, 0)]},
    ),
    "messages of a size": Case(
        single("Send Messages in Transit", None, functions={"size_msg": ">"}, more="window_filter_module size_msg 1 8"),
        {0: [(0, 10, 0), (10, 25, 1), (25, 25, 0), (25, 100, 0)]},
    ),
}
A_RANGES = [(0, 5, 0), (5, 8, 1), (8, 12, 2), (12, 50, 0), (50, 100, 0)]


COMPOSES = {
    "nested": Case(composed("As Is", types=f"1 {RANGE}"), {0: A_RANGES}),
    "stacked": Case(composed("Stacked Val", types=f"1 {RANGE}"), {0: valued(A_RANGES, 0, 1, 2, 1, 0)}),
    "nesting": Case(composed("Nesting level", types=f"1 {RANGE}"), {0: valued(A_RANGES, 0, 1, 2, 1, 0)}),
    "in stacked": Case(composed("In Stacked Val", "1 2", types=f"1 {RANGE}"), {0: valued(A_RANGES, 0, 0, 2, 0, 0)}),
    "sign": Case(composed("Sign"), {0: valued(A_KERNELS, 0, 1, 0, 1, 0)}),
    "not sign": Case(composed("1-Sign"), {0: valued(A_KERNELS, 1, 0, 1, 0, 1)}),
    "mod": Case(composed("Mod", "1 2"), {0: valued(A_KERNELS, 0, 1, 0, 0, 0), 1: valued(B_KERNELS, 0, 1, 0)}),
    "div": Case(composed("Div", "1 2"), {0: valued(A_KERNELS, 0, 0.5, 0, 1, 0)}),
    "prod": Case(composed("Prod", "1 3"), {0: valued(A_KERNELS, 0, 3, 0, 6, 0)}),
    "add": Case(composed("Add", "1 3"), {0: valued(A_KERNELS, 3, 4, 3, 5, 3)}),
    "subs": Case(composed("Subs", "1 3"), {0: valued(A_KERNELS, -3, -2, -3, -1, -3)}),
    "abs": Case(
        single(
            composes=[("compose_thread", "Subs"), ("topcompose1", "Abs")],
            more=parameters("compose_thread", "Subs", "1 3"),
        ),
        {0: valued(A_KERNELS, 3, 2, 3, 1, 3)},
    ),
    # The maxima come first.
    "select range": Case(composed("Select Range", "1 3", "1 2"), {0: valued(A_KERNELS, 0, 0, 0, 2, 0)}),
    "in range": Case(
        composed("Is In Range", "2 1 3", "2 1 3"), {0: valued(A_KERNELS, 0, 1, 0, 0, 0), 1: valued(B_KERNELS, 0, 1, 0)}
    ),
    "equal": Case(composed("Is Equal", "2 2 3"), {0: valued(A_KERNELS, 0, 0, 0, 2, 0)}),
    "equal sign": Case(composed("Is Equal (Sign)", "2 2 3"), {0: valued(A_KERNELS, 0, 0, 0, 1, 0)}),
    "delta": Case(composed("Delta"), {0: valued(A_KERNELS, 0, 1, -1, 2, -2)}),
    "burst time": Case(composed("Burst Time"), {0: valued(A_KERNELS, 10, 10, 0, 10, 70)}),
    "burst time in us": Case(composed("Burst Time", unit="Microseconds"), {1: valued(B_KERNELS, 0.015, 0.02, 0.065)}),
    "by burst time": Case(composed("Divide by Burst Time"), {0: valued(A_KERNELS, 0, 0.1, 0, 0.2, 0)}),
    "begin": Case(composed("Begin Time"), {0: valued(A_KERNELS, 0, 10, 20, 20, 30)}),
    "end": Case(composed("End Time"), {0: valued(A_KERNELS, 10, 20, 20, 30, 100)}),
    # Halves to even.
    "round": Case(
        single(
            composes=[("compose_thread", "Div"), ("topcompose1", "Round")],
            more=parameters("compose_thread", "Div", "1 2"),
        ),
        {0: valued(A_KERNELS, 0, 0, 0, 1, 0), 1: valued(B_KERNELS, 0, 2, 0)},
    ),
    "floor": Case(
        single(
            composes=[("compose_thread", "Div"), ("topcompose2", "Floor")],
            more=parameters("compose_thread", "Div", "1 2"),
        ),
        {1: valued(B_KERNELS, 0, 1, 0)},
    ),
    # A burst without length keeps those around it apart, unless it has their value.
    "join": Case(
        single(types=f"1 {RANGE}", composes=[("compose_thread", "Sign"), ("topcompose1", "Join Bursts")]),
        {0: [(0, 5, 0), (5, 12, 1), (12, 100, 0)], 1: IDLE},
    ),
    "join apart": Case(
        single(composes=[("compose_thread", "Sign"), ("topcompose1", "Join Bursts")]),
        {0: [(0, 10, 0), (10, 20, 1), (20, 20, 0), (20, 30, 1), (30, 100, 0)]},
    ),
    "extra above": Case(
        single(
            composes=[("extratopcompose1", "Add"), ("extratopcompose1", "Prod"), ("topcompose1", "Sign")],
            more=parameters("extratopcompose1", "Add", "1 3") + "\n" + parameters("extratopcompose1", "Prod", "1 2"),
        ),
        {0: valued(A_KERNELS, 6, 8, 6, 8, 6)},
    ),
    "log": Case(composed("log N", "1 2"), {0: valued(A_KERNELS, 0, 0, 0, 1, 0)}),
    "translate": Case(composed("Translate", "4 1 5 2 6"), {0: valued(A_KERNELS, 0, 5, 0, 6, 0)}),
}
CASES = {**{f"thread: {name}": case for name, case in THREADS.items()}, **COMPOSES}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return read_trace(write_trace(tmp_path_factory.mktemp("trace")))


@pytest.mark.parametrize("name", CASES)
def test_bursts(name: str, trace: Trace, tmp_path: Path) -> None:
    check(CASES[name], trace, tmp_path)


def test_all_windows(trace: Trace, tmp_path: Path) -> None:
    evaluated = evaluate(write_cfg(tmp_path, single() + single(level="task") + histogram("Time")), trace)
    assert [window.level for window in evaluated.windows] == ["thread", "task"]
    assert [histogram.name for histogram in evaluated.histograms] == ["h"]
    assert evaluated.last is evaluated.histograms[0]
    assert evaluated.dropped == ""
    assert evaluated.windows[1].bursts["object"].max() == 1


@pytest.mark.parametrize(
    ("cfg", "why"),
    [
        (single(types="1 999"), "none of the event types"),
        (single("Last Evt Value"), "unknown function Last Evt Value"),
        (single(composes=[("compose_thread", "As It Is")]), "unknown function As It Is"),
        (single(more=f'{LABEL.replace(" 1", " 2")} "Kernel" "Range"'), "as many labels as numbers"),
        (derived("product", "1 2"), "not above"),
        (single() + derived("times", "1 1"), "unknown operation times"),
        (single() + histogram("Tome"), "unknown statistic Tome"),
        (single(level="task") + single(level="appl") + histogram("Time", 1, 2), "crashes"),
        ("", "no window"),
    ],
)
def test_refused(cfg: str, why: str, trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=why):
        contents(evaluate(write_cfg(tmp_path, cfg), trace).last)


@pytest.mark.parametrize(
    ("cfg", "name"),
    [
        (single("Comm Size"), "Comm Size"),
        (composed("LRU Depth"), "LRU Depth"),
        (upper("Mode"), "Mode"),
        (single() + histogram("#Sends"), "#Sends"),
        (single() + histogram("Time", more="Analyzer2D.3D_ControlWindow: 1"), "3D_ControlWindow"),
        (single(more="window_begin_time_relative 0.5"), "window_begin_time_relative"),
        (MIXED + derived("controlled: add", "1 2"), "controlled: add"),
        (single(functions={"bw_msg": ">"}, thread="Send Bytes in Transit"), "bw_msg"),
    ],
)
def test_not_implemented(cfg: str, name: str, trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match=name):
        contents(evaluate(write_cfg(tmp_path, cfg), trace).last)


def test_dropped_histogram(trace: Trace, tmp_path: Path) -> None:
    """If Paraver does not accept a histogram, it shows the windows of the file without any message."""
    finer = evaluate(write_cfg(tmp_path, single(level="task") + single() + histogram("Time", 1, 2)), trace)
    assert finer.last is finer.windows[1]
    assert "finer level" in finer.dropped
    cfg = single() + RUNNING + derived("product", "1 2") + histogram("Time", 1, 3)
    related = evaluate(write_cfg(tmp_path, cfg), trace)
    assert related.last is related.windows[2]
    assert "derived one from the other" in related.dropped


def contents(last: Window | Histogram) -> object:
    return last.cells if isinstance(last, Histogram) else last.bursts
