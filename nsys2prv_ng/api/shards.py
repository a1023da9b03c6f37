"""The calls for traces that are made in steps: reports are read into shards, and shards are merged."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from nsys2prv_ng.api.engines import choose_engine
from nsys2prv_ng.api.keywords import takes_two
from nsys2prv_ng.api.paths import Reports, check_names, check_path, list_some_reports
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options.calls import MergeOptions, ShardOptions
from nsys2prv_ng.options.kinds import AnyPath
from nsys2prv_ng.paraver.files import is_trace
from nsys2prv_ng.text.formatting import count_noun

if TYPE_CHECKING:
    from nsys2prv_ng.translation.result import TranslationResult


@takes_two(ShardOptions)
def shard(reports: Reports, folder: AnyPath, options: ShardOptions) -> list[Path]:
    """Read reports into a folder; return the file of each report there.

    Any number of processes and machines can do that at the same time, each for some of the reports. The folder can be
    given instead of the reports to translate, summarize, compare and merge. Reports that were read before are not read
    again.
    """
    from nsys2prv_ng.api.plans import make_what_to_read
    from nsys2prv_ng.reading.shards import write_shards
    from nsys2prv_ng.report.files import refuse_missing, refuse_twice
    from nsys2prv_ng.runtime.jit import announce_compilation
    from nsys2prv_ng.runtime.limits import count_usable_cores

    given, into = list_some_reports(reports), check_path("folder", folder)
    if is_trace(into):
        raise UsageError(f"{into}: is the name of a trace; give a folder to read the reports into")
    progress = options.display
    refuse_twice(given)
    refuse_missing(given)
    try:
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{into}: cannot be made: {error.strerror}") from None
    with announce_compilation(progress.note):
        return write_shards(given, into, make_what_to_read(options), progress, options.jobs or count_usable_cores())


@takes_two(MergeOptions)
def merge(folder: AnyPath, output: AnyPath, options: MergeOptions) -> TranslationResult | None:
    """Make one trace of the shards of a folder; return what was read, written and dropped.

    With `only`, do one step, and return None unless it is the last.
    """
    from nsys2prv_ng.api.plans import make_merge_plan
    from nsys2prv_ng.reading.shards import find_shards
    from nsys2prv_ng.runtime.jit import announce_compilation
    from nsys2prv_ng.translation.in_steps import join_parts, plan_parts, write_one_part
    from nsys2prv_ng.translation.translate import translate

    shards, trace = check_path("folder", folder), check_path("output", output)
    check_names([shards], trace)
    if not find_shards([shards]):
        raise UsageError(f"{shards}: holds no reports that nsys2prv-ng shard read")
    plan, progress = make_merge_plan(options), options.display
    with announce_compilation(progress.note):
        if options.only == "plan":
            parts = plan_parts(shards, trace, plan, options.parts, progress)
            progress.note(f"{trace}: planned in {count_noun(parts, 'part')}")
        elif options.only == "write":
            progress.note(write_one_part(shards, _find_part(options.part)))
        elif options.only == "join":
            return join_parts(shards, trace, plan, progress)
        else:
            with choose_engine(options, plan, trace.parent, trace.name) as chosen:
                return translate([shards], trace, chosen, progress)
    return None


def _find_part(number: int | None) -> int:
    """Return the number of the part to write. Raises UsageError if none is known."""
    text = os.environ.get("SLURM_ARRAY_TASK_ID", "")
    if number is None and not text.isdecimal():
        raise UsageError("name the part, or run as a task of a Slurm array", parameter="part")
    return int(text) if number is None else number
