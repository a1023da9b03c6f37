"""Does pieces of work in forked processes, which may be killed at any time, and which end with this one."""

from __future__ import annotations

import ctypes
import gc
import mmap
import multiprocessing
import os
import pickle
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import accumulate
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar, cast

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.runtime.limits import KEPT_BY_WORKER, allow_more_files, keep_freed_memory
from nsys2prv_ng.value_class import ValueClass

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_ends: set[Connection] = set()
"""Open ends of the pipes to the processes that this one started, and to the one that started it."""


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


def run_in_processes(
    work: Work[T],
    processes: int,
    tick: Callable[[int], object],
    started: Callable[[int], object],
    meanwhile: Callable[[], object] = lambda: None,
    *,
    may_fork: bool = False,
) -> list[T]:
    """Return the results of all pieces, in order. Each process first calls `started` with its number, from 0.

    Processes are forked: they see the memory of this process, and only what `do` returns is sent back. This process
    first calls `meanwhile`, which must be short: no process gets its second piece before it ends. If the system
    ends a process, another process takes over its number and its piece of work, once for each piece. Raises the error
    of the first piece that fails, or TranslationError if the system ends its process again or cannot start one. No
    process is left running, even if this one is killed. `may_fork`: the processes may start others.
    """
    return list(yield_from_processes(work, processes, work.count, tick, started, meanwhile, may_fork=may_fork))


def yield_from_processes(
    work: Work[T],
    processes: int,
    ahead: int,
    tick: Callable[[int], object],
    started: Callable[[int], object],
    meanwhile: Callable[[], object] = lambda: None,
    *,
    may_fork: bool = False,
) -> Iterator[T]:
    """Yield the results that `run_in_processes` returns: no piece begins more than `ahead` pieces too early."""
    pool = _Pool(work, started, may_fork=may_fork)
    try:
        for number in range(processes):
            pool.start(number)
            pool.hand_out(ahead)  # to fork a process of 1 GB takes 10 ms, in which the first ones may already work
        meanwhile()
        yield from pool.yield_answers(tick, ahead)
    finally:
        pool.end()


@contextmanager
def run_beside(function: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Call a function in a process of its own while this one goes on; yield a function that waits for its result.

    Waiting also raises its errors. The process is forked like those of `run_in_processes`, and ends with the context.
    It may start processes itself, which end with it.
    """

    def work(_: int, tick: object) -> T:
        keep_freed_memory()  # only one process does such work
        return function()

    pool = _Pool(Work(1, work), lambda _: gc.freeze(), may_fork=True)
    try:
        pool.start(0)
    except TranslationError:  # no process can be started: it is done when it is asked for
        yield function
        return
    try:
        pool.hand_out(1)
        yield lambda: next(pool.yield_answers(lambda _: None, 1))
    finally:
        pool.end()


class _Pool(Generic[T]):
    """Pool of processes that do pieces of work."""

    def __init__(self, work: Work[T], started: Callable[[int], object], *, may_fork: bool = False) -> None:
        self.work, self._started, self._may_fork = work, started, may_fork
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
            _ends.add(ours)
            with theirs:
                arguments = (number, self.work, theirs, self._started)
                process = context.Process(target=_serve, args=arguments, daemon=not self._may_fork)
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

    def hand_out(self, limit: int) -> None:
        """Give each idle process the next piece, if it is below a limit."""
        for pipe in list(self.running):
            if pipe not in self._piece and self._todo and self._todo[0] < limit:
                self._piece[pipe] = self._todo.popleft()
                try:
                    pipe.send(self._piece[pipe])
                except OSError:
                    self._replace(pipe)

    def yield_answers(self, tick: Callable[[int], object], ahead: int) -> Iterator[T]:
        """Yield the answers in the order of the pieces, of which none begins more than `ahead` pieces too early."""
        answers: dict[int, T] = {}
        failures: dict[int, Failure] = {}
        done = 0
        self.hand_out(ahead)
        while self._piece:
            for pipe in cast(list[Connection], wait(list(self._piece))):
                try:
                    message = _receive(pipe)
                except (EOFError, OSError, RuntimeError):  # the last if it was about to send a descriptor
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
            self.hand_out(done + ahead)
            while done in answers:
                yield answers.pop(done)
                done += 1
                self.hand_out(done + ahead)
        if failures:
            failures[min(failures)].throw()

    def _replace(self, pipe: Connection) -> None:
        """Let another process do the piece of a process that ended. Raises TranslationError if this happens twice."""
        piece, ended = self._piece.pop(pipe), self.running.pop(pipe)
        _close(pipe)
        if piece in self._repeated:
            raise _make_end_error(ended)
        ended.join()
        self._repeated.add(piece)
        self._todo.appendleft(piece)
        self.start(self._numbers.pop(pipe))
        self.hand_out(piece + 1)

    def end(self) -> None:
        """End all processes."""
        for process in self.running.values():
            process.terminate()
        for pipe, process in self.running.items():
            process.join()
            _close(pipe)


def _close(pipe: Connection) -> None:
    _ends.discard(pipe)
    pipe.close()


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


def _serve(number: int, work: Work[Any], pipe: Connection, started: Callable[[int], object]) -> None:
    """Do pieces of work until this process is ended, or its parent is gone."""
    # The parent process gets the signals, and ends this one.
    for signum in _SIGNALS:
        if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:
            ignored = signum == signal.SIGINT
            signal.signal(signum, signal.SIG_IGN if ignored else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    # While any process has the other end of a pipe open, this end does not notice that the parent is gone.
    for other in _ends:
        other.close()
    _ends.clear()
    _ends.add(pipe)
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
                _send(pipe, (index, answer))
            except OSError:
                raise
            except Exception as error:  # the answer cannot be pickled, and nothing of it was sent
                pipe.send((index, make_failure(error)))


_LEAST_APART, _ALIGNED = 1 << 16, 64
"""Least bytes of an array that does not go through the pipe, and multiple of its first byte in the memory for it."""


class _Parcel(NamedTuple):
    """An answer without its large arrays. They are in memory whose descriptor follows: first bytes and sizes."""

    content: bytes
    arrays: list[tuple[int, int]]


def _send(pipe: Connection, answer: object) -> None:
    """Send an answer; large arrays are in memory that the receiver maps: a pipe takes a second for 0.2 GB."""
    large: list[memoryview] = []

    def keep_small(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes >= _LEAST_APART:
            large.append(view)
        return view.nbytes < _LEAST_APART

    content = pickle.dumps(answer, 5, buffer_callback=keep_small)
    if not large:
        pipe.send_bytes(content)
        return
    at = list(accumulate((-(-view.nbytes // _ALIGNED) * _ALIGNED for view in large), initial=0))
    try:
        descriptor = os.memfd_create("answer")
    except (AttributeError, OSError):  # only Linux has it, and the number of descriptors is limited
        pipe.send(answer)
        return
    try:
        os.ftruncate(descriptor, at[-1])
        for low, view in zip(at, large, strict=False):
            done = 0
            while done < view.nbytes:
                done += os.pwrite(descriptor, view[done:], low + done)
        pipe.send(_Parcel(content, [(low, view.nbytes) for low, view in zip(at, large, strict=False)]))
        reduction.send_handle(pipe, descriptor, None)
    finally:
        os.close(descriptor)


def _receive(pipe: Connection) -> Any:
    """Return the next message. Raises EOFError, OSError or RuntimeError if its sender has ended."""
    message = pipe.recv()
    if not isinstance(message, _Parcel):
        return message
    allow_more_files()  # each map has one
    descriptor = reduction.recv_handle(pipe)
    try:
        content = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY))
    finally:
        os.close(descriptor)
    return pickle.loads(message.content, buffers=[content[at : at + size] for at, size in message.arrays])


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
