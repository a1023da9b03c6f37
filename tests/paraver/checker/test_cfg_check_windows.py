"""Levels, limits and objects of windows. Each of these files was tried with paramedir; messages say what it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.paraver.checker.cfg import check_cfg
from nsys2prv_ng.paraver.checker.cfg_check_windows import get_effective_level
from nsys2prv_ng.paraver.checker.cfg_reader import read_cfg
from nsys2prv_ng.paraver.read.problems import Findings
from nsys2prv_ng.paraver.read.prv_reader import TraceHeader
from tests.paraver.checker.cfg_text import CONFIG, FUNCTIONS, HEADER, TYPES, CfgText, assert_problem, messages, warned

COMPOSES = "window_compose_functions { 2, { {compose_thread, Is In Range}, {%s} } }"
EXTRAS = (
    "window_compose_functions { 3, { {compose_thread, Is In Range}, {extratopcompose1, %s}, {extratopcompose1, %s} } }"
)

# Line that is replaced, what takes its place, and the only problem: its line from there, and how it begins.
BROKEN = [
    (
        "window_maximum_y",
        ["window_maximum_y -1"],
        1,
        "window_minimum_y 0 is not below window_maximum_y -1: Paraver shows nothing",
    ),
    (
        "window_begin_time",
        ["window_begin_time_relative 1.0"],
        1,
        "window_begin_time_relative 1.0 is not below window_end_time",
    ),
    (
        "window_open",
        ["window_begin_time 10", "window_stop_time 10"],
        1,
        "window_begin_time 10 is not below window_stop_time 10",
    ),
    ("window_open", ["window_zoom_objects 2 1"], 0, "window_zoom_objects 2 1: the first row is behind the last"),
    ("window_open", ["window_punctual_color_window 1"], 0, "window_punctual_color_window 1: no window above this one"),
    ("derived|window_factors", [], -3, "a derived window without window_factors"),
    ("derived|window_shifts", [], -4, "a derived window without window_shifts"),
    ("derived|window_identifiers", [], -6, "a derived window without window_identifiers: Paraver crashes"),
    (
        "derived|window_identifiers",
        ["window_identifiers 1 3"],
        0,
        "window_identifiers: there is no window 3 above window 3",
    ),
    (
        "derived|window_identifiers",
        ["window_identifiers 0 1"],
        0,
        "window_identifiers: there is no window 0 above window 3",
    ),
    (
        "derived|window_operation",
        ["window_operation add", "window_begin_time_relative 0"],
        1,
        "'window_begin_time_relative' stands above window_identifiers: Paraver crashes",
    ),
    (
        "derived|window_level",
        ["window_level node"],
        0,
        "level node of a window that is derived from levels thread and task",
    ),
    (
        "second|window_object",
        ["window_object task { 0, 2, { All, All } }"],
        0,
        "objects of level task in a window of level task are marked 0 or 1, not 'All': Paraver refuses the cfg",
    ),
    (
        "window_object",
        ["window_object appl { 1, { 1 } }"],
        0,
        "objects of level appl in a window of level thread are marked All or None, not '1': Paraver takes it for All",
    ),
    (
        "window_object",
        ["window_object appl { 2, { All, All } }"],
        0,
        "2 objects of level appl, the trace has 1 there: Paraver ig",
    ),
    (
        "window_object",
        ["window_object task { 0, 3, { All, All, All } }"],
        0,
        "3 objects of level task, the trace has 2 there",
    ),
    (
        "window_object",
        ["window_object thread { 0, 1, 2, { 1, 1 } }"],
        0,
        "2 objects of level thread, the trace has 1 there",
    ),
    (
        "window_object",
        ["window_object thread { 0, 2, 1, { 1 } }"],
        0,
        "thread of 1.3, which the trace does not have: Paraver ign",
    ),
    ("window_object", ["window_object appl { 1, { None } }"], 0, "no object is chosen: Paraver shows no row"),
    (
        "window_object",
        ["window_object appl { 1, { All } }"] * 2,
        1,
        "objects of the same appl are chosen twice: the last counts",
    ),
    (
        "second|window_level",
        ["window_object task { 1, 1, { 1 } }", "window_level task"],
        0,
        "window_object stands above window_level: Paraver reads it as for threads|task of 2, which the trace",
    ),
    (
        "window_selected",
        [FUNCTIONS % "No Such"],
        0,
        "'No Such' is not a function of level thread: Paraver refuses the cfg",
    ),
    ("window_selected", [FUNCTIONS % "Adding"], 0, "'Adding' is not a function of level thread: Paraver crashes when"),
    ("window_selected", [FUNCTIONS % "As Is"], 0, "'As Is' is not a function of level thread: Paraver crashes when"),
    (
        "window_selected",
        [FUNCTIONS % "In Evt Val "],
        0,
        "'In Evt Val ' is not a function of level thread: Paraver refuses",
    ),
    (
        "second|window_selected",
        ["window_selected_functions { 2, { {task, Last Evt Val}, {evt_type, All} } }"],
        0,
        "'Last Evt Val' is not a function of level task: Paraver crashes",
    ),
    (
        "second|window_selected",
        ["window_selected_functions { 2, { {cpu, Adding}, {evt_type, All} } }"],
        0,
        "'Adding' is not a function of level cpu: Paraver crashes",
    ),
    (
        "second|window_selected",
        ["window_selected_functions { 2, { {evt, All}, {evt_type, All} } }"],
        0,
        "'evt' is neither a level nor a filter: Paraver ignores it",
    ),
    (
        "second|window_selected",
        ["window_selected_functions { 2, { {evt_value, ==}, {evt_type, All} } }"],
        0,
        "'==' is not a filter function (All, !=, >, <, =, None, [x,y]): Paraver crashes",
    ),
    (
        "second|window_selected",
        ["window_selected_functions { 2, { {topcompose1, Sign}, {evt_type, All} } }"],
        0,
        "topcompose1 belongs into window_compose_functions",
    ),
    (
        "second|window_selected",
        ["window_selected_functions { 3, { {thread, Useful}, {evt_type, All} } }"],
        0,
        "3 functions are announced, 2 follow: Paraver takes others",
    ),
    (
        "window_compose",
        [COMPOSES % "topcompose1, Adding"],
        0,
        "'Adding' is not a function of level topcompose1: Paraver crash",
    ),
    (
        "window_compose",
        [COMPOSES % "topcompose1, Foo"],
        0,
        "'Foo' is not a function of level topcompose1: Paraver refuses",
    ),
    (
        "window_compose",
        [COMPOSES % "topcompose3, Sign"],
        0,
        "'topcompose3' is not a level of composes: Paraver refuses the cfg",
    ),
    (
        "window_semantic_module thread",
        [
            "window_semantic_module foo In Evt Val { 1, { 1 1 } }",
            "window_semantic_module thread In Evt Val { 1, { 1 1 } }",
        ],
        0,
        "'foo' is not a level that has functions: Paraver refuses",
    ),
    (
        "window_semantic_module thread",
        ["window_semantic_module thread In Evt Val { 2, { 1 1, 1 2 } }"],
        0,
        "'In Evt Val' has 1 parameters, 2 are given: Paraver crashes",
    ),
    (
        "window_semantic_module compose",
        ["window_semantic_module compose_thread Is In Range { 1, { 1 5 } }"],
        0,
        "'Is In Range' has 2 parameters, 1 are given: Paraver has its own for the others",
    ),
    (
        "window_semantic_module compose",
        ["window_semantic_module compose_thread Is In Range { 2, { 2 5 6, 1 0 } }"],
        0,
        "'Is In Range' has 1 lower and 2 upper ends: Paraver drops what is left",
    ),
    (
        "window_semantic_module compose",
        ["window_semantic_module compose_thread Is In Range { 2, { 1 0, 1 5 } }"],
        0,
        "a range of 'Is In Range' ends before it begins (its first parameter is the maximum): nothing is in it",
    ),
    (
        "window_semantic_module thread",
        ["window_semantic_module thread In Evt Val { 1, { 0 } }"],
        0,
        "'Event values' of 'In Evt Val' needs at least one value, 0 are given",
    ),
    (
        "window_semantic_module thread",
        ["window_semantic_module thread In Evt Val { 1, { 1 1 } }"] * 2,
        1,
        "parameters of thread 'In Evt Val' are given twice: Paraver takes the last",
    ),
    (
        "window_compose",
        ["window_semantic_module topcompose1 As Is { 0, { } }", COMPOSES % "topcompose1, As Is"],
        0,
        "parameters of topcompose1 'As Is' stand above the line that chooses it: they are lost",
    ),
    (
        "window_compose",
        [COMPOSES % "topcompose1, Prod", "window_semantic_module topcompose1 Prod { 1, { 2 1 2 } }"],
        1,
        "'Factor' of 'Prod' needs one value, 2 are given",
    ),
    (
        "window_compose",
        [COMPOSES % "topcompose1, Translate", "window_semantic_module topcompose1 Translate { 1, { 3 1 2 3 } }"],
        1,
        "the list of 'Translate' must be pairs",
    ),
    (
        "window_compose",
        [EXTRAS % ("Sign", "Prod"), "window_semantic_module extratopcompose1 Prod { 1, { 1 3 } }"],
        1,
        "parameters of extratopcompose1 'Prod' are lost: extra composes that have one must come first",
    ),
    (
        "window_compose",
        [EXTRAS % ("Sign", "Abs"), "window_semantic_module extratopcompose1 Prod { 1, { 1 3 } }"],
        1,
        "parameters of extratopcompose1 'Prod', which is not among the composes above it",
    ),
    (
        "window_compose",
        [EXTRAS % ("Select Range", "Abs"), "window_semantic_module extratopcompose1 Select Range { 2, { 1 3, 1 1 } }"],
        0,
        "extratopcompose1 'Select Range' has several parameters: Paraver gives the second to the next compose",
    ),
    ("derived|window_operation", [], -5, "a derived window without window_operation: Paraver crashes"),
    (
        "derived|window_operation",
        ["window_operation multiply"],
        0,
        "'multiply' is not an operation of derived windows: Paraver ref",
    ),
    (
        "derived|window_operation",
        ["window_operation Adding"],
        0,
        "'Adding' is not an operation of derived windows: Paraver crash",
    ),
    (
        "derived|window_selected",
        ["window_selected_functions { 1, { {evt_type, All} } }"],
        0,
        "'evt_type' in a derived window, which has no filter: Paraver refuses the cfg",
    ),
    (
        "derived|window_selected",
        ["window_selected_functions { 1, { {thread, Useful} } }"],
        0,
        "a derived window has no function at level thread: Paraver never uses it",
    ),
    (
        "derived|window_selected",
        ["window_semantic_module thread In State { 1, { 1 1 } }"],
        0,
        "parameters for level thread, at which a derived window has none: Paraver crashes",
    ),
]


@pytest.mark.parametrize(("start", "new", "after", "message"), BROKEN, ids=[f"{c[1]}-{c[3]}" for c in BROKEN])
def test_a_broken_rule(tmp_path: Path, start: str, new: list[str], after: int, message: str) -> None:
    assert_problem(tmp_path, start, new, after, message)


KEPT = [
    ("window_maximum_y", ["window_maximum_y 0"]),
    ("window_object", []),
    (
        "window_object",
        [
            "window_object appl { 1, { All } }",
            "window_object task { 0, 2, { All, None } }",
            "window_object thread { 0, 0, 2, { 0, 1 } }",
        ],
    ),
    ("second|window_object", ["window_object task { 0, 1, { 0 } }"]),
    ("second|window_object", ["window_object appl { 1, { All } }"]),
    ("derived|window_level", []),
    ("derived|window_level", ["window_level workload"]),
    ("derived|window_identifiers", ["window_identifiers 1 1"]),
    ("window_selected", ["window_selected_functions { 2, { {thread, In Evt Val}, {evt_type, =} } }"]),
    ("window_selected", ["window_selected_functions { 2, { {thread, In Evt Val}, {evt_type, [x,y]} } }"]),
    ("window_compose", [COMPOSES % "compose1, Stacked Val"]),
    ("window_compose", [EXTRAS % ("Prod", "Abs"), "window_semantic_module extratopcompose1 Prod { 1, { 1 3 } }"]),
    (
        "window_compose",
        [
            EXTRAS % ("Prod", "Add"),
            "window_semantic_module extratopcompose1 Prod { 1, { 1 3 } }",
            "window_semantic_module extratopcompose1 Add { 1, { 1 3 } }",
        ],
    ),
    (
        "window_compose",
        [COMPOSES % "topcompose1, Translate", "window_semantic_module topcompose1 Translate { 1, { 4 1 2 3 4 } }"],
    ),
    ("derived|window_operation", ["window_operation controlled: clear by"]),
    ("derived|window_selected", ["window_selected_functions { 1, { {workload, Maximum} } }"]),
]


@pytest.mark.parametrize(("start", "new"), KEPT, ids=[str(case) for case in KEPT])
def test_rules_that_are_kept(tmp_path: Path, start: str, new: list[str]) -> None:
    result = CfgText().replace(start, *new).check(tmp_path)
    assert result.problems == result.warnings == []


WARNED = [
    ("window_id", ["window_id 7"], "window_id 7: Paraver does not read it, for others this is window 1"),
    (
        "window_semantic_module thread",
        [],
        "'In Evt Val' at thread is given no parameters (Event values): Paraver has its own",
    ),
    (
        "window_compose",
        [EXTRAS % ("Prod", "Abs")],
        "'Prod' at extratopcompose1 is given no parameters (Factor): Paraver has",
    ),
    (
        "window_compose",
        ["window_compose_functions { 1, { {topcompose1, As Is} } }"],
        "parameters of 'Is In Range', but 'As Is' is chosen at compose_thread: Paraver ignores them",
    ),
    (
        "second|window_selected",
        ["window_selected_functions { 2, { {thread, Last Evt Val}, {evt_type, =} } }"],
        "the filter {evt_type, =} has no event type: no event passes",
    ),
    (
        "second|window_selected",
        [
            "window_filter_module evt_value 1 3",
            'window_filter_module evt_value_label 1 "End"',
            "window_selected_functions { 1, { {evt_type, All} } }",
        ],
        "",
    ),
    (
        "second|window_selected",
        [
            "window_filter_module evt_value 1 3",
            'window_filter_module evt_value_label 1 "one"',
            "window_selected_functions { 1, { {evt_type, All} } }",
        ],
        'value "one" has several numbers in the trace (1, 3): Paraver takes all',
    ),
]


@pytest.mark.parametrize(("start", "new", "message"), WARNED, ids=[case[2] for case in WARNED])
def test_what_is_rarely_meant_is_a_warning(tmp_path: Path, start: str, new: list[str], message: str) -> None:
    result = CfgText().replace(start, *new).check(tmp_path)
    assert result.problems == []
    assert [warning.startswith(message) for warning in warned(result)] == ([True] if message else []), result.warnings


def test_levels_of_derived_windows(tmp_path: Path) -> None:
    """A derived window is never finer than the finer of its parents, and both parents have the same model."""
    text = CfgText().replace("derived|window_identifiers", "window_identifiers 2 2")
    text.replace("Analyzer2D.Objects")
    assert text.check(tmp_path).problems == []
    (message,) = messages(text.replace("derived|window_level", "window_level thread").check(tmp_path))
    assert message == "level thread is finer than what the window is derived from: Paraver keeps task"
    path = text.write(tmp_path)
    cfg = read_cfg(path, Findings(path))
    assert [get_effective_level(cfg, window) for window in cfg.windows] == ["thread", "task", "task"]
    text = CfgText().replace("second|window_level", "window_level node").replace("second|window_object")
    text.replace("Analyzer2D.Data", "Analyzer2D.DataWindow: 1")
    (message,) = messages(text.check(tmp_path))
    assert message.startswith("windows of levels thread and node cannot be combined: one has processes, one resources")


@pytest.mark.parametrize("level", ["node", "cpu", "system"])
def test_resources(tmp_path: Path, level: str) -> None:
    text = CfgText().replace("second|window_level", f"window_level {level}").replace("second|window_object")
    text.replace("derived|window_identifiers", "window_identifiers 1 1").replace(
        "Analyzer2D.Data", "Analyzer2D.DataWindow: 1"
    )
    path = text.write(tmp_path)
    assert check_cfg(path, CONFIG, HEADER, TYPES).problems == []
    without = TraceHeader(1000, (), HEADER.applications)
    result = check_cfg(path, CONFIG, without, TYPES)
    assert messages(result) == [f"level {level} of a trace that has no resources: Paraver refuses the cfg"]
    assert check_cfg(path, CONFIG, TraceHeader(), TYPES).problems == []


def test_rows_of_nodes_and_cpus(tmp_path: Path) -> None:
    text = CfgText().replace("derived|window_identifiers", "window_identifiers 1 1")
    text.replace("Analyzer2D.Data", "Analyzer2D.DataWindow: 1").replace("second|window_level", "window_level cpu")
    for lines, expected in (
        (["window_object cpu { 0, 2, { 1, 0 } }"], []),
        (["window_object cpu { 1, 2, { 1, 0 } }"], ["2 objects of level cpu, the trace has 1 there: Paraver ignores*"]),
        (["window_object cpu { 2, 1, { 1 } }"], ["cpu of 3, which the trace does not have: Paraver ignores it"]),
        (["window_object node { 2, { None, All } }", "window_object cpu { 1, 1, { 0 } }"], ["no object is chosen*"]),
        (["window_object node { 2, { None, All } }", "window_object cpu { 1, 1, { 1 } }"], []),
    ):
        changed = CfgText(list(text.lines)).replace("second|window_object", *lines)
        found = messages(changed.check(tmp_path))
        assert len(found) == len(expected)
        assert all(map(str.startswith, found, (wanted.rstrip("*") for wanted in expected)))


@pytest.mark.slow
def test_a_chain_of_many_windows_is_checked_at_once(tmp_path: Path) -> None:
    """Each window derives twice from the one before: 2 to the power of their number are the ways to the first."""
    derived = [
        f"window_name {number}\nwindow_type composed\nwindow_id {number}\nwindow_factors 1 1\nwindow_shifts 0 0\n"
        f"window_operation add\nwindow_identifiers {number - 1} {number - 1}\nwindow_level thread\n"
        "window_selected_functions { 1, { {task, Adding} } }\n"
        for number in range(2, 1500)
    ]
    first = (
        "window_name 1\nwindow_type single\nwindow_id 1\nwindow_level task\n"
        "window_selected_functions { 2, { {thread, State As Is}, {evt_type, None} } }\n"
    )
    path = tmp_path / "chain.cfg"
    path.write_text("#ParaverCFG\n" + first + "".join(derived))
    cfg = read_cfg(path, Findings(path))
    assert get_effective_level(cfg, cfg.windows[-1]) == "task"
    check_cfg(path, CONFIG, HEADER)


def test_numbers_of_thousands_of_digits_are_of_no_window(tmp_path: Path) -> None:
    path = tmp_path / "digits.cfg"
    path.write_text(
        "#ParaverCFG\nwindow_name 1\nwindow_type single\nwindow_level task\n"
        "window_selected_functions { 2, { {thread, State As Is}, {evt_type, None} } }\n"
        f"window_punctual_color_window {'9' * 5000}\n"
        f"< NEW ANALYZER2D >\nAnalyzer2D.ControlWindow: {'9' * 5000}\nAnalyzer2D.Statistic: Time\n"
    )
    found = [problem.message for problem in check_cfg(path, CONFIG, HEADER).problems]
    assert any("there is no window 999" in message for message in found)
