"""Runs pieces of work in parallel: in threads, in processes if threads would wait for the GIL, or on other machines."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from multiprocessing import current_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, NoReturn, Protocol, TypeVar, cast

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.runtime.limits import KEPT_BY_WORKER, keep_freed_memory
from nsys2prv_ng.value_class import ValueClass

Item = TypeVar("Item")
T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class WorkerError(Exception):
    """Error in a process that is not the user's fault; `__cause__` shows where it occurred."""


class _TracebackError(Exception):
    """Text of a traceback in another process."""


class Failure(ValueClass):
    """Error of a piece of work, in a form that can be sent to another process."""

    error: Exception
    where: str = ""
    """Text of its traceback if it is not the user's fault."""

    def throw(self) -> NoReturn:
        """Raise the error."""
        raise self.error from (_TracebackError(self.where) if self.where else None)


class Work(ValueClass, Generic[T]):
    """`count` pieces of work. `do(i, tick)` does piece i and calls `tick(n)` when n more of its steps are done."""

    count: int
    do: Callable[[int, Callable[[int], object]], T]


def run_in_threads(function: Callable[[Item], T], items: Iterable[Item], threads: int) -> Iterator[T]:
    """Yield the result of a function for each item, in order; only a few results are in memory at once."""
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
    work: Work[T],
    processes: int,
    tick: Callable[[int], object],
    started: Callable[[int], None],
    meanwhile: Callable[[], object] = lambda: None,
) -> list[T]:
    """Return the results of all pieces, in order. Each process first calls `started` with its number, from 0.

    Processes are forked: they see the memory of this process, and only what `do` returns is sent back. This process
    first calls `meanwhile`, which must be short: no process gets its second piece before it ends. If the system
    ends a process, another process takes over its number and its piece of work, once for each piece. Raises the error
    of the first piece that fails, or TranslationError if the system ends its process again or cannot start one. No
    process is left running, even if this one is killed.
    """
    pool = _Pool(work, started)
    try:
        for number in range(processes):
            pool.start(number)
        pool.begin()
        meanwhile()
        return pool.collect_answers(tick)
    finally:
        _end(pool.running.values())


@contextmanager
def run_beside(function: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Call a function in a process of its own while this one goes on; yield a function that waits for its result.

    Waiting also raises its errors. The process is forked like those of `run_in_processes`, and ends with the context.
    """

    def work(_: int, tick: object) -> T:
        keep_freed_memory()  # only one process does such work
        return function()

    pool = _Pool(Work(1, work), lambda _: gc.freeze())
    try:
        pool.start(0)
    except TranslationError:  # no process can be started: it is done when it is asked for
        yield function
        return
    try:
        pool.begin()
        yield lambda: pool.collect_answers(lambda _: None)[0]
    finally:
        _end(pool.running.values())


class _Pool(Generic[T]):
    """Pool of processes that do pieces of work."""

    def __init__(self, work: Work[T], started: Callable[[int], None]) -> None:
        self.work, self._started = work, started
        self.running: dict[Connection, BaseProcess] = {}
        self._numbers: dict[Connection, int] = {}
        self._piece: dict[Connection, int] = {}
        """Piece that each busy process works on."""
        self._todo = deque(range(work.count))
        self._repeated: set[int] = set()

    def start(self, number: int) -> Connection:
        """Start a process and return this end of the pipe to it."""
        context = multiprocessing.get_context("fork")
        # A signal after the fork, before the new process sets its handlers, would run the handlers of this process.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            ours, theirs = context.Pipe()
            with theirs:
                arguments = (number, self.work, theirs, [ours, *self.running], self._started)
                process = context.Process(target=_serve, args=arguments, daemon=True)
                process.start()
            self.running[ours], self._numbers[ours] = process, number
            return ours
        except OSError as error:
            raise TranslationError(
                f"cannot start process {number + 1}: {error.strerror or error}; read fewer reports at once",
                see=("jobs",),
            ) from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)

    def begin(self) -> None:
        """Give each process its first piece."""
        for pipe in list(self.running):
            self._give(pipe)

    def collect_answers(self, tick: Callable[[int], object]) -> list[T]:
        """Give each idle process the next piece until all are done; return the answers in the order of the pieces."""
        answers: dict[int, T] = {}
        failures: dict[int, Failure] = {}
        while self._piece:
            for pipe in cast(list[Connection], wait(list(self._piece))):
                try:
                    message = pipe.recv()
                except (EOFError, OSError):
                    self._replace(pipe)
                    continue
                if isinstance(message, int):
                    tick(message)
                    continue
                index, answer = message
                if isinstance(answer, Failure):
                    failures[index] = answer
                    self._todo.clear()  # a running piece that is earlier in the order may still fail
                else:
                    answers[index] = answer
                del self._piece[pipe]
                self._give(pipe)
        if failures:
            failures[min(failures)].throw()
        return [answers[index] for index in range(self.work.count)]

    def _give(self, pipe: Connection) -> None:
        """Give a process the next piece, if there is one."""
        if self._todo:
            self._piece[pipe] = self._todo.popleft()
            try:
                pipe.send(self._piece[pipe])
            except OSError:
                self._replace(pipe)

    def _replace(self, pipe: Connection) -> None:
        """Let another process do the piece of a process that ended. Raises TranslationError if this happens twice."""
        piece, ended = self._piece.pop(pipe), self.running.pop(pipe)
        pipe.close()
        if piece in self._repeated:
            raise _make_end_error(ended)
        ended.join()
        self._repeated.add(piece)
        self._todo.appendleft(piece)
        self._give(self.start(self._numbers.pop(pipe)))


def _end(processes: Iterable[BaseProcess]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def _make_end_error(process: BaseProcess) -> TranslationError:
    """Return the error for a process that ended."""
    process.join()
    code = process.exitcode or 0
    if code == -signal.SIGKILL:
        return TranslationError(
            "the system ended a process of this program, most likely for lack of memory; read fewer reports at once, or"
            " select fewer sources",
            see=("jobs", "sources"),
        )
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return TranslationError(f"a process of this program {how}")


def _serve(
    number: int, work: Work[Any], pipe: Connection, not_ours: Iterable[Connection], started: Callable[[int], None]
) -> None:
    """Do pieces of work until this process is ended, or its parent is gone."""
    # The parent process gets the signals, and ends this one.
    for signum in _SIGNALS:
        if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:
            ignored = signum == signal.SIGINT
            signal.signal(signum, signal.SIG_IGN if ignored else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    # While any process has the other end of a pipe open, this end does not notice that the parent is gone.
    for other in not_ours:
        other.close()
    _end_with_parent()
    keep_freed_memory(KEPT_BY_WORKER)
    started(number)
    ticks = _Ticks(pipe)
    with suppress(EOFError, OSError):
        while True:
            index = pipe.recv()
            try:
                answer = work.do(index, ticks.add)
            except Exception as error:
                answer = make_failure(error)
            ticks.send()
            try:
                pipe.send((index, answer))
            except OSError:
                raise
            except Exception as error:  # the answer cannot be pickled, and nothing of it was sent
                pipe.send((index, make_failure(error)))


_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """Let Linux end this process with its parent, even in the middle of a piece that takes a minute."""
    with suppress(OSError, AttributeError):  # elsewhere it ends after its piece
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


_TICK = 0.05
"""Least time (s) between two messages on progress: each wakes up this process and its parent."""


class _Ticks:
    """Counts the steps that a process has done, and now and then sends their number to its parent.

    Steps that are done soon after a message are sent with the next one.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._done, self._sent = pipe, 0, 0.0

    def add(self, done: int) -> None:
        self._done += done
        if time.monotonic() - self._sent > _TICK:
            self.send()

    def send(self) -> None:
        if self._done:
            self._pipe.send(self._done)
        self._done, self._sent = 0, time.monotonic()


def make_failure(error: Exception) -> Failure:
    """Return the error that is being handled in a form that can always be sent."""
    if isinstance(error, (TranslationError, MemoryError)):
        return Failure(error)
    return Failure(WorkerError(f"{type(error).__name__}: {error}"), traceback.format_exc())


class Engine(Protocol):
    """What does pieces of work. A piece has no effects but its result and the columns that it stores."""

    @property
    def workers(self) -> int:
        """Number of pieces that are done at once; each may have the records of one report in memory."""

    @property
    def cores(self) -> int:
        """Number of cores of this machine that a piece in this process may use."""

    @property
    def folder(self) -> Path | None:
        """Folder that all workers share; None if they are processes on this machine."""

    def map(self, do: Callable[[Item], T], items: Iterable[Item]) -> Iterator[T]:
        """Yield `do(item)` for each item, in the order of the items. Raises the error of the first piece that fails."""

    def sum_up(self, do: Callable[[Item], T], items: Sequence[Item]) -> Iterator[T]:
        """Yield the same as `map`, for pieces that store nothing and return no more than their caller keeps anyway.

        The results of all pieces may be in memory at once. After an error, all pieces may have been worked on.
        """

    def beside(self, do: Callable[[], T]) -> AbstractContextManager[Callable[[], T]]:
        """Yield a function that returns `do()`; call it once.

        The engine may already work on it: `do` must store nothing, and its result must be one that can be pickled.
        """

    def share(self) -> Engine:
        """Return an engine with half of the workers, for work that is done beside other work."""


_FEWEST_FOR_PROCESSES = 16
"""Fewest pieces for each process: a process starts within 0.1 s, and loads the compiled functions that it calls."""


class LocalEngine(ValueClass):
    """Threads of this process, or processes to sum up many pieces, and for a piece beside others.

    Small reports are summed up mostly in Python, where threads would wait for the GIL.
    """

    workers: int
    cores: int = 0
    """Cores to use; 0 for as many as there are workers, which may be fewer, for lack of reports or memory."""

    folder = None

    def __post_init__(self) -> None:
        self.cores = self.cores or self.workers

    def map(self, do: Callable[[Item], T], items: Iterable[Item]) -> Iterator[T]:
        return run_in_threads(do, items, self.workers)

    def sum_up(self, do: Callable[[Item], T], items: Sequence[Item]) -> Iterator[T]:
        if self.workers == 1 or len(items) < _FEWEST_FOR_PROCESSES * self.workers or not self._may_fork():
            return self.map(do, items)
        work = Work(len(items), lambda index, _: do(items[index]))
        return iter(run_in_processes(work, self.workers, lambda _: None, lambda _: gc.freeze()))

    def beside(self, do: Callable[[], T]) -> AbstractContextManager[Callable[[], T]]:
        return run_beside(do) if self._may_fork() else nullcontext(do)

    def share(self) -> LocalEngine:
        return replace(self, workers=max(1, self.workers // 2))

    def _may_fork(self) -> bool:
        """Return whether to start processes. If so, numba is ready for them."""
        if self.cores == 1 or current_process().daemon:  # a daemon may start no process
            return False
        from nsys2prv_ng.runtime.machine_code import load_numba  # without it, this module does not import numba

        load_numba()
        return True
