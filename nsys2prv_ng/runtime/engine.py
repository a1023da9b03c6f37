"""Defines where the pieces of a job are done: in this process and its children, or on other machines."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from multiprocessing import current_process
from pathlib import Path
from typing import Protocol, TypeVar

from nsys2prv_ng.runtime.parallel import Work, run_beside, run_in_processes, run_in_threads
from nsys2prv_ng.value_class import ValueClass

Item = TypeVar("Item")
T = TypeVar("T")


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
    folder: Path | None = None
    """Where the output of the pieces stays for other processes."""
    cores: int = 0
    """Cores to use; 0 for as many as there are workers, which may be fewer, for lack of reports or memory."""

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
