"""Translates the options of a call into what the rooms below need, and chooses where the call works.

The module imports all of these rooms, so that calls import it where they use it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nsys2prv_ng.clock.alignment import parse_alignment
from nsys2prv_ng.errors import UsageError, suggest
from nsys2prv_ng.options import calls
from nsys2prv_ng.options.kinds import GPU_TIME, list_options
from nsys2prv_ng.paraver.event_types import STACK_LEVELS
from nsys2prv_ng.reading.open_reports import ReadOptions, Selection
from nsys2prv_ng.reading.shards import WhatToRead, find_shards
from nsys2prv_ng.runtime.files import resolve_links
from nsys2prv_ng.runtime.jit import announce_compilation
from nsys2prv_ng.runtime.limits import Resources, count_usable_cores, get_default_memory
from nsys2prv_ng.sources.registry import DERIVED, select_sources
from nsys2prv_ng.sources.shared.source import Source
from nsys2prv_ng.sources.shared.source_options import SourceOptions

if TYPE_CHECKING:
    from nsys2prv_ng.translation.plan_trace import TranslationPlan

Plan = TypeVar("Plan", bound=ReadOptions)


def make_read_options(options: calls.JobOptions, *, cuts_steps: bool) -> ReadOptions:
    """Return what to read for the options that all calls on a job share. `cuts_steps`: as in Selection."""
    return ReadOptions(
        source_options=SourceOptions(nvtx_range=options.nvtx_range),
        selection=Selection(
            window=None if isinstance(options.time, str) else options.time,
            only_gpus=options.time == GPU_TIME,
            step=options.step,
            steps=options.steps,
            skips_warmup=options.skip_warmup,
            nvtx_range=options.nvtx_range,
            cuts_steps=cuts_steps,
            ranks=None if options.ranks is None else frozenset(options.ranks),
        ),
        align=parse_alignment(options.align),
        strict=options.strict,
        several_jobs=options.several_jobs,
        resources=Resources(
            jobs=options.jobs or count_usable_cores(),
            memory=get_default_memory() if options.memory is None else options.memory,
            folder=options.tmp,
        ),
    )


def make_summary_options(options: calls.JobOptions, *, draws: bool = False) -> ReadOptions:
    """Return what to read for numbers: a choice of steps restricts what they cover, but cuts no record.

    Only a page `draws` the samples of GPUs. Otherwise their limits are kept, unless time is chosen, which may contain
    others only.
    """
    read = make_read_options(options, cuts_steps=False)
    only_limits = not draws and not read.selection.restricts_time
    return replace(read, source_options=replace(read.source_options, metrics_limits=only_limits))


def make_plan(options: calls.TranslateOptions, *, cuts_steps: bool = True) -> TranslationPlan:
    """Return the plan of a translation. `cuts_steps`: as in Selection."""
    from nsys2prv_ng.translation.plan_trace import TranslationPlan  # numbers need no trace

    sources, source_options = _choose_events(options, options.nvtx_range)
    _check_sources(options, sources, options.min_duration or ())
    named = [source.name for source in sources if source not in DERIVED] if options.sources is not None else []
    shared = make_read_options(options, cuts_steps=cuts_steps)
    selection = replace(
        shared.selection,
        gpus=None if options.gpus is None else frozenset(options.gpus),
        shortest=options.min_duration or {},
        folds_threads=options.fold_threads,
    )
    read = replace(
        shared,
        sources=sources,
        named_sources=tuple(named),
        source_options=source_options,
        selection=selection,
        find_waits=options.derived,
    )
    others = [field.name for field in fields(TranslationPlan) if field.name not in vars(read)]
    return TranslationPlan(**vars(read), **{name: getattr(options, name) for name in others})


def make_prediction_plan(options: calls.WhatIfOptions) -> TranslationPlan:
    """Return the plan of a predicted trace: as of a translation, but a choice of steps cuts no record."""
    shared = {field.name: getattr(options, field.name) for field in fields(calls.JobOptions)}
    return make_plan(calls.TranslateOptions(**shared, force=options.force), cuts_steps=False)


def refuse_reading_options(reports: Sequence[Path], options: calls.EventOptions) -> None:
    """Raise UsageError for options on what to read if shards of the reports were read before."""
    declared = list_options(calls.EventOptions).items()
    chosen = [name for name, option in declared if getattr(options, name) != option.default]
    if chosen and find_shards(reports):
        message = f"{reports[0]} holds reports that nsys2prv-ng shard has read: give that command this option"
        raise UsageError(message, parameter=chosen[0])


def make_what_to_read(options: calls.ShardOptions) -> WhatToRead:
    """Return what to read into shards."""
    sources, source_options = _choose_events(options, "")
    _check_sources(options, sources, ())
    return WhatToRead(tuple(source.name for source in sources), source_options, options.derived)


def _choose_events(options: calls.EventOptions, nvtx_range: str) -> tuple[tuple[Source, ...], SourceOptions]:
    """Return the sources to read, and how."""
    if options.stack_depth > STACK_LEVELS:
        raise UsageError(f"must be at most {STACK_LEVELS}", parameter="stack_depth", value=options.stack_depth)
    sources = select_sources(options.sources, derived=options.derived)
    return sources, SourceOptions(
        nvtx_range=nvtx_range,
        nvtx_domains=options.nvtx_domain or (),
        demangled_names=options.kernel_names == "demangled",
        metrics=options.metrics or (),
        metrics_changes=options.metrics_changes,
        nccl_channels=options.nccl_channels,
        osrt_min=options.osrt_min,
        stack_depth=options.stack_depth,
    )


def _check_sources(options: calls.EventOptions, selected: Sequence[Source], shortest: Iterable[str]) -> None:
    """Raise UsageError for options of sources that are not selected. `shortest`: sources with a shortest interval."""
    names = [source.name for source in selected if not source.accounted_in_join]
    for name, option in list_options(type(options)).items():
        if option.source and option.source not in names and getattr(options, name):
            raise UsageError(f"needs the source {option.source}, which is not selected", parameter=name)
    for source in shortest:
        if source not in names:
            remedy = suggest([source], names)
            raise UsageError(f"{source} is none of the selected sources; {remedy}", parameter="min_duration")


@contextmanager
def choose_engine(options: calls.JobOptions, plan: Plan, folder: Path, name: str = "") -> Iterator[Plan]:
    """Yield a plan with the engine that the user chose, and announce what is compiled for it.

    `folder`: where the call writes. `name`: the name of the trace. If an error ends the call, what was read for it
    stays, so that the next call continues from there. Without a name nothing stays.
    """
    note = options.display.note
    if not options.dask:
        with announce_compilation(note):
            yield plan
        return
    from nsys2prv_ng.runtime.dask_engine import DaskEngine, name_new_folder

    shared = plan.resources.folder or folder
    if name and shared != folder:  # traces of other folders may have the same name
        name += f".{hashlib.sha256(os.fsencode(resolve_links(folder))).hexdigest()[:8]}"
    kept = shared / f"{name}.parts" if name else name_new_folder(shared)
    with announce_compilation(note), DaskEngine(options.dask, kept, stays_after_error=bool(name), note=note) as engine:
        yield replace(plan, engine=engine)
