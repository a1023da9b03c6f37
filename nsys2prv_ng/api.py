"""What programs call: a translation with the options of the command line as keyword arguments."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Union

from nsys2prv_ng.errors import UsageError

if TYPE_CHECKING:
    from nsys2prv_ng.runtime.progress import Progress
    from nsys2prv_ng.sources.shared.source import Source, SourceOptions
    from nsys2prv_ng.translation.result import TranslationResult

# Numba, pandas and pyarrow are imported where they are used, so that the command line's --help answers at once.

AnyPath = Union[str, "os.PathLike[str]"]


def translate(
    reports: AnyPath | Iterable[AnyPath],
    output: AnyPath,
    *,
    sources: Iterable[str] | None = None,
    derived: bool = True,
    align: AnyPath = "auto",
    align_report: AnyPath | None = None,
    time: tuple[int | None, int | None] | None = None,
    nvtx_range: str = "",
    ranks: Iterable[int] | None = None,
    gpus: Iterable[int] | None = None,
    min_duration: Mapping[str, int] | None = None,
    nvtx_domain: Iterable[str] = (),
    kernel_names: Literal["short", "demangled"] = "short",
    metrics: Iterable[str] = (),
    metrics_changes: bool = False,
    osrt_min: int = 10_000,
    stack_depth: int = 1,
    labels_from: AnyPath | None = None,
    jobs: int | None = None,
    memory: int | None = None,
    tmp: AnyPath | None = None,
    strict: bool = False,
    force: bool = False,
    summary: AnyPath | None = None,
    overview: bool = False,
    progress: Progress | None = None,
) -> TranslationResult:
    """Translate reports, of one job and in any order, into a Paraver trace; returns what was read, written and dropped.

    The keywords are the options of `nsys2prv-ng translate`. Times and lengths are ns, memory is bytes.

    reports: .nsys-rep files, or their exports (.sqlite, _pqtdir, _arwdir). output: OUT.prv or OUT.prv.gz; the .pcf and
        the .row are written beside it.
    sources: names of the kinds of event to translate; None for all. derived: also what is made of all operations of a
        GPU together (its activity, its gaps).
    align: "auto", "utc", "collectives" or "none", or a file that `align_report` named before. align_report: a file to
        write offset and drift of each node's clock to.
    time: only from .. to, counted from the start of the trace; None for no limit. nvtx_range: only while an NVTX range
        of this text (* and ?) is open on any rank.
    ranks, gpus: only these, GPUs by their number on the node. min_duration: by source, leave out shorter intervals.
    nvtx_domain, metrics: patterns (* and ?) of the NVTX domains and of the GPU metrics to show; none for all.
        metrics_changes: of GPU metrics only the values that changed.
    kernel_names: "short", or "demangled" with template arguments. osrt_min: leave out shorter calls of the operating
        system; 0 keeps all. stack_depth: how many levels of call stacks, from 1, are shown.
    labels_from: another trace's .pcf, whose numbers of types and names are kept.
    jobs: cores to use; None for all. memory: for events, past which they wait in a file in the folder `tmp`; None for
        a quarter of the machine's or the job's, and for the folder of the trace.
    strict: raise an error if one of several reports cannot be read, instead of leaving it out (`Summary.left_out`).
    force: replace a trace of the same name. summary: a file to write the returned value to as JSON.
    overview: sum up the first numbers of the job as well (`Summary.overview`).
    progress: what shows how far it is, and warnings (`Summary.warnings` has them too); None for nothing.

    Raises TranslationError, with one line of text: UsageError for what was asked for, ReportError for a report that
    cannot be read. Nothing is left under the name of the trace then, unless it is `align_report` or `summary` that
    cannot be written.
    """
    from nsys2prv_ng.clock.alignment import parse_alignment
    from nsys2prv_ng.job.selection import Selection
    from nsys2prv_ng.paraver.event_types import STACK_LEVELS
    from nsys2prv_ng.runtime import jit as compiling
    from nsys2prv_ng.runtime.limits import Resources, count_usable_cores, get_default_memory
    from nsys2prv_ng.runtime.progress import Progress
    from nsys2prv_ng.sources import select_sources
    from nsys2prv_ng.sources.shared.source import SourceOptions
    from nsys2prv_ng.translation.translate import Options
    from nsys2prv_ng.translation.translate import translate as run

    given = [Path(reports)] if isinstance(reports, (str, os.PathLike)) else list(map(Path, reports))
    _check_names(given, Path(output))
    lists = {"sources": sources, "ranks": ranks, "gpus": gpus, "nvtx_domain": nvtx_domain, "metrics": metrics}
    _check_values(lists, {"jobs": (jobs, 1), "memory": (memory, 0), "osrt_min": (osrt_min, 0)})
    if kernel_names not in ("short", "demangled"):
        raise UsageError(f"--kernel-names {kernel_names}: short or demangled")
    if not 1 <= stack_depth <= STACK_LEVELS:
        out = "; to leave samples out, name other --sources" if stack_depth == 0 else ""
        raise UsageError(f"--stack-depth {stack_depth}: from 1 to {STACK_LEVELS}{out}")
    if metrics_changes and (time is not None or nvtx_range):
        raise UsageError("--metrics-changes does not go with --time or --nvtx-range: values in force would be lost")
    source_options = SourceOptions(
        nvtx_domains=tuple(nvtx_domain),
        nvtx_range=nvtx_range,
        demangled_names=kernel_names == "demangled",
        metrics=tuple(metrics),
        metrics_changes=metrics_changes,
        osrt_min=osrt_min,
        stack_depth=stack_depth,
    )
    chosen = select_sources(None if sources is None else ",".join(sources), derived=derived)
    shortest = dict(min_duration or {})
    _check_sources(chosen, source_options, shortest)
    options = Options(
        sources=chosen,
        source_options=source_options,
        selection=Selection(
            window=time,
            nvtx_range=nvtx_range,
            ranks=None if ranks is None else frozenset(ranks),
            gpus=None if gpus is None else frozenset(gpus),
            shortest=shortest,
        ),
        align=parse_alignment(os.fspath(align)),
        align_report=_path(align_report),
        summary=_path(summary),
        labels_from=_path(labels_from),
        strict=strict,
        force=force,
        overview=overview,
        resources=Resources(
            jobs=jobs or count_usable_cores(),
            memory=get_default_memory() if memory is None else memory,
            folder=_path(tmp),
        ),
    )
    shown = progress or Progress()
    with compiling.announce_compilation(shown.note):
        return run(given, Path(output), options, shown)


def _check_names(reports: Sequence[Path], output: Path) -> None:
    if not output.name.endswith((".prv", ".prv.gz")):
        raise UsageError(f"{output}: is no name of a trace: give OUT.prv or OUT.prv.gz")
    if not reports:
        raise UsageError(f"no report given to translate into {output}")
    for report in reports:
        if report.name.endswith((".prv", ".prv.gz")):
            raise UsageError(f"{report}: a trace among the reports")


def _check_values(lists: Mapping[str, object], numbers: Mapping[str, tuple[int | None, int]]) -> None:
    for name, value in lists.items():
        if isinstance(value, str):  # which iterates over its letters
            raise UsageError(f"{name}={value!r}: give a list, [{value!r}]")
    for name, (number, least) in numbers.items():
        if number is not None and number < least:
            raise UsageError(f"{name}={number}: at least {least}")


def _check_sources(chosen: Sequence[Source], options: SourceOptions, shortest: Mapping[str, int]) -> None:
    """Refuse options of sources that are not chosen."""
    names = [source.name for source in chosen if not source.derived]
    for option, value, source in (
        ("--nvtx-range", options.nvtx_range, "nvtx"),
        ("--nvtx-domain", options.nvtx_domains, "nvtx"),
        ("--metrics", options.metrics, "gpu_metrics"),
        ("--metrics-changes", options.metrics_changes, "gpu_metrics"),
    ):
        if value and source not in names:
            raise UsageError(f"{option} needs the source {source} among --sources")
    for source in shortest:
        if source not in names:
            raise UsageError(f"--min-duration {source}: none of the sources that are translated: {', '.join(names)}")


def _path(path: AnyPath | None) -> Path | None:
    return None if path is None else Path(path)
