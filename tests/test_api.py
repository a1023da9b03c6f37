"""What programs call, against the command line."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import typer.main

import nsys2prv_ng
from nsys2prv_ng.cli.app import app
from nsys2prv_ng.errors import TranslationError
from tests.cli.program_runs import run
from tests.conftest import SAMPLES
from tests.tiers import cases

DDP = sorted(SAMPLES.glob("ddp-2x2.rank*.sqlite"))
MPI = sorted(SAMPLES.glob("mpi-4.rank*.sqlite"))

COMMAND_LINE_ONLY = {"compress", "quiet", "verbose"}
"""Options that a program has otherwise: by the name of the trace, by `progress`, by the returned value."""


NO_COMMAND = {"open"}
"""Calls that a command cannot make: what they return is asked further."""
TERMINAL_ONLY = COMMAND_LINE_ONLY | {
    "as_json",
    "csv",
    "talp",
    "details",
    "shows_all",
    "shows_details",
    "as_markdown",
    "fail_over",
    "fail_undecided",
}
"""Options of all commands that only concern what is printed: programs use the result."""
CALLS = {
    "translate": nsys2prv_ng.translate,
    "shard": nsys2prv_ng.shard,
    "summary": nsys2prv_ng.summarize,
    "compare": nsys2prv_ng.compare,
    "export": nsys2prv_ng.export,
    "inspect": nsys2prv_ng.inspect,
    "check": nsys2prv_ng.check,
    "what-if": nsys2prv_ng.what_if,
}


@pytest.mark.parametrize("command", CALLS)
def test_keywords_are_the_options_of_the_command(command: str) -> None:
    parameters = inspect.signature(CALLS[command]).parameters.values()
    keywords = {parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY}
    typed = typer.main.get_command(app).commands[command].params
    options = {parameter.name for parameter in typed if parameter.param_type_name == "option"}
    typed_beside_reports = {"output"}
    assert keywords - {"progress"} - typed_beside_reports == options - TERMINAL_ONLY


def test_every_command_has_a_call_or_prints_what_programs_do_not_need() -> None:
    assert set(typer.main.get_command(app).commands) == {*CALLS, "cfgs", "precompile", "record", "run-rank", "slurm"}
    assert {call.__name__ for call in CALLS.values()} | NO_COMMAND == {
        name for name in nsys2prv_ng.__all__ if inspect.isfunction(getattr(nsys2prv_ng, name))
    }


def test_every_keyword_is_documented() -> None:
    documented = re.findall(r"\w+(?=`?[:,;])", inspect.getdoc(nsys2prv_ng.translate) or "")
    left = set(inspect.signature(nsys2prv_ng.translate).parameters) - set(documented)
    assert left == {"progress"}


def command_line(folder: Path, *words: str | Path) -> dict[str, bytes]:
    done = run("translate", *words, "--quiet", cwd=folder)
    assert done.returncode == 0, done.stderr
    return files(folder)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith("trace")}


CASES = {
    "all": ("", {}),
    "some": (
        "--sources kernels,nvtx,gpu_metrics --no-derived --metrics SM* --metrics-changes --align=utc --kernel-names"
        " demangled --min-duration kernels=2us --nvtx-domain default -j 1",
        {
            "sources": ["kernels", "nvtx", "gpu_metrics"],
            "derived": False,
            "metrics": ["SM*"],
            "metrics_changes": True,
            "align": "utc",
            "kernel_names": "demangled",
            "min_duration": {"kernels": 2000},
            "nvtx_domain": ["default"],
            "jobs": 1,
        },
    ),
    "part": (
        "--time 100ms:1s --ranks 0,2-3 --gpus 0 --osrt-min 1us --memory 1M",
        {"time": (10**8, 10**9), "ranks": [0, 2, 3], "gpus": {0}, "osrt_min": 1000, "memory": 2**20},
    ),
    "part, as texts": (
        "--time 100ms:1s --ranks 0,2-3 --min-duration kernels=2us --memory 1M -j 2",
        {"time": "100ms:1s", "ranks": "0,2-3", "min_duration": "kernels=2us", "memory": "1M", "jobs": "2"},
    ),
    "range": ("--nvtx-range step* --align none", {"nvtx_range": "step*", "align": "none"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", cases(CASES, push=2))
def test_same_bytes_as_the_command_line(tmp_path: Path, case: str) -> None:
    words, keywords = CASES[case]
    for name in ("shell", "program"):
        (tmp_path / name).mkdir()
    expected = command_line(tmp_path / "shell", *DDP, "trace.prv", *words.split(), "--stats", "trace.json")
    folder = tmp_path / "program"
    summary = nsys2prv_ng.translate(DDP, folder / "trace.prv", **keywords, stats=folder / "trace.json")
    found = files(folder)
    said, written = json.loads(expected.pop("trace.json")), json.loads(found.pop("trace.json"))
    assert found == expected
    assert json.loads(json.dumps(summary.to_dict())) == written
    for each in (said, written):  # what differs between any two runs
        del each["seconds"], each["output"]
    assert written == said


@pytest.mark.slow
def test_texts_are_paths_and_one_report_is_enough(tmp_path: Path) -> None:
    nsys2prv_ng.translate(str(DDP[0]), str(tmp_path / "trace.prv.gz"), sources=["kernels"])
    assert command_line(tmp_path, DDP[0], "trace.prv", "--sources", "kernels", "--gzip", "--force")
    summary = nsys2prv_ng.translate(
        map(str, DDP[:1]),
        tmp_path / "trace.prv.gz",
        sources=("kernels",),
        force=True,
        labels_from=tmp_path / "trace.pcf",
    )
    names = [account.name for account in summary.sources]
    assert names == ["kernels", "device_activity", "critical_path", "steps"]


def test_it_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_text("no database")
    summary = nsys2prv_ng.translate([*DDP, broken], tmp_path / "trace.prv")
    assert capfd.readouterr() == ("", "")
    assert [report.file for report in summary.skipped] == [str(broken)]


@pytest.mark.parametrize(
    ("reports", "output", "keywords", "message"),
    [
        (DDP, "trace.txt", {}, "trace.txt': the trace must be named *.prv or *.prv.gz"),
        ([], "trace.prv", {}, "give at least one report"),
        (["a.prv"], "trace.prv", {}, "reports='a.prv': a trace among the reports"),
        (DDP, "trace.prv", {"sources": ["kernel"]}, "sources: no source is called kernel; did you mean kernels?"),
        (DDP, "trace.prv", {"sources": []}, "sources: no source is named; known are cuda_api,"),
        (DDP, "trace.prv", {"progress": True}, "progress: give an instance of Progress"),
        (None, "trace.prv", {}, "reports: give a path or a list of paths"),
        ([DDP[:2]], "trace.prv", {}, "reports=["),
        (["a\0.sqlite"], "trace.prv", {}, "is not a valid file name"),
        ("", "trace.prv", {}, "reports='': must not be empty"),
        (DDP, "trace.prv", {"sources": ["nvtx"], "metrics": ["SM*"]}, "metrics: needs the source gpu_metrics"),
        (
            DDP,
            "trace.prv",
            {"min_duration": {"kernel": 5}},
            "kernel is none of the selected sources; did you mean kernels?",
        ),
        (DDP, "trace.prv", {"align": "mpi"}, "align='mpi': must be one of"),
        (DDP, "trace.prv", {"stack_depth": 101}, "stack_depth=101: must be at most 100"),
        (DDP, "trace.prv", {"metrics_changes": True, "time": (0, 1000)}, "metrics_changes: cannot be combined with"),
        (DDP, "trace.prv", {"ranks": [7]}, "ranks: none of them is in the reports, which hold 0, 1, 2, 3"),
    ],
)
def test_what_cannot_be_asked_for(tmp_path: Path, reports, output, keywords, message) -> None:
    with pytest.raises(nsys2prv_ng.UsageError) as raised:
        nsys2prv_ng.translate(reports, tmp_path / output, **keywords)
    assert message in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_report_that_cannot_be_read(tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_text("no database")
    with pytest.raises(nsys2prv_ng.ReportError, match=r"broken\.sqlite"):
        nsys2prv_ng.translate([*DDP, broken], tmp_path / "trace.prv", strict=True)
    assert list(tmp_path.iterdir()) == [broken]


@pytest.mark.slow
def test_from_another_thread(tmp_path: Path) -> None:
    """As in a notebook or a server: where no signal can be handled."""
    code = (
        "import sys, threading, nsys2prv_ng\n"
        "done = []\n"
        "run = lambda: done.append(nsys2prv_ng.translate(sys.argv[2:], sys.argv[1], sources=['kernels']))\n"
        "thread = threading.Thread(target=run); thread.start(); thread.join()\n"
        "print(done[0].events)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "trace.prv"), *map(str, DDP[:2])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    assert int(done.stdout) > 0


@pytest.mark.slow
def test_summarize_is_what_the_command_prints(tmp_path: Path) -> None:
    summary = nsys2prv_ng.summarize(MPI, time=(0, 10**9), ranks=[0, 2])
    assert isinstance(summary, nsys2prv_ng.JobSummary)
    done = run("summary", "--json", "-q", "--time", ":1s", "--ranks", "0,2", *MPI)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(json.dumps(summary.to_dict()))


@pytest.mark.slow
def test_inspect_is_what_the_command_prints() -> None:
    inspection = nsys2prv_ng.inspect(DDP, jobs=1)
    assert isinstance(inspection, nsys2prv_ng.Inspection)
    done = run("inspect", "--json", "-q", *DDP)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(json.dumps(inspection.to_dict()))


def test_check_answers_what_breaks_a_rule(tmp_path: Path) -> None:
    trace = tmp_path / "trace.prv"
    nsys2prv_ng.translate(DDP[:1], trace, sources=["kernels"])
    result = nsys2prv_ng.check(trace)
    assert isinstance(result, nsys2prv_ng.CheckResult)
    assert result.problems == []
    trace.write_text(trace.read_text() + "nonsense\n")
    assert len(nsys2prv_ng.check(trace).problems) == 1


@pytest.mark.parametrize("call", [nsys2prv_ng.summarize, nsys2prv_ng.inspect, nsys2prv_ng.check])
def test_other_calls_refuse_keywords_that_they_lack(call) -> None:
    with pytest.raises(TypeError, match=rf"^{call.__name__}\(\) got an unexpected keyword argument 'colour'"):
        call("a.sqlite", colour="red")


def test_a_missing_or_a_needless_argument_is_named() -> None:
    with pytest.raises(TypeError, match=r"^translate\(\) missing a required argument: 'output'"):
        nsys2prv_ng.translate("a.sqlite")
    with pytest.raises(TypeError, match=r"^translate\(\) too many positional arguments"):
        nsys2prv_ng.translate("a.sqlite", "x.prv", [0])
    with pytest.raises(nsys2prv_ng.UsageError, match="output=3: give a path"):
        nsys2prv_ng.translate("a.sqlite", 3)
    with pytest.raises(nsys2prv_ng.UsageError, match="give at least one report"):
        nsys2prv_ng.inspect([])


def test_help_describes_keywords_and_not_options() -> None:
    text = inspect.getdoc(nsys2prv_ng.translate) or ""
    assert (
        "derived: Add derived data" in text
        and "--" not in text
        and "Annotated" not in str(inspect.signature(nsys2prv_ng.translate))
    )


def test_results_are_found_by_name() -> None:
    for name in nsys2prv_ng.__all__:
        assert getattr(nsys2prv_ng, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'Summary'"):
        _ = nsys2prv_ng.Summary


def test_a_summary_in_a_read_only_folder_keeps_events_elsewhere(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != Path())  # root may write everywhere
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "missing"))
    with pytest.raises(TranslationError, match="missing: cannot keep events there"):
        nsys2prv_ng.summarize(samples / "single-graph.sqlite", memory=1 << 20)


def test_a_summary_needs_no_temporary_folder_but_the_chosen_one(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that is read-only as a whole but for what is mounted."""

    def refuse() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(os, "access", lambda path, mode: path != Path())
    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    summary = nsys2prv_ng.summarize(samples / "single-graph.sqlite", memory=1 << 20, tmp=tmp_path)
    assert summary.reports == 1
