"""Work on a real Dask cluster: the same answers, also where workers are killed, and the same bytes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.runtime.dask_engine import DaskEngine
from nsys2prv_ng.runtime.parallel import LocalEngine
from nsys2prv_ng.runtime.processes import WorkerError
from tests.conftest import REPOSITORY, SAMPLES
from tests.reading.test_shards import read_trace
from tests.tiers import cases

pytestmark = pytest.mark.slow

distributed = pytest.importorskip("distributed", reason="needs the extra cluster")


@pytest.fixture(scope="module")
def clusters() -> Iterator[list]:
    """The clusters that were made, the last one in use."""
    made: list = []
    yield made
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster(clusters) -> object:
    """A cluster of two workers, each a process with a nanny that replaces it; a new one if a nanny gave up."""
    deadline = time.monotonic() + 30
    while clusters and len(clusters[-1].scheduler.workers) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    if not clusters or len(clusters[-1].scheduler.workers) < 2:
        clusters.append(distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0"))
    return clusters[-1]


@pytest.fixture
def scheduler(cluster) -> str:
    """Address of the cluster."""
    return cluster.scheduler_address


def die_once(mark: Path) -> None:
    """End this process the first time."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def test_answers_are_in_order(scheduler, tmp_path):
    with DaskEngine(scheduler, tmp_path / "parts") as engine:
        factor = 3
        assert list(engine.map(lambda item: item * factor, range(20))) == [3 * item for item in range(20)]
        assert list(engine.map(lambda item: item, [])) == []
        assert engine.workers == 2
        (inner,) = engine.map(lambda _: (os.getpid(), type(engine).__name__, engine.workers), [0])
        assert inner[0] != os.getpid() and inner[1:] == (LocalEngine.__name__, 1)
        assert [path.name for path in engine.folder.iterdir()] == [".nsys2prv-ng"]
    assert not (tmp_path / "parts").exists()


def test_the_first_error_comes_back(scheduler, tmp_path):
    def fail(item):
        if item == 2:
            raise UsageError("is wrong", parameter="ranks")
        return {}[item] if item > 2 else item

    engine = DaskEngine(scheduler, tmp_path / "parts", stays_after_error=True)
    with pytest.raises(UsageError, match="ranks: is wrong"), engine:
        list(engine.map(fail, range(5)))
    assert (tmp_path / "parts").exists()
    with pytest.raises(WorkerError, match="KeyError: 3"), DaskEngine(scheduler, tmp_path / "parts") as engine:
        list(engine.map(fail, [3, 1]))
    assert not (tmp_path / "parts").exists()


def test_workers_take_nothing_of_an_earlier_run_for_their_own(scheduler, tmp_path):
    for factor in (10, 20):  # as the same functions of runs with other options
        with DaskEngine(scheduler, tmp_path / "parts") as engine:
            assert list(engine.map(lambda item, by=factor: item * by, range(4))) == [item * factor for item in range(4)]


def test_folders_of_others_stay(scheduler, tmp_path):
    own = tmp_path / "a.prv.parts"
    own.mkdir()
    (own / "precious").touch()
    with pytest.raises(UsageError, match="no earlier run left it"):
        nsys2prv_ng.translate(SAMPLES / "single-graph.sqlite", tmp_path / "a.prv", dask=scheduler)
    assert (own / "precious").exists()
    (own / ".nsys2prv-ng").touch()
    own.chmod(0o777)
    with pytest.raises(UsageError, match="others may write there"):
        DaskEngine(scheduler, own)


def test_a_run_after_one_that_was_ended_while_it_placed_parts(scheduler, tmp_path, monkeypatch):
    """The paths are those that a user types, and the workers are in another folder."""
    shutil.copy(SAMPLES / "single-graph.sqlite", tmp_path / "a.sqlite")
    monkeypatch.chdir(tmp_path)
    chosen = {"sources": ["kernels"], "derived": False}
    nsys2prv_ng.translate("a.sqlite", "a.prv", **chosen)
    expected = read_trace(tmp_path / "a.prv")

    def end_after_place(self, do, items, real=DaskEngine.map):
        for answer in real(self, do, items):
            yield answer
            if answer is None:
                raise KeyboardInterrupt

    with monkeypatch.context() as ended, pytest.raises(KeyboardInterrupt):
        ended.setattr(DaskEngine, "map", end_after_place)
        nsys2prv_ng.translate("a.sqlite", "a.prv", force=True, dask=scheduler, **chosen)
    assert list(tmp_path.glob("a.prv.parts/*.placed"))
    nsys2prv_ng.translate("a.sqlite", "a.prv", force=True, dask=scheduler, **chosen)
    assert read_trace(tmp_path / "a.prv") == expected
    with pytest.raises(UsageError, match="given twice"):
        nsys2prv_ng.translate(["a.sqlite", tmp_path / "a.sqlite"], "a.prv", force=True, dask=scheduler)


@pytest.mark.all_sets
def test_a_worker_that_is_killed(scheduler, tmp_path):
    def do(item):
        if item in (1, 3):
            die_once(tmp_path / f"died{item}")
        return item

    with DaskEngine(scheduler, tmp_path / "parts") as engine:
        assert list(engine.map(do, range(5))) == list(range(5))
    assert len(list(tmp_path.glob("died*"))) == 2


@pytest.mark.all_sets
def test_a_piece_that_kills_every_worker(cluster, scheduler, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 1)  # instead of 3
    with pytest.raises(TranslationError, match="lack of memory"), DaskEngine(scheduler, tmp_path / "parts") as engine:
        list(engine.map(lambda _: os.kill(os.getpid(), signal.SIGKILL), [0]))


def test_a_scheduler_that_is_gone(tmp_path):
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0", protocol="tcp://") as cluster:
        engine = DaskEngine(cluster.scheduler_address, tmp_path / "parts")
        with pytest.raises(TranslationError, match="scheduler is lost"), engine:
            for _ in engine.map(lambda item: time.sleep(item), [0, 2, 2]):
                cluster.close()


@contextmanager
def processes(folder: Path, workers: int) -> Iterator[tuple[str, list[subprocess.Popen]]]:
    """A scheduler and workers, each a process of its own; yield the scheduler's file and the processes."""
    file = folder / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_{}", "--scheduler-file", str(file), "--no-dashboard"]
    start = partial(subprocess.Popen, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=REPOSITORY)
    started = [start([word.format("scheduler") for word in command] + ["--host", "127.0.0.1", "--port", "0"])]
    try:
        while not file.exists():
            assert started[0].poll() is None
            time.sleep(0.1)
        words = [word.format("worker") for word in command]
        started += [start([*words, "--nthreads", "1", "--no-nanny"], cwd=folder) for _ in range(workers)]
        yield str(file), started
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.all_sets
def test_a_scheduler_that_is_killed_leaves_one_line(tmp_path):
    """The log of Dask, which has tracebacks of its own, does not reach the terminal, and is as before at the end."""
    with processes(tmp_path, 1) as (file, (scheduler, *_)):
        code = (
            "import logging, os, signal, sys, time\nfrom nsys2prv_ng.runtime.dask_engine import DaskEngine\n"
            "from nsys2prv_ng.errors import TranslationError\nfrom pathlib import Path\n"
            f"engine = DaskEngine({file!r}, Path('parts'), stays_after_error=True)\n"
            "try:\n with engine:\n"
            f"  for _ in engine.map(time.sleep, [0, 30]): os.kill({scheduler.pid}, signal.SIGKILL)\n"
            "except TranslationError as error: print(error, file=sys.stderr)\n"
            "time.sleep(1)\nassert logging.getLogger('distributed.client').level == logging.WARNING"
        )
        ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if not line.startswith("waiting")]
    assert "the connection to the Dask scheduler" in line and line.endswith("the reports that were read")
    assert (tmp_path / "parts").exists()


@pytest.mark.all_sets
def test_workers_that_are_all_gone(tmp_path):
    """The run waits for new workers for a stated time."""
    notes: list[str] = []
    with processes(tmp_path, 2) as (file, (_, *workers)):
        engine = DaskEngine(file, tmp_path / "parts", note=notes.append, wait=20)
        notes.clear()
        with pytest.raises(TranslationError, match="are gone, and none came within 1 s; start workers again"), engine:
            engine._wait = 1
            for _ in engine.map(time.sleep, [0, 60, 60]):
                for worker in workers:
                    worker.kill()
    assert notes == [f"waiting for workers of {file}, 1 s at most"]
    assert not (tmp_path / "parts").exists()


def test_workers_that_come_back_in_time(tmp_path):
    with processes(tmp_path, 1) as (file, (_, worker)), DaskEngine(file, tmp_path / "parts", wait=60) as engine:
        answers = engine.map(lambda item: item, [0, 1])
        assert next(answers) == 0
        worker.kill()
        again = subprocess.Popen([*worker.args], cwd=tmp_path, stderr=subprocess.DEVNULL)
        try:
            assert list(answers) == [1]
        finally:
            again.kill()
            again.wait()


def test_two_live_runs_to_one_output(scheduler, tmp_path):
    """The second has a folder of its own, which goes at its end; the first goes on with its folder."""
    wanted, notes = tmp_path / "a.prv.parts", []
    first = DaskEngine(scheduler, wanted, stays_after_error=True)
    (wanted / "shard").touch()
    second = DaskEngine(scheduler, wanted, stays_after_error=True, note=notes.append)
    assert first.folder == wanted and second.folder.parent == tmp_path and second.folder != wanted
    assert [path.name for path in second.folder.iterdir()] == [".nsys2prv-ng"]
    assert notes == [f"{wanted}: another run works there; this one works in {second.folder.name}"]
    with pytest.raises(ZeroDivisionError), second:
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == [wanted]
    with pytest.raises(ZeroDivisionError), first:
        raise ZeroDivisionError
    with DaskEngine(scheduler, wanted) as third:
        assert (third.folder / "shard").exists()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text", ['{"address": 5}', "{", "[1]", "null", '{"address": "inproc://x"}', '{"address": "x"}']
)
def test_a_file_of_no_scheduler(tmp_path, text):
    file = tmp_path / "bad.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"no scheduler wrote this file|an address is like tcp://"):
        DaskEngine(str(file), tmp_path / "parts", wait=1)


@pytest.mark.parametrize("where", ["tcp://127.0.0.1:1", "missing.json", "nonsense://x"])
def test_no_cluster_there(tmp_path, where):
    with pytest.raises(UsageError, match=r"^dask=.*no worker can be reached"):
        DaskEngine(where, tmp_path / "parts", wait=1)
    assert not (tmp_path / "parts").exists()


@pytest.mark.parametrize("killed_in", cases(["", "copy_part", "read_report", "flatten", "make_slice"], push=1))
def test_the_same_bytes_though_workers_are_killed_in_any_step(scheduler, tmp_path, monkeypatch, killed_in):
    """A worker that reads, that makes states, that writes a part, or that puts it in its place."""
    reports = sorted(SAMPLES.glob("ddp-2x2.*.sqlite"))
    chosen: dict[str, object] = {"time": (200_000_000, 600_000_000), "ranks": [0, 1]}
    if killed_in:
        chosen = {"sources": ["kernels", "nccl", "nvtx", "os_runtime"]}
    nsys2prv_ng.translate(reports, tmp_path / "a.prv", **chosen)
    expected = read_trace(tmp_path / "a.prv")
    if killed_in:
        monkeypatch.setattr(DaskEngine, "map", _make_deadly(DaskEngine.map, killed_in, tmp_path))
    nsys2prv_ng.translate(reports, tmp_path / "a.prv", force=True, dask=scheduler, **chosen)
    assert read_trace(tmp_path / "a.prv") == expected
    assert len(list(tmp_path.glob("died*"))) == bool(killed_in)
    assert sorted(path.name for path in tmp_path.iterdir() if "died" not in path.name) == ["a.pcf", "a.prv", "a.row"]


def _make_deadly(real, step, folder):
    """Make the first worker that has called the function of a step end there."""
    modules = {
        "read_report": "nsys2prv_ng.reading.shards",
        "flatten": "nsys2prv_ng.translation.states",
        "make_slice": "nsys2prv_ng.translation.translate",
        "copy_part": "nsys2prv_ng.translation.translate",
    }

    def run(self, do, items):
        def deadly(item):
            from importlib import import_module

            module = import_module(modules[step])
            own = getattr(module, step)

            def wrapped(*arguments, **keywords):
                answer = own(*arguments, **keywords)
                die_once(folder / f"died-{step}")
                return answer

            setattr(module, step, wrapped)
            try:
                return do(item)
            finally:
                setattr(module, step, own)

        return real(self, deadly, items)

    return run


def test_workers_in_another_folder(scheduler, tmp_path, monkeypatch):
    """Relative paths are those of the user's folder."""
    shutil.copyfile(SAMPLES / "single-graph.sqlite", tmp_path / "a.sqlite")
    monkeypatch.chdir(tmp_path)
    nsys2prv_ng.translate("a.sqlite", "a.prv")
    expected = read_trace(tmp_path / "a.prv")
    nsys2prv_ng.translate("a.sqlite", "a.prv", force=True, dask=scheduler)
    assert read_trace(tmp_path / "a.prv") == expected
    nsys2prv_ng.shard("a.sqlite", "parts")
    nsys2prv_ng.translate("parts", "a.prv", force=True, dask=scheduler)
    assert read_trace(tmp_path / "a.prv") == expected


@pytest.mark.all_sets
def test_a_cluster_without_workers(tmp_path):
    """The user is told what the program waits for, and it does not wait forever."""
    notes: list[str] = []
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        pytest.raises(UsageError, match="no worker can be reached"),
    ):
        DaskEngine(cluster.scheduler_address, tmp_path / "parts", note=notes.append, wait=1)
    assert notes == [f"waiting for workers of {cluster.scheduler_address}, 1 s at most"]


@pytest.mark.all_sets
@pytest.mark.parametrize("count", [1, 2])
def test_summary_and_comparison(scheduler, tmp_path, monkeypatch, count):
    monkeypatch.chdir(tmp_path)
    reports = sorted(SAMPLES.glob("mpi-4.*.sqlite"))[:count]
    assert nsys2prv_ng.summarize(reports, dask=scheduler).to_dict() == nsys2prv_ng.summarize(reports).to_dict()
    one, other = (nsys2prv_ng.compare([reports, reports], dask=where).to_dict() for where in ("", scheduler))
    assert one == other
    assert not list(tmp_path.iterdir())


def test_an_export_has_the_same_bytes(scheduler: str, tmp_path: Path) -> None:
    reports = sorted(SAMPLES.glob("mpi-4.rank*.sqlite"))
    for name, where in (("here", ""), ("there", scheduler)):
        nsys2prv_ng.export(reports, tmp_path / name, tables=["kernels", "mpi_calls", "gaps", "waits"], dask=where)
    here, there = (
        {file.relative_to(tmp_path / name): file.read_bytes() for file in (tmp_path / name).rglob("*.parquet")}
        for name in ("here", "there")
    )
    assert here == there and len(here) == 16
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "there"]
