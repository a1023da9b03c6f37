"""Engines, which do pieces of work in parallel: on this machine in threads or processes, or on other machines."""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from multiprocessing import current_process
from pathlib import Path
from typing import Protocol, TypeVar

from nsys2prv_ng.runtime.processes import Work, run_beside, yield_from_processes
from nsys2prv_ng.value_class import ValueClass

Item = TypeVar("Item")
T = TypeVar("T")

_pools: set[int] = set()
"""Pools of threads of this process that are at work: a process that is forked meanwhile may find locks held."""

os.register_at_fork(after_in_child=_pools.clear)


def run_in_threads(function: Callable[[Item], T], items: Iterable[Item], threads: int) -> Iterator[T]:
    """Yield the result of a function for each item, in order; only a few results are in memory at once."""
    if threads == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        _pools.add(id(pool))
        try:
            waiting: deque[Future[T]] = deque()
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > threads + 1:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown()
            _pools.discard(id(pool))


class Engine(Protocol):
    """What does pieces of work. A piece has no effects but its result and the columns that it stores."""

    @property
    def workers(self) -> int:
        """Number of pieces that may be done at once; each may have the records of one report in memory."""

    @property
    def cores(self) -> int:
        """Number of cores of this machine that a piece in this process may use."""

    @property
    def folder(self) -> Path | None:
        """Folder that all workers share; None if they are processes on this machine."""

    def map(self, do: Callable[[Item], T], items: Iterable[Item]) -> Iterator[T]:
        """Yield `do(item)` for each item, in the order of the items. Raises the error of the first piece that fails.

        No more than a few results per worker are in memory at once. After an error, later pieces may have been done.
        """

    def sum_up(self, do: Callable[[Item], T], items: Sequence[Item]) -> Iterator[T]:
        """Yield the same as `map`, for pieces that store nothing and return no more than their caller keeps anyway.

        The results of all pieces may be in memory at once.
        """

    def beside(self, do: Callable[[], T]) -> AbstractContextManager[Callable[[], T]]:
        """Yield a function that returns `do()`; call it once.

        The engine may already work on it: `do` must store nothing, and its result must be one that can be pickled.
        """

    def limit(self, workers: int) -> Engine:
        """Return an engine with at most this number of workers here, for pieces that take much memory."""


_FEWEST, _LEAST = 16, 150 << 20
"""Fewest pieces, or least bytes of reports, for each process: it starts within 0.1 s, and loads compiled functions."""


class LocalEngine(ValueClass):
    """Processes of this machine, or threads of this process for few pieces or small reports.

    Small reports are worked on mostly in Python, where threads would wait for the GIL, and large ones take much memory,
    of which the kernel gives a process pages for one thread at a time.
    """

    workers: int
    cores: int = 0
    """Cores to use; 0 for as many as there are workers, which may be fewer, for lack of memory."""
    size: int = 0
    """Bytes of all reports: pieces of work go through all of them."""
    lend_shelves: Callable[[int], AbstractContextManager[Callable[[int], object]]] = lambda _: nullcontext(lambda _: 0)
    """`LocalStore.lend_shelves` of the store in which pieces put columns."""

    folder = None

    def __post_init__(self) -> None:
        self.cores = self.cores or self.workers

    def map(self, do: Callable[[Item], T], items: Iterable[Item]) -> Iterator[T]:
        each = list(items)
        processes = self._count_processes(len(each))
        return self._fork(do, each, processes, 2 * processes) if processes > 1 else self._run_here(do, each)

    def sum_up(self, do: Callable[[Item], T], items: Sequence[Item]) -> Iterator[T]:
        processes = self._count_processes(len(items))
        return self._fork(do, items, processes, len(items)) if processes > 1 else self._run_here(do, items)

    def beside(self, do: Callable[[], T]) -> AbstractContextManager[Callable[[], T]]:
        return run_beside(do) if self._may_fork() else nullcontext(do)

    def limit(self, workers: int) -> LocalEngine:
        return replace(self, workers=max(1, min(self.workers, workers)))

    def _run_here(self, do: Callable[[Item], T], items: Sequence[Item]) -> Iterator[T]:
        return run_in_threads(do, items, 1 if _is_worker() else max(1, min(self.workers, len(items))))

    def _fork(self, do: Callable[[Item], T], items: Sequence[Item], processes: int, ahead: int) -> Iterator[T]:
        """Yield the results of pieces that processes do."""
        with self.lend_shelves(processes) as take_shelf:

            def start(number: int) -> None:
                gc.freeze()
                take_shelf(number)

            work = Work(len(items), lambda index, _: do(items[index]))
            yield from yield_from_processes(work, processes, ahead, lambda _: None, start)

    def _count_processes(self, pieces: int) -> int:
        """Return how many processes to start for some pieces; 1 or less for none."""
        processes = min(self.workers, pieces, max(pieces // _FEWEST, self.size // _LEAST))
        return processes if processes > 1 and self._may_fork() else 1

    def _may_fork(self) -> bool:
        """Return whether to start processes. If so, numba is ready for them."""
        if self.cores == 1 or _is_worker() or _pools:
            return False
        from nsys2prv_ng.runtime.machine_code import load_numba  # without it, this module does not import numba

        load_numba()
        return True


def _is_worker() -> bool:
    """Return whether this process does pieces of another, beside as many others as there are cores."""
    return current_process().daemon
