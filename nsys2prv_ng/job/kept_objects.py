"""Keeps the results of one process in a file for other processes: shards, and the plan of a trace.

The files are pickled and may come from other people. Loading one creates only classes of this package, arrays, tables
and paths.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.runtime.files import open_atomically
from nsys2prv_ng.version import __version__

T = TypeVar("T")

_MAGIC = f"nsys2prv-ng {__version__} keeps\n".encode()


def write_kept(path: Path, value: object) -> None:
    """Write a file that appears complete or not at all. Raises TranslationError."""
    with open_atomically(path) as file:
        file.write(_MAGIC)
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
        file.flush()
        os.fsync(file.fileno())


def load_kept(path: Path, kind: type[T]) -> T:
    """Return the object in a file. Raises ReportError if it is damaged, of another version, or of another kind."""
    try:
        with path.open("rb") as file:
            magic = file.readline(200)
            value = _Unpickler(file).load() if magic == _MAGIC else None
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception:  # unpickling damaged data raises anything
        raise ReportError(f"{path}: is damaged; make it again") from None
    if magic != _MAGIC:
        what = "another version of nsys2prv-ng" if magic.startswith(b"nsys2prv-ng ") else "something else"
        raise ReportError(f"{path}: was written by {what}; remove it and make it again")
    if not isinstance(value, kind):
        raise ReportError(f"{path}: is damaged; make it again")
    return value


class _Pickler(pickle.Pickler):
    """Writes tables as columns, because the pickle format of pandas changes with its version."""

    def persistent_id(self, value: object) -> dict[str, IntArray] | None:
        if not isinstance(value, pd.DataFrame):
            return None
        return {str(name): column.to_numpy() for name, column in value.items()}


class _Unpickler(pickle.Unpickler):
    """Creates instances of classes of this package, arrays, tables and paths, and nothing else."""

    _ROOMS = (
        "clock",
        "job",
        "objects",
        "operations",
        "paraver",
        "records",
        "report",
        "sources",
        "summary",
        "translation",
    )
    _OTHERS = (
        ("numpy", "dtype"),
        ("numpy", "ndarray"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "scalar"),
        ("numpy._core.numeric", "_frombuffer"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy.core.multiarray", "scalar"),
        ("numpy.core.numeric", "_frombuffer"),
        ("pathlib", "PosixPath"),
        ("pathlib", "PurePosixPath"),
        ("pathlib._local", "PosixPath"),
        ("builtins", "set"),
        ("builtins", "frozenset"),
        ("builtins", "slice"),
    )

    def persistent_load(self, columns: dict[str, IntArray]) -> pd.DataFrame:
        return pd.DataFrame(columns)

    def find_class(self, module: str, name: str) -> Any:
        """Return a class that a file may contain. Raises UnpicklingError for any other class."""
        package, _, rest = module.partition(".")
        is_ours = package == "nsys2prv_ng" and rest.partition(".")[0] in self._ROOMS
        found = super().find_class(module, name) if is_ours or (module, name) in self._OTHERS else None
        # A name with dots, or one that the module imports, may lead to a class of another package.
        is_made_here = isinstance(found, type) and (found.__module__, found.__qualname__) == (module, name)
        if found is None or (is_ours and not is_made_here):
            raise pickle.UnpicklingError(f"{module}.{name} is nothing that is kept")
        return found
