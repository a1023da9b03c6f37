"""The command summary as a user runs it, and the option of a translation that prints the same."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.text import LEADS, format_summary
from tests.cli.program_runs import run
from tests.cli.test_program import assert_one_line, files
from tests.translated import changed

TABLES = (
    "GPU activity from the first to the last operation",
    "\nGPU ",
    "\nNCCL time of each rank",
    "\nWhy ranks arrived late",
    "\ncritical path ",
    "\nlaunched in ",
    "CPU activity during GPU gaps",
    "\nNVTX range ",
    "\nkernel ",
    "\ncopies and sets ",
    "\nNCCL ",
)
RATES = re.compile(
    r"^\.efficiency\b.*\.nccl_as_\w+\.(device|host)\.\w+$|^\.steps\.(spread|drift|similarity)$"
    r"|^\.slow_modes\.modes\.(ratio|step_share|kernel_share)$"
    r"|^\.(what_if\b.*|verdict)\.share$"
)
"""The only numbers of the JSON document that are not integers."""


@pytest.fixture(scope="module")
def ddp(samples: Path) -> list[Path]:
    return sorted(samples.glob("ddp-2x2.rank*.sqlite"))


@pytest.fixture(scope="module")
def printed(ddp: list[Path]) -> str:
    done = run("summary", *ddp, "--details", "-j", "1")
    assert done.returncode == 0, done.stderr
    assert "reading 4 reports" in done.stderr
    return done.stdout


def without(report: Path, copy: Path, *patterns: str) -> Path:
    """A copy of a report without the tables whose names are like any of some patterns."""
    with closing(sqlite3.connect(f"file:{report}?mode=ro&immutable=1", uri=True)) as database:
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE ?"
        names = [name for pattern in patterns for (name,) in database.execute(query, (pattern,))]
    return changed(report, copy, [f"DROP TABLE {name}" for name in names])


def numbers_in(value: Any, name: str = "") -> list[tuple[str, int | float]]:
    """All numbers of a JSON document, with the keys that lead to them."""
    if isinstance(value, dict):
        return [number for key, each in value.items() for number in numbers_in(each, f"{name}.{key}")]
    if isinstance(value, list):
        return [number for each in value for number in numbers_in(each, name)]
    return [(name, value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


@pytest.mark.slow
def test_prints_every_table(printed: str) -> None:
    for table in TABLES:
        assert table in printed
    assert printed.startswith("4 GPUs, 4 ranks, 2 nodes | step 1-5 (")
    assert printed.endswith("Not in `step` 1 to 5: MPI\n")
    assert max(map(len, printed.splitlines())) <= 100


@pytest.mark.all_sets
@pytest.mark.slow
def test_the_answer_needs_no_metrics_of_gpus(ddp: list[Path], tmp_path: Path) -> None:
    """Without tables, the command measures none; its text is that of all numbers, which have some."""
    brief = run("summary", *ddp, "-q")
    whole = run("summary", *ddp, "-q", "--save", tmp_path / "saved.json")
    assert brief.returncode == 0 and brief.stdout == whole.stdout
    assert format_summary(JobSummary.load(tmp_path / "saved.json"), details=False, leads=LEADS) == brief.stdout[:-1]


@pytest.mark.slow
def test_the_same_whatever_the_order_and_the_cores(ddp: list[Path], printed: str, tmp_path: Path) -> None:
    done = run("summary", *reversed(ddp), "--details", "-j", "2", "--memory", "1M", "--tmp", tmp_path, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")


def test_a_time_that_ends_before_it_begins(ddp: list[Path]) -> None:
    done = run("summary", *ddp, "--time", "2s:1s")
    assert done.returncode == 2 and "--time 2s:1s: FROM is after TO" in done.stderr


@pytest.mark.slow
def test_numbers_of_the_json_are_integers_but_rates(ddp: list[Path], samples: Path) -> None:
    """tests/test_schemas.py and tests/test_stability.py hold its keys."""
    for reports in (ddp, [samples / "mpi-4.rank0.sqlite"]):
        document = json.loads(run("summary", *reports, "--json", "-q").stdout)
        assert document["version"] == 3
        numbers = numbers_in(document)
        assert [name for name, number in numbers if not (isinstance(number, int) or RATES.search(name))] == []
        assert all(0 <= number <= 1 for name, number in numbers if RATES.search(name) and ".nccl_as_" in name)


@pytest.mark.slow
def test_leaves_no_file(samples: Path, tmp_path: Path) -> None:
    before = files(samples)
    done = run("summary", samples / "mpi-4.rank0.sqlite", "-q", cwd=tmp_path)
    assert done.returncode == 0 and files(tmp_path) == [] and files(samples) == before


@pytest.mark.slow
def test_with_a_translation(ddp: list[Path], tmp_path: Path) -> None:
    """The same numbers in the text and in the file of the summary; without the option, neither."""
    time, ddp = "1.3s:1.8s", ddp[::2]
    done = run(*ddp, "out.prv", "--summary", "--stats", "out.json", "--time", time, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    alone = run("summary", *ddp, "--time", time, "-q").stdout.removesuffix(f"\n\n{LEADS}\n")
    assert done.stdout.endswith(f"\n\n{alone}\n") and "os_runtime" in done.stdout
    assert "BOTTLENECK" in alone and LEADS not in alone
    as_json = json.loads(run("summary", *ddp, "--time", time, "-q", "--json").stdout)
    assert json.loads((tmp_path / "out.json").read_text())["summary"] == as_json
    done = run(ddp[0], "one.prv", "--stats", "one.json", cwd=tmp_path)
    assert "BOTTLENECK" not in done.stdout
    assert json.loads((tmp_path / "one.json").read_text())["summary"] is None


def test_of_few_sources(ddp: list[Path], tmp_path: Path) -> None:
    def translate(*options: str) -> tuple[str, str]:
        """What is printed, and all tables of the same numbers."""
        done = run(ddp[0], "out.prv", "--summary", "--stats", "out.json", *options, "-q", "--force", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        summary = JobSummary.from_dict(json.loads((tmp_path / "out.json").read_text())["summary"])
        return done.stdout, format_summary(summary, details=True)

    printed, tables = translate("--sources", "kernels", "--no-derived")
    assert "BOTTLENECK" in printed and "unclassified" not in printed + tables
    assert "\nkernel " in tables and "CPU activity" not in tables
    printed, tables = translate("--sources", "kernels")
    assert "BOTTLENECK" in printed and "CPU activity" not in tables and "cudaLaunchKernel" not in tables
    assert "GPU activity from the first to the last operation" in tables
    printed, tables = translate("--sources", "os_runtime")
    assert "none found: no GPU operations in this time" in printed
    assert "Not in these reports: GPU operations" in tables


# ---- reports that lack things ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_a_gpu(samples: Path, tmp_path: Path) -> None:
    report = without(samples / "mpi-4.rank0.sqlite", tmp_path / "cpu.sqlite", "CUPTI%", "CUDA%")
    done = run("summary", report, "--details", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 rank, 1 node | iteration 1-7 (") and "MPI_Allreduce" in done.stdout
    assert "Not in `iteration` 1 to 7: GPU operations, GPU memory in use, NCCL" in done.stdout


def test_with_nothing_at_all(samples: Path, tmp_path: Path) -> None:
    tables = "CUPTI%", "CUDA%", "NVTX_EVENTS", "OSRT%", "MPI%", "SCHED%", "PROFILER%", "GPU_METRICS", "COMPOSITE%"
    report = without(samples / "mpi-4.rank0.sqlite", tmp_path / "empty.sqlite", *tables)
    done = run("summary", report, "--details")
    assert done.returncode == 0, done.stderr
    assert "none found: no GPU operations in this time" in done.stdout
    assert "Not in these reports: GPU operations" in done.stdout and "NCCL, MPI" in done.stdout


@pytest.mark.slow
def test_without_calls_the_causes_are_not_known(samples: Path, tmp_path: Path) -> None:
    report = without(samples / "ddp-2x2.rank0.sqlite", tmp_path / "no-calls.sqlite", "CUPTI_ACTIVITY_KIND_RUNTIME")
    [gpu] = json.loads(run("summary", report, "-q", "--json").stdout)["gpus"]
    [cause] = gpu["idle_causes"]
    assert (cause["cause"], cause["ns"], cause["gaps"]) == ("unknown", gpu["idle_ns"], gpu["gaps"])


@pytest.mark.slow
def test_reports_that_cannot_be_read(ddp: list[Path], tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"SQLite format 3\0" + bytes(100))
    done = run("summary", ddp[0], damaged, ddp[1], "--details", "-q")
    assert done.returncode == 0 and "warning: skipped" in done.stderr
    assert "no report of ranks 2-3 of 4" in done.stderr
    assert f"skipped: {damaged}: " in done.stdout and done.stdout.startswith("2 GPUs, 2 ranks, 1 node | ")
    assert str(damaged) in assert_one_line(run("summary", ddp[0], damaged, "--strict"), 1)
    assert str(damaged) in assert_one_line(run("summary", damaged), 1)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["missing.sqlite"], 1, "no such file"),
        ([], 2, "Missing argument"),
        (["REPORT", "--ranks", "7"], 2, "none of them is in the reports"),
        (["REPORT", "--time", "9"], 2, "write FROM:TO"),
        (["REPORT", "--time", "900s:"], 2, "--time '900s:': starts 900 s into a trace"),
        (["REPORT", "--nvtx-range", "nothing"], 2, "no NVTX range in any report has this text"),
        (["REPORT", "--align", "somehow"], 2, "--align somehow"),
        (["REPORT", "--memory", "2"], 2, "write a size with a unit"),
        (["REPORT", "REPORT"], 2, "given twice"),
        (["REPORT", "--tmp", "nowhere"], 1, "nowhere"),
    ],
)
def test_errors_are_one_line(samples: Path, tmp_path: Path, arguments: list[str], code: int, says: str) -> None:
    report = str(samples / "mpi-4.rank0.sqlite")
    done = run("summary", *(report if each == "REPORT" else each for each in arguments), cwd=tmp_path)
    assert says in assert_one_line(done, code)
