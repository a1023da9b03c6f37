"""Chooses where a call works: on this machine, or on a Dask cluster."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nsys2prv_ng.options.calls import JobOptions
from nsys2prv_ng.runtime.files import resolve_links

if TYPE_CHECKING:
    from nsys2prv_ng.job.open_reports import ReadOptions

Plan = TypeVar("Plan", bound="ReadOptions")


@contextmanager
def choose_engine(options: JobOptions, plan: Plan, folder: Path, name: str = "") -> Iterator[Plan]:
    """Yield a plan with the engine that the user chose.

    `folder`: where the call writes. `name`: the name of the trace. If an error ends the call, what was read for it
    stays, so that the next call continues from there. Without a name nothing stays.
    """
    if not options.dask:
        yield plan
        return
    from nsys2prv_ng.runtime.dask_engine import DaskEngine, name_new_folder

    shared = plan.resources.folder or folder
    if name and shared != folder:  # traces of other folders may have the same name
        name += f".{hashlib.sha256(os.fsencode(resolve_links(folder))).hexdigest()[:8]}"
    kept = shared / f"{name}.parts" if name else name_new_folder(shared)
    note = options.display.note
    with DaskEngine(options.dask, kept, options.jobs, stays_after_error=bool(name), note=note) as engine:
        yield replace(plan, engine=engine)
