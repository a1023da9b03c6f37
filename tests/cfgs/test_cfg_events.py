"""Filters of cfgs, and whether a trace has their event types. Each of these was tried with paramedir."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.paraver.read.label_files import ParaverConfig, PcfEventType
from tests.cfgs.cfg_checker import _matches, check_cfg
from tests.cfgs.cfg_text import CONFIG, HEADER, TYPES, CfgText, messages, typed, warned


def by_number(*numbers: int, **functions: str) -> CfgText:
    return typed(f"window_filter_module evt_type {len(numbers)} {' '.join(map(str, numbers))}", **functions)


def by_label(number: int, label: str, **functions: str) -> CfgText:
    lines = (f"window_filter_module evt_type 1 {number}", f'window_filter_module evt_type_label 1 "{label}"')
    return typed(*lines, **functions)


EMPTY = "Paraver shows an empty window"
NONE = "none of the event types of this cfg is in the trace"


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        (by_number(9600), []),
        (by_number(9600, functions="{evt_type, =}"), []),
        (by_number(9800), [NONE, f'event type 9800 "Never seen" is not in the trace: {EMPTY}']),
        (by_number(1, 9600), ["event type 1 is not in the trace: Paraver shows the others"]),
        (by_number(1), [NONE, f"event type 1 is not in the trace: {EMPTY}"]),
        (by_label(1, "Range"), []),
        (by_label(9600, "Renamed"), []),
        (by_label(1, "Renamed"), [NONE, f'event type 1 "Renamed" is not in the trace: {EMPTY}']),
        (by_label(9600, "Never seen"), [NONE, f'event type 9800 "Never seen" is not in the trace: {EMPTY}']),
        (by_label(1, "*ange"), []),
        (by_label(9600, "Other*"), []),
        (by_label(9600, "Never*"), [NONE, f'event types "Never*" are not in the trace: {EMPTY}']),
        (by_label(9600, "Nothing*"), []),
        (by_label(1, ""), [NONE, f"event type 1 is not in the trace: {EMPTY}"]),
        (by_label(9600, "Unknown"), []),
        (by_number(9000, 9650, functions="{evt_type, [x,y]}"), []),
        (by_number(1, 2, functions="{evt_type, [x,y]}"), [NONE, f"event types 1 to 2 are not in the trace: {EMPTY}"]),
        (by_number(1, 1, functions="{evt_type, [x,y]}"), [NONE, f"event types 1 to 1 are not in the trace: {EMPTY}"]),
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
            "evt_type: '2 9600' is not a count followed by that many numbers: Paraver refuses the cfg",
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
    assert check_cfg(path, config, HEADER, {9600}).warnings == []
    _, absent = check_cfg(path, config, HEADER, {5}).warnings
    assert absent.message == 'event type 9600 "Same" is not in the trace: Paraver shows an empty window'
    assert check_cfg(path, None, HEADER, {5}).warnings == []


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
