"""An engine of this machine does many or large pieces in processes, and gives what threads give."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nsys2prv_ng
from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.records.store import LocalStore, StoredColumns, load_columns, store_columns
from nsys2prv_ng.runtime import parallel
from nsys2prv_ng.runtime.parallel import LocalEngine
from tests.tiers import cases


def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def test_few_pieces_stay_in_this_process() -> None:
    assert list(LocalEngine(2).sum_up(square, range(31))) == [(n * n, os.getpid()) for n in range(31)]


def test_one_worker_stays_in_this_process() -> None:
    assert list(LocalEngine(1).sum_up(square, range(100))) == [(n * n, os.getpid()) for n in range(100)]


def test_many_pieces_go_to_processes_and_come_back_in_order() -> None:
    found = list(LocalEngine(2).sum_up(square, range(200)))
    assert [value for value, _ in found] == [n * n for n in range(200)]
    assert os.getpid() not in {process for _, process in found}
    assert not multiprocessing.active_children()


def test_few_pieces_of_large_reports_go_to_processes() -> None:
    found = list(LocalEngine(4, size=2 * parallel._LEAST).map(square, range(4)))
    assert [value for value, _ in found] == [n * n for n in range(4)]
    assert len({process for _, process in found} | {os.getpid()}) in (2, 3)
    assert not multiprocessing.active_children()


def test_results_are_taken_soon_after_they_are_made() -> None:
    """A caller that takes its time does not get all at once."""
    begun = multiprocessing.get_context("fork").Value("i", 0)

    def count(number: int) -> int:
        with begun:
            begun.value += 1
        return number

    results = LocalEngine(2).map(count, range(100))
    assert next(results) == 0
    time.sleep(0.2)
    assert begun.value <= 6
    assert list(results) == list(range(1, 100))


def test_no_process_is_forked_while_threads_work() -> None:
    """A thread may hold a lock at that time."""
    in_threads = LocalEngine(2).map(square, range(8))
    next(in_threads)
    assert {process for _, process in LocalEngine(2).map(square, range(100))} == {os.getpid()}
    assert len(list(in_threads)) == 7
    assert os.getpid() not in {process for _, process in LocalEngine(2).map(square, range(100))}


def test_pieces_store_columns_in_processes(tmp_path: Path) -> None:
    with LocalStore(tmp_path, 10**6) as store:

        def put(number: int) -> tuple[int, StoredColumns]:
            return os.getpid(), store_columns([np.full(5, number)], store)

        found = list(LocalEngine(3, lend_shelves=store.lend_shelves).map(put, range(60)))
        for number, (process, stored) in enumerate(found):
            assert process != os.getpid()
            np.testing.assert_array_equal(load_columns(stored, store)[0], number)


@pytest.mark.parametrize("size", [0, 10, 8191, 8192, 10**6])
def test_arrays_come_back_as_they_were(size: int) -> None:
    """Small ones go through a pipe, large ones do not; the caller may change them."""

    def make(number: int) -> list[Any]:
        table = np.arange(3 * size, dtype=np.int64).reshape(3, size) + number
        return [table, table.T, (np.arange(size, dtype=np.int8), "text", table[:, ::2])]

    for number, (table, turned, (narrow, text, every)) in enumerate(LocalEngine(2).map(make, range(40))):
        expected, other, (shorter, _, some) = make(number)
        for found, wanted in zip((table, turned, narrow, every), (expected, other, shorter, some), strict=True):
            assert found.dtype == wanted.dtype and text == "text"
            np.testing.assert_array_equal(found, wanted)
            found += 1


def test_error_of_a_piece_is_raised_as_it_was() -> None:
    def refuse(number: int) -> int:
        if number >= 50:
            raise UsageError(f"refused {number}")
        return number

    with pytest.raises(UsageError, match="refused 50"):
        list(LocalEngine(2).sum_up(refuse, range(200)))
    assert not multiprocessing.active_children()


def test_a_daemon_starts_no_processes() -> None:
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def sum_up() -> None:
        answers.put([value for value, _ in LocalEngine(2).sum_up(square, range(200))])

    daemon = context.Process(target=sum_up, daemon=True)
    daemon.start()
    assert answers.get() == [n * n for n in range(200)]
    daemon.join()


# ---- beside others ---------------------------------------------------------------------------------------------------


def test_another_process_works_while_this_one_goes_on(tmp_path: Path) -> None:
    def wait_for_file() -> int:
        while not (tmp_path / "file").exists():
            time.sleep(0.01)
        return os.getpid()

    with LocalEngine(2).beside(wait_for_file) as wait:
        (tmp_path / "file").touch()  # the other one waits for this
        process = wait()
    assert process != os.getpid()
    assert not multiprocessing.active_children()


def test_one_worker_does_it_when_asked() -> None:
    with LocalEngine(1).beside(os.getpid) as wait:
        assert wait() == os.getpid()


def test_error_beside_is_raised_as_it_was() -> None:
    def refuse() -> None:
        raise UsageError("refused")

    with pytest.raises(UsageError, match="refused"), LocalEngine(2).beside(refuse) as wait:
        wait()
    assert not multiprocessing.active_children()


def test_one_worker_leaves_the_other_cores_to_a_process_beside() -> None:
    engine = LocalEngine(1, cores=2)
    with engine.beside(os.getpid) as wait:
        assert wait() != os.getpid()
    assert list(engine.sum_up(square, range(100))) == [(n * n, os.getpid()) for n in range(100)]


def test_process_beside_starts_others() -> None:
    with LocalEngine(2).beside(lambda: [os.getpid(), *LocalEngine(2).map(square, range(32))]) as wait:
        beside, *found = wait()
    assert [value for value, _ in found] == [n * n for n in range(32)]
    assert not {os.getpid(), beside} & {process for _, process in found}
    assert not multiprocessing.active_children()


def test_what_cannot_be_started_is_done_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise OSError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(os, "fork", refuse)
    with LocalEngine(2).beside(os.getpid) as wait:
        assert wait() == os.getpid()


def test_process_beside_ends_if_nobody_asks() -> None:
    with pytest.raises(UsageError, match="other"), LocalEngine(2).beside(partial(time.sleep, 600)):
        raise UsageError("other")
    assert not multiprocessing.active_children()


def test_process_beside_that_the_system_ends_is_started_once_more(tmp_path: Path) -> None:
    def end_at_first() -> str:
        if not (tmp_path / "file").exists():
            (tmp_path / "file").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    with LocalEngine(2).beside(end_at_first) as wait:
        assert wait() == "done"
    with (
        pytest.raises(TranslationError, match="lack of memory"),
        LocalEngine(2).beside(lambda: os.kill(os.getpid(), signal.SIGKILL)) as wait_for_nothing,
    ):
        wait_for_nothing()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_process_beside_ends_with_its_parent(tmp_path: Path) -> None:
    """Also if the system ends the parent, and in the middle of the work."""

    def note_and_wait() -> None:
        (tmp_path / "started").write_text(str(os.getpid()))
        (tmp_path / "started").rename(tmp_path / "process")
        time.sleep(600)

    def wait_beside() -> None:
        with LocalEngine(2).beside(note_and_wait) as wait:
            wait()

    parent = multiprocessing.get_context("fork").Process(target=wait_beside)
    parent.start()
    while not (tmp_path / "process").exists():
        time.sleep(0.01)
    process = int((tmp_path / "process").read_text())
    parent.kill()
    parent.join()
    end = time.monotonic() + 60
    while is_running(process) and time.monotonic() < end:
        time.sleep(0.01)
    assert not is_running(process)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
@pytest.mark.parametrize("killed", ["parent", "beside"])
def test_processes_of_a_process_beside_end_with_it(tmp_path: Path, killed: str) -> None:
    """Whichever the system ends: the main process, or the one beside it, twice."""

    def note_and_wait(number: int) -> None:
        (tmp_path / f"new{number}.{os.getpid()}").touch()
        time.sleep(600)

    def start_others() -> None:
        (tmp_path / f"beside.{os.getpid()}").touch()
        list(LocalEngine(2).map(note_and_wait, range(32)))

    def wait_beside() -> None:
        with LocalEngine(2).beside(start_others) as wait:
            try:
                wait()
            except TranslationError:
                (tmp_path / "error").touch()

    def list_processes(pattern: str) -> list[int]:
        return [int(path.suffix[1:]) for path in tmp_path.glob(pattern)]

    parent = multiprocessing.get_context("fork").Process(target=wait_beside)
    parent.start()
    for number in (1,) if killed == "parent" else (1, 2):
        wait_until(lambda number=number: len(list_processes("new*")) == 2 * number)
        if killed == "beside":
            os.kill(next(filter(is_running, list_processes("beside*"))), signal.SIGKILL)
            wait_until(lambda number=number: len(list_processes("beside*")) > number or (tmp_path / "error").exists())
    if killed == "parent":
        parent.kill()
    parent.join()
    assert (tmp_path / "error").exists() == (killed == "beside")
    wait_until(lambda: not any(map(is_running, list_processes("*.*"))))


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(["mpi-4", "ddp-2x2"], push=1))
def test_summaries_of_processes_are_those_of_threads(
    name: str, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = sorted(samples.glob(f"{name}.rank*.sqlite"))
    forked = []

    def fork(*arguments: Any) -> Any:
        forked.append(arguments)
        return run(*arguments)

    run = LocalEngine._fork
    monkeypatch.setattr(LocalEngine, "_fork", fork)
    for file in ("threads.json", "processes.json"):
        nsys2prv_ng.summarize(reports, jobs=2, save=tmp_path / file)
        assert bool(forked) == (file == "processes.json")
        monkeypatch.setattr(parallel, "_LEAST", 1)
    assert (tmp_path / "processes.json").read_bytes() == (tmp_path / "threads.json").read_bytes()
