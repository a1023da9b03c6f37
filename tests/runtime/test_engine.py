"""An engine of this machine sums up many small pieces in processes, and gives what threads give."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import nsys2prv_ng
from nsys2prv_ng.errors import TranslationError, UsageError
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


def test_one_report_leaves_the_other_cores_to_a_process_beside() -> None:
    engine = LocalEngine(1, cores=2)
    with engine.beside(os.getpid) as wait:
        assert wait() != os.getpid()
    assert list(engine.sum_up(square, range(100))) == [(n * n, os.getpid()) for n in range(100)]


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
    calls = []

    def count_processes(*arguments: Any) -> Any:
        calls.append(arguments)
        return run_in_processes(*arguments)

    import_module("nsys2prv_ng.reading.read_reports")  # which reads in processes, and keeps its name for the function
    run_in_processes = parallel.run_in_processes
    monkeypatch.setattr(parallel, "run_in_processes", count_processes)
    for file in ("threads.json", "processes.json"):
        nsys2prv_ng.summarize(reports, jobs=2, save=tmp_path / file)
        assert bool(calls) == (file == "processes.json")
        monkeypatch.setattr(parallel, "_FEWEST_FOR_PROCESSES", 0)
    assert (tmp_path / "processes.json").read_bytes() == (tmp_path / "threads.json").read_bytes()
