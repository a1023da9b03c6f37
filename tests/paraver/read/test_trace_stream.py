from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nsys2prv_ng.paraver.checker.trace import CheckResult, check_trace
from tests.paraver.checker.trace_files import PRV, TraceFiles, compress


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
