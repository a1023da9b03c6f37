"""Cuts of traces that were made of known intervals, by windows anywhere and at their limits."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from nsys2prv_ng.cutting.cut import Selection, cut_trace
from nsys2prv_ng.cutting.result import CutResult
from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.paraver.checker.trace import check_trace
from nsys2prv_ng.runtime.progress import Progress
from tests.cutting.made_traces import KERNEL, MEMORY, METRIC, RANGE, Made, make_random
from tests.examples import examples

PARAMEDIR = shutil.which("paramedir")
NOTHING = Progress()


def cut(path: Path, output: Path, low: int | None = None, high: int | None = None, **options: object) -> CutResult:
    ranks = options.pop("ranks", None)
    limits = None if low is None and high is None else (low, high)
    return cut_trace(path, output, Selection(limits, ranks), NOTHING, **options)  # type: ignore[arg-type]


def read_lines(path: Path) -> list[str]:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines()


def order_by_row(lines: list[str]) -> dict[tuple[str, ...], list[str]]:
    """The lines of each kind, row, time and first type, in their order, which Paraver heeds for events."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        fields = line.split(":")
        key = (fields[0], *fields[1:6], fields[6] if fields[0] == "2" else "")
        groups.setdefault(key, []).append(line)
    return groups


def check_against_loops(made: Made, path: Path, low: int, high: int, output: Path, **options: object) -> None:
    """Compare a cut with what loops over the content of the trace leave of it."""
    expected = made.cut(low, high)
    records = expected.list_records(low - 1)
    held = made.list_held(low)
    cut(path, output, low, high, force=True, **options)
    found = read_lines(output)
    assert found[0] == f"#Paraver (08/10/2024 at 12:3{'4' if low else '3'}):{high - low + 1}_ns:2(3,2):1:3(2:1,1:1,2:2)"
    assert Counter(found[1:]) == Counter(records + held), (low, high)
    found_groups, groups = order_by_row(found[1:]), order_by_row(records)
    for key, lines in groups.items():
        if key[0] == "2" and Counter(found_groups[key]) == Counter(lines):
            assert found_groups[key] == lines, (low, high)
    times = [int(line.split(":")[5]) for line in found[1:]]
    assert times == sorted(times)


@pytest.mark.parametrize("seed", range(examples(12)))
def test_windows_of_random_traces_are_those_of_loops(tmp_path: Path, seed: int) -> None:
    made = make_random(seed)
    path = made.write(tmp_path / "whole.prv")
    assert check_trace(path).problems == []
    times = sorted({part.begin for part in made.intervals} | {time for _, time, _ in made.points})
    middle = times[len(times) // 2]
    windows = [(0, 400), (1, 399), (100, 101), (50, 350), (middle, middle + 40), (middle - 30, middle), (0, 7)]
    for low, high in windows:
        check_against_loops(made, path, low, high, tmp_path / "part.prv", block_bytes=100 * (seed + 1))


def test_neither_blocks_nor_threads_change_a_cut(tmp_path: Path) -> None:
    made = make_random(3, events=400)
    path = made.write(tmp_path / "whole.prv")
    for block_bytes, threads in ((40, 1), (100, 1), (333, 3), (2000, 2), (1 << 20, 2)):
        options = {"block_bytes": block_bytes, "threads": threads}
        check_against_loops(made, path, 150, 260, tmp_path / "part.prv", **options)
        check_against_loops(made, path, 10, 395, tmp_path / "part.prv", **options)


def test_a_cut_of_a_cut_is_the_cut(tmp_path: Path) -> None:
    path = make_random(5).write(tmp_path / "whole.prv")
    cut(path, tmp_path / "once.prv", 100, 300)
    cut(tmp_path / "once.prv", tmp_path / "twice.prv", 0, 10**9)
    assert read_lines(tmp_path / "once.prv") == read_lines(tmp_path / "twice.prv")
    cut(tmp_path / "once.prv", tmp_path / "again.prv.gz", 51, 101)
    cut(path, tmp_path / "direct.prv", 150, 200)
    assert Counter(read_lines(tmp_path / "again.prv.gz")) == Counter(read_lines(tmp_path / "direct.prv"))


def test_compressed_traces(tmp_path: Path) -> None:
    path = make_random(6).write(tmp_path / "whole.prv")
    cut(path, tmp_path / "plain.prv", 50, 200)
    (tmp_path / "other.prv.gz").write_bytes(gzip.compress(path.read_bytes()))
    shutil.copy(tmp_path / "whole.pcf", tmp_path / "other.pcf")
    shutil.copy(tmp_path / "whole.row", tmp_path / "other.row")
    result = cut(tmp_path / "other.prv.gz", tmp_path / "part.prv.gz", 50, 200)
    assert read_lines(tmp_path / "part.prv.gz") == read_lines(tmp_path / "plain.prv")
    assert result.bytes == (tmp_path / "plain.prv").stat().st_size
    assert result.file_bytes == (tmp_path / "part.prv.gz").stat().st_size
    for suffix in (".pcf", ".row"):
        assert (tmp_path / f"part{suffix}").read_bytes() == (tmp_path / f"whole{suffix}").read_bytes()


def test_the_account_counts_what_is_written(tmp_path: Path) -> None:
    path = make_random(7).write(tmp_path / "whole.prv")
    result = cut(path, tmp_path / "part.prv", 50, 200)
    kinds = Counter(line[0] for line in read_lines(tmp_path / "part.prv")[1:])
    assert (result.states, result.events, result.communications) == (kinds["1"], kinds["2"], kinds["3"])
    assert (result.begin_ns, result.end_ns, result.tasks, result.rows) == (50, 200, 3, 5)
    assert "part.prv: " in result.text()
    assert "50 s" not in result.text()


# ---- ranks -----------------------------------------------------------------------------------------------------------


def test_ranks_keep_their_rows_and_what_is_between_them(tmp_path: Path) -> None:
    made = make_random(8)
    path = made.write(tmp_path / "whole.prv")
    cut(path, tmp_path / "part.prv", ranks=[1, 2])
    found = read_lines(tmp_path / "part.prv")
    # Rows 0 and 1 go; row 2 was CPU 3 and is the only one of its node.
    texts = {"3:1:2:1": "1:1:1:1", "4:1:3:1": "2:1:2:1", "5:1:3:2": "3:1:2:2"}
    expected = []
    for line in made.list_records():
        fields = line.split(":")
        places = [":".join(fields[1:5])] + ([":".join(fields[7:11])] if fields[0] == "3" else [])
        if all(place in texts for place in places):
            fields[1:5] = texts[places[0]].split(":")
            if fields[0] == "3":
                fields[7:11] = texts[places[1]].split(":")
            expected.append(":".join(fields))
    assert found == ["#Paraver (08/10/2024 at 12:34):400_ns:2(1,2):1:2(1:1,2:2)", *expected]
    assert check_trace(tmp_path / "part.prv").problems == []
    row = (tmp_path / "part.row").read_text()
    assert "LEVEL TASK SIZE 2\nrank 1\nrank 2\n" in row
    assert "LEVEL CPU SIZE 3\n1.1 1 main\n2.1 2 main\n2.2 2 stream\n" in row


def test_children_and_nodes_belong_to_a_rank(tmp_path: Path) -> None:
    (tmp_path / "t.prv").write_text(
        "#Paraver (08/10/2024 at 12:34):100_ns:2(4,1):1:5(1:1,1:1,1:2,1:1,1:1),3\n"
        "c:1:1:3:1:2:3\nc:1:2:1:3\nc:1:4:2:2:5\n"
        + "".join(f"2:{cpu}:1:{task}:1:{10 * task}:9600:1\n" for task, cpu in enumerate((1, 2, 5, 3, 4), 1))
    )
    (tmp_path / "t.pcf").write_text("")
    tasks = "rank 0\nrank 1 77\nrank 2\nrank 1: helper\nalpha\n"
    (tmp_path / "t.row").write_text(f"LEVEL TASK SIZE 5\n{tasks}LEVEL NODE SIZE 2\nalpha\nbeta\n")
    cut(tmp_path / "t.prv", tmp_path / "part.prv", ranks=[1])
    assert read_lines(tmp_path / "part.prv") == [
        "#Paraver (08/10/2024 at 12:34):100_ns:1(4):1:3(1:1,1:1,1:1),2",
        "c:1:1:1:1",
        "c:1:4:2:1:3",
        "2:2:1:1:1:20:9600:1",
        "2:3:1:2:1:40:9600:1",
        "2:4:1:3:1:50:9600:1",
    ]
    with pytest.raises(UsageError, match="which holds 0-2"):
        cut(tmp_path / "t.prv", tmp_path / "none.prv", ranks=[7])


def test_a_time_and_ranks_together(tmp_path: Path) -> None:
    path = make_random(9).write(tmp_path / "whole.prv")
    cut(path, tmp_path / "ranks.prv", ranks=[0])
    cut(tmp_path / "ranks.prv", tmp_path / "both.prv", 100, 200)
    cut(path, tmp_path / "once.prv", 100, 200, ranks=[0])
    assert read_lines(tmp_path / "once.prv") == read_lines(tmp_path / "both.prv")


# ---- traces of other tools -------------------------------------------------------------------------------------------

EXTRAE_PCF = """EVENT_TYPE
0 50000003 MPI Other
VALUES
0 Outside MPI
31 MPI_Init

EVENT_TYPE
0 60000019 User function
VALUES
0 End
1 main
2 solve

EVENT_TYPE
7 42000050 PAPI_TOT_INS
"""
EXTRAE = """#Paraver (01/02/2024 at 10:00):1000000:1(8):2:1(1:1),1(2:1)
1:3:1:1:1:0:900:1
2:3:1:1:1:100:60000019:1:42000050:11
2:3:1:1:1:200:50000003:31:42000050:12
2:5:1:1:1:300:50000003:0:60000019:2:42000050:13
2:1:2:1:2:350:42000050:99
2:5:1:1:1:600:60000019:0:42000050:14
2:5:1:1:1:700:60000019:0:42000050:15
1:2:2:1:2:700:1000:1
"""


def write_extrae(folder: Path, text: str = EXTRAE) -> Path:
    path = folder / "extrae.prv"
    path.write_text(text)
    path.with_suffix(".pcf").write_text(EXTRAE_PCF)
    path.with_suffix(".row").write_text("LEVEL THREAD SIZE 3\n1.1.1\n2.1.1\n2.1.2\n")
    return path


def test_extrae_counts_microseconds_without_a_unit_and_has_counters(tmp_path: Path) -> None:
    """Counters of lines before the window are not given again: they count what came before."""
    cut(write_extrae(tmp_path), tmp_path / "part.prv", 400_000, 650_000)
    assert read_lines(tmp_path / "part.prv") == [
        "#Paraver (01/02/2024 at 10:00):251:1(8):2:1(1:1),1(2:1)",
        "2:3:1:1:1:1:60000019:1",
        "2:5:1:1:1:1:60000019:2",
        "1:3:1:1:1:1:251:1",
        "2:5:1:1:1:201:60000019:0:42000050:14",
        "2:3:1:1:1:251:60000019:0",
    ]


def test_without_names_the_first_task_is_rank_0(tmp_path: Path) -> None:
    text = EXTRAE.replace("2:1(1:1),1(2:1)", "1:2(1:1,2:1)").replace(":2:1:2:", ":1:2:2:")
    cut(write_extrae(tmp_path, text), tmp_path / "part.prv", ranks=[1])
    assert read_lines(tmp_path / "part.prv") == [
        "#Paraver (01/02/2024 at 10:00):1000000:1(8):1:1(2:1)",
        "2:1:1:1:2:350:42000050:99",
        "1:2:1:1:2:700:1000:1",
    ]
    assert (tmp_path / "part.row").read_text() == "LEVEL THREAD SIZE 2\n2.1.1\n2.1.2\n"


def test_types_that_never_close_take_no_more_than_some_memory(tmp_path: Path) -> None:
    lines = "".join(f"2:1:1:1:1:{time}:60000019:{1 + time % 2}\n" for time in range(20_000))
    path = write_extrae(tmp_path, f"#Paraver (01/02/2024 at 10:00):20000_ns:1(1):1:1(1:1)\n{lines}")
    cut(path, tmp_path / "part.prv", 19_000, 19_001, block_bytes=30_000)
    opened = [line for line in read_lines(tmp_path / "part.prv") if line.startswith("2:1:1:1:1:1:")]
    assert 512 <= len(opened) <= 4097
    assert opened[-1].endswith(":60000019:1")


def test_a_trace_without_its_pcf_and_row(tmp_path: Path) -> None:
    path = write_extrae(tmp_path)
    path.with_suffix(".pcf").unlink()
    path.with_suffix(".row").unlink()
    result = cut(path, tmp_path / "part.prv", 250_000, 400_000)
    assert [warning.partition(" (")[0] for warning in result.warnings] == [
        f"{path.with_suffix('.pcf')}: cannot be read",
        f"{path.with_suffix('.row')}: cannot be read",
    ]
    assert "2:1:2:1:2:101:42000050:99" in read_lines(tmp_path / "part.prv")


def test_names_that_are_no_text_are_copied(tmp_path: Path) -> None:
    path = write_extrae(tmp_path)
    pcf = EXTRAE_PCF.encode() + b"\nEVENT_TYPE\r\n0 9 caf\xe9 \x1b[31m\n"
    path.with_suffix(".pcf").write_bytes(pcf)
    path.with_suffix(".row").write_bytes(b"LEVEL THREAD SIZE 3\n\xff\xfe\n\x1b]0;x\x07\nLEVEL TASK SIZE 9\n")
    cut(path, tmp_path / "part.prv", 250_000, 400_000)
    assert (tmp_path / "part.pcf").read_bytes() == pcf
    cut(path, tmp_path / "ranks.prv", ranks=[0])
    assert check_trace(tmp_path / "ranks.prv").tasks == 2


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("#Paraver (", "#Something ("), "not a Paraver trace"),
        (lambda text: text.replace(":1000000:", ":soon:"), "its header is damaged: the end time"),
        (lambda text: text.replace("1(8):2:1(1:1),1(2:1)", "1(8):2:1(1:1"), "its header is damaged"),
        (lambda text: text.replace(":300:", ":150:"), "line 5 is earlier than the line before it"),
        (lambda text: "", "not a Paraver trace"),
        (lambda text: text[: text.index("\n") + 1], "no event is in the chosen time"),
    ],
)
def test_damaged_traces_are_errors_and_leave_nothing(tmp_path: Path, change, message: str) -> None:
    path = write_extrae(tmp_path, change(EXTRAE))
    with pytest.raises(TranslationError, match=message):
        cut(path, tmp_path / "part.prv", 250_000, 400_000)
    assert list(tmp_path.glob("*part*")) == []


def test_lines_that_are_no_records_are_skipped(tmp_path: Path) -> None:
    bad = ["2:3:1:9:1:210:9:9", "2:3:1:1:1:210:9", "3:1:1:1:1:220:220:1:1:1:7:230:230:1:1", "5:x", "1:3:1:1:1:210:x:1"]
    bad += ["2:99:1:1:1:210:9:9", f"2:3:1:1:1:{'9' * 30}:9:9", "2:3:1:1:1:210:9:9 ", "c:1:1:1:1"]
    at = EXTRAE.index("2:5:1:1:1:300")
    path = write_extrae(tmp_path, EXTRAE[:at] + "\n".join(["# remark", "", *bad]) + "\r\n" + EXTRAE[at:])
    result = cut(path, tmp_path / "part.prv", 100_000, 800_000)
    assert result.warnings == [f"{path}: {len(bad)} lines skipped that are no records of its objects, from line 7 on"]
    clean = write_extrae(tmp_path)
    cut(clean, tmp_path / "clean.prv", 100_000, 800_000)
    assert read_lines(tmp_path / "part.prv") == read_lines(tmp_path / "clean.prv")


def test_a_compressed_trace_that_ends_early(tmp_path: Path) -> None:
    """What comes after the window does not matter."""
    made = make_random(2, events=4000, duration=100_000)
    path = made.write(tmp_path / "whole.prv")
    cut(path, tmp_path / "part.prv", 1000, 2000)
    data = gzip.compress(path.read_bytes())
    (tmp_path / "whole.prv.gz").write_bytes(data[: len(data) // 2])
    cut(tmp_path / "whole.prv.gz", tmp_path / "same.prv", 1000, 2000, block_bytes=1000)
    assert read_lines(tmp_path / "same.prv") == read_lines(tmp_path / "part.prv")
    with pytest.raises(TranslationError, match="the trace is not complete; choose a time before"):
        cut(tmp_path / "whole.prv.gz", tmp_path / "late.prv", 1000, 90_000)
    assert list(tmp_path.glob("*late*")) == []


def test_a_trace_without_its_last_newline(tmp_path: Path) -> None:
    path = write_extrae(tmp_path, EXTRAE[:-1])
    result = cut(path, tmp_path / "part.prv", 250_000, 1_000_000_000)
    assert result.warnings == [f"{path}: the last line has no newline: the trace may not be complete"]


# ---- files -----------------------------------------------------------------------------------------------------------


def test_files_in_the_way(tmp_path: Path) -> None:
    path = write_extrae(tmp_path)
    for output in (path, tmp_path / "extrae.prv.gz"):
        with pytest.raises(UsageError, match="is a file of the trace that is cut"):
            cut(path, output, 0, 500_000, force=True)
    cut(path, tmp_path / "part.prv", 0, 500_000)
    with pytest.raises(TranslationError, match="exists already"):
        cut(path, tmp_path / "part.prv", 0, 500_000)
    cut(path, tmp_path / "part.prv", 0, 500_000, force=True)
    for wrong in ("part.txt", "part"):
        with pytest.raises(UsageError, match=r"must be named \*.prv"):
            cut(path, tmp_path / wrong, 0, 500_000)
    with pytest.raises(TranslationError, match="cannot be read"):
        cut(tmp_path / "absent.prv", tmp_path / "new.prv", 0, 500_000)
    assert list(tmp_path.glob("*new*")) == []


def test_a_window_behind_the_trace(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="time: starts 2 s into a trace that lasts 1 s"):
        cut(write_extrae(tmp_path), tmp_path / "part.prv", 2 * 10**9, None)


# ---- Paraver's own view ----------------------------------------------------------------------------------------------


def show_timeline(trace: Path, event_type: int, compose: str) -> list[tuple[str, int, int, float]]:
    """What paramedir shows of a type: object, begin, end and value of each piece that is not 0."""
    levels = ", ".join(f"{{{level}, Adding}}" for level in ("appl", "task", "node", "system", "workload"))
    filters = ", ".join(
        f"{{{name}, All}}" for name in ("from_obj", "to_obj", "size_msg", "bw_msg", "tag_msg", "evt_value")
    )
    functions = (
        f"{{ 14, {{ {levels}, {{cpu, Active Thd}}, {{thread, Last Evt Val}}, {filters}, {{evt_type, [x,y]}} }} }}"
    )
    composed = f"{{ 3, {{ {{compose_thread, {compose}}}, {{topcompose2, As Is}}, {{topcompose1, As Is}} }} }}"
    cfg = trace.with_name("view.cfg")
    cfg.write_text(
        "#ParaverCFG\nwindow_name view\nwindow_type single\nwindow_units Nanoseconds\nwindow_level thread\n"
        f"window_selected_functions {functions}\nwindow_compose_functions {composed}\n"
        f"window_filter_module evt_type 2 {event_type} {event_type}\n"
    )
    output = trace.with_suffix(".csv")
    subprocess.run(
        [str(PARAMEDIR), "-tu", str(trace), str(cfg), str(output)], check=True, capture_output=True, timeout=60
    )
    pieces = [line.split("\t") for line in output.read_text().splitlines()]
    return [(o, int(b), int(b) + int(d), float(v)) for o, b, d, v in pieces if float(v) and int(d)]


def cut_pieces(pieces: list[tuple[str, int, int, float]], low: int, high: int) -> list[tuple[str, int, int, float]]:
    """Pieces within a window, with times from 1 ns before it, and equal neighbours as one."""
    joined: list[tuple[str, int, int, float]] = []
    for row, begin, end, value in pieces:
        begin, end = max(begin, low) - low + 1, min(end, high) - low + 1
        if begin >= end:
            continue
        if joined and joined[-1][0] == row and joined[-1][2] == begin and joined[-1][3] == value:
            joined[-1] = (row, joined[-1][1], end, value)
        else:
            joined.append((row, begin, end, value))
    return joined


@pytest.mark.slow
@pytest.mark.skipif(PARAMEDIR is None, reason="paramedir is not installed")
@pytest.mark.parametrize("seed", [11, 12])
def test_paraver_shows_of_the_cut_what_it_shows_of_the_trace(tmp_path: Path, seed: int) -> None:
    path = make_random(seed).write(tmp_path / "whole.prv")
    for low, high in ((100, 300), (37, 371)):
        cut(path, tmp_path / "part.prv", low, high, force=True)
        for number, compose in ((RANGE, "Stacked Val"), (KERNEL, "Stacked Val"), (METRIC, "As Is"), (MEMORY, "As Is")):
            whole = show_timeline(path, number, compose)
            part = show_timeline(tmp_path / "part.prv", number, compose)
            assert whole
            assert cut_pieces(part, 1, high - low + 1) == cut_pieces(whole, low, high), (number, low, high)
