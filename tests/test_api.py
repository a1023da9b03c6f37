"""What programs call, against the command line."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

import nsys2prv_ng
from nsys2prv_ng.cli.app import app

SAMPLES = Path(__file__).parents[1] / "samples"
DDP = sorted(SAMPLES.glob("ddp-2x2.rank*.sqlite"))

OF_COMMAND_LINE = {"compress", "quiet", "verbose"}
"""Options that a program has otherwise: by the name of the trace, by `progress`, by the returned value."""


def options() -> dict[str, list[str]]:
    """Words of each option of the command by its keyword here."""
    command = typer.main.get_command(app)
    translate = command.commands["translate"]
    found = {each.name: each.opts for each in translate.params if each.name not in OF_COMMAND_LINE | {"paths"}}
    return {{"no_derived": "derived"}.get(name, name): words for name, words in found.items()}


def test_keywords_are_the_options_in_their_order() -> None:
    keywords = [name for name in inspect.signature(nsys2prv_ng.translate).parameters if name != "progress"]
    assert keywords[:2] == ["reports", "output"]
    assert sorted(keywords[2:]) == sorted(options())


def test_every_keyword_is_documented() -> None:
    documented = re.findall(r"\w+(?=`?[:,;])", inspect.getdoc(nsys2prv_ng.translate) or "")
    left = set(inspect.signature(nsys2prv_ng.translate).parameters) - set(documented)
    assert not left


def command_line(folder: Path, *words: str | Path) -> dict[str, bytes]:
    command = [sys.executable, "-m", "nsys2prv_ng", "translate", *map(str, words), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
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
    "range": ("--nvtx-range step* --align none", {"nvtx_range": "step*", "align": "none"}),
}


@pytest.mark.parametrize("case", CASES)
def test_same_bytes_as_the_command_line(tmp_path: Path, case: str) -> None:
    words, keywords = CASES[case]
    for name in ("shell", "program"):
        (tmp_path / name).mkdir()
    expected = command_line(tmp_path / "shell", *DDP, "trace.prv", *words.split(), "--summary", "trace.json")
    folder = tmp_path / "program"
    summary = nsys2prv_ng.translate(DDP, folder / "trace.prv", **keywords, summary=folder / "trace.json")
    found = files(folder)
    said, written = json.loads(expected.pop("trace.json")), json.loads(found.pop("trace.json"))
    assert found == expected
    assert json.loads(json.dumps(summary.to_dict())) == written
    for each in (said, written):  # what differs between any two runs
        del each["seconds"], each["output"]
    assert written == said


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
    assert [account.name for account in summary.sources] == ["kernels", "device_activity"]


def test_it_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_text("no database")
    summary = nsys2prv_ng.translate([*DDP, broken], tmp_path / "trace.prv")
    assert capfd.readouterr() == ("", "")
    assert [report.file for report in summary.skipped] == [str(broken)]


@pytest.mark.parametrize(
    ("reports", "output", "keywords", "message"),
    [
        (DDP, "trace.txt", {}, "trace.txt: is no name of a trace"),
        ([], "trace.prv", {}, "no report given"),
        (["a.prv"], "trace.prv", {}, "a.prv: a trace among the reports"),
        (DDP, "trace.prv", {"sources": ["kernel"]}, "--sources kernel: unknown kernel; known are"),
        (DDP, "trace.prv", {"sources": []}, "--sources : unknown name"),
        (DDP, "trace.prv", {"sources": ["nvtx"], "metrics": ["SM*"]}, "--metrics needs the source gpu_metrics"),
        (DDP, "trace.prv", {"min_duration": {"kernel": 5}}, "--min-duration kernel: none of the sources"),
        (DDP, "trace.prv", {"kernel_names": "long"}, "--kernel-names long"),
        (DDP, "trace.prv", {"align": "mpi"}, "--align mpi"),
        (DDP, "trace.prv", {"time": (2, 1)}, "--time"),
        (DDP, "trace.prv", {"jobs": 0}, "jobs=0"),
        (DDP, "trace.prv", {"metrics_changes": True, "time": (0, 1)}, "--metrics-changes does not go with --time"),
    ],
)
def test_what_cannot_be_asked_for(tmp_path: Path, reports, output, keywords, message) -> None:
    with pytest.raises(nsys2prv_ng.UsageError) as raised:
        nsys2prv_ng.translate(reports, tmp_path / output, **keywords)
    assert message in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_cannot_be_read(tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_text("no database")
    with pytest.raises(nsys2prv_ng.ReportError, match=r"broken\.sqlite"):
        nsys2prv_ng.translate([*DDP, broken], tmp_path / "trace.prv", strict=True)
    assert list(tmp_path.iterdir()) == [broken]


def test_from_another_thread(tmp_path: Path) -> None:
    """As in a notebook or a server: where no signal can be handled."""
    code = (
        "import sys, threading, nsys2prv_ng\n"
        "done = []\n"
        "run = lambda: done.append(nsys2prv_ng.translate(sys.argv[2:], sys.argv[1], sources=['kernels']))\n"
        "thread = threading.Thread(target=run); thread.start(); thread.join()\n"
        "print(done[0].events)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "trace.prv"), *map(str, DDP)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    assert int(done.stdout) > 0
