"""The Python interface: translate, summarize, compare, inspect and check reports and traces.

Keywords are the options of the commands, as options.py declares them, with times in ns and sizes in bytes. Every call
prints nothing and raises TranslationError with one line of text: UsageError for what was asked for, ReportError for a
report that cannot be read.
"""

from __future__ import annotations

import inspect as introspection
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options import (
    AnyPath,
    CheckOptions,
    CompareOptions,
    InspectOptions,
    JobOptions,
    SummaryOptions,
    TranslateOptions,
    describe_keywords,
    list_options,
)
from nsys2prv_ng.runtime.progress import Progress

if TYPE_CHECKING:
    from nsys2prv_ng.comparison.model import Comparison, Side, SideTraces
    from nsys2prv_ng.inspection.inspect import Inspection
    from nsys2prv_ng.job.open_job import ReadOptions
    from nsys2prv_ng.job.selection import Selection
    from nsys2prv_ng.paraver.checker.trace import CheckResult
    from nsys2prv_ng.sources.shared.source import Source
    from nsys2prv_ng.sources.shared.source_options import SourceOptions
    from nsys2prv_ng.summary.model import JobSummary
    from nsys2prv_ng.translation.result import TranslationResult
    from nsys2prv_ng.translation.translate import TranslationPlan

# Numba, pandas and pyarrow are imported where they are used, so that the command line's --help answers at once.

Reports = AnyPath | Iterable[AnyPath]
Keywords = ParamSpec("Keywords")
Options = TypeVar("Options")
Answer = TypeVar("Answer")
One = TypeVar("One")
Other = TypeVar("Other")


def _takes(
    options: Callable[Keywords, Options],
) -> Callable[[Callable[[One, Options], Answer]], Callable[Concatenate[One, Keywords], Answer]]:
    """Make a call that takes a class of options take the fields of that class as keywords, with their types."""
    return lambda call: _take_keywords(call, options)


def _takes_two(
    options: Callable[Keywords, Options],
) -> Callable[[Callable[[One, Other, Options], Answer]], Callable[Concatenate[One, Other, Keywords], Answer]]:
    """Do as `_takes` does for a call with two arguments before its keywords."""
    return lambda call: _take_keywords(call, options)


def _take_keywords(call: Callable[..., Any], options: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call with the signature, and the docstring, of both its own arguments and the keywords."""
    own = [p for p in introspection.signature(call).parameters.values() if p.name != "options"]
    described = list_options(options)
    keywords = [
        parameter.replace(annotation=described[name][0] if name in described else parameter.annotation)
        for name, parameter in introspection.signature(options).parameters.items()
    ]
    signature = introspection.Signature([*own, *keywords])

    @wraps(call)
    def take(*arguments: Any, **values: Any) -> Any:
        try:
            given = signature.bind(*arguments, **values).arguments
        except TypeError as error:
            raise TypeError(f"{call.__name__}() {error}") from None
        return call(*(given.pop(parameter.name) for parameter in own), options(**given))

    take.__signature__ = signature  # type: ignore[attr-defined]
    take.__doc__ = f"{call.__doc__}\n    Keywords:\n\n{describe_keywords(options)}\n"
    return take


# ---- the calls -------------------------------------------------------------------------------------------------------


@_takes_two(TranslateOptions)
def translate(reports: Reports, output: AnyPath, options: TranslateOptions) -> TranslationResult:
    """Translate the reports of a job into one Paraver trace; return what was read, written and dropped.

    `reports`: .nsys-rep files or their exports (.sqlite, _pqtdir, _arwdir), in any order. `output`: OUT.prv or
    OUT.prv.gz; the .pcf and the .row are written beside it. After an error nothing is left under these names, unless it
    is `align_report` or `stats` that cannot be written.
    """
    from nsys2prv_ng.runtime.jit import announce_compilation
    from nsys2prv_ng.translation.translate import translate as run

    given = _list_reports(reports)
    trace = _check_path("output", output)
    _check_names(given, trace)
    progress = options.progress or Progress()
    with announce_compilation(progress.note):
        return run(given, trace, _make_plan(options), progress)


@_takes(SummaryOptions)
def summarize(reports: Reports, options: SummaryOptions) -> JobSummary:
    """Sum up what the GPUs and ranks of a job did, without writing a trace.

    `reports`: as for translate. `JobSummary.save` and `JobSummary.load` keep the numbers as JSON.
    """
    return _summarize(_list_some_reports(reports), _make_read_options(options), options.progress or Progress())


def _summarize(reports: Sequence[Path], read_options: ReadOptions, progress: Progress) -> JobSummary:
    from nsys2prv_ng.job.open_job import open_job
    from nsys2prv_ng.runtime.jit import announce_compilation
    from nsys2prv_ng.summary.compute import compute_summary

    with announce_compilation(progress.note), open_job(reports, Path(), read_options, progress) as job:
        return compute_summary(job)


@_takes(CompareOptions)
def compare(sides: Iterable[Reports | JobSummary], options: CompareOptions) -> Comparison:
    """Compare runs: whether each later one is faster than the first, and where the difference is.

    `sides`: for each run its reports, as for translate, or its summary: a JobSummary, or the file that it was saved to.
    """
    from nsys2prv_ng.comparison.compare import compare_sides
    from nsys2prv_ng.comparison.labels import label_sides
    from nsys2prv_ng.comparison.model import Side
    from nsys2prv_ng.summary.model import JobSummary

    if isinstance(sides, str | os.PathLike | JobSummary) or not isinstance(sides, Iterable):
        raise UsageError("give a list with the reports or the summary of each run", parameter="sides")
    given = [side if isinstance(side, JobSummary) else _list_side(side) for side in sides]
    if len(given) < 2:
        raise UsageError("give at least two", parameter="sides")
    labels = list(options.labels or label_sides([[] if isinstance(side, JobSummary) else side for side in given]))
    if len(labels) != len(given) or len(set(labels)) < len(labels) or not all(label.strip() for label in labels):
        raise UsageError(f"give {len(given)} names, one for each side, none twice", parameter="labels")
    _refuse_restrictions(given, options)
    progress = options.progress or Progress()
    traces = [] if options.traces is None else _name_traces(Path(options.traces), labels, given)
    made = []
    for label, side in zip(labels, given, strict=True):  # one after the other, as each takes memory
        made.append(Side(label, side if isinstance(side, JobSummary) else _load_side(label, side, options, progress)))
    comparison = compare_sides(made, options.scaling)
    if traces:
        comparison = replace(comparison, traces=_write_traces(traces, given, made, comparison, options))
    return comparison


def _refuse_restrictions(sides: Sequence[Sequence[Path] | JobSummary], options: CompareOptions) -> None:
    """Raise UsageError where the user restricts what was summed up before."""
    from nsys2prv_ng.summary.model import JobSummary

    if any(isinstance(side, JobSummary) or side[0].suffix == ".json" for side in sides):
        for name in ("time", "steps", "skip_warmup", "step", "nvtx_range", "ranks"):
            if getattr(options, name) not in (None, "", False):
                raise UsageError("saved numbers cannot be restricted; give the reports", parameter=name)


def _name_traces(folder: Path, labels: Sequence[str], sides: Sequence[Sequence[Path] | JobSummary]) -> list[Path]:
    """Return the file for the trace of each side. Raises UsageError for summaries, and for what is there already."""
    from nsys2prv_ng.comparison.side_traces import name_traces
    from nsys2prv_ng.summary.model import JobSummary

    if any(isinstance(side, JobSummary) or side[0].suffix == ".json" for side in sides):
        raise UsageError("traces are made of reports, and a side is a saved summary", parameter="traces")
    files = [folder / name for name in name_traces(labels)]
    if folder.exists() and not folder.is_dir():
        raise UsageError("is no folder; choose another name", parameter="traces", value=str(folder))
    if there := [file for file in files if file.exists()]:
        raise UsageError(
            f"{there[0].name} is there already; choose another folder", parameter="traces", value=str(folder)
        )
    return files


def _write_traces(
    files: Sequence[Path],
    sides: Sequence[Any],
    made: Sequence[Side],
    comparison: Comparison,
    options: CompareOptions,
) -> SideTraces:
    """Write the trace of each side, all but the first with the numbers of the first."""
    from nsys2prv_ng.comparison.model import SideTraces
    from nsys2prv_ng.comparison.side_traces import choose_common_steps, list_presets

    try:
        files[0].parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot be made: {error.strerror}", parameter="traces", value=str(files[0].parent)) from None
    steps = choose_common_steps(made)
    shared = {field.name: getattr(options, field.name) for field in fields(JobOptions)}
    if steps is not None:
        shared |= {"steps": steps, "skip_warmup": False}
    progress = options.progress or Progress()
    for file, side, own in zip(files, sides, made, strict=True):
        progress.note(f"translating {own.label}")
        kept = None if file == files[0] else files[0].with_suffix(".pcf")
        translate(side, file, **shared, labels_from=kept)
    return SideTraces([str(file) for file in files], steps, list_presets(comparison.pairs))


def _list_side(side: Reports) -> list[Path]:
    """Return the reports of a side, or its saved summary.

    Raises UsageError for a mixture, and ReportError if none exists: reading another side first may take long.
    """
    given = _list_some_reports(side)
    if not any(path.exists() for path in given):
        from nsys2prv_ng.report.files import miss

        raise miss(given[0])
    if len(given) > 1 and (saved := [path for path in given if path.suffix == ".json"]):
        raise UsageError("a side is either reports or one saved summary", parameter="sides", value=str(saved[0]))
    return given


def _load_side(label: str, side: Sequence[Path], options: CompareOptions, progress: Progress) -> JobSummary:
    """Return the summary of a side: a saved one, or that of the reports in their steps, if these are found."""
    from nsys2prv_ng.summary.model import JobSummary

    if side[0].suffix == ".json":
        return JobSummary.load(side[0])
    progress.note(f"summing up {label}")
    read = _make_read_options(options)
    selection = replace(read.selection, skips_warmup=True, needs_steps=options.skip_warmup)
    return _summarize(side, replace(read, selection=selection), progress)


@_takes(InspectOptions)
def inspect(reports: Reports, options: InspectOptions) -> Inspection:
    """Find out what reports contain, without translating them.

    `reports`: as for translate. Reports that cannot be read are part of the answer (`Inspection.faults`), no error.
    """
    from nsys2prv_ng.inspection.inspect import inspect as run
    from nsys2prv_ng.runtime.jit import announce_compilation
    from nsys2prv_ng.runtime.limits import count_usable_cores

    progress = options.progress or Progress()
    with announce_compilation(progress.note):
        return run(_list_some_reports(reports), progress, options.jobs or count_usable_cores())


@_takes(CheckOptions)
def check(trace: AnyPath, options: CheckOptions) -> CheckResult:
    """Check a trace of any tool, and Paraver cfgs against it, by the rules of Paraver's own parser.

    `trace`: a .prv or .prv.gz with its .pcf and .row beside it. What breaks a rule is part of the answer, no error.
    """
    from nsys2prv_ng.paraver.checker.cfg import check_cfg
    from nsys2prv_ng.paraver.checker.trace import check_trace
    from nsys2prv_ng.runtime.jit import announce_compilation

    path = _check_path("trace", trace)
    progress = options.progress or Progress()
    size = path.stat().st_size if path.is_file() else 0
    with announce_compilation(progress.note), progress.step(f"checking {path}", size, "B") as step:
        result = check_trace(path, progress=step.update)
    contents = result.contents
    for cfg in options.cfg or ():
        result.cfgs[Path(cfg)] = check_cfg(Path(cfg), contents.config, contents.header, contents.types)
    return result


# ---- options, as the rooms below take them ---------------------------------------------------------------------------


def _make_read_options(options: JobOptions) -> ReadOptions:
    """Return what to read for the options that all calls on a job share."""
    from nsys2prv_ng.clock.alignment import parse_alignment
    from nsys2prv_ng.job.open_job import ReadOptions
    from nsys2prv_ng.job.selection import Selection
    from nsys2prv_ng.runtime.limits import Resources, count_usable_cores, get_default_memory
    from nsys2prv_ng.sources.shared.source_options import SourceOptions

    return ReadOptions(
        source_options=SourceOptions(nvtx_range=options.nvtx_range),
        selection=Selection(
            window=options.time,
            step=options.step,
            steps=None if options.steps is None else (options.steps[0], options.steps[1]),
            skips_warmup=options.skip_warmup,
            nvtx_range=options.nvtx_range,
            ranks=None if options.ranks is None else frozenset(options.ranks),
        ),
        align=parse_alignment(os.fspath(options.align)),
        strict=options.strict,
        resources=Resources(
            jobs=options.jobs or count_usable_cores(),
            memory=get_default_memory() if options.memory is None else options.memory,
            folder=_to_path(options.tmp),
        ),
    )


def _make_plan(options: TranslateOptions) -> TranslationPlan:
    from nsys2prv_ng.paraver.event_types import STACK_LEVELS
    from nsys2prv_ng.sources import select_sources
    from nsys2prv_ng.translation.translate import TranslationPlan

    if options.stack_depth > STACK_LEVELS:
        raise UsageError(f"must be at most {STACK_LEVELS}", parameter="stack_depth", value=options.stack_depth)
    shared = _make_read_options(options)
    sources = select_sources(None if options.sources is None else list(options.sources), derived=options.derived)
    source_options = replace(
        shared.source_options,
        nvtx_domains=tuple(options.nvtx_domain or ()),
        demangled_names=options.kernel_names == "demangled",
        metrics=tuple(options.metrics or ()),
        metrics_changes=options.metrics_changes,
        osrt_min=options.osrt_min,
        stack_depth=options.stack_depth,
    )
    shortest = dict(options.min_duration or {})
    gpus = None if options.gpus is None else frozenset(options.gpus)
    selection = replace(shared.selection, gpus=gpus, shortest=shortest)
    _check_sources(sources, source_options, selection)
    return TranslationPlan(
        sources=sources,
        source_options=source_options,
        selection=selection,
        align=shared.align,
        find_waits=options.derived,
        strict=shared.strict,
        resources=shared.resources,
        align_report=_to_path(options.align_report),
        wait_lines=options.wait_lines,
        stats=_to_path(options.stats),
        labels_from=_to_path(options.labels_from),
        force=options.force,
        summary=options.summary,
    )


def _check_sources(selected: Sequence[Source], options: SourceOptions, selection: Selection) -> None:
    """Refuse options of sources that are not selected."""
    names = [source.name for source in selected if not source.accounted_in_join]
    for parameter, value, source in (
        ("nvtx_range", options.nvtx_range, "nvtx"),
        # Without ranges, other steps may be found.
        ("step", selection.step, "nvtx"),
        ("steps", selection.steps, "nvtx"),
        ("skip_warmup", selection.skips_warmup, "nvtx"),
        ("nvtx_domain", options.nvtx_domains, "nvtx"),
        ("metrics", options.metrics, "gpu_metrics"),
        ("metrics_changes", options.metrics_changes, "gpu_metrics"),
    ):
        if value and source not in names:
            raise UsageError(f"needs the source {source}, which is not selected", parameter=parameter)
    for source in selection.shortest:
        if source not in names:
            known = ", ".join(names)
            raise UsageError(f"{source} is none of the selected sources: {known}", parameter="min_duration")


def _list_reports(reports: Reports) -> list[Path]:
    if isinstance(reports, str | os.PathLike):
        return [Path(reports)]
    try:
        return [Path(report) for report in reports]
    except TypeError:
        raise UsageError("give a path or a list of paths", parameter="reports", value=reports) from None


def _list_some_reports(reports: Reports) -> list[Path]:
    given = _list_reports(reports)
    if not given:
        raise UsageError("give at least one report", parameter="reports")
    return given


def _check_path(name: str, path: AnyPath) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise UsageError("give a path", parameter=name, value=path)
    return Path(path)


def _check_names(reports: Sequence[Path], output: Path) -> None:
    if not output.name.endswith((".prv", ".prv.gz")):
        raise UsageError("the trace must be named *.prv or *.prv.gz", parameter="output", value=str(output))
    if not reports:
        raise UsageError(f"give at least one report to translate into {output}", parameter="reports")
    for report in reports:
        if report.name.endswith((".prv", ".prv.gz")):
            message = "a trace among the reports; only the output is one"
            raise UsageError(message, parameter="reports", value=str(report))


def _to_path(path: AnyPath | None) -> Path | None:
    return None if path is None else Path(path)
