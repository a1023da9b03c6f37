"""Files for TALP-Pages: each key has the number of the summary that it stands for, and the real program shows it.

The program is `talp` of the package talp-pages: that of `TALP_PAGES`, or one on the PATH; `.ci/install-talp-pages
FOLDER` gets one. Tests that need it are skipped where there is none. Numbers of the summary are compared with the
reports in tests/analysis/efficiency.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import nsys2prv_ng
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.summary.efficiency.numbers import RangeEfficiency, WindowEfficiency
from nsys2prv_ng.summary.job import JobSummary
from tests.cli.program_runs import run
from tests.cli.test_program import assert_one_line, files
from tests.conftest import SAMPLES
from tests.summary.made import summarize_reports
from tests.summary.test_command import without

SECOND = 10**9
HOSTILE = (
    *('"><script>alert(1)</script>', "'><img src=x onerror=alert(1)>", "../../etc/passwd", "a\nb\x1b[31m"),
    *("{{ 7 * 7 }}", "&lt;b&gt; $x$ `id` \\", "Global", "steps", "x<y>", "x[y]", "x_y_", "\ud800", "", "name " * 1000),
)


@lru_cache(maxsize=4)
def summarized(name: str) -> JobSummary:
    return summarize_reports(sorted(SAMPLES.glob(f"{name}*.sqlite")))


def saved(summary: JobSummary, folder: Path) -> dict[str, Any]:
    return json.loads(summary.save_talp(folder).read_text())


# ---- numbers ---------------------------------------------------------------------------------------------------------

HOST_KEYS = {
    "parallelEfficiency": "parallel",
    "mpiParallelEfficiency": "mpi_parallel",
    "mpiCommunicationEfficiency": "mpi_communication",
    "mpiLoadBalance": "mpi_load_balance",
    "mpiLoadBalanceIn": "mpi_balance_in_nodes",
    "mpiLoadBalanceOut": "mpi_balance_of_nodes",
    "deviceOffloadEfficiency": "offload",
}
DEVICE_KEYS = {
    "gpuParallelEfficiency": "parallel",
    "gpuLoadBalance": "load_balance",
    "gpuCommunicationEfficiency": "communication",
    "gpuOrchestrationEfficiency": "orchestration",
}
"""Keys of a region, and the efficiencies of threads and GPUs that they stand for."""


def check_region(region: dict[str, Any], window: WindowEfficiency) -> None:
    host, device = window.nccl_as_useful.host, window.nccl_as_useful.device
    useful = 0 if host is None else round(host.parallel * window.threads * window.length_ns)
    assert region == {
        "numCpus": max(window.threads, 1),  # TALP-Pages divides by it
        "numMpiRanks": max(window.threads, 1),
        "numGpus": window.losses.devices if window.losses else 0,
        "cycles": useful,
        "instructions": useful,
        "elapsedTime": window.length_ns,
        "usefulTime": useful,
        **{key: getattr(host, name, 0) for key, name in HOST_KEYS.items()},
        **{key: getattr(device, name, 0) for key, name in DEVICE_KEYS.items()},
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mpi-4", "single-graph", "ddp-2x2"])
def test_regions_are_numbers_of_the_summary(name: str, tmp_path: Path) -> None:
    efficiency = summarized(name).efficiency
    assert efficiency is not None and efficiency.nccl_as_useful.host is not None
    document = saved(summarized(name), tmp_path)
    ranges = {f"{r.domain}:{r.name}" if r.domain else r.name: r for r in efficiency.ranges if r.length_ns}
    windows = {"Global": efficiency, **({"steps": efficiency.in_steps} if efficiency.in_steps else {}), **ranges}
    assert document["Application"].keys() == windows.keys() and len(windows) > 1
    for region, window in windows.items():
        check_region(document["Application"][region], window)
    processes = 1 if name == "single-graph" else 4
    assert document["resources"] == {"numCpus": processes, "numMpiRanks": processes, "numGpus": processes}


@pytest.mark.slow
def test_without_gpus_and_ranges(tmp_path: Path) -> None:
    report = without(SAMPLES / "mpi-4.rank0.sqlite", tmp_path / "cpu.sqlite", "CUPTI%", "CUDA%", "NVTX%")
    summary = nsys2prv_ng.summarize(report)
    document = saved(summary, tmp_path / "talp")
    assert document["resources"] == {"numCpus": 1, "numMpiRanks": 1, "numGpus": 0}
    assert list(document["Application"]) == ["Global"] and summary.efficiency is not None
    check_region(document["Application"]["Global"], summary.efficiency)
    assert 0 < document["Application"]["Global"]["parallelEfficiency"] < 1


def test_with_nothing_at_all(tmp_path: Path) -> None:
    tables = "CUPTI%", "CUDA%", "NVTX_EVENTS", "OSRT%", "MPI%", "SCHED%", "PROFILER%", "GPU_METRICS", "COMPOSITE%"
    report = without(SAMPLES / "mpi-4.rank0.sqlite", tmp_path / "empty.sqlite", *tables)
    done = run("summary", report, "--talp", tmp_path / "talp", "-q")
    assert "neither GPUs nor main threads" in assert_one_line(done, 1)
    assert not (tmp_path / "talp").exists()


# ---- names -----------------------------------------------------------------------------------------------------------


def make_hostile(summary: JobSummary, *, turned: bool = False) -> JobSummary:
    """A summary with ranges of hostile names, each with a window of its own."""
    assert summary.efficiency is not None
    template = vars(summary.efficiency.ranges[0])
    ranges = [
        RangeEfficiency(**{**template, "domain": domain, "name": name, "length_ns": 1000 + number})
        for number, (domain, name) in enumerate([*(("", name) for name in HOSTILE), ("x", "y"), ("", "x:y")])
    ]
    ranges = ranges[::-1] if turned else ranges
    return replace(summary, efficiency=replace(summary.efficiency, ranges=ranges))


@pytest.mark.slow
def test_names_are_safe_and_distinct(tmp_path: Path) -> None:
    summary = summarized("single-graph")
    regions = saved(make_hostile(summary), tmp_path / "a")["Application"]
    lengths = {region["elapsedTime"]: name for name, region in regions.items()}
    given = [*HOSTILE, "x:y", "x:y"]
    names = [lengths[1000 + number] for number in range(len(given))]
    assert len(set(names)) == len(names) == len(regions) - 1 and not {"Global", "steps"} & set(names)
    for name in names:
        assert name == name.strip() and 0 < len(name) <= 110 and not set(name) & set("<>&\"'`\\${}\n\x1b\ud800"), name
    assert names[HOSTILE.index("Global")] == "Global (2)" and names[HOSTILE.index("x[y]")] == "x[y]"
    assert [names[HOSTILE.index(name)] for name in ("x<y>", "x_y_")] == ["x_y_", "x_y_ (2)"]
    # By name, not by time: the same names in the next run.
    turned = saved(make_hostile(summary, turned=True), tmp_path / "b")["Application"]
    assert {name: region["elapsedTime"] for name, region in turned.items()} == {
        name: region["elapsedTime"] for name, region in regions.items()
    }


# ---- the file --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_runs_do_not_replace_each_other(tmp_path: Path) -> None:
    summary = summarized("single-graph")
    file = summary.save_talp(tmp_path / "talp/run")
    later = replace(summary, facts=None, start_utc_ns=summary.start_utc_ns + 1).save_talp(tmp_path / "talp/run")
    assert re.fullmatch(r"1-processes-1-gpus-20\d{6}T\d{6}\.\d{9}Z\.json", file.name)
    assert files(tmp_path / "talp/run") == sorted([file.name, later.name])
    # With the metadata that TALP-Pages adds.
    text = json.dumps(json.loads(file.read_text()) | {"metadata": {"gitCommit": "1234567"}})
    file.write_text(text)
    assert summary.save_talp(tmp_path / "talp/run") == file and file.read_text() == text
    assert summary.efficiency is not None
    other = replace(summary, efficiency=replace(summary.efficiency, length_ns=summary.efficiency.length_ns + 1))
    for kept in (text, "{", "[]", ""):
        file.write_text(kept)
        if kept:
            with pytest.raises(TranslationError, match="remove it or choose another folder"):
                other.save_talp(tmp_path / "talp/run")
            assert file.read_text() == kept
    other.save_talp(tmp_path / "talp/run")  # over the empty one
    assert json.loads(file.read_text())["Application"]["Global"]["elapsedTime"] == other.efficiency.length_ns


@pytest.mark.slow
def test_a_chosen_time_is_of_the_same_run(tmp_path: Path) -> None:
    """It has the name of the whole run's file, and other numbers: TALP-Pages would take it for a later run."""
    reports = sorted(SAMPLES.glob("ddp-2x2.rank[02].sqlite"))
    whole, part = (nsys2prv_ng.summarize(reports, time=time) for time in (":", "1s:"))
    assert whole.facts is not None and part.facts is not None
    assert whole.facts.begin_utc_ns == part.facts.begin_utc_ns == whole.start_utc_ns != part.start_utc_ns
    whole.save_talp(tmp_path)
    with pytest.raises(TranslationError, match="has other numbers of this run"):
        part.save_talp(tmp_path)


def test_the_begin_of_a_damaged_report_is_unknown(tmp_path: Path) -> None:
    summary = summarized("single-graph")
    for utc in (-1, 2**63 - 1):
        file = replace(summary, facts=None, start_utc_ns=utc).save_talp(tmp_path / str(utc))
        assert file.name == "1-processes-1-gpus-unknown-time.json" and "timestamp" not in json.loads(file.read_text())


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    report = SAMPLES / "single-graph.sqlite"
    done = run("summary", report, "--talp", "talp/run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [file] = (tmp_path / "talp/run").iterdir()
    assert done.stderr.endswith(f"for TALP-Pages: talp/run/{file.name}\n")
    again = run("summary", report, "--talp", "talp/run", "--json", "-q", cwd=tmp_path)
    assert again.returncode == 0 and again.stderr == ""
    assert JobSummary.from_dict(json.loads(again.stdout)).save_talp(tmp_path / "talp/run") == file


@pytest.mark.slow
def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    report = SAMPLES / "single-graph.sqlite"
    done = run("summary", report, "--talp", tmp_path / "file", "-q")
    assert not done.stdout and "is not a folder" in assert_one_line(done, 1)  # before the summary is made
    done = run("summary", report, "--talp", tmp_path / "file/run", "-q")
    assert "file: is not a folder" in assert_one_line(done, 1)
    assert (tmp_path / "file").read_text() == "kept" and files(tmp_path) == ["file"]
    if Path("/sys/kernel").is_dir():  # not even root can write to it
        for folder in ("/sys/kernel", "/sys/kernel/run"):
            done = run("summary", report, "--talp", folder, "-q")
            assert folder in assert_one_line(done, 1)


# ---- TALP-Pages ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def talp() -> str:
    found = os.environ.get("TALP_PAGES") or shutil.which("talp")
    if not found:
        pytest.skip("no talp of TALP-Pages on this machine: set TALP_PAGES (.ci/install-talp-pages)")
    return found


def render(talp: str, folder: Path, *options: str) -> Path:
    """Return the page of the runs in a folder `run`."""
    pages = folder.with_name(f"{folder.name}-pages")
    command = [talp, "ci-report", "--no-badge", "-i", folder, "-o", pages, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "CRITICAL" not in done.stderr, done.stdout + done.stderr
    return pages / "run/scaling.html"


class Tags(HTMLParser):
    """Collects the text of headings of regions, and tags that no page of TALP-Pages has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.inside = False
        self.foreign: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "h3":
            self.headings.append("")
            self.inside = True
        if tag == "img" or any(name.startswith("on") for name, _ in attrs):
            self.foreign.append(tag)

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.headings[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "h3"


def read_tables(page: Path) -> list[dict[str, list[Any]]]:
    """Return the scaling tables of a page, which it hands to plotly: by title, the column of a run."""
    text, tables = page.read_text(), []
    for call in re.finditer(r'Plotly\.newPlot\(\s*"[0-9a-f-]{36}",\s*', text):
        for figure in json.JSONDecoder().raw_decode(text, call.end())[0]:
            titles = [re.sub("<.*?>", "", title).strip() for title in figure["header"]["values"]]
            tables.append(dict(zip(titles, figure["cells"]["values"], strict=True)))
    return tables


@pytest.mark.slow
def test_the_scaling_table_shows_these_numbers(talp: str, tmp_path: Path) -> None:
    """Of runs of two and four ranks, with the metadata that TALP-Pages adds."""
    two = nsys2prv_ng.summarize(sorted(SAMPLES.glob("ddp-2x2*.sqlite")), ranks=[0, 2], time=":")
    documents = [saved(summary, tmp_path / "talp/run") for summary in (two, summarized("ddp-2x2"))]
    command = [talp, "metadata", "-i", tmp_path / "talp", "--git-commit", "0123456789", "--git-timestamp"]
    subprocess.run([*command, "2026-11-20T12:00:00+00:00"], check=True, capture_output=True, timeout=100)
    page = render(talp, tmp_path / "talp", "--regions", "steps", "forward")
    tables = read_tables(page)
    assert len(tables) == 3
    for region, table in zip(("Global", "steps", "forward"), tables, strict=True):
        names, *columns = table.values()
        assert list(table)[1:] == ["2xMPI+GPU 2xGPUs", "4xMPI+GPU 4xGPUs"]
        for column, document in zip(columns, documents, strict=True):
            shown = {name.lstrip("- "): value for name, value in zip(names, column, strict=True)}
            numbers = document["Application"][region]
            assert shown["Parallel efficiency"] == pytest.approx(numbers["parallelEfficiency"], abs=0.005001)
            assert shown["GPU Load Balance"] == pytest.approx(numbers["gpuLoadBalance"], abs=0.005001)
            assert shown["Elapsed time [s]"] == pytest.approx(numbers["elapsedTime"] / SECOND, abs=0.005001)
    assert "Weak Scaling" in page.read_text() and "0123456" in page.read_text() and Tags(page).foreign == []


@pytest.mark.slow
def test_hostile_names_do_no_harm(talp: str, tmp_path: Path) -> None:
    summary = make_hostile(summarized("single-graph"))
    names = list(saved(summary, tmp_path / "talp/run")["Application"])
    page = render(talp, tmp_path / "talp", "--regions", *names[1:])
    assert files(page.parent) == ["evolution_1xGPU_1xGPUs.html", "scaling.html"]
    assert Tags(page).headings == [f"Region: {name}" for name in names] and Tags(page).foreign == []
