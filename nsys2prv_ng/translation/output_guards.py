"""Guards the files that a translation writes: none replaces an input, and none replaces another file unasked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.paraver.files import list_trace_files
from nsys2prv_ng.paraver.output import refuse_in_the_way
from nsys2prv_ng.runtime.files import resolve_links
from nsys2prv_ng.translation.plan_trace import TranslationPlan


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
