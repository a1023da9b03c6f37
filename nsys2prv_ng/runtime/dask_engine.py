"""Pieces of work on the workers of a Dask cluster, which may be the nodes of a job.

What a piece needs goes through a file in a folder that all workers share, and what it makes stays in files there: the
scheduler and the network carry names and small numbers only.
"""

from __future__ import annotations

import logging
import os
import pickle
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.runtime.engine import Engine, LocalEngine
from nsys2prv_ng.runtime.parallel import Failure, make_failure

Item = TypeVar("Item")
T = TypeVar("T")

SLURM = "slurm"
_MARK = ".nsys2prv-ng"
"""An empty file in a folder that an engine made."""
_WAIT, _WAIT_IN_QUEUE = 60, 3600
"""Seconds to wait for the first worker: a job may be in a queue."""
_MOST_DEATHS = 3
"""A piece whose workers died this often is not tried again (Dask's `allowed-failures`)."""


class DaskEngine(Engine):
    """The workers of a cluster. A context manager: its end removes the folder, unless that stays after an error.

    A worker that dies is replaced by another: its pieces are worked on again.
    """

    def __init__(
        self,
        where: str,
        folder: Path,
        jobs: int | None = None,
        *,
        stays_after_error: bool = False,
        note: Callable[[str], object] = lambda _: None,
        wait: float | None = None,
    ) -> None:
        """Connect to a scheduler.

        `where`: its address, the file that it wrote (*.json), or SLURM to start `jobs` jobs by dask-jobqueue, as its
        configuration says. `folder`: is made; its parent is on a file system that all workers share. `note`: gets
        what the user should know. `wait`: seconds until the first worker must be there. Raises UsageError where that
        fails.
        """
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # an error is raised here, and printed once
        wait = wait or (_WAIT_IN_QUEUE if where == SLURM else _WAIT)
        self._opened = ExitStack()
        self._folder = folder.absolute()
        self._stays_after_error = stays_after_error
        try:
            self._client = self._connect(where, jobs, wait)
            if not self._client.nthreads():
                note(f"waiting for workers of {where}, {wait:g} s at most")
            self._client.wait_for_workers(1, timeout=wait)
            _take_folder(self._folder)
        except UsageError:
            self._opened.close()
            raise
        except Exception as error:  # Dask raises many kinds
            self._opened.close()
            reason = " ".join(str(error).split()) or "it is no scheduler"
            raise UsageError(f"no worker can be reached: {reason}", parameter="dask", value=where) from None

    def _connect(self, where: str, jobs: int | None, wait: float) -> Any:
        try:
            import distributed
        except ImportError:
            raise UsageError("needs Dask: pip install 'nsys2prv-ng[cluster]'", parameter="dask", value=where) from None
        if where == SLURM:
            try:
                from dask_jobqueue import SLURMCluster
            except ImportError:
                raise UsageError(
                    "needs dask-jobqueue: pip install 'nsys2prv-ng[cluster]'", parameter="dask", value=where
                ) from None
            cluster = self._opened.enter_context(SLURMCluster())
            cluster.scale(jobs=jobs or 1)
            return self._opened.enter_context(distributed.Client(cluster, timeout=wait))
        if where.endswith(".json"):
            if not Path(where).is_file():
                raise ValueError("there is no such file; dask scheduler --scheduler-file writes it")
            return self._opened.enter_context(distributed.Client(scheduler_file=where, timeout=wait))
        return self._opened.enter_context(distributed.Client(where, timeout=min(wait, 10)))

    def __enter__(self) -> DaskEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.close()
        if kind is None or not self._stays_after_error:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __reduce__(self) -> tuple[type[LocalEngine], tuple[int]]:
        """Send one thread instead: a piece of work on a worker is not split further."""
        return LocalEngine, (1,)

    @property
    def workers(self) -> int:
        return max(1, sum(self._client.nthreads().values()))

    @property
    def folder(self) -> Path:
        return self._folder

    def map(self, do: Callable[[Item], T], items: Iterable[Item]) -> Iterator[T]:
        from concurrent.futures import CancelledError

        import cloudpickle
        from distributed import KilledWorker

        each = list(items)
        if not each:
            return
        # A worker keeps what it loaded under this name, also for the next run in a folder of the same name.
        piece = self._folder / f"pieces-{secrets.token_hex(8)}.pickle"
        try:
            piece.write_bytes(cloudpickle.dumps((do, each)))
        except OSError as error:
            raise TranslationError(f"{piece}: cannot be written: {error.strerror or error}") from None
        futures = self._client.map(_do, range(len(each)), piece=str(piece), pure=False)
        try:
            for number, future in enumerate(futures):
                answer = future.result()
                futures[number] = None
                if isinstance(answer, Failure):
                    answer.throw()
                yield answer
        except KilledWorker:
            raise TranslationError(
                f"workers ended {_MOST_DEATHS} times or more at the same piece of work, most likely for lack of memory;"
                " give each more of it, or select fewer sources",
                see=("sources",),
            ) from None
        except (CancelledError, OSError):
            raise TranslationError(
                "the connection to the Dask scheduler is lost; start it and its workers again, then this command, which"
                " goes on with the reports that were read"
            ) from None
        finally:
            if self._client.status == "running":
                self._client.cancel([future for future in futures if future is not None])
            piece.unlink(missing_ok=True)


def _take_folder(folder: Path) -> None:
    """Make a folder, or take that of a run which was ended. Raises UsageError for what is of another origin.

    It is removed at the end, and workers run what is in it.
    """
    mark = folder / _MARK
    try:
        if not folder.exists():
            folder.mkdir(mode=0o700)
            mark.touch()
        status = folder.stat()
        if not mark.exists():
            raise UsageError(f"{folder}: no earlier run left it, and it would be removed; rename it")
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise UsageError(f"{folder}: others may write there, and workers run what is in it; remove it")
    except OSError as error:
        raise UsageError(f"{folder}: cannot be made: {error.strerror or error}") from None


def _do(number: int, piece: str) -> Any:
    """Do one piece of work; runs on a worker. Errors are returned: Dask would print them, and send them as they are."""
    try:
        do, items = _load(piece)
        return do(items[number])
    except Exception as error:
        return make_failure(error)


@lru_cache(1)
def _load(piece: str) -> tuple[Callable[[Any], Any], list[Any]]:
    """Return what a file of pieces holds; a worker loads each once."""
    do, items = pickle.loads(Path(piece).read_bytes())
    return do, items
