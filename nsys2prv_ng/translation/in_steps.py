"""Makes a trace of shards in steps that run as separate processes, such as the jobs and job arrays of a batch system.

The folder of the shards keeps the plan and the parts from one step to the next. A step may be repeated: it does not
write a part again that is there.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.paraver.output import TraceOutput
from nsys2prv_ng.reading.kept_objects import OpenTypes, load_kept, make_damaged_error, write_kept
from nsys2prv_ng.records.store import SHELVES_OF_TRACES, FolderStore
from nsys2prv_ng.runtime.files import write_atomically
from nsys2prv_ng.runtime.parallel import LocalEngine, run_in_threads
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.text.formatting import count_noun, join_first
from nsys2prv_ng.translation import translate as writing
from nsys2prv_ng.translation.plan_trace import TracePlan, TranslationPlan, plan_trace
from nsys2prv_ng.translation.result import TranslationResult
from nsys2prv_ng.translation.translate import PARTS
from nsys2prv_ng.value_class import ValueClass

_PLAN = "trace.plan"
_OPEN_TYPES = OpenTypes(names={"JobSummary": JobSummary})


class KeptPlan(ValueClass):
    """The plan of a trace and its division into parts."""

    planned: TracePlan
    output: str
    """Path of the trace, whose name is also in its texts."""
    ends: list[int]
    """Slice numbers: part i has the slices from `ends[i]` up to, but not including, `ends[i + 1]`."""
    asked: int
    """Number of parts that the user requested; a short trace has fewer."""
    run: str
    """Name of the run that writes the parts of this trace. A task of an earlier plan may still write other parts."""
    seconds: float
    """Time that planning took (s)."""


def plan_parts(folder: Path, output: Path, plan: TranslationPlan, parts: int, progress: Progress) -> int:
    """Plan the trace of a folder of shards; return the number of its parts. Raises TranslationError."""
    started = time.perf_counter()
    writing.check_files([folder], output, plan)
    TraceOutput(output, force=plan.force)  # refuses an output that could not be written
    _remove_earlier(folder)
    engine = LocalEngine(plan.resources.jobs, folder)
    with open_job([folder], output.parent, replace(plan, engine=engine), progress) as job:
        planned = plan_trace(job, output, plan)
    for warning in planned.facts.warnings:
        progress.warn(warning)
    ends = writing.split_slices(planned.slices, parts)
    kept = KeptPlan(planned, str(output), ends, parts, writing.make_run(), time.perf_counter() - started)
    write_kept(folder / _PLAN, kept, _OPEN_TYPES)
    return len(ends) - 1


def write_one_part(folder: Path, number: int) -> str:
    """Write a part of the planned trace unless it is there; return a message for the user. Raises TranslationError."""
    kept = _load_plan(folder)
    parts = len(kept.ends) - 1
    if number >= parts:
        if number < kept.asked:  # a short trace has fewer parts than requested
            return f"part {number}: not needed, as {count_noun(parts, 'part')} are enough for this trace"
        raise UsageError(f"the plan has {parts} parts, counted from 0", parameter="part", value=str(number))
    path = writing.name_part(folder, kept.run, number)
    if path.exists() and _name_size(path).exists():
        return f"{path}: was written before"
    with closing(FolderStore(folder)) as store:
        part = writing.write_part(kept.planned.slices, kept.ends[number], kept.ends[number + 1], store, path)
    write_atomically(_name_size(path), json.dumps(part.text_size))
    return f"{path}: written"


def join_parts(folder: Path, output: Path, plan: TranslationPlan, progress: Progress) -> TranslationResult:
    """Join the parts of a trace, then remove the parts and their plan. Raises TranslationError."""
    started = time.perf_counter()
    kept = _load_plan(folder)
    if Path(kept.output).name != output.name:
        raise UsageError(f"{output}: the plan is for {kept.output}; name that, or plan again")
    writing.check_files([folder], output, plan)
    paths = [writing.name_part(folder, kept.run, number) for number in range(len(kept.ends) - 1)]
    missing = [str(number) for number, path in enumerate(paths) if not (path.exists() and _name_size(path).exists())]
    if missing:
        listed = join_first(missing, _MOST_LISTED)
        raise TranslationError(f"{folder}: parts that are not written yet: {listed}; write them first", see=("only",))
    sizes = [path.stat().st_size for path in paths]
    text_size = sum(json.loads(_name_size(path).read_text()) for path in paths)
    with TraceOutput(output, force=plan.force) as trace:
        writing.write_texts(trace, kept.planned)
        places = trace.reserve(sizes)
        with progress.step(f"joining {output}", sum(sizes), "B") as step:

            def copy(number: int) -> int:
                writing.copy_part(paths[number], trace.temporary, places[number])
                return sizes[number]

            for size in run_in_threads(copy, range(len(paths)), plan.resources.threads):
                step.update(size)
    _remove_earlier(folder)
    return writing.account_for(kept.planned, output, text_size, kept.seconds + time.perf_counter() - started, plan)


_MOST_LISTED = 8


def _remove_earlier(folder: Path) -> None:
    """Remove the plan, the parts and the records of a trace from a folder of shards."""
    (folder / _PLAN).unlink(missing_ok=True)
    # The patterns are exact, because a report may have a similar name, and its shards stay.
    for pattern in (SHELVES_OF_TRACES, PARTS, f"{PARTS}.size", f".{PARTS}.*.tmp"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def _name_size(part: Path) -> Path:
    """Return the path of the file that contains the size of a part's text before compression (bytes)."""
    return part.with_name(f"{part.name}.size")


def _load_plan(folder: Path) -> KeptPlan:
    if not (folder / _PLAN).exists():
        raise UsageError(f"{folder}: no trace is planned there, or it was joined before; plan one", parameter="only")
    kept = load_kept(folder / _PLAN, KeptPlan, _OPEN_TYPES)
    if not kept.planned.slices.is_sound():
        raise make_damaged_error(folder / _PLAN)
    return kept
