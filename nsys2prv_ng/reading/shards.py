"""Writes and loads shards: reports that were read into a folder once, by any number of processes and machines.

A shard is a file of columns and a manifest. The manifest describes the layout of that file and contains everything else
from the report. It appears last and complete, so a shard either exists or does not. Its name follows from the report,
from the options for reading and from the version of this program, so no report is read twice.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import get_origin

from nsys2prv_ng.errors import ReportError, TranslationError, UsageError
from nsys2prv_ng.reading.kept_objects import load_kept, make_damaged_error, write_kept
from nsys2prv_ng.reading.read_report import read_report
from nsys2prv_ng.reading.read_reports import ReadReport, read_each
from nsys2prv_ng.records.folder_store import SHELF, FolderStore
from nsys2prv_ng.report.export_all import locate_exports
from nsys2prv_ng.report.files import get_report_size
from nsys2prv_ng.report.formats import get_report_name
from nsys2prv_ng.runtime.files import lock_beside, open_input, remove_abandoned, resolve_links
from nsys2prv_ng.runtime.processes import Work
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.registry import DERIVED, SOURCES, WITH_EVIDENCE
from nsys2prv_ng.sources.shared.source import Result, Source
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from nsys2prv_ng.text.formatting import count_noun
from nsys2prv_ng.value_class import ValueClass
from nsys2prv_ng.version import __version__

ENDING = ".shard"
_JOIN_DATA = {source.name: source.join_data for source in SOURCES + DERIVED if source.join_data is not None}
_OPEN_TYPES = tuple(_JOIN_DATA.values())
_SAMPLES, _BLOCK = 64, 1 << 12
"""Number of blocks, and bytes of each, that identify a report."""


class WhatToRead(ValueClass):
    """What is read from each report of a job.

    `finds_waits`: whether the user wants to know which ranks wait for which.
    """

    sources: tuple[str, ...]
    source_options: SourceOptions
    finds_waits: bool

    @property
    def read_sources(self) -> tuple[Source, ...]:
        return tuple(source for source in SOURCES + DERIVED if source.name in self.sources)


class Shard(ValueClass):
    """A report that was read, and the options for reading it.

    `origin`: the report's path with links resolved, and without the ending, which differs between its exports.
    `columns`: name of its file of columns; empty if it has none. `size`: bytes of that file.
    """

    report: ReadReport
    options: WhatToRead
    origin: Path
    columns: str
    size: int


def write_shard(
    report: Path, folder: Path, options: WhatToRead, tick: Callable[[int], object] = lambda _: None
) -> Path:
    """Read a report into a folder unless its shard is there; return the path of its manifest.

    `tick` is called with 1 for each source. Raises TranslationError (including ReportError).
    """
    key = _make_key(report, options)
    manifest = folder / f"{key}{ENDING}"
    if _is_sound(manifest):
        tick(len(options.sources))
        return manifest
    with lock_beside(manifest):  # its columns are either held by who writes them, or named by a sound manifest
        if not _is_sound(manifest):
            remove_abandoned(folder.glob(f"{escape(key)}-{'[0-9a-f]' * 8}{SHELF}"))
    store = FolderStore(folder, f"{key}-{secrets.token_hex(4)}")
    try:
        (export,) = locate_exports([report], folder, Progress(), 1)
        read = read_report(export, options.read_sources, options.source_options, store, tick, WITH_EVIDENCE)
        real = resolve_links(report)
        shard = Shard(read, options, real.with_name(get_report_name(real)), *store.get_file())
        with lock_beside(manifest):
            if _is_sound(manifest):  # another process was faster
                store.abandon()
            else:
                store.close()
                write_kept(manifest, shard, _OPEN_TYPES)
    except BaseException:
        store.abandon()
        raise
    return manifest


def _load(manifest: Path) -> Shard:
    """Load the manifest of a shard. Raises ReportError."""
    shard = load_kept(manifest, Shard, _OPEN_TYPES)
    results, places = shard.report.results, len(shard.report.places.all)
    runs = [run for result in results.values() for run in result.runs]
    has_results = results.keys() >= set(shard.options.sources) and all(map(_has_its_join_data, results.items()))
    if not has_results or not all(run.is_sound(places) for run in runs):
        raise make_damaged_error(manifest)
    return shard


def _has_its_join_data(item: tuple[str, Result]) -> bool:
    """Return whether the join data of a source, if there is any, has the type that the source declares."""
    name, result = item
    declared = _JOIN_DATA.get(name, ())
    return result.join_data is None or isinstance(result.join_data, get_origin(declared) or declared)


def _is_sound(manifest: Path) -> bool:
    """Return whether a shard looks complete, without reading all of it."""
    try:
        shard = _load(manifest)
        return not shard.columns or (manifest.parent / shard.columns).stat().st_size == shard.size
    except (ReportError, OSError):
        return False


def write_shards(
    reports: Sequence[Path], folder: Path, options: WhatToRead, progress: Progress, jobs: int
) -> list[Path]:
    """Read reports into a folder, up to `jobs` at once; return their manifests. Raises the errors of `write_shard`.

    Raises UsageError if the folder contains reports that were read with other options.
    """
    for manifest in find_shards([folder]):
        with suppress(ReportError):
            if _load(manifest).options != options:
                raise UsageError(f"{folder}: holds reports that were read with other options; choose another folder")
            break
    with progress.step(
        f"reading {count_noun(len(reports), 'report')}", len(reports) * len(options.sources), "source"
    ) as step:

        def write(index: int, tick: Callable[[int], object]) -> Path:
            return write_shard(reports[index], folder, options, tick)

        return read_each(Work(len(reports), write), jobs, step.update)


def find_shards(reports: Sequence[Path]) -> list[Path]:
    """Return the manifests of a folder that was given instead of reports; none if reports were given.

    Raises UsageError for reports beside such a folder.
    """
    folders = [path for path in reports if path.is_dir() and any(path.glob(f"*{ENDING}"))]
    if folders and len(reports) > 1:
        raise UsageError(f"{folders[0]}: holds reports that were read before; name nothing beside it")
    return sorted(folders[0].glob(f"*{ENDING}")) if folders else []


def load_shards(manifests: Sequence[Path]) -> list[Shard]:
    """Load shards. Raises TranslationError if one is damaged, of the same report as another, or has other options."""
    shards = [_load(manifest) for manifest in manifests]
    known: dict[Path, Path] = {}
    for shard, manifest in zip(shards, manifests, strict=True):
        other = known.setdefault(shard.origin, manifest)
        if other is not manifest:
            older, newer = sorted((other, manifest), key=lambda path: path.stat().st_mtime_ns)
            raise TranslationError(f"{older}: holds the same report as {newer.name}: remove the older one")
        if shard.options != shards[0].options:
            raise TranslationError(
                f"{manifest}: was read with other options than {manifests[0].name}; read all reports alike, into an"
                " empty folder"
            )
    return shards


def _make_key(report: Path, options: WhatToRead) -> str:
    """Return the name of a shard."""
    try:
        changed = max((file.stat().st_mtime_ns for file in (report, *_list_files(report))), default=0)
    except OSError:
        changed = 0
    content = report.name, get_report_size(report), changed, _sample_content(report), options, __version__
    name = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in get_report_name(report))
    return f"{name.lstrip('.')[:80]}-{hashlib.sha256(repr(content).encode()).hexdigest()[:16]}"


def _list_files(report: Path) -> list[Path]:
    return sorted(report.iterdir()) if report.is_dir() else []


def _sample_content(report: Path) -> str:
    """Return a hash of some blocks of a report: reports in different folders may agree in name, size and time."""
    sampled = hashlib.sha256()
    for path in _list_files(report) or [report]:
        try:
            with open_input(path) as file:
                size = file.seek(0, os.SEEK_END)
                for number in range(_SAMPLES):
                    file.seek(max(0, size - _BLOCK) * number // (_SAMPLES - 1))
                    sampled.update(file.read(_BLOCK))
        except OSError:  # reading the report shows why
            continue
    return sampled.hexdigest()
