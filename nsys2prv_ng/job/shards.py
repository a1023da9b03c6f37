"""Shards: reports that were read into a folder, once and for all, by any number of processes and machines.

A shard is a file of columns, and a manifest that says what is where in it and what else the report holds. The manifest
appears last and as a whole, so that a shard is there or is not. Its name follows from the report, from what was to be
read of it and from the version of this program: what has been read is not read again.

Manifests are pickled. They may come from other people: only classes of this package and arrays are made of them.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.errors import ReportError, TranslationError, UsageError
from nsys2prv_ng.job.read_reports import ReadReport, read_report
from nsys2prv_ng.records.store import FolderStore
from nsys2prv_ng.report.files import get_report_name, get_report_size, locate_exports
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources import DERIVED, SOURCES, WITH_EVIDENCE
from nsys2prv_ng.sources.shared.source import Source
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from nsys2prv_ng.version import __version__

ENDING = ".shard"
_MAGIC = f"nsys2prv-ng {__version__} shard\n".encode()


@dataclass(frozen=True)
class ShardOptions:
    """What is read of each report."""

    sources: tuple[str, ...]
    source_options: SourceOptions
    finds_waits: bool
    """Whether the user wants to know who waits for whom."""

    @property
    def read_sources(self) -> tuple[Source, ...]:
        return tuple(source for source in SOURCES + DERIVED if source.name in self.sources)


@dataclass(frozen=True)
class Shard:
    """A report that was read, and how."""

    report: ReadReport
    options: ShardOptions


def write_shard(
    report: Path, folder: Path, options: ShardOptions, tick: Callable[[int], object] = lambda _: None
) -> Path:
    """Read a report into a folder unless that was done before; return the path of its manifest.

    `tick` is called with 1 for each source. Raises TranslationError (ReportError among them).
    """
    key = _make_key(report, options)
    manifest = folder / f"{key}{ENDING}"
    if manifest.exists():
        tick(len(options.sources))
        return manifest
    store = FolderStore(folder, f"{key}-{secrets.token_hex(4)}")
    try:
        (export,) = locate_exports([report], folder, Progress(), 1)
        read = read_report(export, options.read_sources, options.source_options, store, tick, WITH_EVIDENCE)
        store.close()
        _write_manifest(manifest, Shard(read, options))
    except BaseException:
        store.abandon()
        raise
    return manifest


def find_shards(reports: Sequence[Path]) -> list[Path]:
    """Return the manifests of a folder, if this is what was given instead of reports; none if reports were given.

    Raises UsageError for reports beside such a folder.
    """
    folders = [path for path in reports if path.is_dir() and any(path.glob(f"*{ENDING}"))]
    if folders and len(reports) > 1:
        raise UsageError(f"{folders[0]}: holds reports that were read before; name nothing beside it")
    return sorted(folders[0].glob(f"*{ENDING}")) if folders else []


def load_shards(manifests: Sequence[Path]) -> list[Shard]:
    """Return shards. Raises TranslationError where one is damaged, or where they were not read alike."""
    shards = [_load_manifest(manifest) for manifest in manifests]
    for shard, manifest in zip(shards, manifests, strict=True):
        if shard.options != shards[0].options:
            raise TranslationError(
                f"{manifest}: was read with other options than {manifests[0].name}; read all reports alike"
            )
    return shards


def _make_key(report: Path, options: ShardOptions) -> str:
    """Return the name of a shard."""
    try:
        changed = max((file.stat().st_mtime_ns for file in (report, *_list_files(report))), default=0)
    except OSError:
        changed = 0
    content = report.name, get_report_size(report), changed, options, __version__
    name = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in get_report_name(report))
    return f"{name.lstrip('.')[:80]}-{hashlib.sha256(repr(content).encode()).hexdigest()[:16]}"


def _list_files(report: Path) -> list[Path]:
    return list(report.iterdir()) if report.is_dir() else []


def _write_manifest(manifest: Path, shard: Shard) -> None:
    temporary = manifest.with_name(f".{manifest.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(_MAGIC)
            _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(shard)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(manifest)
    except OSError as error:
        raise TranslationError(f"{manifest}: cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _load_manifest(manifest: Path) -> Shard:
    try:
        with manifest.open("rb") as file:
            magic = file.readline(len(_MAGIC) + 80)
            shard = _Unpickler(file).load() if magic == _MAGIC else None
    except OSError as error:
        raise ReportError(f"{manifest}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # unpickling what is damaged raises anything
        raise ReportError(f"{manifest}: is damaged ({type(error).__name__}); read its report again") from None
    if magic != _MAGIC:
        what = "another version of this program" if magic.startswith(b"nsys2prv-ng ") else "something else"
        raise ReportError(f"{manifest}: was written by {what}; read its report again")
    if not isinstance(shard, Shard):
        raise ReportError(f"{manifest}: is damaged; read its report again")
    return shard


class _Pickler(pickle.Pickler):
    """Writes tables as their columns: what pandas makes of them changes with its version."""

    def persistent_id(self, value: object) -> dict[str, IntArray] | None:
        if not isinstance(value, pd.DataFrame):
            return None
        return {str(name): column.to_numpy() for name, column in value.items()}


class _Unpickler(pickle.Unpickler):
    """Makes instances of the classes of this package, arrays, tables and paths, and nothing else."""

    _ROOMS = ("clock", "job", "objects", "operations", "paraver", "records", "report", "sources")
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
        """Return a class that manifests hold. Raises UnpicklingError for any other."""
        package, _, rest = module.partition(".")
        is_own = package == "nsys2prv_ng" and rest.partition(".")[0] in self._ROOMS
        found = super().find_class(module, name) if is_own or (module, name) in self._OTHERS else None
        if found is None or (is_own and not isinstance(found, type)):
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a shard")
        return found
