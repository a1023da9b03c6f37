"""Pieces of work at once: in threads, or in processes where threads would wait for Python's lock."""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from nsys2prv_ng.errors import TranslationError

Item = TypeVar("Item")
T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class WorkerError(Exception):
    """An error in a process, which no user is to blame for; `__cause__` shows where it was."""


class _TracebackError(Exception):
    """The text of a traceback in another process."""


@dataclass(frozen=True)
class _Done:
    index: int
    answer: Any


@dataclass(frozen=True)
class _Failed:
    index: int
    error: Exception
    where: str = ""


@dataclass(frozen=True)
class Work(Generic[T]):
    """`count` pieces of work. `do(i, tick)` does one, calling `tick(n)` as n more of its steps are done."""

    count: int
    do: Callable[[int, Callable[[int], object]], T]


def run_in_threads(function: Callable[[Item], T], items: Iterable[Item], threads: int) -> Iterator[T]:
    """What a function makes of each item, in their order, of which only a few are at hand at a time."""
    if threads == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[T]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > threads + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def run_in_processes(
    work: Work[T], processes: int, tick: Callable[[int], object], started: Callable[[int], None]
) -> list[T]:
    """What each piece returns, in their order. Each process calls `started` with its number, from 0, before all else.

    Processes are forked: they see what this one has, and only what `do` returns is sent back. Raises the error of the
    first piece that fails, or TranslationError where the system ended a process or can have no more of them; none is
    left running, also where this one is killed.
    """
    running: dict[Connection, BaseProcess] = {}
    try:
        for number in range(processes):
            _start(number, work, started, running)
        return _answers(work.count, running, tick)
    finally:
        _end(running.values())


def _start(
    number: int, work: Work[Any], started: Callable[[int], None], running: dict[Connection, BaseProcess]
) -> None:
    """Add a process to those that are running, by our end of the pipe to it."""
    context = multiprocessing.get_context("fork")
    # A signal between the fork and the new process's own handlers would be handled as by this process.
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        ours, theirs = context.Pipe()
        with theirs:
            process = context.Process(
                target=_serve, args=(number, work, theirs, [ours, *running], started), daemon=True
            )
            process.start()
        running[ours] = process
    except OSError as error:
        raise TranslationError(
            f"cannot start process {number + 1} of those that read reports: {error.strerror or error}; read fewer at"
            " once (-j)"
        ) from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)


def _end(processes: Iterable[BaseProcess]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def _answers(count: int, running: Mapping[Connection, BaseProcess], tick: Callable[[int], object]) -> list[Any]:
    """Give each idle process the next piece until all are done."""
    answers: dict[int, Any] = {}
    failed: list[_Failed] = []
    todo = iter(range(count))
    busy = [pipe for pipe, process in running.items() if _give(pipe, process, todo)]
    while busy:
        for pipe in wait(busy):
            assert isinstance(pipe, Connection)
            try:
                said = pipe.recv()
            except (EOFError, OSError):
                raise _ended(running[pipe]) from None
            if isinstance(said, int):
                tick(said)
                continue
            if isinstance(said, _Failed):
                failed.append(said)
                todo = iter(())  # what is being done may still fail earlier in the order
            else:
                answers[said.index] = said.answer
            if not _give(pipe, running[pipe], todo):
                busy.remove(pipe)
    if failed:
        first = min(failed, key=lambda each: each.index)
        raise first.error from (_TracebackError(first.where) if first.where else None)
    return [answers[index] for index in range(count)]


def _give(pipe: Connection, process: BaseProcess, todo: Iterator[int]) -> bool:
    index = next(todo, None)
    if index is not None:
        try:
            pipe.send(index)
        except OSError:
            raise _ended(process) from None
    return index is not None


def _ended(process: BaseProcess) -> TranslationError:
    """Why a process says no more."""
    process.join()
    code = process.exitcode or 0
    if code == -signal.SIGKILL:
        return TranslationError(
            "the system ended a process that was reading reports, most likely for lack of memory; translate with fewer"
            " at once (-j), or fewer kinds of event (--sources)"
        )
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return TranslationError(f"a process that was reading reports {how}")


def _serve(
    number: int,
    work: Work[Any],
    pipe: Connection,
    not_ours: Iterable[Connection],
    started: Callable[[int], None],
) -> None:
    """What a process does: pieces of work until it is ended, or the one that gives them is gone."""
    # Whoever started this one is told of signals, and ends it.
    for each in _SIGNALS:
        if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN:
            signal.signal(each, signal.SIG_IGN if each == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    # While any process holds the other end of a pipe, this end is not told that whoever started this one is gone.
    for other in not_ours:
        other.close()
    started(number)
    with suppress(EOFError, OSError):
        while True:
            index = pipe.recv()
            try:
                said: _Done | _Failed = _Done(index, work.do(index, pipe.send))
            except Exception as error:
                said = _failed(index, error)
            try:
                pipe.send(said)
            except OSError:
                raise
            except Exception as error:  # what was to be pickled, of which nothing was sent
                pipe.send(_failed(index, error))


def _failed(index: int, error: Exception) -> _Failed:
    if isinstance(error, (TranslationError, MemoryError)):
        return _Failed(index, error)
    # Others may hold what cannot be sent.
    return _Failed(index, WorkerError(f"{type(error).__name__}: {error}"), traceback.format_exc())
