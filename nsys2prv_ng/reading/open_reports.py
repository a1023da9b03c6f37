"""Reads the reports of a job wherever its engine works, or loads them from a folder of shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import field, replace
from pathlib import Path

from nsys2prv_ng.clock.alignment import uses_collectives
from nsys2prv_ng.errors import ReportError, UsageError
from nsys2prv_ng.reading.accounts import SkippedReport
from nsys2prv_ng.reading.read_report import NO_HELPERS, Helpers, read_report
from nsys2prv_ng.reading.read_reports import ReadReport, order_reports, read_each
from nsys2prv_ng.reading.shards import WhatToRead, find_shards, load_shards, write_shard
from nsys2prv_ng.records.folder_store import FolderStore
from nsys2prv_ng.records.store import LocalStore, Store
from nsys2prv_ng.report.export_all import locate_exports
from nsys2prv_ng.report.files import get_export_size, get_report_size, refuse_missing, refuse_no_reports, refuse_twice
from nsys2prv_ng.runtime.limits import Resources
from nsys2prv_ng.runtime.parallel import Engine, LocalEngine
from nsys2prv_ng.runtime.processes import Work
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.registry import APART, DERIVED, SOURCES, WITH_EVIDENCE
from nsys2prv_ng.sources.shared.source import Source
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from nsys2prv_ng.text.formatting import count_noun, format_bytes
from nsys2prv_ng.value_class import ValueClass

Window = tuple[int | None, int | None]

_LARGE = 100 << 20
"""Least bytes of a report that several processes read: to start one takes as long as to read 20 MB."""


class Selection(ValueClass, frozen=True):
    """The user's selection; None and empty values restrict nothing.

    `window`: limits in ns from the start of the trace. `only_gpus`: from the first to the last GPU operation. `step`:
    name of the NVTX ranges that are the steps of the program; if empty, the steps are found. `steps`: first and last
    step, by number. `cuts_steps`: a choice of steps cuts records; otherwise it only restricts what numbers cover.
    `nvtx_range`: only while such a range is open on any rank (the NVTX source finds its times). `shortest`:
    the length (ns) below which intervals are dropped, by source. `folds_threads`: the idle threads of a task share a
    row.
    """

    window: Window | None = None
    only_gpus: bool = False
    step: str = ""
    steps: Window | None = None
    skips_warmup: bool = False
    nvtx_range: str = ""
    cuts_steps: bool = True
    ranks: frozenset[int] | None = None
    gpus: frozenset[int] | None = None
    shortest: Mapping[str, int] = field(default_factory=dict)
    folds_threads: bool = False

    @property
    def restricts_time(self) -> bool:
        return self.cuts_records or self.restricts_steps

    @property
    def takes_all(self) -> bool:
        """Whether the user chose all time, also that before the first step."""
        return self.window == (None, None) and not self.restricts_steps

    @property
    def cuts_records(self) -> bool:
        return (
            self.window not in (None, (None, None))
            or self.only_gpus
            or bool(self.nvtx_range)
            or (self.restricts_steps and self.cuts_steps)
        )

    @property
    def restricts_steps(self) -> bool:
        return self.steps is not None or self.skips_warmup


class ReadOptions(ValueClass):
    """What to read from reports, which resources to use, and how to place the records in time.

    `named_sources`: sources that the user named: each must have events in some report. `align`: one of
    clock.alignment.WAYS, or a file that was written as `align_report`. `find_waits`: match operations across ranks even
    if no clock needs them. `strict`: raise an error if one of several reports cannot be read, instead of skipping it.
    `several_jobs`: accept reports that look like different jobs. `engine`: the engine that works on the reports; None
    for processes and threads of this machine.
    """

    sources: tuple[Source, ...] = SOURCES + DERIVED
    named_sources: tuple[str, ...] = ()
    source_options: SourceOptions = field(default_factory=SourceOptions)
    selection: Selection = field(default_factory=Selection)
    align: str | Path = "auto"
    find_waits: bool = True
    strict: bool = False
    several_jobs: bool = False
    resources: Resources = field(default_factory=Resources)
    engine: Engine | None = None


class OpenedReports(ValueClass):
    """Reports that were read, the store with their records, and the engine that works on them.

    `read`: in an order that does not depend on the order on the command line. `options`: options of the user, or the
    options with which the shards were read. `is_all`: whether these are all reports of the user, not a choice of them.
    """

    read: list[ReadReport]
    store: Store
    engine: Engine
    skipped: list[SkippedReport]
    options: ReadOptions
    is_all: bool = False


@contextmanager
def open_reports(
    reports: Sequence[Path], folder: Path, options: ReadOptions, progress: Progress, meanwhile: Callable[[], object]
) -> Iterator[OpenedReports]:
    """Read reports, or load shards; the records exist while the context is open.

    `meanwhile` and errors: as for `open_job`.
    """
    refuse_twice(reports)
    refuse_missing(reports)
    errors: dict[Path, ReportError] | None = None if options.strict or len(reports) == 1 else {}
    if manifests := find_shards(reports):
        with _open_shards(manifests, reports[0], folder, options, progress) as opened:
            yield opened
    elif options.engine is not None and options.engine.folder is not None:
        engine, shared = options.engine, options.engine.folder
        made = _write_shards(reports, shared, options, engine, progress, errors)
        read = order_reports([shard.report for shard in load_shards(made)], progress)
        with closing(FolderStore(shared)) as store:
            yield OpenedReports(read, store, engine, report_skipped(errors or {}, progress), options)
    else:
        with _read_here(reports, folder, options, progress, errors, meanwhile) as opened:
            yield opened


@contextmanager
def _read_here(
    reports: Sequence[Path],
    folder: Path,
    options: ReadOptions,
    progress: Progress,
    errors: dict[Path, ReportError] | None,
    meanwhile: Callable[[], object],
) -> Iterator[OpenedReports]:
    """Read reports in processes of this machine. Add reports that cannot be read to `errors`; without it, raise them.

    Also raises the first of these errors if no report is left.
    """
    resources, sources = options.resources, options.sources
    exports = locate_exports(reports, folder, progress, resources.jobs, errors, resources.folder)
    sizes = {export: get_export_size(export) for export in exports}
    exports.sort(key=sizes.__getitem__, reverse=True)  # so that no large report is read alone at the end
    evidence = choose_evidence(options, reports=len(exports))
    readers = resources.count_readers(list(sizes.values()))
    largest = max(sizes.values(), default=0)
    # Small reports soon leave their cores to the large ones.
    busy = max(1, min(readers, round(sum(sizes.values()) / max(largest, 1))))
    if resources.must_exceed(largest):
        size = format_bytes(largest)
        progress.warn(f"{exports[0]}: to read its {size} takes one to four times as much memory, whatever the limit")
    for_each = min(resources.jobs // busy - 1, len(APART)) if largest >= _LARGE else 0
    helpers = [NO_HELPERS]
    with LocalStore(resources.folder or folder, resources.memory) as store:

        def read_one(index: int, tick: Callable[[int], object]) -> ReadReport | ReportError:
            try:
                return read_report(exports[index], sources, options.source_options, store, tick, evidence, helpers[0])
            except ReportError as error:
                if errors is None:
                    raise
                return error

        work, title = Work(len(exports), read_one), f"reading {count_noun(len(exports), 'report')}"
        with (
            progress.step(title, len(exports) * len(sources), "source") as step,
            store.lend_shelves(readers * (1 + for_each)) as take_shelf,
        ):

            def choose_helpers(reader: int) -> None:
                helpers[0] = Helpers(for_each, lambda number: take_shelf(readers + for_each * reader + number))

            def start(reader: int) -> None:
                take_shelf(reader)
                choose_helpers(reader)

            choose_helpers(0)
            answers = read_each(work, readers, step.update, start, meanwhile)
        if errors is not None:
            answered = zip(exports, answers, strict=True)
            errors.update({path: answer for path, answer in answered if isinstance(answer, ReportError)})
        read = [answer for answer in answers if isinstance(answer, ReadReport)]
        refuse_no_reports(read, errors)
        read = order_reports(read, progress)
        workers = resources.count_workers(largest)
        engine = LocalEngine(workers, resources.jobs, sum(sizes.values()), store.lend_shelves)
        yield OpenedReports(read, store, engine, report_skipped(errors or {}, progress), options)


@contextmanager
def _open_shards(
    manifests: Sequence[Path], shards: Path, folder: Path, options: ReadOptions, progress: Progress
) -> Iterator[OpenedReports]:
    """Load the shards of a folder, which does not change unless an engine works in it."""
    loaded = load_shards(manifests)
    how = loaded[0].options
    if options.selection.nvtx_range:
        raise UsageError("its times were not kept when the reports were read; choose a time", parameter="nvtx_range")
    options = replace(
        options,
        sources=how.read_sources,
        source_options=how.source_options,
        find_waits=options.find_waits and how.finds_waits,
    )
    read = order_reports([shard.report for shard in loaded], progress)
    if options.engine is not None and options.engine.folder is not None:
        with closing(FolderStore(options.engine.folder, read_from=shards.absolute())) as store:
            yield OpenedReports(read, store, options.engine, [], options, is_all=True)
        return
    resources = options.resources
    size = get_report_size(shards)
    workers = resources.count_workers(size // len(manifests))
    with (
        closing(FolderStore(shards)) as kept,
        LocalStore(resources.folder or folder, resources.memory, read_from=kept) as local,
    ):
        engine = LocalEngine(workers, resources.jobs, size, local.lend_shelves)
        yield OpenedReports(read, local, engine, [], options, is_all=True)


def _write_shards(
    reports: Sequence[Path],
    folder: Path,
    options: ReadOptions,
    engine: Engine,
    progress: Progress,
    errors: dict[Path, ReportError] | None,
) -> list[Path]:
    """Have an engine read reports into a folder; return the manifests. Add reports that cannot be read to `errors`."""
    how = WhatToRead(tuple(source.name for source in options.sources), options.source_options, options.find_waits)

    def write(report: Path) -> Path | ReportError:
        try:
            return write_shard(report, folder, how)
        except ReportError as error:
            if errors is None:
                raise
            return error

    made = []
    # A worker may run in another folder.
    given = sorted(map(Path.absolute, reports), key=lambda report: (-get_report_size(report), str(report)))
    with progress.step(f"reading {count_noun(len(given), 'report')}", len(given), "report") as step:
        for report, answer in zip(given, engine.map(write, given), strict=True):
            if isinstance(answer, Path):
                made.append(answer)
            elif errors is not None:
                errors[report] = answer
            step.update(1)
    refuse_no_reports(made, errors)
    return made


def choose_evidence(options: ReadOptions, *, reports: int) -> tuple[Source, ...]:
    """Return the sources whose operations across ranks are needed. For clocks, these include sources not chosen."""
    if uses_collectives(options.align) and reports > 1:
        return WITH_EVIDENCE
    return tuple(source for source in WITH_EVIDENCE if options.find_waits and source in options.sources)


def refuse_absent(read: Sequence[ReadReport], named: Sequence[str]) -> None:
    """Raise UsageError if the user named a source of which no report has events."""
    joined = [source.name for source in SOURCES if source.accounted_in_join]
    absent = [name for name in named if name not in joined and not any(report.results[name].read for report in read)]
    if absent:
        what = "reports have" if len(read) > 1 else "report has"
        raise UsageError(f"the {what} no events of {', '.join(absent)}", parameter="sources")


def report_skipped(errors: Mapping[Path, ReportError], progress: Progress) -> list[SkippedReport]:
    """Warn about skipped reports, in an order that does not depend on the command line."""
    for path in sorted(errors):
        progress.warn(f"skipped, as it cannot be read: {errors[path]}")
    return [SkippedReport.from_error(path, errors[path]) for path in sorted(errors)]
