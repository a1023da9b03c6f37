"""Reports that are missing or broken: the others make the trace that they make alone, and the user is told."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from nsys2prv_ng.objects.tasks import find_missing_ranks
from nsys2prv_ng.report.metadata import Metadata
from tests.cli.program_runs import run
from tests.cli.test_program import assert_one_line, broken, files
from tests.conftest import SAMPLES
from tests.report.fake_nsys import Fake, age, hide_nsys

RANKS = [SAMPLES / f"ddp-2x2.rank{rank}.sqlite" for rank in range(4)]
FEW = ("--sources", "cuda_api,kernels", "-j", "1")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith("out.")}


def translated(reports: Sequence[Path], folder: Path, *options: str) -> tuple[dict[str, bytes], str]:
    """The files of a trace, and what was said."""
    folder.mkdir()
    done = run(*reports, folder / "out.prv", *options)
    assert done.returncode == 0, done.stderr
    return contents(folder), done.stdout + done.stderr


def warnings(said: str) -> list[str]:
    return [line.removeprefix("warning: ") for line in said.splitlines() if line.startswith("warning: ")]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [pytest.param("1", marks=pytest.mark.all_sets), "3"])
def test_any_broken_report_is_left_out(tmp_path: Path, jobs: str) -> None:
    """With every way of being broken at once, in any order, also where each report is read by a process of its own."""
    folder = tmp_path / "broken"
    folder.mkdir()
    says = broken(folder)
    del says["missing.sqlite"]
    alone, _ = translated(RANKS[1:3], tmp_path / "alone", "-j", jobs)
    reports = [*RANKS[1:3], *(folder / name for name in says)]
    random.Random(int(jobs)).shuffle(reports)
    summary = tmp_path / "summary.json"
    rest, said = translated(reports, tmp_path / "rest", "-j", jobs, "--memory", "1G", "--stats", str(summary))
    assert rest == alone
    skipped = json.loads(summary.read_text())["skipped"]
    assert [Path(each["file"]).name for each in skipped] == sorted(says)
    told = [line for line in warnings(said) if line.startswith("skipped")]
    for each, line in zip(skipped, told, strict=True):
        assert says[Path(each["file"]).name] in each["why"]
        assert line.endswith(f"{each['file']}: {each['why']}")
        assert f"  skipped: {each['file']}: {each['why']}\n" in said


@pytest.mark.slow
def test_quiet_still_warns(tmp_path: Path) -> None:
    (tmp_path / "no.sqlite").write_bytes(b"")
    done = run(RANKS[0], tmp_path / "no.sqlite", tmp_path / "out.prv", "--quiet", *FEW)
    assert (done.returncode, done.stdout) == (0, "")
    assert len(done.stderr.splitlines()) == 2 and str(tmp_path / "no.sqlite") in done.stderr


@pytest.mark.parametrize("command", [("translate",), ("summary",), ("shard",)])
def test_what_is_not_there_is_an_error_before_anything_is_read(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Also beside damaged reports, of which each would be skipped."""
    (tmp_path / "damaged.sqlite").write_bytes(b"")
    output = {"translate": ["out.prv"], "shard": ["parts"], "summary": []}[command[0]]
    names = ["damaged.sqlite", "gone.sqlite", "off.sqlite", "out.sqlite"]
    for count, others in ((2, ""), (3, " (nor another)"), (4, " (nor 2 others)")):
        given = [tmp_path / name for name in [*names[:count], *output]]
        line = assert_one_line(run(*command, *given), 1)
        assert f"gone.sqlite: no such file{others}; check the name" in line
        assert files(tmp_path) == ["damaged.sqlite"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_an_error_before_anything_is_read(tmp_path: Path) -> None:
    """What is damaged beside it would be skipped."""
    for name in ("damaged.sqlite", "secret.sqlite"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "secret.sqlite").chmod(0)
    line = assert_one_line(run(tmp_path / "damaged.sqlite", tmp_path / "secret.sqlite", tmp_path / "out.prv"), 1)
    assert "secret.sqlite: no permission to read it" in line


@pytest.mark.parametrize("command", ["translate", "summary", "inspect", "compare", "shard", "check"])
def test_commands_say_themselves_what_may_not_be_read(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parser of the command line would refuse it first, without a remedy. Root may read what this user may not."""
    path = tmp_path / "secret.sqlite"
    path.write_bytes(b"")
    more = {"compare": ["--", path], "shard": [tmp_path / "to"], "summary": [], "inspect": [], "check": []}
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    line = run(command, path, *more.get(command, [tmp_path / "out.prv"])).stderr.splitlines()[-1]
    assert line.startswith("nsys2prv-ng: error: ") and "Invalid value" not in line


@pytest.mark.slow
def test_a_table_that_is_damaged_deep_inside(tmp_path: Path) -> None:
    """A report of which much has been read, and put away, before the damage is met."""
    whole = bytearray(RANKS[3].read_bytes())
    with contextlib.closing(sqlite3.connect(RANKS[3].resolve().as_uri() + "?mode=ro", uri=True)) as database:
        [page] = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'OSRT_API'").fetchone()
        [size] = database.execute("PRAGMA page_size").fetchone()
    whole[(page - 1) * size : page * size] = b"\xee" * size
    bad = tmp_path / "rank3.sqlite"
    bad.write_bytes(whole)
    few = ("--sources", "cuda_api,kernels,os_runtime")
    alone, _ = translated(RANKS[:2], tmp_path / "alone", *few)
    for jobs in ("1", "2"):
        rest, said = translated([*RANKS[:2], bad], tmp_path / f"rest{jobs}", "-j", jobs, *few)
        assert rest == alone
        assert "table OSRT_API cannot be read" in said


@pytest.mark.slow
def test_strict_ends_with_the_error(tmp_path: Path) -> None:
    (tmp_path / "cut.sqlite").write_bytes(RANKS[0].read_bytes()[:100000])
    for bad, says in (("no.sqlite", "no such file"), ("cut.sqlite", "cannot be read")):
        for jobs in ("1", "2"):
            done = run(*RANKS[1:3], tmp_path / bad, tmp_path / "out.prv", "--strict", "-j", jobs)
            assert says in assert_one_line(done, 1)
            assert "skipped" not in done.stderr
            assert files(tmp_path) == ["cut.sqlite"]


@pytest.mark.slow
def test_strict_does_not_ask_for_all_ranks(tmp_path: Path) -> None:
    _, said = translated(RANKS[1:3], tmp_path / "out", "--strict", *FEW)
    assert warnings(said) == ["no report of ranks 0, 3 of 4 (by RANK)"]


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    """That of the first, as without other reports."""
    (tmp_path / "a.sqlite").write_bytes(b"")
    line = assert_one_line(run(tmp_path / "a.sqlite", tmp_path / "b.sqlite", tmp_path / "out.prv"), 1)
    assert "b.sqlite: no such file" in line
    (tmp_path / "b.sqlite").write_text("no database")
    line = assert_one_line(run(tmp_path / "b.sqlite", tmp_path / "a.sqlite", tmp_path / "out.prv"), 1)
    assert "b.sqlite: not an SQLite database" in line
    (tmp_path / "b.sqlite").write_text("#Paraver (23/11/2026 at 10:00):9_ns:1(1):1:1(1:1)\n")
    line = assert_one_line(run("summary", tmp_path / "b.sqlite"), 1)
    assert line.endswith("b.sqlite: is a Paraver trace; name the reports that it was made of")
    assert files(tmp_path) == ["a.sqlite", "b.sqlite"]


def test_errors_of_usage_stay(tmp_path: Path) -> None:
    missing = tmp_path / "no.sqlite"
    assert "given twice" in assert_one_line(run(RANKS[0], RANKS[0], missing, tmp_path / "out.prv"), 2)
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"")
    line = assert_one_line(run(*RANKS[:2], damaged, tmp_path / "out.prv", "--nvtx-domain", "nothing"), 2)
    assert "no domain has this name" in line
    assert files(tmp_path) == ["damaged.sqlite"]


@pytest.mark.slow
def test_a_full_disk_is_not_the_fault_of_a_report(tmp_path: Path) -> None:
    """Events that cannot be kept end the translation, they do not leave their report out."""
    import resource
    import signal

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    arguments = [*RANKS[:2], tmp_path / "out.prv", "--memory", "0.001K", *FEW]
    done = run(*arguments, preexec_fn=limit, env=environment)
    assert_one_line(done, 1)
    assert "skipped" not in done.stderr


# ---- reports that must be exported first -----------------------------------------------------------------------------


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    """An nsys whose exports of reports are the samples."""
    hide_nsys(monkeypatch, tmp_path)
    version = "2025.3.2.0"  # with which the samples were exported
    made = Fake(tmp_path / "nsys" / "bin", copies=True, product=version, version=f"NVIDIA Nsight Systems {version}")
    monkeypatch.setenv("NSYS_HOME", str(tmp_path / "nsys"))
    return made


@pytest.mark.slow
def test_exports_that_fail(fake: Fake, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    reports = [folder / f"rank{rank}.nsys-rep" for rank in range(4)]
    for report, sample in zip(reports, RANKS, strict=True):
        shutil.copy(sample, report)
        age(report, 100)
    fake.behave(of_reports={f"rank{i}.nsys-rep": {"code": 1, "says": "magic number mismatch"} for i in (0, 2)})
    for jobs in ("1", "3"):
        rest, said = translated(reports, tmp_path / f"rest{jobs}", "-j", jobs, "--sources", "kernels")
        told = warnings(said)
        assert told.pop() == "no report of ranks 0, 2 of 4 (by RANK)"
        for rank, line in zip((0, 2), told, strict=True):
            assert f"rank{rank}.nsys-rep: nsys 2025.3.2.0 failed" in line
        alone, _ = translated([RANKS[1], RANKS[3]], tmp_path / f"alone{jobs}", "--sources", "kernels", "-j", "1")
        assert rest == alone
    assert [len([call for call in fake.exports() if call[-1] == str(report)]) for report in reports] == [2, 1, 2, 1]
    done = run(*reports, tmp_path / "out.prv", "--strict")
    assert "rank0.nsys-rep: nsys 2025.3.2.0 failed" in assert_one_line(done, 1)


def test_what_is_wrong_with_the_machine_ends_all(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, and no nsys: other reports would fail alike, and the user can help it."""
    report = tmp_path / "rank0.nsys-rep"
    shutil.copy(RANKS[0], report)
    age(report, 100)
    fake.behave(code=1, says="disk is full")
    assert "free space" in assert_one_line(run(report, RANKS[1], tmp_path / "out.prv"), 1)
    monkeypatch.setenv("NSYS_HOME", str(tmp_path / "empty"))
    fake.path.unlink()
    line = assert_one_line(run(report, RANKS[1], tmp_path / "out.prv"), 1)
    assert "no nsys to export it with" in line


# ---- ranks -----------------------------------------------------------------------------------------------------------


def launched(**environment: str) -> Metadata:
    return Metadata("3.20.3", "2025.3", "host", 0, 0, None, environment, {}, {}, {}, {}, {}, {})


def of_slurm(ranks: Sequence[int], size: int) -> list[Metadata]:
    return [launched(SLURM_PROCID=str(rank), SLURM_NTASKS=str(size)) for rank in ranks]


@pytest.mark.parametrize(
    ("there", "size", "says"),
    [
        (range(16), 16, ""),
        ([r for r in range(16) if r not in (3, 7)], 16, "no report of ranks 3, 7 of 16 (by SLURM_PROCID)"),
        ([0, 1, 2], 4, "no report of rank 3 of 4 (by SLURM_PROCID)"),
        ([5], 8, "no report of ranks 0-4, 6-7 of 8 (by SLURM_PROCID)"),
        ([0], 1, ""),
        ([0, 9], 2, "no report of rank 1 of 2 (by SLURM_PROCID)"),
        ([0], 999999999, "no report of ranks 1-999999998 of 999,999,999 (by SLURM_PROCID)"),
    ],
)
def test_gaps(there: Sequence[int], size: int, says: str) -> None:
    assert find_missing_ranks(of_slurm(there, size), there) == ([says] if says else [])


def test_many_gaps_are_not_all_shown() -> None:
    [line] = find_missing_ranks(of_slurm(range(0, 100, 2), 100), [])
    assert line.endswith("37, 39, and others of 100 (by SLURM_PROCID)")


def test_a_step_counts_before_its_job() -> None:
    """A step of 2 tasks in a job of 8."""
    step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "8"}
    assert find_missing_ranks([launched(SLURM_PROCID=rank, **step) for rank in "01"], [0, 1]) == []


def test_launchers_on_nodes() -> None:
    """Reports of nodes, of 4 ranks each: the node that has none is named, and its ranks are not made up."""
    ranks = [*range(4), *range(8, 12)]
    assert find_missing_ranks(of_slurm([0, 2], 3), ranks) == ["no report of rank 1 of 3 (by SLURM_PROCID)"]


def test_one_report_of_all_ranks_from_a_batch_script() -> None:
    """`nsys profile mpirun` in a batch script has the script's SLURM_PROCID, and all ranks."""
    assert find_missing_ranks(of_slurm([0], 4), range(4)) == []


@pytest.mark.parametrize("value", ["", "x", "-1", "1.5", "\u0663", "9" * 5000])
def test_values_that_are_no_number(value: str) -> None:
    assert launched(RANK=value).rank is None
    assert find_missing_ranks([launched(RANK="0", WORLD_SIZE=value)], [0]) == []


@pytest.mark.slow
def test_one_report_was_chosen(tmp_path: Path) -> None:
    _, said = translated(RANKS[:1], tmp_path / "out", *FEW)
    assert warnings(said) == []
