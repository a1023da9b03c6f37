"""Does pieces of work on the workers of a Dask cluster, which may be the nodes of a job.

The input of a piece goes through a file in a folder that all workers share, and its output stays in files there: the
scheduler and the network carry only names and small numbers.
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
"""Empty file in a folder that an engine made."""
_WAIT, _WAIT_IN_QUEUE = 60, 3600
"""Seconds to wait for the first worker: a job may wait in a queue."""
_MOST_DEATHS = 3
"""Dask does not try a piece again after its workers died this often (`allowed-failures`)."""


class DaskEngine(Engine):
    """Workers of a cluster. The end of this context manager removes the folder, unless it stays after an error.

    Another worker replaces a worker that dies, and does its pieces again.
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

        `where`: its address, the file that it wrote (*.json), or SLURM to start `jobs` jobs with the configuration of
        dask-jobqueue. `folder`: is made; its parent is on a file system that all workers share. `note`: is called with
        messages for the user. `wait`: seconds until the first worker must be there. Raises UsageError if it cannot
        connect.
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
        except Exception as error:  # Dask raises errors of many types
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
        """Pickle as an engine with one thread: a worker does not split a piece of work further."""
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
        # A worker keeps what it loaded under this name, even for the next run in a folder with the same name.
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
    """Make a folder, or take over the folder of an earlier run. Raises UsageError for any other existing folder.

    The folder is removed at the end, and workers run the code in it.
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
    """Do one piece of work on a worker. Return errors: Dask would print them, and send them as they are."""
    try:
        do, items = _load(piece)
        return do(items[number])
    except Exception as error:
        return make_failure(error)


@lru_cache(1)
def _load(piece: str) -> tuple[Callable[[Any], Any], list[Any]]:
    """Return the content of a file of pieces; a worker loads each file once."""
    do, items = pickle.loads(Path(piece).read_bytes())
    return do, items
