"""Files for TALP-Pages: their numbers by plain sums over the reports, and what the real program makes of them.

The program is `talp` of the package talp-pages: that of `TALP_PAGES`, or one on the PATH; `.ci/install-talp-pages
FOLDER` gets one. Tests that need it are skipped where there is none.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nsys2prv_ng
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.summary.efficiency.numbers import RangeEfficiency
from nsys2prv_ng.summary.job import JobSummary
from tests.analysis.efficiency import efficiency_truth as plain
from tests.analysis.efficiency.efficiency_truth import Times, Truth
from tests.cli.program_runs import run
from tests.cli.test_program import assert_one_line, files
from tests.conftest import DATA, SAMPLES, slow_but, unpack
from tests.steps.step_truth import StepTruth, list_ranges
from tests.summary.test_command import without

SETS = {
    "ddp-2x2": [SAMPLES / f"ddp-2x2.rank{rank}.sqlite" for rank in range(4)],
    "mpi-4": [SAMPLES / f"mpi-4.rank{rank}.sqlite" for rank in range(4)],
    "single-graph": [SAMPLES / "single-graph.sqlite"],
    "2node": [DATA / f"cpu/2024.2.3-2node_rank{rank}.sqlite.xz" for rank in range(4)],
}
SECOND = 10**9
HOSTILE = (
    '"><script>alert(1)</script>',
    "'><img src=x onerror=alert(1)>",
    "../../etc/passwd",
    "a\nb\x1b[31m",
    "{{ 7 * 7 }}",
    "&lt;b&gt; $x$ `id` \\",
    "Global",
    "steps",
    "x<y>",
    "x[y]",
    "x_y_",
    "\ud800",
    "",
    "name " * 1000,
)


@lru_cache(maxsize=1)
def summarized(name: str) -> tuple[list[Path], JobSummary]:
    """Reports and their summary. Clocks are not aligned, as in plain sums."""
    reports = [unpack(path) for path in SETS[name]]
    return reports, nsys2prv_ng.summarize(reports, align="utc", time=":")


def saved(summary: JobSummary, folder: Path) -> dict[str, Any]:
    return json.loads(summary.save_talp(folder).read_text())


def expected_region(times: Times) -> dict[str, float]:
    """The keys of a region, from times of GPUs and threads."""
    host, device = times.rate_hosts(), times.rate_devices(nccl_is_useful=True)
    assert host is not None
    parallel, mpi, balance, communication, offload, in_nodes, of_nodes = host
    device_keys = (
        "gpuParallelEfficiency",
        "gpuLoadBalance",
        "gpuCommunicationEfficiency",
        "gpuOrchestrationEfficiency",
    )
    return {
        "numCpus": len(times.useful),
        "numMpiRanks": len(times.useful),
        "numGpus": len(times.kernels),
        "cycles": sum(times.useful),
        "instructions": sum(times.useful),
        "elapsedTime": times.window,
        "usefulTime": sum(times.useful),
        "parallelEfficiency": parallel,
        "mpiParallelEfficiency": mpi,
        "mpiCommunicationEfficiency": communication,
        "mpiLoadBalance": balance,
        "mpiLoadBalanceIn": in_nodes,
        "mpiLoadBalanceOut": of_nodes,
        "deviceOffloadEfficiency": offload,
        **dict(zip(device_keys, device or (0.0,) * 4, strict=True)),
    }


def check_region(region: dict[str, Any], times: Times) -> None:
    expected = expected_region(times)
    assert list(region) == list(expected)
    for key, value in expected.items():
        if isinstance(value, int):
            assert region[key] == value and type(region[key]) is int, key  # times are exact to the ns
        else:
            assert region[key] == pytest.approx(value, rel=1e-12, abs=0), key


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but("mpi-4", SETS, ("2node", "ddp-2x2")))
def test_regions_are_sums_over_the_reports(name: str, tmp_path: Path) -> None:
    reports, summary = summarized(name)
    truth = Truth(reports)
    document = saved(summary, tmp_path)
    regions = document["Application"]
    check_region(regions["Global"], plain.measure_common(truth, [truth.capture]))
    assert document["resources"] == {"numCpus": len(reports), "numMpiRanks": len(reports), "numGpus": len(truth.gpus)}
    ranges = truth.list_repeated()
    assert ("steps" in regions) == (summary.steps is not None)
    if summary.steps is not None:
        steps = StepTruth(truth.reports, list_ranges(truth.reports, summary.steps.name))
        check_region(regions["steps"], plain.measure_common(truth, [steps.window]))
    names = set()
    for (domain, text), own in ranges.groupby(["domain", "name"]):
        times = plain.measure_own(truth, own)
        if times.window:
            names.add(f"{domain}:{text}" if domain else text)
            check_region(regions[f"{domain}:{text}" if domain else text], times)
    assert set(regions) == {"Global", *(["steps"] if summary.steps is not None else []), *names}


# ---- names -----------------------------------------------------------------------------------------------------------


def make_hostile(summary: JobSummary, *, turned: bool = False) -> JobSummary:
    """A summary with ranges of hostile names, each with a window of its own."""
    assert summary.efficiency is not None
    template = vars(summary.efficiency.ranges[0])
    ranges = [
        RangeEfficiency(**{**template, "domain": domain, "name": name, "window_ns": 1000 + number})
        for number, (domain, name) in enumerate([*(("", name) for name in HOSTILE), ("x", "y"), ("", "x:y")])
    ]
    ranges = ranges[::-1] if turned else ranges
    return replace(summary, efficiency=replace(summary.efficiency, ranges=ranges))


@pytest.mark.slow
def test_names_are_safe_and_distinct(tmp_path: Path) -> None:
    summary = summarized("single-graph")[1]
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
    summary = summarized("single-graph")[1]
    file = summary.save_talp(tmp_path / "talp/run")
    later = replace(summary, facts=None, start_utc_ns=summary.start_utc_ns + 1).save_talp(tmp_path / "talp/run")
    assert re.fullmatch(r"1-processes-1-gpus-20\d{6}T\d{6}\.\d{9}Z\.json", file.name)
    assert files(tmp_path / "talp/run") == sorted([file.name, later.name])
    # With the metadata that TALP-Pages adds.
    text = json.dumps(json.loads(file.read_text()) | {"metadata": {"gitCommit": "1234567"}})
    file.write_text(text)
    assert summary.save_talp(tmp_path / "talp/run") == file and file.read_text() == text
    assert summary.efficiency is not None
    other = replace(summary, efficiency=replace(summary.efficiency, window_ns=summary.efficiency.window_ns + 1))
    for kept in (text, "{", "[]", ""):
        file.write_text(kept)
        if kept:
            with pytest.raises(TranslationError, match="remove it or choose another folder"):
                other.save_talp(tmp_path / "talp/run")
            assert file.read_text() == kept
    other.save_talp(tmp_path / "talp/run")  # over the empty one
    assert json.loads(file.read_text())["Application"]["Global"]["elapsedTime"] == other.efficiency.window_ns


def test_the_begin_of_a_damaged_report_is_unknown(tmp_path: Path) -> None:
    summary = summarized("single-graph")[1]
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


# ---- reports that lack things ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_gpus_and_ranges(tmp_path: Path) -> None:
    report = without(SAMPLES / "mpi-4.rank0.sqlite", tmp_path / "cpu.sqlite", "CUPTI%", "CUDA%", "NVTX%")
    summary = nsys2prv_ng.summarize(report)
    document = saved(summary, tmp_path / "talp")
    assert document["resources"] == {"numCpus": 1, "numMpiRanks": 1, "numGpus": 0}
    assert list(document["Application"]) == ["Global"]
    region = document["Application"]["Global"]
    assert summary.efficiency is not None and summary.efficiency.nccl_as_useful.host is not None
    assert 0 < region["parallelEfficiency"] == summary.efficiency.nccl_as_useful.host.parallel < 1
    assert region["gpuParallelEfficiency"] == 0


def test_with_nothing_at_all(tmp_path: Path) -> None:
    tables = "CUPTI%", "CUDA%", "NVTX_EVENTS", "OSRT%", "MPI%", "SCHED%", "PROFILER%", "GPU_METRICS", "COMPOSITE%"
    report = without(SAMPLES / "mpi-4.rank0.sqlite", tmp_path / "empty.sqlite", *tables)
    done = run("summary", report, "--talp", tmp_path / "talp", "-q")
    assert "neither GPUs nor main threads" in assert_one_line(done, 1)
    assert not (tmp_path / "talp").exists()


# ---- TALP-Pages ------------------------------------------------------------------------------------------------------

ROWS = {
    "Parallel efficiency": "parallelEfficiency",
    "MPI Parallel efficiency": "mpiParallelEfficiency",
    "MPI Communication efficiency": "mpiCommunicationEfficiency",
    "MPI Load balance": "mpiLoadBalance",
    "MPI In-node load balance": "mpiLoadBalanceIn",
    "MPI Inter-node load balance": "mpiLoadBalanceOut",
    "Device Offload efficiency": "deviceOffloadEfficiency",
    "GPU Parallel efficiency": "gpuParallelEfficiency",
    "GPU Load Balance": "gpuLoadBalance",
    "GPU Communication efficiency": "gpuCommunicationEfficiency",
    "GPU Orchestration efficiency": "gpuOrchestrationEfficiency",
}
"""Rows of its table, and the keys that they show."""


@pytest.fixture(scope="session")
def talp() -> str:
    found = os.environ.get("TALP_PAGES") or shutil.which("talp")
    if not found:
        pytest.skip("no talp of TALP-Pages on this machine: set TALP_PAGES (.ci/install-talp-pages)")
    return found


def render(talp: str, folder: Path, *options: str) -> Path:
    """The pages on a folder."""
    pages = folder.with_name(f"{folder.name}-pages")
    command = [talp, "ci-report", "--no-badge", "-i", folder, "-o", pages, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "CRITICAL" not in done.stderr, done.stdout + done.stderr
    return pages


def read_figures(page: Path) -> list[dict[str, Any]]:
    """The traces of the figures of a page, in their order: what it hands to plotly."""
    text, traces = page.read_text(), []
    for call in re.finditer(r'Plotly\.newPlot\(\s*"[0-9a-f-]{36}",\s*', text):
        traces += json.JSONDecoder().raw_decode(text, call.end())[0]
    return traces


def list_values(column: Any) -> list[Any]:
    """A column of plotly, which may be packed."""
    if isinstance(column, dict):
        return np.frombuffer(base64.b64decode(column["bdata"]), column["dtype"]).tolist()
    return list(column)


def read_table(figure: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A scaling table: by column, value by row."""
    names, *columns = (list_values(column) for column in figure["cells"]["values"])
    titles = [re.sub("<.*?>", "", title).strip() for title in figure["header"]["values"]]
    return {
        title: {name.lstrip("- "): value for name, value in zip(names, column, strict=True)}
        for title, column in zip(titles[1:], columns, strict=True)
    }


def check_column(column: dict[str, Any], region: dict[str, Any]) -> None:
    for row, key in ROWS.items():
        assert column[row] == pytest.approx(region[key], abs=0.005001), row
    assert column["Elapsed time [s]"] == pytest.approx(region["elapsedTime"] / SECOND, abs=0.005001)


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


@pytest.fixture(scope="module")
def scaling(talp: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A folder with runs of ddp-2x2: of two ranks, and two of four, the later one in half the time; and their pages."""
    folder = tmp_path_factory.mktemp("talp") / "talp"
    reports, four = summarized("ddp-2x2")
    two = nsys2prv_ng.summarize(reports, align="utc", ranks=[0, 2], time=":")
    assert four.efficiency is not None
    faster = replace(four.efficiency, window_ns=four.efficiency.window_ns // 2)
    for summary in (four, replace(four, facts=None, start_utc_ns=four.start_utc_ns + SECOND, efficiency=faster), two):
        summary.save_talp(folder / "run")
    yield folder, render(talp, folder, "--regions", "steps", "forward")


def load(folder: Path, processes: int) -> list[dict[str, Any]]:
    """The files of runs of a size, in the order of their times."""
    documents = [json.loads(path.read_text()) for path in folder.glob(f"run/{processes}-*.json")]
    return sorted(documents, key=lambda document: document["timestamp"])


@pytest.mark.slow
def test_the_scaling_table_shows_these_numbers(scaling: tuple[Path, Path]) -> None:
    folder, pages = scaling
    [two], [_, four] = load(folder, 2), load(folder, 4)
    page = pages / "run/scaling.html"
    figures = [read_table(figure) for figure in read_figures(page)]
    assert len(figures) == 3
    for region, table in zip(("Global", "steps", "forward"), figures, strict=True):
        assert list(table) == ["2xMPI+GPU 2xGPUs", "4xMPI+GPU 4xGPUs"]
        for column, document in zip(table.values(), (two, four), strict=True):
            check_column(column, document["Application"][region])
        # POP's computation scalability: each rank does as much in both (weak scaling).
        ratio = (two["Application"][region]["usefulTime"] / 2) / (four["Application"][region]["usefulTime"] / 4)
        column = table["4xMPI+GPU 4xGPUs"]
        for row in ("Instructions scaling", "Computation Scalability"):
            assert column[row] == pytest.approx(ratio, abs=0.005001)
        assert [column[row] for row in ("IPC scaling", "Frequency scaling", "Useful IPC")] == [1, 1, 1]
        efficiency = four["Application"][region]["parallelEfficiency"]
        assert column["Global Effiency"] == pytest.approx(ratio * efficiency, abs=0.005001)
    assert "Weak Scaling" in page.read_text() and Tags(page).foreign == []


@pytest.mark.slow
def test_the_evolution_shows_runs_of_one_size(scaling: tuple[Path, Path]) -> None:
    folder, pages = scaling
    runs = load(folder, 4)
    lines = [line for line in read_figures(pages / "run/evolution_4xMPI+GPU_4xGPUs.html") if line["name"] == "Global"]
    assert all(len(line["x"]) == 2 for line in lines)
    shown = [sorted(list_values(line["y"])) for line in lines]
    for key in ("elapsedTime", "gpuParallelEfficiency", "gpuOrchestrationEfficiency", "deviceOffloadEfficiency"):
        scale = SECOND if key == "elapsedTime" else 1
        values = sorted(document["Application"]["Global"][key] / scale for document in runs)
        assert any(line == pytest.approx(values) for line in shown), key
    assert len(read_figures(pages / "run/evolution_2xMPI+GPU_2xGPUs.html")[0]["x"]) == 1


@pytest.mark.slow
def test_hostile_names_do_no_harm(talp: str, tmp_path: Path) -> None:
    summary = make_hostile(summarized("single-graph")[1])
    names = list(saved(summary, tmp_path / "talp/run")["Application"])
    pages = render(talp, tmp_path / "talp", "--regions", *names[1:])
    assert files(pages) == ["index.html", "run"]
    assert files(pages / "run") == ["evolution_1xGPU_1xGPUs.html", "scaling.html"]
    tags = Tags(pages / "run/scaling.html")
    assert tags.headings == [f"Region: {name}" for name in names] and tags.foreign == []
    lines = read_figures(pages / "run/evolution_1xGPU_1xGPUs.html")
    assert {line["name"] for line in lines} == set(names)


@pytest.mark.slow
def test_metadata_of_talp_pages(talp: str, tmp_path: Path) -> None:
    """Runs with and without the commit that they are of are in one folder."""
    summary = summarized("single-graph")[1]
    summary.save_talp(tmp_path / "talp/run")
    command = [talp, "metadata", "-i", tmp_path / "talp", "--git-commit", "0123456789", "--git-timestamp"]
    subprocess.run([*command, "2026-11-20T12:00:00+00:00"], check=True, capture_output=True, timeout=100)
    summary.save_talp(tmp_path / "talp/run")
    replace(summary, facts=None, start_utc_ns=summary.start_utc_ns + SECOND).save_talp(tmp_path / "talp/run")
    pages = render(talp, tmp_path / "talp")
    assert len(read_figures(pages / "run/evolution_1xGPU_1xGPUs.html")[0]["x"]) == 2
    assert "0123456" in (pages / "run/scaling.html").read_text() + (pages / "index.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [[0], [0, 1]])
def test_pages_without_gpus(talp: str, tmp_path: Path, ranks: list[int]) -> None:
    reports = [without(SETS["mpi-4"][rank], tmp_path / f"rank{rank}.sqlite", "CUPTI%", "CUDA%") for rank in ranks]
    document = saved(nsys2prv_ng.summarize(reports), tmp_path / "talp/run")
    [table] = (read_table(figure) for figure in read_figures(render(talp, tmp_path / "talp") / "run/scaling.html"))
    region = document["Application"]["Global"]
    assert document["resources"]["numGpus"] == 0
    [column] = table.values()
    shown = [row for row in ROWS if row in column]
    assert shown == ([] if len(ranks) == 1 else list(ROWS)[:6])
    for row in shown:
        assert column[row] == pytest.approx(region[ROWS[row]], abs=0.005001), row
    assert column["Global Effiency"] == pytest.approx(region["parallelEfficiency"], abs=0.005001)


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
