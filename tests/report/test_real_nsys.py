"""The nsys of this machine: a program profiled, exported and translated is compared with what the program printed.

Skipped where there is no nsys, or none with which a program can be built. `.ci/install-nsys FOLDER` gets one.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.report import export
from nsys2prv_ng.report.export_all import locate_exports
from nsys2prv_ng.report.formats import EXPORT_FORMATS
from nsys2prv_ng.report.nsys import Nsys, find_nsys, read_export_help
from nsys2prv_ng.runtime.progress import Progress
from tests.bundled.fake_slurm import PROFILING
from tests.cli.program_runs import run
from tests.report.fake_nsys import export_report
from tests.trace_reader import Trace, pair_intervals, read_trace

CLOCKS = 2_000_000
"""By how much (ns) nsys's UTC may differ from the clock of the program: 0.2 ms were seen."""
PLAIN = ("profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true")
"""Without sampling: the agent of 2022.4 can spin for ever on a small virtual machine otherwise."""


@dataclass(frozen=True)
class Said:
    """An event as the program printed it: UTC (ns) read before and after its begin, and before and after its end."""

    thread: str
    kind: str
    domain: str
    name: str
    times: tuple[int, int, int, int]


@dataclass(frozen=True)
class Profiled:
    """Reports of two ranks, of which the second was run first, and what each printed."""

    reports: tuple[Path, Path]
    said: tuple[list[Said], list[Said]]


@pytest.fixture(scope="module")
def nsys() -> Nsys:
    found = find_nsys()
    if found is None:
        pytest.skip("no nsys on this machine")
    return found


@pytest.fixture(scope="module")
def profiled(nsys: Nsys, tmp_path_factory: pytest.TempPathFactory) -> Profiled:
    folder = tmp_path_factory.mktemp("profiled")
    program = _build(nsys, folder)
    said = {rank: _profile(nsys, program, folder / f"rank{rank}", rank) for rank in (1, 0)}
    return Profiled((folder / "rank0.nsys-rep", folder / "rank1.nsys-rep"), (said[0], said[1]))


def _build(nsys: Nsys, folder: Path) -> Path:
    here = nsys.path.resolve().parent
    headers = [path for root in (here, here.parent) for path in root.glob("**/nvtx3/nvToolsExt.h")]
    compiler = shutil.which("cc")
    if not headers or compiler is None:
        pytest.skip(f"no {'C compiler' if headers else 'header of NVTX beside nsys'} to build a program to profile")
    source = Path(__file__).with_name("nvtx_program.c")
    include = headers[0].parents[1]
    command = [compiler, "-O1", "-I", include, source, "-o", folder / "program", "-lpthread", "-ldl"]
    subprocess.run(command, check=True, timeout=120)
    return folder / "program"


def _profile(nsys: Nsys, program: Path, output: Path, rank: int) -> list[Said]:
    # -e is known to the report alone, not to nsys: where the tables of the capture are lost, so is the rank.
    has_capture = nsys.release >= (2023,)
    command = [nsys.path, *PLAIN, "-o", output, *(["-e", f"RANK={rank}"] if has_capture else []), program]
    environment = {name: value for name, value in os.environ.items() if name != "RANK"}
    environment |= {} if has_capture else {"RANK": str(rank)}
    environment["TMPDIR"] = str(output.parent)  # where it leaves files behind if it fails
    command = ["flock", "--close", PROFILING, "timeout", "--kill-after=5", "60", *command]
    for _ in range(4):  # nsys sometimes loses the connection to its own agent, more often where another one profiles
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
        if output.with_suffix(".nsys-rep").is_file():
            break
    assert output.with_suffix(".nsys-rep").is_file(), done.stdout + done.stderr
    words = [line.split() for line in done.stdout.splitlines() if line.startswith(("first ", "second "))]
    assert len(words) == 24
    return [
        Said(t, kind, domain, name, (int(a), int(b), int(c), int(d))) for t, kind, domain, name, a, b, c, d in words
    ]


def _copied(profiled: Profiled, folder: Path) -> list[Path]:
    """The reports, and nothing beside them."""
    folder.mkdir(exist_ok=True)
    return [Path(shutil.copy(report, folder)) for report in profiled.reports]


def _translate(reports: list[Path], output: Path, *options: str) -> str:
    """By the command line; gives what it printed."""
    output.parent.mkdir(exist_ok=True)
    # The reports were captured one after the other, on a busy machine more than half a minute apart.
    done = run(*reports, output, "--several-jobs", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _error(reports: list[Path], output: Path, before: Callable[[], None] | None = None) -> str:
    """The one line of a translation that fails."""
    done = run("--quiet", *reports, output, **({"preexec_fn": before} if before else {}))
    assert done.returncode == 1, done.stdout + done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith(f"nsys2prv-ng: error: {reports[0]}: nsys ")
    return line


def _bytes(output: Path) -> list[bytes]:
    return [output.with_suffix(suffix).read_bytes() for suffix in (".prv", ".pcf", ".row")]


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _by_hand(nsys: Nsys, report: Path, kind: str, output: Path, *options: str) -> Path:
    command = [nsys.path, "export", "--type", kind, "--output", output, *options, report]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return output


# ----------------------------------------------------------------------------------------------------- what it shows


def _events(trace: Trace) -> dict[tuple[int, str], list[tuple[str, str, int, int]]]:
    """Ranges and marks of each task and thread: kind, name, begin and end from the start of the trace, by time."""
    ranges = [number for label in ("NVTX range", "NVTX solver range") for number in trace.find_types(label)]
    [marks] = trace.find_types("NVTX mark")
    names = trace.names["THREAD"]
    found: dict[tuple[int, str], list[tuple[str, str, int, int]]] = {}
    for each in pair_intervals(trace, *ranges).itertuples():
        event = ("range", trace.values[each.type][each.value], each.begin, each.end)
        found.setdefault((trace.task_of_row[each.row], names[each.row]), []).append(event)
    shown = trace.events[(trace.events["type"] == marks) & (trace.events["value"] != 0)]
    for each in shown.itertuples():
        event = ("mark", trace.values[marks][each.value], each.time, each.time)
        found.setdefault((trace.task_of_row[each.row], names[each.row]), []).append(event)
    return {row: sorted(events, key=lambda event: event[2]) for row, events in found.items()}


def _utc_of_start(printed: str) -> int:
    """From the end of the summary's line: 2026-01-31T12:00:00.123456789Z."""
    text = printed.split(" s from ")[1].split()[0]
    seconds, fraction = text.rstrip("Z").split(".")
    whole = subprocess.run(["date", "-u", "-d", seconds.replace("T", " "), "+%s"], capture_output=True, check=True)
    return int(whole.stdout) * 10**9 + int(fraction)


def test_ranges_are_what_and_when_the_program_says(profiled: Profiled, tmp_path: Path) -> None:
    reports = _copied(profiled, tmp_path / "job")
    printed = _translate(reports, tmp_path / "out" / "trace.prv")
    start = _utc_of_start(printed)
    found = _events(read_trace(tmp_path / "out" / "trace.prv"))
    assert len(found) == 4, "two threads of two ranks"
    for rank, said in enumerate(profiled.said):
        for thread in ("first", "second"):
            events = found[rank + 1, f"r{rank} {thread}"]
            expected = sorted((each for each in said if each.thread == thread), key=lambda each: each.times[1])
            assert [event[:2] for event in events] == [(each.kind, each.name) for each in expected]
            for (_, _, begin, end), each in zip(events, expected, strict=True):
                a, b, c, d = each.times
                assert a - CLOCKS <= start + begin <= b + CLOCKS
                assert c - CLOCKS <= start + end <= d + CLOCKS


def test_trace_keeps_the_rules_of_paraver(profiled: Profiled, tmp_path: Path) -> None:
    output = tmp_path / "trace.prv"
    _translate(_copied(profiled, tmp_path / "job"), output)
    done = run("check", output)
    assert done.returncode == 0, done.stdout


# ------------------------------------------------------------------------------------------------------------ exports

KINDS_APART = {"parquetdir": "_pqtdir", "arrowdir": "_arwdir", "sqlite": ".sqlite"}


def _offered(nsys: Nsys) -> list[str]:
    return [kind for kind in KINDS_APART if kind in read_export_help(nsys.path)]


def _prefer(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Let exports be of one kind."""
    monkeypatch.setattr(export, "EXPORT_FORMATS", [format for format in EXPORT_FORMATS if format.type == kind])


def test_best_kind_is_made_and_used_again(nsys: Nsys, profiled: Profiled, tmp_path: Path) -> None:
    reports = _copied(profiled, tmp_path / "job")
    _translate(reports, tmp_path / "out" / "trace.prv")
    ending = KINDS_APART[_offered(nsys)[0]]
    made = {report.name.replace(".nsys-rep", ending) for report in reports}
    assert _names(tmp_path / "job") == {report.name for report in reports} | made
    times = {name: (tmp_path / "job" / name).stat().st_ctime_ns for name in made}
    before = _bytes(tmp_path / "out" / "trace.prv")
    _translate(reports, tmp_path / "out" / "trace.prv", "--force")
    assert {name: (tmp_path / "job" / name).stat().st_ctime_ns for name in made} == times
    assert _bytes(tmp_path / "out" / "trace.prv") == before


def test_same_trace_whatever_the_kind(
    nsys: Nsys, profiled: Profiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the user has made (SQLite, which lacks nothing), and those that are made for him."""
    traces = {}
    for kind in ["by hand", *_offered(nsys)]:
        reports = _copied(profiled, tmp_path / kind)
        for report in reports:
            if kind == "by hand":
                _by_hand(nsys, report, "sqlite", report.with_suffix(".sqlite"))
            else:
                _prefer(monkeypatch, kind)
                made = export_report(report, tmp_path, nsys)
                assert made == report.with_name(report.stem + KINDS_APART[kind])
        _translate(reports, tmp_path / f"out {kind}" / "trace.prv")
        traces[kind] = _bytes(tmp_path / f"out {kind}" / "trace.prv")
    assert len(traces) == 1 + len(_offered(nsys))
    assert [kind for kind, files in traces.items() if files != traces["by hand"]] == []
    assert read_trace(tmp_path / "out by hand" / "trace.prv").names["TASK"] == ["rank 0", "rank 1"]


def _cells_of_sqlite(path: Path) -> dict[str, dict[str, list[object]]]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {}
        for table in tables:
            cursor = database.execute(f'SELECT * FROM "{table}" ORDER BY rowid')
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
            found[table] = {name: [row[i] for row in rows] for i, name in enumerate(names)}
        return found


def _cells_of_folder(path: Path) -> dict[str, dict[str, list[object]]]:
    def read(file: Path) -> pa.Table:
        return pq.read_table(file) if file.suffix == ".parquet" else pa.ipc.open_stream(file.read_bytes()).read_all()

    return {file.stem: read(file).to_pydict() for file in path.iterdir()}


@pytest.mark.parametrize("kind", ["parquetdir", "arrowdir"])
def test_folders_hold_every_cell_of_sqlite(
    nsys: Nsys, profiled: Profiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind not in _offered(nsys):
        pytest.skip(f"nsys {nsys.version} has no {kind}")
    _prefer(monkeypatch, kind)
    report = _copied(profiled, tmp_path)[1]
    folder = _cells_of_folder(export_report(report, tmp_path, nsys))
    expected = _cells_of_sqlite(_by_hand(nsys, report, "sqlite", tmp_path / "by hand.sqlite"))
    for tables in (folder, expected):
        assert tables.pop("META_DATA_EXPORT"), "when and how each was made differs"
    assert folder["META_DATA_CAPTURE"]["value"].count('RANK="1"') == 1
    signed = {name: {k: [_signed(cell) for cell in v] for k, v in table.items()} for name, table in folder.items()}
    assert signed == expected


def _signed(cell: object) -> object:
    """SQLite has no unsigned integers."""
    return cell - 2**64 if isinstance(cell, int) and cell >= 2**63 else cell


def test_reports_exported_at_once_give_the_same(nsys: Nsys, profiled: Profiled, tmp_path: Path) -> None:
    reports = _copied(profiled, tmp_path / "one")
    one = [_tables(export_report(report, tmp_path, nsys)) for report in reports]
    several = [report for i in range(4) for report in _copied(profiled, tmp_path / f"several {i}")]
    exports = locate_exports(several, tmp_path, Progress(), jobs=3)
    assert [_tables(path) for path in exports] == one * 4


def _tables(path: Path) -> dict[str, dict[str, list[object]]]:
    tables = _cells_of_folder(path) if path.is_dir() else _cells_of_sqlite(path)
    return {name: cells for name, cells in tables.items() if "EXPORT" not in name}


# -------------------------------------------------------------------------------------------------------- time bases


@pytest.mark.parametrize(
    "options", [["--ts-normalize=true"], ["--ts-shift=-123456789"], ["--ts-normalize=true", "--ts-shift=987654321"]]
)
def test_normalised_and_shifted_exports_give_the_same_trace(
    nsys: Nsys, profiled: Profiled, tmp_path: Path, options: list[str]
) -> None:
    """One rank of two is normalised or shifted: its time is told by what the export says of itself."""
    if "--ts-normalize" not in read_export_help(nsys.path):
        pytest.skip(f"nsys {nsys.version} neither normalises nor shifts")
    reports = _copied(profiled, tmp_path / "job")
    for folder in ("plain", "moved"):
        (tmp_path / folder).mkdir()
    plain = [_by_hand(nsys, report, "sqlite", tmp_path / "plain" / f"{report.stem}.sqlite") for report in reports]
    moved = _by_hand(nsys, reports[1], "sqlite", tmp_path / "moved" / "rank1.sqlite", *options)
    assert _cells_of_sqlite(moved)["NVTX_EVENTS"]["start"] != _cells_of_sqlite(plain[1])["NVTX_EVENTS"]["start"]
    _translate(plain, tmp_path / "out plain" / "trace.prv")
    _translate([plain[0], moved], tmp_path / "out moved" / "trace.prv")
    assert _bytes(tmp_path / "out moved" / "trace.prv") == _bytes(tmp_path / "out plain" / "trace.prv")


def test_time_is_that_of_events_not_of_the_session(nsys: Nsys, profiled: Profiled, tmp_path: Path) -> None:
    """By plain SQL: events count from the session's UTC, and ANALYSIS_DETAILS from some tenths of a second before."""
    report = _copied(profiled, tmp_path)[0]
    tables = _cells_of_sqlite(_by_hand(nsys, report, "sqlite", tmp_path / "x.sqlite"))
    [utc] = tables["TARGET_INFO_SESSION_START_TIME"]["utcEpochNs"]
    events = zip(*(tables["NVTX_EVENTS"][name] for name in ("eventType", "start", "end")), strict=True)
    ranges = sorted((start + utc, end + utc) for kind, start, end in events if kind == 59)
    said = sorted(each.times for each in profiled.said[0] if each.kind == "range")
    assert len(ranges) == len(said) == 16
    for (start, end), (a, b, c, d) in zip(ranges, sorted(said, key=lambda times: times[1]), strict=True):
        assert a - CLOCKS <= start <= b + CLOCKS and c - CLOCKS <= end <= d + CLOCKS
    [begin], [stop], [duration] = (tables["ANALYSIS_DETAILS"][name] for name in ("startTime", "stopTime", "duration"))
    assert stop - begin == duration
    assert begin > 20 * CLOCKS, "taken for the zero of events it would put them here too early"


# ------------------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("keep", [0.5, 0.999, 0.001, 0.0])
def test_report_that_was_cut_off(profiled: Profiled, tmp_path: Path, keep: float) -> None:
    report = _copied(profiled, tmp_path / "job")[0]
    os.truncate(report, int(report.stat().st_size * keep))
    before = report.read_bytes()
    assert "the report is damaged or was cut off: copy it again" in _error([report], tmp_path / "out.prv")
    assert report.read_bytes() == before
    assert _names(tmp_path / "job") == {"rank0.nsys-rep", "rank1.nsys-rep"} and _names(tmp_path) == {"job"}


@pytest.mark.parametrize(("first", "last"), [(0, 1), (9, 10), (1, 9)])
def test_report_with_damaged_blocks(profiled: Profiled, tmp_path: Path, first: int, last: int) -> None:
    """nsys refuses a damaged header or index. Which blocks lie between them depends on the machine that was profiled:
    where it reads none of the damaged ones, the trace must be that of the whole report."""
    report = _copied(profiled, tmp_path / "job")[0]
    data = report.read_bytes()
    tenth = len(data) // 10
    report.write_bytes(data[: first * tenth] + bytes((last - first) * tenth) + data[last * tenth :])
    if (first, last) == (1, 9) and run("--quiet", report, tmp_path / "out.prv").returncode == 0:
        _translate(_copied(profiled, tmp_path / "whole")[:1], tmp_path / "whole.prv")
        assert (tmp_path / "out.prv").read_bytes() == (tmp_path / "whole.prv").read_bytes()
    else:
        assert "the report is damaged or was cut off" in _error([report], tmp_path / "out.prv")
        assert _names(tmp_path / "job") == {"rank0.nsys-rep", "rank1.nsys-rep"}


def test_file_that_is_no_report(tmp_path: Path, nsys: Nsys) -> None:
    report = tmp_path / "text.nsys-rep"
    report.write_text("my thesis\n" * 1000)
    assert "the report is damaged or was cut off" in _error([report], tmp_path / "out.prv")


def test_report_of_a_newer_nsys(profiled: Profiled, tmp_path: Path) -> None:
    report = _copied(profiled, tmp_path)[0]
    start, rest = report.read_bytes().split(b".\n", 1)  # 2022.4 has a 1 in the place of its version
    assert re.fullmatch(rb"NVIDIA Tegra Profiler Report [\w@-]+", start)
    report.write_bytes(start.rsplit(b" ", 1)[0] + b" 2039@1@2@3-234433681190v0.\n" + rest)
    line = _error([report], tmp_path / "out.prv")
    assert "2039" in line and line.endswith("load that version's module, or set NSYS_HOME to its folder")


def test_limit_of_the_size_of_files(profiled: Profiled, tmp_path: Path) -> None:
    report = _copied(profiled, tmp_path / "job")[0]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    line = _error([report], tmp_path / "out.prv", limit)
    assert "killed by signal SIGXFSZ" in line and line.endswith("see `ulimit -f`")
    assert _names(tmp_path / "job") == {"rank0.nsys-rep", "rank1.nsys-rep"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A disk of so many bytes; skipped where none can be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = []

    def mount(size: int) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk]
        if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("no small disk can be mounted here (root can, outside of most containers)")
        mounted.append(disk)
        return disk

    yield mount
    for path in mounted:
        subprocess.run(["umount", path], check=True)


@pytest.mark.parametrize("room", [40_000, 150_000, 300_000])
@pytest.mark.parametrize("kind", list(KINDS_APART))
def test_full_disk(
    nsys: Nsys,
    profiled: Profiled,
    tmp_path: Path,
    small_disk: Callable[[int], Path],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    room: int,
) -> None:
    """Folders of Parquet: nsys 2023.4 ends with exit code 0 and leaves empty files. None of them may be kept."""
    if kind not in _offered(nsys):
        pytest.skip(f"nsys {nsys.version} has no {kind}")
    disk = small_disk(profiled.reports[0].stat().st_size + room)
    report = Path(shutil.copy(profiled.reports[0], disk))
    _prefer(monkeypatch, kind)
    try:
        made = export_report(report, tmp_path / "out", nsys)
    except TranslationError as error:
        assert str(error).startswith(f"{report}: ") and "\n" not in str(error)
        assert "free space" in str(error) or "No space left" in str(error)
        assert _names(disk) == {report.name}
    else:  # it fits
        assert room == 300_000 and _tables(made) == _tables(_by_hand(nsys, report, kind, tmp_path / "whole"))
