"""The rules of cfgs. Each of these files was tried with paramedir; the messages say what it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver.read.prv_reader import TraceHeader
from tests.cfgs.cfg_checker import check_cfg, read_contents
from tests.cfgs.cfg_text import CONFIG, HEADER, CfgText, assert_problem, messages, warned
from tests.paraver.checker.trace_files import TraceFiles


def test_a_sound_cfg(tmp_path: Path) -> None:
    result = CfgText().check(tmp_path)
    assert result.problems == result.warnings == []
    assert (result.windows, result.histograms) == (3, 1)
    alone = check_cfg(CfgText().write(tmp_path), None, TraceHeader())
    assert alone.problems == alone.warnings == []


def test_what_is_no_cfg(tmp_path: Path) -> None:
    for name, says in (("t.txt", "its name must end in .cfg"), ("missing.cfg", "No such file")):
        with pytest.raises(TranslationError, match=says):
            check_cfg(tmp_path / name, None, TraceHeader())


def test_what_a_trace_holds(tmp_path: Path) -> None:
    """The types are those with events, not those that are only declared."""
    prv = TraceFiles().write(tmp_path)
    contents = read_contents(prv)
    assert contents.types == {9600, 9700}
    assert contents.config is not None
    assert set(contents.config.types) == {9600, 9700, 9701}
    assert (contents.header.tasks, contents.header.rows, contents.header.cpus) == (2, 3, (2, 1))


# Line that is replaced, what takes its place, and the only problem: its line from there, and how it begins.
BROKEN = [
    ("Analyzer2D.Statistic", ["Analyzer2D.Statistic: Average"], 0, "'Average' is not a statistic: Paraver crashes"),
    ("Analyzer2D.Statistic", ["Analyzer2D.Statistic: Time "], 0, "'Time ' is not a statistic: Paraver crashes"),
    ("Analyzer2D.Statistic", [], -5, "a histogram without Analyzer2D.Statistic: Paraver crashes"),
    ("Analyzer2D.Control", [], -3, "a histogram without Analyzer2D.ControlWindow: Paraver crashes"),
    (
        "Analyzer2D.Control",
        ["Analyzer2D.ControlWindow: 4"],
        0,
        "Analyzer2D.ControlWindow: there is no window 4: Paraver drops",
    ),
    (
        "Analyzer2D.Data",
        ["Analyzer2D.DataWindow: 0"],
        0,
        "Analyzer2D.DataWindow: there is no window 0: Paraver drops the histogram an",
    ),
    (
        "Analyzer2D.AnalysisLimits",
        [],
        -8,
        "a histogram without Analyzer2D.AnalysisLimits: Paraver shows nothing but zeros",
    ),
    ("derived|window_factors", [], -3, "a derived window without window_factors"),
    ("derived|window_shifts", [], -4, "a derived window without window_shifts"),
    ("derived|window_identifiers", [], -6, "a derived window without window_identifiers: Paraver crashes"),
    (
        "derived|window_identifiers",
        ["window_identifiers 1 3"],
        0,
        "window_identifiers are not two numbers of windows above window 3: Paraver c",
    ),
    (
        "derived|window_identifiers",
        ["window_identifiers 0 1"],
        0,
        "window_identifiers are not two numbers of windows above window 3: Paraver c",
    ),
    (
        "window_selected",
        ["window_selected_functions { 2, { {thread, No Such}, {evt_type, =} } }"],
        0,
        "'No Such' is not a function of level thread: Paraver refuses the cfg",
    ),
    (
        "window_selected",
        ["window_selected_functions { 2, { {thread, Adding}, {evt_type, =} } }"],
        0,
        "'Adding' is not a function of level thread: Paraver refuses the cfg, or cra",
    ),
    (
        "window_selected",
        ["window_selected_functions { 2, { {thread, As Is}, {evt_type, =} } }"],
        0,
        "'As Is' is not a function of level thread: Paraver refuses the cfg, or cras",
    ),
    (
        "window_selected",
        ["window_selected_functions { 2, { {thread, In Evt Val }, {evt_type, =} } }"],
        0,
        "'In Evt Val ' is not a function of level thread: Paraver refuses",
    ),
    (
        "second|window_selected",
        ["window_selected_functions { 2, { {task, Last Evt Val}, {evt_type, All} } }"],
        0,
        "'Last Evt Val' is not a function of level task: Paraver refuses the cfg, or",
    ),
    (
        "second|window_selected",
        ["window_selected_functions { 2, { {cpu, Adding}, {evt_type, All} } }"],
        0,
        "'Adding' is not a function of level cpu: Paraver refuses the cfg, or crashe",
    ),
    (
        "second|window_selected",
        ["window_selected_functions { 2, { {evt, All}, {evt_type, All} } }"],
        0,
        "'evt' is neither a level nor a filter of the window: Paraver refuses the cf",
    ),
    (
        "second|window_selected",
        ["window_selected_functions { 2, { {evt_value, ==}, {evt_type, All} } }"],
        0,
        "'==' is not a function of level evt_value: Paraver refuses the cfg, or cras",
    ),
    (
        "second|window_selected",
        ["window_selected_functions { 3, { {thread, Useful}, {evt_type, All} } }"],
        0,
        "3 functions are announced, 2 follow: Paraver takes others",
    ),
    (
        "window_compose",
        ["window_compose_functions { 2, { {compose_thread, Is In Range}, {topcompose1, Adding} } }"],
        0,
        "'Adding' is not a function of level topcompose1: Paraver refuses the cfg, o",
    ),
    (
        "window_compose",
        ["window_compose_functions { 2, { {compose_thread, Is In Range}, {topcompose1, Foo} } }"],
        0,
        "'Foo' is not a function of level topcompose1: Paraver refuses",
    ),
    (
        "window_compose",
        ["window_compose_functions { 2, { {compose_thread, Is In Range}, {topcompose3, Sign} } }"],
        0,
        "'topcompose3' is neither a level nor a filter of the window: Paraver refuse",
    ),
    (
        "window_semantic_module thread",
        ["window_semantic_module thread In Evt Val { 2, { 1 1, 1 2 } }"],
        0,
        "'In Evt Val' has 1 parameters, 2 are announced and 2 given: Paraver crashes",
    ),
    (
        "window_semantic_module compose",
        ["window_semantic_module compose_thread Is In Range { 1, { 1 5 } }"],
        0,
        "'Is In Range' has 2 parameters, 1 are announced and 1 given: Paraver crashe",
    ),
    ("derived|window_operation", [], -5, "a derived window without window_operation: Paraver crashes"),
    (
        "derived|window_operation",
        ["window_operation multiply"],
        0,
        "'multiply' is not an operation of derived windows: Paraver crashes",
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
        "'evt_type' is neither a level nor a filter of the window: Paraver refuses t",
    ),
    (
        "window_name",
        ["window_width 1", "window_name first"],
        0,
        "'window_width' comes before the first window: Paraver",
    ),
    (
        "window_name",
        ["Analyzer2D.X: 1", "window_name x"],
        0,
        "'Analyzer2D.X:' without '< NEW ANALYZER2D >' before it: Par",
    ),
    (
        "Analyzer2D.X",
        ["window_width 1"],
        0,
        "'window_width' belongs to a window, but a histogram has begun: Paraver ch",
    ),
]


@pytest.mark.parametrize(("start", "new", "after", "message"), BROKEN, ids=[f"{c[1]}-{c[3]}" for c in BROKEN])
def test_a_broken_rule(tmp_path: Path, start: str, new: list[str], after: int, message: str) -> None:
    assert_problem(tmp_path, start, new, after, message)


SOUND = [
    ("Analyzer2D.Delta", ["Analyzer2D.Delta: 0.5"]),
    ("Analyzer2D.Maximum", ["Analyzer2D.Maximum: 1"]),
    ("Analyzer2D.AnalysisLimits", ["Analyzer2D.AnalysisLimits: Allwindow"]),
    ("Analyzer2D.Objects", []),
    ("Analyzer2D.ComputeYScale", ["Analyzer2D.ComputeYScale: True"]),
    (
        "Analyzer2D.Objects",
        ["Analyzer2D.3D_ControlWindow: 1", "Analyzer3D.ComputeYScale: True", "Analyzer2D.3D_Delta: 0"],
    ),
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
    ("window_compose", ["window_compose_functions { 2, { {compose_thread, Is In Range}, {compose1, Stacked Val} } }"]),
    (
        "window_compose",
        [
            "window_compose_functions { 3, { {compose_thread, Is In Range}, {extratopcompose1, Prod}, "
            "{extratopcompose1, Abs} } }",
            "window_semantic_module extratopcompose1 Prod { 1, { 1 3 } }",
        ],
    ),
    (
        "window_compose",
        [
            "window_compose_functions { 3, { {compose_thread, Is In Range}, {extratopcompose1, Prod}, "
            "{extratopcompose1, Add} } }",
            "window_semantic_module extratopcompose1 Prod { 1, { 1 3 } }",
            "window_semantic_module extratopcompose1 Add { 1, { 1 3 } }",
        ],
    ),
    (
        "window_compose",
        [
            "window_compose_functions { 2, { {compose_thread, Is In Range}, {topcompose1, Translate} } }",
            "window_semantic_module topcompose1 Translate { 1, { 4 1 2 3 4 } }",
        ],
    ),
    ("derived|window_operation", ["window_operation controlled: clear by"]),
    ("derived|window_selected", ["window_selected_functions { 1, { {workload, Maximum} } }"]),
    ("window_width", ["window_width 600  "]),
    ("window_width", ["CFG4D_ENABLED"]),
    ("window_width", ["cfg4d window_name|The name"]),
    ("second|window_level", ["window_level ptask"]),
    ("window_drawmode", ["window_drawmode 7"]),
    ("window_compute_y_max", ["window_compute_y_max "]),
    ("window_maximum_y", ["window_maximum_y 1.5e+06"]),
    ("window_custom", ["window_custom_color_palette {-1:0,0,0}"]),
    ("Analyzer2D.Objects", ["Analyzer2D.Objects: All"]),
    ("Analyzer2D.X", ["Analyzer3D.ComputeYScale: True"]),
]


@pytest.mark.parametrize(("start", "new"), SOUND, ids=[str(case) for case in SOUND])
def test_what_paraver_takes(tmp_path: Path, start: str, new: list[str]) -> None:
    assert messages(CfgText().replace(start, *new).check(tmp_path)) == []


HEADERS: list[tuple[str, list[str], str, list[str], int, str]] = [
    ("#ParaverCFG", ["# a remark"], "ConfigFile.Version", [], 0, "not a Paraver cfg: neither #ParaverCFG nor"),
    ("ConfigFile.NumWindows", ["ConfigFile.NumWindows: 4"], "", [], 0, "ConfigFile.NumWindows: is '4', the file has 3"),
    ("ConfigFile.NumWindows", ["ConfigFile.NumWindows: x"], "", [], 0, "ConfigFile.NumWindows: is 'x', the file has 3"),
    ("ConfigFile.EndDescription", [], "", [], 4, "the description has no end (ConfigFile.EndDescription)"),
    ("ConfigFile.BeginDescription", [], "ConfigFile.EndDescription", [], 0, "there is no description"),
    ("What", ["window_level is the level"], "", [], 5, "the description has a line 'window_level is the level'"),
    ("What", ["Analyzer2D.Name: x"], "", [], 5, "the description has a line 'Analyzer2D.Name: x'"),
    ("What", ["< NEW ANALYZER2D >"], "", [], 5, "the description has a line '< NEW ANALYZER2D >'"),
    ("What", ["\udcff"], "", [], 5, "the line is not UTF-8"),
]


@pytest.mark.parametrize(("start", "new", "also", "instead", "line", "message"), HEADERS)
def test_a_broken_header(
    tmp_path: Path, start: str, new: list[str], also: str, instead: list[str], line: int, message: str
) -> None:
    text = CfgText().replace(start, *new)
    if also:
        text.replace(also, *instead)
    problem = text.check(tmp_path).problems[0]
    assert problem.line == line
    assert problem.message.startswith(message)


def test_a_header_without_the_first_line(tmp_path: Path) -> None:
    text = CfgText().replace("#ParaverCFG", "# a remark")
    assert messages(text.check(tmp_path)) == []
    text.replace("ConfigFile.Version", "version 3").replace("ConfigFile.NumWindows", "number_of_windows 3")
    assert messages(text.check(tmp_path)) == []


def test_no_window(tmp_path: Path) -> None:
    text = CfgText()
    del text.lines[text.find("window_name first") :]
    found = messages(text.check(tmp_path))
    assert "there is no window: Paraver refuses the cfg" in found


def test_carriage_returns_are_a_warning(tmp_path: Path) -> None:
    text = CfgText().replace("window_width", "window_width 600\r")
    result = text.check(tmp_path)
    assert result.problems == []
    assert warned(result) == ["carriage return: Paraver does not find the description of such a cfg"]


def test_a_level_of_nodes_needs_resources(tmp_path: Path) -> None:
    path = CfgText().replace("second|window_level", "window_level node").write(tmp_path)
    (problem,) = check_cfg(path, CONFIG, TraceHeader(1000, (), HEADER.applications)).problems
    assert problem.message == "level node of a trace that has no resources: Paraver refuses the cfg"
    assert check_cfg(path, CONFIG, HEADER).problems == []


@pytest.mark.parametrize("key", ["window_identifiers", "window_semantic_module"])
def test_numbers_of_thousands_of_digits(tmp_path: Path, key: str) -> None:
    digits = 5000 * "9"
    value = f"thread In Evt Val {{ {digits}, {{ {digits} 1 }} }}" if key.endswith("module") else f"{digits} {digits}"
    assert CfgText().insert("derived|window_level", f"{key} {value}").check(tmp_path).problems
    for filtered in ("evt_type", "evt_value", "evt_type_label"):
        line = f"window_filter_module {filtered} {digits} {digits}"
        assert CfgText().replace("window_filter_module evt_type ", line).check(tmp_path).problems
