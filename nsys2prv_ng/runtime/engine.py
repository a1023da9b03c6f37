"""Defines where the pieces of a job are done: in this process and its children, or on other machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from nsys2prv_ng.runtime.parallel import run_in_threads

Item = TypeVar("Item")
T = TypeVar("T")


class Engine(Protocol):
    """What does pieces of work. A piece has no effects but its result and the columns that it stores."""

    @property
    def workers(self) -> int:
        """Number of pieces that are done at once; each may have the records of one report in memory."""

    @property
    def folder(self) -> Path | None:
        """Folder that all workers share; None if they are processes on this machine."""

    def map(self, do: Callable[[Item], T], items: Iterable[Item]) -> Iterator[T]:
        """Yield `do(item)` for each item, in the order of the items. Raises the error of the first piece that fails."""


@dataclass(frozen=True)
class LocalEngine:
    """Threads of this process."""

    workers: int
    folder: Path | None = None
    """Where the output of the pieces stays for other processes."""

    def map(self, do: Callable[[Item], T], items: Iterable[Item]) -> Iterator[T]:
        return run_in_threads(do, items, self.workers)
