"""Translates the reports of a job into one trace: opens the job, plans the trace, writes its slices and its result.

Slices are written one after the other, or as parts that many machines write.
"""

from __future__ import annotations

import json
import mmap
import os
import secrets
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise, starmap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.job.open_job import Job, open_job
from nsys2prv_ng.paraver.files import list_trace_files
from nsys2prv_ng.paraver.output import TraceOutput, refuse_in_the_way
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.files import open_atomically, resolve_links, write_atomically
from nsys2prv_ng.runtime.limits import Resources, give_back_freed_memory
from nsys2prv_ng.runtime.parallel import Engine
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.translation.plan_trace import TracePlan, TranslationPlan, plan_trace
from nsys2prv_ng.translation.result import TranslationResult
from nsys2prv_ng.translation.slices import Slices, make_slice

if TYPE_CHECKING:
    from nsys2prv_ng.replay.changes import Change
    from nsys2prv_ng.replay.what_if import Experiment


def translate(
    reports: Sequence[Path],
    output: Path,
    plan: TranslationPlan = TranslationPlan(),  # noqa: B008 (is frozen)
    progress: Progress = Progress(),  # noqa: B008 (has no state)
) -> TranslationResult:
    """Write the trace of some reports, or of a folder of shards; return the counts of events read, written and dropped.

    Raises TranslationError (including UsageError) with one line for the user. Nothing is then left under `output`,
    unless a file besides the trace cannot be written.
    """
    started = time.perf_counter()
    check_files(reports, output, plan)
    with TraceOutput(output, force=plan.force) as trace, open_job(reports, output.parent, plan, progress) as job:
        planned = plan_trace(job, output, plan)
        size = write_planned(trace, planned, job, plan, progress)
    for warning in planned.facts.warnings:
        progress.warn(warning)
    file_size, seconds = output.stat().st_size if output.is_file() else size, time.perf_counter() - started
    result = TranslationResult(
        **vars(planned.facts), output=str(output), bytes=size, file_bytes=file_size, seconds=seconds
    )
    if plan.align_report is not None:
        write_atomically(plan.align_report, result.clocks.toml())
    if plan.stats is not None:
        write_atomically(plan.stats, json.dumps(result.to_dict(), indent=2) + "\n")
    return result


def check_files(reports: Sequence[Path], output: Path, plan: TranslationPlan) -> None:
    """Refuse files that could not or must not be written, before anything is read.

    Not even `force` replaces an input, a file of the trace or anything in a report that is a folder. Raises UsageError
    and TranslationError.
    """
    trace = list_trace_files(output)
    read = set(map(resolve_links, reports))
    for file in trace:
        if resolve_links(file) in read:
            raise UsageError(f"{file}: is a report, which the trace would replace; choose another name for the trace")
    inputs = [path for path in (plan.labels_from, plan.align) if isinstance(path, Path)]
    used = read | set(map(resolve_links, [*inputs, *trace]))
    folders = {path for path in used if path.is_dir()}
    for file in [path for path in (plan.stats, plan.align_report) if path is not None]:
        real = resolve_links(file)
        if real in used or real.parent in folders:
            raise UsageError(f"{file}: is a report or a file of the trace itself; choose another name")
        used.add(real)
        if not file.parent.is_dir():
            raise UsageError(f"{file.parent}: no such folder; create it or choose another place for {file.name}")
        if not os.access(file.parent, os.W_OK | os.X_OK):
            raise TranslationError(
                f"{file}: cannot be written: no permission to write to the folder; choose another place"
            )
        refuse_in_the_way(file, force=plan.force)


def write_prediction(
    experiment: Experiment, changes: Sequence[Change], output: Path, plan: TranslationPlan, progress: Progress
) -> None:
    """Write the predicted trace, whose application is named so. `plan`: as for the trace of the job itself."""
    from nsys2prv_ng.replay.predicted_job import predict_job  # a translation needs no replay

    time = experiment.predict_times(changes)
    with TraceOutput(output, force=plan.force) as trace:
        job = predict_job(experiment.model, time)
        note = f": prediction with {' and '.join(map(str, changes))}"
        write_planned(trace, plan_trace(job, output, plan, note), job, plan, progress)


# ---- texts and slices ------------------------------------------------------------------------------------------------


def write_planned(trace: TraceOutput, planned: TracePlan, job: Job, plan: TranslationPlan, progress: Progress) -> int:
    """Write the trace of a job; return the bytes of the text of its .prv."""
    trace.write_text("pcf", planned.pcf)
    trace.write_text("row", planned.row)
    trace.write_header(planned.header)
    give_back_freed_memory()
    return write_slices(trace, planned.slices, job.store, job.engine, plan.resources, progress)


# ---- slices ----------------------------------------------------------------------------------------------------------


_COPIED = 1 << 24
"""Maximum number of bytes to copy at once."""

_PARTS_PER_WORKER = 4
"""Parts for each worker: enough that no worker waits long for the last part."""

_MOST_IN_PART = 1 << 19
"""Records of a part that is held until the size of those before it is known, and bytes of their text."""

_TEXT_BYTES = 64
"""Bytes of the text of a record, mostly."""

_LOOK = 0.0005
"""Seconds to wait before looking again whether the place of a part is known."""


class Part(NamedTuple):
    """Consecutive slices in a file of their own: bytes of their text before compression, and of the file."""

    text_size: int
    size: int


def write_slices(
    trace: TraceOutput, slices: Slices, store: Store, engine: Engine, resources: Resources, progress: Progress
) -> int:
    """Write all slices to the .prv; return the number of bytes of their text.

    If the workers of the engine share a folder, each worker writes slices into parts there and then copies parts to
    their places in the .prv. Otherwise each writes parts to their places, as soon as it knows what comes before them.
    """
    records = int(slices.records.sum())
    if engine.folder is None:
        engine = engine.limit(resources.memory // (slices.memory + _TEXT_BYTES * _MOST_IN_PART))
    ends = split_slices(slices, max(_PARTS_PER_WORKER * engine.workers, records // _MOST_IN_PART))
    chosen = list(starmap(range, pairwise(ends)))
    with progress.step(f"writing {trace.path}", records, "record") as step:

        def note(done: Iterable[Part]) -> list[Part]:
            parts = []
            for part, numbers in zip(done, chosen, strict=True):
                parts.append(part)
                step.update(int(slices.records[numbers.start : numbers.stop].sum()))
            return parts

        if engine.folder is None:
            places = _Places(trace.header_size, len(chosen))
            in_place = engine.map(
                lambda n: write_in_place(trace, places, n, slices, chosen[n], store), range(len(chosen))
            )
            return sum(part.text_size for part in note(in_place))
        run = secrets.token_hex(4)  # parts that other runs left or still write there do not have it
        paths = [engine.folder / f"part{number:05}-{run}.prv" for number in range(len(chosen))]
        # Workers get what these functions use, so neither uses the trace.
        parts = note(
            engine.map(lambda item: write_part(slices, item[0], store, item[1]), zip(chosen, paths, strict=True))
        )
        target, offsets = trace.temporary.absolute(), trace.reserve([part.size for part in parts])
        for _ in engine.map(lambda item: place_part(item[0], target, item[1]), zip(paths, offsets, strict=True)):
            pass
        return sum(part.text_size for part in parts)


def split_slices(slices: Slices, parts: int) -> list[int]:
    """Return the limits of about `parts` groups of consecutive slices with about equally many records."""
    before = np.cumsum(slices.records)
    if not before.size:
        return [0]
    wanted = before[-1] * np.arange(1, parts) // max(1, parts)
    limits: list[int] = np.unique(np.append(1 + before.searchsorted(wanted), [0, len(slices)])).tolist()
    return [limit for limit in limits if limit <= len(slices)]


class _Places:
    """Where the parts of a file begin that threads or forked processes make at the same time: one after the other.

    Memory that they share has the first byte of each part; 0 if it is not known yet, and -1 if it never will be.
    """

    def __init__(self, begin: int, parts: int) -> None:
        self._begins = np.frombuffer(mmap.mmap(-1, 8 * (parts + 1)), np.int64)
        self._begins[0] = begin

    def find(self, part: int) -> int:
        """Return where a part begins; 0 if that is not known."""
        return max(0, int(self._begins[part]))

    def wait_for(self, part: int) -> int:
        """Return where a part begins, as soon as those before it have ends. Raises TranslationError if one failed."""
        while not (begin := int(self._begins[part])):
            time.sleep(_LOOK)  # a lock would stay locked if the system ended a process
        if begin < 0:
            raise TranslationError("what comes before it could not be written")
        return begin

    def set_end(self, part: int, end: int) -> None:
        self._begins[part + 1] = end


def write_in_place(
    trace: TraceOutput, places: _Places, part: int, slices: Slices, chosen: Sequence[int], store: Store
) -> Part:
    """Write slices of a part to their place in the .prv; those after it wait until its size is known, or it fails."""
    held: list[bytes] = []
    text_size = at = size = 0
    try:
        for number in chosen:
            text = make_slice(slices, number, store)
            text_size += text.size
            size += sum(len(piece) for piece in text.parts)
            at = at or places.find(part)
            if at:
                at, held = _write_all(trace, [*held, *text.parts], at), []
            else:
                held += map(bytes, text.parts)  # without the room that was left behind the text
        begin = places.wait_for(part)
    except BaseException:
        places.set_end(part, -1)
        raise
    places.set_end(part, begin + size)
    _write_all(trace, held, at or begin)
    return Part(text_size, size)


def _write_all(trace: TraceOutput, pieces: Sequence[bytes | memoryview], at: int) -> int:
    """Write pieces one after the other from a byte of the .prv; return the byte after them."""
    for piece in pieces:
        at = trace.write_prv(piece, at)
    return at


def write_part(slices: Slices, chosen: Sequence[int], store: Store, path: Path) -> Part:
    """Write slices into a file, which appears complete or not at all."""
    text_size = 0
    with open_atomically(path) as file:
        for number in chosen:
            text = make_slice(slices, number, store)
            text_size += text.size
            for piece in text.parts:
                file.write(piece)
        size = file.tell()
    return Part(text_size, size)


def place_part(part: Path, target: Path, offset: int) -> None:
    """Copy a part to its place in a file and remove it. May be repeated: a copied part is not copied again."""
    placed = part.with_suffix(".placed")
    try:
        if not placed.exists():
            copy_part(part, target, offset)
            part.replace(placed)
        os.truncate(placed, 0)
    except OSError as error:
        raise TranslationError(f"{part}: cannot be removed: {error.strerror or error}") from None


def copy_part(part: Path, target: Path, offset: int) -> None:
    """Copy a file into another one at an offset (bytes), within the file system if it can. Raises TranslationError."""
    try:
        # The target is open for writing only. If it were open for reading as well, an NFS client would read the pages
        # that the part shares with its neighbours and write them back whole, with old bytes if another machine is
        # writing a neighbour.
        with part.open("rb", 0) as read, os.fdopen(os.open(target, os.O_WRONLY), "wb", 0) as write:
            left = os.fstat(read.fileno()).st_size
            at = 0
            while left:
                done = _copy_some(read.fileno(), write.fileno(), min(left, _COPIED), at, offset + at)
                at, left = at + done, left - done
            os.fsync(write.fileno())
    except OSError as error:
        raise TranslationError(f"{part}: cannot be copied into {target}: {error.strerror or error}") from None


def _copy_some(source: int, target: int, count: int, at: int, to: int) -> int:
    """Copy up to `count` bytes between offsets of two descriptors; return their number. Raises OSError if it is 0."""
    try:
        done = os.copy_file_range(source, target, count, at, to)
    except (AttributeError, OSError):  # not on this system, or not between these file systems
        done = os.pwrite(target, os.pread(source, count, at), to)
    if not done:
        raise OSError(0, "it is shorter than it was")
    return done
