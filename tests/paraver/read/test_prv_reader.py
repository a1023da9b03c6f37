from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nsys2prv_ng.paraver.checker.trace import CheckResult, check_trace
from nsys2prv_ng.paraver.read.problems import Findings
from nsys2prv_ng.paraver.read.prv_reader import read_header
from tests.paraver.checker.trace_files import PRV, TraceFiles, compress

SOUND = PRV.splitlines()[0]


def problems_of(line: str) -> list[str]:
    findings = Findings(Path("t.prv"))
    read_header(line, findings)
    assert all(problem.line == 1 for problem in findings.list_problems())
    return [problem.message for problem in findings.list_problems()]


def test_what_a_header_says() -> None:
    findings = Findings(Path("t.prv"))
    header = read_header("#Paraver (01/02/2026 at 00:59):42_us:2(3,4):2:1(1:1),2(5:2,6:1),3", findings)
    assert findings.list_problems() == findings.list_warnings() == []
    assert header.duration == 42
    assert header.cpus == (3, 4)
    assert header.applications == (((1, 1),), ((5, 2), (6, 1)))
    assert header.communicators == 3
    assert (header.tasks, header.rows) == (3, 12)
    assert header.list_thread_names()[:3] == ["1.1.1", "2.1.1", "2.1.2"]


@pytest.mark.parametrize(
    "line",
    [
        SOUND.removesuffix(",1"),
        SOUND.replace("2(2,1)", "2").replace("(2:1", "(2:2"),
        SOUND.replace(":2(2,1):1:2(2:1,1:2)", ":2(2,1):2:1(2:1):1(1:2)"),
        SOUND.replace("2(2,1)", "2(1,65533)"),
        SOUND.replace("2:1,1:2", "65534:1,1:2"),
        SOUND.replace("1000", str(2**53 - 1)),
    ],
)
def test_headers_that_are_right(line: str) -> None:
    assert problems_of(line) == []


HEADERS = [
    (SOUND.replace("#Paraver ", "#Paraver"), "the header is not '#Paraver (date):endtime_ns:resources:applications'"),
    (SOUND.replace("08/10/2024 at 12:34", "8 Oct 2024"), "the date '8 Oct 2024' is not 'DD/MM/YYYY at HH:MM'"),
    (SOUND.replace("08/10", "10/13"), "the date '10/13/2024 at 12:34' is not 'DD/MM/YYYY at HH:MM'"),
    (SOUND.replace("08/10", "31/02"), "the date '31/02/2024 at 12:34' is not 'DD/MM/YYYY at HH:MM'"),
    (SOUND.replace("_ns", "_s"), "the time unit '_s' is not one of _ns, _us, _ms"),
    (SOUND.replace("1000", "1e3"), "the end time '1e3' is not an integer"),
    (SOUND.replace("1000", str(2**53)), f"the end time {2**53} is not below 2^53"),
    (SOUND.replace("2(2,1)", "3(2,1)"), "the header has 3 nodes, but 2 counts of CPUs: '2,1'"),
    (SOUND.replace("2(2,1)", "2(2,0)").replace("1:2)", "1:1)"), "node 2 has 0 CPUs: Paraver crashes"),
    (SOUND.replace("2(2,1)", "2(1,65534)"), "more than 65534 CPUs: Paraver crashes"),
    (SOUND.replace("2(2,1)", "65536"), "65536 nodes are more than 65535"),
    (SOUND.replace("2(2,1)", "x"), "the header's resources are not '0' or 'nodes(cpus,...)', then the applications"),
    (SOUND.replace(":1:2(", ":2:2("), "the header announces 2 applications and lists 1"),
    (SOUND.replace(":1:2(", ":1:3("), "application 1 has 3 tasks, but its list is '2:1,1:2'"),
    (SOUND.replace("1:2)", "1)"), "application 1 has 2 tasks, but its list is '2:1,1'"),
    (SOUND.replace("(2:1,", "(0:1,"), "task 1.1 has no thread"),
    (SOUND.replace("1:2)", "1:3)"), "task 1.2 is on node 3, the header has nodes 1 to 2"),
    (SOUND.replace("1:2)", "1:0)"), "task 1.2 is on node 0, the header has nodes 1 to 2"),
    (SOUND.replace("2:1,1:2", "65535:1,1:2"), "65536 threads in all: Paraver cuts them at 65535"),
    (SOUND + ",", "',1,' behind the last application of the header"),
    (SOUND + "x", "',1x' behind the last application of the header"),
]


@pytest.mark.parametrize(("line", "message"), HEADERS, ids=[header[1] for header in HEADERS])
def test_a_broken_header(line: str, message: str) -> None:
    assert line != SOUND
    assert problems_of(line) == [message]


def test_too_many_tasks() -> None:
    tasks = ",".join(["1:1"] * 65536)
    assert problems_of(f"#Paraver (08/10/2024 at 12:34):1_ns:1(1):1:65536({tasks})") == [
        "65536 tasks are more than 65535",
        "65536 threads in all: Paraver cuts them at 65535",
    ]


def test_no_unit_is_a_warning(tmp_path: Path) -> None:
    files = TraceFiles()
    files.prv[1] = SOUND.replace("_ns", "")
    result = check_trace(files.write(tmp_path))
    assert result.problems == []
    assert [warning.line for warning in result.warnings] == [1]


def test_a_header_in_the_trace_is_checked(tmp_path: Path) -> None:
    files = TraceFiles()
    files.prv[1] += "\r"
    assert [(p.line, p.message) for p in check_trace(files.write(tmp_path)).problems] == [
        (1, "carriage return: lines must end with a line feed alone")
    ]


def test_records_are_read_behind_a_header_that_is_not_understood(tmp_path: Path) -> None:
    files = TraceFiles().replace("prv", 2)
    files.prv[1] = "#Paraver"
    files.prv[6] = "4:"
    result = check_trace(files.write(tmp_path))
    assert [problem.line for problem in result.problems] == [1, 6]
    assert result.records == {"states": 3, "events": 5, "pairs": 8, "communications": 1}
    assert (result.duration, result.tasks, result.rows, result.nodes) == (0, 0, 0, 0)


def broken() -> TraceFiles:
    """Make a trace with many problems; most of them depend on earlier lines."""
    files = TraceFiles()
    files.prv[12:] = [
        "1:3:1:2:1:150:1001:1",
        "1:3:1:2:1:140:160:7",
        "2:1:1:1:1:170:9600:5:9600:0",
        "",
        "# " + "x" * 150,
        "2:1:1:1:1:170:9600:0\r",
        "2:1:1:1:1:171:9600:2:",
        "3:0:1:1:1:30:30:3:1:2:9:20:50:4096:",
        "9:",
    ]
    return files


def without_files(result: CheckResult) -> CheckResult:
    return replace(
        result,
        problems=[replace(problem, file=Path(problem.file).suffix) for problem in result.problems],
        warnings=[replace(problem, file=Path(problem.file).suffix) for problem in result.warnings],
    )


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 5, 16, 17, 64, 100, 1000])
def test_blocks_do_not_matter(tmp_path: Path, block_bytes: int) -> None:
    prv = broken().write(tmp_path)
    whole = check_trace(prv, max_line=120)
    assert len(whole.problems) > 8
    assert check_trace(prv, max_line=120, block_bytes=block_bytes) == whole
    prv.write_bytes(prv.read_bytes()[:-1])
    assert check_trace(prv, max_line=120, block_bytes=block_bytes) == check_trace(prv, max_line=120)


@pytest.mark.parametrize("member_bytes", [11, 100, 10_000])
@pytest.mark.parametrize("block_bytes", [7, 1 << 20])
def test_compressed_in_any_number_of_members(tmp_path: Path, member_bytes: int, block_bytes: int) -> None:
    prv = broken().write(tmp_path)
    compressed = check_trace(compress(prv, member_bytes), block_bytes=block_bytes)
    plain = check_trace(prv)
    assert without_files(compressed) == replace(
        without_files(plain),
        problems=[replace(p, file=p.file.replace(".prv", ".gz")) for p in without_files(plain).problems],
    )


@pytest.mark.parametrize("block_bytes", [7, 1 << 20])
def test_a_truncated_gz_is_read_as_far_as_it_goes(tmp_path: Path, block_bytes: int) -> None:
    gz = compress(TraceFiles().write(tmp_path), PRV.index("1:1:1:1:1:100:200"))
    gz.write_bytes(gz.read_bytes()[:-4])
    result = check_trace(gz, block_bytes=block_bytes)
    assert [(p.line, p.message) for p in result.problems] == [
        (12, "the compressed data end in the middle: the trace is not complete")
    ]
    assert result.records["states"] == 3


def test_a_damaged_gz(tmp_path: Path) -> None:
    gz = compress(TraceFiles().write(tmp_path), 10_000)
    data = bytearray(gz.read_bytes())
    data[-8] ^= 1  # its checksum
    gz.write_bytes(data)
    ((line, message),) = ((p.line, p.message) for p in check_trace(gz).problems)
    assert line == 12
    assert message.startswith("the compressed data are damaged: CRC")


@pytest.mark.parametrize("block_bytes", [1, 50, 1 << 20])
def test_progress_adds_up_to_the_size_of_the_file(tmp_path: Path, block_bytes: int) -> None:
    prv = TraceFiles().write(tmp_path)
    for path in (prv, compress(prv, 100)):
        reported: list[int] = []
        check_trace(path, progress=reported.append, block_bytes=block_bytes)
        assert sum(reported) == path.stat().st_size
        assert min(reported) > 0


def test_a_line_longer_than_blocks_and_limit_stays_one_line(tmp_path: Path) -> None:
    files = TraceFiles().replace("prv", 7, "#" + "2:1:" * 5000, "2:0:1:1:1:50:9700:1")
    for block_bytes in (10, 100, 30_000):
        problems = check_trace(files.write(tmp_path), max_line=80, block_bytes=block_bytes).problems
        assert [(p.line, p.count) for p in problems] == [(7, 1), (8, 1)]
