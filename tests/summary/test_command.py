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
KEYS = {
    "": """version start_utc reports nodes ranks tasks start_utc_ns duration_ns windows_ns gpus ranges kernels
        memory_operations nccl mpi absent chosen skipped warnings waits critical_path
        efficiency steps start_up facts gpu_time_ns gpu_metrics link_metrics calls what_if launched verdict
        flops mfu slow_modes slow_steps activity range_tree memory""",
    "gpus": """node gpu name ranks tasks span_ns busy_ns compute_ns communication_ns overlap_ns memory_ns
        whole_graph_ns idle_ns gaps longest_gap_ns longest_gap_at_ns idle_causes peak_memory_bytes peak_memory_at_ns""",
    "ranges": "domain name depth tasks slowest_task",
    "kernels": "name kernel_class count total_ns min_ns max_ns busiest_task busiest_ns",
    "memory_operations": "operation count bytes total_ns rated_ns by_memory",
    "nccl": "function calls bytes kernels kernel_ns wait_ns carried_bytes carried_ns",
    "gpu_metrics": "node gpu ranks metric unit mean min max samples",
    "link_metrics": """link node gpu device metric percent bytes_per_s samples nccl nccl_percent nccl_bytes_per_s
        nccl_samples""",
    "mpi": "call count total_ns max_ns sent_bytes received_bytes rated_ns",
    "calls": "name source count total_ns main_ns",
    "launched": "range count total_ns",
    "range_tree": "name depth count host_ns operations gpu_ns own_ns unlisted_ns least_ns most_ns activity",
    "activity": """kernel_class ns samples sm_active sm_issue tensor_active dram_read dram_write
        nvlink_received nvlink_transmitted gpu_ns""",
}
"""What programs rely on: a change of these needs another version."""
RATES = re.compile(
    r"^\.efficiency\b.*\.nccl_as_\w+\.(device|host)\.\w+$|^\.steps\.(spread|drift|similarity)$|^\.gpu_metrics\.(mean|min|max)$"
    r"|^\.link_metrics\.(nccl_)?percent$|^\.(range_tree\.)?activity\.(sm|tensor|dram|nvlink)_[a-z]+$"
    r"|^\.slow_modes\.modes\.(ratio|step_share|kernel_share)$"
    r"|^\.(what_if\b.*|verdict)\.share$"
)
"""The only numbers of the JSON document that are not integers."""

WAIT_KEYS = {
    "ranks": """rank task nccl_ns wait_ns exposed_wait_ns transfer_ns unsplit_ns collectives last caused_wait_ns
        caused_in_messages_ns reason longest_wait mpi""",
    "culprits": "rank task reason range call operation origin_rank origin_task times ns",
    "costs": "rank task reason range call operation ns",
    "excess": "kind domain name ns others_ns",
    "bandwidth": "function communicator communicator_name communicator_label ranks bytes count ns"
    " algorithm_bytes_per_s bus_bytes_per_s",
}


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
    saved = json.loads((tmp_path / "saved.json").read_text())
    assert saved["gpu_metrics"] and saved["activity"]
    assert format_summary(JobSummary.load(tmp_path / "saved.json"), details=False, leads=LEADS) == brief.stdout[:-1]


@pytest.mark.slow
def test_the_same_whatever_the_order_and_the_cores(ddp: list[Path], printed: str, tmp_path: Path) -> None:
    done = run("summary", *reversed(ddp), "--details", "-j", "2", "--memory", "1M", "--tmp", tmp_path, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")


def test_a_time_that_ends_before_it_begins(ddp: list[Path]) -> None:
    done = run("summary", *ddp, "--time", "2s:1s")
    assert done.returncode == 2 and "--time 2s:1s: FROM is after TO" in done.stderr


@pytest.mark.slow
def test_json_has_stable_keys_and_integers(ddp: list[Path], samples: Path) -> None:
    documents = [
        json.loads(run("summary", *reports, "--json", "-q").stdout)
        for reports in (ddp, [samples / "mpi-4.rank0.sqlite"])
    ]
    for document in documents:
        assert document["version"] == 2
        assert set(document) == set(KEYS[""].split())
        numbers = numbers_in(document)
        assert [name for name, number in numbers if not (isinstance(number, int) or RATES.search(name))] == []
        assert all(0 <= number <= 1 for name, number in numbers if RATES.search(name) and ".nccl_as_" in name)
    for section, keys in KEYS.items():
        if section:
            found = [row for document in documents for row in document[section]]
            assert found and all(set(row) == set(keys.split()) for row in found), section
    known = [node["activity"] for node in documents[0]["range_tree"] if node["activity"]]
    assert known and {*known[0]} == {*KEYS["activity"].split()} - {"kernel_class"}
    cause = documents[0]["gpus"][0]["idle_causes"][0]
    assert set(cause) == {"cause", "range", "call", "ns", "gaps"}
    task = documents[0]["ranges"][0]["tasks"][0]
    assert set(task) == {
        *("rank", "task", "count", "total_ns", "min_ns", "max_ns", "waiting_ns", "gpu_waiting_ns", "unsplit_ns"),
        "per_step",
    }
    for key, keys in WAIT_KEYS.items():
        assert all(set(row) == set(keys.split()) for row in documents[0]["waits"][key]), key
        assert documents[0]["waits"][key], key
    assert set(documents[0]["facts"]) == {
        *("nsys_versions", "schema_versions", "programs", "sources", "graphs", "lost_data_messages", "lacks_ranks"),
        "captures",
        "begin_utc_ns",
    }
    assert set(documents[0]["waits"]) == {
        "operations",
        "nccl_collectives",
        "mpi_collectives",
        "split",
        "below_uncertainty",
        "not_split",
        "reports_without_payload",
        "payload_remedy",
        "links",
        "pipeline",
        "communicators",
    } | set(WAIT_KEYS)


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
