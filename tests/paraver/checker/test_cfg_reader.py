from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.paraver.checker.cfg_lists import (
    CfgSyntaxError,
    Filter,
    Function,
    Parameters,
    Selection,
    parse_filter,
    parse_functions,
    parse_parameters,
    parse_selection,
)
from nsys2prv_ng.paraver.checker.cfg_names import COMPOSES_OF_LEVEL, DEFAULT_FUNCTION, FUNCTIONS_OF_LEVEL
from nsys2prv_ng.paraver.checker.cfg_reader import CfgFile, read_cfg
from nsys2prv_ng.paraver.read.problems import Findings
from tests.paraver.checker.cfg_text import CfgText


def read(text: CfgText, folder: Path) -> tuple[CfgFile, list[str], list[str]]:
    path = text.write(folder)
    findings = Findings(path)
    cfg = read_cfg(path, findings)
    return (
        cfg,
        [f"{p.line}: {p.message}" for p in findings.list_problems()],
        [w.message for w in findings.list_warnings()],
    )


def test_what_a_cfg_says(tmp_path: Path) -> None:
    text = CfgText()
    cfg, problems, warnings = read(text, tmp_path)
    assert problems == warnings == []
    assert cfg.description == "What it shows\n# in two lines"
    first, second, derived = cfg.windows
    assert [(w.number, w.name, w.derived, w.level) for w in cfg.windows] == [
        (1, "first", False, "thread"),
        (2, "second", False, "task"),
        (3, "derived", True, "task"),
    ]
    assert first.line == text.find("window_name first")
    assert first.get_value("window_units") == "Microseconds"
    assert first.get_number("window_maximum_y", 0) == 10
    assert [(function.level, function.name) for function in first.functions] == [
        ("thread", "In Evt Val"),
        ("task", "Adding"),
        ("evt_type", "All"),
        ("evt_type", "="),
    ]
    assert (first.get_function("evt_type"), first.get_function("evt_value"), first.get_function("appl")) == (
        "=",
        "All",
        "Adding",
    )
    assert first.get_function("compose_thread") == "Is In Range"
    assert first.parameters[1].values == ((5.0,), (0.0,))
    assert first.parameters[1].line == text.find("window_semantic_module compose")
    assert first.numbers == {"evt_type": [9600, 9700]}
    assert first.labels == {"evt_type": ["Range", "Bytes"]}
    assert second.selections[0].marks == ("1", "0")
    assert second.parents == ()
    assert derived.parents == (1, 2)
    (histogram,) = cfg.histograms
    assert [histogram.get_value(f"Analyzer2D.{key}:") for key in ("Name", "Statistic")] == ["histogram", "% Time"]


def test_a_header_without_the_first_line(tmp_path: Path) -> None:
    assert read(CfgText().replace("#ParaverCFG"), tmp_path)[1] == []
    old = CfgText().replace("#ParaverCFG").replace("ConfigFile.Version", "version 3.4")
    old.replace("ConfigFile.NumWindows", "number_of_windows 3")
    assert read(old, tmp_path)[1] == []


def test_the_first_line_suffices(tmp_path: Path) -> None:
    assert read(CfgText().replace("ConfigFile.Version").replace("ConfigFile.NumWindows"), tmp_path)[1] == []


HEADERS = [
    ("#ParaverCFG", ["# a remark"], "ConfigFile.Version", [], "0: not a Paraver cfg: neither #ParaverCFG nor*"),
    (
        "ConfigFile.NumWindows",
        ["ConfigFile.NumWindows: 4"],
        "",
        [],
        "3: ConfigFile.NumWindows: is '4', the file has 3*",
    ),
    (
        "ConfigFile.NumWindows",
        ["ConfigFile.NumWindows: x"],
        "",
        [],
        "3: ConfigFile.NumWindows: is 'x', the file has 3*",
    ),
    ("ConfigFile.Version", ["ConfigFile.Version: 3", "ConfigFile.Version: 4"], "", [], "3: ConfigFile.Version: is*"),
    ("ConfigFile.EndDescription", [], "", [], "4: the description has no end (ConfigFile.EndDescription)*"),
    ("ConfigFile.BeginDescription", [], "What", [], "5: 'ConfigFile.EndDescription' without its other half*"),
    (
        "What",
        ["window_level is the level"],
        "",
        [],
        "5: a line of the description starts with 'window_level': Paraver*",
    ),
    ("What", ["Analyzer2D.Name: x"], "", [], "5: a line of the description starts with 'Analyzer2D.Name:': Paraver*"),
    ("What", ["< NEW ANALYZER2D >"], "", [], "5: a line of the description starts with '< NEW ANALYZER2D >'*"),
    ("What", ["\udcff"], "", [], "5: the line is not UTF-8"),
]


@pytest.mark.parametrize(("start", "new", "also", "instead", "message"), HEADERS, ids=[case[4] for case in HEADERS])
def test_a_broken_header(
    tmp_path: Path, start: str, new: list[str], also: str, instead: list[str], message: str
) -> None:
    text = CfgText().replace(start, *new)
    if also:
        text.replace(also, *instead)
    problems = read(text, tmp_path)[1]
    assert problems[0].startswith(message.removesuffix("*")), problems


def test_no_description(tmp_path: Path) -> None:
    text = CfgText()
    begin, end = text.find("ConfigFile.Begin"), text.find("ConfigFile.End")
    del text.lines[begin : end + 1]
    problems = read(text, tmp_path)[1]
    assert problems == ["0: there is no description (ConfigFile.BeginDescription ... ConfigFile.EndDescription)"]


LINES = [
    (
        "window_width",
        ["window_width 600", "window_width 700"],
        1,
        "'window_width' is given twice: Paraver takes the last",
    ),
    ("window_width", [" window_width 600"], 0, "the line starts with a blank: Paraver ignores it"),
    ("window_width", ["window_width -1"], 0, "window_width '-1' is not a whole number from 0 to 65535"),
    ("window_width", ["window_width 65536"], 0, "window_width '65536' is not a whole number from 0 to 65535"),
    ("window_width", ["window_width"], 0, "window_width '' is not a whole number from 0 to 65535: Paraver refuses*"),
    ("window_open", ["window_open True"], 0, "window_open 'True' is not true or false: Paraver refuses the cfg"),
    (
        "window_open",
        ["window_open true x"],
        0,
        "window_open 'true x' is not true or false: Paraver reads only the first*",
    ),
    (
        "window_color",
        ["window_color_mode gradient"],
        0,
        "window_color_mode 'gradient' is not a colour mode: Paraver paints*",
    ),
    ("window_drawmode", ["window_drawmode 8"], 0, "window_drawmode '8' is not a draw mode: Paraver keeps its own"),
    (
        "window_units",
        ["window_units microseconds"],
        0,
        "window_units 'microseconds' is not a unit of time: Paraver takes*",
    ),
    (
        "window_open",
        ["window_gradient_function linear"],
        0,
        "window_gradient_function 'linear' is not a gradient function*",
    ),
    (
        "window_maximum_y",
        ["window_maximum_y inf"],
        0,
        "window_maximum_y 'inf' is not a number: Paraver refuses the cfg",
    ),
    (
        "window_custom",
        ["window_custom_color_palette {1:2,3}"],
        0,
        "window_custom_color_palette '{1:2,3}' is not a palette*",
    ),
    (
        "window_custom",
        ["window_custom_color_palette {1:2,3,256}"],
        0,
        "window_custom_color_palette '{1:2,3,256}' is not*",
    ),
    (
        "window_custom",
        ["window_custom_color_palette {1:2,3,4} {2:2,3,4}"],
        0,
        "window_custom_color_palette '{1:2,3,4} {*",
    ),
    (
        "window_end_time",
        ["window_end_time_relative 1.5"],
        0,
        "window_end_time_relative '1.5' is not a part of the trace*",
    ),
    (
        "window_level",
        ["window_level process"],
        0,
        "window_level 'process' is not a level (workload, appl, task, thread*",
    ),
    (
        "window_type",
        ["window_type derived"],
        0,
        "window_type 'derived' is not single or composed: Paraver refuses the cfg",
    ),
    (
        "window_type",
        ["window_width 1", "window_type single"],
        0,
        "'window_width' comes before window_type: Paraver gives*",
    ),
    (
        "window_name",
        ["window_width 1", "window_name first"],
        0,
        "'window_width' comes before the first window: Paraver*",
    ),
    ("window_name", [], 0, "window_type without window_name in front: Paraver mixes the filters of two windows"),
    ("window_name", ["window_name x", "window_name y"], 1, "a second window_name: no window_type followed the first*"),
    (
        "window_name",
        ["Analyzer2D.X: 1", "window_name x"],
        0,
        "'Analyzer2D.X:' without '< NEW ANALYZER2D >' before it: Par*",
    ),
    (
        "derived|window_factors",
        ["window_factors 1"],
        0,
        "window_factors '1' is not two numbers with a blank between them",
    ),
    ("derived|window_factors", ["window_factors 1 2 "], 0, "window_factors '1 2 ' is not two numbers with a blank*"),
    (
        "derived|window_shifts",
        ["window_shifts 0 0.5"],
        0,
        "window_shifts '0 0.5' is not two whole numbers with a blank*",
    ),
    (
        "Analyzer2D.X",
        ["Analyzer2D.X: 1", "Analyzer2D.X: 1"],
        1,
        "'Analyzer2D.X:' is given twice: Paraver takes the last",
    ),
    (
        "Analyzer2D.X",
        ["window_width 1"],
        0,
        "'window_width' belongs to a window, but a histogram has begun: Paraver ch*",
    ),
    (
        "Analyzer2D.X",
        ["Analyzer2D.HideCols: true"],
        0,
        "Analyzer2D.HideCols: 'true' is not True or False: Paraver drops*",
    ),
    (
        "Analyzer2D.Min",
        ["Analyzer2D.Minimum: x"],
        0,
        "Analyzer2D.Minimum: 'x' is not a number: Paraver drops the histogra*",
    ),
    ("Analyzer2D.Par", ["Analyzer2D.Parameters: 2 1 2"], 0, "Analyzer2D.Parameters: '2 1 2' is not 4 and four numbers"),
    (
        "Analyzer2D.Obj",
        ["Analyzer2D.Objects: all"],
        0,
        "Analyzer2D.Objects: 'all' is not All or numbers of rows: 0,1,2*",
    ),
    ("Analyzer2D.X", ["cfg4dlink x"], 0, "cfg4dlink 'x' is not group|\"name\": Paraver refuses the cfg"),
    ("Analyzer2D.Objects", ["< NEW ANALYZER3D >"], 0, "'< NEW ANALYZER3D >' is not '< NEW ANALYZER2D >': Paraver*"),
]


@pytest.mark.parametrize(("start", "new", "after", "message"), LINES, ids=[case[3] for case in LINES])
def test_a_broken_line(tmp_path: Path, start: str, new: list[str], after: int, message: str) -> None:
    text = CfgText()
    number = text.find(start) + after
    problems = read(text.replace(start, *new), tmp_path)[1]
    assert len(problems) == 1, problems
    assert problems[0].startswith(f"{number}: {message.removesuffix('*')}")


ACCEPTED = [
    ("window_width", "window_width 600  "),
    ("window_width", "CFG4D_ENABLED"),
    ("window_width", "cfg4d window_name|The name"),
    ("second|window_level", "window_level ptask"),
    ("window_drawmode", "window_drawmode 7"),
    ("window_compute_y_max", "window_compute_y_max "),
    ("window_maximum_y", "window_maximum_y 1.5e+06"),
    ("window_custom", "window_custom_color_palette {-1:0,0,0}"),
    ("Analyzer2D.Objects", "Analyzer2D.Objects: All"),
    ("Analyzer2D.X", "Analyzer3D.ComputeYScale: True"),
]


@pytest.mark.parametrize(("start", "new"), ACCEPTED)
def test_lines_that_paraver_writes_or_takes(tmp_path: Path, start: str, new: str) -> None:
    assert read(CfgText().replace(start, new), tmp_path)[1:] == ([], [])


def test_window_keys_in_a_histogram_are_one_problem(tmp_path: Path) -> None:
    text = CfgText().insert("Analyzer2D.X", "window_width 1", "window_height 2")
    (problem,) = read(text, tmp_path)[1]
    assert problem.endswith(f"(2 times: lines {text.find('Analyzer2D.X') + 1}, {text.find('Analyzer2D.X') + 2})")


def test_a_window_after_a_histogram(tmp_path: Path) -> None:
    text = CfgText().replace("ConfigFile.NumWindows", "ConfigFile.NumWindows: 4")
    text.lines += ["window_name late", "window_type single", "window_width 5", "window_name later"]
    assert read(text, tmp_path)[1] == [
        f"{len(text.lines) - 4}: a window after a histogram: Paraver does not read the event types of its filter"
        f" (2 times: lines {len(text.lines) - 4}, {len(text.lines) - 1})",
        f"{len(text.lines) - 1}: window_name without window_type: there is no such window",
    ]


def test_no_window(tmp_path: Path) -> None:
    text = CfgText(["", "#ParaverCFG", "window_width 1", "cfg4d a|b", "< NEW ANALYZER2D >"])
    assert [problem.partition(":")[2].partition(":")[0] for problem in read(text, tmp_path)[1]] == [
        " 'window_width' comes before the first window",
        " 'cfg4d' comes before the first window",
        " a histogram before the first window",
        " there is no description (ConfigFile.BeginDescription ... ConfigFile.EndDescription)",
        " there is no window",
    ]


def test_what_paraver_ignores_is_a_warning(tmp_path: Path) -> None:
    text = CfgText().insert("window_width", "window_colour red", "window_factors 1 1")
    text.insert("derived|window_id", "window_filter_module evt_type x")
    _, problems, warnings = read(text, tmp_path)
    assert problems == []
    assert warnings == [
        "'window_colour' is not a key of Paraver, which ignores the line",
        "'window_factors' in a single window: Paraver ignores it",
        "'window_filter_module' in a derived window: Paraver ignores it",
    ]


def test_carriage_returns_are_a_warning(tmp_path: Path) -> None:
    text = CfgText()
    text.lines = [f"{line}\r" for line in text.lines]
    cfg, problems, (warning,) = read(text, tmp_path)
    assert (len(cfg.windows), problems) == (3, [])
    assert warning.startswith("carriage return: Paraver does not find the description of such a cfg")


def test_functions() -> None:
    written = "{ 3, { {thread, Last Evt Val}, {evt_type, [x,y]}, {topcompose1, Select Range [)}, } }"
    assert parse_functions(written, 7) == [
        Function("thread", "Last Evt Val", 7),
        Function("evt_type", "[x,y]", 7),
        Function("topcompose1", "Select Range [)", 7),
    ]
    assert parse_functions("{ 2, { {thread, Sign}, {compose1, Abs} } }", 7, composes=True) == [
        Function("compose_thread", "Sign", 7),
        Function("topcompose1", "Abs", 7),
    ]
    for value in ("", "{ 1, {thread, Sign} }", "{1, { {thread, Sign} } }", "{ 1, { {thread,Sign} } }", "{ x, { } }"):
        with pytest.raises(CfgSyntaxError, match=r"is not { n, { {level, function}"):
            parse_functions(value, 1)
    with pytest.raises(CfgSyntaxError, match="2 functions are announced, 1 follow"):
        parse_functions("{ 2, { {thread, Sign} } }", 1)


def test_parameters() -> None:
    assert parse_parameters("compose_thread Is In Range [) { 2, { 1 5.5, 2 0 -1e3 } }", 7) == Parameters(
        "compose_thread", "Is In Range [)", ((5.5,), (0.0, -1000.0)), 7
    )
    assert parse_parameters("thread Last Evt Val { 0, { } }", 7).values == ()
    for value, message in (
        ("thread In Evt Val", "is not 'level function"),
        ("thread In Evt Val{ 1, { 1 1 } }", "is not 'level function"),
        ("thread In Evt Val { 1, {1 1} }", "is not 'level function"),
        ("thread In Evt Val { 2, { 1 1 } }", "2 parameters are announced, 1 follow"),
        ("thread In Evt Val { 1, { 1 1,1 1 } }", "is not a number of values"),
        ("thread In Evt Val { 1, { 2 1 } }", "2 values of a parameter are announced, 1 follow"),
        ("thread In Evt Val { 1, { 1 x } }", "is not a number of values"),
    ):
        with pytest.raises(CfgSyntaxError, match=message):
            parse_parameters(value, 1)


def test_filters() -> None:
    assert parse_filter("evt_type 2 9600 4294967295") == Filter("evt_type", [9600, 4294967295])
    assert parse_filter("evt_value 1 -1.5") == Filter("evt_value", [-1.5])
    assert parse_filter('evt_type_label 2 "a b" "c, [x]*"') == Filter("evt_type", labels=["a b", "c, [x]*"])
    assert parse_filter("evt_type 0") == Filter("evt_type", [])
    for value, message in (
        ("evt_types 1 2", "is not a filter"),
        ("tag_msg_label 1 2", "is not a filter"),
        ("evt_type", "is not a count followed by that many numbers: Paraver refuses"),
        ("evt_type 1 x", "is not a count followed by that many numbers: Paraver refuses"),
        ("evt_type 1  9600", "is not a count followed by that many numbers: Paraver refuses"),
        ("evt_type 2 9600", "2 numbers are announced, 1 follow"),
        ("evt_type 1 9600 9700", "1 numbers are announced, 2 follow"),
        ("evt_type 1 -1", "-1 is not a number for evt_type"),
        ("evt_type 1 4294967296", "4294967296 is not a number for evt_type"),
        ("evt_type 1 9.6e3", "9.6e3 is not a number for evt_type"),
        ("from_obj 1 0", "0 is not a number for from_obj"),
        ("evt_type_label 1 Range", "that many labels in"),
        ('evt_type_label 2 "Range", "Bytes"', "that many labels in"),
        ('evt_type_label 1 "a "quoted" label"', "that many labels in"),
        ('evt_type_label 2 "Range"', "2 labels are announced, 1 follow"),
    ):
        with pytest.raises(CfgSyntaxError, match=message):
            parse_filter(value)


def test_selections() -> None:
    assert parse_selection("appl { 1, { All } }", 7) == Selection("appl", (), ("All",), 7)
    assert parse_selection("thread { 0, 3, 2, { 1, 0 } }", 7) == Selection("thread", (0, 3), ("1", "0"), 7)
    assert parse_selection("cpu { 1, 2, { 1, 1 } }", 7) == Selection("cpu", (1,), ("1", "1"), 7)
    for value, message in (
        ("workload { 1, { All } }", "'workload' has no objects to choose"),
        ("All", "'All' has no objects to choose"),
        ("appl", "is not appl { n, { All, None"),
        ("appl {1, {All}}", "is not appl { n, { All, None"),
        ("task { 2, { 1, 0 } }", "is not task { application, n, { All"),
        ("thread { 0, 2, { 1, 0 } }", "is not thread { application, task, n, { All"),
        ("cpu { 2, { 1, 0 } }", "is not cpu { node, n, { All"),
        ("task { 0, 2, { 1,0 } }", "2 objects of level task are announced, 1 follow"),
        ("task { 0, 1, { 1, 0 } }", "1 objects of level task are announced, 2 follow"),
    ):
        with pytest.raises(CfgSyntaxError, match=message):
            parse_selection(value, 1)


def test_every_level_has_its_default_function() -> None:
    for level, functions in (*FUNCTIONS_OF_LEVEL.items(), *COMPOSES_OF_LEVEL.items()):
        assert DEFAULT_FUNCTION[level] in functions
