"""Filters of cfgs, and whether a trace has their event types. Each of these was tried with paramedir."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.paraver.checker.cfg import _matches, check_cfg, list_filter_items
from nsys2prv_ng.paraver.checker.cfg_reader import read_cfg
from nsys2prv_ng.paraver.read.label_files import ParaverConfig, PcfEventType
from nsys2prv_ng.paraver.read.problems import Findings
from tests.paraver.checker.cfg_text import CONFIG, FUNCTIONS, HEADER, TYPES, CfgText, messages, typed, warned


def by_number(*numbers: int, **functions: str) -> CfgText:
    return typed(f"window_filter_module evt_type {len(numbers)} {' '.join(map(str, numbers))}", **functions)


def by_label(number: int, label: str, **functions: str) -> CfgText:
    lines = (f"window_filter_module evt_type 1 {number}", f'window_filter_module evt_type_label 1 "{label}"')
    return typed(*lines, **functions)


ASKED = "Paraver asks before it shows an empty window"
NONE = "none of the event types of this cfg is in the trace"


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        (by_number(9600), []),
        (by_number(9600, functions="{evt_type, =}"), []),
        (by_number(9800), [NONE, f'event type 9800 "Never seen" is not in the trace: {ASKED}']),
        (by_number(1, 9600), ["event type 1 is not in the trace: Paraver asks, and shows the others"]),
        (by_number(1), [NONE, f"event type 1 is not in the trace: {ASKED}"]),
        (by_label(1, "Range"), []),
        (by_label(9600, "Renamed"), []),
        (by_label(1, "Renamed"), [NONE, f'event type 1 "Renamed" is not in the trace: {ASKED}']),
        (by_label(9600, "Never seen"), [NONE, f'event type 9800 "Never seen" is not in the trace: {ASKED}']),
        (by_label(1, "*ange"), []),
        (by_label(9600, "Other*"), []),
        (by_label(9600, "Never*"), [NONE, f'event types "Never*" are not in the trace: {ASKED}']),
        (by_label(9600, "Nothing*"), []),
        (by_label(1, ""), [NONE, f"event type 1 is not in the trace: {ASKED}"]),
        (by_label(9600, "Unknown"), []),
        (by_number(9000, 9650, functions="{evt_type, [x,y]}"), []),
        (by_number(1, 2, functions="{evt_type, [x,y]}"), [NONE, f"event types 1 to 2 are not in the trace: {ASKED}"]),
        (by_number(1, 1, functions="{evt_type, [x,y]}"), [NONE, f"event type 1 is not in the trace: {ASKED}"]),
        (typed(), []),
        (typed(functions="{evt_type, None}"), []),
    ],
)
def test_event_types_in_the_trace(tmp_path: Path, text: CfgText, warnings: list[str]) -> None:
    result = text.check(tmp_path)
    assert result.problems == []
    filter_less = [message for message in warned(result) if not message.startswith("the filter {evt_type, =} has no")]
    assert filter_less == warnings


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            typed(functions="{evt_type, =}"),
            "a window without event types must choose {evt_type, All} or {evt_type, None}*",
        ),
        (
            typed(functions="{evt_value, All}"),
            "a window without event types must choose {evt_type, All} or {evt_type, No*",
        ),
        (
            by_number(9600, functions="{evt_type, [x,y]}"),
            "evt_type [x,y] needs two numbers, there are 1: Paraver lets*",
        ),
        (by_number(9700, 9600, functions="{evt_type, [x,y]}"), "evt_type [x,y] from 9700 to 9600: nothing passes"),
        (by_label(9600, "*ange", functions="{evt_type, [x,y]}"), ""),
        (
            by_number(9600, 9700).insert("window_filter", 'window_filter_module evt_type_label 1 "Range"'),
            "evt_type_label has 1 labels for 2 numbers of evt_type: Paraver refuses the cfg",
        ),
        (
            typed('window_filter_module evt_value_label 1 "one"'),
            "evt_value_label has 1 labels for 0 numbers of evt_value: Paraver refuses the cfg",
        ),
        (
            typed("window_filter_module evt_type 2 9600", functions="{evt_type, =}"),
            "evt_type: 2 numbers are announced*",
        ),
        (
            typed("window_filter_module tag_msg 1 2", functions="{evt_type, All}, {tag_msg, [x,y]}"),
            "tag_msg [x,y] needs two numbers, there are 1*",
        ),
        (
            by_number(9600).insert("window_filter", "window_filter_module evt_type 1 9700"),
            "evt_type of the filter is given twice: Paraver puts both lists together",
        ),
    ],
)
def test_broken_filters(tmp_path: Path, text: CfgText, problem: str) -> None:
    found = messages(text.check(tmp_path))
    assert len(found) == bool(problem), found
    assert not found or found[0].startswith(problem.removesuffix("*"))


def test_of_the_same_label_the_highest_type_counts(tmp_path: Path) -> None:
    config = ParaverConfig(types={n: PcfEventType(n, "Same", 1) for n in (5, 9600, 7)})
    path = by_label(5, "Same").write(tmp_path)
    (window,) = read_cfg(path, Findings(path)).windows
    assert [item.numbers for item in list_filter_items(window, config)] == [(9600,)]
    assert [item.numbers for item in list_filter_items(window, None)] == [(5,)]


@given(st.text("ab*", max_size=8), st.text("ab", max_size=8))
def test_stars_are_any_text(pattern: str, label: str) -> None:
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert _matches(pattern, label) == (re.fullmatch(expression, label) is not None)


def test_many_stars_cost_no_time() -> None:
    assert not _matches(40 * "*a" + "b", 1000 * "a")


def test_without_a_trace_the_pcf_tells_which_types_there_are(tmp_path: Path) -> None:
    path = by_number(9800).write(tmp_path)
    assert check_cfg(path, CONFIG, HEADER).warnings == []
    assert len(check_cfg(path, CONFIG, HEADER, TYPES).warnings) == 2
    assert check_cfg(path, None, HEADER).warnings == []


def test_paraver_forgets_absent_types_above_a_range_that_it_finds(tmp_path: Path) -> None:
    """So it does not ask; but for a histogram it looks at the last window again, or at its first parent."""
    text = CfgText().replace("window_filter_module evt_type ", "window_filter_module evt_type 2 9600 1")
    text.replace("window_filter_module evt_type_label")
    assert warned(text.check(tmp_path)) == ["event type 1 is not in the trace: Paraver asks, and shows the others"]
    ranged = "window_selected_functions { 1, { {evt_type, [x,y]} } }"
    text.replace("second|window_selected", ranged, "window_filter_module evt_type 2 9600 9700")
    assert warned(text.check(tmp_path)) == ["event type 1 is not in the trace: Paraver shows the others"]

    text = CfgText().replace("window_selected", FUNCTIONS.replace("=", "[x,y]") % "In Evt Val")
    text.replace("second|window_selected", FUNCTIONS % "Last Evt Val", "window_filter_module evt_type 1 1")
    assert warned(text.check(tmp_path)) == ["event type 1 is not in the trace: Paraver shows an empty window"]
    del text.lines[text.find("< NEW ANALYZER2D") :]
    assert warned(text.check(tmp_path)) == [f"event type 1 is not in the trace: {ASKED}"]


def test_one_window_without_types_among_others(tmp_path: Path) -> None:
    text = CfgText().replace("window_selected", FUNCTIONS % "In Evt Val")
    text.replace("second|window_selected", "window_selected_functions { 1, { {thread, Useful} } }")
    result = text.check(tmp_path)
    assert result.problems == []
    assert [message.partition(": ")[2] for message in warned(result)] == [
        "Paraver asks where the event types of the other windows are not in the trace"
    ]
