"""Commands import only the libraries that they need: these take from 0.2 to 0.5 seconds each."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.comparison.made import make_summary
from tests.conftest import SAMPLES
from tests.paraver.checker.trace_files import TraceFiles
from tests.report.table_folders import tables_of, write_folder
from tests.tiers import cases

LIBRARIES = {"sqlalchemy", "pandas", "numba", "pyarrow", "pyarrow.parquet", "jinja2", "playwright"}
OF_REPORTS = {"numba", "pyarrow"}

PROGRAM = """
import os, sys
from nsys2prv_ng.cli.program import main
os._exit = sys.exit
try:
    main()
finally:
    print("imported", *sys.modules, file=sys.stderr)
"""


def run(*arguments: object, cwd: Path) -> tuple[int, set[str]]:
    """Run a command in a process of its own; return its exit code and which of LIBRARIES it imported."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, check=False)
    *_, imported = done.stderr.splitlines()
    assert imported.startswith("imported "), done.stderr
    return done.returncode, LIBRARIES & set(imported.split())


def test_signals_are_handled_before_the_program_is_imported() -> None:
    code = "import sys, nsys2prv_ng.cli.program; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, timeout=300, check=True)
    imported = {name for name in done.stdout.split() if name.startswith("nsys2prv_ng")}
    assert imported == {"nsys2prv_ng", "nsys2prv_ng.cli", "nsys2prv_ng.cli.program"}
    assert not {"dataclasses", "re", "typing"} & set(done.stdout.split())


@pytest.mark.parametrize(
    "arguments", cases([["--help"], ["--version"], ["translate", "--help"], ["cfgs"], ["slurm"]], quick=2)
)
def test_commands_without_reports_import_no_library(tmp_path: Path, arguments: list[str]) -> None:
    assert run(*arguments, cwd=tmp_path) == (0, set())


def test_run_rank_starts_at_once() -> None:
    """Every rank of a job waits for it, with a new Python on a file system that is slow."""
    command = [sys.executable, "-c", PROGRAM, "run-rank", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    imported = set(done.stderr.split())
    assert "typer" in imported and "nsys2prv_ng.recording.record" in imported
    assert not {*LIBRARIES, "numpy", "nsys2prv_ng.api", "nsys2prv_ng.cli.app"} & imported


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--bogus"],
        ["inspekt"],
        ["report.sqlite", "out.txt"],
        ["out.prv"],
        ["summary"],
        ["cfgs", "x"],
        ["compare", "a"],
    ],
)
def test_errors_of_usage_import_no_library(tmp_path: Path, arguments: list[str]) -> None:
    assert run(*arguments, cwd=tmp_path) == (2, set())


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", cases([["translate", "out.prv"], ["summary"], ["summary", "--json"]], push=1), ids=" ".join
)
def test_reports_are_read_without_pandas_unless_they_have_mpi(tmp_path: Path, arguments: list[str]) -> None:
    """pyarrow would import it in each of them."""
    for sample, with_mpi in (("ddp-2x2", set()), ("mpi-4", {"pandas"})):
        reports = [SAMPLES / f"{sample}.rank{rank}.sqlite" for rank in range(2)]
        (tmp_path / sample).mkdir()
        code, imported = run(arguments[0], *reports, *arguments[1:], "--jobs", 1, cwd=tmp_path / sample)
        assert (code, imported) == (0, OF_REPORTS | with_mpi)


BROKEN = """
import sys
class Broken:
    def find_spec(name, path=None, target=None):
        if name == "pandas":
            raise AttributeError("half of it is missing")
sys.meta_path.insert(0, Broken)
from nsys2prv_ng.cli.program import main
main()
"""


@pytest.mark.slow
def test_only_jobs_with_mpi_need_a_working_pandas(tmp_path: Path) -> None:
    for sample, code, line in (
        ("single-graph.sqlite", 0, "BOTTLENECK"),
        ("mpi-4.rank0.sqlite", 1, "MPI messages cannot be matched without pandas (half of it is missing); install"),
    ):
        command = [sys.executable, "-c", BROKEN, "summary", str(SAMPLES / sample)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
        assert done.returncode == code, done.stderr
        assert line in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_comparing_saved_summaries_imports_no_library(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_summary([{"compute_ns": 4}] * 6).save(tmp_path / f"{name}.json")
    for how in ([], ["--json"], ["--markdown"]):
        assert run("compare", "a.json", "b.json", *how, cwd=tmp_path) == (0, set())


@pytest.mark.slow
def test_check_imports_no_library_for_tables(tmp_path: Path) -> None:
    trace = TraceFiles().write(tmp_path)
    code, imported = run("check", trace, cwd=tmp_path)
    assert code == 0
    assert not imported & {"sqlalchemy", "pandas"}


@pytest.mark.slow
def test_only_what_reads_a_report_is_imported(tmp_path: Path) -> None:
    """Parquet for folders; SQLAlchemy to select rows of large tables of SQLite."""
    report = SAMPLES / "mpi-4.rank0.sqlite"
    folder = write_folder(tmp_path / "report_pqtdir", tables_of(report), "parquet")
    large = tmp_path / "large.sqlite"
    large.write_bytes(report.read_bytes())
    with closing(sqlite3.connect(large)) as connection:
        numbers = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n LIMIT 40000)"
        connection.execute(f"INSERT INTO NVTX_EVENTS (start, eventType) {numbers} SELECT i, 34 FROM n")
        connection.commit()
    assert run("inspect", report, cwd=tmp_path) == (0, OF_REPORTS)
    assert run("inspect", folder, cwd=tmp_path) == (0, OF_REPORTS | {"pyarrow.parquet"})
    assert run("inspect", large, cwd=tmp_path) == (0, OF_REPORTS | {"sqlalchemy"})


@pytest.mark.all_sets
@pytest.mark.slow
def test_only_a_page_imports_what_makes_pages(tmp_path: Path) -> None:
    report = SAMPLES / "single-graph.sqlite"
    assert run("summary", report, cwd=tmp_path) == (0, OF_REPORTS)
    assert run("summary", report, "--html", "page.html", cwd=tmp_path) == (0, OF_REPORTS | {"jinja2"})
