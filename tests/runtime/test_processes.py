"""Work in processes: answers in order, errors as they were, and nobody left behind."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.runtime.processes import Work, WorkerError, run_in_processes


def run(count, do, processes=3, tick=lambda n: None, started=lambda n: None):
    return run_in_processes(Work(count, do), processes, tick, started)


def nobody_is_left():
    return multiprocessing.active_children() == []


@pytest.mark.slow
def test_answers_are_in_order_and_of_several_processes():
    def do(index, tick):
        time.sleep(0.02 * (index % 3))
        return index, os.getpid()

    answers = run(20, do)
    assert [index for index, _ in answers] == list(range(20))
    assert len({pid for _, pid in answers}) == 3 and os.getpid() not in {pid for _, pid in answers}
    assert nobody_is_left()


def test_ticks_and_numbers():
    ticks, place = [], []

    def do(index, tick):
        tick(2)
        tick(index)
        return place[0]

    numbers = run(9, do, tick=ticks.append, started=place.append)
    assert sum(ticks) == 9 * 2 + sum(range(9))
    assert set(numbers) <= {0, 1, 2} and place == []


def test_this_process_does_something_meanwhile():
    begun, done = (multiprocessing.get_context("fork").Event() for _ in range(2))
    here = []

    def do(index, tick):
        begun.set()
        return done.wait(30)

    def meanwhile():
        assert begun.wait(30)
        here.append(os.getpid())
        done.set()

    answers = run_in_processes(Work(4, do), 2, lambda n: None, lambda n: None, meanwhile)
    assert answers == [True] * 4 and here == [os.getpid()]


def test_an_error_meanwhile_leaves_nobody():
    def meanwhile():
        assert len(multiprocessing.active_children()) == 2
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_in_processes(Work(4, lambda index, tick: index), 2, lambda n: None, lambda n: None, meanwhile)
    assert nobody_is_left()


@pytest.mark.slow
def test_more_processes_than_work_and_no_work():
    assert run(1, lambda index, tick: index) == [0]
    assert run(0, lambda index, tick: index) == []


@pytest.mark.parametrize("error", [TranslationError("x.sqlite: broken"), UsageError("no"), MemoryError()])
def test_errors_of_users_are_raised_as_they_are(error):
    def do(index, tick):
        if index == 1:
            raise error
        return index

    with pytest.raises(type(error)) as raised:
        run(5, do)
    assert str(raised.value) == str(error)
    assert nobody_is_left()


@pytest.mark.slow
def test_the_first_of_several_errors_is_raised():
    def do(index, tick):
        time.sleep(0.3 if index == 0 else 0)
        raise TranslationError(f"piece {index}")

    with pytest.raises(TranslationError, match="piece 0"):
        run(3, do)


def test_other_errors_keep_their_traceback():
    def do(index, tick):
        return [][index]

    with pytest.raises(WorkerError, match="IndexError: list index out of range") as raised:
        run(2, do)
    assert "return [][index]" in str(raised.value.__cause__)


def test_a_process_that_the_system_ends():
    def do(index, tick):
        if index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return index

    with pytest.raises(TranslationError, match="lack of memory"):
        run(5, do)
    assert nobody_is_left()


def test_another_process_takes_over_from_one_that_the_system_ends(tmp_path):
    """Each piece whose process is ended once is done by another, under the same number."""
    numbers = []

    def started(number):
        numbers.append(number)

    def do(index, tick):
        once = tmp_path / f"ended{index}"
        if index % 2 and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        tick(1)
        return index, numbers

    ticks = []
    answers = run(6, do, processes=2, tick=ticks.append, started=started)
    assert [index for index, _ in answers] == list(range(6))
    assert {number for _, own in answers for number in own} <= {0, 1}
    assert sum(ticks) == 6
    assert nobody_is_left()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "how"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGUSR1), f"signal {int(signal.SIGUSR1)}$"),
        (lambda: os._exit(3), "exit code 3$"),
    ],
)
def test_a_process_that_ends_otherwise(end, how):
    with pytest.raises(TranslationError, match=how):
        run(2, lambda index, tick: end())
    assert nobody_is_left()


@pytest.mark.slow
def test_a_process_that_ends_before_it_takes_its_work():
    """Whether the piece is sent before or after it has ended."""
    for pause in (0, 0.2):

        def started(number):
            os.kill(os.getpid(), signal.SIGKILL)

        def tick(n, pause=pause):
            time.sleep(pause)

        with pytest.raises(TranslationError, match="lack of memory"):
            run(3, lambda index, tick: index, tick=tick, started=started)


@pytest.mark.slow
def test_a_process_that_ends_in_the_middle_of_its_answer(tmp_path):
    """It fills the pipe while nobody reads: the answer is cut where the process is killed, and made again."""

    def do(index, tick):
        if index:
            time.sleep(1)  # until the tick of the other piece keeps the reader busy
            if not (tmp_path / "ended").exists():
                (tmp_path / "ended").touch()
                threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
            return bytes(10**8)
        tick(1)

    assert run(2, do, processes=2, tick=lambda n: time.sleep(3)) == [None, bytes(10**8)]


@pytest.mark.slow
def test_an_answer_that_cannot_be_sent():
    class Unsendable:
        def __reduce__(self):
            raise kind("too large")

    for kind in (MemoryError, ValueError):
        with pytest.raises(WorkerError if kind is ValueError else kind, match="too large"):
            run(2, lambda index, tick: Unsendable())


def test_no_more_processes(monkeypatch):
    """As with a limit of processes or open files: those that were started are ended, and signals come again."""
    fork, forks = os.fork, []

    def limited():
        forks.append(1)
        if len(forks) == 3:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", limited)
    with pytest.raises(TranslationError, match=r"process 3: .*temporarily unavailable.*see jobs"):
        run(5, lambda index, tick: index)
    assert nobody_is_left()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()


@pytest.mark.slow
@pytest.mark.parametrize("busy", [False, True])
def test_processes_end_when_the_one_that_started_them_is_killed(busy):
    """Idle or in the middle of their work."""
    ours, theirs = multiprocessing.Pipe()
    parent = os.fork()
    if not parent:

        def do(index, tick):
            theirs.send(os.getpid())
            while busy or index == 0:
                tick(1)
                time.sleep(0.01)

        run(3, do)
        os._exit(0)
    try:
        pids = {ours.recv() for _ in range(3)}
        time.sleep(0.2)
    finally:
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
    until = time.monotonic() + 10
    while any(map(is_running, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    assert [pid for pid in pids if is_running(pid)] == []


def is_running(pid):
    """Whether there is such a process that is not waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_interrupt_ends_all():
    class InterruptError(Exception):
        pass

    def interrupt(number, frame):
        raise InterruptError

    def do(index, tick):
        tick(1)
        time.sleep(60)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(InterruptError):
            run(3, do, tick=lambda n: os.kill(os.getpid(), signal.SIGUSR1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert nobody_is_left()
