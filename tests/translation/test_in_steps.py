"""A trace that is planned, written and joined by processes of their own equals one that is made at once."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

import nsys2prv_ng
from nsys2prv_ng.errors import TranslationError, UsageError
from tests.conftest import SAMPLES
from tests.reading.test_shards import read_trace
from tests.tiers import cases

GRAPH = SAMPLES / "single-graph.sqlite"


@pytest.fixture
def parts(tmp_path):
    nsys2prv_ng.shard(GRAPH, tmp_path / "parts")
    return tmp_path / "parts"


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "ranks"), cases([("prv.gz", "02"), ("prv.gz", "0123"), ("prv", "0123")], push=1))
def test_steps_make_the_same_bytes(tmp_path, monkeypatch, ending, ranks):
    reports = sorted(SAMPLES.glob(f"ddp-2x2.rank[{ranks}].sqlite"))
    (tmp_path / "one").mkdir()
    once, trace, parts = tmp_path / f"one/a.{ending}", tmp_path / f"a.{ending}", tmp_path / "parts"
    expected = nsys2prv_ng.translate(reports, once, summary=True)
    nsys2prv_ng.shard(reports, parts)
    nsys2prv_ng.merge(parts, trace, only="plan", parts=50, summary=True)
    kept = sorted(path.name for path in parts.iterdir())
    for number in (1, 0, 1, *range(2, 50)):  # in any order, and more than there are
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(number))
        assert nsys2prv_ng.merge(parts, trace, only="write") is None
    found = nsys2prv_ng.merge(parts, trace, only="join", stats=tmp_path / "stats.json")
    assert once.read_bytes() == trace.read_bytes()
    for suffix in ("pcf", "row"):
        assert (once.parent / f"a.{suffix}").read_bytes() == (tmp_path / f"a.{suffix}").read_bytes()
    assert replace(found, seconds=0, output="") == replace(expected, seconds=0, output="")
    assert (tmp_path / "stats.json").exists()
    assert len(kept) > len(list(parts.iterdir())) == 2 * len(reports)


@pytest.mark.parametrize("name", ["trace", "trace-0", "part00000.prv"])
def test_shards_of_reports_that_are_named_as_what_steps_make(tmp_path, name):
    report, parts = tmp_path / f"{name}.sqlite", tmp_path / "parts"
    shutil.copy(GRAPH, report)
    nsys2prv_ng.shard(report, parts, sources=["kernels"], derived=False)
    before = sorted(parts.iterdir())
    for number in (2, 1):
        nsys2prv_ng.merge(parts, tmp_path / "a.prv", only="plan", parts=number)
    nsys2prv_ng.merge(parts, tmp_path / "a.prv", only="write", part=0)
    nsys2prv_ng.merge(parts, tmp_path / "a.prv", only="join")
    assert sorted(parts.iterdir()) == before


def test_a_part_whose_step_was_killed_is_written_again(tmp_path, parts):
    trace = tmp_path / "a.prv"
    nsys2prv_ng.merge(parts, trace, only="plan", parts=1)
    nsys2prv_ng.merge(parts, trace, only="write", part=0)
    next(parts.glob("part*.size")).unlink()  # it is made last
    nsys2prv_ng.merge(parts, trace, only="write", part=0)
    nsys2prv_ng.merge(parts, trace, only="join")
    assert trace.exists()


def test_a_task_of_an_earlier_plan_that_ends_late(tmp_path, parts):
    nsys2prv_ng.merge(parts, tmp_path / "a.prv", only="plan", parts=1)
    nsys2prv_ng.merge(parts, tmp_path / "a.prv", only="write", part=0)
    late = {path: path.read_bytes() for path in parts.glob("part*")}
    window = (0, 10_000_000)
    nsys2prv_ng.merge(parts, tmp_path / "a.prv", only="plan", parts=1, time=window)
    for path, content in late.items():
        path.write_bytes(content)
    nsys2prv_ng.merge(parts, tmp_path / "a.prv", only="write", part=0)
    nsys2prv_ng.merge(parts, tmp_path / "a.prv", only="join")
    nsys2prv_ng.merge(parts, tmp_path / "b.prv", time=window)
    assert (tmp_path / "a.prv").read_bytes() == (tmp_path / "b.prv").read_bytes()


def test_a_step_that_is_not_done_is_named(tmp_path, parts):
    trace = tmp_path / "a.prv"
    with pytest.raises(UsageError, match="no trace is planned"):
        nsys2prv_ng.merge(parts, trace, only="join")
    nsys2prv_ng.merge(parts, trace, only="plan", parts=2)
    with pytest.raises(TranslationError, match=r"not written yet: 0"):
        nsys2prv_ng.merge(parts, trace, only="join")
    with pytest.raises(UsageError, match="name that, or plan again"):
        nsys2prv_ng.merge(parts, tmp_path / "b.prv", only="join")
    with pytest.raises(UsageError, match="counted from 0"):
        nsys2prv_ng.merge(parts, trace, only="write", part=2)
    assert not trace.exists()


def test_a_part_is_named_or_that_of_an_array(tmp_path, parts, monkeypatch):
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID", raising=False)
    nsys2prv_ng.merge(parts, tmp_path / "a.prv", only="plan")
    with pytest.raises(UsageError, match="Slurm array"):
        nsys2prv_ng.merge(parts, tmp_path / "a.prv", only="write")


def test_a_folder_without_shards(tmp_path):
    with pytest.raises(UsageError, match="holds no reports"):
        nsys2prv_ng.merge(tmp_path, tmp_path / "a.prv", only="plan")


@pytest.mark.slow
def test_a_lost_shard_is_noticed(tmp_path, parts):
    nsys2prv_ng.merge(parts, tmp_path / "a.prv", only="plan")
    shutil.move(next(parts.glob("single*.columns")), tmp_path / "away")
    with pytest.raises(TranslationError, match="read its report again"):
        nsys2prv_ng.merge(parts, tmp_path / "a.prv", only="write", part=0)
    assert not list(parts.glob("part*")), "no part appears"


def test_a_trace_of_shards_at_once(tmp_path, parts):
    nsys2prv_ng.translate(GRAPH, tmp_path / "a.prv")
    before = read_trace(tmp_path / "a.prv")
    nsys2prv_ng.merge(parts, tmp_path / "a.prv", force=True)
    assert read_trace(tmp_path / "a.prv") == before
