"""Reports hold the environment and the command lines of what was profiled: only what is allowed of it gets out."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.program_runs import run
from tests.cli.test_program import SAMPLES

pytestmark = pytest.mark.slow

SECRET = "hunter2swordfish"
VARIABLES = ("AWS_SECRET_ACCESS_KEY", "SLURM_JWT", "MY_RANK", "RANKS", "PATH", "HOME", "USER", "_", "X_SLURM_JOB")
COMMANDS = ("PROCESS_0:COMMAND", "PROCESS_0:ARGUMENTS", "COMMAND_LINE")
REPORTS = ["ddp-2x2.rank0.sqlite", "ddp-2x2.rank2.sqlite", "mpi-4.rank1.sqlite"]


def with_secrets(report: Path, copy: Path) -> Path:
    """A copy with the secret in every captured value but the host's name, and in many variables and commands."""
    copy.write_bytes(report.read_bytes())
    environment = ";".join(f"{name}={SECRET}" for name in VARIABLES)
    captured = [("PROCESS_0:ENVIRONMENT_VARIABLE", f'{name}="{SECRET}"') for name in VARIABLES]
    captured += [(name, f"run --password {SECRET}") for name in COMMANDS]
    captured += [("PROCESS_0:ARGUMENT_7", f"--key={SECRET}.py"), ("PROCESS_0:ARGUMENT_8", f"/home/{SECRET}/run.py")]
    with closing(sqlite3.connect(copy)) as sql, sql:
        for table in ("TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE"):
            others = "name NOT IN ('Hostname', 'DeviceEnvironment') AND name NOT LIKE '%ENVIRONMENT_VARIABLE'"
            sql.execute(f"UPDATE {table} SET value = ? WHERE {others}", (SECRET,))
            sql.execute(f"UPDATE {table} SET value = value || ? WHERE name = 'DeviceEnvironment'", (f";{environment}",))
        sql.executemany("INSERT INTO META_DATA_CAPTURE (name, value) VALUES (?, ?)", captured)
        said = f"Loading '/home/{SECRET}/lib/libcudnn.so.9' failed: data is lost"
        sql.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (1000000, 1, 1, 2, ?, NULL)", (said,))
        count = sql.execute("SELECT count(*) FROM META_DATA_CAPTURE WHERE value LIKE ?", (f"%{SECRET}%",))
        assert count.fetchone()[0] > 20
    return copy


@pytest.mark.parametrize("options", [(), ("--no-such-option",), ("--ranks", "77"), ("--align", "none", "--gzip")])
def test_nothing_of_the_environment_gets_out(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Neither into a file nor onto the screen, also where it ends with an error or a report is left out."""
    folder, out = tmp_path / "reports", tmp_path / "out"
    folder.mkdir()
    out.mkdir()
    reports = [with_secrets(SAMPLES / name, folder / name) for name in REPORTS]
    cut = folder / "cut.sqlite"
    cut.write_bytes(reports[0].read_bytes()[: reports[0].stat().st_size // 2])
    side_files = ("--stats", out / "s.json", "--align-report", out / "c.toml", "--verbose", "--several-jobs")
    done = run(*reports, cut, out / "out.prv", *side_files, *options)
    assert done.returncode == {"--no-such-option": 2, "--ranks": 2}.get((*options, "")[0], 0), done.stderr
    assert SECRET not in done.stdout + done.stderr
    for path in out.iterdir():
        content = path.read_bytes()
        assert SECRET.encode() not in (gzip.decompress(content) if path.suffix == ".gz" else content), path
    assert bool(list(out.iterdir())) == (done.returncode == 0)


def test_of_a_command_only_the_name_of_its_script_gets_out(tmp_path: Path) -> None:
    report = with_secrets(SAMPLES / REPORTS[0], tmp_path / "job.sqlite")
    with closing(sqlite3.connect(report)) as sql, sql:  # the model of the CPU is read, too
        sql.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = 'x' WHERE name LIKE 'Cpu%'")
    page, saved = tmp_path / "job.html", tmp_path / "job.json"
    done = run("summary", report, "--html", page, "--save", saved)
    texts = [done.stdout, done.stderr, page.read_text(encoding="utf-8"), saved.read_text(encoding="utf-8")]
    assert done.returncode == 0 and SECRET not in "".join(texts)
    assert "<title>run.py: Slurm job 4711, " in texts[2]
