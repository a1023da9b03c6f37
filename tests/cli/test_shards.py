"""The command shard, and what takes its folder, as they are typed."""

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
    assert done.stdout == f"{parts}: now has 2 reports; nsys2prv-ng translate '{parts}' OUT.prv\n"
    done = run("translate", parts, trace)
    assert done.returncode == 0, done.stderr
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
        (["merge", "{folder}", "{folder}/out.prv"], "merge has gone: translate takes the folder of shards"),
        (["shard", str(REPORT), "{folder}/out.prv"], "is the name of a trace"),
        (["summary", str(REPORT), "--dask", "missing.json"], "--dask missing.json: no worker can be reached"),
    ],
)
def test_mistakes(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = run(*(argument.format(folder=tmp_path) for argument in arguments))
    assert done.returncode in (1, 2) and not done.stdout
    assert message.format(folder=tmp_path) in done.stderr and len(done.stderr.splitlines()) <= 2, done.stderr
