"""The calls of the Python interface."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nsys2prv_ng.api.engines import choose_engine
from nsys2prv_ng.api.keywords import takes, takes_sides, takes_two
from nsys2prv_ng.api.paths import (
    Reports,
    check_names,
    check_page,
    check_path,
    check_saved,
    list_reports,
    list_some_reports,
    refuse_traces,
)
from nsys2prv_ng.api.sides import Capture, GivenSide, is_saved, list_sides, refuse_restrictions
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options.calls import (
    CheckOptions,
    CompareOptions,
    InspectOptions,
    JobOptions,
    SummaryOptions,
    TranslateOptions,
    WhatIfOptions,
)
from nsys2prv_ng.options.kinds import AnyPath
from nsys2prv_ng.runtime.files import write_atomically
from nsys2prv_ng.runtime.limits import count_usable_cores
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.text.option import blame_value

if TYPE_CHECKING:
    from nsys2prv_ng.comparison.result import Comparison
    from nsys2prv_ng.inspection.model import Inspection
    from nsys2prv_ng.paraver.checker.trace import CheckResult
    from nsys2prv_ng.replay.changes import Change
    from nsys2prv_ng.replay.numbers import WhatIfNumbers
    from nsys2prv_ng.summary.job import JobSummary
    from nsys2prv_ng.summary.pictures.numbers import Pictures
    from nsys2prv_ng.translation.result import TranslationResult

# Numba and pyarrow are imported where they are used, so that the command line's --help answers at once.


@takes_two(TranslateOptions)
def translate(reports: Reports, output: AnyPath, options: TranslateOptions) -> TranslationResult:
    """Translate the reports of a job into one Paraver trace; return what was read, written and dropped.

    `reports`: .nsys-rep files or their exports, in any order. `output`: OUT.prv or OUT.prv.gz; the .pcf and the .row
    are written beside it. After an error nothing is left under these names, unless only `align_report` or `stats`
    cannot be written.
    """
    from nsys2prv_ng.api.plans import make_plan, refuse_reading_options
    from nsys2prv_ng.runtime.jit import announce_compilation
    from nsys2prv_ng.runtime.precompile import FOR_TRANSLATE, compile_ahead
    from nsys2prv_ng.translation.translate import translate as run

    given = list_reports(reports)
    trace = check_path("output", output)
    check_names(given, trace)
    progress = options.display
    refuse_reading_options(given, options)
    made = make_plan(options)
    with (
        announce_compilation(progress.note),
        compile_ahead(FOR_TRANSLATE),
        choose_engine(options, made, trace.parent, trace.name) as plan,
    ):
        return run(given, trace, plan, progress)


@takes(SummaryOptions)
def summarize(reports: Reports, options: SummaryOptions) -> JobSummary:
    """Sum up what the GPUs and ranks of a job did, without writing a trace.

    `reports`: as for translate. `JobSummary.load` reads the numbers that `save` keeps as JSON.
    """
    page, progress = options.html, options.display
    check_page(page)
    check_saved(options.save)
    given = list_some_reports(reports)
    refuse_traces(given)
    summary, pictures = _summarize(
        given, options, progress, options.flops_per_step, options.peak_tflops, draws=page is not None
    )
    if page is not None and pictures is not None:
        from nsys2prv_ng.html.summary_page import render_summary

        write_atomically(page, render_summary(summary, pictures))
        progress.note(f"page: {page}")
    if options.save is not None:
        summary.save(options.save)
    return summary


@takes(SummaryOptions)
def find_answer(reports: Reports, options: SummaryOptions) -> JobSummary:
    """Sum up a job as `summarize` does, but without the metrics of GPUs: they take long, and no verdict needs them."""
    given = list_some_reports(reports)
    refuse_traces(given)
    flops, peak = options.flops_per_step, options.peak_tflops
    return _summarize(given, options, options.display, flops, peak, draws=False, with_metrics=False)[0]


def _summarize(
    reports: Sequence[Path],
    options: JobOptions,
    progress: Progress,
    flops_per_step: float | None = None,
    peak_tflops: float | None = None,
    *,
    draws: bool,
    with_metrics: bool = True,
) -> tuple[JobSummary, Pictures | None]:
    """Return the summary of a job and, if `draws`, the pictures for its page."""
    from nsys2prv_ng.api.plans import make_summary_options
    from nsys2prv_ng.job.open_job import open_job
    from nsys2prv_ng.runtime.jit import announce_compilation
    from nsys2prv_ng.runtime.precompile import FOR_SUMMARY, compile_ahead

    with (
        choose_engine(
            options, make_summary_options(options, with_metrics=with_metrics), _find_scratch()
        ) as read_options,
        announce_compilation(progress.note),
        compile_ahead(FOR_SUMMARY),
        open_job(reports, _find_scratch(), read_options, progress, _import_what_sums_up) as job,
    ):
        from nsys2prv_ng.analysis.waits.waits import find_waits
        from nsys2prv_ng.summary.summarize import Known, Wanted
        from nsys2prv_ng.summary.summarize import summarize as run

        waits, wanted = find_waits(job), Wanted(with_metrics, flops_per_step, peak_tflops)
        summary, slow = run(job, waits, Known(), wanted, progress)
        if not draws:
            return summary, None
        from nsys2prv_ng.summary.pictures.measure import collect_pictures

        return summary, collect_pictures(job, waits, None if slow is None else slow.longest.number)


def _import_what_sums_up() -> None:
    """Import what `_summarize` needs once the reports are read. This takes as long as reading a small report."""
    import nsys2prv_ng.summary.summarize  # noqa: F401


def _find_scratch() -> Path:
    """Return the folder for events that exceed the memory: the current one if it can be written, else the system's."""
    if os.access(Path(), os.W_OK):
        return Path()
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:  # no folder can be written, unless the user has chosen one
        return Path()


@takes(WhatIfOptions)
def what_if(reports: Reports, options: WhatIfOptions) -> WhatIfNumbers:
    """Predict what changes would save, by playing a job again with each of them.

    `reports`: as for translate. Without a change, those that are likely to save most are tried. After an error nothing
    is left under `output`, OUT.prv or OUT.prv.gz.
    """
    given = list_some_reports(reports)
    refuse_traces(given)
    scenarios = _parse_scenarios(options)
    output = options.output
    if output is not None:
        _check_prediction(given, output, scenarios, options)
    from nsys2prv_ng.analysis.waits.waits import find_waits
    from nsys2prv_ng.api.plans import make_prediction_plan
    from nsys2prv_ng.job.open_job import open_job
    from nsys2prv_ng.replay.analyse import analyse, describe_size, load_experiment
    from nsys2prv_ng.replay.excerpt import is_too_large
    from nsys2prv_ng.runtime.jit import announce_compilation
    from nsys2prv_ng.runtime.precompile import FOR_SUMMARY, compile_ahead

    progress, scratch = options.display, _find_scratch() if output is None else output.parent
    with (
        announce_compilation(progress.note),
        compile_ahead(FOR_SUMMARY),
        choose_engine(options, make_prediction_plan(options), scratch) as plan,
        open_job(given, scratch, plan, progress) as job,
    ):
        if output is not None and is_too_large(job):
            raise UsageError(describe_size(job))
        experiment = load_experiment(job, find_waits(job))
        if experiment is None:
            raise UsageError(describe_size(job))
        try:
            numbers = analyse(experiment, scenarios, progress=progress)
        except UsageError as error:
            raise UsageError(error.message, parameter="change") from None
        if output is not None:
            from nsys2prv_ng.translation.translate import write_prediction

            write_prediction(experiment, scenarios[0], output, plan, progress)
    for warning in job.warnings:
        progress.warn(warning)
    return numbers


def _check_prediction(
    reports: Sequence[Path], output: Path, scenarios: Sequence[Sequence[Change]], options: WhatIfOptions
) -> None:
    """Refuse a predicted trace that cannot be written. Raises UsageError and TranslationError."""
    if len(scenarios) != 1:
        remedy = "join the changes with 'and'" if scenarios else "name what changes"
        raise UsageError(f"{output}: the predicted trace needs one change; {remedy}", see=("change",))
    for parameter in ("time", "nvtx_range"):
        if getattr(options, parameter) not in (None, ""):
            message = (
                "cannot be combined with a predicted trace, which covers all time; wxParaver's Cut & Filter cuts it"
            )
            raise UsageError(message, parameter=parameter)
    check_names(reports, output)
    from nsys2prv_ng.api.plans import make_prediction_plan
    from nsys2prv_ng.translation.translate import check_files

    check_files(reports, output, make_prediction_plan(options))


def _parse_scenarios(options: WhatIfOptions) -> list[tuple[Change, ...]]:
    """Return the changes of each scenario. Raises UsageError for a wrong text."""
    from nsys2prv_ng.replay.changes import parse_changes

    scenarios = []
    for text in options.change or ():
        try:
            scenarios.append(parse_changes(text))
        except UsageError as error:
            raise blame_value(error.message, "change", text) from None
    return scenarios


@takes_sides(CompareOptions)
def compare(
    sides: Iterable[GivenSide] | GivenSide, other: GivenSide | None = None, *, options: CompareOptions
) -> Comparison:
    """Compare runs: whether each later one is faster than the first, and where the difference is.

    `sides` and `other`: two runs, or `sides` is a list of runs. A run is its reports, as for translate, or its summary:
    a JobSummary, the file that it was saved to, or a folder with that file, summary.json. A run that was captured
    several times is a list: [[first, second], [first, second]], where each capture is a list of reports or a
    JobSummary.
    """
    from nsys2prv_ng.comparison.compare import compare_sides
    from nsys2prv_ng.comparison.sides import make_side

    page, progress = options.html, options.display
    check_page(page)
    given = list_sides(sides, other)
    labels = _choose_labels(given, options)
    refuse_restrictions(given, options)
    loaded = [_load_side(label, side, options, progress) for label, side in zip(labels, given, strict=True)]
    made = [make_side(label, [summary for summary, _ in side]) for label, side in zip(labels, loaded, strict=True)]
    comparison = compare_sides(made, options.scaling)
    if page is not None:
        from nsys2prv_ng.html.comparison_page import render_comparison

        pictures = [
            next(drawn for summary, drawn in captures if summary is side.summary)
            for side, captures in zip(made, loaded, strict=True)
        ]
        write_atomically(page, render_comparison(comparison, made, pictures))
        progress.note(f"page: {page}")
    return comparison


def _choose_labels(sides: Sequence[Sequence[Capture]], options: CompareOptions) -> list[str]:
    """Return a label for each side. Raises UsageError unless the labels of the user are as many, and distinct."""
    from nsys2prv_ng.comparison.sides import label_sides

    files = [[path for capture in side if isinstance(capture, list) for path in capture] for side in sides]
    labels = list(options.labels or label_sides(files))
    if len(labels) != len(sides) or len(set(labels)) < len(labels) or not all(label.strip() for label in labels):
        raise UsageError(f"give {len(sides)} names, one for each side, none twice", parameter="labels")
    return labels


def _load_side(
    label: str, side: Sequence[Capture], options: CompareOptions, progress: Progress
) -> list[tuple[JobSummary, Pictures | None]]:
    """Return the summary of each capture, and the pictures for a page. One follows the other, as each takes memory."""
    names = [label] if len(side) == 1 else [f"{label}, capture {number}" for number in range(1, len(side) + 1)]
    return [_load_capture(name, capture, options, progress) for name, capture in zip(names, side, strict=True)]


def _load_capture(
    name: str, capture: Capture, options: CompareOptions, progress: Progress
) -> tuple[JobSummary, Pictures | None]:
    """Return the summary of a capture, saved or computed within its steps if these are found, and the pictures.

    There are no pictures without a page, nor for a saved summary.
    """
    from nsys2prv_ng.summary.job import JobSummary

    if isinstance(capture, JobSummary):
        return capture, None
    if is_saved(capture):
        return JobSummary.load(capture[0]), None
    progress.note(f"summing up {name}")
    return _summarize(capture, options, progress, draws=options.html is not None)


@takes(InspectOptions)
def inspect(reports: Reports, options: InspectOptions) -> Inspection:
    """Find out what reports contain, without translating them.

    `reports`: as for translate. Reports that cannot be read are part of the answer (`Inspection.faults`), not an error.
    """
    from nsys2prv_ng.inspection.inspect import inspect as run
    from nsys2prv_ng.runtime.jit import announce_compilation

    progress = options.display
    with announce_compilation(progress.note):
        return run(list_some_reports(reports), progress, options.jobs or count_usable_cores(), options.paraver_memory)


@takes(CheckOptions)
def check(trace: AnyPath, options: CheckOptions) -> CheckResult:
    """Check a trace of any tool, and Paraver cfgs against it, by the rules of Paraver's own parser.

    `trace`: a .prv or .prv.gz with its .pcf and .row beside it. Broken rules are part of the answer, not an error.
    """
    from nsys2prv_ng.paraver.checker.cfg import check_cfg
    from nsys2prv_ng.paraver.checker.trace import check_trace
    from nsys2prv_ng.runtime.jit import announce_compilation

    path = check_path("trace", trace)
    progress = options.display
    size = path.stat().st_size if path.is_file() else 0
    with announce_compilation(progress.note), progress.step(f"checking {path}", size, "B") as step:
        result = check_trace(path, progress=step.update)
    contents = result.contents
    for cfg in options.cfg or ():
        result.cfgs[cfg] = check_cfg(cfg, contents.config, contents.header, contents.types)
    return result
