"""Functions and parameters in cfgs. Each of these files was tried with paramedir; the messages say what it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.paraver.checker.cfg_text import FUNCTIONS, CfgText, assert_problem, warned

COMPOSES = "window_compose_functions { 2, { {compose_thread, Is In Range}, {%s} } }"
EXTRAS = (
    "window_compose_functions { 3, { {compose_thread, Is In Range}, {extratopcompose1, %s}, {extratopcompose1, %s} } }"
)

# Line that is replaced, what takes its place, and the only problem: its line from there, and how it begins.
BROKEN = [
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
