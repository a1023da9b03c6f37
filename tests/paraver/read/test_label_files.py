from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.paraver.checker.trace import check_trace
from nsys2prv_ng.paraver.read.label_files import read_pcf
from nsys2prv_ng.paraver.read.problems import Findings
from tests.paraver.checker.trace_files import PCF, ROW, TraceFiles


def at(text: str) -> int:
    """Return the number of the only line of the sound .pcf that holds a text."""
    (number,) = (number for number, line in enumerate(PCF.splitlines(), 1) if text in line)
    return number


def test_what_a_pcf_declares(tmp_path: Path) -> None:
    prv = TraceFiles().write(tmp_path)
    findings = Findings(prv)
    config = read_pcf(prv.with_suffix(".pcf"), findings)
    assert findings.list_problems() == findings.list_warnings() == []
    assert config.states == {0: "Idle", 1: "Running", 2: "Waiting"}
    assert config.colours == {0: (117, 195, 255), 1: (0, 0, 255), 2: (255, 0, 0)}
    assert {number: (t.label, t.precision, t.values) for number, t in config.types.items()} == {
        9600: ("Range", 0, {0: "End", 1: "first [x]", 2: "zweite Häl*fte"}),
        9700: ("Bytes", 2, None),
        9701: ("More bytes", 2, None),
    }


BROKEN = [
    ("LEVEL ", ["LEVELS THREAD"], 0, "'LEVELS THREAD' is not an option of DEFAULT_OPTIONS"),
    ("DEFAULT_OPTIONS", ["0 Idle", "DEFAULT_OPTIONS"], 0, "'0 Idle' is not in any section"),
    ("State As Is", ["THREAD_FUNC State As Is\r"], 0, "carriage return: Paraver understands nothing of such a .pcf"),
    ("# ranges", ["  "], 0, "the line holds nothing but blanks"),
    ("# ranges", ["GRADIENTS"], 0, "'GRADIENTS' is not a section of a .pcf"),
    ("Waiting", ["2 W\udcff"], 0, "the line is not UTF-8"),
    ("Waiting", ["2 Waiting", "x Other"], 1, "'x Other' is not 'state label'"),
    ("Waiting", ["2 Waiting", "-2 Other"], 1, "state -2 is negative|state -2 has no colour in STATES_COLOR"),
    ("Waiting", ["2 Waiting", "3"], 1, "'3' is not 'state label'"),
    ("Waiting", ["2 Waiting", "3 Other"], 1, "state 3 has no colour in STATES_COLOR"),
    ("Waiting", ["2 Waiting", "2 Other"], 1, "state 2 is declared twice"),
    ("Waiting", ["2 Waiting", "2147483648 Other"], 1, "state 2147483648 does not fit 32 bits: Paraver skips the line"),
    ("Waiting", ["2 " + "x" * 2000], 0, "the label of state 2 has 2000 characters, 2000 are too many"),
    ("{255,0,0}", ["2 {255,0,0}", "3 255,0,0"], 1, "'3 255,0,0' is not 'state {red,green,blue}'"),
    ("{255,0,0}", ["2 {256,0,0}"], 0, "the colour of 2 has a part above 255"),
    ("{255,0,0}", ["2 {255,0,0}", "2 {1,2,3}"], 1, "2 has two colours"),
    (
        "{255,0,0}",
        ["2 {255,0,0}", "65536 {1,2,3}"],
        1,
        "colour of 65536: Paraver's palette would grow to hold it (65535 at most)",
    ),
    ("# ranges", ["EVENT_TYPE"], 1, "EVENT_TYPE block without an event type before this line"),
    ("9701", ["0 9701"], 0, "event type 9701 has no label: Paraver skips the line"),
    ("9701", ["9701 More bytes"], 0, "'9701 More bytes' is not 'gradient type label', VALUES or PRECISION"),
    ("9701", ["0 9701 Bytes"], 0, "event types 9700 and 9701 have the same label 'Bytes'"),
    ("9701", ["0 9600 Range"], 0, "event type 9600 is declared on line 20 already"),
    ("9701", ["0 9700 Bytes"], 0, "event type 9700 is declared on line 27 already"),
    ("9701", ["0 0 Nothing"], 0, "event type 0 is not positive"),
    ("9701", ["0 2147483648 Large"], 0, "event type 2147483648 does not fit 32 bits: Paraver skips the line"),
    ("9701", ["0 9701 " + "x" * 2000], 0, "the label of event type 9701 has 2000 characters, 2000 are too many"),
    ("zweite", ["2 two", "2 second"], 1, "value 2 of event type 9600 is labelled twice"),
    ("zweite", ["2 two", "3"], 1, "'3' is not 'value label'"),
    ("zweite", ["2 two", "2147483648 large"], 1, "value 2147483648 does not fit 32 bits: Paraver skips the line"),
    (
        "zweite",
        ["2 " + "x" * 2000],
        0,
        "the label of value 2 of event type 9600 has 2000 characters, 2000 are too many",
    ),
    ("zweite", ["2 two", "VALUES"], 1, "a second VALUES in one block: each group of types needs its own EVENT_TYPE"),
    ("zweite", ["2 two", "0 9999 Other"], 1, "value 0 of event type 9600 is labelled twice"),
    ("PRECISION", ["PRECISION x"], 0, "'PRECISION x' is not 'PRECISION digits'"),
    (
        "PRECISION",
        ["PRECISION 2", "0 9702 Late"],
        1,
        "PRECISION must follow all types of its block; 9702 comes after it",
    ),
]


@pytest.mark.parametrize(("text", "new", "after", "message"), BROKEN, ids=[case[3] for case in BROKEN])
def test_a_broken_pcf(tmp_path: Path, text: str, new: list[str], after: int, message: str) -> None:
    result = check_trace(TraceFiles().replace("pcf", at(text), *new).write(tmp_path))
    problems = [(Path(p.file).name, p.line, p.message, p.count) for p in result.problems]
    assert problems == [("t.pcf", at(text) + after, wanted, 1) for wanted in message.split("|")]


def test_precision_without_a_type_and_values_without_a_type(tmp_path: Path) -> None:
    files = TraceFiles()
    start = len(files.pcf)
    files.pcf += ["EVENT_TYPE", "PRECISION 1", "VALUES", "0 9999 Late"]
    result = check_trace(files.write(tmp_path))
    assert [(p.line, p.message) for p in result.problems] == [
        (start + 1, "PRECISION must follow all types of its block; there is none before it"),
        (start + 2, "VALUES without an event type before it"),
        (start + 3, "EVENT_TYPE block without an event type before this line"),
    ]


def test_precision_may_stand_before_or_behind_values(tmp_path: Path) -> None:
    for block in (["PRECISION 1", "VALUES", "1 one"], ["VALUES", "1 one", "PRECISION 1"]):
        files = TraceFiles()
        files.pcf += ["EVENT_TYPE", "0 9999 Fine", *block]
        prv = files.write(tmp_path)
        assert check_trace(prv).problems == []
        config = read_pcf(prv.with_suffix(".pcf"), Findings(prv))
        assert (config.types[9999].precision, config.types[9999].values) == (1, {1: "one"})


def test_values_hold_for_all_types_of_their_block(tmp_path: Path) -> None:
    files = TraceFiles().replace("pcf", at("9600"), "0 9600 Range", "0 9601 Other range")
    files.replace("prv", 7, "2:1:1:1:1:50:9601:2", "2:1:1:1:1:50:9601:0")
    assert check_trace(files.write(tmp_path)).problems == []
    files.prv[7] = "2:1:1:1:1:50:9601:3"
    problems = check_trace(files.write(tmp_path)).problems
    assert [(p.line, p.message) for p in problems] == [(7, "value 3 of event type 9601 has no label in the .pcf")]


@pytest.mark.parametrize(
    ("pcf", "message"),
    [
        (["EVENT_TYPE", "0 42000050 Cycles", "VALUES", "0 End"], "event type 42000050 has VALUES"),
        (["EVENT_TYPE", "0 9999 All*"], 'the label of event type 9999 holds * or "'),
    ],
)
def test_warnings(tmp_path: Path, pcf: list[str], message: str) -> None:
    files = TraceFiles()
    start = len(files.pcf)
    files.pcf += pcf
    result = check_trace(files.write(tmp_path))
    assert result.problems == []
    ((line, text),) = ((warning.line, warning.message) for warning in result.warnings)
    assert line == start + 1
    assert text.startswith(message)


def find_name(text: str) -> int:
    """Return the number of the first line of the sound .row that starts with a text."""
    return next(number for number, line in enumerate(ROW.splitlines(), 1) if line.startswith(text))


BROKEN_ROWS = [
    ("LEVEL CPU", ["LEVEL CPUS SIZE 3"], 0, "'CPUS' is not a level (WORKLOAD, APPL, TASK, THREAD, SYSTEM, NODE, CPU)"),
    (
        "LEVEL APPL",
        ["LEVEL PTASK SIZE 1"],
        0,
        "'PTASK' is not a level (WORKLOAD, APPL, TASK, THREAD, SYSTEM, NODE, CPU)",
    ),
    ("beta", ["beta", "gamma"], 1, "'gamma' is neither a 'LEVEL name SIZE n' line nor one of its names"),
    ("beta", [], -2, "level NODE has SIZE 2 and only 1 names"),
    ("system", [], -1, "level SYSTEM has SIZE 1 and only 0 names"),
    ("alpha", [""], 0, "name 1 of level NODE is empty"),
    ("alpha", ["  "], 0, "name 1 of level NODE is empty"),
    ("alpha", ["alpha\r"], 0, "carriage return: lines must end with a line feed alone"),
    ("alpha", ["alph\udce4"], 0, "the line is not UTF-8"),
    ("rank 1", ["rank 1", "LEVEL NODE SIZE 2", "x", "y"], 1, "level NODE appears twice: its names are appended"),
    ("LEVEL NODE", ["LEVEL NODE SIZE 3", "x"], 0, "level NODE has SIZE 3, the header of the .prv has 2"),
    ("LEVEL CPU", ["LEVEL CPU SIZE 4", "x"], 0, "level CPU has SIZE 4, the header of the .prv has 3"),
    ("LEVEL TASK", ["LEVEL TASK SIZE 3", "x"], 0, "level TASK has SIZE 3, the header of the .prv has 2"),
    ("LEVEL THREAD", ["LEVEL THREAD SIZE 4", "x"], 0, "level THREAD has SIZE 4, the header of the .prv has 3"),
    ("LEVEL APPL", ["LEVEL APPL SIZE 2", "x"], 0, "level APPL has SIZE 2, the header of the .prv has 1"),
    ("LEVEL WORKLOAD", ["LEVEL WORKLOAD SIZE 2", "x"], 0, "level WORKLOAD has SIZE 2, the header of the .prv has 1"),
    ("LEVEL SYSTEM", ["LEVEL SYSTEM SIZE 2", "x"], 0, "level SYSTEM has SIZE 2, the header of the .prv has 1"),
]


@pytest.mark.parametrize(("text", "new", "after", "message"), BROKEN_ROWS, ids=[case[3] for case in BROKEN_ROWS])
def test_a_broken_row(tmp_path: Path, text: str, new: list[str], after: int, message: str) -> None:
    result = check_trace(TraceFiles().replace("row", find_name(text), *new).write(tmp_path))
    problems = [(Path(p.file).name, p.line, p.message, p.count) for p in result.problems]
    assert problems == [("t.row", find_name(text) + after, message, 1)]


def test_a_level_may_be_absent_and_names_may_look_like_remarks(tmp_path: Path) -> None:
    files = TraceFiles()
    files.row = ["", *files.row[9:13]]
    assert files.row[1] == "LEVEL THREAD SIZE 3"
    assert check_trace(files.write(tmp_path)).problems == []
