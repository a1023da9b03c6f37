"""Does pieces of work on the workers of a Dask cluster, which may be the nodes of a job.

The input of a piece goes through a file in a folder that all workers share, and its output stays in files there: the
scheduler and the network carry only names and small numbers. A run may leave the folder for the next run.

One run works in a folder at a time: it has locked the mark in it, and the system removes the lock with the process. A
folder appears with its locked mark, and vanishes with it. Where a file system has no locks, runs share the folder.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pickle
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, TypeVar

from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.runtime.parallel import LocalEngine
from nsys2prv_ng.runtime.processes import Failure, make_failure

Item = TypeVar("Item")
T = TypeVar("T")

_WAIT = 60
"""Seconds to wait for a worker while there is none."""
_LOOK = 1
"""Seconds to wait for an answer before looking whether there are workers."""
_MOST_DEATHS = 3
"""Dask does not try a piece again after its workers died this often (`allowed-failures`)."""


class DaskEngine:
    """Workers of a cluster. The end of this context manager removes the folder, unless it stays after an error.

    Another worker replaces a worker that dies, and does its pieces again. If none is left, new ones have some time to
    come.
    """

    def __init__(
        self,
        where: str,
        folder: Path,
        *,
        stays_after_error: bool = False,
        note: Callable[[str], object] = lambda _: None,
        wait: float | None = None,
    ) -> None:
        """Connect to a scheduler.

        `where`: its address, or the file that it wrote (*.json). `folder`: is made; its parent is on a file system that
        all workers share. While another run works there, this one has a folder of its own beside it, which does not
        stay. `note`: is called with messages for the user. `wait`: seconds that there may be no worker. Raises
        UsageError if it cannot connect.
        """
        self._where, self._note = where, note
        self._wait = wait or _WAIT
        self._opened = ExitStack()
        try:
            self._client = self._connect(where, self._wait)
            if not self._client.nthreads():
                self._note_wait()
            self._client.wait_for_workers(1, timeout=self._wait)
            self._folder, self._lock = take_folder(folder.absolute())
        except UsageError:
            self._opened.close()
            raise
        except Exception as error:  # Dask raises errors of many types
            self._opened.close()
            reason = " ".join(str(error).split()) or "it is not a scheduler"
            if isinstance(error, OSError):
                reason += "; start its scheduler and workers"
            raise UsageError(f"no worker can be reached: {reason}", parameter="dask", value=where) from None
        has_wanted = self._folder == folder.absolute()
        self._stays_after_error = stays_after_error and has_wanted
        if not has_wanted:
            note(f"{folder}: another run works there; this one works in {self._folder.name}")

    def _note_wait(self) -> None:
        self._note(f"waiting for workers of {self._where}, {self._wait:g} s at most")

    def _connect(self, where: str, wait: float) -> Any:
        try:
            import distributed
        except ImportError:
            raise UsageError("needs Dask: pip install 'nsys2prv-ng[cluster]'", parameter="dask", value=where) from None
        self._opened.enter_context(_silence_dask())
        address = _read_address(where) if where.endswith(".json") else where
        try:
            distributed.comm.get_address_host_port(address)
        except ValueError as error:
            raise ValueError(f"{error}; an address is like tcp://node01:8786") from None
        return self._opened.enter_context(distributed.Client(address, timeout=min(wait, 10)))

    def __enter__(self) -> DaskEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._opened.close()
        if kind is None or not self._stays_after_error:
            remove_folder(self._folder)
        self._lock.close()

    def __reduce__(self) -> tuple[type[LocalEngine], tuple[int]]:
        """Pickle as an engine with one thread: a worker does not split a piece of work further."""
        return LocalEngine, (1,)

    @property
    def workers(self) -> int:
        with self._report_loss():
            return max(1, self._count_threads())

    @property
    def cores(self) -> int:
        return 1

    def _count_threads(self) -> int:
        return sum(self._client.nthreads().values())

    @property
    def folder(self) -> Path:
        return self._folder

    def map(self, do: Callable[[Item], T], items: Iterable[Item]) -> Iterator[T]:
        import cloudpickle

        each = list(items)
        if not each:
            return
        # A worker keeps what it loaded under this name, even for the next run in a folder with the same name.
        piece = self._folder / f"pieces-{secrets.token_hex(8)}.pickle"
        try:
            piece.write_bytes(cloudpickle.dumps((do, each)))
        except OSError as error:
            raise TranslationError(f"{piece}: cannot be written: {error.strerror or error}") from None
        futures: list[Any] = []
        try:
            with self._report_loss():
                futures += self._client.map(_do, range(len(each)), piece=str(piece), pure=False)
            for number, future in enumerate(futures):
                with self._report_loss():
                    answer = self._wait_for(future)
                futures[number] = None
                if isinstance(answer, Failure):
                    answer.throw()
                yield answer
        finally:
            with suppress(Exception):  # a scheduler that is gone has forgotten them
                self._client.cancel([future for future in futures if future is not None])
            piece.unlink(missing_ok=True)

    def sum_up(self, do: Callable[[Item], T], items: Sequence[Item]) -> Iterator[T]:
        return self.map(do, items)

    def beside(self, do: Callable[[], T]) -> AbstractContextManager[Callable[[], T]]:
        return nullcontext(do)  # it also maps, which only this process can do

    def limit(self, workers: int) -> DaskEngine:
        return self

    def _wait_for(self, future: Any) -> Any:
        """Return the result of a future. Raises TranslationError if there is no worker for too long."""
        from distributed import TimeoutError as NotYet

        gone_since = None
        while True:
            with suppress(NotYet):
                return future.result(timeout=_LOOK)
            if self._count_threads():
                gone_since = None
            elif gone_since is None:
                gone_since = time.monotonic()
                self._note_wait()
            elif time.monotonic() - gone_since > self._wait:
                raise TranslationError(
                    f"{self._where}: all workers are gone, and none came within {self._wait:g} s; start workers again,"
                    f" then this command{self._describe_rest()}"
                )

    @contextmanager
    def _report_loss(self) -> Iterator[None]:
        """Turn Dask's errors into TranslationError."""
        from concurrent.futures import CancelledError

        from distributed import KilledWorker
        from distributed.client import ClosedClientError

        try:
            yield
        except KilledWorker:
            raise TranslationError(
                f"workers ended {_MOST_DEATHS} times or more at the same piece of work, most likely for lack of memory;"
                " give each more of it, or select fewer sources",
                see=("sources",),
            ) from None
        except (CancelledError, ClosedClientError, OSError):
            raise TranslationError(
                f"{self._where}: the connection to the Dask scheduler is lost; start it and its workers again, then"
                f" this command{self._describe_rest()}"
            ) from None

    def _describe_rest(self) -> str:
        return ", which goes on with the reports that were read" if self._stays_after_error else ""


@contextmanager
def _silence_dask() -> Iterator[None]:
    """Keep Dask's log from the terminal: its errors are raised here, and printed once.

    Importing `distributed` gives some of its loggers levels of their own.
    """
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def _read_address(file: str) -> str:
    """Return the address in a file that a scheduler wrote. Raises ValueError."""
    remedy = "dask scheduler --scheduler-file writes it"
    if not Path(file).is_file():
        raise ValueError(f"there is no such file; {remedy}")
    try:
        address = json.loads(Path(file).read_bytes())["address"]
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from None
    except (ValueError, LookupError, TypeError, RecursionError):
        address = None
    if not isinstance(address, str):
        raise ValueError(f"no scheduler wrote this file, as it names no address; {remedy}")
    return address


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


_MARK = ".nsys2prv-ng"
"""Empty file in a folder that a run made."""


def take_folder(wanted: Path) -> tuple[Path, IO[bytes]]:
    """Make a folder, or take over that of an earlier run; return it and its mark, which is locked until it is closed.

    While another run works there, return a new folder beside it. Raises UsageError for any other existing folder: the
    folder is removed at the end, and workers run the code in it.
    """
    own = name_new_folder(wanted.parent)
    try:
        own.mkdir(mode=0o700)
        own_mark = _lock(own / _MARK)
        assert own_mark is not None, "no other run knows this name"
        folder, mark = _claim(wanted, own, own_mark)
    except OSError as error:
        shutil.rmtree(own, ignore_errors=True)
        raise UsageError(f"{wanted}: cannot be made: {error.strerror or error}") from None
    except UsageError:
        shutil.rmtree(own, ignore_errors=True)
        raise
    if mark is not own_mark:
        own_mark.close()
        shutil.rmtree(own, ignore_errors=True)
    return folder, mark


def remove_folder(folder: Path) -> None:
    """Remove a folder that this run has taken."""
    with suppress(OSError):  # no other run may find it without its mark
        folder = folder.rename(name_new_folder(folder.parent))
    shutil.rmtree(folder, ignore_errors=True)


def name_new_folder(parent: Path) -> Path:
    """Return a path that no other run has."""
    return parent / f".nsys2prv-ng.{os.getpid()}.{secrets.token_hex(4)}.parts"


def _claim(wanted: Path, own: Path, own_mark: IO[bytes]) -> tuple[Path, IO[bytes]]:
    """Return the wanted folder and its mark, or a run's new folder and mark while another run has the wanted one.

    The new folder gets the wanted name if that is free.
    """
    while True:
        if not os.path.lexists(wanted):
            with suppress(FileExistsError):
                _rename_new(own, wanted)
                return wanted, own_mark
        with suppress(FileNotFoundError):  # the other run has just removed it
            left = _take_over(wanted)
            return (own, own_mark) if left is None else (wanted, left)


def _rename_new(own: Path, wanted: Path) -> None:
    """Rename a folder. Raises FileExistsError if another run was faster."""
    try:
        own.rename(wanted)
    except OSError:
        if os.path.lexists(wanted):
            raise FileExistsError from None
        raise


def _take_over(folder: Path) -> IO[bytes] | None:
    """Return the locked mark of a folder; None while another run works there."""
    mark = folder / _MARK
    if not mark.exists() and os.path.lexists(folder):
        raise UsageError(f"{folder}: no earlier run left it, and it would be removed; rename it")
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise UsageError(f"{folder}: others may write there, and workers run what is in it; remove it")
    lock = _lock(mark)
    if lock is not None and not os.path.samestat(os.fstat(lock.fileno()), mark.stat()):
        lock.close()
        raise FileNotFoundError  # another run has removed this folder, and a third one has made it again
    return lock


def _lock(mark: Path) -> IO[bytes] | None:
    """Make a mark if there is none, and lock it; return None if another run has locked it."""
    file = mark.open("ab")  # over NFS, only a file that is open for writing can be locked
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError:  # this file system has no locks
        pass
    return file
