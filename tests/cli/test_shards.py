"""The commands shard and merge, as they are typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program_runs import run
from tests.conftest import SAMPLES

REPORT = SAMPLES / "mpi-4.rank0.sqlite"
OTHER = SAMPLES / "mpi-4.rank1.sqlite"


@pytest.mark.slow
def test_from_shards_to_a_trace(tmp_path: Path) -> None:
    parts, trace = tmp_path / "out parts", tmp_path / "out.prv"
    done = run("shard", REPORT, OTHER, parts)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{parts}: now has 2 reports; nsys2prv-ng merge '{parts}' OUT.prv\n"
    for step in ("plan", "write", "join"):
        done = run("merge", parts, trace, "--only", step, *(("--part", "0") if step == "write" else ()))
        assert done.returncode == 0, done.stderr
        assert trace.exists() == (step == "join")
    assert f"{trace}: 2 tasks" in done.stdout
    assert run("check", trace).returncode == 0
    assert run("summary", parts).stdout == run("summary", REPORT, OTHER).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shard", "{folder}/parts"], "no report to read into {folder}/parts"),
        (["shard", str(REPORT), str(OTHER)], "is a file; the last argument must be the folder"),
        (["shard", "{folder}/missing.sqlite", "{folder}/parts"], "no such file"),
        (["merge", "{folder}", "{folder}/out.prv", "--only", "plan"], "holds no reports that nsys2prv-ng shard read"),
        (["merge", "{folder}", "{folder}/out.prv", "--only", "all"], "--only all: must be plan, write or join"),
        (["shard", str(REPORT), "{folder}/out.prv"], "is the name of a trace"),
        (["merge", "{folder}", "{folder}/out.txt"], "the trace must be named *.prv or *.prv.gz"),
        (["summary", str(REPORT), "--dask", "missing.json"], "--dask missing.json: no worker can be reached"),
    ],
)
def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str) -> None:
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID", raising=False)
    done = run(*(argument.format(folder=tmp_path) for argument in arguments))
    assert done.returncode in (1, 2) and not done.stdout
    assert message.format(folder=tmp_path) in done.stderr and len(done.stderr.splitlines()) <= 2, done.stderr
