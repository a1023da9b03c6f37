"""Where the pieces of a job are worked on: in this process and its children, or on other machines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from nsys2prv_ng.runtime.parallel import run_in_threads

Item = TypeVar("Item")
T = TypeVar("T")


class Engine(ABC):
    """Does pieces of work. A piece changes nothing that others see: what it returns and puts into a store counts."""

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many pieces are worked on at a time; each may have one report's records in memory."""

    @property
    def folder(self) -> Path | None:
        """A folder that all workers share; None where they are processes of this machine."""
        return None

    @abstractmethod
    def map(self, do: Callable[[Item], T], items: Iterable[Item]) -> Iterator[T]:
        """Yield `do(item)` of each item, in their order. Raises the error of the first piece that fails."""


class LocalEngine(Engine):
    """Threads of this process."""

    def __init__(self, workers: int, folder: Path | None = None) -> None:
        """`folder`: where what the pieces make stays, for other processes."""
        self._workers, self._folder = workers, folder

    @property
    def workers(self) -> int:
        return self._workers

    @property
    def folder(self) -> Path | None:
        return self._folder

    def map(self, do: Callable[[Item], T], items: Iterable[Item]) -> Iterator[T]:
        return run_in_threads(do, items, self._workers)
