"""The checker agrees with a slow one, written independently of it, on random traces."""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.paraver.checker.trace import check_trace
from tests.examples import examples
from tests.paraver.checker.trace_files import TraceFiles

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
