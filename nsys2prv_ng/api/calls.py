"""The calls of the Python interface."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nsys2prv_ng.api import arguments
from nsys2prv_ng.api.arguments import Capture, GivenSide, Reports
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options import calls
from nsys2prv_ng.options.kinds import AnyPath, parse_path, parse_paths, read
from nsys2prv_ng.paraver.files import is_trace
from nsys2prv_ng.runtime.files import write_atomically
from nsys2prv_ng.runtime.limits import count_usable_cores

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


@arguments.takes_two(calls.TranslateOptions)
def translate(reports: Reports, output: AnyPath, options: calls.TranslateOptions) -> TranslationResult:
    """Translate the reports of a job into one Paraver trace; return what was read, written and dropped.

    `reports`: .nsys-rep files or their exports, in any order. `output`: OUT.prv or OUT.prv.gz; the .pcf and the .row
    are written beside it. After an error nothing is left under these names, unless only `align_report` or `stats`
    cannot be written.
    """
    from nsys2prv_ng.api.plans import choose_engine, make_plan, refuse_reading_options
    from nsys2prv_ng.runtime.precompile import FOR_TRANSLATE, compile_ahead
    from nsys2prv_ng.translation.translate import translate as run

    given, trace = read(parse_paths, reports, "reports"), read(parse_path, output, "output")
    arguments.check_names(given, trace)
    refuse_reading_options(given, options)
    made = make_plan(options)
    with compile_ahead(FOR_TRANSLATE), choose_engine(options, made, trace.parent, trace.name) as plan:
        return run(given, trace, plan, options.display)


@arguments.takes_two(calls.ShardOptions)
def shard(reports: Reports, folder: AnyPath, options: calls.ShardOptions) -> list[Path]:
    """Read reports into a folder; return the file of each report there.

    Any number of processes and machines can do that at the same time, each for some of the reports. The folder can be
    given instead of the reports to translate, summarize and compare. Reports that were read before are not read
    again.
    """
    from nsys2prv_ng.api.plans import make_what_to_read
    from nsys2prv_ng.reading.shards import write_shards
    from nsys2prv_ng.report.files import refuse_missing, refuse_twice
    from nsys2prv_ng.runtime.jit import announce_compilation

    given, into = arguments.list_reports(reports), read(parse_path, folder, "folder")
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


@arguments.takes(calls.SummaryOptions)
def summarize(reports: Reports, options: calls.SummaryOptions) -> JobSummary:
    """Sum up what the GPUs and ranks of a job did, without writing a trace.

    `reports`: as for translate. `JobSummary.load` reads the numbers that `save` keeps as JSON.
    """
    summary, pictures = _summarize(arguments.expand_reports(reports), options, draws=options.html is not None)
    if options.html is not None and pictures is not None:
        from nsys2prv_ng.html.summary_page import render_summary

        write_atomically(options.html, render_summary(summary, pictures))
        options.display.note(f"page: {options.html}")
    if options.save is not None:
        summary.save(options.save)
    return summary


def _summarize(
    reports: Sequence[Path], options: calls.JobOptions, *, draws: bool
) -> tuple[JobSummary, Pictures | None]:
    """Return the summary of a job and, if `draws`, the pictures for its page."""
    from nsys2prv_ng.api.plans import choose_engine, make_summary_options
    from nsys2prv_ng.job.open_job import open_job
    from nsys2prv_ng.runtime.precompile import FOR_SUMMARY, compile_ahead

    made, progress = make_summary_options(options, draws=draws), options.display
    with (
        compile_ahead(FOR_SUMMARY),
        choose_engine(options, made, arguments.find_scratch()) as read_options,
        open_job(reports, arguments.find_scratch(), read_options, progress, _import_what_sums_up) as job,
    ):
        from nsys2prv_ng.analysis.waits.waits import find_waits
        from nsys2prv_ng.summary.summarize import Known
        from nsys2prv_ng.summary.summarize import summarize as run

        waits = find_waits(job)
        summary, slow = run(job, waits, Known(), progress)
        if not draws:
            return summary, None
        from nsys2prv_ng.summary.pictures.measure import collect_pictures

        return summary, collect_pictures(job, waits, None if slow is None else slow.longest.number)


def _import_what_sums_up() -> None:
    """Import what `_summarize` needs once the reports are read. This takes as long as reading a small report."""
    import nsys2prv_ng.summary.summarize  # noqa: F401


@arguments.takes(calls.WhatIfOptions)
def what_if(reports: Reports, options: calls.WhatIfOptions) -> WhatIfNumbers:
    """Predict what changes would save, by playing a job again with each of them.

    `reports`: as for translate. Without a change, those that are likely to save most are tried. After an error nothing
    is left under `output`, OUT.prv or OUT.prv.gz.
    """
    given = arguments.list_reports_alone(reports)
    from nsys2prv_ng.replay.changes import parse_changes

    scenarios = [read(parse_changes, text, "change") for text in options.change or ()]
    output = options.output
    if output is not None:
        _check_prediction(given, output, scenarios, options)
    from nsys2prv_ng.analysis.waits.waits import find_waits
    from nsys2prv_ng.api.plans import choose_engine, make_prediction_plan
    from nsys2prv_ng.job.open_job import open_job
    from nsys2prv_ng.replay.analyse import analyse, describe_size, load_experiment
    from nsys2prv_ng.replay.what_if import is_too_large
    from nsys2prv_ng.runtime.precompile import FOR_SUMMARY, compile_ahead
    from nsys2prv_ng.summary.answer.remedies import list_proposed

    progress, scratch = options.display, arguments.find_scratch() if output is None else output.parent
    with (
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
            numbers = analyse(experiment, scenarios, proposed=list_proposed(), progress=progress)
        except UsageError as error:
            raise UsageError(error.message, parameter="change") from None
        if output is not None:
            from nsys2prv_ng.translation.translate import write_prediction

            write_prediction(experiment, scenarios[0], output, plan, progress)
    for warning in job.warnings:
        progress.warn(warning)
    return numbers


def _check_prediction(
    reports: Sequence[Path], output: Path, scenarios: Sequence[Sequence[Change]], options: calls.WhatIfOptions
) -> None:
    """Refuse a predicted trace that cannot be written. Raises UsageError and TranslationError."""
    if len(scenarios) != 1:
        remedy = "join the changes with 'and'" if scenarios else "name what changes"
        raise UsageError(f"{output}: the predicted trace needs one change; {remedy}", see=("change",))
    for parameter in ("time", "nvtx_range"):
        if getattr(options, parameter) not in (None, ""):
            message = "cannot be combined with a predicted trace, which covers all time"
            raise UsageError(f"{message}; wxParaver's Cut & Filter cuts it", parameter=parameter)
    arguments.check_names(reports, output)
    from nsys2prv_ng.api.plans import make_prediction_plan
    from nsys2prv_ng.translation.translate import check_files

    check_files(reports, output, make_prediction_plan(options))


@arguments.takes_sides(calls.CompareOptions)
def compare(
    sides: Iterable[GivenSide] | GivenSide, other: GivenSide | None = None, *, options: calls.CompareOptions
) -> Comparison:
    """Compare runs: whether each later one is faster than the first, and where the difference is.

    `sides` and `other`: two runs, or `sides` is a list of runs. A run is its reports, as for translate, or its summary:
    a JobSummary, the file that it was saved to, or a folder with that file, summary.json. A run that was captured
    several times is a list: [[first, second], [first, second]], where each capture is a list of reports or a
    JobSummary. With `against`, there is one run, or `sides` is a list with one.
    """
    from nsys2prv_ng.comparison.compare import compare_sides, compare_with_history
    from nsys2prv_ng.comparison.sides import make_side

    given = arguments.list_sides(sides, other, fewest=2 if options.against is None else 1)
    labels = _choose_labels(given, options)
    arguments.refuse_restrictions(given, options)
    loaded = [_load_side(label, side, options) for label, side in zip(labels, given, strict=True)]
    loaded = _load_by_one_step(labels, given, loaded, options)
    made = [make_side(label, [summary for summary, _ in side]) for label, side in zip(labels, loaded, strict=True)]
    if options.against is None:
        comparison = compare_sides(made, options.scaling)
    else:
        comparison, baseline = compare_with_history(made[0], options.against)
        made, loaded = [baseline, *made], [[(summary, None) for summary in baseline.every], *loaded]
    if options.html is not None:
        from nsys2prv_ng.html.comparison_page import render_comparison

        pictures = [
            next(drawn for summary, drawn in captures if summary is side.summary)
            for side, captures in zip(made, loaded, strict=True)
        ]
        write_atomically(options.html, render_comparison(comparison, made, pictures))
        options.display.note(f"page: {options.html}")
    return comparison


def _choose_labels(sides: Sequence[Sequence[Capture]], options: calls.CompareOptions) -> list[str]:
    """Return a label for each side. Raises UsageError unless the labels of the user are as many, and distinct."""
    from nsys2prv_ng.comparison.sides import label_sides

    files = [[path for capture in side if isinstance(capture, list) for path in capture] for side in sides]
    labels = list(options.labels or label_sides(files))
    if len(labels) != len(sides) or len(set(labels)) < len(labels) or not all(label.strip() for label in labels):
        raise UsageError(f"give {len(sides)} names, one for each side, none twice", parameter="labels")
    return labels


def _load_side(
    label: str, side: Sequence[Capture], options: calls.CompareOptions
) -> list[tuple[JobSummary, Pictures | None]]:
    """Return the summary of each capture, and the pictures for a page. One follows the other, as each takes memory."""
    names = [label] if len(side) == 1 else [f"{label}, capture {number}" for number in range(1, len(side) + 1)]
    return [_load_capture(name, capture, options) for name, capture in zip(names, side, strict=True)]


def _load_by_one_step(
    labels: Sequence[str],
    sides: Sequence[Sequence[Capture]],
    loaded: list[list[tuple[JobSummary, Pictures | None]]],
    options: calls.CompareOptions,
) -> list[list[tuple[JobSummary, Pictures | None]]]:
    """Return the sides, those of reports by the range that marks the steps of another one, if all have this range."""
    from nsys2prv_ng.comparison.work import find_common_steps, has_steps_of

    every = [[summary for summary, _ in side] for side in loaded]
    step = "" if options.step else find_common_steps([summary for side in every for summary in side])
    others = [n for n, side in enumerate(every) if not all(has_steps_of(summary, step) for summary in side)]
    is_restricted = arguments.list_restrictions(options)
    if not step or is_restricted or any(arguments.is_saved(capture) for n in others for capture in sides[n]):
        return loaded
    try:
        again = {n: _load_side(labels[n], sides[n], replace(options, step=step)) for n in others}
    except UsageError:  # these ranges are not steps there
        return loaded
    return [again.get(n, side) for n, side in enumerate(loaded)]


def _load_capture(name: str, capture: Capture, options: calls.CompareOptions) -> tuple[JobSummary, Pictures | None]:
    """Return the summary of a capture, saved or computed within its steps if these are found, and the pictures.

    There are no pictures without a page, nor for a saved summary.
    """
    from nsys2prv_ng.summary.job import JobSummary

    if isinstance(capture, JobSummary):
        return capture, None
    if arguments.is_saved(capture):
        return JobSummary.load(capture[0]), None
    options.display.note(f"summing up {name}")
    return _summarize(capture, options, draws=options.html is not None)


@arguments.takes(calls.InspectOptions)
def inspect(reports: Reports, options: calls.InspectOptions) -> Inspection:
    """Find out what reports contain, without translating them.

    `reports`: as for translate. Reports that cannot be read are part of the answer (`Inspection.faults`), not an error.
    """
    from nsys2prv_ng.inspection.inspect import inspect as run
    from nsys2prv_ng.runtime.jit import announce_compilation

    progress = options.display
    with announce_compilation(progress.note):
        jobs = options.jobs or count_usable_cores()
        return run(arguments.list_reports(reports), progress, jobs, options.paraver_memory)


@arguments.takes(calls.CallOptions)
def check(trace: AnyPath, options: calls.CallOptions) -> CheckResult:
    """Check a trace of any tool by the rules of Paraver's own parser.

    `trace`: a .prv or .prv.gz with its .pcf and .row beside it. Broken rules are part of the answer, not an error.
    """
    from nsys2prv_ng.paraver.checker.trace import check_trace
    from nsys2prv_ng.runtime.jit import announce_compilation

    path = read(parse_path, trace, "trace")
    progress = options.display
    size = path.stat().st_size if path.is_file() else 0
    with announce_compilation(progress.note), progress.step(f"checking {path}", size, "B") as step:
        return check_trace(path, progress=step.update)
