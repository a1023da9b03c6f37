"""The checker agrees with a slow one, written independently of it, on random traces."""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver.checker.trace import CheckResult, Problem, check_trace
from tests.examples import examples
from tests.paraver.checker.trace_files import TraceFiles


def found(result: CheckResult, file: str) -> list[tuple[int, str, int]]:
    """Return (line, message, count) of a file's problems; all problems must be in that file."""
    assert {Path(problem.file).name for problem in result.problems} <= {f"t.{file}"}
    return [(problem.line, problem.message, problem.count) for problem in result.problems]


@pytest.mark.all_sets
def test_a_sound_trace_has_no_problem(tmp_path: Path) -> None:
    result = check_trace(TraceFiles().write(tmp_path))
    assert result.problems == []
    assert result.warnings == []
    assert result.records == {"states": 3, "events": 5, "pairs": 8, "communications": 1}
    assert (result.duration, result.tasks, result.rows, result.nodes) == (1000, 2, 3, 2)


# One broken line of the body each: (line, what takes its place, line of the problem, message).
BODY = [
    (4, ["", "2:1:1:1:1:10:9600:1"], 4, "empty line"),
    (4, ["2:1:1:1:1:10:9600:1\r"], 4, "carriage return: lines must end with a line feed alone"),
    (4, ["2:1:1:1:1:10:9600:1:"], 4, "the line ends with a colon"),
    (7, ["5:1:1:1:1:50:9600:1"], 7, "a line which starts with '5' is not a record: its kind must be 1, 2 or 3"),
    (7, ["11:1:1:1:1:50:60:1"], 7, "a line which starts with '1' is not a record: its kind must be 1, 2 or 3"),
    (7, [" # a remark"], 7, "a line which starts with ' ' is not a record: its kind must be 1, 2 or 3"),
    (7, ["4:1:1:1:1:50"], 7, "record of kind 4: Paraver ignores it"),
    (3, ["c:1:2:1:1", "1:1:1:1:1:0:100:1"], 3, "communicator line which the header does not count"),
    (3, ["1:1:1:1:1:0:100:1", "I:1:2:1:1"], 4, "communicator line which the header does not count"),
    (11, ["1:1:1:1:1:100:200:"], 11, "the line ends with a colon|a record of kind 1 needs 8 fields, this line has 7"),
    (11, ["1:1:1:1:1:100:200"], 11, "a record of kind 1 needs 8 fields, this line has 7"),
    (11, ["1:1:1:1:1:100:200:2:3"], 11, "a record of kind 1 needs 8 fields, this line has 9"),
    (7, ["1"], 7, "a record of kind 1 needs 8 fields, this line has 1"),
    (6, ["3:1:1:1:1:30:30:3:1:2:1:40:50:4096"], 6, "a record of kind 3 needs 15 fields, this line has 14"),
    (6, ["3:1:1:1:1:30:30:3:1:2:1:40:50:4096:1:1"], 6, "a record of kind 3 needs 15 fields, this line has 16"),
    (7, ["2:1:1:1:1"], 7, "a record of kind 2 needs 6 fields, this line has 5"),
    (7, ["2:1:1:1:1:50"], 7, "event without a type:value pair"),
    (5, ["2:2:1:1:2:20:9600:2:9700"], 5, "event type 9700 has no value: the line has an odd number of fields"),
    (6, ["3:1:1:1:1:30:30:3:1:2:1:40:50:4096:1.5"], 6, "field 15 is not an integer"),
    (6, ["3:1:1:1:1:30:30:3:1:2:1:40:50:4e3:1"], 6, "field 14 is not an integer"),
    (11, ["1:1::1:1:100:200:2"], 11, "field 3 is not an integer"),
    (11, ["1:1:1:1:1:100:+200:2"], 11, "field 7 is not an integer"),
    (11, ["1:1:1:1:1:100:200:2 "], 11, "field 8 is not an integer"),
    (11, ["1:1:1:1:1:100:2\r00:2"], 11, "field 7 is not an integer"),
    (5, ["2:2:1:1:2:20:9600:2:9700:--1"], 5, "field 10 is not an integer"),
    (5, ["2:2:1:1:2:20:9600:2:9700:-"], 5, "field 10 is not an integer"),
    (5, ["2:2:1:1:2:20:9600:2:9700:1::"], 5, "the line ends with a colon|field 11 is not an integer"),
    (5, ["2:2:1:1:2:20:9600:2:9700:9223372036854775808"], 5, "field 10 does not fit 64 bits"),
    (5, ["2:2:1:1:2:20:9600:2:9700:-9223372036854775809"], 5, "field 10 does not fit 64 bits"),
    (5, ["2:2:1:1:2:20:9600:2:9700:18446744073709551615"], 5, "field 10 does not fit 64 bits"),
    (11, ["1:1:1:1:1:-100:200:2"], 11, "field 6 must not be negative"),
    (6, ["3:1:1:1:1:30:30:3:1:2:1:40:-50:4096:1"], 6, "field 13 must not be negative"),
    (7, ["2:1:1:1:1:-50:9700:1"], 7, "field 6 must not be negative"),
    (
        7,
        ["2:1:1:1:3:50:9700:1"],
        7,
        "object 1.1.3 (application.task.thread) is not in the header: Paraver drops the line",
    ),
    (
        7,
        ["2:1:1:3:1:50:9700:1"],
        7,
        "object 1.3.1 (application.task.thread) is not in the header: Paraver drops the line",
    ),
    (
        7,
        ["2:1:2:1:1:50:9700:1"],
        7,
        "object 2.1.1 (application.task.thread) is not in the header: Paraver drops the line",
    ),
    (
        7,
        ["1:1:1:1:0:50:60:1"],
        7,
        "object 1.1.0 (application.task.thread) is not in the header: Paraver drops the line",
    ),
    (
        6,
        ["3:1:1:1:1:30:30:3:1:2:2:40:50:4096:-1"],
        6,
        "object 1.2.2 (application.task.thread) is not in the header: Paraver drops the line",
    ),
    (7, ["2:4:1:1:1:50:9700:1"], 7, "CPU 4 is not in the header, which has 3: Paraver drops the line"),
    (
        7,
        ["2:3:1:1:1:50:9700:1"],
        7,
        "CPU 3 is not on the node of task 1, whose CPUs are 1 to 2: Paraver drops the line",
    ),
    (
        6,
        ["3:1:1:1:1:30:30:2:1:2:1:40:50:4096:-1"],
        6,
        "CPU 2 is not on the node of task 2, whose CPUs are 3 to 3: Paraver drops the line",
    ),
    (7, ["2:0:1:1:1:50:9700:1"], 7, "CPU 0: the record is not shown at the levels of nodes and CPUs"),
    (6, ["3:1:1:1:1:30:30:0:1:2:1:40:50:4096:-1"], 6, "CPU 0: the record is not shown at the levels of nodes and CPUs"),
    (12, ["1:3:1:2:1:150:1001:1"], 12, "time 1001 is after the end of the trace, 1000"),
    (12, ["1:3:1:2:1:150:9007199254740992:1"], 12, "time 9007199254740992 is not below 2^53: Paraver rounds it"),
    (6, ["3:1:1:1:1:30:30:3:1:2:1:40:1001:4096:-1"], 6, "time 1001 is after the end of the trace, 1000"),
    (9, ["2:1:1:1:1:59:9600:2"], 9, "time 59 comes after time 60: the records are not in order of time"),
    (
        6,
        ["3:1:1:1:1:19:30:3:1:2:1:40:50:4096:-1"],
        6,
        "time 19 comes after time 20: the records are not in order of time",
    ),
    (12, ["1:3:1:2:1:150:149:1"], 12, "the state begins at 150 and ends before that, at 149"),
    (
        3,
        ["1:1:1:1:1:0:101:1"],
        11,
        "the state begins at 100, before another one on thread 1.1 (task.thread) ends at 101",
    ),
    (
        12,
        ["1:1:1:1:1:150:160:1"],
        12,
        "the state begins at 150, before another one on thread 1.1 (task.thread) ends at 200",
    ),
    (7, ["2:1:1:1:1:50:0:1"], 7, "event type 0 is not between 1 and 2147483647"),
    (7, ["2:1:1:1:1:50:-9700:1"], 7, "event type -9700 is not between 1 and 2147483647"),
    (7, ["2:1:1:1:1:50:2147483648:1"], 7, "event type 2147483648 is not between 1 and 2147483647"),
    (12, ["1:3:1:2:1:150:160:2147483648"], 12, "state 2147483648 is above 2147483647"),
    (7, ["2:3:1:2:1:50:9600:0"], 7, "value 0 ends an interval of event type 9600 on 1.2.1, where none is open"),
    (
        10,
        ["2:1:1:1:1:95:9600:0:9600:0:9600:0"],
        10,
        "value 0 ends an interval of event type 9600 on 1.1.1, where none is open",
    ),
    (10, ["2:1:1:1:1:95:9600:0"], 4, "an interval of event type 9600 (Range) on 1.1.1 never ends"),
    (8, ["2:2:1:1:2:60:9700:-5"], 5, "an interval of event type 9600 (Range) on 1.1.2 never ends"),
    (12, ["2:3:1:2:1:150:9600:1"], 12, "an interval of event type 9600 (Range) on 1.2.1 never ends"),
    (7, ["2:1:1:1:1:50:9702:1"], 7, "event type 9702 is not declared in the .pcf"),
    (9, ["2:1:1:1:1:90:9600:3"], 9, "value 3 of event type 9600 has no label in the .pcf"),
    (9, ["2:1:1:1:1:90:9600:-1"], 9, "value -1 of event type 9600 has no label in the .pcf"),
    (9, ["2:1:1:1:1:90:9600:4294967298"], 9, "value 4294967298 of event type 9600 has no label in the .pcf"),
    (12, ["1:3:1:2:1:150:1000:3"], 12, "state 3 has no label in the .pcf"),
    (2, [], 2, "the header announces 1 communicators, and only 0 lines follow"),
    (2, ["# c", "c:1:1:2:1:2"], 2, "the header announces 1 communicators, and only 0 lines follow|communicator line*"),
    (2, ["c:1:1:3:1:2"], 2, "the communicator has 3 tasks, but lists 2"),
    (2, ["c:1:1:2:1:3"], 2, "communicator with task 3: the application has 2"),
    (2, ["c:2:1:2:1:2"], 2, "communicator of application 2: no such application"),
    (2, ["c:1:1"], 2, "a communicator line is not 'c:application:id:tasks:task:task...'"),
]


@pytest.mark.parametrize(("line", "new", "where", "message"), BODY, ids=[f"{b[2]}-{b[1]}-{b[3]}" for b in BODY])
def test_a_broken_line(tmp_path: Path, line: int, new: list[str], where: int, message: str) -> None:
    result = check_trace(TraceFiles().replace("prv", line, *new).write(tmp_path))
    expected = message.split("|")
    problems = found(result, "prv")
    assert len(problems) == len(expected)
    for (at, text, count), wanted in zip(problems, expected, strict=True):
        if wanted.endswith("*"):  # a second problem on a line of its own
            assert text.startswith(wanted[:-1])
        else:
            assert (at, text, count) == (where, wanted, 1)


@pytest.mark.parametrize(
    ("line", "new"),
    [
        (5, "2:2:1:1:2:20:9600:2:9700:9223372036854775807"),
        (5, "2:2:1:1:2:20:9600:2:9700:-9223372036854775808"),
        (5, "2:2:1:1:2:20:9600:2:9700:000000000000000000000001"),
        (6, "3:1:1:1:1:30:30:1:1:1:1:30:30:-1:-1"),
        (9, "2:1:1:1:1:60:9600:2"),
        (12, "1:3:1:2:1:150:150:1"),
        (12, "#"),
    ],
)
def test_limits_that_are_kept(tmp_path: Path, line: int, new: str) -> None:
    assert check_trace(TraceFiles().replace("prv", line, new).write(tmp_path)).problems == []


@pytest.mark.parametrize("times", ["30:30:3:1:2:1:29:50", "30:51:3:1:2:1:40:50"])
def test_receive_before_send_is_a_warning(tmp_path: Path, times: str) -> None:
    result = check_trace(TraceFiles().replace("prv", 6, f"3:1:1:1:1:{times}:4096:-1").write(tmp_path))
    assert result.problems == []
    assert [(warning.line, warning.message.split(":")[0]) for warning in result.warnings] == [
        (6, "received before it was sent")
    ]


def test_pairs_before_an_error_count(tmp_path: Path) -> None:
    files = TraceFiles().replace("prv", 10, "2:1:1:1:1:95:9600:0:9600:0:x:1")
    result = check_trace(files.write(tmp_path))
    assert found(result, "prv") == [(10, "field 11 is not an integer", 1)]
    assert result.records == {"states": 3, "events": 4, "pairs": 8, "communications": 1}


def test_a_pair_whose_value_is_wrong_does_not_count(tmp_path: Path) -> None:
    files = TraceFiles().replace("prv", 7, "2:1:1:1:1:50:9700:1:9700:x:9700:1")
    result = check_trace(files.write(tmp_path))
    assert found(result, "prv") == [(7, "field 10 is not an integer", 1)]
    assert result.records["pairs"] == 9


def test_a_colon_and_a_carriage_return(tmp_path: Path) -> None:
    files = TraceFiles().replace("prv", 11, "1:1:1:1:1:100:200:2:\r")
    result = check_trace(files.write(tmp_path))
    assert [(line, text.split(":")[0]) for line, text, _ in found(result, "prv")] == [
        (11, "carriage return"),
        (11, "the line ends with a colon"),
    ]
    assert result.records["states"] == 3


def test_a_problem_counts_its_lines(tmp_path: Path) -> None:
    files = TraceFiles()
    files.prv[7:8] = ["2:0:1:1:1:50:9700:1"] * 7
    assert found(check_trace(files.write(tmp_path)), "prv") == [
        (7, "CPU 0: the record is not shown at the levels of nodes and CPUs (7 times: lines 7, 8, 9, 10, 11, ...)", 7)
    ]


def test_several_in_one_line_count_once_in_the_lines(tmp_path: Path) -> None:
    files = TraceFiles().replace("prv", 7, "2:1:1:1:1:50:0:1:0:1", "2:1:1:1:1:50:0:1")
    assert found(check_trace(files.write(tmp_path)), "prv") == [
        (7, "event type 0 is not between 1 and 2147483647 (3 times: lines 7, 8)", 3)
    ]


def test_unlabelled_values_are_counted_each_and_bounded(tmp_path: Path) -> None:
    files = TraceFiles()
    files.prv[7:8] = [f"2:1:1:1:1:50:9600:{10 + i % 30}:9600:0" for i in range(90)]
    problems = found(check_trace(files.write(tmp_path)), "prv")
    assert problems[:20] == [
        (7 + i, f"value {10 + i} of event type 9600 has no label in the .pcf (3 times)", 3) for i in range(20)
    ]
    assert problems[20:] == [(27, "10 more values have no label (30 times)", 30)]


def test_more_unlabelled_values_than_can_be_told_apart(tmp_path: Path) -> None:
    files = TraceFiles()
    files.prv[7:8] = [f"2:1:1:1:1:50:9600:{10 + i}:9600:0" for i in range(10_000)]
    problems = found(check_trace(files.write(tmp_path)), "prv")
    assert len(problems) == 21
    assert problems[20] == (27, "at least 8172 more values have no label (9980 times)", 9980)


def test_open_intervals_of_many_types_are_bounded(tmp_path: Path) -> None:
    files = TraceFiles()
    files.pcf += ["EVENT_TYPE", *(f"0 {i} type {i}" for i in range(100, 130)), "VALUES", "0 End", "1 on"]
    files.prv[7:8] = [f"2:1:1:1:1:50:{i}:1:{i}:1" for i in range(100, 130)]
    problems = found(check_trace(files.write(tmp_path)), "prv")
    assert problems[0] == (7, "an interval of event type 100 (type 100) on 1.1.1 never ends (2 times)", 2)
    assert len(problems) == 21
    assert problems[20] == (27, "intervals of 10 more event types never end", 20)


def test_missing_final_newline(tmp_path: Path) -> None:
    prv = TraceFiles().write(tmp_path)
    prv.write_bytes(prv.read_bytes()[:-1])
    result = check_trace(prv)
    assert found(result, "prv") == [(12, "the last line has no newline: the trace may not be complete", 1)]
    assert result.records["states"] == 3


@pytest.mark.parametrize("end", ["\n", ""])
def test_no_record(tmp_path: Path, end: str) -> None:
    files = TraceFiles()
    prv = files.write(tmp_path)
    prv.write_text("\n".join(files.prv[1:3]) + end)
    problems = found(check_trace(prv), "prv")
    assert problems[0] == (0, "no record at all: Paraver refuses such a trace", 1)
    assert [problem[0] for problem in problems[1:]] == ([] if end else [2])


def test_a_long_line_is_not_looked_into(tmp_path: Path) -> None:
    files = TraceFiles().replace("prv", 7, "#" + "x" * 100, "2:0:" + "1" * 300, "2" * 100, "#" + "x" * 99)
    files.replace("prv", 9, "# " + "x" * 98)
    assert found(check_trace(files.write(tmp_path), max_line=100), "prv") == [
        (7, "a line of more than 100 bytes is not checked (2 times: lines 7, 8)", 2)
    ]


def test_without_resources_the_cpu_must_be_zero(tmp_path: Path) -> None:
    files = TraceFiles()
    files.prv[1] = "#Paraver (08/10/2024 at 12:34):1000_ns:0:1:2(2:0,1:0),1"
    records = [line.split(":") for line in files.prv[3:]]
    for fields in records:
        fields[1:2] = ["0"] if len(fields) > 1 else []
        if fields[0] == "3":
            fields[7] = "0"
    files.prv[3:] = [":".join(fields) for fields in records]
    files.row = ["", *files.row[8 + 1 : 17 + 1]]
    result = check_trace(files.write(tmp_path))
    assert result.problems == []
    assert result.nodes == 0
    files.prv[6] = "3:0:1:1:1:30:30:3:1:2:1:40:50:4096:-1"
    assert found(check_trace(files.write(tmp_path)), "prv") == [
        (6, "CPU 3, but the header has no resources: Paraver drops the line", 1)
    ]


def test_missing_pcf_and_row_are_problems(tmp_path: Path) -> None:
    prv = TraceFiles().write(tmp_path)
    (tmp_path / "t.pcf").unlink()
    (tmp_path / "t.row").unlink()
    assert check_trace(prv).problems == [
        Problem(
            str(tmp_path / "t.pcf"),
            0,
            "cannot be read (No such file or directory): labels and intervals are not checked",
        ),
        Problem(
            str(tmp_path / "t.row"), 0, "cannot be read (No such file or directory): objects have numbers for names"
        ),
    ]


def test_what_is_no_trace(tmp_path: Path) -> None:
    for name, content, message in (
        ("t.txt", b"#Paraver (", "its name must end in .prv or .prv.gz"),
        ("t.prv", b"hello\nworld\n", "it does not start with '#Paraver'"),
        ("t.prv", b"", "it does not start with '#Paraver'"),
        ("t.prv", b"\x1f\x8b\x08\x00", "it is compressed: name it .prv.gz"),
        ("t.prv.gz", b"#Paraver (", "the compressed data are damaged"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(TranslationError) as error:
            check_trace(path)
        assert message in str(error.value)
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)
    with pytest.raises(TranslationError, match="No such file"):
        check_trace(tmp_path / "missing.prv")
    (tmp_path / "folder.prv").mkdir()
    with pytest.raises(TranslationError, match="cannot be read"):
        check_trace(tmp_path / "folder.prv")


def test_a_problem_prints_as_compilers_do() -> None:
    assert str(Problem("a/t.prv", 7, "empty line")) == "a/t.prv:7: empty line"
    assert str(Problem("a/t.pcf", 0, "cannot be read")) == "a/t.pcf: cannot be read"


# CPU, task, thread of the rows of the sound trace.
ROWS = ((1, 1, 1), (2, 1, 2), (3, 2, 1))
HEADER_LINES = 2

ORDER = "the records are not in order of time"
OVERLAP = "before another one on thread"
BACKWARDS = "ends before that"
NEVER_OPENED = "where none is open"
NEVER_ENDS = "never ends"
NO_LABEL = "has no label in the .pcf"
UNDECLARED = "is not declared in the .pcf"
RULES = (ORDER, OVERLAP, BACKWARDS, NEVER_OPENED, NEVER_ENDS, NO_LABEL, UNDECLARED)

# Interval types 9600 and 9601; 9700 has no values, 9999 is not declared; value 3 has no label.
Pairs = list[tuple[int, int]]
Record = tuple[str, int, int, int, Pairs]  # kind, row, time, state's length or 0, event's pairs or []
ROW = st.integers(0, len(ROWS) - 1)
TIME = st.integers(0, 30)
PAIR = st.tuples(st.sampled_from([9600, 9601, 9700, 9999]), st.sampled_from([0, 0, 0, 1, 2, 3, -1]))
RECORD: st.SearchStrategy[Record] = st.one_of(
    st.tuples(st.just("state"), ROW, TIME, st.integers(-1, 8), st.just([])),
    st.tuples(st.just("event"), ROW, TIME, st.just(0), st.lists(PAIR, min_size=1, max_size=4)),
)


def line_of(record: Record) -> str:
    kind, row, time, length, pairs = record
    where = ":".join(map(str, (ROWS[row][0], 1, *ROWS[row][1:])))
    if kind == "state":
        return f"1:{where}:{time}:{max(time + length, 0)}:1"
    return f"2:{where}:{time}:" + ":".join(f"{event_type}:{value}" for event_type, value in pairs)


def expected(records: list[Record]) -> dict[str, list[int]]:
    """Return the lines that break each rule; for intervals that never end, those that opened the outermost ones."""
    wrong: dict[str, list[int]] = defaultdict(list)
    stacks: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, (kind, row, time, length, pairs) in enumerate(records):
        line = index + HEADER_LINES + 1
        if index and records[index - 1][2] > time:
            wrong[ORDER].append(line)
        if kind == "state":
            earlier = [other for other in records[:index] if other[0] == "state" and other[1] == row and other[3] >= 0]
            if max(time + length, 0) < time:
                wrong[BACKWARDS].append(line)
            elif any(time < other[2] + other[3] for other in earlier):
                wrong[OVERLAP].append(line)
        for event_type, value in pairs:
            if event_type == 9999:
                wrong[UNDECLARED].append(line)
            if event_type in (9600, 9601):
                stack = stacks[row, event_type]
                if value in (3, -1):
                    wrong[NO_LABEL].append(line)
                if value:
                    stack.append(line)
                elif stack:
                    stack.pop()
                else:
                    wrong[NEVER_OPENED].append(line)
    for stack in stacks.values():
        wrong[NEVER_ENDS] += stack
    return {rule: lines for rule, lines in wrong.items() if lines}


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(RECORD, min_size=1, max_size=25), st.booleans(), st.sampled_from([1, 7, 40, 1 << 20]))
def test_order_overlap_and_depth(records: list[Record], in_order: bool, block_bytes: int) -> None:
    # A state which ends before 0 cannot be written: cut, it may end where it begins.
    records = [(k, row, t, 0 if t + length < 0 else length, p) for k, row, t, length, p in records]
    if in_order:
        records.sort(key=lambda record: record[2])
    files = TraceFiles()
    files.prv[HEADER_LINES + 1 :] = [line_of(record) for record in records]
    files.pcf.insert(files.pcf.index("0    9600    Range"), "0 9601 Other range")
    with tempfile.TemporaryDirectory() as folder:
        result = check_trace(files.write(Path(folder)), block_bytes=block_bytes)
    wrong = expected(records)
    found: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for problem in result.problems:
        (rule,) = (rule for rule in RULES if rule in problem.message)
        found[rule].append((problem.line, problem.count, problem.message))
    assert set(found) == set(wrong)
    for rule, problems in found.items():
        lines = sorted(wrong[rule])
        assert sum(count for _, count, _ in problems) == len(lines)
        assert min(line for line, _, _ in problems) == lines[0]
        if rule in (ORDER, OVERLAP, BACKWARDS, NEVER_OPENED):
            shown = re.search(r"lines ([\d, ]+)", problems[0][2])
            distinct = sorted(set(lines))
            if len(distinct) > 1:
                assert shown is not None
                assert [int(number) for number in re.findall(r"\d+", shown[1])] == distinct[:5]
    assert result.records == {
        "states": sum(record[0] == "state" for record in records),
        "events": sum(record[0] == "event" for record in records),
        "pairs": sum(len(record[4]) for record in records),
        "communications": 0,
    }
